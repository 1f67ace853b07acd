"""The multistate Bennett acceptance ratio (Shirts and Chodera 2008) for draws at several temperatures, on arrays.

Pymbar solves the equations on draws that are nearly independent; a few steps of Newton's method then take in all draws,
and leave what a bootstrap over chains needs: each chain's part in the equations and in their derivative.
"""

import logging
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

_NEWTON_STEPS = 50
_SOLVED = 1e-9  # largest relative error left in the equations


@dataclass(frozen=True, eq=False)
class Weights:
    """A solution of the MBAR equations; n draws flattened from ``(level, chain, draw)``.

    Attributes
    ----------
    free_energies
        ``(level,)``, 0 at the first level.
    log_weight
        ``(n,)``: log weights of the draws under the first level's law; they sum to 1.
    share
        ``(n, level)``: which levels would have drawn each, rows sum to 1.
    score
        ``(chain, level)``: what each chain contributes to the equations, which sum to 0 over chains.
    information
        ``(chain, level, level)``: what it contributes to their derivative by minus the free energies.
    overlap
        ``(level - 1,)`` of each level with the next one: the integral of p q / (p + q), from 0 to 1/2. That is the
        off-diagonal of the overlap matrix of two levels with equally many draws (Klimovich, Shirts and Mobley 2015);
        how many draws there are does not enter.
    solved
        Whether the equations hold; they do unless levels lie too far apart.
    """

    free_energies: NDArray[np.float64]
    log_weight: NDArray[np.float64]
    share: NDArray[np.float64]
    score: NDArray[np.float64]
    information: NDArray[np.float64]
    overlap: NDArray[np.float64]
    solved: bool


def solve(
    energies: NDArray[np.float64], betas: NDArray[np.float64], inefficiency: NDArray[np.float64], most: int
) -> Weights:
    """Solve the equations.

    Parameters
    ----------
    energies
        ``(level, chain, draw)``.
    betas
        ``(level,)`` inverse temperatures.
    inefficiency
        ``(level,)`` statistical inefficiency g: a level's draws count as its number of draws divided by g.
    most
        Most draws given to pymbar.
    """
    levels, chains, draws = energies.shape
    flat = energies.reshape(-1)
    chain = np.tile(np.repeat(np.arange(chains), draws), levels)
    multiplicity = np.repeat(1.0 / inefficiency, chains * draws)
    n = chains * draws / inefficiency
    free = _by_pymbar(energies, betas, inefficiency, most)
    solved = False
    for _ in range(_NEWTON_STEPS):
        log_share = np.log(n) + free - betas * flat[:, None]
        log_weight = -logsumexp(log_share, axis=1)
        share = np.exp(log_share + log_weight[:, None])
        score, information = _equations(share, multiplicity, chain, n / chains, chains)
        total = score.sum(axis=0)
        solved = bool(np.abs(total / n).max() < _SOLVED)
        if solved:
            break
        free[1:] += np.linalg.lstsq(information.sum(axis=0)[1:, 1:], total[1:], rcond=None)[0]
    log_weight += np.log(multiplicity)
    log_weight -= logsumexp(log_weight)
    overlap = _overlap(flat, share * multiplicity[:, None] / n, free, betas)
    return Weights(free, log_weight, share, score, information, overlap, solved)


def _by_pymbar(
    energies: NDArray[np.float64], betas: NDArray[np.float64], inefficiency: NDArray[np.float64], most: int
) -> NDArray[np.float64]:
    """Free energies by pymbar, from draws far enough apart to be nearly independent."""
    logger = logging.getLogger("pymbar")
    if logger.level == logging.NOTSET:  # it greets every import with a banner about JAX
        logger.setLevel(logging.ERROR)
    from pymbar import MBAR  # type: ignore[import-untyped]

    _, chains, draws = energies.shape
    budget = max(1, most // (len(inefficiency) * chains))
    picked = []
    for level, g in zip(energies, inefficiency, strict=True):
        kept = int(np.clip(np.round(draws / g), 1, min(draws, budget)))
        picked.append(level[:, np.linspace(0, draws - 1, kept).round().astype(int)].reshape(-1))
    flat = np.concatenate(picked)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of trial steps and of its own options; the caller checks the equations
        solution = MBAR(
            betas[:, None] * flat,
            [len(level) for level in picked],
            initial_f_k=_step_by_step(picked, betas),  # from zeros its search may take minutes
            relative_tolerance=1e-5,
            maximum_iterations=200,
        )
    free = np.asarray(solution.f_k, dtype=np.float64)
    return free - free[0]


def _step_by_step(picked: list[NDArray[np.float64]], betas: NDArray[np.float64]) -> NDArray[np.float64]:
    """Free energies by exponential averaging from each level to the next: good enough to begin with."""
    steps = [
        np.log(len(level)) - logsumexp(-(colder - hotter) * level)
        for level, hotter, colder in zip(picked[:-1], betas[:-1], betas[1:], strict=True)
    ]
    return np.concatenate([[0.0], np.cumsum(steps)])


def _equations(
    share: NDArray[np.float64],
    multiplicity: NDArray[np.float64],
    chain: NDArray[np.int64],
    expected: NDArray[np.float64],
    chains: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what each chain contributes to the MBAR equations and to their derivative.

    The equations say that the draws' shares of level k sum to n_k. Returns ``(chain, level)`` n_k minus that sum, and
    ``(chain, level, level)`` its derivative by minus the free energies.
    """
    score = np.empty((chains, share.shape[1]))
    information = np.empty((chains, share.shape[1], share.shape[1]))
    for c in range(chains):
        rows = chain == c
        of_chain, weights = share[rows], multiplicity[rows]
        summed = weights @ of_chain
        score[c] = expected - summed
        information[c] = np.diag(summed) - (of_chain * weights[:, None]).T @ of_chain
    return score, information


def _overlap(
    nll: NDArray[np.float64], weight: NDArray[np.float64], free: NDArray[np.float64], betas: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Overlap of neighbouring levels; `weight` ``(n, level)`` averages over a level's law, columns sum to 1."""
    with np.errstate(over="ignore"):  # where a draw is impossible at the next level, that is what exp says
        return np.array(
            [
                weight[:, k] @ (1 / (1 + np.exp(free[k] - free[k + 1] - (betas[k] - betas[k + 1]) * nll)))
                for k in range(len(betas) - 1)
            ]
        )
