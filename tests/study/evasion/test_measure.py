"""The picture of disguised pairs, and how far a disguise moved the weights, on values worked out by hand."""

import pandas as pd
import pytest
import torch

from provlab.reading import examples
from provlab.reading.checkpoint import Checkpoint
from provlab.report.lineage import Lineage
from provlab_study.evasion import figures, measure

HIDDEN = {"b": "disguised:b", "c": "disguised:c"}
PAIRS = [("a", "disguised:b", -50.0, -49.0), ("a", "disguised:c", -2.1, -1.8), ("b", "disguised:c", -9.0, -8.0)]


@pytest.mark.parametrize("parents", [{"a": None, "b": "a", "c": None}, {}])
def test_the_heatmap_has_a_truth_only_where_every_origin_is_known(parents):
    frame = pd.DataFrame(PAIRS, columns=["a", "b", "log10_p", "holm_log10_p"])
    frame = frame.assign(statistic="phi_match", floor=-100.0)
    drawn = figures.disguised_pairs(frame, HIDDEN, Lineage(("a", "b", "c"), parents, {}), statistic="phi_match")
    assert ("truly related" in drawn.alt) == bool(parents)
    assert "for 2 of 3 pairs" in drawn.alt


def test_how_far_weights_moved(tmp_path):
    network = examples.build("llama", seed=0)
    network.save_pretrained(tmp_path / "a")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5)
    network.save_pretrained(tmp_path / "b")
    first, second = (Checkpoint.open(str(tmp_path / name)) for name in "ab")
    assert measure.moved(first, first) == 0.0
    assert measure.moved(first, second) == pytest.approx(0.5)
