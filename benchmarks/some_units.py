"""Power and size of the tests on some units and little text (``--quick``) against the whole: a study of a setting.

Without a GPU a pair of 7B models costs products of all rows with all rows. With ``--units m`` those of m units of the
model that has fewer are multiplied by those of all of the other, which costs m / h of it: phi_U takes the first m, and
phi_MATCH m that are drawn. ``--sequences 4`` runs models on 256 positions where 2,048 are usual.

Copies are the zoo's own, pruned, healed and fine-tuned; and copies of oak that were cut to the units that write most,
got noise or few bits, or were disguised. Framings are elm with copies of oak's units; hidden ones are spread copies.
``python benchmarks/some_units.py`` prints log10 p of each, ``-`` where there is none, and how many pairs of strangers
fall below levels; ``--units`` and ``--sequences`` say how much is compared.

Measured on commit c4a5412 (27 November 2026, two cores), log10 p by Fisher over blocks: all units and 2,048 positions,
and 64 of 256 units and 256 positions (phi_U reads no text):

| pair | phi_u, all | 64 | phi_match, all | 64 | unsigned, all | 64 |
|---|---:|---:|---:|---:|---:|---:|
| oak and oak-chat, fine-tuned | -2018 | -348 | -1814 | -297 | -1814 | -297 |
| oak and oak-code, trained on | -2018 | -348 | -1807 | -205 | -1807 | -207 |
| oak and oak-lora-merge | -2018 | -348 | -1814 | -224 | -1814 | -162 |
| oak-chat and oak-math | -2018 | -348 | -1068 | -94 | -1023 | -85 |
| spruce and spruce-half | -2473 | -260 | -1683 | -118 | -1667 | -93 |
| spruce and spruce-slim, narrower | - | - | -302 | -32 | -176 | -22 |
| oak, pruned to 75% of its units | -1416 | -348 | -1265 | -300 | -1265 | -300 |
| oak, pruned to 50% of its units | -853 | -348 | -745 | -297 | -745 | -297 |
| oak, noise of 0.5 | -2018 | -348 | -1814 | -212 | -1814 | -213 |
| oak, noise of 1 | -2018 | -348 | -603 | -20 | -559 | -26 |
| oak, noise of 2 | -330 | -25 | -2.1 | -0.9 | -0.3 | -0.1 |
| oak in 4 bits | -2018 | -348 | -1814 | -299 | -1814 | -299 |
| oak in 2 bits | -2018 | -348 | -1506 | -44 | -1103 | -52 |
| oak-chat, T1+T2+T3+redraw=0.3 | -1.0 | -0.1 | -1814 | -302 | -1814 | -302 |
| oak-chat, T2+loud | -0.0 | -0.2 | -1814 | -306 | -1814 | -306 |
| oak-chat, T2+fan=0.2 | -0.2 | -0.1 | -69 | -10 | -69 | -9.2 |
| oak-chat, the 64 that write most spread over two | -0.9 | -0.2 | -263 | -63 | -197 | -51 |
| oak-chat, the 128 that write most | -1.1 | -0.1 | -94 | -6.6 | -74 | -5.4 |
| elm with oak's units, faint=0.03 or posing=0.03 | -0.3 | -0.5 | - | - | - | - |
| elm with oak's units, posing=0.07 | -0.3 | -0.5 | -451 | - | -451 | - |
| elm with oak's units, posing=0.2 | -0.3 | -0.5 | -1803 | -182 | -1803 | -95 |

Pairs of strangers, 276 of 24, at or below 0.05, 0.01 and 0.001 (13.8, 2.8 and 0.3 are meant), of 192 units:

| | all | 64 | 128 | 64, 256 positions | 128, 256 positions |
|---|---:|---:|---:|---:|---:|
| phi_U | 15, 1, 0 | 14, 4, 1 | 13, 3, 0 | | |
| phi_MATCH | 10, 4, 0 | 8, 1, 0 | 11, 2, 1 | 7, 1, 0 | 6, 3, 0 |
| unsigned | 9, 6, 2 | 9, 2, 0 | 10, 3, 0 | 13, 0, 0 | 12, 2, 1 |

Other rules, by phi_U alone: the first 64 of either model lost copies that were pruned (-17 at 75%, -4 at 50%,
where all units gave -1416 and -853), and the 64 of either that write most lost tuned ones (-20 to -60).
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from provlab import zoo
from provlab.errors import NotComparableError
from provlab.models.checkpoint import Checkpoint
from provlab.models.disguise import disguise
from provlab.statistics import get
from provlab.statistics.base import Features, Model, Options

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
import spread_units  # the tests' own

STATISTICS = ("phi_u", "phi_match", "phi_match_unsigned")
COPIES = (
    ("oak", "oak-chat"), ("oak", "oak-code"), ("oak", "oak-lora-merge"), ("oak-chat", "oak-math"),
    ("spruce", "spruce-half"), ("spruce", "spruce-slim"),
)  # fmt: skip
#: what becomes of oak, or of oak-chat, and is compared with oak
DISGUISES = (
    "noise=0.5", "noise=1", "noise=2", "bits=4", "bits=2", "T1+T2+T3+redraw=0.3", "T2+fan=0.2", "T2+loud",
)  # fmt: skip
FRAMINGS = ("faint=0.03", "posing=0.03", "posing=0.07", "posing=0.2")  # of elm, by oak
LEVELS = (0.05, 0.01, 0.001)


def pruned(share: float) -> spread_units.Change:
    """Keep the units that write most, in the order of the file."""

    def change(gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, _: torch.Generator) -> spread_units.Mlp:
        written = up.norm(dim=1) * gate.norm(dim=1) * down.norm(dim=0)
        kept = written.argsort(descending=True)[: round(share * len(up))].sort().values
        return gate[kept], up[kept], down[:, kept]

    return change


def spread(n: int) -> spread_units.Change:
    """Spread the n units that write most over two each, whose up rows differ by far."""

    def change(gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, rng: torch.Generator) -> spread_units.Mlp:
        order = (up.norm(dim=1) * gate.norm(dim=1) * down.norm(dim=0)).argsort(descending=True)
        some, rest = order[:n], order[n:]
        far = 3 * torch.randn(n, up.shape[1], generator=rng) * up.std()
        tilt = 0.3 * torch.randn(n, up.shape[1], generator=rng) * gate.std()
        parts = [(gate[some] + side * tilt, up[some] + side * far, down[:, some] / 2) for side in (1, -1)]
        parts.append((gate[rest], up[rest], down[:, rest]))
        gates, ups, downs = zip(*parts, strict=True)
        return torch.cat(gates), torch.cat(ups), torch.cat(downs, 1)

    return change


class Kept(NamedTuple):
    """A model, and its features by positions and statistic."""

    model: Model
    features: dict[int, dict[str, Features]]


def features(source: str, settings: list[Options]) -> Kept:
    """Run a model once for each number of positions."""
    model, kept = Model.open(source), dict[int, dict[str, Features]]()
    for options in settings:
        if options.n_sequences not in kept:
            matched = get("phi_match").prepare(model, options)
            kept[options.n_sequences] = {"phi_u": get("phi_u").prepare(model, options)} | dict.fromkeys(
                STATISTICS[1:], matched
            )
    return Kept(model, kept)


def log10_p(a: Kept, b: Kept, name: str, options: Options) -> float | None:
    """One statistic on a pair, over blocks of equal index; None where it gives no p-value, or refuses the pair."""
    statistic, sides = get(name), [side.features[options.n_sequences][name] for side in (a, b)]
    try:
        statistic.require(a.model, b.model)
    except NotComparableError:
        return None
    places = range(min(side.model.anatomy.n_blocks for side in (a, b)))
    read = [[side.block(place) for side in sides] for place in places]
    blocks = [statistic.compare_block(*rows, place, options) for place, rows in zip(places, read, strict=True)]
    return statistic.outcome(blocks).log10_p


def written(value: float | None) -> str:
    """As it stands in the table; ``-`` where there is no p-value."""
    return "-" if value is None else f"{value:.1f}" if value > -10 else f"{value:.0f}"


def pairs(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the copies, the framings and the hidden copies."""
    for a, b in COPIES:
        yield f"{a}, {b}", f"zoo:{a}", f"zoo:{b}"
    located = {name: str(zoo.locate(name)) for name in ("oak", "oak-chat", "elm")}
    for share in (0.75, 0.5):
        cut = spread_units.write(located["oak"], folder / f"cut-{share}", pruned(share))
        yield f"oak, pruned to {share:.0%} of its units", "zoo:oak", str(cut)
    opened = {name: Checkpoint.open(f"zoo:{name}") for name in ("oak", "oak-chat", "elm")}
    for with_ in DISGUISES:
        source = "oak-chat" if with_.startswith("T") else "oak"
        made = disguise(opened[source], folder / with_, seed=0, kinds=with_.split("+"))
        yield f"{source}, {with_}", "zoo:oak", str(made.folder)
    for n in (64, 128):
        hidden = spread_units.write(located["oak-chat"], folder / f"spread-{n}", spread(n))
        yield f"oak-chat, the {n} units that write most spread over two each", "zoo:oak", str(hidden)
    for with_ in FRAMINGS:
        made = disguise(opened["elm"], folder / f"elm-{with_}", seed=0, kinds=[with_], others=[opened["oak"]])
        yield f"elm with copies of oak's units, {with_}", "zoo:oak", str(made.folder)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, nargs="*", default=[64])
    parser.add_argument("--sequences", type=int, nargs="*", default=[4])
    parser.add_argument("--strangers", type=int, default=24, help="null models, in all their pairs")
    arguments = parser.parse_args()
    zoo.register() if hasattr(zoo, "register") else None
    whole = Options(text=zoo.held_out_text("prose"))
    some = [replace(whole, units=m, n_sequences=n) for m in arguments.units for n in (32, *arguments.sequences)]
    settings = [whole, *some]
    titles = [
        f"{name}, {'all' if o.units is None else o.units}" + f", {64 * o.n_sequences} tokens" * (o is not whole)
        for name in STATISTICS
        for o in settings
        if name != "phi_u" or o.n_sequences == whole.n_sequences
    ]
    cells = [(n, o) for n in STATISTICS for o in settings if n != "phi_u" or o.n_sequences == whole.n_sequences]
    print("| copy |", " | ".join(titles), "|\n|---|" + "---:|" * len(titles))
    known: dict[str, Kept] = {}
    with tempfile.TemporaryDirectory() as folder:
        for label, a, b in pairs(Path(folder)):
            for source in (a, b):
                if source not in known:
                    known[source] = features(source, settings)
            row = [written(log10_p(known[a], known[b], *cell)) for cell in cells]
            print(f"| {label} |", " | ".join(row), "|", flush=True)
    nulls = [features(f"zoo:null-{i + 1:02}", settings) for i in range(arguments.strangers)]
    log10_ps = [[log10_p(a, b, *cell) for cell in cells] for a, b in combinations(nulls, 2)]
    sizes = np.array(log10_ps, dtype=float)  # NaN where there is no p-value
    print(f"\n{len(sizes)} pairs of strangers at or below {LEVELS}:")
    for title, values in zip(titles, sizes.T, strict=True):
        print(title, [int((values <= np.log10(level)).sum()) for level in LEVELS], int(np.isnan(values).sum()))


if __name__ == "__main__":
    sys.exit(main())
