"""Keys and values in place, against transformers' own cache, which copies all of them for every token."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import DynamicCache, DynamicSlidingWindowLayer

from provlab.modeldiff import nll
from provlab.modeldiff.key_values import InPlace, with_room

LENGTH = 12


def llama(**settings):
    torch.manual_seed(0)
    shape = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=11, max_position_embeddings=32, num_key_value_heads=2, **shape, **settings)
    return LlamaForCausalLM(config).eval()


def held(n=3, heads=2, tokens=1, size=4):
    cache = DynamicCache()
    cache.update(torch.randn(n, heads, tokens, size), torch.randn(n, heads, tokens, size), 0)
    return cache


@pytest.mark.parametrize("start", [(), (3, 1)])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_what_is_written_is_the_same(gpt2, monkeypatch, family, start):
    model = gpt2(n_positions=16) if family == "gpt2" else llama()
    reader = nll.sequence_nll(model, start=start)
    generator = reader.generator(1)
    prefix = torch.empty(40, 0, dtype=torch.int64) if start else reader.first(40, generator)
    chances = reader.chances(40, LENGTH - prefix.shape[1], generator)
    tempers = torch.ones(40, 1)
    in_place = reader.write_on(prefix, LENGTH, tempers, chances)
    monkeypatch.setattr(nll, "with_room", lambda past, more: past)
    for ours, theirs in zip(in_place, reader.write_on(prefix, LENGTH, tempers, chances), strict=True):
        # the same bits on most processors; some multiply rows that lie apart in another order
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0 if ours.dtype == torch.int64 else 1e-6)


def test_tokens_go_into_the_room_and_all_are_kept_where_it_is_too_small():
    """By hand: two fit where they are, and the third moves all to a larger room."""
    cache = held()
    expected = [cache.layers[0].keys, cache.layers[0].values]
    layer = with_room(cache, 2).layers[0]
    places = set()
    for _ in range(3):
        new = [torch.randn(3, 2, 1, 4), torch.randn(3, 2, 1, 4)]
        expected = [torch.cat(pair, dim=2) for pair in zip(expected, new, strict=True)]
        for result, reference in zip(cache.update(*new, 0), expected, strict=True):
            assert torch.equal(result, reference)
        places.add(layer.keys.data_ptr())
    assert len(places) == 2
    assert cache.get_seq_length() == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda cache: cache.batch_select_indices(torch.tensor([1, 0])),
        lambda cache: cache.batch_repeat_interleave(2),
        lambda cache: cache.crop(-1),
        lambda cache: None,
    ],
)
def test_what_others_change_in_the_cache_is_what_the_next_token_follows(change):
    caches = [held(tokens=3), DynamicCache()]
    caches[1].update(caches[0].layers[0].keys.clone(), caches[0].layers[0].values.clone(), 0)
    with_room(caches[0], 4)
    for _ in range(2):
        for cache in caches:
            change(cache)
        new = torch.randn(len(caches[1].layers[0].keys), 2, 1, 4)
        for result, reference in zip(*(cache.update(new, -new, 0) for cache in caches), strict=True):
            assert torch.equal(result, reference)


def test_a_decoder_that_may_read_an_encoder_keeps_its_cache():
    config = GPT2Config(n_embd=24, n_layer=2, n_head=2, vocab_size=11, n_positions=16, add_cross_attention=True)
    reader = nll.sequence_nll(GPT2LMHeadModel(config).eval())
    tokens, _, _ = reader.write_on(torch.tensor([[3, 4]]), 8, torch.ones(1, 1), torch.rand(1, 6, dtype=torch.float64))
    assert tokens.shape == (1, 8)


def test_other_caches_stay_as_they_are():
    """A window forgets what lies behind it, and a network without a cache gives none."""
    assert with_room(None, 3) is None
    cache = held()
    cache.layers.append(DynamicSlidingWindowLayer(sliding_window=2))
    assert [type(layer) for layer in with_room(cache, 3).layers] == [InPlace, DynamicSlidingWindowLayer]
