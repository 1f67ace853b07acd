"""Room for activations: what comes back is what was written, and it is on disk where it is large."""

import errno
import gc
import os

import numpy as np
import pytest

from provlab.running.room import Room, stacked


def filled(in_memory):
    rng = np.random.default_rng(0)
    expected = [rng.normal(size=(5, 7)).astype(np.float32), rng.normal(size=(3, 7)).astype(np.float32)]
    room = Room([a.shape for a in expected], in_memory=in_memory)
    for start in (0, 3, 6):
        for which, array in enumerate(expected):
            room.write(which, start, array[:, start : start + 3])
    return expected, room


@pytest.mark.parametrize("in_memory", [10**6, 0])
def test_pieces_come_back_as_one(in_memory):
    expected, room = filled(in_memory)
    for array, want in zip(room.arrays(), expected, strict=True):
        assert np.array_equal(array, want)
        assert isinstance(array, np.memmap) == (in_memory == 0)


def test_files_vanish_with_their_last_map(tmp_path, monkeypatch):
    """No file has a name, so that nothing is left if the process is killed; space is given back with the last map."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    expected, room = filled(0)
    first, second = room.arrays()
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 1
    files = [os.fstat(file.fileno()) for file in room._files]
    assert [file.st_size for file in files] == [array.nbytes for array in expected]
    assert all(file.st_nlink == 0 for file in files)
    del first, room
    gc.collect()
    assert np.array_equal(second, expected[1])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system claims no space in advance")
def test_a_full_disk_is_an_error_before_anything_is_written(tmp_path, monkeypatch):
    """Writing to a map of a sparse file on a full disk would kill the process."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        Room([(5, 7)], in_memory=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", [10**6, 0])
def test_parts_are_stacked(limit, monkeypatch):
    monkeypatch.setattr("provlab.running.room.IN_MEMORY", limit)
    expected = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    array = stacked((expected[start : start + 3] for start in (0, 3, 6)), 7)
    assert np.array_equal(array, expected)
    assert isinstance(array, np.memmap) == (limit == 0)
