"""The NLL of sequences against the definition, one sequence and one token at a time."""

import numpy as np
import pytest
import torch

from provlab.errors import InputError, InvalidWeightsError
from provlab.modeldiff import nll

RNG = np.random.default_rng(0)


def by_definition(model, tokens, start=()):
    """-log p(token | left context), averaged over the tokens that have a left context; a start is not judged."""
    terms, tokens = [], np.r_[np.array(start, dtype=int), tokens]
    for end in range(max(1, len(start)), len(tokens)):
        with torch.no_grad():
            probabilities = torch.softmax(model(torch.from_numpy(tokens[None, :end])).logits[0, -1].double(), dim=0)
        terms.append(-np.log(probabilities[tokens[end]].item()))
    return np.mean(terms)


@pytest.mark.parametrize(("at_once", "start"), [(1 << 14, ()), (11, ()), (11, (3,)), (11, (2, 0, 1))])
def test_nll_is_that_of_the_definition(gpt2, at_once, start, monkeypatch):
    monkeypatch.setattr(nll, "_TOKENS", at_once)
    model = gpt2(n_positions=8)
    tokens = RNG.integers(0, 4, (9, 5))
    measured = nll.sequence_nll(model, start=start)
    assert measured.context == 8 - len(start)
    expected = [by_definition(model, row, start) for row in tokens]
    np.testing.assert_allclose(measured(tokens), expected, atol=2e-6)
    assert measured(tokens).dtype == np.float64
    assert measured.evaluations == 18


def test_log_probabilities_of_the_next_token_add_up_to_the_nll(gpt2, monkeypatch):
    monkeypatch.setattr(nll, "_TOKENS", 10)
    measured = nll.sequence_nll(gpt2())
    tokens = RNG.integers(0, 4, (7, 5)).astype(np.uint8)
    terms = []
    for place in range(5):
        log_probs = measured.next_log_probs(tokens[:, :place])
        assert log_probs.shape == (7, 4)
        np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1, atol=1e-6)
        terms.append(log_probs[np.arange(7), tokens[:, place]])
    np.testing.assert_allclose(terms.pop(0), -np.log(4), rtol=1e-6)
    assert len(terms) == 4
    np.testing.assert_allclose(-np.mean(terms, axis=0), measured(tokens), atol=1e-6)


def test_rewriting_keeps_what_stands_before_the_cut(gpt2, monkeypatch):
    monkeypatch.setattr(nll, "_TOKENS", 20)  # four rows at a time
    measured = nll.sequence_nll(gpt2())
    tokens, temper = RNG.integers(0, 4, (11, 5)), np.linspace(0, 3, 11)
    new, loss, factor = measured.rewrite(tokens, 2, temper, seed=1)
    np.testing.assert_array_equal(new[:, :2], tokens[:, :2])
    assert (new[:, 2:] != tokens[:, 2:]).any()
    np.testing.assert_allclose(loss, measured(new), atol=1e-6)
    back = measured.rewrite(tokens, 2, temper, seed=1)
    np.testing.assert_array_equal(new, back[0])
    # uniform draws are as likely as what stood there
    assert factor[0] == pytest.approx(0, abs=1e-6)


def test_one_token_can_be_followed_but_has_no_nll_of_its_own(gpt2):
    measured = nll.sequence_nll(gpt2())
    assert measured.next_log_probs(np.array([[1]])).shape == (1, 4)
    with pytest.raises(InputError, match="at least 2 tokens, not 1"):
        measured(np.array([[1]]))


def test_no_sequence_is_no_error(gpt2):
    assert nll.sequence_nll(gpt2())(np.empty((0, 5), dtype=int)).shape == (0,)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (np.array([[0, 4]]), "token 4 is outside the vocabulary of GPT2LMHeadModel: 0 to 3"),
        (np.array([[0, -1]]), "token -1 is outside"),
        (np.zeros((1, 7), dtype=int), "sequences of 7 tokens exceed the context of GPT2LMHeadModel: 6"),
        (np.zeros(5, dtype=int), r"of shape \(n, length\), not int64 of shape \(5,\)"),
        (np.zeros((2, 5)), "must be integers"),
    ],
)
def test_bad_tokens_are_named(gpt2, tokens, message):
    with pytest.raises(InputError, match=message):
        nll.sequence_nll(gpt2())(tokens)


def test_no_causal_model_and_damaged_weights_are_refused(gpt2):
    model = gpt2()
    with pytest.raises(InputError, match="no causal language model"):
        nll.sequence_nll(model.transformer)
    with torch.no_grad():
        model.transformer.wte.weight[2] = float("nan")
    with pytest.raises(InvalidWeightsError, match="NaN or Inf"):
        nll.sequence_nll(model)(np.array([[0, 1, 2, 3]]))
