"""What disguises preserve: T1 to T6 on a tiny random model of each architecture."""

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import PreTrainedModel

from provlab.attacks.disguise import ALL, TOKENS, disguise, logits
from provlab.errors import NoSuchSymmetryError
from provlab.reading import examples
from provlab.reading.checkpoint import Checkpoint
from provlab.running.activations import random_tokens

NOISE = 1e-4  # of each number: a change of the weights that is no symmetry


@dataclass(frozen=True)
class PreservedRecord:
    """One transformation of one tiny model.

    Attributes
    ----------
    difference
        Largest change of a logit; None where the transformation does not exist.
    scale
        Largest logit, by its absolute value: where all are next to zero, none can change by much.
    refused
        Why it does not.
    moved
        Length of the change of the weights, as a share of their length: a transformation that changes nothing keeps the
        outputs too, and shows nothing.
    """

    architecture: str
    model: str
    kind: str
    difference: float | None
    scale: float | None
    refused: str | None
    moved: float | None = None


@dataclass(frozen=True)
class Noisy:
    """A tiny model and a copy whose weights are each changed by a random share of `NOISE`: what must not pass.

    Attributes
    ----------
    difference, scale
        As of a `PreservedRecord`.
    """

    architecture: str
    difference: float
    scale: float


def preserved(seed: int) -> tuple[list[PreservedRecord], list[Noisy]]:
    """Apply each of T1 to T6 to a tiny random model of each architecture, and compare logits in float64.

    Beside them, by the same comparison, a copy of each under noise.
    """
    records, controls = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for label in tqdm([label for label in examples.TINY if not label.endswith("_base")], desc="architectures"):
            folder = Path(scratch) / label
            network = examples.build(label, seed=seed)
            network.save_pretrained(folder)
            tiny = Checkpoint.open(str(folder))
            controls.append(_noisy(tiny, network, folder / "noise", seed))
            for kind in ALL:
                difference, scale, refused, change = None, None, None, None
                try:
                    done = disguise(tiny, folder / kind, seed=seed, kinds=[kind])
                    difference, scale = done.difference, done.scale
                    change = moved(tiny, Checkpoint.open(str(folder / kind)))
                except NoSuchSymmetryError as error:
                    refused = str(error).rpartition(": ")[2]
                records.append(PreservedRecord(tiny.architecture, label, kind, difference, scale, refused, change))
    return records, controls


def _noisy(tiny: Checkpoint, network: PreTrainedModel, folder: Path, seed: int) -> Noisy:
    """Compare a model with its copy under noise, which is written to a folder; `network` is changed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(1 + NOISE * torch.randn(weight.shape, generator=generator))
    network.save_pretrained(folder)
    tokens = random_tokens(len(next(network.get_input_embeddings().parameters())), *TOKENS, seed=seed)
    before, after = logits(tiny, tokens), logits(Checkpoint.open(str(folder)), tokens)
    return Noisy(tiny.architecture, float((after - before).abs().max()), float(before.abs().max()))


def moved(before: Checkpoint, after: Checkpoint) -> float:
    """Length of the change of all weights, as a share of their length."""
    names = sorted(set(before.tensor_names) & set(after.tensor_names))
    pairs = [(before.array(name).astype(np.float64), after.array(name)) for name in names]
    change = math.fsum(float(((x - y) ** 2).sum()) for x, y in pairs)
    return math.sqrt(change / math.fsum(float((x**2).sum()) for x, _ in pairs))
