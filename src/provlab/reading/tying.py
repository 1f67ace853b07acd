"""Whether a model's head is its embedding: what its config declares, or what transformers takes where it does not.

The defaults by ``model_type`` stand in `tying.toml`, so that no command waits for transformers.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from provlab.reading.architectures import class_of, family_of, plain

KEY = "tie_word_embeddings"
TEXT = "text_config"


class Tying(NamedTuple):
    """What is declared.

    Attributes
    ----------
    tied
        Whether the head is the embedding; None where nothing says: no key, and a class that transformers does not know.
    why
        What says it, as a sentence goes on: "its config says tie_word_embeddings: false".
    note
        For a verdict, where two levels of the config contradict each other; mostly "".
    """

    tied: bool | None
    why: str
    note: str = ""


@cache
def _table() -> dict[str, frozenset[str]]:
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {key: frozenset(map(plain, kinds)) for key, kinds in rows.items()}


def kind_of(config: Mapping[str, Any]) -> str:
    """Return the ``model_type`` of a config, or where it has none the family of the class that it names."""
    if isinstance(kind := config.get("model_type"), str) and kind:
        return kind
    named = config.get("architectures")
    return family_of(named[0]) if isinstance(named, list) and named and isinstance(named[0], str) else ""


def declared(config: Mapping[str, Any]) -> Tying:
    """Say whether a config, with its ``text_config`` if it has one, ties the head to the embedding."""
    kind, text = kind_of(config), config.get(TEXT)
    own = _stated(config)
    if not isinstance(text, Mapping):
        return _of_level("its config", kind, own)
    inner, table = _stated(text), _table()
    if plain(kind) in table["inner"]:
        return _of_level(f"its {TEXT}", kind_of(text), inner)
    if plain(kind) in table["either"] and inner and not own:
        return Tying(True, f"its {TEXT} says {KEY}: true", _contradiction(own, inner, kind, won=TEXT))
    found = _of_level("its config", kind, own)
    if inner is None or found.tied is None or inner == found.tied:
        return found
    return found._replace(note=_contradiction(own, inner, kind, won="the outer level"))


def _stated(config: Mapping[str, Any]) -> bool | None:
    value = config.get(KEY)
    return None if value is None else bool(value)


def _known(kind: str) -> bool:
    return class_of(kind) is not None or any(plain(kind) in kinds for kinds in _table().values())


def _of_level(level: str, kind: str, stated: bool | None) -> Tying:
    if stated is not None:
        return Tying(stated, f"{level} says {KEY}: {str(stated).lower()}")
    if not _known(kind):
        return Tying(None, f"{level} has no {KEY}")
    tied = not any(plain(kind) in kinds for key, kinds in _table().items() if key != "tied")
    return Tying(tied, f"{level} has no {KEY}, which is {str(tied).lower()} for {kind}")


def _contradiction(own: bool | None, inner: bool | None, kind: str, *, won: str) -> str:
    outer = f"says {KEY}: {str(own).lower()}" if own is not None else f"has no {KEY} ({kind})"
    return f"{outer}, and its {TEXT} {str(inner).lower()}: {won} counts, as in transformers"
