"""Models of unequal depth: all blocks of one against all of the other, with the multiplicity of that."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

import provlab
from provlab.engine.pairs import open_models, run_pairs
from provlab.engine.store import Store
from provlab.errors import ParameterError
from provlab.inference import pvalues
from provlab.statistics import get
from provlab.statistics.options import Options

BLOCKS = 3
SMALL = {"n_permutations": 19, "n_sequences": 8, "sequence_length": 32, "progress": False}


def with_identity_block(source, folder, new_model, save_model, at=1):
    """A copy with a block more, at `at`, that adds nothing to the stream: its gates and ups are another model's."""
    parent = LlamaForCausalLM.from_pretrained(source)
    state = parent.state_dict()
    other = new_model(77, num_hidden_layers=1).state_dict()
    deeper = new_model(0, num_hidden_layers=BLOCKS + 1)
    made = {name: tensor for name, tensor in state.items() if ".layers." not in name}
    for old in range(BLOCKS):
        new = old + (old >= at)
        for name, tensor in state.items():
            if f".layers.{old}." in name:
                made[name.replace(f".layers.{old}.", f".layers.{new}.")] = tensor
    for name, tensor in other.items():
        if ".layers.0." in name:
            writes = "o_proj" in name or "down_proj" in name
            made[name.replace(".layers.0.", f".layers.{at}.")] = torch.zeros_like(tensor) if writes else tensor
    deeper.load_state_dict(made)
    return save_model(deeper, folder)


@pytest.fixture(scope="module")
def deeper(models, new_model, save_model, tmp_path_factory):
    root = tmp_path_factory.mktemp("deeper")
    return {
        name: str(with_identity_block(models[name], root / name, new_model, save_model))
        for name in ("tuned", "stranger")
    }


@pytest.fixture(scope="module")
def compare(text):
    def of(a, b, *statistics, **settings):
        return provlab.compare(a, b, statistics=list(statistics) or None, text=text, **SMALL, **settings)

    return of


def test_the_block_put_in_changes_no_logit(models, deeper):
    tokens = torch.arange(60).reshape(2, 30)
    with torch.no_grad():
        item, other = (
            LlamaForCausalLM.from_pretrained(folder, dtype=torch.float64)(tokens).logits
            for folder in (models["tuned"], deeper["tuned"])
        )
    assert torch.equal(item, other)


def test_an_identity_block_hides_nothing(models, deeper, compare):
    result = compare(models["tuned"], deeper["tuned"])
    message = " ".join(result.verdict().split())
    assert result.outcome == "same function"
    (rejection,) = re.findall("Independent training is rejected by ([^:]*)", message)
    assert {"phi_u", "phi_match"} <= set(rejection.replace(",", " ").split())
    assert "phi_u compared all 3 blocks of one with all 4 of the other; its p-value is the smallest of 12" in message
    assert (
        "phi_match compared all 3 blocks of one with all 4 of the other; its p-value is the smallest of 12" in message
    )
    assert "by Holm over them (found: 0 with 0, 1 with 2, 2 with 3; 3 pairs could not be compared)." in message
    assert "Not run: phi_h, phi_l2 (compares block with block, but tuned has 3 and" in message
    (record,) = [record for record in result.records if record.statistic == "phi_match"]
    assert [block.detail.partner for block in record.outcome.blocks] == [0, 2, 3]
    table = np.array(record.outcome.detail.all_blocks["log10_p"])
    assert record.outcome.log10_p == pytest.approx(table.min() + np.log10(12))
    assert [block.log10_p for block in record.outcome.blocks] == pytest.approx(
        pvalues.holm(table.ravel()).reshape(3, 4).min(axis=1)
    )
    assert record.outcome.reach <= record.outcome.log10_p
    json.dumps(result.to_json(), allow_nan=False)
    assert "phi_match" in str(result)
    assert result._repr_html_()


def test_the_stranger_with_one_more_is_a_stranger(models, deeper, compare):
    tests = ("phi_u", "phi_match", "phi_match_unsigned")  # phi_jsd would see that random weights read no text
    message = " ".join(compare(models["base"], deeper["stranger"], *tests).verdict().split())
    first = message.partition(":")[0]
    assert first.startswith("Independent training is not rejected by")
    assert {"phi_u", "phi_match"} <= set(first.replace(",", " ").split())
    assert "by Holm over them (found: none; 3 pairs could not be compared)." in message


