"""What the page on retrained MLPs measures, on students of known weights: copies, strangers, units of opposite sign."""

from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from provlab.chapters.mlp_retraining import measure, narrow_models, signs
from provlab.chapters.mlp_retraining.measure import BlockRecord, Trial
from provlab.chapters.shared.retraining import as_views, compare
from provlab.chapters.shared.students import Point, Settings, Student
from provlab.inference import pvalues
from provlab.statistics.base import Options
from provlab.statistics.phi_match import GateAndUp

N_UNITS, WIDTH = 64, 12
TOKENS = np.zeros((1, 1), dtype=np.int64)
INPUTS = np.random.default_rng(0).standard_normal((400, WIDTH)).astype(np.float32)


def student(seed=0, turned=0):
    """A student of random weights, `turned` of whose units have the sign of their up and down weights changed."""
    rng = torch.Generator().manual_seed(seed)
    gate, up = (torch.randn(N_UNITS, WIDTH, generator=rng) for _ in range(2))
    sign = torch.ones(N_UNITS)
    sign[torch.randperm(N_UNITS, generator=rng)[:turned]] = -1
    return Student(gate, sign[:, None] * up, torch.randn(WIDTH, N_UNITS, generator=rng) * sign, (Point(1, 0.1, 0.1),))


class Model:
    """A model of two blocks, as far as comparing students is concerned."""

    options = Options()
    model = SimpleNamespace(anatomy=SimpleNamespace(n_blocks=2, mlp_width=N_UNITS))
    inputs = (INPUTS, INPUTS)
    spelt = TOKENS

    def views(self, block, student):
        return as_views(student.activations(INPUTS), TOKENS)


def features(*students):
    gates, ups = zip(*(one.activations(INPUTS) for one in students), strict=True)
    return GateAndUp(list(gates), list(ups), TOKENS)


@pytest.fixture(scope="module")
def trial():
    """Base blocks that are students 0 and 1; a stranger's that are 2 and 3."""
    return Trial(Model(), features(student(0), student(1)), features(student(2), student(3)))


def test_a_block_is_judged_against_its_own_and_a_stranger(trial):
    found = trial.judge(1, student(1)).log10_p()
    assert found["log10_p"] == found["log10_p_unsigned"] == pvalues.log10_floor(N_UNITS - int(0.05 * N_UNITS))
    assert min(found["log10_p_stranger"], found["log10_p_stranger_unsigned"]) > -3
    assert trial.judge(0, student(1)).log10_p()["log10_p"] > -3


def test_the_short_way_to_cosines_changes_no_matching(trial):
    """Against all positions: of a partner, and of one whose inputs have other directions."""
    beside = np.random.default_rng(1).standard_normal((2, N_UNITS, len(INPUTS))).astype(np.float32)
    for other in (trial.base, GateAndUp([beside[0]], [beside[1]], TOKENS)):
        found = trial.compare(other, 0, 0, student(0, turned=9))
        whole = compare(other.block(0), trial.model.views(0, student(0, turned=9)), 0, trial.model.options)
        for name, one in whole.items():
            assert np.array_equal(found[name].matching, one.matching)
            assert found[name].log10_p == one.log10_p


def test_units_of_the_opposite_sign_are_counted(trial):
    one = student(0, turned=24)
    judged = trial.judge(0, one)
    cosines = signs.up_cosines(trial, 0, one, judged)
    assert np.allclose(np.abs(cosines), 1, atol=1e-5)
    assert (int((cosines < 0).sum()), len(cosines)) == (24, N_UNITS)
    assert "agree on 64 units over all blocks; **38%** of these" in signs.findings([cosines])
    table = signs.table([judged], [cosines])
    assert table["units that agree, unsigned"][0] == 1.0
    assert table["units that agree"][0] == pytest.approx(40 / 64, abs=0.1)  # the rest by chance
    assert table["of these with the opposite sign"][0] == 24 / 64
    assert "no unit" in signs.findings([np.array([])])


