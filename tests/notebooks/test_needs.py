"""A page asks for what it needs in its first cell, before anything is computed; and every plan gives it.

The first cells are executed here with parameters as papermill would set them. No model is read.
"""

from pathlib import Path

import nbformat
import pytest

from provlab.errors import ProvlabError
from provlab_study.publishing.plan import Plan

PROJECT = Path(__file__).parents[2]
FOLDER = PROJECT / "notebooks"
PLANS = {path.stem: Plan.read(path) for path in sorted((FOLDER / "profiles").glob("*.yml"))}
PLANS = {name: plan for name, plan in PLANS.items() if not plan.title}  # a reader's own book has one
READING = ("scoreboard", "status", "what_failed")
GIVEN = [
    (profile, experiment["notebook"], experiment.get("parameters", {}))
    for profile, plan in PLANS.items()
    for experiment in plan.experiments
    if experiment["notebook"] not in READING
]


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch, tmp_path):
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("PROVLAB_RESULTS", str(tmp_path))
    monkeypatch.setattr("provlab.statistics.options._check_device", lambda device: None)  # plans are for other machines


def begun(name, parameters):
    """The namespace behind the first cell of a notebook with these parameters."""
    cells = [cell for cell in nbformat.read(FOLDER / f"{name}.ipynb", as_version=4).cells if cell.cell_type == "code"]
    declared = next(cell.source for cell in cells if "parameters" in cell.metadata.get("tags", []))
    first = next(cell.source for cell in cells if "provlab_study.begin(" in cell.source)
    space = {"__name__": "__main__", "In": ["", declared, first]}
    exec(declared, space)
    space |= {"profile": "own"} | parameters
    exec(first, space)
    return space


@pytest.mark.parametrize(
    ("profile", "name", "parameters"), GIVEN, ids=[f"{profile}-{name}" for profile, name, _ in GIVEN]
)
def test_every_plan_gives_what_a_page_needs(profile, name, parameters, capsys):
    begun(name, parameters)
    assert "left out" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("matching_and_pvalues", {"models": ["/a", "/b", "/c"]}, "parameter models takes 4 models or more, not 3"),
        ("matching_and_pvalues", {"models": ["/a", "/b", "/c", "/d"]}, "known lineage from at least three trees"),
        ("robust_null", {"models": ["/a", "/b"]}, "parameter models takes 3 models or more, not 2"),
        ("robust_null", {"models": ["/a", "/b", "/c"]}, "needs models of known origin from at least three trees"),
        (
            "robust_null",
            {"bases": ["/a", "/b", "/c", "/d", "/e"]},
            "an even number of models that share nothing, at least four: bases",
        ),
        ("robust_null", {"origin": "/a"}, "with origin give kin too"),
        (
            "calibration",
            {"bases": ["/a", "/b", "/c", "/d", "/e"]},
            "an even number of independent models, at least four: bases",
        ),
        ("olmo_seeds", {"runs": ["/a", "/b"]}, "with runs give reruns too"),
        ("olmo_seeds", {"runs": ["/a", "/b", "/c"], "reruns": ["/d"]}, "two models in runs for each model in reruns"),
        (
            "olmo_seeds",
            {"runs": list("abcdef"), "reruns": list("ghi"), "tokens": [1, 2]},
            "for each rerun at each of 2 budgets: runs has 6 models, reruns 3",
        ),
        ("pruning_forensics", {"parents": ["/a"]}, "with parents give children too"),
        ("pruning_forensics", {"parents": ["/a", "/b"], "children": ["/c"]}, "one parent for all children"),
        ("striped_hyena", {"hybrids": ["/a"]}, "with hybrids give unrelated too"),
        ("pruning_forensics", {"children": ["/a"], "shown": "/b"}, "in shown one of the children"),
        ("distillation", {"bases": ["/a", "/b"]}, "with bases give tunes too"),
        ("distillation", {"bases": ["/a", "/b"], "tunes": ["/c", "/d", "/e"]}, "for each of tunes its base"),
        ("encoders_and_fused", {"encoder": "/a"}, "with encoder give classifier too"),
        ("encoders_and_fused", {"fused": "/a"}, "with fused give fused_tuned too"),
        (
            "encoders_and_fused",
            {
                "encoder": "/a",
                "classifier": "/b",
                "other_encoders": ["/c"],
                "fused": "/a",
                "fused_tuned": "/d",
                "other_fused": ["/e"],
            },
            "each model once, as an encoder or as one with fused projections",
        ),
        ("mlp_retraining", {"base": "/a"}, "with base give tuned and stranger too"),
        ("miqu", {"base": "/a", "leak": "/b"}, "with base give controls too"),
        ("model_diff", {"small": "/a"}, "with small give medium too"),
        ("evasion", {"models": ["/a", "/b"]}, "with models give pair and stranger too"),
        ("attack_lab", {"families": ["/a | /b | /c"]}, "attack_lab needs four models in each of families"),
        ("two_models", {"first": "/a"}, "with first give second too"),
    ],
)
def test_what_is_lacking_is_said_in_one_line_before_anything_is_computed(name, parameters, words):
    with pytest.raises(ProvlabError) as refused:
        begun(name, parameters)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_says_of_ones_own_models_what_the_zoo_says_of_its_own(tmp_path):
    (tmp_path / "lineage.csv").write_text("/a,\n/b,/a\n/c,\n/d,\n")
    given = {"models": ["/a", "/b", "/c", "/d"], "lineage": str(tmp_path / "lineage.csv")}
    assert begun("matching_and_pvalues", given)["trees"] == {"/a": "/a", "/b": "/a", "/c": "/c", "/d": "/d"}
    assert begun("robust_null", given)["lineage"].dependent("/a", "/c") is False
    with pytest.raises(ProvlabError, match="tells of none of the models /x, /y"):
        begun("llama_tree", given | {"models": ["/x", "/y"]})


