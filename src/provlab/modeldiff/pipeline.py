"""The paper's four steps end to end: draw from A and B, let each judge the other's inputs, compare (Section 3.4).

Everything that takes long is kept in a folder under the hash of all it depends on, part by part, so that a run that
was stopped goes on where it was and a second run reads. Draws of one model serve every comparison that it is part of.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from provlab.files import digest
from provlab.kept import ArrayCache, Arrays
from provlab.machine import Beside
from provlab.modeldiff import generation, ladder, reweighting
from provlab.modeldiff.comparison import BothDirections
from provlab.modeldiff.moves import WRITING
from provlab.modeldiff.nll import SequenceNll, judge, sequence_nll
from provlab.modeldiff.representative import Direction, Draws, Side, checked_range
from provlab.modeldiff.sampler import Samples, own_temperature, replica_exchange
from provlab.modeldiff.tokens import shared_tokens
from provlab.reading.checkpoint import Checkpoint

N_CHAINS = 20  # independent groups of draws
_AT_ONCE = 4096  # sequences judged between two savings
_PILOT_STEPS = 30  # of each pilot run of a ladder: rewriting mixes within a few steps
T = TypeVar("T")


@dataclass(frozen=True)
class SequenceModel:
    """A model that draws and judges; made by `open_models`.

    Attributes
    ----------
    source
        As given.
    checkpoint
        Its files; their hash is what kept draws are stored under.
    nll
        The mean token NLL by the convention of the comparison.
    progress
        Seconds between two looks of a bar on stderr; 0 shows none.
    """

    source: str
    checkpoint: Checkpoint
    nll: SequenceNll
    progress: float = 1.0

    @property
    def name(self) -> str:
        """Short label."""
        return self.checkpoint.name

    @property
    def key(self) -> dict[str, Any]:
        """What numbers of this model depend on."""
        start = self.nll.start.tolist()  # what stands before inputs
        key: dict[str, Any] = {"model": self.checkpoint.digest, "start_token": digest(start) if start else None}
        if self.nll.ids is not None:
            key["ids"] = digest(self.nll.ids.tolist())
        if self.nll.network.dtype != torch.float32:
            key["dtype"] = str(self.nll.network.dtype)
        if self.nll.network.device.type != "cpu":  # other random numbers, and another rounding
            key["device"] = self.nll.network.device.type
        return key

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return a text as tokens of the comparison, ``(n,)``; -1 stands for a token that is none of these."""
        own = np.array(self.checkpoint.encode(text), dtype=np.int64)
        if self.nll.ids is None:
            return np.where(own < self.nll.vocabulary, own, -1)  # a tokenizer may have tokens without an embedding
        place = np.full(max(own.max(initial=0), self.nll.ids.max()) + 1, -1)
        place[self.nll.ids] = np.arange(self.nll.vocabulary)
        return np.asarray(place[own])

    def texts(self, tokens: NDArray[np.integer[Any]]) -> list[str]:
        """Inputs as text of at most 90 characters, line ends made visible."""
        own = tokens if self.nll.ids is None else self.nll.ids[tokens]
        return [repr(self.checkpoint.tokenizer().decode(row))[1:-1][:90] for row in own]

    def pieces(self, row: NDArray[np.integer[Any]]) -> list[str]:
        """What each token of an input adds to its text."""
        own = row if self.nll.ids is None else self.nll.ids[row]
        ends = [str(self.checkpoint.tokenizer().decode(own[: k + 1])) for k in range(len(own))]
        return [end[len(before) :] for before, end in zip(["", *ends], ends, strict=False)]

    def bar(self, steps: Iterable[T], what: str, unit: str) -> Iterable[T]:
        """Show how far a long piece of this model's work has come."""
        return tqdm(
            steps,
            desc=f"{self.name} {what}",
            unit=unit,
            leave=False,
            disable=not self.progress,
            mininterval=float(self.progress),
            delay=float(self.progress),  # a file is told of nothing that is done before
        )


