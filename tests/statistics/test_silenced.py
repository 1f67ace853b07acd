"""A thief adds units, or takes a block's away, so that a test by units should fall silent: it finds, or it says so.

Each construction keeps the outputs, or nearly, and comes under T2, so that order says nothing. What bites, bites the
rules as they were: shares of a total that two units inflate, gates compared by their rows alone.
"""

import numpy as np
import pytest
import silenced
from silenced import (
    dead_block,
    dilute_bias,
    disguised,
    faint_rest,
    loud_bias,
    loud_tied,
    no_norm,
    small_gates,
    spread_in_two,
    tied,
)

from provlab import api
from provlab.reading import canonical
from provlab.reading.checkpoint import Checkpoint
from provlab.running.activations import mlp_activations
from provlab.running.predictions import next_token_log_probs
from provlab.statistics import get
from provlab.statistics.options import Options

SIZES = {"n_sequences": 16, "sequence_length": 32, "progress": False}
SPLIT_AND_PADDED = ("split=3", "signs", "scales", "heads", "values", "pad=16")


def outcomes(a, b, text, statistics, **settings):
    result = api.compare(str(a), str(b), statistics=list(statistics), text=text, **SIZES, **settings)
    return result, {record.statistic: record.outcome for record in result.records}


def divergence(a, b):
    tokens = np.random.default_rng(0).integers(0, 50, (4, 24))
    p, q = (np.concatenate(list(next_token_log_probs(Checkpoint.open(str(x)), tokens))) for x in (a, b))
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


@pytest.mark.parametrize(
    ("changes", "cost"),
    [
        ((dilute_bias,), 1e-6),
        ((loud_bias,), 1e-4),
        ((tied,), 1e-2),
        ((loud_tied,), 0.05),
        ((small_gates,), 1e-2),
        (("mirror=3", dilute_bias), 1e-5),
        (SPLIT_AND_PADDED, 1e-5),
    ],
    ids=[
        "dilution",
        "loud",
        "tied",
        "loud and tied",
        "cubic",
        "mirror and dilution",
        "split and padded",
    ],
)
def test_units_put_beside_the_others_hide_none_of_them(models, text, tmp_path, changes, cost):
    copy = disguised(models["base"], tmp_path / "copy", *changes, usual=("T2",))
    assert abs(divergence(models["base"], copy)) < cost
    for name, outcome in outcomes(models["base"], copy, text, ["phi_match_unsigned", "phi_anchor"])[1].items():
        assert outcome.log10_p < -50, name
    stranger = disguised(models["stranger"], tmp_path / "stranger", *changes, usual=("T2",))
    for name, outcome in outcomes(models["base"], stranger, text, ["phi_match_unsigned", "phi_anchor"])[1].items():
        assert outcome.log10_p is None or outcome.log10_p > -3, name


def test_two_units_once_hid_all_others(models, text, tmp_path, monkeypatch):
    """The plant: shares of what all units write, constants too."""

    def inflated(gate, up, down, units=canonical.AS_THEY_ARE, act=canonical.silu):
        each = np.square(canonical._lengths(down)) * np.square(act(gate) * up).mean(axis=1)
        return each / each.sum()

    monkeypatch.setattr("provlab.running.activations.shares", inflated)
    copy = disguised(models["base"], tmp_path / "copy", dilute_bias, usual=("T2",))
    outcome = outcomes(models["base"], copy, text, ["phi_match"])[1]["phi_match"]
    assert outcome.log10_p is None  # and yet it is not silent
    assert "write less than" in outcome.why


@pytest.mark.parametrize("tilt", [0.3, 0.7])
def test_units_that_were_spread_are_found_or_said_to_go_unseen(models, text, tmp_path, tilt):
    """At 0.3 the gates of the parts are alike, at 0.7 no longer: what is left to see is how many units there are."""
    copy = disguised(models["base"], tmp_path / "copy", f"fan={tilt}", usual=("T2",))
    names = ["phi_match", "phi_match_unsigned"]
    result, by_name = outcomes(models["base"], copy, text, names)
    for name in names:
        fooled = by_name[name]
        assert fooled.log10_p > -3, name
        assert {block.reach for block in fooled.blocks} == {0.0}
    assert result.outcome == "could not be tested"
    assert "A copy may go unseen by phi_match, phi_match_unsigned (3 of 3 blocks: copy has" in result.verdict()
    assert "phi_anchor" in result.verdict()
    unasked = api.compare(models["base"], copy, text=text, **SIZES)
    assert {record.statistic: record.outcome for record in unasked.records}["phi_anchor"].log10_p < -20
    assert unasked.outcome in ("rejected", "same function")


