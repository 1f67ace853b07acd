"""Students of random weights, whose matchings with each other are known."""

import numpy as np
import torch

from provlab.statistics import get
from provlab.statistics.options import Options
from provlab_study.shared.retraining import as_views
from provlab_study.shared.students import Point, Student

N_UNITS, WIDTH = 64, 12
TOKENS = np.zeros((1, 1), dtype=np.int64)
INPUTS = np.random.default_rng(0).standard_normal((400, WIDTH)).astype(np.float32)


def views(mlp):
    """Gate and up activations of a student on `INPUTS`."""
    return as_views(mlp.activations(INPUTS), TOKENS)


def compare(first, second, block, options):
    """Compare two sides of one block by phi_MATCH and by its unsigned form."""
    return {
        name: get(name).compare_block(first, second, block, options) for name in ("phi_match", "phi_match_unsigned")
    }


class Read:
    """A model, as far as students are concerned: what enters each of its MLPs."""

    inputs, places, options = (INPUTS, INPUTS), TOKENS, Options()

    def views(self, block, student):
        return views(student)


def student(seed: int = 0, turned: int = 0, units: int = N_UNITS, width: int = WIDTH) -> Student:
    """Draw a student; `turned` of its units have up and down weights of the opposite sign, which changes no output."""
    rng = torch.Generator().manual_seed(seed)
    gate, up = (torch.randn(units, width, generator=rng) for _ in range(2))
    sign = torch.ones(units)
    sign[torch.randperm(units, generator=rng)[:turned]] = -1
    down = torch.randn(width, units, generator=rng)
    return Student(gate, sign[:, None] * up, down * sign, (Point(1, 0.1, 0.1),))
