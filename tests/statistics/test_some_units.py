"""Some hidden units of one model among all of the other: which they are, what they cost, and what is said.

Reference values: rows of arrays read whole, Spearman's correlation of a matching done here, bytes by hand, the binomial
law of rejections. Constructions are those of who would frame or hide a model, and knows the rule.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import spread_units
import tiny_models
from scipy import stats

from provlab import api, studying
from provlab.engine.pairs import open_models, run_pairs
from provlab.engine.store import Store
from provlab.engine.table import ResultCache
from provlab.errors import InputError, NotComparableError, ParameterError
from provlab.inference import pvalues
from provlab.inference.matching import match, unit_rows
from provlab.models.checkpoint import Checkpoint
from provlab.models.counting import counting
from provlab.planning.rates import PowerLaw, measure_rates
from provlab.planning.sketch import shapes_of
from provlab.planning.study import estimate, plan
from provlab.report.study_report import StudyReport
from provlab.report.verdict import _smallest_share
from provlab.statistics import get, phi_u
from provlab.statistics.alive import living_rows, some_of
from provlab.statistics.base import Model, Options
from provlab.statistics.phi_match import TOO_FAINT, PhiMatch
from provlab.statistics.phi_u import correlation_with_identity
from provlab.statistics.two_views import viewed

WIDTH, HIDDEN, BLOCKS = 24, 48, 3  # of the tiny models
K = 20


def compare(a, b, **settings):
    return api.compare(a, b, progress=False, **({"units": K, "statistics": ["phi_u"]} | settings))


def by_hand(a, b, block, k=K):
    """log10 p of the first k rows of one model among all of the other, matched here."""
    first, second = (model.anatomy.read(model.checkpoint, "up", block) for model in (a, b))
    return pvalues.spearman(match(first[:k], second).indices).log10_p


@pytest.mark.parametrize("label", ["llama", "phi3", "gpt2", "gpt_neox", "bert_base", "qwen2"])
@pytest.mark.parametrize("shards", [False, True])
def test_the_rows_are_the_first_of_the_role(tmp_path, label, shards):
    """In every layout; only where units are rows that lie together is nothing else read."""
    tiny_models.build(label).save_pretrained(tmp_path / "m", max_shard_size="20KB" if shards else "5GB")
    model = Model.open(str(tmp_path / "m"))
    whole = model.anatomy.read(model.checkpoint, "up", 1)
    with counting() as count:
        some = model.anatomy.read(model.checkpoint, "up", 1, units=5)
    assert np.array_equal(some, whole[:5])
    assert count.tensors == (4 * whole.size if label == "gpt2" else 4 * 5 * whole.shape[1])
    with pytest.raises(InputError, match=r"has \d+ units, fewer than 500: give fewer, or leave units out"):
        model.anatomy.read(model.checkpoint, "up", 1, units=500)


def test_rows_of_a_pickle_are_the_same(tmp_path):
    import torch

    tiny_models.save("llama", tmp_path / "m")
    whole = Checkpoint.open(tmp_path / "m")
    state = {name: whole.tensor(name) for name in whole.tensor_names}
    (tmp_path / "m" / "model.safetensors").unlink()
    torch.save(state, tmp_path / "m" / "pytorch_model.bin")
    result = Model.open(str(tmp_path / "m"), allow_pickle=True)
    name = result.anatomy.tensor_name("up", 0)
    assert np.array_equal(result.checkpoint.array(name, range(3, 7)), state[name].numpy()[3:7])


def test_the_matching_is_that_of_these_rows(models):
    result = compare(models["base"], models["tuned"]).records[0]
    a, b = (Model.open(models[name]) for name in ("base", "tuned"))
    assert [block.log10_p for block in result.outcome.blocks] == [by_hand(a, b, block) for block in range(BLOCKS)]
    assert {block.detail.n for block in result.outcome.blocks} == {K}
    assert {block.detail.floor for block in result.outcome.blocks} == {pvalues.log10_floor(K)}
    assert [block.detail.of_units for block in result.outcome.blocks] == [[HIDDEN, HIDDEN]] * BLOCKS


def test_planted_wrong_rows_give_another_matching(models, monkeypatch):
    """Were other rows taken for the first, their partners would be others."""
    monkeypatch.setattr(phi_u, "some_of", lambda rows, which: some_of(rows, which + 1))
    (record,) = compare(models["base"], models["tuned"], blocks=[0]).records
    assert record.outcome.log10_p != by_hand(*(Model.open(models[name]) for name in ("base", "tuned")), 0)


def test_units_keep_their_places(models):
    """Where some are dead, numbers are those that units have in the file."""
    rows = np.random.default_rng(0).normal(size=(9, 4))
    rows[[1, 6]] = 0
    (living,) = living_rows(rows, name="rows")
    some = some_of(living, np.array([1, 4, 6]))  # of 0, 2, 3, 4, 5, 7, 8
    assert some.places.tolist() == [2, 5, 8]
    assert np.array_equal(some.rows, rows[[2, 5, 8]])


@pytest.mark.parametrize("shuffled", ["fewer", "more"])
def test_strangers_are_rejected_as_often_as_is_said(shuffled):
    """Rows that share strong directions, one side sorted by them: a random order of either side is enough."""
    rng, p = np.random.default_rng(5), []
    for _ in range(600):
        shared = rng.normal(size=(2, 12))
        few, many = (rng.normal(size=(h, 12)) + 2 * rng.normal(size=(h, 2)) @ shared for h in (24, 40))
        few, many = (rows[np.argsort(rows @ shared[0])] for rows in (few, many))
        few, many = (rng.permutation(few), many) if shuffled == "fewer" else (few, rng.permutation(many))
        sides = (unit_rows(rows.astype(np.float32)) for rows in (few, many))
        p.append(correlation_with_identity(*sides, 0, int(rng.integers(2**31)), units=10).log10_p)
    for level in (0.05, 0.01):
        low, high = stats.binom.ppf([1e-4, 1 - 1e-4], len(p), level)
        assert low <= (np.array(p) <= np.log10(level)).sum() <= high


def test_what_is_planned_is_what_is_read(models):
    opened, options = open_models(list(models.values())), Options(units=K)
    planned, whole = (plan(opened.models, ["phi_u"], o) for o in (options, Options()))
    with counting() as count:
        run_pairs(opened, ["phi_u"], options, progress=False)
    assert count.tensors == planned.bytes_to_read == whole.bytes_to_read == 5 * BLOCKS * HIDDEN * WIDTH * 4
    assert planned.largest < whole.largest


@pytest.mark.parametrize("name", ["phi_u", "phi_h", "phi_match", "phi_match_unsigned"])
def test_a_product_is_planned_at_its_share(name):
    models, law = shapes_of(["shape:llama-2-7b*2"]).models, PowerLaw(1, 1.0, 1.0)
    rates = replace(measure_rates(), call=0, easy=law, hard=law)
    whole, some = (estimate(models, [name], Options(units=m), rates, blocks=[0]) for m in (None, 688))
    assert whole.products == pytest.approx(16 * some.products)  # 16 * 688 = 11,008
    assert whole.assignments[0] == pytest.approx(4 * some.assignments[0])  # it grows with the root of the table here


def test_reading_until_settled_takes_it(models):
    with counting() as count:
        result = compare(models["base"], models["stranger"], until_settled=True)
    detail = result.records[0].outcome.detail.until_settled
    assert count.tensors == detail["bytes_read"] == 2 * BLOCKS * HIDDEN * WIDTH * 4


def test_all_blocks_with_all(models):
    result = compare(models["base"], models["tuned"], all_blocks=True)
    assert result.records[0].outcome.log10_p < -5
    assert f"phi_u matched {K} of {HIDDEN} hidden units of each block" in result.verdict()


def test_where_there_are_no_more_units_all_are_compared(models, new_model, save_model, tmp_path):
    some, whole = (compare(models["base"], models["tuned"], units=n) for n in (HIDDEN + 1, None))
    assert [b.as_record() for b in some.records[0].outcome.blocks] == [
        b.as_record() for b in whole.records[0].outcome.blocks
    ]
    assert "hidden units of each block" not in some.verdict()
    narrow = str(save_model(new_model(7, intermediate_size=8), tmp_path / "narrow"))
    result = studying.study([models["base"], models["tuned"], narrow], statistics=["phi_u"], units=K, progress=False)
    assert isinstance(result, StudyReport)
    n = {(record.a, record.b): record.outcome.blocks[0].detail.n for record in result.records}
    assert (n[models["base"], models["tuned"]], n[models["base"], narrow]) == (K, 8)


def test_statistics_that_compare_all_units_refuse(models, text):
    usual = compare(models["base"], models["tuned"], statistics=None, text=text, n_sequences=4, sequence_length=16)
    names = [record.statistic for record in usual.records]
    assert names == ["phi_u", "phi_jsd", "phi_match", "phi_match_unsigned", "phi_unseen"]
    for name in ("phi_l2", "phi_views", "phi_anchor"):
        with pytest.raises(ParameterError, match=f"{name} compares all hidden units, so leave out units"):
            compare(models["base"], models["tuned"], statistics=["phi_u", name])


def test_keys_contain_the_number_and_without_it_are_as_before(models, tmp_path):
    pair = [Model.open(models[name]) for name in ("base", "tuned")]
    store, statistic = Store(tmp_path), get("phi_u")
    keys = [ResultCache(store, statistic, Options(units=units)).key(pair, 0) for units in (None, 8, K, HIDDEN)]
    assert len(set(keys)) == 4
    assert statistic.parameters(Options(seed=3)) == {"seed": 3}
    # records of the time when the first of both models were matched have another name for it
    assert statistic.parameters(Options(seed=3, units=K)) == {"seed": 3, "compared_units": K}
    for units in (None, K):
        compare(models["base"], models["tuned"], store=store, units=units)
    again = [compare(models["base"], models["tuned"], store=store, units=units) for units in (None, K)]
    assert [item.records[0].outcome.blocks[0].detail.n for item in again] == [HIDDEN, K]


def test_a_verdict_says_what_it_rests_on(models):
    result = compare(models["base"], models["stranger"])
    verdict = result.verdict()
    assert "phi_u (one test, level 0.01) does not reject" in verdict
    assert f"phi_u matched {K} of {HIDDEN} hidden units of each block of one model among all of the other." in verdict
    assert "if nothing is rejected, run it without units" in verdict
    whole = compare(models["base"], models["stranger"], units=None)
    assert "hidden units of each block" not in whole.verdict()
    assert result.to_json()["parameters"]["units"] == K


def test_a_partner_that_begins_elsewhere_is_seen(models, tmp_path):
    """A copy whose first half of units was cut off: its first rows have their partners among the last of the other."""

    def cut(gate, up, down, rng):
        return gate[HIDDEN // 2 :], up[HIDDEN // 2 :], down[:, HIDDEN // 2 :]

    folder = spread_units.write(models["base"], tmp_path / "cut", cut)
    part = compare(models["base"], folder)
    assert part.records[0].outcome.log10_p < -20
    assert f"phi_u matched {K} of {HIDDEN // 2} hidden units" in part.verdict()
    (block, *_) = part.records[0].outcome.blocks
    assert np.array_equal(block.matching, np.arange(K) + HIDDEN // 2)


def test_units_that_are_zero_are_left_out(models, tmp_path):
    """The first that are alive are matched; the others of the other side are all there."""
    folder = spread_units.write(models["base"], tmp_path / "off", spread_units.off(3, 30))
    outcome = compare(models["base"], folder).records[0].outcome
    assert [(block.detail.n, block.detail.dropped) for block in outcome.blocks] == [(K, [0, 2])] * BLOCKS
    assert outcome.log10_p < -20


# By activations ------------------------------------------------------------------------------------------------------


def activations(h, common=(), seed=0, digest=0, tokens=64):
    """Units drawn at random, of which some are another's; each writes as much."""
    rng = np.random.default_rng(seed)
    gate, up = (rng.normal(size=(h, tokens)).astype(np.float32) for _ in range(2))
    if len(common):
        other = common[0]
        gate[: len(common[1])], up[: len(common[1])] = (view.rows[common[1]] for view in other[:2])
    made = viewed(gate, up, np.zeros((1, tokens), np.int64), written=np.full(h, 1 / h))
    return made._replace(digest=np.full(32, digest, np.uint8))


