"""A shelf of fingerprints, and which of its models a new one is kin of.

A fingerprint holds the first rows of the up projection of block 0, and embedding rows of tokens that look untrained:
some 8 MB of a 7B model in half precision. Which rows these are is settled before another model is seen, so either
matching has its exact null law: phi_U of some units, and phi_UNSEEN without the rotation of the stream, which needs
the whole table. Holm over all tests of the shelf keeps the family-wise error.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, NotComparableError, ProvlabError
from provlab.inference import pvalues
from provlab.inference.matching import tie_seed, unit_rows
from provlab.kept import read_arrays, write_arrays
from provlab.plots.numbers import format_log10_p
from provlab.report import views
from provlab.report.family import LEVEL
from provlab.statistics.alive import living_rows
from provlab.statistics.base import Model, aggregated
from provlab.statistics.order import OrderedRows
from provlab.statistics.phi_u import correlation_with_identity, has_experts
from provlab.statistics.phi_unseen import LEAST, untrained
from provlab.statistics.text import spellings

SCHEMA = "provlab.shelf/1"
UNITS, TOKENS = 768, 256  # rows of either kind that are kept, at most
TESTS = ("up rows", "untrained tokens")
NOT_TESTED = (
    "other blocks than the first, and units beyond the first "
    f"{UNITS}: a model whose units were put in another order and whose stream was rotated looks like a stranger",
    "models that are not on the shelf: none of them is no acquittal; provlab compare reads two models whole",
)
Rows = NDArray[np.float16]


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Kept rows of one model, ``(n, width)`` each, empty where it has none, and a number for each kept token."""

    source: str
    digest: str
    up: Rows
    unseen: Rows
    tokens: NDArray[np.int64]

    @classmethod
    def of(cls, source: str, model: Model) -> "Fingerprint":
        """Read a model.

        Raises
        ------
        NotComparableError
            It has neither an up projection that all tokens pass nor enough untrained tokens.
        """
        anatomy, checkpoint = model.anatomy, model.checkpoint
        up = np.empty((0, anatomy.width), np.float32)
        if anatomy.has("up") and not has_experts(model, 0):
            units = min(UNITS, anatomy.shape("up", 0)[0])
            up = anatomy.read(checkpoint, "up", 0, units=units)
        table = anatomy.read(checkpoint, "embedding", None)
        ids, mean = untrained(table)
        ids = ids[:TOKENS]
        rows = table[ids] - np.outer(table[ids] @ mean, mean)
        if not len(up) and len(ids) < LEAST:
            raise NotComparableError(f"{source} has nothing that a shelf keeps; compare it by provlab compare")
        tokens = spellings(checkpoint, len(table))[ids]
        return cls(source, checkpoint.digest, _half(up), _half(rows), tokens)

    def write(self, shelf: Path) -> Path:
        """Put it on a shelf, under its digest."""
        about = json.dumps({"schema": SCHEMA, "source": self.source, "digest": self.digest})
        path = shelf / f"{self.digest[:24]}.npz"
        write_arrays(path, {"about": np.array(about), "up": self.up, "unseen": self.unseen, "tokens": self.tokens})
        return path

    @classmethod
    def read(cls, path: Path) -> "Fingerprint":
        """Read one of a shelf.

        Raises
        ------
        CheckpointError
            The file is damaged, or of another version.
        """
        arrays = read_arrays(path)
        try:
            about = json.loads(str(arrays.pop("about")))
            if about["schema"] == SCHEMA:
                return cls(about["source"], about["digest"], **arrays)
        except (KeyError, TypeError, ValueError, AttributeError):
            pass
        raise CheckpointError(f"{path} is no fingerprint of version {SCHEMA}; delete it and add its model again")


def _half(rows: NDArray[Any]) -> Rows:
    """Rows in half precision, all scaled by one number so that the largest entry is 1."""
    return np.asarray(rows / (np.abs(rows).max(initial=0.0) or 1.0), np.float16)


