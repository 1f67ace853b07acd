"""The cost of a comparison by Model-diff: counts by hand and by a run, minutes by a trial."""

import json
import shutil
from pathlib import Path

import pytest

import provlab
from provlab.engine.timing import Taken
from provlab.errors import InputError
from provlab.modeldiff import trial
from provlab.modeldiff.nll import SequenceNll
from provlab.planning import diff
from provlab.planning.sketch import shapes_of

#: seconds of a trial's sequences, by the clock and of the processors: written and judged by a block, and by a model
TRIED = (Taken(1.0, 2.0), Taken(0.1, 0.2)), (Taken(3.0, 6.0), Taken(0.3, 0.6))


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(diff, "_tried", lambda *arguments: TRIED)


def work(source, **settings):
    model = {source: shapes_of([source, "shape:tiny"]).models[source]}
    return diff.works(model, **{"length": 25, "n": 4000, "dtype": "float32"} | settings)[source]


def test_the_published_sizes_come_out(made_up):
    small, large = work("shape:gpt-2"), work("shape:llama-2-7b", dtype="bfloat16")
    assert small.parameters == pytest.approx(124e6, rel=0.01)
    assert large.parameters == 6_738_415_616
    assert large.weights == 2 * large.parameters
    assert small.tokens == (4000 + 2 * 4000 + 500 + 360) * 24
    assert work("shape:gpt-2", length=97).tokens == 4 * small.tokens
    assert work("shape:gpt-2", length=97).held > small.held


def test_seconds_are_those_of_the_trial_times_blocks_and_sequences(made_up):
    """31 blocks more than the one that was tried with all tokens: 34 s for 32 that are written, 3.4 s if judged.

    Those have 9 tokens, of which 8 are read, and 24 are of an input of 25.
    """
    large = work("shape:llama-2-7b")
    assert large.seconds == pytest.approx((4000 * 34 + 8860 * 3.4) / 32 * 24 / 8)
    assert work("shape:llama-2-7b", length=5).seconds == pytest.approx((4000 * 34 + 8860 * 3.4) / 32)
    assert large.cpu_seconds == pytest.approx(2 * large.seconds)


def test_a_trial_writes_and_judges(models):
    tiny = work(models["base"], length=8, n=100)
    assert 0 < tiny.cpu_seconds < 600
    assert tiny.seconds > 0


def test_a_large_model_writes_fewer_where_nothing_is_asked(made_up):
    """As many as two cores answer in an hour with: 4,000 of a small one; on a GPU all."""
    assert [work(f"shape:{name}", n=None).written for name in ("gpt-2", "llama-2-7b")] == [4000, 60]
    assert work("shape:llama-2-7b", n=None, device="cuda").written == 4000
    assert work("shape:gpt-2", n=None, length=100).written < 4000


@pytest.mark.parametrize("parameters", [3e8, 5e8, 1e9, 2e9, 4e9, 6.74e9])
def test_all_that_is_read_by_default_fits_into_an_hour(parameters):
    """By hand: an hour of two cores at 60 GFLOP/s, two operations a parameter and token; pieces and rounding count.

    Planted: the sequences alone were counted, and 460 of 7B took more than an hour with the 860 that are read beside.
    """
    n = trial.default_n(parameters, "cpu", 25)
    written, judged = trial.sequences(n, asked=False)
    of_text = judged - trial.most_pieces(n, given=False, asked=False) + trial.most_pieces(n, given=True, asked=False)
    hours = [2 * (written + some) * 24 * 2 * parameters / 60e9 / 2 / 3600 for some in (judged, of_text)]
    assert 0.7 < max(hours) <= 1.0
    assert trial.sequences(100)[1] == 200 + 500 + 360  # who asks for few outputs still has the text read


def test_a_folder_with_a_config_alone_is_planned(models, run, made_up, tmp_path):
    shutil.copy(Path(models["base"]) / "config.json", tmp_path)
    status, out, error = run("plan", tmp_path, models["tuned"], "--diff")
    assert (status, error) == (0, "")
    assert "4,000 sequences of each model: a share of what it writes is known to 1.5 points" in " ".join(out.split())
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert run("plan", tmp_path, models["tuned"], "--diff")[0] == 2  # weights that cannot be read are no config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 1}, "2 tokens or more"),
        ({"dtype": "int4"}, "dtype must be one of float32, bfloat16, float16, not int4"),
        ({"length": 1025}, "length 1025 exceeds the context of gpt-2: 1024; give less"),
    ],
)
def test_what_no_model_can_do_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        work("shape:gpt-2", **settings)


def test_a_run_sends_no_more_sequences_than_planned(models, text, monkeypatch, tmp_path, made_up):
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path))
    readers = []
    made = SequenceNll.__init__
    monkeypatch.setattr(SequenceNll, "__init__", lambda self, *a, **k: readers.append(self) or made(self, *a, **k))
    pair = models["base"], models["tuned"]
    provlab.diff(*pair, text=text, length=8, n=400, shares=(0, 1), progress=False)
    planned = work(pair[0], length=8, n=400)
    for reader in readers:
        assert 0.8 * (planned.written + planned.judged) < reader.evaluations <= planned.written + planned.judged


def test_the_command_says_it(run, made_up, tmp_path):
    target = tmp_path / "x.json"
    few = ["--sequences", 1000, "--sequence-length", 100, "--dtype", "bfloat16"]
    status, out, error = run("plan", "shape:gpt-2", "shape:llama-2-7b", "--diff", *few, "--json", target)
    assert (status, error) == (0, "")
    assert "6,738,415,616" in out
    assert "inputs of 100 tokens" in " ".join(out.split())
    assert json.loads(target.read_text())["shape:gpt-2"]["tokens"] == 3860 * 99
    for dtype, limit, words in (
        ("float32", "64GB", ": enough"),
        ("float32", "20GB", ": too little (both models are held at once; try --dtype bfloat16)"),
        ("bfloat16", "20GB", ": enough"),
    ):
        status, out, _ = run("plan", "shape:llama-2-7b", "shape:tiny", "--diff", "--dtype", dtype, "--memory", limit)
        assert status == 0
        out = " ".join(out.split())
        assert f"--memory leaves {'1' if limit == '20GB' else '5'}" in out
        assert words in out
    for arguments, message in (
        (["shape:tiny*2", "--memory", "10MB"], "less than the libraries take"),
        (["shape:tiny*3"], "diff compares two models, not 3"),
        (["shape:tiny", "shape:nothing"], "nothing"),
    ):
        status, out, error = run("plan", *arguments, "--diff")
        assert (status, out) == (2, "")
        assert message in error
        assert len(error.splitlines()) == 1
