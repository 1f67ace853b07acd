"""The paper's four steps end to end: draw from A and B, let each judge the other's inputs, compare (Section 3.4).

Everything that takes long is kept in a folder under the hash of all it depends on, chain by chain, so that a run that
was stopped goes on where it was and a second run reads. Draws of one model serve every comparison that it is part of.
"""

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from provlab.errors import CheckpointError, InputError, NotComparableError
from provlab.files import atomic_file, digest
from provlab.modeldiff import generation, reweighting, sampler
from provlab.modeldiff.comparison import Comparison, compare
from provlab.modeldiff.generation import Batch, Generated
from provlab.modeldiff.moves import Conditional
from provlab.modeldiff.nll import SequenceNll, check_same_tokens, of
from provlab.modeldiff.representative import RepresentativeInputs, checked_range, within
from provlab.modeldiff.sampler import Samples
from provlab.models.checkpoint import Checkpoint

_VERSION = 1  # of what is kept; a change of the arithmetic behind it asks for another

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Kept:
    """Arrays kept in a folder under the hash of all that they depend on."""

    folder: Path

    def path(self, what: str, parts: Mapping[str, Any], suffix: str = ".npz") -> Path:
        """Where the arrays of a key are, or will be."""
        return self.folder / f"{what}-{digest({'version': _VERSION, **parts})[:24]}{suffix}"

    def get(self, what: str, parts: Mapping[str, Any], make: Callable[[], Arrays]) -> Arrays:
        """Return the arrays under a key, made and written first if they are not there."""
        path = self.path(what, parts)
        if path.exists():
            try:
                with np.load(path) as stored:
                    return {name: stored[name] for name in stored.files}
            except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
                raise CheckpointError(f"kept draws {path} are damaged; delete that file and run again") from error
        arrays = make()
        with atomic_file(path) as temporary:
            np.savez(temporary, **arrays)  # type: ignore[arg-type]
        return arrays


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
        source: Model(source, checkpoint, of(checkpoint, start_token=start_token, device=device))
        for source, checkpoint in checkpoints.items()
    }


@dataclass(frozen=True)
class Generation:
    """Settings of draws by generation, see `provlab.modeldiff.generation.generate`."""

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


