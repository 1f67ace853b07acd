"""What it costs a thief to move blocks: nats of loss, by depth.

A copy that leaves out the k middle blocks and gets k that write nothing, half of them at either end, has no block at
its place. ``python benchmarks/moved_blocks.py`` trains Llamas of 4, 8, 16 and 32 blocks on the prose of the zoo's
corpus for a short time, leaves out 2 (and 4) middle blocks, and adds the loss on held-out prose before and after to
``moved_blocks.csv``; depths after the command train these alone. Blocks that write nothing change no output, so the
copy without the middle ones is measured. The models are tiny and hardly trained: what middle blocks are worth in models
that were trained long is not measured here.
"""

import csv
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from provlab import provenance
from provlab.zoo import corpus

DEPTHS = (4, 8, 16, 32)
WIDTH, UNITS, LENGTH, BATCH, RATE = 64, 128, 64, 8, 3e-3
STEPS = 300
OUT = Path(__file__).with_suffix(".csv")


def trained(depth: int, seed: int, steps: int) -> LlamaForCausalLM:
    """Train a tiny Llama of so many blocks on prose."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=512,
            hidden_size=WIDTH,
            intermediate_size=UNITS,
            num_hidden_layers=depth,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=LENGTH,
        )
    )
    tokens, rng = corpus.load().tokens("prose", "train"), np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 20) * (1 - 0.9 * step / steps)
        starts = rng.integers(len(tokens) - LENGTH, size=BATCH)
        batch = torch.from_numpy(np.stack([tokens[start : start + LENGTH] for start in starts]).astype(np.int64))
        optimizer.zero_grad()
        model(input_ids=batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


def loss(model: LlamaForCausalLM, left_out: range) -> float:
    """Nats a token on held-out prose, without some blocks."""
    tokens = corpus.load().tokens("prose", "held_out")
    inputs = torch.from_numpy(tokens[: 64 * LENGTH].reshape(64, LENGTH).astype(np.int64))
    blocks = model.model.layers
    kept = [block for i, block in enumerate(blocks) if i not in left_out]
    model.model.layers = torch.nn.ModuleList(kept)
    model.config.num_hidden_layers = len(kept)
    with torch.inference_mode():
        result = float(model(input_ids=inputs, labels=inputs, use_cache=False).loss)
    model.model.layers, model.config.num_hidden_layers = blocks, len(blocks)
    return result


def main(depths: Sequence[int]) -> None:
    """Train each depth by two seeds, and add a row for each number of blocks that are left out."""
    torch.set_num_threads(1)
    about = [(provenance.commit() or "")[:7], datetime.now(UTC).date().isoformat(), provenance.processor()]
    names = ["blocks", "seed", "left_out", "loss", "more_nats", "steps", "commit", "date", "machine", "torch"]
    if not OUT.exists():
        OUT.write_text(",".join(names) + "\n", encoding="utf-8")
    for depth, seed in product(depths, (0, 1)):
        model = trained(depth, seed, STEPS)
        whole = loss(model, range(0))
        with OUT.open("a", newline="", encoding="utf-8") as file:
            for k in (k for k in (2, 4) if k < depth):
                first = (depth - k) // 2
                more = loss(model, range(first, first + k)) - whole
                row = [depth, seed, k, f"{whole:.3f}", f"{more:.4f}", STEPS, *about, torch.__version__]
                csv.writer(file, lineterminator="\n").writerow(row)
                print(*row, flush=True)


if __name__ == "__main__":
    main([int(depth) for depth in sys.argv[1:]] or DEPTHS)
