"""Size and power over pairs, compared with numbers worked out by hand; views of students of known weights."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from provlab.chapters.distillation import measure as distillation
from provlab.chapters.distillation.measure import DialRecord, Distilled, Family
from provlab.chapters.shared.groups import Groups
from provlab.chapters.shared.retraining import as_views
from provlab.chapters.shared.students import Point, Student
from provlab.errors import InputError
from provlab.statistics.base import BlockResult, Options

TOKENS = np.zeros((1, 1), dtype=np.int64)


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
    assert distillation.found(np.log10([0.004, 0.009]), 0.01) == 2
    assert distillation.found(np.log10([0.006, 0.009]), 0.01) == 0


class Read:
    """A model, as far as students are concerned: what enters its first MLP."""

    def __init__(self, inputs):
        self.inputs, self.spelt = [inputs], TOKENS

    def views(self, block, student):
        return as_views(student.activations(self.inputs[block]), self.spelt)


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


def family():
    models = {name: Read(np.random.default_rng(0).standard_normal((400, 12)).astype(np.float32)) for name in "abt"}
    return Family(models, [("a", "b")], [("a", "t"), ("b", "lacking")], Options())


def test_a_family_judges_the_pairs_that_have_views():
    known = family()
    students = {"a": student(0, False), "b": student(1, False), "t": student(0, False)}
    views = {name: distillation.seen(known.models[name], one) for name, one in students.items()}
    groups = known.judge(views)
    assert len(groups.independent) == len(groups.dependent) == 1
    assert groups.independent[0] > -3
    assert groups.dependent[0] < -20
    found = distillation.distilled(groups, students.values(), 2.0)
    assert found.relative == pytest.approx(0.1)
    assert found.cosine == pytest.approx(np.mean([one.gate_up_cosine() for one in students.values()]))


# Tables and sentences ---------------------------------------------------------------------------------------


def results():
    return {
        "blind": Distilled([-0.1] * 9 + [-2.0], [-0.2, -0.3], 0.5, 0.1, 2.0),
        "accusing": Distilled([-9.0] * 10, [-9.5, -40.0], 0.1, 0.9, 1.0),
        "good": Groups([-0.1] * 30, [-9.0] * 5),
    }


def test_the_table_has_a_row_for_each_way():
    table = distillation.size_and_power_table(results())
    assert table["independent below 0.05"].tolist() == [
        "0.10 (0.00 to 0.45)",  # Clopper-Pearson of 1 in 10, of 10 in 10 and of 0 in 30, from tables
        "1.00 (0.69 to 1.00)",
        "0.00 (0.00 to 0.12)",
    ]
    assert table.loc["accusing", "dependent below every independent"] == "1.00"
    assert np.isnan(table.loc["good", "|cosine|"])


def test_findings_count_the_ways_that_work():
    said = distillation.attempt_findings(results())
    assert "Of these 3 ways, **1** has both" in said
    assert ": good. The largest share" in said
    del (rest := results())["good"]
    assert "Of these 2 ways, **0** have both" in distillation.attempt_findings(rest)
    assert "**100% of the independent pairs**" in distillation.recipe_findings(rest["accusing"])


def test_the_published_value_stands_beside_ours():
    table, quantity = distillation.published_and_ours(results()["blind"])
    assert table["published"].tolist() == ["7.955e-83 (one pair)", "not shown"]  # Appendix H.3
    assert table["log10 p, ours"].tolist() == ["-0.3 to -0.2 (2 pairs)", "-2.0 to -0.1 (10 pairs)"]
    assert "phi_MATCH" in quantity


def test_dial_findings_split_pairs_at_the_critical_cosine():
    dial = [
        DialRecord(who, c, m, m, m) for who in ("the models' rows", "random rows") for c, m in ((0.5, -0.2), (0.8, -5))
    ]
    dial.append(DialRecord("random rows", 0.3, -9, -9, -9))  # of random rows nothing is said here
    trained = pd.DataFrame({"recipe": "x", "cosine": [0.1, 0.2, 0.85, 0.9], "log10_p": [-0.1, -3.0, -2.0, -7.0]})
    said = distillation.dial_findings(dial, trained)
    assert "at a cosine of 0.8" in said
    assert "**2 of 2** are below 0.05; of the others **1 of 2**" in said


def test_blocks_of_two_views_by_pair():
    """The outer form has no p-value: its nominal one stands in its place."""

    def record(statistic, a, b, log10_p):
        nominal = {"nominal": log10_p}
        block = BlockResult(0, 0.5, None, nominal) if statistic.endswith("outer") else BlockResult(0, 0.5, log10_p, {})
        return SimpleNamespace(statistic=statistic, a=a, b=b, outcome=SimpleNamespace(blocks=[block]))

    known = Family({}, [("a", "b")], [("a", "t")], Options())
    study = SimpleNamespace(
        records=[record(s, a, b, p) for s in distillation.VIEWS for a, b, p in (("a", "b", -0.1), ("a", "t", -50.0))]
    )
    assert distillation.two_views(study, known) == dict.fromkeys(distillation.VIEWS, Groups([-0.1], [-50.0]))


def test_what_survives_is_corrected_for_the_number_of_disguises():
    rows = [("phi_u", "a", other, 0.1, log10_p) for other, log10_p in (("b", -9.0), ("t", -50.0), ("t1", -2.2))]
    rows += [("phi_views_outer", "a", other, value, np.nan) for other, value in (("b", 0.2), ("t", 0.9), ("t1", 0.1))]
    frame = pd.DataFrame(rows, columns=["statistic", "a", "b", "value", "log10_p"])
    texts, found = distillation.surviving(
        frame, ["phi_u", "phi_views_outer"], "a", {"as it is": "t", "T1": "t1"}, ["a", "b"]
    )
    assert texts == [["-50.0", "-2.2"], ["0.90", "0.10"]]
    assert found == [[True, False], [True, False]]  # 0.01 over two disguises asks for -2.3
