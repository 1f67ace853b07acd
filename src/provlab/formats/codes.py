"""Weights that are stored as codes and scales: which tensors belong together, and the weight that they stand for.

A checkpoint that was quantised holds no ``up_proj.weight`` of floats, but codes under this or another name and, beside
them, their factors. `coded_weights` puts such tensors together by their names. Each is de-quantised alone when it is
read, to float32 (`methods` says how), and its shape is known from the headers. What the folder declares decides what
codes mean (`provlab.reading.declared`); where it does not suffice, the weight is refused when it is asked for.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, one_line
from provlab.formats.methods import WAYS, Parts, Way
from provlab.reading.declared import PLAIN, SIDE_FILES, Declaration, DeclarationError, Declared
from provlab.reading.files.container import TensorInfo
from provlab.reading.weights import WeightFiles, read_json

#: the ways of coding whose codes are read
CODES = tuple(dict.fromkeys(way.name for way in WAYS))
# what cannot be put together raises, of numpy's and of Python's
_UNFIT = (ValueError, IndexError, KeyError, TypeError, OverflowError, ZeroDivisionError)
_ENDINGS = sorted({ending for way in WAYS for ending in (*way.needs, *way.takes)}, key=len, reverse=True)
#: last words of names beside codes: of what changes the numbers that they stand for, and of what activations need
_FACTOR = re.compile(r"scale|zero|shift|codebook|global|absmax|g_idx|perm|quant")
_OF_ACTIVATIONS = re.compile(r"(input|output|activation|act|[qkv])_")
#: what no way reads: numbers of 8 bits, or packed ones, with no scale that is known
_BARE = Way("codes without scales", (), (), lambda parts: (), lambda parts: np.empty(0, np.float32), ())


class Coded:
    """One weight that is stored as codes.

    Attributes
    ----------
    way
        How it was coded; None where nothing that is declared fits.
    parts
        What it is made from.
    refused
        Why it cannot be read; None where it can.
    """

    def __init__(self, way: Way, parts: Parts, refused: DeclarationError | None = None) -> None:
        self.way, self.parts, self.refused = way, parts, refused

    @cached_property
    def info(self) -> TensorInfo:
        """Shape and dtype of the weight."""
        if self.refused:
            raise self.refused
        return TensorInfo(self.way.shape(self.parts), "float32", stored=self.way.name)

    def read(self, rows: range | None = None) -> NDArray[np.float32]:
        """De-quantise it, or some of its rows: alone, where its tensors have rows of their own for each."""
        shape, parts = self.info.shape, self.parts._replace(by_rows=self.way.by_rows)
        stored = [ending for ending in (*self.way.needs, *self.way.takes) if parts.has(ending) and parts.by_rows]
        alone = bool(stored) and all(parts.aligned(e) or parts.info(parts.names[e]).shape in ((), (1,)) for e in stored)
        some = self.way.weight(parts._replace(rows=rows if alone else None))
        if rows is not None and not alone:
            some = some.reshape(shape)[rows.start : rows.stop]
        lines = shape if rows is None else (len(rows), *shape[1:])
        return np.ascontiguousarray(some, np.float32).reshape(lines)


class CodedWeights(WeightFiles):
    """Weights of which some are stored as codes: they go by the names that transformers gives them, as any others."""

    @cached_property
    def _coded(self) -> dict[str, Coded]:
        beside = {name: read_json(self._source, name) for name in SIDE_FILES if name in self._source.names()}
        return coded_weights(super().tensor_names, Declared(self.config, beside), super().info, super()._content)

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors, sorted: of weights, and not of their codes and scales."""
        parts = {part for coded in self._coded.values() for part in coded.parts.names.values()}
        return tuple(sorted((set(super().tensor_names) - parts) | set(self._coded)))

    @property
    def plain(self) -> bool:
        """Whether no weight is stored as codes after all, and transformers reads the files as they are read here."""
        return not self._coded and super().plain

    @property
    def stored(self) -> list[str]:
        """As what codes, sorted."""
        return sorted({coded.way.name for coded in self._coded.values()})

    def info(self, name: str) -> TensorInfo:
        """Shape and dtype of one tensor."""
        if name not in self._coded:
            return super().info(name)
        try:
            return self._coded[name].info
        except _UNFIT as error:
            raise self._unfit(name, error) from error

    def _unfit(self, name: str, error: Exception) -> CheckpointError:
        if isinstance(error, DeclarationError):
            line = one_line(error) if ";" in str(error) else f"{one_line(error)}; correct it, or {_ORIGINAL}"
            return CheckpointError(f"{self._source.label}: {one_line(name)[:100]} is stored as codes: {line}")
        way = self._coded[name].way.name
        return CheckpointError(
            f"{self._source.label}: codes and scales of {one_line(name)[:100]} ({way}) do not fit together "
            f"({one_line(error)}); {_ORIGINAL}"
        )

    def _content(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Bytes of one tensor, or of some rows of it, de-quantised if it is stored as codes."""
        if name not in self._coded:
            return super()._content(name, rows)
        try:
            return self._coded[name].read(rows).reshape(-1).view(np.uint8)
        except _UNFIT as error:
            raise self._unfit(name, error) from error


def coded_weights(
    names: Iterable[str],
    declared: Declared,
    info: Callable[[str], TensorInfo],
    read: Callable[[str, range | None], NDArray[np.uint8]],
) -> dict[str, Coded]:
    """Return the weights, by the names that transformers gives them, that are stored as codes.

    Parameters
    ----------
    names
        The names of all tensors as they are stored.
    declared
        What the folder says of codes.
    info, read
        Shape and dtype of a stored tensor, and the bytes of it or of some rows.
    """
    beside: dict[str, dict[str, str]] = defaultdict(dict)  # module -> ending -> name
    others: list[str] = []
    for name in names:
        ending = next((ending for ending in _ENDINGS if name.endswith(ending)), None)
        if ending is None:
            others.append(name)
        else:
            beside[name.removesuffix(ending)][ending] = name
    factors: dict[str, list[str]] = defaultdict(list)  # module -> tensors beside its codes that no way takes
    for name in others:
        if _FACTOR.search(name.rpartition(".")[2]):
            factors[name.rpartition(".")[0].removesuffix(".weight")].append(name)
        elif info(name).dtype.startswith("float8") and len(info(name).shape) > 1:
            beside[name] = {"": name}
    coded = {}
    for module, stored in beside.items():
        said = declared.of(module)
        way, refused = _way(stored, said, declared.places, info, read)
        if way is None:
            continue
        unread = [name for name in factors[module] if not _OF_ACTIVATIONS.match(name.rpartition(".")[2])]
        if unread and not refused:
            refused = DeclarationError(f"{unread[0]} stands beside it and is not read; {_ORIGINAL}")
        beside_it = {name: name for name in factors[module]}
        parts = _parts(way, stored, said, info, read)
        coded[module + (way.suffix if "" not in stored else "")] = Coded(
            way, parts._replace(names={**parts.names, **beside_it}), refused
        )
    return coded


_ORIGINAL = "give the checkpoint that it was made from"


def _parts(
    way: Way,
    stored: Mapping[str, str],
    said: Declaration,
    info: Callable[[str], TensorInfo],
    read: Callable[[str, range | None], NDArray[np.uint8]],
) -> Parts:
    names = {ending: stored[ending] for ending in (*way.needs, *way.takes) if ending in stored}
    return Parts(names or dict(stored), said, info, read)


def _way(
    stored: Mapping[str, str],
    said: Declaration,
    places: Sequence[str],
    info: Callable[[str], TensorInfo],
    read: Callable[[str, range | None], NDArray[np.uint8]],
) -> tuple[Way | None, DeclarationError | None]:
    """Return how the tensors of a module are coded, and why that is not read; None where they are no codes."""
    possible = [way for way in WAYS if set(way.needs) <= set(stored)]
    plain = [ending for ending in ("", ".weight") if ending in stored]
    kept = info(stored[plain[0]]) if plain else None
    if not possible:
        if kept is None or len(kept.shape) < 2 or kept.dtype in PLAIN:
            return None, None
        return _BARE, DeclarationError(_bare(kept, places))
    try:
        if said.uncoded:
            raise DeclarationError(
                f"{said.uncoded} says that it is not coded, and its tensors are codes; remove that entry if it is"
            )
        fitting = [way for way in possible if way.fits(_parts(way, stored, said, info, read))]
        if not fitting and kept is not None and kept.dtype in PLAIN:
            return None, None  # numbers as they are, and scales that training or a calibration left
        method = said.get("method") or ""
        if way := next((way for way in fitting if method in way.declared), None):
            return way, None
        first = (fitting or possible)[0]
        if not method:
            said.need("method")
        kept_as = f"{first.needs[0].strip('.')} ({info(stored[first.needs[0]]).dtype})"
        known = any(method in way.declared for way in WAYS)
        why = f"and its {kept_as} is none of that as it is read here" if known else "a way of coding that is not read"
        return first, DeclarationError(f"{said.where('method')}, {why}; {_ORIGINAL}")
    except DeclarationError as error:
        return possible[0], error


def _bare(kept: TensorInfo, places: Sequence[str]) -> str:
    where = f"{places[0]} names no scale that is read" if places else "nothing declares its scales"
    return f"it holds {kept.dtype} and no scale that is known ({where}); {_ORIGINAL}"
