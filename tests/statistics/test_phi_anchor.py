"""phi_ANCHOR: units that were spread over tilted gates are brought together along the gates of the other model.

Random models are as independent as trained ones; the parts of a spread unit, worked by hand, are in the catalogue.
"""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from provlab import api
from provlab.attacks.disguise import disguise
from provlab.engine.pairs import open_models, run_pairs
from provlab.errors import NotComparableError
from provlab.inference.matching import unit_rows
from provlab.reading.canonical import shares
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics import get
from provlab.statistics.options import Options
from provlab.statistics.phi_anchor import BlockUnits, along
from provlab.statistics.results import FEW, BlockResult
from provlab.statistics.two_views import Views

STATISTICS = ["phi_match_unsigned", "phi_anchor"]
TOKENS = np.zeros((1, 8), np.int64)


@pytest.mark.parametrize(("attack", "both_find"), [("fan=0.5", False), ("jitter=0.5", False), ("mirror", True)])
def test_units_spread_over_tilted_gates_are_found_and_strangers_are_not(attack, both_find, models, text, tmp_path):
    disguised = disguise(Checkpoint.open(models["base"]), tmp_path / "new", seed=1, kinds=[attack, "T2", "T3"]).folder

    def log10_p(other):
        records = api.compare(other, str(disguised), statistics=STATISTICS, text=text, progress=False).records
        return [record.outcome.log10_p for record in records]

    matched, anchored = log10_p(models["base"])
    assert (matched < -20) == both_find
    assert anchored < -20
    assert min(log10_p(models["stranger"])) > -3


def parts(gate, up, down, tokens=TOKENS):
    return BlockUnits(Views(unit_rows(gate.astype(np.float32)), unit_rows(up.astype(np.float32)), tokens), down)


def test_parts_of_a_unit_become_the_unit_again_whatever_their_signs():
    rng = np.random.default_rng(0)
    gate, up, down, w = (rng.standard_normal((6, 200)) for _ in range(4))
    tilt = 0.3 * rng.standard_normal((6, 200))
    spread = parts(
        np.concatenate([gate + tilt, tilt - gate]), np.concatenate([up + 5 * w, up - 5 * w]), np.tile(down, (2, 1))
    )
    merged = along(spread, parts(gate, up, down).views)
    assert [len(view) for view in merged[:2]] == [6, 6]
    for view, rows in zip(merged[:2], (gate, up), strict=True):
        np.testing.assert_allclose(np.sort(np.abs(view.unit @ unit_rows(rows).unit.T).max(axis=1)), 1, atol=1e-6)


def test_either_model_may_be_the_anchor_and_the_p_value_is_doubled():
    rng = np.random.default_rng(1)
    gate, up, down, w, tilt = (rng.standard_normal((20, 300)) for _ in range(5))
    whole = parts(gate, up, down)
    spread = parts(
        np.concatenate([gate + tilt, gate - tilt]), np.concatenate([up + 4 * w, up - 4 * w]), np.tile(down, (2, 1))
    )
    statistic = get("phi_anchor")
    first, second = (statistic.compare_block(*pair, 0, Options()) for pair in ((spread, whole), (whole, spread)))
    assert (first.detail.anchor, second.detail.anchor) == (0, 1)
    assert first.log10_p == pytest.approx(first.reach) == second.log10_p
    known = get("phi_match_unsigned").compare_block(whole.views, whole.views, 0, Options())
    assert first.log10_p == pytest.approx(known.log10_p + np.log10(2))
    assert get("phi_match_unsigned").compare_block(spread.views, whole.views, 0, Options()).log10_p > -3


def test_units_that_are_all_nearest_to_one_gate_have_no_order():
    """One anchor leaves a single unit: the other decides. Where both do, the block could say nothing, and says why."""
    rng = np.random.default_rng(2)
    gate, up, down = (rng.standard_normal((20, 300)) for _ in range(3))
    whole, narrow = parts(gate, up, down), parts(gate[:1] + 0.01 * gate, up, down)
    result = get("phi_anchor").compare_block(narrow, whole, 0, Options())
    assert (result.detail.anchor, np.isfinite(result.value)) == (1, True)
    x, y, z = np.eye(3, 300)
    one = parts(np.array([y, x, x + 0.1 * z]), up[:3], down[:3])  # each nearest to the first of the other
    other = parts(np.array([0.9 * y + 0.4 * x, z + 0.3 * y, z + 0.2 * y]), up[3:6], down[3:6])
    both = get("phi_anchor").checked(get("phi_anchor").compare_block(one, other, 0, Options()))
    assert (both.value, both.log10_p, both.reach, both.why, both.left_out) == (0.0, 0.0, 0.0, FEW, False)


def test_a_statistic_that_gives_no_number_is_refused_by_name():
    with pytest.raises(NotComparableError, match=r"phi_anchor gives nan with a log10 p of 0\.0: it has no value"):
        get("phi_anchor").checked(BlockResult(0, float("nan"), 0.0))


def test_units_that_only_imitate_and_write_nothing_are_no_evidence():
    """Copies of the victim's rows in an independent model, each alone at its gate: they agree, and carry no output."""
    rng = np.random.default_rng(2)
    victim, own = ([rng.standard_normal((h, 300)) for _ in range(3)] for h in (60, 40))
    framed = [np.concatenate(rows) for rows in zip(own, [*victim[:2], 1e-3 * victim[2]], strict=True)]
    log10_p = {}
    for known in (False, True):
        sides = [parts(*rows) for rows in (victim, framed)]
        if known:
            written = [shares(gate, up, down) for gate, up, down in (victim, framed)]
            sides = [
                replace(side, views=side.views._replace(written=share))
                for side, share in zip(sides, written, strict=True)
            ]
        log10_p[known] = get("phi_anchor").compare_block(*sides, 0, Options()).log10_p
    assert log10_p[False] < -20  # what agreement alone would say
    assert log10_p[True] > -2


def test_experts_are_compared_as_one_mlp(tiny, text, tmp_path):
    """A model of experts with its copy, and with another model's MLPs, which are independent of it."""
    copy = shutil.copytree(tiny("mixtral"), tmp_path / "copy")
    models = open_models([str(tiny("mixtral")), str(copy), str(tiny("llama"))])
    options = Options(text=text, n_sequences=16, sequence_length=16)
    records = run_pairs(models, ["phi_anchor"], options, progress=False)
    itself, *others = (record.outcome for record in records)
    assert itself.log10_p == pytest.approx(itself.reach)
    assert itself.reach < -5
    assert all(other.log10_p > -3 for other in others)


def test_independent_units_are_rejected_no_more_often_than_the_level_says():
    log10_p = []
    for pair in range(300):
        rng = np.random.default_rng(pair)
        sides = [parts(*(rng.standard_normal((h, 20)) for _ in range(3))) for h in (12, 12 * (1 + pair % 3))]
        log10_p.append(get("phi_anchor").compare_block(*sides, 0, Options(seed=pair)).log10_p)
    p = 10 ** np.array(log10_p)
    for level in (0.05, 0.2):
        assert (p <= level).sum() <= 300 * level + 3 * np.sqrt(300 * level * (1 - level))
