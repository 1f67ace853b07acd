"""Whose child: steps counted in the rounding of rows, and families whose parent is given, left out, or one of two."""

import json
from itertools import pairwise
from pathlib import Path

import grown
import numpy as np
import pytest
import reports
import torch
from safetensors.torch import load_file

import provlab
from provlab.attest import folder
from provlab.attest.conclusion import of_tree
from provlab.errors import EvidenceError
from provlab.forest import descent
from provlab.forest.result import DESCENDS, FORGED, LATER, NOT_GIVEN, SHOWN, Forest
from provlab_study.family_forest.arms import pruned, quantised

WIDTH, ROWS = 64, 60


def walked(table, steps, seed, rate=1e-3, warm=0):
    """Rows after so many steps, each a multiplication and a rounding; the first `warm` rates are the same for all."""
    rates = np.r_[
        np.full(min(warm, steps), rate), np.random.default_rng(seed).uniform(0.3, 1, max(steps - warm, 0)) * rate
    ]
    for step in rates:
        table = table * np.float32(1 - step)
    return table


def path_of(x, p, c, *, excluded=False, cosine=0.0):
    tables = [table.astype(float) for table in (x, p, c)]
    return descent.path(0, tables, 2.0**-23, excluded=excluded, cosine=cosine)


@pytest.fixture(scope="module")
def chain():
    """x, its child p and p's child c, 120 and 40 steps apart; q between x and p, with 60 steps left to p."""
    x = np.random.default_rng(0).normal(0, 0.02, (ROWS, WIDTH)).astype(np.float32)
    q = walked(x, 60, 1)
    p = walked(q, 60, 2)
    return {"x": x, "q": q, "p": p, "c": walked(p, 40, 3), "uncle's": walked(q, 100, 4), "from x": walked(x, 150, 5)}


def test_steps_are_counted_and_a_parent_has_none_of_its_own(chain):
    known = path_of(chain["x"], chain["p"], chain["c"])
    assert known.steps == pytest.approx(120, rel=0.08)
    assert known.own == pytest.approx(0, abs=0.03)
    assert known.shown


@pytest.mark.parametrize(("child", "own"), [("uncle's", 0.5), ("from x", 1.0)])
def test_a_sibling_or_uncle_has_steps_of_its_own(chain, child, own):
    """Half of p's steps were made after it parted from q, all of them after x."""
    known = path_of(chain["x"], chain["p"], chain[child])
    assert known.own == pytest.approx(own, abs=0.06)
    assert not known.shown
    assert known.low > descent.OWN


def test_a_merge_with_the_first_lacks_steps_too_and_rows_alone_tell_it_from_a_sibling(chain):
    """Half of p, trained on: such a model was said to be p's sibling."""
    half = ((chain["p"] + walked(chain["x"], 150, 5)) / 2).astype(np.float32)
    known = path_of(chain["x"], chain["p"], walked(half, 30, 6))
    assert known.low > descent.OWN
    assert not known.parted
    assert path_of(chain["x"], chain["p"], chain["uncle's"], excluded=True).parted
    assert not path_of(chain["x"], chain["p"], chain["c"], excluded=True).parted


@pytest.mark.parametrize("more", [{"excluded": True}, {"cosine": 0.3}, {"cosine": float("nan")}])
def test_rows_or_changes_of_its_own_speak_against_a_parent(chain, more):
    """Steps without decay leave these rows alone, and so do two trainings with the same rates: changes tell."""
    assert not path_of(chain["x"], chain["p"], chain["c"], **more).shown


def test_one_schedule_makes_a_sibling_look_like_a_snapshot(chain):
    """Why the changes of other weights must be asked too: rows alone say that q's 60 steps are in both."""
    first, second = (walked(chain["x"], steps, seed, warm=60) for steps, seed in ((60, 1), (100, 2)))
    assert path_of(chain["x"], first, second).own == pytest.approx(0, abs=0.03)
    assert not path_of(chain["x"], first, second, cosine=0.5).shown


def test_nothing_is_told_where_steps_cannot_be_counted(chain):
    x, p, c = (chain[name] for name in "xpc")
    assert path_of(x[:1], p[:1], c[:1]) is None
    few = walked(x, 5, 7)
    assert not path_of(x, few, walked(few, 40, 8)).shown
    slow = [x]
    for seed in (1, 2):
        slow.append(walked(slow[-1], 100, seed, rate=3e-8))  # less than a unit in the last place a step
    assert path_of(*slow) is None


