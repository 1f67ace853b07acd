"""Replica exchange over token sequences: many chains at a ladder of temperatures, one call of the model a step.

At temperature T a sequence x is drawn with probability proportional to exp(-NLL(x) / T), where NLL is the mean over
tokens (paper, Equation 4). Cold levels find the few sequences that a model likes best and get stuck there; hot levels
go everywhere. Neighbouring levels swap their sequences now and then with the probability that leaves both laws as they
are (Hukushima and Nemoto 1996), on even and odd pairs in turn: that order carries sequences through the ladder faster
than random pairs do (Syed et al. 2022). A *chain* is one whole ladder. Chains never meet, so the differences between
them show how far their common answer can be trusted.

The hottest level may be one whose law is known exactly and drawn from directly: infinity, where all sequences are
equally likely, or the temperature at which a causal model writes (`own_temperature`), where its own text is such draws.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from provlab.errors import InputError
from provlab.files import digest, reading
from provlab.kept import read_arrays, write_arrays
from provlab.modeldiff.moves import NOT_CAUSAL, Causal, Mixture, Move, Nll, Setting, Tokens

_SAVINGS = 10  # writings of the state in a run, each after a hundred steps or more
_AHEAD = 32  # steps for which the hottest level is drawn at once
_SAME = 1e-4  # nats by which two evaluations of one sequence may differ


@dataclass(frozen=True, eq=False)
class Samples:
    """Draws of a replica exchange, burn-in left out.

    Attributes
    ----------
    tokens
        ``(temperature, chain, draw, length)`` in the smallest unsigned type.
    nll
        ``(temperature, chain, draw)`` float64, nats per token.
    temperatures
        ``(temperature,)``, hottest first; may begin with infinity.
    vocabulary
        Number of tokens.
    moves
        Names of the moves.
    replica
        ``(temperature, chain, draw)``: which of a chain's sequences was at that level; shows its way up and down.
    accepted, attempted
        ``(temperature, move)`` counts. A hottest level that is drawn directly makes no attempts.
    swap_rate
        ``(temperature - 1,)``: mean acceptance probability of swaps between a level and the next colder one.
    round_trips
        ``(chain,)``: how often a sequence went from the hottest level to the coldest and back.
    causal
        Whether the losses are those of a causal model, the mean over all tokens but the first.
    """

    tokens: NDArray[np.unsignedinteger[Any]]
    nll: NDArray[np.float64]
    temperatures: NDArray[np.float64]
    vocabulary: int
    moves: tuple[str, ...]
    replica: NDArray[np.int16]
    accepted: NDArray[np.int64]
    attempted: NDArray[np.int64]
    swap_rate: NDArray[np.float64]
    round_trips: NDArray[np.int64]
    causal: bool = False

    @property
    def n_chains(self) -> int:
        """Number of independent ladders."""
        return int(self.nll.shape[1])

    @property
    def length(self) -> int:
        """Tokens in a sequence."""
        return int(self.tokens.shape[3])

    @property
    def betas(self) -> NDArray[np.float64]:
        """Inverse temperatures, ``(temperature,)``, 0 for infinity."""
        return 1.0 / self.temperatures

    def log_total(self, level: int) -> float | None:
        """Log of the sum of exp(-NLL / T) over all sequences at a level, where that is known exactly.

        At infinity it is a sum of ones. At T = 1 / (length - 1) the terms are the probabilities of a sequence given its
        first token, and sum to one for each choice of that.
        """
        choices = float(np.log(self.vocabulary))
        if np.isinf(self.temperatures[level]):
            return self.length * choices
        own = self.causal and np.isclose(self.temperatures[level], own_temperature(self.length), rtol=1e-12)
        return choices if own else None


def replica_exchange(
    nll: Nll,
    *,
    vocabulary: int,
    length: int,
    temperatures: ArrayLike,
    n_chains: int,
    n_steps: int,
    moves: Move | Mixture,
    seed: int,
    burn_in: int | None = None,
    start: Tokens | None = None,
    checkpoint: Path | None = None,
    progress: str = "",
) -> Samples:
    """Sample sequences at every temperature of a ladder.

    Parameters
    ----------
    nll
        Mean token NLL of ``(n, length)`` tokens. For informed moves it must predict tokens, as `SequenceNll` does.
    vocabulary, length
        The space: `length` tokens from 0 to ``vocabulary - 1``.
    temperatures
        The ladder, in any order, none twice. Infinity is drawn from directly, and with informed moves also
        `own_temperature`, if it is the hottest.
    n_chains
        Independent ladders.
    n_steps
        Steps; in each, every sequence is proposed one change and every other pair of levels a swap.
    moves
        One move or a `Mixture`.
    seed
        Everything random follows from it.
    burn_in
        Steps left out at the beginning; a fifth of all by default.
    start
        ``(temperature * chain, length)`` first sequences; by default uniform ones, which informed moves rewrite at the
        temper of each level.
    checkpoint
        A file that draws and the state are written to, and taken up from if it is there: the result is the same,
        bit by bit, as without a stop. A finished run is read from it, and more `n_steps` go on from where it ended.
    progress
        Show a bar with this text; none if it is empty.

    Returns
    -------
    Samples
        Levels sorted from hot to cold.

    Raises
    ------
    InputError
        A parameter does not fit, the model answers with NaN or Inf, or the checkpoint is of another run.
    """
    mixture = moves if isinstance(moves, Mixture) else Mixture((moves,))
    ladder = _checked_ladder(temperatures)
    if n_chains < 1:
        raise InputError(f"n_chains must be at least 1, not {n_chains}")
    burn_in = n_steps // 5 if burn_in is None else burn_in
    if not 0 <= burn_in < n_steps:
        raise InputError(f"burn_in must leave at least one draw of {n_steps} steps: from 0 to {n_steps - 1}")
    run = _Chains(nll, mixture, ladder, n_chains, vocabulary, length, seed)
    first = run.uniform() if start is None else start.astype(np.int64)
    key = digest([vocabulary, length, repr(ladder.tolist()), n_chains, seed, repr(mixture), first.tolist()])
    if checkpoint is not None and checkpoint.exists():
        run.load(checkpoint, key)
    else:
        run.begin(first, rewritten=mixture.informed and start is None)
    between = max(100, n_steps // _SAVINGS)
    with tqdm(total=n_steps, initial=min(run.step, n_steps), desc=progress, disable=not progress, leave=False) as bar:
        while run.step < n_steps:
            run.advance()
            bar.update()
            if checkpoint is not None and (run.step % between == 0 or run.step == n_steps):
                run.save(checkpoint, key)
    return run.samples(n_steps, burn_in)


def own_temperature(length: int) -> float:
    """Temperature at which a causal model writes: its sequences have the law exp(-NLL / T) with 1 / T predictions."""
    return 1 / (length - 1)


def _checked_ladder(temperatures: ArrayLike) -> NDArray[np.float64]:
    """Return a ladder sorted from hot to cold; raise InputError unless it holds different positive numbers."""
    ladder = np.atleast_1d(np.asarray(temperatures, dtype=np.float64))
    if ladder.ndim != 1 or not len(ladder) or not (ladder > 0).all():  # NaN is not above 0 either
        raise InputError(f"temperatures must be a list of positive numbers, not {ladder.tolist()}")
    if len(np.unique(ladder)) < len(ladder):
        raise InputError(f"temperatures must differ from each other: {ladder.tolist()}")
    return np.sort(ladder)[::-1].copy()


@dataclass
class _Chains:
    """The state of a replica exchange, and one step of it.

    A replica is a sequence on its way; swaps move no sequences, they exchange the levels of two replicas. Replicas of
    chain c are ``t * n_chains + c``.
    """

    nll: Nll
    mixture: Mixture
    ladder: NDArray[np.float64]
    n_chains: int
    vocabulary: int
    length: int
    seed: int

    # a checkpoint holds these, the generator and the step
    STATE = ("tokens", "energies", "at", "heading", "fresh_tokens", "fresh_energies")
    RECORD = ("tokens", "nll", "replica", "accepted", "attempted", "swaps", "trips")

    def __post_init__(self) -> None:
        self.causal = self.nll if isinstance(self.nll, Causal) else None
        if self.mixture.informed and self.causal is None:
            raise InputError(NOT_CAUSAL)
        self.betas = 1.0 / self.ladder
        self.rows = len(self.ladder) * self.n_chains
        self.small = np.min_scalar_type(self.vocabulary - 1)
        # the model's own law is drawn from by letting it write, which uninformed moves do not ask for
        own = self.mixture.informed and np.isclose(self.betas[0], self.length - 1, rtol=1e-12)
        self.drawn_directly = bool(np.isinf(self.ladder[0]) or own)
        self.rng = np.random.default_rng(self.seed)
        self.step = 0

    def uniform(self) -> Tokens:
        """First sequences: uniform, the same for every run of this seed and size."""
        return np.random.default_rng([self.seed, 1]).integers(self.vocabulary, size=(self.rows, self.length))

    def begin(self, first: Tokens, *, rewritten: bool) -> None:
        """Start at step 0."""
        chains = self.n_chains
        self.tokens: Tokens = first.astype(np.int64)
        if rewritten:
            self.tokens, self.energies = self._written(self.tokens, np.repeat(self.betas, chains))
        else:
            self.energies = self._energy(self.tokens)
        self.at = np.arange(self.rows).reshape(-1, chains)  # which replica is at a level of a chain
        # 0 not yet at the hottest level, 1 on its way down from there, 2 on its way back up
        self.heading = np.zeros(self.rows, dtype=np.int8)
        self.heading[self.at[0]] = 1
        # draws of the hottest level for some steps ahead, (step, chain, length) and (step, chain)
        self.fresh_tokens: Tokens = np.empty((0, chains, self.length), dtype=np.int64)
        self.fresh_energies = np.empty((0, chains))
        self.record: dict[str, list[NDArray[Any]]] = {name: [] for name in self.RECORD}

    def _energy(self, tokens: Tokens) -> NDArray[np.float64]:
        values = np.asarray(self.nll(tokens), dtype=np.float64)
        if not np.isfinite(values).all():
            raise InputError("nll must be finite for every sequence; it returned NaN or Inf")
        return values

    def _written(self, tokens: Tokens, beta: NDArray[np.float64]) -> tuple[Tokens, NDArray[np.float64]]:
        """Sequences that the model writes at the temper of each level, and their NLL."""
        assert self.causal is not None
        new, energies, _ = self.causal.rewrite(tokens, 0, beta / (self.length - 1), int(self.rng.integers(1 << 62)))
        return new, energies

    def _drawn(self) -> tuple[Tokens, NDArray[np.float64]]:
        """One draw from the law of the hottest level for each chain: ``(chain, length)``, and its NLL."""
        if not len(self.fresh_tokens):
            ahead: Tokens = self.rng.integers(self.vocabulary, size=(_AHEAD * self.n_chains, self.length))
            if self.betas[0] == 0:
                losses = self._energy(ahead)
            else:
                ahead, losses = self._written(ahead, np.full(len(ahead), self.betas[0]))
            self.fresh_tokens = ahead.reshape(_AHEAD, self.n_chains, self.length)
            self.fresh_energies = losses.reshape(_AHEAD, self.n_chains)
        tokens, energies = self.fresh_tokens[0], self.fresh_energies[0]
        self.fresh_tokens, self.fresh_energies = self.fresh_tokens[1:], self.fresh_energies[1:]
        return tokens, energies

    def advance(self) -> None:
        """Propose a change to every sequence and a swap to every other pair of levels; record."""
        levels, moves = len(self.ladder), len(self.mixture.moves)
        self.counts: dict[str, NDArray[Any]] = {
            "accepted": np.zeros((levels, moves), dtype=np.int32),
            "attempted": np.zeros((levels, moves), dtype=np.int32),
            "swaps": np.zeros((2, levels - 1)),  # sum of acceptance probabilities, and number of attempts
            "trips": np.zeros(self.n_chains, dtype=np.int32),
        }
        self._change()
        self._swap(self.step % 2)
        self.step += 1
        self.record["tokens"].append(self.tokens[self.at].astype(self.small))
        self.record["nll"].append(self.energies[self.at])
        self.record["replica"].append((self.at // self.n_chains).astype(np.int16))
        for name, count in self.counts.items():
            self.record[name].append(count)

    def _change(self) -> None:
        if self.drawn_directly:
            hottest = self.at[0]
            self.tokens[hottest], self.energies[hottest] = self._drawn()
        changed = self.at[int(self.drawn_directly) :]  # replicas, (levels, chains)
        if not changed.size:
            return
        level = np.repeat(np.arange(len(self.ladder) - len(changed), len(self.ladder)), self.n_chains)
        rows, beta = changed.ravel(), self.betas[level]
        move = self.mixture.draw(self.rng)
        temper = None if self.causal is None else beta / (self.length - 1)
        setting = Setting(self.vocabulary, self.rng, self.causal, temper)
        proposal = self.mixture.moves[move].propose(self.tokens[rows], setting)
        energies = self._energy(proposal.tokens) if proposal.nll is None else proposal.nll
        # Metropolis-Hastings: log of p(y) q(x | y) / (p(x) q(y | x)); minus an exponential is the log of a uniform
        log_ratio = beta * (self.energies[rows] - energies) + proposal.log_hastings
        accepted = -self.rng.standard_exponential(len(rows)) < log_ratio
        self.tokens[rows[accepted]] = proposal.tokens[accepted]
        self.energies[rows[accepted]] = energies[accepted]
        for name, levels in (("attempted", level), ("accepted", level[accepted])):
            self.counts[name][:, move] += np.bincount(levels, minlength=len(self.ladder)).astype(np.int32)

    def _swap(self, parity: int) -> None:
        hot = np.arange(parity, len(self.ladder) - 1, 2)
        if len(hot):
            # replicas x at the hotter and y at the colder level exchange places with the probability that leaves both
            # laws as they are, min(1, exp((b_hot - b_cold) (E_x - E_y))); all arrays are (pairs, chains)
            above, below = self.at[hot], self.at[hot + 1]
            gap = (self.betas[hot] - self.betas[hot + 1])[:, None]
            log_ratio = gap * (self.energies[above] - self.energies[below])
            swapped = -self.rng.standard_exponential(above.shape) < log_ratio
            self.at[hot], self.at[hot + 1] = np.where(swapped, below, above), np.where(swapped, above, below)
            self.counts["swaps"][0, hot] += np.exp(np.minimum(log_ratio, 0)).sum(axis=1)
            self.counts["swaps"][1, hot] += self.n_chains
        hottest, coldest = self.at[0], self.at[-1]
        self.counts["trips"] += self.heading[hottest] == 2
        self.heading[hottest] = 1
        self.heading[coldest] = np.where(self.heading[coldest] == 1, 2, self.heading[coldest])

    def samples(self, n_steps: int, burn_in: int) -> Samples:
        """Return the draws recorded up to a step, without the burn-in."""
        record = {name: np.stack(values[burn_in:n_steps]) for name, values in self.record.items()}
        tokens, nll, replica = (np.ascontiguousarray(np.moveaxis(record[name], 0, 2)) for name in self.RECORD[:3])
        probability, attempts = record["swaps"].sum(axis=0)
        return Samples(
            tokens,
            nll,
            self.ladder,
            self.vocabulary,
            self.mixture.names,
            replica,
            record["accepted"].sum(axis=0, dtype=np.int64),
            record["attempted"].sum(axis=0, dtype=np.int64),
            np.divide(probability, attempts, out=np.full(len(attempts), np.nan), where=attempts > 0),
            record["trips"].sum(axis=0, dtype=np.int64),
            self.causal is not None,
        )

    def save(self, path: Path, key: str) -> None:
        """Write the draws and the state, whole or not at all."""
        state = json.dumps({"key": key, "step": self.step, "rng": self.rng.bit_generator.state})
        arrays = {name: getattr(self, name) for name in self.STATE}
        arrays |= {f"record_{name}": np.array(values) for name, values in self.record.items()}
        write_arrays(path, {"state": np.array(state), **arrays})

    def load(self, path: Path, key: str) -> None:
        """Take up a state written by `save`."""
        arrays = read_arrays(path)
        with reading(path):
            state = json.loads(str(arrays["state"]))
            if state["key"] != key:
                raise InputError(f"sampler state {path} is of other settings; delete that file, or name another")
            for name in self.STATE:
                setattr(self, name, arrays[name])
            self.record = {name: list(arrays[f"record_{name}"]) for name in self.RECORD}
            self.step, self.rng.bit_generator.state = state["step"], state["rng"]
        if np.abs(self.nll(self.tokens) - self.energies).max() > _SAME:
            raise InputError(f"sampler state {path} is of another model; delete that file, or name another")
