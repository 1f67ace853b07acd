"""All pairs: resumable, each tensor read once per statistic, and a pair that fails does not stop the others."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file
from transformers import AlbertConfig, AlbertForMaskedLM

from provlab.engine import pairs
from provlab.engine.pairs import bar_of, open_models, run_pairs, with_common_vocabulary
from provlab.engine.store import Store
from provlab.errors import CheckpointError, InputError
from provlab.reading import loading
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.steps import BATCH
from provlab.statistics import REGISTRY
from provlab.statistics.options import Options
from provlab.statistics.phi_u import PhiU, UpProjections

SMALL = {"n_permutations": 3, "n_block_permutations": 3, "n_sequences": 2, "sequence_length": 8}
BLOCKS = 3


@pytest.fixture
def options(text):
    return Options(text=text, **SMALL)


def run(sources, statistics, options, store=None, **settings):
    return run_pairs(open_models(list(sources)), statistics, options, store=store, progress=False, **settings)


@pytest.fixture
def compared(monkeypatch):
    """Blocks of the comparisons of phi_u."""
    calls = []
    real = PhiU.compare_block

    def counted(self, a, b, block, options):
        calls.append(block)
        return real(self, a, b, block, options)

    monkeypatch.setattr(PhiU, "compare_block", counted)
    return calls


@pytest.fixture
def tensors_read(monkeypatch):
    """Count the reads of each tensor of each model."""
    reads = Counter()
    real = Checkpoint.array

    def counted(self, name):
        reads[Path(self.source).name, name] += 1
        return real(self, name)

    monkeypatch.setattr(Checkpoint, "array", counted)
    return reads


def units(store):
    return {path.relative_to(store.root): path.read_bytes() for path in store.root.rglob("*") if path.is_file()}


# Resuming ------------------------------------------------------------------------------------------------------------


def test_a_finished_study_reads_no_tensor(models, options, tensors_read, tmp_path):
    for _ in range(2):
        run(list(models.values())[:3], list(REGISTRY), options, Store(tmp_path))
        first = dict(tensors_read)
    assert dict(tensors_read) == first


SCRIPT = """
import sys, time
from provlab.statistics.options import Options
from provlab.statistics.phi_u import PhiU
from provlab.engine.pairs import open_models, run_pairs
from provlab.engine.store import Store
real = PhiU.compare_block
def slow(*arguments):
    time.sleep(0.1)
    return real(*arguments)
PhiU.compare_block = slow
options = Options(n_permutations=3, n_block_permutations=3, n_sequences=2, sequence_length=8)
run_pairs(open_models(sys.argv[2:]), ["phi_u"], options, store=Store(__import__("pathlib").Path(sys.argv[1])))
"""


def whole(root):
    """Finished units; those being written have a name with a dot."""
    return [path for path in root.rglob("*.json") if not path.name.startswith(".")]


def test_killed_for_good_in_the_middle(models, options, compared, tmp_path):
    """kill -9 leaves whole units only, and none of them is computed again."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path), *models.values()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while len(whole(tmp_path)) < 4:
            assert process.poll() is None, "the study ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    finished = len(whole(tmp_path))
    assert 4 <= finished < 10 * BLOCKS
    records = run(models.values(), ["phi_u"], options, Store(tmp_path))
    assert len(compared) == 10 * BLOCKS - finished
    assert [r.outcome for r in records] == [r.outcome for r in run(models.values(), ["phi_u"], options)]


def test_two_fresh_runs_are_equal_bit_for_bit(models, options, tmp_path):
    stores = [Store(tmp_path / name) for name in ("first", "second")]
    records = [run(list(models.values())[:3], list(REGISTRY), options, store) for store in stores]
    assert records[0] == records[1]
    first, second = (units(store) for store in stores)
    assert len(first) >= 3 * (4 * BLOCKS + 1)
    assert first == second


def test_other_options_are_other_units(models, options, compared, tmp_path):
    pair, store = [models["base"], models["other"]], Store(tmp_path)
    longer = Options(**{**SMALL, "n_sequences": options.n_sequences + 1}, text=options.text)
    for chosen in (options, longer):
        run(pair, ["phi_u", "phi_h"], chosen, store)
    # phi_u reads no inputs and is not computed again; phi_h does
    assert len(compared) == BLOCKS
    assert len([path for path in units(store) if path.suffix == ".json"]) == 3 * BLOCKS


