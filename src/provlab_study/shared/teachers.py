"""Single MLPs of a model as maps of their own, which a student can imitate (see `provlab_study.shared.students`)."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from provlab.errors import CheckpointError, InputError, MissingRoleError
from provlab.files import digest
from provlab.reading import anatomy as anatomy_module
from provlab.reading.checkpoint import Checkpoint
from provlab.running.activations import mlp_activations

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class BlockMlp:
    """One block's MLP, a GLU or a plain feedforward network, as a teacher.

    Attributes
    ----------
    name
        Model and block.
    weights
        By role: ``up``, ``down``, ``gate`` if there is one, biases under ``up_bias``, ...
    activation
        Name of the activation function in transformers.
    """

    name: str
    weights: Mapping[str, torch.Tensor] = field(repr=False)
    activation: str

    @property
    def width(self) -> int:
        """Length of an input."""
        return self.weights["up"].shape[1]

    @property
    def mlp_width(self) -> int:
        """Hidden units."""
        return self.weights["up"].shape[0]

    @property
    def digest(self) -> str:
        """Hash of weights and activation function."""
        sums = {role: tensor_sha256(tensor) for role, tensor in self.weights.items()}
        return digest({"weights": sums, "activation": self.activation})

    def to(self, device: str) -> Self:
        """Return the same MLP on another device."""
        return replace(self, weights={role: tensor.to(device) for role, tensor in self.weights.items()})

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Outputs ``(n, width)`` for inputs ``(n, width)``, without the constant that a bias of `down` adds."""
        from transformers.activations import ACT2FN  # slow to import

        act = ACT2FN[self.activation]
        up = self._linear("up", inputs)
        hidden = act(self._linear("gate", inputs)) * up if "gate" in self.weights else act(up)
        return hidden @ self.weights["down"].T

    def activations(self, inputs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return gate and up activations, each ``(mlp_width, n)`` float32, on inputs ``(n, width)``.

        Raises
        ------
        MissingRoleError
            The MLP has no gate.
        """
        if "gate" not in self.weights:
            raise MissingRoleError(f"{self.name} has no gate")
        rows = torch.from_numpy(np.ascontiguousarray(inputs, dtype=np.float32))
        gate, up = (self._linear(role, rows).T.contiguous().numpy() for role in ("gate", "up"))
        return gate, up

    def _linear(self, role: str, inputs: torch.Tensor) -> torch.Tensor:
        return functional.linear(inputs, self.weights[role], self.weights.get(f"{role}_bias"))


def block_mlp(checkpoint: Checkpoint, block: int) -> BlockMlp:
    """Return the MLP of one block as a teacher; its inputs are what the norm before it gives.

    Raises
    ------
    MissingRoleError
        The block has experts in place of one MLP.
    CheckpointError
        The config names no activation function.
    """
    parts = anatomy_module.of(checkpoint)
    roles = [
        role for role in ("gate", "up", "down", "gate_bias", "up_bias") if role in ("up", "down") or parts.has(role)
    ]
    weights = {role: torch.from_numpy(parts.read(checkpoint, role, block)) for role in roles}
    for key in ("hidden_activation", "hidden_act", "activation_function"):  # in the order of transformers
        if isinstance(name := checkpoint.config.get(key), str):
            return BlockMlp(f"{checkpoint.name}, block {block}", weights, name)
    raise CheckpointError(f"{checkpoint.source}: config.json names no activation function; add hidden_act")


def mlp_inputs(
    checkpoint: Checkpoint,
    tokens: NDArray[np.integer[Any]],
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    positions: NDArray[np.int64] | None = None,
) -> list[NDArray[np.float32]]:
    """Record what enters the MLP of every block, in one pass over tokens ``(n_sequences, length)``.

    Returns
    -------
    list of array
        For each block ``(positions, width)`` float32: rows, as students take them; all positions by default.
    """
    recorded = mlp_activations(checkpoint, tokens, kinds=("input",), device=device, dtype=dtype, positions=positions)
    return [np.ascontiguousarray(columns.T) for columns in recorded["input"]]


@contextmanager
def in_place(
    network: "PreTrainedModel", checkpoint: Checkpoint, block: int, student: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[None]:
    """Let another map do the work of one block's MLP in a loaded model, while the context lasts.

    Parameters
    ----------
    network
        The model that the checkpoint loads as.
    checkpoint
        Says where the MLP is.
    block
        Which.
    student
        Float32 rows to rows on the CPU, such as a student; the constant that a bias of the down projection adds stays
        the model's.

    Raises
    ------
    InputError
        The model has no module that is the MLP and nothing else (BERT).
    """
    parts = anatomy_module.of(checkpoint)
    path, _, _ = parts.module("down", block).rpartition(".")
    if path != parts.module("up", block).rpartition(".")[0]:
        raise InputError(f"the MLP of {parts.architecture} is no module of its own: nothing can take its place")
    constant = torch.zeros(())
    if parts.has("down_bias"):
        constant = torch.from_numpy(parts.read(checkpoint, "down_bias", block))

    def instead(_: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        return (student(inputs[0].to("cpu", torch.float32)) + constant).to(output)

    handle = network.get_submodule(path).register_forward_hook(instead)
    try:
        yield
    finally:
        handle.remove()


def tensor_sha256(tensor: torch.Tensor) -> str:
    """Hex SHA-256 of a tensor's values."""
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()