def log10_p(a: Fingerprint, b: Fingerprint, test: str) -> float:
    """log10 p of one test of two fingerprints.

    Raises
    ------
    ProvlabError
        There is none; the message says why.
    """
    if a.up.shape[1] != b.up.shape[1]:
        raise NotComparableError(f"another width: {a.up.shape[1]} and {b.up.shape[1]}")
    if test == TESTS[0]:
        if not (len(a.up) and len(b.up)):
            raise NotComparableError("a model has no up projection that all tokens pass")
        living = (living_rows(side.up.astype(np.float32), name=test)[0] for side in (a, b))
        first, second = (OrderedRows.of(rows, called=test) for rows in living)
        outcome = aggregated([correlation_with_identity(first, second, 0, tie_seed(0, test, 0))])
        if outcome.log10_p is None:
            raise NotComparableError(outcome.detail["withheld"])
        return outcome.log10_p
    tokens, of_a, of_b = np.intersect1d(a.tokens, b.tokens, return_indices=True)
    if len(tokens) < LEAST:
        raise NotComparableError(f"{len(tokens)} tokens look untrained in both, and {LEAST} are needed")
    # in an order of its own, so that nothing that follows the numbers of the tokens looks like agreement
    order = np.random.default_rng(tie_seed(0, test, "tokens")).permutation(len(tokens))
    rows = (side.unseen[ids[order]].astype(np.float64) for side, ids in ((a, of_a), (b, of_b)))
    own, others = (unit_rows(side - side.mean(axis=0), name=test) for side in rows)
    return float(correlation_with_identity(own, others, None, tie_seed(0, test, None)).log10_p or 0.0)


@dataclass(frozen=True)
class Kin(views.Report):
    """The models of a shelf that one model is kin of.

    Attributes
    ----------
    source, digest
        The model.
    tests
        For each model of the shelf and each of `TESTS`: ``source``, ``digest``, ``test``, ``log10_p``,
        ``adjusted_log10_p`` by Holm, and ``error``, why there is none.
    """

    source: str
    digest: str
    tests: tuple[dict[str, Any], ...]

    def title(self) -> str:
        """Kin of which, at which level, or none."""
        tested = [test for test in self.tests if test["error"] is None]
        kin = dict.fromkeys(test["source"] for test in tested if test["adjusted_log10_p"] <= np.log10(LEVEL))
        over = f"Holm over {len(tested)} tests on {len(self.tests) // len(TESTS)} models"
        return f"{self.source}: kin of {', '.join(kin) or 'none'} ({over}, family-wise error at most {LEVEL})"

    def parts(self) -> list[str | views.Table | views.Listed]:
        """A row for each test, and the ways in which kin stay unseen."""
        same = {True: " (identical)", False: ""}
        values = [test["error"] or format_log10_p(test["adjusted_log10_p"]) for test in self.tests]
        names = [test["source"] + same[test["digest"] == self.digest] for test in self.tests]
        rows = list(zip(names, (test["test"] for test in self.tests), values, strict=True))
        table = views.Table(("model of the shelf", "test", "log10 p, corrected"), rows)
        return [table, views.Listed("Not tested", NOT_TESTED)]

    def drawn(self) -> None:
        """No picture."""

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        return {"schema": "provlab.identify/1", **vars(self), "level": LEVEL, "not_tested": NOT_TESTED}


def identify(source: str, shelf: Path, *, allow_pickle: bool = False) -> Kin:
    """Say which models of a shelf a model is kin of.

    Raises
    ------
    ProvlabError
        The model cannot be opened, or the shelf is empty, damaged or of another version.
    """
    paths = sorted(shelf.glob("*.npz"))
    if not paths:
        raise CheckpointError(f"{shelf} holds no fingerprints; make some by provlab shelf add MODEL --shelf {shelf}")
    others = [Fingerprint.read(path) for path in paths]
    own = Fingerprint.of(source, Model.open(source, allow_pickle=allow_pickle))
    tests: list[dict[str, Any]] = []
    for other, name in product(others, TESTS):
        test: dict[str, Any] = {
            "source": other.source,
            "digest": other.digest,
            "test": name,
            "log10_p": None,
            "error": None,
        }
        try:
            test["log10_p"] = log10_p(own, other, name)
        except ProvlabError as error:
            test["error"] = str(error)
        tests.append(test | {"adjusted_log10_p": None})
    tested = [test for test in tests if test["error"] is None]
    for test, value in zip(tested, pvalues.holm(np.array([test["log10_p"] for test in tested])), strict=True):
        test["adjusted_log10_p"] = float(value)
    return Kin(source, own.digest, tuple(tests))


def add(sources: Sequence[str], shelf: Path, *, allow_pickle: bool = False) -> list[Path]:
    """Put fingerprints of models on a shelf; all of them are read before the first is written."""
    made = [Fingerprint.of(source, Model.open(source, allow_pickle=allow_pickle)) for source in sources]
    return [fingerprint.write(shelf) for fingerprint in made]
