"""Moves of the toy that look at no model: several digits at once, and several whose sum stays what it is."""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from provlab.errors import InputError
from provlab.modeldiff.energy import Causal, Tokens
from provlab.modeldiff.moves import Proposal, replaced, stepped

_TABLE = 1_000_000  # most tuples that SumPreserving lists


@dataclass(frozen=True)
class MultiSite:
    """Replace the tokens at `sites` positions by others, all chosen uniformly.

    Two sites at once alone cannot reach all sequences of two tokens (a parity is kept), so mix it with `SingleSite`.
    """

    sites: int = 2
    informed: bool = field(default=False, init=False)
    reaches_all: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.sites < 1:
            raise InputError(f"sites must be at least 1, not {self.sites}")

    @property
    def name(self) -> str:
        """Name with the number of sites."""
        return f"{self.sites} sites"

    def propose(
        self,
        tokens: Tokens,
        *,
        vocabulary: int,
        rng: np.random.Generator,
        model: Causal | None = None,
        temper: NDArray[np.float64] | None = None,
    ) -> Proposal:
        """Draw; see `Move`."""
        return stepped(tokens, _sites(tokens, self.sites, rng), vocabulary, rng)


@dataclass(frozen=True)
class SumPreserving:
    """Redraw `sites` tokens so that their sum modulo `modulus` stays what it was.

    The new tokens are drawn uniformly from all others with that sum: a symmetric move inside one class of sequences.
    In a space where a model likes one class best, such as digits that sum to a multiple of 30, it goes from one likely
    sequence to the next without a climb over unlikely ones; the other classes are left to the other moves.

    Attributes
    ----------
    sites
        Positions redrawn, at least 2. With all of them the proposal is uniform over the class.
    modulus
        At least 2.
    """

    sites: int
    modulus: int
    informed: bool = field(default=False, init=False)
    reaches_all: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.sites < 2:
            raise InputError(f"sites must be at least 2 to keep a sum, not {self.sites}")
        if self.modulus < 2:
            raise InputError(f"modulus must be at least 2, not {self.modulus}")

    @property
    def name(self) -> str:
        """Name with the number of sites."""
        return f"{self.sites} sites, same sum"

    def propose(
        self,
        tokens: Tokens,
        *,
        vocabulary: int,
        rng: np.random.Generator,
        model: Causal | None = None,
        temper: NDArray[np.float64] | None = None,
    ) -> Proposal:
        """Draw; see `Move`."""
        where = _sites(tokens, self.sites, rng)  # (n, sites)
        old = tokens[np.arange(len(tokens))[:, None], where].astype(np.int64)
        return replaced(tokens, where, self._redrawn(old, vocabulary, rng))

    def _redrawn(self, old: NDArray[np.int64], vocabulary: int, rng: np.random.Generator) -> NDArray[np.int64]:
        table = _tuples(self.sites, vocabulary, self.modulus)
        code = old @ table.powers
        kind = table.kind[code]
        count = table.count[kind]
        # uniform over the members of the class without the present one: skip its place in the list
        drawn = np.floor(rng.random(len(old)) * (count - 1)).astype(np.int64)
        drawn += drawn >= table.place[code]
        drawn = np.where(count > 1, drawn, 0)
        return table.members[table.start[kind] + drawn]


def _sites(tokens: Tokens, k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """`k` positions for each row, ``(n, k)``, none twice, every set equally likely."""
    n, length = tokens.shape
    if k > length:
        raise InputError(f"sites must be at most the length of the sequences, {length}, not {k}")
    if k == 1:
        return rng.integers(length, size=(n, 1))
    return np.argsort(rng.random((n, length)), axis=1)[:, :k]


@dataclass(frozen=True, eq=False)
class _Tuples:
    """All tuples of tokens, listed by the kind of their sum.

    `powers` turns a tuple into its code; a code has a kind and a place within it; a kind's members begin at `start`.
    """

    powers: NDArray[np.int64]
    kind: NDArray[np.int64]
    place: NDArray[np.int64]
    members: NDArray[np.int64]
    start: NDArray[np.int64]
    count: NDArray[np.int64]


@lru_cache(maxsize=8)
def _tuples(sites: int, vocabulary: int, modulus: int) -> _Tuples:
    if vocabulary**sites > _TABLE:
        raise InputError(
            f"{sites} sites of {vocabulary} tokens are {vocabulary**sites:,} tuples; SumPreserving lists at most "
            f"{_TABLE:,}: take fewer sites"
        )
    powers = vocabulary ** np.arange(sites - 1, -1, -1)
    codes = np.arange(vocabulary**sites)
    tuples = codes[:, None] // powers % vocabulary  # (vocabulary ** sites, sites): the digits of each code
    total = tuples.sum(axis=1)
    kind = total % modulus
    order = np.argsort(kind, kind="stable")
    count = np.bincount(kind)
    start = np.concatenate([[0], np.cumsum(count)[:-1]])
    place = np.empty_like(codes)
    place[order] = codes - start[kind[order]]
    return _Tuples(powers, kind, place, tuples[order], start, count)
