"""phi_U and phi_MATCH of a block of experts, which is several MLPs.

Experts are paired first, one to one, by the sums of their unit rows, which know nothing of the order of the units:
given these, the order within each expert is as random as before, so the p-value of every pair remains what it is,
whichever experts are paired. A single MLP meets each expert. phi_MATCH gives all experts all positions of the text,
whatever the router says: any inputs will do. Those of one block may depend on each other in any way (experts that began
as copies of one MLP do), so the block's is the smallest times their number (Bonferroni).

An expert that no token is sent to costs nothing, and may imitate anything. So phi_MATCH asks what each expert writes of
the block's own output (`carried`), and each unit's share of the output is a share of that.

An MLP may also be cut into experts that all tokens pass, with a router that weighs them alike (`provlab disguise --with
experts`). No expert is then like another model's, and none carries much; all of them together are the MLP that was cut.
So phi_MATCH compares the *whole* of each block as well: the units of all experts as those of one MLP, each expert times
one weight that is the same at all positions (`weighed`). Where the router's weights are constant, however it says so,
this whole computes what the block computes; likewise where each token meets one of several sets of experts and all sets
compute one function. Elsewhere it is as near to the block as constant weights come, and its units are still those that
the model has. Which units are compared is thus settled by each model alone. The whole is one more test of the block.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NoUnitsError
from provlab.inference.matching import UnitRows, assign, cosine_similarity
from provlab.reading.canonical import applied, merged, shares
from provlab.statistics.alive import living_rows
from provlab.statistics.base import Array, Features
from provlab.statistics.model import Model
from provlab.statistics.order import OrderedRows, of_experts
from provlab.statistics.results import FEW, BlockResult, Detail
from provlab.statistics.two_views import Views, viewed

#: rows of the up projections of a block's experts that have any, by their names
Experts = Mapping[str, UnitRows]
_JUDGED = 128  # positions at which it is settled what each expert writes
_ALIKE = 1e-6  # of the largest squared singular value: outputs of experts that are as much alike as that are one
_ROUNDING = 1e-12  # the same, where it is asked what weights bring outputs to a sum, and loud ones may cancel
#: the name of all experts together
WHOLE = "all"
MOST = 16_384  # units of a whole that are compared, those that write most: a matching keeps a table of their pairs


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


def carried(own: Mapping[str, Array], output: Array) -> dict[str, float]:
    """Say what share of a block's output each of its MLPs writes.

    At each position the output is the sum of what the MLPs would write, each times the router's weight for it there.
    These weights follow by least squares, so that no router is read, of which there are many kinds.

    Parameters
    ----------
    own
        Name of the MLP -> what it would write, ``(width, positions)``.
    output
        What the block writes, ``(width, positions)``.

    Returns
    -------
    dict
        Name -> the mean over positions of <w y, total> / <total, total>, with the weight w of output y.
    """
    written = np.stack(list(own.values()), axis=-1).swapaxes(0, 1).astype(np.float64)  # (positions, width, MLPs)
    total = output.T[:, :, None].astype(np.float64)
    along = written.mT @ total  # (positions, MLPs, width) @ (positions, width, 1)
    # (positions, MLPs, MLPs) @ (positions, MLPs, 1)
    weights = np.linalg.pinv(written.mT @ written, rcond=_ALIKE, hermitian=True) @ along
    squares = np.maximum(np.square(total).sum(axis=1), np.finfo(float).tiny)
    return dict(zip(own, ((weights * along)[..., 0] / squares).mean(axis=0).tolist(), strict=True))


def weighed(own: Mapping[str, Array], output: Array) -> dict[str, float]:
    """Weigh the MLPs of a block so that their sum comes nearest to its output, each alike at all positions.

    Parameters
    ----------
    own, output
        As of `carried`.

    Returns
    -------
    dict
        Name -> weight, at least 0, as those of routers are; one of several sets of weights that do as well.
    """
    from scipy.optimize import nnls  # slow to import, and few models have experts

    written = np.stack([each.ravel() for each in own.values()], axis=1).astype(np.float64)  # (width times positions, n)
    lengths = np.maximum(np.linalg.norm(written, axis=0), np.finfo(float).tiny)  # a loud expert hides no other
    written /= lengths
    # the same problem in n dimensions: |A w - b| = |S w - c|, up to what no weights change, for A^T A = S^T S
    squares, vectors = np.linalg.eigh(written.T @ written)  # (n, width times positions) @ (width times positions, n)
    kept = squares > _ROUNDING * squares[-1]
    if not kept.any():  # nobody writes anything
        return dict.fromkeys(own, 0.0)
    roots = np.sqrt(squares[kept])
    target = (vectors[:, kept].T @ (written.T @ output.ravel().astype(np.float64))) / roots  # (kept, n) @ (n,)
    weights = nnls(roots[:, None] * vectors[:, kept].T, target)[0] / lengths
    return dict(zip(own, weights.tolist(), strict=True))


class Whole(NamedTuple):
    """All experts of a block as one MLP.

    Attributes
    ----------
    views
        The units that there really are, seen twice.
    down
        What each of these writes, ``(units, width)``.
    written
        Name of each expert -> what share of the block's output each of its units writes, ``(h,)``, once units of one
        gate were brought together, in whichever expert they stand.
    """

    views: Views
    down: Array
    written: Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Inputs(Features):
    """What enters the MLPs of each block of a model with experts, and what they write together.

    The model's weights make gate and up activations of the inputs.

    Attributes
    ----------
    model : Model
        Whose weights are read when a block is asked for.
    inputs, outputs : list of array
        Per block ``(width, kept tokens)`` float32.
    tokens : array
        ``(n_sequences, sequence_length)``, as of `provlab.statistics.phi_match.GateAndUp`.
    """

    model: Model
    inputs: list[Array]
    outputs: list[Array]
    tokens: NDArray[np.int64]

    def block(self, block: int | None) -> Any:
        """Views of each MLP by its name and of the whole, or of the one MLP, as phi_MATCH compares them."""
        assert block is not None
        mlps = self._mlps(block)
        of_block, views = carried(mlps.own, mlps.output), {}
        whole = self._joined(mlps)
        for name in self.model.anatomy.mlps(block):
            gate, up = mlps.activations[name]
            down = mlps.downs[name].T
            units = merged(mlps.gates[name], mlps.ups[name], down, mlps.activity[name])
            kinds = {"gate": gate, "up": up, "down": down}
            really = [applied(units, rows, role) for role, rows in kinds.items()]
            if np.logical_and.reduce([rows.any(axis=1) for rows in really]).sum() < 2:
                continue  # an expert that is empty, which anybody can add, stops no test of the others
            # what an expert writes may be taken back by another one, so that neither share is one of the block's alone
            written = np.minimum(shares(gate, up, down, units) * of_block[name], whole.written[name])
            views[name] = viewed(gate, up, self.tokens, units, written, name=f"expert {name}")
        return views[""] if list(views) == [""] else views | {WHOLE: whole.views}

    def whole(self, block: int) -> Whole:
        """All experts of a block as one MLP."""
        return self._joined(self._mlps(block))

    def _mlps(self, block: int) -> "_Mlps":
        """Read the MLPs of a block, and run each on what enters the block."""
        inputs, output = self.inputs[block], self.outputs[block]
        entering = np.vstack([inputs, np.ones_like(inputs[:1])])  # the last row is for biases
        some = np.linspace(0, output.shape[1] - 1, min(output.shape[1], _JUDGED)).astype(np.int64)
        gates, ups = (with_biases(self.model, role, block) for role in ("gate", "up"))
        downs = read(self.model, "down", block)
        activations, activity, own = {}, {}, {}
        for name, down in downs.items():
            # (h, d) @ (d, positions)
            gate, up = (rows[name] @ entering[: rows[name].shape[1]] for rows in (gates, ups))
            activations[name], hidden = (gate, up), self._hidden(gate, up)
            activity[name] = np.linalg.norm(hidden, axis=1)
            own[name] = down @ hidden[:, some]  # (d, h) @ (h, judged positions)
        return _Mlps(gates, ups, downs, entering, some, output[:, some], activations, activity, own)

    def _joined(self, mlps: "_Mlps") -> Whole:
        weights = weighed(mlps.own, mlps.output)
        used = [name for name in mlps.downs if weights[name] > 0] or list(mlps.downs)
        rows = {
            "gate": np.concatenate([mlps.gates[name] for name in used]),  # (units of all, width)
            "up": np.concatenate([mlps.ups[name] for name in used]),
            "down": np.concatenate([np.float32(weights[name]) * mlps.downs[name].T for name in used]),
        }
        activity = np.concatenate([mlps.activity[name] for name in used])
        units = merged(rows["gate"], rows["up"], rows["down"], activity)
        gate, up, down = (applied(units, matrix, role) for role, matrix in rows.items())
        entering = mlps.entering[: gate.shape[1]]
        # (h, d) @ (d, judged positions)
        written = shares(gate @ entering[:, mlps.some], up @ entering[:, mlps.some], down)
        kept = np.sort(np.argsort(-np.abs(written), kind="stable")[:MOST])
        by_gate, by_up = gate[kept] @ entering, up[kept] @ entering  # (kept, d) @ (d, positions)
        views = viewed(by_gate, by_up, self.tokens, written=written[kept], name="all experts together")
        ends = np.cumsum([len(mlps.gates[name]) for name in used])[:-1]
        of_each = {name: np.zeros(len(rows)) for name, rows in mlps.gates.items()}
        return Whole(
            views, down[kept][views.gate.places], of_each | dict(zip(used, np.split(written, ends), strict=True))
        )

    def _hidden(self, gate: Array, up: Array) -> Array:
        """What enters the down projection, by the activation function that the config names: GELU, or else SiLU."""
        config = self.model.checkpoint.config
        if "gelu" in str(config.get("hidden_act") or config.get("hidden_activation")):
            return gate * (1 + np.tanh(np.float32(0.79788456) * (gate + np.float32(0.044715) * gate**3))) / 2 * up
        return gate / (1 + np.exp(-gate)) * up


class _Mlps(NamedTuple):
    """The MLPs of a block, each by its name, and what they do.

    Attributes
    ----------
    gates, ups, downs
        Rows ``(h, width)``, of gates and ups with biases as a last column; down projections ``(width, h)``.
    entering
        ``(width + 1, positions)``, the last row of ones.
    some, output
        Some of the positions, and what the block writes there, ``(width, some)``.
    activations, activity
        Gate and up of each, ``(h, positions)``; lengths of what enters the down projection, ``(h,)``.
    own
        What each would write at some positions, ``(width, some)``.
    """

    gates: dict[str, Array]
    ups: dict[str, Array]
    downs: dict[str, Array]
    entering: Array
    some: NDArray[np.int64]
    output: Array
    activations: dict[str, tuple[Array, Array]]
    activity: dict[str, NDArray[np.float64]]
    own: dict[str, Array]


def with_biases(model: Model, role: str, block: int | None) -> dict[str, Array]:
    """Rows of all MLPs of a block by their names, with the biases as a last column where there are any."""
    matrices, bias = read(model, role, block), f"{role}_bias"
    if all(model.anatomy.has(f"{bias}.{name}" if name else bias) for name in matrices):
        biases = read(model, bias, block)
        return {name: np.column_stack([rows, biases[name]]) for name, rows in matrices.items()}
    return matrices


def paired(a: UnitRows | Mapping[str, Any], b: UnitRows | Mapping[str, Any]) -> dict[tuple[str, str], tuple[Any, Any]]:
    """Pair the experts of two blocks by the sums of their rows: names -> rows of either.

    A single MLP is paired with each expert. Where a side has its `WHOLE`, that is paired with the other's, or with its
    single MLP, and of the experts beside it only the nearest with a single MLP.

    Parameters
    ----------
    a, b
        Rows ``(h, m)`` of each expert, by its name, or of the one MLP; or several such, of which the first are summed.

    Raises
    ------
    NoUnitsError
        If no expert of a block has two rows that are not zero.
    """
    sides = [dict(side) if isinstance(side, dict) else {"": side} for side in (a, b)]
    if not all(sides):
        raise NoUnitsError("no expert of the block has two rows that are not zero; leave the block out")
    wholes = [side.pop(WHOLE, side.get("")) for side in sides]
    together: dict[tuple[str, str], tuple[Any, Any]] = {}
    if all(whole is not None for whole in wholes):
        together[WHOLE, WHOLE] = (wholes[0], wholes[1])
    of_a, of_b = sides
    if not all(sides):
        return together
    if not together and min(map(len, sides)) == 1:
        return {(i, j): (of_a[i], of_b[j]) for i in of_a for j in of_b}

    def sums(side: Mapping[str, Any]) -> Array:
        first = (rows if isinstance(rows, UnitRows) else rows[0] for rows in side.values())
        return np.stack([rows.unit.sum(axis=0) for rows in first])  # (MLPs, d)

    partners = assign(cosine_similarity(sums(of_a), sums(of_b))).indices.tolist()  # of the side with fewer experts
    numbers = enumerate(partners) if len(of_a) <= len(of_b) else zip(partners, range(len(of_b)), strict=True)
    pairs = [(list(of_a)[i], list(of_b)[j]) for i, j in numbers]
    return {(i, j): (of_a[i], of_b[j]) for i, j in pairs} | together


def best(results: Mapping[tuple[str, str], BlockResult]) -> BlockResult:
    """Take the smallest p-value of all pairs of experts times their number, from the names of each pair -> its result.

    A block with one MLP is a single expert, and all experts together are one more. The value is the mean correlation;
    units, and what those that agree write of the block's output, are counted over all pairs, or in the whole if its
    p-value is the smallest.
    """
    log10_p = {names: result.log10_p or 0.0 for names, result in results.items()}
    pair = min(log10_p, key=log10_p.__getitem__)
    counted = [result for names, result in results.items() if (names == (WHOLE, WHOLE)) == (pair == (WHOLE, WHOLE))]
    details, every = [result.detail for result in counted], [result.detail for result in results.values()]
    tried = np.log10(len(results))

    def smallest_of(numbers: Iterable[float]) -> float:
        return min(0.0, float(min(numbers) + tried))

    def joined(name: str, together: Any) -> list[Any] | None:
        known = [getattr(each, name) for each in details if getattr(each, name) is not None]
        return together(known, axis=0).round(4).tolist() if known else None

    detail = Detail(
        n=sum(each.needed("n") for each in details),
        agree=sum(each.needed("agree") for each in details),
        paper_log10_p=smallest_of(each.needed("paper_log10_p") for each in every),
        written=joined("written", np.sum),
        tied=joined("tied", np.mean),
        dropped=joined("dropped", np.sum),
        experts=len(results),
        pair=list(pair),
    )
    if details[0].order is not None:
        detail = replace(
            detail, order=[of_experts([each.needed("order")[side] for each in details]) for side in (0, 1)]
        )
    # a copy may be spread over all experts, each of which has as many units as the other model: then the whole says so
    silent = [result for names, result in results.items() if names == (WHOLE, WHOLE) and result.why]
    reach = smallest_of(each.reach for each in silent or results.values())
    reasons = (each.why for each in [*silent, *results.values()] if each.why)
    why = None if reach else next(reasons, FEW)
    value = float(np.mean([result.value for result in counted]))
    p = smallest_of([log10_p[pair]])
    return BlockResult(results[pair].block, value, p, reach, why, detail, results[pair].matching)
