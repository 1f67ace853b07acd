"""What a study will take, before anything starts: tensors, bytes and memory from shapes, hours from rates.

`shapes_of` opens models without fetching or training any: config and headers are enough. `estimate` puts the schedule
that `schedule.plan` lays out and the machine's `rates` together. Hours are an interval: its ends are the assignment on
rows that share no direction and on rows that share strong ones, between which trained models lie.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from provlab import zoo
from provlab.engine import schedule
from provlab.engine.schedule import Schedule
from provlab.errors import CheckpointError, InputError, ProvlabError
from provlab.fullsize import shapes
from provlab.fullsize.rates import Rates
from provlab.fullsize.skeleton import Skeleton
from provlab.models import anatomy
from provlab.models.checkpoint import Checkpoint
from provlab.models.formats.dtypes import itemsize
from provlab.statistics import get as get_statistic
from provlab.statistics.base import Model, Options, tensor_bytes

SHAPE = "shape:"  # shape:llama-2-7b is a model of that shape that nobody has, shape:llama-2-7b*21 are so many
_MANY = re.compile(r"(shape:[^*]+)\*(\d+)")
_LOAD = 2.0  # numbers are touched about twice when a model is loaded: read and cast
_FORWARD = 1.3  # attention, norms and copies, over the products of a forward pass


@dataclass(frozen=True)
class Sketch:
    """Models known by their shapes.

    Attributes
    ----------
    models : mapping
        Source -> model; of some only the config is there.
    to_fetch : mapping
        Source -> bytes of files that are not on this machine yet.
    refused : mapping
        Source -> why its shapes cannot be known.
    """

    models: Mapping[str, Model]
    to_fetch: Mapping[str, int]
    refused: Mapping[str, str]


@dataclass(frozen=True)
class Estimate:
    """CPU hours of a study, by what they go to.

    Attributes
    ----------
    schedule : Schedule
        What will be read and held.
    rates : Rates
        Of the machine for which the hours are meant.
    workers : int
        Processes like this one.
    hashing, reading, passes : float
        Seconds: of hashing files, of reading tensors and preparing rows, of running models over their inputs.
    products : float
        CPU seconds of the similarities.
    assignments : (float, float)
        CPU seconds on the easiest and on the hardest rows.
    others : float
        CPU seconds of comparisons that are no matchings.
    left_out : tuple of str
        Statistics for which no law of time is known here; their bytes and memory are counted.
    """

    schedule: Schedule
    rates: Rates
    workers: int
    hashing: float
    reading: float
    passes: float
    products: float
    assignments: tuple[float, float]
    others: float
    left_out: tuple[str, ...]

    @property
    def cpu_seconds(self) -> tuple[float, float]:
        """Of the whole, in the easiest and in the hardest case."""
        same = self.hashing + self.reading + self.passes + self.products + self.others
        return same + self.assignments[0], same + self.assignments[1]

    @property
    def seconds(self) -> tuple[float, float]:
        """By the clock. One process multiplies matrices on all its threads; of several each has one core."""
        if self.workers > 1:
            low, high = self.cpu_seconds
            return low / self.workers, high / self.workers
        products = (self.products + self.passes) / self.rates.threads
        same = self.hashing + self.reading + products + self.others
        return same + self.assignments[0], same + self.assignments[1]


def shapes_of(sources: Sequence[str], *, allow_pickle: bool = False) -> Sketch:
    """Open models as far as their shapes go; nothing is fetched but configs and headers, and nothing is trained.

    Parameters
    ----------
    sources
        Folders, hub ids, ``zoo:NAME``, ``zoo:*``, and ``shape:NAME`` or ``shape:NAME*N`` for models of a known shape.
    allow_pickle
        Count a hub model whose weights are pickles, by its config.

    Raises
    ------
    InputError
        If fewer than two distinct models are named.
    CheckpointError
        If the shapes of fewer than two can be known; the message has the first reason.
    """
    names = [name for source in sources for name in _expanded(source)]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"models must be distinct, but given more than once: {', '.join(repeated)}")
    if len(names) < 2:
        raise InputError(f"a plan needs at least two models, not {len(names)}")
    models: dict[str, Model] = {}
    to_fetch: dict[str, int] = {}
    refused: dict[str, str] = {}
    for name in names:
        try:
            models[name], to_fetch[name] = _shapes(name, allow_pickle)
        except ProvlabError as error:
            refused[name] = str(error)
    if len(models) < 2:
        raise CheckpointError(f"fewer than two models can be planned for; {next(iter(refused.values()))}")
    return Sketch(models, to_fetch, refused)


def estimate(
    models: Mapping[str, Model],
    statistics: Sequence[str],
    options: Options,
    rates: Rates,
    *,
    blocks: Sequence[int] | None = None,
    memory: int | str | None = None,
    workers: int = 1,
) -> Estimate:
    """Lay out a study and estimate its time.

    Parameters
    ----------
    models
        From `shapes_of`, or opened.
    statistics, options, blocks, memory, workers
        As for `provlab.study`.
    rates
        From `provlab.fullsize.rates.measure_rates`.

    Raises
    ------
    InputError
        If there is no worker.
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, not {workers}")
    laid = schedule.plan(models, statistics, options, blocks=blocks, memory=memory, workers=workers)
    reading = products = 0.0
    easy = hard = others = 0.0
    left_out: dict[str, None] = {}
    for unit in laid.units:
        reading += unit.bytes_read / rates.read
        met = {source for pair in unit.pairs for source in pair}
        reading += sum(_rows(unit.statistic, models[source], unit.block, options) for source in met) / rates.prepared
        for a, b in unit.pairs:
            work = _matchings(unit.statistic, models[a], models[b], options)
            if work is None:
                seconds = _comparison(unit.statistic, models[a], options, rates)
                others += seconds or 0.0
                left_out |= {} if seconds else {unit.statistic: None}
                continue
            columns = work[1]
            sides = [_mlps(unit.statistic, models[source], unit.block, options) for source in (a, b)]
            n_matchings = work[0] * min(n for n, _ in sides)
            similarities = float(sides[0][1] * sides[1][1])
            products += n_matchings * (2.0 * similarities * columns / rates.product + rates.call)
            size = similarities**0.5
            easy += n_matchings * rates.easy(size)
            hard += n_matchings * rates.hard(size)
    return Estimate(
        laid,
        rates,
        workers,
        hashing=laid.bytes_to_hash / rates.hashed,
        reading=reading,
        passes=sum(_pass(models[step.model], options, rates) for step in laid.passes),
        products=products,
        assignments=(easy, max(easy, hard)),
        others=others,
        left_out=tuple(left_out),
    )


