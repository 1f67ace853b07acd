"""Models are read once where memory allows, and again where it does not; the records are the same.

Reference values: sizes of tensors worked out by hand from the tiny models' shapes (conftest.py), bytes counted where
tensors leave their files, and the records of the study that holds all models at once.
"""

import hashlib
import shutil
import threading
import time
import weakref
from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from provlab import machine
from provlab.engine import memory, rounds
from provlab.engine.memory import Allowance, Budget, budget_for, gigabytes, parse
from provlab.engine.pairs import SHARE_HELD, open_models, run_pairs
from provlab.engine.reference import too_large
from provlab.errors import NotComparableError, ParameterError
from provlab.inference.matching import unit_rows
from provlab.planning.study import plan, whole_bytes
from provlab.reading import local, steps
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.counting import Count, add, counting
from provlab.reading.held import Held
from provlab.running import activations, predictions
from provlab.running import forward as running
from provlab.running.room import Stack
from provlab.statistics import REGISTRY, get, phi_match
from provlab.statistics.model import Model, tensor_bytes
from provlab.statistics.options import Options
from provlab.statistics.phi_u import UpProjections

WIDTH, HIDDEN, BLOCKS = 24, 48, 3  # of the tiny models
UP = HIDDEN * WIDTH * 4  # bytes of an up projection in its file
UP_PROJECTIONS = UpProjections.block


@pytest.fixture
def options(text):
    return Options(text=text, n_permutations=3, n_block_permutations=3, n_sequences=2, sequence_length=8)


@pytest.fixture(scope="module")
def many(new_model, tmp_path_factory):
    """Twenty-one independent models."""
    root = tmp_path_factory.mktemp("many")
    for seed in range(21):
        new_model(100 + seed, num_hidden_layers=1).save_pretrained(root / str(seed))
    return [str(root / str(seed)) for seed in range(21)]


def tight(monkeypatch, room, *, set_by_user):
    """A budget of `room` bytes of arrays, `given` by the user or free."""
    monkeypatch.setattr("provlab.engine.pairs.budget_for", lambda *_: Budget(room, set_by_user, 0, 1))


# Reading -------------------------------------------------------------------------------------------------------------


def test_twenty_one_models_are_read_once_and_pair_by_pair_twenty_times(many, options):
    opened = open_models(many)
    with counting() as together:
        records = run_pairs(opened, ["phi_u"], options, progress=False)
    assert len(records) == 210
    assert together.tensors <= 1.05 * 21 * UP
    with counting() as apart:
        for pair in combinations(many, 2):
            run_pairs(opened, ["phi_u"], options, pairs=[pair], progress=False)
    assert apart.tensors == 20 * 21 * UP


def test_one_pass_serves_all_statistics_that_record(models, options):
    opened = open_models(list(models.values()))
    names = ["phi_h", "phi_jsd", "phi_match", "phi_match_unsigned"]  # the last two share what it leaves
    with counting() as count:
        records = run_pairs(opened, names, options, progress=False)
    assert count.tensors == plan(opened.models, ["phi_h"], options).bytes_to_read  # one pass, and keys of its units
    apart = [record for name in names for record in run_pairs(opened, [name], options, progress=False)]
    assert records == apart


def test_what_one_pass_left_of_a_block_is_prepared_once_for_both_forms_of_phi_match(models, options, monkeypatch):
    """Two models of three blocks; two forms that would ask for each side, and for its gates near each other."""
    opened, names = open_models([models["base"], models["stranger"]]), ["phi_match", "phi_match_unsigned"]
    made = Counter()

    def counted(what, function):
        def call(*arguments):
            made[what] += 1
            return function(*arguments)

        return call

    monkeypatch.setattr(phi_match.GateAndUp, "block", counted("block", phi_match.GateAndUp.block))
    monkeypatch.setattr(phi_match, "grouped", counted("grouped", phi_match.grouped))
    together = run_pairs(opened, names, options, progress=False)
    assert made == {"block": 2 * BLOCKS, "grouped": 2 * BLOCKS}
    apart = [record for name in names for record in run_pairs(opened, [name], options, progress=False)]
    assert made["block"] == 3 * 2 * BLOCKS
    assert together == apart


