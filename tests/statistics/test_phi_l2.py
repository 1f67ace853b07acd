"""phi_l2 compared with a naive PERMTEST that permutes whole models by hand.

Nothing here goes through `provlab.reading.symmetry` or inner products: the tensors are read by safetensors, and
permuted axis by axis after Table 4 of the paper (Appendix B), a piece of an axis at a time.
"""

import json
import shutil
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from scipy import stats

from provlab import studying
from provlab.arrays import on
from provlab.errors import MissingRoleError, NotComparableError
from provlab.planning.shapes import shape
from provlab.planning.skeleton import Skeleton
from provlab.reading.anatomy import of
from provlab.statistics import phi_l2
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.phi_l2 import BlockWeights, PhiL2, PhiL2Blocks, block_distances, draw_orders
from provlab.statistics.results import BlockResult, Detail

WIDTH, HIDDEN, BLOCKS = 24, 48, 3
OPTIONS = Options(seed=3, n_permutations=9, n_block_permutations=19)
PAIRS = [("base", "tuned"), ("base", "stranger"), ("other", "sibling")]

# the tensors of one Llama block: which axis is the embedding, which the hidden units (Table 4)
AXES = {
    "input_layernorm.weight": ("embedding",),
    "post_attention_layernorm.weight": ("embedding",),
    "self_attn.q_proj.weight": (None, "embedding"),
    "self_attn.k_proj.weight": (None, "embedding"),
    "self_attn.v_proj.weight": (None, "embedding"),
    "self_attn.o_proj.weight": ("embedding", None),
    "mlp.gate_proj.weight": ("units", "embedding"),
    "mlp.up_proj.weight": ("units", "embedding"),
    "mlp.down_proj.weight": ("embedding", "units"),
}


@pytest.fixture(scope="module")
def tensors(models):
    """Every model's tensors, read without provlab."""
    return {name: load_file(f"{folder}/model.safetensors") for name, folder in models.items()}


def opened(models, name):
    return Model.open(models[name])


def of_block(tensors, block):
    prefix = f"model.layers.{block}."
    results = {name.removeprefix(prefix): value.double().numpy() for name, value in tensors.items() if prefix in name}
    assert results.keys() == AXES.keys()
    return results


def naive_distance(a, b, block, embedding=None, units=None):
    """Distance of one block after permuting the first model's, tensor by tensor."""
    orders = {"embedding": embedding, "units": units}
    x, y = of_block(a, block), of_block(b, block)
    total = 0.0
    for name, axes in AXES.items():
        moved = x[name]
        for dimension, axis in enumerate(axes):
            if axis and orders[axis] is not None:
                moved = np.take(moved, orders[axis], axis=dimension)
        total += ((moved - y[name]) ** 2).sum()
    return np.sqrt(total)


def units_of(order, n):
    """Order of all units along an axis of length n, of which the pieces stand in this order and the rest stays."""
    size = n // len(order)
    moved = [piece * size + np.arange(size) for piece in order]
    return np.concatenate([*moved, np.arange(size * len(order), n)])


def copies_by_hand(block, n_copies, seed=3):
    """Orders of the embedding and of the units of one block in each copy."""
    shared, own = (
        draw_orders(seed, n_copies, block, axis, n) for axis, n in ((phi_l2.STREAM, WIDTH), (phi_l2.UNITS, HIDDEN))
    )
    return [(units_of(e, WIDTH), units_of(u, HIDDEN)) for e, u in zip(shared, own, strict=True)]


