"""A study of full size rehearsed on synthetic weights: time and memory of some blocks, and what is found there.

Two checkpoints of the true shapes are written into a temporary folder, some of their blocks go through a statistic as
they would in a study, and the folder is removed. The measurements are the cost of reading a block of one model and that
of comparing a block of one pair, apart: a study reads each block once a model, and compares it once a pair.
What a whole study takes, `provlab plan` says.

Synthetic weights are a friendly case. Rows of trained models share directions, for which matching takes longer.

``python benchmarks/full_size.py llama-2-7b --copy noisy --blocks 1``; ``--json`` prints the costs for machines, and
``--help`` the options. Without a shape a tiny one is rehearsed.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import synthetic
from cost import Cost, mean, measure
from numpy.typing import NDArray
from synthetic import Written

from provlab import statistics
from provlab.errors import InputError, ProvlabError
from provlab.inference import pvalues
from provlab.inference.matching import match
from provlab.planning import shapes
from provlab.plots.numbers import format_duration as duration
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.counting import counting
from provlab.running.activations import mlp_activations, random_tokens
from provlab.statistics.base import Features, Statistic
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.phi_match import GateAndUp, PhiMatch
from provlab.statistics.results import BlockResult

Kind = Literal["independent", "noisy", "pruned"]
KINDS: tuple[Kind, ...] = ("independent", "noisy", "pruned")
REHEARSED = ("phi_u", "phi_match")
_PRUNED_TO = {"llama-3.1-8b": "llama-3.2-3b", "tiny": "tiny-pruned"}


@dataclass(frozen=True)
class Rehearsal:
    """Some blocks of a pair of full size, measured.

    Attributes
    ----------
    shapes : (str, str)
        Names of the two shapes.
    kind : str
        How the second came about: "independent", "noisy" (copy) or "pruned" (copy).
    noise : float
        In standard deviations of each tensor; 0 for an independent pair.
    statistic, device : str
        What was computed, and where.
    n_blocks : int
        Blocks rehearsed.
    depths : (int, int)
        Blocks of the whole models.
    vocabulary : int
        Rows of the token tables as written; they play no part in what is measured.
    written : int
        Bytes of both checkpoints.
    read_bytes : int
        Bytes read of one block of one model, in the mean.
    write, read, compare : Cost
        For both checkpoints, for one block of one model, for one block of the pair.
    blocks : tuple of BlockResult
        As the statistic gave them.
    right : tuple of float or None
        Share of units matched with the unit they were copied from, block by block; None for an independent pair.
    """

    shapes: tuple[str, str]
    kind: Kind
    noise: float
    statistic: str
    device: str
    n_blocks: int
    depths: tuple[int, int]
    vocabulary: int
    written: int
    read_bytes: int
    write: Cost
    read: Cost
    compare: Cost
    blocks: tuple[BlockResult, ...]
    right: tuple[float, ...] | None

    def record(self) -> dict[str, Any]:
        """Costs of one block and what came out, for machines."""
        return {
            "statistic": self.statistic,
            "depths": self.depths,
            "read": asdict(self.read),
            "compare": asdict(self.compare),
            "read_bytes": self.read_bytes,
            "log10_p": [block.log10_p for block in self.blocks],
            "right": self.right,
            "table": str(self),
        }

    def __str__(self) -> str:
        a, b = self.shapes
        pair = f"{a} and its noisy copy" if self.kind == "noisy" else f"{a} against {b}, {self.kind}"
        lines_of_costs = [
            (f"write {self.written / 1e9:,.1f} GB", self.write),
            (f"read a block of a model ({self.read_bytes / 1e6:,.0f} MB)", self.read),
            ("compare a block of a pair", self.compare),
        ]
        lines = [f"{pair}: {self.statistic} on {self.n_blocks} of {min(self.depths)} blocks, {self.device}", ""]
        lines.append(f"{'':<33}{'clock':>9}{'CPU':>9}{'peak memory':>13}")
        for name, cost in lines_of_costs:
            lines.append(
                f"{name:<33}{duration(cost.seconds):>9}{duration(cost.cpu_seconds):>9}{cost.memory / 1e9:>10,.2f} GB"
            )
        evidence = ", ".join(
            f"{block.log10_p:,.1f}" + (f" ({self.right[i]:.1%} of the units right)" if self.right else "")
            for i, block in enumerate(self.blocks)
            if block.log10_p is not None
        )
        return "\n".join([*lines, "", f"log10 p by block: {evidence}"])


def rehearse(
    shape: str,
    kind: Kind = "noisy",
    *,
    other: str | None = None,
    statistic: str = "phi_u",
    blocks: int | None = 1,
    noise: float = 0.5,
    vocabulary: int | None = 4096,
    n_sequences: int = 32,
    sequence_length: int = 64,
    device: str = "cpu",
    seed: int = 0,
    folder: Path | None = None,
    progress: bool = False,
) -> Rehearsal:
    """Write a synthetic pair of full size, compare some of its blocks, and remove it.

    Parameters
    ----------
    shape : str
        The shape of the first model, see `provlab.planning.shapes.shape`.
    kind : str
        The second model: "independent" of the first, a "noisy" copy of it, or a "pruned" copy.
    other : str, optional
        Shape of the pruned copy; for llama-3.1-8b it is llama-3.2-3b.
    statistic : str
        "phi_u", or "phi_match" on activations at random tokens (a synthetic model knows no text), which compares
        models of unequal width too.
    blocks : int or None
        How many to write and compare; None is all of them.
    noise : float
        The noise of the copies, in standard deviations of each tensor.
    vocabulary : int or None
        Rows of the token tables that are written; None is the true number.
    n_sequences, sequence_length : int
        Random tokens for phi_match.
    device : str
        Where models are run for phi_match; matching is done by the processor.
    seed : int
        The seed of everything.
    folder : Path, optional
        On whose disk to write; by default the system's temporary folder.
    progress : bool
        Show a bar on stderr while writing.

    Raises
    ------
    ProvlabError
        A name is unknown, the disk is too small, or the statistic does not apply to the pair.
    """
    if kind not in KINDS:
        raise InputError(f"kind must be {', '.join(KINDS)}, not {kind!r}")
    if statistic not in REHEARSED:
        raise InputError(f"statistic must be {' or '.join(REHEARSED)} in a rehearsal, not {statistic!r}")
    if kind == "pruned":
        other = other or _PRUNED_TO.get(shape)
        if other is None:
            raise InputError(f"name the shape of the pruned copy of {shape}: one of {', '.join(shapes.SHAPES)}")
    elif other not in (None, shape):
        raise InputError(f"a pair of kind {kind!r} is of one shape, so it cannot be {shape} and {other}")
    options = Options(seed=seed, device=device, n_sequences=n_sequences, sequence_length=sequence_length)
    names = (shape, other or shape)
    configs = [shapes.shape(name) for name in names]
    depths = (int(configs[0]["num_hidden_layers"]), int(configs[1]["num_hidden_layers"]))
    configs = [
        shapes.truncated(config, blocks or min(depths), name) for config, name in zip(configs, names, strict=True)
    ]
    if vocabulary is not None:
        configs = [config | {"vocab_size": min(vocabulary, config["vocab_size"])} for config in configs]
    with tempfile.TemporaryDirectory(prefix="provlab-rehearsal-", dir=folder) as scratch:
        synthetic.check_room(Path(scratch) / "both", sum(synthetic.n_bytes(config) for config in configs))
        (first, second), write = measure(
            partial(_write, kind, names, configs, Path(scratch), noise=noise, seed=seed, progress=progress)
        )
        # loops are compiled, and the law at this width is known, before anything is timed
        match(*np.random.default_rng(0).standard_normal((2, 512, 64), dtype=np.float32))
        pvalues.spearman(np.random.default_rng(0).permutation(int(configs[1]["intermediate_size"])))
        if statistic == "phi_match":  # a small model is run first, or the library that runs them would be timed too
            tiny = synthetic.synthesise(shapes.shape("tiny", 1), Path(scratch) / "warm")
            _prepared(Model.open(str(tiny.folder)), statistics.get(statistic), options)
        models = Model.open(str(first.folder)), Model.open(str(second.folder))
        read, read_bytes, compare, results = _compare(models, statistics.get(statistic), options)
    return Rehearsal(
        shapes=names,
        kind=kind,
        noise=noise if kind != "independent" else 0.0,
        statistic=statistic,
        device=device,
        n_blocks=len(results),
        depths=depths,
        vocabulary=int(configs[0]["vocab_size"]),
        written=first.n_bytes + second.n_bytes,
        read_bytes=read_bytes,
        write=write,
        read=read,
        compare=compare,
        blocks=tuple(results),
        right=_right(results, _truth(kind, configs, len(results), seed)),
    )


def _write(
    kind: Kind,
    names: tuple[str, str],
    configs: list[dict[str, Any]],
    scratch: Path,
    *,
    noise: float,
    seed: int,
    progress: bool,
) -> tuple[Written, Written]:
    """Write the pair; the second model's seed is the next one."""
    a, b = configs
    folder = scratch / f"{Path(names[1]).stem}-{kind}"
    first = synthetic.synthesise(a, scratch / Path(names[0]).stem, seed=seed, progress=progress)
    if kind == "independent":
        return first, synthetic.synthesise(b, folder, seed=seed + 1, progress=progress)
    parent = Checkpoint.open(first.folder)
    if kind == "noisy":
        return first, synthetic.noisy_copy(parent, folder, noise=noise, seed=seed + 1, progress=progress)
    return first, synthetic.pruned_copy(parent, b, folder, noise=noise, seed=seed + 1, progress=progress)


