"""Parameters: read from the cell as Python, given as text by their type, refused in one line."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from small_notebooks import write

from provlab.errors import ParameterError
from provlab_study.publishing import runner
from provlab_study.publishing.parameters import assigned, check_needs, checked, kinds_of, parameters_of

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"
CELL = (
    'profile: str = "default"  # label\n'
    'attacks: list[str] = ["split=3", "a=b"]  # each NAME or NAME=SIZE, such as "noise=0.1"\n'
    "sizes: list[int] = [\n    1,\n    2,\n]  # of groups\n"
    "levels: list[float] = [1e-3]\n"
    "seed: int = 0\nscale: float = 1.0\nquick: bool = False\ndeep: dict = {}\nfree = None\n"
)


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "tree.ipynb", "1", parameters=CELL)


def test_they_show_with_type_default_and_help(path):
    result = parameters_of(path)
    assert list(result) == ["profile", "attacks", "sizes", "levels", "seed", "scale", "quick", "deep", "free"]
    assert (result["attacks"].kind, result["attacks"].default) == ("list[str]", "['split=3', 'a=b']")
    assert result["attacks"].help == 'each NAME or NAME=SIZE, such as "noise=0.1"'
    assert result["sizes"].help == "of groups"
    assert (result["free"].kind, result["free"].help) == ("", "")


@pytest.mark.parametrize("cell", ["seed: int = ", f"seed = {'-' * 100_000}1"], ids=["unfinished", "too deep"])
def test_a_cell_that_is_no_python(tmp_path, cell):
    with pytest.raises(ParameterError, match="is no Python"):
        parameters_of(write(tmp_path / "x.ipynb", "1", parameters=cell))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # text is as it is given, whatever YAML makes of it
        ("profile=no", "no"),
        ("profile=2024-01-02", "2024-01-02"),
        ("profile=User: hello", "User: hello"),
        ("profile=010", "010"),
        ("profile=", ""),
        ("profile=x=y", "x=y"),
        ("profile=zoo:oak@smoke", "zoo:oak@smoke"),
        ("seed=010", 10),
        ("scale=-5", -5.0),
        ("seed=1e3", 1000),
        ("scale=1e-3", 1e-3),
        ("scale=2", 2.0),
        ("quick=true", True),
        ("quick=no", False),
        ("attacks=split=3, a=b,", ["split=3", "a=b"]),
        ("attacks=[no, 1e-3, 'x y']", ["no", "1e-3", "x y"]),
        ("sizes=1,2", [1, 2]),
        ("levels=1e-3,1e-5", [1e-3, 1e-5]),
        ("levels=[0.5, 1e-3]", [0.5, 1e-3]),
        ("deep={a: no, b: 1e-3, c: 010, d: 2024-01-02, e: true, f: null}",
         {"a": "no", "b": 1e-3, "c": 10, "d": "2024-01-02", "e": True, "f": None}),
        ("free=[1, x]", [1, "x"]),
    ],
)  # fmt: skip
def test_text_is_read_by_the_type_that_is_declared(path, text, value):
    (result,) = assigned(path, [text]).values()
    assert result == value
    assert type(result) is type(value)
    name = text.partition("=")[0]
    assert checked(path, {name: result}) == {name: value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed=five", "parameter seed must be int, not 'five'"),
        ("seed=1.5", "parameter seed must be int, not '1.5'"),
        ("scale=nan", "parameter scale must be float, not 'nan'"),
        ("scale=.nan", "parameter scale must be float, not '.nan'"),
        ("scale=inf", "parameter scale must be float, not 'inf'"),
        ("levels=1,inf", "parameter levels must be float, not 'inf'"),
        ("quick=maybe", "parameter quick must be bool, not 'maybe'"),
        ("sizes=[1, x]", "parameter sizes must be int, not 'x'"),
        ("attacks=[a", "the value of parameter attacks is not readable as YAML: '[a'"),
        ("deep={a: ", "the value of parameter deep is not readable as YAML"),
        ("deep=*x", "the value of parameter deep is not readable as YAML"),
        ("free=!!python/name:os.system", "the value of parameter free is not readable as YAML"),
        ("seed", "a parameter is given as name=value, not 'seed'"),
        ("=5", "a parameter is given as name=value, not '=5'"),
        ("a b=5", "a parameter is given as name=value, not 'a b=5'"),
        ("2x=5", "a parameter is given as name=value, not '2x=5'"),
    ],
)
def test_text_that_is_refused(path, text, message):
    with pytest.raises(ParameterError, match=re.escape(message)) as refused:
        assigned(path, [text])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("declared", "text", "value"),
    [
        ("Optional[int]", "5", 5),
        ("Optional[int]", "none", None),
        ("int | None", "", None),
        ("None | str", "null", None),
        ("None | str", "5", "5"),
        ("str | int", "5", 5),
        ("str | int", "five", "five"),
        ("typing.Optional[list[int]]", "1,2", [1, 2]),
        ("tuple[int, ...]", "1,2", None),
        ("set[int]", "1", None),
        ("list[tuple[int, int]]", "1", None),
        ("Path", "x", None),
    ],
)
def test_a_type_is_read_as_declared_or_refused(tmp_path, declared, text, value):
    path = write(tmp_path / "x.ipynb", "1", parameters=f"x: {declared} = None  # one")
    if kinds_of(declared) is None:
        for refuses in (lambda: assigned(path, [f"x={text}"]), lambda: checked(path, {"x": 1})):
            with pytest.raises(
                ParameterError, match=rf"x is declared as {re.escape(declared)}, .*declare it as one of"
            ):
                refuses()
        return
    result = assigned(path, [f"x={text}"])
    assert result == {"x": value}
    assert type(result["x"]) is type(value)
    assert checked(path, result) == result


def test_text_for_a_list_says_how_papermill_passes_one(path):
    with pytest.raises(ParameterError, match=re.escape("not 'x'; papermill passes a list by -y '{attacks: [a, b]}'")):
        checked(path, {"attacks": "x"})


def test_a_dict_where_a_dict_is_wanted(path):
    with pytest.raises(ParameterError, match="parameter deep must be dict, not 5"):
        checked(path, assigned(path, ["deep=5"]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sede": 5}, "tree has no parameter 'sede' (did you mean seed?); it has attacks, deep, free"),
        ({"xyz": 5}, "tree has no parameter 'xyz'; it has attacks, deep, free"),
        ({"seed": "5"}, "parameter seed must be int, not '5'"),
        ({"attacks": [5]}, "parameter attacks must be list[str], not [5]"),
        ({"seed": -1}, "seed must be a whole number of at least 0, not -1"),
    ],
)
def test_checked_refuses(path, settings, message):
    with pytest.raises(ParameterError, match=re.escape(message)):
        checked(path, settings)


def test_a_notebook_without_parameters_says_so(tmp_path):
    path = write(tmp_path / "none.ipynb", "1", parameters="")
    with pytest.raises(ParameterError, match="none has no parameter 'seed'; it has none"):
        checked(path, {"seed": 1})


@pytest.mark.parametrize(
    "content",
    ["", "{", "no notebook", "[]", "{}", '{"cells": 3}', '{"nbformat": 4, "cells": []}', "[" * 200_000],
)
def test_a_file_that_is_no_notebook(tmp_path, content):
    path = tmp_path / "x.ipynb"
    path.write_text(content)
    with pytest.raises(ParameterError, match=f"{path} is no notebook that can be read") as refused:
        checked(path, {"seed": 1})
    assert "\n" not in str(refused.value)
    assert runner.stamp_of(path) is None


def test_a_notebook_that_git_did_not_fetch_names_the_command_that_does(tmp_path):
    path = tmp_path / "x.ipynb"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(ParameterError, match="it is a pointer of Git LFS, not the file itself: run git lfs pull"):
        checked(path, {"seed": 1})


NEEDS = """from math import prod  # of a module that is loaded
import provlab_study
run = provlab_study.begin("page", globals())
twice = 2 * len(second)
run.require(len(first) == twice, "two models in first for each in second")
opened = [Network.open(name) for name in first]
run.require(all(opened), "networks that open")
first = opened or first
run.require(prod(sizes) == 6, "sizes of six in all")
run.require(first[9], "ten models")
sizes += [1000]
run.require(prod(sizes) > 100, "large sizes")
"""


@pytest.mark.parametrize(
    ("values", "needs"),
    [
        ({}, ""),
        ({"first": ["a", "b", "c"]}, "page needs two models in first for each in second"),
        ({"second": ["c", "d"]}, "page needs two models in first for each in second"),
        ({"sizes": [2, 2]}, "page needs sizes of six in all"),
    ],
)
def test_what_a_page_requires_of_its_parameters_alone_is_asked_without_a_kernel(tmp_path, values, needs):
    """What reads anything else, or fails, is left to the kernel, as `opened` and `first` behind it."""
    parameters = 'first: list[str] = ["a", "b"]\nsecond: list[str] = ["c"]\nsizes: list[int] = [2, 3]'
    path = write(tmp_path / "page.ipynb", NEEDS, parameters=parameters)
    with pytest.raises(ParameterError, match=f"^{needs}$") if needs else nullcontext():
        check_needs(path, values)


OWN = ["/a", "/b", "/c"]
NEEDED = {
    "attack_lab": ({"families": OWN}, "four models in each of families"),
    "calibration": ({"bases": [*OWN, "/d", "/e"]}, "an even number of independent models"),
    "distillation": ({"bases": OWN[:2], "tunes": OWN}, "for each of tunes its base"),
    "olmo_seeds": ({"runs": OWN[:2], "reruns": OWN[:2]}, "two models in runs for each model in reruns"),
    "pruning_forensics": ({"parents": OWN[:2], "children": OWN}, "one parent for all children, or one for each"),
    "robust_null": ({"bases": [*OWN, "/d", "/e"]}, "an even number of models that share nothing"),
    "encoders_and_fused": (
        {
            "encoder": "/a", "classifier": "/b", "other_encoders": ["/c"],
            "fused": "/a", "fused_tuned": "/b", "other_fused": ["/c"],
        },
        "each model once",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEEDED)
def test_pages_that_need_more_than_some_models_refuse_before_a_kernel_starts(name):
    path, (values, needs) = NOTEBOOKS / f"{name}.ipynb", NEEDED[name]
    check_needs(path, {})
    with pytest.raises(ParameterError, match=f"{name} needs .*{needs}"):
        check_needs(path, values)


def test_a_toy_of_more_than_ten_tokens_is_refused_before_a_kernel_starts(models):
    with pytest.raises(ParameterError, match="toy_modulo30 needs models of ten tokens"):
        check_needs(NOTEBOOKS / "toy_modulo30.ipynb", dict.fromkeys(("small", "large", "third"), str(models["base"])))
