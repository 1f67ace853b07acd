"""The study's commands of ``provlab``: run, book, reproduce, claims (entry points ``provlab.commands``)."""

from pathlib import Path

from provlab import provenance
from provlab.cli.delivery import check_open
from provlab.errors import ParameterError


def check_checkout() -> None:
    """Raise ParameterError outside a checkout of the project, where there are no notebooks."""
    root = provenance.project_root()
    if not (root / "notebooks").is_dir():
        raise ParameterError(
            f"the study's notebooks are not in {root} nor above it; clone provlab's repository, run make env there, "
            "and give the command in that folder"
        )


def check_results(output: Path) -> None:
    """Raise InputError where the folder of results, or the place for executed notebooks, is closed to this user."""
    check_open(provenance.results_root(), "name a folder of your own for results by PROVLAB_RESULTS")
    check_open(output, "name a place of your own for executed notebooks by -o")
