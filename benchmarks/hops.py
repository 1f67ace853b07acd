"""The way of a tensor: the functions of provlab that it passes from the command line to its record.

``provlab compare A B --statistic phi_u`` is run on two tiny models with Python's own profiler watching. A function
counts, once, if it stands on the stack when a tensor is read, or if it is afterwards given the tensor, or what was
computed from it, or returns that: tensors, arrays, real numbers, and anything of ours or any container that holds one.
A function inside another belongs to the other; loops compiled by numba belong to who calls them. What happens before a
model is opened and after the records are complete is not on the way. ``python benchmarks/hops.py``
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from size import SRC, write_model

SOURCE = ("weights.py", "WeightFiles.tensor")  # reads a tensor out of its file
END = ("pairs.py", "run_pairs")  # returns the records
DEPTH = 4  # of containers and objects that are looked into


def carries(value: Any, depth: int = DEPTH) -> bool:
    """Whether a value is, or holds, a tensor or numbers computed from one; whole numbers are sizes and seeds."""
    if isinstance(value, np.ndarray) or type(value).__name__ == "Tensor":
        return bool(len(value.shape))
    if isinstance(value, float):
        return True
    if depth == 0:
        return False
    if isinstance(value, dict):
        return any(carries(one, depth - 1) for one in list(value.values()))
    if isinstance(value, list | tuple | set):
        return any(carries(one, depth - 1) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        # what was not computed yet by a cached property is not there, and is not asked for
        return any(carries(value.__dict__.get(field.name), depth - 1) for field in fields(value))
    if type(value).__name__ == "Ledger":  # the only one of ours that collects without being a dataclass
        return carries(vars(value), depth)
    return False


class Watch:
    """A profile function: notes who is on the way, in the order in which the tensor meets them."""

    def __init__(self) -> None:
        self.met: dict[tuple[str, str], None] = {}
        self.reading = False

    def name(self, code: CodeType) -> tuple[str, str] | None:
        """File below the package and function, or None for a function that is not ours."""
        path = Path(code.co_filename)
        if not path.is_relative_to(SRC):
            return None
        return str(path.relative_to(SRC)), code.co_qualname.partition(".<locals>")[0]

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Look at one call or return."""
        if event not in ("call", "return") or (name := self.name(frame.f_code)) is None:
            return
        if event == "call" and (Path(name[0]).name, name[1]) == SOURCE and not self.reading:
            self.reading = True
            stack = []
            caller: FrameType | None = frame
            while caller is not None:
                stack.append(self.name(caller.f_code))
                caller = caller.f_back
            self.met |= dict.fromkeys(one for one in reversed(stack) if one)
        if not self.reading or name in self.met:
            return
        if carries(argument) if event == "return" else any(carries(v) for v in list(frame.f_locals.values())):
            self.met[name] = None


@contextlib.contextmanager
def watching() -> Iterator[Watch]:
    """Watch all calls within, of this thread."""
    watch = Watch()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        watch(frame, event, argument)
        name = watch.name(frame.f_code)
        if event == "return" and watch.reading and name and (Path(name[0]).name, name[1]) == END:
            sys.setprofile(None)

    sys.setprofile(profile)
    try:
        yield watch
    finally:
        sys.setprofile(None)


def hops() -> list[tuple[str, str]]:
    """File and function of every hop, in their order."""
    os.environ["OMP_NUM_THREADS"] = "1"
    from provlab import cli
    from provlab.inference.matching import match

    match(np.eye(3), np.eye(3))  # compiles the kernels, which is nothing that the tensor sees
    with tempfile.TemporaryDirectory() as folder:
        pair = [str(Path(folder) / str(seed)) for seed in (1, 2)]
        for seed, path in enumerate(pair):
            write_model(Path(path), seed)
        with watching() as watch, open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            cli.main(["compare", *pair, "--statistic", "phi_u"])
    return list(watch.met)


def main() -> None:
    """Print the list."""
    found = hops()
    for number, (path, function) in enumerate(found, 1):
        print(f"{number:>3}  {path:<36}{function}")
    print(f"{len(found)} functions in {len({path for path, _ in found})} files")


if __name__ == "__main__":
    main()
