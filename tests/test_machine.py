"""What runs beside a command neither holds it up nor hides what went wrong."""

import subprocess
import sys
import time
from functools import partial
from threading import Barrier, get_ident, main_thread

import pytest

from provlab.machine import Beside, side_by_side
from provlab.reading.counting import count_bytes, counting


def test_what_a_thread_returns_raises_and_counts_comes_to_who_asks():
    with counting() as count:
        assert Beside(lambda: count_bytes("hashed", 3) or 7).result() == 7
    assert count.hashed == 3
    failing = Beside(lambda: [][0])
    with pytest.raises(IndexError):
        failing.result()


def test_a_program_that_is_stopped_does_not_wait_for_its_threads():
    program = "import time; from provlab.machine import Beside; Beside(lambda: time.sleep(60)); raise KeyboardInterrupt"
    began = time.monotonic()
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode != 0
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("threads", ["1", "2"])
def test_calls_side_by_side(threads, monkeypatch):
    """Two that wait for each other end where there are two threads; one thread makes them one after the other."""
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    waiting = Barrier(int(threads), timeout=20)

    def call(value):
        waiting.wait()
        return value, get_ident() == main_thread().ident

    first, second = side_by_side(partial(call, 1), partial(call, 2))
    assert (first, second) == ((1, True), (2, threads == "1"))
    assert side_by_side() == []
    with pytest.raises(IndexError):
        side_by_side(lambda: 1, lambda: [][0])
