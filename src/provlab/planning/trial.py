"""A trial: what one block of a study takes on this machine and device, measured by the code that the study runs.

For each kind of model, which is all that have the same tensors in a block, one or two stand-ins with random numbers are
written (`provlab.planning.stand_in`) and compared twice: what grows with the blocks with few tokens, and what reads the
whole model with all of them. So no statistic says what it costs; one that a reader registered is tried like the others.

Random models are strangers of an initialisation. What a plan cannot know stays out: what else the machine does
meanwhile, how fast a disk gives files that the system does not hold, and what the weights hold, as how many units are
alone with their partner.
"""

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from provlab.engine.memory import free
from provlab.engine.pairs import open_models, run_pairs
from provlab.engine.timing import Taken, timing
from provlab.errors import PAIR_FAILURES, reason
from provlab.planning.shapes import shape
from provlab.planning.sketch import model_of
from provlab.planning.stand_in import write_stand_in
from provlab.statistics import get as get_statistic
from provlab.statistics.model import Model, tensor_bytes
from provlab.statistics.options import Options

FEW = 512  # tokens of the stand-ins whose blocks are compared
#: which no stand-in has a tokenizer for: ids are drawn
_TEXT = "a page that is read for as long as the trial needs it, and says nothing"
#: what is done, for which statistic, and the kinds of the models
Work = tuple[str, str, tuple[int, ...]]
Jobs = Mapping[str, Iterable[tuple[str, str]]]


@dataclass(frozen=True)
class Trial:
    """Measured costs of the parts of a study.

    Attributes
    ----------
    kinds : mapping
        Source -> number of its kind.
    block, whole : mapping
        What a part takes for one block, and for a whole model or pair beside its blocks.
    failed : mapping
        Statistic -> why it could not be tried.
    seconds : float
        By the clock, that the trial took.
    """

    kinds: Mapping[str, int]
    block: Mapping[Work, Taken]
    whole: Mapping[Work, Taken]
    failed: Mapping[str, str]
    seconds: float


def kinds_of(models: Mapping[str, Model]) -> dict[str, int]:
    """Number the kinds of models: those of one kind have the same tensors in a block and beside the blocks."""
    numbers: dict[object, int] = {}
    kinds = {}
    for source, model in models.items():
        parts = [part for part in model.anatomy.parts if part.block in (None, 0)]
        about = (model.anatomy.architecture, *((part.name, tensor_bytes(model, part.name)) for part in parts))
        kinds[source] = numbers.setdefault(about, len(numbers))
    return kinds


def trial(
    models: Mapping[str, Model], blocks: Jobs, whole: Jobs, options: Options, *, progress: float = False
) -> Trial:
    """Try a study.

    Parameters
    ----------
    models
        Known by their shapes.
    blocks, whole
        Statistic -> pairs that it compares by blocks; as whole models.
    options
        Of the study; the trial has a text of its own.
    progress
        As of `run_pairs`.
    """
    began, kinds = time.perf_counter(), kinds_of(models)
    options = replace(
        options,
        text=_TEXT * options.n_sequences,
        vocab_size=None,
        vocabulary=None,
        shared=None,
        around=None,
        blocks=None,
    )
    # a model that runs for a statistic of the whole runs all its blocks
    recorded = {name: pairs for name, pairs in whole.items() if get_statistic(name).recorded}
    failed: dict[str, str] = {}
    several = len(models) > 2
    start = _start([*blocks, *whole], options)
    of_block, of_whole = (
        _measured(models, kinds, jobs, options, failed, tokens=tokens, several=several, progress=progress)
        for jobs, tokens in (({**blocks, **recorded}, FEW), (whole, None))
    )
    for work in [work for work in of_block if work[0] == "run"]:  # once a model, and then once a block
        of_block[work] = _less(of_block[work], start.get(work[1], Taken()))
        of_whole[work] = _less(of_whole[work], of_block[work]) if work in of_whole else start.get(work[1], Taken())
    return Trial(kinds, of_block, of_whole, failed, time.perf_counter() - began)


def _less(taken: Taken, part: Taken) -> Taken:
    return replace(taken, clock=max(0.0, taken.clock - part.clock), cpu=max(0.0, taken.cpu - part.cpu))


def _start(names: Sequence[str], options: Options) -> dict[str, Taken]:
    """What a run of a model takes before it reads a token, by statistic: of a tiny one, once libraries are loaded."""
    tiny = {name: model_of(shape("tiny", 1)) for name in "ab"}
    small = replace(options, n_sequences=2, sequence_length=min(16, options.sequence_length))
    jobs = {name: [("a", "b")] for name in names}
    for _ in range(2):
        parts = _measured(tiny, kinds_of(tiny), jobs, small, {}, tokens=None, several=False)
    return {name: replace(taken, nbytes=0) for (what, name, _), taken in parts.items() if what == "run"}


def _measured(
    models: Mapping[str, Model],
    kinds: Mapping[str, int],
    jobs: Jobs,
    options: Options,
    failed: dict[str, str],
    *,
    tokens: int | None,
    several: bool,
    progress: float = False,
) -> dict[Work, Taken]:
    """What the parts of a study of stand-ins take: the mean over models, or pairs, of the same kinds.

    What the study does beside its parts is spread over them.
    """
    wanted = {name: {_sorted(kinds, pair) for pair in pairs} for name, pairs in jobs.items()}
    met = sorted({pair for pairs in wanted.values() for pair in pairs})
    if not met:
        return {}
    of_kind = {kind: models[source] for source, kind in kinds.items()}
    with tempfile.TemporaryDirectory(prefix="provlab-trial-") as scratch:
        pairs = [(f"{scratch}/{a}", f"{scratch}/{b}" + "-twin" * (a == b)) for a, b in met]
        number = {
            source: kind
            for sources, both in zip(pairs, met, strict=True)
            for source, kind in zip(sources, both, strict=True)
        }
        try:
            for seed, (source, kind) in enumerate(number.items()):
                write_stand_in(of_kind[kind], Path(source), vocabulary=tokens, seed=seed)
            opened = open_models(list(number), in_part=True)  # they are hashed by nobody
            clock, cpu = time.perf_counter(), time.process_time()
            with timing() as parts:
                # with a limit sides are read one after the other, as of many models they are
                records = run_pairs(
                    opened, list(jobs), options, pairs=pairs, memory=free() if several else None, progress=progress
                )
            clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
        except PAIR_FAILURES as error:
            failed |= dict.fromkeys(jobs, reason(error))
            return {}
    for record in records:
        if record.error and _sorted(number, (record.a, record.b)) in wanted[record.statistic]:
            failed[record.statistic] = record.error.replace(f"{scratch}/", "")
    grouped: dict[Work, list[Taken]] = defaultdict(list)
    for (what, name, sources), taken in parts.items():
        grouped[what, name, tuple(sorted(number[source] for source in sources))].append(taken)
    clock /= sum(taken.clock for taken in parts.values()) or clock
    cpu /= sum(taken.cpu for taken in parts.values()) or cpu
    return {
        work: Taken(
            clock * sum(each.clock for each in alike) / len(alike),
            cpu * sum(each.cpu for each in alike) / len(alike),
            max(each.nbytes for each in alike),
        )
        for work, alike in grouped.items()
    }


def _sorted(kinds: Mapping[str, int], pair: tuple[str, str]) -> tuple[int, int]:
    """The kinds of a pair: which of both comes first costs nothing."""
    first, second = sorted((kinds[pair[0]], kinds[pair[1]]))
    return first, second
