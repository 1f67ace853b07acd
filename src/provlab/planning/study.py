"""The cost of a study, before anything starts: bytes and memory from shapes alone, hours from rates.

One law for all statistics, whose numbers are in `laws`. Each tensor of a block is read once a model for all statistics
in one process, and once a statistic by several. A model whose activations are compared is loaded, and so read whole,
once, and run once for each kind of features. Each pair is compared once a block:

    T = models * (hashing + loading + runs + blocks * (reading + order of the units)) + pairs * blocks * (product +
        assignment)

Hours are an interval: its ends are the assignment on rows that share no direction and on rows that share strong ones,
between which trained models lie. What a plan cannot know: what else the machine does meanwhile, whether files lie in
the system's cache already, and what the weights hold, as how many tokens are untrained.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

from provlab.engine import memory
from provlab.engine.passes import loaded_bytes
from provlab.errors import InputError, ProvlabError
from provlab.models.canonical import JUDGED
from provlab.models.checkpoint import Checkpoint
from provlab.models.formats.dtypes import itemsize
from provlab.models.steps import BATCH, batch_with_logits, runs_by_blocks
from provlab.planning.laws import LAWS, NO_LAW, Law, mlp_numbers
from provlab.planning.rates import Rates
from provlab.planning.sketch import Sketch
from provlab.statistics import get as get_statistic
from provlab.statistics.model import Model, tensor_bytes
from provlab.statistics.options import Options
from provlab.statistics.phi_jsd import SEQUENCES

Pair = tuple[str, str]
_LOAD = 1.5  # the time for which a number is turned into float32, when a model is loaded
_BROUGHT = 1.25  # the same, of what lies in no block: 1.0 on one processor and 1.8 on another
_WIDENED = 0.45  # the same, where a block is widened into the memory of the one before
_FORWARD = 1.3  # attention, norms and copies, over the products of a forward pass
_PREDICTED = 0.4  # of the time of phi_JSD for as many probabilities: a softmax, and what is measured of each model


@dataclass(frozen=True)
class PlannedJob:
    """One statistic on one block of all models.

    Attributes
    ----------
    statistic, block
        Registered name; counted from 0, or None for the whole model.
    pairs
        To be compared.
    reads
        Source -> tensor -> bytes.
    features
        Source -> bytes of arrays held while its pairs are compared.
    working
        Bytes that a comparison takes above them.
    """

    statistic: str
    block: int | None
    pairs: tuple[Pair, ...]
    reads: Mapping[str, Mapping[str, int]]
    features: Mapping[str, int]
    working: int

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
        In the order of the statistics and blocks.
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
        run = {source for job in self.jobs if job.recorded for source in job.reads}
        return {source: whole_bytes(model) for source, model in self.models.items() if source in run}

    @cached_property
    def reads(self) -> dict[tuple[object, ...], int]:
        """Bytes by model, tensor and place that are read beside passes; by statistic, too, unless all read together."""
        read: dict[tuple[object, ...], int] = {}
        for job in self.jobs:
            for source, names in job.reads.items():
                for name, n in names.items():
                    key = (source, name, job.block, None if self.together else job.statistic)
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

    def from_disk(self, free: int) -> int:
        """Bytes that come from the disk: each once where all fit into so many, as then the system keeps them."""
        distinct = {(source, name): n for (source, name, *_), n in self.reads.items() if source not in self.passes}
        touched = max(sum(distinct.values()) + sum(self.passes.values()), self.bytes_to_hash)
        return touched if touched <= free else self.bytes_to_read + self.bytes_to_hash

    @property
    def bytes_pair_by_pair(self) -> int:
        """Bytes that would be read if each pair were tested on its own."""
        sides = [(job, pair, source) for job in self.jobs for pair in job.pairs for source in pair]
        passes = {(job.statistic, pair, source) for job, pair, source in sides if job.recorded}
        read = sum(sum(job.reads[source].values()) for job, _, source in sides)
        return read + sum(self.passes[source] for *_, source in passes)

    @property
    def bytes_to_hash(self) -> int:
        """Bytes of weight files whose SHA-256 is not remembered on this machine yet: each is read once for it."""
        return sum(model.checkpoint.bytes_to_hash() for model in self.models.values())

    @property
    def waiting(self) -> int:
        """Bytes of features that passes leave for their jobs; unit rows are made of them when a block is compared."""
        left = {
            (source, job.recorded, job.block): n // 2 if LAWS.get(job.statistic, NO_LAW).matchings else n
            for job in self.jobs
            if job.recorded
            for source, n in job.features.items()
        }
        return sum(left.values())

    @property
    def largest(self) -> int:
        """Bytes of arrays that the largest job holds at once: a loaded model, or a job's features."""
        return max([self.loaded, *(sum(job.features.values()) + job.working for job in self.jobs)])

    @property
    def smallest(self) -> int:
        """Bytes of arrays without which some pair cannot be compared."""
        return max((sum(sorted(job.features.values())[-2:]) + job.working for job in self.jobs), default=0)

    def to_fetch(self, sketch: Sketch) -> dict[str, int]:
        """Bytes that come from the hub, by model: all that is missing if it is run, else those of the rows it reads.

        Pickles, and files of a few megabytes, come whole.
        """
        whole = {source for source, model in sketch.models.items() if not isinstance(model.checkpoint, Checkpoint)}
        read = {
            source: {name: n for job in self.jobs for name, n in job.reads.get(source, {}).items()}
            for source in self.models
        }
        return {
            source: missing if source in whole | set(self.passes) else min(missing, sum(read[source].values()))
            for source, missing in sketch.to_fetch.items()
        }


