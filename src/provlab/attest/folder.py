"""A report as a folder: written with an answer, checked against itself, and recomputed from the models' bytes.

``index.html`` is the page, ``result.json`` the call and its result, ``statement.json`` the in-toto statement, and
``pedigree.cdx.json`` the CycloneDX document where its library is installed.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

from provlab import machine, plugins, provenance
from provlab.api import compare
from provlab.attest.conclusion import opening
from provlab.attest.statement import (
    COMMANDS,
    PREDICATE,
    TOLERANCE,
    Json,
    as_text,
    files_read,
    pedigree,
    predicate,
    statement,
)
from provlab.errors import EvidenceError, InputError, ProvlabError, one_line
from provlab.files import atomic_folder
from provlab.reading.checkpoint import Checkpoint, identical
from provlab.reading.part import split
from provlab.report import views

if TYPE_CHECKING:
    from provlab.report.card import Card


class Answer(Protocol):
    """What a question comes to: of `compare`, and of each door that `provlab.plugins` names."""

    def to_json(self) -> Json: ...
    def to_page(self, below: Sequence[Any] = ()) -> str: ...
    def card(self) -> "Card": ...


SCHEMA = "provlab.evidence/2"
PAGE, RESULT, STATEMENT, PEDIGREE = "index.html", "result.json", "statement.json", "pedigree.cdx.json"
#: keys of a result that say where models lay and what computed them, and not what they are
ELSEWHERE = {"versions", "source", "name", "commit", "not_verified"}
_WRITTEN = {"serialNumber", "metadata.timestamp"}  # of a pedigree: drawn when it is written
_NUMBER = re.compile(r"\d[\d.,]*(?:e[+-]?\d+)?|nan|inf")
_PICTURE = re.compile(r"<figure.*?</figure>", re.DOTALL)


def write(folder: Path, question: str, arguments: Mapping[str, Any], result: Answer) -> None:
    """Write an answer as a folder, whole or not at all.

    Parameters
    ----------
    folder
        One that was there is replaced.
    question
        "compare", or the name of a door that `provlab.plugins` finds: "tree", "diff".
    arguments
        Its keyword arguments, JSON-able; `allow_pickle` is left to those who recompute it.
    result
        The result of this call.
    """
    kept = {name: value for name, value in arguments.items() if name != "allow_pickle"}
    today = datetime.now(UTC).date().isoformat()
    content = {"schema": SCHEMA, "date": today, "question": question, "arguments": kept, "machine": _machine()}
    content = json.loads(json.dumps({**content, "result": result.to_json()}))
    files = {RESULT: as_text(content), PAGE: _page(result, content)}
    if find_spec("cyclonedx"):
        files[PEDIGREE] = pedigree(content)
    hashes = {name: _sha256(text.encode()) for name, text in files.items()}
    with atomic_folder(folder) as temporary:
        for name, text in {**files, STATEMENT: as_text(statement(content, hashes))}.items():
            (temporary / name).write_text(text, encoding="utf-8")


def _machine() -> Json:
    return {"processor": provenance.processor(), "threads": machine.threads()}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _page(result: Answer, content: Json) -> str:
    """The result as a page, and below it what it was made from and how to recompute it."""
    about, models = predicate(content), content["result"]["models"]
    files = [(m["source"], name, file["sha256"]) for m in models for name, file in files_read(m).items()]
    read = [f"{name}: {tensors}" for name, tensors in about["read"].items()]
    made = {**content["machine"], **content["result"]["versions"]}
    below: list[views.Table | views.Listed] = [
        views.Table(("model", "file", "SHA-256"), files),
        views.Listed("Read", [*read, f"units matched: {about['units_matched']}", f"seed: {content['result']['seed']}"]),
        views.Listed("Computed by", [f"{name} {value}" for name, value in made.items()]),
        views.Listed("Recompute this folder from the models, and sign it", COMMANDS),
    ]
    return result.to_page(below).replace("<body>", f"<body>{opening(content)}", 1)


def read(folder: Path) -> Json:
    """Return the content of ``result.json``, once the folder agrees with itself.

    Raises
    ------
    EvidenceError
        A file is missing, damaged, changed or one too many, or the folder is of another version.
    """
    try:
        kept = json.loads((folder / STATEMENT).read_bytes())
        if kept["predicateType"] != PREDICATE:
            raise EvidenceError(f"{STATEMENT} is not of type {PREDICATE}: another version of provlab wrote it")
        hashes = dict(kept["predicate"]["folder"])
        present = {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
        for name in sorted(present ^ {*hashes, STATEMENT, RESULT, PAGE}):
            raise EvidenceError(f"{name} is {'not part of the report' if name in present else 'missing'}")
        for name, sha256 in hashes.items():
            if (ours := _sha256((folder / name).read_bytes())) != sha256:
                raise EvidenceError(f"{name} has SHA-256 {ours[:12]}, and the statement says {str(sha256)[:12]}")
        content: Json = json.loads((folder / RESULT).read_bytes())
        if content["schema"] != SCHEMA:
            raise EvidenceError(f"{RESULT} is {content['schema']}, not {SCHEMA}: another version of provlab wrote it")
        date.fromisoformat(content["date"])
        result = content["result"]
        if content["question"] != "compare" and result["schema"] != (ours := _door(content["question"]).SCHEMA):
            made = f"{result['schema']}, and this one writes {ours}"
            by = f"provlab {result['versions']['provlab']}"
            raise EvidenceError(f"the {content['question']} is {made}: verify it by {by}")
        again = {STATEMENT: statement(content, hashes)}
        if PEDIGREE in hashes and find_spec("cyclonedx"):
            again[PEDIGREE] = json.loads(pedigree(content))
        for name, right in again.items():
            for at, *_ in differences(json.loads((folder / name).read_bytes()), right):
                if name == STATEMENT or at not in _WRITTEN:
                    raise EvidenceError(f"{name} says another thing than {RESULT}: {at}")
        if (folder / STATEMENT).read_bytes() != as_text(again[STATEMENT]).encode():
            raise EvidenceError(f"{STATEMENT} is not in the form that provlab writes")
    except OSError as error:
        raise EvidenceError(f"{folder} is no whole report: {one_line(error)}") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceError(f"{folder} is no whole report: a file of it holds no JSON: {one_line(error)}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # a value of another kind, or a field less
        lacks = (
            f"a file of it lacks {error}"
            if isinstance(error, KeyError)
            else "a field of it holds another kind of value"
        )
        raise EvidenceError(
            f"{folder} is no whole report: {lacks}; provlab did not write it so: have it written again by --report"
        ) from error
    return content


def recompute(folder: Path, models: Sequence[str] = (), *, allow_pickle: bool = False) -> tuple[list[str], Answer]:
    """Recompute a report from the models' bytes; return how well it agrees, in sentences, and the result.

    Parameters
    ----------
    folder
        As `write` left it.
    models
        Where the models lie, in the report's order; by default where it found them.
    allow_pickle
        Also open ``.bin`` weights.

    Raises
    ------
    EvidenceError
        Something differs; the message says what.
    """
    content = read(folder)
    kept = content["result"]
    sources = list(models) or [_at_commit(model) for model in kept["models"]]
    if len(sources) != len(kept["models"]):
        raise EvidenceError(f"the report is of {len(kept['models'])} models, and {len(sources)} are given")
    names: dict[str, str] = {}
    others: list[str] = []  # sources of the same tensors in other files
    for source, model in zip(sources, kept["models"], strict=True):
        try:
            checkpoint = Checkpoint.open(source, allow_pickle=allow_pickle)
        except ProvlabError as error:
            if models or Path(split(source)[0]).exists():
                raise
            where = " ".join(Path(str(model["source"])).name for model in kept["models"])
            hint = f"or say where the models lie, in the report's order: provlab verify {folder} {where}"
            raise InputError(f"{one_line(error)}; {hint}") from error
        identical([checkpoint])  # hashes the files: no remembered hash counts
        for at, old, new in differences(model["files"], checkpoint.files()):
            if not _forged(model["files"], checkpoint.files()) and _same_content(model, checkpoint):
                others.append(source)
                break
            raise EvidenceError(f"{source} is not {model['source']}: {at} is {str(new)[:12]}, not {str(old)[:12]}")
        own = checkpoint.tokenizer_files() if "tokenizer" in model else None
        for at, old, new in differences(model.get("tokenizer"), own):
            told = f"{at} of its tokenizer is {str(new)[:12]}, not {str(old)[:12]}"
            raise EvidenceError(f"{source} reads otherwise than {model['source']}: {told}")
        names |= {source: model["source"], checkpoint.name: model["name"]}
    result = _answer(content, sources, allow_pickle)
    fresh = json.loads(_renamed(json.dumps(result.to_json()), names))
    for source, ours, theirs in zip(sources, fresh["models"], kept["models"], strict=True):
        if source in others:
            ours |= {key: theirs[key] for key in ("digest", "files")}
    claims = differences({**content["machine"], **kept["versions"]}, {**_machine(), **fresh["versions"]})
    claimed = [f"{name} {old} (here {new})" for name, old, new in claims]
    lines = [
        f"{folder}: {content['question']} of {len(sources)} models, {_agreement(kept, fresh, exactly=not claimed)}"
    ]
    pages = [(folder / PAGE).read_text(encoding="utf-8"), _renamed(_page(result, content), names)]
    if claimed:
        claim = f"The folder claims {', '.join(claimed)}, which nothing proves"
        lines.append(f"{claim}: for this its numbers may be off by {TOLERANCE:g}.")
    for source in others:
        lines.append(f"{source} has other files than the report names, and the same tensors in them (content digest).")
    if claimed or any(here != there for here, there in names.items()):  # pictures have the models' names in them
        pages = [_PICTURE.sub("", page) for page in pages]
        lines.append("Pictures were not compared.")
    if pages[0] != pages[1] and not (claimed and _close(*pages)):
        raise EvidenceError(f"{PAGE} does not show this result")
    return lines, result


def _forged(kept: Json, found: Json) -> bool:
    """Whether what a report says of a file contradicts the file's own hash."""
    shared = kept.keys() & found.keys()
    return any(kept[name] != found[name] for name in shared if kept[name].get("sha256") == found[name].get("sha256"))


