"""What a study holds of the tensors at hand: read once within it, as often as asked without it."""

import numpy as np
import pytest

from provlab.inference.matching import unit_rows
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.counting import counting
from provlab.reading.held import Held, holding, make_room, once

NAME = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture
def base(models):
    return Checkpoint.open(models["base"])


def read(checkpoint, *ranges):
    """Bytes that are read for these rows of a tensor."""
    with counting() as count:
        for rows in ranges:
            checkpoint.array(NAME, rows)
    return count.tensors


def test_a_tensor_is_read_once_within_a_study_and_each_time_elsewhere(base):
    size = read(base, None)
    assert size > 0
    assert read(base, None, None) == 2 * size
    with holding(10**9):
        assert read(base, None, None, None) == size
        assert read(base, range(2)) < size  # other rows are another thing
        assert read(base, range(2)) == 0
    assert read(base, None) == size


def test_what_is_held_cannot_be_written_to(base):
    with holding(10**9), pytest.raises(ValueError, match="read-only"):
        base.array(NAME)[0, 0] = 1
    base.array(NAME)[0, 0] = 1


def test_two_models_are_two(models):
    first, second = Checkpoint.open(models["base"]), Checkpoint.open(models["stranger"])
    with holding(10**9):
        assert not np.array_equal(first.array(NAME), second.array(NAME))


def test_no_more_is_held_than_there_is_room_for(base):
    size = base.array(NAME).nbytes
    with holding(size - 1) as held:
        assert read(base, None, None) == 2 * read(base, None)
        assert held.nbytes == 0
    with holding(size) as held:
        base.array(NAME)
        assert held.nbytes == size


def test_another_place_and_features_make_it_go(base):
    size = base.array(NAME).nbytes
    with holding(10**9) as held:
        for place in (0, 0, 1):
            held.at(place)
            base.array(NAME)
        assert held.nbytes == size
        held.at(2)
        assert held.nbytes == 0
        base.array(NAME)
        make_room(100, size + 100)
        assert held.nbytes == size
        make_room(101, size + 100)
        assert held.nbytes == 0
    make_room(1, 0)  # nothing is held here


def test_all_arrays_of_features_are_counted(tmp_path):
    """Those of a tuple, of prepared rows in it and of a mapping; pages of a file are the system's."""
    np.save(tmp_path / "a.npy", np.zeros(5))
    rows, mapped = unit_rows(np.ones((2, 3))), np.load(tmp_path / "a.npy", mmap_mode="r")
    with holding(10**9) as held:
        once(object(), "features", lambda: ({"a": (rows, None)}, mapped, 3))
        assert held.nbytes == rows.rows.nbytes + rows.nbytes
        assert rows.unit.flags.writeable  # as torch wants them


def test_what_is_made_of_tensors_is_made_once():
    owner, made = object(), []

    def make():
        made.append(1)
        return {"a": np.ones(3)}

    with holding(10**9) as held:
        first, second = (once(owner, "a name", make) for _ in range(2))
        assert first is second
        assert held.nbytes == 24
        assert not first["a"].flags.writeable
        once(owner, "another name", make)
    assert once(owner, "a name", make)["a"].flags.writeable
    assert len(made) == 3


def test_a_thread_may_ask_while_another_goes_to_the_next_place():
    class Gone(dict):
        """Emptied after each question, as by another thread."""

        def __contains__(self, key):
            known = super().__contains__(key)
            self.clear()
            return known

    held, owner = Held(10**6), object()
    held.get(owner, "rows", lambda: np.ones(3))
    held._arrays = Gone(held._arrays)
    assert held.get(owner, "rows", lambda: np.ones(3)).tolist() == [1, 1, 1]
