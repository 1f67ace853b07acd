"""What grows with the vocabulary: CPU seconds and peak memory of the commands at four sizes of it.

Small Llamas (64 dimensions, 128 hidden units, two blocks) are saved with each vocabulary, with a byte-level tokenizer
of as many tokens, and compared by the commands, each in a process and with a cache of its own. Nothing but the rows of
embedding and head differs between the sizes, so what a command costs more than at the smallest vocabulary, it costs
for these rows. All that grows must grow no faster than they do: the last column is the growth of the time from the size
before, per growth of the rows, once the time at the smallest is taken off; 1 is linear.

The models are random, so that all rows count as untrained, which is the hard case for statistics of such rows; in
``half trained`` half of them are longer and share directions, as trained rows do. The tree has a copy with noise and
three strangers.

``python benchmarks/vocabulary.py`` prints the table, and keeps finished rows in the file that the page *How it scales*
shows, `RESULTS`; ``--out`` names another one, ``--work`` and ``--sizes`` some of the table. With ``--shape llama-2-7b``
the models are two blocks of that shape instead, the text is short, and `diff` writes 40 sequences instead of 200. CPU
seconds are those of all threads, whatever else the machine does.
"""

import argparse
import csv
import itertools
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import tokenizers
import torch
import transformers
from synthetic import noisy_copy, synthesise

from provlab import plugins
from provlab.planning import shapes
from provlab.reading.checkpoint import Checkpoint

RESULTS = Path(__file__).parents[1] / "src/provlab_study/how_it_scales/vocabulary.csv"
COLUMNS = ("work", "shape", "vocabulary", "cpu", "system", "memory", "status", "commit", "date", "machine")
SIZES = (512, 32_000, 128_256, 262_144)
SMALL = "64 wide, 2 blocks"
PIECES = """import sys
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics.text import common, spellings
common(*(spellings(Checkpoint.open(folder), int(sys.argv[1])) for folder in sys.argv[2:]))"""
#: by name the words of a command; where the first is "-c", of Python
WORK = {
    "compare": ["compare", "{a}", "{b}", "--text", "{text}"],
    "phi_jsd": ["compare", "{a}", "{b}", "--statistic", "phi_jsd", "--text", "{text}"],
    "phi_unseen": ["compare", "{a}", "{b}", "--statistic", "phi_unseen"],
    "phi_unseen, half trained": ["compare", "{e}", "{f}", "--statistic", "phi_unseen"],
    "diff": ["diff", "{a}", "{b}", "--sequences", "{sequences}", "--text", "{text}"],
    "tree": ["tree", "{a}", "{b}", "{c}", "{d}"],
    "shelf add": ["shelf", "add", "{a}", "--shelf", "{shelf}"],
    "identify": ["identify", "{b}", "--shelf", "{shelf}"],
    "spellings": ["-c", PIECES, "{vocabulary}", "{a}", "{b}"],
}
SEEDS = {name: seed for seed, name in enumerate("abcdef")}
COPIES = {"c": "a"}  # with noise
HALF_TRAINED = "ef"