# Reading -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statistic", ["phi_u", "phi_l2"])
def test_each_tensor_is_read_once_for_all_pairs(statistic, models, options, tensors_read):
    run(models.values(), [statistic], options)
    assert set(tensors_read.values()) == {1}
    in_block = 1 if statistic == "phi_u" else 9
    assert len(tensors_read) == len(models) * BLOCKS * in_block


@pytest.mark.parametrize("statistic", ["phi_h", "phi_jsd", "phi_match"])
def test_each_model_is_run_once_for_all_pairs(statistic, models, options, monkeypatch):
    loaded = Counter()
    real = loading.load_model

    def counted(checkpoint, *arguments, **settings):
        loaded[checkpoint.source] += 1
        return real(checkpoint, *arguments, **settings)

    monkeypatch.setattr(loading, "load_model", counted)
    run(models.values(), [statistic], options)
    assert loaded == dict.fromkeys(models.values(), 1)


# Failing -------------------------------------------------------------------------------------------------------------


def spoil(folder, name, value):
    tensors = load_file(folder / "model.safetensors")
    tensors[name].view(-1)[5] = value
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture
def broken(models, tmp_path):
    """One model with a NaN, one truncated, one not there."""
    folders = {name: tmp_path / name for name in ("nan", "truncated", "missing")}
    for name in ("nan", "truncated"):
        shutil.copytree(models["base"], folders[name])
    spoil(folders["nan"], "model.layers.1.mlp.up_proj.weight", float("nan"))
    path = folders["truncated"] / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    return {name: str(folder) for name, folder in folders.items()}


def test_what_fails_becomes_a_record_and_the_rest_goes_on(models, broken, options, tensors_read, tmp_path):
    sources = [models["base"], broken["nan"], broken["truncated"], models["other"], broken["missing"], models["tuned"]]
    records = run(sources, ["phi_u", "phi_h"], options, Store(tmp_path / "store"))
    assert [(r.a, r.b) for r in records[:15]] == list(combinations(sources, 2))  # in the order of the sources
    healthy = {models["base"], models["other"], models["tuned"]}
    for record in records:
        assert (record.error is None) == ({record.a, record.b} <= healthy)
        assert (record.outcome is None) == (record.error is not None)
        words = {"missing": "does not exist", "truncated": "truncated or corrupt", "nan": "NaN"}
        at_fault = [name for name, folder in broken.items() if folder in (record.a, record.b)]
        if at_fault:
            assert any(words[name] in record.error and broken[name] in record.error for name in at_fault), record
            assert "\n" not in record.error
    # a tensor that is damaged is found to be so once, not once a pair
    assert tensors_read["nan", "model.layers.1.mlp.up_proj.weight"] == 1


def test_records_of_failures_are_not_kept(models, broken, options, tmp_path):
    """Mend the model, run again, and its pairs are there."""
    sources, store = [models["base"], broken["nan"]], Store(tmp_path / "store")
    assert run(sources, ["phi_u"], options, store)[0].error
    spoil(Path(broken["nan"]), "model.layers.1.mlp.up_proj.weight", 0.25)
    assert run(sources, ["phi_u"], options, store)[0].error is None


def test_strict_opening_raises(models, broken):
    with pytest.raises(CheckpointError, match="does not exist"):
        open_models([models["base"], broken["missing"]], strict=True)


@pytest.mark.parametrize(
    "error",
    [RuntimeError("out of memory\nand more"), MemoryError(), OSError("disk"), ImportError("no library"), KeyError("x")],
)
def test_whatever_one_statistic_raises_is_its_reason(error, models, options, monkeypatch):
    real = PhiU.compare_block

    def fails(self, a, b, block, options):
        if block == 1:
            raise error
        return real(self, a, b, block, options)

    monkeypatch.setattr(PhiU, "compare_block", fails)
    (record,) = run([models["base"], models["other"]], ["phi_u"], options)
    assert record.error.startswith(type(error).__name__)
    assert "\n" not in record.error


