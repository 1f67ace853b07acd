"""From draws at many temperatures to counts of sequences: the density of states, and the inputs a model likes.

Draws at temperature T favour low NLL by the factor exp(-NLL / T). The multistate Bennett acceptance ratio (MBAR,
Shirts and Chodera 2008) undoes that for the draws of all temperatures at once: with free energies f_k, a draw x stands
for ``1 / sum_k n_k exp(f_k - NLL(x) / T_k)`` of the whole space. The infinite temperature is in the ladder, and there
the space is known: all ``vocabulary ** length`` sequences, equally likely. So the weights are numbers of sequences,
not only ratios (paper, Section 3.1 and 3.2, which reweights histograms; MBAR does the same without bins). A ladder may
also begin at the temperature of a model's own text, where the sum over all sequences is known too.

Draws of one chain resemble each other. A level's draws count ``n_k`` = draws / g together, where g is the statistical
inefficiency, and intervals come from resampling whole chains, free energies with them.

A causal model is a check on all of this: between infinity and its own temperature, 1 / N with the mean over N
predictions, the free energy is N log(vocabulary) whatever the model is.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from provlab.errors import InputError
from provlab.modeldiff import mbar
from provlab.modeldiff.bootstrap import chain_counts, percentiles
from provlab.modeldiff.diagnostics import NotConverged, between, converged
from provlab.modeldiff.representative import Draws, Estimated, bin_of, checked_edges, checked_range
from provlab.modeldiff.sampler import Samples

_LEAST_OVERLAP = 0.03  # of neighbouring temperatures, of at most 0.5
_RESAMPLES = 500  # of the chain bootstrap of a density
_SURE, _SLACK = 4.0, 0.05  # standard errors and nats, added, by which a known free energy may be missed


def reweight(samples: Samples) -> Draws:
    """Weigh draws of all temperatures by MBAR against the uniform law over all sequences.

    Parameters
    ----------
    samples
        Of at least two chains, whose hottest temperature is infinity or the model's own.

    Returns
    -------
    Draws
        All of them, flattened from ``(temperature, chain, draw)``; the weights sum to the number of sequences.

    Raises
    ------
    NotConverged
        A criterion of `diagnostics.converged` fails, a free energy that is known comes out wrong, or two neighbouring
        temperatures do not overlap: the message names where to add one.
    InputError
        There is one chain only, or nothing is known of the hottest level.
    """
    log_total = samples.log_total(0)
    if log_total is None:
        raise InputError(
            f"the hottest temperature is {samples.temperatures[0]:g}; add infinity, where the number of sequences is "
            "known, so that weights are absolute"
        )
    if samples.n_chains < 2:
        raise InputError("n_chains must be at least 2, better 16: what differs between chains is the uncertainty")
    gate = converged(samples)
    gate.require()
    levels, chains, draws = samples.nll.shape
    inefficiency = np.maximum(1.0, chains * draws / gate.ess)  # (level,)
    weights = mbar.solve(samples.nll, samples.betas, inefficiency)
    # first, since a gap in the ladder is the usual reason for no solution
    _check_overlap(weights.overlap, samples.temperatures)
    if not weights.solved:
        raise NotConverged("not converged: MBAR found no free energies; run more steps, or add temperatures")
    for level in range(1, levels):
        if (known := samples.log_total(level)) is not None:
            _check_known(samples.temperatures[level], weights, level, log_total - known)
    chain = np.tile(np.repeat(np.arange(chains), draws), levels)
    tokens = samples.tokens.reshape(-1, samples.length)
    estimated = Estimated(weights.share, weights.drift)
    return Draws(tokens, samples.nll.reshape(-1), weights.log_weight + log_total, chain, chains, estimated=estimated)


def _check_known(temperature: float, weights: mbar.Weights, level: int, exact: float) -> None:
    """Compare a free energy with its exact value."""
    estimate, error = weights.free_energies[level], weights.error(level)
    off = abs(estimate - exact)
    if off > _SURE * error + _SLACK:
        raise NotConverged(
            f"not converged: at temperature {temperature:.3g}, the model's own, the free energy comes out as "
            f"{estimate:.2f} nats and is {exact:.2f} ({off / error:.0f} standard errors); run more steps"
        )


def representative(draws: Draws, z: tuple[float, float]) -> Draws:
    """Keep reweighted draws whose NLL lies in Z, ends included (paper, Section 3.2).

    Raises
    ------
    InputError
        Z is empty.
    NotConverged
        No chain reached Z, or only one did, so that nothing says how far it can be trusted.
    """
    low, high = checked_range(z)
    inside = draws.within((low, high))
    if not len(inside):
        colder = "colder temperatures" if high < draws.nll.min() else "temperatures whose NLL lies there"
        remedy = f"add {colder} or run more steps" if low <= draws.nll.max() else "move Z"
        raise NotConverged(
            f"not converged: no chain reached Z = [{low:g}, {high:g}]; they visited NLL {draws.nll.min():.4g} to "
            f"{draws.nll.max():.4g}: {remedy}, or take Z from what was reached"
        )
    if len(np.unique(inside.chain)) < 2:
        raise NotConverged(
            f"not converged: only chain {inside.chain[0]} of {draws.n_chains} reached Z = [{low:g}, {high:g}]; run "
            "more steps, or add temperatures whose NLL lies there"
        )
    return inside


@dataclass(frozen=True, eq=False)
class DensityOfStates:
    """How many inputs of the whole space a model gives a loss in each bin.

    Attributes
    ----------
    edges
        ``(k + 1,)`` of NLL (nats per token).
    log10_count, log10_low, log10_high
        ``(k,)`` inputs in the bin, and the 95% interval by bootstrap over chains; -inf where no draw was met, which is
        no proof that there is no input.
    n
        ``(k,)`` draws behind each.
    """

    edges: NDArray[np.float64]
    log10_count: NDArray[np.float64]
    log10_low: NDArray[np.float64]
    log10_high: NDArray[np.float64]
    n: NDArray[np.int64]


def density_of_states(draws: Draws, edges: ArrayLike, *, seed: int = 0) -> DensityOfStates:
    """Count the inputs of the whole space in bins of loss.

    Parameters
    ----------
    draws
        Of one model, however drawn: their weights are kept when chains are resampled.
    edges
        ``(k + 1,)`` of NLL.
    seed
        Of the bootstrap over chains.
    """
    edges = checked_edges(edges)
    place = bin_of(draws.nll, edges)
    k = len(edges) - 1
    # counts of neighbouring bins may differ by many decades: sums of weights are held as logs throughout
    log_sums, lean = np.full((draws.n_chains, k), -np.inf), np.zeros((draws.n_chains, k))
    for bin_ in range(k):
        rows = place == bin_
        for chain in np.unique(draws.chain[rows]):
            log_sums[chain, bin_] = logsumexp(draws.log_weight[rows & (draws.chain == chain)])
        if draws.estimated is not None and rows.any():
            lean[:, bin_] = draws.estimated.lean(np.where(rows, np.exp(draws.log_weight - log_sums[:, bin_].max()), 0))
    counts = chain_counts(draws.n_chains, _RESAMPLES, np.random.default_rng(seed))
    with np.errstate(divide="ignore"):
        resampled = logsumexp(np.log(counts)[:, :, None] + log_sums, axis=1) + counts @ lean  # (resample, k)
    low, high = (end / math.log(10) for end in percentiles(resampled, draws.n_chains))
    count = logsumexp(log_sums, axis=0) / math.log(10)
    return DensityOfStates(edges, count, low, high, np.bincount(place[place >= 0], minlength=k))


def _check_overlap(overlap: NDArray[np.float64], temperatures: NDArray[np.float64]) -> None:
    for k, value in enumerate(overlap):
        if value < _LEAST_OVERLAP:
            raise NotConverged(
                f"not converged: draws at temperatures {temperatures[k]:.3g} and {temperatures[k + 1]:.3g} overlap by "
                f"{value:.1e} of 0.5 ({_LEAST_OVERLAP:g} is needed); add a temperature between, such as "
                f"{between(temperatures[k], temperatures[k + 1]):.3g}"
            )