def plan(
    models: Mapping[str, Model],
    statistics: Sequence[str],
    options: Options,
    *,
    blocks: Sequence[int] | None = None,
    workers: int = 1,
) -> Workload:
    """List the work of a study of all pairs without reading a tensor.

    Parameters
    ----------
    models
        From `provlab.planning.sketch.shapes_of`, or opened.
    statistics, options, blocks, workers
        As for `provlab.study`. Pairs that a statistic does not apply to are left out.
    """
    jobs = []
    refused: dict[str, None] = {}
    for name in statistics:
        by_block: dict[int | None, list[Pair]] = {}
        for a, b in combinations(models, 2):
            try:
                places = get_statistic(name).blocks(models[a], models[b])
            except ProvlabError:
                continue
            for block in places:
                if block is None or blocks is None or block in blocks:
                    by_block.setdefault(block, []).append((a, b))
        for block, pairs in by_block.items():
            try:
                jobs.append(_job(name, block, pairs, models, options))
            except ProvlabError as error:  # fewer hidden units than are to be read
                refused[str(error)] = None
    run = {source for job in jobs if job.recorded for source in job.reads}
    loaded = max((loaded_bytes(models[source], options) for source in run), default=0)
    return Workload(models, tuple(jobs), loaded, tuple(refused), workers == 1)


