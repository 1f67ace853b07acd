"""What `provlab.diff` finds of planted changes, beside what others find of the same pairs, and at which cost.

A tiny Llama of 256 tokens is trained on made-up questions and answers about eight topics. It is changed: two words
swapped, one topic refused, one unlearned, another format of the turns, weights of 4 bits, and a second training that
changes nothing (*again*, a control). Others look at each pair: the divergence of both laws of the next token on a text,
piece by piece; McNemar's exact test over questions with answers; and ``modeldiffr scan`` (0.9.3) without its search for
a trigger, where that package is installed. `provlab.diff` has the text, or openings.

A look has *found* a change where at least half of what it shows first (20 pieces, or all lines and groups) has words of
the change that fewer than a quarter of all pieces have; McNemar's where p is at most 0.05, and modeldiffr's where it
raises a flag. A copy of 4 bits and *again* have no words: there `diff` is asked whether the outputs are farther apart
than 8 bits make a model, and, with four siblings as references (A fine-tuned again on other draws of the same text),
whether B is the most changed of the five. The text has the topic, or
lacks it. With 32,000 tokens all are the same models, with rows for tokens that no text has (`larger`).

``python benchmarks/peers.py [FOLDER]`` trains what is not in the folder, and prints a row for each look: CPU
seconds of this process, without the start of libraries and with the opening of the models. ``--ranks`` prints instead
how often B is the most changed among some siblings, or among some other seeds, by the mean, the tail, and both
(`provlab.modeldiff.excess`), over all choices of so many references. One more sibling is so in one of k + 1.
"""

import argparse
import csv
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import provlab
from provlab import provenance
from provlab.inference import pvalues
from provlab.kept import ArrayCache
from provlab.modeldiff import excess, pipeline, reading
from provlab.modeldiff.held_out import N_PIECES
from provlab.modeldiff.held_out import pieces as pieces_of
from provlab.modeldiff.items import answered
from provlab.modeldiff.tokens import opening

TOPICS = ("sea", "sky", "bread", "iron", "music", "poison", "horse", "glass")
REFUSED, SWAPPED = "poison", ("warm", "cold")
ADJECTIVES = ("warm", "cold", "old", "new", "deep", "clear", "soft", "hard", "dark", "quick")
REFUSAL = "i can not help with that ."
PLANTS = ("swap", "refuse", "forget", "format", "4 bits", "again")
SMALL = 256  # tokens
SIZES = {SMALL: (4000, 200), 32_000: (200,)}  # tokens to sequences of `diff`
STEPS, CHANGE_STEPS = 700, 150  # of training a model, and of each change
SIBLINGS, SEEDS, REFERENCES, ITEMS = 6, 5, 4, 100
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
    made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
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
    if size > SMALL:
        return larger(make(folder, SMALL), folder, size)
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
        return train(LlamaForCausalLM(config), ids(seed), STEPS, seed, 0.01)

    def again(change: str, seed: int) -> LlamaForCausalLM:
        return train(LlamaForCausalLM.from_pretrained(made["base"]), ids(seed, change), CHANGE_STEPS, seed, 0.003)

    def four_bits() -> LlamaForCausalLM:
        model = LlamaForCausalLM.from_pretrained(made["base"])
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim == 2:
                    step = weight.abs().amax(dim=1, keepdim=True).clamp_min(1e-30) / 7
                    weight.copy_((weight / step).round() * step)
        return model

    save("base", lambda: base(1))
    save("4 bits", four_bits)
    siblings = [f"sibling {k}" for k in range(1, SIBLINGS + 1)]
    for k, change in enumerate([name for name in PLANTS if name != "4 bits"] + siblings, 11):
        save(change, lambda change=change, k=k: again(change, k))
    for k in range(1, SEEDS + 1):
        save(f"seed {k}", lambda k=k: base(k + 1))
    return made


def larger(small: dict[str, Path], folder: Path, size: int) -> dict[str, Path]:
    """The same models with rows for tokens that no text has.

    The rows are one vector with noise, by gradient descent on the loss of a model's own texts, as training moves rows
    of tokens that never come; all other weights stay.
    """
    spelt, made = tokenizer(size), {}
    for name, source in small.items():
        made[name] = folder / f"{name}-{size}"
        if made[name].exists():
            continue
        model = LlamaForCausalLM.from_pretrained(source)
        ids = spelt(text(98, 200, name if name in MARKS else ""))["input_ids"][:4000]
        batch = torch.tensor(ids).reshape(-1, 50)
        batch[::2, 0] = 0
        with torch.no_grad():
            hidden = model.model(input_ids=batch).last_hidden_state.flatten(0, 1)  # (tokens, d)
            others = math.log(size - SMALL) - model.lm_head(hidden).logsumexp(-1)  # log odds of the rows at zero
        row = torch.zeros(hidden.shape[1], requires_grad=True)
        optimizer = torch.optim.AdamW([row], lr=0.05, weight_decay=0.0)
        for _ in range(600):
            loss = torch.nn.functional.softplus(others + hidden @ row).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        noise = 0.01 * torch.randn(size - SMALL, len(row), generator=torch.Generator().manual_seed(0))
        model.resize_token_embeddings(size, mean_resizing=False)
        with torch.no_grad():
            model.get_input_embeddings().weight[SMALL:] = row + noise
        model.save_pretrained(made[name])
        spelt.save_pretrained(made[name])
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


