"""Which family a checkpoint is of: by its class, by another head, by its ``model_type``, or by its language part."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from provlab.errors import UnknownArchitectureError
from provlab.models.architectures import IN_FULL
from provlab.models.families import FURTHER, NO_MLP
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
    """Return all architectures by name."""
    return IN_FULL | FURTHER


def _families() -> Iterator[tuple[str, str, Architecture]]:
    """Yield each family, the first class that stands for it, and its description."""
    seen = set()
    for name, architecture in known().items():
        family = next(name.removesuffix(head) for head in _HEADS if name.endswith(head))
        if family not in seen:
            seen.add(family)
            yield family, name, architecture


def found(name: str) -> Architecture:
    """Return what `provlab.models.described.described` does, of a name that is not described in full."""
    if name in FURTHER:
        return FURTHER[name]
    for family, _, architecture in _families():
        if name.removeprefix(family) in _HEADS:
            bare = architecture.base()
            return bare if name.endswith("Model") else replace(bare, prefix=architecture.prefix)
    if without := next((family for family in NO_MLP if name.removeprefix(family) in _HEADS), None):
        raise UnknownArchitectureError(
            f"the architecture {name} has no MLPs, but {NO_MLP[without]}: no statistic of hidden units applies to it"
        )
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
    if found := _of_type(config.get("model_type")):
        family, name, architecture = found
        head = [part for part in architecture.parts if part.outside]
        needed = {part.name for part in head if not part.optional}
        there = config.get("tie_word_embeddings", True) or any(part.name in names for part in head)
        return name if there and needed <= set(names) else f"{family}Model"
    return None


def _of_type(model_type: object) -> tuple[str, str, Architecture] | None:
    """Return the entry of `_families` whose family a ``model_type`` names; None if there is none."""
    kind = _plain(str(model_type))
    of_language = kind.removesuffix("model").removesuffix("text")
    return next((entry for entry in _families() if _plain(entry[0]) in (kind, of_language)), None)


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def language_part(name: str, config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the class and the config of a model's language part: its own, unless it has a ``text_config``.

    What such a config leaves out is transformers' default of its ``model_type``.
    """
    text = config.get("text_config")
    if not isinstance(text, dict):
        return name, config
    if entry := _of_type(text.get("model_type")):
        name = entry[1]
    if "num_hidden_layers" not in text:
        from transformers import CONFIG_MAPPING  # slow to import, and few leave this out

        if text.get("model_type") in CONFIG_MAPPING:
            text = CONFIG_MAPPING[text["model_type"]](**text).to_dict()
    tied = any(one.get("tie_word_embeddings", True) for one in (config, text))
    return name, {**text, "tie_word_embeddings": tied}
