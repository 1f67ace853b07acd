"""Time and memory of all blocks against all blocks, for models of 32 and 28 blocks.

Two random Llamas are compared block by block as a study does it, with every activation in temporary files, and then
single pairs of blocks of growing width, whose times are continued to the widths of Llama 3.1 8B (14,336) and of Llama 2
7B (11,008) against 8,192. Times are CPU seconds of one thread; memory is what the process cannot give back (resident,
without the pages of files), above what it held before. ``python benchmarks/block_map.py 1024 768`` chooses the widths.
"""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy starts its threads

import numpy as np
import psutil
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

from provlab import zoo
from provlab.inference.matching import match_shuffled, unit_rows
from provlab.running import room
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.phi_match import PhiMatch
from provlab.zoo import corpus
from provlab_study.shared.block_map import block_map

BLOCKS = 32, 28
N_SEQUENCES, LENGTH = 16, 64
FULL = (11_008, 8_192), (14_336, 8_192)
TOKENS = 2_048  # of a full study
RANK = 256  # activations have far fewer directions than units
GIB = 2**30


class Peak:
    """Largest memory that could not be given back, in bytes above the start."""

    def __init__(self) -> None:
        self.process = psutil.Process()
        self.start = self.now()
        self.bytes = 0

    def now(self) -> int:
        """Resident bytes that belong to no file."""
        info = self.process.memory_info()
        return int(info.rss - getattr(info, "shared", 0))

    def watch(self, done: threading.Event) -> None:
        """Look every few milliseconds until done."""
        while not done.wait(0.01):
            self.bytes = max(self.bytes, self.now() - self.start)


@contextmanager
def watched() -> Iterator[Peak]:
    """Watch the memory of this process while the block runs."""
    peak, done = Peak(), threading.Event()
    thread = threading.Thread(target=peak.watch, args=(done,))
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def checkpoint(folder: Path, blocks: int, width: int, seed: int) -> Model:
    """Save a random Llama with the zoo's tokenizer and open it."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=64, intermediate_size=width, num_hidden_layers=blocks, num_attention_heads=4, vocab_size=512,
        max_position_embeddings=LENGTH, initializer_range=0.15, bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    for file in corpus.load().tokenizer_folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return Model.open(str(folder))


def cpu(run: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    started = time.process_time()
    run()
    return time.process_time() - started


def study(widths: tuple[int, int]) -> None:
    """All blocks of one random model against all of another, activations in files."""
    options = Options(text=zoo.held_out_text("prose"), n_sequences=N_SEQUENCES, sequence_length=LENGTH)
    room.IN_MEMORY = 0
    with tempfile.TemporaryDirectory() as scratch:
        a, b = (
            checkpoint(Path(scratch) / str(side), blocks, width, side)
            for side, (blocks, width) in enumerate(zip(BLOCKS, widths, strict=True))
        )
        statistic = PhiMatch()
        for model, blocks, width in zip((a, b), BLOCKS, widths, strict=True):
            with watched() as peak:
                seconds = cpu(lambda model=model: statistic.prepare(model, options))
            kept = 8 * blocks * width * options.kept_tokens
            print(
                f"one pass, {blocks} blocks of {width:,}: {seconds:.1f} s, {peak.bytes / GIB:.2f} GiB in memory, "
                f"{kept / GIB:.2f} GiB of gate and up in files"
            )
        with watched() as peak:
            started = time.process_time()
            matches = block_map(a, b, options, progress=sys.stderr.isatty())
            seconds = time.process_time() - started
    pairs = BLOCKS[0] * BLOCKS[1]
    print(
        f"{BLOCKS[0]} x {BLOCKS[1]} blocks, {options.kept_tokens:,} tokens: {seconds:.1f} s, "
        f"{1000 * seconds / pairs:.0f} ms a pair of blocks, {peak.bytes / GIB:.2f} GiB in memory, "
        f"{len(matches.rejected())} found"
    )


def activations(width: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of low rank with noise, ``(width, TOKENS)``."""
    low = rng.normal(size=(width, RANK)) @ rng.normal(size=(RANK, TOKENS)) / RANK**0.5
    return (low + 0.3 * rng.normal(size=(width, TOKENS))).astype(np.float32)


def widths_grow() -> None:
    """Single pairs of blocks at growing width, and what a study takes at full width."""
    rng = np.random.default_rng(0)
    sizes = [(1_376, 1_024), (2_752, 2_048), (5_504, 4_096)]
    times, once = [], []
    match_shuffled(activations(64, rng), activations(64, rng), seed=0)  # compiled parts are compiled
    for first, second in sizes:
        raw = [activations(first, rng), activations(second, rng)]
        with watched() as peak:
            once.append(cpu(lambda raw=raw: [unit_rows(side) for side in raw]))
            rows = [unit_rows(side) for side in raw]
            times.append(2 * cpu(lambda rows=rows: match_shuffled(*rows, seed=0)))
        print(
            f"{first:,} x {second:,}, {TOKENS:,} tokens: gate and up of a pair of blocks {times[-1]:.2f} s, "
            f"rows prepared once in {once[-1]:.2f} s, {peak.bytes / GIB:.2f} GiB"
        )
    power, constant = np.polyfit(np.log([a * b for a, b in sizes]), np.log(times), 1)
    for first, second in FULL:
        pair = float(np.exp(constant + power * np.log(first * second)))
        memory = 8 * first * second + 4 * TOKENS * (2 * first + 4 * second)
        print(
            f"{first:,} x {second:,} continued as power {power:.2f} of the product: {pair:.1f} s a pair of blocks, "
            f"{pair * BLOCKS[0] * BLOCKS[1] / 3600:.1f} h for {BLOCKS[0]} x {BLOCKS[1]}, about {memory / GIB:.1f} GiB"
        )


if __name__ == "__main__":
    logging.disable_progress_bar()
    sizes = [int(text) for text in sys.argv[1:3]] or [1_024, 768]
    study((sizes[0], sizes[-1]))
    widths_grow()
