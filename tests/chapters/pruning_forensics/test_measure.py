"""What is known of pruned models, and what is said of their maps: counted by hand on made-up models."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from provlab.chapters.pruning_forensics import measure
from provlab.chapters.pruning_forensics.measure import MapRecord, UnitsRecord, kept_blocks, moved, published_maps
from provlab.errors import InputError
from provlab.zoo.prune import NOTE, Kept

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
    return fake("p", weights), fake("c", cut), [one.tolist() for one in units]


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
        monkeypatch.setattr(measure, "published_maps", lambda found=published: {("p", "c"): found})
        assert kept_blocks(parent, child) == expected


# What is said of maps ---------------------------------------------------------------------------------------


def record(kept=(0, 2), related=True, wrong=False):
    """A parent of four blocks: -30 where a block was kept, -9 at a wrong place if asked, else far from the level."""
    log10_p = np.full((4, 2), -0.5)
    if related:
        log10_p[list(kept or (0, 2)), range(2)] = -30.0
    if wrong:
        log10_p[3, 0] = -9.0
    return MapRecord("zoo:p@smoke", "zoo:c@smoke", related, ["depth"], list(kept) if kept else None, log10_p, -100.0)


def test_findings_count_what_is_called():
    said = measure.map_findings([record(), record(wrong=True)], 0.01)
    assert "For 1 of the 2 children whose cut is known" in said
    assert "4 of 4 are called, of all other pairs 1 of 12" in said
    assert "stranger" not in said
    said = measure.map_findings([record(kept=None), record(None, related=False, wrong=True)], 0.01)
    assert "children" not in said  # nothing is known of them, so nothing is said
    assert "Of 8 pairs of blocks of strangers 1 is called; a share of 0.125 (" in said


def test_the_table_knows_what_it_does_not_know():
    table = measure.map_table([record(), record(kept=None), record(None, related=False)], 0.01)
    assert table["first"].tolist() == ["p"] * 3
    assert table["called"].tolist() == [2, 2, 0]
    assert table["kept"].astype(object).where(table["kept"].notna(), None).tolist() == [2, None, 0]
    assert table["weakest log10 p of a kept pair"][0] == -30.0
    assert table["strongest log10 p of another"][2] == -0.5


@pytest.mark.parametrize(("kept", "shape"), [([0, 1, 2], (4, 2)), (None, (4,))])
def test_a_map_that_does_not_fit_is_refused(kept, shape):
    with pytest.raises(InputError, match="c: log10_p must be blocks by blocks"):
        MapRecord("p", "c", True, [], kept, np.zeros(shape), -1.0)


def test_published_blocks_in_words():
    table = measure.published_and_ours({}, 0.01).set_index("published child").iloc[:, 1]
    assert table["Llama-3.2-3B"] == "1 to 10, 12 to 16, 18 to 22, 24 to 28, 30 to 32 (of 32)"
    assert table["Llama-3.2-1B"].endswith("9, 12, 18, 21 (of 32); the rest of the table is not legible")
    assert table["Sheared-LLaMA-1.3B"] == "24 blocks; the map is not legible"


def test_a_run_on_published_models_is_compared_with_the_table():
    pair = ("meta-llama/Llama-2-7b-hf", "princeton-nlp/Sheared-LLaMA-2.7B")
    origin = {**{i: i for i in range(32)}, 3: 4, 5: None}
    found = SimpleNamespace(origin=lambda level: origin, log10_p=np.zeros((32, 32)))
    row = measure.published_and_ours({pair: found}, 0.01).set_index("published child").loc["Sheared-LLaMA-2.7B"]
    assert row["ours, the paper's model"] == "1 to 3, 5, 7 to 32 (of 32); 30 of 32 as published"
    assert row["ours, zoo"] == "–"


def test_units_pooled():
    rows = [
        UnitsRecord("zoo:c", old, 0, by, called, 10, found, placed, 20, found / called, found / 10, 0.5)
        for old in (0, 1)
        for by, called, found, placed in (("both", 4, 4, 3), ("gate", 10, 8, 5), ("up", 10, 6, 4))
    ]
    said = measure.units_findings(rows)
    assert (
        "where both matchings agree: precision 0.7500, recall 0.300, of units at their very place; kept ones of any "
        "place: 1.0000"
    ) in said
    assert "by up alone: precision 0.4000" in said
    table = measure.units_table(rows)
    assert table["block"].tolist() == ["0 to 0", "1 to 0"]
    assert (table["by gate alone"][0], table["both: named"][1]) == (0.5, 4)
    assert (table["at their place"][0], table["kept ones"][0], table["recall"][1]) == (0.75, 1.0, 0.3)