def tokenizer_of(vocabulary: int) -> transformers.PreTrainedTokenizerFast:
    """Return a byte-level tokenizer of so many tokens: bytes, and then two and three of them in a row."""
    pre = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    common = [*"etaoinshrdlucmfwygpbvkĠ"]
    alphabet = common + sorted({*pre.alphabet()} - {*common})
    pairs = sorted(itertools.product(range(256), repeat=2), key=lambda pair: (max(pair), pair))
    two = ((alphabet[i], alphabet[j]) for i, j in pairs)
    three = ((alphabet[i] + alphabet[j], letter) for letter in alphabet for i, j in pairs)
    merges = [*itertools.islice(itertools.chain(two, three), vocabulary - len(alphabet) - 2)]
    tokens = [*alphabet, *("".join(merge) for merge in merges), "<s>", "</s>"]
    words = tokenizers.Tokenizer(tokenizers.models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    words.pre_tokenizer, words.decoder = pre, tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>")


def small(folder: Path, vocabulary: int, name: str) -> None:
    """Save a random small Llama."""
    torch.manual_seed(SEEDS[COPIES.get(name, name)])
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        tie_word_embeddings=False,
    )
    network = transformers.LlamaForCausalLM(config)
    if name in HALF_TRAINED:
        rows = network.model.embed_tokens.weight.data[: vocabulary // 2]
        rows += 2 * rows.std() * torch.randn(len(rows), 8) @ torch.randn(8, 64)  # (rows, 8) @ (8, d)
    if name in COPIES:
        torch.manual_seed(SEEDS[name])
        for tensor in network.state_dict().values():
            tensor += 0.1 * torch.randn_like(tensor) * tensor.std(correction=0)
    network.to(torch.bfloat16).save_pretrained(folder)


def of_shape(folder: Path, config: dict[str, Any], name: str) -> None:
    """Write a synthetic checkpoint of a true shape."""
    if name in COPIES:
        noisy_copy(Checkpoint.open(folder.with_name(COPIES[name])), folder, noise=0.1, seed=SEEDS[name])
    else:
        synthesise(config, folder, seed=SEEDS[name])


def cost(arguments: list[str], scratch: Path, threads: int = 1) -> dict[str, float | int]:
    """Run a command of provlab with an empty cache.

    Returns
    -------
    dict
        CPU seconds, those of the system among them; peak MB, and peak MB without pages of files; exit code.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as cache, (scratch / "output").open("w") as output:
        own = {**os.environ, "PROVLAB_CACHE": cache, "OMP_NUM_THREADS": str(threads)}
        program = [sys.executable] if arguments[0] == "-c" else [Path(sys.executable).with_name("provlab")]
        process = subprocess.Popen([*program, *arguments], stdout=output, stderr=output, cwd=scratch, env=own)
        peak = [0]
        watcher = threading.Thread(target=_look, args=(process.pid, peak), daemon=True)
        watcher.start()
        _, status, usage = os.wait4(process.pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        print((scratch / "output").read_text()[-600:], file=sys.stderr)
    return {
        "cpu": round(usage.ru_utime + usage.ru_stime, 2),
        "system": round(usage.ru_stime, 2),
        "memory": round(usage.ru_maxrss / (1 if sys.platform == "darwin" else 1024)),
        "own": round(peak[0] / 2**20),
        "status": code,
    }


def _look(pid: int, peak: list[int]) -> None:
    """Keep the most memory of a process that is no page of a file, until it ends."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        while True:
            memory = process.memory_info()
            peak[0] = max(peak[0], memory.rss - getattr(memory, "shared", 0))
            time.sleep(0.2)


def growth(row: dict[str, Any], before: dict[str, Any], least: dict[str, Any]) -> str:
    """Return how much faster the time grew than the rows since the size before; empty where it hardly grew."""
    gained, had = row["cpu"] - least["cpu"], before["cpu"] - least["cpu"]
    if had < 1:
        return ""
    rows, rows_before = (r["vocabulary"] - least["vocabulary"] for r in (row, before))
    return f"{gained / had / (rows / rows_before):.2f}"


def measure(works: list[str], shape: str, blocks: int, vocabulary: int, made_at: Path) -> dict[str, dict[str, Any]]:
    """Save the models that some of `WORK` need, and run it: by its name, what it cost."""
    measured = {}
    with tempfile.TemporaryDirectory(dir=made_at) as scratch:
        places = {name: str(Path(scratch) / name) for name in (*SEEDS, "shelf", "text")}
        text = plugins.default_text() or ""  # made, and cached, only once
        Path(places["text"]).write_text(text[:8000] if shape else text, encoding="utf-8")
        for name in SEEDS:
            if any(f"{{{name}}}" in word for work in works for word in WORK[work]) or (name == "a" and works):
                folder = Path(places[name])
                if shape:
                    of_shape(folder, shapes.shape(shape, blocks), name)
                else:
                    small(folder, vocabulary, name)
                tokenizer_of(vocabulary).save_pretrained(folder)
        for work in works:
            if work == "identify" and not Path(places["shelf"]).exists():
                cost([word.format(**places) for word in WORK["shelf add"]], Path(scratch))
            numbers = {"vocabulary": vocabulary, "sequences": 40 if shape else 200}
            words = [word.format(**places, **numbers) for word in WORK[work]]
            measured[work] = cost(words, Path(scratch))
            print(work, vocabulary, measured[work], file=sys.stderr, flush=True)
    return measured


def main() -> None:
    """Measure what the file lacks, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--work", nargs="*", choices=[*WORK], default=[*WORK])
    parser.add_argument("--shape", default="", help="llama-2-7b, ...: models of this shape instead of small ones")
    parser.add_argument("--blocks", type=int, default=2, help="and of so many of its blocks (default: 2)")
    parser.add_argument("--folder", type=Path, help="where models are written (default: the temporary folder)")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    rows: list[dict[str, Any]] = []
    if arguments.out.exists():
        with arguments.out.open(encoding="utf-8", newline="") as file:
            rows = [*csv.DictReader(file)]
    shape = f"{arguments.shape}, {arguments.blocks} blocks" if arguments.shape else SMALL
    config = shapes.shape(arguments.shape, arguments.blocks) if arguments.shape else {}
    sizes = [int(config["vocab_size"])] if arguments.shape else sorted(arguments.sizes)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    about = {
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    kept = {(row["work"], row["shape"], int(row["vocabulary"])): row for row in rows}
    for vocabulary in sizes:
        missing = [work for work in arguments.work if (work, shape, vocabulary) not in kept]
        made_at = arguments.folder or Path(tempfile.gettempdir())
        for work, row in measure(missing, arguments.shape, arguments.blocks, vocabulary, made_at).items():
            named = {"work": work, "shape": shape, "vocabulary": vocabulary}
            kept[work, shape, vocabulary] = named | row | about
            new = not arguments.out.exists()
            with arguments.out.open("a", encoding="utf-8", newline="") as file:
                table = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
                if new:
                    table.writeheader()
                table.writerow(kept[work, shape, vocabulary])
    print("| command | tokens | CPU s | peak MB | growth of time per growth of rows |\n|---|---:|---:|---:|---:|")
    for work in arguments.work:
        of_work = [kept[work, shape, size] for size in sizes]
        for row in of_work:
            row |= {"cpu": float(row["cpu"]), "vocabulary": int(row["vocabulary"]), "memory": int(row["memory"])}
        for before, row in zip([of_work[0], *of_work], of_work, strict=False):
            ended = "" if int(row["status"]) == 0 else f" (ended with {row['status']})"
            print(
                f"| {work} | {row['vocabulary']:,} | {row['cpu']:.1f} | {row['memory']:,} | "
                f"{growth(row, before, of_work[0])}{ended} |"
            )


if __name__ == "__main__":
    sys.exit(main())
