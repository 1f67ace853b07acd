"""Moves of the toy that look at no model: several digits at once, and several whose sum stays what it is."""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from provlab.errors import InputError
from provlab.modeldiff.moves import Move, Proposal, Setting, Tokens, replaced, stepped

_TABLE = 1_000_000  # most tuples that SumPreserving lists


@dataclass(frozen=True)
class MultiSite(Move):
    """Replace the tokens at `sites` positions by others, all chosen uniformly.

    Two sites at once alone cannot reach all sequences of two tokens (a parity is kept), so mix it with `SingleSite`.
    """

    sites: int = 2
    name: str = field(init=False)
    informed: bool = field(default=False, init=False)
    reaches_all: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.sites < 1:
            raise InputError(f"sites must be at least 1, not {self.sites}")
        object.__setattr__(self, "name", f"{self.sites} sites")

    def propose(self, tokens: Tokens, setting: Setting) -> Proposal:
        """Draw; see `Move`."""
        return stepped(tokens, _sites(tokens, self.sites, setting.rng), setting)


@dataclass(frozen=True)
class SumPreserving(Move):
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
    name: str = field(init=False)
    informed: bool = field(default=False, init=False)
    reaches_all: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.sites < 2:
            raise InputError(f"sites must be at least 2 to keep a sum, not {self.sites}")
        if self.modulus < 2:
            raise InputError(f"modulus must be at least 2, not {self.modulus}")
        object.__setattr__(self, "name", f"{self.sites} sites, same sum")

    def propose(self, tokens: Tokens, setting: Setting) -> Proposal:
        """Draw; see `Move`."""
        where = _sites(tokens, self.sites, setting.rng)  # (n, sites)
        old = tokens[np.arange(len(tokens))[:, None], where].astype(np.int64)
        kind, place, members, start = _tuples(self.sites, setting.vocabulary, self.modulus)
        code = old @ setting.vocabulary ** np.arange(self.sites - 1, -1, -1)
        count = np.diff(start)[kind[code]]
        # uniform over the members of the class without the present one: skip its place in the list
        drawn = np.floor(setting.rng.random(len(old)) * (count - 1)).astype(np.int64)
        drawn += drawn >= place[code]
        drawn = np.where(count > 1, drawn, 0)
        return replaced(tokens, where, members[start[kind[code]] + drawn])


def _sites(tokens: Tokens, k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """`k` positions for each row, ``(n, k)``, none twice, every set equally likely."""
    n, length = tokens.shape
    if k > length:
        raise InputError(f"sites must be at most the length of the sequences, {length}, not {k}")
    if k == 1:
        return rng.integers(length, size=(n, 1))
    return np.argsort(rng.random((n, length)), axis=1)[:, :k]


@lru_cache(maxsize=8)
def _tuples(sites: int, vocabulary: int, modulus: int) -> tuple[NDArray[np.int64], ...]:
    """List all tuples of tokens by their kind, the sum modulo `modulus`; a tuple's digits are its code.

    Returns
    -------
    tuple of ndarray
        ``(codes,)`` the kind of each code and its place among those of its kind, ``(codes, sites)`` the tuples sorted
        by kind, and ``(kinds + 1,)`` where each kind begins among these.
    """
    if vocabulary**sites > _TABLE:
        raise InputError(
            f"{sites} sites of {vocabulary} tokens are {vocabulary**sites:,} tuples; SumPreserving lists at most "
            f"{_TABLE:,}: take fewer sites"
        )
    codes = np.arange(vocabulary**sites)
    tuples = codes[:, None] // vocabulary ** np.arange(sites - 1, -1, -1) % vocabulary  # the digits of each code
    kind = tuples.sum(axis=1) % modulus
    order = np.argsort(kind, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(kind))])
    place = np.empty_like(codes)
    place[order] = codes - start[kind[order]]
    return kind, place, tuples[order], start
