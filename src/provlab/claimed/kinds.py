"""The kinds of claims (`kinds.toml`): what a line says, and the ladder of facts by which it is judged."""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provlab.errors import ParameterError, nearest

SUPPORTED, NOT_REFUTED, REFUTED, NOT_TESTABLE = "supported", "not refuted", "refuted", "not testable"
OUTCOMES = (SUPPORTED, NOT_REFUTED, REFUTED, NOT_TESTABLE)
PAIRS, TREE, ITEMS = "pairs", "tree", "items"
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-fA-F]+)")
_LETTERS = 64  # of a SHA-256 in hex


@dataclass(frozen=True)
class Rung:
    """One fact, and what a claim comes to where it holds: an outcome, the name of its error, and why."""

    fact: str
    outcome: str
    error: str
    why: str


@dataclass(frozen=True)
class Kind:
    """One kind of claim; `kinds.toml` says what the fields are."""

    name: str
    form: str
    asks: tuple[str, ...]
    test: str
    refuting: str
    fooled: str
    ladder: tuple[Rung, ...]
    relations: tuple[str, ...] = ()

    @property
    def begins(self) -> str:
        """The words before the first model."""
        return self.form.partition("{")[0].strip()

    def read(self, line: str) -> "Claim | None":
        """Take a line of this kind; None if it is of another one.

        Raises
        ------
        ParameterError
            It begins as one, and does not go on so.
        """
        if line != self.begins and not line.startswith(f"{self.begins} "):
            return None
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+)", re.escape(self.form))
        if (found := re.fullmatch(pattern, line)) is None:
            raise ParameterError(f"{line!r} is cut short; it is written: {self.written}")
        parts = {name: text.strip() for name, text in found.groupdict().items()}
        bases = tuple(re.split(r",\s*|\s+and\s+", parts["bases"])) if "bases" in parts else ()
        if "bases" in parts and (len(bases) < 2 or not all(bases)):
            raise ParameterError(f"{line!r} names one model; a merge is written: {self.written}")
        if len(set(bases)) < len(bases):
            raise ParameterError(f"{line!r} names a model twice; a merge is written: {self.written}")
        bases = (parts["base"],) if "base" in parts else bases
        if torn := next((base for base in bases if " " in base and not Path(base).expanduser().exists()), None):
            raise ParameterError(f"{torn!r} is no model; this claim is written: {self.written}")
        return Claim("", line, self, bases, _sha256(parts.get("digest")), parts.get("items", ""))

    @property
    def written(self) -> str:
        """The form, with letters in place of its parts."""
        return self.form.format(base="B", bases="A and B", digest="SHA256", items="ITEMS.jsonl")


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes
    ----------
    model : str
        Of which it is made.
    line : str
        As it was written.
    kind : Kind
    bases : tuple of str
        The models that it names.
    digest, items : str
        The digest, and the file of items that it names; "" if none.
    """

    model: str
    line: str
    kind: Kind
    bases: tuple[str, ...] = ()
    digest: str = ""
    items: str = field(default="")


def _sha256(digest: str | None) -> str:
    """Return the hex digits of a digest in small letters.

    Raises
    ------
    ParameterError
        It is no SHA-256 in hex.
    """
    if digest is None:
        return ""
    found = _DIGEST.fullmatch(digest)
    if found is None or len(found[1]) != _LETTERS:
        what = f"has {len(found[1])} hex digits" if found else "is none"
        raise ParameterError(f"a digest is a SHA-256 of {_LETTERS} hex digits, and {digest!r} {what}")
    return found[1].lower()


_TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("kinds.toml").read_text(encoding="utf-8"))
ERRORS: Mapping[str, str] = _TABLE["errors"]
KINDS: Mapping[str, Kind] = {
    name: Kind(
        name,
        **row
        | {"asks": tuple(row["asks"]), "relations": tuple(row.get("relations", ()))}
        | {"ladder": tuple(Rung(**rung) for rung in row["ladder"])},
    )
    for name, row in _TABLE["kinds"].items()
}


def read(line: str) -> Claim:
    """Read a claim, of no model yet.

    Raises
    ------
    ParameterError
        It is of no kind that is judged here, or not written as its kind is.
    """
    words = " ".join(line.split())
    for kind in KINDS.values():
        if claim := kind.read(words):
            return claim
    begins = {kind.begins: kind.written for kind in KINDS.values()}
    hint = nearest(" ".join(words.split()[:2]), begins) or f"; there are: {'; '.join(begins.values())}"
    raise ParameterError(f"{words!r} is no claim that is judged here{hint}")


def judged(kind: Kind, holds: Callable[[str], bool]) -> Rung:
    """Return the first rung of a kind whose fact holds."""
    return next(rung for rung in kind.ladder if holds(rung.fact))