def open_models(
    sources: list[str],
    *,
    opening: Callable[[Checkpoint], list[int]] | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    allow_pickle: bool = False,
    progress: float = 1.0,
) -> dict[str, SequenceModel]:
    """Open models that are to be compared with each other, on the tokens that all of them have.

    Parameters
    ----------
    sources
        The sources of the models.
    opening
        Says what stands before a model's inputs, see `provlab.modeldiff.tokens.opening`; then inputs are made of text
        alone, without control tokens. Nothing stands there if one of the models has nothing, so that all predict the
        same tokens; by default, as in the paper.
    device, dtype, allow_pickle
        See `sequence_nll` and `Checkpoint.open`.
    progress
        Seconds between two looks of a bar on stderr; 0 shows none.

    Raises
    ------
    NotComparableError
        Two of them have different tokenizers.
    """
    if not sources:
        return {}
    checkpoints = {source: Checkpoint.open(source, allow_pickle=allow_pickle) for source in sources}
    shared = shared_tokens(list(checkpoints.values()), controls=opening is None)
    starts = [opening(checkpoint) if opening and shared.named else [] for checkpoint in checkpoints.values()]
    if not all(starts):
        starts = [[] for _ in starts]
    # seeds and kept draws need the hashes: large files are hashed while others load; a user who stops waits for none
    hashing = [Beside(partial(getattr, checkpoint, "digest")) for checkpoint in checkpoints.values()]
    opened = {
        source: SequenceModel(
            source, checkpoint, sequence_nll(checkpoint, ids=ids, start=start, device=device, dtype=dtype), progress
        )
        for (source, checkpoint), ids, start in zip(checkpoints.items(), shared.ids, starts, strict=True)
    }
    for beside in hashing:
        beside.result()
    return opened


@dataclass(frozen=True)
class Generation:
    """Settings of draws by generation, see `provlab.modeldiff.generation.write`."""

    n: int
    length: int
    tempers: tuple[float, ...] = (1.0,)
    n_chains: int = N_CHAINS
    seed: int = 0


@dataclass(frozen=True)
class Exchange:
    """Settings of draws by replica exchange, see `provlab.modeldiff.sampler.replica_exchange`.

    Attributes
    ----------
    length, n_chains, n_steps, seed
        As there; each model draws numbers of its own from the seed.
    temperatures
        The ladder; if empty it is laid by pilot runs, from infinity to the model's own temperature or through it.
    coldest
        Where a ladder that is laid ends: the exponent of the model's conditional distributions at its coldest level, at
        least 1. A little more reaches much lower losses: at 1.15 some models write repetitions only.
    below
        Whether such a ladder begins at the model's own temperature instead of infinity, for losses below its own text.
    """

    length: int
    temperatures: tuple[float, ...] = ()
    n_chains: int = 8
    n_steps: int = 400
    seed: int = 0
    coldest: float = 1.0
    below: bool = False


def own_seed(model: SequenceModel, seed: int) -> int:
    """Return a seed of this model's own: with one seed for both, a model and its copy would write the same inputs."""
    return int(digest([seed, model.checkpoint.digest])[:8], 16)


