"""Power of the test of uniformity, and what a one-sided test does not accuse for. References by hand or by scipy."""

import numpy as np
import pandas as pd
import pytest

from provlab.chapters.olmo_seeds import measure
from provlab.chapters.shared import calibration


def test_power_grows_with_pairs_and_is_that_of_the_test_itself():
    """One budget and one test, by the test of the page on its own draws: 0.01 of 400 draws is 2 standard errors."""
    rng = np.random.default_rng(1)
    found = [calibration.ks_uniform(2 * np.log10(rng.random(40))).p <= 0.01 for _ in range(400)]
    assert measure.power_of_uniformity(40, 1, 1, 0.01) == pytest.approx(np.mean(found), abs=0.08)
    assert measure.power_of_uniformity(10, 4, 16, 0.01) < 0.2 < 0.9 < measure.power_of_uniformity(190, 4, 16, 0.01)


def blocks(correlation, log10_p):
    """Ten pairs of runs with their own seeds, one of them against each other, and a pair of one initialisation."""
    rows = [("phi_u", f"a{i}", f"b{i}", 0, 0.01 * i, -0.3, -0.2) for i in range(9)]
    rows += [("phi_u", "a9", "b9", 1, correlation, 0.0, log10_p), ("phi_u", "a0", "c0", 0, -0.9, 0.0, -90.0)]
    rows += [("phi_l2", "a0", "b0", 0, -5.0, -0.3, np.nan)]  # no matching, no correlation
    return pd.DataFrame(rows, columns=["statistic", "a", "b", "block", "value", "log10_p", "paper_log10_p"])


AT = {(f"a{i}", f"b{i}"): (100, measure.OWN_SEEDS) for i in range(10)} | {("a0", "c0"): (100, measure.SAME_START)}


@pytest.mark.parametrize(
    ("log10_p", "said"),
    [(-5.28, "a two-sided test would call this pair"), (-1.0, "a two-sided test would not accuse either")],
)
def test_what_a_two_sided_test_would_accuse_for_is_said(log10_p, said):
    opposite = measure.most_opposite(blocks(-0.29, log10_p), AT)
    assert opposite["statistic"].tolist() == ["phi_u"]
    row = opposite.iloc[0]
    assert (row["a"], row["block"], row["of blocks"], row["correlation"]) == ("a9", 1, 10, -0.29)
    assert row["p, two-sided"] == pytest.approx(10**log10_p)
    assert row["after Holm"] == pytest.approx(min(1.0, 10 * 10**log10_p))
    words = measure.not_accused_for(opposite, 0.01)
    assert "Of a9 and b9 at 100 tokens, block 1 has a correlation of -0.29" in words
    assert said in words
