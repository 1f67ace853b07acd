"""A class name that two modules define: each must have one meaning in all of `src`.

Run by ``make lint``. Names that begin with an underscore count without it.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from hidden import SRC, trees

#: names that stand twice -> why
ALLOWED = {
    # a zoo model's address holds the code of provlab.zoo.train, and the address of kept draws the name of their moves
    "Mixture": "both names are part of an address, so that a new one would train or draw everything again",
}


def defined(root: Path) -> dict[str, list[str]]:
    """Modules that define a class, by the class's name."""
    places: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees(root).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(f"{module}:{node.lineno}")
    return places


def faults(root: Path, allowed: Mapping[str, str] = ALLOWED) -> list[str]:
    """Names that are defined twice without a reason, and reasons for names that are not."""
    twice = {name: places for name, places in defined(root).items() if len(places) > 1}
    lines = [
        f"class {name} is defined twice, {' and '.join(places)}; give each meaning a name of its own"
        for name, places in twice.items()
        if name not in allowed
    ]
    return lines + [
        f"class {name} is not defined twice; take it out of ALLOWED" for name in allowed if name not in twice
    ]


def main() -> int:
    """Print the faults; 1 if there is one."""
    lines = faults(SRC)
    print(*lines, sep="\n", end="\n" if lines else "")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
