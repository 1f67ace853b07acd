"""Claim I1 holds on p-values as Theorem 1 has them, and not on evidence in which it is broken."""

import numpy as np
import planted
import pytest

from provlab_study.publishing.evidence import HOLDS

ROW = planted.row("I1")
T, N = 99, 2000
UNIFORM = (np.random.default_rng(0).permutation(N) % (T + 1) + 1) / (T + 1)


def judged(independent=UNIFORM, dependent=(1 / (T + 1),) * 200, t=T):
    kept = {"independent": list(independent), "dependent": list(dependent), "n_permutations": t}
    return planted.judged(ROW, {"example_one": kept})


def test_it_holds():
    verdict = judged()
    assert verdict.status == HOLDS
    assert "200 of 200 fine-tunes at 1/100" in verdict.ours


PLANTS = {
    "too many small p-values": {"independent": np.where(np.arange(N) < 80, 0.01, UNIFORM)},
    "all at 1": {"independent": np.ones(N)},
    "p-values of 0, as Algorithm 1 is printed": {"independent": np.where(np.arange(N) < 3, 0.0, UNIFORM)},
    "too few independent pairs": {"independent": UNIFORM[:1000]},
    "no fine-tune": {"dependent": []},
    "fine-tunes at 0": {"dependent": [0.0] * 200},
    "one fine-tune above": {"dependent": [0.01] * 199 + [0.02]},
    "no number": {"dependent": [0.01] * 199 + [float("nan")]},
    "a T with which half of all pairs are at 1/(T + 1)": {
        "independent": np.tile([0.5, 1.0], N // 2),
        "dependent": [0.5] * 200,
        "t": 1,
    },
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_broken_claim_does_not_hold(plant):
    assert judged(**PLANTS[plant]).status != HOLDS
