"""What grows with the vocabulary: CPU seconds and peak memory of the commands at four sizes of it.

Two small Llamas (64 dimensions, 128 hidden units, two blocks) are saved with each vocabulary and compared by the
commands, each in a process of its own. Nothing but the rows of embedding and head differs between the sizes, so what a
command costs more than at the smallest vocabulary, it costs for these rows. All that grows must grow no faster than
they do: the last column is the growth of the time from the size before, per growth of the rows, once the time at the
smallest is taken off; 1 is linear.

The models are random, so that all rows count as untrained, which is the hard case for statistics of such rows.

``python benchmarks/vocabulary.py --out FILE`` prints the table and keeps finished rows in FILE; ``--work`` and
``--sizes`` name some of it. CPU seconds are those of all threads, whatever else the machine does.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tokenizers
import torch
import transformers

SIZES = (512, 32_000, 128_256, 262_144)
WORK = {
    "compare": ["compare", "{a}", "{b}"],
    "phi_jsd": ["compare", "{a}", "{b}", "--statistic", "phi_jsd"],
    "phi_unseen": ["compare", "{a}", "{b}", "--statistic", "phi_unseen"],
    "diff": ["diff", "{a}", "{b}", "--sequences", "200"],
    "tree": ["tree", "{a}", "{b}", "{c}"],
    "shelf": ["shelf", "add", "{a}", "--shelf", "{shelf}"],
}


def made(folder: Path, vocabulary: int, seed: int) -> None:
    """Save a random small Llama, and a tokenizer of as many words."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        tie_word_embeddings=False,
    )
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(vocabulary)}, unk_token="w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="w1", eos_token="w2").save_pretrained(folder)


def cost(arguments: list[str], scratch: Path) -> dict[str, float | int]:
    """Run a command of provlab: CPU seconds (the system's among them), peak memory in MB, exit code."""
    own = {**os.environ, "PROVLAB_CACHE": str(scratch / "cache"), "OMP_NUM_THREADS": "1"}
    with (scratch / "output").open("w") as output:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("provlab"), *arguments],
            stdout=output,
            stderr=output,
            cwd=scratch,
            env=own,
        )
        _, status, usage = os.wait4(process.pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        print((scratch / "output").read_text()[-600:], file=sys.stderr)
    return {
        "cpu": round(usage.ru_utime + usage.ru_stime, 2),
        "system": round(usage.ru_stime, 2),
        "memory": round(usage.ru_maxrss / (1 if sys.platform == "darwin" else 1024)),
        "status": code,
    }


def growth(row: dict[str, float | int], before: dict[str, float | int], least: dict[str, float | int]) -> str:
    """Return how much faster the time grew than the rows since the size before; empty where it hardly grew."""
    gained, had = row["cpu"] - least["cpu"], before["cpu"] - least["cpu"]
    if had < 1:
        return ""
    rows, rows_before = (r["vocabulary"] - least["vocabulary"] for r in (row, before))
    return f"{gained / had / (rows / rows_before):.2f}"


def main() -> None:
    """Measure what FILE lacks, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("vocabulary.jsonl"))
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--work", nargs="*", choices=[*WORK], default=[*WORK])
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    lines = arguments.out.read_text(encoding="utf-8").splitlines() if arguments.out.exists() else []
    rows = {(row["work"], row["vocabulary"]): row for row in map(json.loads, lines)}
    for vocabulary in arguments.sizes:
        missing = [work for work in arguments.work if (work, vocabulary) not in rows]
        with tempfile.TemporaryDirectory() as folder:
            places = {name: str(Path(folder) / name) for name in ("a", "b", "c", "shelf")}
            for seed, name in enumerate("abc" if missing else ""):
                made(Path(places[name]), vocabulary, seed)
            for work in missing:
                row = {"work": work, "vocabulary": vocabulary}
                row |= cost([word.format(**places) for word in WORK[work]], Path(folder))
                rows[work, vocabulary] = row
                with arguments.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    print(f"{time.strftime('%Y-%m-%d')}, commit {commit.stdout.strip()}, {machine}\n")
    print("| command | tokens | CPU s | peak MB | growth of time per growth of rows |\n|---|---:|---:|---:|---:|")
    for work in arguments.work:
        of_work = [rows[work, size] for size in sorted(arguments.sizes)]
        for before, row in zip([of_work[0], *of_work], of_work, strict=False):
            ended = "" if row["status"] == 0 else f" (ended with {row['status']})"
            print(
                f"| {work} | {row['vocabulary']:,} | {row['cpu']:.1f} | {row['memory']:,} | "
                f"{growth(row, before, of_work[0])}{ended} |"
            )


if __name__ == "__main__":
    sys.exit(main())
