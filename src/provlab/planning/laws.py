"""The law of each statistic: the matchings or the seconds of a comparison, and the memory of its features."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from provlab.planning.rates import Rates
from provlab.statistics.base import Model, Options
from provlab.statistics.phi_l2 import MLP_ROLES, roles_of


@dataclass(frozen=True)
class Law:
    """Cost of one statistic on one block.

    Attributes
    ----------
    again
        Roles of the tensors of a block that its pass over the inputs reads once more by themselves.
    matchings, columns
        A comparison is so many matchings of hidden units, over so many columns.
    seconds
        CPU seconds of a comparison that is no matching; None where no law is known.
    """

    again: tuple[str, ...] = ()
    matchings: int = 0
    columns: Callable[[Model, Options], int] = lambda model, options: options.kept_tokens
    seconds: Callable[[Model, Options, Rates], float] | None = None


def _width(model: Model, options: Options) -> int:
    return model.anatomy.width


def _permuted_copies(model: Model, options: Options, rates: Rates) -> float:
    return sum(math.prod(part.shape) for part in model.anatomy.parts if part.block == 0) / rates.permuted


def _permuted_mlps(model: Model, options: Options, rates: Rates) -> float:
    mlp = (part for part in model.anatomy.parts if part.block == 0 and set(roles_of(part)) <= set(MLP_ROLES))
    return sum(math.prod(part.shape) for part in mlp) / rates.permuted


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
    "phi_u": Law(matchings=1, columns=_width),
    "phi_views": Law(matchings=2, columns=_width),
    "phi_h": Law(("gate", "up", "down", "gate_bias", "up_bias"), matchings=1),
    "phi_match": Law(matchings=2),
    "phi_match_unsigned": Law(matchings=2),
    "phi_anchor": Law(matchings=4),
    "phi_l2": Law(seconds=_permuted_copies),
    "phi_l2_blocks": Law(seconds=_permuted_mlps),
    "phi_e": Law(seconds=_embeddings),
    "phi_axes": Law(seconds=_decomposition),
    "phi_unseen": Law(seconds=_decomposition),
    "stream_score": Law(seconds=_decomposition),
    "phi_jsd": Law(seconds=_divergence),
}
NO_LAW = Law()  # its bytes are counted, and its time is not known
