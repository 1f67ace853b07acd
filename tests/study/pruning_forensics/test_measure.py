"""The truth about pruned models, and their kept units: counted by hand on made-up models."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from provlab.zoo.prune import NOTE, Kept
from provlab_study.pruning_forensics import measure
from provlab_study.pruning_forensics.measure import kept_blocks, moved, published_maps, recovered

WIDTH, HIDDEN, KEPT_BLOCKS, KEPT_UNITS = 24, 96, [0, 2, 3], 60


def fake(source, weights, note=None):
    """A model with the gate and up projections of each block, and a note in its config or none."""
    anatomy = SimpleNamespace(
        n_blocks=len(weights["gate"]),
        mlp_width=weights["gate"].shape[1],
        read=lambda _, role, block: weights[role][block],
    )
    config = {NOTE: note} if note else {}
    return SimpleNamespace(checkpoint=SimpleNamespace(source=source, config=config), anatomy=anatomy)


@pytest.fixture
def family():
    """A parent of four blocks; a child with three of them, sixty units of each in another order, and some noise."""
    rng = torch.Generator().manual_seed(0)
    weights = {role: torch.randn(4, HIDDEN, WIDTH, generator=rng) for role in ("gate", "up")}
    units = [torch.randperm(HIDDEN, generator=rng)[:KEPT_UNITS] for _ in KEPT_BLOCKS]
    cut = {
        role: torch.stack([w[old][units[new]] for new, old in enumerate(KEPT_BLOCKS)]) for role, w in weights.items()
    }
    cut = {role: w + 0.02 * torch.randn(w.shape, generator=rng) for role, w in cut.items()}
    return fake("p", weights), fake("c", cut), [kept.tolist() for kept in units]


def test_how_far_a_block_moved_is_the_noise_that_we_put_in(family):
    """0.02 standard deviations on each weight; another order of the units is no movement."""
    parent, child, units = family
    kept = Kept(KEPT_BLOCKS, list(range(WIDTH)), units, [])
    assert moved(parent, child, kept) == pytest.approx([0.02] * 3, rel=0.05)
    shifted = Kept([0, 1, 3], kept.model, kept.mlp, [])
    assert moved(parent, child, shifted)[1] == pytest.approx(2**0.5, rel=0.1)  # of two unrelated matrices


# The truth --------------------------------------------------------------------------------------------------


def test_published_maps_are_the_paper_s():
    """Read off Tables 11 to 13: blocks 11, 17, 23 and 29 of 32 were left out of the 3B, and none of the 2.7B."""
    maps = published_maps()
    of_3b = maps["meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-3B"]
    assert list(of_3b) == list(range(28))
    assert sorted(set(range(32)) - set(of_3b.values())) == [10, 16, 22, 28]
    assert maps["meta-llama/Llama-2-7b-hf", "princeton-nlp/Sheared-LLaMA-2.7B"] == {i: i for i in range(32)}
    of_1b = maps["meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-1B"]
    assert (of_1b[10], 8 in of_1b, len(of_1b)) == (20, False, 10)  # the rest of the scan is not legible


def test_kept_blocks_are_those_of_the_note_or_of_a_whole_table(family, monkeypatch):
    parent, child, _ = family
    child.checkpoint.config[NOTE] = {"blocks": [1, 2, 3], "model": [0], "mlp": [[0]] * 3, "heads": [[0]] * 3}
    assert kept_blocks(parent, child) == [1, 2, 3]
    child.checkpoint.config.clear()
    assert kept_blocks(parent, child) is None
    for published, expected in (({0: 3, 1: 1, 2: 2}, [3, 1, 2]), ({0: 3, 2: 2}, None)):
        monkeypatch.setattr(measure, "published_maps", lambda origin=published: {("p", "c"): origin})
        assert kept_blocks(parent, child) == expected


# Maps and units ---------------------------------------------------------------------------------------------


def test_published_blocks_in_words():
    table = measure.published_and_ours({}, 0.01).set_index("published child").iloc[:, 1]
    assert table["Llama-3.2-3B"] == "1 to 10, 12 to 16, 18 to 22, 24 to 28, 30 to 32 (of 32)"
    assert table["Llama-3.2-1B"].endswith(
        "9, 12, 18, 21 (of 32); the rest of the table is damaged in our copy of the text"
    )
    assert table["Sheared-LLaMA-1.3B"] == "24 blocks; the map is damaged in our copy of the text"


def test_a_run_on_published_models_is_compared_with_the_table():
    pair = ("meta-llama/Llama-2-7b-hf", "princeton-nlp/Sheared-LLaMA-2.7B")
    origin = {**{i: i for i in range(32)}, 3: 4, 5: None}
    blocks = SimpleNamespace(origin=lambda level: origin, log10_p=np.zeros((32, 32)))
    row = measure.published_and_ours({pair: blocks}, 0.01).set_index("published child").loc["Sheared-LLaMA-2.7B"]
    assert row["ours, the paper's model"] == "1 to 3, 5, 7 to 32 (of 32); 30 of 32 as published"
    assert row["ours, zoo"] == "–"


def test_units_are_compared_with_those_that_were_kept():
    """A parent of ten units, a child of five: counted by hand."""
    by_gate, by_up = np.array([1, 3, 9, 8, 5]), np.array([1, 3, 2, 8, 5])
    kept = [1, 7, 9, 3, 5]  # agreed: 1 and 5 at their places, 3 kept but elsewhere, 8 never kept
    for partners, named, counts in (
        (by_gate, by_gate == by_up, (4, 5, 3, 2)),
        (by_gate, by_gate >= 0, (5, 5, 4, 3)),
        (by_up, by_up >= 0, (5, 5, 3, 2)),
        (by_up, by_up < 0, (0, 5, 0, 0)),
    ):
        assert tuple(recovered(partners, named, kept).values()) == counts