@pytest.mark.parametrize(("a", "b"), PAIRS)
@pytest.mark.parametrize("pieces", [16, 7])  # 7 divides neither 24 nor 48: some units stay
@pytest.mark.parametrize("slab", [2**22, 100])
def test_whole_model_permtest_is_the_naive_one(a, b, pieces, slab, models, tensors, monkeypatch):
    monkeypatch.setattr(phi_l2, "CHUNKS", pieces)
    monkeypatch.setattr(phi_l2, "chunks", lambda n: min(pieces, n))
    monkeypatch.setattr(phi_l2, "SLAB", slab)
    sources, sizes = [models[a], models[b]], {"seed": 3, "n_permutations": 9}
    (record,) = studying.study(sources, statistics=["phi_l2"], text="-", progress=False, **sizes).records
    outcome = record.outcome
    x, y = tensors[a], tensors[b]
    observed = -sum(naive_distance(x, y, block) for block in range(BLOCKS))
    copies = [copies_by_hand(block, 9) for block in range(BLOCKS)]
    for of_blocks in zip(*copies, strict=True):  # one embedding for all blocks of a copy, and units of its own for each
        assert len({tuple(embedding) for embedding, _ in of_blocks}) == 1
        assert len({tuple(units) for _, units in of_blocks}) == BLOCKS
    permuted = [
        -sum(naive_distance(x, y, block, *orders) for block, orders in enumerate(of_blocks))
        for of_blocks in zip(*copies, strict=True)
    ]
    assert outcome.value == pytest.approx(observed, rel=1e-6)
    ours = -np.sum([block.detail.distances for block in outcome.blocks], axis=0)
    np.testing.assert_allclose(ours, [observed, *permuted], rtol=1e-6)
    p = (1 + sum(value >= observed for value in permuted)) / 10
    assert outcome.log10_p == pytest.approx(np.log10(p), abs=1e-12)
    assert outcome.reach == pytest.approx(-1)
    assert (p == 0.1) == (a == "base" and b == "tuned")


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_the_permtest_of_one_mlp_is_the_naive_one(a, b, models, tensors):
    mlp = [name for name, axes in AXES.items() if "units" in axes]
    for block in range(BLOCKS):
        features = [phi_l2.AllWeights(opened(models, name), phi_l2.MLP_ROLES).block(block) for name in (a, b)]
        result = PhiL2Blocks().compare_block(*features, block, OPTIONS)
        x, y = of_block(tensors[a], block), of_block(tensors[b], block)

        def distance(order, x=x, y=y):
            moved = {name: np.take(x[name], order, axis=AXES[name].index("units")) for name in mlp}
            return np.sqrt(sum(((moved[name] - y[name]) ** 2).sum() for name in mlp))

        observed = distance(np.arange(HIDDEN))
        permuted = np.array([distance(units) for _, units in copies_by_hand(block, 19)])
        assert -result.value == pytest.approx(observed, rel=1e-6)
        assert 10**result.log10_p == pytest.approx((1 + (permuted <= observed).sum()) / 20)


@pytest.mark.parametrize(("n", "expected"), [(1, 1), (5, 5), (24, 12), (48, 16), (257, 16), (11008, 16), (4096, 16)])
def test_an_axis_is_cut_so_that_little_is_left_over(n, expected):
    assert phi_l2.chunks(n) == expected


def test_no_copy_of_a_large_block_is_ever_whole(monkeypatch):
    """New arrays of a block's size cost more than the arithmetic."""
    monkeypatch.setattr(phi_l2, "SLAB", 2**16)
    config = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8}
    layout = of(Skeleton("one", shape("tiny", 1) | config))
    block = {part.name: np.ones(part.shape, np.float32) for part in layout.parts if part.block == 0}
    tracemalloc.start()
    block_distances(BlockWeights(layout, 0, block), BlockWeights(layout, 0, block), seed=3, n_copies=9)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < sum(tensor.nbytes for tensor in block.values()) / 2


def test_no_two_axes_are_permuted_in_step():
    """numpy pads seeds with zeros: streams told apart by length or by a trailing zero alone would be equal."""
    draws = {
        draw_orders(seed, 9, block, axis, 48).tobytes()
        for seed in range(3)
        for block in range(4)
        for axis in (phi_l2.STREAM, phi_l2.UNITS)
    }
    assert len(draws) == 3 * (1 + 4)  # the stream has one order in all blocks


