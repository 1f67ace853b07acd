"""The cost of a study, before anything starts: bytes from shapes alone, memory and minutes from a trial.

Each tensor of a block is read once a model for all statistics in one process, and once a statistic by several. A model
whose activations are compared is loaded, and so read whole, once, and run once for each kind of features. Each pair is
compared once a block. How often each of these is done follows from the models and the statistics; what each takes is
measured (`provlab.planning.trial`).
"""

import hashlib
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

from provlab import policy
from provlab.engine.jobs import Place, sides
from provlab.engine.passes import loaded_bytes
from provlab.engine.timing import Taken
from provlab.errors import InputError, ProvlabError
from provlab.planning.sketch import Sketch
from provlab.planning.trial import Trial, trial
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics import get as get_statistic
from provlab.statistics.model import Model, tensor_bytes
from provlab.statistics.options import Options

Pair = tuple[str, str]
_HASHED = 2**26  # bytes that are hashed to time it
_HELD = 3  # times the bytes of its features that a comparison holds, as the engine counts


@dataclass(frozen=True)
class PlannedJob:
    """One statistic at one place of all models.

    Attributes
    ----------
    statistic, place
        Registered name; a block, counted from 0, a block of each, or None for the whole model.
    pairs
        To be compared.
    reads
        (source, block) -> tensor -> bytes.
    """

    statistic: str
    place: Place
    pairs: tuple[Pair, ...]
    reads: Mapping[tuple[str, int | None], Mapping[str, int]]

    @property
    def recorded(self) -> type | None:
        """Kind of features that a pass of the model leaves for this job; None if its tensors are read."""
        return get_statistic(self.statistic).recorded


@dataclass(frozen=True)
class Workload:
    """The work of a study, known from shapes.

    Attributes
    ----------
    models : mapping
        Source -> model.
    jobs : tuple of PlannedJob
        In the order of the statistics and places.
    loaded : int
        Bytes of the largest model that is run.
    refused : tuple of str
        Why some pairs are left out.
    together : bool
        Jobs of all statistics at one place are done in one process, which reads each tensor once for them.
    """

    models: Mapping[str, Model]
    jobs: tuple[PlannedJob, ...]
    loaded: int
    refused: tuple[str, ...]
    together: bool

    @property
    def comparisons(self) -> int:
        """Pairs over all jobs."""
        return sum(len(job.pairs) for job in self.jobs)

    @cached_property
    def passes(self) -> dict[str, int]:
        """Models that are run over the inputs, with the bytes of all their tensors."""
        run = {source for job in self.jobs if job.recorded for source, _ in job.reads}
        return {source: whole_bytes(model) for source, model in self.models.items() if source in run}

    @cached_property
    def reads(self) -> dict[tuple[object, ...], int]:
        """Bytes by model, tensor and block that are read beside passes; by statistic, too, unless all read together."""
        read: dict[tuple[object, ...], int] = {}
        for job in self.jobs:
            for (source, block), names in job.reads.items():
                for name, n in names.items():
                    key = (source, name, block, None if self.together else job.statistic)
                    read[key] = max(n, read.get(key, 0))
        return read

    @property
    def tensors(self) -> int:
        """Tensors to read."""
        return sum(len(self.models[source].anatomy.parts) for source in self.passes) + len(self.reads)

    @property
    def bytes_to_read(self) -> int:
        """Bytes of tensors: each once for a pass, and once for the jobs of its place, or for each of them."""
        return sum(self.passes.values()) + sum(self.reads.values())

    @property
    def bytes_pair_by_pair(self) -> int:
        """Bytes that would be read if each pair were tested on its own."""
        met = [(job, pair, side) for job in self.jobs for pair in job.pairs for side in sides(pair, job.place)]
        passes = {(job.statistic, pair, source) for job, pair, (source, _) in met if job.recorded}
        read = sum(sum(job.reads[side].values()) for job, _, side in met)
        return read + sum(self.passes[source] for *_, source in passes)

    @property
    def bytes_to_hash(self) -> int:
        """Bytes of weight files whose SHA-256 is not remembered on this machine yet: each is read once for it."""
        return sum(model.checkpoint.bytes_to_hash() for model in self.models.values())

    def to_fetch(self, sketch: Sketch) -> dict[str, int]:
        """Bytes that come from the hub, by model: all that is missing if it is run, else those of the rows it reads.

        Pickles, and files of a few megabytes, come whole.
        """
        whole = {source for source, model in sketch.models.items() if not isinstance(model.checkpoint, Checkpoint)}
        read: dict[str, dict[str, int]] = {source: {} for source in self.models}
        for job in self.jobs:
            for (source, _), names in job.reads.items():
                read[source] |= names
        return {
            source: missing if source in whole | set(self.passes) else min(missing, sum(read[source].values()))
            for source, missing in sketch.to_fetch.items()
        }


