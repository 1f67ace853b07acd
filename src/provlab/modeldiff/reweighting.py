"""From draws at many temperatures to counts of sequences: the density of states, and the inputs a model likes.

Draws at temperature T favour low NLL by the factor exp(-NLL / T). The multistate Bennett acceptance ratio (MBAR,
Shirts and Chodera 2008) undoes that for the draws of all temperatures at once: with free energies f_k, a draw x stands
for ``1 / sum_k n_k exp(f_k - NLL(x) / T_k)`` of the whole space. The infinite temperature is in the ladder, and there
the space is known: all ``vocabulary ** length`` sequences, equally likely. So the weights are numbers of sequences,
not only ratios (paper, Section 3.1 and 3.2, which reweights histograms; MBAR does the same without bins).

Draws of one chain resemble each other. A level's draws count ``n_k`` = draws / g together, where g is the statistical
inefficiency, and intervals come from resampling whole chains.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from provlab.errors import InputError
from provlab.modeldiff import mbar
from provlab.modeldiff.diagnostics import Convergence, NotConverged, between, converged
from provlab.modeldiff.sampler import Samples


@dataclass(frozen=True, eq=False)
class LogDensity:
    """The density of states over bins of NLL.

    Attributes
    ----------
    edges
        ``(k + 1,)`` of the NLL, nats a token; a bin holds its left edge, the last one both.
    log_rho
        ``(k,)`` natural logarithm of the number of sequences in each bin; NaN in a bin that no draw fell into.
    error
        ``(k,)`` standard error of `log_rho` by chain bootstrap; infinite where too few chains were in the bin to tell.
    low, high
        ``(k,)`` 95% interval by chain bootstrap, each bin alone.
    draws
        ``(k,)`` draws in each bin.
    """

    edges: NDArray[np.float64]
    log_rho: NDArray[np.float64]
    error: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    draws: NDArray[np.int64]

    @property
    def absent(self) -> NDArray[np.bool_]:
        """``(k,)`` bins without a draw: nothing is known of them, not that they are empty."""
        return self.draws == 0

    @property
    def remedy(self) -> str:
        """What to do about absent bins, in one line; empty if there are none."""
        gaps = [f"[{self.edges[k]:.3g}, {self.edges[k + 1]:.3g}]" for k in np.flatnonzero(self.absent)]
        if not gaps:
            return ""
        shown = ", ".join(gaps[:3]) + (f" and {len(gaps) - 3} more" if len(gaps) > 3 else "")
        return f"no draw has NLL in {shown}: lay wider bins, run more steps, or add temperatures that visit it"


@dataclass(frozen=True, eq=False)
class DensityOfStates:
    """Weights that turn draws of a replica exchange into numbers of sequences.

    Attributes
    ----------
    temperatures
        ``(level,)`` hottest first, infinity.
    inefficiency
        ``(level,)`` statistical inefficiency g, at least 1: draws for each effective one.
    log_total
        Log of the number of sequences, ``length * log(vocabulary)``.
    nll, chain
        ``(n,)``: of all draws, flattened from ``(temperature, chain, draw)``.
    log_weight
        ``(n,)``: log of how many sequences each draw stands for; they sum to the whole space.
    weights
        The solution of the MBAR equations behind it.
    """

    temperatures: NDArray[np.float64]
    inefficiency: NDArray[np.float64]
    log_total: float
    nll: NDArray[np.float64]
    chain: NDArray[np.int64]
    log_weight: NDArray[np.float64]
    weights: mbar.Weights

    @property
    def free_energies(self) -> NDArray[np.float64]:
        """``(level,)``: minus log of the mean of exp(-NLL / T) over the whole space, so 0 at infinity."""
        return self.weights.free_energies

    @property
    def overlap(self) -> NDArray[np.float64]:
        """``(level - 1,)`` of each level with the next colder one, from 0 to 1/2; see `mbar.Weights`."""
        return self.weights.overlap

    @property
    def n_chains(self) -> int:
        """Number of independent chains."""
        return len(self.weights.score)

    def replicates(self, n: int, *, seed: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Draw chains with replacement and solve for the free energies anew, `n` times.

        Yields how often each chain was drawn, ``(chain,)``, and the change of the free energies, ``(level,)``. That
        is one step of Newton's method from the solution for all chains: what is left is of second order.
        """
        rng = np.random.default_rng(seed)
        chains = self.n_chains
        for counts in rng.multinomial(chains, np.full(chains, 1 / chains), size=n):
            score = np.einsum("c,ck->k", counts, self.weights.score)
            information = np.einsum("c,ckl->kl", counts, self.weights.information)
            change = np.zeros(len(score))
            change[1:] = np.linalg.lstsq(information[1:, 1:], score[1:], rcond=None)[0]
            yield counts, change

    def resampled_log_weight(
        self, rows: NDArray[np.integer[Any]] | slice, n: int, *, seed: int
    ) -> Iterator[NDArray[np.float64]]:
        """Log weights of some draws in `n` bootstrap replicates over chains, -inf where the chain was not drawn.

        A statistic of the weights computed for each has the spread that other chains would have given it: both what
        the chains found and their free energies vary.
        """
        log_weight, share, chain = self.log_weight[rows], self.weights.share[rows], self.chain[rows]
        with np.errstate(divide="ignore"):
            for counts, change in self.replicates(n, seed=seed):
                yield log_weight + np.log(counts)[chain] - np.log(share @ np.exp(change))

    def histogram(self, edges: ArrayLike, *, n_resamples: int = 200, seed: int = 0) -> LogDensity:
        """Count sequences in bins of NLL.

        Parameters
        ----------
        edges
            ``(k + 1,)`` rising.
        n_resamples, seed
            Of the chain bootstrap.
        """
        edges = np.asarray(edges, dtype=np.float64)
        if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0).all():
            raise InputError("edges must be two or more rising numbers")
        n_bins = len(edges) - 1
        place = np.searchsorted(edges, self.nll, side="right") - 1
        place[self.nll == edges[-1]] = n_bins - 1
        rows = np.flatnonzero((place >= 0) & (place < n_bins))
        place = place[rows]
        draws = np.bincount(place, minlength=n_bins)
        log_rho = _log_sums(place, self.log_weight[rows], n_bins)
        replicates = np.array(
            [
                _log_sums(place, log_weight, n_bins)
                for log_weight in self.resampled_log_weight(rows, n_resamples, seed=seed)
            ]
        )
        low = np.quantile(replicates, 0.025, axis=0, method="lower")
        high = np.quantile(replicates, 0.975, axis=0, method="higher")
        known = np.isfinite(low)
        error = np.full(n_bins, np.inf)
        error[known] = np.array([column[np.isfinite(column)].std(ddof=1) for column in replicates[:, known].T])
        for values in (log_rho, error, low, high):
            values[draws == 0] = np.nan
        return LogDensity(edges, log_rho, error, low, high, draws)

    def log_count(self, low: float, high: float) -> float:
        """Log of the number of sequences with NLL in ``[low, high]``; -inf is never guessed: no draw is an error."""
        inside = (self.nll >= low) & (self.nll <= high)
        if not inside.any():
            raise NotConverged(_unreached(self.nll, low, high))
        return float(logsumexp(self.log_weight[inside]))


