"""The paper's four steps end to end: draw from A and B, let each judge the other's inputs, compare (Section 3.4).

Everything that takes long is kept in a folder under the hash of all it depends on, chain by chain, so that a run that
was stopped goes on where it was and a second run reads. Draws of one model serve every comparison that it is part of.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from provlab.errors import InputError
from provlab.files import digest
from provlab.kept import Arrays, Kept
from provlab.modeldiff import generation, reweighting, sampler
from provlab.modeldiff.comparison import Comparison
from provlab.modeldiff.moves import Conditional
from provlab.modeldiff.nll import SequenceNll, check_same_tokens, sequence_nll
from provlab.modeldiff.representative import Direction, Draws, Side, checked_range
from provlab.modeldiff.sampler import Samples
from provlab.models.checkpoint import Checkpoint


@dataclass(frozen=True)
class Model:
    """A model that draws and judges; made by `open_models`.

    Attributes
    ----------
    source
        As given.
    checkpoint
        Its files; their hash is what kept draws are found by.
    nll
        The mean token NLL by the convention of the comparison.
    """

    source: str
    checkpoint: Checkpoint
    nll: SequenceNll

    @property
    def key(self) -> dict[str, Any]:
        """What numbers of this model depend on."""
        return {"model": self.checkpoint.digest, "start_token": self.nll.start_token}


def open_models(
    sources: list[str], *, start_token: int | None = None, device: str = "cpu", allow_pickle: bool = False
) -> dict[str, Model]:
    """Open models that are to be compared with each other.

    Raises
    ------
    NotComparableError
        Two of them have different tokenizers.
    """
    checkpoints = {source: Checkpoint.open(source, allow_pickle=allow_pickle) for source in sources}
    first = next(iter(checkpoints.values()))
    for checkpoint in list(checkpoints.values())[1:]:
        check_same_tokens(first, checkpoint)
    return {
        source: Model(source, checkpoint, sequence_nll(checkpoint, start_token=start_token, device=device))
        for source, checkpoint in checkpoints.items()
    }


@dataclass(frozen=True)
class Generation:
    """Settings of draws by generation, see `provlab.modeldiff.generation.write`."""

    n: int
    length: int
    tempers: tuple[float, ...] = (1.0,)
    n_chains: int = 20
    seed: int = 0


@dataclass(frozen=True)
class Exchange:
    """Settings of draws by replica exchange, see `provlab.modeldiff.sampler.replica_exchange`."""

    length: int
    temperatures: tuple[float, ...]
    n_chains: int = 16
    n_steps: int = 1500
    thin: int = 5
    seed: int = 0


def generated(model: Model, settings: Generation, kept: Kept) -> Draws:
    """Draw by the model's own generation, chain by chain, each kept when it is done."""
    each = -(-settings.n // settings.n_chains)
    chains = []
    bar = tqdm(
        generation.chain_seeds(settings.seed, settings.n_chains),
        desc=f"{model.checkpoint.name} writes {settings.length} tokens",
        unit="chain",
        leave=False,
    )
    for seed in bar:
        parts = {
            **model.key,
            "n": each,
            "length": settings.length,
            "tempers": list(settings.tempers),
            "seed": seed,
            "torch": torch.__version__,
        }

        def write(seed: int = seed) -> Arrays:
            return generation.write(model.nll, each, settings.length, tempers=settings.tempers, seed=seed)

        chains.append(kept.get("generated", parts, write))
    return generation.join(chains)


def exchanged(model: Model, settings: Exchange, kept: Kept) -> Samples:
    """Draw by replica exchange with the conditional move; the state is kept as it goes."""
    parts = {**model.key, **asdict(settings), "temperatures": [repr(t) for t in settings.temperatures]}
    checkpoint = kept.path("exchange", {**parts, "torch": torch.__version__})
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    return sampler.replica_exchange(
        model.nll,
        vocabulary=model.nll.vocabulary,
        length=settings.length,
        temperatures=settings.temperatures,
        n_chains=settings.n_chains,
        n_steps=settings.n_steps,
        thin=settings.thin,
        moves=Conditional(),
        seed=settings.seed,
        checkpoint=checkpoint,
        progress=f"{model.checkpoint.name}, replica exchange",
    )


def judged(model: Model, tokens: NDArray[np.integer[Any]], kept: Kept) -> NDArray[np.float64]:
    """Return the loss of sequences under a model, ``(n,)``; the same sequences are judged once."""
    tokens = np.ascontiguousarray(tokens, dtype=np.int64)
    if not len(tokens):
        return np.empty(0)
    unique, place = np.unique(tokens, axis=0, return_inverse=True)
    parts = {**model.key, "tokens": digest(unique.tolist()), "torch": torch.__version__}
    return kept.get("judged", parts, lambda: {"nll": model.nll(unique)})["nll"][place.ravel()]


def judged_inputs(draws: Draws, side: Side, z: tuple[float, float], other: Model, kept: Kept) -> Direction:
    """Let the other model judge the draws with NLL in Z (Sections 3.1 and 3.2).

    Raises
    ------
    NotComparableError
        No draw is in Z.
    """
    found = draws.within(z)
    return Direction.from_draws(found, judged(other, found.tokens, kept), side, z)


def typical_range(
    a: Model, b: Model, tokens: NDArray[np.integer[Any]], kept: Kept, *, shares: tuple[float, float]
) -> tuple[float, float]:
    """Return Z by a rule that looks at no ratio: two quantiles of the losses of a text under A and B together.

    Parameters
    ----------
    a, b
        The models.
    tokens
        ``(n, length)`` pieces of text that neither was trained on.
    shares
        The quantiles' levels.
    """
    if not 0 <= shares[0] < shares[1] <= 1:
        raise InputError(f"shares must rise within 0 to 1, not {shares}")
    low, high = np.quantile(np.concatenate([judged(a, tokens, kept), judged(b, tokens, kept)]), shares)
    return float(low), float(high)


def pieces(ids: ArrayLike, length: int, n: int, *, seed: int = 0) -> NDArray[np.int64]:
    """Cut `n` pieces of `length` tokens from a long text at random places, ``(n, length)``."""
    text = np.asarray(ids, dtype=np.int64)
    if len(text) <= length:
        raise InputError(f"the text has {len(text)} tokens, too few for pieces of {length}")
    begin = np.random.default_rng(seed).integers(len(text) - length, size=n)
    return np.asarray(text[begin[:, None] + np.arange(length)])


def model_diff(a: Model, b: Model, z: tuple[float, float], settings: Generation | Exchange, kept: Kept) -> Comparison:
    """Compare two models by the inputs that each draws.

    Parameters
    ----------
    a, b
        Of `open_models`.
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

    def direction(side: Side, model: Model, other: Model) -> Direction:
        if isinstance(settings, Generation):
            draws = generated(model, settings, kept)
        else:
            draws = reweighting.representative(reweighting.reweight(exchanged(model, settings, kept)), z)
        return judged_inputs(draws, side, z, other, kept)

    return Comparison(direction("A", a, b), direction("B", b, a), z)
