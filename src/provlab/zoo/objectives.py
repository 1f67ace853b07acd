"""What a model learns: the next token, hidden tokens, or the domain of a sequence."""

import torch
from torch import nn
from transformers import PreTrainedModel

from provlab.zoo import corpus
from provlab.zoo.blueprints import MASK
from provlab.zoo.recipes import Recipe
from provlab.zoo.train import Mixture, Objective

# Devlin et al. (2019), section 3.1: share of the tokens to be predicted, and what the encoder sees in their place
HIDDEN = 0.15
_MASKED, _RANDOM = 0.8, 0.1


class NextToken:
    """Each token from those before it."""

    def __init__(self, recipe: Recipe, split: corpus.Split, positions: int) -> None:
        self.mixture = Mixture.load(recipe.mixture, split)
        self.length = positions + 1  # every position but the last has a next token

    def draw(self, batch: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw ``(batch, positions + 1)`` tokens, which are both."""
        sequences = self.mixture.draw(batch, self.length, generator)
        return sequences, sequences

    def loss(self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss over all positions."""
        logits = model(input_ids=inputs[:, :-1], use_cache=False).logits
        return nn.functional.cross_entropy(logits.flatten(0, 1), inputs[:, 1:].flatten())


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

    def loss(self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss over the hidden tokens."""
        return nn.functional.cross_entropy(model(input_ids=inputs).logits.flatten(0, 1), targets.flatten())


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

    def loss(self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss over the sequences."""
        return nn.functional.cross_entropy(model(input_ids=inputs).logits, targets)


OBJECTIVES: dict[str | None, type[NextToken] | type[Masked] | type[Classify]] = {
    None: NextToken,
    "masked": Masked,
    "classify": Classify,
}


def objective(model: PreTrainedModel, recipe: Recipe, split: corpus.Split) -> Objective:
    """Return the recipe's objective on its own mixture, with sequences of the model's full context length."""
    return OBJECTIVES[recipe.objective](recipe, split, model.config.max_position_embeddings)
