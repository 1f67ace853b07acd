"""How many letters a tokenizer may make of one: steps that each double a text are harmless, forty end any memory.

Two products are bounded. The forms that Unicode and the library fix make 18 of one at most, and hardly lengthen a text
in practice. A replacement, a prefix or a map may lengthen the letters that a text has most, as the file has it.
"""

import base64
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

#: of forms that are fixed, which come to some hundreds in published tokenizers; and of steps that a file chooses
_FIXED_MOST, _CHOSEN_MOST = 10_000.0, 200.0  # T5's and others' come to 66: 33 bytes, and one that doubles
#: letters that a fixed step makes of one at most, by its type: Unicode's normal forms, bytes of one character, spaces
#: around a Chinese one. A step of another type makes none longer
_FIXED = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3, "ByteLevel": 4, "BertNormalizer": 12}
#: places of steps that follow each other, and where a step keeps others
_PLACES = (("normalizer", "pre_tokenizer", "post_processor"), ("decoder",))
_SEQUENCES = ("normalizers", "pretokenizers", "decoders", "processors")
#: expressions that take one letter at least: letters, kinds and classes of them, once or more; others may take none
_LETTER = r"(?:[\w ,;:'\"`-]|\\[nrtswdSWD.]|\.|\[[^\]\[\\^]+\])"
_TAKES_ONE = re.compile(rf"(?:{_LETTER}(?:\+|\{{[1-9]\d*,?\}})?)+")
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
    kind = step.get("type")
    return float(_FIXED.get(kind, 1)) if isinstance(kind, str) else 1.0


def _chosen(step: Mapping[str, Any]) -> float:
    if "precompiled_charsmap" in step:
        return _longest(step["precompiled_charsmap"])
    if "pattern" in step and "content" in step:
        return _replaced(step)
    if "prepend" in step:
        return 1.0 + len(str(step["prepend"]))
    if "single" in step:  # a template, whose pieces may be the text again and again
        return float(max(1, str(step["single"]).count("'Sequence'")))
    return 2.0 if "replacement" in step else 1.0  # Metaspace's, before each piece


def _replaced(step: Mapping[str, Any]) -> float:
    """Letters that a replacement makes of one; an expression may match where there is none."""
    pattern = step["pattern"]
    kind, source = next(iter(pattern.items()), ("", "")) if isinstance(pattern, dict) else ("", "")
    made = float(len(str(step["content"])))
    if kind == "String" and source:
        return max(1.0, made / len(str(source)))
    return max(1.0, made) if kind == "Regex" and _TAKES_ONE.fullmatch(str(source)) else 1.0 + made


def _longest(charsmap: Any) -> float:
    """Bytes of the longest string in a map of SentencePiece: the size of its trie, the trie, strings that end in 0."""
    try:
        content = base64.b64decode(charsmap or "", validate=True)
    except (TypeError, ValueError):
        return 1.0  # the library refuses it in its own words
    strings = content[4 + int.from_bytes(content[:4], "little") :]
    return float(max(map(len, strings.split(b"\0")), default=1) or 1)
