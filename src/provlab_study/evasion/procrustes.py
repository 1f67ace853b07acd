"""Undoing a rotation by least squares: how much of it fits strangers as well (Appendix D), and where it does not.

An adversary who rotates a model may be suspected of having turned the matrix X into Y = X A. The best A is found by
least squares, and the residual says how well it fits. The residual also depends on how many more equations there are
than unknowns: with as many rows as columns some A fits anything.

This holds for the rows as they stand, and the adversary has shuffled them. An investigator who first finds out which
row is which undoes more: a hidden unit answers a text alike whatever basis its weights are written in, so units can be
matched by what they do (`undo_matched`), and only then is the rotation solved for.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from provlab.errors import InputError
from provlab.further.phi_views import through_norm
from provlab.inference.matching import match_shuffled
from provlab.running.activations import mlp_activations
from provlab.statistics.base import Array
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.text import encode

#: rows that are aligned, for each column
ROWS = (1.0, 1.25, 1.5, 2.0, 4.0, 8.0)


def undo(X: ArrayLike, Y: ArrayLike) -> float:
    """Fit Y by X A over all matrices A; return the residual ||X A - Y|| / ||Y||, between 0 (undone) and 1.

    Parameters
    ----------
    X, Y
        ``(n, d)`` each, such as the same projection of two models, or activations over the same inputs.

    Raises
    ------
    InputError
        The shapes differ, or a value is not finite, or X or Y is zero.
    """
    first, second = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
    if first.ndim != 2 or first.shape != second.shape:
        raise InputError(f"X and Y must be matrices of one shape, not {first.shape} and {second.shape}")
    if not (np.isfinite(first).all() and np.isfinite(second).all() and second.any() and first.any()):
        raise InputError("X and Y must be finite and not zero")
    best, *_ = linalg.lstsq(first, second)
    return float(np.linalg.norm(first @ best - second) / np.linalg.norm(second))


def undo_matched(X: ArrayLike, Y: ArrayLike, x_views: ArrayLike, y_views: ArrayLike, *, seed: int) -> float:
    """Fit Y by X A after its rows were put in the order of those of X, by MATCH of what they answer to the same inputs.

    Parameters
    ----------
    X, Y
        ``(h, d)`` each: a projection of two models, its rows the hidden units, with the weights of the norm before it
        multiplied in, so that one A serves all rows whatever became of the norm.
    x_views, y_views
        ``(h, inputs)`` each: what the units of either model answer, such as gate activations on one text.
    seed
        The seed of the order in which ties are broken.

    Raises
    ------
    InputError
        As `undo` and `match_shuffled`.
    """
    order = match_shuffled(np.asarray(x_views), np.asarray(y_views), seed=seed).indices
    return undo(X, np.asarray(Y)[order])


@dataclass(frozen=True, eq=False)
class Block:
    """What an investigator might try to align: block 0 of a model, and its embedding.

    Attributes
    ----------
    up, value, embedding
        Matrices as they lie in the file.
    folded_up
        ``(h, width)``: the up projection with the weights of the norm before it multiplied in.
    gates, inputs
        ``(h, positions)`` gate activations on text, and ``(width, positions)`` what enters the MLP.
    tokens
        The tokens of the text.
    """

    up: Array
    value: Array
    embedding: Array
    folded_up: NDArray[np.float64]
    gates: Array
    inputs: Array
    tokens: NDArray[np.int64]


def first_block(source: str, options: Options, *, allow_pickle: bool = False) -> Block:
    """Read block 0, and run the model over the text of a study."""
    model = Model.open(source, allow_pickle=allow_pickle)
    tokens = encode(model.checkpoint, options)
    activations = mlp_activations(
        model.checkpoint,
        tokens,
        kinds=("gate", "input"),
        device=options.device,
        dtype=options.torch_dtype,
        positions=options.kept_positions(),
    )
    read = partial(model.anatomy.read, model.checkpoint)
    gates, inputs = activations["gate"][0], activations["input"][0]
    return Block(
        read("up", 0), read("value", 0), read("embedding"), through_norm(model, "up", 0), gates, inputs, tokens
    )


@dataclass(frozen=True)
class Alignment:
    """Residuals of one thing that was aligned, over pairs of a base and another model in disguise.

    Attributes
    ----------
    what
        The thing: rows of which matrix.
    rows
        Its rows for each of its columns: with one, some map fits anything.
    pairs
        The base and the other model of each pair.
    dependent, residual
        For each pair: whether its models are related, and what `undo` leaves.
    """

    what: str
    rows: float
    pairs: list[list[str]]
    dependent: list[bool]
    residual: list[float]


def residuals(first: Block, second: Block) -> dict[tuple[str, float], float]:
    """Align all that an investigator may try; return what is left, by the thing and its rows for each column.

    Embeddings and activations, whose rows are tokens that both models read, are aligned by ever more of these rows (the
    same random ones in each model). Models that read other tokens have only the matrices that hold none.
    """
    left = {}
    for name, x, y in (("up projection", first.up, second.up), ("value projection", first.value, second.value)):
        left[name, round(len(x) / x.shape[1], 2)] = undo(x, y)
    if not np.array_equal(first.tokens, second.tokens):
        return left
    for name, x, y in (
        ("embedding", first.embedding, second.embedding),
        ("inputs of the MLP", first.inputs.T, second.inputs.T),
    ):
        order = np.random.default_rng(0).permutation(len(x))
        numbers = {rows: round(rows * x.shape[1]) for rows in ROWS}
        left |= {(name, rows): undo(x[order[:n]], y[order[:n]]) for rows, n in numbers.items() if n <= len(x)}
    up = first.folded_up
    matched = undo_matched(up, second.folded_up, first.gates, second.gates, seed=0)
    return left | {("up projection (units matched)", round(len(up) / up.shape[1], 2)): matched}