@dataclass(frozen=True, eq=False)
class Representative:
    """Draws with NLL in a range, weighted so that every sequence of the space counts the same.

    Attributes
    ----------
    tokens
        ``(n, length)``; a sequence may come more than once.
    nll
        ``(n,)`` nats a token.
    log_weight
        ``(n,)``: log of the number of sequences that each draw stands for.
    chain
        ``(n,)`` which chain drew it.
    rows
        ``(n,)`` where they stand among all draws, for `DensityOfStates.resampled_log_weight`.
    """

    tokens: NDArray[np.unsignedinteger[Any]]
    nll: NDArray[np.float64]
    log_weight: NDArray[np.float64]
    chain: NDArray[np.int64]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.nll)


def density_of_states(
    samples: Samples,
    *,
    gate: Convergence | None = None,
    min_overlap: float = 0.03,
    max_solved: int = 20_000,
) -> DensityOfStates:
    """Weigh draws of all temperatures by MBAR against the uniform law over all sequences.

    Parameters
    ----------
    samples
        Of at least two chains, with infinity among the temperatures.
    gate
        Of `diagnostics.converged`, with its default limits if none is given.
    min_overlap
        Least overlap between neighbouring temperatures.
    max_solved
        Most draws given to pymbar, an even choice from each level; all draws take part in the last steps.

    Raises
    ------
    NotConverged
        A criterion of the gate fails, or two neighbouring temperatures do not overlap: the message names where to
        add one.
    InputError
        There is one chain only, or the ladder has no infinite temperature.
    """
    if not np.isinf(samples.temperatures[0]):
        raise InputError(
            f"the hottest temperature is {samples.temperatures[0]:g}; add infinity, where the number of sequences is "
            "known, so that weights are absolute"
        )
    if samples.n_chains < 2:
        raise InputError("n_chains must be at least 2, better 16: what differs between chains is the uncertainty")
    (converged(samples) if gate is None else gate).require()

    levels, chains, draws = samples.nll.shape
    inefficiency = np.maximum(1.0, chains * draws / samples.diagnostics.ess)
    found = mbar.solve(samples.nll, samples.betas, inefficiency, max_solved)
    # first, since a gap in the ladder is the usual reason for no solution
    _check_overlap(found.overlap, samples.temperatures, min_overlap)
    if not found.solved:
        raise NotConverged("not converged: MBAR found no free energies; run more steps, or add temperatures")
    log_total = samples.length * float(np.log(samples.vocabulary))
    return DensityOfStates(
        temperatures=samples.temperatures,
        inefficiency=inefficiency,
        log_total=log_total,
        nll=samples.nll.reshape(-1),
        chain=np.tile(np.repeat(np.arange(chains), draws), levels),
        log_weight=found.log_weight + log_total,
        weights=found,
    )


