"""Power and size of phi_U on some units, chosen by each model's own weights, against the whole: a study of a setting.

Without a GPU a pair of 7B models costs the product of all rows with all rows. Spearman's null distribution is
exact for any rows that are chosen without a look at their places or at the other model, so some rows do: as

- ``first``: the first m of either model, as ``--units`` takes them today;
- ``both``: the m of either that write most, by ``|up row| |down column|``;
- ``one``: the m of the smaller model that write most, among all of the other. This costs m / h of the whole;
- ``lead``: the first m of the smaller model, among all of the other: as ``one``, without a look at what units write.

Copies are the zoo's own, pruned, healed and fine-tuned, and oak with noise and in four and two bits. Strangers are the
zoo's null models. ``python benchmarks/some_units.py`` prints log10 p of each copy, and how many strangers fall below
levels, by Fisher's method over blocks.

Measured on commit 517d152 (27 November 2026, two cores), log10 p by Fisher over blocks of 256 units:

| copy | all | first 64 | both 64 | one 64 | lead 64 |
|---|---:|---:|---:|---:|---:|
| oak and its fine-tuned copies (3), two of these | -2018 | -348 | -20 to -60 | -348 | -348 |
| spruce, spruce-half | -2473 | -260 | -38 | -261 | -260 |
| oak, pruned to 75% of its units | -1416 | -17 | -348 | -348 | -348 |
| oak, pruned to 50% of its units | -853 | -4 | -348 | -348 | -348 |
| oak, with noise of 0.5 or 1.0 | -2018 | -348 | -348 | -348 | -348 |
| oak, with noise of 2.0 | -305 | -225 | -284 | -89 | -27 |
| oak, in 4 or 2 bits | -2018 | -348 | -348 | -348 | -348 |

Pairs of strangers (45) at or below 0.05, 0.01 and 0.001: all 3, 0, 0; first 2, 0, 0; both 3, 2, 0; one 2, 0, 0;
lead 2, 1, 1.
"""

import argparse
import sys
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab import zoo
from provlab.inference import pvalues
from provlab.inference.matching import match
from provlab.models import anatomy as anatomy_module
from provlab.models.checkpoint import Checkpoint

COPIES = (
    ("oak", "oak-chat"), ("oak", "oak-code"), ("oak", "oak-lora-merge"), ("oak-chat", "oak-math"),
    ("spruce", "spruce-half"), ("spruce", "spruce-slim"),
)  # fmt: skip
LEVELS = (0.05, 0.01, 0.001)


class Block(NamedTuple):
    """The up rows of one block, ``(h, d)``, and what each unit writes, ``(h,)``."""

    up: NDArray[np.float32]
    written: NDArray[np.float32]


def blocks(name: str) -> list[Block]:
    """Read a model of the zoo."""
    checkpoint = Checkpoint.open(f"zoo:{name}")
    anatomy = anatomy_module.of(checkpoint)
    rows = []
    for block in range(anatomy.n_blocks):
        up, down = (anatomy.read(checkpoint, role, block) for role in ("up", "down"))
        down = down if len(down) == len(up) else down.T  # (h, d)
        rows.append(Block(up, np.linalg.norm(up, axis=1) * np.linalg.norm(down, axis=1)))
    return rows


def rounded(model: list[Block], bits: int) -> list[Block]:
    """Round rows to so many bits, each row with a scale of its own."""
    most = 2 ** (bits - 1) - 0.5
    steps = [np.abs(block.up).max(axis=1, keepdims=True) / most for block in model]
    return [b._replace(up=(np.floor(b.up / s) + 0.5) * s) for b, s in zip(model, steps, strict=True)]


def noised(model: list[Block], size: float) -> list[Block]:
    """Add normal noise, in standard deviations of the matrix."""
    rng = np.random.default_rng(0)
    return [b._replace(up=b.up + size * b.up.std() * rng.standard_normal(b.up.shape, np.float32)) for b in model]


def pruned(model: list[Block], share: float) -> list[Block]:
    """Keep the units that write most, in the order of the file."""
    kept = [np.sort(np.argsort(-block.written)[: round(share * len(block.up))]) for block in model]
    return [Block(b.up[k], b.written[k]) for b, k in zip(model, kept, strict=True)]


def most(block: Block, m: int) -> NDArray[np.float32]:
    """Rows of the m units that write most, in the order of the file."""
    return block.up[np.sort(np.argsort(-block.written, kind="stable")[:m])]


def log10_p(a: list[Block], b: list[Block], rule: str, m: int) -> float:
    """Fisher over blocks of equal index."""
    p_values = []
    for first, second in zip(a, b, strict=False):
        small, large = sorted((first, second), key=lambda side: len(side.up))
        rows = {
            "all": (small.up, large.up),
            "first": (small.up[:m], large.up[:m]),
            "both": (most(small, m), most(large, m)),
            "one": (most(small, m), large.up),
            "lead": (small.up[:m], large.up),
        }[rule]
        partners = match(*rows).indices
        p_values.append(pvalues.log10_p_spearman(pvalues.spearman(partners).distance, len(partners)))
    return pvalues.fisher(p_values)


def pairs() -> Iterator[tuple[str, list[Block], list[Block]]]:
    """Yield the copies."""
    for a, b in COPIES:
        yield f"{a}, {b}", blocks(a), blocks(b)
    oak = blocks("oak")
    for share in (0.75, 0.5):
        yield f"oak, pruned to {share:.0%} of its units", oak, pruned(oak, share)
    for size in (0.5, 1.0, 2.0):
        yield f"oak, with noise of {size}", oak, noised(oak, size)
    for bits in (4, 2):
        yield f"oak, in {bits} bits", oak, rounded(oak, bits)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, nargs="*", default=[64])
    parser.add_argument("--strangers", type=int, default=10, help="null models, in all their pairs")
    arguments = parser.parse_args()
    zoo.register()
    settings = [("all", 0), *((rule, m) for m in arguments.units for rule in ("first", "both", "one", "lead"))]
    titles = [rule if rule == "all" else f"{rule} {m}" for rule, m in settings]
    print("| copy |", " | ".join(titles), "|\n|---|" + "---:|" * len(titles))
    for label, a, b in pairs():
        if a[0].up.shape[1] == b[0].up.shape[1]:
            cells = " | ".join(f"{log10_p(a, b, *setting):.0f}" for setting in settings)
            print(f"| {label} | {cells} |", flush=True)
    nulls = [blocks(f"null-{i + 1:02}") for i in range(arguments.strangers)]
    sizes = np.array([[log10_p(a, b, *setting) for setting in settings] for a, b in combinations(nulls, 2)])
    print(f"\n{len(sizes)} pairs of strangers at or below {LEVELS}:")
    for title, values in zip(titles, sizes.T, strict=True):
        print(title, [int((values <= np.log10(level)).sum()) for level in LEVELS])


if __name__ == "__main__":
    sys.exit(main())
