"""Blocks of one statistic read one at a time, until the question is settled."""

import json

import numpy as np
import pytest

import provlab
from provlab.errors import NotComparableError, ParameterError
from provlab.inference import evalues
from provlab.models.counting import counting

pytestmark = pytest.mark.filterwarnings("error")


def settled(models, a, b, **settings):
    return provlab.compare(models[a], models[b], until_settled=True, text="-", progress=False, **settings)


def test_a_child_is_settled_before_all_blocks_are_read(models):
    """No tensor of the blocks left is read, and what was left is what the full comparison reads more."""
    with counting() as some:
        result = settled(models, "base", "tuned", statistics=["phi_u"])
    with counting() as whole:
        full = provlab.compare(models["base"], models["tuned"], statistics=["phi_u"], text="-", progress=False)
    outcome = result.records[0].outcome
    detail = outcome.detail.until_settled
    assert len(detail["read"]) == len(outcome.blocks) < detail["blocks"] == 3
    assert detail["log10_e"] >= 2
    assert detail["bytes_read"] == some.tensors
    assert detail["bytes_left"] == whole.tensors - some.tensors > 0
    by_block = {block.block: block.log10_p for block in full.records[0].outcome.blocks}
    log10_p = [by_block[block] for block in detail["read"]]
    assert outcome.log10_p == evalues.anytime_log10_p(log10_p) <= -2
    verdict = result.verdict()
    assert verdict.startswith("Independent training is rejected by order alone, by phi_u (one test, level 0.01)")
    assert f"{len(detail['read'])} of 3 blocks were read, in an order drawn beforehand" in verdict
    assert f"{detail['bytes_left'] / whole.tensors:.0%} of {whole.tensors:,} bytes were left unread" in verdict
    json.dumps(result.to_json(), allow_nan=False)


def test_a_stranger_is_read_to_the_end(models):
    result = settled(models, "base", "stranger", statistics=["phi_u"])
    detail = result.records[0].outcome.detail.until_settled
    assert sorted(detail["read"]) == [0, 1, 2]
    assert detail["bytes_left"] == 0
    assert "phi_u (one test, level 0.01) does not reject" in result.verdict()
    assert "3 of 3 blocks were read" in result.verdict()
    assert "0% of" in result.verdict()


def test_the_order_is_drawn_from_the_seed(models):
    result = [settled(models, "base", "other", statistics=["phi_u"], seed=seed) for seed in (0, 0, 1, 2, 3)]
    orders = [tuple(item.records[0].outcome.detail.until_settled["read"]) for item in result]
    assert orders[0] == orders[1]
    assert len(set(orders)) > 1


def test_only_the_primary_statistic_is_read(models):
    result = settled(models, "base", "tuned", primary="phi_l2_blocks", statistics=["phi_l2_blocks", "phi_u"])
    assert [record.statistic for record in result.records] == ["phi_l2_blocks"]
    assert np.isnan(result.to_frame()["floor"]).all()
    assert settled(models, "base", "tuned", primary="phi_u", blocks=[1]).records[0].outcome.blocks[0].block == 1


def test_what_cannot_be_read_until_settled_is_refused(models):
    with pytest.raises(ParameterError, match="for one statistic; name it by primary"):
        settled(models, "base", "tuned", statistics=["phi_u", "phi_l2"])
    with pytest.raises(NotComparableError, match="phi_h is not read block by block, so nothing could be left unread"):
        settled(models, "base", "tuned", statistics=["phi_h"])
    with pytest.raises(NotComparableError, match="not read block by block"):
        settled(models, "base", "tuned", statistics=["phi_jsd"])
    with pytest.raises(NotComparableError, match="the blocks of phi_l2 are not independent, as the product of their"):
        settled(models, "base", "tuned", statistics=["phi_l2"])


def test_a_block_that_both_models_repeat_counts_once(new_model, tmp_path):
    """Eight blocks that stand in one order have one e-value; of eight that do not, e-values multiply."""
    sources = {}
    for seed in (1, 2):
        model = new_model(seed, num_hidden_layers=8)
        for layer in model.model.layers[1:]:
            layer.load_state_dict(model.model.layers[0].state_dict())
        model.save_pretrained(tmp_path / str(seed))
        sources[seed] = str(tmp_path / str(seed))
    outcome = settled(sources, 1, 2, statistics=["phi_u"]).records[0].outcome
    (first, *_) = (block.log10_p for block in outcome.blocks if block.block == outcome.detail.until_settled["read"][0])
    assert len(outcome.blocks) == 8
    assert outcome.detail.until_settled["log10_e"] == evalues.log10_e(first)
    assert len(set(outcome.detail.together)) == 1