def test_models_of_other_tokens_are_refused_before_anything_is_listed(models):
    with pytest.raises(ProvlabError, match="toy_modulo30 needs models of ten tokens: small, large, third"):
        begun("toy_modulo30", {"small": models["base"], "large": models["tuned"], "third": models["other"]})


def test_models_with_gates_are_refused_before_students_are_trained(models):
    parameters = {"bases": [models["base"], models["other"]], "tunes": [models["tuned"]]}
    with pytest.raises(ProvlabError, match="distillation needs models without gates: bases and tunes"):
        begun("distillation", parameters)


@pytest.mark.parametrize(
    ("name", "parameters", "left_out"),
    [
        (
            "pruning_forensics",
            {"parents": ["/a"], "children": ["/b", "/c"]},
            {"strangers": [], "healed": "", "snapshots": [], "hot": [], "shown": "/c", "parents": ["/a", "/a"]},
        ),
        ("pruning_forensics", {"children": ["/b"]}, {"shown": "/b", "healed": "", "snapshots": [], "hot": []}),
        (
            "striped_hyena",
            {"parent": "/a", "hybrids": ["/b"], "unrelated": ["/c"]},
            {"embedding_only": "", "projections_only": "", "bases": [], "known": []},
        ),
        ("mlp_retraining", {"base": "/a", "tuned": "/b", "stranger": "/c"}, {"narrow": []}),
        ("power", {"base": "/a"}, {"tunes": []}),
        ("plagiarism", {"base": "/a"}, {"tune": "", "others": []}),
        ("miqu", {"base": "/a", "leak": "/b", "controls": ["/c", "/d"]}, {"tuned": ""}),
        ("two_models", {"first": "/a", "second": "/b"}, {"seeds": []}),
        ("calibration", {"bases": ["/a", "/b", "/c", "/d"]}, {"models": ["/a", "/b", "/c", "/d"]}),
        ("olmo_seeds", {"runs": ["/a", "/b"], "reruns": ["/c"], "tokens": [5]}, {}),
    ],
)
def test_models_of_ones_own_are_never_compared_with_the_studys(name, parameters, left_out):
    space = begun(name, parameters)
    assert {key: space[key] for key in left_out} == left_out
