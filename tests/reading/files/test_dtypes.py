"""Which dtype holds the numbers of another."""

import pytest

from provlab.reading.files.dtypes import exact_from


@pytest.mark.parametrize(
    ("stored", "other", "exact"),
    [
        ({"bfloat16"}, "float32", True),
        ({"float16"}, "float32", True),
        ({"float32"}, "float32", True),
        ({"bfloat16"}, "bfloat16", True),
        ({"float16"}, "bfloat16", False),
        ({"bfloat16"}, "float16", False),
        ({"float16"}, "float64", True),
        ({"float32"}, "float64", True),
        ({"float64"}, "float32", False),
        ({"bfloat16", "float32"}, "float32", False),
        (set(), "float32", False),
    ],
)
def test_numbers_of_one_dtype_are_exact_in_a_wider_one(stored, other, exact):
    assert exact_from(stored, other) == (next(iter(stored), None) if exact else None)
