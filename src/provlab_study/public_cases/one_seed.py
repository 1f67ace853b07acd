"""Six models of one seed: all pairs by phi_U and phi_K, the seed of each model, what each kept of another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from provlab.forest import fossils
from provlab.inference import matching, pvalues
from provlab_study.public_cases import replay
from provlab_study.public_cases.layout import LAYERS, IgFold, PlmCs


class ReadNetwork(Protocol):
    """The tensors of a network that pairs are compared by."""

    @property
    def up(self) -> list[NDArray[np.float32]]:
        """The up projection of each block, ``(h, d)``."""

    @property
    def key_biases(self) -> dict[int, NDArray[np.float32]]:
        """The bias of the keys of each block."""


@dataclass(frozen=True)
class Pair:
    """Two of one set.

    Attributes
    ----------
    a, b
        Atoms, or the numbers of an ensemble's networks.
    phi_u, phi_k
        log10 p over all blocks: of up projections, and of key biases.
    agree, units
        Units that the matching leaves in their places, of how many.
    cosine
        Cosine of the up projections.
    """

    a: str
    b: str
    phi_u: float
    phi_k: float
    agree: int
    units: int
    cosine: float


@dataclass(frozen=True)
class Seeded:
    """Which seed drew a model.

    Attributes
    ----------
    atom
        The model.
    seed, tried
        The seed whose replayed key biases agree best, and how many were tried.
    log10_p
        By phi_K, times the number of seeds tried.
    cosines
        Cosines of the key biases of each block with the draw of this seed.
    next_best
        Largest cosine of a block with the draw of another seed.
    farthest
        Largest distance of a key bias from the draw.
    weights
        Correlation of all weights with what a card draws from this seed.
    path
        How far training moved the weights, as a multiple of the length of the draw.
    """

    atom: str
    seed: int
    tried: int
    log10_p: float
    cosines: tuple[float, ...]
    next_best: float
    farthest: float
    weights: float
    path: float


@dataclass(frozen=True)
class SharedTraining:
    """Share of what a model trained that another one has too: 1 if it descends from it, 0 if both trained alone."""

    parent: str
    child: str
    share: float


@dataclass(frozen=True)
class Control:
    """A network that is made here: begun from a seed that is known, None for one beyond those that are tried.

    Attributes
    ----------
    drawn
        The seed that drew it, None where no seed that is tried did.
    seed, log10_p
        The seed that its key biases name, and how surely, as of a `Seeded`.
    """

    drawn: int | None
    seed: int
    log10_p: float


@dataclass(frozen=True)
class Controls:
    """What the measurements say of networks whose truth is known, since they are made here.

    Attributes
    ----------
    drawn
        One begun from another seed than the models', and one from a seed that is not tried.
    descended
        Of a model and a child of it, half of whose path is its own.
    """

    drawn: tuple[Control, ...]
    descended: SharedTraining


def pairs(models: Mapping[str, ReadNetwork]) -> list[Pair]:
    """Compare all pairs by phi_U of the up projections and phi_K of the key biases."""
    result = []
    for (name, a), (other, b) in combinations(models.items(), 2):
        log10_p, agree = [], 0
        for first, second in zip(a.up, b.up, strict=True):
            partners = matching.match(first, second).indices  # (2048,): unit of b for each unit of a
            log10_p.append(pvalues.spearman(partners).log10_p)
            agree += int((partners == np.arange(len(partners))).sum())
        flat = [np.concatenate([up.ravel() for up in model.up]).astype(np.float64) for model in (a, b)]
        cosine = float(flat[0] @ flat[1] / np.linalg.norm(flat[0]) / np.linalg.norm(flat[1]))
        phi_k = fossils.common_draw(a.key_biases, b.key_biases).log10_p
        units = sum(len(up) for up in a.up)
        result.append(Pair(name, other, pvalues.fisher(log10_p), phi_k, agree, units, cosine))
    return result


def figures_of(a: IgFold, b: IgFold) -> dict[str, float]:
    """Two figures of public accusations: the mean cosine of norms, and the correlation over blocks of spreads."""
    cosines = [float(x @ y / np.linalg.norm(x) / np.linalg.norm(y)) for x, y in zip(a.norms, b.norms, strict=True)]
    spreads = [[[matrix.std() for matrix in of_role] for of_role in item.attention.values()] for item in (a, b)]
    alike = [float(np.corrcoef(first, second)[0, 1]) for first, second in zip(*spreads, strict=True)]
    return {"cosine of norm weights": float(np.mean(cosines)), "spread of attention": float(np.mean(alike))}


def biases_of(seed: int) -> dict[int, NDArray[np.floating]]:
    """Key biases that torch draws from a seed, by block."""
    return dict(fossils.linear_layers([(layer.inputs, layer.outputs, layer.block) for layer in LAYERS])(seed))


def seeded(models: Mapping[str, PlmCs], seeds: Sequence[int], blocks: int) -> list[Seeded]:
    """Name the seed of each model, and compare its weights with what a card of so many blocks draws from that seed."""
    replayed = cache(biases_of)
    drawn = cache(lambda seed: replay.weights(LAYERS, seed, blocks))
    result = []
    for model in models.values():
        best = fossils.named_seed(model.key_biases, replayed, seeds)
        seed = int(best.seed if best.seed is not None else -1)
        others = [fossils.common_draw(model.key_biases, replayed(other)).cosines for other in seeds if other != seed]
        apart = [np.abs(bias - replayed(seed)[block]).max() for block, bias in model.key_biases.items()]
        path = replay.paths(drawn(seed), model.tensors)
        start = np.concatenate([*drawn(seed).values()]).astype(np.float64)
        result.append(
            Seeded(
                model.atom,
                seed,
                len(seeds),
                best.log10_p,
                tuple(best.cosines.values()),
                max((value for cosines in others for value in cosines.values()), default=0.0),
                float(max(apart)),
                float(np.corrcoef(start, start + path)[0, 1]),
                float(np.linalg.norm(path) / np.linalg.norm(start)),
            )
        )
    return result


def kept(models: Mapping[str, PlmCs], seed: int, blocks: int) -> list[SharedTraining]:
    """Return for every ordered pair the share of the first one's path that the second has.

    With the draw x, a child c of p has p - x and what it trained itself: <c - x, p - x> / |p - x|^2 is 1 but for the
    part of the child's own training that lies along p - x. Two that were trained apart from x have nearly 0.
    """
    drawn = replay.weights(LAYERS, seed, blocks)
    path = {atom: replay.paths(drawn, model.tensors) for atom, model in models.items()}
    return [SharedTraining(p, c, float(path[p] @ path[c] / (path[p] @ path[p]))) for p, c in permutations(models, 2)]


def controls(model: PlmCs, seed: int, seeds: Sequence[int], blocks: int) -> Controls:
    """Measure three networks that are made of a model, which `seed` drew: of two other seeds, and a child of it.

    Those of other seeds have its path, in another order.
    """
    rng, drawn = np.random.default_rng(seed), []
    path = replay.paths(replay.weights(LAYERS, seed, blocks), model.tensors)
    another = next((other for other in seeds if other != seed), None)
    for other, known in ((another, True), (max(seeds) + 1, False)):
        if other is not None:
            made = _made(f"of seed {other}", other, rng.permutation(path), blocks)
            (row,) = seeded({made.atom: made}, seeds, blocks)
            drawn.append(Control(other if known else None, row.seed, row.log10_p))
    own = rng.standard_normal(path.size)
    own *= 0.5 * np.linalg.norm(path) / np.linalg.norm(own)
    child = _made("child", seed, path + own, blocks)
    shares = kept({model.atom: model, child.atom: child}, seed, blocks)
    return Controls(tuple(drawn), next(row for row in shares if row.child == child.atom))


def _made(atom: str, seed: int, path: NDArray[np.float64], blocks: int) -> PlmCs:
    """Begin a network from a seed and move its weights along a path, layers end to end; biases stay as drawn."""
    tensors, at, biases = {}, 0, biases_of(seed)
    drawn = replay.weights(LAYERS, seed, blocks)
    for layer in LAYERS:
        size = layer.inputs * layer.outputs
        moved = drawn[layer.name] + path[at : at + size].astype(np.float32)
        tensors[f"{layer.name}.weight"] = moved.reshape(layer.outputs, layer.inputs)
        if layer.block is not None:
            tensors[f"{layer.name}.bias"] = np.asarray(biases[layer.block], np.float32)
        at += size
    return PlmCs(atom, tensors)
