"""phi_U: do the rows of two up projections match in the order in which they stand? (Section 4.1)

Match the hidden units of block l by the cosine similarity of their up-projection rows, and take Spearman's
correlation of the matching with the identity. Were the models independent, the matching would be a uniformly random
permutation, whatever the data (Section 3.2), so that the null distribution is known without simulation.
`provlab.statistics.experts` says how a block of experts is compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from provlab.errors import NotComparableError
from provlab.inference import pvalues
from provlab.inference.matching import UnitRows, match_shuffled, tie_seed
from provlab.statistics.alive import living_rows
from provlab.statistics.base import (
    BlockResult,
    Features,
    Model,
    Need,
    Options,
    Outcome,
    Statistic,
    fisher_over_blocks,
    left_out,
    matching_bytes,
    of_matching,
    reading,
    unit_rows_bytes,
)

PERMUTATION_ASSUMPTIONS = (
    "at least one of the two models was trained by an algorithm that treats hidden units alike (SGD, Adam, ...) "
    "from an initialisation that does, and neither had its hidden units permuted with knowledge of the other"
)


@dataclass(frozen=True, eq=False, kw_only=True)
class UpRows(UnitRows):
    """Rows of the up projection of one block, and, if asked for, those of the units that there really are."""

    model: Model
    block: int | None

    @cached_property
    def really(self) -> UnitRows:
        """Rows of the hidden units that the block really has, by all of its MLP's weights."""
        from provlab.models.canonical import up_rows  # for few pairs: see `PhiU.compare_block`

        rows = up_rows(self.model.checkpoint, self.model.anatomy, self.block, self.rows, self.places)
        return living_rows(rows, name="the up projection")[0]


def has_experts(model: Model, block: int | None) -> bool:
    """Whether a block has other MLPs than one that all tokens pass."""
    return model.anatomy.mlps(block) != ("",)


@dataclass(frozen=True)
class UpProjections(Features):
    """Up projections, each read when its block is asked for, and normalised once for all its pairs: ``(h, d)``.

    With `units`, the first so many rows of each.
    """

    model: Model
    units: int | None = None

    def block(self, block: int | None) -> UpRows | dict[str, UnitRows]:
        """Read the up projection of one block, or those of its experts by name."""
        if has_experts(self.model, block):
            from provlab.statistics import experts

            return experts.up_rows(self.model, block)
        up = self.model.anatomy.read(self.model.checkpoint, "up", block, units=self.units)
        (rows,) = living_rows(up, name="the up projection")
        return UpRows(**vars(rows), model=self.model, block=block)


def correlation_with_identity(a: UnitRows, b: UnitRows, block: int | None, seed: int) -> BlockResult:
    """Spearman's correlation of MATCH(a, b) with the identity (Equation 2).

    Parameters
    ----------
    a, b : UnitRows
        ``(h, m)`` each; row k belongs to hidden unit ``places[k]``. Of unequal sides the smaller is matched into the
        larger, and its partners are ranked.
    block : int or None
        Where the rows come from.
    seed : int
        Of the order in which ties are broken.
    """
    smaller, larger = (a, b) if len(a) <= len(b) else (b, a)
    partners = larger.places[match_shuffled(a, b, seed=seed).indices]
    result = pvalues.spearman(partners, smaller.places)
    detail = of_matching(result, partners, smaller.places) | left_out(a, b)
    return BlockResult(block, result.rho, result.log10_p, detail, partners)


