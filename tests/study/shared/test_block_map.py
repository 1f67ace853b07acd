"""Which blocks and which hidden units a child has of its parent, where we cut the child out ourselves."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from provlab.engine.store import Store
from provlab.errors import NotComparableError
from provlab.inference import pvalues
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.phi_match import PhiMatch
from provlab.statistics.text import cut
from provlab_study.shared.block_map import BlockMap, block_map

HIDDEN, BLOCKS = 96, 4
KEPT_BLOCKS, KEPT_UNITS = [0, 2, 3], 60


@pytest.fixture(scope="module")
def family(tmp_path_factory, new_model, save_model):
    """A parent; a child with three of its blocks, sixty units of each in another order, and some noise; a stranger."""
    own = {"num_key_value_heads": 4, "initializer_range": 0.02}
    whole, part = ({"intermediate_size": units} | own for units in (HIDDEN, KEPT_UNITS))
    parent, stranger = (new_model(seed, num_hidden_layers=BLOCKS, **whole) for seed in (0, 1))
    with torch.no_grad():  # the stream is mostly the embedding, as in a trained model: a block lost is no world lost
        for network in (parent, stranger):
            network.get_input_embeddings().weight.mul_(20)
    child = new_model(2, num_hidden_layers=len(KEPT_BLOCKS), **part)
    rng = np.random.default_rng(3)
    units = {}
    state = {name: tensor for name, tensor in parent.state_dict().items() if "layers" not in name}
    for new, old in enumerate(KEPT_BLOCKS):
        units[new] = rng.permutation(HIDDEN)[:KEPT_UNITS]
        for name, tensor in parent.state_dict().items():
            if name.startswith(f"model.layers.{old}."):
                if "gate_proj" in name or "up_proj" in name:
                    tensor = tensor[units[new]]
                elif "down_proj" in name:
                    tensor = tensor[:, units[new]]
                state[name.replace(f".{old}.", f".{new}.", 1)] = tensor + 0.02 * tensor.std() * torch.randn_like(tensor)
    child.load_state_dict(state)
    networks = {"parent": parent, "child": child, "stranger": stranger}
    return {
        name: Model.open(str(save_model(network, tmp_path_factory.mktemp(name)))) for name, network in networks.items()
    }, units


@pytest.fixture(scope="module")
def options(text):
    return Options(seed=5, text=text, n_sequences=16, sequence_length=32)


@pytest.fixture(scope="module")
def mapped(family, options):
    return block_map(family[0]["parent"], family[0]["child"], options, progress=False)


def test_the_map_of_kept_blocks_is_exact(mapped):
    assert mapped.log10_p.shape == (BLOCKS, len(KEPT_BLOCKS))
    assert mapped.rejected() == [(old, new) for new, old in enumerate(KEPT_BLOCKS)]
    assert mapped.origin() == dict(enumerate(KEPT_BLOCKS))


def test_kept_units_are_found_in_their_order(mapped, family):
    for new, old in enumerate(KEPT_BLOCKS):
        truth = family[1][new]
        units = mapped.units[old, new]
        right = units.by_gate[units.agreed] == truth[units.agreed]
        assert units.agreed.mean() > 0.9  # recall
        assert right.mean() > 0.99  # precision
        assert set(units.kept) <= set(truth) | set(units.by_gate[units.agreed][~right])
        assert units.width == HIDDEN


def test_mistakes_of_a_map(mapped):
    assert mapped.mistakes(KEPT_BLOCKS) == ([], [])
    assert mapped.mistakes([0, 1, 3]) == ([(1, 1)], [(2, 1)])
    assert mapped.mistakes([]) == ([], [(old, new) for new, old in enumerate(KEPT_BLOCKS)])


def test_units_of_unrelated_blocks_agree_by_chance_only(mapped):
    shares = [units.agreed.mean() for pair, units in mapped.units.items() if pair not in mapped.rejected()]
    assert max(shares) < 0.1


def test_a_stranger_has_no_block_of_it(family, options):
    results = block_map(family[0]["parent"], family[0]["stranger"], options, progress=False)
    assert results.rejected() == []
    assert results.origin() == dict.fromkeys(range(BLOCKS))


def test_what_is_found_was_in_reach_though_a_copy_could_have_been_missed(family, options, mapped, monkeypatch):
    """Children that are cut and trained on come to less than half of a block's reach: then it has none."""
    judged = PhiMatch.compare_block

    def doubting(self, *of):
        return replace(judged(self, *of), reach=0.0, why="a copy may be missed")

    monkeypatch.setattr(PhiMatch, "compare_block", doubting)
    results = block_map(family[0]["parent"], family[0]["child"], options, progress=False)
    assert results.floor == results.log10_p.min() < -20
    n, missed = len(KEPT_BLOCKS), BLOCKS * len(KEPT_BLOCKS) - len(KEPT_BLOCKS)
    assert results.rejected() == mapped.rejected()
    said = results.found_in_words("a", "b")
    assert said.startswith(f"{n} of {n} blocks of b match")
    assert f"{missed} could not be tested: a copy may be missed." in said