def test_a_mean_of_models_is_no_parent(chain):
    """Its errors are smaller copies of those of the models it was made of, of which the child has more."""
    mean = (0.7 * chain["x"] + 0.3 * chain["p"]).astype(np.float32)
    assert not (known := path_of(chain["x"], mean, chain["c"])) or not known.shown


@pytest.mark.parametrize("rows", [3, 5, 8, 30])
def test_a_mean_of_an_ancestor_and_a_later_one_is_no_ancestor(chain, rows):
    """It lies on the line between both, and has fewer steps than none of its own: one was named a parent."""
    mean = (chain["q"] + chain["p"]) / np.float32(2)
    known = path_of(*(table[:rows] for table in (chain["x"], mean, chain["c"])))
    assert known.low < -descent.OWN
    assert not known.shown


def test_numbers_that_repeat_count_no_steps(chain):
    """A table that was read back from codes has few values, whose errors are the same wherever they come up."""
    scale = np.abs(chain["p"]).max() / 127
    codes = ((chain["p"] / scale).round() * scale).astype(np.float32)
    assert path_of(chain["x"], codes, walked(codes, 40, 3)) is None


def test_an_adapter_that_the_child_lacks_is_undone_along_its_own_directions():
    rng = np.random.default_rng(3)
    before, own = rng.normal(size=(2, 40, 30))
    left, right = rng.normal(size=40), rng.normal(size=30)
    adapter = 30 * np.outer(left / np.linalg.norm(left), right / np.linalg.norm(right))
    assert descent.undone([(before + adapter, own - adapter)]) > 0.6
    assert abs(descent.undone([(before + adapter, own)])) < 0.3


def test_a_copy_of_the_parent_that_lost_numbers_is_not_it(kin, new_model, save_model, tmp_path, monkeypatch):
    """Its rows are those of b, from which c descends, and which is not given; a tenth of its MLPs is zero."""
    parent = load_file(Path(kin["b"]) / "model.safetensors")
    copy = new_model(0)
    copy.load_state_dict({k: v * (v.abs() > v.abs().quantile(0.1)) if "mlp" in k else v for k, v in parent.items()})
    names = {**kin, "l": str(save_model(copy, tmp_path / "lossy"))}
    assert DESCENDS not in {relation for relation, _ in relations(names, "acl")[0].values()}
    monkeypatch.setattr(descent, "LOST", 1.0)
    assert DESCENDS in {relation for relation, _ in relations(names, "acl")[0].values()}


def without_last_units(weights, _):
    """The last half of the hidden units set to zero."""
    return {name: values * (torch.arange(len(values)) < len(values) / 2)[:, None] for name, values in weights.items()}


@pytest.mark.parametrize(("lossy", "least"), [(quantised, 0.9), (pruned, 0.45), (without_last_units, 0.45)])
def test_numbers_of_a_matrix_repeat_where_some_were_lost(lossy, least):
    matrix = {"mlp.up_proj": torch.randn(64, 128, generator=torch.Generator().manual_seed(0))}
    assert descent.repeated(matrix["mlp.up_proj"].numpy()) < descent.LOST
    assert descent.repeated(lossy(matrix, matrix)["mlp.up_proj"].numpy()) > least


def test_one_witness_against_is_enough(chain):
    yes, no = path_of(chain["x"], chain["p"], chain["c"]), path_of(chain["x"], chain["p"], chain["uncle's"])
    assert descent.descends([None, yes]) == (yes, True)
    assert descent.descends([yes, no]) == (no, False)
    assert descent.descends([None]) == (None, False)


@pytest.fixture(scope="module")
def kin(tmp_path_factory, new_model, save_model):
    """Folders: a, its child b, b's children c and d, and a's other child e; 60 steps each, on other rows."""
    top = tmp_path_factory.mktemp("kin")
    made = {"a": new_model(1).state_dict()}
    for i, (parent, child) in enumerate((("a", "b"), ("b", "c"), ("b", "d"), ("a", "e"))):
        made[child] = grown.trained(made[parent], i, touched=grown.draw(60, 300, i), decay=0.98 - 0.005 * i, steps=60)
    folders = {}
    for name, tensors in made.items():
        model = new_model(0)
        model.load_state_dict(tensors)
        folders[name] = str(save_model(model, top / name))
    return folders


def relations(kin, names, **more):
    """What the tree of these models says of each edge."""
    result = provlab.tree([kin[name] for name in names], progress=False, **more)
    short = {folder: name for name, folder in kin.items()}
    return {short[e.a] + short[e.b]: (e.relation, e.parent) for e in result.edges}, result


