"""Words of a sequence of tokens: a fragment of one says little, the word that it is of says where two models part."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]+|\n+|\s+")
_SPACE = re.compile(r"\s+")
_ESCAPED = re.compile(r"(\\[nrtvf])+")  # a line end or another space, made visible
_MORE = 0.4  # of some texts than of others, in a share of them, has a word that is typical


def of_tokens(pieces: Sequence[str]) -> list[str]:
    """For each token the word that it is of, given what each adds to the text.

    A token of several words counts for the longest; one of nothing but space is ``␣``, or its line ends.
    """
    text = "".join(pieces)
    words = [(found.start(), found.end(), found.group()) for found in _WORD.finditer(text)]
    result, begin, first = [], 0, 0
    for piece in pieces:
        end = begin + len(piece)
        while first < len(words) and words[first][1] <= begin:
            first += 1
        touched = []
        for left, right, word in words[first:]:
            if left >= end:
                break
            touched.append((min(right, end) - max(left, begin), word))
        named = [both for both in touched if not _SPACE.fullmatch(both[1])] or touched
        word = repr(max(named, key=lambda both: (both[1].isalnum(), both[0]))[1])[1:-1] if named else ""
        result.append(word.strip() or "␣" * bool(word))
        begin = end
    return result


def heaviest(words: Sequence[Sequence[str]], carried: NDArray[np.float64], n: int) -> list[str]:
    """The `n` words that carry most of ``(rows, places)`` amounts, of which each word of a place is one.

    Signs and space are named only where they carry all of it: they say nothing of what is changed.
    """
    sums: dict[str, float] = {}
    for row, amounts in zip(words, carried, strict=True):
        for word, amount in zip(row[-len(amounts) :], amounts, strict=True):
            if word and amount > 0:
                sums[word] = sums.get(word, 0.0) + float(amount)
    spoken = [word for word in sums if any(map(str.isalnum, word)) and not _ESCAPED.fullmatch(word)]
    return sorted(spoken or sums, key=lambda word: (-sums[word], word))[:n]


def typical(inside: Sequence[str], outside: Sequence[str], n: int) -> list[str]:
    """The `n` words that most set some texts apart from others: in `_MORE` more of the ones than of the others."""
    shares = []
    for texts in (inside, outside):
        counts: dict[str, int] = {}
        for text in texts:
            for word in {found.casefold() for found in re.findall(r"\w\w\w+", text)}:
                counts[word] = counts.get(word, 0) + 1
        shares.append({word: count / max(len(texts), 1) for word, count in counts.items()})
    more = {word: share - shares[1].get(word, 0.0) for word, share in shares[0].items()}
    return [word for word in sorted(more, key=lambda word: (-more[word], word)) if more[word] >= _MORE][:n]
