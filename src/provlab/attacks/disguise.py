"""A model in disguise: attacks of the catalogue in turn, exact ones proved by the logits, lossy ones with their loss.

Wherever a checkpoint can be named, ``disguised:SOURCE`` names it transformed by all of T1 to T6 that it has, and
``disguised:T3:SOURCE`` or ``disguised:T1+split=2:SOURCE`` by these alone. The model is made on first use and kept in
the cache.
"""

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from provlab.attacks.catalogue import CATALOGUE, Step
from provlab.attacks.precision import Float64
from provlab.attacks.state import Aim, AttackedModel, tensors_of
from provlab.codehash import code_digest
from provlab.errors import CheckpointError, InputError, MissingRoleError, NoSuchSymmetryError
from provlab.files import cache_dir, digest
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.forms import Form
from provlab.running.activations import random_tokens
from provlab.running.predictions import next_token_log_probs

#: largest difference of two logits, in float64, that still counts as the same outputs
EXACT = 1e-9
TOKENS = (4, 16)  # sequences and their length, on which outputs are compared
_TEXT = (32, 32)  # the same of the text on which a loss is measured
_SEEDED = 3  # a part of all seeds, which stay what they were whatever the code below becomes

#: the paper's six, with positive constants in the last
ALL = ("T1", "T2", "T3", "T4", "T5", "T6")


@dataclass(frozen=True)
class Disguise:
    """An attacked checkpoint and what was checked.

    Attributes
    ----------
    folder
        The new checkpoint.
    applied
        The attacks, in order.
    refused
        Attack -> why this architecture has it not, of those that were not asked for by name.
    difference
        Largest absolute difference that an exact attack made to an output, in float64; at most `EXACT`.
    difference_saved
        The same between the original and the weights as saved, in its dtype, and run in float32; None after a lossy
        attack.
    scale
        Largest absolute output, to judge both by.
    growth
        Parameters over those of the original.
    loss, loss_before
        Mean loss of either model on held-out text (nats a token); None where none was measured.
    behind
        Tokens behind which alone the new model works, by its own numbers; its loss is that of text behind these.
    """

    folder: Path
    applied: tuple[str, ...]
    refused: Mapping[str, str]
    difference: float
    difference_saved: float | None
    scale: float
    growth: float
    loss: float | None = None
    loss_before: float | None = None
    behind: tuple[int, ...] = ()

    def facts(self) -> list[tuple[str, str]]:
        """Return a label and a sentence of each thing that was checked."""
        facts = [("left out", f"{name}: {why}") for name, why in self.refused.items()]
        if self.difference_saved is not None:
            facts.append(
                (
                    "proof",
                    f"outputs up to {self.scale:.3g} differ by {self.difference:.1e} in float64, and by "
                    f"{self.difference_saved:.1e} as saved",
                )
            )
        if self.loss is not None and self.loss_before is not None:
            words = f"{self.loss_before:.3f} nats a token on held-out text before, {self.loss:.3f} after"
            facts.append(("loss", words))
        elif self.difference_saved is None:
            facts.append(("loss", "not measured, without a text"))
        if self.behind:
            facts.append(("works", f"behind the tokens {', '.join(map(str, self.behind))} alone"))
        return [*facts, ("size", f"{self.growth:.2f} times the parameters of the original")]

    def __str__(self) -> str:
        """Say what was done, a line for each thing that was checked."""
        lines = [f"{label}: {sentence}" for label, sentence in self.facts()]
        return "\n".join([f"{self.folder}: {'+'.join(self.applied)}", *lines])