def representative(samples: Samples, dos: DensityOfStates, z: tuple[float, float]) -> Representative:
    """Draws whose NLL lies in Z, ends included, with their weights (paper, Section 3.2).

    Raises
    ------
    InputError
        Z is empty.
    NotConverged
        No chain reached Z, or only one did, so that nothing says how far it can be trusted.
    """
    low, high = float(z[0]), float(z[1])
    if not low < high:
        raise InputError(f"Z = [{low:g}, {high:g}] is empty; its first end must lie below its second")
    if samples.nll.size != len(dos.nll):
        raise InputError("samples and dos must be of one run")
    rows = np.flatnonzero((dos.nll >= low) & (dos.nll <= high))
    if not len(rows):
        raise NotConverged(_unreached(dos.nll, low, high))
    chain = dos.chain[rows]
    if len(np.unique(chain)) < 2:
        raise NotConverged(
            f"not converged: only chain {chain[0]} of {dos.n_chains} reached Z = [{low:g}, {high:g}]; run more steps, "
            "or add temperatures whose NLL lies there"
        )
    tokens = samples.tokens.reshape(-1, samples.length)[rows]
    return Representative(tokens, dos.nll[rows], dos.log_weight[rows], chain, rows)


def _unreached(nll: NDArray[np.float64], low: float, high: float) -> str:
    colder = "colder temperatures" if high < nll.min() else "temperatures whose NLL lies there"
    remedy = f"add {colder} or run more steps" if low <= nll.max() else "move Z"
    return (
        f"not converged: no chain reached Z = [{low:g}, {high:g}]; they visited NLL {nll.min():.4g} to "
        f"{nll.max():.4g}: {remedy}, or take Z from what was reached"
    )


def _log_sums(place: NDArray[np.int64], log_weight: NDArray[np.float64], n_bins: int) -> NDArray[np.float64]:
    """Log of the sum of weights in each bin, -inf where there is none. Bins may differ by hundreds of decades."""
    top = np.full(n_bins, -np.inf)
    np.maximum.at(top, place, log_weight)
    finite = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.bincount(place, np.exp(log_weight - finite[place]), minlength=n_bins)) + finite)


def _check_overlap(overlap: NDArray[np.float64], temperatures: NDArray[np.float64], least: float) -> None:
    for k, value in enumerate(overlap):
        if value < least:
            raise NotConverged(
                f"not converged: draws at temperatures {temperatures[k]:.3g} and {temperatures[k + 1]:.3g} overlap by "
                f"{value:.1e} of 0.5 ({least:g} is needed); add a temperature between, such as "
                f"{between(temperatures[k], temperatures[k + 1]):.3g}"
            )
