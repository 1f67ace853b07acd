"""Where arrays lie. torch's tensors on the CPU stand for those of a GPU; numpy's own sums are the reference."""

import numpy as np
import pytest
import torch

from provlab import arrays
from provlab.arrays import beside, crossed, here, of, on, squared, sum_of_squares
from provlab.errors import InputError, ParameterError


def matrix(seed=0, shape=(37, 11)):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def test_on_the_cpu_arrays_are_numpys_and_stay_where_they_are():
    rows = matrix()
    there = on("cpu")
    assert there is of
    assert there(rows) is rows
    assert here(rows) is rows
    assert np.shares_memory(there(torch.from_numpy(rows)), rows)
    assert isinstance(squared(rows), np.ndarray)


def test_sixteen_bits_are_sent_as_they_are_and_widened_there(as_device, monkeypatch):
    stored = torch.from_numpy(matrix()).to(torch.bfloat16)
    sent = []
    real = torch.Tensor.to

    def to(tensor, *target, **more):
        sent.append((tensor.dtype, target[0]))
        return real(tensor, *target, **more)

    there = on("cpu")
    monkeypatch.setattr(torch.Tensor, "to", to)
    widened = there(stored)
    assert sent == [(torch.bfloat16, "cpu"), (torch.bfloat16, torch.float32)]
    assert torch.equal(widened, stored.float())


def test_arrays_that_nobody_may_write_to_are_sent_without_a_word(as_device):
    rows = matrix()
    rows.setflags(write=False)
    assert torch.equal(on("cpu")(rows), torch.from_numpy(rows.copy()))


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("slab", [2**24, 30])
def test_sums_of_squares_are_those_of_numpy_in_float64(axis, slab, as_device, monkeypatch):
    """1e20 has a square that is no number of 32 bits, and 1e-30 one that is 0 there."""
    monkeypatch.setattr(arrays, "_SLAB", slab)
    rows = matrix() * np.logspace(-30, 20, 37, dtype=np.float32)[:, None]
    exact = np.square(rows.astype(np.float64)).sum(axis=axis)
    for values in (rows, torch.from_numpy(rows), torch.from_numpy(np.ascontiguousarray(rows.T)).T):
        result = sum_of_squares(values, axis)
        assert isinstance(result, np.ndarray | np.floating)
        np.testing.assert_allclose(result, exact, rtol=1e-12)
    assert "sum_of_squares" in as_device


def test_few_numbers_keep_their_dtype_beside_an_array():
    for values in (matrix(), torch.from_numpy(matrix())):
        assert str(beside(values, np.ones(3)).dtype).endswith("float64")
        assert type(beside(values, np.ones(3))) is type(values)


@pytest.mark.parametrize("bits", [13, 8])  # of 23 that TF32 drops, and a product of three such ones, or of bfloat16
def test_a_device_that_rounds_is_refused_before_anything_is_sent(bits, as_device, monkeypatch):
    real = torch.Tensor.__matmul__

    def coarse(rows):
        return (rows.contiguous().view(torch.int32) & -(1 << bits)).view(torch.float32)

    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: real(coarse(a), coarse(b)))
    with pytest.raises(InputError, match=r"off by more than float32 allows: it may compute in TF32; call torch\.set"):
        on("cpu")


def test_a_device_without_float64_leaves_all_this_to_numpy(monkeypatch):
    """As Apple's, which says so by a TypeError."""
    real = torch.zeros

    def zeros(*shape, dtype=None, device=None):
        if dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return real(*shape, dtype=dtype, device="cpu")

    monkeypatch.setattr(torch, "zeros", zeros)
    arrays._has_float64.cache_clear()
    assert on("mps") is of
    arrays._has_float64.cache_clear()


def test_a_device_that_is_not_there_is_one_line():
    with pytest.raises(ParameterError, match="device 'cuda:99' cannot be used on this machine"):
        on("cuda:99")


def test_a_device_without_room_is_one_line(as_device, monkeypatch):
    there = on("cpu")

    def full(*_: object, **__: object):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.Tensor, "to", full)
    with pytest.raises(ParameterError, match="out of memory"):
        there(matrix())


def test_a_product_of_tables_takes_some_rows_to_float64_at_a_time(monkeypatch):
    monkeypatch.setattr(arrays, "_ROWS", 5)
    tables = matrix(), matrix(1, (37, 4))
    wide = [table.astype(np.float64) for table in tables]
    np.testing.assert_allclose(crossed(*tables), wide[0].T @ wide[1], atol=1e-12)
    np.testing.assert_allclose(crossed(tables[0], tables[0]), wide[0].T @ wide[0], atol=1e-12)
