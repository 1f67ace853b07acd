"""How many letters a tokenizer may make of one: steps that each double a text are harmless, forty end any memory."""

import base64
import math
from typing import Any

#: the most that steps of published tokenizers come to is about 4,000, of which no text of theirs uses a part
MOST = 10_000.0
#: letters that a step makes of one at most, by its type: Unicode's normal forms, three bytes of one character, spaces
#: around a Chinese one; a step of another type makes none longer
_LETTERS = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3, "ByteLevel": 4, "BertNormalizer": 12}
#: where a step that is a sequence of others has these
_SEQUENCES = ("normalizers", "pretokenizers")


def refuse_growth(tokenizer: dict[str, Any]) -> None:
    """Raise ValueError where the steps of a tokenizer, one after the other, may make a text thousands of times longer.

    Parameters
    ----------
    tokenizer
        What the file holds.
    """
    growth = _growth(tokenizer.get("normalizer")) * _growth(tokenizer.get("pre_tokenizer"))
    if growth > MOST:
        raise ValueError(
            f"the steps of tokenizer.json may make a text {growth:.3g} times as long; take the publisher's copy"
        )


def _growth(step: Any) -> float:
    """At most how many letters a step, or a sequence of them, makes of one."""
    if not isinstance(step, dict):
        return 1.0
    kind = step.get("type")
    if kind == "Replace":
        return _replaced(step)
    if kind == "Precompiled":
        return _longest(step.get("precompiled_charsmap"))
    inner = [some for key in _SEQUENCES if isinstance(steps := step.get(key), list) for some in steps]
    return _LETTERS.get(kind, 1.0) * math.prod(map(_growth, inner)) if isinstance(kind, str) else 1.0


def _replaced(step: dict[str, Any]) -> float:
    """Letters that a replacement makes of one; an expression may match where there is none."""
    pattern = step.get("pattern")
    source = pattern.get("String") if isinstance(pattern, dict) else None
    made = len(str(step.get("content", "")))
    return max(1.0, made / len(source)) if isinstance(source, str) and source else 1.0 + made


def _longest(charsmap: Any) -> float:
    """Bytes of the longest string in a map of SentencePiece: the size of its trie, the trie, strings that end in 0."""
    try:
        content = base64.b64decode(charsmap or "", validate=True)
    except (TypeError, ValueError):
        return 1.0  # the library refuses it in its own words
    strings = content[4 + int.from_bytes(content[:4], "little") :]
    return float(max(map(len, strings.split(b"\0")), default=1) or 1)
