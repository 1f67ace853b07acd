"""Other methods on the same edges, rewritten small from their papers: scores of a pair, and a rule of direction.

- MoTHer (Horwitz et al. 2024, arXiv 2405.18432): edges by the distance of weights; the child is the model with the
  smaller kurtosis. Here with the paper's rule for fine-tuning; its tree is the minimum spanning tree over distances.
- AWM (2025): query and key projections, after the columns of the two embeddings are matched, by unbiased CKA.
- MDIR (arXiv 2508.06309): the rotation that takes one embedding closest to the other, by its trace. Between independent
  models it is one of the orthogonal group, whose trace has a variance of 1.
- HuRef (Zeng et al. 2024): `provlab_study.shared.huref`.
- stemma (github.com/NagaYu/stemma): its published counts alone, of benchmarks/RESULTS.md at commit 0fd63f7.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from provlab.forest.measure import WeightDistance, WeightsByBlock
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab_study.shared.huref import HuRefA

Matrix = NDArray[np.float64]


def _read(model: Model, role: str, block: int | None = None) -> Matrix:
    return model.anatomy.read(model.checkpoint, role, block).astype(np.float64)


def unbiased_cka(x: Matrix, y: Matrix) -> float:
    """Unbiased CKA of the rows of two matrices ``(n, .)``, n of 4 or more (Song et al. 2012)."""

    def hsic(k: Matrix, m: Matrix) -> float:
        n = len(k)
        inner = np.sum(k * m) + k.sum() * m.sum() / ((n - 1) * (n - 2)) - 2 * (k.sum(0) @ m.sum(0)) / (n - 2)
        return float(inner / (n * (n - 3)))

    grams = [z @ z.T for z in (x, y)]
    for gram in grams:
        np.fill_diagonal(gram, 0)
    return hsic(*grams) / np.sqrt(max(hsic(grams[0], grams[0]) * hsic(grams[1], grams[1]), np.finfo(float).tiny))


def awm(a: Model, b: Model) -> float:
    """Mean unbiased CKA of query and key projections over blocks, the streams' dimensions matched first."""
    first, second = _read(a, "embedding"), _read(b, "embedding")
    cosines = first.T @ second / np.outer(np.linalg.norm(first, axis=0), np.linalg.norm(second, axis=0))
    _, order = linear_sum_assignment(-np.abs(cosines))
    signs = np.sign(cosines[np.arange(len(order)), order])
    return float(
        np.mean(
            [
                unbiased_cka(_read(a, role, block).T, (_read(b, role, block)[:, order] * signs).T)
                for block in range(a.anatomy.n_blocks)
                for role in ("query", "key")
            ]
        )
    )


def mdir(a: Model, b: Model) -> float:
    """Trace of the rotation between two embeddings, over their width: 1 for none."""
    left, _, right = np.linalg.svd(_read(a, "embedding").T @ _read(b, "embedding"))
    return float(np.trace(left @ right) / len(left))


def huref(a: Model, b: Model) -> float:
    """Mean cosine of HuRef's first invariant over blocks."""
    sides = [HuRefA().prepare(model, Options()) for model in (a, b)]
    return float(np.mean([sides[0].block(i).cosine(sides[1].block(i)) for i in range(a.anatomy.n_blocks)]))


def near(a: Model, b: Model) -> float:
    """Less the distance of all weights."""
    statistic, sides = WeightDistance(), [WeightsByBlock(model) for model in (a, b)]
    own, others = ([side.block(i) for i in statistic.blocks(a, b)] for side in sides)
    blocks = [statistic.compare_block(x, y, None, Options()) for x, y in zip(own, others, strict=True)]
    return -statistic.aggregate(blocks).value


def sharpness(model: Model) -> float:
    """Mean kurtosis of the matrices of all blocks."""
    return float(np.mean([WeightsByBlock(model).block(i)[1]["kurtosis"] for i in range(model.anatomy.n_blocks)]))


MOTHER = "MoTHer: distance of weights, kurtosis"
SCORES: dict[str, Callable[[Model, Model], float]] = {MOTHER: near, "AWM": awm, "MDIR": mdir, "HuRef": huref}
MODELDNA = "modelDNA 0.1.0"  # arXiv 2607.10617
DECOMPOSED = "shares of 6 of 6 published merges, maximal error .011"
STEMMA = "9 of 9 directions answered, of 28; none of 3 where nothing was pruned, quantised or added"


def spanning(models: Sequence[str], score: Mapping[tuple[str, str], float]) -> set[frozenset[str]]:
    """Edges of the spanning tree of the largest scores."""
    group = {model: model for model in models}
    edges = set()
    for a, b in sorted(combinations(models, 2), key=lambda pair: -score[pair]):
        if group[a] != group[b]:
            group = {model: group[a] if of == group[b] else of for model, of in group.items()}
            edges.add(frozenset((a, b)))
    return edges
