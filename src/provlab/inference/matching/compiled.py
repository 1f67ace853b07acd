"""How loops are compiled: by numba, on first use, kept in a cache, and not at all where that is impossible.

Importing a module of kernels compiles nothing. The first call of a kernel does, for seconds, and leaves the machine
code in numba's cache: beside the source, else in the user's cache folder, or where ``NUMBA_CACHE_DIR`` says. Where no
folder can be written, each process compiles for itself.

numba takes machine code from its cache as long as the file of the kernel that is called stays as it was, and does not
look into other files. So a kernel calls kernels of its own file alone, and a few short loops stand in two files.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from provlab import machine

# what kernels take: for readers and the type checker, as numba looks at the arrays themselves
Reals = NDArray[np.float32] | NDArray[np.float64]
Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
Longs = NDArray[np.int64]

ENTRIES = 2**21  # of a matrix for each thread beyond the first; with fewer it does not pay
Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(**options: Any) -> Callable[[Function], Function]:
    """Decorate a function as a kernel: compiled when first called, cached, and free of Python's global lock."""

    def decorate(function: Function) -> Function:
        try:
            return numba.njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:  # no folder for the cache can be written
            return numba.njit(nogil=True, **options)(function)

    return decorate


def over_rows(work: Callable[[int, int], Any], n_rows: int, cost: int) -> list[Any]:
    """Run ``work(start, stop)`` over all rows, in threads if there is much to do; returns the results in order.

    Kernels let go of Python's lock, so that plain threads serve, in any program that uses threads of its own.

    Parameters
    ----------
    work : callable
        Takes a range of rows.
    n_rows : int
        Their number.
    cost : int
        Entries that are read for all rows.
    """
    n_threads = min(n_rows, 1 + cost // ENTRIES)
    if n_threads == 1 or (n_threads := min(n_threads, machine.threads())) == 1:
        return [work(0, n_rows)]
    bounds = [n_rows * part // n_threads for part in range(n_threads + 1)]
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(work, bounds[:-1], bounds[1:]))


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written. Kernels are compiled apart for arrays that can be: so for one kind only."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view
