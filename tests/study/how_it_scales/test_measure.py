"""Measurements that the page asks of the benchmarks."""

import pytest

from provlab.errors import InputError
from provlab_study.how_it_scales import measure


def test_ways_of_reading_are_timed(models):
    speeds = measure.speeds(models["base"], 8, seed=0)
    assert set(speeds) == {"judged", "written", "bare"}
    assert min(speeds.values()) > 100


def test_growth_is_the_exponent():
    assert measure.exponent([256, 512, 1024], [n**2.5 for n in (256, 512, 1024)]) == pytest.approx(2.5)


def test_a_script_answers_or_its_error_is_named():
    assert measure.benchmark("matching.py", "--peak", "match", 64, 16)["memory"] >= 0
    with pytest.raises(InputError, match="giant is no known shape"):
        measure.benchmark("full_size.py", "giant", "--json")
