"""What the page on noisy copies makes and says: copies by their noise, findings by their numbers."""

import numpy as np
import pandas as pd
import pytest

from provlab.chapters.plagiarism import measure
from provlab.chapters.plagiarism.measure import Suspect
from provlab.chapters.plagiarism.records import SidesRecord, SweepRecord
from provlab.models.checkpoint import Checkpoint


def record(pair, below_a, below_b):
    rest = {key: [0, 0] for key in ("z", "n", "n_common", "log10_inputs", "log10_common", "extent_a", "extent_b")}
    return SidesRecord(**rest, below_a=below_a, below_b=below_b, by_r3={}, by_count={}, pair=pair, kind="noise")


def test_copies_differ_by_their_noise_alone(models, tmp_path):
    base = Checkpoint.open(models["base"])
    found = measure.suspects(base, tmp_path, [0.01], 2, "", [str(models["stranger"])], seed=3)
    assert [one.kind for one in found.values()] == ["noise", "noise", "stranger"]
    assert list(measure.one_of_each(found)) == ["noise 0.01, 1", list(found)[2]]
    first, second = (Checkpoint.open(one.source) for one in list(found.values())[:2])
    for name in base.tensor_names[:3]:
        noise = [(copy.tensor(name) - base.tensor(name)).numpy() for copy in (first, second)]
        assert [one.std() for one in noise] == pytest.approx([0.01] * 2, rel=0.2)
        assert (noise[0] != noise[1]).any()
    assert Checkpoint.open(found["noise 0.01, 1"].source).digest == first.digest  # made once


def test_the_finding_on_sides_is_of_the_numbers():
    rows = [
        record("a copy", [0.9, 0.8, 0.95], [0.8, 0.7, 0.9]),
        record("a stranger", [0.9, 0.8, 0.95], [0.1, 0.0, 0.2]),
        record("a weak one", [0.52, 0.48, 0.56], [0.6, 0.55, 0.65]),
    ]
    one_sided, two_sided, neither = measure.sides_finding(rows).split(". ")
    assert one_sided.endswith(": a copy")
    assert two_sided.endswith(": a stranger")
    assert neither.endswith(": a weak one.")
    assert "D < 0): none" in measure.sides_finding(rows[1:])


def test_the_sweep_names_losses_where_both_intervals_lie_above_one_half():
    x, up, down = [1.0, 2.0], [0.6, 0.6], [0.6, 0.4]
    sweep = [SweepRecord("c", "base", x, up, up, up), SweepRecord("c", "suspect", x, down, down, down)]
    assert measure.sweep_finding(sweep).endswith("c near 1.0, of 2 looked at.")


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
    found = measure.p_values(
        frame, "base", {"S": Suspect("s", "tune"), "T": Suspect("t", "stranger")}, ["phi_u", "phi_h"]
    )
    np.testing.assert_array_equal(found["phi_u"], [-3.0, np.nan])
    np.testing.assert_array_equal(found["phi_h"], [np.nan, np.nan])