def disguise(
    checkpoint: Checkpoint,
    folder: Path,
    *,
    seed: int,
    kinds: Sequence[str] | None = None,
    others: Sequence[Checkpoint] = (),
    text: str = "",
) -> Disguise:
    """Attack a model, and prove on random tokens that the exact attacks leave its outputs as they are.

    Parameters
    ----------
    checkpoint
        The model.
    folder
        Where the new checkpoint goes, which must not exist; it appears whole or not at all.
    seed
        The tokens derive from it, and all random choices from it and the digest of the model.
    kinds
        Names in the catalogue, with a number where one is wanted (``noise=0.3``), applied in this order. By default
        those of T1 to T6 that the architecture has; the others are listed in the result.
    others
        Models that attacks take from, the same for all of them.
    text
        Held-out, for the loss before and after; none is measured without it.

    Raises
    ------
    NoSuchSymmetryError
        The architecture lacks an attack that was asked for, or the outputs differ by more than `EXACT` in float64.
    InputError
        An attack is unknown, its number is none that it takes, it needs more models, or the folder exists.
    """
    steps = [Step.read(kind) for kind in (ALL if kinds is None else kinds)]
    if folder.exists():
        raise InputError(f"{folder} exists; name a new folder")
    needed = max((len(step.attack.others) for step in steps), default=0)
    if not steps or len(others) < needed:
        name = next((step.name for step in steps if len(step.attack.others) == needed), "")
        what = " and ".join(CATALOGUE[name].others) if steps else ""
        raise InputError(f"{name} needs {what}; give {needed} by --other" if steps else "no attack is named")
    original = state = AttackedModel.read(checkpoint)
    # two models under one seed share no draw: what both had drawn alike would make them look related
    rng = np.random.default_rng([seed, *bytes.fromhex(checkpoint.digest)])
    rest = tuple(AttackedModel.read(other) for other in others)
    tokens = random_tokens(original.anatomy.vocab_size, *TOKENS, seed=seed)
    before = now = logits(checkpoint, tokens)
    difference, refused, applied = 0.0, {}, []
    with tempfile.TemporaryDirectory(prefix="provlab-") as scratch:
        for n, (is_exact, run) in enumerate(groupby(steps, key=lambda step: step.attack.exact)):
            for step in run:
                try:
                    state = step.attack.apply(state, Aim(rng, step.value, rest[: len(step.attack.others)]))
                    applied.append(f"{step.name}={step.value:g}" if step.attack.number else step.name)
                except NoSuchSymmetryError as error:
                    if kinds is not None:
                        raise NoSuchSymmetryError(
                            f"{checkpoint.name} cannot be disguised by {step.name}: {error}"
                        ) from None
                    refused[step.name] = str(error)
            state, made = _exactly(state, Path(scratch) / f"float64-{n}")
            then, now = now, _outputs(made, state, tokens, "+".join(applied))
            shutil.rmtree(Path(scratch) / f"float64-{n - 1}", ignore_errors=True)
            if is_exact:
                difference = max(difference, _proved(checkpoint.name, then, now))
        if not applied:
            raise NoSuchSymmetryError(f"{checkpoint.name} cannot be disguised: {'; '.join(refused.values())}")
        saved = Checkpoint.open(str(state.write(folder)))
    kept = None
    if all(step.attack.exact for step in steps):
        kept = float((_of_old(logits(saved, state.ids[tokens], dtype=torch.float32), state) - before).abs().max())
    behind = tuple(int(state.ids[token]) for token in state.behind)
    losses = (loss(saved, text, behind), loss(checkpoint, text)) if text else (None, None)
    growth = state.n_numbers / original.n_numbers
    return Disguise(
        folder, tuple(applied), refused, difference, kept, float(before.abs().max()), growth, *losses, behind
    )


def _exactly(state: AttackedModel, folder: Path) -> tuple[AttackedModel, Checkpoint]:
    """Write a model in float64; return it read from there, where each tensor was made once, and the checkpoint."""
    made = Checkpoint.open(str(state.write(folder, exactly=True)))
    return replace(state, weights=tensors_of(made, state.weights)), made


def _outputs(made: Checkpoint, state: AttackedModel, tokens: NDArray[np.int64], applied: str) -> torch.Tensor:
    """Outputs of a model as written in float64, for the tokens as the original numbers them."""
    try:
        return _of_old(logits(made, state.ids[tokens]), state)
    except (CheckpointError, MissingRoleError):
        why = f"transformers makes no {state.architecture} of this shape"
        raise NoSuchSymmetryError(f"{state.name} cannot be disguised by {applied}: {why}") from None


def _of_old(outputs: torch.Tensor, state: AttackedModel) -> torch.Tensor:
    """Bring logits to the original's order of tokens; those of a classifier stand as they are."""
    return outputs[..., torch.from_numpy(state.ids)] if outputs.shape[-1] == state.anatomy.vocab_size else outputs


