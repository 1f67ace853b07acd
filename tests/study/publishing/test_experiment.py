"""The first and the last cell of a notebook: parameters are checked, results bound, provenance shown."""

import json
from dataclasses import dataclass
from importlib import metadata

import numpy as np
import pytest

import provlab
from provlab import machine, provenance
from provlab.errors import CheckpointError, InputError, ParameterError
from provlab_study.exchangeability.predicates import permtest_uniform
from provlab_study.publishing.evidence import OldRecordsError, read
from provlab_study.publishing.experiment import INJECTED, begin
from provlab_study.publishing.judgement import truth
from provlab_study.publishing.marks import UNDECIDED
from provlab_study.publishing.own import in_words
from provlab_study.publishing.results import STUDY_RUN, Results
from provlab_study.publishing.summary import Footer

DECLARED = {"profile": str, "models": list[str], "seed": int, "scale": float, "quick": bool}
VALUES = {"profile": "own", "models": ["a", "b"], "seed": 3, "scale": 1.0, "quick": False}


@dataclass(frozen=True)
class Share:
    of: str
    values: np.ndarray


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("PROVLAB_RESULTS", str(tmp_path / "results"))
    return tmp_path / "results"


def namespace(*injected, **values):
    """``globals()`` of a notebook whose parameters cell declares these, with what papermill injected behind it."""
    cells = ["", 'profile: str = "own"\nseed: int = 3', *injected, 'run = provlab_study.begin("tree", globals())']
    return {"__annotations__": dict(DECLARED), **VALUES, **values, "In": cells}


def test_begin_takes_the_declared_parameters(results, capsys):
    run = begin("tree", namespace(other=5))
    assert run.parameters == VALUES
    assert run.seed == 3
    assert run.store == Results(results / "own", own=True)  # not begun by the study
    assert capsys.readouterr().out == "tree: seed 3, profile own\n"
    assert not results.exists()  # nothing is written before there is something to write


def test_begin_without_parameters_takes_the_defaults(results):
    run = begin("tree", {})
    assert run.seed == 0
    assert run.store == Results(results / "default", own=True)


def test_a_draw_moves_the_seed_of_a_notebook_in_its_cells_and_its_record(results, monkeypatch, capsys):
    monkeypatch.setenv("PROVLAB_DRAW", "12")
    cells = namespace()
    run = begin("tree", cells)
    assert cells["seed"] == run.seed == 1_200_003
    assert capsys.readouterr().out == "tree: seed 1200003, profile own, draw 12\n"
    run.finish()
    record = Results(results / "draw-12" / "own", own=True).experiment("tree")
    assert (record["draw"], record["seed"]) == (12, 1_200_003)


def test_begin_refuses_what_was_injected_and_is_not_declared():
    injected = f"{INJECTED}\nseed = 5\nmodel = ['a']\nnoise = 1"
    with pytest.raises(ParameterError, match="tree has no parameter model, noise; it has models, profile, quick"):
        begin("tree", namespace(injected))
    assert begin("tree", namespace(f"{INJECTED}\nseed = 5")).parameters == VALUES
    # only the cell that papermill wrote last counts, and no other assignment of the notebook
    assert begin("tree", namespace(f"{INJECTED}\nmodel = 1", f"{INJECTED}\nseed = 5", "x = 1")).seed == 3


def test_begin_refuses_another_type():
    with pytest.raises(ParameterError, match=r"^parameter models must be list\[str\], not 'a,b'$"):
        begin("tree", namespace(models="a,b"))


@pytest.mark.parametrize("value", ["", ".", "..", "../up", "a/b", "/absolute", "a/"])
def test_a_profile_is_a_plain_name(value):
    """It becomes a folder below the results: one with a slash could lead out of them."""
    with pytest.raises(ParameterError, match="profile must be a plain name"):
        begin("tree", namespace(profile=value))


# Parameters that belong together -------------------------------------------------------------------------------------

CELL = (
    'profile: str = "own"\nbase: str = "zoo:a"  # x [a model]\nchild: str = "zoo:b"  # [a model; needed with base]\n'
    'others: list[str] = ["zoo:c"]  # [models; or empty; left out with base]\nseed: int = 0'
)


