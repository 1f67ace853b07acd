"""What a process begins with that works for another one."""

import gc
import os
import platform
import resource
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from provlab.processes import LARGE_PAGES, bounded, collect_seldom, starting_with


def test_all_objects_are_looked_through_seldom_and_young_garbage_is_found_as_before():
    class Link:
        pass

    set_before = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)  # Python's own; a command that ran in this process has others
        collect_seldom()
        assert gc.get_threshold()[:2] == (700, 10)
        assert gc.get_threshold()[2] > 100
        link = Link()
        link.itself, gone = link, weakref.ref(link)
        del link
        kept = [[] for _ in range(1400)]
        assert gone() is None, len(kept)
    finally:
        gc.set_threshold(*set_before)


@pytest.mark.parametrize("start", ["provlab.cli", "provlab.zoo.worker"])
def test_commands_and_trainers_look_through_all_objects_seldom(start):
    """torch is imported, a million objects, and none of the looks at all of them that Python's own setting brings."""
    program = (
        f"import sys; sys.argv = ['provlab', 'zoo', 'list']; from {start} import main; main()\n"
        "import gc, torch, transformers.generation; print(gc.get_stats()[2]['collections'])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert (answer.stdout + answer.stderr).split()[-1] == "0"  # a trainer's own output is for its builder


def test_processes_that_start_within_ask_for_large_pages_and_later_ones_do_not(monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    with starting_with(LARGE_PAGES):
        assert os.environ["GLIBC_TUNABLES"] == LARGE_PAGES["GLIBC_TUNABLES"]
    assert "GLIBC_TUNABLES" not in os.environ


def test_what_the_user_asks_of_the_c_library_stays(monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    with starting_with(LARGE_PAGES):
        assert os.environ["GLIBC_TUNABLES"] == "glibc.malloc.check=1"
    assert os.environ["GLIBC_TUNABLES"] == "glibc.malloc.check=1"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library reads no such settings")
def test_the_c_library_knows_each_setting_as_it_is_written():
    """glibc leaves out, without a word, a setting that it does not know or a value that it does not take."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    loader = next(line.split()[-1] for line in maps if "/ld-" in line)
    listed = subprocess.run(
        [loader, "--list-tunables"], env=os.environ | LARGE_PAGES, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this glibc lists no settings")
    known = dict(line.split(": ", 1) for line in listed.stdout.splitlines() if ": " in line)
    for setting in LARGE_PAGES["GLIBC_TUNABLES"].split(":"):
        name, value = setting.split("=")
        assert int(known[name].split()[0], 16) == int(value)


def _loops():
    while True:
        pass


def _refuses():
    raise ValueError("no such text")


#: what a call does in vain -> what is said of it
BOUNDED = {
    "a loop": (_loops, "it takes more than 1 seconds"),
    "a product, which Python does not interrupt": (lambda: str(len(str(9 ** (9**9)))), "it takes more than 1 seconds"),
    "a long text": (lambda: "a" * 10**10, r"it needs more than 1\.0 GB of memory"),
    "an error": (_refuses, "no such text"),
    "an end": (lambda: os._exit(3), "or ends the process"),
}


@pytest.mark.parametrize("label", BOUNDED)
def test_a_call_that_takes_too_much_is_ended_and_what_it_raises_is_heard(label):
    call, why = BOUNDED[label]
    with pytest.raises(RuntimeError, match=why):
        bounded(call, seconds=1, memory=10**9)


def test_a_call_is_given_what_is_loaded_here_and_leaves_nothing(monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    held, limits = ["a", "\ud800", "\n" * 200_000], resource.getrlimit(resource.RLIMIT_AS)

    def call():
        held.append("b")
        return "".join(held)

    assert bounded(call, seconds=5, memory=10**9) == "".join(held) + "b"
    assert len(held) == 3
    assert resource.getrlimit(resource.RLIMIT_AS) == limits
    assert "TOKENIZERS_PARALLELISM" not in os.environ
