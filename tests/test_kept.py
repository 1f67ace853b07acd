"""Arrays in a cache: under the digest of what they depend on, read back bit for bit, or refused with the way out."""

import numpy as np
import pytest

from provlab.errors import CheckpointError, InputError
from provlab.files import reading
from provlab.kept import ArrayCache, read_arrays, write_arrays

PARTS = {"model": "abc", "seed": 0}


@pytest.fixture
def kept(tmp_path):
    return ArrayCache(tmp_path / "kept")


def never():
    raise AssertionError("made though it is there")


def test_what_was_made_is_read(kept):
    arrays = {"nll": np.random.default_rng(0).normal(size=5), "said": np.array("text")}
    first = kept.get("draws", PARTS, lambda: arrays)
    again = kept.get("draws", dict(reversed(PARTS.items())), never)
    for result in (first, again):
        assert result.keys() == arrays.keys()
        np.testing.assert_array_equal(result["nll"], arrays["nll"])
    assert str(again["said"]) == "text"


def test_other_parts_and_other_code_find_nothing(kept, monkeypatch):
    paths = {kept.path(what, PARTS, never) for what in ("draws", "losses")} | {kept.path("draws", {"seed": 1}, never)}
    monkeypatch.setattr("provlab.kept.code_digest", lambda make: "edited")
    assert len(paths | {kept.path("draws", PARTS, never)}) == 4


def test_the_suffix_of_a_path_does_not_matter(tmp_path):
    write_arrays(tmp_path / "state.bin", {"x": np.arange(3)})
    np.testing.assert_array_equal(read_arrays(tmp_path / "state.bin")["x"], [0, 1, 2])


@pytest.mark.parametrize("spoil", [lambda b: b"no archive", lambda b: b"", lambda b: b[:-100], lambda b: b"PK" + b])
def test_a_damaged_file_is_named_with_the_way_out(kept, spoil):
    kept.get("draws", PARTS, lambda: {"nll": np.arange(100.0)})
    path = kept.path("draws", PARTS, never)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(CheckpointError, match=rf"{path} is damaged \(.*\); delete that file and run again$"):
        kept.get("draws", PARTS, never)


def test_what_is_refused_for_another_reason_keeps_its_words(tmp_path):
    with pytest.raises(InputError, match="of another model"), reading(tmp_path):
        raise InputError("of another model")
    with pytest.raises(CheckpointError, match=r"is damaged \(first second\); delete"), reading(tmp_path):
        raise ValueError("first\nsecond")
