"""The commands. Bad input gets status 2, one line that names the thing and the way out, and nothing else."""

import errno
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_models
import torch
from safetensors.torch import load_file

import provlab
from provlab import zoo
from provlab.cli import compare, main
from provlab.cli.options import BlockNumbers
from provlab.statistics import REGISTRY
from provlab.statistics.options import Options
from provlab_study.publishing.claims import load_claims
from provlab_study.publishing.results import Results

UP = "model.layers.1.mlp.up_proj.weight"
PHI_U = ["--statistic", "phi_u"]
PLAN = "profile: x\nexperiments: []\n"


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch, text):
    """An empty project of its own to stand in, with one notebook, and text without a corpus."""
    for variable in ("TRANSFORMERS_VERBOSITY", "TOKENIZERS_PARALLELISM"):  # set by the command for its process
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    root = tmp_path / "project"
    (root / "notebooks").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    cells = [
        {"cell_type": "code", "id": "a", "metadata": {"tags": ["parameters"]}, "execution_count": None, "outputs": [],
         "source": 'profile: str = "default"\nseed: int = 0\nmodels: list[str] = []'},
    ]  # fmt: skip
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (root / "notebooks" / "tree.ipynb").write_text(json.dumps(notebook))
    monkeypatch.setenv("PROVLAB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(zoo, "held_out_text", lambda domain: text)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def bad(models, tmp_path):
    """A copy of a model, to be damaged."""
    return Path(shutil.copytree(models["base"], tmp_path / "bad"))


def test_an_error_of_the_program_is_one_line_too(run, monkeypatch):
    def broken(*_):
        raise AssertionError("two\nlines")

    monkeypatch.setattr(zoo, "status", broken)
    status, out, err = run("zoo", "list")
    assert (status, out) == (2, "")
    assert err == "provlab: internal error: AssertionError: two lines (PROVLAB_DEBUG=1 shows where)\n"
    monkeypatch.setenv("PROVLAB_DEBUG", "1")
    with pytest.raises(AssertionError):
        run("zoo", "list")


def test_ctrl_c_is_130(run, monkeypatch):
    """Where a command keeps finished work, the message says so, and there alone."""

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, "status", stopped)
    monkeypatch.setattr(zoo, "build", stopped)
    assert run("zoo", "list") == (130, "", "provlab: stopped\n")
    kept = "provlab: stopped; what was finished is kept, the same command goes on from there\n"
    assert run("zoo", "build") == (130, "", kept)


# Good input ----------------------------------------------------------------------------------------------------------


def test_compare_writes_json(run, models, tmp_path):
    target = tmp_path / "found.json"
    arguments = ["compare", models["base"], models["other"], "--statistic", "phi_u,phi_l2", "--statistic", "phi_u"]
    status, out, err = run(*arguments, "--json", target, "--blocks", "0,2", "--seed", "5", "--permutations", "9")
    assert (status, err) == (0, "")
    assert "phi_u" in out
    content = json.loads(target.read_text())
    assert list(content["statistics"]) == ["phi_u", "phi_l2"]
    assert [block["block"] for block in content["statistics"]["phi_u"]["blocks"]] == [0, 2]
    assert content["seed"] == 5
    status, out, _ = run(*arguments, "--json", "-")
    assert status == 0
    assert json.loads(out)["models"][0]["source"] == models["base"]  # and nothing else on standard output


def test_compare_and_study_run_models_on_a_text_of_the_readers(run, models, tmp_path):
    """A verdict that asks for a text that both know must be one that the command can follow."""
    (tmp_path / "own.txt").write_text("fold the blade and rinse it by hand " * 40, encoding="utf-8")
    for command in ("compare", "study"):
        arguments = (command, models["base"], models["other"], "--statistic", "phi_match", "--sequences", "4")
        status, out, _ = run(*arguments, "--text", str(tmp_path / "own.txt"), "--json", "-")
        assert status == 0
        expected = Options(text="fold the blade and rinse it by hand " * 40).text_sha256
        assert json.loads(out)["parameters"]["text"] == expected
        status, _, error = run(*arguments, "--text", str(tmp_path / "none.txt"))
        assert (status, "none.txt cannot be read as UTF-8 text" in error) == (2, True)


