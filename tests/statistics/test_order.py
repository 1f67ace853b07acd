"""Models whose units were sorted, and blocks that stand in one order: neither makes independent models look related.

Independent models are drawn; what they have in common is what all trained models have: rows whose means differ.
"""

import numpy as np
import pytest
import torch
from planted import record
from scipy import stats

import provlab
from provlab.attacks.catalogue import Step
from provlab.attacks.state import Aim, AttackedModel
from provlab.engine.pairs import _agreed
from provlab.inference import pvalues
from provlab.inference.matching import unit_rows
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics import get, order
from provlab.statistics.aggregate import aggregated
from provlab.statistics.options import Options
from provlab.statistics.order import OrderedRows, dependent, findings, groups
from provlab.statistics.phi_u import correlation_with_identity
from provlab.statistics.results import BlockResult, Detail

pytestmark = pytest.mark.filterwarnings("error")

H, D, L = 96, 32, 4


def rows(rng, sort=None, h=H):
    """Rows of one block of a drawn model, ``(h, D)``; with `sort`, in the order of that number of each row."""
    drawn = rng.normal(size=(h, D)) + 0.5 * rng.normal(size=(h, 1))
    return drawn if sort is None else drawn[np.argsort(sort(drawn))]


def mean(matrix):
    return matrix.mean(axis=1)


def component(matrix):
    return matrix @ np.linalg.svd(matrix, full_matrices=False)[2][0]


def outward(matrix):
    return np.abs(mean(matrix) - np.median(mean(matrix)))


def prepared(blocks):
    return [OrderedRows.of(unit_rows(block.astype(np.float32)), called="up rows") for block in blocks]


def compared(a, b, seed=0):
    """Outcome of two models by phi_U, and what Fisher's method says of the same blocks as they stand."""
    sides = zip(prepared(a), prepared(b), strict=True)
    blocks = [correlation_with_identity(x, y, k, seed + k) for k, (x, y) in enumerate(sides)]
    return aggregated(blocks), pvalues.fisher([block.log10_p for block in blocks])


