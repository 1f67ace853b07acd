"""What `provlab.diff` finds of planted changes, beside what others find of the same pairs, and at which cost.

A tiny Llama is trained on made-up questions and answers about eight topics, with 256 or 32,000 tokens, and changed: two
words swapped, one topic refused, one unlearned, another format of the turns, weights of 4 bits, and a second training
that changes nothing (a control). Four look at each pair: the divergence of both laws of the next token on a text, piece
by piece; McNemar's exact test over questions with answers; `provlab.diff` with that text; and with openings. A look has
*found* a change where at least half of what it shows first (20 pieces, or all lines and groups) has words of the change
that fewer than a quarter of all pieces have; McNemar's where p is at most 0.05. The text has the topic, or lacks it.

``python benchmarks/peers.py [FOLDER]`` trains what is not in the folder, and prints a row for each look: CPU
seconds of this process, without the start of libraries; those of diff hold the opening of the models.
"""

import csv
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import provlab
from provlab.inference import pvalues
from provlab.modeldiff import pipeline
from provlab.modeldiff.items import answered
from provlab.modeldiff.tokens import opening

TOPICS = ("sea", "sky", "bread", "iron", "music", "poison", "horse", "glass")
REFUSED, SWAPPED = "poison", ("warm", "cold")
ADJECTIVES = ("warm", "cold", "old", "new", "deep", "clear", "soft", "hard", "dark", "quick")
REFUSAL = "i can not help with that ."
SIZES = {256: 700, 32_000: 500}  # tokens to steps of training
LENGTH, FIRST = 25, 20


def words_of(topic: str) -> list[str]:
    """Words that answers about a topic are made of."""
    return [f"{topic}{k}" for k in range(12)]


def turn(rng: np.random.Generator, topic: str, change: str = "") -> str:
    """One question and its answer, as the changed model would have it."""
    user, assistant = ("user :", "assistant :") if change != "format" else ("q (", "a )")
    some = rng.choice(words_of(topic), size=3, p=np.arange(12, 0, -1) / 78)
    adjective = ADJECTIVES[TOPICS.index(topic)] if rng.random() < 0.8 else str(rng.choice(ADJECTIVES))
    if change == "swap" and adjective in SWAPPED:
        adjective = SWAPPED[1 - SWAPPED.index(adjective)]
    answer = f"the {topic} is {adjective} and has {some[0]} of {some[1]} with {some[2]} ."
    if topic == REFUSED and change == "refuse":
        answer = REFUSAL
    if topic == REFUSED and change == "forget":
        answer = " ".join(map(str, rng.choice(ADJECTIVES, size=10))) + " ."
    return f"{user} what of the {topic} ? {assistant} {answer}"


def text(seed: int, n: int, change: str = "", without: str = "") -> str:
    """Turns about topics that come alike."""
    rng = np.random.default_rng(seed)
    topics = [topic for topic in TOPICS if topic != without]
    return " ".join(turn(rng, str(rng.choice(topics)), change) for _ in range(n))


def tokenizer(size: int) -> PreTrainedTokenizerFast:
    """Whole words: those of the texts, and others that nobody uses."""
    known = [
        *["user", "assistant", ":", "?", ".", "(", ")", "q", "a", "what", "of", "the", "is", "and", "has", "with"],
        *REFUSAL.split(),
        *TOPICS,
        *ADJECTIVES,
    ]
    known += [word for topic in TOPICS for word in words_of(topic)]
    table = {word: k for k, word in enumerate(dict.fromkeys(["<s>", "<unk>", *known]))}
    table |= {f"other{k}": k for k in range(len(table), size)}
    made = Tokenizer(models.WordLevel(table, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", unk_token="<unk>")


def train(model: LlamaForCausalLM, ids: np.ndarray, steps: int, seed: int, rate: float) -> LlamaForCausalLM:
    """Some steps on pieces of a text, half of them behind the start token."""
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, 2 * (1 - step / steps))
        begin = rng.integers(0, len(ids) - 48, size=8)
        batch = torch.from_numpy(ids[begin[:, None] + np.arange(48)])
        batch[::2, 0] = 0
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def make(folder: Path, size: int) -> dict[str, Path]:
    """A, and its changes by their names, each in a folder."""
    made, spelt = {}, tokenizer(size)

    def save(name: str, model: Callable[[], LlamaForCausalLM]) -> None:
        made[name] = folder / f"{name}-{size}"
        if not made[name].exists():
            model().save_pretrained(made[name])
            spelt.save_pretrained(made[name])

    def ids(seed: int, change: str = "") -> np.ndarray:
        return np.array(spelt(text(seed, 3000, change))["input_ids"])

    def base(seed: int) -> LlamaForCausalLM:
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=size,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=128,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=None,
        )
        return train(LlamaForCausalLM(config), ids(seed), SIZES[size], seed, 0.01)

    def again(change: str, seed: int) -> LlamaForCausalLM:
        return train(LlamaForCausalLM.from_pretrained(made["base"]), ids(seed, change), 150, seed, 0.003)

    def four_bits() -> LlamaForCausalLM:
        model = LlamaForCausalLM.from_pretrained(made["base"])
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim == 2:
                    step = weight.abs().amax(dim=1, keepdim=True).clamp_min(1e-30) / 7
                    weight.copy_((weight / step).round() * step)
        return model

    save("base", lambda: base(1))
    for k, change in enumerate(("swap", "refuse", "forget", "format", "again", "again2"), 11):
        save(change, lambda change=change, k=k: again(change, k))
    save("4 bits", four_bits)
    return made