def test_a_script_can_fail_on_what_is_rejected(run, models):
    """Exit status 1 for a related pair, 0 for independent models and where it was not asked for."""
    for command in ("compare", "study"):
        for other, status in (("tuned", 1), ("other", 0)):
            arguments = (command, models["base"], models[other], *PHI_U)
            assert [run(*arguments)[0], run(*arguments, "--fail-on", "rejected,by-order-alone")[0]] == [0, status]


@pytest.mark.parametrize("command", ["run", "book", "reproduce", "claims"])
def test_a_command_of_a_study_that_is_not_installed_says_how_it_comes(run, monkeypatch, command):
    monkeypatch.setattr("provlab.plugins.named", lambda _: {})
    status, out, err = run(command, "x", "--no-such-option")
    assert (status, out) == (2, "")
    assert err == (
        f"provlab: error: {command} is a command of the study, which is no part of the library; in a checkout of "
        "provlab, make env installs both\n"
    )
    assert not re.search(rf"^ *{command}\b", run("--help")[1], re.M)
    assert run("nothing")[2].startswith("provlab: error: No such command 'nothing'")


def test_a_block_of_zero_rows_is_left_out_and_named(run, models, bad):
    tiny_models.rewrite(bad, lambda tensors: tensors[UP][1:].zero_())
    status, out, err = run("compare", models["base"], bad, *PHI_U)
    assert (status, err) == (0, "")
    assert "1 of 3 blocks: bad has fewer than two hidden units there" in " ".join(out.split())