def test_blocks_of_equal_index_are_those_of_phi_match(family, options):
    """The diagonal is the statistic itself; all of it is corrected together."""
    a, b = family[0]["parent"], family[0]["stranger"]
    results = block_map(a, b, options, progress=False)
    statistic = PhiMatch()
    features = [statistic.prepare(model, options) for model in (a, b)]
    for i in range(BLOCKS):
        result = statistic.compare_block(features[0].block(i), features[1].block(i), i, options)
        assert results.log10_p[i, i] == result.log10_p
    assert np.array_equal(results.holm.ravel(), pvalues.holm(results.log10_p.ravel()))


def test_finished_pairs_of_blocks_are_not_computed_again(family, options, mapped, tmp_path, monkeypatch):
    a, b = family[0]["parent"], family[0]["child"]
    store = Store(tmp_path)
    block_map(a, b, options, store=store, progress=False)
    monkeypatch.setattr(PhiMatch, "prepare", lambda *_: pytest.fail("the model was run again"))
    again = block_map(a, b, options, store=store, progress=False)
    assert np.array_equal(again.log10_p, mapped.log10_p)
    assert all(np.array_equal(again.units[pair].by_up, mapped.units[pair].by_up) for pair in mapped.units)


def test_models_of_two_tokenizers_are_compared_on_the_tokens_that_both_have(family, options, text, tmp_path):
    """A stranger must be there for children whose tokenizer no stranger has."""
    parent, stranger = family[0]["parent"], family[0]["stranger"]
    folder = tmp_path / "stranger"
    shutil.copytree(stranger.checkpoint.folder(), folder, ignore=shutil.ignore_patterns("tokenizer*", "special*"))
    trainer = ByteLevelBPETokenizer()
    trainer.train_from_iterator([text[::-1], text[: len(text) // 4]], vocab_size=290, show_progress=False)
    PreTrainedTokenizerFast(tokenizer_object=trainer._tokenizer).save_pretrained(folder)
    other = Model.open(str(folder))
    assert not np.array_equal(cut(parent.checkpoint, options)[1], cut(other.checkpoint, options)[1])
    results = block_map(parent, other, options, progress=False)
    assert results.log10_p.shape == (BLOCKS, BLOCKS)
    assert results.rejected() == []
    assert results.log10_p.max() > np.log10(0.05)


def test_a_model_without_gates_is_refused(family, options, tmp_path):
    GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=24, n_layer=1, n_head=2, n_positions=32)).save_pretrained(tmp_path)
    with pytest.raises(NotComparableError, match="needs a gated MLP, which GPT2LMHeadModel"):
        block_map(family[0]["parent"], Model.open(str(tmp_path)), options)


ALL = ((0, 0), (0, 1), (1, 0), (1, 1))


@pytest.mark.parametrize(
    ("silent", "least", "said"),
    [
        ((), -9.0, "1 of 2 blocks of b match a block of a."),
        (ALL[:2], -9.0, "1 of 2 blocks of b match a block of a; of 4 pairs of blocks 2 could not be tested: alike."),
        (ALL, -9.0, "1 of 2 blocks of b match a block of a; of 4 pairs of blocks 3 could not be tested: alike."),
        (ALL, -0.2, "No block of b could be tested against one of a: alike."),
    ],
)
def test_a_block_that_could_not_be_tested_is_not_said_to_match_none(silent, least, said):
    blocks = BlockMap(np.array([[0.0, -0.1], [0.0, least]]), -20.0, {}, dict.fromkeys(silent, "alike"))
    assert blocks.found_in_words("a", "b") == said
