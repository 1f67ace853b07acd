"""Units spread over several or hidden among others: what it costs who does it, and whether strangers stay strangers.

``python benchmarks/spread_units.py cost`` attacks oak-chat of the zoo, and says at which loss on its own text phi_MATCH
and its unsigned form lose its base. ``sizes 300`` trains so many pairs of independent networks, plants copies and
decoys at random in either network of a pair, and counts how often each statistic rejects.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
STATISTICS = ("phi_u", "phi_h", "phi_match", "phi_match_unsigned", "phi_anchor", "phi_views")


def cost() -> None:
    """Print, for each attack, the units that are left, the loss it adds, and log10 p of both forms."""
    import spread_units as attacks

    from provlab import zoo
    from provlab.running.predictions import next_token_log_probs
    from provlab.statistics import get
    from provlab.statistics.model import Model
    from provlab.statistics.options import Options
    from provlab.statistics.text import encode
    from provlab.zoo.corpus import held_out_text

    statistics = [get(name) for name in ("phi_match", "phi_match_unsigned")]
    options, own = Options(text=held_out_text("prose")), Options(text=held_out_text("chat"))

    def shown(model: Model) -> list[Any]:
        features = statistics[0].prepare(model, options)
        return [features.block(block) for block in range(model.anatomy.n_blocks)]

    def loss(model: Model) -> float:
        tokens = encode(model.checkpoint, own)
        log_p = np.concatenate(list(next_token_log_probs(model.checkpoint, tokens))).reshape(*tokens.shape, -1)
        return -float(np.take_along_axis(log_p[:, :-1], tokens[:, 1:, None], axis=2).mean())

    tried = {
        **{
            f"split by {w}, gates {s} apart": attacks.up_split(w, s) for w in ("u", "3u") for s in (0.05, 0.1, 0.2, 0.3)
        },
        **{f"three decoys a unit, writing {w}": attacks.decoys(4, w) for w in (0.01, 0.05, 0.1, 0.2)},
    }
    base, before = shown(Model.open("zoo:oak")), loss(Model.open("zoo:oak-chat"))
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, change) in enumerate(tried.items()):
            model = Model.open(attacks.write(zoo.locate("oak-chat"), f"{folder}/{i}", change))
            with model.checkpoint.loaded_once():
                after, more = shown(model), loss(model) - before
            pairs = [*enumerate(zip(base, after, strict=True))]
            results = [[part.compare_block(*pair, b, options) for b, pair in pairs] for part in statistics]
            log10_p = [part.aggregate(results).log10_p for part, results in zip(statistics, results, strict=True)]
            print(
                f"{name}: {[len(views[0]) for views in after]} units, {more:+.4f} nats, log10 p", *log10_p, flush=True
            )


def spread(networks: Any, pair: int, block: int, rng: np.random.Generator) -> dict[str, Any]:
    """Features of one block after each unit was put there one to three times, and up to twelve decoys beside them.

    Half of the gates of both are turned round, and each fourth unit is split over four with opposite gates in pairs.
    """
    from provlab.reading.canonical import applied, merged
    from provlab.statistics.alive import living_rows
    from provlab.statistics.phi_anchor import BlockUnits

    gate, up, down, seen_gate, seen_up = (
        getattr(networks, name)[pair, block] for name in ("gate", "up", "down", "seen_gate", "seen_up")
    )
    times, decoys = rng.integers(1, 4, len(gate)), rng.integers(0, len(gate), (2, rng.integers(0, 12)))
    copies = np.repeat(np.arange(len(gate)), times)
    g, u = (np.concatenate([copies, more]) for more in decoys)
    share = np.concatenate([1 / times[copies], np.zeros(decoys.shape[1])])
    side = rng.choice([-1, 1], (len(g), 1))
    # of a(gx) (ux) = a(gx) (ux - wx) + a(-gx) (wx) + a(wx) (gx) - a(-wx) (gx), the terms beside the first's (ux)
    split, other = rng.integers(0, len(gate), (2, len(gate) // 4))
    ends = [(side * rows[g], others[u]) for rows, others in ((gate, up), (seen_gate, seen_up))]
    four = [(rows[split], others[other]) for rows, others in ((gate, up), (seen_gate, seen_up))]
    (gate, up), (seen_gate, seen_up) = (
        (np.concatenate([reads, x, -x, y, -y]), np.concatenate([gives, -y, y, x, x]))
        for (reads, gives), (x, y) in zip(ends, four, strict=True)
    )
    writes = np.concatenate([down[u] * share[:, None], *([sign * down[split] for sign in (1, 1, 1, -1)])])
    order = rng.permutation(len(writes))
    gate, up, seen_gate, seen_up, writes = (
        part[order].astype(np.float32) for part in (gate, up, seen_gate, seen_up, writes)
    )
    hidden = (seen_gate / (1 + np.exp(-seen_gate)) * seen_up).astype(np.float32)
    by_weights = merged(gate, up, writes)
    by_all = merged(gate, up, writes, np.linalg.norm(hidden, axis=1))

    def rows(units: NDArray[Any], **kinds: NDArray[Any]) -> tuple[Any, ...]:
        return living_rows(*(applied(units, part, role) for role, part in kinds.items()), name="units")

    tokens = np.zeros((0, 0), np.int64)
    views = (*rows(by_all, gate=seen_gate, up=seen_up), tokens)
    return {
        "phi_u": rows(by_weights, up=up)[0],
        "phi_h": rows(by_all, up=hidden)[0],
        "phi_match": views,
        "phi_match_unsigned": views,
        "phi_anchor": BlockUnits(views, applied(by_all, writes, "down")[views[0].places]),
        "phi_views": (*rows(by_weights, up=up, down=writes), tokens),
    }


def sizes(n_pairs: int) -> None:
    """Print how many of so many pairs of strangers each statistic rejects at three levels."""
    from provlab.statistics import get
    from provlab.statistics.options import Options
    from provlab_study.calibration.trained import N_BLOCKS, train_residual_pairs

    results: dict[str, list[float]] = {name: [] for name in STATISTICS}
    networks = train_residual_pairs(n_pairs, seed=11).networks()
    for pair in range(n_pairs):
        sides = [
            [spread(part, pair, block, np.random.default_rng([pair, block, side])) for block in range(N_BLOCKS)]
            for side, part in enumerate(networks)
        ]
        for name, log10_p in results.items():
            options, statistic = Options(seed=pair), get(name)
            both = enumerate(zip(*sides, strict=True))
            blocks = [statistic.compare_block(a[name], b[name], block, options) for block, (a, b) in both]
            log10_p.append(statistic.aggregate(blocks).log10_p)
    for name, log10_p in results.items():
        p = 10.0 ** np.array(log10_p)
        rejected = [f"{(p <= level).sum()} at {level}" for level in (0.05, 0.01, 0.001)]
        print(f"{name}: of {n_pairs} pairs {', '.join(rejected)}; mean p {p.mean():.3f}")


if __name__ == "__main__":
    cost() if sys.argv[1:] == ["cost"] else sizes(int(sys.argv[2]))
