"""Parts of a checkpoint by name: its vision tower, an encoder inside, its embedding, or all below a prefix.

``MODEL::NAME`` opens the part that has such tensors, ``MODEL::NAME=PREFIX`` what lies below a prefix, whatever it is
called. A part is read by the shapes of its tensors, not by a table: what repeats under numbers is its blocks, and the
MLP of a block is a matrix (m, d) that another one (d, m) undoes, outside the attention. So it is compared by its
weights, and not run. A prefix below which one matrix lies, and no block, is a table, one row a token.

A LoRA adapter is a part too: each pair A (r, inputs), B (outputs, r) is a block of r units. Training treats the units
of a pair alike, as it does hidden units, where they were drawn at random; so phi_U asks the same of their order.
"""

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from provlab.errors import InputError, nearest, one_line
from provlab.reading.architectures import sees

if TYPE_CHECKING:
    from provlab.reading.roles import Tensors

LANGUAGE, EMBEDDING, ADAPTER = "language", "embedding", "adapter"
#: part -> what the path of its blocks has in it, and what it lacks
_WORDS = {
    "vision": (r"vision|visual|image|pixel|(^|[._])vit", r"$^"),
    "sound": (r"audio|speech|sound", r"$^"),
    "encoder": (r"(^|[._])encoder", r"vision|visual|image|audio|speech"),
    "decoder": (r"(^|[._])decoder", r"vision|visual|image|audio|speech"),
}
NAMES = (LANGUAGE, *_WORDS, EMBEDDING, ADAPTER)
_SUFFIX = re.compile(r"(?P<source>.+)::(?P<name>[\w-]+)(?:=(?P<prefix>[^\s:]*))?", re.DOTALL)
PLACE = re.compile(r"(.*?)(?:^|\.)(\d+)\.(.+)")  # of a tensor in a block: path of the blocks, number, inside


class Part(NamedTuple):
    """A part that was asked for: its name, and the prefix of its tensors; empty where it is found by tensors."""

    name: str
    prefix: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.prefix}" if self.prefix else self.name


def split(source: str | Path) -> tuple[str, Part | None]:
    """Split ``MODEL::PART``; a path that exists is no such text.

    Raises
    ------
    InputError
        No part has this name, and no prefix says which tensors it has.
    """
    match = _SUFFIX.fullmatch(source) if isinstance(source, str) else None
    if match is None or Path(str(source)).exists():
        return str(source), None
    name, prefix = match["name"], (match["prefix"] or "").removesuffix(".")
    if match["prefix"] is not None and not prefix:
        raise InputError(f"the prefix behind {name}= is missing; give that of its tensors: {name}=PREFIX")
    if not prefix and name not in NAMES:
        hint = nearest(name, NAMES) or f"; parts are {', '.join(NAMES)}"
        raise InputError(f"there is no part {name!r}{hint}; or give its prefix: {name}=PREFIX")
    return match["source"], Part(name, prefix)


def placed(checkpoint: "Tensors", part: Part) -> Part:
    """Return the part with the prefix of its tensors; of the language part and an embedding it stays empty.

    Raises
    ------
    InputError
        The model lacks it, or has several.
    """
    names, label = checkpoint.tensor_names, checkpoint.name
    if part.prefix:
        if not below(names, part.prefix):
            tops = sorted({".".join(name.split(".")[:2]) for name in names})
            shown = ", ".join(tops[:6]) + ", ..." * (len(tops) > 6)
            hint = nearest(part.prefix, tops)
            raise InputError(f"{label} has no tensor below {one_line(part.prefix)[:80]}{hint}; it has {shown}")
        return part
    if part.name not in _WORDS:
        return part
    has, lacks = _WORDS[part.name]
    # one block needs no number: then what is called so may be one
    heads = {".".join(name.split(".")[: k + 1]) for name in names for k in range(name.count("."))}
    stacks = sorted({path for path, _, _ in in_blocks(names)} or {head for head in heads if re.search(has, head)})
    fitting = [path for path in stacks if re.search(has, path) and not re.search(lacks, path)]
    if not fitting and part.name == "vision" and len(stacks) == 1 and "image_size" in checkpoint.config:
        fitting = stacks  # a model that does nothing but see needs no name for it
    fitting = [path for path in fitting if not any(path.startswith(f"{other}.") for other in fitting)]
    if len(fitting) != 1:
        what = f"several parts that may be called {part.name}" if fitting else f"no part {part.name}"
        shown = ", ".join(fitting or stacks) or "no blocks"
        raise InputError(f"{label} has {what}: its blocks lie in {shown}; give the prefix: {part.name}=PREFIX")
    return part._replace(prefix=fitting[0])


def note(label: str, part: Part) -> str:
    """Say in a verdict that a part alone was compared."""
    where = f", the tensors below {part.prefix}" if part.prefix else ""
    words = f"Only the part {part.name} of {label} was compared{where}."
    if part.name == ADAPTER:
        words += " Two adapters over one base that were begun from one seed agree too, whatever they were trained on."
    return words


def below(names: Collection[str], prefix: str) -> list[str]:
    """Names at or below a prefix; all below none."""
    return [name for name in names if not prefix or name == prefix or name.startswith(f"{prefix}.")]


def in_blocks(names: Collection[str]) -> Iterator[tuple[str, int, str]]:
    """Yield path, number and place inside of each tensor in a block that holds more than one module."""
    placed = [match.groups() for name in names if (match := PLACE.fullmatch(name))]
    inside: dict[str, set[str]] = {}
    for path, _, within in placed:
        inside.setdefault(path, set()).add(within)
    for path, number, within in placed:
        if sum(name.endswith("weight") for name in inside[path]) > 2:
            yield path, int(number), within


def language(checkpoint: "Tensors") -> bool:
    """Whether what is read is the language part of a model that does more."""
    part: Part | None = getattr(checkpoint, "piece", None)
    return sees(checkpoint.config) and (part is None or part.name == LANGUAGE)