def _compare(
    models: tuple[Model, Model], statistic: Statistic, options: Options
) -> tuple[Cost, int, Cost, list[BlockResult]]:
    """Cost and bytes of reading a block of a model, cost of comparing a block of the pair, and the results."""
    n_blocks = len(statistic.blocks(*models))
    features: list[Features] = []
    passes, reads, compares = [], [], []
    results: list[BlockResult] = []
    with counting() as count:
        for model in models:
            made, cost = measure(partial(_prepared, model, statistic, options))
            features.append(made)
            passes.append(cost.times(1 / n_blocks))  # what is made in one pass is made for all blocks
        for block in range(n_blocks):
            (a, b), cost = measure(partial(_both, features, block))
            reads.append(cost.times(1 / 2))
            result, cost = measure(partial(statistic.compare_block, a, b, block, options))
            compares.append(cost)
            results.append(result)
            del a, b  # or two blocks would be held at a time
    return mean(passes) + mean(reads), count.tensors // (2 * n_blocks), mean(compares), results


def _both(features: list[Features], block: int) -> tuple[Any, Any]:
    return features[0].block(block), features[1].block(block)


def _prepared(model: Model, statistic: Statistic, options: Options) -> Features:
    """Features of one model; activations at random tokens in place of the text that no synthetic model knows."""
    if not isinstance(statistic, PhiMatch):
        return statistic.prepare(model, options)
    vocabulary, sequences, length = model.anatomy.vocab_size, options.n_sequences, options.sequence_length
    tokens = random_tokens(vocabulary, sequences, length, seed=options.seed)
    activations = mlp_activations(
        model.checkpoint, tokens, kinds=("gate", "up"), device=options.device, dtype=options.torch_dtype
    )
    return GateAndUp(activations["gate"], activations["up"], tokens)