def _matchings(statistic: str, a: Model, b: Model, options: Options) -> tuple[int, int] | None:
    """How many matchings a comparison takes, and over how many columns; None if it is no matching."""
    return {
        "phi_u": (1, min(a.anatomy.width, b.anatomy.width)),
        "phi_views": (2, min(a.anatomy.width, b.anatomy.width)),
        "phi_h": (1, options.kept_tokens),
        "phi_match": (2, options.kept_tokens),
        "phi_match_unsigned": (2, options.kept_tokens),
    }.get(statistic)


def _comparison(statistic: str, model: Model, options: Options, rates: Rates) -> float | None:
    """CPU seconds of comparing a block (or all) of two models without matching; None if nothing is known of it."""
    if statistic == "phi_l2":
        size = sum(math.prod(part.shape) for part in model.anatomy.parts if part.block == 0)
        return size * (options.n_permutations + 1) / rates.permuted
    if statistic == "phi_l2_blocks":  # the Gram matrix of the MLPs' units, in float64
        numbers = 3 * model.anatomy.mlp_width * model.anatomy.width
        return 2.0 * 2.0 * numbers * model.anatomy.mlp_width / rates.product
    tokens, width = model.anatomy.vocab_size, model.anatomy.width
    if statistic == "phi_e":
        return rates.hard(width) + 2.0 * tokens * width**2 / rates.product
    if statistic in ("phi_axes", "stream_score"):  # products of embeddings and a decomposition, in float64
        return 2.0 * (6.0 * tokens + 25.0 * width) * width**2 / rates.product
    if statistic == "phi_jsd":
        return options.n_sequences * options.sequence_length * model.anatomy.vocab_size / rates.divergence
    return None


