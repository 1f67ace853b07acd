"""One family's tree from the measurements of its pairs: neighbours, merges, directions, each with its level."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from provlab.engine.table import PairRecord
from provlab.forest import combinations as affine
from provlab.forest import copies, descent, estimate, fossils, merges, root, sparse
from provlab.forest import rows as exact
from provlab.forest.families import LEVEL
from provlab.forest.measure import one_numbering, spacing
from provlab.forest.result import (
    COMBINATION,
    DESCENDS,
    ESTIMATED,
    FAMILIES,
    LATER,
    MERGE,
    NEAR,
    NOT_GIVEN,
    NUMBERS,
    ROOT,
    ROWS,
    SAME,
    SHOWN,
    TWO,
    UNKNOWN,
    Edge,
    Family,
    named,
)  # fmt: skip
from provlab.statistics.model import Model
from provlab.statistics.results import BlockResult
from provlab.statistics.text import spellings

SAMPLED = 256  # rows of each embedding in which steps are counted
READINGS = ("kept_rows", "weight_distance")


def family(
    models: Sequence[str], opened: Mapping[str, Model], records: Sequence[PairRecord], outgroup: str | None = None
) -> Family:
    """The tree of related models, each of which stands for all that are the same; in whatever order they are given."""
    order = sorted(models, key=lambda model: (opened[model].checkpoint.digest, model))
    tree = Tree.of(order, opened, records)
    # the one with most tensors of others' shapes stands for all that are the same
    shared = np.isfinite(tree.distances.squared).sum(axis=(0, 1))
    same = copies.find(tree.distances, np.argsort(-shared, kind="stable").tolist())
    if same:
        others = {one.other: order[one.model] for one in same}
        tree = Tree.of([model for i, model in enumerate(order) if i not in others], opened, records)
        outgroup = {order[i]: model for i, model in others.items()}.get(str(outgroup), outgroup)
    grown = tree.grow(outgroup) if len(tree.models) > 1 else Family(tuple(tree.models))
    edges = (*grown.edges, *(_same(order, opened, one) for one in same))
    place = {model: i for i, model in enumerate(models)}
    return replace(grown, models=tuple(sorted(order, key=place.__getitem__)), edges=edges)


def _same(models: Sequence[str], opened: Mapping[str, Model], one: copies.Same) -> Edge:
    """An edge between two models that are one."""
    digests = [opened[models[i]].checkpoint.tokenizer_digest for i in (one.model, one.other)]
    tokenizers = "one tokenizer" if len({*digests}) == 1 else "their tokenizers differ"
    tokenizers = "tokenizers are missing" if None in digests else tokenizers
    tensors = f"{one.compared} tensors, of {one.tensors[0]} and {one.tensors[1]} that were read"
    numbers = {"compared": float(one.compared)}
    a, b = models[one.model], models[one.other]
    return Edge(a, b, SAME[one.words], NUMBERS, None, f"{one.words}: {tensors}; {tokenizers}", numbers, UNKNOWN)


@dataclass(frozen=True)
class Open:
    """Models one of which was made of the others, and perhaps trained on: the middle one, and the shares of the others.

    These are those if it was that one, NaN where each tensor is one of another model's.
    """

    middle: int
    others: Mapping[int, float]
    residual: float
    trained: bool = False


@dataclass(eq=False)
class Tree:
    """Measurements of one family of n models; see `provlab.forest.rows.Rows` for `rows`.

    Attributes
    ----------
    distances
        Distances of all tensors; see `provlab.forest.merges.Distances`.
    about
        What was read of each model, see `provlab.forest.measure.AllWeights`.
    made, open, children
        Merges by number; sets one of which was made of the others; merges with a child that is shown.
    tokens, tables
        The tokens whose rows most pairs kept, and these rows of each model, ``(tokens, width)``, NaN where it has none.
    """

    models: Sequence[str]
    opened: Sequence[Model]
    rows: exact.Rows
    distances: merges.Distances
    about: list[dict[str, float]]
    tokens: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=int))
    tables: Sequence[NDArray[np.float64]] = ()
    edges: list[tuple[int, int]] = field(default_factory=list)
    made: dict[int, merges.Merge] = field(default_factory=dict)
    open: list["Open"] = field(default_factory=list)
    children: set[tuple[int, int]] = field(default_factory=set)

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
        tokens = int(max((code.max() for code in codes if len(code)), default=0)) + 1
        kept = np.zeros((n, n, -(-tokens // 8)), dtype=np.uint8)
        kept[range(n), range(n)] = 255
        readable, factor, silence = np.eye(n, dtype=bool), np.zeros((n, n)), np.ones((n, n))
        about: list[dict[str, float]] = [{}] * n
        blocks: list[tuple[int, int, BlockResult]] = []
        for record in records:
            if record.outcome is None or record.a not in place or record.b not in place:
                continue
            i, j, outcome = place[record.a], place[record.b], record.outcome
            if record.statistic == "weight_distance":
                about[i], about[j] = outcome.detail.own["a"], outcome.detail.own["b"]
                blocks += [(i, j, block) for block in outcome.blocks]
                continue
            bits = np.zeros(tokens, dtype=bool)
            matching = outcome.blocks[0].matching
            bits[codes[i][[] if matching is None else matching]] = True
            kept[i, j] = kept[j, i] = np.packbits(bits)
            readable[i, j] = readable[j, i] = outcome.detail.own["readable"]
            factor[i, j], factor[j, i] = outcome.value, -outcome.value
            silence[i, j] = silence[j, i] = outcome.detail.own["tolerance"]
        rows = exact.Rows(kept, readable, factor, silence, tokens)
        return cls(models, sides, rows, _distances(n, blocks), about, *_sampled(sides, codes, rows))

    def grow(self, outgroup: str | None = None) -> Family:
        """Find combinations, merges and neighbours, then direct what can be directed."""
        n = len(self.models)
        if n > 2:
            self._find_made()
        children = {(x, y) for x in self.made for y in range(n) if self._inherits(x, y)}
        distance = self.distances.total()
        between = np.array([[n - 2 - self._not_between(i, j) if i != j else 0 for j in range(n)] for i in range(n)])
        fixed = [(merge.parents[0], x) for x, merge in self.made.items()]
        fixed += [(open_.middle, x) for open_ in self.open for x in open_.others]
        fixed += sorted(children, key=lambda edge: (self.rows.n_tokens - self.rows.count()[edge], edge))
        changed = self.rows.n_tokens - self.rows.count()
        leaves = {*self.made, *(open_.middle for open_ in self.open)}
        self.edges = estimate.spanning(n, between, changed, distance, fixed, self.later, leaves)
        self.children = children & set(self.edges)
        directions, notes, likely = self._directions(outgroup)
        edges = [
            self._edge(i, j, directions.get((i, j)), int(between[i, j]), outgroup)
            for i, j in self.edges
            if not self._into_merge(i, j) and not self._in_open(i, j)
        ]
        first = tuple(self.models[i] for i in likely)
        apart = {
            frozenset((self.models[i], self.models[j])): (int(changed[i, j]), float(distance[i, j]))
            for i, j in combinations(range(n), 2)
        }
        if n == 2:
            notes.append(TWO)
        notes += self._common_draw(more=bool(self.made) or any(edge.relation == DESCENDS for edge in edges))
        if n == 3 and not self.made and not self.open:
            odd = estimate.odd_one_out(self.models, apart)
            without = "A model and two neighbours have none, nor have three siblings."
            known = all(estimate.counted(model.anatomy) for model in self.opened)
            how_often = estimate.TRIPLES if known else estimate.UNCOUNTED
            notes += [f"Odd one out of three, an estimate: {named(odd)} ({how_often}). {without}"] if odd else []
        all_edges = (*edges, *self._merged(), *self._left_open())
        return Family(tuple(self.models), all_edges, first, (self._spoken(), *notes), apart)

    def _find_made(self) -> None:
        """Which models were made of others, and sets of which one was, nobody knows which."""
        n = len(self.models)
        circuits = affine.find(self.distances, range(n))
        known, unknown = affine.resolve(circuits, self.rows)
        for x, circuit in known.items():
            shares = circuit.shares(x)
            method = merges.LINEAR if min(shares.values()) > 0 else merges.ARITHMETIC
            parents = tuple(shares)
            if merge := merges.described(self.distances, x, parents, method, 0.0, np.array(list(shares.values()))):
                self.made[x] = replace(merge, residual=circuit.residual)
        self.open = [Open(circuit.middle, circuit.shares(circuit.middle), circuit.residual) for circuit in unknown]
        free = [x for x in range(n) if x not in self.made and not self._doubtful(x)]
        found, unsure = merges.find(self.distances, free) if len(free) > 2 else ({}, [])
        alone = {x: merge for x, merge in found.items() if self._told_by_rows(x, merge.parents)}
        self.made |= alone
        unsure += [(x, *merge.parents) for x, merge in found.items() if x not in alone]
        self.open += [Open(x, dict.fromkeys(others, np.nan), 0.0) for x, *others in unsure]
        free = [x for x in free if x not in self.made and not self._doubtful(x)]
        self.made |= sparse.find(self.opened, self.distances, free)
        earlier = np.array([[self.rows.later(i, j) > 0 for j in range(n)] for i in range(n)])
        # angles suppose trainings alone, and who descends from a merge has its parents on either side, as it has
        heirs = {y for x in self.made for y in range(n) if self._inherits(x, y)}
        apart = {*self.made, *heirs, *(x for x in range(n) if self._doubtful(x))}
        for x, merge in merges.trained_on(self.distances, apart, earlier).items():
            if self._told_by_rows(x, merge.parents):
                self.made[x] = merge
            else:
                self.open.append(Open(x, dict(zip(merge.parents, merge.shares, strict=True)), merge.on, trained=True))

    def _told_by_rows(self, x: int, parents: Sequence[int]) -> bool:
        """Whether rows say that x was made of these two, and that neither was made of x and the other.

        They speak where x has a part of the embedding of both.
        """
        at = [k for k, key in enumerate(self.distances.keys) if key == (None, "embedding")]
        if not at or not all(self.distances.squared[at[0], x, i] > 0 for i in parents):
            return False
        members = dict.fromkeys((x, *parents), 0.5)  # none of them cancels another
        found = [m for m in members if affine.made_of(m, {k: s for k, s in members.items() if k != m}, self.rows)]
        return found == [x]

    def _doubtful(self, *models: int) -> bool:
        """Whether one of these may have been made of others, nobody knows."""
        return any(x == open_.middle or x in open_.others for x in models for open_ in self.open)

    def _in_open(self, i: int, j: int) -> bool:
        """Whether two models stand in one set that is left open, one of them in the middle."""
        return any({i, j} <= {open_.middle, *open_.others} and open_.middle in (i, j) for open_ in self.open)

    def _inherits(self, x: int, y: int) -> bool:
        """Whether y keeps rows of a merge x that no parent of x has, so that it descends from x."""
        merge = self.made[x]
        if y == x or y in self.made or y in merge.parents or y == merge.base or self._doubtful(y) or merge.on:
            return False
        of_parents = np.bitwise_or.reduce([self.rows.kept[i, y] for i in merge.parents])
        readable = all(self.rows.readable[i, y] for i in (x, *merge.parents))
        return bool(readable and np.bitwise_count(self.rows.kept[x, y] & ~of_parents).sum() >= exact.LEAST)

    def later(self, i: int, j: int) -> int:
        """1 if the second model is later than the first, -1 if earlier, 0 if the clock is silent or not to be trusted.

        The clock supposes that both were made by training alone. So it is not asked of a model that was made of others
        or may have been, nor where a matrix of a block stands still and the embedding does not, nor where norms
        contradict it. And if the later one were among those that the earlier one was made of, the earlier one could
        share rows with a third model only where the later one does too: it must share others.
        """
        way = self.rows.later(i, j)
        if not way or i in self.made or j in self.made or self._doubtful(i, j) or self._partial(i, j):
            return 0
        if self.about[i] and self.about[j]:
            score = estimate.score(self.about[i], self.about[j])
            if abs(score) >= estimate.LEAST_SCORE and score * way < 0:
                return 0
        first, second = (i, j) if way > 0 else (j, i)
        n = len(self.models)
        others = [y for y in range(n) if y not in (i, j) and y not in self.made and not self._doubtful(y)]
        kept = n == 2 or any(self.rows.beyond(first, y, second) for y in others)
        return way if kept else 0

    def _partial(self, i: int, j: int) -> bool:
        """Whether a matrix of a block is the same in two models whose embeddings differ."""
        equal = self.distances.squared[:, i, j] == 0
        kinds = [(block, role) for (block, role), same in zip(self.distances.keys, equal, strict=True) if same]
        matrix = any(block is not None and not role.endswith(("norm", "bias")) for block, role in kinds)
        return matrix and (None, "embedding") not in kinds

    def _into_merge(self, i: int, j: int) -> bool:
        """Whether j is a merge of models, i one of them."""
        return j in self.made and i in self.made[j].parents

    def _parent(self, p: int, c: int, outgroup: str | None) -> tuple[descent.Path | None, bool]:
        """Ask earlier models, or the outgroup, whether p is an ancestor of the later c."""
        earlier = [
            x
            for x, model in enumerate(self.models)
            if x not in (p, c) and x not in self.made and (self.rows.later(x, p) > 0 or model == outgroup)
        ]
        path, shown = descent.descends(self._path(x, p, c) for x in earlier)
        if path and shown:  # a mean of c and another has no row that c lacks, and lends none that it changed
            x = path.witness
            shown = bool(self.rows.beyond(p, x, c) and self.rows.beyond(p, c, x)) and not self._doubtful(x)
        if path and shown:
            shown = not any(descent.repeated(a) > descent.repeated(b) + descent.LOST for a, b in self._matrices(p, c))
        if path and shown:
            three = self._matrices(path.witness, p, c)
            shown = descent.undone((second - first, third - second) for first, second, third in three) <= descent.UNDONE
        return path, shown

    def _matrices(self, *models: int) -> Iterator[list[NDArray[np.float64]]]:
        """Each matrix of the blocks that these models share, as each of them has it."""
        for (block, role), shared in zip(self.distances.keys, self.distances.common(*models), strict=True):
            if block is None or not shared:
                continue
            read = [self.opened[k].anatomy.read(self.opened[k].checkpoint, role, block) for k in models]
            if read[0].ndim == 2:
                yield [array.astype(np.float64) for array in read]

    def _path(self, x: int, p: int, c: int) -> descent.Path | None:
        """Ask an earlier model about p and c."""
        pairs = [(x, p), (p, c), (x, c)]
        if not self.tables:
            return None
        spacings = {spacing(self.tables[k], self.opened[k], "embedding", None) for k in (x, p, c)}
        if len(spacings) > 1 or not all(self.rows.readable[pair] for pair in pairs):
            return None
        kept = np.unpackbits(np.bitwise_and.reduce([self.rows.kept[pair] for pair in pairs]))
        some = np.flatnonzero(kept[self.tokens])
        three = [self.tables[k][some] for k in (x, p, c)]
        excluded, cosine = bool(self.rows.excluded(x, c)[p]), self.distances.cosine(x, p, c)
        return descent.path(x, three, spacings.pop() or 1.0, excluded=excluded, cosine=cosine)

    def _not_between(self, i: int, j: int) -> int:
        """How many models do not lie between two: by their rows, or since they are later than both."""
        later = [self.rows.later(i, p) > 0 and self.rows.later(j, p) > 0 for p in range(len(self.models))]
        return int((self.rows.excluded(i, j) | later)[[p for p in range(len(later)) if p not in (i, j)]].sum())

    def _directions(
        self, outgroup: str | None
    ) -> tuple[dict[tuple[int, int], tuple[str, int, str]], list[str], list[int]]:
        """The level of each directed edge, 1 (-1) if its second (first) model is the child, why; notes; root set."""
        n = len(self.models)
        known = {edge: 1 for edge in self.edges if self._into_merge(*edge) or edge in self.children}
        clocks = {edge: known.get(edge) or (0 if self._in_open(*edge) else self.later(*edge)) for edge in self.edges}
        directions = {edge: (ROWS, way, "") for edge, way in clocks.items() if way}
        beyond = {edge: root.side(n, self.edges, edge) for edge in self.edges}
        whole = allowed = np.array([i not in self.made and not self._doubtful(i) for i in range(n)])
        for edge, (_, way, _) in directions.items():
            allowed = allowed & (beyond[edge] == (way < 0))
        notes = []
        if not whole.any():
            return directions, ["Each model may have been made of others: no first one."], []
        if not allowed.any():
            notes.append("The clocks contradict each other: a wrong edge, a merge that was trained on, or forged rows.")
            allowed = whole
        rooted, likely = outgroup in self.models, np.flatnonzero(allowed).tolist()
        if rooted:
            likely = [self.models.index(str(outgroup))]
            notes.append(f"Root by the outgroup {named(str(outgroup))}: all edges but its own point away from it.")
        elif len(likely) == 1 and not self._earliest(likely[0]):
            likely = []
            notes.append("No model is known to be the earliest of those given.")
        elif len(likely) == 1:
            first = named(self.models[likely[0]])
            notes.append(f"Earliest of those given: {first}. The first of all may not be among them.")
        elif root.is_chain(self.edges):
            likely = []
            notes.append(
                "The tree is a chain, on which a root set is worthless (it covers the first model in no case)."
            )
        else:
            likely = root.root_set(n, self.edges, allowed)
            notes.append(
                f"Root set of {root.COVERAGE:.0%} under {root.GROWTH}, if the first model is given: "
                f"{named(*(self.models[i] for i in likely))}. Worthless if the family grew as a chain."
            )
        for edge in self.edges if rooted else ():
            inside = set(beyond[edge][likely].tolist())
            if edge not in directions and not set(likely) & set(edge) and not self._not_sure(*edge):
                directions[edge] = (ROOT, -1 if inside.pop() else 1, "outgroup")
        return directions, notes, likely

    def _earliest(self, i: int) -> bool:
        """Whether the clock is trusted that one model is earlier than every other one, merges left out."""
        others = [y for y in range(len(self.models)) if y != i and y not in self.made]
        return all(self.later(i, y) > 0 for y in others)

    def _not_sure(self, i: int, j: int) -> bool:
        """Whether another model may lie between two, so that no side of their edge is sure, or one may be a merge."""
        between = len(self.models) - 2 - self._not_between(i, j)
        return between > 0 or self._doubtful(i, j) or i in self.made or j in self.made

    def _edge(self, i: int, j: int, direction: tuple[str, int, str] | None, between: int, outgroup: str | None) -> Edge:
        """One edge in words and numbers."""
        factor, kept = float(self.rows.factor[i, j]), int(self.rows.count()[i, j])
        score = estimate.score(self.about[i], self.about[j]) if self.about[i] and self.about[j] else 0.0
        known = all(estimate.counted(self.opened[k].anatomy) for k in (i, j))
        doubt = bool(self.rows.later(i, j)) or self._doubtful(i, j) or i in self.made or j in self.made
        if direction is None and known and not doubt and (chance := estimate.chance(score)):
            direction = (ESTIMATED, 1 if score > 0 else -1, f"score {abs(score):.1f}: {chance}")
        unlike = abs(score) > estimate.MOST_SCORE or (not known and estimate.chance(score) is not None)
        outside = f"score {abs(score):.1f}: {estimate.UNCOUNTED}" if unlike else ""
        level, way, why = direction or (None, 1, outside)
        p, c = (i, j) if way > 0 else (j, i)
        child = (i, j) in self.children
        path, shown = self._parent(p, c, outgroup) if level and not child and self.later(p, c) > 0 else (None, child)
        relation = DESCENDS if shown else LATER if level else NEAR
        parent = SHOWN if shown else NOT_GIVEN if path and path.parted else UNKNOWN
        rows = f"{kept} of {self.rows.n_tokens} rows kept"
        if not all(self.opened[k].anatomy.has("embedding") for k in (i, j)):
            rows, clock = "", "no clock: there is no embedding"
        elif child:
            clock = "it keeps rows that the merge has and no parent of the merge"
        elif level == ROWS:
            clock = f"clock: {-np.expm1(-abs(factor)):.2%} shorter"
        else:
            tied = self.opened[i].anatomy.tied or self.opened[j].anatomy.tied
            silent = exact.silent_because(self.rows, i, j, tied=tied)
            clock = f"clock silent ({silent})"
            if raw := self.rows.later(i, j):
                clock = (
                    f"{named(self.models[i if raw > 0 else j])} has longer rows: earlier, unless it is made of others"
                )
        words = [rows, clock, f"{between} may lie between" * (between > 0), why]
        numbers = {
            "kept": kept, "changed": self.rows.n_tokens - kept, "between": between,
            "distance": float(self.distances.total()[i, j]), "ln_factor": way * factor, "score": way * score,
        }  # fmt: skip
        if path:
            names = [named(self.models[k]) for k in (p, path.witness)]
            words.append(
                f"of some {path.steps:.0f} steps of {names[0]} since {names[1]}, {path.own:.0%} are its own "
                f"alone ({path.low:.0%} to {path.high:.0%}, 90%)"
                + ": a sibling, or part of a merge"
                * (path.low > descent.OWN and not path.parted)
            )
            numbers |= {
                "steps": path.steps,
                "own": path.own,
                "own_low": path.low,
                "own_high": path.high,
                "cosine": path.cosine,
            }
        joined = FAMILIES if len(self.models) == 2 else ESTIMATED if between else ROWS
        return Edge(
            self.models[p], self.models[c], relation, joined, level, "; ".join(word for word in words if word),
            {name: value for name, value in numbers.items() if np.isfinite(value)}, parent,
        )  # fmt: skip

    def _merged(self) -> list[Edge]:
        """Edges into merges."""
        edges = []
        for x, merge in self.made.items():
            for parent, share, low, high in zip(merge.parents, merge.shares, merge.low, merge.high, strict=True):
                method = merge.method.replace(
                    "<BASE>", named(self.models[merge.base]) if merge.base is not None else ""
                )
                what = "factor" if merge.base is not None else "share"
                words = (
                    f"{method}: {what} {share:.4f}, by block {low:.4f} to {high:.4f}; misses by {merge.residual:.1f} "
                    "roundings of the files"
                )
                if merge.base is None and not self._base_given(merge):
                    words += "; what both were made from was not given"
                numbers = {"share": share, "low": low, "high": high, "residual": merge.residual}
                level, known = ROWS, SHOWN
                if merge.on:
                    words = (
                        f"{method}: {what} {share:.2f}, by block {low:.2f} to {high:.2f}; off their line by "
                        f"{merge.on:.0%} of the distance of both; kin near to a parent look like it"
                    )
                    level, known, numbers["residual"] = ESTIMATED, UNKNOWN, merge.on
                edges.append(Edge(self.models[parent], self.models[x], MERGE, level, level, words, numbers, known))
        return edges

    def _left_open(self) -> list[Edge]:
        """Edges between models one of which was made of the others, from the one in the middle."""
        edges = []
        for one in self.open:
            shares = " + ".join(f"{share:.4f} {named(self.models[i])}" for i, share in one.others.items())
            middle = named(self.models[one.middle])
            words = f"one of these was made of the others: {middle} = {shares}, solved for any of them"
            if one.trained:
                words = (
                    f"{middle} lies near the line of both: a merge that was trained on, or one of them is made of it"
                )
            if not np.isfinite(list(one.others.values())).all():
                others = " or ".join(named(self.models[i]) for i in one.others)
                words = f"{middle} has each tensor of {others}, or shares of both: made of them, or they of it by parts"
            for i, share in one.others.items():
                numbers = {"share": share, "residual": one.residual} if np.isfinite(share) else {}
                ends = self.models[i], self.models[one.middle]
                level = ESTIMATED if one.trained else ROWS
                edges.append(Edge(*ends, COMBINATION, level, None, words, numbers, UNKNOWN))
        return edges

    def _base_given(self, merge: merges.Merge) -> bool:
        """Whether a model that is earlier than all parents is among them, or among the others."""
        return any(
            all(k == parent or self.rows.later(k, parent) > 0 for parent in merge.parents)
            for k in range(len(self.models))
            if k not in self.made and not self._doubtful(k)
        )

    def _common_draw(self, *, more: bool) -> list[str]:
        """Say whether biases of keys, which training leaves alone but for rounding, are alike; and that this is all.

        `more` says whether something else shows that one model was made from another.

        Where they begin at zero, as in BERT, an optimiser makes steps of the rounding: then a common ancestor shows,
        and no draw.
        """
        speak = [model for model in self.opened if fossils.why_silent(model) is None]
        pairs = list(combinations([fossils.key_biases(model) for model in speak], 2))
        if not pairs:
            return []
        values = [fossils.common_draw(*pair).log10_p for pair in pairs]
        shown = [value for value in values if value <= np.log10(LEVEL / len(pairs))]
        return [
            f"Biases of keys, which training leaves alone but for rounding: alike in {len(shown)} of {len(pairs)} "
            f"pairs (log10 p at most {max(values):.1f}). They have a common initial draw, or a common ancestor: this "
            "is less than descent, since two trainings from one seed share it too."
            + " One draw, no descent: nothing here shows that one was made from another."
            * bool(shown and not more)
        ]

    def _spoken(self) -> str:
        """Say how many rows speak."""
        pairs = list(combinations(range(len(self.models)), 2))
        kept = [int(self.rows.count()[pair]) for pair in pairs if self.rows.readable[pair]]
        if not kept:
            return f"Rows of the embedding: none of {len(pairs)} pairs can be read."
        clocks = sum(self.rows.later(*pair) != 0 for pair in pairs)
        number = f"{min(kept):,}" if min(kept) == max(kept) else f"{min(kept):,} to {max(kept):,}"
        pair, of_them = "", ""
        if len(pairs) > 1:
            pair, of_them = f" of a pair ({len(kept)} of {len(pairs)} pairs can be read)", f", in {clocks} of them"
        return (
            f"Of {self.rows.n_tokens:,} rows of the embedding {number} were trained in neither model{pair} after the "
            f"two parted; their lengths {f'say which is later{of_them}' if clocks else 'do not say which is later'}."
        )


def _distances(n: int, blocks: Sequence[tuple[int, int, BlockResult]]) -> merges.Distances:
    """Arrange what was read of single tensors."""
    keys = list(
        dict.fromkeys((b.block, role) for *_, b in blocks for side in "ab" for role in b.detail.own[side]["squares"])
    )
    at = {key: k for k, key in enumerate(keys)}
    squared = np.full((len(keys), n, n), np.nan)
    norms, rounding = np.full((len(keys), n), np.nan), np.full((len(keys), n), np.nan)
    for i, j, b in blocks:
        for role, value in b.detail.own["apart"].items():
            squared[at[b.block, role], [i, j], [j, i]] = value
        for model, side in ((i, "a"), (j, "b")):
            for role, value in b.detail.own[side]["squares"].items():
                k = at[b.block, role]
                squared[k, model, model] = 0.0
                norms[k, model], rounding[k, model] = value, b.detail.own[side]["rounding"][role]
    return merges.Distances(keys, squared, norms, rounding)


def _sampled(
    sides: Sequence[Model], codes: Sequence[NDArray[np.int64]], rows: exact.Rows
) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
    """The tokens whose rows most pairs kept, at most `SAMPLED`, and these rows of each model."""
    pairs = list(combinations(range(len(sides)), 2))
    often = np.zeros(8 * rows.kept.shape[2], dtype=int)
    for pair in pairs:
        often += np.unpackbits(rows.kept[pair]) * rows.readable[pair]
    if not often.any():
        return np.empty(0, dtype=int), []
    tokens = np.argsort(-often, kind="stable")[:SAMPLED]
    tokens = tokens[often[tokens] > 0]
    tables = []
    for model, own in zip(sides, codes, strict=True):
        table = model.anatomy.read(model.checkpoint, "embedding", None)
        order = np.argsort(own, kind="stable")
        at = order[np.minimum(np.searchsorted(own, tokens, sorter=order), len(own) - 1)]
        known = own[at] == tokens
        picked = np.full((len(tokens), table.shape[1]), np.nan)
        picked[known] = table[at[known]]
        tables.append(picked)
    return tokens, tables
