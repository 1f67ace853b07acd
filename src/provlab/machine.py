"""What this machine offers."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from provlab.errors import ParameterError, one_line

#: environment variables that say how many threads a library uses, read when it is loaded
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def described() -> str:
    """Processor, its widest vectors and the cores: what decides the order of sums, and with it the last digits."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = fields.get("flags", "").split()
    vectors = [word for word, flag in (("AVX-512", "avx512f"), ("AVX2", "avx2")) if flag in flags][:1]
    numbers = [f"{word} {fields[key]}" for word, key in (("family", "cpu family"), ("model", "model")) if key in fields]
    inside = ", ".join(numbers + vectors)
    name = fields.get("model name") or platform.processor() or platform.machine()
    return f"{name}{f' ({inside})' if inside else ''}, {cores()} {'core' if cores() == 1 else 'cores'}"


def threads() -> int:
    """Threads that this process should use: ``NUMBA_NUM_THREADS``, else ``OMP_NUM_THREADS``, else one a core."""
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        if (value := os.environ.get(name, "")).isdigit():
            return max(1, int(value))
    return cores()


@contextmanager
def using_device(device: str) -> Iterator[None]:
    """Within, what torch has against a device becomes one line.

    Raises
    ------
    ParameterError
        If torch knows no such device, has none, or has no room left there.
    """
    try:
        yield
    except (RuntimeError, AssertionError, ImportError) as error:
        why = one_line(error)
        raise ParameterError(f"device {device!r} cannot be used on this machine ({why}); use cpu") from error
