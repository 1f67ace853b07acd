"""A schedule says before anything starts what is read and held; what is then read is counted and must be the same.

Reference values: sizes of tensors worked out by hand from the tiny models' shapes (conftest.py), bytes counted where
tensors leave their files, and the records of the study that holds all models at once.
"""

import os
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provlab.engine import memory, schedule
from provlab.engine.memory import Budget, budget_for, parse
from provlab.engine.pairs import open_models, run_pairs
from provlab.engine.schedule import Group, plan
from provlab.errors import ParameterError
from provlab.models.counting import Count, add, counting
from provlab.statistics import REGISTRY, USUAL
from provlab.statistics.base import Options, tensor_bytes

WIDTH, HIDDEN, BLOCKS = 24, 48, 3  # of the tiny models
UP = HIDDEN * WIDTH * 4  # bytes of an up projection in its file
WHOLE_BLOCK = 4 * (3 * HIDDEN * WIDTH + 2 * WIDTH * WIDTH + 2 * 12 * WIDTH + 2 * WIDTH)  # mlp, q and o, k and v, norms


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


def tight(monkeypatch, room):
    """A budget of `room` bytes of arrays, as if the user had given it."""
    budget = Budget(room, room, True, 0, 1)
    monkeypatch.setattr(schedule, "budget_for", lambda *_: budget)
    monkeypatch.setattr("provlab.engine.pairs.budget_for", lambda *_: budget)


# Reading -------------------------------------------------------------------------------------------------------------


def test_twenty_one_models_are_read_once_and_pair_by_pair_twenty_times(many, options):
    bench = open_models(many)
    with counting() as together:
        records = run_pairs(bench, ["phi_u"], options, progress=False)
    assert len(records) == 210
    assert together.tensors <= 1.05 * 21 * UP
    with counting() as apart:
        for pair in combinations(many, 2):
            run_pairs(bench, ["phi_u"], options, pairs=[pair], progress=False)
    assert apart.tensors == 20 * 21 * UP


@pytest.mark.parametrize("statistic", USUAL)
def test_what_is_planned_is_what_is_read(statistic, models, options):
    bench = open_models(list(models.values()))
    planned = plan(bench.models, [statistic], options)
    with counting() as count:
        run_pairs(bench, [statistic], options, progress=False)
    assert count.tensors == planned.bytes_to_read == planned.bytes_needed > 0
    assert planned.bytes_pair_by_pair == 4 * planned.bytes_needed  # five models: each is in four pairs
    assert planned.comparisons == 10 * (1 if statistic == "phi_jsd" else BLOCKS)


def test_what_is_needed_by_hand(models, options):
    bench = open_models(list(models.values()))
    up = plan(bench.models, ["phi_u"], options)
    assert (up.bytes_needed, up.tensors, len(up.units)) == (5 * BLOCKS * UP, 5 * BLOCKS, BLOCKS)
    blocks = plan(bench.models, ["phi_l2"], options)
    assert (blocks.bytes_needed, blocks.tensors) == (5 * BLOCKS * WHOLE_BLOCK, 5 * BLOCKS * 9)


def test_one_pass_serves_all_statistics_that_record(models, options):
    bench = open_models(list(models.values()))
    names = ["phi_h", "phi_jsd", "phi_match", "phi_match_unsigned"]  # the last two share what it leaves
    planned = plan(bench.models, names, options)
    assert [step.statistics for step in planned.passes] == [tuple(names)] * 5
    with counting() as count:
        records = run_pairs(bench, names, options, progress=False)
    assert count.tensors == planned.bytes_to_read == plan(bench.models, ["phi_h"], options).bytes_to_read
    apart = [record for name in names for record in run_pairs(bench, [name], options, progress=False)]
    assert records == apart


