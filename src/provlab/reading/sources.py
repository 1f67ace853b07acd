"""Names of models in a browser or on a disk, translated to those that `Checkpoint.open` knows."""

__makes_no_numbers__ = True

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from provlab.errors import CheckpointError, nearest

# the address of a model's page on the hub, and perhaps of one of its revisions
_PAGE = re.compile(
    r"(?:hf://(?:models/)?|(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/)"
    r"(?P<repo>[\w.-]+(?:/(?!(?:tree|blob|resolve|commit)/)[\w.-]+)?)"
    r"(?:/(?:tree|blob|resolve|commit)/(?P<page>[\w.%-]+)(?:/(?P<path>[^?#]*))?|@(?P<revision>[\w./%-]+))?/?(?:[?#].*)?"
)


def plain(source: str | Path) -> str | Path:
    """Return ``org/name[/folder][@revision]`` for the address of a page on the hub, and a snapshot for its folder.

    Other sources are returned as they are.
    """
    if isinstance(source, str) and (match := _PAGE.fullmatch(source)):
        revision = unquote(match["page"] or match["revision"] or "main")
        inside = [part for part in unquote(match["path"] or "").split("/") if part]
        inside = inside if "/tree/" in source else inside[:-1]  # the other pages show a file
        return "/".join([match["repo"], *inside]) + ("" if revision == "main" else f"@{revision}")
    with suppress(OSError, RuntimeError, ValueError):  # no path: the attempt to open it says so
        folder = Path(source).expanduser()
        if folder.name.startswith("models--") and (folder / "snapshots").is_dir():
            return _snapshot(folder)
    return source


def unknown(scheme: str, name: str, known: Iterable[str]) -> CheckpointError:
    """Return the error for a scheme that nothing resolves."""
    names = ", ".join(f"{name}:NAME" for name in sorted(known)) or "none"
    if hint := nearest(scheme, known):
        return CheckpointError(f"{scheme}:{name}: there is no scheme {scheme!r}{hint.removesuffix('?')}:{name}?")
    return CheckpointError(
        f"{scheme}:{name}: unknown scheme {scheme!r}; known are {names}; a hub id is written org/name, a folder ./name"
    )


def _snapshot(folder: Path) -> Path:
    """Return the checkpoint in a repository's folder of the hub's cache: what ``main`` is there, else the only one."""
    try:
        main = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        main = ""
    there = sorted(entry.name for entry in (folder / "snapshots").iterdir())
    if main not in there and len(there) != 1:
        raise CheckpointError(f"{folder} holds {len(there)} snapshots and does not say which is main; give one of them")
    return folder / "snapshots" / (main if main in there else there[0])
