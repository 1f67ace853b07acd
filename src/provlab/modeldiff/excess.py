"""How far apart two models are, in nats, and whether it is more than a second training of one recipe would give.

Any two trainings of one recipe disagree as well. References are models of A's recipe with other seeds. If B were one
more of them, all k + 2 models would be exchangeable, and the mean distance of B from the others would be one of k + 2
exchangeable numbers: B is the farthest with chance 1 / (k + 2), whatever their law. This rank is the test. Student's t,
which takes a distance as the sum of a part of either model and a rest, all of them normal, gives the interval and is no
test: some seeds lie far out, and among 39 seeds of one recipe it accused one more of them in 6% at the level 0.01
(`benchmarks/excess.csv`).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.modeldiff.bootstrap import LEVEL

TEST_LEVEL = 0.05  # of the test whether B is farther than another seed, where no other is asked for
N_GROUPS = 20  # neighbouring pieces of text, which resemble each other, are one of so many groups at most
PIECES_A_GROUP = 3  # at least: a shorter stretch of text resembles the next one too much
LEAST_GROUPS = 5  # with fewer there is no interval: Student's law with so few degrees of freedom says nothing


def mean_of(values: NDArray[np.float64]) -> list[float]:
    """Mean and its 95% interval of ``(n,)`` values in the order of the text: Student's, over means of neighbours.

    From minus to plus infinity where the pieces make fewer than five groups of three.
    """
    n = min(N_GROUPS, len(values) // PIECES_A_GROUP)
    mean = float(values.mean())
    if n < LEAST_GROUPS:
        return [mean, -math.inf, math.inf]
    groups = np.array([part.mean() for part in np.array_split(values, n)])
    reach = float(groups.std(ddof=1)) / math.sqrt(n) * special.stdtrit(n - 1, (1 + LEVEL) / 2)
    return [mean, mean - reach, mean + reach]


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
class AmongSeeds:
    """B among models of A's recipe, by distances that all pairs of them have where they read the same.

    Attributes
    ----------
    distances
        ``(k + 2,)``: mean distance of each model from the others (nats per token): A, B, then the references.
    """

    distances: tuple[float, ...]

    @property
    def references(self) -> int:
        """How many references there are, k."""
        return len(self.distances) - 2

    def larger(self, level: float) -> bool | None:
        """Whether B is farther than another seed; None where it is the farthest, of too few models for the level."""
        p = self.p(0.0)
        return p <= level or (None if p == self.least else False)

    @property
    def _others(self) -> NDArray[np.float64]:
        return np.array([self.distances[0], *self.distances[2:]])

    @property
    def least(self) -> float:
        """The least p-value that so many models can give, 1 / (k + 2)."""
        return 1 / len(self.distances)

    def p(self, above: float) -> float:
        """p-value of B being at most so many nats farther than another seed is: the exact rank of B's distance.

        B's own scale is taken from all distances that it has a part in (`_scale`).
        """
        bar = self.distances[1] - self._scale[0] * above
        return (1 + sum(value >= bar for value in self._others.tolist())) / len(self.distances)

    @property
    def _scale(self) -> tuple[float, float]:
        """What one unit of B's own adds to its mean distance above the others', and the error of that difference."""
        n = len(self._others)  # k + 1; each of the others has B among its own others
        return 1 - 1 / n, float(self._others.std(ddof=1)) * math.sqrt(1 + 1 / n)

    @property
    def excess(self) -> list[float]:
        """By how much B is farther from a model of the recipe than another seed is (nats), and Student's interval."""
        gain, error = self._scale
        value = (self.distances[1] - float(self._others.mean())) / gain
        reach = error / gain * special.stdtrit(self.references, (1 + LEVEL) / 2)
        return [value, value - reach, value + reach]

    def t_p(self, above: float) -> float:
        """p-value of the excess being at most a number, if distances were normal: Student's, k degrees of freedom."""
        gain, error = self._scale
        t = gain * (self.excess[0] - above) / error if error > 0 else math.copysign(math.inf, self.excess[0] - above)
        return pvalues.p_student(t, self.references)


@dataclass(frozen=True)
class AnotherSeed:
    """A model of A's recipe with another seed, as far from A as a second training goes.

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
    seeds
        B among them; None without any.
    """

    where: str
    forth: list[float]
    back: list[float]
    both: list[float]
    each: NDArray[np.float64]
    references: tuple[AnotherSeed, ...] = ()
    seeds: AmongSeeds | None = None

    @property
    def excess(self) -> list[float]:
        """How much farther B is than another seed; the whole distance where there is no reference."""
        return self.seeds.excess if self.seeds else self.both

    @classmethod
    def of_copies(cls) -> "Apart":
        """A model and its own copy, which nothing was read for."""
        return cls("no text", [0.0] * 3, [0.0] * 3, [0.0] * 3, np.empty(0))

    @property
    def has_interval(self) -> bool:
        """Whether the text is long enough for one."""
        return math.isfinite(self.both[1])

    def p(self, above: float) -> float:
        """p-value of `excess` being at most a number.

        By rank among seeds where there are references (`AmongSeeds.p`), else over the pieces that were read; 1 where
        these are too few to tell.
        """
        if self.seeds:
            return self.seeds.p(above)
        mean, low, high = self.both
        if not self.has_interval:
            return 1.0
        n = min(N_GROUPS, len(self.each) // PIECES_A_GROUP)
        error = (high - low) / 2 / special.stdtrit(n - 1, (1 + LEVEL) / 2)
        return pvalues.p_student((mean - above) / error, n - 1) if error > 0 else float(mean <= above)

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
            "seeds": self.seeds and {"distances": list(self.seeds.distances), "rank_p": self.seeds.p(0.0)},
        }


def apart(distances: NDArray[np.float64], where: str, references: list[str]) -> Apart:
    """Compare the distance of two models with those among all models of a recipe.

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
    m = len(distances)
    both = (distances + distances.swapaxes(0, 1)) / 2
    means = both.mean(axis=2)
    rows = [
        AnotherSeed(source, mean_of(distances[0, k]), mean_of(distances[k, 0]), mean_of(both[0, 1] - both[0, k]))
        for k, source in enumerate(references, start=2)
    ]
    seeds = AmongSeeds(tuple(float(row.sum() / (m - 1)) for row in means)) if references else None
    forth, back = mean_of(distances[0, 1]), mean_of(distances[1, 0])
    return Apart(where, forth, back, mean_of(both[0, 1]), both[0, 1], tuple(rows), seeds)


def check_limit(above: float, level: float, references: int) -> None:
    """Raise InputError unless a limit and a level make a test with so many references."""
    if not above >= 0:
        raise InputError(f"the limit is a number of nats per token, at least 0, not {above}")
    if not 0 < level < 0.5:
        raise InputError(f"a level is a chance of a wrong answer, above 0 and below 0.5, not {level}")
    if references and level < 1 / (references + 2):
        n = references + 2
        raise InputError(
            f"{references} reference{'s' * (references > 1)} cannot reach the level {level:g}: one more seed is the "
            f"farthest of {n} models one time in {n}; give {math.ceil(1 / level - 1e-9) - 2} references, --level "
            f"{math.ceil(1000 / n) / 1000:g}, or no reference and a limit of your own"
        )
    if not references and above == 0:
        raise InputError(
            "with no reference any two models are farther apart than 0; give references (--reference MODEL), or a "
            "limit above 0"
        )
