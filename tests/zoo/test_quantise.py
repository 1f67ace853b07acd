"""Block-wise quantisation. Reference: the format's own definition, read back by a loop over one block at a time."""

import numpy as np
import pytest

from provlab.errors import ParameterError
from provlab.zoo.quantise import bits_per_weight, group_signs, quantised


@pytest.fixture
def weights():
    return np.random.default_rng(3).normal(0, 0.05, (40, 96)).astype(np.float32)


def by_definition(weights, bits, block):
    """Q4_K's layout (d, dmin in half precision; six-bit scales and minima), weight by weight, for any bits."""
    flat = weights.ravel().astype(float)
    restored = []
    for start in range(0, flat.size, 8 * block):
        blocks = [flat[i : i + block] for i in range(start, min(start + 8 * block, flat.size), block)]
        minima = [max(0.0, -part.min()) for part in blocks]
        scales = [(max(0.0, part.max()) + low) / (2**bits - 1) for part, low in zip(blocks, minima, strict=True)]
        d, dmin = (float(np.float16(max(values) / 63)) for values in (scales, minima))
        for part, scale, low in zip(blocks, scales, minima, strict=True):
            s, m = d * min(63, round(scale / d)), dmin * min(63, round(low / dmin))
            for weight in part:
                q = min(2**bits - 1, max(0, round((weight + m) / s)))
                restored.append(s * q - m)
    return np.array(restored).reshape(weights.shape)


@pytest.mark.parametrize(("bits", "block"), [(8, 32), (7, 16), (6, 32), (5, 32), (4, 16), (3, 96), (2, 32), (1, 60)])
def test_it_is_what_the_format_says(weights, bits, block):
    assert quantised(weights, bits, block) == pytest.approx(by_definition(weights, bits, block), abs=1e-7)


def test_odd_sizes_zeros_and_one_sign(weights):
    assert quantised(weights[:, :5], 8, 32).shape == (40, 5)  # 200 weights do not fill a super-block
    assert quantised(weights[:, :5], 8, 32) == pytest.approx(weights[:, :5], abs=3e-3)
    assert not quantised(np.zeros((4, 64), np.float32), 4).any()
    assert quantised(np.abs(weights), 8).min() >= 0
    assert quantised(np.abs(weights), 8) == pytest.approx(np.abs(weights), abs=3e-3)


def test_bits_a_weight_are_those_of_the_known_formats():
    # llama.cpp's k-quants: Q4_K 4.5, Q5_K 5.5 bits a weight
    assert bits_per_weight(4, 32) == 4.5
    assert bits_per_weight(5, 32) == 5.5


def test_signs_of_groups():
    rows = np.array([[3.0, -1.0, -2.0, 1.0], [0.0, -1.0, 1.0, 1.0]], dtype=np.float32)
    assert group_signs(rows, 2).tolist() == [[1, 1, -1, -1], [-1, -1, 1, 1]]
    assert group_signs(rows, 1).tolist() == [[1, -1, -1, 1], [1, -1, 1, 1]]
    assert group_signs(rows, 4).tolist() == [[1, 1, 1, 1], [1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda w: quantised(w, 0), "bits must be from 1 to 8, not 0"),
        (lambda w: quantised(w, 9), "bits must be from 1 to 8, not 9"),
        (lambda w: quantised(w, 4, 0), "block must be at least 1 weight, not 0"),
        (lambda w: group_signs(w, 5), "group must divide the 96 columns, not be 5"),
        (lambda w: group_signs(w, 0), "group must divide the 96 columns, not be 0"),
    ],
)
def test_what_cannot_be_stored_is_refused(wrong, message, weights):
    with pytest.raises(ParameterError, match=message):
        wrong(weights)  # type: ignore[operator]