def test_unrelated_blocks_are_all_blocks_but_their_own(trial):
    records = measure.crossed(trial, [student(0), student(1)])
    places = {(one.against, one.block, one.other) for one in records}
    assert places == {
        ("base", 0, 1), ("base", 1, 0), *(("stranger", block, other) for block in (0, 1) for other in (0, 1))
    }  # fmt: skip
    assert len(records) == 2 * len(places)
    assert min(one.log10_p for one in records) > -3
    table = measure.crossed_table(records)
    assert table["pairs of blocks"].to_dict() == {"phi_match": 6, "phi_match_unsigned": 6}


# Tables and sentences ---------------------------------------------------------------------------------------


def records(log10_p=(-39.0, -1.0), stranger=(-0.1, -0.8)):
    return [
        BlockRecord(0, i, 0.1, 0.02, 0.01 + 0.02 * i, own, 4 * own, strange, strange)
        for i, (own, strange) in enumerate(zip(log10_p, stranger, strict=True))
    ]


def test_findings_are_those_of_the_records():
    said = measure.block_findings(records())
    assert "these 4 tests" in said
    assert "**1 of 2** retrained blocks are found, and **0 of 2** of the unrelated model's" in said
    assert "smaller than that on noise in 1 of 2 blocks" in said
    assert "**1 of 2** of the unrelated" in measure.block_findings(records(stranger=(-9.0, -0.1)))


def test_table_8_has_as_many_rows_as_there_are_blocks():
    for n in (2, 40):  # the paper's model has 32
        table = measure.table_8(records([-20.0] * n, [-0.1] * n))
        assert len(table) == n
        assert table["log10 p, published"].notna().sum() == min(n, 32)
    assert table["log10 p, published"][0] == -479.0  # Table 8, first row


def test_published_shares_stay_below_one_half():
    shares = signs.published_shares()
    assert shares.shape == (32,)
    table = signs.published_shares_table(shares).set_index("where")
    assert table.loc["published, strongest", "log10 p"] == -614.0
    assert shares.max() == table.loc["published, strongest", "share of units"] < 0.5


def test_the_first_error_is_the_one_below_which_all_pass():
    points = pd.DataFrame(
        {
            "block": 0,
            "relative": [0.5, 0.3, 0.1, 0.01],
            "worth": 2.0,
            "harm": [1.0, 0.5, 0.2, 0.1],
            "phi_match": [-1.0, -20.0, -3.0, -13.0],  # passes at 0.3, fails again at 0.1
            "phi_match_unsigned": [-20.0, -20.0, -20.0, -20.0],
            "a stranger": -0.5,
            "a stranger, unsigned": -0.7,
        }
    )
    row = measure.frontier_table(points).iloc[0]
    assert (row["phi_MATCH from error"], row["of the MLP lost"]) == (0.01, 0.05)
    assert (row["unsigned from error"], row["of the MLP lost "]) == (0.5, 0.5)
    assert row["strangers, smallest log10 p"] == -0.7
    lost = measure.frontier_table(points.assign(phi_match=measure.BAR)).iloc[0]
    assert pd.isna(lost["phi_MATCH from error"])


def test_recipes_for_narrow_models_change_one_thing_each():
    plain = Settings(steps=30)
    recipes = narrow_models.recipes(plain)
    assert list(recipes.values()) == [
        plain, replace(plain, steps=60), replace(plain, width_factor=4.0), replace(plain, inputs="matched")
    ]  # fmt: skip


def test_narrow_blocks_are_counted_below_the_bar():
    one = narrow_models.NarrowRecord("as above", 0, 0.1, -7.0, -14.0, -0.3, -0.4)
    rows = [one, replace(one, block=1, log10_p=-13.0, log10_p_unsigned=-26.0)]
    said = narrow_models.findings(rows, 256)
    assert "half of 256 units agree, log10 p is -14.4. Below -12: **1 of 2**" in said
    assert "**2 of 2** by the unsigned one" in said
    row = narrow_models.table(rows).loc["as above"]
    assert (row["log10 p, weakest block"], row["unsigned log10 p, strongest block"]) == (-7.0, -26.0)


def test_series_of_the_figure():
    frame = measure.by_statistic(records())
    assert frame.columns.tolist() == ["block", "phi_match", "phi_match_unsigned", "a stranger"]
    assert frame["phi_match"].tolist() == [one["log10_p"] for one in map(asdict, records())]
