"""Both ways of matching reach one objective, on rows of the kinds that are promised."""

import numpy as np
import pytest

from provlab.errors import InputError
from provlab.studies import race as module
from provlab.studies.race import KINDS, race, rows, with_threads


@pytest.mark.parametrize("kind", KINDS)
def test_both_ways_reach_the_same_objective(kind):
    """The reference is scipy's assignment of float64 similarities; ours are float32."""
    found = race(kind, 200, 64, seed=1)
    assert found.gap < 1e-6
    assert found.certified
    assert min(c.cpu_seconds for c in (found.match, found.assign, found.reference, found.reference_assign)) >= 0
    assert found.reference.cpu_seconds >= found.reference_assign.cpu_seconds
    assert found.as_row()["kind"] == kind


def test_a_worse_assignment_would_show(monkeypatch):
    """Planted: the reference takes rows in order."""
    monkeypatch.setattr(module, "linear_sum_assignment", lambda s, maximize: (np.arange(len(s)), np.arange(len(s))))
    assert race("independent", 200, 64).gap > 1e-2


def test_a_noisy_copy_keeps_nine_tenths():
    """The cosine of x and x + z / 2 is 2 / sqrt(5)."""
    a, b = rows("noisy copy", 300, 256, seed=0)
    cosines = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert float(cosines.mean()) == pytest.approx(2 * 5**-0.5, abs=0.01)


def test_another_kind_is_refused():
    with pytest.raises(InputError, match="kind must be independent, noisy copy, shared directions"):
        rows("odd", 10, 10, seed=0)


def test_threads_are_those_of_fresh_processes():
    """One process each; with one thread no more CPU time can pass than by the clock."""
    found = with_threads([1], 256, 64)
    assert list(found) == [1]
    assert 0 < found[1].cpu_seconds < 1.2 * found[1].seconds + 0.05