def _truth(kind: Kind, configs: list[dict[str, Any]], n_blocks: int, seed: int) -> list[NDArray[np.int64]] | None:
    """For each block, which unit of the first model each unit of the second was."""
    if kind == "independent":
        return None
    if kind == "noisy":
        return [np.arange(configs[0]["intermediate_size"])] * n_blocks
    return list(synthetic.kept(*configs, seed=seed + 1).units)


def _right(results: list[BlockResult], truth: list[NDArray[np.int64]] | None) -> tuple[float, ...] | None:
    """Share of units whose partner is the unit that they were, by the gates where there are two matchings."""
    if truth is None:
        return None
    shares = []
    for result, units in zip(results, truth, strict=True):
        assert result.matching is not None  # both statistics match units
        matching = result.matching[0] if result.matching.ndim == 2 else result.matching
        # the smaller side is matched into the larger: the copy into its parent
        shares.append(float((matching == units).mean()))
    return tuple(shares)


def main(command: list[str] | None = None) -> None:
    """Rehearse one pair and print what it cost."""
    parser = argparse.ArgumentParser(description="what a pair of full size costs here, measured on synthetic weights")
    parser.add_argument(
        "shape",
        nargs="?",
        default="tiny",
        help="llama-2-7b, llama-3.1-8b, ... (any other word lists them), or a config.json",
    )
    parser.add_argument(
        "--copy",
        default="noisy",
        metavar="KIND",
        help="the second model: noisy or pruned (copy of the first), or independent (default: noisy)",
    )
    parser.add_argument(
        "--other", metavar="SHAPE", help="shape of the pruned copy (default: llama-3.2-3b of llama-3.1-8b)"
    )
    parser.add_argument(
        "--statistic", help="phi_u, or phi_match at random tokens (default: phi_u; for a pruned copy phi_match)"
    )
    parser.add_argument("--blocks", default="1", metavar="N", help="how many to write and compare, or all (default: 1)")
    parser.add_argument(
        "--noise", type=float, default=0.5, help="noise of a copy, in standard deviations (default: 0.5)"
    )
    parser.add_argument(
        "--vocabulary",
        default="4096",
        metavar="N",
        help="rows of the token tables to write, or all; no statistic here depends on them (default: 4096)",
    )
    parser.add_argument(
        "--sequences", type=int, default=32, metavar="N", help="input sequences of phi_match (default: 32)"
    )
    parser.add_argument(
        "--sequence-length", type=int, default=64, metavar="N", help="tokens in each sequence (default: 64)"
    )
    parser.add_argument(
        "--device", default="cpu", help="where phi_match runs the models: cpu, cuda, cuda:1 (default: cpu)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and tokens (default: 0)")
    parser.add_argument(
        "--folder", metavar="FOLDER", help="folder on whose disk to write (default: the temporary folder)"
    )
    parser.add_argument("--json", action="store_true", help="print the costs as JSON")
    arguments = parser.parse_args(command)
    if arguments.folder and not Path(arguments.folder).is_dir():
        raise InputError(f"--folder {arguments.folder} is no folder; give one that exists")
    default = "phi_match" if arguments.copy == "pruned" else "phi_u"
    rehearsal = rehearse(
        arguments.shape,
        arguments.copy,
        other=arguments.other,
        statistic=arguments.statistic or default,
        blocks=_all_or_number("--blocks", arguments.blocks),
        noise=arguments.noise,
        vocabulary=_all_or_number("--vocabulary", arguments.vocabulary),
        n_sequences=arguments.sequences,
        sequence_length=arguments.sequence_length,
        device=arguments.device,
        seed=arguments.seed,
        folder=Path(arguments.folder) if arguments.folder else None,
        progress=sys.stderr.isatty(),
    )
    if arguments.json:
        print(json.dumps(rehearsal.record()))
        return
    print(rehearsal)


def _all_or_number(option: str, text: str) -> int | None:
    """``all`` is None."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{option} must be a whole number of at least 1, or all, not {text!r}")
    return int(text)


if __name__ == "__main__":
    try:
        main()
    except ProvlabError as error:
        sys.exit(f"error: {error}")
