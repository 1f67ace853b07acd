"""A book about a reader's own models: a profile is written, and its pages are bound with a front page of their own."""

import json
import runpy
import subprocess
from pathlib import Path

import nbformat
import pytest
import yaml

from provlab import provenance
from provlab.errors import InputError
from provlab_study.commands.book import filled
from provlab_study.publishing.listing import on_own_models
from provlab_study.publishing.parameters import checked, parameters_of
from provlab_study.publishing.plan import Plan
from provlab_study.publishing.results import Results

PROJECT = Path(__file__).parents[2]
NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout that has the project's notebooks, and a folder of profiles of its own."""
    (tmp_path / "notebooks" / "profiles").mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    for path in NOTEBOOKS:
        (tmp_path / "notebooks" / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROVLAB_RESULTS", str(tmp_path / "results"))
    assert provenance.project_root() == tmp_path
    return tmp_path


@pytest.fixture
def three(models):
    return [models["base"], models["tuned"], models["stranger"]]


def test_a_profile_gives_each_page_that_takes_any_models_what_it_needs(run, checkout, three):
    status, out, err = run("book", *three)
    assert (status, err) == (0, "")
    path = checkout / "notebooks" / "profiles" / "mine.yml"
    plan = Plan.read(path)  # which checks every value
    takes = {page.stem for page in NOTEBOOKS if on_own_models(page)[0] == "yes"}
    assert {experiment["notebook"] for experiment in plan.experiments} == takes
    assert "llama_tree" in takes
    assert plan.parameters_of("llama_tree") == {"models": three}
    assert plan.parameters_of("evasion") == {"models": three, "pair": three[:2], "stranger": three[2]}
    assert plan.parameters_of("miqu") == {"base": three[0], "leak": three[1], "controls": three[2:]}
    text = path.read_text()
    assert '      # tuned: ""  # the model before quantisation' in text  # what may be given too
    for page in NOTEBOOKS:
        kind, why = on_own_models(page)
        assert (f"#   {page.stem}: " in text) == (kind == "some")
        assert why or kind == "yes" or page.stem in ("scoreboard", "status", "what_failed")
    assert f"{len(takes)} pages on 3 models" in out
    assert "make reproduce PROFILE=mine" in out


def test_what_cannot_be_a_book_is_refused_before_anything_is_written(run, checkout, three):
    for words, message in (
        (three[:1], "takes 2 models or more, not 1"),
        ([*three, three[0]], "more than once"),
        ([*three, f"{three[0]}/../{Path(three[0]).name}"], "more than once"),
        ([*three, "./none"], "./none does not exist"),
        ([*three, "--name", "paper"], "the profile paper is the study's own; give another --name"),
        ([*three, "--name", "../up"], "profile must be a plain name"),
    ):
        status, _, err = run("book", *words)
        assert status == 2
        assert message in err
    assert not list((checkout / "notebooks" / "profiles").iterdir())
    assert run("book", *three)[0] == 0
    assert "is there already; edit it, give --force" in run("book", *three)[2]
    assert run("book", *three, "--force")[0] == 0


def test_two_models_leave_out_pages_that_take_three(run, checkout, three):
    assert run("book", *three[:2])[0] == 0
    text = (checkout / "notebooks" / "profiles" / "mine.yml").read_text()
    assert "miqu: A quantised leak: it takes more than 2 models (controls: other models of the same shape" in " ".join(
        text.replace("#", " ").split()
    )
    assert [e["notebook"] for e in yaml.safe_load(text)["experiments"]].count("miqu") == 0


def test_each_page_accepts_what_it_is_filled_with():
    for path in NOTEBOOKS:
        declared = parameters_of(path)
        if any(parameter.takes_models for parameter in declared.values()):
            values = filled(declared, [f"/m{n}" for n in range(6)])
            assert checked(path, values) == values
    with pytest.raises(InputError, match="it takes more than 2 models"):
        filled(parameters_of(PROJECT / "notebooks" / "miqu.ipynb"), ["/a", "/b"])


def test_the_front_page_has_findings_models_and_how_it_was_made(checkout):
    build = checkout / "build"
    book = build / "book"
    (book / "experiments").mkdir(parents=True)
    for page in (PROJECT / "book").glob("*.md"):
        (book / page.name).write_text(page.read_text())
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("# The Llama tree\n\na and b: not rejected.\n\nMore.")]
    )
    nbformat.write(notebook, book / "experiments" / "llama_tree.ipynb")
    (book / "experiments" / "audit.ipynb").write_text("of an earlier profile")
    profile = checkout / "mine.yml"
    profile.write_text(
        'profile: mine\ntitle: "Mine"\nexperiments:\n  - {notebook: llama_tree, parameters: {models: [/a, /b]}}\n'
    )
    record = {
        "name": "llama_tree",
        "profile": "mine",
        "pairs": [],
        "measurements": {},
        "finished": "2026-01-02",
        "seconds": 60,
    }
    record |= {"machine": "a machine", "commit": "abc", "versions": {"provlab": "1"}}
    record["models"] = [{"source": name, "commit": None, "digest": f"{name[1]}" * 64} for name in ("/a", "/b", "/zoo")]
    Results(checkout / "results" / "mine").put_experiment("llama_tree", record)
    runpy.run_path(str(PROJECT / "book" / "own_book.py"))["main"](profile, build)
    front = (book / "index.md").read_text()
    assert front.startswith("# Mine\n")
    assert "**[The Llama tree](experiments/llama_tree.ipynb).** a and b: not rejected." in front
    assert "| `/a` | `aaaaaaaaaaaaaaaa` |" in front
    assert "/zoo" not in front
    assert "2026-01-02 on a machine, by provlab at commit abc, in 1.0 minutes" in front
    toc = yaml.safe_load((book / "_toc.yml").read_text())
    assert [chapter["file"] for chapter in toc["parts"][0]["chapters"]] == ["experiments/llama_tree"]
    files = {chapter["file"] for part in toc["parts"] for chapter in part["chapters"]}
    assert {f"experiments/{path.stem}" for path in NOTEBOOKS} <= files
    left = nbformat.read(book / "experiments" / "audit.ipynb", as_version=4)
    assert "*Not run on these models.*" in left.cells[0].source
    assert "audit.ipynb#" not in (book / "reading_a_verdict.md").read_text()  # a section that is not there
    assert "glue" not in (book / "test_here.md").read_text()
    config = yaml.safe_load((book / "_config.yml").read_text())
    assert config["title"] == "Mine"
    assert config["sphinx"]["config"]["moved_pages"] == {}  # the study's old pages never stood in this book
    assert all((Path(folder) / f"{name}.py").is_file() for name, folder in config["sphinx"]["local_extensions"].items())


def test_a_profile_of_the_study_stays_the_study(checkout):
    (checkout / "x.yml").write_text(json.dumps({"profile": "smoke", "experiments": []}))
    (checkout / "book").mkdir()
    runpy.run_path(str(PROJECT / "book" / "own_book.py"))["main"](checkout / "x.yml", checkout)
    assert not list((checkout / "book").iterdir())


@pytest.mark.parametrize(("title", "strict"), [("title: Mine\n", False), ("", True)])
def test_what_a_check_says_of_ones_own_pages_withholds_no_book(tmp_path, title, strict):
    """Its rules are the study's: a first reading of so many screens, for one, which long names of models break."""
    (plan := tmp_path / "x.yml").write_text(f"profile: x\n{title}experiments: []\n")
    told = ["make", "-n", "-C", PROJECT, f"PLAN={plan}", "PROFILE=x", "_build/x/html/index.html"]
    recipe = subprocess.run(told, capture_output=True, text=True, check=True).stdout.splitlines()
    (built,) = (line for line in recipe if "jupyter-book build" in line)
    checks = [line for line in recipe if "tests/book/check_" in line]
    assert (" -W " in built) == strict
    assert [not line.endswith("|| true") for line in checks] == [strict] * 2
