"""Other sets of weights in a folder than the one that is read: whether they are the same model, and what to say.

A folder may hold one model twice (whole and in shards, in two precisions, as GGUF beside safetensors), or two models by
mistake: weights that were copied over others, of which a table of shards was left. transformers reads one of them and
says nothing.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError
from provlab.reading.files.container import is_weights, parts_of
from provlab.reading.weights import WeightFiles

if TYPE_CHECKING:
    from provlab.reading.files.source import Files

_BYTES = 2**16  # of each tensor that are compared, as float32
#: relative error of one number after rounding, by the less precise dtype; the exact bounds are half of these
_ROUNDED = {"float64": 0.0, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_SMALLEST = 2.0**-24  # in half precision, in which smaller numbers become 0
#: of a matrix and its copy in codes: relative distance; two bits keep 0.4, and another model has 1.4
_CODED = 0.8


def sentences(label: str, files: "Files", read: WeightFiles, *, local: bool) -> Iterator[str]:
    """Yield one sentence on each set of weights that lies beside those that are read.

    Parameters
    ----------
    label
        What a verdict calls the model.
    files
        The folder.
    read
        The weights that are read.
    local
        The files are on this machine, so that it costs little to compare them.

    Raises
    ------
    CheckpointError
        Another set holds another model.
    """
    name = read.index[0] if read.index else read.files[0]
    known = {*read.files, *read.index}
    for other in read.others:
        which = f"Beside {name} of {label}, which was read, lies {other}"
        known |= {other, *parts_of(other, files.names())}
        pickled = read.format.pickled
        if (other.endswith(".bin") or ".bin." in other) and not pickled:
            continue  # `Checkpoint.rival`, which loads none
        if not local:
            yield f"{which}, which was neither read nor compared."
            continue
        try:
            theirs = WeightFiles(files, read.config, which=other, allow_pickle=pickled)
            known |= {*theirs.files}
            differing, how = _differing(read, theirs)
        except CheckpointError:
            yield f"{which}, which cannot be compared."
            continue
        if differing:
            raise CheckpointError(
                f"{files.label} holds two models, {name} and {other}, which differ in {differing}; give the path of "
                f"the one that is meant: {files.label}/{name} or {files.label}/{other}"
            )
        yield f"{which}, with the same numbers{how}."
    unread = sorted(n for n in files.names() - known if is_weights(n) and n.endswith(".safetensors"))
    if unread := [n for n in unread if not n.startswith("adapter_")]:
        yield f"Beside {name} of {label}, which was read, lie weights that were not: {', '.join(unread[:3])}."


def _differing(read: WeightFiles, other: WeightFiles) -> tuple[str, str]:
    """Return the first tensor that differs, ``""`` if none does, and how far the numbers were compared."""
    common = sorted({*read.tensor_names} & {*other.tensor_names})
    if not common:
        return "the names of all tensors", ""
    codes: set[str] = set()
    whole = True
    for name in common:
        ours, theirs = read.info(name), other.info(name)
        if ours.shape != theirs.shape:
            return f"the shape of {name}", ""
        if not ours.shape or not all(ours.shape):
            continue
        rows = range(min(ours.shape[0], max(1, _BYTES // (4 * math.prod(ours.shape[1:])))))
        whole &= len(rows) == ours.shape[0]
        a, b = read.array(name, rows), other.array(name, rows)
        coded = {ours.stored, theirs.stored} - {""}
        codes |= coded
        if coded and ours.stored != theirs.stored:
            differs = a.ndim > 1 and float(np.linalg.norm(a - b)) > _CODED * float(np.linalg.norm(a))
        elif ours.dtype == theirs.dtype:
            differs = not np.array_equal(a, b)
        else:
            differs = _beyond_rounding(a, b, max(_ROUNDED.get(dtype, 0.1) for dtype in (ours.dtype, theirs.dtype)))
        if differs:
            return name, ""
    how = f", as far as its codes ({', '.join(sorted(codes))}) keep them" if codes else ""
    return "", how if whole else f"{how} (the first rows of each tensor were compared)"


def _beyond_rounding(a: NDArray[np.float32], b: NDArray[np.float32], error: float) -> bool:
    """Whether two arrays differ by more than one's rounding to fewer digits."""
    return bool((np.abs(a - b) > error * np.abs(a) + _SMALLEST).any())