def plan(
    models: Mapping[str, Model],
    statistics: Sequence[str] | None,
    options: Options,
    *,
    blocks: Sequence[int] | None = None,
    all_blocks: bool = False,
    workers: int = 1,
) -> Workload:
    """List the work of a study of all pairs without reading a tensor.

    Parameters
    ----------
    models
        From `provlab.planning.sketch.shapes_of`, or opened.
    statistics, options, blocks, workers
        As for `provlab.study`. Pairs that a statistic does not apply to are left out, and so is what follows on
        results (`provlab.policy.further`).
    all_blocks
        As for `provlab.policy.first`, which says what a pair is asked.
    """
    at: dict[str, dict[Place, list[Pair]]] = {}
    for a, b in combinations(models, 2):
        for name, everywhere in policy.first(models[a], models[b], statistics, blocks=blocks, all_blocks=all_blocks):
            places = at.setdefault(name, {})
            with suppress(ProvlabError):  # a pair that the statistic does not apply to
                for place in _places(name, models[a], models[b], everywhere):
                    if blocks is None or place is None or place in blocks:
                        places.setdefault(place, []).append((a, b))
    jobs = []
    refused: dict[str, None] = {}
    for name, places in at.items():
        for place, pairs in places.items():
            try:
                jobs.append(_job(name, place, pairs, models, options))
            except ProvlabError as error:  # fewer hidden units than are to be read
                refused[str(error)] = None
    run = {source for job in jobs if job.recorded for source, _ in job.reads}
    loaded = max((loaded_bytes(models[source], options) for source in run), default=0)
    return Workload(models, tuple(jobs), loaded, tuple(refused), workers == 1)


def _places(name: str, a: Model, b: Model, everywhere: bool) -> Sequence[Place]:
    statistic = get_statistic(name)
    if not everywhere:
        return statistic.blocks(a, b)
    statistic.require(a, b)
    return list(product(range(a.anatomy.n_blocks), range(b.anatomy.n_blocks)))


def _job(
    statistic: str, place: Place, pairs: Sequence[Pair], models: Mapping[str, Model], options: Options
) -> PlannedJob:
    read_by = get_statistic(statistic)
    reads: dict[tuple[str, int | None], dict[str, int | None]] = {}
    asked = set()  # what is read of a model depends on the MLPs of its partner alone: one of a shape is asked about
    for pair in pairs:
        for (source, block), (other, its) in zip(sides(pair, place), sides(pair, place)[::-1], strict=True):
            shape = models[other].anatomy.mlp_width, models[other].anatomy.mlps(its)
            if (source, block, shape) not in asked:
                asked.add((source, block, shape))
                tensors = read_by.tensors(models[source], models[other], block, options)
                reads[source, block] = reads.get((source, block), {}) | tensors
    sizes = {
        side: {name: tensor_bytes(models[side[0]], name, rows) for name, rows in names.items()}
        for side, names in reads.items()
    }
    return PlannedJob(statistic, place, tuple(pairs), sizes)


def whole_bytes(model: Model) -> int:
    """Bytes of all tensors of a model."""
    return sum(tensor_bytes(model, part.name) for part in model.anatomy.parts)


