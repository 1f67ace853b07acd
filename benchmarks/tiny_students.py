"""Embeddings of many tiny language models that are trained side by side, for sizes of phi_UNSEEN.

All models of a call are one stack of tensors, so that sixty take as long as a few would one by one. Each has weights,
texts and an order of data of its own. They are small (one block, 64 wide), but their embeddings are trained as those of
language models are: AdamW with weight decay, rare tokens, and tokens that no text has.
"""

import math
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from provlab.files import cache_dir
from provlab.kept import ArrayCache
from provlab.zoo import corpus

WIDTH, HIDDEN, HEADS, LENGTH, BATCH = 64, 128, 4, 32, 8
RATE, DECAY, BETAS, RANGE = 0.003, 0.1, (0.9, 0.95), 0.02
TEACHERS, STUDENTS, STEPS = 3, 15, 300  # so many students of each teacher; teachers learn twice as long


@dataclass(frozen=True)
class Way:
    """How models are trained.

    Attributes
    ----------
    tied
        Whether the head is the embedding.
    bytes
        Whether tokens are bytes, 256 in all; else those of the zoo's tokenizer, 512.
    soft
        Whether students learn a teacher's probabilities of all tokens; else they read texts.
    """

    tied: bool = False
    bytes: bool = False
    soft: bool = False


def texts(way: Way) -> list[NDArray[np.int64]]:
    """Tokens of two domains."""
    source = corpus.load()
    tokens = [source.tokens(domain, "train").astype(np.int64) for domain in ("prose", "code")]
    if not way.bytes:
        return tokens
    characters = [source.held_out_text(domain).encode() for domain in ("prose", "code")]
    return [np.frombuffer(text, np.uint8).astype(np.int64) for text in characters]


class Stack:
    """So many models of one block each; all tensors have the model as their first axis."""

    def __init__(self, n: int, way: Way, seed: int) -> None:
        d, h, size = WIDTH, HIDDEN, 256 if way.bytes else 512
        shapes = {
            "embedding": (size, d), "places": (LENGTH, d), "query": (d, d), "key": (d, d), "value": (d, d),
            "out": (d, d), "gate": (d, h), "up": (d, h), "down": (h, d), "head": (size, d),
        }  # fmt: skip
        if way.tied:
            del shapes["head"]
        rng = torch.Generator().manual_seed(seed)
        self.n, self.size = n, size
        self.weights = {
            name: (RANGE * torch.randn(n, *shape, generator=rng)).requires_grad_() for name, shape in shapes.items()
        }

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits ``(n, batch * length, size)`` of tokens ``(n, batch, length)``."""
        w, (n, batch, length) = self.weights, tokens.shape
        rows = w["embedding"].gather(1, tokens.reshape(n, -1, 1).expand(-1, -1, WIDTH))
        x = rows + w["places"].repeat(1, batch, 1)  # (n, batch * length, d)
        y = _norm(x)
        heads = [(y @ w[name]).view(n * batch, length, HEADS, -1).transpose(1, 2) for name in ("query", "key", "value")]
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + mixed.transpose(1, 2).reshape(n, batch * length, WIDTH) @ w["out"]
        y = _norm(x)
        x = x + (functional.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"]
        return _norm(x) @ w.get("head", w["embedding"]).transpose(1, 2)


def _norm(x: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, x.shape[-1:])


def trained(n: int, way: Way, seed: int, steps: int, teacher: "Stack | None" = None) -> Stack:
    """Train models on texts, or on what one teacher (a stack of one) says of texts."""
    stack, domains = Stack(n, way, seed), texts(way)
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(stack.weights.values(), lr=RATE, betas=BETAS, weight_decay=DECAY, fused=True)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 20) * (0.1 + 0.9 * (1 + math.cos(math.pi * step / steps)) / 2)
        rows = []
        for _ in range(n * BATCH):
            text = domains[int(rng.integers(len(domains)))]
            begin = int(rng.integers(len(text) - LENGTH - 1))
            rows.append(text[begin : begin + LENGTH + 1])
        drawn = torch.from_numpy(np.stack(rows)).view(n, BATCH, LENGTH + 1)
        inputs, targets = drawn[:, :, :-1], drawn[:, :, 1:]
        logs = stack.logits(inputs).log_softmax(-1)
        if teacher is None:
            loss = -logs.gather(2, targets.reshape(n, -1, 1)).sum() / (BATCH * LENGTH)
        else:
            with torch.no_grad():
                expected = teacher.logits(inputs.reshape(1, n * BATCH, LENGTH)).log_softmax(-1).view(logs.shape)
            loss = functional.kl_div(logs, expected, log_target=True, reduction="sum") / (BATCH * LENGTH)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return stack


def embeddings(way: Way) -> NDArray[np.float32]:
    """Embeddings of `STUDENTS` students of each of `TEACHERS` teachers, ``(teachers, students, size, WIDTH)``; kept.

    Where `way` is not soft, they are as many models that read texts.
    """
    parts = {"way": asdict(way), "counts": [TEACHERS, STUDENTS, STEPS]}

    def make() -> dict[str, NDArray[np.float32]]:
        torch.set_num_threads(1)
        if not way.soft:
            made = trained(TEACHERS * STUDENTS, way, 1000, STEPS).weights["embedding"].detach().numpy()
            return {"rows": made.reshape(TEACHERS, STUDENTS, *made.shape[1:])}
        reading = replace(way, soft=False)
        teachers, rows = trained(TEACHERS, reading, 1, 2 * STEPS), []
        for k in range(TEACHERS):
            teacher = Stack(1, reading, 0)
            teacher.weights = {name: weight[k : k + 1].detach() for name, weight in teachers.weights.items()}
            rows.append(trained(STUDENTS, way, 100 + k, STEPS, teacher).weights["embedding"].detach().numpy())
        return {"rows": np.stack(rows)}

    return ArrayCache(cache_dir() / "students").get("students", parts, make)["rows"]
