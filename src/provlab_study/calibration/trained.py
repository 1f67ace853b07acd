"""Networks of several blocks, thousands of pairs at once: what every statistic of `compare` reads of a trained model.

A residual network is what is left of a transformer without attention: an embedding E, a stream x of width d, blocks
that read it through a norm, gate and up projections and add to it through a down projection, and a readout,

    x = E z,   x <- x + D_l (silu(G_l n(x)) * U_l n(x)),   l = 1, ..., L,   f(z) = r . n(x),   n(x) = x / rms(x).

Each block has hidden units of its own to renumber, so each gives a p-value, and by Theorem 2 those of different blocks
are independent. E and r are each network's own, so that the stream, too, has no order that two networks share. They are
trained like the networks of `example_one`, which have one block.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import silu

from provlab_study.shared.small_networks import Parameters, Task, check_positive, train

N_BLOCKS, WIDTH = 3, 8  # L and d of each network
_INPUTS, _EXAMPLES = 4, 24  # entries of an input z, and examples of each task

Float32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Networks:
    """One network of each pair.

    Attributes
    ----------
    gate, up, down
        Weights, float32 ``(n_pairs, L, m, d)``: row i of a block belongs to its hidden unit i, also of `down`.
    seen_gate, seen_up, hidden
        Activations, float32 ``(n_pairs, L, m, n_inputs)``: outputs of gate and up, and what enters the down projection.
    """

    gate: Float32
    up: Float32
    down: Float32
    seen_gate: Float32
    seen_up: Float32
    hidden: Float32


@dataclass(frozen=True, eq=False)
class ResidualPairs:
    """Pairs of residual networks.

    Attributes
    ----------
    first, second
        Parameters of both, as `Residual` has them.
    inputs
        ``(n_pairs, k, n_inputs)``, drawn after training, the same for both networks of a pair.
    initial_loss, final_loss
        Mean squared error of the first networks before and after training, mean over pairs.
    """

    first: Parameters
    second: Parameters
    inputs: torch.Tensor
    initial_loss: float
    final_loss: float

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.inputs)

    def networks(self, *, tied: bool = False) -> tuple[Networks, Networks]:
        """Weights and activations of both sides; with `tied`, weights stored as one sign a unit, and run like that."""
        return self._networks(self.first, tied), self._networks(self.second, tied)

    def _networks(self, theta: Parameters, tied: bool) -> Networks:
        if tied:
            theta = one_sign_a_unit(theta)
        by_block = Residual(theta[1].shape[2]).forward(theta, self.inputs)[1]
        _, gate, up, down, _ = theta
        weights = (gate, up, down.transpose(2, 3))
        activations = (torch.stack(kind) for kind in zip(*by_block, strict=True))
        return Networks(*(np.ascontiguousarray(part.transpose(0, 1).numpy()) for part in (*weights, *activations)))


def one_sign_a_unit(theta: Parameters) -> Parameters:
    """Replace each row of gate and up, and each column of down, by the sign of its mean: two kinds are left of each."""
    embedding, gate, up, down, readout = theta

    def stored(weights: torch.Tensor, along: int) -> torch.Tensor:
        signs = torch.where(weights.mean(dim=along, keepdim=True) < 0, -1.0, 1.0)
        return (signs * weights.abs().mean()).expand_as(weights).contiguous()

    return embedding, stored(gate, 3), stored(up, 3), stored(down, 2), readout


def train_residual_pairs(
    n_pairs: int,
    *,
    seed: int,
    shared_initialisation: bool = False,
    hidden_units: int = 32,
    steps: int = 60,
    n_inputs: int = 64,
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
    hidden_units, steps
        m, and gradient steps.
    n_inputs
        Gaussian inputs on which activations are looked at.

    Raises
    ------
    InputError
        If a size is below 1 or training diverges.
    """
    check_positive(hidden_units=hidden_units, n_inputs=n_inputs)
    generator = torch.Generator().manual_seed(seed)
    trained = train(
        Residual(hidden_units),
        n_pairs,
        "shared start" if shared_initialisation else "independent",
        steps=steps,
        learning_rate=0.02,
        generator=generator,
    )
    inputs = torch.randn(n_pairs, _INPUTS, n_inputs, generator=generator)
    return ResidualPairs(trained.first, trained.second, inputs, trained.initial_loss, trained.final_loss)


@dataclass(frozen=True)
class Residual:
    """The network of this module.

    The parameters are embedding, ``(n, d, k)``, gate and up, ``(L, n, m, d)``, down, ``(L, n, d, m)``, and readout,
    ``(n, 1, d)``. Blocks come first, so that the matrices of one block lie together: strided ones make the products 50
    times slower.
    """

    hidden_units: int

    def start(self, n: int, generator: torch.Generator) -> Parameters:
        """Gaussian parameters; all blocks together add terms of order one."""
        m = self.hidden_units
        embedding = torch.randn(n, WIDTH, _INPUTS, generator=generator) / _INPUTS**0.5
        gate, up = (torch.randn(N_BLOCKS, n, m, WIDTH, generator=generator) / WIDTH**0.5 for _ in range(2))
        down = torch.randn(N_BLOCKS, n, WIDTH, m, generator=generator) / (m * N_BLOCKS) ** 0.5
        return embedding, gate, up, down, torch.randn(n, 1, WIDTH, generator=generator) / WIDTH**0.5

    def task(self, n: int, generator: torch.Generator) -> Task:
        """Examples z, ``(n, k, N)``, and answers, ``(n, 1, N)``."""
        z = torch.randn(n, _INPUTS, _EXAMPLES, generator=generator)
        return z, self.outputs(self.start(n, generator), z)

    def outputs(self, theta: Parameters, x: torch.Tensor) -> torch.Tensor:
        """Outputs, ``(n, 1, N)``."""
        return self.forward(theta, x)[0]

    def forward(
        self, theta: Parameters, x: torch.Tensor
    ) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]]:
        """Outputs, and of each block what gate and up give and what enters the down projection, ``(n, m, N)`` each."""
        embedding, gates, ups, downs, readout = theta
        x = torch.bmm(embedding, x)
        activations = []
        for gate, up, down in zip(gates, ups, downs, strict=True):
            normed = _norm(x)
            by_gate, by_up = torch.bmm(gate, normed), torch.bmm(up, normed)
            hidden = silu(by_gate) * by_up
            activations.append((by_gate, by_up, hidden))
            x = x + torch.bmm(down, hidden)
        return torch.bmm(readout, _norm(x)), activations


def _norm(x: torch.Tensor) -> torch.Tensor:
    """Each position of the stream ``(n, d, N)`` over its root mean square."""
    return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-6)
