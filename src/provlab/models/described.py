"""An architecture by the name that ``config.json`` gives it, or by its family and another head."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from provlab.errors import UnknownArchitectureError
from provlab.models.architectures import IN_FULL
from provlab.models.parts import Architecture

# what a class of transformers adds to the name of its family, longest first
_HEADS = [
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForConditionalGeneration",
    "ForMultipleChoice",
    "ForPreTraining",
    "ForMaskedLM",
    "ForCausalLM",
    "LMHeadModel",
    "EncoderModel",
    "Model",
]


def known() -> dict[str, Architecture]:
    """Return all architectures by name; those that are not described in full are read when they are asked for."""
    from provlab.models.families import FURTHER

    return IN_FULL | FURTHER


def _families() -> Iterator[tuple[str, str, Architecture]]:
    """Yield each family, the first class that stands for it, and its description."""
    seen = set()
    for name, architecture in known().items():
        family = next(name.removesuffix(head) for head in _HEADS if name.endswith(head))
        if family not in seen:
            seen.add(family)
            yield family, name, architecture


def described(name: str) -> Architecture:
    """Return the entry of an architecture, or that of its family with another head, whose tensors stay unnamed.

    Raises
    ------
    UnknownArchitectureError
        No entry for the family.
    """
    if name in IN_FULL:
        return IN_FULL[name]
    if found := known().get(name):
        return found
    for family, _, architecture in _families():
        if name.removeprefix(family) in _HEADS:
            bare = architecture.base()
            return bare if name.endswith("Model") else replace(bare, prefix=architecture.prefix)
    families = ", ".join(sorted(family for family, *_ in _families()))
    raise UnknownArchitectureError(
        f"the architecture {name} is not known; known are the families {families} "
        "(one entry in provlab/models/families.py adds another)"
    )


def inferred(config: Mapping[str, Any], names: Collection[str]) -> str | None:
    """Name the class of a checkpoint whose config names none, from its ``model_type`` and its tensors.

    Returns
    -------
    str or None
        A known family's class if its head is there or tied, else the base model; None for an unknown family.
    """
    plain = str(config.get("model_type")).replace("-", "").replace("_", "").lower()
    for family, name, architecture in _families():
        if family.lower() == plain:
            head = [part for part in architecture.parts if part.outside]
            needed = {part.name for part in head if not part.optional}
            there = config.get("tie_word_embeddings", True) or any(part.name in names for part in head)
            return name if there and needed <= set(names) else f"{family}Model"
    return None
