"""The way of a tensor: the functions of provlab that it passes from the command line to its record.

``provlab compare A B --statistic phi_u`` is run on two tiny models with Python's own profiler watching, from the first
tensor that is read until the records are there. A function counts, once, if it hands the tensor on, or what was
computed from it: if it returns or yields a tensor, an array or a real number (or something of ours, or a container,
that holds one), or changes one that it was given, or calls a function that does. Whoever only looks, and raises or
says yes or no, does not count. A function inside another belongs to the other, and loops that numba compiled to who
calls them. A *hop* is a function that is called from another file: the tensor goes from hand to hand. The others are
parts of their file, listed below it without a number. ``python benchmarks/hops.py``
"""

import contextlib
import os
import sys
import tempfile
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from size import SRC, write_model

SOURCE = ("weights.py", "WeightFiles.array")  # reads a tensor out of its file
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
        return any(carries(one, depth - 1) for one in value.values())
    if isinstance(value, list | tuple | set):
        return any(carries(one, depth - 1) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        # what was not computed yet by a cached property is not there, and is not asked for
        return any(carries(value.__dict__.get(field.name), depth - 1) for field in fields(value))
    if type(value).__name__ == "Ledger":  # the only one of ours that collects without being a dataclass
        return carries(vars(value), depth)
    return False


def contents(value: Any, depth: int = DEPTH) -> Any:
    """What a value holds of tensors and numbers, to see whether it was changed."""
    if isinstance(value, np.ndarray) or type(value).__name__ == "Tensor":
        return np.asarray(value).tobytes()
    if isinstance(value, float) or depth == 0:
        return value if isinstance(value, float) else None
    if isinstance(value, dict | list | tuple | set):
        return [contents(one, depth - 1) for one in (value.values() if isinstance(value, dict) else value)]
    if is_dataclass(value) and not isinstance(value, type):
        return [contents(value.__dict__.get(field.name), depth - 1) for field in fields(value)]
    return [contents(one, depth - 1) for one in vars(value).values()] if type(value).__name__ == "Ledger" else None


class Watch:
    """A profile function: notes who hands a tensor on, in the order in which they are called."""

    def __init__(self, root: Path = SRC) -> None:
        self.root = root
        self.calls: list[tuple[tuple[str, str] | None, list[Any], Any]] = []  # open ones of ours: who, given, contents
        self.called: dict[tuple[str, str], bool] = {}  # whether from another file, at least once
        self.on_the_way: set[tuple[str, str]] = set()
        self.reading = False

    def name(self, code: CodeType) -> tuple[str, str] | None:
        """File below the package and function, or None for a function that is not ours."""
        path = Path(code.co_filename)
        if not path.is_relative_to(self.root):
            return None
        return str(path.relative_to(self.root)), code.co_qualname.partition(".<locals>")[0]

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Look at one call or return; a generator is called and returns with each value."""
        if event not in ("call", "return") or (name := self.name(frame.f_code)) is None:
            return
        code = frame.f_code
        if event == "call":
            if (Path(name[0]).name, name[1]) == SOURCE:
                self.reading = True
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            given = [frame.f_locals[one] for one in names if one in frame.f_locals]
            self.calls.append((name, given, contents(given)))
            caller = self.calls[-2][0] if len(self.calls) > 1 else None
            handed = "<locals>" not in code.co_qualname and (caller is None or caller[0] != name[0])
            self.called[name] = self.called.get(name, False) or handed
            return
        if not self.calls:  # begun before the watch
            return
        _, given, before = self.calls.pop()
        if self.reading and (carries(argument) or contents(given) != before):
            self.on_the_way |= {name, *(one for one, _, _ in self.calls if one)}
        if self.reading and (Path(name[0]).name, code.co_qualname) == END:
            sys.setprofile(None)


def hops() -> list[tuple[str, str, bool]]:
    """File and function of all who hand the tensor on, in their order, and whether it is a hop."""
    os.environ["OMP_NUM_THREADS"] = "1"
    from provlab import cli
    from provlab.inference.matching import match

    match(np.eye(3), np.eye(3))  # compiles the kernels, which is nothing that the tensor sees
    with tempfile.TemporaryDirectory() as folder:
        pair = [str(Path(folder) / str(seed)) for seed in (1, 2)]
        for seed, path in enumerate(pair):
            write_model(Path(path), seed)
        watch = Watch()
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            sys.setprofile(watch)
            try:
                failed = cli.main(["compare", *pair, "--statistic", "phi_u"])
            finally:
                sys.setprofile(None)
        if failed:
            sys.exit(failed)
    return [(*name, hop) for name, hop in watch.called.items() if name in watch.on_the_way]


def main() -> None:
    """Print the list."""
    found, number = hops(), 0
    for path, function, hop in found:
        number += hop
        print(f"{number if hop else '':>3}  {path:<36}{'' if hop else '  '}{function}")
    print(f"{number} hops; {len(found)} functions in {len({path for path, _, _ in found})} files")


if __name__ == "__main__":
    main()
