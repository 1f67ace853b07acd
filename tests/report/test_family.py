"""One family of tests, the same in `compare` and `study`: what is corrected together, and what is said of it."""

import numpy as np
import planted
import pytest
from planted import record, says

import provlab
from provlab.engine.table import PairRecord
from provlab.errors import ParameterError
from provlab.report.comparison import Comparison
from provlab.report.decide import UNTESTED
from provlab.report.family import FamilyOfTests
from provlab.report.lineage import Lineage
from provlab.report.study_report import StudyReport
from provlab.statistics.options import Options
from provlab.statistics.results import BlockResult, Detail, Outcome

NAN = float("nan")


def records(tests, pair=("/a", "/b")):
    """Statistic -> p, with a reach of 0.01 for phi_l2 and one far below for the others."""
    return [record(name, float(np.log10(p)), pair) for name, p in tests.items()]


def comparison(tests, **family):
    return planted.comparison({name: float(np.log10(p)) for name, p in tests.items()}, **family)


def study(pairs, **family):
    result = [item for i, tests in enumerate(pairs) for item in records(tests, ("/a", f"/{i}"))]
    sources = ("/a", *(f"/{i}" for i in range(len(pairs))))
    kept = {"sources": sources, "statistics": tuple(pairs[0]), "lineage": Lineage.of(sources)}
    return StudyReport((), tuple(result), Options(), **kept, **family)


def test_benjamini_yekutieli_by_hand():
    family = FamilyOfTests(("phi_u",) * 3, np.log10([0.001, 0.02, 0.9]), np.full(3, -9.0), fdr=True)
    # Benjamini and Yekutieli 2001: p (m / k) (1 + 1/2 + 1/3), stepped up
    np.testing.assert_allclose(10**family.adjusted_log10_p, [0.001 * 3 * 11 / 6, 0.02 * 1.5 * 11 / 6, 1.0])
    np.testing.assert_allclose(10**family.holm_log10_p, [0.003, 0.04, 0.9])  # shown beside it
    assert family.rejected.tolist() == [True, False, False]
    assert family.words() == "Benjamini-Yekutieli over 3 tests, false discovery rate at most 0.01"


def test_tests_without_a_p_value_are_not_counted():
    family = FamilyOfTests(("phi_u", "phi_jsd", "phi_h"), np.array([-3.0, NAN, NAN]), np.array([-9.0, NAN, NAN]))
    assert family.size == 1
    assert family.words() == "one test, level 0.01"
    assert np.isnan(family.adjusted_log10_p[1:]).all()


def test_the_declared_statistic_is_the_family():
    """0.004 is rejected on its own and not beside two others; what is not declared is neither corrected nor judged."""
    tests = {"phi_u": 0.5, "phi_h": 0.004, "phi_match": 1e-9}
    joint, declared = comparison(tests), comparison(tests, primary="phi_h")
    assert joint.to_frame()["adjusted_log10_p"].notna().all()
    assert declared.to_frame()["adjusted_log10_p"].notna().tolist() == [False, True, False]
    assert says(declared, "tested", "rejected", hits="phi_h", family="one test, level 0.01")
    assert says(declared, "beside it", "borne_out", units="phi_match")
    others = "description only, not corrected: phi_u 10^-0.3, phi_match 10^-9.0."
    assert f"phi_h was declared the one to judge by; {others}" in declared.verdict()
    assert says(comparison(tests, primary="phi_u"), "tested", "untested", tested="phi_u", family="one test, level 0.01")
    assert declared.to_json()["family"]["primary"] == "phi_h"


def test_compare_and_study_have_one_rule():
    """Two pairs, two statistics: four tests. By statistic alone 0.004 would be rejected: 2 x 0.004 < 0.01."""
    result = study([{"phi_u": 0.004, "phi_h": 0.5}, {"phi_u": 0.6, "phi_h": 0.7}])
    assert result.family.words() == "Holm over 4 tests, family-wise error at most 0.01"
    assert not result.to_frame()["rejected"].any()
    declared = study([{"phi_u": 0.004, "phi_h": 0.5}, {"phi_u": 0.6, "phi_h": 0.7}], primary="phi_u")
    assert declared.family.words() == "Holm over 2 tests of phi_u, family-wise error at most 0.01"
    assert declared.to_frame()["rejected"].tolist() == [True, False, False, False]
    table = declared.summary().set_index("statistic")
    assert table.loc["phi_u", "rejected"] == "1"
    assert table.loc["phi_u", "corrected by"] == declared.family.words()
    assert table.loc["phi_h", "rejected"] == "description only"
    assert declared.family.words() in str(declared)
    assert declared.family.words() in declared._repr_html_()
    assert declared.family.words() in declared.figure("phi_u").caption
    assert "on its own" in declared.figure("phi_h").caption