@dataclass(frozen=True)
class Estimate:
    """What a study takes, by a trial.

    Attributes
    ----------
    plan : Workload
        The work.
    trial : Trial
        What a block of it took.
    workers : int
        Processes like this one.
    parts : mapping
        In words what is done -> its seconds by the clock of this process and of the processors.
    waiting : int
        Bytes of features that passes leave for their jobs.
    largest, smallest : int
        Bytes of arrays that the largest job holds at once, or a loaded model; and without which some pair cannot be
        compared.
    """

    plan: Workload
    trial: Trial
    workers: int
    parts: Mapping[str, Taken]
    waiting: int
    largest: int
    smallest: int

    @property
    def cpu_seconds(self) -> float:
        """Of the processors."""
        return sum(taken.cpu for taken in self.parts.values())

    @property
    def seconds(self) -> float:
        """By the clock, with so many processes."""
        if self.workers > 1:
            return self.cpu_seconds / self.workers
        return sum(taken.clock for taken in self.parts.values())


def estimate(
    models: Mapping[str, Model],
    statistics: Sequence[str] | None,
    options: Options,
    *,
    blocks: Sequence[int] | None = None,
    workers: int = 1,
    progress: float = False,
) -> Estimate:
    """Plan a study and try a block of it.

    Parameters
    ----------
    models
        From `provlab.planning.sketch.shapes_of`, or opened.
    statistics, options, blocks, workers
        As for `plan`.
    progress
        Show a bar of the trial, at most once in so many seconds.

    Raises
    ------
    InputError
        If there is no worker.
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, not {workers}")
    work = plan(models, statistics, options, blocks=blocks, workers=workers)
    met: tuple[dict[str, set[Pair]], dict[str, set[Pair]]] = {}, {}
    for job in work.jobs:
        met[job.place is None].setdefault(job.statistic, set()).update(job.pairs)
    return summed(work, trial(models, *met, options, progress=progress), workers)


def summed(work: Workload, tried: Trial, workers: int = 1) -> Estimate:
    """Add up what a trial measured over all blocks, models and pairs of a plan."""
    parts: dict[str, Taken] = defaultdict(Taken)
    nothing, kinds = Taken(), tried.kinds
    parts["hash"] = _hashing(work.bytes_to_hash)

    def add(line: str, taken: Taken, times: float = 1) -> None:
        parts[line].clock += times * taken.clock
        parts[line].cpu += times * taken.cpu

    waiting: dict[tuple[str, type], int] = {}
    largest = smallest = 0
    for name, source, whole in dict.fromkeys(
        (job.statistic, source, job.place is None) for job in work.jobs if job.recorded for source, _ in job.reads
    ):
        n_blocks, key = work.models[source].anatomy.n_blocks, ("run", name, (kinds[source],))
        block, beside = (costs.get(key, nothing) for costs in (tried.block, tried.whole))
        add("run models", block, n_blocks)
        add("run models", beside)
        kind = get_statistic(name).recorded
        assert kind is not None
        left = beside.nbytes if whole else n_blocks * block.nbytes
        waiting[source, kind] = max(left, waiting.get((source, kind), 0))
    met = set()
    for job in work.jobs:
        costs = tried.whole if job.place is None else tried.block
        sizes = []
        for side in job.reads:
            taken = costs.get(("read", job.statistic, (kinds[side[0]],)), nothing)
            if (job.statistic, side) not in met:  # where all blocks meet all, each is held
                met.add((job.statistic, side))
                add("read and prepare", taken)
            sizes.append(taken.nbytes)
        for a, b in job.pairs:
            first, second = sorted((kinds[a], kinds[b]))
            add(f"compare by {job.statistic}", costs.get(("compare", job.statistic, (first, second)), nothing))
        sizes.sort()
        smallest = max(smallest, sum(sizes[-2:]))
        largest = max(largest, sum(sizes) + (_HELD - 1) * sum(sizes[-2:]))
    return Estimate(work, tried, workers, dict(parts), sum(waiting.values()), max(largest, work.loaded), smallest)


def _hashing(nbytes: int) -> Taken:
    """Seconds of hashing so many bytes, by the rate of some."""
    some = min(nbytes, _HASHED)
    content, began = bytes(some), time.process_time()
    hashlib.sha256(content).digest()
    seconds = (time.process_time() - began) * nbytes / max(some, 1)
    return Taken(seconds, seconds)