def test_a_parent_is_shown_by_an_earlier_third_model(kin):
    edges, result = relations(kin, "cabde")
    assert edges["bc"] == edges["bd"] == (DESCENDS, SHOWN)
    assert edges["ab"][0] == LATER  # no model is earlier than a
    assert "are its own alone" in str(result)
    assert {e["parent"] for e in result.to_json()["families"][0]["edges"]} == {SHOWN, "may not be given"}
    assert "2 of descent" in result.drawn().caption


@pytest.mark.parametrize("names", ["cd", "bc", "ab", "ce", "acd", "cde", "ace", "acde"])
def test_without_the_parent_or_a_third_model_nobody_descends(kin, names):
    """Siblings, uncle and nephew, three kin whose parents are left out; two models, of which one is the parent."""
    edges, result = relations(kin, names)
    assert DESCENDS not in {relation for relation, _ in edges.values()}
    assert ("Two models alone never show descent" in str(result)) == (len(names) == 2)
    for text in (str(result), result.to_mermaid(), result.to_dot(), result.drawn().alt, result.to_page([])):
        assert "parent" in text
        assert "given" in text


def test_whoever_has_a_model_can_forge_its_ancestors_and_each_form_of_the_answer_says_so(
    kin, new_model, save_model, tmp_path
):
    """A step back looks like a step: whoever had d alone wrote p, and x, which is earlier still and shows p."""
    made, names = {"d": load_file(Path(kin["d"]) / "model.safetensors")}, {"d": kin["d"]}
    for i, (later, earlier) in enumerate(pairwise("dpx")):
        made[earlier] = grown.trained(
            made[later], 40 + i, touched=grown.draw(60, 300, 40 + i), decay=1 / 0.98, steps=60
        )
        model = new_model(0)
        model.load_state_dict(made[earlier])
        names[earlier] = str(save_model(model, tmp_path / earlier))
    edges, result = relations(names, "dpx")
    assert edges["pd"] == (DESCENDS, SHOWN)
    assert FORGED in result.to_json()["cannot_know"]
    for text in (str(result), dict(result.card().remarks)["not known"], result.to_page([])):
        assert "whether somebody wrote a model" in " ".join(text.split())
    assert "unless models were written to look so" in of_tree(result.to_json(), {names[n]: n for n in names})


def test_a_parent_that_was_left_out_is_missed(kin):
    edges, _ = relations(kin, "acd")
    pair = next(edges[name] for name in ("cd", "dc") if name in edges)
    assert pair == (LATER, NOT_GIVEN)


def test_an_outgroup_is_a_witness_though_no_clock_says_that_it_is_earlier(kin):
    """e parted first, and is later than b by the clock."""
    assert relations(kin, "bce")[0].get("bc", (None,))[0] != DESCENDS
    edges, _ = relations(kin, "bce", outgroup=kin["e"])
    assert edges["bc"] == (DESCENDS, SHOWN)


def test_a_report_carries_the_words_and_an_old_one_says_who_wrote_it(kin, tmp_path, monkeypatch):
    _, result = relations(kin, "abc")
    folder.write(tmp_path / "new", "tree", {"outgroup": None, "statistic": "phi_u", "seed": 0}, result)
    assert "recomputed bit for bit" in reports.verify(tmp_path / "new")
    assert "parent may not be given" in (tmp_path / "new" / folder.PAGE).read_text()
    if (tmp_path / "new" / folder.PEDIGREE).exists():
        pedigree = json.loads((tmp_path / "new" / folder.PEDIGREE).read_text())
        parts = {component["bom-ref"][-1]: component["pedigree"] for component in pedigree["components"]}
        assert [a["name"] for a in parts["c"]["ancestors"]] == ["b"]
        assert "ancestors" not in parts["b"]  # a is only earlier
        assert [a["name"] for a in parts["b"]["variants"]] == ["a"]
    content = result.to_json() | {"schema": "provlab.tree/1"}
    with monkeypatch.context() as patch:
        patch.setattr(Forest, "to_json", lambda self: content)
        folder.write(tmp_path / "old", "tree", {"outgroup": None, "statistic": "phi_u", "seed": 0}, result)
    with pytest.raises(EvidenceError, match=r"is provlab.tree/1, .*: verify it by provlab \d"):
        reports.verify(tmp_path / "old")


def test_steps_of_paths_add_up(chain):
    """Counts along x, q, p, c are those of single steps."""
    counts = [path_of(chain[a], chain[b], chain["c"]).steps for a, b in pairwise("xqp")]
    assert counts == pytest.approx([60, 60], rel=0.08)