def test_a_file_is_hashed_once(models, new_model, options, tmp_path):
    """Files above 1 MB are hashed once a machine; counted when they are, and foretold before."""
    sources = []
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        new_model(seed, num_hidden_layers=1, hidden_size=128, intermediate_size=512).save_pretrained(folder)
        os.utime(folder / "model.safetensors", (0, 0))  # long ago: one just written might change again
        sources.append(str(folder))
    small = sum((tmp_path / str(seed) / "config.json").stat().st_size for seed in (1, 2))
    large = sum((tmp_path / str(seed) / "model.safetensors").stat().st_size for seed in (1, 2))
    bench = open_models(sources)
    assert plan(bench.models, ["phi_u"], options).bytes_to_hash == small + large
    for expected in (small + large, small):
        with counting() as count:
            run_pairs(open_models(sources), ["phi_u"], options, progress=False)
        assert count.hashed == expected
    assert plan(bench.models, ["phi_u"], options).bytes_to_hash == small


def test_counts_stand_in_one_another_and_take_what_others_counted():
    with counting() as outer:
        with counting() as inner:
            add(Count(3, 4))
        add(Count(10, 0))
    add(Count(100, 100))
    assert (inner, outer) == (Count(3, 4), Count(13, 4))


# Groups --------------------------------------------------------------------------------------------------------------


def test_in_groups_the_records_are_the_same_and_the_reads_are_those_planned(models, options, monkeypatch):
    names = ["phi_u", "phi_h", "phi_l2", "phi_match"]
    bench = open_models(list(models.values()))
    whole = run_pairs(bench, names, options, progress=False)
    tight(monkeypatch, 500_000)
    planned = plan(bench.models, names, options)
    assert {len(unit.groups) for unit in planned.units if unit.statistic == "phi_l2"} == {2}
    assert planned.spilled > 0
    assert planned.bytes_to_read > planned.bytes_needed
    assert planned.peak <= 500_000 or planned.passes
    with counting() as count:
        assert run_pairs(bench, names, options, progress=False) == whole
    assert count.tensors == planned.bytes_to_read


def test_no_more_is_held_than_planned(many, options, monkeypatch):
    """Features alive at any time, counted as they are made and dropped."""
    import weakref

    from provlab.statistics.phi_u import UpProjections

    alive, most = set(), [0]
    real = UpProjections.block

    def counted(self, block):
        rows = real(self, block)
        alive.add(id(rows))
        weakref.finalize(rows, alive.discard, id(rows))
        most[0] = max(most[0], len(alive))
        return rows

    monkeypatch.setattr(UpProjections, "block", counted)
    bench = open_models(many)
    one = plan(bench.models, ["phi_u"], options).units[0]
    feature = (8 * HIDDEN * WIDTH) + 16 * HIDDEN
    working = one.peak - 21 * feature
    for held in (21, 8, 1):
        alive.clear()
        most[0] = 0
        tight(monkeypatch, working + (held + (held < 21)) * feature)
        (unit,) = plan(bench.models, ["phi_u"], options).units
        assert max(len(group.held) for group in unit.groups) == held
        with counting() as count:
            run_pairs(bench, ["phi_u"], options, progress=False)
        assert most[0] == held + (held < 21)
        assert count.tensors == unit.bytes_read
        assert unit.peak <= working + (held + (held < 21)) * feature
    assert unit.bytes_read == 210 * UP + 20 * UP  # each held once, and each pair's second model comes by: at worst


sizes = st.lists(st.integers(1, 9), min_size=2, max_size=9)


@settings(max_examples=300, deadline=None)
@given(sizes, st.integers(0, 60), st.integers(0, 5), st.randoms(use_true_random=False))
def test_each_pair_is_seen_in_exactly_one_group(sizes, room, working, chance):
    features = {str(i): size for i, size in enumerate(sizes)}
    pairs = [pair for pair in combinations(features, 2) if chance.random() < 0.6]
    pairs = [pair if chance.random() < 0.5 else pair[::-1] for pair in pairs]
    groups = list(schedule._groups(pairs, features, dict.fromkeys(pairs, working), room))
    seen = [pair for group in groups for pair in group.pairs(pairs)]
    assert sorted(seen) == sorted(pairs)
    for group in groups:
        assert group.held
        used = {source for pair in group.pairs(pairs) for source in pair}
        assert used == {*group.held, *group.passing}  # nothing is read in vain
        held = sum(features[source] for source in group.held)
        most = held + max((features[source] for source in group.passing), default=0) + working
        assert most <= room or len(group.held) == 1