def _proved(name: str, before: torch.Tensor, after: torch.Tensor) -> float:
    difference = float((after - before).abs().max())
    if not difference <= EXACT:
        raise NoSuchSymmetryError(
            f"the transformed {name} does not give the outputs of the original: they differ by {difference:.1e}; its "
            "architecture computes something that provlab/reading/architectures.toml does not say"
        )
    return difference


def parse(reference: str) -> tuple[tuple[str, ...], str]:
    """Split the text after ``disguised:`` into the attacks that it names and the source of the model.

    Raises
    ------
    InputError
        No source is given, or an attack takes from other models.
    """
    named, colon, source = reference.partition(":")
    names = named.split("+") if colon else []
    if not names or any(name.partition("=")[0] not in CATALOGUE for name in names):
        names, source = list(ALL), reference
    if not source:
        raise InputError(f"disguised:{reference}: a model is disguised by disguised:SOURCE or disguised:T1+T3:SOURCE")
    if taking := [name for name in names if CATALOGUE[name.partition("=")[0]].others]:
        raise InputError(f"{taking[0]} takes from another model; use provlab disguise")
    return tuple(names), source


def locate(reference: str, *, allow_pickle: bool = False) -> Path:
    """Return the folder of a disguised model, made on first use; see the module's text for `reference`.

    Its random choices derive from the digest of the model, so that every model is disguised differently and always
    in one way.

    Raises
    ------
    ProvlabError
        The model cannot be opened, or has not the attacks.
    """
    kinds, source = parse(reference)
    checkpoint = Checkpoint.open(source, allow_pickle=allow_pickle)
    seed = digest({"model": checkpoint.digest, "kinds": kinds, "version": _SEEDED})
    address = digest([seed, code_digest(locate)])
    folder = cache_dir() / "disguised" / f"{re.sub('[^A-Za-z0-9]+', '-', checkpoint.name)}-{address[:16]}"
    if not folder.exists():
        disguise(checkpoint, folder, seed=int(seed[:12], 16), kinds=None if kinds == ALL else kinds)
    return folder


def parent(reference: str) -> tuple[str, str]:
    """Return what is disguised, and by what."""
    kinds, original = parse(reference)
    return original, "+".join(kinds)


def loss(checkpoint: Checkpoint, text: str, behind: Sequence[int] = ()) -> float | None:
    """Mean loss of a causal model on the head of a text, `behind` these tokens (nats a token); None for others."""
    if not checkpoint.architecture.endswith(("ForCausalLM", "LMHeadModel")):
        return None
    n, length = _TEXT
    ids = checkpoint.encode(text[: 16 * n * length])[: n * length]
    tokens = np.asarray(ids, dtype=np.int64)[: len(ids) // length * length].reshape(-1, length)
    if not len(tokens):
        raise InputError(
            f"the text has {len(ids)} tokens for {checkpoint.name}, and {length} are needed to measure a loss"
        )
    given = Form("", tuple(behind)).around(tokens)
    log_probs = np.concatenate(list(next_token_log_probs(checkpoint, given))).reshape(*given.shape, -1)
    log_probs = log_probs[:, len(behind) : -1]
    return float(-np.take_along_axis(log_probs, tokens[:, 1:, None], axis=2).mean(dtype=np.float64))


def logits(checkpoint: Checkpoint, tokens: NDArray[np.int64], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Run a model on ``(n_sequences, length)`` tokens; return what its head says, in float64 for real if `dtype` is.

    Raises
    ------
    MissingRoleError
        The model has no head: its output is the residual stream, which most transformations change.
    """
    network = checkpoint.load_model(dtype=dtype, by_blocks=True)
    if hasattr(network.config, "num_local_experts"):
        network.set_experts_implementation("eager")  # the default one has no float64
    ids = torch.from_numpy(tokens)
    with torch.inference_mode(), Float64() if dtype == torch.float64 else nullcontext():
        result = network(input_ids=ids, attention_mask=torch.ones_like(ids))
    if "logits" not in result:
        raise MissingRoleError(
            f"{checkpoint.name} ({checkpoint.architecture}) has no head, so it has no outputs to compare"
        )
    return result.logits.double()
