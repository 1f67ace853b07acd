"""One family's tree from the measurements of its pairs: neighbours, merges, directions, each with its level."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from provlab.engine.ledger import PairRecord
from provlab.forest import estimate, root
from provlab.forest import rows as exact
from provlab.forest.measure import one_numbering
from provlab.forest.result import ESTIMATED, FAMILIES, ROOT, ROWS, Edge, Family, named
from provlab.statistics.base import Model
from provlab.statistics.text import spellings

READINGS = ("kept_rows", "weight_distance")
SIGNIFICANDS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}  # bits


@dataclass(eq=False)
class Tree:
    """Measurements of one family of n models; see `provlab.forest.rows.Rows` for `rows`.

    Attributes
    ----------
    distance
        ``(n, n)``: of all weights, infinite where a pair could not be compared.
    about
        What was read of each model, see `provlab.forest.measure.Weights`.
    """

    models: Sequence[str]
    opened: Sequence[Model]
    rows: exact.Rows
    distance: NDArray[np.float64]
    about: list[dict[str, float]]
    edges: list[tuple[int, int]] = field(default_factory=list)
    merges: dict[int, exact.Merge] = field(default_factory=dict)

    @classmethod
    def of(cls, models: Sequence[str], opened: Mapping[str, Model], records: Sequence[PairRecord]) -> "Tree":
        """Arrange the records of `READINGS` over all pairs of a family."""
        n, place = len(models), {model: i for i, model in enumerate(models)}
        sides = [opened[model] for model in models]
        sizes = [model.anatomy.vocab_size for model in sides]
        codes = [np.arange(size) for size in sizes]
        if not one_numbering(sides):
            known = [spellings(model.checkpoint, size) for model, size in zip(sides, sizes, strict=True)]
            _, numbers = np.unique(np.concatenate(known), return_inverse=True)
            codes = np.split(numbers, np.cumsum(sizes)[:-1])
        tokens = int(max(code.max() for code in codes)) + 1
        kept = np.zeros((n, n, -(-tokens // 8)), dtype=np.uint8)
        kept[range(n), range(n)] = 255
        readable, factor, distance = np.eye(n, dtype=bool), np.zeros((n, n)), np.full((n, n), np.inf)
        silence = np.ones((n, n))
        about: list[dict[str, float]] = [{}] * n
        for record in records:
            i, j, outcome = place[record.a], place[record.b], record.outcome
            if outcome is None:
                continue
            if record.statistic == "weight_distance":
                distance[i, j] = distance[j, i] = outcome.value
                about[i], about[j] = outcome.detail["a"], outcome.detail["b"]
                continue
            bits = np.zeros(tokens, dtype=bool)
            matching = outcome.blocks[0].matching
            bits[codes[i][[] if matching is None else matching]] = True
            kept[i, j] = kept[j, i] = np.packbits(bits)
            readable[i, j] = readable[j, i] = outcome.detail["readable"]
            factor[i, j], factor[j, i] = outcome.value, -outcome.value
            silence[i, j] = silence[j, i] = outcome.detail["tolerance"]
        return cls(models, sides, exact.Rows(kept, readable, factor, silence, tokens), distance, about)

    def grow(self, outgroup: str | None = None) -> Family:
        """Find merges and neighbours, then direct what can be directed."""
        n = len(self.models)
        if n > 2 and np.isfinite(self.distance[~np.eye(n, dtype=bool)]).all():
            squared = np.where(np.eye(n, dtype=bool), 0.0, self.distance**2)
            self.merges = exact.merges(squared, np.array([self._rounding(x) for x in range(n)]))
        between = np.array([[n - 2 - self._not_between(i, j) if i != j else 0 for j in range(n)] for i in range(n)])
        for x, merge in self.merges.items():  # it lies between its parents, and is on no path
            between[x, list(merge.parents)] = between[list(merge.parents), x] = n
        fixed = [(merge.parents[0], x) for x, merge in self.merges.items()]
        changed = self.rows.n_tokens - self.rows.count()
        self.edges = estimate.spanning(n, between, changed, self.distance, fixed, self.rows.later)
        directions, notes, likely = self._directions(outgroup)
        edges = [
            self._edge(i, j, directions.get((i, j)), int(between[i, j]), int(changed[i, j]))
            for i, j in self.edges
            if not self._into_merge(i, j)
        ]
        first = tuple(self.models[i] for i in likely)
        apart = {
            frozenset((self.models[i], self.models[j])): (int(changed[i, j]), float(self.distance[i, j]))
            for i, j in combinations(range(n), 2)
        }
        if n == 3 and not self.merges:
            odd = estimate.odd_one_out(self.models, apart)
            without = "A model and two neighbours have none, nor have three siblings."
            notes += [f"Odd one out of three, an estimate: {named(odd)} ({estimate.TRIPLES}). {without}"] if odd else []
        return Family(tuple(self.models), (*edges, *self._merged()), first, (self._spoken(), *notes), apart)

    def _into_merge(self, i: int, j: int) -> bool:
        """Whether j is a weighted mean of models, i one of them."""
        return j in self.merges and i in self.merges[j].parents

    def _rounding(self, x: int) -> float:
        """Length of the rounding errors of a model's file, at most."""
        stored = self.opened[x].checkpoint.dtype(self.opened[x].anatomy.tensor_name("embedding"))
        return float(2.0 ** -SIGNIFICANDS.get(stored, 8) * np.sqrt(self.about[x]["squares"]))

    def _not_between(self, i: int, j: int) -> int:
        """How many models do not lie between two: by their rows, or since they are later than both."""
        later = [self.rows.later(i, p) > 0 and self.rows.later(j, p) > 0 for p in range(len(self.models))]
        return int((self.rows.excluded(i, j) | later)[[p for p in range(len(later)) if p not in (i, j)]].sum())

    def _directions(
        self, outgroup: str | None
    ) -> tuple[dict[tuple[int, int], tuple[str, int, str]], list[str], list[int]]:
        """The level of each directed edge, 1 (-1) if its second (first) model is the child, why; notes; root set."""
        n = len(self.models)
        clocks = {(i, j): 1 if self._into_merge(i, j) else self.rows.later(i, j) for i, j in self.edges}
        directions = {edge: (ROWS, way, "") for edge, way in clocks.items() if way}
        beyond = {edge: root.side(n, self.edges, edge) for edge in self.edges}
        whole = allowed = ~np.isin(range(n), list(self.merges))
        for edge, (_, way, _) in directions.items():
            allowed = allowed & (beyond[edge] == (way < 0))
        notes = []
        if not allowed.any():
            notes.append("The clocks contradict each other: a wrong edge, a merge that was trained on, or forged rows.")
            allowed = whole
        known, likely = outgroup in self.models, np.flatnonzero(allowed).tolist()
        if known:
            likely = [self.models.index(str(outgroup))]
            notes.append(f"Root by the outgroup {named(str(outgroup))}: all edges but its own point away from it.")
        elif len(likely) == 1:
            notes.append(f"The clock decides the root: {named(self.models[likely[0]])}.")
        elif root.is_chain(self.edges):
            likely = []
            notes.append(
                "The tree is a chain, on which a root set is worthless (it covers the first model in no case)."
            )
        else:
            likely = root.root_set(n, self.edges, allowed)
            notes.append(
                f"Root set of {root.COVERAGE:.0%} under {root.GROWTH}: {named(*(self.models[i] for i in likely))}. "
                "Worthless if the family grew as a chain."
            )
        why = "outgroup" if known else "outside the span of the root set"
        for edge in self.edges:
            inside = set(beyond[edge][likely].tolist())
            own = known and set(likely) & set(edge)  # the outgroup's own edge
            if edge not in directions and len(inside) == 1 and not own:
                directions[edge] = (ROOT, -1 if inside.pop() else 1, why)
        return directions, notes, likely

    def _edge(self, i: int, j: int, direction: tuple[str, int, str] | None, between: int, changed: int) -> Edge:
        """One edge in words and numbers."""
        factor, kept = float(self.rows.factor[i, j]), int(self.rows.count()[i, j])
        score = estimate.score(self.about[i], self.about[j]) if self.about[i] and self.about[j] else 0.0
        if direction is None and abs(score) > estimate.SURE:
            direction = (ESTIMATED, 1 if score > 0 else -1, f"score {abs(score):.1f} ({estimate.POPULATION})")
        level, way, why = direction or (None, 1, "")
        if level == ROWS:
            clock = f"clock: {-np.expm1(-abs(factor)):.2%} shorter"
        else:
            tied = self.opened[i].anatomy.tied or self.opened[j].anatomy.tied
            clock = f"clock silent ({exact.silent_because(self.rows, i, j, tied=tied)})"
        words = [f"{kept} of {self.rows.n_tokens} rows kept", clock, f"{between} may lie between" * (between > 0), why]
        numbers = {
            "kept": kept, "changed": changed, "between": between, "distance": float(self.distance[i, j]),
            "ln_factor": way * factor, "score": way * score,
        }  # fmt: skip
        a, b = (self.models[k] for k in ((i, j) if way > 0 else (j, i)))
        joined = FAMILIES if len(self.models) == 2 else ESTIMATED if between else ROWS
        relation = "descends" if level else "related"
        return Edge(a, b, relation, joined, level, "; ".join(word for word in words if word), numbers)

    def _merged(self) -> list[Edge]:
        """Edges into merges."""
        edges = []
        for x, merge in self.merges.items():
            for parent, share in zip(merge.parents, merge.shares, strict=True):
                words = f"weighted mean, share {share:.5f}, residual {merge.residual:.0e}"
                numbers = {"share": share, "residual": merge.residual}
                edges.append(Edge(self.models[parent], self.models[x], "merge", ROWS, ROWS, words, numbers))
        return edges

    def _spoken(self) -> str:
        """Say how many rows speak."""
        pairs = list(combinations(range(len(self.models)), 2))
        kept = [int(self.rows.count()[pair]) for pair in pairs if self.rows.readable[pair]]
        if not kept:
            return f"Rows: none of {len(pairs)} pairs can be read."
        clocks = sum(self.rows.later(*pair) != 0 for pair in pairs)
        return (
            f"Rows: {min(kept)} to {max(kept)} of {self.rows.n_tokens} are kept in the {len(kept)} of {len(pairs)} "
            f"pairs that can be read; the clock speaks in {clocks}."
        )
