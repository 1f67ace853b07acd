"""Equal rows must not look like a common origin: among them the order of the rows is no evidence.

With one sign a row two kinds of rows are left. A solver that breaks ties by the order of the rows, the same way on both
sides, gives two strangers log10 p below -8 in most tries; the statistics break them at random.
"""

import numpy as np
import pytest

from provlab.statistics import get
from provlab.statistics.base import Options

H, COLUMNS = 256, 16


def one_sign_a_row(rng):
    return (np.sign(rng.normal(size=(H, 1))) * np.ones((1, COLUMNS))).astype(np.float32)


@pytest.mark.parametrize("name", ["phi_u", "phi_h", "phi_match"])
def test_strangers_with_equal_rows_are_strangers(name):
    rng = np.random.default_rng(5)
    rows = iter([one_sign_a_row(rng) for _ in range(4)])
    tokens = np.arange(COLUMNS)
    a, b = ((next(rows), next(rows), tokens) if name == "phi_match" else next(rows) for _ in range(2))
    found = [get(name).compare_block(a, b, 0, Options(seed=seed)).log10_p for seed in range(20)]
    assert min(found) > -4  # twenty draws; without the shuffle most are below -8
