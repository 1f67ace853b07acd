"""Students of random weights, whose matchings with each other are known."""

import torch

from provlab.chapters.shared.students import Point, Student


def student(seed: int = 0, turned: int = 0, units: int = 64, width: int = 12) -> Student:
    """Draw a student; `turned` of its units have up and down weights of the opposite sign, which changes no output."""
    rng = torch.Generator().manual_seed(seed)
    gate, up = (torch.randn(units, width, generator=rng) for _ in range(2))
    sign = torch.ones(units)
    sign[torch.randperm(units, generator=rng)[:turned]] = -1
    down = torch.randn(width, units, generator=rng)
    return Student(gate, sign[:, None] * up, down * sign, (Point(1, 0.1, 0.1),))
