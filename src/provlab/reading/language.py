"""Checkpoints whose config does not name their class, and the language part of models that do more than language."""

from collections.abc import Collection, Mapping
from typing import Any

from provlab.errors import InvalidWeightsError, one_line
from provlab.reading.architectures import classes, described, families

#: of which a config may name several
_SEVERAL = "eos_token_id"


def inferred(config: Mapping[str, Any], names: Collection[str]) -> str | None:
    """Name the class of a checkpoint whose config names none, from its ``model_type`` and its tensors.

    Returns
    -------
    str or None
        A known family's class if its head is there or tied, else the base model; None for an unknown family.
    """
    name = class_of(config.get("model_type"))
    if name is None:
        return None
    head = [part for part in described(name).parts if part.outside]
    needed = {part.name for part in head if not part.optional}
    present = config.get("tie_word_embeddings", True) or any(part.name in names for part in head)
    return name if present and needed <= set(names) else next(f"{f}Model" for f, c in families().items() if c == name)


def class_of(model_type: object) -> str | None:
    """Return the first class of the family that a ``model_type`` names; None for an unknown one."""
    kind = _plain(str(model_type))
    kinds = (kind, kind.removesuffix("model").removesuffix("text"))
    return next((name for family, name in families().items() if _plain(family) in kinds), None)


def no_tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a config that should be ids of tokens and are none, with which no model can be made.

    That is text in place of an id, several for what is one, and padding that is not below the size of the vocabulary.
    """
    size = config.get("vocab_size")

    def whole(value: object) -> bool:
        return value is None or (isinstance(value, int) and not isinstance(value, bool))

    def known(key: str, value: Any) -> bool:
        several = isinstance(value, list) and key.endswith(_SEVERAL)
        if not all(map(whole, value if several else [value])):
            return False
        return key != "pad_token_id" or not (isinstance(value, int) and isinstance(size, int) and value >= size)

    return {key: value for key, value in config.items() if key.endswith("_token_id") and not known(key, value)}


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def language_part(name: str, config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the class and the config of a model's language part: its own, unless it has a ``text_config``.

    Entries that such a config lacks have transformers' default for its ``model_type``. Where a config holds one for the
    encoder and one for the decoder, the two are brought together under BART's names.
    """
    if name in classes() and all(isinstance(config.get(stack), dict) for stack in ("encoder", "decoder")):
        decoder = {"decoder_layers": "num_hidden_layers", "decoder_ffn_dim": "intermediate_size"}
        both = {ours: config["decoder"].get(theirs) for ours, theirs in decoder.items()}
        return name, {**config["encoder"], **config, **both}
    text = config.get("text_config")
    if not isinstance(text, dict):
        return name, config
    name = class_of(text.get("model_type")) or name
    if "num_hidden_layers" not in text:
        from transformers import CONFIG_MAPPING  # slow to import, and few configs leave this out

        if (kind := str(text.get("model_type"))) in CONFIG_MAPPING:
            try:
                text = CONFIG_MAPPING[kind](**text).to_dict()
            except Exception as error:  # transformers' own checks of a config raise errors of many kinds
                raise InvalidWeightsError(
                    f"text_config in config.json is no config of {kind}: {one_line(error)}"
                ) from error
    tied = any(level.get("tie_word_embeddings", True) for level in (config, text))
    return name, {**text, "tie_word_embeddings": tied}
