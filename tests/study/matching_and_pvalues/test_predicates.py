"""The claim on matchings and the t tail holds on uniform permutations, and fails where either half of it is broken."""

from itertools import combinations

import numpy as np
import pandas as pd
import planted
import pytest

from provlab.errors import ParameterError
from provlab.inference import pvalues
from provlab_study.matching_and_pvalues import measure

ROW = planted.row("I3")
H, BLOCKS, COPIES = 64, 3, 999
TREES = {f"{tree}{i}": tree for tree in "ABCDEF" for i in range(2)}


def evidence(matching):
    """What the page keeps of matchings of all pairs; `matching` draws one of a pair of independent models."""
    rng = np.random.default_rng(0)
    own = np.arange(H)
    matchings = {
        pair: [own if TREES[pair[0]] == TREES[pair[1]] else matching(rng) for _ in range(BLOCKS)]
        for pair in combinations(TREES, 2)
    }
    tail = []
    for a, b in matchings:
        if a[1] == b[1] == "0":
            for drawn in matchings[a, b]:
                log10_p = pvalues.spearman(drawn).paper_log10_p
                counted = np.log10((1 + rng.binomial(COPIES, 10**log10_p)) / (COPIES + 1))
                tail += [{"T": COPIES, "log10_p_t": log10_p, "log10_p_permtest": counted}] * 2
    uniform = measure.uniform_by_symmetry({"phi_u": matchings, "phi_h": matchings}, TREES, COPIES, seed=2)
    return {"tail": tail, "uniform": uniform}


def judge(kept):
    return planted.judged(ROW, kept)


@pytest.fixture(scope="module")
def uniform():
    return evidence(lambda rng: rng.permutation(H))


def test_uniform_permutations_hold(uniform):
    verdict = judge(uniform)
    assert verdict.status == "holds", verdict
    assert "60 independent pairs" in verdict.ours


def test_every_independent_matching_the_identity_fails():
    """PERMTEST and the t tail agree on it: both are as small as they can be."""
    kept = evidence(lambda rng: np.arange(H))
    assert measure.log10_p_of_counts(pd.DataFrame(kept["tail"])).min() == 0.0
    verdict = judge(kept)
    assert verdict.status == "fails"
    assert "not uniform: phi_u, all pairs, per block" in verdict.why
    assert "phi_u, disjoint pairs" in verdict.why


def test_matchings_that_lean_to_the_identity_fail():
    """A quarter of the units matched to themselves: small p-values everywhere, none at the floor."""

    def lean(rng):
        moved = rng.choice(H, size=3 * H // 4, replace=False)
        matching = np.arange(H)
        matching[moved] = rng.permutation(moved)
        return matching

    assert "not uniform" in judge(evidence(lean)).why


def test_disjoint_pairs_share_no_tree(uniform):
    rows = [row for row in uniform["uniform"] if row["over"] == "disjoint pairs"]
    assert [row["n_pairs"] for row in rows] == [3, 3]


def test_the_first_pair_of_each_kind():
    frame = pd.DataFrame({"error": None, "a": "a", "b": ["b0", "b1", "b2"], "dependent": [False, True, True]})
    assert measure.one_of_each(frame) == {"fine-tune": ("a", "b1"), "independent": ("a", "b0")}
    with pytest.raises(ParameterError, match="has no fine-tune to compare; see models"):
        measure.one_of_each(frame[:1])