def test_the_copies_of_an_independent_pair_are_exchangeable(models):
    """Rank of the observed distance among its copies, over seeds, where the first model is itself a fresh copy.

    The null made by hand: permute the first model by a group element of the test's own, then ask for its p-value.
    Under exchangeability the p-value is uniform on {1/10, ..., 1}; chi-square over 200 such draws.
    """
    anatomy = opened(models, "base").anatomy
    rng = np.random.default_rng(11)
    units_only = []
    a, b = (phi_l2.AllWeights(opened(models, name)).block(0) for name in ("base", "tuned"))
    for seed in range(200):
        embedding, units = rng.permutation(WIDTH), rng.permutation(HIDDEN)
        moved = {}
        for name, value in a.tensors.items():
            for dimension, axis in enumerate(AXES[name.removeprefix("model.layers.0.")]):
                if axis:
                    value = value.take(embedding if axis == "embedding" else units, axis=dimension)
            moved[name] = value
        results = block_distances(BlockWeights(anatomy, 0, moved), b, seed=seed, n_copies=9)
        units_only.append(sum(d <= results[0] for d in results))
    counts = np.bincount(units_only, minlength=11)[1:]
    assert stats.chisquare(counts).pvalue > 1e-3, counts


def test_unequal_shapes_are_refused_by_name(models, new_model, save_model, tmp_path):
    wide = save_model(new_model(9, intermediate_size=40), tmp_path / "wide")
    with pytest.raises(NotComparableError, match=r"equal shapes, but .*mlp.*weight is .* in base and .* in wide"):
        PhiL2().blocks(opened(models, "base"), Model.open(str(wide)))