def test_another_package_adds_a_command(run, monkeypatch, tmp_path):
    (tmp_path / "weather").mkdir()
    code = "import click\n\n@click.command()\ndef command():\n    print('it rains')\n"
    (tmp_path / "weather" / "today.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    point = metadata.EntryPoint("today", "weather.today", "provlab.commands")
    monkeypatch.setattr("provlab.plugins.named", lambda _: {"today": point})
    assert run("today") == (0, "it rains\n", "")
    assert "today    a command of weather" in run("--help")[1]


def test_help_names_statistics_formats_and_statuses(run):
    out = " ".join(run("compare", "--help")[1].split())
    assert all(name in out for name in (*REGISTRY, "safetensors", "GGUF", "AWQ", "MXFP4", "--fail-on"))
    assert "1 it ran and --fail-on holds or verify refutes the report, 2 it could not run" in " ".join(
        run("--help")[1].split()
    )
    assert run("--version")[1] == f"provlab {metadata.version('provlab')}\n"


def test_why_several_statistics_did_not_run_is_one_sentence(run, models, tmp_path):
    other = shutil.copytree(models["stranger"], tmp_path / "other")
    (other / "tokenizer.json").write_text("{")
    out = run("compare", models["base"], other, "--statistic", "phi_u,phi_jsd,phi_match", "-v")[1]
    assert " ".join(out.split()).count("has no usable tokenizer") == 1
    assert "\nphi_jsd    not run " in out


@pytest.mark.parametrize(("seconds", "shown"), [(0.001, True), (60.0, False)])
def test_a_file_is_shown_how_far_the_work_is_once_a_minute(run, models, monkeypatch, seconds, shown):
    monkeypatch.setattr("provlab.cli.delivery.seconds_between_bars", lambda: seconds)
    assert ("%|" in run("compare", models["base"], models["other"], *PHI_U)[2]) == shown


def test_a_pickle_that_is_trusted(run, models, bad):
    torch.save(load_file(bad / "model.safetensors"), bad / "pytorch_model.bin")
    (bad / "model.safetensors").unlink()
    status, out, _ = run("compare", models["base"], bad, *PHI_U, "--allow-pickle")
    assert status == 0
    assert "alike by order alone" in " ".join(out.split())


def test_a_stop_that_a_library_turns_into_an_error_is_a_stop(run, monkeypatch):
    def interrupted(*_, **__):
        try:
            raise KeyboardInterrupt
        finally:
            raise OSError("a clean-up failed")

    monkeypatch.setattr("provlab.api.compare", interrupted)
    status, out, err = run("compare", "a", "b")
    assert (status, out) == (130, "")
    assert err == "provlab: stopped\n"


def test_blocks_are_parsed():
    assert BlockNumbers().convert("0", None, None) == [0]
    assert BlockNumbers().convert("2, 0,4-6,5", None, None) == [2, 0, 4, 5, 6]


def test_run_executes_a_notebook_under_a_profile_of_its_own(run, monkeypatch, tmp_path):
    from provlab_study.publishing import runner

    ran = []
    monkeypatch.setattr(runner, "run", lambda path, inputs, output, **_: ran.append((path.stem, inputs, output)))
    status, out, err = run("run", "tree", "-p", "models=a, b", "-p", "seed=4")
    pages = tmp_path / "results" / "own" / "pages"
    assert (status, err) == (0, f"all pages of yours: {pages / 'index.html'}\n")
    ((_, values, expected),) = ran
    assert values == {"models": ["a", "b"], "seed": 4, "profile": "own"}
    assert expected.parent == pages
    assert expected.name.startswith("tree-")
    assert out == f"{expected}\n"
    run("run", "tree", "-p", "profile=mine", "-o", "x.ipynb")
    assert ran[1] == ("tree", {"profile": "mine"}, Path("x.ipynb"))
    run("run", "tree", "-p", "models=a, b", "-p", "seed=5")
    assert ran[2][2] not in (expected, Path("x.ipynb"))  # another question is another page


def test_run_takes_what_a_profile_gives_a_notebook(run, monkeypatch, tmp_path):
    from provlab_study.publishing import runner

    ran = []
    monkeypatch.setattr(runner, "run", lambda path, inputs, output, **_: ran.append(inputs))
    profiles = Path("notebooks") / "profiles"
    profiles.mkdir()
    (profiles / "small.yml").write_text(
        "profile: small\nexperiments:\n  - {notebook: tree, parameters: {models: [a], seed: 3}}\n"
    )
    assert run("run", "tree", "--profile", "small", "-p", "seed=4")[0] == 0
    assert ran == [{"models": ["a"], "seed": 4, "profile": "own"}]
    status, _, err = run("run", "tree", "--profile", "large")
    assert status == 2
    assert re.search(r"there is no plan .*large.yml; beside it there are: small\n$", err)
    (profiles / "none.yml").write_text("profile: none\nexperiments: []\n")
    status, _, err = run("run", "tree", "--profile", "none")
    assert status == 2
    assert "the profile none does not run tree; give parameters by -p" in err


def test_reproduce_builds_runs_and_remembers(run, monkeypatch, tmp_path):
    from provlab_study.publishing import plan as plan_module

    done = []
    monkeypatch.setattr(zoo, "build", lambda names, **settings: done.append((names, settings)))
    monkeypatch.setattr(
        plan_module, "run", lambda path, parameters, output, **_: done.append(parameters) or output.touch()
    )
    (tmp_path / "book").mkdir()
    plan = tmp_path / "small.yml"
    plan.write_text(
        "profile: small\nzoo: {edition: smoke}\n"
        "experiments: [{notebook: tree, parameters: {seed: 2, models: ['zoo:oak']}}]\n"
    )
    status, out, err = run("reproduce", plan, "-o", tmp_path / "book")
    assert (status, err) == (0, "")
    assert done == [(["oak"], {"edition": "smoke"}), {"profile": "small", "seed": 2, "models": ["zoo:oak"]}]
    assert "1 of 1 notebooks ran" in out
    assert Results(tmp_path / "results").current().root == tmp_path / "results" / "small"


def test_what_comes_between_stages_runs_beside_the_study_and_ends_with_it(run, monkeypatch, tmp_path):
    from provlab_study.publishing import plan as plan_module

    recorded, stops = tmp_path / "seen", False

    def study(*_, between, **__):
        between()  # waits for a file that is there only once the study has gone on
        (tmp_path / "later").touch()
        between()
        if stops:
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(plan_module, "run_plan", study)
    plan = tmp_path / "small.yml"
    plan.write_text(PLAN)
    waits = f"while [ ! -e {tmp_path}/later ]; do sleep 0.05; done; echo once >> {recorded}"
    assert run("reproduce", plan, "-o", tmp_path / "book", "--between", waits)[0] == 0
    assert recorded.read_text() == "once\nonce\n"
    stops = True
    begins = f"[ -e {tmp_path}/first ] && (sleep 1; touch {tmp_path}/last); touch {tmp_path}/first"
    status, _, err = run("reproduce", plan, "-o", tmp_path / "book", "--between", begins)
    assert (status, err) == (130, "provlab: stopped; what was finished is kept, the same command goes on from there\n")
    time.sleep(1.2)
    assert (tmp_path / "first").exists()
    assert not (tmp_path / "last").exists()  # what the shell began ended with it


@pytest.fixture
def typed(monkeypatch):
    """Say what stands on standard input: a pipe with nothing in it, or a terminal with this answer."""
    monkeypatch.setattr("provlab_study.publishing.plan.run_plan", lambda *_, **__: 0)

    def of(answer=None):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: answer is not None))
        monkeypatch.setattr("builtins.input", lambda question: answer or pytest.fail("asked"))

    return of


