"""How far apart two models are, in nats, and whether it is more than without the change that is asked about.

Any two trainings disagree. A reference is a model that was made as B was, but for the change: another seed of A's
recipe, or a sibling, A fine-tuned again without the change. If B were one more of them, B and the k references would be
exchangeable, and so would any number that is made of each in one way: B's is the largest with chance 1 / (k + 1),
whatever their law. This rank is the test.

The number is the larger of two, each in units of its median over B and the references: the mean distance from all
others, and the 99% quantile over pieces of text (`TAIL`). A change that lies in one piece of a hundred moves the mean
by less than seeds differ, and the quantile by much. The second was chosen after a look at planted changes (a swap of
two words, a refusal on one topic, an unlearned topic) of models of 256 tokens; it is ranked together with the first, so
that nothing need be corrected (`benchmarks/excess.py` counts sizes and power).

Student's t, which takes a distance as the sum of a part of either model and a rest, all of them normal, gives the
interval of the excess and is no test: some seeds lie far out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from provlab.inference import pvalues
from provlab.modeldiff.bootstrap import LEVEL

N_GROUPS = 20  # neighbouring pieces of text, which resemble each other, are one of so many groups at most
PIECES_A_GROUP = 3  # at least: a shorter stretch of text resembles the next one too much
LEAST_GROUPS = 5  # with fewer there is no interval: Student's law with so few degrees of freedom says nothing
TAIL = 0.99  # of the pieces: the quantile whose rank is taken beside the mean's
SMALL = 0.5  # of the distance of the nearest reference: a nearer B is no more a matter of these references


def groups_of(n: int) -> int:
    """How many groups of neighbours `n` pieces of a text make; fewer than `LEAST_GROUPS` give no interval."""
    return min(N_GROUPS, n // PIECES_A_GROUP)


def mean_of(values: NDArray[np.float64]) -> list[float]:
    """Mean and its 95% interval of ``(n,)`` values in the order of the text: Student's, over means of neighbours.

    From minus to plus infinity where the pieces make fewer than five groups of three.
    """
    n = groups_of(len(values))
    mean = float(values.mean())
    if n < LEAST_GROUPS:
        return [mean, -math.inf, math.inf]
    groups = np.array([part.mean() for part in np.array_split(values, n)])
    reach = float(groups.std(ddof=1)) / math.sqrt(n) * special.stdtrit(n - 1, (1 + LEVEL) / 2)
    return [mean, mean - reach, mean + reach]


def above(interval: Sequence[float], size: float, degrees: int) -> float:
    """p-value of a mean being at most `size`, from its 95% interval by Student's law; 1 where it has none.

    By the end on the side of the size, which an interval of a heavy tail has nearer than the other: a size at the lower
    end has the p-value 0.025, however far the upper one is.
    """
    mean, low, high = interval
    if not math.isfinite(high - low):
        return 1.0
    error = (mean - low if mean > size else high - mean) / special.stdtrit(degrees, (1 + LEVEL) / 2)
    return pvalues.p_student((mean - size) / error, degrees) if error > 0 else float(mean <= size)


def losses(nll: NDArray[np.float64]) -> list[Any]:
    """Mean loss of a text under A and under B, and B's less A's with its interval, of ``(m, n)`` losses of pieces."""
    a, b = nll[:2]
    return [float(a.mean()), float(b.mean()), mean_of(b - a)]


def too_short(pieces: int, length: int) -> str:
    """Say that so many pieces of so many tokens are too few for an interval; empty where they are not."""
    least = LEAST_GROUPS * PIECES_A_GROUP
    if pieces >= least:
        return ""
    return (
        f"it holds {pieces} pieces of {length} tokens that do not overlap, and {least} are needed; give a text of "
        f"{least * length:,} tokens or more"
    )


@dataclass(frozen=True)
class Among:
    """B among references, by distances that all pairs of models have where they read the same.

    Attributes
    ----------
    means
        ``(k + 1,)``: mean distance of B, and of each reference, from all other models, A among them (nats per token).
    tails
        ``(k + 1,)``: the same of the 99% quantiles over pieces.
    from_a
        ``(k + 1,)``: mean distance of each from A.
    """

    means: tuple[float, ...]
    tails: tuple[float, ...]
    from_a: tuple[float, ...]

    @property
    def k(self) -> int:
        """How many references there are."""
        return len(self.means) - 1

    @property
    def least(self) -> float:
        """The least p-value that so many models can give, 1 / (k + 1)."""
        return 1 / len(self.means)

    @property
    def small(self) -> bool:
        """Whether B is far nearer to A than every reference: then no rank among them tells of its change."""
        return self.from_a[0] < SMALL * min(self.from_a[1:])

    def larger(self, level: float) -> bool | None:
        """Whether B is changed more than a reference; None where it is the most, of too few models for the level."""
        p = self.p()
        return p <= level or (None if p == self.least else False)

    def p(self, size: float = 0.0) -> float:
        """p-value of B being at most `size` nats farther than a reference is: an exact rank.

        With a size, of the mean alone, less what a change of this size makes of it (`_gain`).
        """
        if size:
            return _rank(np.array([self.means[0] - self._gain * size, *self.means[1:]]))
        return _rank(np.maximum(*(np.array(v) / max(float(np.median(v)), 1e-300) for v in (self.means, self.tails))))

    @property
    def _gain(self) -> float:
        """What a unit of B's own adds to its mean distance above that of the references, which have B among others."""
        return 1 - 1 / len(self.means)

    @property
    def excess(self) -> list[float]:
        """By how much B is farther than a reference is (nats), and Student's interval; none with one reference."""
        others = np.array(self.means[1:])
        value = (self.means[0] - float(others.mean())) / self._gain
        if self.k < 2:
            return [value, -math.inf, math.inf]
        error = float(others.std(ddof=1)) * math.sqrt(1 + 1 / self.k)
        reach = error / self._gain * special.stdtrit(self.k - 1, (1 + LEVEL) / 2)
        return [value, value - reach, value + reach]

    def t_p(self, size: float) -> float:
        """p-value of the excess being at most `size`, if distances were normal: Student's, k - 1 degrees of freedom."""
        return above(self.excess, size, self.k - 1)

    def to_json(self) -> dict[str, Any]:
        """The distances, and the rank by both numbers, by the mean alone, and by the tail alone."""
        ranks = {
            "rank_p": self.p(),
            "rank_p_mean": _rank(np.array(self.means)),
            "rank_p_tail": _rank(np.array(self.tails)),
        }
        return {"means": list(self.means), "tails": list(self.tails), "from_a": list(self.from_a), **ranks}


