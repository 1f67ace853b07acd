"""Plans from shapes alone: what is counted is what the files hold, hours follow from the rates, nothing is fetched."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
import tiny_models
from synthetic import synthesise

from provlab import zoo
from provlab.arrays import of, on
from provlab.engine import device as device_products
from provlab.engine.pairs import open_models, run_pairs
from provlab.errors import CheckpointError, InputError
from provlab.models.checkpoint import Checkpoint
from provlab.models.counting import counting
from provlab.planning import rates, report
from provlab.planning.laws import LAWS
from provlab.planning.rates import PowerLaw, Rates, fit, measure_rates
from provlab.planning.shapes import shape
from provlab.planning.sketch import shapes_of
from provlab.planning.study import estimate, plan
from provlab.statistics import USUAL
from provlab.statistics.options import Options

OPTIONS = Options()
# a machine of round numbers: an assignment of n rows takes (n / 1000)^2 or ten times as many seconds
RATES = Rates(
    product=1e11,
    forward=1e11,
    threads=2.0,
    prepared=1e8,
    read=1e9,
    hashed=1e9,
    turned=1e9,
    ordered=1e8,
    lengths=1e8,
    near=1e8,
    decomposed=1e9,
    call=0.0,
    permuted=1e8,
    divergence=1e7,
    easy=PowerLaw(1000, 1.0, 2.0),
    hard=PowerLaw(1000, 10.0, 2.0),
    cores=2,
)


def planned(*sources, statistics=("phi_u",), **settings):
    return estimate(shapes_of(sources).models, statistics, OPTIONS, RATES, **settings)


def test_210_pairs_at_7b_by_hand():
    """The sums on paper: 21 x 32 matrices of 11,008 x 4,096 in two bytes, 210 x 32 products and assignments of them."""
    result = planned("shape:llama-2-7b*21")
    matrix = 11_008 * 4096
    assert result.plan.tensors == 21 * 32
    assert result.plan.bytes_to_read == 21 * 32 * matrix * 2
    assert result.plan.bytes_pair_by_pair == 20 * result.plan.bytes_to_read
    assert result.plan.comparisons == 210 * 32
    assert result.disk == pytest.approx(21 * 32 * 2 * matrix / 1e9)
    assert result.reading == pytest.approx(21 * 32 * (matrix / 1e9 + matrix / 1e8))
    assert result.order == pytest.approx(21 * 32 * matrix / 1e8)
    assert result.products == pytest.approx(210 * 32 * 2 * 11_008 * matrix / 1e11)
    assert result.assignments == pytest.approx((210 * 32 * 11.008**2, 2100 * 32 * 11.008**2))
    assert result.hashing == result.loading == result.passes == result.canonical == 0.0


def test_what_one_pass_leaves_is_prepared_once_for_both_forms_of_phi_match():
    """Rows of 2,048 tokens by gate and by up, and pairs of units that are near; each of several workers makes them."""
    names, units = ("phi_match", "phi_match_unsigned"), 11_008
    both = planned("shape:llama-2-7b*2", statistics=names)
    alone = planned("shape:llama-2-7b*2", statistics=names[:1])
    apart = planned("shape:llama-2-7b*2", statistics=names, workers=2)
    assert both.reading == alone.reading == pytest.approx(2 * 32 * 2 * units * 2048 / 1e8)
    assert both.others == alone.others == pytest.approx(2 * 32 * units**2 / 1e8)
    assert apart.others == 2 * both.others


def test_every_expert_is_matched(tmp_path):
    sources = [str(tiny_models.save("mixtral", tmp_path / name)) for name in "ab"]
    anatomy = shapes_of(sources).models[sources[0]].anatomy
    (units, width), experts, blocks = anatomy.shape("up.0", 0), len(anatomy.mlps(0)), anatomy.n_blocks
    result = planned(*sources)
    assert experts > 1
    assert result.products == pytest.approx(blocks * experts * 2 * units**2 * width / 1e11)
    assert result.assignments[0] == pytest.approx(blocks * experts * (units / 1000) ** 2)
    numbers = 2 * blocks * experts * units * width
    whole = result.plan.bytes_to_hash  # files are hashed, and then lie in the system's cache
    assert result.disk == pytest.approx(whole / 1e9)
    assert result.reading == pytest.approx(numbers / 1e9 + numbers / 1e8)


def test_the_clock_counts_threads_or_workers():
    item, eight = planned("shape:tiny*3"), planned("shape:tiny*3", workers=8)
    once = item.disk + item.reading + item.order
    assert item.seconds[0] == pytest.approx(once + item.products / 2 + item.assignments[0])
    assert eight.seconds[1] == pytest.approx(eight.cpu_seconds[1] / 8)


def test_two_models_are_hashed_and_read_side_by_side(tmp_path):
    pair = planned(*(str(tiny_models.save("llama", tmp_path / name)) for name in "ab"))
    half = (pair.hashing + pair.reading + pair.order) / 2
    assert pair.hashing > 0
    assert pair.seconds[0] == pytest.approx(pair.disk + half + pair.products / 2 + pair.assignments[0])


def test_activations_take_a_pass_over_every_model():
    """One pass multiplies each weight of the blocks once a token, and attention adds to it."""
    result = planned("shape:llama-2-7b*2", statistics=["phi_match"])
    blocks = 32 * (4 * 4096**2 + 3 * 11_008 * 4096)
    tokens = OPTIONS.n_sequences * OPTIONS.sequence_length
    assert len(result.plan.passes) == 2
    assert 2 * 2 * blocks * tokens / 1e11 < result.passes < 1.5 * 2 * 2 * blocks * tokens / 1e11
    shares = 11_008 * 4096 / 1e8 + 2 * 512 * 11_008 * 4096 / 1e11  # of the output, at 512 positions
    assert result.canonical == pytest.approx(2 * 32 * ((3 * 11_008 * 4096 + 11_008**2) / 1e8 + shares))
    assert result.others == pytest.approx(32 * 2 * 11_008**2 / 1e8)  # units in groups, of either model
    assert result.products == pytest.approx(32 * 2 * 2 * 11_008**2 * tokens / 1e11)


def test_comparisons_without_a_matching_by_hand():
    """Every weight of a block once, whatever the number of copies; 32 x 64 distributions over 32,000 tokens."""
    block = 4 * 4096**2 + 3 * 11_008 * 4096 + 2 * 4096
    result = planned("shape:llama-2-7b*2", statistics=["phi_l2", "phi_jsd"])
    assert result.left_out == ()
    assert result.others == pytest.approx(32 * block / 1e8 + 2048 * 32_000 / 1e7)


def test_a_model_is_loaded_once_and_run_for_each_kind_of_features():
    """phi_match, its unsigned form and phi_jsd share a run; there the head makes 32,000 numbers a token."""
    names = ["phi_h", "phi_match", "phi_match_unsigned", "phi_jsd"]
    result = planned("shape:llama-2-7b*2", statistics=names)
    single = planned("shape:llama-2-7b*2", statistics=["phi_match"])
    numbers, tokens = 6_738_415_616, OPTIONS.n_sequences * OPTIONS.sequence_length
    rounded = 2 * OPTIONS.sequence_length  # tokens that are read once more
    head = 1.3 * 2 * 32_000 * 4096 * (tokens + rounded) / 1e11 + 0.4 * (tokens + rounded) * 32_000 / 1e7
    inside = numbers - 2 * 32_000 * 4096 - 4096
    # a block is turned into float32 for each batch of 16 sequences: of one run, or of two and a short one
    assert single.loading == pytest.approx(2 * (1.25 * (numbers - inside) + 0.45 * 2 * inside) / 1e9)
    assert result.loading == pytest.approx(2 * (1.25 * (numbers - inside) + 0.45 * 5 * inside) / 1e9)
    assert result.passes == pytest.approx((2 + rounded / tokens) * single.passes + 2 * head)
    alone = planned("shape:llama-2-7b*2", statistics=["phi_h"])
    assert result.canonical == pytest.approx(alone.canonical + single.canonical)
    assert result.plan.bytes_to_read == 2 * 2 * numbers + 2 * 32 * 3 * 11_008 * 4096 * 2  # MLPs again, for their keys


def test_what_another_statistic_recorded_needs_no_run():
    """phi_ANCHOR takes the activations of phi_MATCH, and has a run of its own where it is alone."""
    match, anchor, both = (
        planned("shape:llama-2-7b*2", statistics=names)
        for names in (["phi_match"], ["phi_anchor"], ["phi_match", "phi_anchor"])
    )
    assert both.passes == match.passes == anchor.passes > 0
    assert both.loading == match.loading


def test_one_process_reads_a_block_once_and_several_once_a_statistic():
    """The default set on two models of 13.5 GB: 54 GB in one process."""
    numbers, blocks, table = 6_738_415_616, 32 * (4 * 4096**2 + 3 * 11_008 * 4096 + 2 * 4096), 32_000 * 4096
    result, apart = (
        planned("shape:llama-2-7b*2", statistics=USUAL),
        planned("shape:llama-2-7b*2", statistics=USUAL, workers=2),
    )
    assert result.plan.bytes_to_read == 2 * 2 * (numbers + blocks + table)
    mlps = 32 * 11_008 * 4096
    assert apart.plan.bytes_to_read == result.plan.bytes_to_read + 2 * 2 * (3 + 1) * mlps
    # keys of the MLP's weights once, beside those of phi_u's rows, phi_h's activations and phi_l2's stream
    others = 2 * (mlps + 32 * 11_008 * 2048 + mlps)
    assert result.order == pytest.approx((2 * 3 * mlps + others) / 1e8)
    assert apart.order == pytest.approx((2 * 2 * 3 * mlps + others) / 1e8)


def test_activations_wait_as_rows_and_are_compared_beside_their_unit_rows():
    """Gate and up activations of 2,048 tokens, four bytes a number; eight while a block of two models is compared."""
    whole = planned("shape:llama-2-7b*2", statistics=["phi_match", "phi_match_unsigned"]).plan
    views = 2 * 11_008 * 2048
    assert whole.waiting == 2 * 32 * 4 * views
    assert whole.smallest == 2 * 8 * views + 8 * 11_008**2
    outside, block = 2 * 32_000 * 4096 + 4096, 4 * 4096**2 + 3 * 4096 * 11_008 + 2 * 4096
    assert whole.largest == 4 * (outside + block)  # of a model that runs
    rounded = replace(OPTIONS, dtype="float16")  # what bfloat16 is not exact in
    sketch = shapes_of(("shape:llama-2-7b*2",))
    assert estimate(sketch.models, ["phi_match"], rounded, RATES).plan.largest == 2 * 6_738_415_616


def test_models_run_at_the_pace_of_their_own_library():
    """On AMD's processors torch's products take twice as long as numpy's."""
    here = planned("shape:llama-2-7b*2", statistics=["phi_match"])
    models = shapes_of(["shape:llama-2-7b*2"]).models
    slower = estimate(models, ["phi_match"], OPTIONS, replace(RATES, forward=RATES.forward / 2))
    assert slower.passes == pytest.approx(2 * here.passes)
    assert (slower.products, slower.canonical) == (here.products, here.canonical)


