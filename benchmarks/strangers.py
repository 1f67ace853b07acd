"""What the default tests say of independent models: the outcome of each pair, of random models and of trained ones.

``python benchmarks/strangers.py random`` draws Llamas that nobody trained, with the zoo's tokenizer; ``trained`` takes
the zoo's bases that differ in their seeds alone, which are trained where they are not there yet. ``PROVLAB_DRAW=N``
makes either anew from other seeds; ``--models 23`` says how many. Each pair is judged by itself, by all that the
policy asks of it (`provlab.policy`), as `provlab compare` has it.
"""

import argparse
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest
from transformers import LlamaConfig, LlamaForCausalLM

import provlab
from provlab import provenance
from provlab.reading.checkpoint import Checkpoint
from provlab.report.comparison import Comparison
from provlab.report.decide import OUTCOMES

MODELS = {"random": 24, "trained": 22}
SHORT: dict[str, Any] = {
    "n_sequences": 32,
    "sequence_length": 28,
    "progress": False,
}  # a token before each, and 32 positions in all
LOOSE = 0.05  # a level that more pairs reach by chance


def drawn(folder: Path, n_models: int) -> Iterator[str]:
    """Write random Llamas that have a tokenizer."""
    like = Checkpoint.open("zoo:null-01")
    for k in range(n_models):
        torch.manual_seed(100 * provenance.draw() + k)
        config = LlamaConfig(
            vocab_size=like.config["vocab_size"], hidden_size=48, intermediate_size=128, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=32,
        )  # fmt: skip
        place = folder / f"random-{k + 1:02}"
        LlamaForCausalLM(config).save_pretrained(place)
        for path in like.side_files():
            if path.name != "config.json":
                shutil.copy(path, place)
        yield str(place)


def outcomes(sources: Sequence[str]) -> tuple[Counter[str], int, Counter[str]]:
    """Count outcomes of all pairs, those that any test rejects at `LOOSE` by Holm, and pairs that a test gave a p."""
    report = provlab.study(list(sources), **SHORT)
    models = {model["source"]: model for model in report.models}
    counts: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    loose = 0
    for a, b in combinations(sources, 2):
        records = tuple(record for record in report.records if (record.a, record.b) == (a, b))
        pair = Comparison((models[a], models[b]), records, report.options)
        counts[pair.outcome] += 1
        adjusted = pair.family.adjusted_log10_p
        loose += bool(np.nanmin(adjusted, initial=0.0) <= np.log10(LOOSE))
        tests.update(record.statistic for record in records if record.outcome)
    return counts, loose, tests


def main() -> None:
    """Print a line for each outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=MODELS)
    parser.add_argument("--models", type=int)
    arguments = parser.parse_args()
    n_models = arguments.models or MODELS[arguments.kind]
    with tempfile.TemporaryDirectory(prefix="provlab-") as scratch:
        sources = [f"zoo:null-{k + 1:02}" for k in range(n_models)]
        if arguments.kind == "random":
            sources = list(drawn(Path(scratch), n_models))
        counts, loose, tests = outcomes(sources)
    pairs = counts.total()
    print(f"{pairs} pairs of {arguments.kind} models, draw {provenance.draw()}, commit {provenance.commit()}")
    for name, n in {**{name: counts[name] for name in OUTCOMES}, f"any test, Holm at {LOOSE:g}": loose}.items():
        low, high = binomtest(n, pairs).proportion_ci()
        print(f"{name:<24} {n:4} {n / pairs:.4f} [{low:.4f}, {high:.3f}]")
    print("records:", ", ".join(f"{name} {n}" for name, n in tests.items()))


if __name__ == "__main__":
    main()
