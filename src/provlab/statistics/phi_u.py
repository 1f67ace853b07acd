"""phi_U: do the rows of two up projections match in the order in which they stand? (Section 4.1)

Match the hidden units of block l by the cosine similarity of their up-projection rows, and take Spearman's
correlation of the matching with the identity. Were the models independent, the matching would be a uniformly random
permutation, whatever the data (Section 3.2), so that the null distribution is known without simulation.
`provlab.statistics.experts` says how a block of experts is compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from provlab import machine
from provlab.errors import NotComparableError
from provlab.inference import pvalues
from provlab.inference.matching import UnitRows, match_shuffled, tie_seed
from provlab.reading.canonical import up_rows
from provlab.statistics import experts
from provlab.statistics.aggregate import aggregated
from provlab.statistics.alive import living_rows, shared_zeros, zeros_alike
from provlab.statistics.base import BY_THEOREM, Features, Statistic
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.order import OrderedRows
from provlab.statistics.results import BlockResult, Detail, Outcome, dropped, of_matching

PERMUTATION_ASSUMPTIONS = (
    "one of the two models stands in the order that training left: it was trained by an algorithm that treats hidden "
    "units alike (SGD, Adam, ...) from an initialisation that does, and its units were neither sorted nor put into the "
    "order of the other's"
)

ALIVE = ("gate", "gate_bias", "up_bias", "down")  # what is read beside the up projection to find units that do nothing


@dataclass(frozen=True, eq=False, kw_only=True)
class UpRows(OrderedRows):
    """Rows of the up projection of one block, and, if asked for, those of the units that there really are."""

    model: Model
    block: int | None

    @cached_property
    def really(self) -> OrderedRows:
        """Rows of the hidden units that the block really has, by all of its MLP's weights."""
        rows = up_rows(self.model.checkpoint, self.model.anatomy, self.block, self.rows, self.places)
        return OrderedRows.of(living_rows(rows, name="the up projection")[0], called=self.called)


def has_experts(model: Model, block: int | None) -> bool:
    """Whether a block has other MLPs than one that all tokens pass."""
    return model.anatomy.mlps(block) != ("",)


@dataclass(frozen=True)
class UpProjections(Features):
    """Up projections, each read when its block is asked for, and normalised once for all its pairs: ``(h, d)``."""

    model: Model

    def block(self, block: int | None) -> UpRows | dict[str, OrderedRows]:
        """Read the up projection of one block, or those of its experts by name."""
        if has_experts(self.model, block):
            return experts.up_rows(self.model, block)
        up = self.model.anatomy.read(self.model.checkpoint, "up", block)
        (rows,) = living_rows(up, name="the up projection")
        return UpRows.of(rows, called="up rows", model=self.model, block=block)


def correlation_with_identity(a: UnitRows, b: UnitRows, block: int | None, seed: int) -> BlockResult:
    """Spearman's correlation of MATCH(a, b) with the identity (Equation 2).

    Parameters
    ----------
    a, b : UnitRows
        ``(h, m)`` each; row k belongs to hidden unit ``places[k]``. The smaller of unequal sides is matched into the
        larger, and its partners are ranked.
    block : int or None
        Where the rows come from.
    seed : int
        The seed of the order in which ties are broken.

    Notes
    -----
    Rows that are `OrderedRows` put what is known of their order into the detail. Without it no comparison of models
    takes the p-value (`provlab.statistics.base.Statistic.checked`).
    """
    smaller, larger = (a, b) if len(a) <= len(b) else (b, a)
    known = None
    if isinstance(a, OrderedRows) and isinstance(b, OrderedRows):
        known = machine.side_by_side(*(partial(getattr, side, "order") for side in (a, b)))
    partners = larger.places[match_shuffled(smaller, larger, seed=seed).indices]
    result = pvalues.spearman(partners, smaller.places)
    # units that do nothing, in one model alone, move places and no ranks; where each model has its own, ranks move
    first, second = partners, smaller.places
    ranks = np.argsort(np.argsort(first)), np.argsort(np.argsort(second))
    if (ranks[0] == ranks[1]).sum() > (first == second).sum():
        first, second = ranks
    detail = of_matching(result, first, second) | Detail(order=known, dropped=dropped(a, b))
    reach = pvalues.log10_floor(result.n)
    return BlockResult(block, result.rho, result.log10_p, reach, detail=detail, matching=partners)