def matched(a, b, **settings):
    return get("phi_match").compare_block(a, b, 0, Options(**settings))


def test_units_are_drawn_by_what_either_maker_decides_last():
    """Nobody can have spread, or copied, the units that will be matched alone."""
    drawn = set()
    for own, others in ((1, 2), (1, 3), (4, 2)):
        sides = [activations(200, digest=own), activations(300, digest=others, seed=1)]
        drawn.add(tuple(get("phi_match")._drawn(sides, 200, 0, Options(units=20)).tolist()))
    assert len(drawn) == 3
    assert all(list(some) == sorted(set(some)) and max(some) < 200 for some in drawn)
    again = get("phi_match_unsigned")._drawn(sides, 200, 0, Options(units=20))
    assert tuple(again.tolist()) in drawn  # both forms ask the same units


def test_of_a_copy_so_many_units_are_found_as_are_matched():
    a = activations(200)
    b = activations(300, (a, np.arange(200)), seed=1, digest=1)
    whole, some = matched(a, b), matched(a, b, units=60)
    assert (whole.detail.n, whole.detail.agree, some.detail.n, some.detail.agree) == (200, 200, 60, 60)
    assert whole.log10_p < some.log10_p < -20
    assert some.detail.of_units == [200, 300]
    assert some.matching.shape == (2, 60)
    # what all that agree write is estimated: 60 drawn of 200 that are all of one output and two thirds of the other
    assert some.detail.written == pytest.approx([1, 2 / 3], abs=1e-3)
    assert matched(b, a, units=60).detail.agree == 60


