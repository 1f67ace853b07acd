"""Tensors that a config promises: names and shapes of all tensors, before a single weight is there.

A `Skeleton` stands where a checkpoint stands and only its shapes are asked for: to lay out a synthetic checkpoint, or
to plan a study of models that have not been fetched.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, InvalidWeightsError
from provlab.reading.architectures import axis_sizes, config_axis, described, for_expert, instances
from provlab.reading.files.dtypes import DTYPES
from provlab.reading.language import language_part

# How published models are kept where the config does not say.
_DTYPE = "bfloat16"
_BIASED = ("GPT2LMHeadModel",)  # whose configs cannot switch their biases off
_MOST_EXPERTS = 100_000  # of all blocks; nobody counts to more


@dataclass(frozen=True)
class Skeleton:
    """The tensors that a config promises; biases that a config could switch off, as most do, are left out.

    Attributes
    ----------
    name
        Short label.
    config
        Content of a ``config.json``.
    """

    name: str
    config: dict[str, Any]
    #: as most files are
    plain: ClassVar[bool] = True

    @property
    def architecture(self) -> str:
        """The first of the config's ``architectures``.

        Raises
        ------
        CheckpointError
            The config names none.
        UnknownArchitectureError
            The table of architectures lacks it.
        """
        named = self.config.get("architectures")
        if not isinstance(named, list) or not named:
            raise CheckpointError(f"{self.name}: the config names no architecture; add architectures to it")
        described(language_part(str(named[0]), self.config)[0])
        return str(named[0])

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Tensor name -> shape in the file, in the order of a forward pass.

        Raises
        ------
        InvalidWeightsError
            The config does not say how long an axis is.
        """
        architecture_name, config = language_part(self.architecture, self.config)
        architecture = described(architecture_name)
        sizes = axis_sizes(self.name, config, architecture.keys)
        if sizes["blocks"] * sizes.get("experts", 1) > _MOST_EXPERTS:
            raise InvalidWeightsError(
                f"{self.name}: no model has {sizes['blocks']} blocks of {sizes['experts']} experts, as its config says"
            )
        shapes = {}
        for part, _, number, expert in instances(architecture, sizes):
            role = part.segments[0].role
            left_out = config.get("tie_word_embeddings") if role == "head" else architecture_name not in _BIASED
            if part.optional and left_out and (expert is None or len(part.segments[0].axes) == 1):
                continue
            try:
                segments = [for_expert(segment, 0 if part.stacked else expert) for segment in part.segments]
                axes = [tuple(sizes[config_axis(axis)] for axis in segment.axes) for segment in segments]
            except KeyError as error:
                raise InvalidWeightsError(
                    f"{self.name}: the config does not say how long the axis {error} of {role} is"
                ) from None
            shape = (sum(lengths[0] for lengths in axes), *axes[0][1:])
            bare = part.called(number, expert)
            name = bare if part.outside else architecture.prefix + bare
            shape = shape[::-1] if part.transposed else shape
            shapes[name] = (sizes["experts"], *shape) if part.stacked else shape
        return shapes

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors, sorted."""
        return tuple(sorted(self.shapes))

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return self.shapes[name]

    def dtype(self, name: str) -> str:
        """Return the dtype that the config names, bfloat16 if it names none."""
        named = self.config.get("dtype") or self.config.get("torch_dtype") or _DTYPE
        dtype = str(named).removeprefix("torch.")
        if dtype not in DTYPES:
            raise InvalidWeightsError(
                f"{self.name}: the config names the dtype {named!r}; known are {', '.join(DTYPES)}"
            )
        return dtype

    def array(self, name: str, rows: range | None = None) -> NDArray[np.float32]:
        """Refuse: a skeleton has no weights."""
        raise CheckpointError(f"{self.name} is a config without weights; {name} cannot be read from it")

    def bytes_to_hash(self) -> int:
        """No files."""
        return 0

    def bytes_to_fetch(self) -> int:
        """No files."""
        return 0
