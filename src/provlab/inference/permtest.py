"""Algorithm 1 of the paper (PERMTEST): a valid p-value from any statistic.

If the training of the first model does not care how its hidden units are numbered, then renumbering
them gives another model that was just as likely to come out. T such copies, each compared with the
second model, show how similar two independent models are, and the place of the true pair among them
is a p-value, whatever the statistic.

The direction
    A large statistic means similar models, so the evidence against independence is how few copies
    reach the observed value: p = (1 + #{t : phi_t >= phi_0}) / (T + 1). The observed pair is one of
    T + 1 exchangeable pairs and counts as reaching itself; ties count against rejection.

    Algorithm 1 as printed takes q = (1 + #{t : phi_t <= phi_0}) / (T + 1) and returns 1 - q. There
    q is a valid p-value for the opposite question (are the models too far apart?), and one minus a
    p-value on a grid is not a p-value: without ties 1 - q = #{t : phi_t > phi_0} / (T + 1), which
    is p - 1 / (T + 1). It is zero for one independent pair in T + 1, P(1 - q <= k / (T + 1)) is
    (k + 1) / (T + 1), and ties count for rejection.

Rounding
    A statistic that is the same for every copy in exact arithmetic (the divergence of outputs, say)
    may differ in the last digit after the units are renumbered. Ties are then broken by rounding:
    such a statistic says nothing under these transformations and should not be tested with them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provlab.errors import InputError

Theta = TypeVar("Theta")


class Transformations(Protocol[Theta]):
    """A finite group of transformations of a model's parameters, sampled uniformly."""

    def sample(self, rng: np.random.Generator) -> Callable[[Theta], Theta]:
        """Draw one transformation uniformly; calling it returns a transformed copy."""
        ...


@dataclass(frozen=True, eq=False)
class PermTest:
    """Result of one permutation test.

    Attributes
    ----------
    p
        (1 + #{phi_t >= phi_0}) / (T + 1), a multiple of 1 / (T + 1) and never 0.
    log10_p
        Its decimal logarithm.
    observed
        phi_0, the statistic of the two models as they are.
    permuted
        float64, shape (T,): the statistic of each transformed copy.
    """

    p: float
    log10_p: float
    observed: float
    permuted: NDArray[np.float64]


def permtest(
    statistic: Callable[[Theta, Theta], float],
    theta1: Theta,
    theta2: Theta,
    transformations: Transformations[Theta],
    *,
    n_permutations: int,
    rng: np.random.Generator | int,
) -> PermTest:
    """Test whether two models are independent by transforming the first.

    Parameters
    ----------
    statistic
        phi(theta1, theta2), larger for more similar models.
    theta1, theta2
        The two models, in any form that `statistic` and the transformations understand.
    transformations
        The class Pi under which the training of `theta1` is equivariant and its initialisation
        invariant (Definitions 1 and 2). Nothing is assumed about `theta2`.
    n_permutations
        T. The smallest p-value that can come out is 1 / (T + 1).
    rng
        Source of the transformations: a generator or a seed.

    Raises
    ------
    InputError
        If `n_permutations` is below 1, or if the statistic returns NaN.

    Notes
    -----
    Paper, Section 3.1, Algorithm 1 and Theorem 1; for the direction see the top of this module.
    """
    if n_permutations < 1:
        raise InputError(f"n_permutations is {n_permutations}; it must be at least 1")
    generator = np.random.default_rng(rng)
    copies = (transformations.sample(generator)(theta1) for _ in range(n_permutations))
    permuted = np.array([float(statistic(copy, theta2)) for copy in copies])
    observed = statistic(theta1, theta2)
    p = float(p_value(observed, permuted))
    return PermTest(p=p, log10_p=math.log10(p), observed=observed, permuted=permuted)


def p_value(observed: ArrayLike, permuted: ArrayLike) -> NDArray[np.float64]:
    """Place of the observed statistic among its copies: (1 + #{phi_t >= phi_0}) / (T + 1).

    Parameters
    ----------
    observed
        Shape S: the statistic of each pair (a plain number for one pair).
    permuted
        Shape S + (T,): the statistic of the T copies of each pair.

    Returns
    -------
    ndarray
        Shape S, multiples of 1 / (T + 1) in (0, 1].

    Raises
    ------
    InputError
        If the shapes do not fit, if there is no copy, or if there is a NaN: a NaN is neither above
        nor below, so it would silently count for rejection.
    """
    phi_0 = np.asarray(observed, dtype=np.float64)
    phi_t = np.asarray(permuted, dtype=np.float64)
    if phi_t.ndim != phi_0.ndim + 1 or phi_t.shape[:-1] != phi_0.shape:
        raise InputError(
            f"permuted has shape {phi_t.shape}; it must be the shape of observed, {phi_0.shape}, and one axis"
        )
    if phi_t.shape[-1] == 0:
        raise InputError("permuted holds no copy; at least one permutation is needed")
    if nans := int(np.isnan(phi_0).sum() + np.isnan(phi_t).sum()):
        raise InputError(f"the statistic is NaN {nans} times; it must be a number for every pair and copy")
    at_least = (phi_t >= phi_0[..., None]).sum(axis=-1)
    return np.asarray((1.0 + at_least) / (phi_t.shape[-1] + 1.0))
