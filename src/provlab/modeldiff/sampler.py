"""Replica exchange over token sequences: many chains at a ladder of temperatures, one call of the model a step.

At temperature T a sequence x is drawn with probability proportional to exp(-NLL(x) / T), where NLL is the mean over
tokens (paper, Equation 4). Cold levels find the few sequences that a model likes best and get stuck there; hot levels
go everywhere. Neighbouring levels swap their sequences now and then with the probability that leaves both laws as they
are (Hukushima and Nemoto 1996), on even and odd pairs in turn: that order carries sequences through the ladder faster
than random pairs do (Syed et al. 2022). A *chain* is one whole ladder. Chains never meet, so what differs between them
says how far their common answer can be trusted.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm.auto import tqdm

from provlab.errors import InputError
from provlab.files import digest
from provlab.kept import Arrays, read_arrays, reading, write_arrays
from provlab.modeldiff.energy import SAME, Energy, Nll, Tokens
from provlab.modeldiff.moves import Mixture, Move

_SAVE_EVERY = 100  # steps between writings of the state


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
        ``(temperature, move)`` counts. Infinite temperature draws afresh and makes no attempts.
    swap_rate
        ``(temperature - 1,)``: mean acceptance probability of swaps between a level and the next colder one.
    round_trips
        ``(chain,)``: how often a sequence went from the hottest level to the coldest and back.
    n_steps, burn_in, thin
        Steps in all, steps left out, and steps from one draw to the next.
    evaluations
        Sequences sent to the model, burn-in included.
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
    n_steps: int
    burn_in: int
    thin: int
    evaluations: int

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
    thin: int = 1,
    burn_in: int | None = None,
    start: Tokens | None = None,
    checkpoint: Path | None = None,
    progress: str = "",
) -> Samples:
    """Sample sequences at every temperature of a ladder.

    Parameters
    ----------
    nll
        Mean token NLL of ``(n, length)`` tokens. For informed moves also ``.conditionals``, as `SequenceNll` has it.
    vocabulary, length
        The space: `length` tokens from 0 to ``vocabulary - 1``.
    temperatures
        The ladder, in any order, none twice; infinity is the uniform law and is drawn from directly.
    n_chains
        Independent ladders.
    n_steps
        Steps; in each, every sequence is proposed one change and every other pair of levels a swap.
    moves
        One move or a `Mixture`.
    seed
        Everything random follows from it.
    thin
        Keep every so manieth step.
    burn_in
        Steps left out at the beginning; a fifth of all by default.
    start
        ``(temperature * chain, length)`` first sequences; uniform ones by default.
    checkpoint
        A file that the state is written to, and taken up from if it is there: the result is the same, bit by bit,
        as without a stop. A finished run is read from it, and more `n_steps` go on from where it ended.
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
    ladder = check_temperatures(temperatures)
    for name, value, least in (
        ("vocabulary", vocabulary, 2),
        ("length", length, 1),
        ("n_chains", n_chains, 1),
        ("n_steps", n_steps, 1),
        ("thin", thin, 1),
    ):
        if value < least:
            raise InputError(f"{name} must be at least {least}, not {value}")
    burn_in = n_steps // 5 if burn_in is None else burn_in
    if not 0 <= burn_in <= n_steps - thin:
        raise InputError(f"burn_in must leave at least one draw of {n_steps} steps: from 0 to {n_steps - thin}")
    energy = Energy(nll, mixture.informed, vocabulary)
    run = _Run(energy, mixture, ladder, n_chains, vocabulary, length, thin, seed)
    first = run.uniform(seed) if start is None else _checked_start(start, run.rows, length, vocabulary)
    key = digest([vocabulary, length, repr(ladder.tolist()), n_chains, thin, seed, repr(mixture), first.tolist()])
    if checkpoint is not None and checkpoint.exists():
        run.load(checkpoint, key)
    else:
        run.begin(first)
    with tqdm(total=n_steps, initial=min(run.step, n_steps), desc=progress, disable=not progress, leave=False) as bar:
        while run.step < n_steps:
            run.advance()
            bar.update()
            if checkpoint is not None and (run.step % _SAVE_EVERY == 0 or run.step == n_steps):
                run.save(checkpoint, key)
    return run.samples(n_steps, burn_in)


