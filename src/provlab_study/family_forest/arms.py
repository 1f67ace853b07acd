"""Families of tiny Llamas that are grown here, each arm in its own way, with their true parents.

`left_out` gives the same families without some of their models.

Each family grows by uniform attachment: a new model descends from one drawn evenly among those that are there. Texts
are drawn by Zipf's law from a topic, which has some of the tokens; no topic has the last ones. The trainer is AdamW.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

VOCABULARY, NEVER, TOPIC = 256, 32, 120  # tokens; those in no topic; those in one topic
LENGTH, BATCH, RATE = 16, 8, 0.005
STEPS = {"base": 120, "child": 40}
WIDTH, HIDDEN, BLOCKS = 24, 48, 2
ZIPF = 1 / np.arange(1, TOPIC + 1)  # chance of each token of a topic
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Arm:
    """How the models of one family are made.

    Attributes
    ----------
    decay
        Weight decay.
    tied, frozen
        Whether the head is the embedding; whether children leave the embedding as it is.
    dtype
        In which each model is stored, and its children begin.
    after
        What is done to each child once it is trained, with its base at hand.
    merges
        How many of the models are means of two others.
    merge_steps
        How long these are trained on.
    embedding_decay
        Whether weight decay touches the embedding.
    adapters
        Share of the children that are adapters, merged: changes of rank 2 in the matrices of the blocks, no others.
    resized
        Share of the children whose vocabulary has 8 tokens more.
    star
        Whether all children descend from the first model.
    undecayed
        Share of the children that are trained without weight decay.
    one_topic
        Whether all are trained on texts of one topic.
    one_draw
        Whether all begin at one random draw and none descends from another.
    one_schedule
        Whether all have one schedule of rates, so that its first steps do the same to rows without a gradient.
    steps
        Between which numbers of steps a child is trained, evenly by their logarithm; by default `STEPS` and twice that.
    """

    decay: float = 0.1
    tied: bool = False
    frozen: bool = False
    dtype: torch.dtype = torch.float32
    after: Callable[[Tensors, Tensors], Tensors] | None = None
    merges: int = 0
    merge_steps: int = 0
    embedding_decay: bool = True
    adapters: float = 0.0
    resized: float = 0.0
    undecayed: float = 0.0
    star: bool = False
    one_topic: bool = False
    one_draw: bool = False
    one_schedule: bool = False
    steps: tuple[int, int] | None = None


def pruned(tensors: Tensors, base: Tensors) -> Tensors:
    """Set the smaller half of each MLP matrix to zero."""
    return {k: v * (v.abs() > v.abs().median()) if "mlp" in k else v for k, v in tensors.items()}


def quantised(tensors: Tensors, base: Tensors) -> Tensors:
    """Round every matrix of the blocks to 15 values a row."""

    def rounded(value: torch.Tensor) -> torch.Tensor:
        scale = value.abs().amax(dim=1, keepdim=True) / 7
        return (value / scale).round() * scale

    return {k: rounded(v) if "proj" in k else v for k, v in tensors.items()}


def quantised_whole(tensors: Tensors, base: Tensors) -> Tensors:
    """The same of the embedding too."""
    table = tensors["model.embed_tokens.weight"]
    scale = table.abs().amax(dim=1, keepdim=True) / 127
    return quantised(tensors, base) | {"model.embed_tokens.weight": (table / scale).round() * scale}


def adapted(tensors: Tensors, base: Tensors) -> Tensors:
    """Keep changes of rank 2 in the matrices of the blocks, as a merged adapter has them; all else is the parent's."""

    def low(name: str, value: torch.Tensor) -> torch.Tensor:
        if "proj" not in name:
            return base[name]
        u, s, v = torch.linalg.svd((value - base[name]).float(), full_matrices=False)
        return base[name] + (u[:, :2] * s[:2] @ v[:2]).to(value.dtype)

    return {name: low(name, value) for name, value in tensors.items()}


def resized(tensors: Tensors, base: Tensors) -> Tensors:
    """Add 8 tokens, whose rows are the mean of the others."""
    both = ("model.embed_tokens.weight", "lm_head.weight")
    return tensors | {name: torch.cat([tensors[name], tensors[name].mean(0).expand(8, -1)]) for name in both}