def generated(model: SequenceModel, settings: Generation, kept: ArrayCache) -> Draws:
    """Draw by the model's own generation, some chains side by side, each group kept when it is done."""
    each = -(-settings.n // settings.n_chains)
    seeds = generation.chain_seeds(own_seed(model, settings.seed), settings.n_chains)
    at_once = generation.side_by_side(model.nll, each, settings.length, settings.n_chains, len(settings.tempers))
    groups = [seeds[begin : begin + at_once] for begin in range(0, len(seeds), at_once)]
    chains: list[Arrays] = []
    for some in model.bar(groups, f"writes {settings.length} tokens", "group"):
        parts = {
            **model.key,
            "n": each,
            "length": settings.length,
            "tempers": list(settings.tempers),
            "seeds": some,
            "torch": torch.__version__,
        }
        write = partial(
            generation.write_stacked, model.nll, each, settings.length, tempers=settings.tempers, seeds=some
        )
        arrays = kept.get("written", parts, write)
        chains += [{name: values[k] for name, values in arrays.items()} for k in range(len(some))]
    return generation.join(chains)


def exchanged(model: SequenceModel, settings: Exchange, kept: ArrayCache) -> Samples:
    """Draw by replica exchange with moves that the model writes; draws and state are kept as it goes."""
    temperatures, seed = settings.temperatures or _laid(model, settings, kept), own_seed(model, settings.seed)
    parts = {**model.key, **asdict(settings), "seed": seed, "temperatures": [repr(t) for t in temperatures]}
    draw = partial(
        replica_exchange,
        model.nll,
        vocabulary=model.nll.vocabulary,
        length=settings.length,
        temperatures=temperatures,
        n_chains=settings.n_chains,
        n_steps=settings.n_steps,
        moves=WRITING,
        seed=seed,
        progress=f"{model.name}, replica exchange" if model.progress else "",
    )
    parts |= {"moves": repr(WRITING), "torch": torch.__version__}
    return draw(checkpoint=kept.path("exchange", parts, draw))


def _laid(model: SequenceModel, settings: Exchange, kept: ArrayCache) -> tuple[float, ...]:
    """Temperatures by pilot runs, kept."""
    own, seed = own_temperature(settings.length), own_seed(model, settings.seed)
    laid = {"length": settings.length, "coldest": settings.coldest, "below": settings.below}
    parts = {**model.key, **laid, "moves": repr(WRITING), "seed": seed, "steps": _PILOT_STEPS}
    tune = partial(
        ladder.lay,
        model.nll,
        vocabulary=model.nll.vocabulary,
        length=settings.length,
        coldest=own / settings.coldest,
        hottest=own if settings.below else math.inf,
        through=own,
        moves=WRITING,
        seed=seed,
        n_steps=_PILOT_STEPS,
    )
    return tuple(kept.get("ladder", parts, tune)["temperatures"].tolist())


def judged(model: SequenceModel, tokens: NDArray[np.integer[Any]], kept: ArrayCache) -> NDArray[np.float64]:
    """Return the loss of sequences under a model, ``(n,)``; the same are judged once, and kept piece by piece."""
    tokens = np.ascontiguousarray(tokens, dtype=np.int64)
    if not len(tokens):
        return np.empty(0)
    unique, place = np.unique(tokens, axis=0, return_inverse=True)
    losses = []
    begins = range(0, len(unique), _AT_ONCE)
    for begin in model.bar(begins, "judges", "piece") if len(begins) > 1 else begins:
        some = unique[begin : begin + _AT_ONCE]
        parts = {**model.key, "tokens": digest(some.tolist()), "torch": torch.__version__}
        losses.append(kept.get("judged", parts, partial(judge, model.nll, some))["nll"])
    return np.concatenate(losses)[place.ravel()]


def mixed(a: SequenceModel, b: SequenceModel, settings: Generation, kept: ArrayCache) -> tuple[Draws, Draws]:
    """Draws of both models as one sample of the mixture of their laws, as A and as B judges it.

    Each draw stands for 1 / (n q(x)) inputs, q being the mean of both laws (the balance heuristic): a law that puts
    little on an input that the other writes often gives it no large weight. The models write at their own temper, where
    the law of an input follows from its loss. A chain is one chain of A and one of B.
    """
    drawn = [generated(model, settings, kept) for model in (a, b)]
    tokens = np.concatenate([draws.tokens for draws in drawn])
    losses = [judged(model, tokens, kept) for model in (a, b)]
    log_q = [
        model.nll.log_first - model.nll.predictions(settings.length) * nll
        for model, nll in zip((a, b), losses, strict=True)
    ]
    return one_sample(drawn, losses, log_q)


def one_sample(
    drawn: Sequence[Draws], losses: Sequence[NDArray[np.float64]], log_q: Sequence[NDArray[np.float64]]
) -> tuple[Draws, Draws]:
    """Weigh draws of two models by the mixture of their laws.

    Parameters
    ----------
    drawn
        As many of each model, in as many chains.
    losses, log_q
        Draws of the first model, then of the second, ``(n,)`` under either: the loss, and the log of the
        probability with which that model writes them.
    """
    tokens, chain = (np.concatenate([getattr(draws, name) for draws in drawn]) for name in ("tokens", "chain"))
    log_weight = math.log(2 / len(tokens)) - np.logaddexp(*log_q)
    first, second = (Draws(tokens, nll, log_weight, chain, drawn[0].n_chains) for nll in losses)
    return first, second


def model_diff(
    a: SequenceModel, b: SequenceModel, z: tuple[float, float], settings: Generation | Exchange, kept: ArrayCache
) -> BothDirections:
    """Compare two models by the inputs that each draws.

    Parameters
    ----------
    a, b
        Models of `open_models`.
    z
        Range of NLL.
    settings
        How inputs are drawn.
    kept
        Where draws and losses are kept.

    Raises
    ------
    NotConverged
        The chains have not converged, or none reached Z: the message names the remedy, and no ratio is given.
    NotComparableError
        A model has no input in Z.
    """
    z = checked_range(z)

    def direction(side: Side, model: SequenceModel, other: SequenceModel) -> Direction:
        if isinstance(settings, Generation):
            draws = generated(model, settings, kept).within(z)
        else:
            draws = reweighting.representative(reweighting.reweight(exchanged(model, settings, kept)), z)
        return Direction.from_draws(draws, judged(other, draws.tokens, kept), side, z)

    return BothDirections(direction("A", a, b), direction("B", b, a), z)