class PhiU(Statistic):
    """phi_U over all blocks, aggregated by Fisher's method (Sections 3.2 and 4.1)."""

    name = "phi_u"
    reads = "up projections of the MLPs"
    assumptions = PERMUTATION_ASSUMPTIONS
    version = 4  # 1 let the order of rows break ties; 2 broke them alike in every block; 3 had the two-sided t tail

    def parameters(self, options: Options) -> dict[str, Any]:
        """The order in which ties are broken, and how many units are compared, if not all."""
        return {"seed": options.seed} | ({} if options.units is None else {"units": options.units})

    def require(self, a: Model, b: Model) -> None:
        """Both models must have a residual stream of one width."""
        if a.anatomy.width != b.anatomy.width:
            raise NotComparableError(
                f"{self.name} needs models of equal width, but {a.name} has {a.anatomy.width} and {b.name} "
                f"{b.anatomy.width}; phi_match can compare models of different width"
            )

    def prepare(self, model: Model, options: Options) -> UpProjections:
        """Arrange to read the up projections.

        Raises
        ------
        NotComparableError
            Some units of each block are asked for, and a block has several MLPs.
        """
        if options.units and any(has_experts(model, block) for block in range(model.anatomy.n_blocks)):
            raise NotComparableError(f"{model.name} has experts, which are compared whole: leave units out")
        return UpProjections(model, options.units)

    def need(self, model: Model, block: int | None, options: Options) -> Need:
        """One matrix a block (or one an expert), or some rows of it, and the unit rows."""
        if has_experts(model, block):
            from provlab.statistics import experts

            return experts.need(model, block)
        (there, columns), name = model.anatomy.shape("up", block), model.anatomy.tensor_name("up", block)
        n = options.units or there
        rows = {name: n} if model.anatomy.first("up", block, n) and n < there else {}
        read = reading(model, [name], rows)
        return Need(read.tensors, unit_rows_bytes(n, columns), read.making, read.rows)

    def need_with(self, model: Model, partner: Model, block: int | None, options: Options) -> tuple[str, ...]:
        """Gate and down projection, where there are units on one side that the other has not."""
        apart = options.units is None and model.anatomy.mlp_width != partner.anatomy.mlp_width
        apart = apart and not (has_experts(model, block) or has_experts(partner, block))
        roles = ("gate", "gate_bias", "up_bias", "down") if apart else ()
        return tuple({model.anatomy.tensor_name(role, block) for role in roles if model.anatomy.has(role)})

    def comparing(self, a: Model, b: Model, block: int | None, options: Options) -> int:
        """MATCH, and what `need_with` names."""
        if has_experts(a, block) or has_experts(b, block):
            from provlab.statistics import experts

            return experts.comparing(a, b, block)
        (rows, columns), (others, _) = (model.anatomy.shape("up", block) for model in (a, b))
        further = [reading(one, self.need_with(one, other, block, options)) for one, other in ((a, b), (b, a))]
        sides = options.units or rows, options.units or others
        return matching_bytes(*sides, columns) + sum(need.features for need in further)

    def compare_block(
        self, a: UnitRows | dict[str, UnitRows], b: UnitRows | dict[str, UnitRows], block: int | None, options: Options
    ) -> BlockResult:
        """Match the rows of two up projections, if these are equally many as they stand.

        Else one model may have been given units that write nothing, or one unit several times: those that there really
        are on either side are matched. How many rows a matrix has says nothing of their order, so the null distribution
        stays; and who compares models of one width reads one matrix of each block.

        Of `Options.units` first rows of either model, nothing of this is asked: what a unit writes is not read. Which
        rows these are is settled before any is looked at, so they are in as random an order as all.
        """
        seed = tie_seed(options.seed, self.name, block)
        if isinstance(a, dict) or isinstance(b, dict):
            from provlab.statistics import experts

            return experts.best(
                a, b, lambda x, y, *names: correlation_with_identity(x, y, block, tie_seed(seed, *names))
            )
        whole = [side.model.anatomy.mlp_width for side in (a, b) if isinstance(side, UpRows)]
        if options.units is None and isinstance(a, UpRows) and isinstance(b, UpRows) and whole[0] != whole[1]:
            a, b = a.really, b.really
        found = correlation_with_identity(a, b, block, seed)
        return found if options.units is None else replace(found, detail=found.detail | {"of_units": whole})

    def aggregate(self, blocks: Sequence[BlockResult]) -> Outcome:
        """Fisher over blocks."""
        return fisher_over_blocks(blocks)