def _rows(statistic: str, model: Model, block: int | None, options: Options) -> float:
    """Numbers that are made into unit rows for one block of one model."""
    work = _matchings(statistic, model, model, options)
    return 0.0 if work is None else float(math.prod((*work, *_mlps(statistic, model, block, options))))


def to_fetch(sketch: Sketch, laid: Schedule, options: Options) -> dict[str, int]:
    """Bytes that come from the hub, by model: all that is not here if it is run, else those of the rows that are read.

    Files of a few megabytes come whole all the same.
    """
    whole = {step.model for step in laid.passes}
    read: dict[str, dict[str, int]] = {source: {} for source in sketch.models}
    for unit in laid.units:
        for source in {source for pair in unit.pairs for source in pair}:
            model = sketch.models[source]
            need = get_statistic(unit.statistic).need(model, unit.block, options)
            for name in need.tensors:
                read[source][name] = tensor_bytes(model, name, need.rows.get(name))
    return {
        source: n if source in whole else min(n, sum(read[source].values())) for source, n in sketch.to_fetch.items()
    }


def _mlps(statistic: str, model: Model, block: int | None, options: Options) -> tuple[int, int]:
    """How many MLPs of a block are compared, and how many hidden units of each, of the widest if they differ."""
    experts = [model.anatomy.shape(f"up.{name}", block)[0] for name in model.anatomy.mlps(block) if name]
    if statistic == "phi_u" and experts:
        return len(experts), max(experts)
    return 1, options.units or model.anatomy.mlp_width


def _pass(model: Model, options: Options, rates: Rates) -> float:
    """CPU seconds of loading a model and running it over the inputs, tables of tokens not multiplied."""
    parts = model.anatomy.parts
    sizes = [math.prod(part.shape) for part in parts]
    inside = sum(size for size, part in zip(sizes, parts, strict=True) if part.block is not None)
    tokens = options.n_sequences * options.sequence_length
    load = sum(sizes) * (_LOAD / rates.prepared + itemsize(model.checkpoint.dtype(parts[0].name)) / rates.read)
    return load + _FORWARD * 2.0 * inside * tokens / rates.product


def _expanded(source: str) -> Iterator[str]:
    """Sources that one stands for."""
    if match := _MANY.fullmatch(source):
        yield from (f"{match[1]}#{i}" for i in range(1, int(match[2]) + 1))
    else:
        yield source


def _shapes(source: str, allow_pickle: bool) -> tuple[Model, int]:
    """One model known by its shapes, and bytes of it that are not here."""
    if source.startswith(SHAPE):
        name = source.removeprefix(SHAPE)
        return _bare(name, shapes.shape(name.partition("#")[0])), 0
    if source.startswith("zoo:"):
        _require_built(source)
    checkpoint = Checkpoint.open(source, allow_pickle=allow_pickle)
    missing = checkpoint.bytes_to_fetch()
    return Model(checkpoint, anatomy.of(checkpoint)), missing


def _bare(name: str, config: dict[str, Any]) -> Model:
    """Return a model of which only the config is there."""
    bones = Skeleton(name, config)
    return Model(cast(Checkpoint, bones), anatomy.of(bones))


def _require_built(source: str) -> None:
    """Raise CheckpointError for a zoo model that would have to be trained to be opened."""
    name, _, edition = source.removeprefix("zoo:").partition("@")
    rows = {row.name: row.built for row in zoo.status(edition or zoo.default_edition())}
    if rows.get(name) is False:
        raise CheckpointError(f"{source} is not trained yet; provlab zoo build {name} trains it")
