"""phi_MATCH of every block of one model with every block of another, and unit by unit (Section 4.4.2).

Their p-values share activations and are not independent: Holm's correction is read, never Fisher's aggregate.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from provlab.engine.pairs import all_pairs_of_blocks
from provlab.engine.store import Store
from provlab.inference import pvalues
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.results import floor


@dataclass(frozen=True, eq=False)
class UnitMap:
    """Which hidden unit of the wider MLP each unit of the narrower one is.

    Attributes
    ----------
    by_gate, by_up : array
        ``(h,)`` int64: partner of unit k of the narrower MLP (of the first, where both are equally wide), by gate and
        by up activations; negative for a unit that was left out.
    width : int
        The width of the wider MLP.
    """

    by_gate: NDArray[np.int64]
    by_up: NDArray[np.int64]
    width: int

    @cached_property
    def agreed(self) -> NDArray[np.bool_]:
        """Units with one partner by both; of unrelated MLPs about one in all does."""
        return self.by_gate == self.by_up

    @property
    def kept(self) -> NDArray[np.int64]:
        """Units of the wider MLP that survived in the narrower one, ascending."""
        return np.sort(self.by_gate[self.agreed])


@dataclass(frozen=True, eq=False)
class BlockMap:
    """phi_MATCH of every block of one model with every block of another.

    Attributes
    ----------
    log10_p : array
        ``(blocks of a, blocks of b)``.
    floor : float
        The smallest log10 p that a pair of blocks can reach.
    units : mapping
        ``(i, j)`` -> the matching of their hidden units.
    silent : mapping
        ``(i, j)`` -> why a copy could have been missed in this pair of blocks, for each where it could.
    """

    log10_p: NDArray[np.float64]
    floor: float
    units: Mapping[tuple[int, int], UnitMap] = field(repr=False)
    silent: Mapping[tuple[int, int], str] = field(default_factory=dict, repr=False)

    def found_in_words(self, a: str, b: str, level: float = 0.01) -> str:
        """How many blocks of b match a block of a, and how many pairs could not be tested at all."""
        called = self.holm <= np.log10(level)
        silent = [why for pair, why in self.silent.items() if not called[pair]]
        found, n = called.any(axis=0).sum(), self.log10_p.shape[1]
        if not silent:
            return f"{found} of {n} blocks of {b} match a block of {a}."
        reason = Counter(silent).most_common(1)[0][0]
        if len(silent) == self.log10_p.size:
            return f"No block of {b} could be tested against one of {a}: {reason}."
        return (
            f"{found} of {n} blocks of {b} match a block of {a}; of {self.log10_p.size} pairs of blocks "
            f"{len(silent)} could not be tested: {reason}."
        )

    @cached_property
    def holm(self) -> NDArray[np.float64]:
        """log10 p of all pairs of blocks, corrected together."""
        return pvalues.holm(self.log10_p.ravel()).reshape(self.log10_p.shape)

    def rejected(self, level: float = 0.01) -> list[tuple[int, int]]:
        """Pairs of blocks that Holm's procedure rejects at `level`, in order."""
        return [(int(i), int(j)) for i, j in np.argwhere(self.holm <= np.log10(level))]

    def mistakes(
        self, truth: Sequence[int], level: float = 0.01
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Pairs of blocks that are missed, and pairs that are found and wrong.

        Parameters
        ----------
        truth : sequence of int
            Block of a that each block of b was; empty if none was any.
        level : float
            As of `rejected`.
        """
        right, rejected = {(old, new) for new, old in enumerate(truth)}, set(self.rejected(level))
        return sorted(right - rejected), sorted(rejected - right)

    def origin(self, level: float = 0.01) -> dict[int, int | None]:
        """For each block of b the block of a that it comes from: the smallest p among those found, or None."""
        rejected = self.holm <= np.log10(level)
        best = np.where(rejected, self.log10_p, np.inf).argmin(axis=0)
        return {j: int(best[j]) if rejected[:, j].any() else None for j in range(self.log10_p.shape[1])}


def block_map(a: Model, b: Model, options: Options, *, store: Store | None = None, progress: bool = True) -> BlockMap:
    """Match every block of `a` with every block of `b` by phi_MATCH, after one pass over the text for each model.

    Parameters
    ----------
    a, b : Model
        Both with gated MLPs, of any depth and width. Where their tokenizers cut the text differently, the tokens that
        both have at the same places are read.
    options : Options
        With the held-out text; activations at its ``kept_tokens`` positions are kept, in memory or, where they are
        large, in temporary files; as many blocks are held at once as fit into memory.
    store : Store, optional
        Where finished pairs of blocks are kept and found again.
    progress : bool
        Show a bar with an estimate on stderr.

    Raises
    ------
    NotComparableError
        A model has no gated MLP, or the tokenizers have too few tokens of the text in common.
    """
    log10_p = np.zeros((a.anatomy.n_blocks, b.anatomy.n_blocks))
    units, floors, silent = {}, [], {}
    width = max(a.anatomy.mlp_width, b.anatomy.mlp_width)
    for pair, result in all_pairs_of_blocks("phi_match", a, b, options, store=store, progress=progress).items():
        log10_p[pair] = result.log10_p
        floors.append(floor(result))
        if result.reach == 0:
            silent[pair] = result.why or "nothing could have come out"
        if result.matching is not None:
            by_gate, by_up = _of_all(result.matching, result.detail.without or [])
            units[pair] = UnitMap(by_gate, by_up, width)
    return BlockMap(log10_p, min(floors), units, silent)


def _of_all(matching: NDArray[np.int64], without: Sequence[int]) -> NDArray[np.int64]:
    """Partners of all units of the narrower MLP, ``(2, h)``: a unit that was left out has none, -1 and -2."""
    whole = np.tile([[-1], [-2]], matching.shape[1] + len(without))
    whole[:, np.delete(np.arange(whole.shape[1]), np.asarray(without, np.int64))] = matching
    return whole
