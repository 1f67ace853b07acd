"""Where the features that passes leave lie until their units are done: in memory, or in files.

A folder holds one file for each array: of a field ``gate`` that is a list, ``gate.0.npy``, ``gate.1.npy``, ...; they
are mapped, not read, so that a block costs what its own arrays weigh, and any process can have them.
"""

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from provlab.engine.schedule import Pass, Schedule
from provlab.engine.store import Store
from provlab.errors import ProvlabError
from provlab.files import atomic_folder
from provlab.statistics import get as get_statistic
from provlab.statistics.base import Features, Model, Options, Statistic


@dataclass(frozen=True)
class Shelf:
    """Where the features of passes lie between a pass and its units: in memory, or below a folder.

    Next to a store they stay until the study is done, so that one that was stopped need not run its models again.
    """

    root: Path | None
    folders: Mapping[tuple[str, str], Path]
    at_hand: dict[tuple[str, str], Features | BaseException]

    @classmethod
    def of(
        cls, schedule: Schedule, models: Mapping[str, Model], options: Options, store: Store | None, stack: ExitStack
    ) -> "Shelf":
        """Make the shelf of a study."""
        if not schedule.spilled:
            return cls(None, {}, {})
        root = store.root / "features" if store else Path(stack.enter_context(TemporaryDirectory(prefix="provlab-")))
        folders = {}
        for step in schedule.passes:
            for name in step.statistics:
                statistic = get_statistic(name)
                key = Store.key(
                    statistic=name,
                    version=statistic.version,
                    model=models[step.model].checkpoint.digest,
                    parameters=statistic.parameters(options),
                )
                folders[name, step.model] = root.resolve() / key
        return cls(root, folders, {})

    def lacks(self, step: Pass) -> tuple[str, ...]:
        """Statistics of a pass whose features are not there yet."""
        return tuple(
            name
            for name in step.statistics
            if (name, step.model) not in self.at_hand and not (self.root and self.folders[name, step.model].is_dir())
        )

    def put(self, name: str, source: str, features: Features | BaseException) -> None:
        """Keep the features of one model, or why there are none."""
        if self.root and isinstance(features, Features):
            save(features, self.folders[name, source])
        else:
            self.at_hand[name, source] = features

    def get(self, statistic: Statistic, source: str, model: Model) -> Features:
        """Return the features of one model, or raise why there are none."""
        found = self.at_hand.get((statistic.name, source))
        if isinstance(found, BaseException):
            raise found
        if found is None:
            assert statistic.recorded
            return load(statistic.recorded, self.folders[statistic.name, source], model)
        return found

    def clear(self) -> None:
        """Remove the features of a study that is done."""
        for folder in self.folders.values():
            shutil.rmtree(folder, ignore_errors=True)
        if self.root and self.root.is_dir() and not any(self.root.iterdir()):
            self.root.rmdir()


def save(features: Features, folder: Path) -> None:
    """Write the arrays of recorded features, all or none."""
    with atomic_folder(folder) as temporary:
        for field in fields(features):  # type: ignore[arg-type]
            value = getattr(features, field.name)
            if isinstance(value, Model):
                continue
            if isinstance(value, list):
                for i, array in enumerate(value):
                    np.save(temporary / f"{field.name}.{i}.npy", array)
            else:
                np.save(temporary / f"{field.name}.npy", value)


def load(kind: type[Features], folder: Path, model: Model) -> Features:
    """Map the arrays again.

    Raises
    ------
    ProvlabError
        If the folder is not there: another machine may not see it.
    """
    if not folder.is_dir():
        raise ProvlabError(f"the features of {model.name} are not in {folder}; let all workers see that folder")
    values: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]
        whole = folder / f"{field.name}.npy"
        if field.type in (Model, "Model"):
            values[field.name] = model
        elif whole.exists():
            values[field.name] = np.load(whole, mmap_mode="r")
        else:
            paths = (folder / f"{field.name}.{i}.npy" for i in count())
            values[field.name] = []
            for path in paths:
                if not path.exists():
                    break
                values[field.name].append(np.load(path, mmap_mode="r"))
    return kind(**values)
