"""Size and power over pairs, held against numbers worked out by hand; views of students of known weights."""

import numpy as np
import pytest
import torch

from provlab.chapters.distillation import measure as distillation
from provlab.chapters.shared.retraining import as_views
from provlab.chapters.shared.students import Point, Student
from provlab.errors import InputError
from provlab.statistics.base import Options

TOKENS = np.zeros((1, 1), dtype=np.int64)


def test_size_and_power_by_hand():
    fares = distillation.size_and_power([-0.1, -0.5, -2.0, -3.0], [-1.0, -2.5, -4.0])
    assert (fares.size, fares.power, fares.beyond) == (0.5, pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert fares.smallest == -3.0
    # Clopper-Pearson of 2 in 4, from tables: 0.0676 to 0.9324
    assert (fares.low, fares.high) == (pytest.approx(0.0676, abs=1e-4), pytest.approx(0.9324, abs=1e-4))
    assert distillation.size_and_power([-0.1], [-0.1], level=1.0).size == 1.0


@pytest.mark.parametrize("bad", [[], [float("nan")]])
def test_refusals(bad):
    with pytest.raises(InputError, match="independent must hold"):
        distillation.size_and_power(bad, [-1.0])
    with pytest.raises(InputError, match="dependent must hold"):
        distillation.size_and_power([-1.0], bad)


def test_holm_among_the_dependent():
    # 0.004 passes 0.01 / 2, then 0.009 passes 0.01; 0.006 alone fails 0.01 / 2, and so all do
    assert distillation.found(np.log10([0.004, 0.009]), 0.01) == 2
    assert distillation.found(np.log10([0.006, 0.009]), 0.01) == 0


class Read:
    """A model, as far as students are concerned: what enters its first MLP."""

    def __init__(self, inputs):
        self.inputs, self.tokens = [inputs], TOKENS

    def views(self, block, student):
        return as_views(student.activations(self.inputs[block]), self.tokens)


def student(seed, parallel):
    rng = torch.Generator().manual_seed(seed)
    gate, aside = (torch.randn(48, 12, generator=rng) for _ in range(2))
    return Student(gate, gate if parallel else aside, torch.ones(12, 48), (Point(1, 0.1, 0.1),))


def test_parallel_rows_accuse_strangers_and_their_other_part_does_not():
    """The fault that the chapter is about, planted: unrelated students whose up rows are their gate rows."""
    model = Read(np.random.default_rng(0).standard_normal((400, 12)).astype(np.float32))
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    for parallel, accused in ((True, True), (False, False)):
        views = {name: distillation.seen(model, student(i, parallel)) for i, name in enumerate("abc")}
        assert (distillation.log10_p(views, pairs, Options()) < -20).all() == accused
    own = {name: student(i, False) for i, name in enumerate("abc")}
    for one in own.values():
        one.up.add_(3 * one.gate)  # nearly parallel; what is left beside the gate is each student's own
    near = {name: distillation.seen(model, one) for name, one in own.items()}
    rest = {name: distillation.seen_apart(model, one) for name, one in own.items()}
    assert distillation.log10_p(near, pairs, Options()).max() < -2
    assert distillation.log10_p(rest, pairs, Options()).min() > -2
