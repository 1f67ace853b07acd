"""The word that a verdict comes to: each construction that once brought about the wrong one, and sizes of the rule."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from planted import comparison, record, says

import provlab
from provlab import statistics
from provlab.attacks.disguise import disguise
from provlab.errors import NotComparableError
from provlab.inference import allowing, power, pvalues
from provlab.inference.matching import match, unit_rows
from provlab.reading.checkpoint import Checkpoint
from provlab.report.comparison import Comparison
from provlab.report.decide import NOT_REJECTED, ORDER, REJECTED, ROWS, SAME, UNTESTED
from provlab.report.family import FamilyOfTests
from provlab.report.findings import share_seen
from provlab.report.lineage import Lineage
from provlab.report.outcome import ALIKE, ROUNDINGS
from provlab.report.study_report import StudyReport
from provlab.statistics.base import CALIBRATED, Features, Statistic
from provlab.statistics.options import Options
from provlab.statistics.order import OrderedRows
from provlab.statistics.phi_match import GateAndUp
from provlab.statistics.phi_u import correlation_with_identity
from provlab.statistics.results import BlockResult, Outcome

SMALL = {"n_permutations": 19, "n_sequences": 8, "sequence_length": 32, "progress": False}


@pytest.fixture
def compare(text):
    def of(a, b, *names, **settings):
        return provlab.compare(str(a), str(b), statistics=list(names) or None, text=text, **SMALL, **settings)

    return of


@pytest.fixture
def changed(save_model, tmp_path):
    """Write a model of a folder after `change(network)`."""

    def of(folder, change, name="changed"):
        from transformers import LlamaForCausalLM

        network = LlamaForCausalLM.from_pretrained(folder)
        with torch.no_grad():
            change(network)
        return str(save_model(network, tmp_path / name))

    return of


# One function --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", [("T1", "T2", "T3"), ("T5",), ("split=3", "T2"), ("pad=16", "identity=1", "T1")])
def test_no_exact_disguise_of_a_copy_is_another_function(compare, models, tmp_path, kinds):
    disguise(Checkpoint.open(models["base"]), tmp_path / "new", seed=1, kinds=kinds)
    result = compare(models["base"], tmp_path / "new")
    assert result.outcome == SAME
    assert says(result, "tested", "same", n=256)
    alone = compare(models["base"], tmp_path / "new", "phi_jsd")
    assert alone.outcome == SAME
    assert says(alone, "tested", "same", dtype="float32")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_copy_that_was_stored_in_fewer_bits_is_the_same_up_to_these(compare, models, changed, dtype):
    copy = changed(models["base"], lambda network: network.to(dtype), str(dtype))
    result = compare(models["base"], copy, "phi_jsd")
    assert result.outcome == SAME
    assert says(result, "tested", "same", dtype=str(dtype).removeprefix("torch."))
    assert result.records[0].outcome.value > 1e-9  # beyond what float32 explains


def test_what_is_nearly_one_function_is_not_one(compare, models, tmp_path):
    disguise(Checkpoint.open(models["base"]), tmp_path / "new", seed=1, kinds=("noise=0.001",))
    result = compare(models["base"], tmp_path / "new", "phi_u", "phi_jsd")
    assert result.outcome == ORDER


def test_two_models_that_say_the_same_of_every_input_are_not_one_function(compare, models, changed):
    """Heads of zeros: all outputs are uniform, and agree to the last digit."""
    sides = [changed(models[n], lambda network: network.lm_head.weight.zero_(), n) for n in ("base", "stranger")]
    result = compare(*sides, "phi_u", "phi_match_unsigned", "phi_jsd")
    assert result.records[2].outcome.value == 0
    assert result.outcome == UNTESTED  # neither reads the text


# Not rejected ------------------------------------------------------------------------------------------------------


def outputs(value, spread=0.4, rounding=5e-14):
    """A record of phi_jsd, planted."""
    item = record("phi_jsd", None, n=2048, rounding=rounding, spread=spread, unit=2.0**-24)
    return replace(item, outcome=replace(item.outcome, value=value))


NOTHING = {"phi_u": -0.3, "phi_match_unsigned": -0.2}


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        (0.07, NOT_REJECTED),  # as the zoo's independent models
        (0.5 * ALIKE * 0.4, UNTESTED),
        (20 * ROUNDINGS * 5e-14, UNTESTED),
        (0.9 * ROUNDINGS * 5e-14, SAME),
    ],
)
def test_outputs_as_those_of_kin_leave_the_question_open(value, outcome):
    result = comparison(NOTHING)
    result = replace(result, records=(*result.records, outputs(value)))
    assert result.outcome == outcome
    if outcome == UNTESTED:
        assert says(result, "why", "phi_jsd", bound=0.01)
    if outcome == SAME:
        assert says(result, "tested", "no_hit")


def reaching(name, log10_p, reach):
    """A record that could have given this log10 p."""
    return replace(record(name, log10_p), outcome=Outcome(0.1, log10_p, (), reach))


@pytest.mark.parametrize("reach", [0.0, -0.5])
def test_the_silence_of_a_test_that_could_not_have_rejected_says_nothing(reach):
    silenced = reaching("phi_match_unsigned", -0.1, reach)
    result = replace(comparison({"phi_u": -0.3}), records=(record("phi_u", -0.3), silenced))
    assert result.outcome == UNTESTED
    assert "phi_match_unsigned cannot reject here: its smallest p is" in result.verdict()
    able = reaching("phi_match_unsigned", -0.1, -100.0)
    assert replace(result, records=(record("phi_u", -0.3), able)).outcome == NOT_REJECTED


def test_a_dead_block_and_redrawn_rows_hide_nothing_that_is_taken_for_independence(compare, models, changed, tmp_path):
    """Zeros in one block, a shuffle and other rows for unseen tokens: nearly nothing, and once *not rejected*."""
    dead = changed(models["base"], lambda network: network.model.layers[1].mlp.down_proj.weight.zero_())
    disguise(Checkpoint.open(dead), tmp_path / "new", seed=1, kinds=("T1", "T2", "T3", "redraw=0.3"))
    assert compare(models["base"], tmp_path / "new").outcome != NOT_REJECTED


def test_the_bar_is_that_of_the_correction():
    """One more test at the bar is rejected, and one above it is not, by Holm and by Benjamini and Yekutieli."""
    log10_p = np.log10([1e-9, 1e-4, 0.3, 0.5, 0.9])
    for fdr in (False, True):
        family = FamilyOfTests(("phi_u",) * 5, log10_p, np.full(5, -9.0), fdr=fdr)
        for shift, rejected in ((-1e-6, True), (1e-6, False)):
            changed = np.where(np.arange(5) == 3, family.bar + shift, log10_p)
            assert replace(family, log10_p=changed).rejected[3] == rejected


# Power -------------------------------------------------------------------------------------------------------------


def common_units(share, rng, h=96, width=32, blocks=4, positions=256):
    """Two models' features, of whose units this share are the same in each block, in another order."""
    tokens = np.zeros((1, positions), np.int64)
    sides = [([], []), ([], [])]
    for _ in range(blocks):
        inputs = rng.normal(size=(width, positions))
        first, second = (rng.normal(size=(2, h, width)) for _ in range(2))
        first[:, : round(share * h)] = second[:, : round(share * h)]
        for side, rows in zip(sides, (first, second), strict=True):
            order = rng.permutation(h)
            for view, of in zip(side, rows, strict=True):
                view.append(np.asarray(of[order] @ inputs, np.float32))
    return [GateAndUp(*side, tokens) for side in sides]


