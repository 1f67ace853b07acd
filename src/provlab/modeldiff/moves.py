"""Ways to change a token sequence a little, each with the factor that keeps the sampled law right.

A move draws y from q(y | x). Metropolis and Hastings accept it with probability min(1, p(y) q(x | y) / (p(x) q(y | x)))
and so leave p as it is; a move reports ``log q(x | y) - log q(y | x)`` with each proposal, zero where q is symmetric.
Moves never look at p: temperatures and models are the sampler's business. The one exception reads a model's own
conditional distributions, to propose tokens that fit what stands left of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from provlab.errors import InputError
from provlab.modeldiff.energy import Tokens

#: Given row numbers and one position for each, ``(n,)``, the log probability of every token there, ``(n, vocabulary)``.
LeftContext = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.floating[Any]]]

_TABLE = 1_000_000  # most tuples that SumPreserving lists


@dataclass(frozen=True, eq=False)
class Proposal:
    """Proposed sequences.

    Attributes
    ----------
    tokens
        ``(n, length)``; a row may equal the current one.
    log_hastings
        ``(n,)``: log q(x | y) - log q(y | x) of each.
    """

    tokens: Tokens
    log_hastings: NDArray[np.float64]


class Move(Protocol):
    """What the sampler asks of a move.

    Attributes
    ----------
    name
        Under which acceptance is reported.
    informed
        Whether `propose` needs a left context.
    reaches_all
        Whether repeating the move leads from any sequence to any other. One move of a mixture must.
    """

    @property
    def name(self) -> str: ...

    @property
    def informed(self) -> bool: ...

    @property
    def reaches_all(self) -> bool: ...

    def propose(
        self, tokens: Tokens, *, vocabulary: int, rng: np.random.Generator, left_context: LeftContext | None = None
    ) -> Proposal:
        """Draw one proposal for each row of ``(n, length)`` tokens, which stay as they are."""
        ...


@dataclass(frozen=True)
class SingleSite:
    """Replace the token at one position by another, both chosen uniformly."""

    name: str = field(default="single site", init=False)
    informed: bool = field(default=False, init=False)
    reaches_all: bool = field(default=True, init=False)

    def propose(
        self, tokens: Tokens, *, vocabulary: int, rng: np.random.Generator, left_context: LeftContext | None = None
    ) -> Proposal:
        """Draw; see `Move`."""
        return _shifted(tokens, 1, vocabulary, rng)


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
        self, tokens: Tokens, *, vocabulary: int, rng: np.random.Generator, left_context: LeftContext | None = None
    ) -> Proposal:
        """Draw; see `Move`."""
        return _shifted(tokens, self.sites, vocabulary, rng)


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
        self, tokens: Tokens, *, vocabulary: int, rng: np.random.Generator, left_context: LeftContext | None = None
    ) -> Proposal:
        """Draw; see `Move`."""
        where = _sites(tokens, self.sites, rng)  # (n, sites)
        old = np.take_along_axis(tokens, where, axis=1).astype(np.int64)
        new = self._redrawn(old, vocabulary, rng)
        result = tokens.copy()
        np.put_along_axis(result, where, new.astype(tokens.dtype), axis=1)
        return Proposal(result, np.zeros(len(tokens)))

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


@dataclass(frozen=True)
class Conditional:
    """Replace one token by a draw from the model's own distribution there, given what stands left of it.

    The position is uniform. The token comes from a mixture: a share `uniform` uniform over the vocabulary, the rest the
    model's conditional distribution raised to the power `temper` and normalised. What stands left of the position is
    the same before and after, so both directions draw from one distribution m, and the present token is left out of
    the draw: q(y | x) = m(y) / (1 - m(x)), whence the Hastings factor m(x) (1 - m(x)) / (m(y) (1 - m(y))).

    Attributes
    ----------
    uniform
        Share in (0, 1]: keeps every token possible.
    temper
        1 is the model's distribution, 0 uniform.
    """

    uniform: float = 0.3
    temper: float = 0.7
    name: str = field(default="conditional", init=False)
    informed: bool = field(default=True, init=False)
    reaches_all: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if not 0 < self.uniform <= 1:
            raise InputError(f"uniform must lie in (0, 1], not {self.uniform}: with 0 some tokens could never be drawn")
        if not self.temper >= 0:
            raise InputError(f"temper must be at least 0, not {self.temper}")

    def propose(
        self, tokens: Tokens, *, vocabulary: int, rng: np.random.Generator, left_context: LeftContext | None = None
    ) -> Proposal:
        """Draw; see `Move`."""
        if left_context is None:
            raise InputError(
                "the conditional move needs an nll that has .conditionals; make one with sequence_nll(model)"
            )
        n, length = tokens.shape
        rows = np.arange(n)
        site = rng.integers(length, size=(n,))
        old = tokens[rows, site].astype(np.int64)
        mixed = self._mixture(np.asarray(left_context(rows, site), dtype=np.float64))  # m, (n, vocabulary)
        # m without the present token, drawn from by inverting its cumulative sum
        without = mixed.copy()
        without[rows, old] = 0.0
        reached = np.cumsum(without, axis=1)
        # the last token of the row whose cumulative share the uniform draw has not passed
        new = (reached <= (rng.random(n) * reached[:, -1])[:, None]).sum(axis=1, dtype=np.int64)
        new = np.minimum(new, vocabulary - 1)
        # rounding at the very end of a row could name the present token or one past the end: then nothing is proposed
        new = np.where(without[rows, new] > 0, new, old)
        # m(y) and m(x): the present token is left out of both draws, hence the factors 1 - m
        forth, back = mixed[rows, new], mixed[rows, old]
        log_hastings = np.log(back) + np.log1p(-back) - np.log(forth) - np.log1p(-forth)
        result = tokens.copy()
        result[rows, site] = new
        return Proposal(result, np.where(new == old, 0.0, log_hastings))

    def _mixture(self, log_probs: NDArray[np.float64]) -> NDArray[np.float64]:
        tempered = np.exp(self.temper * (log_probs - log_probs.max(axis=1, keepdims=True)))
        tempered *= (1 - self.uniform) / tempered.sum(axis=1, keepdims=True)
        return np.asarray(tempered + self.uniform / log_probs.shape[1])


@dataclass(frozen=True)
class Mixture:
    """Several moves, one of them drawn for each sequence at each step.

    Attributes
    ----------
    moves
        At least one of which reaches all sequences.
    weights
        How often each is drawn, relative to the sum; equally often by default. They must not depend on the state,
        and do not: so a mixture of moves in balance is in balance.
    """

    moves: tuple[Move, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "moves", tuple(self.moves))
        weights = tuple(float(w) for w in self.weights) or (1.0,) * len(self.moves)
        object.__setattr__(self, "weights", weights)
        if not self.moves or len(weights) != len(self.moves):
            raise InputError(f"weights must hold one number for each of {len(self.moves)} moves, and one move at least")
        if not all(0 < w < math.inf for w in weights):
            raise InputError(f"weights must be positive and finite, not {weights}")
        if not any(move.reaches_all for move in self.moves):
            names = ", ".join(move.name for move in self.moves)
            raise InputError(f"moves ({names}) cannot reach all sequences; add SingleSite() or Conditional()")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the moves, in order."""
        return tuple(move.name for move in self.moves)

    @property
    def informed(self) -> bool:
        """Whether any of the moves needs a left context."""
        return any(move.informed for move in self.moves)

    def propose(
        self, tokens: Tokens, *, vocabulary: int, rng: np.random.Generator, left_context: LeftContext | None = None
    ) -> tuple[Proposal, NDArray[np.int64]]:
        """Draw one proposal for each row, and return with them which move made each, ``(n,)``."""
        shares = np.cumsum(self.weights) / sum(self.weights)
        which = np.minimum(np.searchsorted(shares, rng.random(len(tokens)), side="right"), len(self.moves) - 1)
        result = tokens.copy()
        log_hastings = np.zeros(len(tokens))
        for k, move in enumerate(self.moves):
            rows = np.flatnonzero(which == k)
            if not len(rows):
                continue
            context = None if left_context is None else partial(_of_rows, left_context, rows)
            made = move.propose(tokens[rows], vocabulary=vocabulary, rng=rng, left_context=context)
            result[rows] = made.tokens
            log_hastings[rows] = made.log_hastings
        return Proposal(result, log_hastings), which


def _of_rows(
    left_context: LeftContext, rows: NDArray[np.int64], some: NDArray[np.int64], sites: NDArray[np.int64]
) -> NDArray[np.floating[Any]]:
    """Left context of a selection of rows, numbered within the selection."""
    return left_context(rows[some], sites)


def _sites(tokens: Tokens, k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """`k` positions for each row, ``(n, k)``, none twice, every set equally likely."""
    n, length = tokens.shape
    if k > length:
        raise InputError(f"sites must be at most the length of the sequences, {length}, not {k}")
    if k == 1:
        return rng.integers(length, size=(n, 1))
    return np.argsort(rng.random((n, length)), axis=1)[:, :k]


def _shifted(tokens: Tokens, k: int, vocabulary: int, rng: np.random.Generator) -> Proposal:
    """Other tokens at `k` positions: a uniform step around the circle of tokens, so that none stays as it is."""
    where = _sites(tokens, k, rng)
    old = np.take_along_axis(tokens, where, axis=1).astype(np.int64)
    new = (old + rng.integers(1, vocabulary, size=where.shape)) % vocabulary
    result = tokens.copy()
    np.put_along_axis(result, where, new.astype(tokens.dtype), axis=1)
    return Proposal(result, np.zeros(len(tokens)))


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
