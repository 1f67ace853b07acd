"""Tiny untrained GPT-2 models over few tokens, as the toy's are: any weights are as good as trained ones here."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def tiny_gpt2(seed=0, **settings):
    torch.manual_seed(seed)
    config = {"vocab_size": 4, "n_positions": 6, "n_embd": 16, "n_layer": 2, "n_head": 2, "initializer_range": 0.4}
    config |= {"bos_token_id": None, "eos_token_id": None} | settings
    return GPT2LMHeadModel(GPT2Config(**config)).eval()


@pytest.fixture
def gpt2():
    """Make a tiny GPT-2: ``gpt2(seed, n_layer=3)``."""
    return tiny_gpt2
