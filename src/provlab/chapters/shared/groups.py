"""Values of pairs whose origin is known, in the two groups that a statistic should tell apart."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Groups:
    """Values of independent and of dependent pairs, in the order of the pairs."""

    independent: list[float]
    dependent: list[float]
