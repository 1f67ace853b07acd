"""The toy of "Model-diff" (Sec. 4.1, Appendix C): GPT-2 models of eight digits whose sum is a multiple of 30.

Small enough that all 10^8 inputs can be enumerated, and hard enough to be learned only in part with few steps: a model
that is to generate nothing but valid sequences has to carry the sum modulo 30 through the last two digits exactly.

The paper says what is learned and by which shapes, not how. Here: Muon for the matrices of the blocks, which gets there
in a fraction of Adam's steps, Adam for the rest, and an exponential average of the weights as the result. Queries and
keys begin at zero, so that attention begins as a mean over the digits, from which their sum can be read.

There are two kinds of labels. For the domain `modulo30` they are the digits that came: models differ by what they met,
and by chance. For `modulo30-law` they are the law of the next digit, which the rule gives: the gradient is the same in
the mean, without its noise, and models that learn it to the end become one law.
"""

import copy
import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from provlab.zoo.kinds import Curve, OnStep
from provlab.zoo.recipes import Recipe

DIGITS, LENGTH, MODULUS = 10, 8, 30
LAW = "modulo30-law"  # the domain whose labels are laws
#: sequences that the toy models are trained on (Appendix C), drawn without replacement from the 3,785,821 valid ones
TRAINING_SEQUENCES = 500_000

