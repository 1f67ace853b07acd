"""Model-diff's costs against the plain transformers loop, on the same network in the same run.

Judging and writing: tokens a second of the library, by vocabulary, length and size, against a bare loop of forward
passes over the same sequences, whose logits nobody reads. Both are compared with what `provlab plan --diff` computes.
Sampling: sequences that a replica exchange evaluates in a second, against chains that are walked one after the other,
each proposal a call of the model. Enumeration: all sequences below a prefix by the prefix tree, against calls of the
model with one sequence, and with 256 at a time. The networks are untrained, which costs the same.

Rates are by CPU time of this process, the best of three rounds in which all ways take turns; what can be compared
between machines is the ratio. Run with the number of digits below the prefix: ``python benchmarks/modeldiff.py 5``.

``python benchmarks/modeldiff.py whole`` measures the command instead: `provlab diff` of two small Llamas at three
sizes of the vocabulary, each in a process of its own, and inputs of 100 tokens at 32,000, written and by replica
exchange. The Llamas are untrained, with a head so large that a token costs about half of what it would under a uniform
law, as in trained ones; B is A with noise; the text is what A writes. Rows are appended to the file that the page *How
it scales* shows, `WHOLE`; names of rows, as further arguments, ask for some of them.
"""

import csv
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

import numpy as np
import tokenizers
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from vocabulary import cost

from provlab.kept import ArrayCache
from provlab.modeldiff import nll, pipeline, reweighting
from provlab.modeldiff.diagnostics import NotConverged, converged
from provlab.modeldiff.generation import write
from provlab.modeldiff.moves import WRITING, Mixture, Move, SingleSite
from provlab.modeldiff.representative import Direction
from provlab.modeldiff.sampler import replica_exchange
from provlab.planning import diff
from provlab.planning.skeleton import Skeleton
from provlab.reading import anatomy
from provlab.statistics.model import Model
from provlab_study.toy_modulo30.moves import SumPreserving
from provlab_study.toy_modulo30.prefix_tree import subtree_nll

ROUNDS = 3
PLAIN = 200  # sequences that the plain loop is given: its rate does not depend on the number
SIZES = ((64, 512), (128, 512), (64, 8192))  # width and vocabulary of the Llamas whose judging is timed
DIGITS = 8
WHOLE = Path(__file__).parents[1] / "src/provlab_study/how_it_scales/whole.csv"
#: vocabulary, tokens of an input, sequences of each model
COMMANDS = {
    "512": (512, 25, 200),
    "32,000": (32_000, 25, 200),
    "128,256": (128_256, 25, 100),
    "32,000, 100 tokens": (32_000, 100, 200),
}
#: vocabulary, tokens of an input, steps of a chain: 60 at 25 tokens gave 22 effective draws of the 100 asked for
EXCHANGES = {"32,000, exchange": (32_000, 25, 400), "32,000, 100 tokens, exchange": (32_000, 100, 100)}
CHAINS = 4  # of an exchange
COLUMNS = (
    "row", "vocabulary", "length", "n", "way", "cpu", "system", "memory", "outputs", "in_z", "each", "rhat", "least",
    "note", "commit", "date", "machine",
)  # fmt: skip
Way = Callable[[], int]  # does some work and returns how many sequences that was


@dataclass(frozen=True)
class Subject:
    """A network, the space it is sampled over, and the moves."""

    name: str
    network: PreTrainedModel
    vocabulary: int
    length: int
    moves: Move | Mixture
    steps: int


def toy(layers: int, heads: int) -> GPT2LMHeadModel:
    """The paper's toy: GPT-2 of width 64 over ten digits (Section 4.1)."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=10, n_positions=DIGITS, n_embd=64, n_layer=layers, n_head=heads, bos_token_id=None, eos_token_id=None
    )
    return GPT2LMHeadModel(config).eval()


def language_model() -> LlamaForCausalLM:
    """A Llama of the zoo's size."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512, hidden_size=128, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4
    )
    return LlamaForCausalLM(config).eval()


def one_by_one(network: PreTrainedModel, tokens: torch.Tensor, batch: int = 1) -> np.ndarray:
    """NLL as a user would write it: the model's logits, and the cross entropy of the tokens that follow."""
    result = []
    with torch.no_grad():
        for some in tokens.split(batch):
            logits = network(input_ids=some).logits[:, :-1]
            losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), some[:, 1:], reduction="none")
            result.append(losses.mean(dim=1))
    return torch.cat(result).double().numpy()


def plain_chain(subject: Subject) -> int:
    """Metropolis at one temperature, single sites, one sequence a call."""
    rng = np.random.default_rng(0)
    present = torch.from_numpy(rng.integers(subject.vocabulary, size=(1, subject.length)))
    energy = one_by_one(subject.network, present)[0]
    for _ in range(PLAIN):
        proposed = present.clone()
        proposed[0, rng.integers(subject.length)] = int(rng.integers(subject.vocabulary))
        new = one_by_one(subject.network, proposed)[0]
        if -rng.standard_exponential() < (energy - new) / 0.2:
            present, energy = proposed, new
    return PLAIN