def test_units_that_matter_may_be_spread_among_few_more(models, text, tmp_path):
    """A copy without its faint units has each of the others twice, and 1.25 times as many units in all."""
    base = disguised(models["base"], tmp_path / "base", faint_rest, usual=())
    copy = disguised(base, tmp_path / "copy", spread_in_two, usual=("T2",))
    names = ["phi_match", "phi_match_unsigned"]
    result, by_name = outcomes(base, copy, text, names)
    for name in names:
        fooled = by_name[name]
        assert fooled.log10_p > -3, name
        assert all("a copy each of whose units was spread" in block.why for block in fooled.blocks)
    assert result.outcome == "could not be tested"
    unasked = api.compare(base, copy, text=text, **SIZES)  # more units, if few more: phi_anchor joins
    assert {record.statistic: record.outcome for record in unasked.records}["phi_anchor"].log10_p < -20
    assert unasked.outcome == "rejected"


def test_units_spread_over_as_many_are_said_to_stand_in_groups(models, text, tmp_path):
    """Two copies, each spread by itself: as many units in either, so that their number says nothing."""
    copies = [disguised(models["base"], tmp_path / f"copy{n}", "fan=0.3", usual=("T2",), seed=n) for n in (0, 1)]
    result, by_name = outcomes(*copies, text, ["phi_match"])
    fooled = by_name["phi_match"]
    assert fooled.log10_p > -3
    assert all("groups of like gates" in block.why for block in fooled.blocks)
    assert {block.reach for block in fooled.blocks} == {0.0}
    assert "A copy may go unseen by phi_match (3 of 3 blocks: copy0 has most of its output" in result.verdict()


def test_a_copy_spread_over_experts_could_not_be_tested(models, text, tmp_path):
    """Each of four experts has as many units as the base, all together four times as many."""
    copy = disguised(models["base"], tmp_path / "copy", "fan=0.7", "experts=4", usual=())
    result, by_name = outcomes(models["base"], copy, text, ["phi_match_unsigned"])
    assert by_name["phi_match_unsigned"].log10_p > -3
    assert result.outcome == "could not be tested"
    assert api.compare(models["base"], copy, text=text, **SIZES).outcome in ("rejected", "same function")


def test_a_spread_copy_with_a_block_more_could_not_be_tested(models, text, tmp_path):
    """All blocks meet all, and none could have found its partner: the pair is not said to be independent."""
    copy = disguised(models["base"], tmp_path / "copy", "identity=1", "fan=0.3", usual=("T2",))
    result, by_name = outcomes(models["base"], copy, text, ["phi_match"])
    fooled = by_name["phi_match"]
    assert fooled.detail.all_blocks["shape"] == [3, 4]
    assert fooled.log10_p > -3
    assert {block.reach for block in fooled.blocks} == {0.0}
    assert result.outcome == "could not be tested"
    assert "A copy may go unseen by phi_match (3 of 3 blocks: copy has" in result.verdict()
    result, by_name = outcomes(models["base"], copy, text, ["phi_anchor"])
    assert by_name["phi_anchor"].log10_p < -10
    assert result.outcome == "rejected"


DEAD = {
    "MLP": ("gate", "up", "down"),
    **{role: (role,) for role in ("gate", "up", "down")},
}
BY_BLOCK = ("phi_u", "phi_h", "phi_match", "phi_match_unsigned", "phi_anchor", "phi_views", "phi_l2_blocks")


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("kind", [*DEAD, "norm"])
def test_a_block_without_units_is_left_out_by_itself(models, text, tmp_path, kind, side):
    change = no_norm if kind == "norm" else lambda state, rng: dead_block(state, rng, 1, DEAD[kind])
    copy = disguised(models["base"], tmp_path / "copy", change, usual=())
    pair = (models["base"], copy)[:: 1 - 2 * side]
    result, by_name = outcomes(*pair, text, BY_BLOCK)
    assert None not in by_name.values()
    left = {name for name, o in by_name.items() if any(block.left_out for block in o.blocks)}
    assert {"phi_h", "phi_match", "phi_match_unsigned", "phi_anchor"} <= left
    assert ("phi_u" in left) == (kind in ("up", "MLP"))
    for name in BY_BLOCK[:6]:
        outcome = by_name[name]
        assert outcome.log10_p < -50, name
        assert [block.block for block in outcome.blocks] == [0, 1, 2]
        if name in left:
            assert outcome.blocks[1].log10_p == outcome.blocks[1].reach == 0
            assert outcome.log10_p == get(name).aggregate([outcome.blocks[0], outcome.blocks[2]]).log10_p
    assert "1 of 3 blocks: copy has fewer than two hidden units there" in result.verdict()
    assert "fewer than two" in result.to_json()["statistics"]["phi_h"]["blocks"][1]["why"]


