"""Steps and findings of the page on language models, on comparisons made by hand."""

import numpy as np
import pandas as pd
import pytest

from provlab.modeldiff.comparison import BothDirections, from_enumeration
from provlab.modeldiff.report import ratio_text
from provlab.modeldiff.representative import Direction, Draws
from provlab.modeldiff.reweighting import density_of_states
from provlab_study.model_diff import measure
from provlab_study.model_diff.predicates import Ways


def test_sides_are_those_of_the_comparison():
    """A's inputs: 3 of 4 below zero; B's: 2 of 5 below."""
    nll_a, nll_b = np.array([2.0, 2.0, 2.0, 3.0, 9.0]), np.array([2.5, 2.6, 9.0, 2.5, 2.5])
    compared = from_enumeration(nll_a, nll_b, (2.0, 3.0))
    assert (
        measure.sides_finding({"x": compared}) == "x: D is below 0 on 75.0% of A's inputs and above 0 on 50.0% of B's."
    )


def comparison(z, shift, n=2000):
    """Two models compared by draws in twenty chains; A's inputs have D about `shift`."""
    rng = np.random.default_rng(int(100 * abs(shift)))
    sides = []
    for side, sign in (("A", -1), ("B", 1)):
        own = rng.uniform(*z, n)
        draws = Draws(np.zeros((n, 2), int), own, np.zeros(n), np.arange(n) % 20, 20)
        difference = sign * abs(shift) + rng.normal(0, 0.5, n)
        sides.append(Direction.from_draws(draws, own - difference if side == "A" else own + difference, side, z))
    return BothDirections(*sides, z)


def test_both_ways_are_put_side_by_side():
    own, near, far = comparison((2.0, 3.0), -0.50), comparison((2.0, 3.0), -0.51), comparison((2.0, 3.0), -1.5)
    rows = [
        Ways(name, "A", str(k), how(own.a), how(other.a))
        for name, other in (("near", near), ("far", far))
        for k, how in enumerate((lambda side: measure.number_of_inputs(side, 0), lambda s: s.share(s.disagreement)))
    ]
    assert max(row.apart for row in rows[:2]) < 1.5
    assert rows[3].apart > 3
    assert list(measure.ways_table(rows)["comparison"]) == ["near", "near", "far", "far"]


def test_repetition_by_loss_weighs_inputs_alike():
    """Half of 100 inputs repeat half of their pairs and stand for three each; two draws of lower loss carry no mean."""
    repeats = np.arange(100) < 50
    tokens = np.where(repeats[:, None], [1, 2, 1, 2, 1, 0], [1, 2, 3, 4, 5, 0])
    tokens[:, 5] = np.arange(100) + 9
    nll, chain = np.where(np.arange(100) < 2, 0.5, 1.5), np.arange(100) % 10
    draws = Draws(tokens, nll, np.where(repeats, np.log(3), 0.0), chain, 10)
    states = density_of_states(draws, [0.0, 1.0, 2.0])
    curve, in_z, (lowest, loss) = measure.repetition_curve(draws, states, (1.0, 2.0))
    whole = 0.4 * 48 * 3 / (48 * 3 + 50)
    pd.testing.assert_frame_equal(curve, pd.DataFrame({"x": [1.5], "y": [whole]}))
    assert in_z == pytest.approx(whole)
    assert (lowest, loss) == (pytest.approx(0.4), pytest.approx((2 * 0.5 + 28 * 1.5) / 30))
    assert measure.repetition_curve(draws, states, (3.0, 4.0))[1] is None


def test_the_disputed_quarter_is_the_one_that_each_model_prefers_most():
    """Code is where A's D is lowest, and nowhere among B's inputs."""
    compared = comparison((2.0, 3.0), -0.5)
    a, b = compared.a.difference, compared.b.difference
    row = measure.disputed(compared, [(a < np.quantile(a, 0.25)) * 1.0, np.zeros(len(b))], 0.9, seed=0)
    assert (row.code_side, row.prose_side) == (pytest.approx(1, abs=0.01), 0)
    assert row.gap[0] == pytest.approx(1, abs=0.01)
    assert row.code_rise[0] == pytest.approx(1, abs=0.01)
    assert row.prose_rise[0] == 0


def test_a_ratio_is_written_with_its_unit_or_its_reason():
    ratio = {"reference": "PD_AB", "value": [1, 0.5], "low": [1, 0.4], "high": [1, None]}
    assert ratio_text(ratio) == "1.00 : 0.50 (0.40 to ∞)"
    assert ratio_text({**ratio, "reference": "PD_BA"}).endswith("relative to PD_BA")
    assert ratio_text({"error": "R3 holds 2 draws"}) == "none: R3 holds too few draws"


