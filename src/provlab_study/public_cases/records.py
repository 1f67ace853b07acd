"""What the page keeps of the comparison of two sizes, which its judgement reads back."""

from dataclasses import dataclass
from typing import Any

Share = tuple[float, float, float]


@dataclass(frozen=True)
class TwoSizes:
    """The two sizes after one prompt, as plain data.

    Attributes
    ----------
    prompt, length
        What stands before inputs, and the residues of one.
    z
        The range of loss.
    summary
        `provlab.modeldiff.comparison.Summary` of the smaller model's inputs (A) and the larger one's (B), by name.
    excess
        By how many nats a residue what A writes costs B more than A, and what B writes costs A more than B.
    common
        Share of A's inputs and of B's that lie in Z for the other as well, with 95% intervals: value, low, high each.
    shuffled
        The same of the inputs with their residues in another order, which no model should find likely.
    unlike
        The same where the other reads the inputs after another prompt: none, where the page has one prompt.
    """

    prompt: str
    length: int
    z: tuple[float, float]
    summary: dict[str, Any]
    excess: tuple[float, float]
    common: tuple[Share, Share]
    shuffled: tuple[Share, Share]
    unlike: tuple[Share, ...]
