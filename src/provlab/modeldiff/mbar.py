"""The multistate Bennett acceptance ratio (Shirts and Chodera 2008) for draws at several temperatures, on arrays.

The equations are solved by Newton's method on all draws. The package pymbar solves them too, and tests compare the two:
here a draw counts by 1 / g, which is no whole number, and chains are added up apart for their spread, which pymbar does
not do; on all draws of a long run it takes four times as long.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

_NEWTON_STEPS = 50
_SOLVED = 1e-9  # largest relative error left in the equations
_BRIDGING = 1.0  # effective draws that belong to both sides of a step between levels, at least


@dataclass(frozen=True, eq=False)
class FreeEnergies:
    """A solution of the MBAR equations; n draws flattened from ``(level, chain, draw)``.

    Attributes
    ----------
    free_energies
        ``(level,)``, 0 at the first level.
    log_weight
        ``(n,)``: log of how many sequences each draw stands for, in units of the first level's Z_0: over all draws the
        sum of weight times exp(-beta_0 E) is 1.
    overlap
        ``(level - 1,)`` of each level with the next one: the integral of p q / (p + q), from 0 to 1/2. That is the
        off-diagonal of the overlap matrix of two levels with equally many draws (Klimovich, Shirts and Mobley 2015);
        how many draws there are does not enter.
    solved
        Whether the equations hold, and fix the free energies: where hardly any draw could be of either side of a step,
        they hold for any numbers, and what they give there is no estimate.
    share
        ``(n, level)``: to which level each draw belongs; by minus these a log weight changes with the free energies.
    drift
        ``(chain, level)``: by how much the free energies change, to first order, when a chain is counted once more.
    """

    free_energies: NDArray[np.float64]
    log_weight: NDArray[np.float64]
    overlap: NDArray[np.float64]
    solved: bool
    share: NDArray[np.float32]
    drift: NDArray[np.float64]

    def error(self, level: int) -> float:
        """Standard error of a free energy, from how the chains differ."""
        chains = len(self.drift)
        return float(np.sqrt(chains / (chains - 1) * (self.drift[:, level] ** 2).sum()))


def solve(energies: NDArray[np.float64], betas: NDArray[np.float64], inefficiency: NDArray[np.float64]) -> FreeEnergies:
    """Solve the equations.

    Level k has the law exp(-beta_k E) / Z_k and n_k effective draws; with f_k = -log Z_k, a draw of energy E belongs
    to level k with the share s_k(E) = n_k exp(f_k - beta_k E) / sum_l n_l exp(f_l - beta_l E), and the equations say
    that the shares of level k sum to n_k over all draws. That fixes f up to a constant, which f_0 = 0 takes away.

    Parameters
    ----------
    energies
        ``(level, chain, draw)``.
    betas
        ``(level,)`` inverse temperatures.
    inefficiency
        ``(level,)`` statistical inefficiency g: a level's draws count as its number of draws divided by g.
    """
    levels, chains, draws = energies.shape
    flat = energies.reshape(-1)  # (n,)
    multiplicity = np.repeat(1.0 / inefficiency, chains * draws)  # (n,) effective draws that each draw counts for
    n = chains * draws / inefficiency  # (level,)
    free = _step_by_step(energies.reshape(levels, -1), betas)  # (level, chains times draws)
    solved = False
    for _ in range(_NEWTON_STEPS):
        log_share = np.log(n) + free - betas * flat[:, None]  # (n, level), not yet normalised
        # the mixture of all levels' laws at each draw is the denominator, and its inverse the weight of the draw
        largest = log_share.max(axis=1, keepdims=True)
        share = np.exp(log_share - largest)
        total = share.sum(axis=1, keepdims=True)
        share /= total  # (n, level), rows sum to 1
        log_weight = -(np.log(total) + largest)[:, 0]
        # by how much the shares of each chain miss its part of n, and by minus free energies the sum of diag(s) - s s'
        counted = share * multiplicity[:, None]
        of_chain = n / chains - counted.reshape(levels, chains, draws, levels).sum(axis=(0, 2))  # (chain, level)
        residual = of_chain.sum(axis=0)
        derivative = np.diag(n - residual) - share.T @ counted  # (level, n) @ (n, level)
        solved = bool(np.abs(residual / n).max() < _SOLVED)
        if solved:
            break
        # f_0 stays 0; levels that hardly overlap make the derivative nearly singular, hence least squares
        free[1:] += np.linalg.lstsq(derivative[1:, 1:], residual[1:], rcond=None)[0]
    log_weight += np.log(multiplicity)
    log_weight -= logsumexp(log_weight - betas[0] * flat)
    overlap = _overlap(flat, counted / n, free, betas)
    # the squared error of the free energy over a step is about 1 / (draws that could be of either side)
    sides = ((share[:, :k].sum(axis=1), share[:, k:].sum(axis=1)) for k in range(1, levels))
    solved = solved and all(multiplicity @ (hotter * colder) >= _BRIDGING for hotter, colder in sides)  # (n,) @ (n,)
    drift = np.zeros((chains, levels))
    drift[:, 1:] = np.linalg.lstsq(derivative[1:, 1:], of_chain[:, 1:].T, rcond=None)[0].T
    return FreeEnergies(free, log_weight, overlap, solved, share.astype(np.float32), drift)


def _step_by_step(energies: NDArray[np.float64], betas: NDArray[np.float64]) -> NDArray[np.float64]:
    """Free energies of ``(level, n)`` by exponential averaging from each level to the next, to begin with."""
    steps = np.log(energies.shape[1]) - logsumexp(-np.diff(betas)[:, None] * energies[:-1], axis=1)
    return np.concatenate([[0.0], np.cumsum(steps)])


def _overlap(
    nll: NDArray[np.float64], weight: NDArray[np.float64], free: NDArray[np.float64], betas: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Overlap of neighbouring levels; `weight` ``(n, level)`` averages over a level's law, columns sum to 1.

    The integral of p q / (p + q) is the mean over p of 1 / (1 + p / q), and p / q = exp(f_p - f_q - (b_p - b_q) E).
    """
    with np.errstate(over="ignore"):  # where a draw is impossible at the next level, that is what exp says
        return np.array(
            [
                weight[:, k] @ (1 / (1 + np.exp(free[k] - free[k + 1] - (betas[k] - betas[k + 1]) * nll)))
                for k in range(len(betas) - 1)
            ]
        )
