"""The order of work: costs follow from the plan of each step, on made-up costs of a block."""

import pytest

from provlab.engine.timing import Taken
from provlab.planning.trial import Trial, kinds_of
from provlab_study.audit import work


def test_costs_of_the_steps(monkeypatch):
    """Four blocks and two models: a second to run a block, to read it, and a minute to compare it."""

    def trial(models, jobs, *arguments):
        taken = {("run", (0,)): 1.0, ("read", (0,)): 1.0, ("compare", (0, 0)): 60.0}
        costs = {(what, name, kinds): Taken(cpu=cpu) for (what, kinds), cpu in taken.items() for name in jobs}
        return Trial(kinds_of(models), costs, {}, {}, 0.0)

    monkeypatch.setattr(work, "trial", trial)
    few, weights, views, _, crossed = work.costs("tiny")
    assert few[0] == pytest.approx(2 + 2 * 2 / 60)
    assert weights[0] == pytest.approx(4 + 2 * 4 / 60)
    assert views[0] == pytest.approx(2 * (4 + 2 * 8 / 60))  # of either form
    assert crossed[0] == pytest.approx(2 * (16 + 2 * 8 / 60))  # read and run once, however often blocks are compared
    assert few[1] <= weights[1] < views[1] == crossed[1]


def test_a_trial_gives_them():
    assert min(minutes for minutes, _ in work.costs("tiny")) > 0
