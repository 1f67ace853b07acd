"""Counts of a forest against its truth, families that are grown, and the claims on them with planted faults."""

from collections import namedtuple
from itertools import combinations

import pytest

from provlab_study.family_forest import arms, measure, peers, predicates
from provlab_study.family_forest.measure import Judged

FORGED = "forged"
FEW_DRAWS = {"draws": {"0.01": {"mean e-value": 0}}, "n_draws": 10}
DRAWS = {"0.01": {"mean e-value": 2, "single links": 9}}


def judge(predicate, records, **bars):
    return getattr(predicates, predicate)(records, **bars).status


def edges(right, wrong, forward=True):
    row = {"arm": "plain", "joined": "rows", "directed": "rows", "forward": forward, "speaks": True}
    return [{**row, "right": True}] * right + [{**row, "right": False}] * wrong


FAMILIES = {"glued": 0, "split": 28, "related": 420, "pairs": 6216, "draws": DRAWS, "n_draws": 1000}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "holds"),
        ({"glued": 1}, "fails"),
        ({"draws": {"0.01": {"mean e-value": 30}}}, "fails"),
        (FEW_DRAWS, "within_its_spread"),
        ({"split": 420, "draws": {"0.01": {"mean e-value": 0}}}, "fails"),  # a forest that never joins makes no error
        ({"split": 80}, "within_its_spread"),
    ],
)
def test_families_apart(change, status):
    assert judge("families_apart", FAMILIES | change, level=0.01, joined=0.8) == status


MISSED = {"arm": "plain", "joined": "missed", "right": False, "directed": None, "forward": None, "speaks": False}


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        (edges(99, 1) + [MISSED] * 20, "holds"),
        (edges(80, 20), "fails"),
        (edges(70, 0) + [MISSED] * 330, "fails"),  # right wherever it speaks, and it hardly does
        (edges(70, 0) + [{**row, "speaks": False} for row in edges(330, 0)], "fails"),
        (edges(30, 0), "within_its_spread"),
        (edges(10, 40), "fails"),  # few, and wrong beyond chance
        (edges(38, 8), "within_its_spread"),
        ([], "not run"),
        ([{**row, "arm": "forged: rows"} for row in edges(99, 1)], "not run"),
    ],
)
def test_edges_right(rows, status):
    assert judge("edges_right", rows, share=0.9, spoken=0.6, least=60, forged=FORGED) == status


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        (edges(400, 0), "holds"),
        (edges(69, 0), "within_its_spread"),  # none of 69 may be 5%
        (edges(400, 0) + edges(2, 0, forward=False), "within_its_spread"),
        (edges(90, 0) + edges(2, 0, forward=False), "fails"),
        (edges(400, 0) + [{**row, "directed": None} for row in edges(200, 0)], "fails"),
        ([], "not run"),
    ],
)
def test_directions_right(rows, status):
    arguments = {"wrong": 0.01, "answered": 0.8, "arms": ["plain"], "forged": FORGED}
    assert judge("directions_right", rows, **arguments) == status


def kin(right, wrong, missing=0, false=0, silent=0):
    """Edges that say descends, right and wrong; that say the parent was left out, right and wrong; and later alone."""
    shown, unsaid = {"relation": "descends", "parent": "shown"}, {"relation": "later", "parent": "not given"}
    unknown = {"relation": "later", "parent": "may not be given"}
    rows = [{**row, **shown} for row in edges(right, 0)] + [{**row, **shown} for row in edges(0, wrong, forward=False)]
    rows += [{**row, **unsaid} for row in edges(0, missing, forward=None)]
    return rows + [{**row, **unsaid} for row in edges(0, false)] + [{**row, **unknown} for row in edges(silent, 0)]


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        (kin(400, 0, 100), "holds"),
        (kin(90, 1), "fails"),
        (kin(200, 2, 90), "within_its_spread"),
        (kin(60, 0), "within_its_spread"),  # none of 60 may be 5%
        (kin(500, 0, 100, silent=49500), "fails"),  # never wrong, and hardly said
        (kin(400, 0, 0, 300), "fails"),  # each parent that is said to be missing was there
        (kin(400, 0, 100, 3), "within_its_spread"),
        (kin(30, 0, 90), "within_its_spread"),
        (kin(12, 1), "within_its_spread"),  # one wrong edge of a dozen
        (kin(9, 9), "fails"),
        (kin(0, 0, 90), "not run"),
    ],
)
def test_descent_right(rows, status):
    assert judge("descent_right", rows, wrong=0.01, said=0.05, missing=0.05, least=40) == status


