"""How two models differ over the inputs that each finds likely: rho(D), disagreement, agreement, and their ratio.

The inputs of model A are those whose mean token loss (NLL) under A lies in a range Z; model B judges them as well, and
the difference is always D = NLL_A - NLL_B. Sampled inputs carry weights that make each input of the space count
equally, enumerated inputs count one each, and everything below is one arithmetic over weighted differences: what is
computed from samples can be compared with the enumeration term by term.

The two directions are sampled apart, so their totals cannot be compared as they are. Both see the same region R3,
where the losses of *both* models lie in Z: divided by the (weighted) number of inputs there, they can (Equations 5 to
7, 12, 13). Where the weights are numbers of inputs, the totals can also be compared directly.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provlab.errors import InputError, NotComparableError
from provlab.modeldiff.bootstrap import percentiles, share_interval
from provlab.modeldiff.representative import (
    LEAST_EFFECTIVE,
    Direction,
    Side,
    bin_of,
    checked_edges,
    checked_range,
    effective,
    within,
)

#: the unit of the two directions when they are compared: "R3", the paper's way, divides each by its own sum
#: over R3; "count" divides both by the number of A's inputs (of B's, if A has none), which needs weights that are
#: numbers of inputs, and no R3
Normalisation = Literal["R3", "count"]
#: the four terms of Equations 3 and 7, in their order
TERMS = ("PD_AB", "PA_AB", "PA_BA", "PD_BA")
_LEAST_COMMON = 3.0  # effective draws in R3: with fewer, one draw decides what everything is divided by
# a term that is empty cannot be the unit of the others; then the next of these is
_REFERENCES = ("PD_AB", "PD_BA", "PA_AB", "PA_BA")
_RESAMPLES = 2000  # of the chain bootstrap
_ENDS = (0.01, 0.99)  # shares of the inputs between which an extent of D is given


@dataclass(frozen=True, eq=False)
class Ratio:
    """The ratio PD_A->B : PA_A->B : PA_B->A : PD_B->A (Equation 7), in the order of `TERMS`.

    Attributes
    ----------
    terms
        ``(4,)``, in the unit of the comparison's normalisation.
    value, low, high
        ``(4,)``: the terms relative to the one named in `reference`, and their 95% interval by chain bootstrap, at
        least as wide as the effective draws allow. An end is infinite where the reference vanishes in resamples, and
        where a model drew nothing in Z.
    reference
        Name of the term that is 1: PD_AB, as in Table 2; if that is 0, the first of PD_BA, PA_AB, PA_BA that is not.
    neither
        ``(2,)``: share of A's and of B's inputs with D = 0, which count as neither.
    """

    terms: NDArray[np.float64]
    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    reference: str
    neither: NDArray[np.float64]

    def __str__(self) -> str:
        return " : ".join(f"{value:.2f}" for value in self.value)


@dataclass(frozen=True)
class Summary:
    """A comparison in numbers, as plain data.

    Attributes
    ----------
    z
        The range of NLL.
    n, n_common
        Draws of A and of B in Z, and how many of them are in R3.
    log10_inputs, log10_common
        Log10 of the number of A's inputs and of B's, and of the number in R3 estimated from either; None where that
        cannot be estimated.
    effective
        How many independent, equally weighted draws those of A and those of B are worth.
    extent_a, extent_b
        D of a hundredth of the inputs is below the first number, and of a hundredth above the second: weighted
        quantiles, since the extremes of draws are those of the largest one and widen with their number.
    below_a, below_b
        Share of inputs with D below 0, and its 95% interval. As the extents, None for a model without draws in Z.
    by_r3, by_count
        The ratio by each normalisation as value, low, high (four each; None for an infinite end) and reference, or an
        error.
    """

    z: list[float]
    n: list[int]
    n_common: list[int]
    effective: list[float]
    log10_inputs: list[float | None]
    log10_common: list[float | None]
    extent_a: list[Any]
    extent_b: list[Any]
    below_a: list[Any]
    below_b: list[Any]
    by_r3: dict[str, Any]
    by_count: dict[str, Any]


@dataclass(frozen=True, eq=False)
class BothDirections:
    """Two models, each judging the other's inputs. One side may be empty: the other's inputs still say what they say.

    Attributes
    ----------
    a, b
        The inputs of model A, and those of model B.
    z
        The range of NLL that makes an input one of a model's.
    joint
        Whether both directions are of the same draws, so that chains are resampled for both together.

    Raises
    ------
    NotComparableError
        Neither model drew an input in Z.

    Examples
    --------
    Section 3.3 of the paper: of 100 inputs drawn from A, 80 lie in R3, 60 disagree and 40 agree; of 300 drawn from B,
    200 lie in R3 and 150 disagree. Though B was drawn from three times as often, the ratio comes out as 3:2:3:3.

    >>> one_chain = np.zeros(300, int)
    >>> a = Direction("A", np.repeat([-1.0, 1.0], [60, 40]), np.ones(100), np.arange(100) < 80, one_chain[:100], 1)
    >>> b = Direction("B", np.repeat([-1.0, 1.0], [150, 150]), np.ones(300), np.arange(300) < 200, one_chain, 1)
    >>> terms = BothDirections(a, b, (2.0, 4.0)).terms()
    >>> (4 * terms).tolist()
    [3.0, 2.0, 3.0, 3.0]
    """

    a: Direction
    b: Direction
    z: tuple[float, float]
    joint: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "z", checked_range(self.z))
        if not len(self.a) and not len(self.b):
            low, high = self.z
            raise NotComparableError(
                f"neither model has an input with NLL in Z = [{low:g}, {high:g}]; widen Z, or move it to losses that "
                "their draws have"
            )

    @property
    def n_chains(self) -> int:
        """Chains that intervals resample: of the side that has fewer."""
        return min((direction.n_chains for direction in (self.a, self.b) if not direction.exact), default=1)

    def terms(self, by: Normalisation = "R3") -> NDArray[np.float64]:
        """Return the four terms of Equation 7, in the unit of a normalisation.

        D < 0 and D > 0 are strict: an input with D = 0 exactly is neither disagreement nor agreement (Table 1 with
        lambda = 0).

        Returns
        -------
        ndarray
            ``(4,)``: PD_A->B (A's inputs, D below), PA_A->B (A's, above), PA_B->A (B's, below), PD_B->A (B's, above).

        Raises
        ------
        NotComparableError
            By "R3": no draws of a model are in Z for the other too, or too few. By "count": the weights are no counts.
        """
        return np.concatenate(
            [
                self._scaled(direction.sums(_kinds(direction)).sum(axis=0), direction, by)
                for direction in (self.a, self.b)
            ]
        )

    def _scaled(self, sums: NDArray[np.float64], direction: Direction, by: Normalisation) -> NDArray[np.float64]:
        """Divide sums of weights ``(..., k)`` by the unit, and drop the last column, the sum over R3."""
        unit = self._unit(direction, by)
        with np.errstate(divide="ignore", invalid="ignore"):
            return sums[..., :-1] / (sums[..., -1:] if unit is None else unit)

    def _unit(self, direction: Direction, by: Normalisation) -> float | None:
        """Divisor of sums of a direction's weights; None stands for its own sum over R3."""
        if by == "count":
            first = self.a if len(self.a) else self.b
            if first.log_unit is None or direction.log_unit is None:
                raise NotComparableError(
                    f"the weights of model {direction.side} are known up to a factor only; compare by R3, or draw with "
                    "a level of infinite temperature, or by generation"
                )
            return float(first.weight.sum() * np.exp(first.log_unit - direction.log_unit))
        common = direction.weight[direction.common]
        if not common.sum() > 0:
            raise NotComparableError(
                f"no input of model {direction.side} with NLL in Z = [{self.z[0]:g}, {self.z[1]:g}] is in Z for the "
                "other model as well (R3 is empty), so the directions share no measure; widen Z, draw more, or compare "
                "counts"
            )
        worth = effective(common)
        if not direction.exact and worth < _LEAST_COMMON:
            raise NotComparableError(
                f"R3 holds {len(common)} draws of model {direction.side}, worth {worth:.1f} equal ones, too few "
                f"to divide by ({_LEAST_COMMON:g} are needed); widen Z, draw more, or compare counts"
            )
        return None

    def ratio(self, by: Normalisation = "R3", *, seed: int = 0) -> Ratio:
        """Return the ratio of Equation 7 with intervals by chain bootstrap.

        Raises
        ------
        NotComparableError
            All terms are 0, or there is no unit (see `terms`).
        InputError
            Only one chain: its draws say nothing of how far another would have come out.
        """
        terms = self.terms(by)
        unit = _reference(terms)
        value = low = high = terms / terms[unit]
        if not (self.a.exact and self.b.exact):
            # whole chains with replacement; NaN where a resample has nothing in R3
            parts = [
                self._resampled(direction, _kinds(direction), by, rng)[1:]
                for direction, rng in zip((self.a, self.b), self._generators(seed), strict=True)
            ]
            resampled = np.concatenate(parts, axis=1)  # (resample, 4)
            with np.errstate(divide="ignore", invalid="ignore"):
                low, high = percentiles(resampled / resampled[:, [unit]], self.n_chains)
            for side, own in ((self.a, np.s_[:2]), (self.b, np.s_[2:])):
                ends = self._widened(side, value[own], low[own], high[own], by, 1 / terms[unit])
                low[own], high[own] = ends
            low[unit] = high[unit] = 1.0  # by definition
        shares = [side.share(side.difference == 0)[0] for side in (self.a, self.b)]
        return Ratio(terms, value, low, high, TERMS[unit], np.array(shares))

    def _generators(self, seed: int) -> list[np.random.Generator]:
        """Random numbers that resample A's chains and B's: in a row, or twice the same where the draws are joint."""
        rng = np.random.default_rng(seed)
        return [rng, np.random.default_rng(seed) if self.joint else rng]

    def _widened(
        self,
        direction: Direction,
        value: NDArray[np.float64],
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        by: Normalisation,
        factor: float = 1.0,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Widen intervals of parts of a direction to what its effective draws can tell; `factor` times the unit."""
        if direction.exact:
            return low, high
        if not len(direction):
            return low, np.full_like(high, np.inf)
        columns = np.stack([np.ones(len(direction), dtype=bool), direction.common], axis=1)  # (n, 2)
        whole = factor * float(self._scaled(direction.sums(columns).sum(axis=0), direction, by)[0])
        least, most = share_interval(np.minimum(value / whole, 1.0), direction.effective)
        return np.minimum(low, whole * least), np.maximum(high, whole * most)

    def _resampled(
        self, direction: Direction, columns: NDArray[np.bool_], by: Normalisation, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Sums of a direction in the unit, and after them those of resampled chains, ``(1 + resamples, k - 1)``."""
        if not direction.exact and direction.n_chains < 2:
            raise InputError(
                f"model {direction.side} was sampled by one chain; intervals need at least two independent ones, "
                "better 16"
            )
        return self._scaled(direction.resampled(columns, _RESAMPLES, rng), direction, by)

    def rho(self, side: Side, edges: ArrayLike, by: Normalisation = "R3", *, seed: int = 0) -> NDArray[np.float64]:
        """Return rho_A->B(D) (`side` "A") or rho_B->A(D) over bins (Equations 5, 6).

        D outside the edges is left out, so that bins of any range can be laid.

        Parameters
        ----------
        side
            Whose inputs.
        edges
            ``(k + 1,)`` of D; a bin holds its left edge, the last one both.
        by
            The unit, as in `terms`.
        seed
            The seed of the bootstrap.

        Returns
        -------
        ndarray
            ``(3, k)``: inputs in the bin for each one of the unit, and the ends of the 95% interval, as a ratio's, each
            bin alone; both ends equal the value if the direction is exact.
        """
        direction = self.a if side == "A" else self.b
        edges = checked_edges(edges)
        inside = bin_of(direction.difference, edges)
        columns = np.stack([*(inside == k for k in range(len(edges) - 1)), direction.common], axis=1)  # (n, bins + 1)
        rho = self._resampled(direction, columns, by, np.random.default_rng(seed))
        ends = percentiles(rho[1:], direction.n_chains)
        return np.stack([rho[0], *self._widened(direction, rho[0], *ends, by)])  # (3, bins)

    def log10_more(self, *, seed: int = 0) -> tuple[float, float, float]:
        """Return log10 of how many times more inputs B has in Z than A, and its 95% interval by chain bootstrap.

        Where both are of the same draws, inputs in R3 are in either number, and the answer rests on the draws in Z for
        one model alone. If these are few or none, resampled chains know little: the interval then is at least that of
        both shares outside R3, as the effective draws allow.

        Raises
        ------
        NotComparableError
            The weights are no counts.
        """
        rngs = self._generators(seed)
        numbers_a, numbers_b = (
            direction.log10_numbers(rng) for direction, rng in zip((self.a, self.b), rngs, strict=True)
        )
        more = numbers_b - numbers_a
        low, high = percentiles(more[1:], self.n_chains)
        alone = [side.weight[~side.common] for side in (self.a, self.b)]
        if self.joint and min(effective(weight) if len(weight) else 0.0 for weight in alone) < LEAST_EFFECTIVE:
            (_, low_a, high_a), (_, low_b, high_b) = (side.share(side.common, seed=seed) for side in (self.a, self.b))
            if min(low_a, low_b) > 0:
                low, high = min(low, np.log10(low_a / high_b)), max(high, np.log10(high_a / low_b))
        return float(more[0]), float(low), float(high)

    @property
    def log10_common(self) -> tuple[float, float]:
        """Log10 of the number of inputs in R3, estimated from A's draws and from B's: two estimates of one number."""
        with np.errstate(divide="ignore"):
            first, second = (
                float(side.log10_count(side.weight.sum()) + np.log10(side.common_share)) for side in (self.a, self.b)
            )
        return first, second

    def summary(self, *, seed: int = 0) -> Summary:
        """Return the numbers of this comparison as plain data, the weights being numbers of inputs."""
        a, b = self.a, self.b
        return Summary(
            z=list(self.z),
            n=[len(a.difference), len(b.difference)],
            n_common=[int(a.common.sum()), int(b.common.sum())],
            log10_inputs=[_plain(side.log10_number) for side in (a, b)],
            log10_common=[_plain(value) for value in self.log10_common],
            effective=[a.effective, b.effective],
            extent_a=[_plain(value) for value in a.quantile(_ENDS)],
            extent_b=[_plain(value) for value in b.quantile(_ENDS)],
            below_a=[_plain(value) for value in a.share_below(seed=seed)],
            below_b=[_plain(value) for value in b.share_below(seed=seed)],
            by_r3=self._plain_ratio("R3", seed),
            by_count=self._plain_ratio("count", seed),
        )

    def _plain_ratio(self, by: Normalisation, seed: int) -> dict[str, Any]:
        try:
            ratio = self.ratio(by, seed=seed)
        except NotComparableError as error:
            return {"error": str(error)}
        ends = {end: [_plain(value) for value in getattr(ratio, end)] for end in ("value", "low", "high")}
        return {"reference": ratio.reference, **ends}

    def in_units_of_reference(self) -> NDArray[np.float64]:
        """Return the four terms in units of ``|X_A|``, the number of A's inputs (Appendix B, Equations 14 to 17).

        Two models B and C that were each compared with A can be compared with each other in these units: the two last
        terms are the sums over rho_B->A and over rho_C->A, divided by the same ``|X_A|``.
        """
        return self.terms() * self.a.common_share


def _plain(value: float | None) -> float | None:
    """Return a number that JSON can hold."""
    return None if value is None or not np.isfinite(value) else float(value)


def _kinds(direction: Direction) -> NDArray[np.bool_]:
    """Which rows have D below 0, above 0, and which are in R3: ``(n, 3)``."""
    return np.stack([direction.difference < 0, direction.difference > 0, direction.common], axis=1)  # (n, 3)


def _reference(terms: NDArray[np.float64]) -> int:
    for name in _REFERENCES:
        if terms[TERMS.index(name)] > 0:
            return TERMS.index(name)
    raise NotComparableError("no input has another loss under the other model: the two answer alike, there is no ratio")


def from_enumeration(nll_a: ArrayLike, nll_b: ArrayLike, z: tuple[float, float]) -> BothDirections:
    """Compare two models by all inputs of a space.

    Parameters
    ----------
    nll_a, nll_b
        ``(n,)`` loss of the same n inputs under each model.
    z
        The range of loss.

    Raises
    ------
    NotComparableError
        Neither model has an input in Z.
    """
    z = checked_range(z)
    a, b = np.asarray(nll_a), np.asarray(nll_b)
    if a.shape != b.shape:
        raise InputError(f"nll_a and nll_b must agree in size: {a.size} and {b.size}")
    in_a, in_b = within(a, z), within(b, z)

    def exact(side: Side, own: NDArray[np.bool_]) -> Direction:
        difference = a[own].astype(float) - b[own].astype(float)
        # every input is there: nothing is left to resample, and all rows are one "chain"
        chain, weight = np.zeros(len(difference), dtype=np.int64), np.ones(len(difference))
        return Direction(side, difference, weight, (in_a & in_b)[own], chain, 1, log_unit=0.0, exact=True)

    return BothDirections(exact("A", in_a), exact("B", in_b), z)


def total_variation(first: ArrayLike, second: ArrayLike) -> float:
    """Total variation distance of two histograms over the same bins, each scaled to a sum of 1: from 0 to 1."""
    p, q = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if p.shape != q.shape or not (p.sum() > 0 and q.sum() > 0):
        raise InputError("the two histograms must have the same bins, and each something in them")
    return float(0.5 * np.abs(p / p.sum() - q / q.sum()).sum())