def shuffled(tensors: Tensors, base: Tensors) -> Tensors:
    """Put the hidden units of the MLPs into another order, which changes no output."""
    order = torch.randperm(HIDDEN)
    return {k: v[:, order] if "down_proj" in k else v[order] if "mlp" in k else v for k, v in tensors.items()}


def rescaled(tensors: Tensors, base: Tensors) -> Tensors:
    """Forge the clock: all that writes to the stream 5% larger, which changes no output but for the norms' epsilon."""
    writes = ("embed_tokens", "o_proj", "down_proj")
    return {k: v * 1.05 if any(name in k for name in writes) else v for k, v in tensors.items()}


def restored(tensors: Tensors, base: Tensors) -> Tensors:
    """Forge the rows: the rows of the rarer half of the tokens are those of the base."""
    table = tensors["model.embed_tokens.weight"].clone()
    table[VOCABULARY // 2 :] = base["model.embed_tokens.weight"][VOCABULARY // 2 :]
    return tensors | {"model.embed_tokens.weight": table}


SHUFFLED = "shuffled units"  # whose families are found by phi_match
ARMS = {
    "plain": Arm(),
    "plain again": Arm(),
    "more decay": Arm(decay=0.3),
    "no decay": Arm(decay=0.0),
    "tied": Arm(tied=True),
    "frozen embedding": Arm(frozen=True),
    "bfloat16": Arm(dtype=torch.bfloat16),
    "pruned": Arm(after=pruned),
    "quantised": Arm(after=quantised),
    "quantised, embedding too": Arm(after=quantised_whole),
    "merges": Arm(merges=2),
    "merges, trained on": Arm(merges=2, merge_steps=30),
    SHUFFLED: Arm(after=shuffled),
    "forged: rescaled": Arm(after=rescaled),
    "forged: rows restored": Arm(after=restored),
}

#: families in which a common parent is easily taken for a parent
KIN = {
    "siblings": Arm(star=True),
    "one topic": Arm(one_topic=True),
    "siblings on one topic": Arm(star=True, one_topic=True),
    "short and long": Arm(steps=(5, 160)),
    "short and long, one topic": Arm(steps=(5, 160), one_topic=True),
    "one schedule": Arm(one_schedule=True, steps=(5, 160)),
    "one schedule, one topic": Arm(one_schedule=True, one_topic=True, steps=(5, 160)),
    "one draw": Arm(one_draw=True),
    "one draw, one topic": Arm(one_draw=True, one_topic=True),
    "adapters": Arm(adapters=1.0),
    "adapters and others": Arm(adapters=0.5),
    "adapters and others, one topic": Arm(adapters=0.5, one_topic=True, steps=(5, 160)),
    "some without decay": Arm(undecayed=0.5),
    "some without decay, one topic": Arm(undecayed=0.5, one_topic=True, steps=(5, 160)),
    "resized": Arm(resized=0.3),
    "no decay on embeddings": Arm(embedding_decay=False),
}


@dataclass(frozen=True)
class Grown:
    """A model, its arm, its parents (none for a base, two for a merge), the first one's share, and all its steps."""

    source: str
    arm: str
    parents: tuple[str, ...]
    share: float = 1.0
    steps: int = 0


def _config(arm: Arm, vocabulary: int = VOCABULARY) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocabulary, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=BLOCKS,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=LENGTH, tie_word_embeddings=arm.tied,
        bos_token_id=0, eos_token_id=0, pad_token_id=None,
    )  # fmt: skip


