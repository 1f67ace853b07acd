"""What a study will read and hold, laid out from shapes alone before anything starts.

Two kinds of work. A *pass* runs one model once over its inputs, for all statistics that record what flows through it.
A *unit* is one statistic on one block over all models: features are made once per model and every pair is compared, so
that each tensor is read once whatever the number of pairs. Where the features of all models do not fit into memory
together, the unit is cut into *groups*: those of a group are held, the later models come by one at a time, and are read
once more for each group that they pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from provlab.engine.memory import Budget, budget_for, gigabytes
from provlab.errors import PAIR_FAILURES, InputError, NotComparableError, reason
from provlab.models.checkpoint import Checkpoint
from provlab.statistics import get as get_statistic
from provlab.statistics.base import Model, Need, Options, Statistic, tensor_bytes

Pair = tuple[str, str]
#: where a unit lies: one block of both models, a block of each, or the whole models
Place = int | tuple[int, int] | None
#: statistic -> block -> pairs to compare there
Todo = Mapping[str, Mapping[int | None, Sequence[Pair]]]


@dataclass(frozen=True)
class Group:
    """Models whose features are held together, and those that come by, one at a time."""

    held: tuple[str, ...]
    passing: tuple[str, ...]

    def pairs(self, pairs: Sequence[Pair]) -> tuple[Pair, ...]:
        """Those of `pairs` that are seen here: both held, or one held and the other passing."""
        held, passing = set(self.held), set(self.passing)
        return tuple(pair for pair in pairs if held.issuperset(pair) or (held & set(pair) and passing & set(pair)))


@dataclass(frozen=True)
class Pass:
    """One model, run once over the inputs of these statistics.

    Attributes
    ----------
    model : str
        Its source.
    statistics : tuple of str
        Whose features it leaves.
    tensors, bytes_read : int
        Of the whole model, in the dtype of its files.
    peak : int
        Bytes held at once: the loaded model and the features being made.
    features : int
        Bytes that it leaves.
    """

    model: str
    statistics: tuple[str, ...]
    tensors: int
    bytes_read: int
    peak: int
    features: int


@dataclass(frozen=True)
class Unit:
    """One statistic on one block, over all models.

    Attributes
    ----------
    statistic : str
        Registered name.
    block : int or None
        Counted from 0; None for the whole model.
    pairs : tuple of (str, str)
        To be compared.
    groups : tuple of Group
        One if all features fit into memory.
    tensors : int
        Read, those read again for a later group counted again.
    bytes_read, bytes_needed, bytes_apart : int
        Of these tensors; of each of them once; and once for each pair that it is in.
    peak : int
        Bytes of arrays held at once.
    """

    statistic: str
    block: int | None
    pairs: tuple[Pair, ...]
    groups: tuple[Group, ...]
    tensors: int
    bytes_read: int
    bytes_needed: int
    bytes_apart: int
    peak: int


@dataclass(frozen=True)
class Refused:
    """Pairs that no order of work fits into the memory given."""

    statistic: str
    pairs: tuple[Pair, ...]
    reason: str


@dataclass(frozen=True)
class Schedule:
    """All that a study will do, known before it starts.

    Attributes
    ----------
    models : tuple of str
        Sources, in order.
    passes : tuple of Pass
        Models to be run.
    units : tuple of Unit
        In the order of the statistics and blocks.
    refused : tuple of Refused
        What does not fit; empty unless a limit was given.
    budget : Budget
        Memory that one process may use.
    spilled : int
        Bytes of features kept on disk between the passes and the units; 0 if they stay in memory.
    bytes_to_hash : int
        Of weight files whose SHA-256 is not remembered on this machine yet: each is read once for it.
    """

    models: tuple[str, ...]
    passes: tuple[Pass, ...]
    units: tuple[Unit, ...]
    refused: tuple[Refused, ...]
    budget: Budget
    spilled: int
    bytes_to_hash: int

    @property
    def steps(self) -> tuple[Pass | Unit, ...]:
        """All work, passes first."""
        return (*self.passes, *self.units)

    def pairs(self, statistic: str, source: str) -> set[Pair]:
        """Pairs in which one model is to be compared under one statistic."""
        return {pair for unit in self.units if unit.statistic == statistic for pair in unit.pairs if source in pair}

    @property
    def tensors(self) -> int:
        """Tensors to read."""
        return sum(step.tensors for step in self.steps)

    @property
    def bytes_to_read(self) -> int:
        """Bytes of tensors to read, without what is hashed."""
        return sum(step.bytes_read for step in self.steps)

    @property
    def bytes_needed(self) -> int:
        """Bytes of the tensors that each pass and each unit needs, counted once."""
        return sum(step.bytes_read for step in self.passes) + sum(unit.bytes_needed for unit in self.units)

    @property
    def bytes_pair_by_pair(self) -> int:
        """Bytes that would be read if each pair were tested on its own."""
        runs = ((len(self.pairs(name, step.model)), step) for step in self.passes for name in step.statistics)
        return sum(n * step.bytes_read for n, step in runs) + sum(unit.bytes_apart for unit in self.units)

    @property
    def comparisons(self) -> int:
        """Pairs over all units."""
        return sum(len(unit.pairs) for unit in self.units)

    @property
    def peak(self) -> int:
        """Largest number of bytes of arrays that one process holds, beside the libraries' own."""
        in_memory = 0 if self.spilled else sum(step.features for step in self.passes)
        return in_memory + max((step.peak for step in self.steps), default=0)