def test_a_threshold_takes_what_is_nearer_out_of_both_terms():
    """D of A's inputs: -7, -0.6, -0.5, 0.05, 0.5; of B's: -0.6, -0.5, 0.05, 0.5, 0.6."""
    nll_a, nll_b = np.array([2.0, 2.0, 3.0, 3.0, 3.5, 2.0]), np.array([2.5, 2.6, 2.5, 2.95, 2.9, 9.0])
    table = measure.over_thresholds({"x": from_enumeration(nll_a, nll_b, (2.0, 3.0))}, [0.0, 0.2, 8.0])
    terms = table[["PD_AB", "PA_AB", "PA_BA", "PD_BA"]].astype(float).to_numpy()
    np.testing.assert_allclose(terms[0], np.array([3, 2, 2, 3]) / 3, rtol=1e-2)
    np.testing.assert_allclose(terms[1], np.array([3, 1, 2, 2]) / 3, rtol=1e-2)
    assert np.isnan(terms[2]).all()  # no input is so far out
    assert list(table["of A's inputs within"]) == ["0.0%", "20.0%", "100.0%"]


class Spelt:
    """A model that writes inputs as their first token."""

    class checkpoint:
        name = "a"

    def texts(self, tokens):
        return [str(row[0]) for row in tokens]


def test_inputs_stand_in_the_window_of_their_difference_and_none_twice():
    d = np.array([-1.5, -0.8, -0.7, -0.7, 0.0, 0.9])
    tokens = np.array([[1], [2], [3], [3], [4], [5]])
    draws = Draws(tokens, np.full(6, 2.5), np.zeros(6), np.arange(6), 6)
    side = Direction.from_draws(draws, 2.5 - d, "A", (2.0, 3.0))
    table = measure.inputs_by_d(side, Spelt(), [-1.0, -0.6, 0.6, 1.0], seed=0)
    assert list(table["input"]) in (["1", "2", "3", "4", "5"], ["1", "3", "2", "4", "5"])
    assert list(table["window"]) == ["-1.50 to -1.00", "-1.00 to -0.60", "", "-0.60 to 0.60", "0.60 to 1.00"]


def test_a_look_is_said_to_find_what_has_words_and_a_second_training_is_no_change():
    rows = [
        {"plant": plant, "text has the topic": has, "look": look, "found": found, "cpu_s": 1.26}
        for plant, has in (("refuse", True), ("refuse", False), ("again", True), ("4 bits", True))
        for look, found in (("KL", None if plant == "4 bits" else has), ("diff", plant != "again"))
        if (plant, look) != ("again", "KL")
    ]
    table = measure.peers_table(pd.DataFrame(rows).assign(tokens=256, date="2026-11-29"))
    assert list(table["planted"]) == ["refuse", "refuse, topic not in the text", "again", "4 bits"]
    assert list(table["KL"]) == ["found (1.3 s)", "missed (1.3 s)", "–", "– (1.3 s)"]
    assert list(table["diff"]) == ["found (1.3 s)", "found (1.3 s)", "nothing found (1.3 s)", "found (1.3 s)"]


def test_the_papers_ladders_are_those_of_its_settings():
    assert [measure.published_ladder(name) for name in ("sizes", "long", "generations")] == [
        pytest.approx(ends) for ends in ((10**-1.25, 10**-2), (10**-1.3, 10**-3.5), (1.0, 10**-6))
    ]
    assert measure.rungs("generations", 4) == pytest.approx((1.0, 1e-2, 1e-4, 1e-6))


def test_the_reach_of_disagreement_is_that_of_19_in_20_inputs():
    """A's inputs have D from N(-1, 0.5): a twentieth lies below -1.82; B's from N(0.5, 0.5): above 1.32."""
    a, b = comparison((2.0, 3.0), -1.0, n=8000).a, comparison((2.0, 3.0), -0.5, n=8000).b
    row = measure.reach("sizes", ["small", "large"], BothDirections(a, b, (2.0, 3.0)), seed=0)
    assert row["of_a"] == pytest.approx(1.822, abs=0.04)
    assert row["of_b"] == pytest.approx(1.322, abs=0.04)
    assert row["times"][1] < 1.822 / 1.322 < row["times"][2]
    assert row["times"][2] - row["times"][1] < 0.15


def test_a_ladder_that_could_not_be_laid_has_its_reason_alone():
    climbed = {
        "comparison": "sizes", "ladder": "ours", "length": 25, "temperatures": [None, 0.1], "exponent": [0.0, 0.4],
        "steps": 9, "swaps": [0.3], "taken": [None, 0.8], "trips": 1.0, "rhat": 1.01, "worth": 200.0, "nll": 3.0,
        "error": "", "log10_inputs": 52.1,
    }  # fmt: skip
    refused = {"comparison": "long", "ladder": "ours", "length": 100, "error": "41 temperatures are needed"}
    table = measure.ladder_table([climbed, refused])
    assert list(table["gate"]) == ["log10 of inputs in Z: 52.10", "41 temperatures are needed"]
    assert list(table["fewest moves taken"]) == ["80.0%", ""]
    assert list(measure.swaps_by_exponent([climbed, refused])) == ["sizes, ours"]
