"""The study's commands of ``provlab``: run, reproduce, claims (entry points ``provlab.commands``)."""

from provlab import provenance
from provlab.errors import ParameterError


def check_checkout() -> None:
    """Raise ParameterError outside a checkout of the project, where there are no notebooks."""
    root = provenance.project_root()
    if not (root / "notebooks").is_dir():
        raise ParameterError(
            f"the study's notebooks are not in {root} nor above it; clone provlab's repository, run make env there, "
            "and give the command in that folder"
        )