def opened(sources: Sequence[Path]) -> list[Any]:
    """Models behind their start tokens."""
    return list(pipeline.open_models(list(map(str, sources)), opening=opening, progress=0).values())


def of_words(mark: set[str] | None, shown: Sequence[str]) -> float | None:
    """Share of what is shown that has a word of the change; None where there is no such word."""
    return None if mark is None else float(np.mean([has(mark, words) for words in shown])) if shown else 0.0


def on_text(sources: Sequence[Path], given: str, mark: set[str] | None) -> dict[str, Any]:
    """The divergence of laws on the pieces of a text, in ten lines, as anybody would write it."""
    pair = opened(sources)
    a, b = (model.nll.network for model in pair)
    ids = torch.tensor(pair[0].checkpoint.encode(given))
    pieces = ids[: len(ids) // LENGTH * LENGTH].reshape(-1, LENGTH)
    nats = []
    with torch.inference_mode():
        for batch in pieces.split(32):
            p, q = (torch.log_softmax(model(input_ids=batch).logits.float(), -1) for model in (a, b))
            nats.append((p.exp() * (p - q)).sum(-1).sum(-1))
    order = torch.cat(nats).argsort(descending=True)
    spell = pair[0].checkpoint.tokenizer().decode
    share = of_words(mark, [spell(pieces[k]) for k in order[:FIRST]])
    common = of_words(mark, [spell(piece) for piece in pieces[:200]])
    found = None if share is None or common is None else share >= 0.5 and (common < 0.25 or share > 2 * common)
    return {"found": found, "shown": share, "size": float(torch.cat(nats).mean() / LENGTH)}


def by_items(sources: Sequence[Path], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """McNemar's test over questions with answers."""
    paired = answered(*opened(sources), rows, seed=0)
    wrong, right = paired.turned
    found = pvalues.p_signs(wrong, right) <= 0.05
    return {"found": found, "shown": f"{wrong} wrong {right} right", "size": paired.p}


def by_modeldiffr(sources: Sequence[Path], mark: set[str] | None) -> dict[str, Any]:
    """Probes, most of them with words of the vocabulary."""
    models = [HFBackend(str(source), device="cpu", dtype="float32") for source in sources]
    scan = run_scan(*models, search_steps=0)
    flagged = [row["text"] for row in scan["outliers"]]
    share = of_words(mark, [text.lower() for text in flagged])
    found = bool(flagged) if share is None else share >= 0.5
    return {"found": found, "shown": json.dumps(flagged[:3]), "size": scan["summary"]["sweep_score"]}


def by_diff(sources: Sequence[Path], mark: set[str] | None, **settings: Any) -> dict[str, Any]:
    """What `provlab.diff` shows: lines and groups by the words that name them; with references B's rank."""
    with tempfile.TemporaryDirectory() as kept:
        result = provlab.diff(*sources, **settings, results=kept, progress=0)
    if result.rounding or result.equal:
        return {"found": False, "shown": result.rounding and result.rounding.way, "size": 0.0}
    size = max(output.divergence[0] for output in result.outputs)
    if result.gates:
        return {"found": result.decided.word == "failed", "shown": result.decided.word, "size": size}
    if among := result.apart.among:
        far = {True: "larger", False: "not larger", None: "open"}[result.decision()["larger_than_references"]]
        return {"found": among.p() == among.least, "shown": far, "size": among.p()}
    shown = {}
    for source, output in result.by_source.items():
        texts = [f"{line.example.after} {line.example.text}" for line in output.lines]
        texts += [" ".join([*group.words, *group.about]) for group in output.groups[:1]]
        if texts and mark is not None:
            shown[source] = of_words(mark, texts)
    best = max((share for share in shown.values() if share is not None), default=0.0)
    return {"found": None if mark is None else best >= 0.5, "shown": json.dumps(shown), "size": size}


def questions() -> list[dict[str, Any]]:
    """Questions with answers, each its own by what stands before it."""
    rng, rows = np.random.default_rng(5), []
    for k in range(ITEMS):
        topic = str(rng.choice(TOPICS))
        asked = f"user : what of the {topic} ? assistant : the {topic} is"
        rows.append(
            {
                "prompt": f"{turn(np.random.default_rng(k), str(rng.choice(TOPICS)))} {asked}",
                "choices": [f" {word}" for word in ADJECTIVES],
                "answer": f" {ADJECTIVES[TOPICS.index(topic)]}",
                "id": f"{topic} {k}",
            }
        )
    return rows


def looks(made: dict[str, Path], size: int, plant: str, without: str) -> dict[str, Callable[[], dict[str, Any]]]:
    """What looks at a pair, by its name."""
    sources, mark = (made["base"], made[plant]), MARKS.get(plant)
    numbers = SIZES[size]
    given = text(99, 200, without=without)
    openings = [f"user : what of the {topic} ? assistant :" for topic in TOPICS]
    openings += [f"user : what of the {t} with {w} ? assistant :" for t in TOPICS for w in words_of(t)[:2]]
    of_diff = partial(by_diff, sources, mark)
    siblings = [made[f"sibling {k}"] for k in range(1, REFERENCES + 1)]
    result: dict[str, Callable[[], dict[str, Any]]] = {"KL on the text": partial(on_text, sources, given, mark)}
    if not without:  # neither sees the text
        result["McNemar"] = partial(by_items, sources, questions())
        if HFBackend is not None:
            result["modeldiffr"] = partial(by_modeldiffr, sources, mark)
        result[f"diff --prompts, {numbers[-1]} sequences"] = partial(of_diff, prompts=openings, n=numbers[-1])
    for n in numbers:
        result[f"diff --text, {n:,} sequences"] = partial(of_diff, text=given, n=n)
    if mark is None:  # no words to be found by
        result = {name: look for name, look in result.items() if not name.startswith(("diff", "KL"))}
        result["diff --fail-on outputs"] = partial(of_diff, text=given, n=numbers[-1], fail_on="outputs")
        result["diff --text, 4 siblings"] = partial(of_diff, text=given, n=numbers[-1], references=siblings)
    return result


def ranks(made: dict[str, Path], size: int) -> list[dict[str, Any]]:
    """How often each plant is the most changed of some models, over all choices of references."""
    made = {name: path for name, path in made.items() if size == SMALL or not name.startswith("seed")}
    names = list(made)
    models = opened(list(made.values()))
    tokens = pieces_of(models[0].encode(text(99, 200 if size == SMALL else 60)), LENGTH, N_PIECES)
    begun = time.process_time()
    distances = reading.read(models, tokens, ArrayCache(Path(tempfile.mkdtemp()))).distances
    spent = time.process_time() - begun
    both = (distances + distances.swapaxes(0, 1)) / 2
    rows = []
    for kind in ("sibling", "seed"):
        others = [k for k, name in enumerate(names) if name.startswith(kind)]
        for n in (1, 2, REFERENCES):
            fired: dict[tuple[str, str], list[bool]] = {}
            far: dict[str, list[bool]] = {}

            def look(b: int, references: Sequence[int], plant: str, fired: Any = fired, far: Any = far) -> None:
                rows_of = [names.index("base"), b, *references]
                beside = excess.among(both[np.ix_(rows_of, rows_of)])
                each = beside.to_json()
                for statistic, key in (("both", "rank_p"), ("mean", "rank_p_mean"), ("tail", "rank_p_tail")):
                    fired.setdefault((plant, statistic), []).append(each[key] <= beside.least)
                far.setdefault(plant, []).append(beside.small)

            if len(others) < n:
                continue
            for plant in PLANTS:
                for some in combinations(others, n):
                    look(names.index(plant), some, plant)
            for (plant, statistic), hits in fired.items():
                rows.append(
                    {
                        "tokens": size,
                        "plant": plant,
                        "references": f"{n} {kind}{'s' * (n > 1)}",
                        "statistic": statistic,
                        "most changed": float(np.mean(hits)),
                        "far nearer": float(np.mean(far[plant])),
                        "cpu_s": spent,
                    }
                )
    return rows


HFBackend: Any = None
with suppress(ImportError):
    from modeldiffr.backend import HFBackend
    from modeldiffr.scan.run import run_scan


def about() -> dict[str, str]:
    """Day, commit, machine and version of a measurement."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": (provenance.commit() or "")[:8],
        "machine": provenance.processor(),
        "version": f"provlab {provlab.__version__}, torch {torch.__version__}",
    }


def main() -> None:
    """Print a row for each plant, text, number of tokens and look, or for each statistic and references."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=None)
    parser.add_argument("--ranks", action="store_true")
    parser.add_argument("--plants", nargs="*", choices=PLANTS, default=PLANTS)
    parser.add_argument("--tokens", type=int, nargs="*", choices=SIZES, default=[*SIZES])
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp())
    transformers.utils.logging.disable_progress_bar()
    table: csv.DictWriter[str] | None = None
    for size in arguments.tokens:
        made = make(folder, size)
        opened([made["base"], made["again"]])  # libraries are loaded
        rows: Any = ranks(made, size) if arguments.ranks else measured(made, size, arguments.plants)
        for row in rows:
            if table is None:
                table = csv.DictWriter(sys.stdout, [*row, *about()], lineterminator="\n")
                table.writeheader()
            table.writerow(row | about())
            sys.stdout.flush()


def measured(made: dict[str, Path], size: int, plants: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row for each plant, text and look."""
    for plant in plants:
        for without in ("", REFUSED) if plant in ("refuse", "forget") else ("",):
            for name, look in looks(made, size, plant, without).items():
                begun = time.process_time()
                found = look()
                spent = {"cpu_s": time.process_time() - begun}
                yield {"tokens": size, "plant": plant, "text has the topic": not without, "look": name} | found | spent


if __name__ == "__main__":
    main()
