"""Results of notebooks: an *experiment* is a run's parameters, provenance, the units that it used and its measurements.

It lies beside the units, and claims are judged from these files alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provlab.engine.store import Store, read_json
from provlab.files import write_json

#: environment variable by which ``provlab reproduce`` tells a kernel that it runs for the study: the stamp of what the
#: run is made from
STUDY_RUN = "PROVLAB_STUDY_RUN"
EXPERIMENT = ("name", "profile", "pairs", "measurements")


@dataclass(frozen=True)
class Results(Store):
    """Finished units and experiments below one folder.

    Attributes
    ----------
    own : bool
        Whether it is for runs that are none of the study, by papermill, JupyterLab or ``provlab run`` say: they share
        the units, and their experiments lie apart.
    """

    own: bool = False

    @property
    def _experiments(self) -> Path:
        return self.root / ("own_experiments" if self.own else "experiments")

    def put_experiment(self, name: str, experiment: dict[str, Any]) -> Path:
        """Keep what a notebook run left, under the notebook's name."""
        path = self._experiments / f"{name}.json"
        write_json(path, experiment)
        return path

    def experiment(self, name: str) -> dict[str, Any] | None:
        """Return what the last run of a notebook left, or None."""
        path = self._experiments / f"{name}.json"
        return read_json(path, EXPERIMENT) if path.exists() else None

    def has(self, name: str, stamp: str) -> bool:
        """Whether it holds what the study's run with this stamp left of a notebook."""
        stored = self.experiment(name)
        return stored is not None and stored.get("stamp") == stamp

    def experiments(self) -> Iterator[dict[str, Any]]:
        """All experiments, by name."""
        for path in sorted(self._experiments.glob("*.json")):
            yield read_json(path, EXPERIMENT)

    def mark_current(self, profile: str) -> None:
        """Remember which profile below this root was reproduced last."""
        write_json(self.root / "current.json", profile)

    def current(self) -> "Results":
        """Return the store of the profile reproduced last; one that is empty if there is none."""
        marker = self.root / "current.json"
        return Results(self.root / (str(read_json(marker)) if marker.exists() else "default"))
