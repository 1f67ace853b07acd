"""Units that do nothing: a model may be given any number of them, and what matches units must see through that."""

import numpy as np
import pytest
import spread_units
from spread_units import dead, decoys, duplicates, off, up_split

from provlab import api
from provlab.engine.pairs import open_models, run_pairs
from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.inference.matching import unit_rows
from provlab.planning.study import plan
from provlab.reading.counting import counting
from provlab.statistics import get
from provlab.statistics.alive import alive
from provlab.statistics.options import Options

SIZES = {"n_sequences": 16, "sequence_length": 32, "progress": False}
BY_MATCH = ("phi_u", "phi_h", "phi_match", "phi_match_unsigned", "phi_views", "median_max")


@pytest.fixture
def attacked(tmp_path):
    """Write a copy of a model after `changes` have been at each of its MLPs."""

    def written(folder, *changes):
        return spread_units.write(folder, tmp_path / str(len(list(tmp_path.iterdir()))), *changes)

    return written


def outcomes(a, b, text, statistics=BY_MATCH):
    result = api.compare(a, b, statistics=list(statistics), text=text, **SIZES)
    return result, {record.statistic: record.outcome for record in result.records}


def test_a_zero_unit_takes_no_statistic_away(models, text, attacked):
    folder = attacked(models["base"], off(5))
    for a, b, dropped in ((models["base"], folder, [0, 1]), (folder, models["base"], [1, 0])):
        result, after = outcomes(a, b, text)
        assert None not in after.values()
        for name in BY_MATCH:
            if name != "median_max":
                assert after[name].log10_p < -50
                assert [block.detail.dropped for block in after[name].blocks] == [dropped] * 3
        assert abs(after["median_max"].value) < 0.01
        assert f"were left out: {3 * dropped[0]} of " in result.verdict()
        assert "phi_u, phi_h, phi_match, phi_match_unsigned, phi_views." in result.verdict()


def test_other_units_off_on_either_side(models, text, attacked):
    """Five of 48 here, seven there: the units that are left keep their numbers."""

    a, b = attacked(models["base"], off(0, 1, 2, 3, 4)), attacked(models["base"], off(0, 40, 41, 42, 43, 44, 45))
    for outcome in outcomes(a, b, text, BY_MATCH[:4])[1].values():
        for block in outcome.blocks:
            assert block.detail.dropped == [5, 7]
            assert block.detail.n == 41
            assert block.detail.agree >= 30
            assert block.matching.max() == 47


@pytest.mark.parametrize(
    "changes",
    [
        (decoys(4),),
        (duplicates(2, scaled=True),),
        (dead(2),),
        (up_split("3u"),),
        (up_split("natural", share=0.5),),
        (duplicates(2), up_split("u"), decoys(2)),
    ],
)
def test_units_that_change_no_output_hide_nothing_and_make_no_kin(models, text, attacked, changes):
    """48 units among up to 384 rows. Which of equal copies stands for a unit is drawn: phi_u sees less order."""
    kin, stranger = (attacked(models[name], *changes) for name in ("base", "stranger"))
    result, after = outcomes(models["base"], kin, text)
    assert after["phi_match_unsigned"].log10_p < -150
    assert after["median_max"].value < 0.05
    for name in ("phi_u", "phi_h", "phi_match", "phi_views"):
        copies = any("duplicates" in change.__qualname__ for change in changes)
        assert after[name].log10_p < (0 if copies and name in ("phi_u", "phi_h") else -10), name
        assert [block.detail.n for block in after[name].blocks] == [48] * 3
    assert "or parts of one unit beside the first, were left out: 0 of " in result.verdict()
    for outcome in outcomes(models["base"], stranger, text, BY_MATCH[:5])[1].values():
        assert outcome.log10_p > -3


def test_what_phi_u_reads_of_models_of_unequal_width_is_planned(models, attacked):
    """The up projections, and, of both, gates and down projections: of 48 and 96 units by 24, three blocks."""
    opened = open_models([models["base"], attacked(models["base"], dead(2)), models["tuned"]])
    planned = plan(opened.models, ["phi_u"], Options())
    with counting() as count:
        run_pairs(opened, ["phi_u"], Options(), progress=False)
    assert count.tensors == planned.bytes_to_read == 3 * 3 * (48 + 96 + 48) * 24 * 4


def test_nothing_dropped_is_said_of_honest_pairs(models, text):
    result, after = outcomes(models["base"], models["tuned"], text)
    assert all(block.detail.dropped is None for outcome in after.values() for block in outcome.blocks)
    assert "left out" not in result.verdict()


def test_the_number_of_a_unit_is_where_it_stood():
    rows = np.eye(5, dtype=np.float32)
    prepared = unit_rows(rows, keep=np.array([True, False, True, False, True]))
    assert prepared.places.tolist() == [0, 2, 4]
    assert prepared.left_out.tolist() == [1, 3]
    np.testing.assert_array_equal(prepared.unit, rows[[0, 2, 4]])
    assert unit_rows(rows).places.tolist() == [0, 1, 2, 3, 4]


def test_one_unit_is_too_few():
    with pytest.raises(InputError, match="W has 1 rows that are not zero, and a matching needs two"):
        alive(np.diag([1.0, 0, 0]), name="W")


@pytest.mark.parametrize("statistic", ["phi_u", "phi_match"])
def test_p_values_of_strangers_with_dead_units_are_uniform(statistic):
    """600 pairs of 24 random units, of which some are dead at random on either side: sizes and the mean of p."""
    rng = np.random.default_rng(3)
    item, tokens = get(statistic), np.zeros((1, 1), np.int64)
    result = []
    for pair in range(600):
        sides = []
        for _ in range(2):
            kept = np.ones(24, bool)
            kept[rng.choice(24, rng.integers(0, 6), replace=False)] = False
            views = [unit_rows(rng.standard_normal((24, 8)).astype(np.float32), keep=kept) for _ in range(2)]
            sides.append((*views, tokens) if statistic == "phi_match" else views[0])
        result.append(item.compare_block(*sides, 0, Options(seed=pair)).log10_p)
    p = 10.0 ** np.array(result)
    for level in (0.01, 0.05, 0.2):
        assert (p <= level).sum() <= 600 * level + 3 * np.sqrt(600 * level * (1 - level))
    assert pvalues.fisher(np.array(result)) > -3
    assert p.mean() > 0.46