def within(sort, rng):
    """Sorted in each half."""
    return np.concatenate([rows(rng, sort, H // 2), rows(rng, sort, H // 2)])


def shaken(sort, rng):
    """Sorted, then one unit in four exchanged with others."""
    drawn = rows(rng, sort)
    some = rng.choice(H, H // 4, replace=False)
    drawn[some] = drawn[rng.permutation(some)]
    return drawn


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: rows(rng, mean),
        lambda rng: rows(rng, lambda x: -mean(x)),
        lambda rng: rows(rng, outward),
        lambda rng: within(mean, rng),
        lambda rng: shaken(mean, rng),
    ],
)
def test_two_models_sorted_by_one_rule_have_no_p_value(make):
    """As they stand they agree beyond 10^-4 in every case; 10^-10 and less by the mean of the rows."""
    rng = np.random.default_rng(0)
    a, b = ([make(rng) for _ in range(L)] for _ in range(2))
    outcome, as_they_stand = compared(a, b)
    assert as_they_stand < -4
    assert outcome.log10_p is None
    assert outcome.reach == 0
    assert all(finding["sorted"] and "up rows" in finding["by"] for finding in outcome.detail.order)
    assert "both models were sorted after training" in outcome.why
    assert outcome.detail.paper_log10_p is None


def test_sorted_beside_as_trained_keeps_its_p_value_and_its_size():
    """Theorem 2 needs a random order of one model: one sorted, by the rule that frames best, the other as drawn."""
    rng = np.random.default_rng(1)
    log10_p = []
    for pair in range(300):
        outcome, _ = compared([rows(rng, mean) for _ in range(L)], [rows(rng) for _ in range(L)], 10 * pair)
        assert outcome.log10_p is not None or outcome.detail.order[1]["log10_p"] <= -3
        log10_p.append(outcome.log10_p or 0.0)
    for level in (0.05, 0.01):
        assert stats.binom.sf(np.sum(np.array(log10_p) <= np.log10(level)) - 1, 300, level) > 1e-3


def test_the_finding_is_a_p_value():
    """On models as drawn at most 5% below 0.05, 1% below 0.01, 0.1% below 0.001, over keys, sides and blocks."""
    rng = np.random.default_rng(2)
    n = 2000
    values = np.empty(n)
    for model in range(n):
        orders = [block.order for block in prepared(rows(rng, h=24) for _ in range(2))]
        values[model] = findings(orders, np.arange(2))["log10_p"]
    for level in (0.05, 0.01, 0.001):
        assert stats.binom.sf((values <= np.log10(level)).sum() - 1, n, level) > 1e-3


def test_equal_rows_stand_in_no_order():
    """Rows that are all one, or of two kinds in a random order, have ties that the places do not decide."""
    rng = np.random.default_rng(3)
    ones, kinds = np.ones((1000, 5)), rng.normal(size=(2, 7))[rng.integers(0, 2, 999)]
    for matrix in (ones, kinds, np.tile(rng.normal(size=(1, 13)), (4099, 1))):
        (block,) = prepared([matrix])
        assert findings([block.order], np.arange(1))["log10_p"] > -3


@pytest.mark.parametrize("noise", [0, 0.2])
def test_repeated_blocks_count_once(noise):
    """Two independent models, each with one block stored 12 times: as they stand, 16% are rejected at 0.01."""
    rng = np.random.default_rng(4)
    n, repeats = 150, 12
    whole, raw = np.empty(n), np.empty(n)
    for pair in range(n):
        drawn = rows(rng, h=64), rows(rng, h=64)
        sides = [[block + noise * rng.normal(size=block.shape) for _ in range(repeats)] for block in drawn]
        outcome, raw[pair] = compared(*sides, 100 * pair)
        whole[pair] = outcome.log10_p or 0.0
        assert len(set(outcome.detail.together)) == 1
    assert np.mean(raw <= -2) > 0.1
    for level in (0.05, 0.01):
        assert stats.binom.sf(np.sum(whole <= np.log10(level)) - 1, n, level) > 1e-3


def test_blocks_that_one_model_repeats_are_independent_and_stay_apart():
    rng = np.random.default_rng(5)
    block = rows(rng)
    outcome, as_they_stand = compared([block] * L, [rows(rng) for _ in range(L)])
    assert outcome.detail.together is None
    assert outcome.log10_p == as_they_stand
    # beside a model that is sorted, whose blocks stand in one order too, they are one
    outcome, _ = compared([block] * L, [rows(rng, mean) for _ in range(L)])
    assert len(set(outcome.detail.together)) == 1


def test_groups_are_the_blocks_that_repeat_and_no_others():
    rng = np.random.default_rng(6)
    a, b = rows(rng), rows(rng)
    shuffled = a[rng.permutation(H)]
    orders = [block.order for block in prepared([a, b, a + 0.5 * rng.normal(size=a.shape), shuffled, b])]
    assert groups(orders).tolist() == [0, 1, 0, 3, 1]


@pytest.mark.parametrize(
    ("a", "b", "together"),
    [
        ([0, 0, 0], [0, 1, 2], [[0], [1], [2]]),
        ([0, 0, 2], [0, 0, 2], [[0, 1], [2]]),
        ([0, 0, 2, 2], [0, 1, 1, 3], [[0], [1], [2], [3]]),
        ([0, 0, 2, 2, 4], [0, 1, 0, 1, 4], [[0, 1, 2, 3], [4]]),
    ],
)
def test_blocks_are_together_where_their_orders_close_a_circle(a, b, together):
    labels = dependent([np.array(a), np.array(b)])
    assert sorted(np.flatnonzero(labels == label).tolist() for label in set(labels.tolist())) == sorted(together)


# On models -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_rule(new_model, tmp_path_factory):
    """Two independent Llamas, sorted by a rule: ``(source, source)``."""
    root = tmp_path_factory.mktemp("sorted")

    def make(rule):
        made = []
        for seed in (1, 2):
            model = new_model(seed, num_hidden_layers=2, intermediate_size=96)
            with torch.no_grad():
                for layer in model.model.layers:
                    layer.mlp.up_proj.weight.add_(0.2 * torch.randn(96, 1))
                    layer.mlp.gate_proj.weight.mul_(torch.rand(96, 1) + 0.2)
            folder = root / f"{rule}-{seed}"
            model.save_pretrained(root / f"plain-{rule}-{seed}")
            state = AttackedModel.read(Checkpoint.open(str(root / f"plain-{rule}-{seed}")))
            aim = Aim(np.random.default_rng(0), float(rule))
            made.append(str(Step("sorted", float(rule)).attack.apply(state, aim).write(folder)))
        return made

    return make


def test_what_one_statistic_finds_takes_the_p_value_of_all_that_rest_on_order(by_rule):
    """The product of the lengths shows in phi_H's weights; in up rows alone, which phi_U reads, only faintly."""
    a, b = by_rule(3)
    result = provlab.compare(a, b, statistics=["phi_u", "phi_h", "phi_l2"], text="-", progress=False, n_permutations=9)
    outcomes = {record.statistic: record.outcome for record in result.records}
    assert outcomes["phi_h"].detail.order[0]["by"] == "product of the lengths"
    for outcome in outcomes.values():
        assert outcome.log10_p is None
        assert "both models were sorted after training" in outcome.why


@pytest.mark.parametrize("backwards", [False, True])
def test_it_does_so_wherever_it_stands_among_them(backwards):
    sorts, other = record("phi_h", None, order=[{}, {}], why="sorted"), record("phi_u", -5.0, order=[{}, {}])
    free = record("phi_match", -5.0)
    records = [sorts, other, free][:: -1 if backwards else 1]
    why = {each.statistic: each.outcome.why for each in _agreed(records)}
    assert why == {"phi_h": "sorted", "phi_u": "sorted", "phi_match": None}


def test_each_statistic_finds_a_sort_by_itself(by_rule):
    a, b = by_rule(0)
    for name in ("phi_u", "phi_h", "phi_l2", "phi_l2_blocks"):
        (record,) = provlab.compare(a, b, statistics=[name], text="-", progress=False, n_permutations=9).records
        assert record.outcome.log10_p is None, name


def test_streams_that_are_sorted_have_no_p_value_by_phi_e_and_phi_l2():
    rng = np.random.default_rng(7)
    tables = [(rows(rng, lambda x: (x**2).sum(axis=1)).T * 1.0, np.arange(D)) for _ in range(2)]
    tables = [(np.ascontiguousarray(table, dtype=np.float32), codes) for table, codes in tables]
    statistic = get("phi_e")
    outcome = statistic.aggregate([statistic.compare_block(*tables, None, Options())])
    assert outcome.log10_p is None
    assert "embedding" in outcome.detail.order[0]["by"]
    sorted_stream = order.described({"length": np.arange(50.0)}, np.arange(50.0))
    drawn = order.described({"length": rng.normal(size=50)}, rng.normal(size=50))
    detail = {"distances": [1.0, 2.0], "order": [drawn, drawn]}
    for streams, p in (([sorted_stream] * 2, None), ([sorted_stream, drawn], np.log10(0.5))):
        assert get("phi_l2").aggregate([BlockResult(0, 1.0, 0.0, detail=Detail(**detail, stream=streams))]).log10_p == p


def test_blocks_that_repeat_are_one_block_to_phi_l2():
    """The first of two blocks in one order counts alone: one of two copies is closer there, and none by the sum."""
    rngs = map(np.random.default_rng, (1, 2))
    drawn = [order.described({"length": rng.normal(size=50)}, rng.normal(size=50)) for rng in rngs]
    for second, p in ((drawn[0], 2 / 3), (drawn[1], 1 / 3)):
        blocks = [
            BlockResult(block, -1.0, 0.0, detail=Detail(distances=distances, order=[own] * 2, stream=[drawn[0]] * 2))
            for block, (own, distances) in enumerate([(drawn[0], [2.0, 1.0, 3.0]), (second, [1.0, 5.0, 9.0])])
        ]
        outcome = get("phi_l2").aggregate(blocks)
        assert (outcome.value, outcome.log10_p) == (-3.0, pytest.approx(np.log10(p)))


@pytest.mark.parametrize("public", [True, False])
def test_a_mask_that_both_models_share_is_named(public, new_model, tmp_path):
    """A 90% mask that both share, and masks of their own, on two independent models."""
    sources = []
    for seed in (1, 2):
        model = new_model(seed, hidden_size=64, intermediate_size=128)
        generator = torch.Generator().manual_seed(0 if public else seed)
        with torch.no_grad():
            for layer in model.model.layers:
                layer.mlp.up_proj.weight.mul_(torch.rand(128, 64, generator=generator) < 0.1)
        model.save_pretrained(tmp_path / str(seed))
        sources.append(str(tmp_path / str(seed)))
    result = provlab.compare(*sources, statistics=["phi_u"], text="-", progress=False)
    assert ("100% of the zeros in the up projections" in result.verdict()) == public
