"""Example 1 of the paper, run: thousands of pairs of small networks, and PERMTEST on each.

A two-layer network f(x) = W2 s(W1 x) with m hidden units, Gaussian at the start, trained by gradient
descent: renumbering the hidden units commutes with every step of that training and leaves the starting
distribution as it was. So PERMTEST with phi = -||theta1 - theta2||_2 must give p-values uniform on
{1/(T+1), ..., 1} for networks trained apart, here on the same data, and 1/(T+1) for fine-tunes.

Source: paper, Section 3.1, Example 1.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from provlab.errors import InputError
from provlab.inference.permtest import p_value
from provlab_study.shared.small_networks import Parameters, Task, check_positive, gradient_descent, train

_INPUTS, _EXAMPLES = 4, 32  # of each network, and of each task


@dataclass(frozen=True, eq=False)
class NetworkPairs:
    """Pairs of two-layer networks, flattened to one row of parameters for each hidden unit.

    Attributes
    ----------
    theta1, theta2
        float64, shape (n_pairs, m, d + 1): row i is (W1[i, :], W2[0, i]), all that belongs to hidden
        unit i, so that renumbering the hidden units is a permutation of rows.
    initial_loss, final_loss
        Mean squared error of the first networks before and after training, mean over pairs.
    """

    theta1: NDArray[np.float64]
    theta2: NDArray[np.float64]
    initial_loss: float
    final_loss: float

    def __len__(self) -> int:
        """Return the number of pairs."""
        return int(self.theta1.shape[0])


@dataclass(frozen=True, eq=False)
class PairTests:
    """PERMTEST on every pair.

    Attributes
    ----------
    p, observed
        float64, shape (n_pairs,): p-values, and phi_l2 of the pairs as they are.
    permuted
        float64, shape (n_pairs, T): phi_l2 of the copies.
    """

    p: NDArray[np.float64]
    observed: NDArray[np.float64]
    permuted: NDArray[np.float64]


def train_pairs(
    n_pairs: int,
    *,
    dependent: bool,
    seed: int,
    shared_initialisation: bool = False,
    hidden_units: int = 16,
    steps: int = 200,
    learning_rate: float = 0.05,
) -> NetworkPairs:
    """Train disjoint pairs of two-layer networks, each pair on a task of its own.

    Parameters
    ----------
    n_pairs
        Number of pairs.
    dependent
        If true, the second network starts from the first after its training and goes on as long, on
        other examples of another teacher (a fine-tune). If false, it has an initialisation of its own.
    seed
        Everything random follows from it.
    shared_initialisation
        A planted fault, for independent pairs only: both networks start from the same random numbers
        and are trained apart, on different tasks. A test of independence must find them.
    hidden_units, steps, learning_rate
        Width m, gradient steps and their size.

    Returns
    -------
    NetworkPairs
        The trained parameters.

    Raises
    ------
    InputError
        If a size is below 1 or training diverges.
    """
    check_positive(hidden_units=hidden_units)
    trained = train(
        TwoLayers(hidden_units),
        n_pairs,
        "fine-tune" if dependent else "shared start" if shared_initialisation else "independent",
        steps=steps,
        learning_rate=learning_rate,
        generator=torch.Generator().manual_seed(seed),
    )
    return NetworkPairs(
        theta1=trained.first[0].double().numpy(),
        theta2=trained.second[0].double().numpy(),
        initial_loss=trained.initial_loss,
        final_loss=trained.final_loss,
    )


def equivariance_gap(n_networks: int, *, seed: int) -> float:
    """Train renumbered starts and renumber trained networks: how far apart are the two?

    Definition 2 says that they are the same network, here exactly so, since gradient descent draws no
    random number; float32 leaves a rounding error.

    Returns
    -------
    float
        Largest |A(pi(theta0)) - pi(A(theta0))| over all parameters of all networks.
    """
    network, generator = TwoLayers(16), torch.Generator().manual_seed(seed)
    task, (start,) = network.task(n_networks, generator), network.start(n_networks, generator)
    order = torch.randperm(network.hidden_units, generator=generator)
    (trained_after,) = gradient_descent(network, (start[:, order],), task, 200, 0.05)
    (trained,) = gradient_descent(network, (start,), task, 200, 0.05)
    return float((trained_after - trained[:, order]).abs().max())


def phi_l2(theta1: NDArray[np.float64], theta2: NDArray[np.float64]) -> NDArray[np.float64]:
    """-||theta1 - theta2|| of each pair, ``(n_pairs,)``; both are ``(n_pairs, m, d + 1)``, a row for a hidden unit."""
    return np.asarray(-np.sqrt(((theta1 - theta2) ** 2).sum(axis=(1, 2))))


def permtest_pairs(pairs: NetworkPairs, *, n_permutations: int, seed: int) -> PairTests:
    """PERMTEST of phi_l2 over permutations of the hidden units, for every pair.

    Parameters
    ----------
    pairs
        From `train_pairs`.
    n_permutations
        T, drawn for each pair on its own.
    seed
        Seed of the permutations.

    Returns
    -------
    PairTests
        The same as `provlab.inference.permtest.permtest` on each pair, computed together.
    """
    if n_permutations < 1:
        raise InputError(f"n_permutations is {n_permutations}; it must be at least 1")
    rng = np.random.default_rng(seed)
    n_pairs, hidden_units, _ = pairs.theta1.shape
    observed = phi_l2(pairs.theta1, pairs.theta2)
    orders = rng.permuted(np.tile(np.arange(hidden_units), (n_permutations, n_pairs, 1)), axis=2)
    # pi(theta1) of every pair, (n_pairs, m, d + 1), one permutation at a time
    copies = (np.take_along_axis(pairs.theta1, order[:, :, None], axis=1) for order in orders)
    permuted = np.stack([phi_l2(copy, pairs.theta2) for copy in copies], axis=1)
    return PairTests(p=p_value(observed, permuted), observed=observed, permuted=permuted)


@dataclass(frozen=True)
class TwoLayers:
    """f(x) = W2 tanh(W1 x); the parameters are one tensor, ``(n, m, d + 1)``, a row for each hidden unit."""

    hidden_units: int

    def start(self, n: int, generator: torch.Generator) -> Parameters:
        """Isotropic Gaussian parameters."""
        first_layer = torch.randn(n, self.hidden_units, _INPUTS, generator=generator) / _INPUTS**0.5
        second_layer = torch.randn(n, self.hidden_units, 1, generator=generator) / self.hidden_units**0.5
        return (torch.cat([first_layer, second_layer], dim=2),)

    def task(self, n: int, generator: torch.Generator) -> Task:
        """Examples x, ``(n, N, d)``, and answers y, ``(n, N, 1)``."""
        x = torch.randn(n, _EXAMPLES, _INPUTS, generator=generator)
        return x, 2.0 * self.outputs(self.start(n, generator), x)

    def outputs(self, theta: Parameters, x: torch.Tensor) -> torch.Tensor:
        """Outputs, ``(n, N, 1)``."""
        (rows,) = theta
        hidden = torch.tanh(torch.bmm(x, rows[:, :, :-1].transpose(1, 2)))  # (n, N, m)
        return torch.bmm(hidden, rows[:, :, -1:])
