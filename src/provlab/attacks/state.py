"""A model in float64: what one attack gives to the next.

Tensors of the origin are read when they are asked for, and attacks that keep every shape change them then (`Made`): so
T1 to T6 of a model of 7 billion numbers, 54 GB in float64, hold one tensor at a time.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from provlab.attacks import tokens
from provlab.errors import NoSuchSymmetryError
from provlab.reading import anatomy as anatomy_module
from provlab.reading.anatomy import Anatomy, TensorPart
from provlab.reading.architectures import KEYS, Segment
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.files.container import TensorInfo
from provlab.reading.symmetry import OWN_HEAD, Permutation, Weights, write

#: the units of one MLP: role -> ``(units, inputs)``, ``(units, outputs)`` for down, ``(units,)`` for biases
Units = dict[str, torch.Tensor]

#: kinds of roles of an MLP, without the name of an expert
MLP = ("gate", "up", "down", "gate_bias", "up_bias")


class Made(Mapping[str, torch.Tensor]):
    """Tensors by name, each made whenever it is asked for, and not kept.

    Attributes
    ----------
    makers
        Name -> what makes the tensor.
    shapes
        Name -> its shape, known before.
    """

    def __init__(self, makers: Mapping[str, Callable[[], torch.Tensor]], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.makers, self.shapes = makers, shapes

    def __getitem__(self, name: str) -> torch.Tensor:
        """Make a tensor, float64."""
        return self.makers[name]()

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self.makers)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.makers)

    def __contains__(self, name: object) -> bool:
        """Whether there is a tensor of a name; none is made for the answer."""
        return name in self.makers


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
        weights = tensors_of(checkpoint, [part.name for part in anatomy.parts])
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
        return self.weights.shapes[name] if isinstance(self.weights, Made) else tuple(self.weights[name].shape)

    def dtype(self, name: str) -> str:
        """Return the dtype of a tensor, by torch's name."""
        return "float64"

    @property
    def n_numbers(self) -> int:
        """Numbers in all tensors."""
        return sum(math.prod(self.shape(name)) for name in self.weights)

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
        return replace(self, weights=weights, config={**self.config, **untied, **(config or {})})

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

        New tensors may have other shapes, so all are made now. A head that is the embedding becomes a tensor of its own
        if `unties`.
        """
        return self.having({name: make() for name, make in self._changed(change, unties=unties).items()}, config)

    def turned(
        self, change: Callable[[Segment, int | None, torch.Tensor], torch.Tensor | None], *, unties: bool = False
    ) -> "AttackedModel":
        """Do as `edited` does, by a `change` that keeps every shape and draws nothing: each is made when asked for."""
        makers = self._changed(change, unties=unties)
        shapes = {name: self.shape(name) for name in self.weights}
        if OWN_HEAD in makers:
            shapes.setdefault(OWN_HEAD, self.anatomy.shape("embedding"))
        return self.having(Made(makers, shapes))

    def _changed(
        self, change: Callable[[Segment, int | None, torch.Tensor], torch.Tensor | None], *, unties: bool
    ) -> dict[str, Callable[[], torch.Tensor]]:
        """What makes each tensor, in the order of the weights."""

        def made(part: TensorPart) -> torch.Tensor:
            tensor = self.weights[part.name]
            pieces = part.split(tensor)
            changed = {segment.role: change(segment, part.block, pieces[segment.role]) for segment in part.segments}
            new = {role: piece for role, piece in changed.items() if piece is not None}
            return part.join({**pieces, **new}) if new else tensor

        def head() -> torch.Tensor:
            embedding = self.part("embedding")
            turned = change(Segment("head", ("vocab", "model")), None, embedding)
            return embedding.clone() if turned is None else turned

        makers: dict[str, Callable[[], torch.Tensor]]
        makers = {name: partial(self.weights.__getitem__, name) for name in self.weights}
        makers |= {part.name: partial(made, part) for part in self.anatomy.parts}
        return {**makers, OWN_HEAD: head} if unties and self.anatomy.tied else makers

    def permuted(self, permutation: Permutation) -> "AttackedModel":
        """Put units in another order; each tensor is made when it is asked for."""

        def made(name: str) -> torch.Tensor:
            return permutation({name: self.weights[name]})[name]

        shapes = {name: self.shape(name) for name in self.weights}
        return self.having(Made({name: partial(made, name) for name in self.weights}, shapes))

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
        return self.permuted(Permutation(self.anatomy.parts, orders))

    @property
    def experts(self) -> list[str]:
        """Names of the experts of each MLP, behind the point of a role; one empty name where it has none."""
        return sorted({role.partition(".")[2] for role in self.anatomy.roles if role.partition(".")[0] == "up"})

    def check_gated(self) -> None:
        """Raise NoSuchSymmetryError where the MLPs have no gate."""
        if not self.anatomy.gated:
            raise NoSuchSymmetryError(
                f"{self.anatomy.architecture} has no gate: its up projection passes an activation function that is not "
                "linear"
            )

    def with_units(self, change: Callable[[Units], Units], *, gated: bool = False) -> "AttackedModel":
        """Change the hidden units of every MLP, and their number if `change` gives others than it gets.

        Raises
        ------
        NoSuchSymmetryError
            A gate is needed and the MLPs have none.
        """
        parts = self.anatomy
        if gated:
            self.check_gated()
        new: dict[tuple[str, int | None], torch.Tensor] = {}
        width = parts.mlp_width
        for block in range(parts.n_blocks):
            for expert in self.experts:
                roles = {kind: f"{kind}.{expert}" if expert else kind for kind in MLP}
                units = {kind: self.part(role, block) for kind, role in roles.items() if parts.has(role)}
                changed = change({**units, "down": units["down"].T})
                width = len(changed["up"])
                new |= {
                    (roles[kind], block): tensor.T if kind == "down" else tensor for kind, tensor in changed.items()
                }
        return self.with_parts(new, self.sized("mlp", width))

    def write(self, folder: Path, *, exactly: bool = False) -> Path:
        """Write a checkpoint folder, in the dtypes of the origin, or in float64 if `exactly`; return the folder."""
        dtypes = dict.fromkeys(self.weights, "float64")
        if not exactly:
            usual = self.origin.dtype(anatomy_module.of(self.origin).tensor_name("embedding"))
            known = set(self.origin.tensor_names)
            dtypes = {name: self.origin.dtype(name) if name in known else usual for name in self.weights}
        infos = {name: TensorInfo(self.shape(name), dtype) for name, dtype in dtypes.items()}
        files = self.origin.side_files()
        texts = {path.name: path.read_text(encoding="utf-8") for path in files if path.suffix == ".json"}
        texts["config.json"] = json.dumps(self.config, indent=2)
        side: dict[str, str | None] = {**texts}
        n_tokens = self.anatomy.vocab_size
        if n_tokens != len(self.ids) or (self.ids != np.arange(n_tokens)).any():
            others = [path.name for path in files if path.suffix != ".json"]
            side = tokens.renumbered(texts, others, self.ids, n_tokens, name=self.name)
        return write(self.weights, self.origin, folder, side, infos)


def tensors_of(checkpoint: Checkpoint, names: Iterable[str]) -> Made:
    """Tensors of a checkpoint in float64, each read whenever it is asked for."""
    makers = {name: partial(lambda each: checkpoint.tensor(each).double(), name) for name in names}
    return Made(makers, {name: checkpoint.shape(name) for name in makers})


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