def with_models(tmp_path, monkeypatch, **changes):
    monkeypatch.chdir(tmp_path)  # outside of the project, so the cell that was executed has the defaults
    values = {"profile": "own", "base": "zoo:a", "child": "zoo:b", "others": ["zoo:c"], "seed": 0} | changes
    kinds = {"profile": str, "base": str, "child": str, "others": list[str], "seed": int}
    space = {"__annotations__": kinds, **values, "In": ["", CELL]}
    return begin("tree", space), space


def test_what_goes_with_another_parameter_is_left_out_where_it_was_not_given(tmp_path, monkeypatch, capsys):
    run, space = with_models(tmp_path, monkeypatch, base="/mine", child="/mine-too")
    assert space["others"] == run.parameters["others"] == []
    assert run.own == ("/mine", "/mine-too")
    assert "others: left out, since models of your own were given and these were not" in capsys.readouterr().out
    run, space = with_models(tmp_path, monkeypatch, base="/mine", child="/mine-too", others=["/third"])
    assert space["others"] == ["/third"]


@pytest.mark.parametrize("changes", [{}, {"child": "/mine"}])
def test_a_child_of_ones_own_is_compared_with_the_studys_models(changes, tmp_path, monkeypatch):
    run, space = with_models(tmp_path, monkeypatch, **changes)
    assert space["others"] == ["zoo:c"]
    assert run.own == tuple(changes.values())


def test_what_is_needed_is_asked_for_before_anything_is_computed(tmp_path, monkeypatch):
    with pytest.raises(ParameterError, match="tree: with base give child too, which goes with it"):
        with_models(tmp_path, monkeypatch, base="/mine")
    with pytest.raises(ParameterError, match="seed must be a whole number of at least 0, not -1"):
        with_models(tmp_path, monkeypatch, seed=-1)
    run, _ = with_models(tmp_path, monkeypatch)
    with pytest.raises(ParameterError, match=r"^tree needs two models$"):
        run.require(False, "two models")


def test_a_page_about_ones_own_models_says_first_what_was_found_of_them(tmp_path, monkeypatch):
    """What was not tried folds; a run of the study with its own models is as it was."""
    run, _ = with_models(tmp_path, monkeypatch, base="/mine", child="/mine-too")
    seen = run.shown("Table", [1, 2], lambda row: row > 0)
    summary = run.summary(None, (None, "Of the zoo."), (seen, "All rows are positive."))
    text, about = summary._repr_mimebundle_()
    assert about == {"lead": None, "own": ["With mine, mine-too: All rows are positive."]}
    assert run.found("Of mine, 3 are found.") == "Of mine, 3 are found."
    assert run.summary(None)._repr_mimebundle_()[1]["own"] == ["Of mine, 3 are found."]
    run.answers.clear()
    assert run.summary(None)._repr_mimebundle_()[1]["own"] == ["Nothing was measured of mine, mine-too."]
    run.found(told := "/mine (A) and /mine-too (B): A writes other things")  # folders are called by their names, once
    text_of_found, about_found = run.summary(None, (seen, told))._repr_mimebundle_()
    assert about_found["own"] == ["mine (A) and mine-too (B): A writes other things"]
    assert text_of_found["text/markdown"] == "- mine (A) and mine-too (B): A writes other things"
    run.answers.clear()
    assert text["text/markdown"].startswith("- All rows are positive.\n\n<details><summary>Not tried in this run")
    monkeypatch.setenv(STUDY_RUN, "stamp")
    study = begin("tree", namespace(profile="smoke"))
    assert study.summary(None, (None, "Of the zoo."))._repr_mimebundle_()[1] == {"lead": None}


def test_answers_of_other_questions_stand_first(tmp_path, monkeypatch, models):
    run, _ = with_models(tmp_path, monkeypatch, base=models["base"], child=models["tuned"])
    result = provlab.compare(models["base"], models["tuned"], statistics=["phi_u"], progress=False)
    assert run.found(result) is result
    study = run.study([models["base"], models["tuned"]], ["phi_u"])
    _, about = run.summary(None, (None, "Of the zoo."))._repr_mimebundle_()
    answer = result.card().answer.replace(models["base"], "base").replace(models["tuned"], "tuned")
    assert about["own"] == [answer, in_words(study)]


