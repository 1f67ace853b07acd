"""A model in disguise: transformed by what an adversary can do for nothing, and proved to be the same by its logits.

Wherever a checkpoint can be named, ``disguised:SOURCE`` names it transformed by all of T1 to T6 that it has, and
``disguised:T3:SOURCE`` or ``disguised:T1+T2:SOURCE`` by these alone. ``T6-`` is T6 with negative constants, which only
runs when it is named. The model is made on first use and kept in the cache.
"""

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from provlab.errors import InputError, MissingRoleError, NoSuchSymmetryError
from provlab.files import cache_dir, digest
from provlab.models import anatomy as anatomy_module
from provlab.models.activations import random_tokens
from provlab.models.anatomy import Tensors
from provlab.models.checkpoint import Checkpoint
from provlab.models.evasion import EmbeddingRotations, MlpScalings, QueryKeyRotations, ReplacedNorms
from provlab.models.precision import Float64
from provlab.models.symmetry import EmbeddingPermutations, MlpPermutations, Transformations, compose, read_all, save

#: largest difference of two logits, in float64, that still counts as the same outputs
EXACT = 1e-9
TOKENS = (4, 16)  # sequences and their length, on which outputs are compared
_VERSION = 2  # raised whenever the same checkpoint would be disguised otherwise: copies in the cache are made again

#: the paper's name of each transformation -> the class that draws it, from a checkpoint
TRANSFORMATIONS: Mapping[str, Callable[[Tensors], Transformations]] = {
    "T1": lambda checkpoint: EmbeddingPermutations(anatomy_module.of(checkpoint)),
    "T2": lambda checkpoint: MlpPermutations(anatomy_module.of(checkpoint)),
    "T3": lambda checkpoint: EmbeddingRotations(anatomy_module.of(checkpoint)),
    "T4": QueryKeyRotations,
    "T5": lambda checkpoint: ReplacedNorms(anatomy_module.of(checkpoint)),
    "T6": lambda checkpoint: MlpScalings(anatomy_module.of(checkpoint)),
    "T6-": lambda checkpoint: MlpScalings(anatomy_module.of(checkpoint), negative=True),
}
#: the paper's six, with positive constants in the last
ALL = ("T1", "T2", "T3", "T4", "T5", "T6")


@dataclass(frozen=True)
class Disguise:
    """A transformed checkpoint and what was checked.

    Attributes
    ----------
    folder
        The new checkpoint.
    applied
        Names of the transformations, in order.
    refused
        Transformation -> why this architecture has it not.
    difference
        Largest absolute difference of two outputs in float64; at most `EXACT`.
    difference_saved
        The same for the weights as saved, in the dtype of the original, and run in float32.
    scale
        Largest absolute output, to judge both by.
    """

    folder: Path
    applied: tuple[str, ...]
    refused: Mapping[str, str]
    difference: float
    difference_saved: float
    scale: float


def disguise(
    checkpoint: Checkpoint,
    folder: Path,
    *,
    seed: int,
    kinds: Sequence[str] = ALL,
) -> Disguise:
    """Transform a model so that its outputs stay, and prove it on random tokens.

    Parameters
    ----------
    checkpoint
        The model.
    folder
        Where the new checkpoint goes; it appears whole or not at all.
    seed
        All random choices and the tokens derive from it.
    kinds
        Of `TRANSFORMATIONS`, applied in this order; those that the architecture has not are listed in the result.

    Raises
    ------
    NoSuchSymmetryError
        The architecture has none of `kinds`, or the outputs differ by more than `EXACT` in float64.
    InputError
        A kind is unknown.
    """
    if unknown := [kind for kind in kinds if kind not in TRANSFORMATIONS]:
        raise InputError(f"kinds must be of {', '.join(TRANSFORMATIONS)}, not {unknown[0]!r}")
    families, refused = {}, {}
    for kind in kinds:
        try:
            families[kind] = TRANSFORMATIONS[kind](checkpoint)
        except NoSuchSymmetryError as error:
            refused[kind] = str(error)
    if not families:
        raise NoSuchSymmetryError(f"{checkpoint.name} cannot be disguised: {'; '.join(refused.values())}")
    anatomy = anatomy_module.of(checkpoint)
    transformation = compose(*families.values()).sample(np.random.default_rng(seed))
    weights = transformation(read_all(checkpoint, anatomy, torch.float64))
    tokens = random_tokens(anatomy.vocab_size, *TOKENS, seed=seed)
    before = logits(checkpoint, tokens)
    with tempfile.TemporaryDirectory(prefix="provlab-") as scratch:
        exact = logits(Checkpoint.open(str(save(weights, checkpoint, Path(scratch) / "float64"))), tokens)
    difference = float((exact - before).abs().max())
    if not difference <= EXACT:
        raise NoSuchSymmetryError(
            f"the transformed {checkpoint.name} does not give the outputs of the original: they differ by "
            f"{difference:.1e}; its architecture computes something that provlab/models/families.py does not say"
        )
    dtypes = {part.name: getattr(torch, checkpoint.dtype(part.name)) for part in anatomy.parts}
    usual = dtypes[anatomy.tensor_name("embedding")]
    narrow = {name: tensor.to(dtypes.get(name, usual)) for name, tensor in weights.items()}
    save(narrow, checkpoint, folder)
    saved = logits(Checkpoint.open(str(folder)), tokens, dtype=torch.float32)
    return Disguise(
        folder,
        tuple(families),
        refused,
        difference,
        float((saved - before).abs().max()),
        float(before.abs().max()),
    )


def parse(reference: str) -> tuple[tuple[str, ...], str]:
    """Split what stands behind ``disguised:`` into the kinds asked for and the source of the model.

    Raises
    ------
    InputError
        No source is given.
    """
    match = re.fullmatch(r"(?:(T[1-6]-?(?:\+T[1-6]-?)*):)?(.+)", reference, re.DOTALL)
    if match is None:
        raise InputError(f"disguised:{reference}: a model is disguised by disguised:SOURCE or disguised:T1+T3:SOURCE")
    return tuple(match[1].split("+")) if match[1] else ALL, match[2]


def locate(reference: str) -> Path:
    """Return the folder of a disguised model, made on first use; see the module's text for `reference`.

    Its random choices derive from the digest of the model, so that every model is disguised differently and always
    in one way.

    Raises
    ------
    ProvlabError
        The model cannot be opened, or has none of the transformations.
    """
    kinds, source = parse(reference)
    checkpoint = Checkpoint.open(source)
    address = digest({"model": checkpoint.digest, "kinds": kinds, "version": _VERSION})
    folder = cache_dir() / "disguised" / f"{re.sub('[^A-Za-z0-9]+', '-', checkpoint.name)}-{address[:16]}"
    if not folder.exists():
        disguise(checkpoint, folder, seed=int(address[:12], 16), kinds=kinds)
    return folder


def logits(checkpoint: Checkpoint, tokens: NDArray[np.int64], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Run a model on ``(n_sequences, length)`` tokens; return what its head says, in float64 for real if `dtype` is.

    Raises
    ------
    MissingRoleError
        The model has no head: its output is the residual stream, which most transformations change.
    """
    network = checkpoint.load_model(dtype=dtype)
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
