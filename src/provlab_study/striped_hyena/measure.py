"""Tensor by tensor: which matrices of two models stand in one order, and which of them a zoo hybrid took.

Every matrix of one model is compared with every matrix of equal shape of the other, by names and shapes alone, so that
no table of architectures is needed: a convolution's projection may turn out to have begun as an attention's.

Source: "Independence Tests for Language Models", Appendix H.1, Table 10, where phi_U is applied to single parameters.
These p-values are not independent of one another (parameters share axes), so they are corrected for their number
by Holm or by Benjamini and Yekutieli, which ask for no independence, and never combined by Fisher's method.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm

from provlab import zoo
from provlab.errors import NotComparableError
from provlab.inference import pvalues
from provlab.inference.matching import match
from provlab.reading.checkpoint import Checkpoint

Floats = NDArray[np.floating[Any]]
#: (hybrid, other model, axis) -> the tests over that axis, strongest first
Comparisons = Mapping[tuple[str, str, str], pd.DataFrame]

AXES = ("rows", "columns")
CORRECTIONS = {"holm": pvalues.holm, "benjamini_yekutieli": pvalues.benjamini_yekutieli}
LONGEST = 20_000  # rows that are matched: an axis that is longer is one of tokens, whose order is not arbitrary
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
#: rows of Table 10 -> the tensor in their place, all of block 0; and the head, which the table has not
TENSORS = {
    "head": HEAD,
    "embedding": EMBEDDING,
    "attention query matrix": "model.layers.0.self_attn.q_proj.weight",
    "attention key matrix": "model.layers.0.self_attn.k_proj.weight",
    "attention value matrix": "model.layers.0.self_attn.v_proj.weight",
    "attention output matrix": "model.layers.0.self_attn.o_proj.weight",
    "MLP gate projection": "model.layers.0.mlp.gate_proj.weight",
    "MLP up projection": "model.layers.0.mlp.up_proj.weight",
    "MLP down projection": "model.layers.0.mlp.down_proj.weight",
}


def sharing(comparisons: Comparisons, hybrids: Sequence[str], parent: str) -> list[dict[str, Any]]:
    """Return a record for each hybrid, other model and axis, from which claim I12 is judged.

    ``related`` says whether the other model (``against``) is the hybrid's parent; ``n_tests`` and ``n_taken`` count the
    pairs of tensors that were tested, and those of them that the recipe says were taken. ``pairs`` are all pairs with
    an unrelated model; else those that were taken, or have a corrected p below 0.1.
    """
    records = []
    for (hybrid, other, axis), frame in comparisons.items():
        if hybrid in hybrids:
            near = frame[frame["taken"] | (frame[list(CORRECTIONS)].min(axis=1) < -1) | (other != parent)]
            pairs = near[["first", "second", "log10_p", *CORRECTIONS, "taken"]].to_dict("records")
            about = {"hybrid": hybrid, "against": other, "related": other == parent, "axis": axis, "pairs": pairs}
            records.append(about | {"n_tests": len(frame), "n_taken": int(frame["taken"].sum())})
    return records


def short(tensor: str) -> str:
    """Return a tensor's name without what all names have: ``model.layers.0.mlp.up_proj.weight`` is 0.mlp.up."""
    for part in ("model.", "layers.", ".weight", "self_attn.", "_proj"):
        tensor = tensor.replace(part, "")
    return tensor


def matrices(checkpoint: Checkpoint) -> dict[tuple[int, ...], list[str]]:
    """Names of the matrices of a checkpoint, by shape."""
    names: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name in checkpoint.tensor_names:
        if len(shape := checkpoint.shape(name)) == 2:
            names[shape].append(name)
    return dict(names)


