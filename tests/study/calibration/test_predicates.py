"""Claim I2 by `blocks_calibrated`: records as a good run leaves them, and each fault planted."""

import numpy as np
import planted
import pytest
from planted import Plant

from provlab.statistics import phi_u
from provlab_study.calibration import shipped
from provlab_study.calibration.trained import train_residual_pairs
from provlab_study.publishing.evidence import FAILS, HOLDS, NOT_RUN

ROW = planted.row("I2")
ENOUGH = ROW["predicate"]["min_pairs"]["default"]


def good():
    """Uniform p-values without any dependence between blocks, and a control whose columns repeat each other."""
    rng = np.random.default_rng(4)
    column = rng.random((ENOUGH, 1))
    return {
        "valid": {
            "phi_u, networks": np.log10(rng.random((ENOUGH, 3))).tolist(),
            "phi_u, models": np.log10(rng.random((20, 2))).tolist(),
        },
        "dependent": np.log10(np.hstack([column, (column + 0.1 * rng.random((ENOUGH, 1))) / 1.1])).tolist(),
    }


def judged(measured, profile="default"):
    return planted.judged(ROW, {"blocks": measured}, profile)


def copied_blocks(measured):
    measured["valid"]["phi_u, models"] = [[row[0]] * len(row) for row in measured["valid"]["phi_u, models"]]


def faintly_correlated(measured):
    """A fifth of the pairs have the same p-value in two blocks: nothing that 20 pairs could show."""
    for row in measured["valid"]["phi_u, networks"][::5]:
        row[1] = row[0]


def too_small(measured):
    """Half a p-value: what the better of two sides gives."""
    measured["valid"]["phi_u, networks"] = (np.array(measured["valid"]["phi_u, networks"]) - np.log10(2)).tolist()


def too_many_far_out(measured):
    """One block in a hundred at 1e-6: no distance over the whole interval sees it."""
    for row in measured["valid"]["phi_u, networks"][::33]:
        row[2] = -6.0


def too_few(measured):
    measured["valid"]["phi_u, networks"] = measured["valid"]["phi_u, networks"][: ENOUGH // 2]


def blind(measured):
    measured["dependent"] = np.log10(np.random.default_rng(5).random((ENOUGH, 2))).tolist()


PLANTS = [
    Plant("copied blocks", copied_blocks, FAILS, "phi_u, models: blocks are correlated (up to 1.00)"),
    Plant("faintly correlated", faintly_correlated, FAILS, "phi_u, networks: blocks are correlated"),
    Plant("too small", too_small, FAILS, "phi_u, networks: not uniform"),
    Plant("too many far out", too_many_far_out, FAILS, "too many p up to 0.001"),
    Plant("blind", blind, FAILS, "does not see the dependence"),
    Plant("too few", too_few, NOT_RUN, "fewer than"),
]


def test_a_good_record_holds():
    verdict = judged(good())
    assert verdict.status == HOLDS, verdict
    assert f"1 tables of {ENOUGH:,} pairs by 3 blocks" in verdict.ours
    assert "flagged up to 0.005" in verdict.margin
    assert verdict.why


@pytest.mark.parametrize("plant", PLANTS, ids=str)
def test_a_planted_fault_fails(plant):
    plant.check(judged, good())


def test_a_smaller_profile_asks_for_fewer_pairs():
    measured = good()
    too_few(measured)
    assert judged(measured, "smoke").status == HOLDS


def test_ties_broken_alike_in_every_block_fail(monkeypatch):
    """The library once did so; a check that breaks ties itself could not see it."""
    pairs, row = train_residual_pairs(200, seed=2), ("phi_u", shipped.TIED, shipped.SCIPY)
    measured = good()
    measured["valid"]["phi_u, networks"] = shipped.compare(pairs, [row], seed=0).blocks[row].tolist()
    assert judged(measured, "smoke").status == HOLDS
    monkeypatch.setattr(phi_u, "tie_seed", lambda seed, *where: seed)
    measured["valid"]["phi_u, networks"] = shipped.compare(pairs, [row], seed=0).blocks[row].tolist()
    verdict = judged(measured, "smoke")
    assert verdict.status == FAILS
    assert "blocks are correlated" in verdict.why