_HELD_OUT_SEQUENCES = 4_096
_DATA_SEED = 30  # one for all models, which differ in shape and in the seeds of their own recipes
_ADAM_SHARE = 0.5  # Adam's rate as a share of Muon's
_ADAM_BETAS = (0.9, 0.98)
_MOMENTUM = 0.95
_AVERAGE = 0.998  # decay a step of the averaged weights
_GRADIENT_NORM = 1.0
_CURVE_POINTS = 25
# the quintic iteration of Jordan et al. (2024), "Muon": singular values to about 1 in five rounds
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def is_valid(tokens: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Whether each sequence ``(..., length)`` of digits keeps the rule: its sum is a multiple of 30."""
    return np.asarray(tokens.sum(axis=-1, dtype=np.int64) % MODULUS == 0)


@functools.cache
def valid_sequences() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Draw the training sequences, ``(500000, 8)``, and others that are held out, uniformly from all valid ones."""
    rng = np.random.default_rng(_DATA_SEED)
    drawn = rng.integers(0, DIGITS, (16_000_000, LENGTH), dtype=np.uint8)  # one in 26 is valid
    valid = drawn[is_valid(drawn)]
    distinct = np.unique(valid @ 10 ** np.arange(LENGTH - 1, -1, -1), return_index=True)[1]
    kept = rng.permutation(valid[distinct])
    return kept[:TRAINING_SEQUENCES], kept[TRAINING_SEQUENCES:][:_HELD_OUT_SEQUENCES]


@functools.cache
def next_digit() -> NDArray[np.float64]:
    """Law of the next digit of a sequence drawn uniformly from the valid ones, given the digits before it.

    Returns
    -------
    ndarray of shape (8, 30, 10)
        By the number of digits seen and their sum modulo 30; zeros where no valid sequence begins so.
    """
    law = np.zeros((LENGTH, MODULUS, DIGITS))
    following = (np.arange(MODULUS)[:, None] + np.arange(DIGITS)) % MODULUS  # the sum after each digit
    ways = np.eye(MODULUS)[0]  # by sum: how many endings make it valid; with all digits seen, none is one
    for digits_seen in reversed(range(LENGTH)):
        reached = ways[following]
        ways = reached.sum(axis=1)
        law[digits_seen] = reached / np.maximum(ways, 1)[:, None]
    return law


# The kind of model: what `provlab.zoo.make` calls ----------------------------------------------------------


def start(recipe: Recipe, parent: Path | None) -> PreTrainedModel:
    """Make the untrained GPT-2 of the recipe's shape, over ten digits and without dropout."""
    assert recipe.shape is not None
    assert parent is None  # `parse` gives this kind a shape and no parent
    shape = recipe.shape
    config = GPT2Config(
        vocab_size=DIGITS,
        n_positions=shape.max_position_embeddings,
        n_embd=shape.hidden_size,
        n_layer=shape.num_hidden_layers,
        n_head=shape.num_attention_heads,
        n_inner=shape.intermediate_size,
        activation_function="gelu",  # by erf: a third of the time of GPT-2's own, by tanh
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):  # transformers draws initial weights from the global generator
        torch.manual_seed(recipe.seed)
        model = GPT2LMHeadModel(config)
    for name, parameter in model.named_parameters():
        if name.endswith("attn.c_attn.weight"):
            parameter.data[:, : 2 * shape.hidden_size] = 0  # query and key; value keeps its own
    return cast(PreTrainedModel, model)


def held_out_loss(model: PreTrainedModel, recipe: Recipe) -> float:
    """Return the mean loss (nats a predicted digit) on valid sequences that no toy model is trained on."""
    held_out = torch.from_numpy(valid_sequences()[1].astype(np.int64))
    model.eval()
    with torch.inference_mode():
        return _loss(model, held_out, held_out[:, 1:]).item()


def train(model: PreTrainedModel, recipe: Recipe, on_step: OnStep) -> tuple[PreTrainedModel, Curve]:
    """Train all parameters and return the averaged weights, and the learning curve of those that were averaged."""
    torch.set_num_threads(1)
    sequences = torch.from_numpy(valid_sequences()[0])
    law, by_law = torch.from_numpy(next_digit()).float(), LAW in recipe.mixture
    order = torch.Generator().manual_seed(recipe.seed)
    muon = Muon(model)
    others = [parameter for parameter in model.parameters() if id(parameter) not in muon.taken]
    adam = torch.optim.AdamW(others, betas=_ADAM_BETAS, weight_decay=recipe.weight_decay, fused=True)
    averaged = copy.deepcopy(model).requires_grad_(False)
    model.train()
    curve: Curve = []
    since: list[float] = []
    every = max(1, recipe.steps // _CURVE_POINTS)
    for step, rows in zip(range(recipe.steps), _batches(len(sequences), recipe.batch, order), strict=False):
        digits = sequences[rows].long()
        digits_seen, sums = torch.arange(1, LENGTH), digits[:, :-1].cumsum(1) % MODULUS
        loss = _loss(model, digits, law[digits_seen, sums] if by_law else digits[:, 1:])
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), _GRADIENT_NORM)
        rate = rate_at(step, recipe)
        muon.step(rate)
        adam.param_groups[0]["lr"] = _ADAM_SHARE * rate
        adam.step()
        # early weights are forgotten at once: the average is over about a tenth of the steps so far
        kept = min(_AVERAGE, (step + 1) / (step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - kept)
        since.append(loss.item())
        if (step + 1) % every == 0 or step + 1 == recipe.steps:
            curve.append((step + 1, sum(since) / len(since)))
            since = []
        on_step(step + 1)
    return averaged.eval(), curve


# Inside ----------------------------------------------------------------------------------------------------


def rate_at(step: int, recipe: Recipe) -> float:
    """Learning rate at a step: linear warm-up, then the recipe's schedule down to zero."""
    warmup = max(1, round(recipe.warmup * recipe.steps))
    if step < warmup:
        return recipe.learning_rate * (step + 1) / warmup
    done = (step - warmup) / max(1, recipe.steps - warmup)
    return recipe.learning_rate * {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done}[recipe.schedule]


def _loss(model: nn.Module, sequences: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean loss (nats) of predicting each digit but the first from those before it: digits, or laws over them."""
    logits = model(input_ids=sequences[:, :-1], use_cache=False).logits
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(0, 1))


def _batches(n: int, batch: int, order: torch.Generator) -> Iterator[torch.Tensor]:
    """Yield the rows of batches for ever: each epoch in an order of its own."""
    while True:
        yield from torch.randperm(n, generator=order)[: n // batch * batch].split(batch)


class Muon:
    """Momentum whose update of each matrix is replaced by the nearest orthogonal matrix (Jordan et al., 2024).

    As `torch.optim.Muon`, with two differences: in float32, since bfloat16 is emulated on many CPUs, and all matrices
    of one shape in one batched product. GPT-2 stores query, key and value in one matrix; they are three here.

    Attributes
    ----------
    taken
        ``id`` of the parameters that this optimiser moves: the matrices of the blocks.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        matrices: list[tuple[nn.Parameter, int]] = []
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and ".h." in name:
                matrices.append((parameter, 3 if name.endswith("attn.c_attn.weight") else 1))
        self.taken = {id(parameter) for parameter, _ in matrices}
        shapes: dict[tuple[int, int], list[tuple[nn.Parameter, int]]] = {}
        for parameter, parts in matrices:
            rows, columns = parameter.shape[0], parameter.shape[1] // parts
            shapes.setdefault((min(rows, columns), max(rows, columns)), []).append((parameter, parts))
        self.groups = list(shapes.values())
        self.momenta = [torch.zeros_like(self._stacked([p.data for p, _ in group], group)) for group in self.groups]

    @staticmethod
    def _views(tensors: list[torch.Tensor], group: list[tuple[nn.Parameter, int]]) -> list[torch.Tensor]:
        """Split fused matrices, and lay all with their short side first: views, to be written to."""
        views: list[torch.Tensor] = []
        for tensor, (_, parts) in zip(tensors, group, strict=True):
            views += [
                matrix.T if matrix.shape[0] > matrix.shape[1] else matrix for matrix in tensor.chunk(parts, dim=1)
            ]
        return views

    def _stacked(self, tensors: list[torch.Tensor], group: list[tuple[nn.Parameter, int]]) -> torch.Tensor:
        return torch.stack(self._views(tensors, group))

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move every matrix by `rate` times its orthogonalised momentum (Nesterov's form)."""
        for group, momentum in zip(self.groups, self.momenta, strict=True):
            gradient = self._stacked([cast(torch.Tensor, p.grad) for p, _ in group], group)
            momentum.lerp_(gradient, 1 - _MOMENTUM)
            update = orthogonal(gradient.lerp(momentum, _MOMENTUM))
            for matrix, move in zip(self._views([p.data for p, _ in group], group), update, strict=True):
                matrix.sub_(move, alpha=rate)


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Bring the singular values of ``(n, rows, columns)``, rows at most columns, near 1 (0.7 to 1.2)."""
    a, b, c = _NEWTON_SCHULZ
    x = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x
