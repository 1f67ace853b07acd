"""The law of each statistic: which tensors of a block it reads, and the matchings or seconds of a comparison."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from provlab.planning.rates import Rates
from provlab.statistics import get
from provlab.statistics.base import Model, Options

_MLP = ("gate", "up", "down", "gate_bias", "up_bias")


@dataclass(frozen=True)
class Law:
    """Cost of one statistic on one block.

    Attributes
    ----------
    roles
        Of the tensors that it reads of the block (of the model, where it has no blocks); None for all of them.
    matchings, columns
        A comparison is so many matchings of hidden units, over so many columns.
    seconds
        CPU seconds of a comparison that is no matching; None where no law is known.
    """

    roles: tuple[str, ...] | None = ()
    matchings: int = 0
    columns: Callable[[Model, Options], int] = lambda model, options: options.kept_tokens
    seconds: Callable[[Model, Options, Rates], float] | None = None


def of(statistic: str) -> Law:
    """Return the law of a statistic; one that has none is taken to read every tensor, unless it runs the model."""
    return LAWS.get(statistic) or Law(() if get(statistic).recorded else None)


def _width(model: Model, options: Options) -> int:
    return model.anatomy.width


def _permuted_copies(model: Model, options: Options, rates: Rates) -> float:
    size = sum(math.prod(part.shape) for part in model.anatomy.parts if part.block == 0)
    return size * (options.n_permutations + 1) / rates.permuted


def _gram_matrix(model: Model, options: Options, rates: Rates) -> float:
    """Inner products of all units of two MLPs, in float64, where a product takes twice as long."""
    return 2.0 * 2.0 * 3 * model.anatomy.width * model.anatomy.mlp_width**2 / rates.product


def _embeddings(model: Model, options: Options, rates: Rates) -> float:
    tokens, width = model.anatomy.vocab_size, model.anatomy.width
    return rates.hard(width) + 2.0 * tokens * width**2 / rates.product


def _decomposition(model: Model, options: Options, rates: Rates) -> float:
    """Products of embeddings and a decomposition, in float64."""
    tokens, width = model.anatomy.vocab_size, model.anatomy.width
    return 2.0 * (6.0 * tokens + 25.0 * width) * width**2 / rates.product


def _divergence(model: Model, options: Options, rates: Rates) -> float:
    return options.n_sequences * options.sequence_length * model.anatomy.vocab_size / rates.divergence


LAWS = {
    "phi_u": Law(("up",), 1, _width),
    "phi_views": Law(_MLP, 2, _width),
    "phi_h": Law(_MLP, 1),
    "phi_match": Law(matchings=2),
    "phi_match_unsigned": Law(matchings=2),
    "phi_anchor": Law(("down",), 4),
    "phi_l2": Law(None, seconds=_permuted_copies),
    "phi_l2_blocks": Law(_MLP, seconds=_gram_matrix),
    "phi_e": Law(("embedding",), seconds=_embeddings),
    "phi_axes": Law(("embedding",), seconds=_decomposition),
    "phi_unseen": Law(("embedding",), seconds=_decomposition),
    "stream_score": Law(("embedding",), seconds=_decomposition),
    "phi_jsd": Law(seconds=_divergence),
}