def test_the_false_discovery_rate_is_said_everywhere():
    result = study([{"phi_u": 1e-9}, {"phi_u": 0.3}], fdr=True)
    for text in (str(result), result._repr_html_(), result.figure().caption, result.summary()["corrected by"][0]):
        assert "false discovery rate at most 0.01" in text
    assert result.to_json()["family"] == {
        "primary": None,
        "tests": 2,
        "error": "false discovery rate",
        "correction": "benjamini_yekutieli",
        "level": 0.01,
        "cannot_reject": [],
    }
    assert "false discovery rate at most 0.01)" in comparison({"phi_u": 0.3, "phi_h": 0.2}, fdr=True).verdict()


def test_what_cannot_reject_is_said():
    """phi_l2 with T = 99 has 0.01 at best: enough after all others are rejected, never over two pairs."""
    assert "cannot reject" not in comparison({"phi_u": 1e-9, "phi_l2": 0.01}).verdict()
    assert says(comparison({"phi_u": 1e-9, "phi_l2": 0.01}), "tested", "order", hits="phi_u, phi_l2")
    words = "phi_l2 cannot reject here: its smallest p is 0.01 over 2 tests."
    assert words in comparison({"phi_u": 0.3, "phi_l2": 0.01}).verdict()
    two = study([{"phi_l2": 0.01}, {"phi_l2": 0.01}])
    assert words in str(two)
    assert words in two._repr_html_()
    assert two.to_json()["family"]["cannot_reject"] == ["phi_l2"]
    assert words in str(study([{"phi_l2": 0.01}, {"phi_l2": 0.5}], fdr=True))


def test_a_primary_statistic_must_be_asked_for():
    with pytest.raises(ParameterError, match=r"primary statistic phi_h is not among those asked, phi_u; name it"):
        provlab.compare("/a", "/b", statistics=["phi_u"], primary="phi_h")
    with pytest.raises(ParameterError, match="primary statistic phi_h is not among"):
        provlab.study(["/a", "/b"], statistics=["phi_u"], primary="phi_h")


def test_a_primary_statistic_that_did_not_run_decides_nothing():
    failed = PairRecord("/a", "/b", "phi_match", None, "no gate")
    result = Comparison(
        ({"source": "/a"}, {"source": "/b"}), (*records({"phi_u": 1e-9}), failed), Options(), "phi_match"
    )
    assert result.outcome == UNTESTED
    assert says(result, "tested", "none")
    assert "Not run: phi_match (no gate)." in result.verdict()


def test_the_share_of_units_that_agree_stands_beside_the_p_value():
    """Over all blocks: (30 + 40) / (40 + 60)."""
    counts = [(30, 40), (40, 60)]
    blocks = tuple(BlockResult(i, 1.0, -9.0, -50.0, detail=Detail(agree=k, n=n)) for i, (k, n) in enumerate(counts))
    outcome = Outcome(1.0, -9.0, blocks, -99.0, detail=Detail(paper_log10_p=-9.5))
    record = PairRecord("/a", "/b", "phi_u", outcome)
    item = Comparison(({"source": "/a"}, {"source": "/b"}), (record,), Options())
    sources = ("/a", "/b")
    many = StudyReport((), (record,), Options(), sources=sources, statistics=("phi_u",), lineage=Lineage.of(sources))
    for frame in (item.to_frame(), many.to_frame()):
        assert frame["agree"].tolist() == [0.7]
        assert frame["paper_log10_p"].tolist() == [-9.5]
    assert item.to_json()["statistics"]["phi_u"]["agree"] == many.to_json()["records"][0]["agree"] == 0.7
    assert "70.0%" in str(item)
    assert "70.0%" in item._repr_html_()
    assert says(item, "how rare", "paper", p="10^-9.5")