@pytest.mark.parametrize("prefix", ["", "module.model."])
def test_tensors_are_held_against_each_other_by_what_they_are_for(prefix, models, tmp_path):
    """The base without its head, its tensors under other names: the same model, closer than every copy."""
    bare = tmp_path / "bare"
    shutil.copytree(models["base"], bare)
    held = {
        prefix + name.removeprefix("model."): value
        for name, value in load_file(bare / "model.safetensors").items()
        if name != "lm_head.weight"
    }
    save_file(held, bare / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((bare / "config.json").read_text())
    (bare / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaModel"]}))
    names = ["phi_l2", "phi_l2_blocks"]
    without, theirs, children = (
        studying.study(list(pair), statistics=names, text="-", progress=False, n_permutations=9).records
        for pair in [(models["base"], str(bare)), (str(bare), models["tuned"]), (models["base"], models["tuned"])]
    )
    assert [record.error for record in without] == [None, None]
    for item in without:
        assert item.outcome.value == pytest.approx(0.0, abs=1e-6)
        assert item.outcome.log10_p == item.outcome.reach
    for item, same in zip(theirs, children, strict=True):
        assert item.outcome.value == pytest.approx(same.outcome.value, rel=1e-9)
        assert item.outcome.log10_p == same.outcome.log10_p


def test_a_block_of_experts_is_refused(models, monkeypatch):
    """Without one MLP per block the Gram matrix would be empty, and its p-value 1 whatever the models."""
    model = opened(models, "base")
    experts = replace(model.anatomy, parts=tuple(p for p in model.anatomy.parts if p.segments[0].role != "up"))
    with pytest.raises(MissingRoleError, match="up"):
        PhiL2().blocks(Model(model.checkpoint, experts), Model(model.checkpoint, experts))


def test_more_permutations_than_agreed_are_not_mixed(models):
    """A block computed with another T cannot be summed with the rest: the sum must refuse, not broadcast."""
    blocks = [
        BlockResult(0, -1.0, -1.0, detail=Detail(distances=[1.0, 2.0])),
        BlockResult(1, -1.0, -1.0, detail=Detail(distances=[1.0])),
    ]
    with pytest.raises(ValueError, match="shape"):
        PhiL2().aggregate(blocks)


def test_the_blocks_as_a_statistic_of_their_own(models):
    """PERMTEST of each MLP on its own, aggregated by Fisher's method, goes below the smallest p of whole models."""
    sources = [models["base"], models["tuned"], models["other"]]
    names = ["phi_l2", "phi_l2_blocks"]
    records = studying.study(sources, statistics=names, text="-", progress=False).records
    for whole, own in zip(records[:3], records[3:], strict=True):
        p = [10**block.log10_p for block in own.outcome.blocks]
        expected = np.log10(stats.combine_pvalues(p, method="fisher").pvalue)
        assert own.outcome.log10_p == pytest.approx(expected, rel=1e-9)
        assert all(block.reach == pytest.approx(-3) for block in own.outcome.blocks)
        assert own.outcome.reach < -6 < whole.outcome.reach
    assert records[3].outcome.log10_p < -5  # base and tuned
    assert records[4].outcome.log10_p > -3


@pytest.mark.parametrize("statistic", [PhiL2(), PhiL2Blocks()])
def test_on_a_device_the_distances_are_those_of_the_cpu(statistic, as_device, monkeypatch):
    """40 pairs of blocks, independent, related, equal and of few values, by slabs of a few rows."""
    config = {"hidden_size": 24, "intermediate_size": 80, "num_attention_heads": 4, "num_key_value_heads": 2}
    layout = of(Skeleton("one", shape("tiny", 1) | config))
    shapes = {part.name: part.shape for part in layout.parts if part.block == 0}
    monkeypatch.setattr(phi_l2, "SLAB", 500)
    sent = []
    for k in range(40):
        rng = np.random.default_rng(k)
        a, b = ({name: rng.standard_normal(size, np.float32) for name, size in shapes.items()} for _ in range(2))
        if k % 4 == 1:
            b = {name: a[name] + np.float32(0.5) * rows for name, rows in b.items()}
        elif k % 4 == 2:
            b = a
        elif k % 4 == 3:
            a, b = ({name: np.sign(rows) for name, rows in side.items()} for side in (a, b))
        sides = BlockWeights(layout, 0, a), BlockWeights(layout, 0, b)
        whole = {"seed": k, "n_copies": 99}
        there = on("cpu")
        distances = block_distances(*sides, **whole, there=lambda rows, go=there: sent.append(rows.shape) or go(rows))
        # the squared distance of equal blocks is a difference of large numbers
        np.testing.assert_allclose(distances, block_distances(*sides, **whole), rtol=2e-6, atol=1e-3)
        as_device.clear()
        on_device = statistic.compare_block(*sides, 0, Options(seed=k))
        assert as_device >= {"_gram", "squared"}
        with monkeypatch.context() as patch:
            patch.setattr("provlab.arrays.at_home", lambda device: True)
            here = statistic.compare_block(*sides, 0, Options(seed=k))
        assert on_device.log10_p == here.log10_p
        assert on_device.value == pytest.approx(here.value, rel=1e-6)
    assert len(sent) == 40 * 2 * len(shapes)  # a tensor of either model at a time


def test_inner_products_are_summed_in_float64_on_a_device(as_device, monkeypatch):
    """Whole numbers, of which those of a slab are exact in float32, and those of all slabs are not."""
    monkeypatch.setattr(phi_l2, "SLAB", 50)
    x = np.full((33, 201), 255, np.float32)
    expected = np.full((1, 1, 1, 1), 255.0**2 * x.size)
    assert expected > 2**24
    assert np.float32(expected) != expected
    assert (phi_l2._gram(on("cpu")(x), on("cpu")(x), 1, 1) == expected).all()


def test_the_blocks_read_no_more_than_the_mlps(models):
    model = opened(models, "base")
    names = PhiL2Blocks().tensors(model, model, 1, OPTIONS)
    assert sorted(names) == sorted(f"model.layers.1.{name}" for name in AXES if name.startswith("mlp."))
    assert list(PhiL2Blocks().prepare(model, OPTIONS).block(1).tensors) == list(names)