def test_files_that_fit_into_memory_come_from_the_disk_once():
    whole = planned("shape:llama-2-7b*2", statistics=USUAL).plan
    assert whole.from_disk(100 * 10**9) == 4 * 6_738_415_616
    assert whole.from_disk(20 * 10**9) == whole.bytes_to_read


def test_the_rates_of_a_device_are_by_its_clock():
    """A thousand times the speed there, for products and runs; no thread of the processor shares them.

    Other work there has rates that were measured there.
    """
    here = planned("shape:llama-2-7b*2", statistics=["phi_match"])
    sketch = shapes_of(["shape:llama-2-7b*2"])
    there = estimate(sketch.models, ["phi_match"], OPTIONS, replace(RATES, forward=1e14, device_product=1e14))
    assert there.products == pytest.approx(here.products / 1000)
    assert there.passes == pytest.approx(here.passes / 1000)
    shares = 2 * 32 * 2 * 512 * 11_008 * 4096 / 1e11  # of the output
    assert there.canonical == pytest.approx(here.canonical - shares * (1 - 1 / 1000))
    assert there.assignments == here.assignments
    saved = [
        assigned / 2 for assigned in there.assignments
    ]  # by two cores, side by side; two models are read in threads
    assert there.seconds == pytest.approx(np.subtract(there.cpu_seconds, saved) - there.reading / 2)
    saved = (here.products + here.passes + here.hashing + here.reading + here.order) / 2
    assert here.seconds[0] == pytest.approx(here.cpu_seconds[0] - saved)


