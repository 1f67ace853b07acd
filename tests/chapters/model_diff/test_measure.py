"""What the page on language models says of its numbers, on comparisons made by hand."""

import numpy as np
import pandas as pd
import pytest

from provlab.chapters.model_diff import measure, tables
from provlab.chapters.model_diff.records import CapabilityRecord, DomainsRecord
from provlab.modeldiff.comparison import Comparison, from_enumeration
from provlab.modeldiff.representative import Direction, Draws
from provlab.report.difference import ratio_text


def test_sides_are_those_of_the_comparison():
    """A's inputs: 3 of 4 below zero; B's: 2 of 5 below."""
    nll_a, nll_b = np.array([2.0, 2.0, 2.0, 3.0, 9.0]), np.array([2.5, 2.6, 9.0, 2.5, 2.5])
    compared = from_enumeration(nll_a, nll_b, (2.0, 3.0))
    assert (
        measure.sides_finding({"x": compared}) == "x: D is below 0 on 75.0% of A's inputs and above 0 on 50.0% of B's."
    )


@pytest.mark.parametrize(
    ("held_out", "more", "said"),
    [
        (
            [3.2, 2.8],
            [0.3, 0.2, 0.4],
            "large, the model of lower held-out loss, has 2.00 times the inputs of small in Z.",
        ),
        ([3.2, 2.8], [-0.3, -0.4, -0.2], "small, the model of higher held-out loss, has 2.00 times"),
        ([3.2, 2.8], [0.3, -0.1, 0.4], "in Z (the interval includes equality)."),
    ],
)
def test_the_finding_on_capability_is_of_the_numbers(held_out, more, said):
    assert said in measure.capability_finding([CapabilityRecord(["small", "large"], held_out, [0.1, 0.0, 0.2], more)])


def inputs(z, shift, n=2000):
    """Two models compared by draws in twenty chains; A's inputs have D about `shift`."""
    rng = np.random.default_rng(int(100 * abs(shift)))
    sides = []
    for side, sign in (("A", -1), ("B", 1)):
        own = rng.uniform(*z, n)
        draws = Draws(np.zeros((n, 2), int), own, np.zeros(n), np.arange(n) % 20, 20)
        difference = sign * abs(shift) + rng.normal(0, 0.5, n)
        sides.append(Direction.from_draws(draws, own - difference if side == "A" else own + difference, side, z))
    return Comparison(*sides, z)


def test_both_ways_are_put_side_by_side():
    one, near, far = inputs((2.0, 3.0), -0.50), inputs((2.0, 3.0), -0.51), inputs((2.0, 3.0), -1.5)
    records = measure.two_ways({"x": one, "y": one, "w": one}, {"x": near, "y": far, "w": "no chain"}, seed=0)
    assert [row.pair for row in records] == ["x"] * 4 + ["y"] * 4
    assert max(row.apart for row in records if row.pair == "x") < 1.5
    assert max(row.apart for row in records if row.pair == "y" and "share" in row.what) > 3
    said = measure.ways_finding(records, {"x": near, "y": far, "w": "no chain"})
    assert said.startswith("w: replica exchange gives no number, no chain; Of 8 numbers")
    assert list(tables.ways(records)["comparison"]) == [row.pair for row in records]


def test_repetition_by_loss_weighs_inputs_alike():
    """Of two draws in a bin, one repeats itself and stands for three inputs."""
    tokens = np.array([[1, 2, 1, 2, 1], [1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [1, 1, 2, 2, 3]])
    draws = Draws(tokens, np.array([0.5, 0.5, 1.5, 1.5]), np.log([3.0, 1.0, 1.0, 1.0]), np.array([0, 1, 0, 1]), 2)
    (record,), curves = measure.repetitions({"m": draws}, np.array([0.0, 1.0, 2.0]), (1.0, 2.0), {"m": tokens[1:2]})
    assert record.lowest == pytest.approx(0.5 * 3 / 4)
    assert (record.nll, record.in_z, record.text) == (0.5, 0, 0)
    pd.testing.assert_frame_equal(curves["m"], pd.DataFrame({"x": [0.5, 1.5], "y": [record.lowest, 0.0]}))


def test_a_ratio_is_written_with_its_unit_or_its_reason():
    ratio = {"reference": "PD_AB", "value": [1, 0.5], "low": [1, 0.4], "high": [1, None]}
    assert ratio_text(ratio) == "1.00 : 0.50 (0.40 to ∞)"
    assert ratio_text({**ratio, "reference": "PD_BA"}).endswith("relative to PD_BA")
    assert ratio_text({"error": "R3 holds 2 draws"}) == "none: R3 holds too few draws"


def test_the_finding_on_domains_is_of_the_record():
    said = measure.domains_finding(DomainsRecord(0.9, 0.3, [0.6, 0.5, 0.7], [0.2, 0.1, 0.3], [0.0, -0.1, 0.1], 0.85))
    assert "90% look like code" in said
    assert "difference 0.60, 95% interval 0.50 to 0.70" in said
