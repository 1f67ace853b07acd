"""The cost of a comparison by Model-diff, computed: against counts by hand and what a run sends through a model."""

import json

import numpy as np
import pytest

import provlab
from provlab.errors import InputError
from provlab.modeldiff.nll import SequenceNll
from provlab.planning import diff, rates
from provlab.planning.sketch import shapes_of

RATES = rates.Rates(
    product=1e11, forward=1e11, threads=2.0, prepared=1e9, read=1e9, hashed=1e9, turned=1e9, ordered=1e9,
    lengths=1e9, near=1e9, decomposed=1e9, call=1e-4, permuted=1e8, divergence=1e8,
    easy=rates.PowerLaw(512, 0.1, 3.0), hard=rates.PowerLaw(512, 0.2, 3.0), cores=2,
)  # fmt: skip


def work(source, **settings):
    model = shapes_of([source, "shape:tiny"]).models[source]
    return diff.work(model, **{"length": 25, "n": 4000, "dtype": "float32", "rates": RATES} | settings)


def test_the_published_sizes_come_out():
    small, large = work("shape:gpt-2"), work("shape:llama-2-7b", dtype="bfloat16")
    assert small.parameters == pytest.approx(124e6, rel=0.01)
    assert large.parameters == 6_738_415_616
    assert large.weights == 2 * large.parameters
    assert large.operations == pytest.approx(2 * 6.6e9, rel=0.02)  # the table of tokens is looked up, not multiplied
    assert small.tokens == (4000 + 2 * 4000 + 500) * 24
    assert large.gpu_seconds < large.cpu_seconds / 100


def test_time_grows_with_tokens_and_memory_with_the_length():
    item, longer, more = work("shape:gpt-2"), work("shape:gpt-2", length=97), work("shape:gpt-2", n=8000)
    assert longer.tokens == 4 * item.tokens
    assert longer.cpu_seconds == pytest.approx(4 * item.cpu_seconds, rel=0.05)
    assert longer.held > item.held
    assert more.tokens == pytest.approx(2 * item.tokens, rel=0.05)
    with pytest.raises(InputError, match="2 tokens or more"):
        work("shape:gpt-2", length=1)
    with pytest.raises(InputError, match="dtype must be one of float32, bfloat16, float16, not int4"):
        work("shape:gpt-2", dtype="int4")


def test_a_run_sends_no_more_sequences_than_planned(models, text, monkeypatch, tmp_path):
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path))
    readers = []
    made = SequenceNll.__init__
    monkeypatch.setattr(SequenceNll, "__init__", lambda self, *a, **k: readers.append(self) or made(self, *a, **k))
    pair = models["base"], models["tuned"]
    provlab.diff(*pair, text=text, length=8, n=400, shares=(0, 1), progress=False)
    planned = work(pair[0], length=8, n=400)
    for reader in readers:
        assert 0.8 * (planned.written + planned.judged) < reader.evaluations <= planned.written + planned.judged


def test_the_command_says_it(run, models, monkeypatch, tmp_path):
    monkeypatch.setattr(rates, "measure_rates", lambda **_: RATES)
    target = tmp_path / "x.json"
    few = ["--sequences", 1000, "--sequence-length", 100, "--dtype", "bfloat16"]
    status, out, error = run("plan", "shape:gpt-2", "shape:llama-2-7b", "--diff", *few, "--json", target)
    assert (status, error) == (0, "")
    assert "6,738,415,616" in out
    assert "inputs of 100 tokens" in " ".join(out.split())
    result = json.loads(target.read_text())
    assert result["shape:gpt-2"]["tokens"] == 3500 * 99
    assert np.isfinite(list(result["shape:llama-2-7b"].values())).all()
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
        (["shape:tiny*2", "--sequence-length", "1"], "2 tokens or more"),
        (["shape:gpt-2*2", "--sequence-length", "1025"], "length 1025 exceeds the context of gpt-2#1: 1024; give less"),
    ):
        status, out, error = run("plan", *arguments, "--diff")
        assert (status, out) == (2, "")
        assert message in error
        assert len(error.splitlines()) == 1
