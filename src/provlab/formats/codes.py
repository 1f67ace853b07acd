"""Weights that are stored as codes and scales: which tensors belong together, and the weight that they stand for.

A checkpoint that was quantised holds no ``up_proj.weight`` of floats, but codes under this or another name and, beside
them, their factors. `coded_weights` puts such tensors together by their names. Each is de-quantised alone when it is
read, to float32 (`methods` says how), and its shape is known from the headers.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, one_line
from provlab.formats.methods import METHODS, Method, Parts
from provlab.reading.files.container import TensorInfo
from provlab.reading.files.dtypes import values
from provlab.reading.weights import WeightFiles

#: the ways of quantising whose codes are read
CODES = tuple(dict.fromkeys(method.name for method in METHODS))
# what cannot be put together raises, of numpy's and of Python's
_UNFIT = (ValueError, IndexError, KeyError, TypeError, OverflowError, ZeroDivisionError)


class Coded:
    """One weight that is stored as codes.

    Attributes
    ----------
    method
        How it was quantised.
    parts
        What it is made from.
    """

    def __init__(self, method: Method, parts: Parts) -> None:
        self.method, self.parts = method, parts

    @cached_property
    def info(self) -> TensorInfo:
        """Shape and dtype of the weight."""
        return TensorInfo(self.method.shape(self.parts), "float32", stored=self.method.name)

    def read(self) -> NDArray[np.float32]:
        """De-quantise it."""
        weight = self.method.weight(self.parts)
        return np.ascontiguousarray(weight, np.float32).reshape(self.info.shape)


class CodedWeights(WeightFiles):
    """Weights of which some are stored as codes: they go by the names that transformers gives them, as any others."""

    @cached_property
    def _coded(self) -> dict[str, Coded]:
        return coded_weights(super().tensor_names, self.config, super().info, self._stored)

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors, sorted: of weights, and not of their codes and scales."""
        parts = {part for coded in self._coded.values() for part in coded.parts.names.values()}
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
        except _UNFIT as error:
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
            weight = self._coded[name].read()
        except _UNFIT as error:
            raise self._unfit(name, error) from error
        return (weight if rows is None else weight[rows.start : rows.stop]).reshape(-1).view(np.uint8)

    def _stored(self, name: str) -> NDArray[Any]:
        """Read the numbers of one tensor as it is stored."""
        info = super().info(name)
        return values(super()._content(name, None), info.dtype).reshape(info.shape)


def coded_weights(
    names: Iterable[str],
    config: Mapping[str, Any],
    info: Callable[[str], TensorInfo],
    read: Callable[[str], NDArray[Any]],
) -> dict[str, Coded]:
    """Return the weights, by the names that transformers gives them, that are stored as codes.

    Parameters
    ----------
    names
        The names of all tensors as they are stored.
    config
        Content of ``config.json``.
    info, read
        Shape and dtype of a stored tensor, and its numbers.
    """
    stated = config.get("quantization_config") or config.get("quantization")
    settings = stated if isinstance(stated, Mapping) else {}
    beside: dict[str, dict[str, str]] = defaultdict(dict)  # module -> ending -> name
    endings = sorted({ending for method in METHODS for ending in (*method.needs, *method.takes)}, key=len, reverse=True)
    for name in names:
        if ending := next((ending for ending in endings if name.endswith(ending)), None):
            beside[name.removesuffix(ending)][ending] = name
    coded = {}
    for module, stored in beside.items():
        for method in METHODS:
            if set(method.needs) <= set(stored):
                names_of = {ending: stored[ending] for ending in (*method.needs, *method.takes) if ending in stored}
                parts = Parts(names_of, settings, info, read)
                if method.fits(parts):
                    coded[module + method.suffix] = Coded(method, parts)
                    break
    return coded