def plan(
    models: Mapping[str, Model],
    statistics: Sequence[str],
    options: Options,
    *,
    blocks: Sequence[int] | None = None,
    pairs: Sequence[Pair] | None = None,
    memory: int | str | None = None,
    workers: int = 1,
) -> Schedule:
    """Lay out a study without reading a tensor.

    Parameters
    ----------
    models : mapping
        Source -> model; only shapes, dtypes and anatomies are asked of it.
    statistics, options, blocks, pairs, memory, workers
        As for `provlab.study`. Pairs that a statistic does not apply to are left out.
    """
    wanted = list(pairs) if pairs is not None else list(combinations(models, 2))
    todo = {}
    for name in statistics:
        found, _ = places(get_statistic(name), models, wanted, blocks)
        todo[name] = by_block(found)
    return lay_out(todo, models, options, budget_for(memory, workers), spill=workers > 1)


def places(
    statistic: Statistic, models: Mapping[str, Model], pairs: Sequence[Pair], only: Sequence[int] | None
) -> tuple[dict[Pair, list[int | None]], dict[Pair, Exception]]:
    """Blocks at which a statistic compares each pair, and why it does not compare others."""
    found: dict[Pair, list[int | None]] = {}
    errors: dict[Pair, Exception] = {}
    for pair in pairs:
        try:
            blocks = statistic.blocks(*(models[source] for source in pair))
            if only is not None and blocks != [None]:
                if unknown := [block for block in only if block not in blocks]:
                    raise InputError(
                        f"there is no block {', '.join(map(str, unknown))}: these models have blocks 0 to "
                        f"{len(blocks) - 1}"
                    )
                blocks = [*sorted(set(only))]  # a block counted twice would count twice in Fisher
            found[pair] = blocks
        except PAIR_FAILURES as error:
            errors[pair] = error
    return found, errors


def by_block(places: Mapping[Pair, Sequence[int | None]]) -> dict[int | None, list[Pair]]:
    """Turn pair -> blocks into block -> pairs, blocks in ascending order."""
    found: dict[int | None, list[Pair]] = {}
    for pair, blocks in places.items():
        for block in blocks:
            found.setdefault(block, []).append(pair)
    return dict(sorted(found.items(), key=lambda item: -1 if item[0] is None else item[0]))


def lay_out(todo: Todo, models: Mapping[str, Model], options: Options, budget: Budget, *, spill: bool) -> Schedule:
    """Lay out the work that is left.

    Parameters
    ----------
    todo
        What is to be compared.
    models, options, budget
        Whose shapes, which inputs, how much memory.
    spill
        Features of passes go to disk, because other processes will read them; otherwise only if they are too large.
    """
    refused: list[Refused] = []
    passes = tuple(_passes(todo, models, options, budget, refused))
    kept = sum(step.features for step in passes)
    most = max((step.peak for step in passes), default=0)
    on_disk = spill or max(2 * kept, kept + most) > budget.process
    room = budget.process - (0 if on_disk else kept)
    unmade = {(one.statistic, pair) for one in refused for pair in one.pairs}
    units: list[Unit] = []
    for name, blocks in todo.items():
        for block, pairs in blocks.items():
            left = [pair for pair in pairs if (name, pair) not in unmade]
            unit = _unit(get_statistic(name), block, left, models, options, room, budget, refused)
            if unit.pairs:
                units.append(unit)
    checkpoints: list[object] = [model.checkpoint for model in models.values()]
    to_hash = sum(one.bytes_to_hash() for one in checkpoints if isinstance(one, Checkpoint))
    return Schedule(tuple(models), passes, tuple(units), tuple(refused), budget, kept if on_disk else 0, to_hash)


