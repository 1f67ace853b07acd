"""Tensor by tensor: which matrices of two models stand in one order, and what follows for what was shared.

Every matrix of one model is held against every matrix of equal shape of the other, by names and shapes alone, so that
no table of architectures is needed: a convolution's projection may turn out to have begun as an attention's. Each test
is phi_U's (match, then Spearman against the identity), over the rows of the matrices or over their columns.

Source: "Independence Tests for Language Models", Appendix H.1, Table 10, where phi_U is applied to single parameters.
These p-values are not independent of one another (parameters share axes), so they are corrected for their number
by Holm or by Benjamini and Yekutieli, which ask for no independence, and never combined by Fisher's method.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm

from provlab import zoo
from provlab.chapters.shared import calibration
from provlab.engine.store import Store
from provlab.errors import InputError, NotComparableError
from provlab.inference import pvalues
from provlab.inference.matching import match_shuffled
from provlab.models.checkpoint import Checkpoint

AXES = ("rows", "columns")
CORRECTIONS = {"holm": pvalues.holm, "benjamini_yekutieli": pvalues.benjamini_yekutieli}
VERSION = 2  # of the numbers below, part of what they are stored under
_SECONDS_WITHOUT_A_BAR = 5


@dataclass(frozen=True)
class TensorTest:
    """One matrix of one model against one of the other.

    Attributes
    ----------
    first, second
        The tensors' names in the two models.
    axis
        Whose order was compared: "rows" or "columns".
    n
        Length of that axis.
    rho, log10_p, paper_log10_p
        Spearman's correlation of the matching with the identity, its p, and the paper's two-sided p.
    cosine
        Mean cosine of the two matrices' rows (or columns) of equal index: near 1 for a copy little changed, near 0
        where no unit is what its namesake is.
    """

    first: str
    second: str
    axis: str
    n: int
    rho: float
    log10_p: float
    paper_log10_p: float
    cosine: float


def compare_tensors(a: Checkpoint, b: Checkpoint, *, seed: int = 0, store: Store | None = None) -> list[TensorTest]:
    """Test every matrix of `a` against every matrix of equal shape of `b`, by rows (the paper's way) and by columns.

    Parameters
    ----------
    a, b
        Any checkpoints; only the tensors' names and shapes are looked at.
    seed
        Of the order in which ties are broken.
    store
        Where finished comparisons are kept and found again.

    Raises
    ------
    NotComparableError
        If no matrix of one has the shape of a matrix of the other.
    InputError
        If a matrix has a row (or column) of zeros.
    """
    key = Store.key(test="tensors", version=VERSION, a=a.digest, b=b.digest, axes=list(AXES), seed=seed)
    if store is not None and (unit := store.get(key)) is not None:
        return [TensorTest(**test) for test in unit["detail"]["tests"]]
    shapes = [matrices(checkpoint) for checkpoint in (a, b)]
    shared = [shape for shape in shapes[0] if shape in shapes[1]]
    if not shared:
        raise NotComparableError(
            f"no matrix of {a.name} has the shape of a matrix of {b.name}; phi_match compares models of other shapes"
        )
    total = sum(len(shapes[0][shape]) * len(shapes[1][shape]) for shape in shared)
    tests = []
    with tqdm(total=total, desc="tensors", unit="pair", leave=False, delay=_SECONDS_WITHOUT_A_BAR) as bar:
        for shape in shared:
            others = {name: _read(b, name) for name in shapes[1][shape]}
            for first in shapes[0][shape]:
                matrix = _read(a, first)
                for second, other in others.items():
                    tests += [_test(first, second, matrix, other, axis, seed) for axis in AXES]
                    bar.update()
    if store is not None:
        store.put(
            key, {"value": float(len(tests)), "log10_p": None, "detail": {"tests": [asdict(test) for test in tests]}}
        )
    return tests


def matrices(checkpoint: Checkpoint) -> dict[tuple[int, ...], list[str]]:
    """Names of the matrices of a checkpoint, by shape."""
    found: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name in checkpoint.tensor_names:
        if len(shape := checkpoint.shape(name)) == 2:
            found[shape].append(name)
    return dict(found)


def _read(checkpoint: Checkpoint, name: str) -> NDArray[np.float32]:
    return checkpoint.array(name)


def _test(first: str, second: str, a: NDArray[np.float32], b: NDArray[np.float32], axis: str, seed: int) -> TensorTest:
    if axis == "columns":
        a, b = a.T, b.T
    found = pvalues.spearman(match_shuffled(a, b, seed=seed).indices)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosine = float((np.einsum("ij,ij->i", a, b) / norms).mean())
    return TensorTest(first, second, axis, found.n, found.rho, found.log10_p, found.paper_log10_p, cosine)


def origins(source: str) -> dict[str, str]:
    """Return, for each tensor of a zoo hybrid that it took, the parent's tensor that it began as: the truth.

    Raises
    ------
    InputError
        If `source` is no zoo model that takes tensors.
    """
    name, _, edition = source.removeprefix("zoo:").partition("@")
    recipe = zoo.families(edition or zoo.default_edition()).get(name) if source.startswith("zoo:") else None
    if recipe is None or recipe.graft is None:
        raise InputError(f"{source} is no hybrid of the zoo, so what it took is not known; `provlab zoo list`")
    return dict(recipe.graft.taken)


# What was shared -------------------------------------------------------------------------------------------------


def corrected(tests: Sequence[TensorTest], axis: str, origins: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Tests over one axis with corrections over all of them together.

    Parameters
    ----------
    tests
        Of one pair of models.
    axis
        "rows" or "columns".
    origins
        Where known: the second model's tensor that each taken tensor of the first began as.

    Returns
    -------
    DataFrame
        The tests' fields, ``holm`` and ``benjamini_yekutieli`` (log10), and ``taken`` where `origins` is given;
        strongest evidence first.
    """
    frame = pd.DataFrame([asdict(test) for test in tests if test.axis == axis])
    if frame.empty:
        raise InputError(f"no test over {axis}; compare_tensors made none")
    for name, correct in CORRECTIONS.items():
        frame[name] = correct(frame["log10_p"].to_numpy())
    if origins is not None:
        frame["taken"] = [
            origins.get(first) == second for first, second in zip(frame["first"], frame["second"], strict=True)
        ]
    return frame.sort_values("log10_p", kind="stable", ignore_index=True)


@dataclass(frozen=True)
class Recovery:
    """How the tensors called shared agree with those that were.

    Attributes
    ----------
    found, missed, wrong
        Pairs of tensors: called and taken, taken and not called, called and not taken.
    n_tests
        All pairs that were tested.
    """

    found: list[tuple[str, str]]
    missed: list[tuple[str, str]]
    wrong: list[tuple[str, str]]
    n_tests: int

    @property
    def precision(self) -> float:
        """Share of the calls that are right; 1 where there is no call."""
        calls = len(self.found) + len(self.wrong)
        return len(self.found) / calls if calls else 1.0

    @property
    def recall(self) -> float:
        """Share of the taken pairs that are called; 1 where nothing was taken."""
        taken = len(self.found) + len(self.missed)
        return len(self.found) / taken if taken else 1.0

    def intervals(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Exact binomial 95% intervals of precision and recall; (0, 1) where there is nothing to count."""
        found = len(self.found)
        sizes = (found + len(self.wrong), found + len(self.missed))
        low, high = ((calibration.size_interval(found, n) if n else (0.0, 1.0)) for n in sizes)
        return low, high


def recovery(frame: pd.DataFrame, level: float, correction: str = "holm") -> Recovery:
    """Call every pair whose corrected p is at most `level`, and hold the calls against ``taken`` of `corrected`.

    Raises
    ------
    InputError
        If the correction is unknown, or the frame does not know what was taken.
    """
    if correction not in CORRECTIONS:
        raise InputError(f"correction is {correction!r}; it must be {' or '.join(CORRECTIONS)}")
    if "taken" not in frame:
        raise InputError("the frame does not say what was taken; give corrected() the origins")
    called = frame[correction] <= np.log10(level)
    pairs = {
        (was, taken): [
            (row.first, row.second) for row in frame[(called == was) & (frame["taken"] == taken)].itertuples()
        ]
        for was, taken in ((True, True), (False, True), (True, False))
    }
    return Recovery(pairs[True, True], pairs[False, True], pairs[True, False], len(frame))
