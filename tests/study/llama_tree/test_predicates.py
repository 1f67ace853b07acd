"""Claims about the tree, broken on purpose: PERMTEST that finds strangers, a divergence that tells the groups apart."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from provlab_study.llama_tree.predicates import does_not_separate, permtest_at_minimum

FAMILIES = {**{f"a{i}": "A" for i in range(6)}, "b": "B", "b1": "B", **{name: name for name in "cdefg"}}
CHAIN = [("a0", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f"), ("f", "g")]  # one model of each tree
BLOCKS, T = 4, 99


def study(values):
    """All pairs by three statistics; `values` gives the columns of a pair: value, log10_p, blocks, detail."""
    rows = [
        {"a": a, "b": b, "dependent": FAMILIES[a] == FAMILIES[b], "keys": ["unit"], **values(a, b)}
        for a, b in combinations(FAMILIES, 2)
    ]
    frame = pd.DataFrame(rows)

    frame["dependent"] = frame["dependent"].astype(object)
    by_block = frame.assign(log10_p=frame.get("by_block", np.nan))
    statistics = {"phi_l2": frame, "phi_l2_blocks": by_block, "phi_jsd": frame}
    return pd.concat([rows.assign(statistic=name, error=None) for name, rows in statistics.items()], ignore_index=True)


# I6: PERMTEST finds every dependent pair, and leaves the others alone ----------------------------------------------


def permtest(whole=None, blocks=None, seed=1):
    """Dependent pairs at the minimum; independent ones by ranks and uniform blocks, or as `whole` and `blocks` say."""
    rng = np.random.default_rng(seed)

    def values(a, b):
        dependent = FAMILIES[a] == FAMILIES[b]
        rank = float(rng.integers(1, T + 2)) / (T + 1)
        own = list(np.log10(rng.integers(1, 1001, size=BLOCKS) / 1000))
        if not dependent:
            rank = rank if whole is None else whole(a, b, rank)
            own = own if blocks is None else [blocks] * BLOCKS
        return {
            "value": -1.0,
            "log10_p": -2.0 if dependent else float(np.log10(rank)),
            "blocks": [-3.0] * BLOCKS if dependent else own,
            "by_block": -8.4 if dependent else -0.3,
            "floor": -8.4,
        }

    bars = {"share_of_floor": 0.9, "level": 0.01}
    return permtest_at_minimum(study(values), CHAIN, T, whole="phi_l2", by_block="phi_l2_blocks", **bars)


def test_permtest_at_its_minimum_for_dependent_pairs_alone():
    for seed in range(5):
        verdict = permtest(seed=seed)
        assert verdict.status == "holds", verdict


EVERY_OTHER = set(CHAIN[::2])


@pytest.mark.parametrize(
    ("planted", "why"),
    [
        ({"whole": lambda a, b, rank: 0.01}, "6 of 6"),
        ({"whole": lambda a, b, rank: 0.01 if (a, b) in EVERY_OTHER else 0.5}, "3 of 6"),
        ({"blocks": -1.5}, "per block"),
    ],
)
def test_a_permtest_that_finds_strangers(planted, why):
    verdict = permtest(**planted)
    assert verdict.status == "fails"
    assert why in verdict.why


# I7: the divergence leans to the right side, and not reliably: an area between 1/2 and 0.95, with its interval --------


def divergence(near, far, exceptions=(), *, spread=0.01):
    """Values about `near` for dependent pairs and about `far` for others, and for exceptions larger than all others."""
    rng = np.random.default_rng(2)

    def values(a, b):
        dependent = FAMILIES[a] == FAMILIES[b]
        value = (near if dependent else far) + spread * rng.normal()
        return {"value": far + 0.2 if (a, b) in exceptions else value, "log10_p": np.nan}

    return does_not_separate(study(values), statistic="phi_jsd", most=0.95)


def test_a_divergence_that_leans_to_the_right_side_and_not_reliably():
    verdict = divergence(0.5, 0.53, spread=0.04)
    assert verdict.status == "holds", verdict
    assert verdict.why == "it tells more than a coin, and its interval ends below 0.95"


@pytest.mark.parametrize(("spread", "status"), [(0.01, "within_its_spread"), (0, "fails")])
def test_a_divergence_that_says_nothing(spread, status):
    """Chance alone, or a constant: 1/2 is in the interval, or the area itself, so that nothing is shown of outputs."""
    verdict = divergence(0.5, 0.5, spread=spread)
    assert verdict.status == status, verdict
    assert "area under the curve" in verdict.why


def test_a_divergence_that_separates():
    verdict = divergence(0.1, 0.5)
    assert verdict.status == "fails", verdict
    assert "above the bar of 0.95" in verdict.why


@pytest.mark.parametrize("exceptions", [[("a0", "a1")], [("a0", "a1"), ("a2", "a3")]])
def test_one_or_two_exceptions_do_not_keep_a_divergence_from_separating(exceptions):
    """Without the few models that make them, the groups are apart."""
    verdict = divergence(0.1, 0.5, exceptions)
    assert verdict.status == "within_its_spread", verdict
    assert "or a replicate, is on the other side" in verdict.why
