"""Whole commands on synthetic models of a true shape: what a pair of 7B takes, on a GPU or without one.

Three checkpoints are written from nothing: a model, a copy of it with noise, and a stranger, with a tokenizer of as
many tokens as the shape has. Then commands run, each in a process of its own with an empty cache, as a user meets them:
the default tests of a pair, the quick ones of two strangers, phi_U alone, a study of all three, and `provlab diff` of
200 sequences and of ten times as many. Kept are seconds by the clock and of the processor, the most memory that the
process had of its own, looked at five times a second, and that of the GPU, of which nvidia-smi is asked twice. Pages of
files are not counted: weights are mapped, and the system takes such pages back where memory is short.

On a machine with a GPU, 64 GB of disk and some minutes, this one command measures what the page *How it scales* names
as *not run here*:

    python benchmarks/goals.py --device cuda

It takes llama-2-7b in bfloat16; without a device a tiny shape in float32, which tries it anywhere. Without a GPU
``--shape llama-2-7b --work pair quick`` takes half an hour on two cores. Rows are appended to the file that the page
shows, `RESULTS`. ``--work`` names some of the commands, ``--blocks`` writes some of the blocks alone, as a trial,
``--shape`` and ``--dtype`` take others.
"""

import argparse
import csv
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from synthetic import noisy_copy, synthesise
from vocabulary import cost, tokenizer_of

from provlab import plugins
from provlab.planning import shapes
from provlab.provenance import processor
from provlab.reading.checkpoint import Checkpoint

RESULTS = Path(__file__).parents[1] / "src/provlab_study/how_it_scales/goals.csv"
COLUMNS = (
    "work", "shape", "blocks", "device", "seconds", "cpu", "host", "on_device", "status", "commit", "date", "machine",
)  # fmt: skip
TEXT = ["--text", "{text}"]
#: by name the words of a command, and whether it runs the models, and so takes a device
WORK = {
    "pair": (["compare", "{a}", "{b}", *TEXT], True),
    "quick": (["compare", "{a}", "{c}", "--quick", *TEXT], True),
    "phi_u": (["compare", "{a}", "{b}", "--statistic", "phi_u"], False),
    "study": (["study", "{a}", "{b}", "{c}", "--statistic", "phi_u,phi_h,phi_match"], True),
    "diff": (["diff", "{a}", "{b}", "--sequences", "200", *TEXT], True),
    "diff, ten times": (["diff", "{a}", "{b}", "--sequences", "2000", *TEXT], True),
}
NOISE = 0.5  # of the copy, in standard deviations of each tensor


@contextmanager
def watched(device: str) -> Iterator[list[int]]:
    """Within, the memory of the GPU is looked at: a list of MB, empty without one."""
    looks: list[int] = []
    done = threading.Event()
    ask = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]

    def look() -> None:
        while not done.wait(0.5):
            answer = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.split()
            looks.append(max(map(int, answer), default=0))

    watcher = threading.Thread(target=look, daemon=True)
    if device.startswith("cuda"):
        watcher.start()
    try:
        yield looks
    finally:
        done.set()
        if watcher.is_alive():
            watcher.join()


def machine(device: str) -> str:
    """Say which processor this machine has, and which GPU."""
    name = processor()
    if not device.startswith("cuda"):
        return name
    ask = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return f"{name}, {subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()}"


def main() -> None:
    """Write the models, run the commands, keep a row of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape")
    parser.add_argument("--blocks", type=int, help="write the first N blocks alone (default: all)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype")
    parser.add_argument("--work", nargs="*", choices=[*WORK], default=[*WORK])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--folder", type=Path, help="where models are written, and found again by a later run")
    arguments = parser.parse_args()
    on_gpu = arguments.device.startswith("cuda")
    arguments.shape = arguments.shape or ("llama-2-7b" if on_gpu else "tiny")
    arguments.dtype = arguments.dtype or ("bfloat16" if on_gpu else "float32")
    # a tiny command is counted in CPU seconds, which threads would add to; a true shape by the clock, on all cores
    threads = 1 if arguments.shape == "tiny" else os.cpu_count() or 1
    config = shapes.shape(arguments.shape, arguments.blocks)
    config |= {"vocab_size": max(512, int(config["vocab_size"]))}  # a tokenizer knows each byte
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    about = {
        "shape": arguments.shape,
        "blocks": config["num_hidden_layers"],
        "device": arguments.device,
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(arguments.device),
    }
    settings = ["--device", arguments.device, "--dtype", arguments.dtype]
    with nullcontext(arguments.folder) if arguments.folder else tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        scratch.mkdir(parents=True, exist_ok=True)
        places = {name: str(scratch / name) for name in ("a", "b", "c", "text")}
        began = time.monotonic()
        named = {word for work in arguments.work for word in WORK[work][0]}
        missing = [name for name in "abc" if f"{{{name}}}" in named and not (scratch / name).exists()]
        if "a" in missing:
            synthesise(config, scratch / "a", seed=0)
        if "b" in missing:
            noisy_copy(Checkpoint.open(places["a"]), scratch / "b", noise=NOISE, seed=1)
        if "c" in missing:
            synthesise(config, scratch / "c", seed=2)
        tokenizer = tokenizer_of(int(config["vocab_size"]))
        for name in missing:
            tokenizer.save_pretrained(scratch / name)
        (scratch / "text").write_text(plugins.default_text() or "", encoding="utf-8")
        print(f"models written in {time.monotonic() - began:.0f} s", flush=True)
        for work in arguments.work:
            words, runs = WORK[work]
            began = time.monotonic()
            with watched(arguments.device if runs else "cpu") as looks:
                spent = cost([word.format(**places) for word in words] + settings * runs, scratch, threads)
            row = {"work": work, **about, "seconds": round(time.monotonic() - began, 2), "cpu": spent["cpu"]}
            row |= {"host": spent["own"], "on_device": max(looks, default=""), "status": spent["status"]}
            print(row, flush=True)
            new = not arguments.out.exists()
            with arguments.out.open("a", encoding="utf-8", newline="") as file:
                table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                if new:
                    table.writeheader()
                table.writerow(row)


if __name__ == "__main__":
    main()
