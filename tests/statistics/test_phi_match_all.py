"""phi_MATCH of all blocks by some of their units: moved copies, imitations, and units that could say nothing."""

import numpy as np
import pytest

from provlab.errors import NoUnitsError
from provlab.report.findings import share_seen
from provlab.statistics import get
from provlab.statistics.options import Options
from provlab.statistics.phi_match_all import EveryBlock

TOKENS = np.arange(256).reshape(4, 64)
TEST, OPTIONS = get("phi_match_all"), Options()


def drawn(seed, units=2048, blocks=4, rank=32):
    """Activations of random units, which a stream of small rank drives: ``(gates, ups, shares)``."""
    rng = np.random.default_rng(seed)
    stream = rng.standard_normal((rank, TOKENS.size)).astype(np.float32)
    gate, up = ([rng.standard_normal((units, rank), np.float32) @ stream for _ in range(blocks)] for _ in "gu")
    return gate, up, [np.full(units, 1 / units)] * blocks


def model(gate, up, written, seed):
    return EveryBlock(list(gate), list(up), list(written), TOKENS, np.full(32, seed, np.uint8))


def moved(parts, places, seed, noise=0.3):
    """Blocks at other places, units in another order, of other sizes and signs, after some training."""
    rng = np.random.default_rng(seed)
    made = []
    for place in places:
        order = rng.permutation(len(parts[0][place]))
        sizes = rng.standard_normal((2, len(order), 1))
        rows = [
            size * (rows[place][order] + noise * rows[place].std() * rng.standard_normal(rows[place].shape))
            for size, rows in zip(sizes, parts[:2], strict=True)
        ]
        made.append((*(side.astype(np.float32) for side in rows), parts[2][place][order]))
    return tuple(map(list, zip(*made, strict=True)))


def outcome(a, b):
    return TEST.outcome([TEST.compare_block(a, b, None, OPTIONS)])


def test_a_copy_whose_blocks_were_moved_is_found_where_they_stand():
    """Each block has 2,048 units, and 128 of them look."""
    parts = drawn(0)
    other = drawn(9, blocks=1)
    copy = moved(parts, [1, 2, 3], 1)
    copied = model(*(ours + theirs for ours, theirs in zip(copy, other, strict=True)), 2)
    found = outcome(model(*parts, 1), copied)
    assert found.detail.all_blocks["found"] == [[1, 0], [2, 1], [3, 2]]
    assert found.log10_p < -50
    assert outcome(copied, model(*parts, 1)).detail.all_blocks["found"] == [[0, 1], [1, 2], [2, 3]]


def test_strangers_are_strangers():
    log10_p = [outcome(model(*drawn(s, 256), 1), model(*drawn(s + 50, 256), 2)).log10_p for s in range(8)]
    assert min(log10_p) > -2
    assert all(value <= 0 for value in log10_p)
    able = outcome(model(*drawn(0, 256), 1), model(*drawn(50, 256), 2))
    assert able.reach < -50


def test_imitations_that_write_next_to_nothing_are_not_evidence():
    """They are found by the units that they imitate, and units of their own block do not find those."""
    parts, own = drawn(0, 256), drawn(5, 256)
    mimics = moved(parts, range(4), 3, noise=0.0)
    faint = [np.r_[shares, shares * 1e-4] for shares in own[2]]
    framed = model(*([np.vstack(rows) for rows in zip(own[i], mimics[i], strict=True)] for i in (0, 1)), faint, 2)
    for pair in ((model(*parts, 1), framed), (framed, model(*parts, 1))):
        assert outcome(*pair).detail.all_blocks["found"] == []
        assert outcome(*pair).log10_p > -2
    loud = model(framed.gate, framed.up, [np.r_[shares, shares] for shares in own[2]], 2)  # what writes counts
    assert outcome(model(*parts, 1), loud).log10_p < -10


def test_the_share_of_units_that_is_told_is_found():
    """Blocks at other places that have as much in common as is said, and half as much."""
    bar, found = float(np.log10(0.01)), {}
    told = share_seen(outcome(model(*drawn(0, 256), 1), model(*drawn(50, 256), 2)), bar)
    assert 0.1 < told < 0.6
    for share in (told, told / 2):
        n, found[share] = int(share * 256), 0
        for seed in range(20):
            parts, own = drawn(seed, 256), drawn(seed + 100, 256)
            copy = moved(parts, [1, 2, 3, 0], seed)
            mixed = [
                [np.r_[new[n:], old[:n]] for new, old in zip(*both, strict=True)]
                for both in zip(own, copy, strict=True)
            ]
            found[share] += outcome(model(*parts, 1), model(*mixed, 2)).log10_p <= bar
    assert found[told] >= 15  # of 18 that are meant: three standard deviations below
    assert found[told / 2] < 10


def test_units_whose_gate_is_their_up_row_say_nothing():
    gate, _, written = drawn(0, 256)
    tied = model(gate, gate, written, 1)
    found = outcome(tied, model(gate, gate, written, 2))
    assert found.log10_p == 0
    assert found.reach == 0


def test_blocks_without_units_are_left_out():
    parts = drawn(0, 256)
    nothing = [[rows[0], rows[1][:0], *rows[2:]] for rows in parts]
    found = outcome(model(*nothing, 1), model(*parts, 2))
    assert found.detail.all_blocks["found"] == [[0, 0], [2, 2], [3, 3]]
    assert found.detail.all_blocks["not_compared"] == 4
    empty = model(*([rows[0][:0]] * 4 for rows in parts), 3)
    with pytest.raises(NoUnitsError):
        TEST.compare_block(empty, model(*parts, 2), None, OPTIONS)
