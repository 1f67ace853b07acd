"""Why independent models have units in common: which units these are, and what training and width do."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from provlab import zoo
from provlab.chapters.robust_null import common_units
from provlab.chapters.robust_null.common_units import Matchings
from provlab.chapters.robust_null.measure import Floats, Pair
from provlab.chapters.shared import calibration
from provlab.engine.lineage import short_name
from provlab.inference.matching import tie_seed, unit_rows
from provlab.statistics import get
from provlab.statistics.base import Model, Options
from provlab.statistics.phi_match import GateAndUp

# Which units these are --------------------------------------------------------------------------------------------


def alignments(
    features: Mapping[str, GateAndUp], matchings: Matchings
) -> tuple[pd.DataFrame, dict[tuple[str, int, int], int]]:
    """How aligned gate and up are in units in common and in all others, and which units are in common most often.

    Parameters
    ----------
    features
        Activations of some models, by source.
    matchings
        Of all pairs of them, in the order of `features`, and possibly of others.

    Returns
    -------
    tuple
        One row a block; and (model, block, unit) -> the number of other models with which it is in common.
    """
    rows, popular = [], dict[tuple[str, int, int], int]()
    for block in range(len(next(iter(features.values())).gate)):
        aligned = {source: common_units.alignment(f.gate[block], f.up[block]) for source, f in features.items()}
        inside, outside = [], []
        for a, b in combinations(features, 2):
            by_gate, by_up = matchings[a, b][block]
            agree = by_gate == by_up
            inside += aligned[a][agree].tolist()
            outside += aligned[a][~agree].tolist()
            for unit in np.flatnonzero(agree):
                for place in ((a, block, int(unit)), (b, block, int(by_gate[unit]))):
                    popular[place] = popular.get(place, 0) + 1
        rows.append(
            {"block": block, "alignment of units in common": np.median(inside), "of all others": np.median(outside)}
        )
    return pd.DataFrame(rows), popular


def most_common(
    features: Mapping[str, GateAndUp],
    popular: Mapping[tuple[str, int, int], int],
    tokens: NDArray[np.int64],
    tokenizer: PreTrainedTokenizerBase,
) -> pd.DataFrame:
    """The eight units in common with the most models, with the tokens to which they respond most."""
    names = np.unique(tokens)

    def strongest(activation: Floats) -> str:
        mean = np.array([np.abs(activation[tokens == name]).mean() for name in names])
        return "  ".join(repr(tokenizer.decode([int(names[i])])) for i in np.argsort(-mean)[:3])

    rows = []
    for (source, block, unit), times in sorted(popular.items(), key=lambda item: -item[1])[:8]:
        gate, up = features[source].gate[block], features[source].up[block]
        rows.append(
            {
                "model": source.partition(":")[2],
                "block": block,
                "unit": unit,
                f"in common with, of {len(features) - 1}": times,
                "gate responds most to": strongest(gate[unit]),
                "up responds most to": strongest(up[unit]),
                "alignment": common_units.alignment(gate, up)[unit],
            }
        )
    return pd.DataFrame(rows)


#: for each block, the mean number of units in common with the ends of its 95% interval
ByBlock = list[tuple[float, float, float]]


def ablations(features: Mapping[str, GateAndUp], *, seed: int) -> dict[str, ByBlock]:
    """Units in common of all pairs under each of `common_units.ABLATIONS`, which never knows the partner."""
    found: dict[str, ByBlock] = {}
    for name, ablate in tqdm(common_units.ABLATIONS.items(), desc="ablations"):
        found[name] = []
        for block in range(len(next(iter(features.values())).gate)):
            left = {
                source: ablate(
                    f.gate[block].astype(float), f.up[block].astype(float), np.random.default_rng([seed, block, i])
                )
                for i, (source, f) in enumerate(features.items())
            }
            views = {source: (unit_rows(gate), unit_rows(up)) for source, (gate, up) in left.items()}
            ties = tie_seed(seed, block)
            common = {
                (a, b): float(common_units.common_units(*common_units.pair_matchings(views[a], views[b], seed=ties)))
                for a, b in combinations(features, 2)
            }
            found[name].append(calibration.jackknife(common))
    return found


def said_of_ablations(found: Mapping[str, ByBlock]) -> str:
    """Sentences on the units in common under each ablation, for the page."""
    means = {name: np.mean([mean for mean, _, _ in blocks]) for name, blocks in found.items()}
    above = [name for name, blocks in found.items() if any(low > 1.0 for _, low, _ in blocks)]
    listed = "; ".join(f"{name} {mean:.1f}" for name, mean in means.items())
    return (
        f"Units in common, mean over blocks (chance: 1): {listed}. In some block the interval lies above one for: "
        f"{', '.join(above) or 'none'}."
    )


# Training and width -----------------------------------------------------------------------------------------------


def matched(sources: Sequence[str], options: Options) -> dict[Pair, list[NDArray[np.int64]]]:
    """Both matchings of every block of every pair of these models."""
    statistic = get("phi_match")
    models = {source: Model.open(source) for source in sources}
    made = {source: statistic.prepare(model, options) for source, model in models.items()}
    views = {
        source: [made[source].block(k)[:2] for k in range(model.anatomy.n_blocks)] for source, model in models.items()
    }
    return {
        (a, b): [
            common_units.pair_matchings(x, y, seed=tie_seed(options.seed, block))
            for block, (x, y) in enumerate(zip(views[a], views[b], strict=True))
        ]
        for a, b in combinations(sources, 2)
    }


def common_by_block(found: Matchings, **where: float) -> list[dict[str, float]]:
    """Units in common of each block: the mean over pairs with its interval, and the actual size at 0.01."""
    width = len(next(iter(found.values()))[0][0])
    rows = []
    for k in range(len(next(iter(found.values())))):
        f = {pair: float(common_units.common_units(*blocks[k])) for pair, blocks in found.items()}
        mean, low, high = calibration.jackknife(f)
        size = common_units.predicted_size(list(f.values()), width, 0.01)
        rows.append({**where, "width": width, "block": k, "y": mean, "low": low, "high": high, "0.01 is worth": size})
    return rows


def tokens_seen(source: str) -> int:
    """Tokens on which a model of the zoo was trained."""
    return zoo.tokens(short_name(source), zoo.families(source.partition("@")[2] or zoo.default_edition()))


def by_training(stages: Mapping[int, Matchings]) -> list[dict[str, float]]:
    """Units in common of runs of one recipe, at each stage of training; x is the number of tokens seen."""
    return [row for tokens, found in stages.items() for row in common_by_block(found, x=tokens)]
