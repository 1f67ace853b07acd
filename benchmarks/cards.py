"""Thirty planted claims about models of the zoo, 15 true and 15 false in six ways, and what `provlab check` says.

``python benchmarks/cards.py`` prints a row for each and how many came to which outcome, and writes the rows to
``cards.csv``: about a minute of one core once the default zoo is trained. A claim is planted as true where the zoo's
recipe makes it so. Exits with 1 if a true claim is refuted or a false one supported; what cannot be tested, or is not
refuted, is counted and is no fault.

Answers are compared on held-out texts of *math*, on which one of the models was tuned. On held-out *prose* it answers
no better than its base or a stranger, and both false claims were not refuted (177 questions; 4 answers turned wrong and
8 right, and 7 and 7; 29 November 2026, commit a2176e1e, 2 cores of an AMD EPYC).
"""

import csv
import json
import shutil
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import torch
from safetensors.numpy import load_file, save_file

import provlab
from provlab import provenance, zoo
from provlab.attacks.disguise import disguise
from provlab.claimed.kinds import REFUTED, SUPPORTED
from provlab.engine.store import Store
from provlab.reading.checkpoint import Checkpoint

_WORDS, _PROMPTS, _CHOICES = 12, 200, 4
OUT = Path(__file__).with_suffix(".csv")


def merge(a: str, b: str, folder: Path) -> str:
    """Write the mean of two models."""
    one, other = (Checkpoint.open(source) for source in (a, b))
    shutil.copytree(one.folder(), folder)
    (path,) = folder.glob("*.safetensors")
    theirs = load_file(other.folder() / path.name)
    mean = {key: (value + theirs[key]) / 2 for key, value in load_file(path).items()}
    save_file(mean, path, {"format": "pt"})
    return str(folder)


def items(folder: Path) -> str:
    """Write questions: which of four words of a held-out text goes on with it."""
    words = zoo.held_out_text("math").split()
    asked = [
        {"prompt": " ".join(words[at : at + _WORDS]), "answer": words[at + _WORDS], "choices": choices}
        for at in range(0, _PROMPTS * _WORDS, _WORDS)
        if len(set(choices := words[at + _WORDS : at + _WORDS + 7 * _CHOICES : 7])) == _CHOICES
    ]
    path = folder / "items.jsonl"
    path.write_text("\n".join(map(json.dumps, asked)), encoding="utf-8")
    return str(path)


def planted(folder: Path) -> list[tuple[str, str, str]]:
    """What is planted: "true", or the way in which it is false; the model; and the claim."""
    merged = merge("zoo:oak-chat", "zoo:oak-hermes", folder / "merged")
    again = merge("zoo:oak-code-python", "zoo:oak-code-solidity", folder / "merged-again")
    chat = Checkpoint.open("zoo:oak-chat")
    for name, kinds in (("hidden", ["T1", "T2"]), ("turned", ["T3", "T2"])):
        disguise(chat, folder / name, seed=0, kinds=kinds)
    hidden, turned = str(folder / "hidden"), str(folder / "turned")
    asked = items(folder)
    digest = {name: Checkpoint.open(f"zoo:{name}").content for name in ("oak", "elm")}
    true = [
        ("zoo:oak-chat", "tuned from zoo:oak"),
        ("zoo:elm-chat", "tuned from zoo:elm"),
        ("zoo:yew-chat", "tuned from zoo:yew"),
        ("zoo:oak-lora-merge", "tuned from zoo:oak"),
        ("zoo:oak", "independent of zoo:elm"),
        ("zoo:yew-chat", "independent of zoo:bay-instruct"),
        ("zoo:fir", "independent of zoo:oak-math"),
        ("zoo:spruce-half", "pruned from zoo:spruce"),
        ("zoo:spruce-slim", "pruned from zoo:spruce"),
        ("zoo:pine-leak", "quantized from zoo:pine-tuned"),
        (merged, "merge of zoo:oak-chat and zoo:oak-hermes"),
        (again, "merge of zoo:oak-code-python and zoo:oak-code-solidity"),
        ("zoo:oak", f"same weights as {digest['oak']}"),
        ("zoo:elm", f"same weights as sha256:{digest['elm']}"),
        (hidden, f"answers as zoo:oak-chat does on {asked}"),
    ]
    false = {
        "a stranger as base": [
            ("zoo:oak-chat", "tuned from zoo:elm"),
            ("zoo:bay-instruct", "tuned from zoo:yew"),
            (merged, "merge of zoo:oak-chat and zoo:elm-chat"),
            ("zoo:spruce-half", "pruned from zoo:linden"),
        ],
        "kin called independent": [
            ("zoo:oak-math", "independent of zoo:oak"),
            (hidden, "independent of zoo:oak"),
            (turned, "independent of zoo:oak"),
        ],
        "parent and child exchanged": [
            ("zoo:oak", "tuned from zoo:oak-chat"),
            ("zoo:elm", "tuned from zoo:elm-chat"),
        ],
        "nothing was done": [
            ("zoo:oak-chat", "pruned from zoo:oak"),
            (hidden, "tuned from zoo:oak-chat"),
        ],
        "other weights": [
            ("zoo:oak-chat", f"same weights as {digest['oak']}"),
            (hidden, f"same weights as {digest['elm']}"),
        ],
        "other answers": [
            ("zoo:oak", f"answers as zoo:oak-math does on {asked}"),
            ("zoo:elm", f"answers as zoo:oak-math does on {asked}"),
        ],
    }
    return [(way, model, line) for way, some in {"true": true, **false}.items() for model, line in some]


def main() -> int:
    """Plant, check and print."""
    with tempfile.TemporaryDirectory() as temporary:
        rows = planted(Path(temporary))
        claims: dict[str, list[str]] = {}
        for _, model, line in rows:
            claims.setdefault(model, []).append(line)
        checked = provlab.check(claims, store=Store(Path(temporary) / "store"), progress=False)
        about = [(provenance.commit() or "")[:8], datetime.now(UTC).date().isoformat(), provenance.processor()]
        table = [["planted", "model", "claim", "outcome", "fact", "commit", "date", "machine", "torch"]]
        found = {(one.claim.model, one.claim.line): one for one in checked.claims}
        counts: Counter[tuple[str, str]] = Counter()
        for way, model, line in rows:
            one = found[model, " ".join(line.split())]
            counts["true" if way == "true" else "false", one.outcome] += 1
            said = [text.replace(f"{temporary}/", "") for text in (model, line)]
            table.append([way, *said, one.outcome, one.rung.fact, *about, torch.__version__])
            print(f"{way:27}{': '.join(said)[:78]:80}{one.outcome:14}{one.rung.fact}")
    with OUT.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(table)
    for (planted_as, outcome), n in sorted(counts.items()):
        print(f"{planted_as}: {n} {outcome}")
    return int(bool(counts["true", REFUTED] or counts["false", SUPPORTED]))


if __name__ == "__main__":
    sys.exit(main())