class PhiU(Statistic):
    """phi_U over all blocks, aggregated by Fisher's method (Sections 3.2 and 4.1)."""

    name = "phi_u"
    reads = "up projections of the MLPs"
    assumptions = (
        f"{PERMUTATION_ASSUMPTIONS}; whether units are sorted is read off their up rows: a sort of both models by what "
        "these do not show, such as activity, shows only where phi_h is run as well"
    )
    settings = ("seed",)
    warrant = BY_THEOREM
    meets_all = True
    permutes_units_alone = True
    # 1, 2 broke ties alike; 3 had the two-sided t tail; 4 units of opposite gates; 5 any order; 6 counted places
    version = 7

    def require(self, a: Model, b: Model) -> None:
        """Both models must have a residual stream of one width."""
        if a.anatomy.width != b.anatomy.width:
            gated = a.anatomy.gated and b.anatomy.gated
            way = "phi_match can compare models" if gated else "of models without gates phi_e can compare embeddings"
            raise NotComparableError(
                f"{self.name} needs models of equal width, but {a.name} has {a.anatomy.width} and {b.name} "
                f"{b.anatomy.width}; {way} of different width"
            )

    def prepare(self, model: Model, options: Options) -> UpProjections:
        """Arrange to read the up projections."""
        return UpProjections(model)

    def tensors(self, model: Model, partner: Model, block: int | None, options: Options) -> dict[str, int | None]:
        """One matrix a block; of models with unequally many units, all that says which are alive."""
        anatomy = model.anatomy
        if has_experts(model, block):
            roles = [f"up.{name}" if name else "up" for name in anatomy.mlps(block)]
            return dict.fromkeys(anatomy.tensor_name(role, block) for role in roles)
        up = anatomy.tensor_name("up", block)
        others = [] if anatomy.mlp_width == partner.anatomy.mlp_width or has_experts(partner, block) else ALIVE
        return dict.fromkeys([up, *(anatomy.tensor_name(role, block) for role in others if anatomy.has(role))])

    def compare_block(
        self, a: UnitRows | dict[str, UnitRows], b: UnitRows | dict[str, UnitRows], block: int | None, options: Options
    ) -> BlockResult:
        """Match the rows of two up projections, if these are equally many as they stand.

        Else one model may have been given units that write nothing, or one unit several times: those that there really
        are on either side are matched. How many rows a matrix has says nothing of their order, so the null distribution
        stays. For models of equal width one matrix of each block is read.
        """
        seed = tie_seed(options.seed, self.name, block)
        if isinstance(a, dict) or isinstance(b, dict):
            pairs = experts.paired(a, b).items()
            return experts.best(
                {names: correlation_with_identity(*rows, block, tie_seed(seed, *names)) for names, rows in pairs}
            )
        whole = [side.model.anatomy.mlp_width for side in (a, b) if isinstance(side, UpRows)]
        if isinstance(a, UpRows) and isinstance(b, UpRows) and whole[0] != whole[1]:
            a, b = a.really, b.really
        result = correlation_with_identity(a, b, block, seed)
        if zeros := zeros_alike(a, b):
            result = result.about(zeros=zeros)
        return result

    def aggregate(self, blocks: Sequence[BlockResult]) -> Outcome:
        """Fisher over blocks; says so where zeros of both models stand at like places."""
        outcome = aggregated(blocks)
        counts = [block.detail.zeros for block in blocks]
        sentence = shared_zeros([each if isinstance(each, list) else [] for each in counts])
        return outcome.about(zeros=sentence) if sentence else outcome