def exchange(subject: Subject) -> int:
    """Eight temperatures of 32 chains."""
    reader = nll.sequence_nll(subject.network)
    replica_exchange(
        reader,
        vocabulary=subject.vocabulary,
        length=subject.length,
        temperatures=[math.inf, *np.geomspace(1, 0.05, 7)],
        n_chains=32,
        n_steps=subject.steps,
        moves=subject.moves,
        seed=0,
    )
    return reader.evaluations


def rates(ways: dict[str, Way]) -> dict[str, float]:
    """Sequences a CPU second of each way, the best of the rounds."""
    best = dict.fromkeys(ways, 0.0)
    for way in ways.values():
        way()  # the first call of a network is slower
    for _ in range(ROUNDS):
        for name, way in ways.items():
            started = time.process_time()
            done = way()
            best[name] = max(best[name], done / (time.process_time() - started))
    return best


def sampling() -> None:
    """Print one row a network."""
    digits = Mixture((SingleSite(), SumPreserving(4, 30)))
    subjects = [
        Subject("toy, 6 layers", toy(6, 4), 10, DIGITS, digits, 12),
        Subject("toy, 8 layers", toy(8, 8), 10, DIGITS, digits, 12),
        Subject("Llama, 25 tokens", language_model(), 512, 25, WRITING, 3),
    ]
    print(f"{'sampling':<20}{'exchange/s':>12}{'plain/s':>10}{'ratio':>8}{'bare/s':>10}{'bare/exchange':>15}")
    for subject in subjects:
        some = torch.randint(subject.vocabulary, (256, subject.length))
        results = rates(
            {
                "exchange": lambda s=subject: exchange(s),
                "plain": lambda s=subject: plain_chain(s),
                "bare": lambda s=subject, t=some: forward_passes(s.network, t) // (t.shape[1] - 1),
            }
        )
        ratio, bare = results["exchange"] / results["plain"], results["bare"] / results["exchange"]
        print(
            f"{subject.name:<20}{results['exchange']:>12,.0f}{results['plain']:>10,.0f}{ratio:>7.1f}x{results['bare']:>10,.0f}"
            f"{bare:>14.2f}x"
        )


