"""The predicate about phi_MATCH between strangers holds on uniform tables and fails for each of its reasons."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

from provlab.chapters.robust_null.predicates import behaves_like_pvalue
from provlab.publishing import claims

ROW = next(row for row in claims.load_claims() if row["id"] == "I17")


def of_text(seed, power=1.0):
    """A table of 40 models, two blocks: uniform p-values, or their powers, nearer to zero or one."""
    rng = np.random.default_rng(seed)
    pairs = combinations([f"m{i:02d}" for i in range(40)], 2)
    bases = [[a, b, (power * np.log10(1 - rng.random(2))).tolist()] for a, b in pairs]
    return {"bases": bases, "tree": {"blocks": 0.6, "aggregated": 0.3}, "size": 0.0512}


def judge(profile="default", **texts):
    evidence = SimpleNamespace(profile=profile, measurement={"uniformity": texts}.__getitem__)
    arguments = {key: value for key, value in ROW["predicate"].items() if key != "name"}
    return behaves_like_pvalue(evidence, **arguments)


def test_the_row_names_it():
    assert claims.predicate(ROW) is behaves_like_pvalue


def test_uniform_tables_hold():
    verdict = judge(prose=of_text(1), code=of_text(2))
    assert verdict.status == "holds", verdict
    assert "none of 8 tests" in verdict.why
    assert "actual size at 0.05 0.0512" in verdict.ours


@pytest.mark.parametrize("power", [1.2, 0.85])
def test_a_table_too_near_zero_or_one_fails(power):
    verdict = judge(prose=of_text(1), code=of_text(2, power))
    assert verdict.status == "fails"
    assert "code: bases, per block" in verdict.why
    assert "prose" not in verdict.why


def test_the_aggregate_alone_may_fail():
    """Each block uniform, and the two of a pair the same: Fisher counts one thing twice."""
    twice = of_text(3)
    twice["bases"] = [[a, b, [blocks[0], blocks[0]]] for a, b, blocks in twice["bases"]]
    assert "prose: bases, aggregated" in judge(prose=twice, code=of_text(2)).why


@pytest.mark.parametrize("which", ["blocks", "aggregated"])
def test_the_tree_may_fail(which):
    odd = of_text(4)
    odd["tree"][which] = 0.001
    verdict = judge(prose=odd, code=of_text(2))
    assert verdict.status == "fails"
    assert f"prose: tree, {'per block' if which == 'blocks' else which}" in verdict.why
    # one of eight at 0.005 is no surprise: all are read together
    odd["tree"][which] = 0.005
    assert judge(prose=odd, code=of_text(2)).status == "holds"


def test_too_little_is_said():
    assert "only 1 texts" in judge(prose=of_text(1)).why
    few = {**of_text(1), "bases": [row for row in of_text(1)["bases"] if row[0] < "m08" and row[1] < "m08"]}
    assert "only 28 pairs" in judge(prose=few, code=of_text(2)).why
    assert judge("smoke", prose=few, code=few).status == "holds"
    assert judge(prose={**of_text(1), "bases": []}, code=of_text(2)).status == "not run"
