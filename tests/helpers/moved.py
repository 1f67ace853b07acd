"""Tiny Llamas that learnt some text, and copies of them whose blocks stand at other places."""

import copy
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

WORDS = ("the model reads a page of text and says which word comes next but never why it is so").split()  # noqa: SIM905


def learnable(n: int = 3000) -> str:
    """Prose of no meaning in which each word has three that follow it, so that it can be learnt."""
    rng = np.random.default_rng(0)
    after = [rng.choice(len(WORDS), 3, replace=False) for _ in WORDS]
    words = [0]
    for _ in range(n - 1):
        words.append(int(rng.choice(after[words[-1]], p=[0.6, 0.3, 0.1])))
    return " ".join(WORDS[word] for word in words)


def learnt(model: LlamaForCausalLM, folder: Path, text: str, *, steps: int = 60, rate: float = 5e-3) -> Path:
    """Train a model in a folder with a tokenizer, in place of the one that is there."""
    ids = torch.tensor(AutoTokenizer.from_pretrained(folder)(text)["input_ids"])
    rng = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for _ in range(steps):
        batch = torch.stack([ids[start : start + 32] for start in rng.integers(len(ids) - 32, size=8)])
        optimizer.zero_grad()
        model(input_ids=batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval().save_pretrained(folder)
    return folder


def with_blocks(source: str, folder: Path, places: list[int | None], seed: int = 0) -> LlamaForCausalLM:
    """Copy a model with its blocks at other places, its units in another order, and rows that no text has exchanged.

    Parameters
    ----------
    places
        For each block of the copy, the block of the original; None for one of random numbers that writes nothing.
    """
    model = LlamaForCausalLM.from_pretrained(source)
    layers, generator = model.model.layers, torch.Generator().manual_seed(seed)
    made = []
    for place in places:
        block = copy.deepcopy(layers[0 if place is None else place])
        with torch.no_grad():
            if place is None:
                for parameter in block.parameters():
                    if parameter.ndim == 2:
                        parameter.copy_(parameter.std() * torch.randn(parameter.shape, generator=generator))
                block.self_attn.o_proj.weight.zero_()
                block.mlp.down_proj.weight.zero_()
            order = torch.randperm(block.mlp.gate_proj.weight.shape[0], generator=generator)
            for matrix in (block.mlp.gate_proj, block.mlp.up_proj):
                matrix.weight.copy_(matrix.weight[order])
            block.mlp.down_proj.weight.copy_(block.mlp.down_proj.weight[:, order])
        made.append(block)
    for i, block in enumerate(made):
        block.self_attn.layer_idx = i
    model.model.layers = torch.nn.ModuleList(made)
    model.config.num_hidden_layers = len(made)
    model.config.layer_types = None
    rows = model.model.embed_tokens.weight
    with torch.no_grad():
        unseen = rows.norm(dim=1).argsort()[: len(rows) // 2]
        rows[unseen] = rows[unseen[torch.randperm(len(unseen), generator=generator)]]
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return model
