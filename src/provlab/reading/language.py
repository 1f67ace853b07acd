"""Checkpoints whose config does not name their class, and the language part of models that do more than language."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from provlab.errors import InvalidWeightsError, one_line
from provlab.reading import tying
from provlab.reading.architectures import class_of, classes, described, families, family_of

#: of which a config may name several
_SEVERAL = "eos_token_id"
#: names of heads that no row of the table has
_HEAD = re.compile(r"(qa_outputs|classifier|score)\.")


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
    present = tying.declared(config).tied is not False or any(part.name in names for part in head)
    return name if present and needed <= set(names) else next(f"{f}Model" for f, c in families().items() if c == name)


def headless(name: str, config: Mapping[str, Any], names: Collection[str]) -> str | None:
    """Return the class of the base model, where a file holds no more than that of the class that its config names.

    That is how encoders of sentences lie on the hub: saved as the base model, with the config of what it was begun
    from. transformers draws the head at random. A head that is tied to the embedding is no tensor, and not missing.
    """
    base = f"{family_of(name)}Model"
    if name == base or (name not in classes() and family_of(name) not in families()):
        return None
    architecture = described(name)
    embedding, outside = architecture.parts[0].name, [part for part in architecture.parts if part.outside]
    if not architecture.prefix or embedding not in names or any(n.startswith(architecture.prefix) for n in names):
        return None
    tied = tying.declared(config).tied is not False and bool(outside) and all(part.optional for part in outside)
    there = any(part.name in names for part in outside) or any(map(_HEAD.match, names))
    return None if tied or there else base


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
    return name, {**text, tying.KEY: tying.declared(config).tied}
