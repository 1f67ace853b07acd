"""What "on the device" means: where arrays lie, and how one function serves them on the CPU and on a GPU.

A model runs on the device that a user names (``--device cuda``), and what is made of its weights there is computed
there: whatever is as large as they are. *There* are float32 matrices of one block, activations of one batch, some laws
of the next token, as torch's tensors; they are sent as their files have them, and widened there. *Here*, in numpy's
arrays, is all that is smaller: lengths, indices, groups, weights of tokens, random draws, p-values. On the CPU nothing
is sent, and all arrays are numpy's.

A function is written once. It takes its functions from the arrays that it is given (`array_api_compat`), and what it
gives back is here. So it computes where its arrays lie, and its caller, who knows the device, decides that by `on`:

    there = on(options.device)
    shares(gate, up, there(down))

Sums of squares are taken in float64, and products in float32: a device that rounds more (TF32) is refused. On a device
without float64, as Apple's, nothing of this is done: the model runs there, and the rest is numpy's. Results of a device
differ from those of the CPU by the order in which sums are taken.

No GPU was at hand when this was written. In tests torch's tensors on the CPU take the way that those of a GPU take.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from provlab import machine
from provlab.errors import InputError

#: numpy's array, or torch's tensor on a device
Values: TypeAlias = Any
#: takes an array of numpy's, or a tensor, to where it is computed with
There: TypeAlias = Callable[[Any], Values]

_SLAB = 2**24  # numbers that are taken to float64 at a time on a device
_ROWS = 4096  # rows of a table that are, in `crossed`
_PROBE = 512  # rows of a product that shows how a device rounds


def on(device: str) -> There:
    """Return what takes arrays to a device, in float32; on the CPU numpy's stay as they are.

    Parameters
    ----------
    device
        As torch names it.

    Raises
    ------
    ParameterError
        torch cannot use the device, or there is no room: now, or when an array is sent.
    InputError
        The device multiplies float32 matrices in TF32.
    """
    if at_home(device):
        return of
    _refuse_coarse(device)

    def there(values: Any) -> Values:
        import torch

        with machine.using_device(device):
            tensor = torch.from_numpy(np.asarray(_Writable(values))) if isinstance(values, np.ndarray) else values
            return tensor.detach().to(device).to(torch.float32)  # 16 bits a number on the way

    return there


class _Writable:
    """The same numbers as an array that may be written to: torch warns of others, though it only reads these."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array  # else its memory is freed
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = array.__array_interface__ | {"data": (address, False)}


def of(values: Any) -> Values:
    """Return a tensor as that with which functions compute: itself on a device, else numpy's array, in float32."""
    if isinstance(values, np.ndarray):
        return values
    import torch

    return values.detach().to("cpu", torch.float32).numpy() if at_home(str(values.device)) else values.detach().float()


def here(values: Values) -> NDArray[Any]:
    """Return an array in the machine's memory; one that is there already as it is."""
    result: NDArray[Any] = values if isinstance(values, np.ndarray) else values.cpu().numpy()
    return result


def beside(values: Values, numbers: Any) -> Values:
    """Take few numbers, in their own dtype, to where an array lies."""
    return array_api_compat.array_namespace(values).asarray(numbers, device=array_api_compat.device(values))


def squared(values: Values) -> Values:
    """Square each number, in float64."""
    if isinstance(values, np.ndarray):
        return np.square(values, dtype=np.float64)
    xp = array_api_compat.array_namespace(values)
    return xp.square(xp.astype(values, xp.float64))


def sum_of_squares(matrix: Values, axis: int | None = None) -> NDArray[np.float64]:
    """Sum of squares along an axis of a matrix, or over both, in float64; here.

    Parameters
    ----------
    matrix
        ``(n, m)``.
    axis
        0 gives ``(m,)``, 1 gives ``(n,)``.
    """
    if isinstance(matrix, np.ndarray):
        left = {None: "", 0: "j", 1: "i"}[axis]
        return np.asarray(np.einsum(f"ij,ij->{left}", matrix, matrix, dtype=np.float64))
    xp = array_api_compat.array_namespace(matrix)
    parts = [xp.sum(squared(matrix[rows]), axis=axis) for rows in _slabs(*matrix.shape)]
    return here(xp.concat(parts) if axis == 1 else sum(parts))


def _slabs(n: int, columns: int) -> Iterator[slice]:
    step = max(1, _SLAB // max(columns, 1))
    return (slice(first, first + step) for first in range(0, max(n, 1), step))


def crossed(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """X^T Y of two tables with one row a token, in float64 and here: a copy of a whole table would take gigabytes.

    Parameters
    ----------
    first, second
        ``(n, d_1)`` and ``(n, d_2)``; one array may be both.

    Returns
    -------
    array
        ``(d_1, d_2)``.
    """
    product = np.zeros((first.shape[1], second.shape[1]))
    for start in range(0, len(first), _ROWS):
        x = first[start : start + _ROWS].astype(np.float64)
        y = x if second is first else second[start : start + _ROWS].astype(np.float64)
        product += x.T @ y  # (d_1, rows) @ (rows, d_2)
    return product


def at_home(device: str) -> bool:
    """Whether numpy computes what is computed for a device: for the CPU, and for one that has no float64."""
    return device == "cpu" or not _has_float64(device)


@cache
def _has_float64(device: str) -> bool:
    import torch

    with machine.using_device(device):
        torch.zeros(1, device=device)
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (RuntimeError, TypeError):  # what torch says differs from device to device
        return False
    return True


def _refuse_coarse(device: str) -> None:
    """Raise InputError unless products there keep all 24 bits of a factor: times the unit matrix, nothing changes."""
    import torch

    with machine.using_device(device):
        # reciprocals use all bits
        rows = (1 / torch.arange(1, _PROBE**2 + 1, dtype=torch.float32, device=device)).reshape(_PROBE, _PROBE)
        same = torch.equal(rows @ torch.eye(_PROBE, device=device), rows)
    if not same:
        raise coarse(device)


def coarse(device: str) -> InputError:
    """Say that a device does not multiply in float32."""
    return InputError(
        f"the matrix product of {device} is off by more than float32 allows: it may compute in TF32; call "
        "torch.set_float32_matmul_precision('highest'), or take device cpu"
    )