@pytest.mark.parametrize(("memory", "beside"), [(None, BLOCKS), ("4GB", 0)])
def test_the_two_models_of_a_pair_are_read_side_by_side(models, options, monkeypatch, memory, beside):
    """In two threads; one after the other where memory is given, of which the second takes what the first left."""
    opened, names = open_models([models["base"], models["stranger"]]), ["phi_u", "phi_l2", "phi_match", "phi_unseen"]
    here = []

    def block(features, number):
        here.append(threading.get_ident() == threading.main_thread().ident)
        return UP_PROJECTIONS(features, number)

    alone = run_pairs(opened, names, options, progress=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    monkeypatch.setattr(UpProjections, "block", block)
    assert run_pairs(opened, names, options, memory=memory, progress=False) == alone
    assert (here.count(False), len(here)) == (beside, 2 * BLOCKS)


def test_two_models_are_prepared_one_after_the_other(models, options, monkeypatch):
    """A statistic of a user may run a model for it."""
    phi_u, at_work, most = get("phi_u"), 0, 0
    real = phi_u.prepare

    def prepare(model, options):
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        time.sleep(0.2)
        at_work -= 1
        return real(model, options)

    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    monkeypatch.setattr(phi_u, "prepare", prepare)
    run_pairs(open_models([models["base"], models["stranger"]]), ["phi_u"], options, progress=False)
    assert most == 1


def test_one_run_over_the_text_gives_activations_and_predictions(models, options, monkeypatch):
    """Two runs a model where one would do: the text for phi_MATCH and phi_JSD, and random tokens for phi_H."""
    whole, without_head = Counter(), Counter()
    real = running.run

    def counted(part, batch, network):
        (whole if part is network else without_head)[len(batch)] += 1
        return real(part, batch, network)

    for module in (activations, predictions):
        monkeypatch.setattr(module, "run", counted)
    run_pairs(open_models(list(models.values())), ["phi_jsd", "phi_h", "phi_match"], options, progress=False)
    batches = -(-options.n_sequences // steps.BATCH)
    assert sum(without_head.values()) == batches * len(models)
    # and one of some sequences, rounded, and two of as many, bare and behind the begin token
    assert sum(whole.values()) == (batches + 3) * len(models)


@pytest.mark.parametrize("names", [["phi_match_all", "phi_jsd"], ["phi_match_all", "phi_match", "phi_jsd"]])
def test_predictions_on_a_part_of_the_text_are_not_taken_for_those_on_all(names, models, options, monkeypatch):
    monkeypatch.setattr(type(get("phi_match_all")), "TOKENS", 2 * options.sequence_length)  # the form is chosen on two
    options = replace(options, n_sequences=4)
    opened = open_models([models["base"], models["tuned"]])
    alone = run_pairs(opened, ["phi_jsd"], options, progress=False)
    assert run_pairs(opened, names, options, progress=False)[-1:] == alone


def test_a_statistic_takes_what_another_recorded(models, options, monkeypatch):
    """phi_ANCHOR reads the activations of phi_MATCH: one run of a model for both, and the records of two."""
    runs = Counter()
    real = activations.run

    def counted(part, batch, network):
        runs["all"] += 1
        return real(part, batch, network)

    monkeypatch.setattr(activations, "run", counted)
    opened = open_models(list(models.values()))
    names = ["phi_anchor", "phi_match"]
    together = run_pairs(opened, names, options, progress=False)
    assert runs.pop("all") == -(-options.n_sequences // steps.BATCH) * len(models)
    apart = [record for name in names for record in run_pairs(opened, [name], options, progress=False)]
    assert runs["all"] == 2 * -(-options.n_sequences // steps.BATCH) * len(models)
    assert together == apart


def test_a_model_whose_predictions_are_no_numbers_is_still_matched(models, options, tmp_path):
    shutil.copytree(models["base"], tmp_path / "spoilt")
    tensors = load_file(tmp_path / "spoilt/model.safetensors")
    tensors["lm_head.weight"][:] = 3e38
    save_file(tensors, tmp_path / "spoilt/model.safetensors", {"format": "pt"})
    opened = open_models([models["base"], str(tmp_path / "spoilt")])
    jsd, match = run_pairs(opened, ["phi_jsd", "phi_match"], options, progress=False)
    assert "NaN or Inf" in jsd.error
    assert match.outcome.log10_p < -5


DEFAULT = ["phi_u", "phi_h", "phi_l2", "phi_jsd", "phi_match", "phi_match_unsigned", "phi_unseen"]


def test_all_statistics_of_a_study_read_a_block_once(models, options, monkeypatch):
    """A pass reads a model once, and beside it each tensor of a block is read once: two files, less the head."""
    opened = open_models([models[name] for name in ("base", "tuned", "stranger")])
    with counting() as together:
        records = run_pairs(opened, DEFAULT, options, progress=False)
    blocks = sum(
        tensor_bytes(model, part.name)
        for model in opened.models.values()
        for part in model.anatomy.parts
        if part.block is not None
    )
    beside = sum(tensor_bytes(model, model.anatomy.tensor_name("embedding")) for model in opened.models.values())
    whole = sum(whole_bytes(model) for model in opened.models.values())
    assert together.tensors == plan(opened.models, DEFAULT, options).bytes_to_read == whole + blocks + beside
    monkeypatch.setattr("provlab.engine.pairs.SHARE_HELD", 10**15)
    with counting() as apart:
        assert run_pairs(opened, DEFAULT, options, progress=False) == records
    assert apart.tensors == plan(opened.models, DEFAULT, options, workers=2).bytes_to_read
    mlps = 3 * UP * BLOCKS * len(opened.models)  # phi_h reads them as phi_l2 does, and phi_u a third of them
    assert apart.tensors == together.tensors + mlps + mlps // 3


def test_a_record_depends_on_no_other_statistic_of_the_study(models, options):
    """A statistic takes over the keys that another one found, and would have found the same."""
    opened = open_models([models["base"], models["tuned"]])
    together = run_pairs(opened, DEFAULT, options, progress=False)
    assert together == [run_pairs(opened, [name], options, progress=False)[0] for name in DEFAULT]


def test_tensors_that_are_held_give_way_to_features(models, options, monkeypatch):
    """Room for the features of two models alone: what was read for one statistic is dropped, and read again."""
    opened = open_models(list(models.values()))
    names = ["phi_u", "phi_l2"]
    whole = run_pairs(opened, names, options, progress=False)
    dropped = []
    clear = Held.clear
    monkeypatch.setattr(Held, "clear", lambda self: dropped.append(self.nbytes) or clear(self))
    for room in (10**9, 150_000):
        dropped.clear()
        tight(monkeypatch, room, set_by_user=True)
        assert run_pairs(opened, names, options, progress=False) == whole
        places = sum(n > 0 for n in dropped)
        assert max(dropped) <= room // SHARE_HELD
        assert (places <= BLOCKS) == (room == 10**9)


def test_a_file_is_hashed_once(models, new_model, options, tmp_path, monkeypatch):
    """Files above 1 MB are hashed once a machine; counted when they are, and foretold before."""
    monkeypatch.setattr(local, "_SETTLED_SECONDS", -1.0)  # a file just written might change again
    sources = []
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        new_model(seed, num_hidden_layers=1, hidden_size=128, intermediate_size=512).save_pretrained(folder)
        sources.append(str(folder))
    small = sum((tmp_path / str(seed) / "config.json").stat().st_size for seed in (1, 2))
    large = sum((tmp_path / str(seed) / "model.safetensors").stat().st_size for seed in (1, 2))
    opened = open_models(sources)
    assert plan(opened.models, ["phi_u"], options).bytes_to_hash == small + large
    for expected in (small + large, small):
        with counting() as count:
            run_pairs(open_models(sources), ["phi_u"], options, progress=False)
        assert count.hashed == expected
    assert plan(opened.models, ["phi_u"], options).bytes_to_hash == small


def test_files_of_a_model_are_hashed_side_by_side(new_model, tmp_path, monkeypatch):
    """Each waits until all are being hashed; the digest is that of hashing them one after the other."""
    new_model(1).save_pretrained(tmp_path, max_shard_size="20KB")
    files = sorted({*tmp_path.glob("*.safetensors"), tmp_path / "config.json"})
    lines = [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in files]
    assert len(files) > 3
    monkeypatch.setattr(machine, "threads", lambda: len(files))
    met, real = threading.Barrier(len(files), timeout=20), local.sha256_of_parts
    monkeypatch.setattr(local, "sha256_of_parts", lambda path, parts: met.wait() is None or real(path, parts))
    with counting() as count:
        digest = Checkpoint.open(tmp_path).digest
    assert digest == hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()
    assert count.hashed == sum(path.stat().st_size for path in files)


def test_counts_stand_in_one_another_and_take_what_others_counted():
    with counting() as outer:
        with counting() as inner:
            add(Count(3, 4))
        add(Count(10, 0))
    add(Count(100, 100))
    assert (inner, outer) == (Count(3, 4), Count(13, 4))


# Holding -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["phi_u", "phi_l2"], ["phi_jsd", "phi_match"]])
def test_with_little_memory_models_are_read_again_and_the_records_are_the_same(names, models, options, monkeypatch):
    opened = open_models(list(models.values()))
    whole = run_pairs(opened, names, options, progress=False)
    needed = plan(opened.models, names, options).bytes_to_read
    tight(monkeypatch, 100_000, set_by_user=False)
    with counting() as count:
        assert run_pairs(opened, names, options, progress=False) == whole
    assert (count.tensors > needed) == ("phi_u" in names)  # features of passes are spilled, and no model is run again


def test_no_more_is_held_than_fits(many, options, monkeypatch):
    """Features alive at any time, counted as they are made and dropped."""
    alive, most = set(), [0]
    real = UpProjections.block

    def counted(self, block):
        rows = real(self, block)
        alive.add(id(rows))
        weakref.finalize(rows, alive.discard, id(rows))
        most[0] = max(most[0], len(alive))
        return rows

    monkeypatch.setattr(UpProjections, "block", counted)
    opened = open_models(many)
    feature = 8 * HIDDEN * WIDTH + 16 * HIDDEN
    reads = []
    for room in (10**9, 12 * feature, 0):
        alive.clear()
        most[0] = 0
        tight(monkeypatch, room, set_by_user=False)
        with counting() as count:
            run_pairs(opened, ["phi_u"], options, progress=False)
        reads.append(count.tensors // UP)
        assert most[0] <= max(2, room // feature)
    assert reads[0] == 21
    assert 21 < reads[1] < reads[2]
    assert reads[2] == 210 + 20  # each held once, and each pair's second model passes by: at worst


sizes = st.lists(st.integers(1, 9), min_size=2, max_size=9)


@settings(max_examples=300, deadline=None)
@given(sizes, st.integers(0, 60), st.randoms(use_true_random=False))
def test_each_pair_is_compared_once_and_models_are_read_for_a_pair(sizes, room, chance):
    models = {str(i): size for i, size in enumerate(sizes)}
    pairs = [pair for pair in combinations(models, 2) if chance.random() < 0.6]
    pairs = [pair if chance.random() < 0.5 else pair[::-1] for pair in pairs]
    loads = Counter()

    def load(source):
        loads[source] += 1
        return source

    def fits(held):
        return sum(models[source] for source in held) <= room

    done = list(rounds.in_rounds(pairs, load, lambda pair, a, b: (a, b), fits))
    assert sorted(pair for pair, _ in done) == sorted(pairs)
    assert all(pair == features for pair, features in done)
    assert loads.keys() == {source for pair in pairs for source in pair}
    assert all(loads[source] <= 1 + sum(source in pair for pair in pairs) for source in loads)
    if room >= sum(sizes):
        assert set(loads.values()) <= {1}


def test_arrays_in_memory_are_counted_and_those_in_files_are_not(tmp_path):
    array = np.zeros((10, 10), np.float32)
    np.save(tmp_path / "a.npy", array)
    assert memory.nbytes({"a": array, "b": [array[:2], (array,)]}) == 1200
    assert memory.nbytes(unit_rows(np.ones((10, 10), np.float32))) == 800 + 160
    assert memory.nbytes(np.load(tmp_path / "a.npy", mmap_mode="r")) == 0
    with (allowance := Allowance(0)).first_comparison():
        np.zeros(10**6)
    assert 8 * 10**6 <= allowance.working < 9 * 10**6


# Limits --------------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_a_record_with_the_limit_that_would_do(models, options, monkeypatch):
    opened = open_models(list(models.values())[:3])
    tight(monkeypatch, 30_000, set_by_user=True)
    records = run_pairs(opened, ["phi_u", "phi_l2", "phi_h"], options, progress=False)
    by_name = {record.statistic: record for record in records}
    assert by_name["phi_u"].error is None
    for name in ("phi_l2", "phi_h"):
        assert by_name[name].error.startswith(f"{name} of ")
        assert "raise the limit to" in by_name[name].error


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("8GB", 8 * 10**9),
        ("512 MiB", 512 * 2**20),
        ("1.5g", 1_500_000_000),
        (7, 7),
        ("123456", 123456),
        ("2tb", 2 * 10**12),
    ],
)
def test_sizes_are_read(text, result):
    assert parse(text) == result


@pytest.mark.parametrize("text", ["", "much", "8 GBs", "-1GB", "0", 0, -5, True, None, 1.5, "1e9"])
def test_sizes_that_are_none(text):
    with pytest.raises(ParameterError, match="memory must be a size such as 8GB"):
        parse(text)


def test_a_limit_below_the_libraries_is_refused():
    with pytest.raises(ParameterError, match=r"memory: 50 MB is less than the libraries take in 1 process; give more"):
        budget_for("50MB")
    with pytest.raises(ParameterError, match=r"in 4 processes; give more than .* or fewer workers"):
        budget_for("1GB", 4)


def test_the_limit_that_is_named_would_do():
    budget = budget_for("20GB", 3)
    needed = 9 * 10**9
    assert budget.process < needed
    assert budget_for(budget.limit_for(needed), 3).process == pytest.approx(needed, rel=0.01)
    # beside features that are held for other pairs: as much is left as it names, and the limit has room for both
    message = too_large("phi_u", needed, budget, held=10**9)
    assert f"{gigabytes(budget.process - 10**9)} of the memory given are left" in message
    assert message.endswith(f"raise the limit to {gigabytes(budget.limit_for(needed + 10**9))}")


def test_memory_of_a_container_counts(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    assert memory.free() == 2_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free() > 2_000_000


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_statistic_names_what_it_reads(name, models, options):
    statistic = get(name)
    a, b = (Model.open(models[source]) for source in ("base", "other"))
    try:
        blocks = statistic.blocks(a, b)
    except NotComparableError as error:
        pytest.skip(str(error))
    features = statistic.prepare(a, options)
    with counting() as count:
        features.block(blocks[0])
    named = statistic.tensors(a, b, blocks[0], options)
    assert sum(tensor_bytes(a, *tensor) for tensor in named.items()) == pytest.approx(count.tensors, abs=4 * WIDTH)


def test_activations_stay_where_predictions_find_no_room(models, options, monkeypatch):
    opened = open_models([models["base"], models["tuned"]])
    alone = run_pairs(opened, ["phi_match"], options, progress=False)

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(Stack, "add", full)
    records = run_pairs(opened, ["phi_jsd", "phi_match"], options, progress=False)
    assert records[1:] == alone
    assert "no space left" in records[0].error