def test_nothing_is_fetched_without_a_yes(run, typed, monkeypatch, tmp_path):
    monkeypatch.delenv("PROVLAB_FETCH", raising=False)
    plan = tmp_path / "paper.yml"
    plan.write_text(f"{PLAN}needs: A GPU.\nfetches: [{{id: a/b, gigabytes: 2}}, {{id: a/c, gigabytes: 13.5}}]\n")
    requests = "  a/b" + " " * 47 + " " * 6 + "2.0 GB"
    typed()
    status, out, err = run("reproduce", plan, "-o", tmp_path / "book")
    assert status == 2
    assert requests in out
    assert "2 models, 15.5 GB. A GPU." in out
    assert err.startswith("provlab: error: nobody is there to agree to fetching these; agree with --yes (make: YES=1)")
    for answer, expected in (("n", 2), (" ", 2), ("y", 0), ("YES", 0)):
        typed(answer)
        assert run("reproduce", plan, "-o", tmp_path / "book")[0] == expected, answer
    assert run("reproduce", plan, "-o", tmp_path / "book", "--yes")[0] == 0


def test_consent_is_given_page_by_page(run, typed, monkeypatch, tmp_path):
    """The names of pages are an answer: those that fetch and are not named are left out, and so are their models."""
    from provlab_study.publishing import plan as plan_module
    from provlab_study.publishing.plan import Plan

    plan, ran, asked = Plan("x", [], []), [], []
    experiments = [
        {"notebook": "tree", "parameters": {"models": ["a/b", "a/c"]}},
        {"notebook": "board", "parameters": {"models": ["a/d"]}},
        {"notebook": "status"},
    ]
    fetches = [{"id": name, "gigabytes": 2.0} for name in ("a/b", "a/c", "a/d")]
    plan = Plan("x", experiments, fetches)
    monkeypatch.setattr(Plan, "read", lambda path: plan)
    monkeypatch.setattr("provlab.reading.hub.check_access", lambda ids: asked.append(ids))
    typed("board")
    monkeypatch.setattr(plan_module, "run_plan", lambda some, *_, **__: ran.append(some) or 0)
    costs = "page,outcome,processor_minutes,peak_gb,times,blocks,of_blocks,date,machine\n"
    (tmp_path / "paper.costs.csv").write_text(costs + "tree,done,3,4.2,10,2,32,2026-11-29,two cores\n")
    reproduce = ("reproduce", tmp_path / "paper.yml", "-o", tmp_path / "book")
    status, out, err = run(*reproduce)
    assert (status, err) == (0, "")
    assert "tree                    2 models      4.0 GB, about 48 min and 4 GB of memory, or more (" in out
    assert "board                   1 models      2.0 GB, time not measured" in out
    assert [item["notebook"] for item in ran[0].experiments] == ["board", "status"]
    assert asked == [["a/d"]]
    typed("status")
    assert run(*reproduce)[2] == "provlab: error: status is no page that fetches a model; these do: tree, board\n"
    typed()
    monkeypatch.setenv("PROVLAB_FETCH", "tree board")
    assert run(*reproduce)[0] == 0
    assert len(ran[1].experiments) == 3


