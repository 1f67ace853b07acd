"""Permutations of a model's units that leave its outputs unchanged (the paper's Pi_mlp and Pi_emb).

Which tensor is permuted along which axis is not listed here: it follows from the symbolic axes that the
anatomy gives. Pi_mlp reorders every axis named ``mlp`` of one block, Pi_emb every axis named ``model``.
For a Llama that is Table 4 of the paper (Appendix B). LayerNorm and RMSNorm commute with it, since mean and
variance do not know the order of the units and their weights are permuted along; RoPE acts inside the heads,
which stay where they are.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from provlab.errors import InputError
from provlab.files import atomic_folder
from provlab.reading.anatomy import Anatomy, Tensor, TensorPart
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.files.container import TensorInfo
from provlab.reading.files.writing import write_safetensors

if TYPE_CHECKING:
    import torch

#: name of the head that a model gets whose head was its embedding
OWN_HEAD = "lm_head.weight"
#: tensor name -> tensor, as in the checkpoint's files
Weights = Mapping[str, "torch.Tensor"]


@dataclass(frozen=True)
class Permutation:
    """One order of units for some symbolic axes.

    Attributes
    ----------
    parts
        The tensors it acts on.
    orders
        ``(axis, block)`` -> for each new position the old one; block ``None`` stands for all blocks.
    """

    parts: tuple[TensorPart, ...]
    orders: Mapping[tuple[str, int | None], NDArray[np.int64]]

    def __call__(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights in the new order; tensors that it does not touch are shared.

        `weights`, of numpy or of torch, may be a part of the model, one block say: what is not in it is not permuted.
        """
        result = dict(weights)
        for part in self.parts:
            if part.name in weights:
                result[part.name] = self._permuted(part, weights[part.name])
        return result

    def _permuted(self, part: TensorPart, tensor: Tensor) -> Tensor:
        orders = [[self.order(axis, part) for axis in segment.axes] for segment in part.segments]
        if all(order is None for of_axes in orders for order in of_axes):
            return tensor
        pieces = part.split(tensor)
        for segment, of_axes in zip(part.segments, orders, strict=True):
            for dimension, order in enumerate(of_axes):
                if order is not None:
                    pieces[segment.role] = _reordered(pieces[segment.role], order, dimension)
        return part.join(pieces)

    def order(self, axis: str, part: TensorPart) -> NDArray[np.int64] | None:
        """Return the order of the units along an axis of a tensor; None where they stay."""
        return self.orders.get((axis, part.block), self.orders.get((axis, None)))


def _reordered(piece: Tensor, order: NDArray[np.int64], dimension: int) -> Tensor:
    if isinstance(piece, np.ndarray):
        return np.take(piece, order, axis=dimension)
    import torch

    return piece.index_select(dimension, torch.from_numpy(order).to(piece.device))


class MlpPermutations:
    """Pi_mlp: the hidden units of each MLP in any order, every block (and expert) for itself.

    Parameters
    ----------
    anatomy
        The anatomy of the model to permute.
    """

    def __init__(self, anatomy: Anatomy) -> None:
        check_complete(anatomy)
        self._anatomy = anatomy
        axes = {
            (axis, part.block)
            for part in anatomy.parts
            for segment in part.segments
            for axis in segment.axes
            if axis.partition(".")[0] == "mlp" and part.block is not None
        }
        # sorted: the same rng must give the same permutations in every process
        self._axes = sorted(axes, key=lambda key: (key[1] or 0, key[0]))

    def sample(self, rng: np.random.Generator) -> Permutation:
        """Draw an order for each block."""
        width = self._anatomy.mlp_width
        return Permutation(self._anatomy.parts, {key: rng.permutation(width) for key in self._axes})


class EmbeddingPermutations:
    """Pi_emb: the units of the residual stream in any order, the same everywhere."""

    def __init__(self, anatomy: Anatomy) -> None:
        check_complete(anatomy)
        self._anatomy = anatomy

    def sample(self, rng: np.random.Generator) -> Permutation:
        """Draw one order for the whole model."""
        return Permutation(self._anatomy.parts, {("model", None): rng.permutation(self._anatomy.width)})


def read_all(checkpoint: Checkpoint, anatomy: Anatomy, dtype: "torch.dtype | None" = None) -> "dict[str, torch.Tensor]":
    """Read every tensor that has a role, in the file's dtype or in `dtype`."""
    return {part.name: checkpoint.tensor(part.name).to(dtype) for part in anatomy.parts}


def save(weights: Weights, checkpoint: Checkpoint, folder: Path) -> Path:
    """Write weights as a checkpoint folder with the config and tokenizer of `checkpoint`.

    A head among the weights of a model that had none of its own is written too, and the config says so. The folder
    appears whole or not at all. Returns the folder.

    Raises
    ------
    InputError
        The weights lack a tensor of the checkpoint or have one that it does not know.
    """
    untied = OWN_HEAD in weights and OWN_HEAD not in checkpoint.tensor_names
    if differing := (set(weights) ^ set(checkpoint.tensor_names)) - ({OWN_HEAD} if untied else set()):
        raise InputError(f"weights must have the tensors of {checkpoint.name}; {min(differing)} differs")
    config = {**checkpoint.config, "tie_word_embeddings": False}
    return write(weights, checkpoint, folder, {"config.json": json.dumps(config, indent=2)} if untied else {})


def write(
    weights: Weights,
    checkpoint: Checkpoint,
    folder: Path,
    side: Mapping[str, str | None],
    infos: Mapping[str, TensorInfo] | None = None,
) -> Path:
    """Write weights as a checkpoint folder with the small files of `checkpoint`, those in `side` with this text.

    A file whose text is None is left out. Tensors are asked for one at a time, and stored as `infos` says, by default
    as they are. The folder appears whole or not at all.
    """
    import torch

    if infos is None:
        infos = {
            name: TensorInfo(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
            for name, tensor in weights.items()
        }

    def content(name: str) -> Iterator[NDArray[np.uint8]]:
        values = weights[name].detach().to(getattr(torch, infos[name].dtype))
        yield values.contiguous().reshape(-1).view(torch.uint8).numpy()  # numpy has no bfloat16

    with atomic_folder(folder) as temporary:
        for path in checkpoint.side_files():
            if path.name not in side:
                shutil.copyfile(path, temporary / path.name)
        for file, text in side.items():
            if text is not None:
                (temporary / file).write_text(text, encoding="utf-8")
        write_safetensors(temporary / "model.safetensors", infos, content)
    return folder


def check_complete(anatomy: Anatomy) -> None:
    """Refuse a model with tensors of unknown role: permuting around them would change its outputs."""
    if anatomy.unnamed:
        raise InputError(
            f"this {anatomy.architecture} cannot be permuted: its tensor {anatomy.unnamed[0]} has no role in "
            "provlab/reading/architectures.toml"
        )
