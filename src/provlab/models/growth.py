"""How many letters a tokenizer may make of one: steps that each double a text are harmless, forty end any memory.

Two products are bounded. The forms that Unicode and the library fix make 18 of one at most, and hardly lengthen a text
in practice. What a file chooses (a replacement, a prefix, a map) it may choose at any length.
"""

import base64
import math
from collections.abc import Iterator, Mapping
from typing import Any

#: of forms that are fixed, which come to about 4,000 in published tokenizers; and of steps that a file chooses
_FIXED_MOST, _CHOSEN_MOST = 10_000.0, 1_000.0
#: letters that a fixed step makes of one at most, by its type: Unicode's normal forms, bytes of one character, spaces
#: around a Chinese one. A step of another type makes none longer
_FIXED = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3, "ByteLevel": 4, "BertNormalizer": 12}
_FORM = 18.0  # of a map, too, if its longest string is no longer than that of a normal form
_BYTES = 4  # of a character at most
#: places of steps that follow each other, and where a step keeps others
_PLACES = (("normalizer", "pre_tokenizer"), ("decoder",), ("post_processor",))
_SEQUENCES = ("normalizers", "pretokenizers", "decoders", "processors")
_AFFIXES = ("continuing_subword_prefix", "end_of_word_suffix", "unk_token")


def refuse_growth(tokenizer: Mapping[str, Any]) -> None:
    """Raise ValueError where the steps of a tokenizer, one after the other, may make a text thousands of times longer.

    Parameters
    ----------
    tokenizer
        The content of a tokenizer.json.
    """
    for places in _PLACES:
        steps = [step for place in places for step in _steps(tokenizer.get(place))]
        fixed, chosen = math.prod(map(_fixed, steps)), math.prod(map(_chosen, steps))
        if fixed > _FIXED_MOST or chosen > _CHOSEN_MOST:
            raise ValueError(
                f"the steps of {places[0]} in tokenizer.json may make a text {max(fixed, chosen):.3g} times as long; "
                "take the publisher's copy"
            )
    model = tokenizer.get("model")
    affixes = {name: model.get(name) for name in _AFFIXES} if isinstance(model, dict) else {}
    for name, affix in affixes.items():
        if (n := len(str(affix))) > _CHOSEN_MOST:
            raise ValueError(f"{name} in tokenizer.json has {n:,} letters; take the publisher's copy")


def _steps(step: Any) -> Iterator[dict[str, Any]]:
    """Yield a step and those in it, whether their type is named or not: the library takes both."""
    if isinstance(step, dict):
        yield step
        for key in _SEQUENCES:
            for inner in step[key] if isinstance(step.get(key), list) else ():
                yield from _steps(inner)


def _fixed(step: Mapping[str, Any]) -> float:
    if "precompiled_charsmap" in step:
        return _FORM
    kind = step.get("type")
    return float(_FIXED.get(kind, 1)) if isinstance(kind, str) else 1.0


def _chosen(step: Mapping[str, Any]) -> float:
    if "precompiled_charsmap" in step:
        return max(1.0, _longest(step["precompiled_charsmap"]) / (_BYTES * _FORM))
    if "pattern" in step and "content" in step:
        return _replaced(step)
    if "prepend" in step:
        return 1.0 + len(str(step["prepend"]))
    if "single" in step:  # a template, whose pieces may be the text again and again
        return float(max(str(step.get(name)).count("'Sequence'") for name in ("single", "pair")) or 1)
    return 2.0 if "replacement" in step else 1.0  # Metaspace's, before each piece


def _replaced(step: Mapping[str, Any]) -> float:
    """Letters that a replacement makes of one; an expression may match where there is none."""
    pattern = step["pattern"]
    source = pattern.get("String") if isinstance(pattern, dict) else None
    made = len(str(step["content"]))
    return max(1.0, made / len(source)) if isinstance(source, str) and source else 1.0 + made


def _longest(charsmap: Any) -> float:
    """Bytes of the longest string in a map of SentencePiece: the size of its trie, the trie, strings that end in 0."""
    try:
        content = base64.b64decode(charsmap or "", validate=True)
    except (TypeError, ValueError):
        return 1.0  # the library refuses it in its own words
    strings = content[4 + int.from_bytes(content[:4], "little") :]
    return float(max(map(len, strings.split(b"\0")), default=1) or 1)