def test_a_text_is_announced_and_asked_for_like_a_model(run, typed, monkeypatch, tmp_path):
    from provlab_study.publishing import plan as plan_module
    from provlab_study.publishing.plan import Plan

    text = "zip://wiki/test.raw::hf://datasets/some/texts/wiki.zip"
    experiments = [{"notebook": "tree", "parameters": {"models": ["a/b"], "text": text}}]
    plan = Plan("x", experiments, [{"id": "a/b", "gigabytes": 2.0}, {"id": text, "gigabytes": 0.0047}])
    asked = []
    monkeypatch.setattr(Plan, "read", lambda path: plan)
    monkeypatch.setattr("provlab.reading.hub.check_access", lambda *access: asked.append(access))
    monkeypatch.setattr(plan_module, "run_plan", lambda *_, **__: 0)
    typed("tree")
    status, out, _ = run("reproduce", tmp_path / "paper.yml", "-o", tmp_path / "book")
    assert status == 0
    assert [line.split() for line in out.splitlines()[1:3]] == [
        [text, "5", "MB"],
        ["1", "model", "and", "1", "text,", "2.0", "GB."],
    ]
    assert "tree                    1 models      2.0 GB, with a text, time not measured" in out
    assert asked == [(["a/b"],), (["some/texts"], "dataset")]


def test_what_a_notebook_can_do_without_is_offered(run, typed, monkeypatch, tmp_path):
    from provlab_study.publishing import plan as plan_module

    plan, fetched = tmp_path / "small.yml", []

    class Chapter:
        @staticmethod
        def missing():
            return [{"id": "package 1.0 (MIT)", "gigabytes": 0.023}]

        @staticmethod
        def obtain(*, fetch):
            fetched.append(fetch)
            return {"model": "no index here"}

    plan.write_text("profile: x\nexperiments: [{notebook: tree}]\noffers: [tree]\n")
    monkeypatch.setattr(plan_module, "offer", lambda name: Chapter)
    reproduce = ("reproduce", plan, "-o", tmp_path / "book")
    typed()
    status, out, _ = run(*reproduce)  # nobody is asked on a pipe, and the study goes on
    assert (status, fetched) == (0, [])
    assert "tree: these are not fetched; agree with --yes or PROVLAB_FETCH=yes" in out
    assert "1 package, 23 MB. Without them" in out  # a small one is not said to be of 0.0 GB
    monkeypatch.setenv("PROVLAB_FETCH", "yes")
    status, out, _ = run(*reproduce)
    assert (status, fetched) == (0, [True])
    assert "tree: model is not shown: no index here" in out
    typed("")  # the answer is known
    monkeypatch.setenv("PROVLAB_FETCH", "no")
    assert (run(*reproduce)[0], len(fetched)) == (0, 1)
    assert (run(*reproduce, "--yes")[0], len(fetched)) == (0, 2)
    monkeypatch.setenv("PROVLAB_FETCH", "perhaps")
    assert run(*reproduce)[2] == "provlab: error: PROVLAB_FETCH must be yes or no, not 'perhaps'\n"
    monkeypatch.delenv("PROVLAB_FETCH")
    for answer, expected in (("n", 2), ("y", 3)):
        typed(answer)
        assert (run(*reproduce)[0], len(fetched)) == (0, expected)


@pytest.fixture
def other_corpus(monkeypatch):
    """A corpus that need not be made; what addresses were computed from it is forgotten again."""
    ground = importlib.import_module("provlab.zoo.recipes")._ground
    ground.cache_clear()
    monkeypatch.setattr("provlab.zoo.corpus.fingerprint", lambda: "0" * 16)
    yield
    ground.cache_clear()


