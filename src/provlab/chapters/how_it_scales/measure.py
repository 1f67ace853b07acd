"""What matching, reading and whole studies cost: measured here, and estimated for machines that we do not have."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from provlab.api import expand
from provlab.engine.pairs import open_models, run_pairs
from provlab.modeldiff.generation import write
from provlab.modeldiff.pipeline import open_models as open_readers
from provlab.models.counting import counting
from provlab.planning import diff
from provlab.planning import matching_speed as speed
from provlab.planning.cost import Cost, measure
from provlab.planning.matching_speed import Timing
from provlab.planning.rates import Rates
from provlab.planning.rehearsal import Kind, Rehearsal, rehearse
from provlab.planning.sketch import shapes_of
from provlab.planning.study import Estimate, estimate, plan
from provlab.statistics.base import Model, Options

# name of a way -> the field of a Timing that holds its CPU seconds
WAYS = {"provlab": "ours", "reference": "reference"}
_TIMED = 200  # sequences that are judged and written to time them: as many as a chain of Model-diff's


def assignments(kinds: Sequence[str], sizes: Sequence[int], columns: int, *, seed: int) -> list[Timing]:
    """Time the assignment alone, both ways, on each kind of rows and each size."""
    return [
        speed.time_assignment(kind, n, n, columns, seed=seed)
        for kind in tqdm(kinds, desc="kinds of rows")
        for n in sizes
    ]


def exponents(timings: Sequence[Timing]) -> dict[tuple[str, str], float]:
    """Fitted growth with the number of rows, by kind of rows and way."""
    fitted = {}
    for kind in dict.fromkeys(timing.kind for timing in timings):
        of_kind = [timing for timing in timings if timing.kind == kind]
        for way, field in WAYS.items():
            fitted[kind, way] = speed.exponent([t.rows for t in of_kind], [getattr(t, field) for t in of_kind])
    return fitted


@dataclass(frozen=True)
class BytesRead:
    """Bytes of tensors that a study of all pairs reads.

    Attributes
    ----------
    models : mapping
        The models of the study, opened.
    n_pairs : int
        All of them.
    needed, study, pair_by_pair : int
        Each tensor once, by the schedule; counted in the study; counted when every pair is a study of its own.
    cost : Cost
        Of the study.
    """

    models: Mapping[str, Model]
    n_pairs: int
    needed: int
    study: int
    pair_by_pair: int
    cost: Cost

    def record(self) -> dict[str, int]:
        """As it is kept, and as the rows of its table are called."""
        return {"needed": self.needed, "study": self.study, "pair by pair": self.pair_by_pair}


def bytes_read(models: Sequence[str], *, seed: int) -> BytesRead:
    """Run phi_U on all pairs, as one study and pair by pair, and count what is read each time."""
    sources = [str(source) for source in expand(models)]
    bench = open_models(sources)
    options = Options(seed=seed)
    pairs = list(combinations(sources, 2))
    with counting() as together:
        _, cost = measure(partial(run_pairs, bench, ["phi_u"], options, progress=False))
    with counting() as apart:
        for pair in tqdm(pairs, desc="pair by pair", unit="pair"):
            run_pairs(bench, ["phi_u"], options, pairs=[pair], progress=False)
    return BytesRead(
        bench.models,
        len(pairs),
        plan(bench.models, ["phi_u"], options).bytes_to_read,
        together.tensors,
        apart.tensors,
        cost,
    )


def rehearsals(shape: str, pruned_shape: str, blocks: int, *, seed: int) -> dict[str, Rehearsal]:
    """Rehearse phi_U on an independent pair and a noisy copy, and phi_MATCH on a pruned one if a shape is given."""
    kinds: tuple[Kind, ...] = ("independent", "noisy")
    done: dict[str, Rehearsal] = {
        kind: rehearse(shape, kind, blocks=blocks, noise=0.5, seed=seed) for kind in tqdm(kinds, desc=shape)
    }
    if pruned_shape:
        done["pruned"] = rehearse(
            pruned_shape, "pruned", statistic="phi_match", blocks=blocks, noise=0.5, n_sequences=16, seed=seed
        )
    return done


def rehearsal_record(rehearsal: Rehearsal) -> dict[str, Any]:
    """Costs of one block and what came out, as kept in the records."""
    return {
        "read": vars(rehearsal.read),
        "compare": vars(rehearsal.compare),
        "read_bytes": rehearsal.read_bytes,
        "log10_p": [block.log10_p for block in rehearsal.blocks],
        "right": rehearsal.right,
    }


@dataclass(frozen=True)
class Estimated:
    """CPU seconds of one task, the interval estimated beforehand beside what was measured."""

    what: str
    estimated: tuple[float, float]
    measured: float


def estimates(
    shape: str, whole: Estimate, done: Mapping[str, Rehearsal], read: BytesRead, rates: Rates, *, seed: int
) -> list[Estimated]:
    """Compare estimates with the rehearsals of phi_U, a block each, and with the study that was read byte by byte."""
    units = whole.plan.comparisons
    easy, hard = ((whole.products + seconds) / units for seconds in whole.assignments)
    small = estimate(read.models, ["phi_u"], Options(seed=seed), rates)
    return [
        *(
            Estimated(f"one block, {shape}, {kind}", (easy, hard), rehearsal.compare.cpu_seconds)
            for kind, rehearsal in done.items()
            if rehearsal.statistic == "phi_u"
        ),
        Estimated(f"all {read.n_pairs} pairs that were read above", small.cpu_seconds, read.cost.cpu_seconds),
    ]


@dataclass(frozen=True)
class Bill:
    """What a study costs somewhere.

    Attributes
    ----------
    label
        Where; a second line may say that it was not run.
    seconds
        What the time goes to -> seconds by the clock.
    at_most
        Seconds of the whole in the worst case.
    """

    label: str
    seconds: Mapping[str, float]
    at_most: float

    @classmethod
    def of(cls, label: str, whole: Estimate, *, share: float = 1.0) -> "Bill":
        """Write the bill of an estimate, if `share` of the work falls to the machine that works longest."""
        easy, hard = whole.assignments
        parts = {"read": whole.reading + whole.hashing, "multiply": whole.products, "assign": easy}
        seconds = {name: part * share for name, part in parts.items()}
        return cls(label, seconds, sum(seconds.values()) + (hard - easy) * share)

    def record(self) -> dict[str, Any]:
        """As kept in the records."""
        total = sum(self.seconds.values())
        return {"label": self.label, "seconds": dict(self.seconds), "total": total, "at_most": self.at_most}


def bills(
    models: Mapping[str, Model], whole: Estimate, rates: Rates, *, workers: int, teraflops: float, seed: int
) -> Iterator[Bill]:
    """All pairs under phi_U: on this machine, on workers with one such core each, on a GPU beside one core."""
    gpu = replace(rates, product=teraflops * 1e12, threads=1.0)
    on_gpu = estimate(models, ["phi_u"], Options(seed=seed), gpu)
    yield Bill.of(f"this machine\n{rates.cores} processes, one for each core", whole, share=1 / rates.cores)
    yield Bill.of(f"{workers} workers of one such core\nestimated, not run here", whole, share=1 / workers)
    yield Bill.of(f"a GPU of {teraflops:g} teraflop/s and a core\nestimated, not run here", on_gpu)


@dataclass(frozen=True)
class DiffCost:
    """What one model of a comparison by Model-diff takes.

    Attributes
    ----------
    model, length
        Its source, and tokens of an input.
    vocabulary
        Its tokens.
    planned
        From shapes and rates.
    judged, written, bare
        Tokens a CPU second, measured: judged, written, and sent through the model without any purpose; None for a
        shape without weights.
    """

    model: str
    length: int
    vocabulary: int
    planned: diff.Work
    judged: float | None = None
    written: float | None = None
    bare: float | None = None


def diff_costs(
    sources: Sequence[str], published: Sequence[str], lengths: Sequence[int], n: int, rates: Rates, *, seed: int
) -> list[DiffCost]:
    """Plan Model-diff for models and for shapes that nobody has here, and measure the first.

    Parameters
    ----------
    sources, published
        Models, and names of shapes.
    lengths, n
        Tokens of an input, and sequences that each model writes.
    rates
        Of this machine.
    seed
        Of the random sequences whose judging is timed.
    """
    found = []
    known = shapes_of([*sources, *(f"shape:{name}" for name in published)]).models
    for source, model in known.items():
        for length in lengths:
            planned = diff.work(model, length=length, n=n, dtype="float32", rates=rates)
            speeds = _speeds(source, length, seed) if source in sources else {}
            found.append(DiffCost(source, length, model.anatomy.vocab_size, planned, **speeds))
    return found


def _speeds(source: str, length: int, seed: int) -> dict[str, float]:
    """Tokens a CPU second of one model: the quicker of two rounds that take turns."""
    (reader,) = (model.nll for model in open_readers([source], progress=False).values())
    tokens = np.random.default_rng(seed).integers(0, reader.vocabulary, (_TIMED, length))

    def bare() -> None:
        for begin in range(0, _TIMED, max(1, 4096 // length)):
            with torch.inference_mode():
                reader.read(torch.from_numpy(tokens[begin : begin + max(1, 4096 // length), :-1]), use_cache=False)

    ways = {
        "judged": lambda: reader(tokens),
        "written": lambda: write(reader, _TIMED, length, tempers=[1.0], seed=seed),
        "bare": bare,
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(2):
        for name, way in ways.items():
            _, cost = measure(way)
            best[name] = min(best[name], cost.cpu_seconds)
    return {name: _TIMED * (length - 1) / seconds for name, seconds in best.items()}
