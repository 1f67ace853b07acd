"""A shelf: a folder with a fingerprint of each model, and which of its models a new one is kin of."""

from collections.abc import Sequence
from pathlib import Path

from provlab.attest.fingerprint import Fingerprint
from provlab.attest.kin import Kin, answer
from provlab.errors import CheckpointError, InputError, nearest
from provlab.statistics.model import Model


def add(sources: Sequence[str], shelf: Path, *, allow_pickle: bool = False) -> list[Path]:
    """Put fingerprints of models on a shelf; all of them are read before the first is written."""
    made = [Fingerprint.of(source, Model.open(source, allow_pickle=allow_pickle)) for source in sources]
    return [fingerprint.write(shelf) for fingerprint in made]


def fingerprints(shelf: Path) -> list[tuple[Path, Fingerprint]]:
    """Files and fingerprints of a shelf.

    Raises
    ------
    CheckpointError
        The shelf is empty, damaged or of another version.
    """
    paths = sorted(shelf.glob("*.npz"))
    if not paths:
        raise CheckpointError(f"{shelf} holds no fingerprints; make some by provlab shelf add MODEL --shelf {shelf}")
    return [(path, Fingerprint.read(path)) for path in paths]


def of_models(sources: Sequence[str], shelf: Path) -> list[tuple[Path, Fingerprint]]:
    """Those of some models, named as they were added; all are looked up before one is used.

    Raises
    ------
    InputError
        A model is not on the shelf.
    """
    entries = fingerprints(shelf)
    known = {kept.source: (path, kept) for path, kept in entries}
    for source in sources:
        if source not in known:
            hint = nearest(source, known) or f"; there are {', '.join(known)}"
            raise InputError(f"{source} is not on the shelf {shelf}{hint}")
    return [entry for entry in entries if entry[1].source in sources]


def identify(source: str, shelf: Path, *, allow_pickle: bool = False) -> Kin:
    """Say which models of a shelf a model is kin of.

    Raises
    ------
    ProvlabError
        The model cannot be opened, or the shelf is empty, damaged or of another version.
    """
    others = [kept for _, kept in fingerprints(shelf)]
    return answer(Fingerprint.of(source, Model.open(source, allow_pickle=allow_pickle)), others)
