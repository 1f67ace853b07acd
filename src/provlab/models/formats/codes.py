"""Weights that are stored as codes and scales: which tensors belong together, and the weight that they stand for.

A checkpoint that was quantised holds no ``up_proj.weight`` of floats, but codes under this or another name and, beside
them, what they are to be multiplied by. `found` puts such tensors together by their names; each is de-quantised on its
own when it is asked for, to float32, and its shape is known from the headers.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, one_line
from provlab.models.formats.container import TensorInfo
from provlab.models.formats.dtypes import values
from provlab.models.weights import WeightFiles

Arrays = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float32]


class Method(NamedTuple):
    """A way of quantising.

    Attributes
    ----------
    name
        For reports.
    needs
        Endings of the tensors by which it is known, behind the module's name.
    takes
        Endings of those that may be there besides.
    shape
        Shape of the weight from those of its parts, by ending.
    weight
        The weight from its parts, by ending.
    """

    name: str
    needs: tuple[str, ...]
    takes: tuple[str, ...]
    shape: Callable[[Mapping[str, TensorInfo]], tuple[int, ...]]
    weight: Callable[[Arrays], Floats]


@dataclass(frozen=True)
class Coded:
    """One weight that is stored as codes.

    Attributes
    ----------
    method
        How it was quantised.
    parts
        Ending -> name of the stored tensor.
    """

    method: Method
    parts: Mapping[str, str]
    _info: Callable[[str], TensorInfo]

    @cached_property
    def info(self) -> TensorInfo:
        """Shape and dtype of the weight."""
        shape = self.method.shape({ending: self._info(name) for ending, name in self.parts.items()})
        return TensorInfo(shape, "float32", stored=self.method.name)

    def read(self, stored: Callable[[str], NDArray[Any]]) -> Floats:
        """De-quantise it; `stored` reads a tensor as it stands in its file."""
        return self.method.weight({ending: stored(name) for ending, name in self.parts.items()})


class CodedWeights(WeightFiles):
    """Weights of which some are stored as codes: they go by the names that transformers gives them, as any others."""

    @cached_property
    def _coded(self) -> dict[str, Coded]:
        return found(super().tensor_names, self.config, super().info)

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors, sorted: of weights, and not of their codes and scales."""
        parts = {part for coded in self._coded.values() for part in coded.parts.values()}
        return tuple(sorted((set(super().tensor_names) - parts) | set(self._coded)))

    @property
    def plain(self) -> bool:
        """Whether no weight is stored as codes after all."""
        return not self._coded

    @property
    def stored(self) -> list[str]:
        """As what codes, sorted."""
        return sorted({coded.method.name for coded in self._coded.values()})

    def info(self, name: str) -> TensorInfo:
        """Shape and dtype of one tensor."""
        if name not in self._coded:
            return super().info(name)
        try:
            return self._coded[name].info
        except (ValueError, IndexError, KeyError) as error:
            raise self._unfit(name, error) from error

    def _unfit(self, name: str, error: Exception) -> CheckpointError:
        method = self._coded[name].method.name
        return CheckpointError(
            f"{self._source.label}: codes and scales of {name} ({method}) do not fit together ({one_line(error)}); "
            "copy it again, or give the checkpoint that it was made from"
        )

    def _content(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Bytes of one tensor, or of some rows of it, de-quantised if it is stored as codes."""
        if name not in self._coded:
            return super()._content(name, rows)
        try:
            weight = self._coded[name].read(self._stored)
        except (ValueError, IndexError, KeyError) as error:
            raise self._unfit(name, error) from error
        return (weight if rows is None else weight[rows.start : rows.stop]).reshape(-1).view(np.uint8)

    def _stored(self, name: str) -> NDArray[Any]:
        """Read the numbers of one tensor as it is stored."""
        info = super().info(name)
        return values(super()._content(name, None), info.dtype).reshape(info.shape)


def found(names: Iterable[str], config: Mapping[str, Any], info: Callable[[str], TensorInfo]) -> dict[str, Coded]:
    """Return the weights, by the names that transformers gives them, that are stored as codes."""
    beside: dict[str, dict[str, str]] = defaultdict(dict)  # module -> ending -> name
    endings = {ending for method in METHODS for ending in (*method.needs, *method.takes)}
    for name in names:
        for ending in endings:
            if name.endswith("." + ending):
                beside[name.removesuffix("." + ending)][ending] = name
    coded = {}
    for module, parts in beside.items():
        method = next((one for one in METHODS if set(one.needs) <= set(parts)), None)
        if method:
            taken = {ending: parts[ending] for ending in (*method.needs, *method.takes) if ending in parts}
            coded[f"{module}.weight"] = Coded(method, taken, info)
    return coded


def _int8_by_row(parts: Arrays) -> Floats:
    """Rows of int8, each with its largest absolute value: 127 stands for it."""
    rows: Floats = parts["weight"].astype(np.float32)
    rows *= (parts["SCB"].astype(np.float32) / 127)[:, None]
    return rows


#: the first whose needs are there is taken
METHODS = (
    Method(
        "bitsandbytes int8", ("weight", "SCB"), ("weight_format",), lambda parts: parts["weight"].shape, _int8_by_row
    ),
)
