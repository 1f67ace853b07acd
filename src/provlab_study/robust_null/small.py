"""Small gated networks of one recipe, many disjoint pairs at once, matched by gate and by up.

f(x) = d . (silu(G x) * (U x)) has one block of hidden units. Both networks of a pair learn from the same examples and
differ in their start alone, as runs of one recipe do; the teacher's units have parallel gate and up, so that trained
networks have units in common, more than chance gives. No two pairs share anything.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from provlab.inference.matching import tie_seed, unit_rows
from provlab_study.robust_null.common_units import Matchings, pair_matchings
from provlab_study.shared.small_networks import Parameters, Task, train

_INPUTS, _EXAMPLES, _FEATURES = 8, 64, 6  # of each network, of each task, and units of each teacher


@dataclass(frozen=True)
class GatedUnits:
    """The parameters are gate and up, ``(n, h, d)`` each, and down, ``(n, 1, h)``."""

    hidden_units: int

    def start(self, n: int, generator: torch.Generator) -> Parameters:
        """Small Gaussian parameters."""
        h = self.hidden_units
        gate, up = (0.3 * torch.randn(n, h, _INPUTS, generator=generator) / _INPUTS**0.5 for _ in range(2))
        return gate, up, 0.3 * torch.randn(n, 1, h, generator=generator) / h**0.5

    def task(self, n: int, generator: torch.Generator) -> Task:
        """Examples x, ``(n, d, N)``, and answers, ``(n, 1, N)``, of teachers whose units have parallel gate and up."""
        x = torch.randn(n, _INPUTS, _EXAMPLES, generator=generator)
        rows = torch.randn(n, _FEATURES, _INPUTS, generator=generator) / _INPUTS**0.5
        return x, self.outputs((rows, rows, torch.randn(n, 1, _FEATURES, generator=generator) / _FEATURES**0.5), x)

    def outputs(self, theta: Parameters, x: torch.Tensor) -> torch.Tensor:
        """Outputs, ``(n, 1, N)``."""
        gate, up = self.activations(theta, x)
        return torch.bmm(theta[2], torch.nn.functional.silu(gate) * up)

    def activations(self, theta: Parameters, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Gate and up activations, ``(n, h, N)`` each."""
        return torch.bmm(theta[0], x), torch.bmm(theta[1], x)


def trained_pairs(n_pairs: int, *, seed: int, hidden_units: int = 64, steps: int = 300) -> dict[str, Matchings]:
    """Train disjoint pairs and match the one block of each: by statistic, signed and unsigned."""
    network, generator = GatedUnits(hidden_units), torch.Generator().manual_seed(seed)
    trained = train(network, n_pairs, "independent", steps=steps, learning_rate=0.03, generator=generator)
    inputs = torch.randn(n_pairs, _INPUTS, _EXAMPLES, generator=generator)  # not those of training
    views = [
        [[unit_rows(units) for units in kind.numpy()] for kind in network.activations(theta, inputs)]
        for theta in (trained.first, trained.second)
    ]  # network -> gate, up

    def matched(i: int, unsigned: bool) -> list[NDArray[np.int64]]:
        a, b = ((gate[i], up[i]) for gate, up in views)
        return [pair_matchings(a, b, seed=tie_seed(seed, i), unsigned=unsigned)]

    return {
        statistic: {(f"small-{i}a", f"small-{i}b"): matched(i, unsigned) for i in range(n_pairs)}
        for statistic, unsigned in (("phi_match", False), ("phi_match_unsigned", True))
    }
