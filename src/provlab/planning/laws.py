"""The law of each statistic: the matchings or the seconds of a comparison, and the memory of its features."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from provlab.planning.rates import Rates
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.phi_e import ways
from provlab.statistics.phi_l2 import MLP_ROLES, roles_of
from provlab.statistics.phi_unseen import MOST

# Passes over an embedding, at the pace of unit rows: phi_e lays its columns apart, asks which are alive and brings them
# to length one; phi_unseen looks for rows that were not trained.
_OVER_COLUMNS, _PASSES = 8, 6


@dataclass(frozen=True)
class Law:
    """Cost of one statistic on one block.

    Attributes
    ----------
    matchings, columns
        A comparison is so many matchings of hidden units, over so many columns.
    ordered
        Numbers of a model's block whose order is looked at; those of its MLP's weights stand in `weighed`.
    weighed
        Whether the order of the units is looked at by the weights of the MLP, once for all statistics that do.
    canonical
        Whether the units of a block are brought to canonical form while the model runs.
    written
        Whether it is asked, too, what share of the output each unit writes, and in a comparison which units of either
        model stand in groups.
    predicts
        Whether the head runs too, and what it says of the next token is kept.
    seconds
        CPU seconds of a comparison that is no matching; None where no law is known.
    threaded
        Whether these are products on all threads.
    """

    matchings: int = 0
    columns: Callable[[Model, Options], int] = lambda model, options: options.kept_tokens
    ordered: Callable[[Model, Options], int] = lambda model, options: 0
    weighed: bool = False
    canonical: bool = False
    written: bool = False
    predicts: bool = False
    seconds: Callable[[Model, Options, Rates], float] | None = None
    threaded: bool = False


def _width(model: Model, options: Options) -> int:
    return model.anatomy.width


def _up_rows(model: Model, options: Options) -> int:
    return model.anatomy.mlp_width * model.anatomy.width


def _activations(model: Model, options: Options) -> int:
    return model.anatomy.mlp_width * options.kept_tokens


def _stream(model: Model, options: Options) -> int:
    """The columns of the up projection, by which phi_l2 looks at the order of the stream."""
    return model.anatomy.mlp_width * model.anatomy.width


def mlp_numbers(model: Model) -> int:
    """Numbers of one block's gate, up and down projections."""
    return (2 + model.anatomy.gated) * model.anatomy.mlp_width * model.anatomy.width


def _permuted_copies(model: Model, options: Options, rates: Rates) -> float:
    return sum(math.prod(part.shape) for part in model.anatomy.parts if part.block == 0) / rates.permuted


def _permuted_mlps(model: Model, options: Options, rates: Rates) -> float:
    mlp = (part for part in model.anatomy.parts if part.block == 0 and set(roles_of(part)) <= set(MLP_ROLES))
    return sum(math.prod(part.shape) for part in mlp) / rates.permuted


def _embeddings(model: Model, options: Options, rates: Rates) -> float:
    """One matching of the columns of two embeddings, of which it is asked, too, whether they are sorted."""
    tokens, width = model.anatomy.vocab_size, model.anatomy.width
    looked_at = 2 * tokens * width * (_OVER_COLUMNS / rates.prepared + 1 / rates.ordered)
    return looked_at + rates.hard(width) + 2.0 * tokens * width**2 / rates.product


def _axes(model: Model, options: Options, rates: Rates) -> float:
    """Products of embeddings and two decompositions, in float64."""
    tokens, width = model.anatomy.vocab_size, model.anatomy.width
    return 2.0 * (6.0 * tokens + 25.0 * width) * width**2 / rates.product


def _unseen(model: Model, options: Options, rates: Rates) -> float:
    """The search for untrained rows, the rotation by the others, and two turns of what is matched, in float64."""
    tokens, width = model.anatomy.vocab_size, model.anatomy.width
    searched = 2 * _PASSES * tokens * width / rates.prepared
    rotation = 2.0 * tokens * width**2 / rates.multiplied + width**3 / rates.decomposed
    return searched + rotation + 2 * 4.0 * min(tokens, MOST) * width**2 / rates.product


def _rotations(model: Model, options: Options, rates: Rates) -> float:
    """Two rotations for a half of the tokens, or for either, applied where the models run: most settle so."""
    tokens, width = model.anatomy.vocab_size, model.anatomy.width
    return ways(tokens) * (4.5 * tokens * width**2 / rates.multiplied + 2 * width**3 / rates.decomposed)


def _divergence(model: Model, options: Options, rates: Rates) -> float:
    return options.n_sequences * options.sequence_length * model.anatomy.vocab_size / rates.divergence


LAWS = {
    "phi_u": Law(matchings=1, columns=_width, ordered=_up_rows),
    "phi_views": Law(matchings=2, columns=_width),
    "phi_h": Law(matchings=1, ordered=_activations, weighed=True, canonical=True),
    "phi_match": Law(matchings=2, canonical=True, written=True),
    "phi_match_unsigned": Law(matchings=2, canonical=True, written=True),
    "phi_anchor": Law(matchings=4, canonical=True, written=True),
    "phi_l2": Law(seconds=_permuted_copies, ordered=_stream, weighed=True),
    "phi_l2_blocks": Law(seconds=_permuted_mlps, weighed=True),
    "phi_e": Law(seconds=_embeddings),
    "phi_axes": Law(seconds=_axes, threaded=True),
    "phi_unseen": Law(seconds=_unseen, threaded=True),
    "stream_score": Law(seconds=_rotations, threaded=True),
    "phi_jsd": Law(seconds=_divergence, predicts=True),
}
NO_LAW = Law()  # its bytes are counted, and its time is not known
