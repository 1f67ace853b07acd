"""The inputs that stand for a model: those whose loss lies in a range Z, weighted so that each counts equally.

However inputs are drawn, they come as `Draws`: sequences, their loss, and how many inputs of the space each stands for.
`Direction` is what a comparison needs of those in Z: the differences D = NLL_A - NLL_B of one model's inputs, their
weights, and which of them the other model has in Z as well.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provlab.errors import InputError, NotComparableError
from provlab.modeldiff.bootstrap import chain_counts, percentiles, share_interval

Side = Literal["A", "B"]
#: effective draws below which no estimate is shown: with fewer, one heavy draw can move a count by a decade
LEAST_EFFECTIVE = 30.0
_RESAMPLES = 2000  # of the chain bootstrap of a share, and of a number


@dataclass(frozen=True, eq=False)
class Estimated:
    """How weights depend on free energies that were estimated from the draws themselves.

    Attributes
    ----------
    share
        ``(n, level)``: a log weight falls by so much of what a level's free energy rises.
    drift
        ``(n_chains, level)``: by how much a free energy rises when a chain is counted once more.
    """

    share: NDArray[np.float32]
    drift: NDArray[np.float64]

    def lean(self, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        """By how much the log of a sum of weights ``(n,)`` rises when a chain is counted once more, ``(n_chains,)``."""
        total = weight.sum()
        # (n_chains, level) @ ((n,) @ (n, level))
        return np.asarray(-self.drift @ (weight @ self.share / total) if total > 0 else np.zeros(len(self.drift)))


@dataclass(frozen=True, eq=False)
class Draws:
    """Inputs drawn from one model, weighted so that each input of the space counts equally.

    Attributes
    ----------
    tokens
        ``(n, length)`` integer token ids; a sequence may come more than once.
    nll
        ``(n,)`` mean token NLL (nats) under the model they were drawn from.
    log_weight
        ``(n,)``: log of how many inputs of the space each stands for.
    chain
        ``(n,)``: number of the chain that each was drawn by. Chains are independent of each other, the
        draws of one chain are not: intervals resample chains.
    n_chains
        How many chains there were, numbered from 0, with those that left no input here.
    counted
        Whether the weights are numbers of inputs, and not numbers up to an unknown factor.
    estimated
        How the weights would change with resampled chains; None where they are known exactly.
    window
        Losses of the draws, where they stand for the inputs of another range (`reweighting.smoothed`); else None.
    """

    tokens: NDArray[np.integer[Any]]
    nll: NDArray[np.float64]
    log_weight: NDArray[np.float64]
    chain: NDArray[np.integer[Any]]
    n_chains: int
    counted: bool = True
    estimated: Estimated | None = None
    window: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "log_weight", "chain"):
            _require_length(name, getattr(self, name), len(self))
        for name in ("nll", "log_weight"):
            _require_finite(name, getattr(self, name))
        if len(self) and not 0 <= self.chain.min() <= self.chain.max() < self.n_chains:
            raise InputError(f"chain must hold numbers from 0 to {self.n_chains - 1}")

    def __len__(self) -> int:
        return len(self.nll)

    def within(self, z: tuple[float, float]) -> "Draws":
        """Keep the draws with NLL in Z, ends included, in their order."""
        rows = np.flatnonzero(within(self.nll, checked_range(z)))
        arrays = (self.tokens[rows], self.nll[rows], self.log_weight[rows], self.chain[rows])
        estimated = self.estimated and Estimated(self.estimated.share[rows], self.estimated.drift)
        return Draws(*arrays, self.n_chains, self.counted, estimated)


@dataclass(frozen=True, eq=False)
class Direction:
    """The differences of one model's inputs: what rho_A->B (or rho_B->A) is a histogram of.

    It may be empty, where a model drew nothing in Z: then no share is known.

    Attributes
    ----------
    side
        Whose inputs these are.
    difference
        ``(n,)`` D = NLL_A - NLL_B, in nats per token.
    weight
        ``(n,)`` positive, up to a common factor the number of inputs that each row stands for.
    common
        ``(n,)`` bool: the other model's loss lies in Z as well, so the input is in R3.
    chain
        ``(n,)`` chains numbered from 0.
    n_chains
        Number of independent chains.
    log_unit
        Log of the number of inputs that a weight of 1 stands for; None if that is not known.
    exact
        Whether the rows are all inputs there are, so that nothing is left to chance.
    draws
        The draws behind the rows, one each and in their order; None where there are none.
    """

    side: Side
    difference: NDArray[np.float64]
    weight: NDArray[np.float64]
    common: NDArray[np.bool_]
    chain: NDArray[np.int64]
    n_chains: int
    log_unit: float | None = None
    exact: bool = False
    draws: Draws | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.weight).all() and (self.weight >= 0).all()):
            raise InputError("weight must be finite and at least 0")
        if len(self) and not self.weight.sum() > 0:
            raise InputError("weight must not be 0 everywhere")

    def __len__(self) -> int:
        return len(self.difference)

    @classmethod
    def from_draws(cls, draws: Draws, other: NDArray[np.float64], side: Side, z: tuple[float, float]) -> "Direction":
        """Differences of a model's draws in Z, given their loss under the other model, ``(n,)``.

        Raises
        ------
        InputError
            A draw's own loss is not in Z, or `other` does not hold one finite loss for each draw.
        """
        z = checked_range(z)
        _require_length("other", other, len(draws))
        _require_finite("other", other)
        if not within(draws.nll, draws.window or z).all():
            raise InputError(f"inputs of model {side} must have NLL in Z = [{z[0]:g}, {z[1]:g}]; leave the others out")
        difference = draws.nll - other if side == "A" else other - draws.nll
        # weights reach 10^30 and more: they are held relative to the largest, whose log is the unit
        top = float(draws.log_weight.max()) if len(draws) else 0.0
        weight = np.exp(draws.log_weight - top)
        chain, log_unit = draws.chain.astype(np.int64), top if draws.counted else None
        return cls(side, difference, weight, within(other, z), chain, draws.n_chains, log_unit, draws=draws)

    @property
    def log10_number(self) -> float | None:
        """Log10 of the number of inputs of the model, ``|X|``; None if the weights are known up to a factor only.

        -inf where nothing was drawn, which is no proof that there is no input.
        """
        return None if self.log_unit is None else float(self.log10_count(self.weight.sum()))

    def log10_count(self, sums: ArrayLike) -> NDArray[np.float64]:
        """Log10 of the numbers of inputs that sums of weights stand for.

        Raises
        ------
        NotComparableError
            The weights are no counts.
        """
        if self.log_unit is None:
            raise NotComparableError(f"the weights of model {self.side} are known up to a factor only")
        with np.errstate(divide="ignore"):
            return np.asarray((self.log_unit + np.log(sums)) / np.log(10))

    @property
    def common_share(self) -> float:
        """Share of the model's inputs that lie in R3, ``|X_AB| / |X|``."""
        return float(np.average(self.common, weights=self.weight)) if len(self) else math.nan

    def quantile(self, q: ArrayLike) -> NDArray[np.float64]:
        """Return weighted quantiles of D: the least D that at least a share `q` of the inputs do not exceed."""
        if not len(self):
            return np.full(np.shape(q), math.nan)
        return np.asarray(
            np.quantile(self.difference, np.asarray(q, np.float64), weights=self.weight, method="inverted_cdf")
        )

    @property
    def effective(self) -> float:
        """How many independent, equally weighted draws the mean of D rests on.

        The lower of two answers: by the weights (Kish), and by how much the mean of D differs between chains.
        """
        worth = effective(self.weight) if len(self) else 0.0
        if self.exact or self.n_chains < 2 or not len(self):
            return worth
        sums = self.sums(np.stack([self.difference, np.ones(len(self))], axis=1))  # (n, 2) -> (n_chains, 2)
        total = sums[:, 1].sum()
        mean = sums[:, 0].sum() / total
        moved = (sums[:, 0] - mean * sums[:, 1]) / total  # by each chain, (n_chains,)
        error = self.n_chains / (self.n_chains - 1) * float(moved @ moved)  # squared
        spread = float(self.weight @ (self.difference - mean) ** 2 / total)  # (n,) @ (n,)
        return min(worth, spread / error) if error > 0 else worth

    @property
    def disagreement(self) -> NDArray[np.bool_]:
        """``(n,)``: the other model finds the input less likely than the one it was drawn from."""
        return self.difference < 0 if self.side == "A" else self.difference > 0

    def share_below(self, *, seed: int = 0) -> tuple[float, float, float]:
        """Return the share of the inputs with D < 0, and its 95% interval."""
        return self.share(self.difference < 0, seed=seed)

    def share(self, rows: NDArray[np.bool_], *, seed: int = 0) -> tuple[float, float, float]:
        """Return the share of the inputs that some rows, ``(n,)`` bool, make up; and its 95% interval.

        By chain bootstrap, and at least as wide as the effective draws allow (`share_interval`); 0 to 1 without draws.
        """
        if not len(self):
            return math.nan, 0.0, 1.0
        columns = np.stack([rows, np.ones(len(rows), dtype=bool)], axis=1)  # (n, 2)
        drawn = self.resampled(columns, _RESAMPLES, np.random.default_rng(seed))
        drawn = drawn[drawn[:, 1] > 0.0]  # chains without an input in the range, drawn alone, have no share
        shares = drawn[:, 0] / drawn[:, 1]
        value = min(1.0, float(shares[0]))
        if self.exact:
            return value, value, value
        least, most = share_interval(value, self.effective)
        low, high = percentiles(shares[1:], self.n_chains) if self.n_chains > 1 else (least, most)
        return value, min(float(low), float(least)), max(float(high), float(most))

    def log10_numbers(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Log10 of the number of inputs, and after it the answers of resampled chains: ``(1 + resamples,)``."""
        return self.log10_count(self.resampled(np.ones((len(self.weight), 1)), _RESAMPLES, rng)[:, 0])

    def resampled(
        self, columns: NDArray[np.floating] | NDArray[np.bool_], n_resamples: int, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Sum the weight of ``(n, k)`` indicators, and after it as resampled chains would have it.

        Weights that rest on free energies change with them, to first order in their logs.

        Returns
        -------
        ndarray
            ``(1 + n_resamples, k)``; of an exact direction the sums alone, again and again.
        """
        sums = self.sums(columns)
        if self.exact:
            return np.repeat(sums.sum(axis=0, keepdims=True), 1 + n_resamples, axis=0)
        counts = chain_counts(self.n_chains, n_resamples, rng)
        drawn = counts @ sums  # (n_resamples, n_chains) @ (n_chains, k)
        if self.draws is not None and self.draws.estimated is not None:
            # (n_chains, k)
            lean = np.stack([self.draws.estimated.lean(self.weight * column) for column in columns.T], axis=1)
            drawn = drawn * np.exp(counts @ lean)  # (n_resamples, n_chains) @ (n_chains, k)
        return np.concatenate([sums.sum(axis=0, keepdims=True), drawn])

    def sums(self, columns: NDArray[np.floating] | NDArray[np.bool_]) -> NDArray[np.float64]:
        """Sum the weight of ``(n, k)`` indicators in each chain: ``(n_chains, k)``."""
        n = self.n_chains
        # (n_chains, k)
        return np.stack([np.bincount(self.chain, self.weight * column, minlength=n) for column in columns.T], axis=1)


def effective(weight: NDArray[np.float64]) -> float:
    """Kish's effective number of draws."""
    return float(weight.sum() ** 2 / (weight**2).sum())


def _require_length(name: str, values: NDArray[Any], n: int) -> None:
    if len(values) != n:
        raise InputError(f"{name} must hold one row for each of the {n} inputs, not {len(values)}")


def _require_finite(name: str, values: NDArray[np.float64]) -> None:
    if not np.isfinite(values).all():
        raise InputError(f"{name} must be finite; an input of infinite loss has no place in a range Z")


def checked_edges(edges: ArrayLike) -> NDArray[np.float64]:
    """Return edges of bins as an array; raise InputError unless they rise and are two or more."""
    array = np.asarray(edges, dtype=float)
    if array.ndim != 1 or len(array) < 2 or not (np.diff(array) > 0).all():
        raise InputError("edges must be two or more rising numbers")
    return array


def bin_of(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Bin of each value, -1 outside: the convention of `numpy.histogram`."""
    place = np.searchsorted(edges, values, side="right") - 1
    place = np.where(values == edges[-1], len(edges) - 2, place)
    return np.where((place < 0) | (place > len(edges) - 2), -1, place)


def checked_range(z: tuple[float, float]) -> tuple[float, float]:
    """Return Z as two floats; raise InputError if nothing can lie in it."""
    low, high = float(z[0]), float(z[1])
    if not -np.inf < low < high < np.inf:
        raise InputError(f"Z = [{low:g}, {high:g}] is empty; its first end must lie below its second, both finite")
    return low, high


def within(nll: NDArray[np.floating], z: tuple[float, float]) -> NDArray[np.bool_]:
    """Whether each loss lies in Z, both ends included."""
    return (nll >= z[0]) & (nll <= z[1])
