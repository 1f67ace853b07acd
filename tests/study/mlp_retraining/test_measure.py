"""Measurements of the page on retrained MLPs, on students of known weights: copies, strangers, turned units."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from random_students import INPUTS, N_UNITS, TOKENS, Read, compare, student
from scipy import stats

from provlab.inference import allowing, pvalues
from provlab.statistics.phi_match import GateAndUp
from provlab_study.mlp_retraining import measure
from provlab_study.mlp_retraining.measure import Trial


class Model(Read):
    """A model of two blocks."""

    model = SimpleNamespace(anatomy=SimpleNamespace(n_blocks=2, mlp_width=N_UNITS))


def features(*students):
    gates, ups = zip(*(made.activations(INPUTS) for made in students), strict=True)
    return GateAndUp(list(gates), list(ups), TOKENS)


@pytest.fixture(scope="module")
def trial():
    """Base blocks that are students 0 and 1; a stranger's that are 2 and 3."""
    return Trial(Model(), features(student(0), student(1)), features(student(2), student(3)))


def compared(trial, block, student, other=None, at=None):
    views = trial.views(other or trial.base, block if at is None else at, block, student)
    return compare(*views, block, trial.suspect.options)


def test_a_block_is_judged_with_its_own_and_a_stranger(trial):
    own, strange = (compared(trial, 1, student(1), other) for other in (trial.base, trial.stranger))
    floor = pvalues.log10_floor(N_UNITS - allowing.allowance(N_UNITS))
    assert {result.log10_p for result in own.values()} == {floor}
    assert min(result.log10_p for result in strange.values()) > -3
    assert compared(trial, 1, student(1), at=0)["phi_match"].log10_p > -3


def test_the_short_way_to_cosines_changes_no_matching(trial):
    """As over all positions: for a partner, and for one whose inputs have other directions."""
    others = np.random.default_rng(1).standard_normal((2, N_UNITS, len(INPUTS))).astype(np.float32)
    for other in (trial.base, GateAndUp([others[0]], [others[1]], TOKENS)):
        short = compared(trial, 0, student(0, turned=9), other)
        whole = compare(other.block(0), trial.suspect.views(0, student(0, turned=9)), 0, trial.suspect.options)
        for name, result in whole.items():
            assert np.array_equal(short[name].matching, result.matching)
            assert short[name].log10_p == result.log10_p


def test_units_of_the_opposite_sign_are_counted(trial):
    turned = student(0, turned=24)
    own = compared(trial, 0, turned)
    cosines = trial.up_cosines(0, turned, own["phi_match_unsigned"])
    assert np.allclose(np.abs(cosines), 1, atol=1e-5)
    assert (int((cosines < 0).sum()), len(cosines)) == (24, N_UNITS)
    by_gate, by_up = own["phi_match"].matching
    assert np.mean(by_gate == by_up) == pytest.approx(40 / 64, abs=0.1)  # the rest by chance


# Tables -----------------------------------------------------------------------------------------------------


def test_published_shares_stay_below_one_half():
    published = measure.published()
    assert (len(published), published["log10_p"][0]) == (32, -479.0)  # Table 8, first row
    assert published.loc[published["share"].idxmax(), "log10_p"] == published["log10_p"].min() == -614.0
    assert published["share"].max() < 0.5


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


def test_shares_and_p_values():
    t = 0.5 * np.sqrt(254 / 0.75)  # of a correlation of one half; reference: Student's t by scipy
    assert measure.paper_log10_p_of_share(0.5, 256) == pytest.approx(np.log10(2 * stats.t.sf(t, 254)), abs=0.01)
    rng, drawn = np.random.default_rng(0), []
    for _ in range(100):  # half agree, wherever they stand
        places, up = rng.permutation(256), np.arange(256)
        up[places[:128]] = rng.permutation(up[places[:128]])
        drawn.append(pvalues.spearman(np.arange(256), up).paper_log10_p)
    assert measure.paper_log10_p_of_share(0.5, 256) == pytest.approx(np.mean(drawn), abs=1.0)
    for share in (0.05, 0.3, 0.5, 0.9):
        log10_p = measure.paper_log10_p_of_share(share, 11_008)
        assert measure.share_of_log10_p(log10_p, 11_008) == pytest.approx(share, abs=1e-4)
