"""Networks of several blocks, thousands of pairs at once: phi_U, phi_H and Theorem 2 on what training really leaves.

A residual network is what is left of a transformer without attention: a stream x of width d, and blocks that read it
through an up projection and add to it through a down projection,

    x <- x + D_l tanh(U_l x),   l = 1, ..., L,   f(x) = r . x.

Each block has hidden units of its own to renumber, so each gives a p-value, and by Theorem 2 those of different blocks
are independent. They are trained like the networks of `example_one`, which have one block.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from provlab.chapters.shared.small_networks import Parameters, Task, check_positive, train
from provlab.errors import InputError
from provlab.inference.matching import cosine_similarity, match_shuffled

_BLOCKS, _WIDTH, _EXAMPLES = 3, 4, 24  # L and d of each network, and examples of each task


@dataclass(frozen=True, eq=False)
class ResidualPairs:
    """Pairs of residual networks.

    Attributes
    ----------
    up1, up2
        float32, shape (n_pairs, L, m, d): row i of a block belongs to its hidden unit i.
    hidden1, hidden2
        float32, shape (n_pairs, L, m, n_inputs): activations of the hidden units on inputs drawn after training, the
        same for both networks of a pair.
    shared_initialisation
        Whether the fault was planted.
    initial_loss, final_loss
        Mean squared error of the first networks before and after training, mean over pairs.
    """

    up1: NDArray[np.float32]
    up2: NDArray[np.float32]
    hidden1: NDArray[np.float32]
    hidden2: NDArray[np.float32]
    shared_initialisation: bool
    initial_loss: float
    final_loss: float

    def __len__(self) -> int:
        """Return the number of pairs."""
        return int(self.up1.shape[0])


def train_residual_pairs(
    n_pairs: int,
    *,
    seed: int,
    shared_initialisation: bool = False,
    hidden_units: int = 16,
    steps: int = 100,
    learning_rate: float = 0.02,
    n_inputs: int = 32,
) -> ResidualPairs:
    """Train disjoint pairs of residual networks, each pair on a task of its own.

    Parameters
    ----------
    n_pairs
        Number of pairs.
    seed
        Everything random follows from it.
    shared_initialisation
        A planted fault: both networks start from the same random numbers and learn different tasks.
    hidden_units, steps, learning_rate
        m, gradient steps and their size.
    n_inputs
        Gaussian inputs on which activations are kept.

    Raises
    ------
    InputError
        If a size is below 1 or training diverges.
    """
    check_positive(hidden_units=hidden_units, n_inputs=n_inputs)
    network, generator = Residual(hidden_units), torch.Generator().manual_seed(seed)
    trained = train(
        network,
        n_pairs,
        "shared start" if shared_initialisation else "independent",
        steps=steps,
        learning_rate=learning_rate,
        generator=generator,
    )
    inputs = torch.randn(n_pairs, _WIDTH, n_inputs, generator=generator)
    both = (trained.first, trained.second)
    up1, up2 = (theta[0].transpose(0, 1).numpy() for theta in both)
    hidden1, hidden2 = (torch.stack(network.forward(theta, inputs)[1], dim=1).numpy() for theta in both)
    return ResidualPairs(up1, up2, hidden1, hidden2, shared_initialisation, trained.initial_loss, trained.final_loss)


def matchings(first: ArrayLike, second: ArrayLike, *, seed: int, shuffled: bool = True) -> NDArray[np.int64]:
    """MATCH on each of many pairs of matrices.

    Parameters
    ----------
    first, second
        Shape (..., m, d): for each pair (and block) m rows, one a hidden unit, such as `ResidualPairs.up1` or the first
        layers `NetworkPairs.theta1[..., :-1]` of `example_one`.
    seed
        Of the orders in which ties are broken.
    shuffled
        False plants a fault: scipy's solver as it is, which breaks ties by the order of the rows, on both sides alike.

    Returns
    -------
    ndarray
        int64, shape (..., m): the partner, in the second matrix, of each row of the first.
    """
    a, b = np.asarray(first), np.asarray(second)
    if a.ndim < 2 or a.shape != b.shape:
        raise InputError(
            f"first and second have shapes {a.shape} and {b.shape}; they must be equal, rows by columns last"
        )
    found = np.empty(a.shape[:-1], dtype=np.int64)
    seeds = np.random.default_rng(seed).integers(2**32, size=a.shape[:-2])
    for which in np.ndindex(a.shape[:-2]):
        if shuffled:
            found[which] = match_shuffled(a[which], b[which], seed=int(seeds[which])).indices
        else:
            found[which] = linear_sum_assignment(cosine_similarity(a[which], b[which]), maximize=True)[1]
    return found


@dataclass(frozen=True)
class Residual:
    """x <- x + D_l tanh(U_l x) for each block l, f(x) = r . x.

    The parameters are up, ``(L, n, m, d)``, down, ``(L, n, d, m)``, and readout, ``(n, 1, d)``. Blocks come first, so
    that the matrices of one block lie together: strided ones make the products 50 times slower.
    """

    hidden_units: int

    def start(self, n: int, generator: torch.Generator) -> Parameters:
        """Gaussian parameters; all blocks together add terms of order one."""
        m = self.hidden_units
        up = torch.randn(_BLOCKS, n, m, _WIDTH, generator=generator) / _WIDTH**0.5
        down = torch.randn(_BLOCKS, n, _WIDTH, m, generator=generator) / (m * _BLOCKS) ** 0.5
        return up, down, torch.randn(n, 1, _WIDTH, generator=generator) / _WIDTH**0.5

    def task(self, n: int, generator: torch.Generator) -> Task:
        """Examples x, ``(n, d, N)``, and answers, ``(n, 1, N)``."""
        x = torch.randn(n, _WIDTH, _EXAMPLES, generator=generator)
        return x, self.outputs(self.start(n, generator), x)

    def outputs(self, theta: Parameters, x: torch.Tensor) -> torch.Tensor:
        """Outputs, ``(n, 1, N)``."""
        return self.forward(theta, x)[0]

    def forward(self, theta: Parameters, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Outputs, and the hidden activations ``(n, m, N)`` of each block."""
        up, down, readout = theta
        kept = []
        for one_up, one_down in zip(up, down, strict=True):
            hidden = torch.tanh(torch.bmm(one_up, x))
            kept.append(hidden)
            x = x + torch.bmm(one_down, hidden)
        return torch.bmm(readout, x), kept