def _rank(values: NDArray[np.float64]) -> float:
    """Share of the numbers that are no less than the first."""
    return float((values >= values[0]).mean())


@dataclass(frozen=True)
class Reference:
    """A model that was made as B was, without the change.

    Attributes
    ----------
    model
        Its source.
    forth, back
        KL(A || it) and KL(it || A) where the models read, each as value, low, high (nats per token).
    farther
        By how much the mean of both divergences is larger between A and B, piece against piece.
    """

    model: str
    forth: list[float]
    back: list[float]
    farther: list[float]


@dataclass(frozen=True)
class Apart:
    """How far B is from A where both read the same tokens, beside references.

    Attributes
    ----------
    where
        What they read, in words.
    forth, back
        KL(A || B) and KL(B || A), value, low, high (nats per token).
    both
        The mean of the two.
    each
        ``(n,)``: the same for each piece that was read.
    references
        One for each model that was given.
    among
        B among them; None without any.
    """

    where: str
    forth: list[float]
    back: list[float]
    both: list[float]
    each: NDArray[np.float64]
    references: tuple[Reference, ...] = ()
    among: Among | None = None

    @classmethod
    def of_copies(cls) -> "Apart":
        """A model and its own copy, which nothing was read for."""
        return cls("no text", [0.0] * 3, [0.0] * 3, [0.0] * 3, np.empty(0))

    @property
    def excess(self) -> list[float]:
        """How much farther B is than a reference; the whole distance where there is none."""
        return self.among.excess if self.among else self.both

    @property
    def has_interval(self) -> bool:
        """Whether the text is long enough for one."""
        return math.isfinite(self.both[1])

    def p(self, size: float = 0.0) -> float:
        """p-value of `excess` being at most a size: by rank where there are references, else over the pieces read."""
        return self.among.p(size) if self.among else above(self.both, size, groups_of(len(self.each)) - 1)

    def to_json(self) -> dict[str, Any]:
        """Everything but the pieces; None for an end that no interval has."""

        def plain(values: list[float]) -> list[float | None]:
            return [value if math.isfinite(value) else None for value in values]

        return {
            "where": self.where,
            "pieces": len(self.each),
            **{name: plain(getattr(self, name)) for name in ("forth", "back", "both", "excess")},
            "references": [
                {"model": row.model, **{name: plain(getattr(row, name)) for name in ("forth", "back", "farther")}}
                for row in self.references
            ],
            "among": self.among and self.among.to_json(),
        }


def among(distances: NDArray[np.float64]) -> Among:
    """B among references, of ``(m, m, n)`` symmetric distances on n pieces: of A, B, and the references."""
    means, tails = distances.mean(axis=2), np.quantile(distances, TAIL, axis=2)
    mean, tail = (tuple((table.sum(axis=1) / (len(table) - 1)).tolist()[1:]) for table in (means, tails))
    return Among(mean, tail, tuple(means[0, 1:].tolist()))


def apart(distances: NDArray[np.float64], where: str, references: list[str]) -> Apart:
    """Compare the distance of two models with those among references.

    Parameters
    ----------
    distances
        ``(m, m, n)``: divergence of the second model from the first on each of n pieces, neighbours side by side
        (`provlab.modeldiff.reading.Reading.distances`): of A, B, and the references.
    where
        What was read.
    references
        Sources of the references.
    """
    both = (distances + distances.swapaxes(0, 1)) / 2
    rows = [
        Reference(source, mean_of(distances[0, k]), mean_of(distances[k, 0]), mean_of(both[0, 1] - both[0, k]))
        for k, source in enumerate(references, start=2)
    ]
    forth, back = mean_of(distances[0, 1]), mean_of(distances[1, 0])
    beside = among(both) if references else None
    return Apart(where, forth, back, mean_of(both[0, 1]), both[0, 1], tuple(rows), beside)
