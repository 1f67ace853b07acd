"""One training loop for all kinds of models: AdamW, warm-up, clipping, float32, one thread.

Every source of
chance has its own generator, seeded from the recipe's seed and the purpose. Nothing here depends on time, threads or
global state: the same recipe gives the same bytes on one machine.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedModel

from provlab.zoo import corpus
from provlab.zoo.kinds import Curve, OnStep
from provlab.zoo.recipes import Recipe

_GRADIENT_NORM = 1.0
_CURVE_POINTS = 25


def seed_for(seed: int, purpose: str) -> int:
    """Return the seed of one purpose, unrelated to those of the others."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{purpose}".encode()).digest()[:7])


@dataclass(frozen=True)
class Mixture:
    """Sequences drawn at random from several domains by their shares."""

    domains: tuple[NDArray[np.uint16], ...]
    shares: tuple[float, ...]

    @classmethod
    def load(cls, shares: Mapping[str, float], split: corpus.Split) -> "Mixture":
        """Read the domains' tokens; domains in sorted order, so that the recipe's order does not matter."""
        names = sorted(shares)
        source = corpus.load()
        return cls(tuple(source.tokens(name, split) for name in names), tuple(shares[name] for name in names))

    def draw(self, batch: int, length: int, generator: torch.Generator) -> torch.Tensor:
        """Draw ``(batch, length)`` int64 token ids; each sequence from one domain, at a uniform place."""
        chosen = torch.multinomial(torch.tensor(self.shares), batch, replacement=True, generator=generator)
        where = torch.rand(batch, generator=generator, dtype=torch.float64)
        rows = []
        for domain, share in zip(chosen.tolist(), where.tolist(), strict=True):
            tokens = self.domains[domain]
            begin = int(share * (len(tokens) - length))
            rows.append(np.asarray(tokens[begin : begin + length], dtype=np.int64))
        return torch.from_numpy(np.stack(rows))


def rate_at(step: int, recipe: Recipe) -> float:
    """Learning rate at a step: linear warm-up, then the recipe's schedule down to a tenth."""
    warmup = max(1, round(recipe.warmup * recipe.steps))
    if step < warmup:
        return recipe.learning_rate * (step + 1) / warmup
    done = (step - warmup) / max(1, recipe.steps - warmup)
    falling = {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done}[recipe.schedule]
    return recipe.learning_rate * (0.1 + 0.9 * falling)


class Objective(Protocol):
    """Batches, and the loss on one."""

    def draw(self, batch: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw inputs and targets."""

    def loss(self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss (nats) of one batch."""


def train(model: PreTrainedModel, task: Objective, recipe: Recipe, on_step: OnStep) -> Curve:
    """Train the parameters that require a gradient, in place.

    Parameters
    ----------
    model
        A model in float32.
    task
        What it learns, see `provlab.zoo.objectives`.
    recipe
        Steps (`stop_after` ends them early, under the schedule of all of them), batch, rate, schedule and seed.
    on_step
        Called after each step with the number of steps done; what it raises ends the training.

    Returns
    -------
    list of (int, float)
        The learning curve: steps done, and the mean training loss (nats) since the point before.
    """
    torch.set_num_threads(1)
    order = torch.Generator().manual_seed(seed_for(recipe.seed, "order of data"))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(
        trained, lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=recipe.weight_decay, fused=True
    )
    model.train()
    curve: Curve = []
    since: list[float] = []
    last = recipe.own_steps
    every = max(1, last // _CURVE_POINTS)
    for step in range(last):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, recipe)
        loss = task.loss(model, *task.draw(recipe.batch, order))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained, _GRADIENT_NORM)
        optimizer.step()
        since.append(loss.item())
        if (step + 1) % every == 0 or step + 1 == last:
            curve.append((step + 1, sum(since) / len(since)))
            since = []
        on_step(step + 1)
    return curve
