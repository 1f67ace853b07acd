"""Plans: bytes are those of the files, minutes are those of a trial times blocks, models and pairs."""

import json
from dataclasses import replace

import pytest
from synthetic import synthesise

from provlab import statistics, zoo
from provlab.engine.pairs import open_models, run_pairs
from provlab.engine.timing import Taken, timing
from provlab.errors import CheckpointError, InputError
from provlab.planning import study
from provlab.planning.shapes import shape
from provlab.planning.sketch import model_of, shapes_of
from provlab.planning.stand_in import one_block, write_stand_in
from provlab.planning.study import estimate, plan, summed
from provlab.planning.trial import Trial, kinds_of, trial
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.counting import counting
from provlab.statistics import REGISTRY, USUAL
from provlab.statistics.base import Features, Statistic
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.results import BlockResult, Detail

OPTIONS = Options()
FEW = Options(n_sequences=2, sequence_length=8)


def planned(*sources, names=("phi_u",), **settings):
    return plan(shapes_of(sources).models, names, OPTIONS, **settings)


def tried(work, **costs):
    """A trial of made-up costs: seconds of a run, of reading, and of comparing, everywhere and for every statistic."""
    kinds = kinds_of(work.models)
    models, pairs = (
        {(k,) for k in kinds.values()},
        {tuple(sorted((a, b))) for a in kinds.values() for b in kinds.values()},
    )
    block = {
        (what, job.statistic, of): Taken(costs.get(what, 0.0), 2 * costs.get(what, 0.0), costs.get("held", 0))
        for job in work.jobs
        for what, met in (("run", models), ("read", models), ("compare", pairs))
        for of in met
    }
    return Trial(kinds, block, {work: replace(taken, nbytes=0) for work, taken in block.items()}, {}, 1.0)


# Bytes ----------------------------------------------------------------------------------------------------------------


def test_210_pairs_at_7b_by_hand():
    """The sums on paper: 21 x 32 matrices of 11,008 x 4,096 in two bytes, and 210 x 32 comparisons of them."""
    work, matrix = planned("shape:llama-2-7b*21"), 11_008 * 4096
    assert work.tensors == 21 * 32
    assert work.bytes_to_read == 21 * 32 * matrix * 2
    assert work.bytes_pair_by_pair == 20 * work.bytes_to_read
    assert work.comparisons == 210 * 32


def test_a_pass_reads_the_whole_model():
    work = planned("shape:llama-2-7b*2", names=["phi_match", "phi_u"])
    assert len(work.passes) == 2
    assert work.bytes_to_read == 2 * 2 * (6_738_415_616 + 32 * 11_008 * 4096)
    assert work.loaded == 4 * (2 * 32_000 * 4096 + 4096 + 4 * 4096**2 + 3 * 4096 * 11_008 + 2 * 4096)


@pytest.mark.parametrize("name", REGISTRY)
def test_bytes_planned_are_the_bytes_that_a_study_reads(models, text, name):
    """Counted where tensors are read, all pairs together."""
    options = replace(OPTIONS, text=text, n_sequences=4, sequence_length=16)
    opened = open_models([models["base"], models["tuned"], models["stranger"]])
    with counting() as count:
        records = run_pairs(opened, [name], options, progress=False)
    assert [record.error for record in records if record.error] == []
    assert count.tensors == pytest.approx(plan(opened.models, [name], options).bytes_to_read, rel=0.01)  # a norm


def test_all_blocks_meet_all_where_depths_differ(tmp_path):
    sources = []
    for blocks in (2, 3):
        synthesise(shape("tiny", blocks), tmp_path / str(blocks))
        sources.append(str(tmp_path / str(blocks)))
    work = planned(*sources, names=["phi_u", "phi_h"])
    assert {job.statistic for job in work.jobs} == {"phi_u"}
    assert work.comparisons == 2 * 3
    assert planned("shape:tiny*2", all_blocks=True).comparisons == 4 * 4
    with counting() as count:
        run_pairs(open_models(sources), ["phi_u"], OPTIONS, all_blocks=True, progress=False)
    assert count.tensors == work.bytes_to_read