def _passes(
    todo: Todo, models: Mapping[str, Model], options: Options, budget: Budget, refused: list[Refused]
) -> Iterator[Pass]:
    """One pass for each model that a recorded statistic compares, for those of its statistics that fit."""
    met = {
        name: dict.fromkeys(source for pairs in blocks.values() for pair in pairs for source in pair)
        for name, blocks in todo.items()
        if get_statistic(name).recorded
    }
    for source, model in models.items():
        needs = {}
        for name in (name for name, found in met.items() if source in found):
            try:
                need = get_statistic(name).recording(model, options)
                if budget.given and need.making + need.features > budget.process:
                    raise NotComparableError(_too_large(name, model.name, need.making + need.features, budget))
                needs[name] = need
            except PAIR_FAILURES as error:  # of one model: no reason to end the study of the others
                lost = dict.fromkeys(pair for pairs in todo[name].values() for pair in pairs if source in pair)
                refused.append(Refused(name, tuple(lost), reason(error)))
        if needs:
            peak = max(need.making + need.features for need in needs.values())
            # statistics that record the same leave it once
            kept = sum({get_statistic(name).recorded: need.features for name, need in needs.items()}.values())
            n_tensors = len(model.anatomy.parts)
            yield Pass(source, tuple(needs), n_tensors, _model_bytes(model), peak, kept)


def _unit(
    statistic: Statistic,
    block: int | None,
    pairs: Sequence[Pair],
    models: Mapping[str, Model],
    options: Options,
    room: int,
    budget: Budget,
    refused: list[Refused],
) -> Unit:
    """Cut one unit into groups that fit into `room`."""
    needs: dict[str, Need] = {}
    tensors: dict[str, set[str]] = {}
    working: dict[Pair, int] = {}
    for pair in pairs:
        try:
            for source in (source for source in pair if source not in needs):
                needs[source] = statistic.need(models[source], block, options)
            first, second = (models[source] for source in pair)
            making = max(needs[source].making for source in pair)
            working[pair] = max(making, statistic.comparing(first, second, block, options))
            for source, with_it in ((pair[0], second), (pair[1], first)):
                besides = statistic.need_with(models[source], with_it, block, options)
                tensors.setdefault(source, {*needs[source].tensors}).update(besides)
        except PAIR_FAILURES as error:  # of one model: no reason to end the study of the others
            refused.append(Refused(statistic.name, (pair,), reason(error)))
    pairs = list(working)
    needs = {source: needs[source] for source in models if source in needs}
    if budget.given:
        least = {(a, b): needs[a].features + needs[b].features + working[a, b] for a, b in pairs}
        for a, b in (pair for pair in pairs if least[pair] > room):
            names = f"{models[a].name} and {models[b].name}"
            refused.append(Refused(statistic.name, ((a, b),), _too_large(statistic.name, names, least[a, b], budget)))
        pairs = [pair for pair in pairs if least[pair] <= room]
    features = {source: need.features for source, need in needs.items()}
    groups = tuple(_groups(pairs, features, working, room))
    peaks = (
        sum(features[s] for s in group.held)
        + max((features[s] for s in group.passing), default=0)
        + max(working[pair] for pair in group.pairs(pairs))
        for group in groups
    )
    sizes = {
        s: sum(tensor_bytes(models[s], name, needs[s].rows.get(name)) for name in names) for s, names in tensors.items()
    }
    read = [source for group in groups for source in (*group.held, *group.passing)]
    return Unit(
        statistic.name,
        block,
        tuple(pairs),
        groups,
        tensors=sum(len(tensors[source]) for source in read),
        bytes_read=sum(sizes[source] for source in read),
        bytes_needed=sum(sizes[source] for source in {source for pair in pairs for source in pair}),
        bytes_apart=sum(sizes[a] + sizes[b] for a, b in pairs),
        peak=max(peaks, default=0),
    )


def _groups(
    pairs: Sequence[Pair], features: Mapping[str, int], working: Mapping[Pair, int], room: int
) -> Iterator[Group]:
    """Cut the models of `pairs` into as few groups as fit, so that each pair is seen in exactly one of them."""
    left = [source for source in features if any(source in pair for pair in pairs)]
    spare = room - max((working[pair] for pair in pairs), default=0)
    if sum(features[source] for source in left) <= spare:
        if left:
            yield Group(tuple(left), ())
        return
    spare -= max(features[source] for source in left)  # for the one that comes by
    seen: set[str] = set()
    while left:
        held: list[str] = []
        while left and (not held or sum(features[source] for source in (*held, left[0])) <= spare):
            held.append(left.pop(0))
        seen |= set(held)
        partners = {source for pair in pairs if set(pair) & set(held) for source in pair}
        passing = tuple(source for source in left if source in partners)
        inside = any(set(pair) <= set(held) for pair in pairs)
        if passing or inside:
            # one whose partners were all in earlier groups is not read again
            wanted = tuple(s for s in held if any(s in pair and not set(pair) & (seen - set(held)) for pair in pairs))
            yield Group(wanted, passing)


def _model_bytes(model: Model) -> int:
    return sum(tensor_bytes(model, part.name) for part in model.anatomy.parts)


def _too_large(statistic: str, whose: str, needed: int, budget: Budget) -> str:
    return (
        f"{statistic} of {whose} needs about {gigabytes(needed)} beside the libraries, and {gigabytes(budget.process)} "
        f"of the memory given are left for it in each process; raise the limit to {gigabytes(budget.limit_for(needed))}"
    )