def _job(
    statistic: str, block: int | None, pairs: Sequence[Pair], models: Mapping[str, Model], options: Options
) -> PlannedJob:
    law, read_by = LAWS.get(statistic, NO_LAW), get_statistic(statistic)
    met = dict.fromkeys(source for pair in pairs for source in pair)
    # what is read of a model depends on the MLPs of its partner alone: partners of one shape are asked about once
    mlps = {source: (models[source].anatomy.mlp_width, models[source].anatomy.mlps(block)) for source in met}
    partners: dict[str, dict[object, str]] = {source: {} for source in met}
    for a, b in pairs:
        partners[a][mlps[b]], partners[b][mlps[a]] = b, a
    reads, features, widest = {}, {}, 0
    for source in met:
        model = models[source]
        read: dict[str, int | None] = {}
        for other in partners[source].values():
            read |= read_by.tensors(model, models[other], block, options)
        reads[source] = {name: tensor_bytes(model, name, rows) for name, rows in read.items()}
        if law.matchings:  # float32 rows and their unit rows
            count, units = _mlps(statistic, model, block)
            features[source] = 8 * law.matchings * count * units * law.columns(model, options)
            widest = max(widest, units)
        elif statistic == "phi_jsd":
            features[source] = 4 * options.n_sequences * options.sequence_length * model.anatomy.vocab_size
        else:
            features[source] = sum(4 * n // itemsize(model.checkpoint.dtype(name)) for name, n in reads[source].items())
    working = 8 * widest * widest if law.matchings else 2 * max(features.values())
    return PlannedJob(statistic, block, tuple(pairs), reads, features, working)


def _mlps(statistic: str, model: Model, block: int | None) -> tuple[int, int]:
    """How many MLPs of a block are compared, and how many hidden units of each, of the widest if they differ."""
    experts = [model.anatomy.shape(f"up.{name}", block)[0] for name in model.anatomy.mlps(block) if name]
    if statistic == "phi_u" and experts:
        return len(experts), max(experts)
    return 1, model.anatomy.mlp_width


def whole_bytes(model: Model) -> int:
    """Bytes of all tensors of a model."""
    return sum(tensor_bytes(model, part.name) for part in model.anatomy.parts)


@dataclass(frozen=True)
class Estimate:
    """CPU seconds of a study, by what they go to.

    Attributes
    ----------
    plan : Workload
        The work.
    rates : Rates
        The rates of the machine for which the time is meant.
    workers : int
        Processes like this one.
    hashing, disk, reading, loading, passes, canonical : float
        Seconds: of hashing files; of waiting for the disk; of reading tensors and preparing rows; of loading models, of
        running them over their inputs, and of bringing the units of their MLPs to canonical form meanwhile.
    order : float
        CPU seconds of looking whether units are sorted.
    products : float
        CPU seconds of the similarities. On another device all that is computed there is by the clock (`rates`).
    assignments : (float, float)
        CPU seconds on the easiest and on the hardest rows.
    compared : mapping
        Statistic -> CPU seconds of comparisons that are no matchings.
    left_out : tuple of str
        Statistics for which no law of time is known here; their bytes and memory are counted.
    """

    plan: Workload
    rates: Rates
    workers: int
    hashing: float
    disk: float
    reading: float
    loading: float
    passes: float
    canonical: float
    order: float
    products: float
    assignments: tuple[float, float]
    compared: Mapping[str, float]
    left_out: tuple[str, ...]

    @property
    def others(self) -> float:
        """CPU seconds of comparisons that are no matchings."""
        return sum(self.compared.values())

    @property
    def once(self) -> float:
        """CPU seconds of what is done once a model, however many pairs it stands in."""
        return self.hashing + self.disk + self.reading + self.loading + self.passes + self.canonical + self.order

    @property
    def cpu_seconds(self) -> tuple[float, float]:
        """CPU seconds of the whole, in the easiest and in the hardest case."""
        same = self.once + self.products + self.others
        return same + self.assignments[0], same + self.assignments[1]

    @property
    def seconds(self) -> tuple[float, float]:
        """By the clock. One process multiplies matrices on all its threads; of several each has one core.

        Where a device multiplies, assignments go on side by side, one a core, as far as memory allows.
        """
        low, high = self.cpu_seconds
        if self.workers > 1:
            return low / self.workers, high / self.workers
        threaded = sum(n for name, n in self.compared.items() if LAWS[name].threaded)
        if not self.rates.device_product:  # those of a device are by the clock
            threaded += self.products + self.passes
        saved = threaded * (1 - 1 / self.rates.threads)
        if len(self.plan.models) == 2:  # which are hashed, and read, side by side
            saved += (self.hashing + self.reading + self.order) * (1 - 1 / min(self.rates.threads, 2))
        side_by_side = 1 - 1 / self.rates.cores if self.rates.device_product else 0.0
        easy, hard = (side_by_side * assigned for assigned in self.assignments)
        return low - saved - easy, high - saved - hard


def estimate(
    models: Mapping[str, Model],
    statistics: Sequence[str],
    options: Options,
    rates: Rates,
    *,
    blocks: Sequence[int] | None = None,
    workers: int = 1,
) -> Estimate:
    """Plan a study and estimate its time.

    Parameters
    ----------
    models
        From `provlab.planning.sketch.shapes_of`, or opened.
    statistics, options, blocks, workers
        As for `provlab.study`.
    rates
        From `provlab.planning.rates.measure_rates`, of the device that the options name.

    Raises
    ------
    InputError
        If there is no worker.
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, not {workers}")
    whole = plan(models, statistics, options, blocks=blocks, workers=workers)
    rows = products = easy = hard = 0.0
    held = whole.together and len({job.statistic for job in whole.jobs}) > 1  # for the next statistic of a place
    known: set[object] = set()  # sides whose rows are prepared, and whose gates near each other are found
    compared: dict[str, float] = {}
    left_out: dict[str, None] = {}
    for job in whole.jobs:
        law = LAWS.get(job.statistic, NO_LAW)
        if not law.matchings:
            if law.seconds:
                seconds = sum(law.seconds(models[a], options, rates) for a, _ in job.pairs)
                compared[job.statistic] = compared.get(job.statistic, 0.0) + seconds
            else:
                left_out[job.statistic] = None
            continue
        columns = {source: law.columns(models[source], options) for source in job.reads}
        mlps = {source: _mlps(job.statistic, models[source], job.block) for source in job.reads}
        new = [source for source in job.reads if (source, job.block, job.recorded) not in known]
        known |= {(source, job.block, job.recorded) for source in job.reads if held and job.recorded}
        rows += law.matchings * sum(math.prod(mlps[source]) * columns[source] for source in new)
        for a, b in job.pairs:
            n, widths = law.matchings * min(mlps[a][0], mlps[b][0]), (mlps[a][1], mlps[b][1])
            similarities = min(widths) * max(widths)
            products += n * 2.0 * similarities * min(columns[a], columns[b]) / rates.multiplied
            easy += n * (rates.easy(math.sqrt(similarities)) + rates.call)
            hard += n * (rates.hard(math.sqrt(similarities)) + rates.call)
        if law.written:
            grouping = new if held else [source for pair in job.pairs for source in pair]
            grouped = sum(mlps[source][1] ** 2 for source in grouping) / rates.near
            compared[job.statistic] = compared.get(job.statistic, 0.0) + grouped
    numbers = sum(
        n / itemsize(models[str(source)].checkpoint.dtype(str(name))) for (source, name, *_), n in whole.reads.items()
    )
    runs = [(models[source], law) for source, laws in _runs(whole).items() for law in laws]
    return Estimate(
        whole,
        rates,
        workers,
        hashing=whole.bytes_to_hash / rates.hashed,
        disk=whole.from_disk(memory.free()) / rates.read,
        reading=numbers / rates.turned + rows / rates.prepared,
        loading=sum(_loading(models[source], laws, options, rates) for source, laws in _runs(whole).items()),
        passes=sum(_run(model, law, options, rates) for model, law in runs),
        canonical=sum(
            len(options.blocks or range(model.anatomy.n_blocks)) * _canonical(model, law, rates) for model, law in runs
        ),
        order=_ordered(whole, options) / rates.ordered,
        products=products,
        assignments=(easy, max(easy, hard)),
        compared=compared,
        left_out=tuple(left_out),
    )


def _runs(whole: Workload) -> dict[str, list[Law]]:
    """Law of each run of a model, by model: one for each kind of features, and one for all that the text gives."""
    runs: dict[str, dict[type, Law]] = {}
    for job in whole.jobs:
        if job.recorded:
            for source in job.reads:
                runs.setdefault(source, {}).setdefault(job.recorded, LAWS.get(job.statistic, NO_LAW))
    # a statistic that takes what another recorded runs no model
    origins = {get_statistic(job.statistic).recorded: get_statistic(job.statistic).taken_from for job in whole.jobs}
    return {
        source: _together([law for kind, law in laws.items() if origins.get(kind) not in laws])
        for source, laws in runs.items()
    }


def _together(laws: list[Law]) -> list[Law]:
    """Laws of runs where the one for activations over the text gives predictions, too."""
    written = next((law for law in laws if law.written), None)
    if written is None or not any(law.predicts for law in laws):
        return laws
    return [*(law for law in laws if not (law.written or law.predicts)), replace(written, predicts=True)]


def _ordered(whole: Workload, options: Options) -> float:
    """Numbers that are looked at for the order of units; weights of an MLP once a block where all is done together."""
    numbers, weighed = 0.0, set()
    for job in whole.jobs:
        law = LAWS.get(job.statistic, NO_LAW)
        numbers += sum(law.ordered(whole.models[source], options) for source in job.reads)
        weighed |= {(s, job.block, None if whole.together else job.statistic) for s in job.reads if law.weighed}
    return numbers + sum(mlp_numbers(whole.models[source]) for source, *_ in weighed)


def _canonical(model: Model, law: Law, rates: Rates) -> float:
    """Seconds of bringing one block's units to canonical form, and of what each of them writes."""
    numbers = model.anatomy.mlp_width * model.anatomy.width
    seconds = mlp_numbers(model) / rates.lengths + model.anatomy.mlp_width**2 / rates.near if law.canonical else 0.0
    return seconds + (numbers / rates.lengths + 2.0 * JUDGED * numbers / rates.multiplied if law.written else 0.0)


def _run(model: Model, law: Law, options: Options, rates: Rates) -> float:
    """CPU seconds of running a model over the inputs, or seconds by the clock on another device."""
    inside = sum(math.prod(part.shape) for part in model.anatomy.parts if part.block is not None)
    tokens = options.n_sequences * options.sequence_length
    vocabulary = model.anatomy.vocab_size if law.predicts else 0
    if law.predicts:  # and a run that is rounded
        tokens += min(SEQUENCES, options.n_sequences) * options.sequence_length
    seconds = _FORWARD * 2.0 * (inside + vocabulary * model.anatomy.width) * tokens / rates.forward
    return seconds + _PREDICTED * tokens * vocabulary / rates.divergence


def _loading(model: Model, laws: Sequence[Law], options: Options, rates: Rates) -> float:
    """Seconds of turning a model's numbers into the dtype in which it runs: once, or its blocks with each batch."""
    stored = runs_by_blocks(model.checkpoint, options.dtype)
    if stored is None:
        return _LOAD * _numbers(model) / rates.turned
    if rates.device_product:  # it turns them itself, and keeps them: they are read, and sent
        return whole_bytes(model) / rates.read
    if stored == options.dtype:  # used as they are mapped
        return 0.0
    batches = sum(-(-options.n_sequences // (_at_once(model, options) if law.predicts else BATCH)) for law in laws)
    batches += any(law.predicts for law in laws)  # and one that is rounded
    inside = sum(math.prod(part.shape) for part in model.anatomy.parts if part.block is not None)
    return (_BROUGHT * (_numbers(model) - inside) + _WIDENED * batches * inside) / rates.turned


def _at_once(model: Model, options: Options) -> int:
    return batch_with_logits(options.sequence_length, model.anatomy.vocab_size)


def _numbers(model: Model) -> int:
    return sum(math.prod(part.shape) for part in model.anatomy.parts)
