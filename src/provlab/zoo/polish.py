"""A toy of digits, trained on until it hardly ever writes a sequence that breaks the rule.

The parent has learned the law of the next digit (`provlab.zoo.toy`), which forbids invalid digits too: but the cross
entropy of a law hardly feels a thousandth of its mass. So a second loss is added, -log of the mass that the model puts
on digits that a valid sequence can go on with. Its minimum is the same law. And as most sequences are right already,
each step looks at several batches and learns mostly from the sequences with the most of that mass. Shapes, data and the
first loss are the parent's; what is added knows the rule, as the law of the next digit does.
"""

import copy
from pathlib import Path
from typing import cast

import torch
from torch import nn
from transformers import GPT2LMHeadModel, PreTrainedModel

from provlab.zoo import toy
from provlab.zoo.kinds import Curve, OnStep
from provlab.zoo.recipes import Recipe

held_out_loss = toy.held_out_loss

_WEIGHT = 20.0  # of the loss of invalid digits, beside that of the law
_LOOKED_AT, _PLAIN = 4, 0.25  # batches that a step chooses its own from; share of it that is not chosen
_AVERAGE = 0.98  # decay a step of the averaged weights
_GRADIENT_NORM = 1.0
_ADAM_SHARE, _ADAM_BETAS = 0.5, (0.9, 0.98)  # as in the parent's training
_CURVE_POINTS = 25


def start(recipe: Recipe, parent: Path | None) -> PreTrainedModel:
    """Open the parent in float32."""
    assert parent is not None  # `parse` gives this kind a parent
    return cast(PreTrainedModel, GPT2LMHeadModel.from_pretrained(parent, dtype=torch.float32))


def losses(model: nn.Module, digits: torch.Tensor, law: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss (nats) of the law of each next digit, and -log of the mass on digits that it allows, ``(n, 7)`` each.

    Parameters
    ----------
    model
        The toy.
    digits
        ``(n, 8)`` valid sequences.
    law
        ``(8, 30, 10)`` of `provlab.zoo.toy.next_digit`.
    """
    sums = digits[:, :-1].cumsum(1) % toy.MODULUS  # (n, 7)
    right = law[torch.arange(1, toy.LENGTH), sums]  # (n, 7, 10)
    log_probs = torch.log_softmax(model(input_ids=digits[:, :-1], use_cache=False).logits, dim=-1)
    allowed = log_probs.masked_fill(right == 0, -torch.inf).logsumexp(dim=-1)
    return -(right * log_probs).sum(dim=-1), -allowed


def train(model: PreTrainedModel, recipe: Recipe, on_step: OnStep) -> tuple[PreTrainedModel, Curve]:
    """Train all parameters and return the averaged weights, and the learning curve of those that were averaged."""
    torch.set_num_threads(1)
    sequences = torch.from_numpy(toy.valid_sequences()[0])
    law = torch.from_numpy(toy.next_digit()).float()
    order = torch.Generator().manual_seed(recipe.seed)
    muon = toy.Muon(model)
    others = [parameter for parameter in model.parameters() if id(parameter) not in muon.taken]
    adam = torch.optim.AdamW(others, betas=_ADAM_BETAS, weight_decay=recipe.weight_decay, fused=True)
    averaged = copy.deepcopy(model).requires_grad_(False)
    model.train()
    curve: Curve = []
    since: list[float] = []
    every = max(1, recipe.steps // _CURVE_POINTS)
    for step in range(recipe.steps):
        rows = torch.randint(len(sequences), (_LOOKED_AT * recipe.batch,), generator=order)
        digits = sequences[rows].long()
        with torch.no_grad():
            wrong = losses(model, digits, law)[1].sum(dim=1)
        plain = round(_PLAIN * recipe.batch)  # of the law's own sequences, so that the law stays
        of_law, of_rule = losses(
            model, torch.cat([digits[:plain], digits[wrong.topk(recipe.batch - plain).indices]]), law
        )
        model.zero_grad()
        (of_law.mean() + of_law[:plain].mean() + _WEIGHT * of_rule.mean()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), _GRADIENT_NORM)
        rate = toy.rate_at(step, recipe)
        muon.step(rate)
        adam.param_groups[0]["lr"] = _ADAM_SHARE * rate
        adam.step()
        kept = min(_AVERAGE, (step + 1) / (step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - kept)
        since.append(of_law[:plain].mean().item())
        if (step + 1) % every == 0 or step + 1 == recipe.steps:
            curve.append((step + 1, sum(since) / len(since)))
            since = []
        on_step(step + 1)
    return averaged.eval(), curve
