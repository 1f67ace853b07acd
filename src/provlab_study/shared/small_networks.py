"""Pairs of small networks, thousands of them trained at once, in one batch of matrices.

Each pair has a regression task of its own, the outputs of a random teacher of the same shape. Two independent networks
of a pair learn from the same examples: a test must not mistake a shared task for a shared origin. Training is plain
gradient descent from a Gaussian start, which commutes with renumbering hidden units (paper, Section 3.1, Example 1).
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from provlab.errors import InputError

Parameters = tuple[torch.Tensor, ...]
#: examples and answers, the pairs first
Task = tuple[torch.Tensor, torch.Tensor]
#: how the second network of a pair comes about: on its own; from the first one's random numbers, for another task (a
#: planted fault); or from the first one when that is trained, for another task
Origin = Literal["independent", "shared start", "fine-tune"]


class Network(Protocol):
    """A kind of network, `n` of them side by side."""

    def start(self, n: int, generator: torch.Generator) -> Parameters:
        """Draw Gaussian parameters, scaled so that outputs are of order one."""
        ...

    def task(self, n: int, generator: torch.Generator) -> Task:
        """Draw examples, and answer them by random teachers."""
        ...

    def outputs(self, theta: Parameters, x: torch.Tensor) -> torch.Tensor:
        """Outputs, shaped as the answers of a task."""
        ...


@dataclass(frozen=True, eq=False)
class TrainedPairs:
    """Both networks of each pair, and the mean squared error of the first ones before and after."""

    first: Parameters
    second: Parameters
    initial_loss: float
    final_loss: float


def train(
    network: Network, n_pairs: int, origin: Origin, *, steps: int, learning_rate: float, generator: torch.Generator
) -> TrainedPairs:
    """Train disjoint pairs of networks.

    Raises
    ------
    InputError
        If there are no pairs or steps, or training diverges.
    """
    check_positive(n_pairs=n_pairs, steps=steps)
    task, start = network.task(n_pairs, generator), network.start(n_pairs, generator)
    first = gradient_descent(network, start, task, steps, learning_rate)
    if origin == "independent":
        second_start, second_task = network.start(n_pairs, generator), task
    else:
        second_start, second_task = first if origin == "fine-tune" else start, network.task(n_pairs, generator)
    second = gradient_descent(network, second_start, second_task, steps, learning_rate)
    if not all(torch.isfinite(part).all() for part in (*first, *second)):
        raise InputError(f"training diverged at learning_rate = {learning_rate}; choose a smaller one")
    before, after = (float(_loss(network, theta, task).mean()) for theta in (start, first))
    return TrainedPairs(first, second, before, after)


def gradient_descent(network: Network, theta: Parameters, task: Task, steps: int, learning_rate: float) -> Parameters:
    """Take full-batch steps; networks do not interact, so the sum of their losses trains each of them."""
    theta = tuple(part.clone().requires_grad_() for part in theta)
    for _ in range(steps):
        gradients = torch.autograd.grad(_loss(network, theta, task).sum(), theta)
        with torch.no_grad():
            for part, gradient in zip(theta, gradients, strict=True):
                part -= learning_rate * gradient
    return tuple(part.detach() for part in theta)


def _loss(network: Network, theta: Parameters, task: Task) -> torch.Tensor:
    """Mean squared error of each network, ``(n,)``."""
    x, y = task
    return (network.outputs(theta, x) - y).square().mean(dim=(1, 2))


def check_positive(**sizes: int) -> None:
    """Raise InputError for the first size that is below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise InputError(f"{name} is {size}; it must be at least 1")
