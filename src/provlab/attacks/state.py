"""A model in memory, in float64: what one attack gives to the next."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from provlab.attacks import tokens
from provlab.errors import NoSuchSymmetryError
from provlab.reading import anatomy as anatomy_module
from provlab.reading.anatomy import Anatomy
from provlab.reading.architectures import KEYS, Segment
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.symmetry import OWN_HEAD, Permutation, Weights, write

#: the units of one MLP: role -> ``(units, inputs)``, ``(units, outputs)`` for down, ``(units,)`` for biases
Units = dict[str, torch.Tensor]

_MLP = ("gate", "up", "down", "gate_bias", "up_bias")


@dataclass(frozen=True)
class AttackedModel:
    """Weights and config of a model that is being attacked; it is the `Tensors` that an anatomy asks for.

    Attributes
    ----------
    origin
        Where it was read from; what is not in the weights (a tokenizer) is taken from there when it is written.
    config
        As in ``config.json``.
    weights
        Every tensor that has a role, float64.
    ids
        ``(tokens of the origin,)``: the number that each token has by now.
    behind
        Tokens that must stand before a text for the model to work, as the origin numbers them; none, unless an attack
        makes it so.
    """

    origin: Checkpoint
    config: dict[str, Any]
    weights: Weights = field(repr=False)
    ids: NDArray[np.int64] = field(repr=False)
    behind: tuple[int, ...] = ()

    @classmethod
    def read(cls, checkpoint: Checkpoint) -> "AttackedModel":
        """Read a model.

        Raises
        ------
        NoSuchSymmetryError
            It has tensors of unknown role: changing what is round them would change its outputs.
        """
        anatomy = anatomy_module.of(checkpoint)
        if anatomy.unnamed:
            raise NoSuchSymmetryError(
                f"{checkpoint.name} ({anatomy.architecture}) cannot be disguised: its tensor {anatomy.unnamed[0]} has "
                "no role in provlab/reading/architectures.toml"
            )
        weights = {part.name: checkpoint.tensor(part.name).double() for part in anatomy.parts}
        return cls(checkpoint, dict(checkpoint.config), weights, np.arange(anatomy.vocab_size))

    @property
    def name(self) -> str:
        """Short label."""
        return self.origin.name

    @property
    def architecture(self) -> str:
        """As named in the config, which an attack may have changed."""
        named = self.config.get("architectures")
        return str(named[0]) if named else self.origin.architecture

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors."""
        return tuple(sorted(self.weights))

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return tuple(self.weights[name].shape)

    def dtype(self, name: str) -> str:
        """Return the dtype of a tensor, by torch's name."""
        return str(self.weights[name].dtype).removeprefix("torch.")

    @cached_property
    def anatomy(self) -> Anatomy:
        """Which tensor plays which role."""
        return anatomy_module.of(self)

    def part(self, role: str, block: int | None = None) -> torch.Tensor:
        """Return what plays a role, ``(output units, input units)`` or ``(units,)``."""
        part = self.anatomy.part(role, block)
        return part.split(self.weights[part.name])["embedding" if role == "head" and self.anatomy.tied else role]

    def having(self, weights: Weights, config: Mapping[str, Any] | None = None) -> "AttackedModel":
        """Return the same model with these weights, and these entries of its config."""
        untied = {"tie_word_embeddings": False} if OWN_HEAD in weights and OWN_HEAD not in self.weights else {}
        return replace(self, weights=dict(weights), config={**self.config, **untied, **(config or {})})

    def sized(self, axis: str, length: int) -> dict[str, Any]:
        """Entries of the config that give an axis a new length: those that are set, else the first that is there."""
        keys = KEYS[axis]
        there = [key for key in keys if self.config.get(key) is not None] or [key for key in keys if key in self.config]
        return dict.fromkeys(there or keys[:1], length)

    def edited(
        self,
        change: Callable[[Segment, int | None, torch.Tensor], torch.Tensor | None],
        config: Mapping[str, Any] | None = None,
        *,
        unties: bool = False,
    ) -> "AttackedModel":
        """Change what plays each role by a function of its segment, block and tensor; where that gives None, it stays.

        New tensors may have other shapes. A head that is the embedding becomes a tensor of its own if `unties`.
        """
        weights = dict(self.weights)
        for part in self.anatomy.parts:
            pieces = part.split(weights[part.name])
            changed = {segment.role: change(segment, part.block, pieces[segment.role]) for segment in part.segments}
            new = {role: tensor for role, tensor in changed.items() if tensor is not None}
            if new:
                weights[part.name] = part.join({**pieces, **new})
        if unties and self.anatomy.tied:
            embedding = self.part("embedding")
            head = change(Segment("head", ("vocab", "model")), None, embedding)
            weights[OWN_HEAD] = embedding.clone() if head is None else head
        return self.having(weights, config)

    def with_parts(
        self, new: Mapping[tuple[str, int | None], torch.Tensor], config: Mapping[str, Any] | None = None
    ) -> "AttackedModel":
        """Return the model with other tensors, by role and block."""
        return self.edited(lambda segment, block, _: new.get((segment.role, block)), config)

    def with_matrices(self, change: Callable[[str, torch.Tensor], torch.Tensor]) -> "AttackedModel":
        """Change every matrix of the blocks by a function of its name and content."""
        names = [part.name for part in self.anatomy.parts if part.block is not None and len(part.shape) == 2]
        return self.having({**self.weights, **{name: change(name, self.weights[name]) for name in names}})

    def reordered(self, orders: Mapping[tuple[str, int | None], NDArray[np.int64]]) -> "AttackedModel":
        """Put units in another order: for ``(axis, block)`` the old place of each new one, see `Permutation`."""
        return self.having(Permutation(self.anatomy.parts, orders)(self.weights))

    def with_units(self, change: Callable[[Units], Units], *, gated: bool = False) -> "AttackedModel":
        """Change the hidden units of every MLP, and their number if `change` gives others than it gets.

        Raises
        ------
        NoSuchSymmetryError
            A gate is needed and the MLPs have none.
        """
        parts = self.anatomy
        experts = {role.partition(".")[2] for role in parts.roles if role.partition(".")[0] == "up"}
        if gated and not parts.gated:
            raise NoSuchSymmetryError(
                f"{parts.architecture} has no gate: its up projection passes an activation function that is not linear"
            )
        new: dict[tuple[str, int | None], torch.Tensor] = {}
        width = parts.mlp_width
        for block in range(parts.n_blocks):
            for expert in sorted(experts):
                roles = {kind: f"{kind}.{expert}" if expert else kind for kind in _MLP}
                units = {kind: self.part(role, block) for kind, role in roles.items() if parts.has(role)}
                changed = change({**units, "down": units["down"].T})
                width = len(changed["up"])
                new |= {
                    (roles[kind], block): tensor.T if kind == "down" else tensor for kind, tensor in changed.items()
                }
        return self.with_parts(new, self.sized("mlp", width))

    def write(self, folder: Path, *, exactly: bool = False) -> Path:
        """Write a checkpoint folder, in the dtypes of the origin, or in float64 if `exactly`; return the folder."""
        weights = self.weights
        if not exactly:
            dtypes = {name: getattr(torch, self.origin.dtype(name)) for name in self.origin.tensor_names}
            usual = dtypes[anatomy_module.of(self.origin).tensor_name("embedding")]
            weights = {name: tensor.to(dtypes.get(name, usual)) for name, tensor in weights.items()}
        files = self.origin.side_files()
        texts = {path.name: path.read_text(encoding="utf-8") for path in files if path.suffix == ".json"}
        texts["config.json"] = json.dumps(self.config, indent=2)
        side: dict[str, str | None] = {**texts}
        n_tokens = self.anatomy.vocab_size
        if n_tokens != len(self.ids) or (self.ids != np.arange(n_tokens)).any():
            others = [path.name for path in files if path.suffix != ".json"]
            side = tokens.renumbered(texts, others, self.ids, n_tokens, name=self.name)
        return write(weights, self.origin, folder, side)


@dataclass(frozen=True)
class Aim:
    """Random numbers, a number and other models: the input of an attack apart from the model.

    Attributes
    ----------
    rng
        The random generator of all its random choices.
    value
        Its number, such as how many units it adds for each that is there; 0 where it takes none.
    others
        The other models that it takes from.
    """

    rng: np.random.Generator
    value: float = 0.0
    others: tuple[AttackedModel, ...] = field(default=(), repr=False)

    def normal(self, *shape: int) -> torch.Tensor:
        """Draw independent standard normal numbers."""
        return torch.from_numpy(self.rng.standard_normal(shape))

    def uniform(self, low: float, high: float, *shape: int) -> torch.Tensor:
        """Draw independent uniform numbers."""
        return torch.from_numpy(self.rng.uniform(low, high, shape))