def test_a_planted_group_too_few_is_seen(models):
    pairs = list(combinations("abc", 2))
    assert Group(("a",), ("b", "c")).pairs(pairs) == (("a", "b"), ("a", "c"))
    assert Group(("a", "b"), ("c",)).pairs(pairs) == tuple(pairs)
    assert Group(("b", "c"), ()).pairs(pairs) == (("b", "c"),)


# Limits --------------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_a_record_with_the_limit_that_would_do(models, options, monkeypatch):
    bench = open_models(list(models.values())[:3])
    tight(monkeypatch, 60_000)
    records = run_pairs(bench, ["phi_u", "phi_l2", "phi_h"], options, progress=False)
    by_name = {record.statistic: record for record in records}
    assert by_name["phi_u"].error is None
    for name in ("phi_l2", "phi_h"):
        assert by_name[name].error.startswith(f"{name} of ")
        assert "raise the limit to" in by_name[name].error


def test_without_a_limit_all_is_tried(models, options, monkeypatch):
    budget = Budget(10, 10, False, 0, 1)
    monkeypatch.setattr("provlab.engine.pairs.budget_for", lambda *_: budget)
    bench = open_models(list(models.values())[:3])
    assert all(record.error is None for record in run_pairs(bench, list(USUAL), options, progress=False))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8GB", 8 * 10**9),
        ("512 MiB", 512 * 2**20),
        ("1.5g", 1_500_000_000),
        (7, 7),
        ("123456", 123456),
        ("2tb", 2 * 10**12),
    ],
)
def test_sizes_are_read(text, found):
    assert parse(text) == found


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


def test_memory_of_a_container_counts(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    assert memory.free() == 2_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free() > 2_000_000


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_statistic_says_what_it_holds(name, models, options):
    """Arrays that features hold, against what `need` says: at most that, and not a tenth of it."""
    statistic = REGISTRY[name]
    bench = open_models(list(models.values())[:2])
    try:
        blocks = statistic.blocks(*bench.models.values())
    except Exception as error:  # noqa: BLE001 - one that does not apply to these models
        pytest.skip(str(error))
    model = bench.models[models["base"]]
    said = statistic.need(model, blocks[0], options)
    held = nbytes(statistic.prepare(model, options).block(blocks[0]), set())
    assert 0.1 * said.features <= held <= said.features + 8 * 2 * 8  # the tokens themselves are not counted
    with counting() as count:
        statistic.prepare(model, options).block(blocks[0])
    named = (*(statistic.recording(model, options).tensors if statistic.recorded else ()), *said.tensors)
    sizes = [tensor_bytes(model, tensor) for tensor in named]
    assert sum(sizes) == pytest.approx(count.tensors, abs=4 * WIDTH)  # a norm more or less


def nbytes(thing, seen):
    """Bytes of all arrays below something, each buffer once."""
    if id(thing) in seen:
        return 0
    seen.add(id(thing))
    if hasattr(thing, "nbytes") and hasattr(thing, "shape") and hasattr(thing, "dtype"):
        return int(thing.nbytes)
    if isinstance(thing, dict):
        return sum(nbytes(value, seen) for value in thing.values())
    if isinstance(thing, list | tuple):
        return sum(nbytes(value, seen) for value in thing)
    if hasattr(thing, "__dataclass_fields__") and type(thing).__name__ not in ("Anatomy", "Model"):
        return sum(nbytes(getattr(thing, name), seen) for name in thing.__dataclass_fields__)
    return 0
