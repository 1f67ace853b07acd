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
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from provlab.errors import InputError
from provlab.modeldiff import mbar
from provlab.modeldiff.bootstrap import chain_counts, percentiles
from provlab.modeldiff.diagnostics import NotConverged, between, converged
from provlab.modeldiff.representative import (
    LEAST_EFFECTIVE,
    Draws,
    Estimated,
    bin_of,
    checked_edges,
    checked_range,
    effective,
)
from provlab.modeldiff.sampler import Samples

_LEAST_OVERLAP = 0.03  # of neighbouring temperatures, of at most 0.5
_RESAMPLES = 500  # of the chain bootstrap of a density
_GRID, _ROUNDS, _NEWTON = 2001, 5, 30  # points of a range of loss, rounds that move a window, steps of Newton's method
_WIDE = 1.5  # reach of the window that curvature is taken from, in those of the window whose draws count
_STEEP = 3.0  # log of how much more inputs there are half a window further up: with less there is nothing to smooth
_SURE, _SLACK = 4.0, 0.05  # standard errors and nats, added, by which a known free energy may be missed


def reweight(samples: Samples) -> Draws:
    """Weigh draws of all temperatures by MBAR against the uniform law over all sequences.

    Parameters
    ----------
    samples
        The samples of at least two chains, whose hottest temperature is infinity or the model's own.

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
    tokens = samples.tokens.reshape(-1, samples.length)  # (levels times chains times draws, length)
    estimated = Estimated(weights.share, weights.drift)
    return Draws(tokens, samples.nll.reshape(-1), weights.log_weight + log_total, chain, chains, estimated=estimated)


def _check_known(temperature: float, weights: mbar.FreeEnergies, level: int, exact: float) -> None:
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
        ``(k,)`` inputs in the bin, and the 95% interval by bootstrap over chains; NaN where the draws are worth fewer
        than 30 different inputs: with so few, intervals do not hold. A bin that holds fewer inputs than that never has
        a number, however many draws there are: there `log10_seen` is what is known.
    log10_seen
        ``(k,)`` distinct inputs that were drawn, which is the least that there are; -inf where none was.
    effective
        ``(k,)`` how many distinct inputs of equal weight those drawn are worth, and not more than chains agree on.
    """

    edges: NDArray[np.float64]
    log10_count: NDArray[np.float64]
    log10_low: NDArray[np.float64]
    log10_high: NDArray[np.float64]
    log10_seen: NDArray[np.float64]
    effective: NDArray[np.float64]


def density_of_states(draws: Draws, edges: ArrayLike, *, seed: int = 0) -> DensityOfStates:
    """Count the inputs of the whole space in bins of loss.

    Parameters
    ----------
    draws
        The draws of one model, however drawn: their weights are kept when chains are resampled.
    edges
        ``(k + 1,)`` of NLL.
    seed
        The seed of the bootstrap over chains.
    """
    edges = checked_edges(edges)
    place = bin_of(draws.nll, edges)
    k = len(edges) - 1
    # counts of neighbouring bins may differ by many decades: sums of weights are held as logs throughout
    log_sums, lean = np.full((draws.n_chains, k), -np.inf), np.zeros((draws.n_chains, k))
    floor, worth = np.zeros(k), np.zeros(k)
    for bin_ in np.unique(place[place >= 0]):
        rows = np.flatnonzero(place == bin_)
        top = draws.log_weight[rows].max()
        weight = np.exp(draws.log_weight[rows] - top)
        by_chain = np.bincount(draws.chain[rows], weight, minlength=draws.n_chains)
        # an input that was drawn again tells nothing of the others
        name = np.unique(draws.tokens[rows], axis=0, return_inverse=True)[1].ravel()
        distinct = np.bincount(name, weight).astype(np.float64)
        with np.errstate(divide="ignore"):
            log_sums[:, bin_] = np.log(by_chain) + top
            agreed = by_chain.mean() ** 2 * draws.n_chains / by_chain.var(ddof=1)
        floor[bin_], worth[bin_] = len(distinct), min(effective(distinct), agreed)
        if draws.estimated is not None:
            whole = np.zeros(len(draws))
            whole[rows] = weight
            lean[:, bin_] = draws.estimated.lean(whole)
    counts = chain_counts(draws.n_chains, _RESAMPLES, np.random.default_rng(seed))
    with np.errstate(divide="ignore"):
        resampled = logsumexp(np.log(counts)[:, :, None] + log_sums, axis=1) + counts @ lean  # (resample, k)
        floor = np.log10(floor)
    low, high = (end / math.log(10) for end in percentiles(resampled, draws.n_chains))
    count = logsumexp(log_sums, axis=0) / math.log(10)
    count, low, high = (np.where(worth >= LEAST_EFFECTIVE, value, np.nan) for value in (count, low, high))
    count, low, high = (np.maximum(value, floor) for value in (count, low, high))  # NaN stays
    return DensityOfStates(edges, count, low, high, floor, worth)


