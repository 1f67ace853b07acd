"""Claim I1 holds on p-values as Theorem 1 has them, and not on evidence in which it is broken."""

import numpy as np
import planted
import pytest
from planted import Plant, put, update

from provlab_study.publishing.evidence import HOLDS, NOT_RUN

ROW = planted.row("I1")
T, N = 99, 2000
UNIFORM = (np.random.default_rng(0).permutation(N) % (T + 1) + 1) / (T + 1)


GOOD = {"independent": UNIFORM.tolist(), "dependent": [1 / (T + 1)] * 200, "n_permutations": T}


def judged(kept):
    return planted.judged(ROW, {"example_one": kept})


def test_it_holds():
    verdict = judged(GOOD)
    assert verdict.status == HOLDS
    assert "200 of 200 fine-tunes at 1/100" in verdict.ours


PLANTS = [
    Plant("too many small p-values", put("independent", slice(80), value=[0.01] * 80)),
    Plant("all at 1", update(independent=[1.0] * N)),
    Plant("p-values of 0, as Algorithm 1 is printed", put("independent", slice(3), value=[0.0] * 3)),
    Plant("too few independent pairs", put("independent", slice(N // 2), value=[]), NOT_RUN),
    Plant("no fine-tune", update(dependent=[]), NOT_RUN),
    Plant("fine-tunes at 0", update(dependent=[0.0] * 200)),
    Plant("one fine-tune above", put("dependent", 0, value=0.02)),
    Plant("no number", put("dependent", 0, value=float("nan"))),
    Plant(
        "a T with which half of all pairs are at 1/(T + 1)",
        update(independent=[0.5, 1.0] * (N // 2), dependent=[0.5] * 200, n_permutations=1),
        NOT_RUN,
    ),
]


@pytest.mark.parametrize("plant", PLANTS, ids=str)
def test_a_broken_claim_does_not_hold(plant):
    plant.check(judged, GOOD)