@pytest.mark.usefixtures("other_corpus")
def test_zoo_list_and_build(run, monkeypatch, tmp_path):
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")  # no name wraps
    monkeypatch.setattr(zoo, "build", lambda names, **settings: {name: tmp_path / name for name in names or ["oak"]})
    status, out, err = run("zoo", "list", "--edition", "smoke")
    assert (status, err) == (0, "")
    number = len(zoo.families("smoke"))
    assert len(out.splitlines()) <= 22  # one screen: a line a group
    assert out.startswith(f"0 of {number} models of the edition smoke are built.\n")
    assert re.search(r"^tree +21 +0  oak, oak-chat", out, re.MULTILINE)
    _, out, _ = run("zoo", "list", "tree", "--edition", "smoke")
    assert len(out.splitlines()) == 2 + 1 + 21  # the answer and an empty line, then the table
    assert "zoo:oak@smoke " in out
    assert len(run("zoo", "list", "*", "--edition", "smoke")[1].splitlines()) == 2 + 1 + number
    assert run("zoo", "build", "oak", "elm", "--jobs", "1")[1] == f"oak: {tmp_path}/oak\nelm: {tmp_path}/elm\n"


def test_claims_of_nothing(run, tmp_path):
    status, out, err = run("claims")
    assert (status, err) == (0, "")
    n = len(load_claims())
    assert " ".join(out.split()).startswith(
        f"{n} claims: 0 hold, 0 hold by a bar set after data, "
        f"0 hold in an experiment changed after data, 0 within their spread, 0 fail, {n} not run"
    )
    status, out, _ = run("claims", "--json", "-")
    rows = json.loads(out)
    assert len(rows) == n
    assert all({"id", "status", "published", "ours", "why"} <= row.keys() for row in rows)
    assert run("claims", "--json", tmp_path / "claims.json", "--results", tmp_path)[0] == 0
    assert json.loads((tmp_path / "claims.json").read_text()) == rows


# The real executable -------------------------------------------------------------------------------------------------


def executable(*arguments, **settings):
    path = Path(sys.executable).with_name("provlab")
    return subprocess.run([path, *arguments], capture_output=True, text=True, timeout=120, **settings)


def test_the_executable_refuses_in_one_line(models):
    done = executable("compare", models["base"], "/no/such/model")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == ("provlab: error: /no/such/model does not exist; give a checkpoint folder that does\n")


def test_the_executable_compares_and_survives_a_reader_that_leaves(models):
    done = executable("compare", models["base"], models["tuned"], *PHI_U, "-v")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Independent training is rejected by order alone, by phi_u (one test, level 0.01)" in " ".join(
        done.stdout.split()
    )
    path = Path(sys.executable).with_name("provlab")
    left = subprocess.run(
        f"'{path}' claims | head -n 1 >/dev/null", shell=True, capture_output=True, text=True, timeout=120
    )
    assert left.stderr == ""


def test_the_executable_answers_where_standard_output_is_closed(models, tmp_path):
    path, target = Path(sys.executable).with_name("provlab"), tmp_path / "answer.json"
    line = f"'{path}' compare '{models['base']}' '{models['tuned']}' --statistic phi_jsd --json '{target}' >&-"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(target.read_text())["models"]


def test_the_defaults_that_help_names_are_those_of_the_options():
    named = {option.name: option for option in compare.command.params if hasattr(Options(), option.name)}
    assert {"seed", "device", "dtype", "n_permutations", "n_sequences", "sequence_length"} <= named.keys()
    for name in named.keys() - {"blocks", "text"}:
        assert f"(default: {getattr(Options(), name)})" in named[name].help


def test_an_option_that_is_given_counts(models, run, tmp_path):
    pair = (models["base"], models["other"], "--statistic", "phi_u")
    for inputs, seed in ((), 0), (("--seed", 5), 5):
        assert run("compare", *pair, *inputs, "--json", tmp_path / "x.json")[0] == 0
        parameters = json.loads((tmp_path / "x.json").read_text())["parameters"]
        assert (parameters["seed"], parameters["n_sequences"]) == (seed, Options().n_sequences)


def test_no_home_is_said_in_one_line(monkeypatch, capsys):
    """A container's user without an entry in the list of users."""
    for name in ("HOME", "PROVLAB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", _without_home)
    assert main(["zoo", "list"]) == 2
    assert "this user has no home folder (HOME is not set); name a folder" in capsys.readouterr().err


