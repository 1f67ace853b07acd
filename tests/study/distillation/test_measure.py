"""Size and power over pairs, compared with numbers worked out by hand; views of students of known weights."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from random_students import Read, student

from provlab.errors import InputError
from provlab.statistics import get
from provlab.statistics.options import Options
from provlab_study.distillation import measure as distillation
from provlab_study.distillation.ridges import without_gate_direction
from provlab_study.shared.groups import Groups
from provlab_study.shared.retraining import as_views


def test_size_and_power_by_hand():
    fares = distillation.size_and_power(Groups([-0.1, -0.5, -2.0, -3.0], [-1.0, -2.5, -4.0]))
    assert (fares.size, fares.power, fares.beyond) == (0.5, pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert fares.smallest == -3.0
    # Clopper-Pearson of 2 in 4, from tables: 0.0676 to 0.9324
    assert (fares.low, fares.high) == (pytest.approx(0.0676, abs=1e-4), pytest.approx(0.9324, abs=1e-4))
    assert distillation.size_and_power(Groups([-0.1], [-0.1]), level=1.0).size == 1.0


@pytest.mark.parametrize("bad", [[], [float("nan")]])
def test_refusals(bad):
    with pytest.raises(InputError, match="independent must hold"):
        distillation.size_and_power(Groups(bad, [-1.0]))
    with pytest.raises(InputError, match="dependent must hold"):
        distillation.size_and_power(Groups([-1.0], bad))


def test_holm_among_the_dependent():
    # 0.004 passes 0.01 / 2, then 0.009 passes 0.01; 0.006 alone fails 0.01 / 2, and so all do
    assert distillation.n_called(np.log10([0.004, 0.009]), 0.01) == 2
    assert distillation.n_called(np.log10([0.006, 0.009]), 0.01) == 0


def parallel(seed):
    made = student(seed)
    return replace(made, up=made.gate)


def log10_p(model, students, statistic="phi_match", views=None):
    sides = [views(model, student) if views else model.views(0, student) for student in students]
    return [get(statistic).compare_block(a, b, 0, Options()).log10_p for a, b in combinations(sides, 2)]


def apart(model, made):
    gate, _ = made.activations(model.inputs[0])
    return as_views((gate, without_gate_direction(made).numpy() @ model.inputs[0].T), model.places)


def test_parallel_rows_accuse_strangers_and_their_other_part_does_not():
    """The fault that the chapter is about, planted: unrelated students whose up rows are their gate rows."""
    model = Read()
    sides = [model.views(0, parallel(seed)) for seed in range(3)]
    results = [get("phi_match").compare_block(a, b, 0, Options()) for a, b in combinations(sides, 2)]
    assert max(result.detail.paper_log10_p for result in results) < -20
    assert {result.log10_p for result in results} == {0.0}
    assert all("too much alike" in result.why for result in results)
    outcome = get("phi_match").aggregate(results)
    assert outcome.log10_p is None
    assert outcome.why.startswith("3 of 3 blocks: the gate and up projections of a unit are too much alike")
    own = [student(seed) for seed in range(3)]
    assert min(log10_p(model, own)) > -20
    for made in own:
        made.up.add_(5 * made.gate)  # nearly parallel; the rest beside the gate is each student's own
    assert max(log10_p(model, own)) == 0.0
    assert min(log10_p(model, own, views=apart)) > -2


def test_the_quality_of_students_is_their_mean():
    students = [student(0), parallel(1)]
    known = distillation.distilled(Groups([-0.1], [-9.0]), students, 2.0)
    assert (known.relative, known.independent, known.width_factor) == (pytest.approx(0.1), [-0.1], 2.0)
    assert known.cosine == pytest.approx(np.mean([made.gate_up_cosine() for made in students]))


def test_survival_is_corrected_for_the_number_of_disguises():
    rows = [("phi_u", "a", other, 0.1, log10_p) for other, log10_p in (("b", -9.0), ("t", -50.0), ("t1", -2.2))]
    rows += [("phi_views_outer", "a", other, value, np.nan) for other, value in (("b", 0.2), ("t", 0.9), ("t1", 0.1))]
    frame = pd.DataFrame(rows, columns=["statistic", "a", "b", "value", "log10_p"])
    texts, survives = distillation.surviving(
        frame, ["phi_u", "phi_views_outer"], "a", {"as it is": "t", "T1": "t1"}, ["a", "b"]
    )
    assert texts == [["-50.0", "-2.2"], ["0.90", "0.10"]]
    assert survives == [[True, False], [True, False]]  # 0.01 over two disguises asks for -2.3
