"""Replica exchange over token sequences: many chains at a ladder of temperatures, one call of the model a step.

At temperature T a sequence x is drawn with probability proportional to exp(-NLL(x) / T), where NLL is the mean over
tokens (paper, Equation 4). Cold levels find the few sequences that a model likes best and get stuck there; hot levels
go everywhere. Neighbouring levels swap their sequences now and then with the probability that leaves both laws as they
are (Hukushima and Nemoto 1996), on even and odd pairs in turn: that order carries sequences through the ladder faster
than random pairs do (Syed et al. 2022). A *chain* is one whole ladder. Chains never meet, so what differs between them
says how far their common answer can be trusted.

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
from provlab.files import digest
from provlab.kept import read_arrays, reading, write_arrays
from provlab.modeldiff.energy import SAME, Causal, Energy, Nll, Tokens
from provlab.modeldiff.moves import Mixture, Move

_SAVE_EVERY = 100  # steps between writings of the state
_STATE = "state.npz"  # in the folder of a checkpoint, beside the draws up to each step that was saved
_AFRESH = 32  # steps for which the hottest level is drawn at once


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
        ``(temperature, move)`` counts. A hottest level that is drawn afresh makes no attempts.
    swap_rate
        ``(temperature - 1,)``: mean acceptance probability of swaps between a level and the next colder one.
    round_trips
        ``(chain,)``: how often a sequence went from the hottest level to the coldest and back.
    n_steps, burn_in, thin
        Steps in all, steps left out, and steps from one draw to the next.
    evaluations
        Sequences sent to the model, burn-in included.
    predictions
        How many tokens of a sequence a causal model predicts, None for any other function.
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
    predictions: int | None = None

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

        At infinity it is a sum of ones. At T = 1 / N, with the mean over N predictions, the terms are the
        probabilities of a sequence given the tokens that nothing predicts, and sum to one for each choice of these.
        """
        if np.isinf(self.temperatures[level]):
            return self.length * float(np.log(self.vocabulary))
        if self.predictions is None or not np.isclose(self.betas[level], self.predictions, rtol=1e-12):
            return None
        return (self.length - self.predictions) * float(np.log(self.vocabulary))


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
    thin
        Keep every so manieth step.
    burn_in
        Steps left out at the beginning; a fifth of all by default.
    start
        ``(temperature * chain, length)`` first sequences; by default uniform ones, which informed moves rewrite at the
        temper of each level.
    checkpoint
        A folder that draws and the state are written to, and taken up from if they are there: the result is the same,
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
    energy = Energy(nll, mixture.informed)
    run = _Run(energy, mixture, ladder, n_chains, vocabulary, length, thin, seed)
    first = run.uniform(seed) if start is None else _checked_start(start, run.rows, length, vocabulary)
    key = digest([vocabulary, length, repr(ladder.tolist()), n_chains, thin, seed, repr(mixture), first.tolist()])
    if checkpoint is not None and (checkpoint / _STATE).exists():
        run.load(checkpoint, key)
    else:
        run.begin(first, rewritten=mixture.informed and start is None)
    with tqdm(total=n_steps, initial=min(run.step, n_steps), desc=progress, disable=not progress, leave=False) as bar:
        while run.step < n_steps:
            run.advance()
            bar.update()
            if checkpoint is not None and (run.step % _SAVE_EVERY == 0 or run.step == n_steps):
                run.save(checkpoint, key)
    return run.samples(n_steps, burn_in)