def generated(model: Model, settings: Generation, kept: Kept, *, progress: bool = True) -> Generated:
    """Draw by the model's own generation, chain by chain, each kept when it is done."""
    each = -(-settings.n // settings.n_chains)
    batches = []
    bar = tqdm(
        generation.chain_seeds(settings.seed, settings.n_chains),
        desc=f"{model.checkpoint.name} writes {settings.length} tokens",
        unit="chain",
        leave=False,
        disable=not progress,
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
            return asdict(generation.write(model.nll, each, settings.length, tempers=settings.tempers, seed=seed))

        batches.append(Batch(**kept.get("generated", parts, write)))
    return generation.join(batches)


def exchanged(model: Model, settings: Exchange, kept: Kept, *, progress: bool = True) -> Samples:
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
        checkpoint_every=100,
        progress=f"{model.checkpoint.name}, replica exchange" if progress else False,
    )


def judged(model: Model, tokens: NDArray[np.integer[Any]], kept: Kept) -> NDArray[np.float64]:
    """Return the loss of sequences under a model, ``(n,)``; the same sequences are judged once."""
    tokens = np.ascontiguousarray(tokens, dtype=np.int64)
    if not len(tokens):
        return np.empty(0)
    unique, place = np.unique(tokens, axis=0, return_inverse=True)
    parts = {**model.key, "tokens": digest(unique.tolist()), "torch": torch.__version__}
    return kept.get("judged", parts, lambda: {"nll": model.nll(unique)})["nll"][place.ravel()]


def inputs(
    drawn: "Generated | tuple[Samples, reweighting.DensityOfStates]",
    z: tuple[float, float],
    other: Model,
    kept: Kept,
) -> RepresentativeInputs:
    """Take the draws with NLL in Z, and let the other model judge them (Sections 3.1 and 3.2).

    Raises
    ------
    NotConverged
        No chain reached Z.
    """
    low, high = checked_range(z)
    if isinstance(drawn, Generated):
        rows = np.flatnonzero(within(drawn.nll, (low, high)))
        tokens, nll, n_chains = drawn.tokens[rows], drawn.nll[rows], int(drawn.chain.max()) + 1
        log_weight, chain = drawn.log_weight[rows], drawn.chain[rows]
    else:
        samples, density = drawn
        found = reweighting.representative(samples, density, (low, high))
        tokens, nll, n_chains = found.tokens.astype(np.int64), found.nll, samples.n_chains
        log_weight, chain = found.log_weight, found.chain
    return RepresentativeInputs(tokens, nll, judged(other, tokens, kept), log_weight, chain, n_chains, counted=True)


def typical_range(
    a: Model, b: Model, tokens: NDArray[np.integer[Any]], kept: Kept, *, shares: tuple[float, float] = (0.05, 0.5)
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


@dataclass(frozen=True)
class Diff:
    """Two models compared; the inputs of each stand row by row beside the differences in `by_r3.a` and `by_r3.b`.

    Attributes
    ----------
    a, b
        Representative inputs of each.
    by_r3, by_count
        The comparison by the paper's normalisation, and by numbers of inputs.
    """

    a: RepresentativeInputs
    b: RepresentativeInputs
    by_r3: Comparison
    by_count: Comparison

    @classmethod
    def of(cls, a: RepresentativeInputs, b: RepresentativeInputs, z: tuple[float, float]) -> "Diff":
        """Compare the inputs of two models in both ways."""
        return cls(a, b, compare(a, b, z), compare(a, b, z, normalisation="count"))

    @property
    def n_common(self) -> tuple[int, int]:
        """Draws of A and of B in R3."""
        return int(self.by_r3.a.common.sum()), int(self.by_r3.b.common.sum())

    @property
    def log10_common(self) -> tuple[float, float]:
        """Log10 of the number of inputs in R3, told by A's draws and by B's: two estimates of one number."""
        told = []
        for direction in (self.by_r3.a, self.by_r3.b):
            assert direction.log10_number is not None
            with np.errstate(divide="ignore"):
                told.append(float(direction.log10_number + np.log10(direction.common_share)))
        return told[0], told[1]

    def summary(self, *, seed: int = 0) -> dict[str, Any]:
        """Return what a table or a verdict needs, as plain data; what cannot be told is None, with the reason.

        Keys: z, n (draws in Z), n_common, log10_inputs, log10_common, extent_a, extent_b, below_a and below_b (share of
        inputs with D below 0, with its 95% interval), and by_r3 and by_count: each the ratio as value, low, high (four
        each) and reference, or an error.
        """
        found: dict[str, Any] = {
            "z": list(self.by_r3.z),
            "n": [len(self.a), len(self.b)],
            "n_common": list(self.n_common),
            "log10_inputs": [self.by_r3.a.log10_number, self.by_r3.b.log10_number],
            "log10_common": [_plain(value) for value in self.log10_common],
            "extent_a": list(self.by_r3.a.extent),
            "extent_b": list(self.by_r3.b.extent),
            "below_a": list(self.by_r3.a.share_below(seed=seed)),
            "below_b": list(self.by_r3.b.share_below(seed=seed)),
        }
        for name, comparison in (("by_r3", self.by_r3), ("by_count", self.by_count)):
            try:
                ratio = comparison.ratio(seed=seed)
            except NotComparableError as error:
                found[name] = {"error": str(error)}
                continue
            found[name] = {
                "reference": ratio.reference,
                **{end: [_plain(value) for value in getattr(ratio, end)] for end in ("value", "low", "high")},
            }
        return found


def _plain(value: float) -> float | None:
    """Return a number that JSON can hold."""
    return float(value) if np.isfinite(value) else None


def model_diff(
    a: Model,
    b: Model,
    z: tuple[float, float],
    settings: Generation | Exchange,
    kept: Kept,
    *,
    progress: bool = True,
) -> Diff:
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
    progress
        Show bars on stderr.

    Raises
    ------
    NotConverged
        The chains have not converged, or none reached Z: the message names the remedy, and no ratio is given.
    NotComparableError
        A model has no input in Z.
    """
    sides = []
    for model, other in ((a, b), (b, a)):
        if isinstance(settings, Generation):
            sides.append(inputs(generated(model, settings, kept, progress=progress), z, other, kept))
        else:
            samples = exchanged(model, settings, kept, progress=progress)
            sides.append(inputs((samples, reweighting.density_of_states(samples)), z, other, kept))
    return Diff.of(sides[0], sides[1], z)
