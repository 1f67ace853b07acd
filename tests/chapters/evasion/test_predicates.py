"""The predicates about an adversary hold on good records and fail for each of their reasons."""

from dataclasses import asdict
from itertools import combinations, pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from provlab.chapters.evasion.measure import PreservedRecord
from provlab.chapters.evasion.predicates import (
    evaded_but_found,
    invariants_break,
    outputs_preserved,
    overlaps,
    separates_without_null,
)
from provlab.engine.store import Store
from provlab.publishing import claims
from provlab.publishing.evidence import Evidence

ROWS = {row["id"]: row for row in claims.load_claims()}


def evidence(pairs=None, **measurements):
    def of(statistic):
        rows = pairs[pairs["statistic"] == statistic]
        ran = rows[rows["error"].isna()]
        return ran[ran["dependent"].eq(True)], ran[ran["dependent"].eq(False)], int(rows["error"].notna().sum())

    kept = Evidence({"measurements": measurements}, Store(Path("nowhere")))
    return SimpleNamespace(pairs=pairs, of=of, measurement=kept.measurement, records=kept.records)


def test_the_rows_name_them():
    named = {ROWS[key]["predicate"]["name"] for key in ("I15", "I16", "I18", "I19", "I20")}
    assert named == {"outputs_preserved", "evaded_but_found", "invariants_break", "overlaps", "separates_without_null"}
    assert all(claims.predicate(ROWS[key]) for key in ("I15", "I16", "I18", "I19", "I20"))


# I15 ------------------------------------------------------------------------------------------------------


def preserved():
    return [asdict(PreservedRecord(name, name, kind, 1e-13, None)) for name in ("A", "B") for kind in ("T1", "T3")]


def judge_preserved(rows):
    return outputs_preserved(evidence(rows=rows), "rows", tolerance=1e-9, architectures=2)


def test_outputs_preserved():
    rows = preserved()
    assert judge_preserved(rows).status == "holds"
    rows[1] = {**rows[1], "difference": None, "refused": "a norm stands in the way"}
    assert judge_preserved(rows).status == "holds"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda rows: rows[0].update(difference=2e-9), "differs by 2.0e-09"),
        (lambda rows: rows[0].update(difference=None), "without a reason"),
        (lambda rows: rows.__delitem__(slice(2, None)), "only 1 architectures"),
    ],
)
def test_outputs_not_preserved(spoil, why):
    rows = preserved()
    spoil(rows)
    verdict = judge_preserved(rows)
    assert verdict.status == "fails"
    assert why in verdict.why


# I16 ------------------------------------------------------------------------------------------------------

FAMILIES = {"a": "A", "a1": "A", "a2": "A", "b": "B", "c": "C", "d": "D", "e": "E"}
BLOCKS = 6


def disguised_pairs(seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for a, b in combinations(FAMILIES, 2):
        for statistic in ("phi_u", "phi_h", "phi_match"):
            dependent = FAMILIES[a] == FAMILIES[b]
            found = dependent and statistic == "phi_match"
            blocks = [-100.0] * BLOCKS if found else list(np.log10(rng.uniform(size=BLOCKS)))
            log10_p = -500.0 if found else float(np.log10(rng.uniform(0.02, 1)))
            rows.append(
                {
                    "a": a,
                    "b": b,
                    "statistic": statistic,
                    "dependent": dependent,
                    "error": None,
                    "log10_p": log10_p,
                    "blocks": blocks,
                }
            )
    frame = pd.DataFrame(rows)
    frame["dependent"] = frame["dependent"].astype(object)
    return frame


def judge_evaded(frame):
    names = list(FAMILIES)
    return evaded_but_found(
        evidence(frame, one_each=list(pairwise(names)), negative=[-0.3, -1.0, -50.0]),
        evaded=["phi_u", "phi_h"],
        robust="phi_match",
        measurement="one_each",
        negative="negative",
        log10_p=-30,
        level=0.01,
        ks=0.01,
    )


def test_evaded_but_found():
    verdict = judge_evaded(disguised_pairs())
    assert verdict.status == "holds"
    assert f"n = {(len(FAMILIES) - 1) * BLOCKS}" in verdict.ours
    assert "with negative constants in T6 phi_match finds 1 of 3" in verdict.ours


@pytest.mark.parametrize(
    ("a", "b", "statistic", "column", "value", "why"),
    [
        ("a", "a1", "phi_match", "log10_p", -12.0, "phi_match has 1 dependent pairs above -30"),
        ("a", "b", "phi_match", "log10_p", -9.0, "rejects an independent pair"),
        ("a", "a1", "phi_match", "error", "lost", "1 pairs could not be compared"),
    ],
)
def test_found_or_lost_wrongly(a, b, statistic, column, value, why):
    frame = disguised_pairs()
    row = frame.index[(frame["a"] == a) & (frame["b"] == b) & (frame["statistic"] == statistic)][0]
    frame.at[row, column] = value
    verdict = judge_evaded(frame)
    assert verdict.status == "fails"
    assert why in verdict.why


def test_a_statistic_that_is_not_evaded():
    """phi_h still finds every pair that is judged: nothing was hidden."""
    frame = disguised_pairs()
    for row in frame.index[frame["statistic"] == "phi_h"]:
        frame.at[row, "blocks"] = [-3.0] * BLOCKS
    verdict = judge_evaded(frame)
    assert verdict.status == "fails"
    assert "phi_h is not uniform" in verdict.why


# I18 to I20 -----------------------------------------------------------------------------------------------


def test_invariants_break():
    good = {"dependent": [0.98, 0.9], "disguised": [0.1, 0.05], "independent": [0.2, 0.0]}

    def status(**changed):
        return invariants_break(evidence(m={"M_a": {**good, **changed}}), "m")

    assert status().status == "holds"
    assert "still separates" in status(disguised=[0.9, 0.8]).why
    assert "does not separate even undisguised" in status(dependent=[0.9, 0.1]).why


def test_overlaps():
    def status(dependent, independent):
        table = {"embedding": {"dependent": [0.1], "independent": [0.9]}}
        return overlaps(evidence(m={"up": {"dependent": dependent, "independent": independent}}, e=table), "m", "e")

    good = status([0.8, 0.9], [0.85, 0.95])
    assert good.status == "holds"
    assert "embedding (not judged) separates the groups: dependent 0.10 to 0.10" in good.ours
    assert "up separates the groups" in status([0.1, 0.2], [0.85, 0.95]).why
    assert "up separates the groups" in status([0.9], [0.85]).why


def test_separates_without_null():
    def status(dependent, independent):
        return separates_without_null(evidence(m={"dependent": dependent, "independent": independent}), "m", ks=0.01)

    narrow = list(np.linspace(0.6, 0.7, 40))
    assert status([0.01, 0.2], narrow).status == "holds"
    assert "overlap" in status([0.01, 0.65], narrow).why
    assert "could pass for p-values" in status([1e-9], list((np.arange(40) + 0.5) / 40)).why


def test_groups_without_a_pair_decide_nothing():
    """A run on models of one's own, whose origin nobody knows."""
    nothing = {"dependent": [], "independent": []}
    assert invariants_break(evidence(m={}), "m").status == "not run"
    assert overlaps(evidence(m={"up": nothing}, e={"embedding": nothing}), "m", "e").status == "not run"
    assert separates_without_null(evidence(m=nothing), "m", ks=0.01).status == "not run"