def test_edges_are_judged_against_their_truth():
    edge = namedtuple("Edge", "a b joined directed relation numbers parent")
    numbers = {"kept": 5, "changed": 2}
    parents = {"a": (), "b": ("a",), "c": ("b",)}
    drawn = [
        edge("b", "a", "rows", "rows", "later", numbers, "not given"),
        edge("a", "c", "estimated", None, "near", numbers, "may not be given"),
    ]
    forest = namedtuple("Forest", "edges families")(drawn, [namedtuple("Family", "models")(("a", "b", "c"))])
    rows = measure.judged(forest, parents, {})
    assert rows == [
        Judged("zoo", "rows", True, "rows", False, True, "later", "not given"),
        Judged("zoo", "estimated", False, None, True, True, "near", "may not be given"),
        Judged("zoo", "missed", False, None, None, False),
    ]
    assert measure.table(rows).loc["given, not grown"].to_dict()["rows: wrong"] == 1
    assert measure.kin_table(rows).loc["zoo"].tolist() == [0, 0, 1, 0, 0, 1, 0]
    assert measure.independent_joined(forest, {**parents, "c": ()}) == (2, 0, 1, 3)


def drawn_forest(*edges):
    """A forest of these edges, each from its first letter to its second."""
    edge = namedtuple("Edge", "a b directed")
    return namedtuple("Forest", "edges families")([edge(a, b, "rows") for a, b in edges], [])


@pytest.mark.parametrize(
    ("edges", "right"),
    [
        (("ab", "bc", "xy"), "3 of 3"),
        (("bc", "xy"), "2 of 3"),  # a is in a family of its own: the edge to it is lost
        (("ab", "ac", "xy"), "2 of 3"),
        (("ab", "bc", "xy", "xm"), "3 of 3"),
    ],
)
def test_peers_are_counted_over_the_families_as_they_were_grown(edges, right, monkeypatch):
    """A child whose parent stands in another family of ours ended the page, and peers were asked within ours."""
    sharp = dict(zip("abcxy", (3.0, 2.0, 1.0, 1.0, 2.0), strict=True))
    monkeypatch.setattr(peers, "sharpness", sharp.__getitem__)
    places = dict(zip("abcxy", (0, 1, 2, 0, 1), strict=True))
    monkeypatch.setattr(peers, "SCORES", {peers.MOTHER: lambda a, b: -abs(places[a] - places[b])})
    parents = {"a": (), "b": ("a",), "c": ("b",), "x": (), "y": ("x",), "m": (), "n": ("m",), "mean": ("m", "n")}
    table = measure.peer_rows([drawn_forest(*edges)], {name: name for name in parents}, parents)
    assert table["edges right"][["this chapter", peers.MOTHER]].tolist() == [right, "3 of 3"]
    answered = sum(edge in ("ab", "bc", "xy") for edge in edges)
    assert table["directions right"]["this chapter"] == f"{answered} of {answered} answered, of 3"
    assert table["directions right"][peers.MOTHER] == "2 of 3"


@pytest.mark.parametrize(
    ("apart", "right"),
    [
        ({}, 5),
        ({"ae": 4}, 3),  # a and e seem far apart, so two triples are wrong: those of both with c and with d
        ({"bd": 3}, 4),
        ({"cd": 3}, 4),  # two pairs of c, d and e seem equally close: the rule names none
    ],
)
def test_odd_ones_are_counted_against_true_paths(apart, right):
    """Five of ten triples of a, its children b and e, and b's c and d have one: ace, ade, bce, bde, cde."""
    parents = {"a": (), "b": ("a",), "c": ("b",), "d": ("b",), "e": ("a",), "mean": ("c", "e"), "x": ()}
    paths = dict(zip(map("".join, combinations("abcde", 2)), (1, 2, 2, 1, 1, 1, 2, 2, 3, 3), strict=True))
    paths |= {a + b: 0 for a in "abcde" for b in ("mean", "x")} | apart
    family = namedtuple("Family", "models apart")(
        tuple(parents), {frozenset((pair[0], pair[1:])): (length, 0.0) for pair, length in paths.items()}
    )
    counts = measure.odd_ones(namedtuple("Forest", "families")([family]), parents, dict.fromkeys("abcde", "plain"))
    assert counts == {"plain": [right, 5]}


def test_draws_under_the_null_keep_the_level():
    draws = measure.family_wise(40, 60, 0)
    assert draws["0.01"]["mean e-value"] <= 2
    assert draws["0.05"]["mean e-value"] <= draws["0.05"]["single links"] + 1


def test_a_family_is_grown_and_peers_score_it(tmp_path, monkeypatch):
    monkeypatch.setattr(arms, "STEPS", {"base": 4, "child": 3})
    made = arms.grow(tmp_path, "merges", 5, seed=0)
    assert [len(model.parents) for model in made] == [0, 1, 1, 2, 2]
    pair = [peers.Model.open(made[i].source) for i in (0, 1)]
    cosines = [score for name, score in peers.SCORES.items() if name != peers.MOTHER]
    assert all(score(pair[0], pair[0]) == pytest.approx(1.0) for score in cosines)
    assert all(0.5 < score(*pair) <= 1 for score in cosines)
    assert peers.near(*pair) < peers.near(pair[0], pair[0]) == 0
    scores = {("a", "b"): 0.9, ("a", "c"): 0.8, ("b", "c"): 0.85}
    assert peers.spanning("abc", scores) == {frozenset("ab"), frozenset("bc")}