@pytest.mark.parametrize("method", ["blocks", "prepare", "compare_block"])
def test_what_one_model_raises_does_not_end_the_study_of_the_others(method, models, options, monkeypatch):
    """In planning, in reading and in comparing; the program's own faults are named by their type."""
    real = getattr(PhiU, method)

    def fails(self, *arguments):
        if any(getattr(item, "name", None) == "other" or item is fails.features for item in arguments):
            raise AttributeError("no such thing")
        return real(self, *arguments)

    def remembered(self, block):
        result = real_block(self, block)
        if self.model.name == "other":
            fails.features = result
        return result

    fails.features = object()
    real_block = UpProjections.block
    monkeypatch.setattr(UpProjections, "block", remembered)
    monkeypatch.setattr(PhiU, method, fails)
    result = run([models["base"], models["tuned"], models["other"]], ["phi_u", "phi_h"], options)
    errors = {(record.statistic, Path(record.a).name, Path(record.b).name): record.error for record in result}
    assert errors.pop(("phi_u", "base", "other")) == errors.pop(("phi_u", "tuned", "other"))
    assert set(errors.values()) == {None}


def test_models_of_each_unreadable_kind_among_healthy_ones(models, broken, options, tmp_path):
    page = tmp_path / "page"
    shutil.copytree(models["other"], page)
    (page / "config.json").write_text("<!DOCTYPE html><title>Sign in</title>")
    experts = tiny_models.save("mixtral", tmp_path / "experts")
    healthy = [models["base"], models["tuned"]]
    result = run([*healthy, *broken.values(), str(page), str(experts)], list(REGISTRY), options)
    for record in result:
        if {record.a, record.b} == set(healthy):
            assert record.error is None or "gate" in record.error
    assert {record.b for record in result if record.error and record.a == models["base"]} >= {str(page), str(experts)}
    assert all("\n" not in record.error for record in result if record.error)


def test_unequal_models_say_why_they_cannot_be_compared(models, new_model, save_model, options, tmp_path):
    wide = str(save_model(new_model(8, hidden_size=32), tmp_path / "wide"))
    fat = str(save_model(new_model(8, intermediate_size=40), tmp_path / "fat"))
    deep = str(save_model(new_model(8, num_hidden_layers=2), tmp_path / "deep"))
    words = str(save_model(new_model(8, vocab_size=310), tmp_path / "words"))
    expected = {
        (wide, "phi_u"): "phi_u needs models of equal width, but base has 24 and wide 32; phi_match can",
        (wide, "phi_l2"): "phi_l2 needs equal shapes",
        (deep, "phi_u"): "base has 3 and deep 2 blocks",
        (deep, "phi_match"): "base has 3 and deep 2 blocks",
    }
    for (source, statistic), reason in expected.items():
        (record,) = run([models["base"], source], [statistic], options)
        assert record.outcome is None
        assert reason in record.error
    fit = ((wide, "phi_match"), (fat, "phi_match"), (fat, "phi_u"), (fat, "phi_h"), (wide, "phi_jsd"))
    for source, statistic in (*fit, (words, "phi_jsd"), (words, "phi_h")):
        (record,) = run([models["base"], source], [statistic], options)
        assert record.error is None, record


# Compared inputs ----------------------------------------------------------------------------------------------------


def test_blocks_are_counted_once_and_in_order(models, options):
    pair = [models["base"], models["tuned"]]
    (once,) = run(pair, ["phi_u"], options, blocks=[0, 2])
    (twice,) = run(pair, ["phi_u"], options, blocks=[2, 0, 2])
    assert [block.block for block in twice.outcome.blocks] == [0, 2]
    assert once == twice
    whole = run(pair, ["phi_u"], options)[0]
    assert whole.keys[::2] == once.keys
    assert whole.outcome.blocks[::2] == once.outcome.blocks


@pytest.mark.parametrize(
    ("blocks", "message"), [([], "blocks is empty"), ([1, 3], "no block 3: .* 0 to 2"), ([-1], "no block -1")]
)
def test_blocks_that_are_not_there_are_refused(blocks, message, models, options):
    with pytest.raises(InputError, match=message):
        run([models["base"], models["tuned"]], ["phi_u"], options, blocks=blocks)


def test_a_statistic_of_the_whole_model_ignores_blocks(models, options):
    (record,) = run([models["base"], models["tuned"]], ["phi_jsd"], options, blocks=[1])
    assert [block.block for block in record.outcome.blocks] == [None]


