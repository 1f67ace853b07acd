"""Networks of several blocks, thousands of pairs at once: phi_U, phi_H and Theorem 2 on what training really leaves.

A residual network is what is left of a transformer without attention: a stream x of width d, and blocks that read it
through an up projection and add to it through a down projection,

    x <- x + D_l tanh(U_l x),   l = 1, ..., L,   f(x) = r . x.

Each block has hidden units of its own to renumber, so each gives a p-value, and by Theorem 2 those of different blocks
are independent. All pairs are trained as one batch of matrices, as in `example_one`, whose networks have one block.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from provlab.errors import InputError
from provlab.inference.matching import cosine_similarity, match_shuffled

Parameters = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


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
    blocks: int = 3,
    hidden_units: int = 16,
    width: int = 4,
    examples: int = 24,
    steps: int = 100,
    learning_rate: float = 0.02,
    n_inputs: int = 32,
) -> ResidualPairs:
    """Train disjoint pairs of residual networks by full-batch gradient descent.

    Each pair has a regression task of its own, a random teacher of the same shape, which both networks learn from the
    same examples: a shared task is not a shared origin.

    Parameters
    ----------
    n_pairs
        Number of pairs.
    seed
        Everything random follows from it.
    shared_initialisation
        A planted fault: both networks start from the same random numbers and learn different tasks.
    blocks, hidden_units, width
        L, m and d.
    examples, steps, learning_rate
        Training examples of each pair, gradient steps and their size.
    n_inputs
        Gaussian inputs on which activations are kept.

    Raises
    ------
    InputError
        If a size is below 1 or training diverges.
    """
    sizes = {"n_pairs": n_pairs, "blocks": blocks, "hidden_units": hidden_units, "width": width}
    sizes |= {"examples": examples, "steps": steps, "n_inputs": n_inputs}
    for name, size in sizes.items():
        if size < 1:
            raise InputError(f"{name} is {size}; it must be at least 1")
    generator = torch.Generator().manual_seed(seed)
    shape = (n_pairs, blocks, hidden_units, width)
    task = _task(shape, examples, generator)
    start = _initialisation(shape, generator)
    first = _gradient_descent(start, task, steps, learning_rate)
    if shared_initialisation:
        second = _gradient_descent(start, _task(shape, examples, generator), steps, learning_rate)
    else:
        second = _gradient_descent(_initialisation(shape, generator), task, steps, learning_rate)
    if not all(torch.isfinite(part).all() for part in (*first, *second)):
        raise InputError(f"training diverged at learning_rate = {learning_rate}; choose a smaller one")
    inputs = torch.randn(n_pairs, width, n_inputs, generator=generator)
    hidden = [torch.stack(_forward(theta, inputs)[1], dim=1).numpy() for theta in (first, second)]
    return ResidualPairs(
        up1=first[0].transpose(0, 1).numpy(),
        up2=second[0].transpose(0, 1).numpy(),
        hidden1=hidden[0],
        hidden2=hidden[1],
        shared_initialisation=shared_initialisation,
        initial_loss=float(_loss(start, task).mean()),
        final_loss=float(_loss(first, task).mean()),
    )


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


def _initialisation(shape: tuple[int, int, int, int], generator: torch.Generator) -> Parameters:
    """Gaussian up (L, n, m, d), down (L, n, d, m) and readout (n, 1, d); all blocks together add terms of order one.

    Blocks come first, so that the matrices of one block lie together: strided ones make the products 50 times slower.
    """
    n_pairs, blocks, hidden_units, width = shape
    up = torch.randn(blocks, n_pairs, hidden_units, width, generator=generator) / width**0.5
    down = torch.randn(blocks, n_pairs, width, hidden_units, generator=generator) / (hidden_units * blocks) ** 0.5
    return up, down, torch.randn(n_pairs, 1, width, generator=generator) / width**0.5


def _task(
    shape: tuple[int, int, int, int], examples: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Examples x, (n, d, N), and the answers, (n, 1, N), of a random teacher for each pair."""
    x = torch.randn(shape[0], shape[3], examples, generator=generator)
    return x, _forward(_initialisation(shape, generator), x)[0]


def _forward(theta: Parameters, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Outputs (n, 1, N), and the hidden activations (n, m, N) of each block."""
    up, down, readout = theta
    kept = []
    for one_up, one_down in zip(up, down, strict=True):
        hidden = torch.tanh(torch.bmm(one_up, x))
        kept.append(hidden)
        x = x + torch.bmm(one_down, hidden)
    return torch.bmm(readout, x), kept


def _loss(theta: Parameters, task: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    x, y = task
    return (_forward(theta, x)[0] - y).square().mean(dim=(1, 2))


def _gradient_descent(
    theta: Parameters, task: tuple[torch.Tensor, torch.Tensor], steps: int, learning_rate: float
) -> Parameters:
    """Plain gradient descent; pairs do not interact, so the sum of their losses trains each of them."""
    up, down, readout = (part.clone().requires_grad_() for part in theta)
    for _ in range(steps):
        gradients = torch.autograd.grad(_loss((up, down, readout), task).sum(), (up, down, readout))
        with torch.no_grad():
            for part, gradient in zip((up, down, readout), gradients, strict=True):
                part -= learning_rate * gradient
    return up.detach(), down.detach(), readout.detach()
