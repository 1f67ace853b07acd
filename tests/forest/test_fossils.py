"""Biases of keys: untouched by training where softmax cancels them, and the seed that drew them."""

import numpy as np
import pytest
import torch
import transformers
from scipy import stats

from provlab.errors import NotComparableError, ParameterError
from provlab.forest import fossils
from provlab_study.family_forest.draws import ORDER, trained


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_keys_keep_their_draw_through_two_trainings(decay):
    known = fossils.common_draw(trained(42, 1, decay=decay), trained(42, 2, decay=decay))
    assert known.log10_p < -12
    assert min(known.cosines.values()) > 0.95
    assert fossils.common_draw(trained(42, 1), trained(43, 1)).log10_p > -3


def test_the_p_value_is_exact_under_independence():
    rng = np.random.default_rng(0)
    draws = [{0: rng.uniform(-1, 1, 9), 1: rng.uniform(-1, 1, 9)} for _ in range(800)]
    p = [10 ** fossils.common_draw(a, b).log10_p for a, b in zip(draws[::2], draws[1::2], strict=True)]
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_the_seed_is_named_and_the_others_count():
    replay = fossils.linear_layers(ORDER)
    known = fossils.named_seed(trained(42, 3), replay, range(100))
    assert known.seed == 42
    assert known.log10_p < -10
    alone = fossils.named_seed(trained(42, 3), replay, [42])
    assert known.log10_p == pytest.approx(alone.log10_p + 2)
    none = fossils.named_seed(trained(1000, 3), replay, range(100))
    assert none.log10_p > -2
    with pytest.raises(ParameterError, match="none is given"):
        fossils.named_seed(trained(42, 3), replay, [])


def gradients(model):
    """Largest gradients of the biases of keys, and of queries, of the first block."""
    model(torch.arange(12)[None]).last_hidden_state.pow(3).sum().backward()
    named = dict(model.named_parameters())
    return [
        next(float(v.grad.abs().max()) for k, v in named.items() if f"{part}.bias" in k or f"{part}_proj.bias" in k)
        for part in (
            "key" if any("key.bias" in k for k in named) else "k",
            "query" if any("query.bias" in k for k in named) else "q",
        )
    ]


def test_rotary_positions_train_the_bias_of_keys():
    """BERT's has a gradient of rounding; Qwen2's has one like any other."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 20,
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 40,
    }
    key, query = gradients(transformers.BertModel(transformers.BertConfig(**sizes, initializer_range=0.3)).eval())
    assert key < 1e-4 * query
    turned = transformers.Qwen2Config(**sizes, num_key_value_heads=2, initializer_range=0.3)
    key, query = gradients(transformers.Qwen2Model(turned).eval())
    assert key > 1e-2 * query


def test_models_whose_keys_say_nothing_say_why(models, tmp_path):
    opened = fossils.Model.open
    with pytest.raises(NotComparableError, match="positions turn the keys"):
        fossils.key_biases(opened(models["base"]))
    sizes = {
        "vocab_size": 20,
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 40,
    }
    bert = transformers.BertForMaskedLM(transformers.BertConfig(**sizes))
    bert.save_pretrained(tmp_path / "zero")
    with pytest.raises(NotComparableError, match="zero, as they began"):
        fossils.key_biases(opened(str(tmp_path / "zero")))
    torch.nn.init.uniform_(bert.bert.encoder.layer[0].attention.self.key.bias)
    bert.save_pretrained(tmp_path / "drawn")
    read = fossils.key_biases(opened(str(tmp_path / "drawn")))
    assert read[0] == pytest.approx(bert.bert.encoder.layer[0].attention.self.key.bias.detach().numpy())
    with pytest.raises(NotComparableError, match="of one size"):
        fossils.common_draw(read, {0: np.ones(5)})
