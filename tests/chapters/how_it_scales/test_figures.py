"""Pictures of costs."""

from dataclasses import replace

import pytest

from provlab.chapters.how_it_scales.figures import bills, growth
from provlab.chapters.how_it_scales.measure import Bill
from provlab.errors import InputError
from provlab.planning.matching_speed import Timing

TIMES = [
    Timing(kind, n, n, 64, ours=n**2 / 1e6, reference=20 * n**2 / 1e6, error=0.0, certified=True)
    for kind in ("independent", "noisy copy")
    for n in (256, 512, 1024)
]
EXPONENTS = {(kind, way): 2.0 for kind in ("independent", "noisy copy") for way in ("provlab", "reference")}


def test_growth_says_the_ratio_at_the_largest_size():
    figure = growth(TIMES, exponents=EXPONENTS, caption="What to see.")
    assert "reference over provlab: 20x at 1,024 independent rows, 20x at 1,024 noisy copy rows" in figure.alt
    assert figure.png()[:4] == b"\x89PNG"


def test_seconds_must_be_positive():
    with pytest.raises(InputError, match="positive"):
        growth([replace(TIMES[0], ours=0.0), *TIMES], exponents=EXPONENTS)


def test_growth_needs_timings():
    with pytest.raises(InputError, match="nothing to draw"):
        growth([], exponents=EXPONENTS)


def test_bills_are_read_out():
    rows = [Bill("here\n2 cores", {"read": 60.0, "assign": 3600.0}, 7200.0), Bill("there", {"read": 1800.0}, 1800.0)]
    figure = bills(rows, caption="What to see.")
    assert "here 2 cores: 1.0 to 2.0 h; there: 0.5 h" in figure.alt
    assert figure.caption.startswith("What to see.")
    assert figure.png()[:4] == b"\x89PNG"


def test_bills_need_a_row():
    with pytest.raises(InputError, match="nothing to draw"):
        bills([])