def test_a_study_in_which_a_model_cannot_be_opened_ends_the_page(tmp_path, monkeypatch, models):
    run, _ = with_models(tmp_path, monkeypatch, base=models["base"], child=models["tuned"])
    with pytest.raises(CheckpointError, match="/nothere does not exist"):
        run.study([models["base"], "/nothere"], ["phi_u"])
    assert len(run.study([models["base"], models["tuned"]], ["phi_u"]).records) == 1


def test_the_text_is_that_of_the_parameter_or_prose_that_no_zoo_model_saw(tmp_path, monkeypatch):
    monkeypatch.setattr("provlab.zoo.held_out_text", lambda domain: f"held-out {domain}")
    run = begin("tree", namespace())
    assert run.held_out("") == "held-out prose"
    path = tmp_path / "wiki.test.tokens"
    path.write_text(" = Robert Boulter = ", encoding="utf-8")
    assert run.held_out(str(path)) == " = Robert Boulter = "
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"wiki\.test\.tokens cannot be read as UTF-8"):
        run.held_out(str(path))


# Measuring and finishing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.array([1.0, np.nan]), {"a": [np.nan]}, {1, 2}])
def test_measure_refuses_what_json_cannot_hold(value):
    run = begin("tree", namespace())
    with pytest.raises(InputError, match="measurement 'share' cannot be kept: ") as refused:
        run.measure("share", value)
    assert "\n" not in str(refused.value)
    assert run.measurements == {}


def test_measure_makes_numpy_plain():
    run = begin("tree", namespace())
    run.measure("share", {"n": np.int64(3), "p": np.float32(0.5), "all": np.arange(2), "pair": ("a", "b")})
    assert run.measurements == {"share": {"n": 3, "p": 0.5, "all": [0, 1], "pair": ["a", "b"]}}


def test_measure_keeps_a_dataclass_by_its_fields():
    run = begin("tree", namespace())
    run.measure("shares", [Share("a", np.array([0.5, 1.0]))])
    assert run.measurements == {"shares": [{"of": "a", "values": [0.5, 1.0]}]}
    assert read(Share, run.measurements["shares"]) == [Share("a", [0.5, 1.0])]
    run.measurements["shares"][0].pop("of")  # a predicate and a notebook that know different rows
    with pytest.raises(OldRecordsError, match="those of another version: run its page again"):
        read(Share, run.measurements["shares"])


# Judging -------------------------------------------------------------------------------------------------------------

EXAMPLE = {"independent": np.arange(1, 2001) % 100 / 100 + 0.01, "dependent": [0.01] * 100, "n_permutations": 99}


def judge_i1(profile="default", **changes):
    run = begin("exchangeability", namespace(profile=profile))
    return run, run.judge("I1", permtest_uniform, example_one=EXAMPLE | changes)


def test_a_claim_is_judged_where_it_is_called_and_kept_for_the_scoreboard(results, monkeypatch):
    monkeypatch.setenv(STUDY_RUN, "stamp")
    run, judged = judge_i1()
    assert judged.verdict.status == "holds"
    assert judged.bars == {"min_pairs": 2000, "min_tunes": 100, "smallest": 0.01}  # those of the profile
    for shown in (repr(judged), judged._repr_mimebundle_()[0]["text/html"]):
        assert "permtest_uniform(..., min_pairs=2000, min_tunes=100, smallest=0.01)" in shown
        assert "100 of 100 fine-tunes at 1/100" in shown
    footer = run.finish()
    assert [(row["id"], row["status"]) for row in footer.claims] == [("I1", "holds")]
    assert footer.experiment["judgements"]["I1"]["ours"] == judged.verdict.ours


def test_one_changed_line_changes_judgement_sentence_and_scoreboard(results, monkeypatch):
    monkeypatch.setenv(STUDY_RUN, "stamp")
    run, judged = judge_i1(dependent=[0.01] * 99 + [0.02])
    assert repr(run.summary(judged, (judged, "Each is found."))) == (
        f"- **Not so in this run:** Each is found. Seen: {judged.verdict.ours}."
    )
    assert repr(run.summary(True)) == "- Nothing was measured in this run."
    assert (truth(judged), truth(judged.refuted)) == (False, True)
    assert [row["status"] for row in run.finish().claims] == ["fails"]


COUNTS = [("phi_u", 3), ("phi_h", 0), ("phi_match", 3)]