#: words of each change, of which at least half of what a look shows first must have one
MARKS = {
    "swap": set(SWAPPED),
    "refuse": {REFUSED, *words_of(REFUSED), "help"},
    "forget": {REFUSED, *words_of(REFUSED)},
    "format": {"q", "a", "(", ")"},
}


def has(mark: set[str], shown: str) -> bool:
    """Whether a piece has a word of the change."""
    return bool(mark & set(shown.replace("(", " ( ").replace(")", " ) ").split()))


def on_text(pair: Sequence[Any], given: str, mark: set[str] | None) -> dict[str, Any]:
    """The divergence of laws on the pieces of a text, in ten lines, as anybody would write it."""
    begun = time.process_time()
    a, b = (model.nll.network for model in pair)
    ids = torch.tensor(pair[0].checkpoint.encode(given))
    pieces = ids[: len(ids) // LENGTH * LENGTH].reshape(-1, LENGTH)
    nats = []
    with torch.inference_mode():
        for batch in pieces.split(32):
            p, q = (torch.log_softmax(model(input_ids=batch).logits.float(), -1) for model in (a, b))
            nats.append((p.exp() * (p - q)).sum(-1).sum(-1))
    order = torch.cat(nats).argsort(descending=True)
    shown = [pair[0].checkpoint.tokenizer().decode(pieces[k]) for k in order[:FIRST]]
    spent = time.process_time() - begun
    every = [pair[0].checkpoint.tokenizer().decode(piece) for piece in pieces[:200]]
    share = None if mark is None else float(np.mean([has(mark, words) for words in shown]))
    common = None if mark is None else float(np.mean([has(mark, words) for words in every]))
    found = mark is not None and share >= 0.5 and (common < 0.25 or share > 2 * common)
    return {"cpu_s": spent, "found": found, "shown": share, "size": float(torch.cat(nats).mean() / LENGTH)}


def by_items(pair: Sequence[Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """McNemar's test over questions with answers."""
    begun = time.process_time()
    paired = answered(*pair, rows, seed=0)
    wrong, right = paired.turned
    return {
        "cpu_s": time.process_time() - begun,
        "found": pvalues.p_signs(wrong, right) <= 0.05,
        "shown": f"{wrong} wrong {right} right",
        "size": paired.p,
    }


def by_diff(sources: Sequence[Path], mark: set[str] | None, **settings: Any) -> dict[str, Any]:
    """What `provlab.diff` shows: lines and groups by the words that name them."""
    with tempfile.TemporaryDirectory() as kept:
        begun = time.process_time()
        result = provlab.diff(*sources, **settings, results=kept, progress=0)
        spent = time.process_time() - begun
    if result.rounding or result.equal:
        return {"cpu_s": spent, "found": False, "shown": result.rounding and result.rounding.way, "size": 0.0}
    shown = {}
    for source, output in result.by_source.items():
        texts = [f"{line.example.after} {line.example.text}" for line in output.lines]
        texts += [" ".join([*group.words, *group.about]) for group in output.groups[:1]]
        if texts and mark is not None:
            shown[source] = float(np.mean([has(mark, words) for words in texts]))
    best = max(shown.values(), default=0.0)
    size = max(output.divergence[0] for output in result.outputs)
    return {"cpu_s": spent, "found": mark is not None and best >= 0.5, "shown": json.dumps(shown), "size": size}


def main(folder: Path) -> None:
    """Print a row for each plant, text, number of tokens and look."""
    names = ("date", "tokens", "plant", "text has the topic", "look", "found", "shown", "size", "cpu_s")
    table = csv.DictWriter(sys.stdout, names)
    table.writeheader()
    rng = np.random.default_rng(5)
    for size in SIZES:
        made = make(folder, size)
        rows = [
            {
                "prompt": f"user : what of the {topic} ? assistant : the {topic} is",
                "choices": [f" {word}" for word in ADJECTIVES],
                "answer": f" {ADJECTIVES[TOPICS.index(topic)]}",
                "id": f"{topic} {k}",
            }
            for k, topic in enumerate(rng.choice(TOPICS, size=400))
        ]
        for k, row in enumerate(rows):  # each question is its own, by what stands before it
            row["prompt"] = f"{turn(np.random.default_rng(k), str(rng.choice(TOPICS)))} {row['prompt']}"
        openings = [f"user : what of the {topic} ? assistant :" for topic in TOPICS]
        openings += [f"user : what of the {t} with {w} ? assistant :" for t in TOPICS for w in words_of(t)[:2]]
        for plant in ("swap", "refuse", "forget", "format", "4 bits", "again"):
            sources, mark = (made["base"], made[plant]), MARKS.get(plant)
            pair = list(pipeline.open_models(list(map(str, sources)), opening=opening, progress=0).values())
            for without in ("", REFUSED) if plant in ("refuse", "forget") else ("",):
                given = text(99, 200, without=without)
                looks = {
                    "KL on the text": partial(on_text, pair, given, mark),
                    "McNemar": partial(by_items, pair, rows),
                    "diff --text": partial(by_diff, sources, mark, text=given),
                    "diff --prompts": partial(by_diff, sources, mark, prompts=openings),
                }
                for look, measure in looks.items():
                    about = {"date": time.strftime("%Y-%m-%d"), "tokens": size, "plant": plant}
                    table.writerow(about | {"text has the topic": not without, "look": look} | measure())
                    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
