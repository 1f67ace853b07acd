"""A family whose training is known: rows that no step reached shrink by one factor, all other weights move."""

from collections.abc import Sequence

import numpy as np
import torch


def trained(
    model, seed: int, *, touched: Sequence[int], decay: float = 0.99, noise: float = 0.05, steps: int = 1
) -> dict[str, torch.Tensor]:
    """The tensors of a model after so many steps that reached the rows `touched` of the embedding."""
    generator = torch.Generator().manual_seed(seed)
    rates = np.random.default_rng([seed, steps]).dirichlet(np.full(steps, 5.0)) * np.log(decay)
    tensors = {}
    for name, value in model.items():
        moved = value.clone()
        for rate in rates if value.ndim == 2 else ():
            moved = moved * float(np.exp(rate))
        step = noise * value.std() * torch.randn(value.shape, generator=generator) if value.ndim == 2 else 0
        if "embed_tokens" in name:
            rows = torch.zeros(len(value), 1)
            rows[list(touched)] = 1
            step = step * rows
        tensors[name] = moved + step
    return tensors


def draw(n: int, of: int, seed: int) -> list[int]:
    """Numbers of rows that a training touches."""
    return np.random.default_rng(seed).choice(of, n, replace=False).tolist()