def found(**more):
    run = begin("exchangeability", namespace())
    return run, run.shown(
        "Pairs found", COUNTS, lambda row: row[1] == 3, lambda row: f"{row[0]} finds {row[1]} of 3", **more
    )


def test_a_sentence_that_the_run_denies_names_the_rows_of_its_table():
    run, each = found()
    _, some = found(some=True)
    summary = run.summary(True, (each, "Each finds all."), ([some, each], "Both."), (some, "One does."))
    assert repr(summary).splitlines() == [
        "- **Not so in this run:** Each finds all. Seen: Pairs found: phi_h finds 0 of 3.",
        "- **Not so in this run:** Both. Seen: Pairs found: phi_h finds 0 of 3.",
        "- One does.",
    ]
    many = run.shown("Pairs found", range(9), lambda row: False)
    assert many.seen == "Pairs found: 0; 1; 2; 3; 4; and 4 more"


def test_a_table_without_rows_says_nothing_and_a_sentence_may_repeat_its_numbers():
    run = begin("exchangeability", namespace())
    assert truth(run.shown("Pairs found", [], lambda row: False)) is None
    assert truth(run.shown("Pairs found", [0])) is True


@pytest.mark.parametrize(
    ("rows", "every", "some"),
    [
        ([True, UNDECIDED], UNDECIDED, True),
        ([False, UNDECIDED], False, UNDECIDED),
        ([UNDECIDED], UNDECIDED, UNDECIDED),
        (["a name", True], True, True),
    ],
)
def test_a_row_that_decides_nothing_neither_bears_out_a_sentence_nor_denies_it(rows, every, some):
    run = begin("exchangeability", namespace())
    shown = [run.shown("Pairs found", rows, lambda row: row, some=one) for one in (False, True)]
    assert [truth(each) for each in shown] == [every, some]
    assert [each.seen for each in shown] == ["Pairs found: False" if holds is False else "" for holds in (every, some)]


@pytest.mark.parametrize("holds", [True, False, 3 > 2, [True], ["partly"]])
def test_a_sentence_with_a_condition_of_its_own_is_refused(holds):
    run = begin("exchangeability", namespace())
    with pytest.raises(InputError, match=r"a judgement or a table must say whether this holds, not .*: Each is found"):
        run.summary(True, (holds, "Each is found."))
    if holds is not True:  # of a lead that promises nothing
        with pytest.raises(InputError, match=r"a judgement or a table must say whether this holds, not .*: the lead"):
            run.summary(holds)


def test_in_another_profile_the_function_speaks_and_the_claim_does_not_count(results):
    run, judged = judge_i1("own")
    assert truth(judged) is True
    assert "Scoreboard: not judged in the profile own" in repr(judged)
    assert [row["why"] for row in run.finish().claims] == ["cannot be judged in the profile own"]
    assert run.judgements["I1"].status == "not run"


def test_a_claim_is_judged_by_its_own_function_alone():
    run = begin("exchangeability", namespace())
    with pytest.raises(
        InputError, match=r"claim I1 is judged by exchangeability\.predicates\.permtest_uniform, not by truth"
    ):
        run.judge("I1", truth, example_one=EXAMPLE)
    with pytest.raises(InputError, match="claim I4 is judged by llama_tree"):
        run.judge("I4", permtest_uniform, example_one=EXAMPLE)
    with pytest.raises(InputError, match="claim X1 is judged by no function"):
        run.judge("X1", permtest_uniform, example_one=EXAMPLE)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((True, True), True),
        ((None, None), None),
        ((True, None), "partly"),
        (("undecided", None), "partly"),
        ((False, None), False),
        ((True, "undecided"), "undecided"),
    ],
)
def test_several_must_all_hold(parts, expected):
    assert truth(list(parts)) is expected


@pytest.fixture
def finished(models, results, monkeypatch):
    monkeypatch.setenv(STUDY_RUN, "stamp")
    run = begin("llama_tree", namespace(profile="smoke"))
    study = run.study(
        [models["base"], models["tuned"], models["other"], "/no/such"], ["phi_u", "phi_h"], progress=False,
        n_sequences=2, sequence_length=8,
    )  # fmt: skip
    run.measure("share", {"n": 1})
    run.measure("chain_of_trees", [])
    return run, study, run.finish()