def smoothed(draws: Draws, z: tuple[float, float]) -> Draws:
    """Let draws around the upper end of Z stand for all inputs in Z: the paper's two stages (Section 3.2).

    The number of inputs rho(z) rises with the loss by a factor of about e^(length - 1) a nat: plain weights then rest
    on the few draws at the very end of Z. Over a window around the mean loss of Z's inputs, log rho(z) is close to a
    parabola phi(z); divided by e^phi the draws there lie evenly, and together they stand for the integral of e^phi over
    Z. They count by Epanechnikov's kernel, less towards the ends of the window. What changes linearly with z across it,
    as the mean of D does nearly, comes out right, since the mean loss in the window is that of Z's inputs.

    The window reaches a third of Z's width to either side. Where rho rises by less than e^3 over that, or hardly a draw
    is there, plain weights do as well, and the draws in Z come back as they are.

    Parameters
    ----------
    draws
        The draws of one model, also those beside Z.
    z
        The range of loss whose inputs are meant.
    """
    low, high = checked_range(z)
    reach, centre, phi = (high - low) / 3, high, np.zeros(2)
    grid = np.linspace(low, high, _GRID)
    for _ in range(_ROUNDS):
        wide = draws.within((centre - _WIDE * reach, centre + _WIDE * reach))
        if len(wide) < LEAST_EFFECTIVE:
            return draws.within(z)
        place = wide.nll - centre
        tilt = np.polyfit(place, wide.log_weight, 1)[0]
        flat = wide.log_weight - tilt * place
        phi = np.array([tilt, 0.0]) + _parabola(place, np.exp(flat - flat.max()), _WIDE * reach)
        log_rho = (grid - centre) * phi[0] + (grid - centre) ** 2 * phi[1]
        if not phi[0] * reach > _STEEP:
            return draws.within(z)
        centre = float(np.average(grid, weights=np.exp(log_rho - log_rho.max())))
    window = centre - reach, centre + reach
    near = draws.within(window)
    if len(near) < LEAST_EFFECTIVE:
        return draws.within(z)
    place = near.nll - centre
    slope, log_kernel = phi[0], np.log(np.maximum(0.75 / reach * (1 - (place / reach) ** 2), 1e-300))
    for _ in range(_NEWTON):  # until the mean loss of the evened draws is the centre
        even = near.log_weight - slope * place - phi[1] * place**2 + log_kernel
        weight = np.exp(even - even.max())
        slope += weight @ place / (weight @ place**2)  # (n,) @ (n,)
    log_rho = (grid - centre) * slope + (grid - centre) ** 2 * phi[1]
    log_whole = logsumexp(log_rho) + math.log((high - low) / _GRID)
    return replace(near, log_weight=even + log_whole, window=window)


def _parabola(place: NDArray[np.float64], weight: NDArray[np.float64], reach: float) -> NDArray[np.float64]:
    """Fit a density proportional to exp(a u + b u^2) over -reach to reach by likelihood: (a, b)."""
    grid = np.linspace(-reach, reach, _GRID)
    powers, fitted = np.stack([grid, grid**2]), np.zeros(2)  # (2, grid)
    moments = np.average([place, place**2], axis=1, weights=weight)
    for _ in range(_NEWTON):
        log_density = fitted @ powers  # (2,) @ (2, grid)
        density = np.exp(log_density - log_density.max())
        density /= density.sum()
        mean = powers @ density  # (2, grid) @ (grid,)
        # (2, grid) @ (grid, 2)
        fitted = fitted + np.linalg.solve((powers * density) @ powers.T - np.outer(mean, mean), moments - mean)
    return fitted


def _check_overlap(overlap: NDArray[np.float64], temperatures: NDArray[np.float64]) -> None:
    for k, value in enumerate(overlap):
        if value < _LEAST_OVERLAP:
            raise NotConverged(
                f"not converged: draws at temperatures {temperatures[k]:.3g} and {temperatures[k + 1]:.3g} overlap by "
                f"{value:.1e} of 0.5 ({_LEAST_OVERLAP:g} is needed); add a temperature between, such as "
                f"{between(temperatures[k], temperatures[k + 1]):.3g}"
            )
