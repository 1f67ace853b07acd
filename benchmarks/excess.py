"""The excess over a second training on twenty seeds of one recipe: sizes, coverage, and how often a limit is passed.

``python benchmarks/excess.py`` reads held-out prose with 20 zoo models that differ by their seeds (`null-*`), and
with one trained for a seventh of the steps. The mean over the whole text is the truth; each repeat reads 500 pieces of
it, as `provlab.diff` does. ``--draws`` compares the draws of both models as one sample with each model's own: effective
draws a second of CPU time, and intervals.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from scipy import special

from provlab import zoo
from provlab.errors import ProvlabError
from provlab.kept import Kept
from provlab.modeldiff import excess, pipeline
from provlab.modeldiff.comparison import Comparison
from provlab.modeldiff.held_out import N_PIECES, HeldOut
from provlab.modeldiff.representative import Direction, effective, within
from provlab.modeldiff.tokens import opening

SEEDS, LENGTH, REPEATS, PIECES = 20, 25, 500, 1600
LEVELS, LIMITS = (0.05, 0.01, 0.001), (0.0, 0.005, 0.01, 0.02)
PAIRS = (("oak", "oak-chat"), ("hazel-small", "hazel-v2"), ("hazel-small", "hazel-medium"))


def distances() -> tuple[dict[tuple[int, int], np.ndarray], list[str]]:
    """Mean of both divergences on each piece of the text, for pairs of models by number."""
    names = [f"zoo:null-{k:02d}" for k in range(1, SEEDS + 1)] + [f"zoo:null-{SEEDS + 1}@smoke"]
    models = list(pipeline.open_models(names, opening=opening, progress=False).values())
    ids = models[0].encode(zoo.held_out_text("prose"))
    pieces = ids[np.arange(0, len(ids) - LENGTH, LENGTH)[:, None] + np.arange(LENGTH)]
    pieces = pieces[(pieces >= 0).all(axis=1)][:PIECES]
    laws = []
    for model in models:
        tokens = model.nll.checked(pieces, shortest=2)
        laws.append(torch.cat([log_probs.half() for _, log_probs in model.nll.laws(tokens)]))

    def both(i: int, j: int) -> np.ndarray:
        parts = []
        for p, q in zip(laws[i].split(200), laws[j].split(200), strict=True):
            p, q = p.float(), q.float()
            parts.append((((p.exp() - q.exp()) * (p - q)).sum(dim=-1).mean(dim=1) / 2).double())
        return torch.cat(parts).numpy()

    pairs = [(a, b) for a in (0, 1) for b in range(a + 1, len(names))]
    return {pair: both(*pair) for pair in pairs}, names


def main() -> None:
    """Print the tables."""
    apart, names = distances()
    for a in (0, 1):
        means = np.array([apart[a, b].mean() for b in range(a + 1, SEEDS)])
        print(f"{names[a]} to other seeds: mean {means.mean():.4f}, sd {means.std(ddof=1):.4f}, max {means.max():.4f}")
    for b in range(SEEDS, len(names)):
        print(f"{names[0]} to {names[b]}: {apart[0, b].mean():.4f}")
    rng = np.random.default_rng(0)
    size, covered, plain, passed, power = (
        dict.fromkeys(LEVELS, 0),
        0,
        0,
        dict.fromkeys(LIMITS, 0),
        dict.fromkeys(LIMITS, 0),
    )
    for repeat in range(2 * REPEATS):
        a = repeat % 2
        b, c = rng.choice(np.arange(2, SEEDS), 2, replace=False)
        each = apart[a, b] - apart[a, c]
        read = each[np.sort(rng.integers(len(each), size=N_PIECES))]
        mean, low, high = excess.mean_of(read)
        error = (high - low) / 2 / special.stdtrit(excess.N_GROUPS - 1, 0.975)
        p = special.stdtr(excess.N_GROUPS - 1, -(mean - each.mean()) / error)
        size = {level: count + (p <= level) for level, count in size.items()}
        covered += low <= each.mean() <= high
        plain += abs(mean - each.mean()) <= 1.96 * read.std(ddof=1) / N_PIECES**0.5
        passed = {limit: count + (low > limit) for limit, count in passed.items()}
        changed = apart[a, SEEDS] - apart[a, c]
        low = excess.mean_of(changed[np.sort(rng.integers(len(changed), size=N_PIECES))])[1]
        power = {limit: count + (low > limit) for limit, count in power.items()}
    n = 2 * REPEATS
    print(f"n = {n}; size at its own truth:", {level: count / n for level, count in size.items()})
    print(f"coverage {covered / n:.3f}; with pieces taken as independent {plain / n:.3f}")
    print("one more seed passes the limit:", {limit: count / n for limit, count in passed.items()})
    print("a seventh of the steps passes it:", {limit: count / n for limit, count in power.items()})


def draws() -> None:
    """Print what a sample of both models gives beside each one's own draws."""
    for names in PAIRS:
        pair = pipeline.open_models([f"zoo:{name}" for name in names], opening=opening, progress=False).values()
        kept = Kept(Path(tempfile.mkdtemp()))
        z = HeldOut({"text": zoo.held_out_text("prose")}, 300, kept, 0).range_of(*pair, LENGTH, (0.05, 0.5))
        settings = pipeline.Generation(2000, LENGTH)
        begun = time.process_time()
        compared = pipeline.model_diff(*pair, z, settings, kept)
        report("own draws", names, compared, time.process_time() - begun)
        begun = time.process_time()
        mixed = pipeline.mixed(*pair, settings, Kept(Path(tempfile.mkdtemp())))
        spent = time.process_time() - begun
        sides = [
            Direction.from_draws(own.within(z), other.nll[within(own.nll, z)], side, z)
            for side, own, other in zip("AB", mixed, mixed[::-1], strict=True)
        ]
        report("one sample", names, Comparison(*sides, z, joint=True), spent)


def report(way: str, names: tuple[str, str], compared: Comparison, spent: float) -> None:
    """Print effective draws a second and the widths of the ratio's last term."""
    sides = compared.a, compared.b
    worth = [f"{side.effective / spent:.1f}" for side in sides]
    common = [f"{effective(side.weight[side.common]) / spent:.2f}" if side.common.any() else "0" for side in sides]
    widths = []
    for by in ("R3", "count"):
        try:
            ratio = compared.ratio(by)
            widths.append(f"{ratio.value[3]:.2f} ({ratio.low[3]:.2f} to {ratio.high[3]:.2f})")
        except ProvlabError:
            widths.append("none")
    print(f"{' '.join(names)}, {way}: {spent:.1f} CPU s; draws a second {worth}, in R3 {common}; PD_BA {widths}")


if __name__ == "__main__":
    draws() if "--draws" in sys.argv else main()