def test_on_sixteen_cores_products_alone_are_divided():
    """Sixteen threads that are busy or spin: a product takes 16 CPU seconds in a second, an assignment one."""
    sketch = shapes_of(["shape:llama-2-7b*2"])
    many = replace(RATES, threads=16.0, cores=16)
    two, sixteen = (estimate(sketch.models, ["phi_u", "phi_unseen"], OPTIONS, rates) for rates in (RATES, many))
    assert two.cpu_seconds == sixteen.cpu_seconds
    threaded = two.products + two.others
    assert two.seconds[0] - sixteen.seconds[0] == pytest.approx(threaded * (1 / 2 - 1 / 16))


def test_a_statistic_without_a_law_is_named():
    result = planned("shape:tiny*2", statistics=["phi_u", "huref_a"])
    assert result.left_out == ("huref_a",)
    assert result.plan.bytes_to_read > planned("shape:tiny*2").plan.bytes_to_read


def test_shapes_are_those_of_the_files(tmp_path):
    """A folder and the named shape give the same plan, bytes included."""
    for name in ("a", "b"):
        synthesise(shape("tiny"), tmp_path / name, seed=ord(name))
    folders = planned(str(tmp_path / "a"), str(tmp_path / "b")).plan
    named = planned("shape:tiny*2").plan
    assert folders.bytes_to_read == named.bytes_to_read
    assert folders.largest == named.largest


