"""Steps and findings of the page on noisy copies: copies by their noise, findings by their numbers."""

import numpy as np
import pandas as pd
import pytest

from provlab.modeldiff.representative import Direction, Draws
from provlab.reading.checkpoint import Checkpoint
from provlab_study.plagiarism import measure
from provlab_study.plagiarism.predicates import Sweep


def test_copies_differ_by_their_noise_alone(models, tmp_path):
    base = Checkpoint.open(models["base"])
    suspects = measure.suspects(base, tmp_path, [0.01], 2, "", [str(models["stranger"])], seed=3)
    assert [suspect.kind for suspect in suspects.values()] == ["noise", "noise", "stranger"]
    assert list(suspects)[2] == "stranger stranger"  # a folder by its name
    first, second = (Checkpoint.open(suspect.source) for suspect in list(suspects.values())[:2])
    for name in base.tensor_names[:3]:
        noise = [(copy.tensor(name) - base.tensor(name)).numpy() for copy in (first, second)]
        assert [difference.std() for difference in noise] == pytest.approx([0.01] * 2, rel=0.2)
        assert (noise[0] != noise[1]).any()
    assert Checkpoint.open(suspects["noise 0.01, 1"].source).digest == first.digest  # made once


def swept(pair, loss, a, b, kind="noise", **shift):
    fields = {"mean": 1.0, "variance": 1.0, "slope": 2.0, "predicted_b": b} | shift
    return Sweep(pair, kind, loss, [a, a - 0.05, a + 0.05], [b, b - 0.05, b + 0.05], **fields)


def test_the_sweep_names_losses_where_all_copies_and_no_other_pair_lie_on_one_side():
    rows = [swept(f"noise 1, {k}", loss, 0.6, b) for k in (1, 2) for loss, b in ((1.0, 0.6), (2.0, 0.6), (3.0, 0.4))]
    rows += [swept("s", 1.0, 0.9, 0.1, "stranger"), swept("s", 2.0, 0.9, 0.9, "stranger")]
    finding = measure.sweep_finding(rows)
    assert "in 4 of 6 cases (one copy at one loss) and mostly above it in 0" in finding
    assert "and no other pair: 1.0." in finding  # at 2.0 the stranger lies there too
    assert "the 8 cases in which" in finding
    assert "in 3;" in finding  # mu = 1 is below s v = 2 throughout, so that it says above zero
    table = measure.sweep_table(rows)
    assert table.iloc[2]["noise 1"] == "0 below, 0 above, of 2"
    assert table.iloc[2]["s"] == ""
    lower = [swept("noise 1, 1", 1.0, 0.4, 0.4)]
    assert lower[0].side == -1


def test_one_side_holds_if_the_mean_exceeds_slope_times_variance():
    """NLL_B - NLL_A of mean mu and variance v, independent of the loss, over inputs whose number grows as exp(s z)."""
    rng, s, v, z = np.random.default_rng(0), 20.0, 0.0025, (2.4, 2.6)
    a = rng.uniform(1.0, 4.0, 400_000)
    weight = np.exp(s * (a - 4.0))  # so that the number of inputs grows as it should
    for mu in (0.03, 0.1):
        b = a + rng.normal(mu, v**0.5, len(a))
        draws = Draws(np.zeros((len(a), 1), int), a, np.log(weight), np.zeros(len(a), int), 1)
        side = Direction.from_draws(draws.within(z), b[(a >= z[0]) & (a <= z[1])], "A", z)
        assert measure.shift(side, 2.5, 0.1) == pytest.approx((mu, v, s), rel=0.1)
        in_z = (b >= z[0]) & (b <= z[1])
        below = np.average((b > a)[in_z], weights=weight[in_z])  # D < 0 on B's inputs
        assert below == pytest.approx(measure.predicted_share(mu, v, s), abs=0.02)
        assert (below > 0.5) == (mu > s * v)


def test_p_values_stand_beside_their_suspects():
    frame = pd.DataFrame(
        {
            "a": ["s", "base", "t"],
            "b": ["base", "t", "s"],
            "statistic": "phi_u",
            "log10_p": [-3.0, -9.0, -1.0],
            "error": [None, "no gate", None],
        }
    )
    values = measure.p_values(frame, "base", ["s", "t"], ["phi_u", "phi_h"])
    np.testing.assert_array_equal(values["phi_u"], [-3.0, np.nan])
    np.testing.assert_array_equal(values["phi_h"], [np.nan, np.nan])