def train(tensors: Tensors | None, arm: Arm, steps: int, rng: np.random.Generator, topic: int | None = None) -> Tensors:
    """Train a model from these weights, or from random ones; on the topic of this number, or on one of its own."""
    torch.manual_seed(int(rng.integers(2**31)))
    rows = VOCABULARY if tensors is None else len(tensors["model.embed_tokens.weight"])
    model = LlamaForCausalLM(_config(arm, rows))
    if tensors is not None:
        model.load_state_dict({name: value.float() for name, value in tensors.items()})
    model.model.embed_tokens.weight.requires_grad_(tensors is None or not arm.frozen)
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    spared = [parameter for name, parameter in named if "embed" in name and not arm.embedding_decay]
    others = [parameter for name, parameter in named if arm.embedding_decay or "embed" not in name]
    groups: list[dict[str, Any]] = [{"params": others}, {"params": spared, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=RATE, weight_decay=arm.decay, betas=(0.9, 0.95), foreach=True
    )
    of = rng if topic is None else np.random.default_rng(topic)
    tokens = of.choice(VOCABULARY - NEVER, TOPIC, replace=False)
    follows = of.permutation(TOPIC)  # each token is followed by its own successor in half of the cases
    draws = rng.choice(TOPIC, (steps, BATCH, LENGTH), p=ZIPF / ZIPF.sum())
    copied = rng.random(draws.shape) < 0.5
    for t in range(1, LENGTH):
        draws[..., t] = np.where(copied[..., t], follows[draws[..., t - 1]], draws[..., t])
    for step, batch in enumerate(torch.from_numpy(tokens[draws])):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / 10, 1 if arm.one_schedule else 1.1 - step / steps)
        optimizer.zero_grad()
        model(batch, labels=batch).loss.backward()
        optimizer.step()
    return {name: value.detach().to(arm.dtype) for name, value in model.state_dict().items()}


def grow(folder: Path, name: str, n_models: int, seed: int) -> list[Grown]:
    """Grow the family of one arm below a folder."""
    logging.disable_progress_bar()
    arm, rng = (ARMS | KIN)[name], np.random.default_rng([seed, *name.encode()])
    topic = int(rng.integers(2**31)) if arm.one_topic else None
    made: list[Tensors] = []
    grown: list[Grown] = []

    def keep(tensors: Tensors, parents: tuple[int, ...], steps: int, share: float = 1.0) -> None:
        place = folder / f"{re.sub(r'[^a-z]+', '-', name)}-{len(made)}"
        model = LlamaForCausalLM(_config(arm, len(tensors["model.embed_tokens.weight"]))).type(arm.dtype)
        model.load_state_dict(tensors)
        model.save_pretrained(place)
        made.append(tensors)
        steps += max((grown[i].steps for i in parents), default=0)
        grown.append(Grown(str(place), name, tuple(grown[i].source for i in parents), share, steps))

    torch.manual_seed(int(rng.integers(2**31)))
    draw = LlamaForCausalLM(_config(arm)).state_dict() if arm.one_draw else None
    keep(train(draw, arm, STEPS["base"], rng, topic), (), STEPS["base"])
    for _ in range(n_models - 1 - arm.merges):
        if arm.one_draw:
            steps = STEPS["base"] // 2 + int(rng.integers(STEPS["base"]))
            keep(train(draw, arm, steps, rng, topic), (), steps)
            continue
        parent = 0 if arm.star else int(rng.integers(len(made)))
        least, most = np.log(arm.steps or (STEPS["child"], 2 * STEPS["child"]))
        steps = int(np.exp(rng.uniform(least, most)))
        without = rng.random() < arm.undecayed
        child = train(made[parent], replace(arm, decay=0.0) if without else arm, steps, rng, topic)
        if rng.random() < arm.adapters:
            child = adapted(child, made[parent])
        if rng.random() < arm.resized:
            child = resized(child, made[0])
        keep(arm.after(child, made[0]) if arm.after else child, (parent,), steps)
    for _ in range(arm.merges):
        pair = tuple(int(i) for i in rng.choice(n_models - arm.merges, 2, replace=False))
        share = float(rng.uniform(0.2, 0.8))
        mean = {key: share * made[pair[0]][key] + (1 - share) * made[pair[1]][key] for key in made[0]}
        steps = arm.merge_steps
        keep(train(mean, arm, steps, rng, topic) if steps else mean, pair, steps, share)
    return grown


def left_out(made: Sequence[Grown], seed: int) -> dict[str, list[str]]:
    """Which models are given if some of a family are left out, by what is left out; three models at least."""
    sources = [model.source for model in made]
    parents = {parent for model in made for parent in model.parents}
    rng = np.random.default_rng(seed)
    some = {source for source in sources[1:] if source in parents and rng.random() < 0.5}
    sets = {
        "none": sources,
        "the first": sources[1:],
        "all other parents": [source for source in sources if source == sources[0] or source not in parents],
        "some parents": [source for source in sources if source not in some],
    }
    return {what: kept for what, kept in sets.items() if len(kept) > 2}