@pytest.mark.parametrize("statistic", LAWS)
def test_the_law_of_bytes_is_what_a_study_reads(models, text, statistic):
    """Counted where tensors are read, all pairs together; phi_anchor runs the models, too."""
    options = replace(OPTIONS, text=text, n_sequences=4, sequence_length=16)
    opened = open_models([models["base"], models["tuned"], models["stranger"]])
    with counting() as count:
        records = run_pairs(opened, [statistic], options, progress=False)
    assert [record.error for record in records if record.error] == []
    planned = plan(opened.models, [statistic], options).bytes_to_read
    assert count.tensors == pytest.approx(planned, rel=0.01)  # a norm is not planned for


def test_no_tensor_is_read(tmp_path, monkeypatch):
    for name in ("a", "b"):
        synthesise(shape("tiny"), tmp_path / name)
    for way in ("array", "tensor"):
        monkeypatch.setattr(Checkpoint, way, lambda *arguments: pytest.fail("a tensor was read"))
    assert planned(str(tmp_path / "a"), str(tmp_path / "b")).plan.jobs


def test_what_cannot_be_known_is_refused_with_its_reason(tmp_path):
    sketch = shapes_of(["shape:tiny", "shape:tiny-pruned", str(tmp_path / "none"), "shape:giant"])
    assert list(sketch.models) == ["shape:tiny", "shape:tiny-pruned"]
    assert "does not exist" in sketch.refused[str(tmp_path / "none")]
    assert "giant is no known shape" in sketch.refused["shape:giant"]


def test_no_zoo_model_is_trained(monkeypatch):
    monkeypatch.setattr(zoo, "locate", lambda name: pytest.fail("a model was trained"))
    sketch = shapes_of(["zoo:oak@smoke", "shape:tiny*2"])
    assert "is not trained yet" in sketch.refused["zoo:oak@smoke"]


