"""MLPs whose hidden units are spread over more rows, or stand among rows that do nothing; their outputs stay.

Each function takes ``gate, up (h, d), down (d, h)`` of one MLP and a torch generator, and returns the new three.
`write` does it to every block of a Llama.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

Mlp = tuple[Tensor, Tensor, Tensor]
Change = Callable[[Tensor, Tensor, Tensor, torch.Generator], Mlp]


def _shuffled(rows: Tensor, rng: torch.Generator) -> Tensor:
    return rows[torch.randperm(len(rows), generator=rng)]


def decoys(times: int, writes: float = 0.0) -> Change:
    """Gates and ups of the model's own, wrongly paired, that write nothing, or this share of what units write."""

    def change(gate, up, down, rng):
        parts = [(gate, up, down)] + [
            (_shuffled(gate, rng), _shuffled(up, rng), writes * _shuffled(down.T, rng).T) for _ in range(times - 1)
        ]
        return torch.cat([f[0] for f in parts]), torch.cat([f[1] for f in parts]), torch.cat([f[2] for f in parts], 1)

    return change


def duplicates(times: int, scaled: bool = False) -> Change:
    """Each unit several times, with its share of the output; or up c u with down d / c."""

    def change(gate, up, down, rng):
        factors = [
            torch.rand(len(up), generator=rng) * 3 + 0.3 if scaled else torch.ones(len(up)) for _ in range(times)
        ]
        ups, downs = [f[:, None] * up for f in factors], [down / times / f for f in factors]
        return gate.repeat(times, 1), torch.cat(ups), torch.cat(downs, 1)

    return change


def off(*numbers: int) -> Change:
    """Make these units do nothing."""

    def change(gate, up, down, rng):
        return gate, up.index_fill(0, torch.tensor(numbers), 0), down

    return change


def dead(times: int) -> Change:
    """Random units that write nothing."""

    def change(gate, up, down, rng):
        n = (times - 1) * len(up)
        rows = [torch.randn(n, up.shape[1], generator=rng) * matrix.std() for matrix in (gate, up)]
        return torch.cat([gate, rows[0]]), torch.cat([up, rows[1]]), torch.cat([down, torch.zeros(len(down), n)], 1)

    return change


def up_split(kind: str, jitter: float = 0.0, share: float = 1.0) -> Change:
    """d act(g x)(u x) = d act(g x)((u + w) x) - d act(g x)(w x), for w = u, 3u, or rows of other units.

    `jitter` moves each gate by this share of its length, and the outputs with it.
    """

    def change(gate, up, down, rng):
        n = int(share * len(up))
        w = {"u": up, "3u": 3 * up, "natural": _shuffled(up, rng)}[kind][:n]
        gates = torch.cat([gate, gate[:n]])
        noise = torch.randn(gates.shape, generator=rng) / gates.shape[1] ** 0.5
        gates = gates + jitter * gates.norm(dim=1, keepdim=True) * noise
        return gates, torch.cat([up[:n] + w, up[n:], w]), torch.cat([down, -down[:, :n]], 1)

    return change


def write(source: str | Path, folder: str | Path, *changes: Change, seed: int = 0) -> str:
    """Save a Llama after `changes` of each MLP, one after the other, beside its tokenizer."""
    import shutil

    rng = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    with torch.no_grad():
        for layer in model.model.layers:
            mlp = layer.mlp
            three = mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight
            for change in changes:
                three = change(*three, rng)
            for linear, weight in zip((mlp.gate_proj, mlp.up_proj, mlp.down_proj), three, strict=True):
                linear.weight = nn.Parameter(weight.contiguous())
    model.config.intermediate_size = len(three[0])
    model.save_pretrained(folder)
    for file in Path(source).glob("tokenizer*"):
        shutil.copy(file, folder)
    return str(folder)