def _without_home(path):
    if str(path).startswith("~"):
        raise RuntimeError("Could not determine home directory.")
    return path


def test_a_full_disk_is_named(monkeypatch, capsys, tmp_path):
    """numpy says "2704075 requested and 32704 written", without a number of the error."""

    def write(*_, **__):
        raise OSError("2704075 requested and 32704 written")

    monkeypatch.setattr("provlab.api.compare", write)
    arguments = ["compare", "a", "b"]
    assert main(arguments) == 2
    assert "no room" not in capsys.readouterr().err  # disks that have room are not said to be full
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    assert main(arguments) == 2
    message = r"provlab: error: no room is left on the disk of \S+; free some and go on\n"
    assert re.fullmatch(message, capsys.readouterr().err)


def test_the_full_disk_may_be_that_of_a_folder_that_was_given(monkeypatch, capsys, tmp_path):
    """An error of the system without a file's name, as a library hands it on."""

    def write(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("provlab.attest.shelf.add", write)
    (tmp_path / "disk").mkdir()
    full = {tmp_path / "disk": 0}
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=full.get(Path(folder), 2**40)))
    assert main(["shelf", "add", "./", "--shelf", str(tmp_path / "disk" / "shelf")]) == 2
    assert f"no room is left on the disk of {tmp_path / 'disk'};" in capsys.readouterr().err


def test_the_full_disk_may_be_that_of_the_results(run, monkeypatch, tmp_path, models):
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setenv("PROVLAB_RESULTS", str(disk))
    full = {disk: 0}
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=full.get(Path(folder), 2**40)))

    def fails(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("provlab.studying.study", fails)
    message = f"provlab: error: no room is left on the disk of {disk}; free some and go on\n"
    assert run("study", models["base"], models["other"]) == (2, "", message)


def test_a_process_that_works_for_another_leaves_a_ctrl_c_to_that_one():
    code = (
        "import logging, multiprocessing, os, signal, time\n"
        "from provlab.processes import stoppable, work_for_parent\n"
        "def waits():\n"
        "    work_for_parent()\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(9)\n"
        "def works():\n"
        "    work_for_parent()\n"
        "    logging.getLogger('asyncio').error('Task exception was never retrieved')\n"
        "    try:\n"
        "        with stoppable():\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "            time.sleep(9)\n"
        "    except KeyboardInterrupt:\n"
        "        os._exit(7)\n"
        "for what in (waits, works):\n"
        "    process = multiprocessing.get_context('fork').Process(target=what)\n"
        "    process.start()\n"
        "    process.join()\n"
        "    print(process.exitcode)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("130\n7\n", "")


def test_a_stream_of_ascii_shows_what_it_can():
    code = "import sys; from provlab.cli import main; sys.exit(main(['compare', '/no/\u00e9', 'b']))"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(r"provlab: error: /no/\xe9 does not exist")


def test_a_fault_in_writing_leaves_the_answer(run, models, tmp_path, monkeypatch):
    """A disk that is full, or a folder that somebody removed meanwhile, takes the file and not the answer."""

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path))

    monkeypatch.setattr("provlab.cli.delivery.atomic_file", full)
    words = ["compare", models["base"], models["other"], "--statistic", "phi_u"]
    status, out, err = run(*words, "--json", tmp_path / "x.json")
    assert status == 2
    assert "phi_u" in out
    assert "No space left on device" in err
    monkeypatch.setattr("provlab.attest.folder.atomic_folder", full)
    status, out, err = run(*words, "-o", tmp_path / "report")
    assert status == 2
    assert "phi_u" in out
    assert "No space left on device" in err
    assert err.count("\n") == 1


def test_all_that_a_comparison_must_train_is_announced_at_once(monkeypatch):
    asked = []
    monkeypatch.setattr(zoo, "build", lambda names, **_: asked.append(list(names)))
    monkeypatch.setattr("provlab.api.open_models", lambda *_, **__: pytest.fail("opened") if not asked else exit())
    with pytest.raises(SystemExit):
        provlab.compare("zoo:oak", "zoo:oak-math")
    assert asked == [["oak", "oak-math"]]