@pytest.mark.parametrize("name", ["phi_match", "phi_match_unsigned"])
def test_strangers_stay_strangers(name):
    p = [
        get(name).compare_block(*(activations(60, seed=2 * k + s, digest=s) for s in (0, 1)), k, Options(units=20))
        for k in range(200)
    ]
    low_p = (np.array([result.log10_p for result in p]) <= np.log10(0.05)).sum()
    assert low_p <= stats.binom.ppf(1 - 1e-4, len(p), 0.05)


def framed(h, n, loud, digest):
    """Strangers, one of which was given n of the other's units: one writes the share `loud`, the others nothing."""
    a = activations(h)
    b = activations(2 * h, (a, np.arange(n)), seed=1, digest=digest)
    written = np.full(2 * h, (1 - loud) / (2 * h - n))
    written[:n] = 1e-5
    written[0] = loud
    return a, b._replace(written=written)


def test_one_loud_unit_lends_the_others_no_weight(monkeypatch):
    """Copies that write 1% must not pass for 5% because one in four units is drawn, whichever are drawn."""
    whole = matched(*framed(200, 150, 0.02, 0))
    assert whole.detail.withheld == TOO_FAINT
    results = [matched(*framed(200, 150, 0.02, digest), units=50) for digest in range(12)]
    assert {result.detail.withheld for result in results} == {TOO_FAINT}
    # planted: an estimate that believes in each unit
    monkeypatch.setattr(PhiMatch, "PART_OF_BAR", 10.0)
    believed = [matched(*framed(200, 150, 0.02, digest), units=50) for digest in range(12)]
    assert any(result.detail.withheld is None and result.log10_p < -2 for result in believed)


