"""Equal rows must not look like a common origin: among them the order of the rows is no evidence.

With one sign a row two kinds of rows are left. A solver that breaks ties by the order of the rows, the same way on both
sides, gives two strangers log10 p below -8 in most tries; the statistics break them at random, again in every block:
the same order in every block makes p-values of blocks alike, and Fisher's method takes them for independent.
"""

import numpy as np
import pytest
from scipy import stats

from provlab.inference.matching import unit_rows
from provlab.statistics import get
from provlab.statistics.options import Options

COLUMNS = 16


@pytest.fixture(params=["compiled", "scipy"])
def solver(request, monkeypatch):
    """Either way of MATCH."""
    if request.param == "scipy":
        monkeypatch.setenv("PROVLAB_NO_COMPILE", "1")


@pytest.mark.filterwarnings("ignore:matching by scipy:RuntimeWarning")
@pytest.mark.usefixtures("solver")
@pytest.mark.parametrize("name", ["phi_u", "phi_h", "phi_match_unsigned"])
def test_blocks_of_strangers_with_equal_rows_are_independent(name):
    repeats, n_blocks, h = 150, 16, 64
    rng = np.random.default_rng(6)
    tokens = np.arange(COLUMNS)

    def features():
        signs = (np.sign(rng.normal(size=(h, 1))) for _ in range(2))
        views = [unit_rows(np.repeat(item, COLUMNS, axis=1).astype(np.float32)) for item in signs]
        return views[0] if name in ("phi_u", "phi_h") else (*views, tokens)

    statistic = get(name)
    log10_p, p = np.empty(repeats), np.empty((repeats, n_blocks))
    for repeat in range(repeats):
        blocks = [statistic.compare_block(features(), features(), i, Options(seed=repeat)) for i in range(n_blocks)]
        log10_p[repeat] = statistic.aggregate(blocks).log10_p
        p[repeat] = [10**block.log10_p for block in blocks]
    assert (log10_p <= -2).sum() <= stats.binom.isf(1e-3, repeats, 0.01)
    between = np.corrcoef(p.T)[np.triu_indices(n_blocks, 1)]
    # the mean of 120 correlations, of which each has a standard deviation of 150 ** -0.5, all uncorrelated
    assert abs(between.mean()) < 4 * (repeats * between.size) ** -0.5