def merged(base: Tensors, first: Tensors, second: Tensors, rng: np.random.Generator) -> dict[str, Tensors]:
    """Merges of two tunes and their base, one of each method."""

    def block(name: str) -> int:
        return int(name.split(".")[2]) if "layers." in name else -1

    def mean(*shares: tuple[float, Tensors]) -> Tensors:
        return {k: sum((share * m[k] for share, m in shares), torch.zeros_like(base[k])) for k in base}

    def by(share: Callable[[str], float]) -> Tensors:
        return {k: share(k) * first[k] + (1 - share(k)) * second[k] for k in base}

    def slerp(t: float) -> Tensors:
        made = {}
        for k in base:
            a, b = first[k].double(), second[k].double()
            angle = torch.arccos((a * b).sum() / a.norm() / b.norm())
            made[k] = ((torch.sin((1 - t) * angle) * a + torch.sin(t * angle) * b) / torch.sin(angle)).float()
        return made

    def ties(density: float) -> Tensors:
        made = {}
        for k in base:
            changes = torch.stack([m[k] - base[k] for m in (first, second)])
            least = changes.abs().flatten(1).quantile(1 - density, dim=1).view(-1, *[1] * base[k].ndim)
            kept = changes * (changes.abs() >= least)
            agree = (kept.sign() == kept.sum(0).sign()) & (kept != 0)
            made[k] = base[k] + (kept * agree).sum(0) / agree.sum(0).clamp(min=1)
        return made

    def dare(dropped: float) -> Tensors:
        def part(k: str, m: Tensors) -> torch.Tensor:
            return 0.5 * (m[k] - base[k]) * torch.from_numpy(rng.random(base[k].shape) > dropped) / (1 - dropped)

        return {k: base[k] + part(k, first) + part(k, second) for k in base}

    return {
        "linear": mean((0.4, first), (0.6, second)),
        "base and tune": mean((0.43, base), (0.57, first)),
        "slerp": slerp(0.4),
        "task arithmetic": mean((-0.4, base), (0.7, first), (0.7, second)),
        "subtraction": mean((0.7, base), (0.7, first), (-0.4, second)),
        "by depth": by(lambda name: 0.3 if block(name) < 1 else 0.8),
        "by part": by(lambda name: 0.3 if "mlp" in name else 0.8),
        "passthrough": by(lambda name: float(block(name) < 1)),
        "TIES": ties(0.5),
        "DARE": dare(0.5),
    }


def grow_merges(
    folder: Path, seed: int, methods: Sequence[str] = ()
) -> tuple[list[str], dict[tuple[str, str, int], str]]:
    """Four tunes of a base, and merges of the first two by method (all if none is named), precision and steps on.

    Returns
    -------
    tuple of list and dict
        Folders of the base and the tunes, by precision one after another; and folders of merges.
    """
    logging.disable_progress_bar()
    rng, arm = np.random.default_rng([seed, 7]), Arm()
    base = train(None, arm, STEPS["base"], rng)
    family = [base, *(train(base, arm, 2 * STEPS["child"], rng) for _ in range(4))]
    sources, made = [], {}

    def keep(name: str, tensors: Tensors, dtype: torch.dtype) -> str:
        model = LlamaForCausalLM(_config(arm)).type(dtype)
        model.load_state_dict(tensors)
        model.save_pretrained(folder / name)
        return str(folder / name)

    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        word = str(dtype).removeprefix("torch.")
        inputs = [{k: v.to(dtype).float() for k, v in tensors.items()} for tensors in family]
        sources += [keep(f"{word}-{i}", tensors, dtype) for i, tensors in enumerate(inputs)]
        for method, tensors in merged(inputs[0], inputs[1], inputs[2], rng).items():
            if methods and method not in methods:
                continue
            for steps in (0, 10) if dtype == torch.float32 else (0,):
                on = train(tensors, arm, steps, rng) if steps else tensors
                made[method, word, steps] = keep(f"{word}-{method.replace(' ', '-')}-{steps}", on, dtype)
    return sources, made