def test_shapes_are_those_of_the_files(tmp_path):
    """A folder and the named shape give the same plan, bytes included."""
    for name in ("a", "b"):
        synthesise(shape("tiny"), tmp_path / name, seed=ord(name))
    folders = planned(str(tmp_path / "a"), str(tmp_path / "b"))
    named = planned("shape:tiny*2")
    assert (folders.bytes_to_read, folders.tensors) == (named.bytes_to_read, named.tensors)


def test_no_tensor_of_a_model_is_read(tmp_path, monkeypatch):
    for name in ("a", "b"):
        synthesise(shape("tiny"), tmp_path / name)
    real = Checkpoint.array

    def array(self, *arguments):
        assert str(tmp_path) not in self.source
        return real(self, *arguments)

    monkeypatch.setattr(Checkpoint, "array", array)
    sketch = shapes_of([str(tmp_path / "a"), str(tmp_path / "b")])
    assert estimate(sketch.models, ["phi_u"], OPTIONS).cpu_seconds > 0


# Sums -----------------------------------------------------------------------------------------------------------------


def test_seconds_are_those_of_the_trial_times_blocks_models_and_pairs():
    """21 models are read once a block, and 210 pairs compared; a pass goes once through all blocks, and starts once."""
    work = planned("shape:llama-2-7b*21", names=["phi_h"])
    result = summed(work, tried(work, run=100.0, read=1.0, compare=0.01))
    clock = {line: taken.clock for line, taken in result.parts.items()}
    assert clock["run models"] == pytest.approx(21 * 33 * 100)
    assert clock["read and prepare"] == pytest.approx(21 * 32)
    assert clock["compare by phi_h"] == pytest.approx(210 * 32 * 0.01)
    assert result.seconds == pytest.approx(sum(clock.values()))
    assert result.cpu_seconds == pytest.approx(2 * result.seconds)


def test_what_compares_whole_models_is_counted_once_a_pair():
    work = planned("shape:llama-2-7b*3", names=["phi_unseen"])
    assert summed(work, tried(work, compare=1.0)).parts["compare by phi_unseen"].clock == 3


def test_workers_share_the_seconds_of_the_processors():
    work = planned("shape:tiny*3")
    assert summed(work, tried(work, compare=1.0), 8).seconds == pytest.approx(2 * 3 * 4 / 8)


def test_features_of_all_blocks_wait_and_those_of_a_block_are_held():
    """Each of 32 blocks leaves 10 bytes for both forms; two models of one block are held with what is made of them."""
    work = planned("shape:llama-2-7b*3", names=["phi_match", "phi_match_unsigned"])
    result = summed(work, tried(work, held=10))
    assert result.waiting == 3 * 32 * 10
    assert result.smallest == 20
    assert result.largest == work.loaded > 30
    light = planned("shape:llama-2-7b*3")
    assert summed(light, tried(light, held=10)).largest == 3 * 10 + 2 * 20


def test_a_plan_needs_a_worker():
    with pytest.raises(InputError, match="workers"):
        estimate(shapes_of(["shape:tiny*2"]).models, ["phi_u"], OPTIONS, workers=0)


# The trial ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["llama", "llama_tied", "gpt2", "qwen3", "gemma2", "phi3", "mixtral"])
def test_a_stand_in_has_the_shapes_of_one_block(tiny, label, tmp_path):
    model = Model.open(str(tiny(label)))
    written = Model.open(str(write_stand_in(model, tmp_path / "a", seed=0)))
    few = Model.open(str(write_stand_in(model, tmp_path / "b", vocabulary=20, seed=0)))
    names = {part.name for part in model.anatomy.parts if part.block in (None, 0)}
    assert set(written.checkpoint.tensor_names) == names
    for name in names:
        assert written.checkpoint.shape(name) == model.checkpoint.shape(name)
        assert written.checkpoint.dtype(name) == model.checkpoint.dtype(name)
    assert (written.anatomy.n_blocks, few.anatomy.n_blocks, few.anatomy.vocab_size) == (1, 1, 20)
    few.checkpoint.load_model()  # transformers makes it, too


