"""What runs beside a command neither holds it up nor hides what went wrong."""

import subprocess
import sys
import time

import pytest

from provlab.machine import Beside
from provlab.models.counting import count_bytes, counting


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
