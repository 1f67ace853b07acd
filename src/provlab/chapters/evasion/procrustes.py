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
from provlab.inference.matching import match_shuffled
from provlab.models.activations import mlp_activations
from provlab.statistics.base import Array, Model, Options
from provlab.statistics.phi_views import through_norm
from provlab.statistics.text import encode


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
        Of the order in which ties are broken.

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
        Of the text.
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
