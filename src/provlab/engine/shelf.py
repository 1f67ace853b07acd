"""Where the features that passes leave lie until their units are done: in memory, or in files (`provlab.models.room`).

On disk each model's features of one statistic are a folder under their key. Next to a store they stay until the study
is done, so that one that was stopped need not run its models again.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from provlab.errors import ProvlabError
from provlab.statistics.base import Features, Model


@dataclass(frozen=True)
class Shelf:
    """Features by key.

    Attributes
    ----------
    root : Path or None
        Folder that all who work see; None for the memory of this process.
    """

    root: Path | None = None
    _at_hand: dict[str, Features] = field(default_factory=dict)

    def __contains__(self, key: str) -> bool:
        return (self.root / key).is_dir() if self.root else key in self._at_hand

    def put(self, key: str, features: Features) -> None:
        """Keep the features of one model."""
        if self.root:
            from provlab.models import room  # not loaded where features stay in memory

            room.save(self.root / key, features.as_arrays())
        else:
            self._at_hand[key] = features

    def get(self, key: str, kind: type[Features], model: Model) -> Features:
        """Return the features of one model; their arrays are mapped if they lie in files.

        Raises
        ------
        ProvlabError
            If they are not there: another machine may not see the folder.
        """
        if not self.root and key in self._at_hand:
            return self._at_hand[key]
        if not self.root or key not in self:
            where = self.root / key if self.root else "memory"
            raise ProvlabError(f"the features of {model.name} are not in {where}; let all workers see that folder")
        from provlab.models import room

        return kind.of_arrays(room.load(self.root / key), model)

    def clear(self, keys: Iterable[str]) -> None:
        """Remove the features of a study that is done."""
        if self.root:
            for key in keys:
                shutil.rmtree(self.root / key, ignore_errors=True)
            if self.root.is_dir() and not any(self.root.iterdir()):
                self.root.rmdir()
