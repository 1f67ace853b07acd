"""Ways to change a token sequence a little, each with the factor that keeps the sampled law right.

A move draws y from q(y | x). Metropolis and Hastings accept it with probability min(1, p(y) q(x | y) / (p(x) q(y | x)))
and so leave p as it is; a move reports ``log q(x | y) - log q(y | x)`` with each proposal, zero where q is symmetric.
Most moves never look at p: temperatures and models are the sampler's business. Two ask a causal model what it would
write. With the mean loss over N predictions, the law of its sequences at temperature T is the product of its
conditional probabilities raised to the power t = 1 / (N T). These moves draw from the conditional distributions raised
to that power, the *temper*, so that what they propose at each level is nearly a draw from its law.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from provlab.errors import InputError

Tokens = NDArray[np.integer[Any]]
NOT_CAUSAL = "an informed move needs an nll that predicts tokens; make one with sequence_nll(model)"
_WHOLE = 0.5  # share of rewrites from the first token on: twice the effective draws of places that are all alike


class Nll(Protocol):
    """Mean token NLL, ``(n,)`` float64 in nats, of ``(n, length)`` tokens."""

    def __call__(self, tokens: Tokens) -> NDArray[np.float64]: ...


@runtime_checkable
class Causal(Protocol):
    """A model that predicts each token from the tokens left of it, as `provlab.modeldiff.nll.SequenceNll` does."""

    def next_log_probs(self, prefix: Tokens) -> NDArray[np.float64]: ...

    def rewrite(
        self, tokens: Tokens, cut: int, temper: NDArray[np.float64], seed: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]: ...


@dataclass(frozen=True, eq=False)
class Setting:
    """What a move may use.

    Attributes
    ----------
    vocabulary
        Tokens are from 0 to ``vocabulary - 1``.
    rng
        Source of everything random.
    model, temper
        For informed moves: the model, and ``(n,)`` the power that matches the level of each row.
    """

    vocabulary: int
    rng: np.random.Generator
    model: Causal | None = None
    temper: NDArray[np.float64] | None = None

    def informed(self) -> tuple[Causal, NDArray[np.float64]]:
        """Return the model and the tempers; raise InputError without them."""
        if self.model is None or self.temper is None:
            raise InputError(NOT_CAUSAL)
        return self.model, self.temper


@dataclass(frozen=True, eq=False)
class Proposal:
    """Proposed sequences.

    Attributes
    ----------
    tokens
        ``(n, length)``; a row may equal the current one.
    log_hastings
        ``(n,)``: log q(x | y) - log q(y | x) of each.
    nll
        ``(n,)`` loss of each under the model that was asked; None where none was.
    """

    tokens: Tokens
    log_hastings: NDArray[np.float64]
    nll: NDArray[np.float64] | None = None


class Move(ABC):
    """One kind of change.

    Attributes
    ----------
    name
        Under which acceptance is reported.
    informed
        Whether `propose` needs a model and tempers.
    reaches_all
        Whether repeating the move leads from any sequence to any other. One move of a mixture must.
    """

    name: str
    informed: bool
    reaches_all: bool

    @abstractmethod
    def propose(self, tokens: Tokens, setting: Setting) -> Proposal:
        """Draw one proposal for each row of ``(n, length)`` tokens, which stay as they are."""


@dataclass(frozen=True)
class SingleSite(Move):
    """Replace the token at one position by another, both chosen uniformly."""

    name: str = field(default="single site", init=False)
    informed: bool = field(default=False, init=False)
    reaches_all: bool = field(default=True, init=False)

    def propose(self, tokens: Tokens, setting: Setting) -> Proposal:
        """Draw; see `Move`."""
        return stepped(tokens, setting.rng.integers(tokens.shape[1], size=(len(tokens), 1)), setting)


@dataclass(frozen=True)
class Conditional(Move):
    """Replace one token by a draw from the model's own distribution there, given the tokens left of it.

    The position is uniform, and the same for all rows. The token comes from a mixture: a share `uniform` uniform over
    the vocabulary, the rest the model's conditional distribution raised to the row's temper and normalised. The tokens
    left of the position are the same before and after, so both directions draw from one distribution m, and the present
    token is left out of the draw: q(y | x) = m(y) / (1 - m(x)), whence the Hastings factor
    m(x) (1 - m(x)) / (m(y) (1 - m(y))).

    Attributes
    ----------
    uniform
        Share in (0, 1]: keeps every token possible.
    """

    uniform: float = 0.1
    name: str = field(default="conditional", init=False)
    informed: bool = field(default=True, init=False)
    reaches_all: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if not 0 < self.uniform <= 1:
            raise InputError(f"uniform must lie in (0, 1], not {self.uniform}: with 0 some tokens could never be drawn")

    def propose(self, tokens: Tokens, setting: Setting) -> Proposal:
        """Draw; see `Move`."""
        (model, temper), rng = setting.informed(), setting.rng
        rows, site = np.arange(len(tokens)), int(rng.integers(tokens.shape[1]))
        old = tokens[rows, site].astype(np.int64)
        mixed = self._mixture(model.next_log_probs(tokens[:, :site]), temper)  # m, (n, vocabulary)
        # m without the present token, drawn from by inverting its cumulative sum
        without = mixed.copy()
        without[rows, old] = 0.0
        reached = np.cumsum(without, axis=1)
        # the last token of the row whose cumulative share the uniform draw has not passed
        new = (reached <= (rng.random(len(rows)) * reached[:, -1])[:, None]).sum(axis=1, dtype=np.int64)
        new = np.minimum(new, setting.vocabulary - 1)
        # rounding at the very end of a row could name the present token or one past the end: then nothing is proposed
        new = np.where(without[rows, new] > 0, new, old)
        # m(y) and m(x): the present token is left out of both draws, hence the factors 1 - m
        forth, back = mixed[rows, new], mixed[rows, old]
        log_hastings = np.log(back) + np.log1p(-back) - np.log(forth) - np.log1p(-forth)
        result = tokens.copy()
        result[rows, site] = new
        return Proposal(result, np.where(new == old, 0.0, log_hastings))

    def _mixture(self, log_probs: NDArray[np.float64], temper: NDArray[np.float64]) -> NDArray[np.float64]:
        tempered = np.exp(temper[:, None] * (log_probs - log_probs.max(axis=1, keepdims=True)))
        tempered *= (1 - self.uniform) / tempered.sum(axis=1, keepdims=True)
        return np.asarray(tempered + self.uniform / log_probs.shape[1])


@dataclass(frozen=True)
class Rewrite(Move):
    """Let the model write all tokens from one place to the end, each by its conditional at the row's temper.

    Half of the time that is the first place, so that nothing of the old sequence stays, and otherwise each place alike;
    it is the same for all rows. With the normalisers
    Z(u) = sum_v p(v | u)^t of each left context u,

        q(y | x) = prod_i p(y_i | y_<i)^t / Z(y_<i),

    over the positions i redrawn. The level's law is the product of p^t alone: a proposal is accepted by the quotient of
    the normalisers that it meets and those that it leaves, and always at t = 1, where they are 1.
    """

    name: str = field(default="rewrite", init=False)
    informed: bool = field(default=True, init=False)
    reaches_all: bool = field(default=True, init=False)

    def propose(self, tokens: Tokens, setting: Setting) -> Proposal:
        """Draw; see `Move`."""
        (model, temper), rng = setting.informed(), setting.rng
        cut = 0 if rng.random() < _WHOLE else int(rng.integers(tokens.shape[1]))
        new, nll, log_hastings = model.rewrite(tokens, cut, temper, int(rng.integers(1 << 62)))
        return Proposal(new, log_hastings, nll)


@dataclass(frozen=True)
class Mixture:
    """Several moves, one of them drawn for all sequences at each step, all equally often.

    Which one does not depend on the state: so a mixture of moves in balance is in balance.

    Attributes
    ----------
    moves
        At least one of which reaches all sequences.
    """

    moves: tuple[Move, ...]

    def __post_init__(self) -> None:
        if not any(move.reaches_all for move in self.moves):
            names = ", ".join(self.names)
            raise InputError(f"moves ({names}) cannot reach all sequences; add SingleSite() or Conditional()")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the moves, in order."""
        return tuple(move.name for move in self.moves)

    @property
    def informed(self) -> bool:
        """Whether any of the moves needs a model."""
        return any(move.informed for move in self.moves)

    def draw(self, rng: np.random.Generator) -> int:
        """Draw which move comes next.

        All chains make it together, and at one place. They stay independent for what is asked of them: each move leaves
        the law as it is, so which moves were drawn does not bias any chain, and chains differ by all the rest.
        """
        return int(rng.random() * len(self.moves))


#: moves for a causal language model
WRITING = Mixture((Rewrite(), Conditional()))


def stepped(tokens: Tokens, where: NDArray[np.int64], setting: Setting) -> Proposal:
    """Propose other tokens at places ``(n, k)``: a uniform step around the circle of tokens, so that none stays."""
    old = tokens[np.arange(len(tokens))[:, None], where].astype(np.int64)
    steps = setting.rng.integers(1, setting.vocabulary, size=where.shape)
    return replaced(tokens, where, (old + steps) % setting.vocabulary)


def replaced(tokens: Tokens, where: NDArray[np.int64], new: NDArray[np.int64]) -> Proposal:
    """Propose `new` tokens at places ``(n, k)``, drawn such that the way back is as likely."""
    result = tokens.copy()
    result[np.arange(len(tokens))[:, None], where] = new
    return Proposal(result, np.zeros(len(tokens)))
