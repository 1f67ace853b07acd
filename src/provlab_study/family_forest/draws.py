"""Attention as `torch.nn.Linear` draws it, trained apart from one seed: what the biases of its keys keep."""

import numpy as np
import torch
from numpy.typing import NDArray

WIDTH, BLOCKS, LENGTH, BATCH = 32, 2, 8, 4
#: inputs, outputs, and the block whose key bias a layer has, in the order in which they are drawn
ORDER = [
    (WIDTH, WIDTH, block if role == "key" else None) for block in range(BLOCKS) for role in ("query", "key", "value")
]


class Attention(torch.nn.Module):
    """Blocks of one head each, with biases, without positions."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(inputs, outputs) for inputs, outputs, _ in ORDER)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map ``(batch, length, width)`` to the same shape."""
        for at in range(0, len(ORDER), 3):
            query, key, value = self.layers[at : at + 3]
            scores = query(x) @ key(x).transpose(-1, -2) / WIDTH**0.5  # (batch, length, length)
            x = x + torch.softmax(scores, -1) @ value(x)
        return x


def trained(seed: int, data: int, *, decay: float = 0.0, steps: int = 60) -> dict[int, NDArray[np.float32]]:
    """Biases of the keys, by block, of a model that was drawn by one seed and trained on data of another."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Attention()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=decay)
    generator = torch.Generator().manual_seed(data)
    for _ in range(steps):
        x = torch.randn(BATCH, LENGTH, WIDTH, generator=generator)
        optimizer.zero_grad()
        (model(x) - torch.roll(x, 1, -1)).square().mean().backward()
        optimizer.step()
    values = dict(model.named_parameters())
    return {block: values[f"layers.{3 * block + 1}.bias"].detach().numpy() for block in range(BLOCKS)}