def sized(width: int, vocabulary: int) -> LlamaForCausalLM:
    """A Llama of four blocks."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=4,
        num_attention_heads=4,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def forward_passes(network: PreTrainedModel, tokens: torch.Tensor) -> int:
    """Send sequences through a model, 4,096 tokens at a time, as it is done without any purpose."""
    with torch.inference_mode():
        for some in tokens.split(max(1, 4096 // tokens.shape[1])):
            network(input_ids=some[:, :-1], use_cache=False)
    return tokens[:, 1:].numel()


def judging() -> None:
    """Print one row a network and length."""
    networks = [
        *((f"Llama {width}, {vocabulary:,} tokens", sized(width, vocabulary)) for width, vocabulary in SIZES),
        ("GPT-2 (124M)", GPT2LMHeadModel(GPT2Config()).eval()),
    ]
    print(
        f"{'tokens a second':<28}{'length':>7}{'judged':>9}{'bare':>9}{'bare/judged':>12}{'written':>9}{'planned':>9}"
    )
    for name, network in networks:
        reader = nll.sequence_nll(network)
        bones = Skeleton(name, network.config.to_dict() | {"architectures": [type(network).__name__]})
        for length in (25, 100) if reader.vocabulary < 50_000 else (25,):
            n = max(8, 2_000_000_000 // sum(p.numel() for p in network.parameters()) // length)
            array = np.random.default_rng(0).integers(0, reader.vocabulary, (n, length))
            tokens = torch.from_numpy(array)
            results = rates(
                {
                    "judged": lambda r=reader, a=array: len(r(a)) * (a.shape[1] - 1),
                    "bare": lambda n=network, t=tokens: forward_passes(n, t),
                    "written": lambda r=reader, a=array: (
                        write(r, *a.shape, tempers=[1.0], seed=0)["tokens"][:, 1:].size
                    ),
                }
            )
            model = Model(bones, anatomy.of(bones))
            planned = diff.works({name: model}, length=length, n=1000, dtype="float32")[name]
            print(
                f"{name:<28}{length:>7}{results['judged']:>9,.0f}{results['bare']:>9,.0f}"
                f"{results['bare'] / results['judged']:>11.2f}x{results['written']:>9,.0f}"
                f"{planned.tokens / planned.cpu_seconds:>9,.0f}"
            )


def enumeration(free: int) -> None:
    """Print one row a network: all sequences with `free` digits behind a fixed prefix."""
    head = (3, 1, 4, 1, 5, 9, 2)[: DIGITS - free]
    sequences = 10**free
    prefixes = sum(10**depth for depth in range(free))
    below = np.array(
        [[int(digit) for digit in f"{i:0{free}}"] for i in range(0, sequences, max(1, sequences // PLAIN))]
    )
    tokens = torch.from_numpy(np.concatenate([np.tile(head, (len(below), 1)), below], axis=1))
    print(f"{'enumeration':<16}{'prefixes/s':>11}{'tree/s':>11}{'batch/s':>9}{'plain/s':>9}{'ratio':>8}  same NLL")
    for name, network in (("toy, 6 layers", toy(6, 4)), ("toy, 8 layers", toy(8, 8))):
        measured = nll.sequence_nll(network)
        many = tokens.repeat(8, 1)
        results = rates(
            {
                "tree": lambda m=measured: len(subtree_nll(m, DIGITS, head)),
                "batch": lambda n=network, t=many: len(one_by_one(n, t, 256)),
                "plain": lambda n=network: len(one_by_one(n, tokens)),
            }
        )
        places = [int("".join(map(str, row))) for row in below]
        gap = np.abs(subtree_nll(measured, DIGITS, head)[places] - one_by_one(network, tokens)).max()
        same = "yes" if gap < 1e-5 else f"no, {gap:.1e}"
        print(
            f"{name:<16}{results['tree'] * prefixes / sequences:>11,.0f}{results['tree']:>11,.0f}"
            f"{results['batch']:>9,.0f}{results['plain']:>9,.0f}{results['tree'] / results['plain']:>7.0f}x  {same}"
        )


def certain(folder: Path, vocabulary: int, length: int) -> None:
    """Save two Llamas whose next token is about as certain as a trained one's, and a text of the first: its outputs."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        tie_word_embeddings=False,
    )  # fmt: skip
    network = LlamaForCausalLM(config).eval()
    names = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(3, vocabulary))]
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    head, spread = network.lm_head.weight.data, math.sqrt(0.9 * math.log(vocabulary))
    torch.nn.init.normal_(head, std=spread / math.sqrt(config.hidden_size))  # logits of this spread: half the entropy
    reader = nll.sequence_nll(network, ids=np.arange(3, vocabulary), start=[1])  # without control tokens
    text = 3 + write(reader, 5000 // length, length, tempers=[1.0], seed=0)["tokens"]
    (folder / "text").write_text(" ".join(f"w{token}" for token in text.ravel()), encoding="utf-8")
    for name in "ab":
        network.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        head += 0.2 * head.std() * torch.randn_like(head)


def command(folder: Path, vocabulary: int, length: int, n: int) -> dict[str, Any]:
    """One `provlab diff` in a process of its own."""
    places, result = [str(folder / name) for name in ("a", "b", "text")], folder / "result.json"
    settings = ["--length", str(length), "--sequences", str(n), "--json", str(result)]
    row = cost(["diff", *places[:2], "--text", places[2], *settings], folder)
    sides = json.loads(result.read_text(encoding="utf-8"))["sides"] if not row["status"] else []
    outputs, in_z = ([side[name] for side in sides] for name in ("worth", "effective"))
    return {
        "way": "written", "cpu": row["cpu"], "system": row["system"], "memory": row["memory"],
        "outputs": min(outputs), "in_z": min(in_z), "each": row["cpu"] / min(outputs),
    }  # fmt: skip


def by_exchange(folder: Path, length: int, steps: int) -> dict[str, Any]:
    """Replica exchange of A, its ladder laid from infinity to the model's own temperature."""
    (model,) = pipeline.open_models([str(folder / "a")], progress=False).values()
    started = time.process_time()
    settings = pipeline.Exchange(length, n_chains=CHAINS, n_steps=steps)
    samples = pipeline.exchanged(model, settings, ArrayCache(folder / "kept"))
    seconds, gate = time.process_time() - started, converged(samples)
    try:
        draws = reweighting.reweight(samples)
        z = np.quantile(samples.nll[-1], [0.05, 0.5])
        worth = Direction.from_draws(draws.within(tuple(z)), draws.within(tuple(z)).nll, "A", tuple(z)).effective
        why = ""
    except NotConverged as error:
        worth, why = math.nan, str(error)
    return {
        "way": f"exchange, {CHAINS} chains, {steps} steps, {len(samples.temperatures)} levels", "cpu": seconds,
        "in_z": worth, "each": seconds / worth, "rhat": float(np.nanmax(gate.rhat)), "least": float(gate.ess.min()),
        "note": why,
    }  # fmt: skip


def whole(names: list[str]) -> None:
    """Append rows of the whole command and of replica exchange to `WHOLE`."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True)
    about = {
        "commit": commit.stdout.strip(), "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }  # fmt: skip
    for name in names or [*COMMANDS, *EXCHANGES]:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            vocabulary, length, n = (COMMANDS | EXCHANGES)[name]
            certain(folder, vocabulary, length)
            row = command(folder, vocabulary, length, n) if name in COMMANDS else by_exchange(folder, length, n)
        row = dict.fromkeys(COLUMNS, "") | {"row": name, "vocabulary": vocabulary, "length": length} | row | about
        row |= {"n": n if name in COMMANDS else CHAINS * n}
        print(row, flush=True)
        new = not WHOLE.exists()
        with WHOLE.open("a", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if new:
                table.writeheader()
            table.writerow({key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()})


def main() -> None:
    """Print all tables."""
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["whole"]:
        whole(sys.argv[2:])
        return
    judging()
    print()
    sampling()
    print()
    enumeration(int(sys.argv[1]) if len(sys.argv) > 1 else 5)


if __name__ == "__main__":
    main()