@pytest.mark.parametrize("label", ["llama", "gpt2"])
def test_a_config_alone_has_a_stand_in_that_runs(tiny, label, tmp_path):
    model = model_of(Checkpoint.open(tiny(label)).config)
    Checkpoint.open(write_stand_in(model, tmp_path / "a", seed=0)).load_model()


def test_a_config_of_one_block_has_one_entry_for_each(tiny):
    model = Model.open(str(tiny("qwen3")))
    config = model.checkpoint.config | {"layer_types": ["full_attention"] * model.anatomy.n_blocks}
    object.__setattr__(model.checkpoint, "config", config)
    assert one_block(model, 7)["layer_types"] == ["full_attention"]
    assert one_block(model, 7)["num_hidden_layers"] == 1
    assert model.checkpoint.config["num_hidden_layers"] > 1


def test_a_part_of_a_model_has_no_stand_in(models, tmp_path):
    part = replace(Model.open(models["base"]), anatomy=replace(Model.open(models["base"]).anatomy, part_name="vision"))
    with pytest.raises(InputError, match="is a part of a model"):
        write_stand_in(part, tmp_path / "a", seed=0)


def test_models_of_one_shape_are_tried_once(models):
    sketch = shapes_of([models["base"], models["tuned"], "shape:tiny*2"])
    assert list(kinds_of(sketch.models).values()) == [0, 0, 1, 1]


def test_every_usual_statistic_is_tried(models):
    """By blocks, or as a whole; of a model that runs what it leaves is measured, too."""
    sketch = shapes_of([models["base"], models["tuned"]])
    work = plan(sketch.models, USUAL, FEW)
    result = estimate(sketch.models, USUAL, FEW)
    assert result.trial.failed == {}
    for job in work.jobs:
        costs = result.trial.whole if job.place is None else result.trial.block
        assert costs["compare", job.statistic, (0, 0)].cpu > 0
    assert result.waiting > 0
    assert result.trial.seconds > 0


class Slow(Statistic):
    """A reader's own: it counts how often it is asked."""

    name, reads, roles, calls = "slow", "the up projection", ("up",), []

    def prepare(self, model, options):
        return Rows(model)

    def compare_block(self, a, b, block, options):
        self.calls.append(block)
        sum(range(100_000))
        return BlockResult(block, 0.0, None, detail=Detail())


class Rows(Features):
    def __init__(self, model):
        self.model = model

    def block(self, block):
        return self.model.anatomy.read(self.model.checkpoint, "up", block)


def test_a_statistic_of_a_reader_is_planned_without_any_law(models, monkeypatch):
    monkeypatch.setattr(statistics, "REGISTRY", dict(statistics.REGISTRY))
    monkeypatch.setattr(statistics, "_loaded", dict(statistics._loaded))
    statistics.register(Slow)
    sketch = shapes_of([models["base"], models["tuned"], models["stranger"]])
    result = estimate(sketch.models, ["slow"], OPTIONS)
    assert result.trial.failed == {}
    one = result.trial.block["compare", "slow", (0, 0)].cpu
    assert result.parts["compare by slow"].cpu == pytest.approx(3 * 3 * one)  # pairs and blocks
    assert set(Slow.calls) == {0}  # of stand-ins of one block
    assert result.smallest == 2 * 48 * 24 * 4


def test_what_fails_in_a_trial_has_no_time_and_a_reason(models, monkeypatch):
    def fails(*arguments):
        raise InputError("no such law")

    monkeypatch.setattr(type(statistics.get("phi_u")), "compare_block", fails)
    sketch = shapes_of([models["base"], models["tuned"]])
    result = estimate(sketch.models, ["phi_u", "phi_l2"], FEW)
    assert "no such law" in result.trial.failed["phi_u"]
    assert list(result.trial.failed) == ["phi_u"]


