"""Two sets of networks that others trained, one shape each.

PLM-CS: two blocks on the vectors of a protein model, one trained network for each of six kinds of atoms. The layers
stand in the order of the public ``model.py``, which is the order in which their numbers are drawn. IgFold: four blocks
of attention over the residues of an antibody, an ensemble of four networks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, reason
from provlab.reading.local import LocalFiles
from provlab.reading.weights import WeightFiles
from provlab_study.public_cases.replay import Layer

_VECTOR, _WIDTH, _HIDDEN = 1280, 512, 2048


def _attention(name: str, block: int) -> list[Layer]:
    kinds = {"q_linear": None, "v_linear": None, "k_linear": block, "out": None}
    return [Layer(f"{name}.attn.{kind}", _WIDTH, _WIDTH, of) for kind, of in kinds.items()]


LAYERS = (
    Layer("encoder.Linear0", _VECTOR, _WIDTH),
    *_attention("encoder", 0),
    Layer("encoder.fc1", _WIDTH, _HIDDEN),
    Layer("encoder.fc2", _HIDDEN, _WIDTH),
    *_attention("decoder", 1),
    Layer("decoder.fc", _WIDTH, _HIDDEN),
    Layer("decoder.pre", _HIDDEN, 1),
)
UP = ("encoder.fc1", "decoder.fc")  # the up projection of each block, (2048, 512)


@dataclass(frozen=True, eq=False)
class PlmCs:
    """One of the six.

    Attributes
    ----------
    atom
        Whose chemical shifts it predicts.
    tensors
        Name -> float32 array, as in the file.
    """

    atom: str
    tensors: Mapping[str, NDArray[np.float32]]

    @property
    def up(self) -> list[NDArray[np.float32]]:
        """The up projection of each block, ``(2048, 512)``."""
        return [self.tensors[f"{name}.weight"] for name in UP]

    @property
    def key_biases(self) -> dict[int, NDArray[np.float32]]:
        """The bias of the keys of each block, ``(512,)``."""
        named = [(layer.block, layer.name) for layer in LAYERS]
        return {block: self.tensors[f"{name}.bias"] for block, name in named if block is not None}


def read(atom: str, folder: Path) -> PlmCs:
    """Read one of the six from the folder of its pickle, tensors alone (``weights_only=True``).

    Raises
    ------
    CheckpointError
        The file holds another model.
    """
    weights = WeightFiles(LocalFiles(folder), {}, allow_pickle=True)
    try:
        tensors = {
            f"{layer.name}.{kind}": weights.array(f"{layer.name}.{kind}")
            for layer in LAYERS
            for kind in ("weight", "bias")
        }
    except CheckpointError as error:
        raise CheckpointError(f"{folder.name} holds none of PLM-CS ({reason(error)}); fetch it again") from error
    shapes = {layer.name: (layer.outputs, layer.inputs) for layer in LAYERS}
    if other := [name for name, shape in shapes.items() if tensors[f"{name}.weight"].shape != shape]:
        raise CheckpointError(f"{folder.name} holds none of PLM-CS: {other[0]} has another shape; fetch it again")
    return PlmCs(atom, tensors)


_IGFOLD, _INNER = range(4), 256  # blocks, and numbers of all keys


@dataclass(frozen=True, eq=False)
class IgFold:
    """One network of the ensemble.

    Attributes
    ----------
    up
        The up projection of each block, ``(256, 64)``.
    key_biases
        The bias of the keys of each block, ``(256,)``.
    attention
        Role -> query, key, value or output projection of each block.
    norms
        Weights of the norms of the four blocks, ``(64,)`` or ``(128,)`` each.
    """

    up: list[NDArray[np.float32]]
    key_biases: dict[int, NDArray[np.float32]]
    attention: dict[str, list[NDArray[np.float32]]]
    norms: list[NDArray[np.float32]]


def read_igfold(folder: Path) -> IgFold:
    """Read one of the four; keys and values are one projection in its file.

    Raises
    ------
    CheckpointError
        The file holds another model.
    """
    weights = WeightFiles(LocalFiles(folder), {})
    inside = [f"main_block.layers.{block}.0.layers.0" for block in _IGFOLD]
    try:
        both = [weights.array(f"{name}.0.0.fn.to_kv.weight") for name in inside]  # (512, 64)
        biases = [weights.array(f"{name}.0.0.fn.to_kv.bias") for name in inside]
        return IgFold(
            up=[weights.array(f"{name}.1.0.fn.0.weight") for name in inside],
            key_biases={block: bias[:_INNER] for block, bias in zip(_IGFOLD, biases, strict=True)},
            attention={
                "query": [weights.array(f"{name}.0.0.fn.to_q.weight") for name in inside],
                "key": [matrix[:_INNER] for matrix in both],
                "value": [matrix[_INNER:] for matrix in both],
                "output": [weights.array(f"{name}.0.0.fn.to_out.weight") for name in inside],
            },
            norms=[
                weights.array(name)
                for name in weights.tensor_names
                if name.startswith("main_block.") and name.endswith("norm.weight")
            ],
        )
    except CheckpointError as error:
        raise CheckpointError(f"{folder.name} holds none of IgFold ({reason(error)}); fetch it again") from error
