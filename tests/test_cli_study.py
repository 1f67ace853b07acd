"""`provlab study`: the table, JSON, going on after a stop; and one line for what cannot be."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from provlab import cli, zoo

PHI_U = ["--statistic", "phi_u"]
SMALL = ["--permutations", "3", "--sequences", "2", "--sequence-length", "8"]


@pytest.fixture
def run(run):
    """Run ``provlab study`` here: ``status, stdout, stderr``."""
    return lambda *arguments: run("study", *arguments)


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch, text):
    """An empty folder to stand in, results of one's own, and text without a corpus."""
    for variable in ("TRANSFORMERS_VERBOSITY", "TOKENIZERS_PARALLELISM"):  # set by the command for its process
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    monkeypatch.setenv("PROVLAB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(zoo, "held_out_text", lambda domain: text)
    monkeypatch.chdir(tmp_path)


def units(root):
    """Finished units; those being written have a name with a dot."""
    return [path for path in Path(root).rglob("*.json") if not path.name.startswith(".")]


def test_all_pairs_as_a_table(run, models, tmp_path):
    status, out, err = run(*models.values(), "--statistic", "phi_u,phi_h", *SMALL)
    assert (status, err) == (0, "")
    assert out.startswith("5 models, 10 pairs: ")
    assert re.search(r"^base, tuned +by order alone +-[0-9.]+ +phi_u", out, re.M)
    assert out.count("Holm over 20 tests, family-wise error at most 0.01") == 1
    whole = run(*models.values(), "--statistic", "phi_u,phi_h", *SMALL, "-v")[1]
    assert "Rejected, with adjusted p" in whole
    listed = " ".join(whole.partition("Rejected, with adjusted p")[2].split())
    assert re.search(r"/base and \S*/tuned: by order alone, phi_u 10\^-[0-9.]+", listed)
    assert "/other" not in listed
    assert len(units(tmp_path / "results" / "own")) == 2 * 10 * 3


def test_as_json_and_chosen_pairs_and_blocks(run, models, tmp_path):
    pair = f"{models['base']},{models['tuned']}"
    arguments = [
        *models.values(),
        *PHI_U,
        "--pairs",
        pair,
        "--blocks",
        "0,2",
        "--json",
        "-",
        "--results",
        tmp_path / "x",
    ]
    status, out, err = run(*arguments)
    assert (status, err) == (0, "")
    content = json.loads(out)
    assert content["schema"] == "provlab.study/1"
    assert content["sources"] == list(models.values())
    (record,) = content["records"]
    assert (record["a"], record["b"]) == (models["base"], models["tuned"])
    assert [block["block"] for block in record["blocks"]] == [0, 2]
    assert record["log10_p"] == record["holm_log10_p"] < -10
    assert {model["source"] for model in content["models"]} == set(models.values())
    assert run(*arguments[:-3], tmp_path / "file.json", "--results", tmp_path / "x")[0] == 0
    assert json.loads((tmp_path / "file.json").read_text()) == content


@pytest.mark.slow
def test_stopped_and_gone_on(models, tmp_path):
    """Ctrl-C ends with one line; the same command does what is left, and no more."""
    slow = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # in a shell's background it would be ignored
        "from provlab import cli\n"
        "from provlab.statistics.phi_u import PhiU\n"
        "real = PhiU.compare_block\n"
        "PhiU.compare_block = lambda *arguments: (time.sleep(float(sys.argv[1])), real(*arguments))[1]\n"
        "sys.exit(cli.main(sys.argv[2:]))\n"
    )
    arguments = ["study", *models.values(), *PHI_U, "--results", str(tmp_path / "r")]
    process = subprocess.Popen(
        [sys.executable, "-c", slow, "0.1", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 120
        while len(units(tmp_path / "r")) < 3:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (130, ""), err
    assert err == "provlab: stopped; what was finished is kept, the same command goes on from there\n"
    left = {path: path.stat().st_mtime_ns for path in units(tmp_path / "r")}
    assert 3 <= len(left) < 30
    assert cli.main(arguments) == 0
    assert len(units(tmp_path / "r")) == 30
    assert all(path.stat().st_mtime_ns == time for path, time in left.items())


def test_without_dask_the_extra_is_named(run, models, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    status, _, err = run(models["base"], models["tuned"], "--scheduler", "tcp://127.0.0.1:1")
    assert (status, err) == (2, "provlab: error: a scheduler needs Dask's distributed; install provlab[dask]\n")


def test_a_study_in_which_a_model_cannot_be_opened_answers_and_fails(run, models, tmp_path):
    (tmp_path / "empty").mkdir()
    words = [models["base"], models["tuned"], tmp_path / "empty", "--statistic", "phi_u"]
    status, out, err = run(*words, "--results", tmp_path / "kept")
    assert status == 2
    assert out.startswith("3 models, ")
    assert err.startswith(f"provlab: error: {tmp_path / 'empty'} could not be opened: ")
    assert err.endswith("; the other pairs stand above\n")
    assert err.count("\n") == 1
