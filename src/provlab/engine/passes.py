"""Forward passes: one model is run over the inputs of several statistics, and leaves their features in a cache.

A pass gives the features of all blocks: a job that ran the models itself would run each once a block.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from provlab.engine.memory import Budget, nbytes
from provlab.engine.reference import Reference, Result, named, too_large
from provlab.engine.timing import timed
from provlab.errors import PAIR_FAILURES, NotComparableError, ProvlabError
from provlab.reading.files.dtypes import itemsize
from provlab.reading.steps import SharedRun, runs_by_blocks
from provlab.running.room import load, save
from provlab.statistics import get as get_statistic
from provlab.statistics.base import Features
from provlab.statistics.model import Model, numel
from provlab.statistics.options import Options


class FeatureCache:
    """Where passes leave features until their jobs are done: in memory, or in files (`provlab.running.room`).

    Files of a study with a store lie beside it and stay until the study is done: stopped in between, it need not run
    its models again.

    Parameters
    ----------
    root
        Folder for features that do not stay in memory.
    room
        Bytes that may stay in memory: 0 where other processes must find them.
    """

    def __init__(self, root: Path, room: int) -> None:
        self.root, self.room = root, room
        self.held: dict[str, Features] = {}

    def __contains__(self, key: str) -> bool:
        return key in self.held or (self.root / key).is_dir()

    def put(self, key: str, features: Features) -> None:
        """Keep the features of one model."""
        if self.room and self.nbytes + nbytes(features) <= self.room:
            self.held[key] = features
        else:
            save(self.root / key, features.as_arrays())

    def get(self, key: str, kind: type[Features], model: Model) -> Features:
        """Return the features of one model; their arrays are mapped if they lie in files.

        Raises
        ------
        ProvlabError
            If they are not there: another machine may not see the folder.
        """
        if key in self.held:
            return self.held[key]
        if key not in self:
            raise ProvlabError(
                f"the features of {model.name} are not in {self.root / key}; let all workers see that folder"
            )
        return kind.of_arrays(load(self.root / key), model)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(map(nbytes, self.held.values()))

    def clear(self, keys: Iterable[str]) -> None:
        """Remove the features of a study that is done."""
        for key in keys:
            shutil.rmtree(self.root / key, ignore_errors=True)
        if self.root.is_dir() and not any(self.root.iterdir()):
            self.root.rmdir()


@dataclass(frozen=True)
class ForwardPass:
    """Run one model, and leave the features of some statistics in the cache.

    Attributes
    ----------
    features : mapping
        Statistic -> key of the features.
    """

    model: Reference
    features: Mapping[str, str]
    cache: FeatureCache
    options: Options
    budget: Budget

    @property
    def name(self) -> str:
        """Name for a reader."""
        return f"a pass of {self.model.source}"

    def results(
        self, opened: Callable[[Reference], Model], advance: Callable[[float], object] | None = None
    ) -> Iterator[tuple[str, Result]]:
        """Load the model once, and run it for each statistic; yield (statistic, error) where that left no features.

        `advance` is called with the share of the pass that was done since the last call.
        """
        try:
            model = opened(self.model)
            if self.budget.given and (needed := loaded_bytes(model, self.options)) > self.budget.process:
                raise NotComparableError(too_large(f"{next(iter(self.features))} of {model.name}", needed, self.budget))
        except PAIR_FAILURES as error:
            yield from ((name, error) for name in self.features)
            return
        # a statistic that asks what the model predicts comes last: another one's run over the text has said it then;
        # so does one that takes what another recorded
        names = sorted(
            self.features, key=lambda name: (get_statistic(name).predicts, get_statistic(name).taken_from is not None)
        )
        each = None if advance is None else lambda share: advance(share / len(names))
        with model.checkpoint.loaded_once(SharedRun(each, predicts=get_statistic(names[-1]).predicts)):
            for name in names:
                key = self.features[name]
                try:
                    with named(f"{name} of {model.name}"):
                        if key not in self.cache:  # else a statistic that records the same was run already
                            with timed("run", name, self.model.source) as taken:
                                features = self._features(name, model)
                                taken.nbytes = nbytes(features)
                            self.cache.put(key, features)
                            del features  # the cache may have room for them in files alone
                except PAIR_FAILURES as error:
                    yield name, error

    def _features(self, name: str, model: Model) -> Features:
        """Make the features of one statistic, of another one's if these are there and serve."""
        statistic = get_statistic(name)
        for other, key in self.features.items():
            kind = get_statistic(other).recorded
            if kind is not None and kind is statistic.taken_from and key in self.cache:
                return statistic.prepare_from(self.cache.get(key, kind, model), model)
        return statistic.prepare(model, self.options)


def loaded_bytes(model: Model, options: Options) -> int:
    """Bytes of a model that is loaded to be run: of its blocks one, where they run one by one, and all that is in none.

    Pages of files are not counted: the system drops them where memory is short.
    """
    of_block: Counter[int | None] = Counter()
    for part in model.anatomy.parts:
        of_block[part.block] += numel(model, part.name)
    outside = of_block.pop(None, 0)
    inside = (
        max(of_block.values(), default=0) if runs_by_blocks(model.checkpoint, options.dtype) else sum(of_block.values())
    )
    return itemsize(options.dtype) * (outside + inside)