def test_without_units_what_is_written_counts_as_it_is():
    written = np.random.default_rng(0).exponential(size=50)
    assert PhiMatch()._counted(written, 1.0, 50) == written.sum()
    alike = np.full(200, 1 / 2000)  # 200 of 2,000 like units agree, of 400 that were drawn: 50% of what is drawn
    assert PhiMatch()._counted(alike, 5.0, 400) == pytest.approx(200 * 0.05 / 100)  # capped, and enough
    assert PhiMatch()._counted(alike, 5.0, 400) >= PhiMatch.WRITTEN


@pytest.mark.parametrize("heavy", [0.0, 1.5])
def test_at_full_size_the_bar_is_no_lower_for_copies_and_no_bar_for_kin(heavy):
    """1,024 of 11,008 are matched: 2,200 copies that write 4% never pass, and half of the own units of a copy do."""
    rng, h, m = np.random.default_rng(0), 11_008, 1024

    def counted(n, share):
        written = np.zeros(h)
        written[:n] = rng.lognormal(sigma=heavy, size=n)
        some = rng.choice(share * written / written.sum(), m, replace=False)
        return PhiMatch()._counted(some[some > 0], h / m, m)

    assert max(counted(2200, 0.04) for _ in range(200)) < PhiMatch.WRITTEN
    assert min(counted(h // 2, 0.5) for _ in range(200)) >= PhiMatch.WRITTEN


def heavy(h, share, seed):
    """Two models of some units in common, each with own lengths of what its units write."""
    rng = np.random.default_rng(seed)
    sides = [activations(h, digest=0, seed=2 * seed)]
    sides.append(activations(h, (sides[0], np.arange(round(share * h))), digest=seed % 256, seed=2 * seed + 1))
    written = [rng.lognormal(size=h) for _ in sides]
    return [side._replace(written=some / some.sum()) for side, some in zip(sides, written, strict=True)]


def outcome_of(h, share, seed, blocks=8, units=40):
    statistic = get("phi_match")
    return statistic.aggregate(
        [
            statistic.compare_block(*heavy(h, share, blocks * seed + k), k, Options(units=units, seed=seed))
            for k in range(blocks)
        ]
    )


def test_the_share_that_is_said_is_found_by_some_units():
    """A few drawn units count only where many of them agree, and the verdict must not promise less than that."""
    h, bar = 400, -2.0
    nothing = outcome_of(h, 0.0, 0)
    share = _smallest_share(nothing, bar)
    assert share is not None
    rejected = [(each := outcome_of(h, share, seed)).log10_p is not None and each.log10_p <= bar for seed in range(12)]
    assert np.mean(rejected) >= 0.75
    # as if units counted wherever they agree: what was promised would not have been found
    blocks = [block.about(least=None) for block in nothing.blocks]
    believed = _smallest_share(replace(nothing, blocks=blocks), bar)
    rejected = [
        (each := outcome_of(h, believed, seed)).log10_p is not None and each.log10_p <= bar for seed in range(12)
    ]
    assert believed < share
    assert np.mean(rejected) < 0.75


def test_units_of_many_blocks_that_may_not_count_acquit_nobody():
    """A third of the units is the other's: all units reject, and of some no block alone says that it is silenced."""
    results = [outcome_of(400, 0.35, seed, blocks=20) for seed in range(8)]
    assert np.mean([result.log10_p is None or result.log10_p <= -2 for result in results]) > 0.8
    together = [
        r for r in results if r.log10_p is None and 2 * sum(b.detail.withheld is not None for b in r.blocks) <= 20
    ]
    assert together
    assert all(f"{TOO_FAINT}: so in" in result.detail.withheld for result in together)
    assert outcome_of(400, 0.33, 0, blocks=2, units=None).log10_p < -5
    assert all(outcome_of(400, 0.0, seed).log10_p is not None for seed in range(8))
    # planted: each block is asked alone
    blocks = [replace(block, detail=replace(block.detail, own={})) for block in together[0].blocks]
    assert get("phi_match").aggregate(blocks).log10_p > -2


def test_units_that_were_spread_are_missed_by_few_as_by_all_and_it_is_said():
    """Whether a model has so many units that the other's may be spread in it is asked of all units of both."""
    a = activations(100)
    b = activations(250, seed=1, digest=1)
    for units in (None, 30):
        result = matched(a, b, units=units)
        assert "the second has 250 hidden units that write anything" in result.detail.blind
        assert result.detail.power == 0


def test_experts_are_compared_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(phi_u, "has_experts", lambda model, block: True)
    tiny_models.save("llama", tmp_path / "m")
    model = Model.open(str(tmp_path / "m"))
    for name in ("phi_u", "phi_match"):
        with pytest.raises(NotComparableError, match="has experts, which are compared whole: leave units out"):
            get(name).prepare(model, Options(units=4))


def test_a_plan_counts_what_is_quick(run):
    status, out, _ = run("plan", "shape:llama-2-7b*2", "--quick", "--blocks", 0, "--json", "-")
    assert status == 0
    assert json.loads(out)["comparisons"] == 3 + 2  # of the block, and of tables and outputs
    for words, named in (((), True), (("--quick",), False), (("--statistic", "phi_u"), False)):
        status, out, _ = run("plan", "shape:llama-2-7b*3", *words)
        assert (status, "--quick: " in out) == (0, named)
