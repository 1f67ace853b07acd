"""The embedded zoo: small language models with a known lineage, trained on this machine on first use."""

from provlab.reading.checkpoint import register_scheme
from provlab.zoo.build import Unfinished, build, locate, status
from provlab.zoo.corpus import held_out_text
from provlab.zoo.reading import default_edition, families
from provlab.zoo.recipes import TREE, Recipe, collection, lineage, parents, tokens

__all__ = [
    "TREE",
    "Recipe",
    "Unfinished",
    "build",
    "collection",
    "default_edition",
    "families",
    "held_out_text",
    "lineage",
    "locate",
    "parents",
    "register",
    "status",
    "tokens",
]


def register() -> None:
    """Let ``zoo:NAME`` be opened like any other checkpoint."""
    register_scheme("zoo", locate)
