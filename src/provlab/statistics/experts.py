"""phi_U and phi_MATCH of a block of experts, which is several MLPs.

Experts are paired first, one to one, by the sums of their unit rows, which know nothing of the order of the units:
given these, the order within each expert is as random as before, so the p-value of every pair remains what it is,
whichever experts are paired. phi_MATCH gives all experts all positions of the text, whatever the router says: any
inputs will do. Those of one block may depend on each other in any way (experts that began as copies of one MLP do),
so the block's is the smallest times their number (Bonferroni). Units of experts are taken as they stand.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import InputError
from provlab.inference.matching import UnitRows, assign, cosine_similarity
from provlab.statistics.alive import living_rows
from provlab.statistics.base import Array, BlockResult, Features, Model
from provlab.statistics.order import OrderedRows, of_experts

#: rows of the up projections of a block's experts that have any, by their names
Experts = Mapping[str, UnitRows]


def up_rows(model: Model, block: int | None) -> dict[str, OrderedRows]:
    """Read the up projections of a block's experts; one without two rows that are not zero is left out."""
    some = {name: rows for name, rows in read(model, "up", block).items() if rows.any(axis=1).sum() > 1}
    living = {name: living_rows(rows, name=f"expert {name}")[0] for name, rows in some.items()}
    return {name: OrderedRows.of(rows, called="up rows") for name, rows in living.items()}


def read(model: Model, role: str, block: int | None) -> dict[str, Array]:
    """Read a role of all MLPs of a block, each tensor once: name of the MLP -> matrix, as `Anatomy.read` gives it."""
    names = {f"{role}.{name}" if name else role: name for name in model.anatomy.mlps(block)}
    matrices = {}
    for part in dict.fromkeys(model.anatomy.part(held, block) for held in names):
        for held, piece in part.split(model.checkpoint.array(part.name)).items():
            if held in names:
                matrices[names[held]] = np.array(piece, order="C")
    return matrices


def gate_and_up(model: Model, block: int | None, inputs: Array) -> dict[str, list[Array]]:
    """Gate and up activations ``(units, positions)`` of all MLPs of a block, by their names.

    `inputs` is what they read, ``(width, positions)``.
    """
    views: dict[str, list[Array]] = {name: [] for name in model.anatomy.mlps(block)}
    for role in ("gate", "up"):
        biased = all(model.anatomy.has(f"{role}_bias.{name}" if name else f"{role}_bias") for name in views)
        biases = read(model, f"{role}_bias", block) if biased else {}
        for name, matrix in read(model, role, block).items():
            views[name].append(matrix @ inputs + (biases[name][:, None] if biased else 0))
    return views


@dataclass(frozen=True)
class Inputs(Features):
    """Inputs of the MLPs of each block of a model with experts: its weights make gate and up activations of these.

    Attributes
    ----------
    model : Model
        Whose weights are read when a block is asked for.
    inputs : list of array
        Per block ``(width, kept tokens)`` float32.
    tokens : array
        ``(n_sequences, sequence_length)``, as of `provlab.statistics.phi_match.GateAndUp`.
    """

    model: Model
    inputs: list[Array]
    tokens: NDArray[np.int64]

    def block(self, block: int | None) -> Any:
        """Views of each MLP by its name, or of the one MLP, as phi_MATCH compares them."""
        assert block is not None
        views = {
            name: (*living_rows(*rows, name=f"the activations of expert {name}"), self.tokens)
            for name, rows in gate_and_up(self.model, block, self.inputs[block]).items()
        }
        return views[""] if list(views) == [""] else views


def best(
    a: UnitRows | Mapping[str, Any],
    b: UnitRows | Mapping[str, Any],
    compare: Callable[[Any, Any, str, str], BlockResult],
) -> BlockResult:
    """Pair the experts of two blocks, and take the smallest p-value of all pairs times their number.

    A block with one MLP is a single expert. The value is the mean correlation, and units are counted over all pairs.

    Parameters
    ----------
    a, b
        Rows ``(h, m)`` of each expert, by its name, or of the one MLP; or several such, of which the first are summed.
    compare
        Gives the result of two experts, by their rows and names.

    Raises
    ------
    InputError
        If no expert of a block has two rows that are not zero.
    """
    of_a, of_b = (side if isinstance(side, dict) else {"": side} for side in (a, b))
    if not (of_a and of_b):
        raise InputError("no expert of the block has two rows that are not zero; leave the block out")

    def sums(side: Mapping[str, Any]) -> Array:
        first = (rows if isinstance(rows, UnitRows) else rows[0] for rows in side.values())
        return np.stack([rows.unit.sum(axis=0) for rows in first])

    partners = assign(cosine_similarity(sums(of_a), sums(of_b))).indices.tolist()  # of the side with fewer experts
    numbers = enumerate(partners) if len(of_a) <= len(of_b) else zip(partners, range(len(of_b)), strict=True)
    pairs = [(list(of_a)[i], list(of_b)[j]) for i, j in numbers]
    results = [compare(of_a[i], of_b[j], i, j) for i, j in pairs]
    tried = np.log10(len(results))
    detail: dict[str, Any] = {name: sum(result.detail[name] for result in results) for name in ("n", "agree")}
    for name in ("floor", "paper_log10_p"):
        detail[name] = min(0.0, float(min(result.detail[name] for result in results) + tried))
    if "order" in results[0].detail:
        detail["order"] = [of_experts([result.detail["order"][side] for result in results]) for side in (0, 1)]
    log10_p = [result.log10_p or 0.0 for result in results]
    best = int(np.argmin(log10_p))
    detail |= {"experts": len(results), "pair": list(pairs[best])}
    value = float(np.mean([result.value for result in results]))
    return BlockResult(
        results[best].block, value, min(0.0, float(log10_p[best] + tried)), detail, results[best].matching
    )