def check_temperatures(temperatures: ArrayLike) -> NDArray[np.float64]:
    """Return a ladder sorted from hot to cold; raise InputError unless it holds different positive numbers."""
    ladder = np.atleast_1d(np.asarray(temperatures, dtype=np.float64))
    if ladder.ndim != 1 or not len(ladder) or not (ladder > 0).all():  # NaN is not above 0 either
        raise InputError(f"temperatures must be a list of positive numbers, not {ladder.tolist()}")
    if len(np.unique(ladder)) < len(ladder):
        raise InputError(f"temperatures must differ from each other: {ladder.tolist()}")
    return np.sort(ladder)[::-1].copy()


def _checked_start(start: Tokens, rows: int, length: int, vocabulary: int) -> Tokens:
    first = np.asarray(start)
    if first.shape != (rows, length) or not np.issubdtype(first.dtype, np.integer):
        raise InputError(f"start must be integers of shape ({rows}, {length}), not {first.dtype} {first.shape}")
    if first.min() < 0 or first.max() >= vocabulary:
        raise InputError(f"start must hold tokens from 0 to {vocabulary - 1}")
    return first.astype(np.int64)


class _Run:
    """The state of a replica exchange, and one step of it.

    A replica is a sequence on its way; swaps move no sequences, they exchange the levels of two replicas. Replicas of
    chain c are ``t * n_chains + c``.
    """

    # what a checkpoint holds, besides the generator, the step and the number of evaluations
    STATE = ("tokens", "energies", "conditionals", "at", "heading")
    RECORD = ("tokens", "nll", "replica", "accepted", "attempted", "swaps", "trips")

    def __init__(
        self,
        energy: Energy,
        mixture: Mixture,
        ladder: NDArray[np.float64],
        n_chains: int,
        vocabulary: int,
        length: int,
        thin: int,
        seed: int,
    ) -> None:
        self.energy, self.mixture, self.ladder = energy, mixture, ladder
        self.n_chains, self.vocabulary, self.length, self.thin = n_chains, vocabulary, length, thin
        self.betas = 1.0 / ladder
        self.rows = len(ladder) * n_chains
        self.small = np.min_scalar_type(vocabulary - 1)
        self.rng = np.random.default_rng(seed)
        self.step = 0

    def uniform(self, seed: int) -> Tokens:
        """First sequences: uniform, the same for every run of this seed and size."""
        return np.random.default_rng([seed, 1]).integers(self.vocabulary, size=(self.rows, self.length))

    def begin(self, first: Tokens) -> None:
        """Start at step 0."""
        levels, chains, moves = len(self.ladder), self.n_chains, len(self.mixture.moves)
        self.tokens: Tokens = first.astype(np.int64)
        self.energies, conditionals = self.energy(self.tokens)
        self.conditionals = None if conditionals is None else np.array(conditionals)  # ours to change
        self.at = np.arange(self.rows).reshape(levels, chains)  # which replica is at a level of a chain
        # 0 not yet at the hottest level, 1 on its way down from there, 2 on its way back up
        self.heading = np.zeros(self.rows, dtype=np.int8)
        self.heading[self.at[0]] = 1
        self.record: dict[str, list[NDArray[Any]]] = {name: [] for name in self.RECORD}
        self.counts = self._no_counts(levels, chains, moves)

    @staticmethod
    def _no_counts(levels: int, chains: int, moves: int) -> dict[str, NDArray[Any]]:
        return {
            "accepted": np.zeros((levels, moves), dtype=np.int32),
            "attempted": np.zeros((levels, moves), dtype=np.int32),
            "swaps": np.zeros((2, levels - 1)),  # sum of acceptance probabilities, and number of attempts
            "trips": np.zeros(chains, dtype=np.int32),
        }

    def advance(self) -> None:
        """Propose a change to every sequence and a swap to every other pair of levels; record."""
        self._change()
        self._swap(self.step % 2)
        self.step += 1
        if self.step % self.thin == 0:
            self.record["tokens"].append(self.tokens[self.at].astype(self.small))
            self.record["nll"].append(self.energies[self.at])
            self.record["replica"].append((self.at // self.n_chains).astype(np.int16))
            for name, count in self.counts.items():
                self.record[name].append(count.copy())
                count[...] = 0

    def _change(self) -> None:
        # one row for each replica, whatever its level: (rows,) = (levels * chains,)
        level = np.empty(self.rows, dtype=np.int64)
        level[self.at] = np.arange(len(self.ladder))[:, None]
        beta = self.betas[level]
        conditionals = self.conditionals
        context = None if conditionals is None else (lambda rows, sites: conditionals[rows, sites])
        proposal, which = self.mixture.propose(
            self.tokens, vocabulary=self.vocabulary, rng=self.rng, left_context=context
        )
        proposed, log_hastings = proposal.tokens, proposal.log_hastings
        # where every sequence is equally likely, a fresh one is a draw from the law itself
        free = beta == 0
        proposed[free] = self.rng.integers(self.vocabulary, size=(int(free.sum()), self.length))
        log_hastings = np.where(free, 0.0, log_hastings)
        energies, new_conditionals = self.energy(proposed)
        # Metropolis-Hastings: log of p(y) q(x | y) / (p(x) q(y | x)); minus an exponential is the log of a uniform
        log_ratio = beta * (self.energies - energies) + log_hastings
        accepted = -self.rng.standard_exponential(self.rows) < log_ratio
        accepted |= free
        self.tokens[accepted] = proposed[accepted]
        self.energies[accepted] = energies[accepted]
        if conditionals is not None and new_conditionals is not None:
            conditionals[accepted] = new_conditionals[accepted]
        tried = ~free
        np.add.at(self.counts["attempted"], (level[tried], which[tried]), 1)
        np.add.at(self.counts["accepted"], (level[tried & accepted], which[tried & accepted]), 1)

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
        """Return what was recorded up to a step, without the burn-in."""
        kept = slice(burn_in // self.thin, n_steps // self.thin)
        record = {name: np.stack(values[kept]) for name, values in self.record.items()}
        probability, tried = record["swaps"].sum(axis=0)
        return Samples(
            tokens=np.ascontiguousarray(np.moveaxis(record["tokens"], 0, 2)),
            nll=np.ascontiguousarray(np.moveaxis(record["nll"], 0, 2)),
            temperatures=self.ladder,
            vocabulary=self.vocabulary,
            moves=self.mixture.names,
            replica=np.ascontiguousarray(np.moveaxis(record["replica"], 0, 2)),
            accepted=record["accepted"].sum(axis=0, dtype=np.int64),
            attempted=record["attempted"].sum(axis=0, dtype=np.int64),
            swap_rate=np.divide(probability, tried, out=np.full(len(tried), np.nan), where=tried > 0),
            round_trips=record["trips"].sum(axis=0, dtype=np.int64),
            n_steps=n_steps,
            burn_in=burn_in,
            thin=self.thin,
            evaluations=self.energy.evaluations,
        )

    def save(self, path: Path, key: str) -> None:
        """Write the whole state, whole or not at all."""
        said = {
            "key": key,
            "step": self.step,
            "rng": self.rng.bit_generator.state,
            "evaluations": self.energy.evaluations,
        }
        arrays = {f"state_{name}": getattr(self, name) for name in self.STATE if getattr(self, name) is not None}
        arrays |= {f"record_{name}": np.stack(values) for name, values in self.record.items() if values}
        arrays |= {f"counts_{name}": values for name, values in self.counts.items()}
        write_arrays(path, {"said": np.array(json.dumps(said)), **arrays})

    def load(self, path: Path, key: str) -> None:
        """Take up a state written by `save`."""
        arrays = read_arrays(path)
        with reading(path):
            said = json.loads(str(arrays.pop("said")))
        if said["key"] != key:
            raise InputError(f"sampler state {path} is of other settings; delete that file, or name another")
        self._restore(arrays)
        now, _ = self.energy(self.tokens)
        if np.abs(now - self.energies).max() > SAME:
            raise InputError(f"sampler state {path} is of another model; delete that file, or name another")
        self.step = said["step"]
        self.rng.bit_generator.state = said["rng"]
        self.energy.evaluations = said["evaluations"]

    def _restore(self, arrays: Arrays) -> None:
        """Fill state, records and counts from the arrays of a checkpoint."""
        for name in self.STATE:
            setattr(self, name, arrays.get(f"state_{name}"))
        self.record = {name: list(arrays.get(f"record_{name}", ())) for name in self.RECORD}
        self.counts = {key.removeprefix("counts_"): value for key, value in arrays.items() if key.startswith("counts_")}