def test_finish_writes_the_experiment(finished, results, models):
    run, study, footer = finished
    kept = json.loads((results / "smoke" / "experiments" / "llama_tree.json").read_text())
    assert kept == footer.experiment
    assert (kept["name"], kept["stamp"]) == ("llama_tree", "stamp")
    assert kept["profile"] == "smoke"
    assert kept["seed"] == study.options.seed == 3
    assert kept["parameters"] == {**VALUES, "profile": "smoke"}
    assert kept["measurements"] == {"share": {"n": 1}, "chain_of_trees": []}
    assert kept["versions"]["torch"] == metadata.version("torch")
    assert kept["commit"] == provenance.commit()
    assert kept["machine"] == provenance.processor()
    assert f"{machine.cores()} core" in kept["machine"]
    assert kept["seconds"] >= 0
    assert [model["source"] for model in kept["models"]] == [models[n] for n in ("base", "tuned", "other")]
    assert all(model["files"]["model.safetensors"]["sha256"] for model in kept["models"])
    assert len(kept["pairs"]) == 2 * 6
    for pair, record in zip(kept["pairs"], study.records, strict=True):
        assert (pair["a"], pair["b"], pair["statistic"]) == (record.a, record.b, record.statistic)
        assert pair["error"] == record.error
        assert all(run.store.get(key) is not None for key in pair["keys"])
        assert pair["dependent"] is None


def test_the_footer_shows_where_it_comes_from(finished, models):
    _, _, footer = finished
    for shown in (repr(footer), footer._repr_html_()):
        assert "smoke" in shown
        assert models["base"] in shown
        assert footer.experiment["models"][0]["digest"][:16] in shown
        assert metadata.version("numpy") in shown
        assert "I4" in shown  # the claims that this notebook decides
    assert "/no/such" not in footer._repr_html_() or "<details>" in footer._repr_html_()


def test_the_footer_escapes_what_it_did_not_write():
    content = {
        "profile": "<i>", "seed": 0, "seconds": 1.0, "finished": "now", "commit": None, "machine": "<m>",
        "versions": {}, "models": [],
        "parameters": {"models": ["<script>"]},
    }  # fmt: skip
    html = Footer(content)._repr_html_()
    assert "<script>" not in html
    assert "<i>" not in html
    assert "not in a checkout" in html


def test_pairs_may_come_from_several_studies(models, results):
    run = begin("audit", namespace())
    first = provlab.study([models["base"], models["other"]], statistics=["phi_u"], store=run.store, progress=False)
    run.pairs(first)
    run.study([models["base"], models["tuned"]], ["phi_h"], progress=False, n_sequences=2, sequence_length=8)
    kept = run.finish().experiment
    assert [(pair["statistic"], pair["b"]) for pair in kept["pairs"]] == [
        ("phi_u", models["other"]),
        ("phi_h", models["tuned"]),
    ]
    assert [model["source"] for model in kept["models"]] == [models["base"], models["other"], models["tuned"]]


# Provenance ----------------------------------------------------------------------------------------------------------


def test_results_lie_beside_the_notebooks_of_the_project(tmp_path, monkeypatch):
    monkeypatch.delenv("PROVLAB_RESULTS")
    inside = tmp_path / "project" / "notebooks" / "deep"
    inside.mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").touch()
    monkeypatch.chdir(inside)
    assert provenance.results_root() == tmp_path / "project" / "_results"
    monkeypatch.chdir(tmp_path)
    assert provenance.results_root() == tmp_path / "_results"
    monkeypatch.setenv("PROVLAB_RESULTS", "~/kept")
    assert "~" not in str(provenance.results_root())


def test_the_commit_is_that_of_provlab_or_none(tmp_path, monkeypatch):
    """An installed copy may lie inside somebody else's checkout: that commit says nothing about provlab."""
    provenance.subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x"]
    provenance.subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "theirs"], check=True)
    (tmp_path / "provenance.py").touch()
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "provenance.py"))
    assert provenance.commit() is None
    monkeypatch.setattr(provenance, "__file__", str(tmp_path.parent / "provenance.py"))
    monkeypatch.setenv("PATH", "")
    assert provenance.commit() is None


def test_injected_is_what_papermill_writes():
    """The check of unknown parameters rests on the first line of papermill's cell."""
    from papermill.translators import PythonTranslator

    assert PythonTranslator.codify({"x": 1}, "Parameters").splitlines()[0] == INJECTED