@pytest.mark.parametrize(
    ("sources", "error", "message"),
    [
        (["shape:tiny"], InputError, "at least two"),
        (["shape:tiny", "shape:tiny"], InputError, "more than once: shape:tiny"),
        (["shape:tiny", "./none"], CheckpointError, "does not exist"),
    ],
)
def test_fewer_than_two_models_are_no_study(sources, error, message):
    with pytest.raises(error, match=message):
        shapes_of(sources)


def test_a_plan_needs_a_worker():
    with pytest.raises(InputError, match="workers"):
        planned("shape:tiny*2", workers=0)


# Rates ----------------------------------------------------------------------------------------------------------------


def test_a_power_law_is_found_again():
    law = fit({n: 2e-9 * n**2.5 for n in (256, 512, 1024, 2048)})
    assert law.exponent == pytest.approx(2.5)
    assert law(8192) == pytest.approx(2e-9 * 8192**2.5)


def test_one_size_grows_with_the_cube():
    assert fit({256: 0.1}).exponent == 3.0


def test_this_machine_has_rates(monkeypatch):
    monkeypatch.setattr("provlab.planning.rates._SIZES", (64, 128))
    result = measure_rates()
    speeds = (result.product, result.prepared, result.read, result.hashed, result.permuted, result.divergence)
    assert min(*speeds, result.turned, result.ordered, result.lengths, result.near, result.decomposed, result.call) > 0
    assert 1 / 20 < result.forward / result.product < 20  # operations of a CPU second, both
    assert result.hard.seconds > 0 < result.easy.seconds
    assert 1 <= result.threads <= result.cores


def test_a_device_is_measured_where_it_multiplies(monkeypatch):
    """A second backend on the CPU stands for it: its products are made by the way that a matching's are."""
    monkeypatch.setattr("provlab.planning.rates._ON_DEVICE", 256)
    monkeypatch.setattr("provlab.planning.rates._SIZES", (64,))
    made = []
    real = device_products.product_on
    monkeypatch.setattr("provlab.planning.rates.product_on", lambda device: made.append(device) or real(device))
    result = measure_rates(device="cpu:0", dtype="bfloat16")
    assert result.device_product is not None
    assert min(result.device_product, result.forward) > 0
    assert made == ["cpu:0"]


def test_what_is_computed_on_a_device_is_measured_there_by_its_clock(monkeypatch):
    """The way to it takes 20 ms, in which the calling thread sleeps; on the CPU nothing is sent."""
    for name, value in {"_SIZES": (64,), "_LARGER": 1, "_WIDER": {}, "_ON_DEVICE": 256}.items():
        monkeypatch.setattr(f"provlab.planning.rates.{name}", value)
    sent = []

    def slow(device):
        there = on(device)

        def way(values):
            sent.append(values.shape)
            time.sleep(0.02)
            return there(values)

        return there if there is of else way

    monkeypatch.setattr("provlab.planning.rates.on", slow)
    monkeypatch.setattr("provlab.statistics.phi_l2.on", slow)
    here = measure_rates()
    assert not sent
    there = measure_rates(device="cpu:0")
    assert len(sent) > 4
    assert there.lengths < 3 * 512 * 4096 / 0.06  # three matrices were sent
    assert there.near < 3072**2 / 0.06
    assert there.divergence < 256 * 16_384 / 0.04
    assert there.permuted < here.permuted
    assert there.multiplied == there.device_product
    assert here.multiplied == here.product


# The command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(run, monkeypatch):
    monkeypatch.setattr("provlab.planning.rates.measure_rates", lambda **_: RATES)
    return run


def test_the_command_prints_a_plan(run):
    status, out, err = run("plan", "shape:tiny*21", "--statistic", "phi_u,huref_a", "--workers", 8)
    assert (status, err) == (0, "")
    assert "1,680 comparisons of a pair" in out
    assert "pair by pair 20.0 times as much" in out
    assert "8 processes" in out
    assert "none is known of huref_a" in out