def test_parts_of_a_study_are_timed_within_and_nowhere_else(models, text):
    opened = open_models([models["base"], models["tuned"]])
    options = replace(FEW, text=text)
    with timing() as parts:
        run_pairs(opened, ["phi_u", "phi_match"], options, progress=False)
    run_pairs(opened, ["phi_l2"], options, progress=False)
    assert {(what, name) for what, name, _ in parts} == {
        ("run", "phi_match"), ("read", "phi_match"), ("compare", "phi_match"), ("read", "phi_u"), ("compare", "phi_u"),
    }  # fmt: skip
    assert parts["compare", "phi_u", (models["base"], models["tuned"])].cpu > 0
    rows = 3 * 2 * 48 * 16 * 4  # of gate and up at each token; beside them the tokens, and what is known of each unit
    assert rows < parts["run", "phi_match", (models["base"],)].nbytes < 1.2 * rows


# Which models ---------------------------------------------------------------------------------------------------------


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


# The command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(run, monkeypatch):
    """Trials cost nothing here."""
    monkeypatch.setattr(study, "trial", lambda models, *arguments, **_: Trial(kinds_of(models), {}, {}, {}, 12.0))
    return run


def test_the_command_prints_a_plan(run):
    status, out, err = run("plan", "shape:tiny*21", "--statistic", "phi_u,huref_a", "--workers", 8)
    assert (status, err) == (0, "")
    assert "1,680 comparisons of a pair" in out
    assert "pair by pair 20.0 times as much" in out
    assert "8 processes" in out
    assert "a trial of 12 s on this machine" in " ".join(out.split())


def test_the_command_says_what_does_not_fit_and_what_has_no_time(run, monkeypatch):
    def large(models, *arguments, **settings):
        held = {("read", "phi_u", (0,)): Taken(1.0, 1.0, 2 * 10**9)}
        return Trial(kinds_of(models), held, {}, {"phi_h": "it has no gates"}, 12.0)

    monkeypatch.setattr(study, "trial", large)
    _, out, _ = run("plan", "shape:llama-2-7b*2", "--statistic", "phi_u,phi_h", "--memory", "4GB")
    out = " ".join(out.split())
    assert "does not fit: the largest pair needs about 4.0 GB" in out
    assert "none is known of phi_h: it has no gates" in out


def test_json_is_the_same(run, tmp_path):
    status, out, err = run("plan", "shape:tiny*3", "shape:giant", "--statistic", "phi_u", "--json", "-")
    numbers = json.loads(out)
    assert status == 0
    assert numbers["comparisons"] == 12
    assert numbers["bytes_to_read"] == 12 * 176 * 64 * 2
    assert list(numbers["refused"]) == ["shape:giant"]
    assert "left out: shape:giant" in err
    assert (numbers["seconds"], numbers["trial_seconds"], numbers["no_time_known"]) == (0.0, 12.0, {})


def test_a_tiny_pair_is_planned_by_a_real_trial(models):
    pair = shapes_of([models["base"], str(models["tuned"])])
    trials = trial(pair.models, {"phi_u": [tuple(pair.models)]}, {}, OPTIONS)
    assert trials.failed == {}
    assert set(trials.block) == {("read", "phi_u", (0,)), ("compare", "phi_u", (0, 0))}
    assert trials.whole == {}


def test_a_trial_runs_on_the_device_of_the_study(models):
    """A second backend on the CPU stands for it, whose comparisons go on in threads."""
    sketch = shapes_of([models["base"], models["tuned"]])
    result = estimate(sketch.models, ["phi_u", "phi_match"], replace(FEW, device="cpu:0"))
    assert result.trial.failed == {}
    assert min(taken.cpu for line, taken in result.parts.items() if line != "hash") > 0
