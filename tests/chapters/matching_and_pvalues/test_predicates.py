"""The claim on matchings and the t tail holds on uniform permutations, and fails where either half of it is broken."""

from dataclasses import asdict, replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

from provlab.chapters.matching_and_pvalues import measure
from provlab.chapters.matching_and_pvalues.predicates import tail_agrees
from provlab.publishing import claims

ROW = next(row for row in claims.load_claims() if row["id"] == "I3")
H, BLOCKS = 64, 3
TREES = {f"{tree}{i}": tree for tree in "ABCDEF" for i in range(2)}


def evidence(matching):
    """What the page keeps of matchings of all pairs; `matching` draws one of a pair of independent models."""
    rng = np.random.default_rng(0)
    own = np.arange(H)
    found = {
        pair: [own if TREES[pair[0]] == TREES[pair[1]] else matching(rng) for _ in range(BLOCKS)]
        for pair in combinations(TREES, 2)
    }
    matchings = {"phi_u": found, "phi_h": found}
    across = [(a, b) for a, b in found if a[1] == b[1] == "0"]
    return {
        "tail": measure.tails(matchings, across, 999, seed=1),
        "uniform": measure.uniform_by_symmetry(matchings, TREES, 999, seed=2),
    }


def judge(kept):
    def records(name, kind):
        return [kind(**asdict(row)) for row in kept[name]]

    arguments = {key: value for key, value in ROW["predicate"].items() if key != "name"}
    return tail_agrees(SimpleNamespace(records=records), **arguments)


@pytest.fixture(scope="module")
def uniform():
    return evidence(lambda rng: rng.permutation(H))


def test_the_row_names_it():
    assert claims.predicate(ROW) is tail_agrees


def test_uniform_permutations_hold(uniform):
    verdict = judge(uniform)
    assert verdict.status == "holds", verdict
    assert "60 independent pairs" in verdict.ours


def test_every_independent_matching_the_identity_fails():
    """PERMTEST and the t tail agree on it: both are as small as they can be."""
    kept = evidence(lambda rng: np.arange(H))
    assert measure.agreement(kept["tail"]).adjusted.min() == 0.0
    verdict = judge(kept)
    assert verdict.status == "fails"
    assert "not uniform: phi_u, all pairs, per block" in verdict.why
    assert "phi_u, disjoint pairs" in verdict.why


def test_matchings_that_lean_to_the_identity_fail():
    """A quarter of the units matched to themselves: small p-values everywhere, none at the floor."""

    def lean(rng):
        moved = rng.choice(H, size=3 * H // 4, replace=False)
        found = np.arange(H)
        found[moved] = rng.permutation(moved)
        return found

    assert "not uniform" in judge(evidence(lean)).why


def test_a_tail_that_permtest_contradicts_fails(uniform):
    wrong = [replace(row, log10_p_t=2 * row.log10_p_t) for row in uniform["tail"]]
    assert "PERMTEST and the t tail differ" in judge({**uniform, "tail": wrong}).why


def test_too_little_is_said(uniform):
    few = [replace(row, n_copies=99) if row.n_copies else row for row in uniform["uniform"]]
    assert "too few copies" in judge({**uniform, "uniform": few}).why
    assert judge({**uniform, "tail": []}).status == "not run"


def test_disjoint_pairs_share_no_tree(uniform):
    rows = [row for row in uniform["uniform"] if row.over == "disjoint pairs"]
    assert [row.n_pairs for row in rows] == [3, 3]