def test_the_smallest_vocabulary_is_common(models, new_model, save_model, tmp_path):
    small = str(save_model(new_model(8, vocab_size=280), tmp_path / "small"))
    opened = open_models([models["base"], small]).models
    assert with_common_vocabulary(Options(), opened).vocab_size == 280
    assert with_common_vocabulary(Options(vocab_size=10), opened).vocab_size == 10
    assert with_common_vocabulary(Options(), {}).vocab_size is None


@pytest.mark.parametrize(
    ("sources", "message"),
    [([], "at least two models, not 0"), (["a"], "at least two"), (["a", "b", "a"], "more than once: a")],
)
def test_lists_of_models_that_are_none(sources, message):
    with pytest.raises(InputError, match=message):
        open_models(sources)


def test_one_folder_written_in_two_ways_is_one_model(models):
    for other in (models["base"] + "/", models["base"] + "/../base"):
        with pytest.raises(InputError, match=r"models must be distinct, but .*base and .*base/?.* are one"):
            open_models([models["base"], models["other"], other])


def test_a_copy_is_another_model(models, spoilt, options):
    """Two folders with the same content are a question that may be asked."""
    (record,) = run([models["base"], str(spoilt)], ["phi_u"], options)
    assert record.outcome.log10_p == record.outcome.reach


def test_float16_on_the_shelf_is_read_as_it_is(models, new_model, save_model, options, tmp_path):
    """A checkpoint in half precision gives the p-value of its rounded weights, not an error."""
    half = str(save_model(new_model(1).to(torch.bfloat16), tmp_path / "half"))
    (record,) = run([models["base"], half], ["phi_u"], options)
    assert record.outcome.log10_p == record.outcome.reach


def test_a_bar_says_how_long_only_once_it_can_know(monkeypatch):
    now = [0.0]
    bar = bar_of(30, 1.0)
    monkeypatch.setattr(bar, "_time", lambda: now[0])
    bar.start_t = 0.0
    with bar:
        assert bar.format_dict["left"] == ""
        bar.n, now[0] = 1, 8.0  # a slow beginning: compiled, opened
        assert bar.format_dict["left"] == ""
        bar.n, now[0] = 10, 12.0
        assert bar.format_dict["left"] == ", about 00:24 left"
        assert "reading  33%" in str(bar)


def test_a_bar_goes_on_while_a_model_runs(models, options, monkeypatch):
    """One pass of a model of billions takes minutes, and the bar stood still."""
    steps, real = [], pairs.bar_of

    def watched(total, progress):
        bar = real(total, progress)
        monkeypatch.setattr(bar, "update", lambda n=1: (steps.append(n), setattr(bar, "n", bar.n + n)))
        return bar

    monkeypatch.setattr(pairs, "bar_of", watched)
    run([models["base"], models["tuned"]], ["phi_match", "phi_jsd"], options)
    comparisons = BLOCKS + 1
    assert sum(steps) == pytest.approx(3 * comparisons)  # of the pair, and a pass of each model
    batches = -(-options.n_sequences // BATCH)
    assert len(steps) > 2 * batches * 2 * BLOCKS
    assert max(steps) <= comparisons / 2 + 1e-9


def test_a_bar_ends_where_blocks_share_their_weights(save_model, tmp_path, options, monkeypatch):
    """One module runs for all blocks of an ALBERT."""
    sizes = {
        "hidden_size": 16,
        "embedding_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 6,
        "vocab_size": 512,
    }
    config = AlbertConfig(**sizes, num_attention_heads=2, max_position_embeddings=64)
    sources = [str(save_model(AlbertForMaskedLM(config), tmp_path / name)) for name in ("a", "b")]
    bars, real = [], pairs.bar_of
    monkeypatch.setattr(pairs, "bar_of", lambda total, progress: bars.append(real(total, 1000.0)) or bars[-1])
    places = []
    monkeypatch.setattr("tqdm.std.tqdm.update", lambda bar, n=1: (places.append(bar.n), setattr(bar, "n", bar.n + n)))
    run(sources, ["phi_h"], options)
    assert places == sorted(places)
    assert max(places) <= bars[0].total