def test_no_block_with_units_is_no_p_value(models, text, tmp_path):
    def all_dead(state, rng):
        for block in range(3):
            state = dead_block(state, rng, block)
        return state

    copy = disguised(models["base"], tmp_path / "copy", all_dead, usual=())
    result, by_name = outcomes(models["base"], copy, text, ["phi_h", "phi_match"])
    for outcome in by_name.values():
        assert outcome.log10_p is None
        assert "fewer than two hidden units" in outcome.why
    assert result.outcome == "could not be tested"


def test_only_the_blocks_that_are_asked_for_are_recorded(models, text, monkeypatch):
    looked = []
    real = canonical.merged
    monkeypatch.setattr("provlab.running.activations.merged", lambda *a, **k: looked.append(1) or real(*a, **k))
    whole = outcomes(models["base"], models["tuned"], text, ["phi_match", "phi_h"])[1]
    assert len(looked) == 2 * 2 * 3
    looked.clear()
    some = outcomes(models["base"], models["tuned"], text, ["phi_match", "phi_h"], blocks=[1])[1]
    assert len(looked) == 2 * 2
    for name, outcome in some.items():
        assert outcome.blocks[0] == whole[name].blocks[1]


def test_blocks_above_the_last_that_is_asked_do_not_run(models):
    network = Checkpoint.open(models["base"]).load_model()
    ran = []
    for layer in network.model.layers:
        layer.mlp.register_forward_hook(lambda *_: ran.append(1))
    tokens = np.random.default_rng(0).integers(0, 50, (2, 24))
    kept = mlp_activations(network, tokens, kinds=("gate", "up", "units", "written"), blocks=[0])
    assert len(ran) == 1
    assert [rows.shape[0] > 0 for rows in kept["gate"]] == [True, False, False]
    assert kept["written"][0].sum() == pytest.approx(1)


def test_what_the_thief_writes_costs_nothing_and_is_loud(models, tmp_path):
    """The constructions are what they say: outputs stay, and what was added is a thousand times as loud."""
    copy = disguised(models["base"], tmp_path / "copy", dilute_bias, usual=())
    assert abs(divergence(models["base"], copy)) < 1e-6
    state = silenced.AttackedModel.read(Checkpoint.open(copy))
    lengths = state.part("down", 0).norm(dim=0)
    assert lengths[-2:].min() > 1000 * lengths[:-2].max()


def test_the_same_units_whatever_their_order_and_whatever_is_padded():
    """Rows that differ only where nothing flows are one gate by what they give, and several by their numbers."""
    rng = np.random.default_rng(0)
    gate, up, down = (rng.standard_normal((20, 16)).astype(np.float32) for _ in range(3))
    x = np.vstack([rng.standard_normal((12, 200)), np.zeros((4, 200))]).astype(np.float32)
    twice = np.tile(gate, (2, 1))
    twice[20:, 12:] = rng.standard_normal((20, 4))
    w = rng.standard_normal((20, 16)).astype(np.float32)
    ups, downs = np.vstack([up + w, w]), np.vstack([down, -down])
    hidden = canonical.silu(twice @ x) * (ups @ x)
    activity = np.linalg.norm(hidden, axis=1)
    assert len(canonical.merged(twice, ups, downs, activity)) == 0
    units = canonical.merged(twice, ups, downs, activity, on_text=twice @ x)
    rows = canonical.applied(units, ups @ x, "up")
    assert rows.any(axis=1).sum() == 20
    order = rng.permutation(40)
    moved = canonical.merged(twice[order], ups[order], downs[order], activity[order], on_text=(twice @ x)[order])
    again = canonical.applied(moved, (ups @ x)[order], "up")
    lengths = [np.sort(np.linalg.norm(some, axis=1)) for some in (rows, again)]
    np.testing.assert_allclose(*lengths, rtol=1e-4)


def test_options_say_nothing_of_blocks():
    assert "blocks" not in Options(blocks=(1,)).as_record()
