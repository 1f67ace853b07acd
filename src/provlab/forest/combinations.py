"""Affine relations: a few models one of which is a combination of the others, and which of them may be that one.

Models m with sum c m = 0 and sum c = 0, up to the rounding of their files, and no fewer of them: a *circuit*. With
thousands of numbers no training ends there by chance, so one of them was made of the others. The relation does not say
which: if x is the mean of a and b, then a is beyond x as seen from b, and x = b + (a - o) is b = x + (o - a) as well.
So circuits are found as sets, in no order: sums that squared distances, in roundings, say are nothing.

Which member was made is asked of embedding rows (`may_be_made`). Training changes the rows of its tokens, and a
combination changes those that any of its parts changed. So let m be made of the others, and let y be a model that does
not descend from m. *Then m shares a row with y only where all others do.* A member for which this fails was not made of
the others, and if it fails for all but one, that one was. It supposes that trainings differ in the tokens that they
see, and that nobody copied rows back.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from provlab.forest.merges import COARSE, GAIN, ROUNDING, Distances
from provlab.forest.rows import Rows

MOST = 7  # members of one circuit
CANCELS = 1e-4  # of shares, what is left of them in kept rows, up to which they cancel
ENOUGH = 0.5  # least share of its tensors that a model shares with others of one search
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Circuit:
    """Models one of which is a combination of the others.

    Attributes
    ----------
    members, coefficients
        Ascending numbers of models; coefficients with a sum of 0, the largest 1 in size.
    residual
        By how much they miss a sum of nothing, in expected roundings of their files.
    """

    members: tuple[int, ...]
    coefficients: tuple[float, ...]
    residual: float

    def shares(self, made: int) -> dict[int, float]:
        """The shares of the others if `made` was made of them."""
        own = self.coefficients[self.members.index(made)]
        return {m: -c / own for m, c in zip(self.members, self.coefficients, strict=True) if m != made}

    @property
    def middle(self) -> int:
        """The member of the largest coefficient: of a mean, the one between the others."""
        sizes = np.round(np.abs(self.coefficients), 3)
        return self.members[int(np.argmax(sizes))]


def find(distances: Distances, nodes: Sequence[int]) -> list[Circuit]:
    """Find the circuits among some models, the smallest first, as many as there are independent relations.

    Parameters
    ----------
    distances
        Of all models; each search is over the tensors that its models share.
    nodes
        Models no two of which are equal.
    """
    own = np.isfinite(distances.squared)
    searches = set()
    for i in nodes:
        alike = [j for j in nodes if own[:, i, j].sum() >= ENOUGH * max(own[:, i, i].sum(), own[:, j, j].sum())]
        searches.add(tuple(alike))
    found: dict[tuple[int, ...], Circuit] = {}
    for search in sorted(searches):
        for circuit in _circuits(distances, search):
            found.setdefault(circuit.members, circuit)
    return sorted(found.values(), key=lambda circuit: (len(circuit.members), circuit.members))


def _circuits(distances: Distances, some: Sequence[int]) -> Iterator[Circuit]:
    """Search the relations of models by their shared tensors: first how many there are, then the smallest sets."""
    keys = distances.common(*some)
    if len(some) < 3 or not keys.any():
        return
    own = np.array(some)
    squared = distances.squared[keys][:, own[:, None], own].sum(axis=0)
    noise, norms = (values[keys][:, own].sum(axis=0) for values in (distances.rounding, distances.norms))
    noise = np.maximum(noise, np.finfo(float).tiny)
    bound = ROUNDING[bool(noise.sum() > COARSE**2 * norms.sum())] ** 2

    def relations(used: Sequence[int]) -> tuple[Matrix, Matrix]:
        """Eigenvalues, in squared roundings, and coefficients ``(used, relations)`` of sums that add up to 0."""
        scale = 1 / np.sqrt(noise[list(used)])
        gram = -squared[np.array(used)[:, None], used] / 2 * np.outer(scale, scale)
        away = np.eye(len(used)) - np.outer(scale, scale) / (scale @ scale)
        basis = np.linalg.svd(away)[0][:, :-1]  # coefficients, in roundings, that add up to 0
        values, vectors = np.linalg.eigh(basis.T @ gram @ basis)
        return values, (basis @ vectors) * scale[:, None]

    values, vectors = relations(range(len(some)))
    n_relations = int((values <= bound).sum())
    if not n_relations:
        return
    sizes = np.abs(vectors[:, :n_relations]) / np.abs(vectors[:, :n_relations]).max(axis=0)
    part = np.flatnonzero(sizes.max(axis=1) > 1e-4)
    rank, kept = 0, np.zeros((0, len(some)))
    inside: list[set[int]] = []
    for size in range(3, min(MOST, len(part)) + 1):
        for used in combinations(part.tolist(), size):
            if any(one <= set(used) for one in inside):
                continue
            values, vectors = relations(used)
            if values[0] > bound:
                continue
            inside.append(set(used))
            fewer = [[i for i in used if i != left] for left in used]
            if any(len(rest) > 1 and relations(rest)[0][0] <= GAIN**2 * bound for rest in fewer):
                continue  # one of them is hardly needed: rounding would do as well
            coefficients = vectors[:, 0] / vectors[np.argmax(np.abs(vectors[:, 0])), 0]
            yield Circuit(
                tuple(some[i] for i in used), tuple(coefficients.tolist()), float(np.sqrt(max(values[0], 0.0)))
            )
            row = np.zeros((1, len(some)))
            row[0, list(used)] = coefficients
            kept = np.vstack([kept, row])
            rank = int(np.linalg.matrix_rank(kept, tol=1e-3))
        if rank >= n_relations and size >= 4:
            return


def may_be_made(circuit: Circuit, rows: Rows) -> list[int]:
    """Those members of a circuit for which rows do not exclude that they were made of the others."""
    return [m for m in circuit.members if made_of(m, circuit.shares(m), rows)]


def made_of(m: int, shares: Mapping[int, float], rows: Rows) -> bool:
    """Whether rows leave it open that m was made of all of these others, with these shares.

    A model that does not descend from m shares rows with it only where all others share them: this is asked of the
    others themselves, and of models that share rows with one of them which m lacks. Where the rest of the others
    cancels in kept rows, as a difference of two models of one length does, m has the rows of one, which is not asked.
    """
    for y in range(len(rows.kept)):
        if y == m or not rows.readable[m, y]:
            continue
        if y in shares:
            rest = np.array([share * np.exp(rows.factor[y, k]) for k, share in shares.items() if k != y])
            known = abs(rest.sum()) > CANCELS * np.abs(rest).sum()
        else:
            known = any(rows.beyond(y, k, m) for k in shares)
        if known and any(rows.beyond(m, y, k) for k in shares if k != y):
            return False
    return True


def resolve(circuits: Sequence[Circuit], rows: Rows) -> tuple[dict[int, Circuit], list[Circuit]]:
    """Which models were made of which, and the circuits of which this is not known.

    A model that was made is no part of another one: what was made of it was made of its parts, too. Of several circuits
    of one model the smallest says which these were. Where two are as small, one of whose members is a combination of
    others and nobody knows which, neither does.
    """
    made: dict[int, Circuit] = {}
    single = {circuit: found[0] for circuit in circuits if len(found := may_be_made(circuit, rows)) == 1}
    for m in dict.fromkeys(single.values()):
        own = [circuit for circuit, one in single.items() if one == m]
        of_trained = [circuit for circuit in own if not {*circuit.members} & {*single.values()} - {m}] or own
        fewest = min(len(circuit.members) for circuit in of_trained)
        smallest = [circuit for circuit in of_trained if len(circuit.members) == fewest]
        if len(smallest) == 1:
            made[m] = smallest[0]
    return made, [circuit for circuit in circuits if not set(circuit.members) & set(made)]