def _same_content(model: Json, checkpoint: Checkpoint) -> bool:
    """Whether a model has the tensors and the config of one in a report, in whatever files."""
    known = model.get("content"), model.get("config")
    return None not in known and known == (checkpoint.content, checkpoint.config_digest)


def _at_commit(model: Json) -> str:
    """Where a model lay, at the commit of the hub that was read."""
    (source, piece), commit = split(str(model["source"])), model["commit"]
    at = f"{source}@{commit}" if commit and not set("@+") & set(source) else source
    return f"{at}::{piece}" if piece else at


def _door(question: str) -> Any:
    """The module that answers a question which is none of the core's."""
    if (door := plugins.door(question)) is None:
        raise EvidenceError(f"the question {one_line(repr(question), 40)} is none that this provlab answers")
    return door


def _answer(content: Json, sources: Sequence[str], allow_pickle: bool) -> Answer:
    """Ask the question again; nothing that was kept of it counts."""
    settings = {**content["arguments"], "allow_pickle": allow_pickle}
    try:
        if content["question"] == "compare":
            return compare(*sources, store=None, progress=False, **settings)
        with TemporaryDirectory() as kept:
            again: Answer = _door(content["question"]).ask_again(sources, Path(kept), **settings)
            return again
    except TypeError as error:
        raise EvidenceError(f"the arguments in {RESULT} are not those of the question: {one_line(error)}") from error


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Call the models as the report calls them."""
    words = sorted((word for word in names if word != names[word]), key=len, reverse=True)
    if not words:
        return text
    either = "|".join(map(re.escape, words))
    return re.sub(rf"(?<![\w./-])(?:{either})(?![\w/-])", lambda match: names[match[0]], text)


def differences(a: Any, b: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two pieces of JSON differ, and the values in either."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in (*a, *(key for key in b if key not in a)):
            yield from differences(a.get(key), b.get(key), f"{at}.{key}" if at else key)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from differences(x, y, f"{at}[{i}]")
    elif type(a) is not type(b) or a != b:
        yield at, a, b


def _close(a: Any, b: Any) -> bool:
    """Whether two numbers, or all those of two texts that agree otherwise, differ by rounding; counts never do."""
    if isinstance(a, str) and isinstance(b, str):
        same = _NUMBER.sub("#", a) == _NUMBER.sub("#", b)
        return same and all(map(_rounded, _NUMBER.findall(a), _NUMBER.findall(b)))
    return isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _rounded(a: str, b: str) -> bool:
    """Whether a number of a text agrees with ours up to `TOLERANCE`, or up to our last digit behind the point."""
    try:
        x, y = (Decimal(text.rstrip(".,").replace(",", "")) for text in (a, b))
        step = Decimal(1).scaleb(int(y.as_tuple().exponent)) if "." in b or "e" in b else Decimal(0)
        return a == b or abs(x - y) <= max(step, Decimal(TOLERANCE) * max(abs(x), abs(y)))
    except (InvalidOperation, ValueError):  # versions, nan, inf
        return a == b


def _agreement(kept: Json, fresh: Json, *, exactly: bool) -> str:
    """How two results agree; texts may differ in their digits only where numbers differ."""
    apart = [entry for entry in differences(kept, fresh) if ELSEWHERE.isdisjoint(re.split(r"[.\[]", entry[0]))]
    if not apart:
        return "recomputed bit for bit"
    rounded = not exactly and any(isinstance(a, float) for _, a, _ in apart)
    for at, a, b in apart:
        if not rounded or not _close(a, b):
            values = [one_line(repr(value), 60) for value in (a, b)]
            raise EvidenceError(f"{at} is {values[0]} in the report, and {values[1]} recomputed")
    return f"recomputed within {TOLERANCE:g}"