def every_pair(a: Checkpoint, b: Checkpoint, test: Callable[[Floats, Floats], pvalues.Spearman]) -> pd.DataFrame:
    """Test every matrix of `a` with every matrix of equal shape of `b`, by rows (the paper's way) and by columns.

    Parameters
    ----------
    a, b
        Any checkpoints; only the tensors' names and shapes are looked at. Rows that are zero in either are left out of
        both, and so is an axis of more than `LONGEST` rows.
    test
        Compares the order of the rows of two matrices.

    Returns
    -------
    DataFrame
        A row each test: axis, first and second (names), log10_p and paper_log10_p; cosine, the mean cosine of rows
        (columns) of equal index: near 1 for a copy little changed, near 0 where no unit is what its namesake is.

    Raises
    ------
    NotComparableError
        If no matrix of one has the shape of a matrix of the other.
    """
    names_a, names_b = matrices(a), matrices(b)
    rows = []
    for shape in tqdm([shape for shape in names_a if shape in names_b], desc="tensors", leave=False, delay=5):
        others = {name: b.array(name) for name in names_b[shape]}
        for first in names_a[shape]:
            matrix = a.array(first)
            for second, other in others.items():
                for axis, x, y in (("rows", matrix, other), ("columns", matrix.T, other.T)):
                    if len(x) > LONGEST:
                        continue
                    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
                    some = norms > 0  # a row of zeros, as that of a token for padding, has no direction
                    if some.sum() < 2:
                        continue
                    result = test(x[some], y[some])
                    cosine = float((np.einsum("ij,ij->i", x[some], y[some]) / norms[some]).mean())
                    rows.append((axis, first, second, result.log10_p, result.paper_log10_p, cosine))
    if not rows:
        raise NotComparableError(
            f"no matrix of {a.name} has the shape of a matrix of {b.name}; phi_match compares models of other shapes"
        )
    return pd.DataFrame(rows, columns=["axis", "first", "second", "log10_p", "paper_log10_p", "cosine"])


def origins(source: str) -> dict[str, str] | None:
    """Return, for each tensor of a zoo hybrid that it took, the parent's tensor that it began as: the truth.

    None for any other model: what it took is not known.
    """
    name, _, edition = source.removeprefix("zoo:").partition("@")
    recipe = zoo.families(edition or zoo.default_edition()).get(name) if source.startswith("zoo:") else None
    return None if recipe is None or recipe.graft is None else dict(recipe.graft.taken)


def reason(hybrid: str, first: str, second: str) -> str:
    """Return what the recipe says of two tensors that are called and were not taken."""
    truth = origins(hybrid) or {}
    if first in truth:
        return "the first was taken, and the second was trained together with its origin"
    if EMBEDDING in truth and first == second == HEAD:
        return "both were trained on one embedding"
    return "none known"


def residual_axis(checkpoint: Checkpoint) -> dict[str, NDArray[np.float32]]:
    """Return every matrix of a Llama, turned so that its rows are dimensions of the residual stream."""
    turned = {}
    for names in matrices(checkpoint).values():
        for name in names:
            matrix = checkpoint.array(name)
            writes = "o_proj" in name or "down_proj" in name  # (model, units); all others are (units, model)
            turned[name] = matrix if writes else matrix.T
    return turned


def common_profile(
    n_units: int, n_features: int, n_tests: int, overlap: float, *, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Match two independent models whose tests all look at one profile of each unit, through noise of their own.

    Every unit of either model has a Gaussian profile over features that both models share (tokens, for an embedding
    and a head). Test t observes it with weight `overlap` and noise of its own with the rest: at 0 the tests have
    nothing in common, at 1 they are one test counted several times. The two models have nothing in common at all.

    Returns
    -------
    array
        ``(n_tests, n_units)`` int64, one matching a test.
    """
    shape = (n_units, n_features)
    profiles = [rng.standard_normal(shape) for _ in range(2)]

    def observed(profile: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.sqrt(overlap) * profile + np.sqrt(1.0 - overlap) * rng.standard_normal(shape)

    return np.stack([match(*(observed(profile) for profile in profiles)).indices for _ in range(n_tests)])
