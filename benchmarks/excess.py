"""Whether a change is larger than another seed's, on 39 seeds of one recipe: sizes and power by references.

``python benchmarks/excess.py`` reads held-out prose with 39 zoo models that differ by their seeds (`null-*`), and
with one trained for a seventh of the steps. Each repeat draws A, B and references among the seeds, and asks
`provlab.modeldiff.excess.Among` by rank, as `provlab.diff` does, by its mean or its tail alone, and by Student's t.
`excess.csv` has what came out. ``--draws`` compares the draws of both models as one sample with each model's own:
effective draws a second of CPU time, and intervals.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from provlab import zoo
from provlab.errors import ProvlabError
from provlab.kept import ArrayCache
from provlab.modeldiff import excess, pipeline, reading
from provlab.modeldiff.comparison import BothDirections
from provlab.modeldiff.held_out import N_PIECES, HeldOut, pieces
from provlab.modeldiff.representative import Direction, effective, within
from provlab.modeldiff.tokens import opening

SEEDS, LENGTH, REPEATS = 39, 25, 1000
LEVELS, REFERENCES = (0.05, 0.01), (1, 2, 3, 4, 9, 19)
PAIRS = (("oak", "oak-chat"), ("hazel-small", "hazel-v2"), ("hazel-small", "hazel-medium"))


def distances() -> np.ndarray:
    """Distances on each piece of the text, for all pairs of the seeds and the model of fewer steps, last."""
    names = [f"zoo:null-{k:02d}" for k in range(1, SEEDS + 1)] + [f"zoo:null-{SEEDS + 1}@smoke"]
    models = list(pipeline.open_models(names, opening=opening, progress=0).values())
    text = pieces(models[0].encode(zoo.held_out_text("prose")), LENGTH, N_PIECES)
    apart = reading.read(models, text, ArrayCache(Path(tempfile.mkdtemp()))).distances
    return np.asarray((apart + apart.swapaxes(0, 1)) / 2)


def main() -> None:
    """Print how often one more seed, and the model of fewer steps, fails at each level."""
    each = distances()
    apart = each.mean(axis=2)
    among = apart[:SEEDS, :SEEDS][np.triu_indices(SEEDS, 1)]
    of_seed = np.sort(apart[:SEEDS, :SEEDS].sum(axis=1) / (SEEDS - 1))
    print(f"pairs of seeds: mean distance {among.mean():.4f}, sd {among.std(ddof=1):.4f}, largest {among.max():.4f}")
    print(f"mean distance of each seed from the others: {' '.join(f'{value:.3f}' for value in of_seed)}")
    rng = np.random.default_rng(0)
    for k in REFERENCES:
        least = 1 / (k + 1)  # of the rank
        fired: dict[str, list[bool]] = {}
        for _ in range(REPEATS):
            chosen = rng.permutation(SEEDS)[: k + 2]
            changed = np.array([chosen[0], SEEDS, *chosen[2:]])
            for what, rows in (("size", chosen), ("power", changed)):
                seeds = excess.among(each[np.ix_(rows, rows)])
                ranks = seeds.to_json()
                for by in ("rank_p", "rank_p_mean", "rank_p_tail"):
                    fired.setdefault(f"{what} by {by} at {least:.3f}", []).append(ranks[by] <= least)
                for level in LEVELS if k > 1 else ():
                    fired.setdefault(f"{what} by t at {level}", []).append(seeds.t_p(0.0) <= level)
        print(f"{k} references: " + ", ".join(f"{what} {np.mean(hits):.3f}" for what, hits in fired.items()))


def draws() -> None:
    """Print what a sample of both models gives beside each one's own draws."""
    for names in PAIRS:
        pair = pipeline.open_models([f"zoo:{name}" for name in names], opening=opening, progress=0).values()
        kept = ArrayCache(Path(tempfile.mkdtemp()))
        z = HeldOut({"text": zoo.held_out_text("prose")}, 300, kept, 0).range_of(*pair, LENGTH, (0.05, 0.5))
        settings = pipeline.Generation(2000, LENGTH)
        begun = time.process_time()
        compared = pipeline.model_diff(*pair, z, settings, kept)
        report("own draws", names, compared, time.process_time() - begun)
        begun = time.process_time()
        mixed = pipeline.mixed(*pair, settings, ArrayCache(Path(tempfile.mkdtemp())))
        spent = time.process_time() - begun
        sides = [
            Direction.from_draws(own.within(z), other.nll[within(own.nll, z)], side, z)
            for side, own, other in zip("AB", mixed, mixed[::-1], strict=True)
        ]
        report("one sample", names, BothDirections(*sides, z, joint=True), spent)


def report(way: str, names: tuple[str, str], compared: BothDirections, spent: float) -> None:
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