def test_the_command_says_what_does_not_fit(run):
    _, out, _ = run("plan", "shape:llama-2-7b*2", "--statistic", "phi_u", "--memory", "2GB")
    assert "does not fit: the largest pair needs about" in out


@pytest.mark.parametrize(
    ("words", "named"),
    [(["shape:tiny*2"], True), (["shape:tiny*3"], False), (["shape:tiny*2", "--statistic", "phi_u"], False)],
)
def test_a_comparison_of_two_may_end_with_the_stream_score(run, words, named):
    status, out, _ = run("plan", *words)
    assert (status, "more for the stream score, where no test rejects" in out) == (0, named)


def test_the_stream_score_hashes_no_file_again(run, new_model, save_model, tmp_path, monkeypatch):
    """A comparison has hashed its files when it comes to the score."""
    folders = [str(save_model(new_model(seed), tmp_path / str(seed))) for seed in (1, 2)]
    estimates = []
    monkeypatch.setattr(report, "study_card", lambda estimated, _, quick, score: estimates.extend([estimated, score]))
    run("plan", *folders)
    assert estimates[0].hashing > estimates[1].hashing == 0


def test_reading_is_measured_on_the_disk_of_the_models(tmp_path, monkeypatch, run):
    """By the largest file that is here; of models that are none by a new one."""
    files, folders = [], [tmp_path / name for name in "ab"]
    for folder, units in zip(folders, (32, 64), strict=True):
        synthesise(shape("tiny", 1) | {"intermediate_size": units}, folder)
    monkeypatch.setattr(rates, "measure_rates", lambda **settings: files.append(settings["file"]) or RATES)
    run("plan", *map(str, folders))
    run("plan", "shape:tiny*2")
    assert files == [*folders[1].glob("*.safetensors"), None]


def test_what_the_system_keeps_of_a_file_is_let_go_before_it_is_read(tmp_path, monkeypatch):
    """A disk is slower than memory by a factor of three and more."""
    path, parts = tmp_path / "file", []
    path.write_bytes(bytes(5000))
    monkeypatch.setattr(rates, "let_go", lambda file, start, nbytes: parts.append((start, nbytes)))
    monkeypatch.setattr(rates, "_READ", 1000)
    assert rates.read_rate(path) > 0
    assert parts == [(2000, 1000)]


def test_the_stream_score_by_hand():
    """One half: two decompositions, products of V/2 and V/4 tokens for them, of V/2 to choose twice and to judge."""
    tokens, width = 32_000, 4096
    products = 2 * (tokens / 2 + tokens / 4 + 3 * tokens / 2) * width**2
    spent = products / 1e11 + 2 * width**3 / 1e9
    assert planned("shape:llama-2-7b*2", statistics=["stream_score"]).others == pytest.approx(spent, rel=0.01)


def test_the_embeddings_of_untrained_tokens_by_hand():
    """Six passes over either table, a product and a decomposition of the others, 4,096 rows turned twice in float64."""
    tokens, width = 32_000, 4096
    products = 2 * tokens * width**2 + 2 * 2 * (2 * 4096 * width**2)
    spent = 2 * 6 * tokens * width / RATES.prepared + products / RATES.product + width**3 / RATES.decomposed
    assert planned("shape:llama-2-7b*2", statistics=["phi_unseen"]).others == pytest.approx(spent, rel=0.01)


def test_json_is_the_same(run, tmp_path):
    status, out, err = run("plan", "shape:tiny*3", "shape:giant", "--statistic", "phi_u", "--json", "-")
    plan = json.loads(out)
    assert status == 0
    assert plan["comparisons"] == 12
    assert plan["bytes_to_read"] == 12 * 176 * 64 * 2
    assert list(plan["refused"]) == ["shape:giant"]
    assert "left out: shape:giant" in err
    assert list(plan["seconds"]) == pytest.approx(planned("shape:tiny*3").seconds)
