"""What a model learns to do, and a training loop that takes any of it.

`provlab.zoo.train.train` stays as it is and trains next-token models to their end, since its code is in the address of
every model of the tree. The loop here does the same, step for step, for other objectives, and can stop early.
"""

from typing import Protocol

import torch
from torch import nn
from transformers import PreTrainedModel

from provlab.zoo import corpus
from provlab.zoo.blueprints import MASK
from provlab.zoo.kinds import Curve, OnStep
from provlab.zoo.recipes import Recipe
from provlab.zoo.train import Mixture, next_token_loss, rate_at, seed_for

# Devlin et al. (2019), section 3.1: share of the tokens to be predicted, and what the encoder sees in their place
HIDDEN = 0.15
_MASKED, _RANDOM = 0.8, 0.1

_GRADIENT_NORM = 1.0
_CURVE_POINTS = 25


class Objective(Protocol):
    """Batches, and the loss on one."""

    def draw(self, batch: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw inputs and what is to be predicted."""

    def loss(self, model: nn.Module, inputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Return the mean loss (nats) of one batch."""


class NextToken:
    """Each token from those before it."""

    def __init__(self, recipe: Recipe, split: corpus.Split, positions: int) -> None:
        self.mixture = Mixture.load(recipe.mixture, split)
        self.length = positions + 1  # every position but the last has a next token

    def draw(self, batch: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw ``(batch, positions + 1)`` tokens, which are both."""
        sequences = self.mixture.draw(batch, self.length, generator)
        return sequences, sequences

    def loss(self, model: nn.Module, inputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Return the loss over all positions."""
        return next_token_loss(model, inputs)


class Masked:
    """Hidden tokens from all the others, to both sides."""

    def __init__(self, recipe: Recipe, split: corpus.Split, positions: int) -> None:
        self.mixture = Mixture.load(recipe.mixture, split)
        self.length = positions

    def draw(self, batch: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw ``(batch, positions)`` tokens with some replaced, and the tokens that stood there (-100 elsewhere)."""
        sequences = self.mixture.draw(batch, self.length, generator)
        chosen = torch.rand(sequences.shape, generator=generator) < HIDDEN
        chosen[:, 0] |= ~chosen.any(dim=1)  # a sequence with nothing to predict teaches nothing
        fate = torch.rand(sequences.shape, generator=generator)
        other = torch.randint(corpus.VOCABULARY, sequences.shape, generator=generator)
        inputs = torch.where(chosen & (fate < _MASKED), MASK, sequences)
        inputs = torch.where(chosen & (fate >= _MASKED) & (fate < _MASKED + _RANDOM), other, inputs)
        return inputs, torch.where(chosen, sequences, -100)

    def loss(self, model: nn.Module, inputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Return the loss over the hidden tokens."""
        return nn.functional.cross_entropy(model(input_ids=inputs).logits.flatten(0, 1), wanted.flatten())


class Classify:
    """The text domain that a sequence is from; labels in the sorted order of the mixture's names."""

    def __init__(self, recipe: Recipe, split: corpus.Split, positions: int) -> None:
        names = sorted(recipe.mixture)
        self.shares = torch.tensor([recipe.mixture[name] for name in names])
        self.domains = [Mixture.load({name: 1.0}, split) for name in names]
        self.length = positions

    def draw(self, batch: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw ``(batch, positions)`` tokens and ``(batch,)`` labels."""
        labels = torch.multinomial(self.shares, batch, replacement=True, generator=generator)
        rows = [self.domains[label].draw(1, self.length, generator) for label in labels.tolist()]
        return torch.cat(rows), labels

    def loss(self, model: nn.Module, inputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Return the loss over the sequences."""
        return nn.functional.cross_entropy(model(input_ids=inputs).logits, wanted)


OBJECTIVES: dict[str | None, type[NextToken] | type[Masked] | type[Classify]] = {
    None: NextToken,
    "masked": Masked,
    "classify": Classify,
}


def objective(model: PreTrainedModel, recipe: Recipe, split: corpus.Split) -> Objective:
    """Return the recipe's objective on its own mixture, with sequences of the model's full context length."""
    return OBJECTIVES[recipe.objective](recipe, split, model.config.max_position_embeddings)


def train(model: PreTrainedModel, recipe: Recipe, on_step: OnStep) -> Curve:
    """Train all parameters in place, for `stop_after` steps if the recipe has it, of a schedule of `steps`.

    Arguments and result as for `provlab.zoo.train.train`.
    """
    torch.set_num_threads(1)
    task = objective(model, recipe, "train")
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