def unsigned(sides, seed):
    statistic = statistics.get("phi_match_unsigned")
    pairs = [(a, b) for a, b in zip(*([s.block(k) for k in range(len(s.gate))] for s in sides), strict=True)]
    return statistic.aggregate([statistic.compare_block(*pair, k, Options(seed=seed)) for k, pair in enumerate(pairs)])


def test_the_share_that_would_have_been_found_is_found():
    """60 pairs that have as much in common as is said, and 60 with half as much."""
    rng = np.random.default_rng(0)
    bar = float(np.log10(0.01))
    share = share_seen(unsigned(common_units(0.0, rng), 0), bar)
    assert 0.1 < share < 0.4
    shares = [
        np.mean([unsigned(common_units(some, rng), seed).log10_p <= bar for seed in range(60)])
        for some in (share, share / 2)
    ]
    assert shares[0] >= 0.78  # of 0.9: three standard deviations below
    assert shares[1] < 0.4


def test_the_figure_stands_in_the_verdict(compare, models):
    result = compare(models["base"], models["other"], "phi_match_unsigned", all_blocks=True)
    assert says(result, "could see", "share", power="90%", name="phi_match_unsigned")


def test_more_units_or_blocks_show_less_in_common():
    shares = [
        power.smallest_share([h] * L, [h - allowing.allowance(h)] * L, -2.0)
        for h, L in ((48, 1), (48, 4), (256, 4), (11_008, 32))
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.08  # 6% of these units are allowed for
    assert power.smallest_share([4], [1], -2.0) is None


@pytest.mark.parametrize("n", [1, 2, 3, 43, 237, 11_008])
def test_units_are_read_off_the_floor(n):
    assert power.units_that_count(pvalues.log10_floor(n)) == n


# Rows of one origin --------------------------------------------------------------------------------------------------


def test_copied_rows_say_nothing_of_the_rest(compare, models, changed, text):
    """The stranger with the base's unseen rows, turned into its own stream: no output on the text changes."""
    from transformers import AutoTokenizer, LlamaForCausalLM

    read = np.unique(AutoTokenizer.from_pretrained(models["base"])(text)["input_ids"])
    unseen = np.setdiff1d(np.arange(300), read)

    def trained(network):  # rows of the tokens that the text has are longer
        network.get_input_embeddings().weight[read] *= 4

    base, stranger = (changed(models[name], trained, name) for name in ("base", "stranger"))
    theirs = LlamaForCausalLM.from_pretrained(base).get_input_embeddings().weight.detach()

    def take(network):
        mine = network.get_input_embeddings().weight
        left, _, right = torch.linalg.svd(theirs[read].T @ mine[read], full_matrices=False)
        mine[unseen] = theirs[unseen] @ left @ right

    framed = changed(stranger, take, "framed")
    assert compare(stranger, framed, "phi_u", "phi_jsd").outcome == SAME  # nothing shows from outside
    result = compare(base, framed)
    p = {item.statistic: item.outcome.log10_p for item in result.records if item.outcome}
    assert p["phi_unseen"] < -50
    assert result.outcome == ROWS
    assert says(result, "tested", "rows", by_rows="phi_unseen")


# By order alone ------------------------------------------------------------------------------------------------------

RULES = {
    "first weight": lambda up: up[:, 0],
    "even less odd": lambda up: up[:, ::2].sum(1) - up[:, 1::2].sum(1),
    "a public direction": lambda up: up @ torch.randn(up.shape[1], generator=torch.Generator().manual_seed(9)),
    "place of the largest": lambda up: up.abs().argmax(1) + 0.01 * up.abs().amax(1),
}


def by_rule(rule):
    def sort(network):
        for layer in network.model.layers:
            order = torch.argsort(RULES[rule](layer.mlp.up_proj.weight))
            for matrix in (layer.mlp.up_proj, layer.mlp.gate_proj):
                matrix.weight.copy_(matrix.weight[order])
            layer.mlp.down_proj.weight.copy_(layer.mlp.down_proj.weight[:, order])

    return sort


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_strangers_that_were_sorted_by_one_rule_are_not_accused(rule, changed, new_model, save_model, tmp_path, text):
    """45 pairs of ten models, by a rule that no key of the check is like; at 0.01 one time in 1,000 has 4 or more."""
    sources = []
    for seed in range(10):
        plain = save_model(new_model(20 + seed, intermediate_size=96), tmp_path / f"plain{seed}")
        sources.append(changed(plain, by_rule(rule), f"sorted{seed}"))
    names = ["phi_u", "phi_match", "phi_match_unsigned"]
    whole = provlab.study(sources, statistics=names, text=text, **SMALL)
    words = []
    for pair in combinations(sources, 2):
        records = tuple(item for item in whole.records if (item.a, item.b) == pair)
        models = tuple(model for model in whole.models if model["source"] in pair)
        words.append(Comparison(models, records, whole.options).outcome)
    assert words.count(REJECTED) < 4
    assert words.count(ORDER) >= 4  # which is what phi_u alone once accused them by
    part = [provlab.compare(*sources[:2], statistics=["phi_u"], progress=False, **some).outcome for some in PARTS]
    assert "rejected" not in part


PARTS = ({"blocks": [0]}, {"quick": True})


# A guard travels with the statistic ----------------------------------------------------------------------------------


class Columns(Features):
    def __init__(self, model):
        self.model = model

    def block(self, block):
        down = self.model.anatomy.read(self.model.checkpoint, "down", block)
        return unit_rows(np.ascontiguousarray(down.T), name="down columns")


class PhiDown(Statistic):
    """A reader's own, as the protocol asks for no more: columns of the down projections, in their order."""

    name = "phi_down"
    reads = "down projections"

    def prepare(self, model, options):
        return Columns(model)

    def compare_block(self, a, b, block, options):
        partners = match(a.unit, b.unit).indices
        result = pvalues.spearman(partners)
        return BlockResult(block, result.rho, result.log10_p, pvalues.log10_floor(len(partners)))


class PhiDownChecked(PhiDown):
    name = "phi_down_checked"
    assumptions = "one of the two models stands in the order that training left"

    def compare_block(self, a, b, block, options):
        sides = [OrderedRows.of(rows, called="down columns") for rows in (a, b)]
        return correlation_with_identity(*sides, block, 0)


@pytest.fixture
def own(monkeypatch):
    monkeypatch.setattr(statistics, "REGISTRY", dict(statistics.REGISTRY))
    monkeypatch.setattr(statistics, "_loaded", dict(statistics._loaded))
    return statistics.register


@pytest.fixture
def sorted_pair(new_model, save_model, changed, tmp_path):
    """Two strangers whose units stand in the order of the mean of their down columns."""

    def sort(network):
        for layer in network.model.layers:
            order = torch.argsort(layer.mlp.down_proj.weight.mean(0))
            for matrix in (layer.mlp.up_proj, layer.mlp.gate_proj):
                matrix.weight.copy_(matrix.weight[order])
            layer.mlp.down_proj.weight.copy_(layer.mlp.down_proj.weight[:, order])

    plain = [save_model(new_model(seed, intermediate_size=160), tmp_path / f"plain{seed}") for seed in (1, 2)]
    return [changed(folder, sort, f"sorted{seed}") for seed, folder in enumerate(plain)]


def test_a_permutation_statistic_without_a_check_of_order_is_refused(own, sorted_pair, compare):
    own(PhiDown)
    blocks = [PhiDown().prepare(model, Options()).block(0) for model in opened(sorted_pair)]
    assert PhiDown().compare_block(*blocks, 0, Options()).log10_p < -3  # what it would say of two strangers
    with pytest.raises(NotComparableError, match="nothing checks whether its units were sorted: compare OrderedRows"):
        compare(*sorted_pair, "phi_down")
    result = compare(*sorted_pair, "phi_down", "phi_match_unsigned")
    assert "Not run: phi_down (gives p-values, and nothing checks" in result.verdict()


def test_with_the_check_sorted_strangers_get_no_p_value(own, sorted_pair, compare):
    own(PhiDownChecked)
    outcome = compare(*sorted_pair, "phi_down_checked", "phi_u").records[0].outcome
    assert outcome.log10_p is None
    assert "both models were sorted after training" in outcome.why


def test_what_nobody_calibrated_decides_nothing(own, models, compare):
    """Neither in the family, nor in the outcome; said to be calibrated, it counts, as one that reads the order."""
    own(PhiDownChecked)
    result = compare(models["base"], models["tuned"], "phi_down_checked", "phi_match_unsigned")
    assert result.records[0].outcome.log10_p < -10
    assert result.outcome == UNTESTED
    assert result.family.size == 1
    assert "Uncalibrated, and decides nothing: phi_down_checked 10^-" in result.verdict()
    alone = compare(models["base"], models["tuned"], "phi_down_checked")
    assert says(alone, "tested", "none")
    own(type("Calibrated", (PhiDownChecked,), {"warrant": CALIBRATED}))
    assert compare(models["base"], models["tuned"], "phi_down_checked").outcome == ORDER


def opened(sources):
    from provlab.statistics.model import Model

    return [Model.open(source) for source in sources]


def test_marks_of_the_librarys_own_statistics():
    marks = {
        "phi_u": "order",
        "phi_match_unsigned": "units",
        "phi_unseen": "rows",
        "phi_e": "order",
        "phi_axes": "rows",
    }
    assert {name: statistics.get(name).evidence for name in marks} == marks


# Studies and scripts -------------------------------------------------------------------------------------------------


def test_a_study_has_the_same_words(models, text):
    sources = [models[name] for name in ("base", "tuned", "other")]
    names = ["phi_u", "phi_match_unsigned", "phi_unseen"]
    report = provlab.study(sources, statistics=names, text=text, **SMALL)
    words = report.outcomes()
    assert words[sources[0], sources[1]] == ROWS
    assert words[sources[0], sources[2]] == words[sources[1], sources[2]]
    assert words[sources[0], sources[2]] in (NOT_REJECTED, UNTESTED)
    told = report.to_json()["outcomes"]
    assert {item["outcome"] for item in told} == set(words.values())
    for item in told:  # as the comparison of the pair alone has it
        assert (item["price"] is not None) == (item["outcome"] == NOT_REJECTED)
    assert f"{sources[0]} and {sources[1]}: rows of one origin, phi_u" in " ".join(str(report).split())


def test_a_study_of_planted_tests_reads_each_pair_for_itself():
    kept = {"sources": ("/a", "/b", "/c"), "statistics": ("phi_u", "phi_match_unsigned")}
    records = [
        record(name, p, ("/a", other))
        for other, p_u, p_match in (("/b", -20.0, -0.1), ("/c", -20.0, -20.0))
        for name, p in (("phi_u", p_u), ("phi_match_unsigned", p_match))
    ]
    report = StudyReport((), tuple(records), Options(), lineage=Lineage.of(kept["sources"]), **kept)
    assert report.outcomes() == {("/a", "/b"): ORDER, ("/a", "/c"): REJECTED}


def test_a_script_names_the_outcomes_that_it_fails_on(run, models):
    """phi_u alone rejects by order alone: that is no rejection, and has a word of its own."""
    for command in ("compare", "study"):
        arguments = (command, models["base"], models["tuned"], "--statistic", "phi_u", "--fail-on")
        status = {word: run(*arguments, word)[0] for word in ("rejected", "by-order-alone", "rejected,by-order-alone")}
        assert status == {"rejected": 0, "by-order-alone": 1, "rejected,by-order-alone": 1}
    status, _, error = run(*arguments, "sorted")
    assert status == 2
    assert (
        "there is no outcome 'sorted'; there are identical, equal-in-content, same-function, rejected, rows-of-one"
        in error
    )


def test_what_nobody_calibrated_does_not_bear_out_an_order(own):
    """An order costs nothing, and a test of unknown size beside it says nothing of units in any order."""
    free = {"name": "phi_free", "evidence": "units"}
    own(type("Free", (PhiDownChecked,), free))
    assert comparison({"phi_u": -40.0, "phi_free": -40.0}).outcome == ORDER
    own(type("Calibrated", (PhiDownChecked,), free | {"warrant": CALIBRATED}))
    assert comparison({"phi_u": -40.0, "phi_free": -40.0}, primary="phi_u").outcome == REJECTED
