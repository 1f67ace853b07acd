"""A feedforward network without gates, as a student with gates meets it (Appendix H.3).

A plain MLP is a sum of *ridges*: ``V a(W x + b)`` with an activation function ``a``. Two facts about it decide what a
GLU MLP can learn from it, and both are computed here rather than argued.

1. Since ``a(z) = s(z) z`` with ``s(z) = a(z) / z``, it *is* a GLU MLP (Definition 3, with ``s`` for the activation)
   whose gate and up projection are one and the same matrix. Its perfect gated form has no second opinion on its units.
2. On Gaussian inputs its output falls into uncorrelated parts of degree 1, 2, 3, ... (Hermite polynomials). The linear
   part has no hidden units to be found: any basis writes a matrix equally well.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.polynomial import hermite_e
from numpy.typing import NDArray

from provlab.errors import InputError, ParameterError
from provlab.files import digest
from provlab_study.shared.students import Student
from provlab_study.shared.teachers import BlockMlp

_NODES = 200  # of the quadrature: exact to degree 399, and close for functions as smooth as GELU
_HIGHEST = 30  # degrees in which units are taken to share anything: a cosine of 0.8 is 0.001 there


@dataclass(frozen=True)
class Stretched(BlockMlp):
    """An MLP whose inputs are multiplied by a factor first; make one with `stretched`."""

    factor: float

    @property
    def digest(self) -> str:
        """Hash of all that decides the outputs."""
        return super().digest if self.factor == 1 else digest({"of": super().digest, "factor": self.factor})

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Outputs for inputs, rows for rows."""
        return super().__call__(inputs * self.factor)


def stretched(mlp: BlockMlp, factor: float) -> Stretched:
    """Multiply the inputs of an MLP by a factor, so that noise of variance 1 reaches as far as wider noise would.

    Parameters
    ----------
    mlp
        Any.
    factor
        Standard deviation of the inputs that the MLP sees when it is given noise of variance 1.
    """
    if not (factor > 0 and math.isfinite(factor)):
        raise ParameterError(f"factor must be positive and finite, not {factor}")
    return Stretched(f"{mlp.name}, inputs x {factor:g}", mlp.weights, mlp.activation, factor)


def gated_form(
    mlp: BlockMlp, inputs: NDArray[np.float32], *, cosine: float = 1.0, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Gate and up activations of the perfect gated form of an MLP without gates: the same directions twice.

    With a smaller `cosine` the up rows are turned away from the gate rows, each towards a random direction of its own:
    no longer the same function, but a dial for how nearly parallel the two are.

    Parameters
    ----------
    mlp
        Without a gate. Its biases are left out, as a GLU MLP has none.
    inputs
        ``(n, width)``.
    cosine
        The cosine of each gate row and its up row, from 0 to 1.
    seed
        The seed of the directions towards which the up rows are turned.

    Returns
    -------
    tuple of array
        Gate and up, each ``(hidden units, n)`` float32, for phi_MATCH.
    """
    _without_gate(mlp)
    if not 0 <= cosine <= 1:
        raise ParameterError(f"cosine must be from 0 to 1, not {cosine}")
    gate = mlp.weights["up"].numpy()
    unit = gate / np.linalg.norm(gate, axis=1, keepdims=True)
    aside = np.random.default_rng(seed).standard_normal(gate.shape).astype(np.float32)
    aside -= (aside * unit).sum(axis=1, keepdims=True) * unit
    aside /= np.linalg.norm(aside, axis=1, keepdims=True)
    up = np.float32(cosine) * unit + np.float32(math.sqrt(1 - cosine**2)) * aside
    return gate @ inputs.T, up @ inputs.T


def random_ridges(mlp: BlockMlp, *, seed: int) -> BlockMlp:
    """Return an MLP without gates that was never trained: random Gaussian weights in place of another's, no biases."""
    _without_gate(mlp)
    rng = torch.Generator().manual_seed(seed)
    weights = {role: torch.randn(mlp.weights[role].shape, generator=rng) for role in ("up", "down")}
    return BlockMlp(f"random weights in the shapes of {mlp.name}", weights, mlp.activation)


def without_gate_direction(student: Student) -> torch.Tensor:
    """Return the up rows of a student, ``(m, width)``, each without its part along its own gate row."""
    along = torch.nn.functional.normalize(student.gate)
    return student.up - (student.up * along).sum(1, keepdim=True) * along


def hermite_shares(mlp: BlockMlp, *, factor: float = 1.0, degrees: int = 8) -> NDArray[np.float64]:
    """Share of each degree in an ungated MLP's variance over Gaussian inputs.

    Parameters
    ----------
    mlp
        Without a gate.
    factor
        Standard deviation of the inputs.
    degrees
        How many.

    Returns
    -------
    array
        ``(degrees,)`` float64: degree 1, 2, ...; what is missing to 1 is in higher degrees.

    Raises
    ------
    InputError
        The MLP has a gate.

    Notes
    -----
    For unit i let ``z = s_i x + b_i`` with ``s_i = factor |W_i|``, and ``c_ik`` the coefficient of its activation on
    the normalised Hermite polynomial of degree k. Units i and j share ``c_ik c_jk cos(W_i, W_j)^k`` of degree k, by
    Mehler's formula, and the network has ``sum_ij <V_i, V_j> c_ik c_jk cos(W_i, W_j)^k``.
    """
    from transformers.activations import ACT2FN  # slow to import

    _without_gate(mlp)
    if degrees < 1:
        raise ParameterError(f"degrees must be at least 1, not {degrees}")
    rows = mlp.weights["up"].double().numpy()
    bias = mlp.weights["up_bias"].double().numpy() if "up_bias" in mlp.weights else np.zeros(len(rows))
    norms = np.linalg.norm(rows, axis=1)
    cosines = (rows @ rows.T) / np.outer(norms, norms)
    outputs = mlp.weights["down"].double().numpy()
    together = outputs.T @ outputs  # (h, h)

    nodes, weights = hermite_e.hermegauss(_NODES)
    weights = weights / weights.sum()
    values = ACT2FN[mlp.activation](torch.from_numpy(factor * norms[:, None] * nodes + bias[:, None])).numpy()
    variance = np.empty(max(degrees, _HIGHEST))
    rest = np.square(values - (values @ weights)[:, None]) @ weights  # (h,): of each unit alone
    shared = together.copy()  # in turn times the cosines: a power of each number costs far more than a product
    for k in range(1, len(variance) + 1):
        polynomial = hermite_e.hermeval(nodes, [0.0] * k + [1.0]) / math.sqrt(math.factorial(k))
        own = (values * weights) @ polynomial  # (h,)
        shared *= cosines
        variance[k - 1] = own @ shared @ own
        rest -= own**2
    # what units share of still higher degrees is a power of their cosine, and nothing beside their own
    beyond = float(np.diag(together) @ rest.clip(min=0))
    shares: NDArray[np.float64] = variance[:degrees] / (variance.sum() + beyond)
    return shares


def _without_gate(mlp: BlockMlp) -> None:
    if "gate" in mlp.weights:
        raise InputError(f"{mlp.name} has a gate; this is about MLPs without one")