def test_phi_u_is_asked_as_well_where_both_have_gates(models, deeper, compare):
    """By default, of unequal depth: what phi_u finds is not lost for what phi_match finds."""
    both = compare(models["base"], deeper["tuned"], "phi_u", "phi_match")
    alone = compare(models["base"], deeper["tuned"], "phi_u")
    assert [record.error for record in both.records] == [None, None]
    assert both.records[0].outcome == alone.records[0].outcome


def test_phi_u_alone(models, deeper, compare):
    result = compare(models["base"], deeper["tuned"], "phi_u")
    assert result.records[0].outcome.detail.all_blocks["found"] == [[0, 0], [1, 2], [2, 3]]
    assert result.records[0].outcome.log10_p < -20
    result = compare(models["base"], deeper["stranger"], "phi_u")
    assert result.records[0].outcome.log10_p > -2


def test_asked_at_equal_depth(models, compare, run, text):
    result = compare(models["base"], models["tuned"], "phi_u", "phi_match", all_blocks=True)
    assert [record.statistic for record in result.records] == ["phi_u", "phi_match"]
    shapes = [record.outcome.detail.all_blocks["shape"] for record in result.records]
    assert shapes == [[BLOCKS, BLOCKS]] * 2
    status, out, err = run("compare", models["base"], models["stranger"], "--statistic", "phi_u", "--all-blocks")
    assert status == 0, err
    assert "all 3 blocks of one with all 3 of the other" in " ".join(out.split())


def test_refusals(models, compare):
    a, b = models["base"], models["tuned"]
    with pytest.raises(ParameterError, match="phi_match, where both models have gates, or phi_u; name one"):
        compare(a, b, "phi_h", all_blocks=True)
    for other in ({"blocks": [0]}, {"quick": True}):
        with pytest.raises(ParameterError, match="leave out blocks and quick"):
            compare(a, b, "phi_u", all_blocks=True, **other)


def test_a_block_of_zeros_is_left_out_and_counted(models, deeper, compare, new_model, save_model, tmp_path):
    """The identity block may be all zeros, which no unit rows are made of."""
    network = LlamaForCausalLM.from_pretrained(deeper["tuned"])
    with torch.no_grad():
        for parameter in network.model.layers[1].mlp.parameters():
            parameter.zero_()
    folder = str(save_model(network, tmp_path / "zeros"))
    result = compare(models["base"], folder, "phi_u")
    detail = result.records[0].outcome.detail.all_blocks
    assert detail["found"] == [[0, 0], [1, 2], [2, 3]]
    assert "3 pairs could not be compared" in result.verdict() or detail["not_compared"] == 0
    with torch.no_grad():
        for layer in network.model.layers:
            layer.mlp.up_proj.weight.zero_()
    nothing = str(save_model(network, tmp_path / "nothing"))
    result = compare(models["base"], nothing, "phi_u")
    assert result.outcome == "could not be tested"
    assert result.records[0].outcome.log10_p is None
    assert "fewer than two hidden units" in result.records[0].outcome.why


def test_stored_pairs_are_found_again(models, deeper, tmp_path, monkeypatch):
    store, opened = Store(tmp_path), open_models([models["base"], deeper["tuned"]])

    def run():
        return run_pairs(opened, ["phi_u"], Options(), store=store, all_blocks=True, progress=False)[0]

    first = run()
    assert all(store.get(key) for key in first.keys)
    monkeypatch.setattr(type(get("phi_u")), "prepare", None)
    assert run() == first
    shutil.rmtree(Path(tmp_path) / "units")
    assert run().error


@pytest.mark.parametrize("name", ["phi_u", "phi_match"])
def test_size_of_the_fallback_on_strangers(new_model, save_model, tmp_path, text, name):
    """Independent models of two and three blocks: rejected at 0.1 as seldom as Holm promises."""
    options = Options(text=text, n_sequences=4, sequence_length=16)
    shallow = [save_model(new_model(100 + i, num_hidden_layers=2), tmp_path / f"a{i}") for i in range(6)]
    deep = [save_model(new_model(200 + i, num_hidden_layers=3), tmp_path / f"b{i}") for i in range(6)]
    pairs = [(str(a), str(b)) for a in shallow for b in deep]
    opened = open_models([str(folder) for folder in shallow + deep])
    records = run_pairs(opened, [name], options, pairs=pairs, all_blocks=True, progress=False)
    p = [record.outcome.log10_p for record in records]
    rejected = int(sum(value <= -1 for value in p))
    assert rejected <= 9  # of 36; binomial of 0.1: more than 9 with a probability of 0.002
    assert max(p) <= 0
