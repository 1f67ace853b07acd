"""A quick look reads a few whole blocks, which no side chooses alone, and says which."""

from types import SimpleNamespace

import pytest

from provlab import api, studying
from provlab.errors import ParameterError
from provlab.statistics import quick


def model(digest, depth=32):
    return SimpleNamespace(anatomy=SimpleNamespace(n_blocks=depth), checkpoint=SimpleNamespace(digest=digest))


def test_blocks_follow_from_all_digests_and_the_seed_and_from_no_order():
    a, b, c = (model(digest) for digest in ("aa", "bb", "cc"))
    drawn = quick.blocks([a, b], seed=0)
    assert drawn == sorted(set(drawn)) == quick.blocks([b, a], seed=0)
    assert len(drawn) == quick.BLOCKS
    others = [quick.blocks([a, c], seed=0), quick.blocks([c, b], seed=0), quick.blocks([a, b], seed=1)]
    assert drawn not in others


def test_every_block_is_drawn_as_often():
    counts = [0] * 8
    for n in range(1000):
        for block in quick.blocks([model(f"{n:x}", 8), model("b", 8)], seed=0):
            counts[block] += 1
    assert min(counts) > 430  # 500 in the mean, 16 the standard deviation
    assert max(counts) < 570


@pytest.mark.parametrize("depths", [(4, 4), (2, 2), (6, 8)])
def test_all_are_read_where_there_are_no_more_or_all_meet_all(depths):
    assert quick.blocks([model("a", depths[0]), model("b", depths[1])], seed=0) is None


def test_a_quick_look_is_exact_and_says_which_blocks_it_read(new_model, save_model, text, tmp_path):
    sources = [str(save_model(new_model(seed, num_hidden_layers=6), tmp_path / str(seed))) for seed in (1, 2)]
    result = api.compare(*sources, statistics=["phi_u"], text=text, progress=False, quick=True)
    blocks = [block.block for block in result.records[0].outcome.blocks]
    assert f"Blocks read: {', '.join(map(str, blocks))}, which is 4 of 6." in result.verdict()
    assert result.options.n_sequences * result.options.sequence_length == 256
    whole = api.compare(*sources, statistics=["phi_u"], text=text, progress=False)
    assert result.records[0].outcome.blocks == tuple(whole.records[0].outcome.blocks[i] for i in blocks)
    study = studying.study(sources, statistics=["phi_u"], text=text, progress=False, quick=True)
    assert study.records[0].outcome == result.records[0].outcome


def test_blocks_that_are_asked_for_and_a_quick_look_exclude_each_other(models):
    for ask in (api.compare, lambda a, b, **settings: studying.study([a, b], **settings)):
        with pytest.raises(ParameterError, match="leave out blocks, or quick"):
            ask(models["base"], models["tuned"], blocks=[0], quick=True)