def own_temperature(nll: Nll, length: int) -> float:
    """Temperature at which a causal model writes: of its sequences the law is exp(-NLL / T) where 1 / T predictions."""
    if not isinstance(nll, Causal):
        raise InputError("only a model that predicts tokens has a temperature of its own; make one with sequence_nll")
    return 1 / nll.predictions(length)


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
    STATE = ("tokens", "energies", "at", "heading", "fresh_tokens", "fresh_energies")
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
        self.predictions = energy.causal.predictions(length) if energy.causal is not None else None
        # the model's own law is drawn from by letting it write, which uninformed moves do not ask for
        own = mixture.informed and self.predictions and np.isclose(self.betas[0], self.predictions, rtol=1e-12)
        self.drawn_afresh = bool(np.isinf(ladder[0]) or own)
        self.rng = np.random.default_rng(seed)
        self.step = self.saved = 0

    def uniform(self, seed: int) -> Tokens:
        """First sequences: uniform, the same for every run of this seed and size."""
        return np.random.default_rng([seed, 1]).integers(self.vocabulary, size=(self.rows, self.length))

    def begin(self, first: Tokens, *, rewritten: bool) -> None:
        """Start at step 0."""
        levels, chains, moves = len(self.ladder), self.n_chains, len(self.mixture.moves)
        self.tokens: Tokens = first.astype(np.int64)
        if rewritten:
            self.tokens, self.energies = self._written(self.tokens, np.repeat(self.betas, chains))
        else:
            self.energies = self.energy(self.tokens)
        self.at = np.arange(self.rows).reshape(levels, chains)  # which replica is at a level of a chain
        # 0 not yet at the hottest level, 1 on its way down from there, 2 on its way back up
        self.heading = np.zeros(self.rows, dtype=np.int8)
        self.heading[self.at[0]] = 1
        # draws of the hottest level for some steps ahead, (step, chain, length) and (step, chain)
        self.fresh_tokens: Tokens = np.empty((0, chains, self.length), dtype=np.int64)
        self.fresh_energies = np.empty((0, chains))
        self.record: dict[str, list[NDArray[Any]]] = {name: [] for name in self.RECORD}
        self.counts = self._no_counts(levels, chains, moves)

    def _written(self, tokens: Tokens, beta: NDArray[np.float64]) -> tuple[Tokens, NDArray[np.float64]]:
        """Sequences that the model writes at the temper of each level, and their NLL."""
        assert self.predictions is not None
        new, energies, _ = self.energy.rewrite(tokens, 0, beta / self.predictions, int(self.rng.integers(1 << 62)))
        return new, energies

    def _afresh(self) -> tuple[Tokens, NDArray[np.float64]]:
        """One draw from the law of the hottest level for each chain: ``(chain, length)``, and its NLL."""
        if not len(self.fresh_tokens):
            ahead: Tokens = self.rng.integers(self.vocabulary, size=(_AFRESH * self.n_chains, self.length))
            if self.betas[0] == 0:
                losses = self.energy(ahead)
            else:
                ahead, losses = self._written(ahead, np.full(len(ahead), self.betas[0]))
            self.fresh_tokens = ahead.reshape(_AFRESH, self.n_chains, self.length)
            self.fresh_energies = losses.reshape(_AFRESH, self.n_chains)
        tokens, energies = self.fresh_tokens[0], self.fresh_energies[0]
        self.fresh_tokens, self.fresh_energies = self.fresh_tokens[1:], self.fresh_energies[1:]
        return tokens, energies

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
        if self.drawn_afresh:
            hottest = self.at[0]
            self.tokens[hottest], self.energies[hottest] = self._afresh()
        tried = self.at[int(self.drawn_afresh) :]  # replicas, (levels, chains)
        if not tried.size:
            return
        level = np.repeat(np.arange(len(self.ladder) - len(tried), len(self.ladder)), self.n_chains)
        rows, beta = tried.ravel(), self.betas[level]
        move = self.mixture.draw(self.rng)
        proposal = self.mixture.moves[move].propose(
            self.tokens[rows],
            vocabulary=self.vocabulary,
            rng=self.rng,
            model=self.energy if self.mixture.informed else None,
            temper=None if self.predictions is None else beta / self.predictions,
        )
        energies = self.energy(proposal.tokens) if proposal.nll is None else proposal.nll
        # Metropolis-Hastings: log of p(y) q(x | y) / (p(x) q(y | x)); minus an exponential is the log of a uniform
        log_ratio = beta * (self.energies[rows] - energies) + proposal.log_hastings
        accepted = -self.rng.standard_exponential(len(rows)) < log_ratio
        self.tokens[rows[accepted]] = proposal.tokens[accepted]
        self.energies[rows[accepted]] = energies[accepted]
        self.counts["attempted"][:, move] += np.bincount(level, minlength=len(self.ladder)).astype(np.int32)
        self.counts["accepted"][:, move] += np.bincount(level[accepted], minlength=len(self.ladder)).astype(np.int32)

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
            predictions=self.predictions,
        )

    def save(self, folder: Path, key: str) -> None:
        """Write what was drawn since the last time, and then the state; each file whole or not at all."""
        new = {name: np.stack(values[self.saved :]) for name, values in self.record.items() if values[self.saved :]}
        folder.mkdir(parents=True, exist_ok=True)
        write_arrays(_draws(folder, self.step), new)
        self.saved = len(self.record["nll"])
        said = {
            "key": key,
            "step": self.step,
            "rng": self.rng.bit_generator.state,
            "evaluations": self.energy.evaluations,
        }
        arrays = {f"state_{name}": getattr(self, name) for name in self.STATE}
        arrays |= {f"counts_{name}": values for name, values in self.counts.items()}
        write_arrays(folder / _STATE, {"said": np.array(json.dumps(said)), **arrays})

    def load(self, folder: Path, key: str) -> None:
        """Take up a state written by `save`, with the draws up to its step."""
        path = folder / _STATE
        arrays = read_arrays(path)
        with reading(path):
            said = json.loads(str(arrays.pop("said")))
        if said["key"] != key:
            raise InputError(f"sampler state {folder} is of other settings; delete that folder, or name another")
        for name in self.STATE:
            setattr(self, name, arrays[f"state_{name}"])
        self.counts = {key.removeprefix("counts_"): value for key, value in arrays.items() if key.startswith("counts_")}
        if np.abs(self.energy.nll(self.tokens) - self.energies).max() > SAME:
            raise InputError(f"sampler state {folder} is of another model; delete that folder, or name another")
        # draws of a later step than the state's are of a run that was stopped between the two: they are drawn again
        files = sorted(folder.glob(_draws(folder, "*").name))
        parts = [read_arrays(one) for one in files if one.name <= _draws(folder, said["step"]).name]
        with reading(folder):
            self.record = {name: [row for part in parts for row in part.get(name, ())] for name in self.RECORD}
            if {len(values) for values in self.record.values()} != {said["step"] // self.thin}:
                raise ValueError("draws are missing")
        self.saved = len(self.record["nll"])
        self.step = said["step"]
        self.rng.bit_generator.state = said["rng"]
        self.energy.evaluations = said["evaluations"]


def _draws(folder: Path, step: int | str) -> Path:
    """File of what was drawn between one saving and the next, at a step."""
    return folder / f"draws-{step:09d}.npz" if isinstance(step, int) else folder / f"draws-{step}.npz"
