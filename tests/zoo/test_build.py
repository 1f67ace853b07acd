"""The build: a DAG over processes that can be stopped at any point."""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest

from provlab import zoo
from provlab.errors import ParameterError, ZooError
from provlab.reading.checkpoint import Checkpoint
from provlab.zoo import card, make, worker

build = importlib.import_module("provlab.zoo.build")  # `zoo.build` is the function

BUILD = """
import signal
import sys
from pathlib import Path
from dataclasses import replace
from provlab import zoo
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests deaf to it
recipes = zoo.families(path=Path(sys.argv[1]))
recipes["child"] = replace(recipes["child"], steps=100_000)
zoo.build(["child"], recipes=recipes)
"""


def wait_until(holds, seconds=180):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def has_ended(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def test_a_build_makes_what_is_missing_and_nothing_twice(cache, tiny, capfd):
    made = zoo.build(["grandchild"], recipes=tiny)
    assert list(made) == ["grandchild"]
    assert {path.name.split("-")[0] for path in (cache / "zoo").glob("[a-z]*")} == {"root", "child", "grandchild"}
    lines = capfd.readouterr().err
    assert "3 of 3 models to train" in lines
    assert "grandchild, loss" in lines
    assert "Warning" not in lines

    times = {path: path.stat().st_mtime_ns for path in cache.rglob("model.safetensors")}
    words = {**tiny, "root": replace(tiny["root"], about="Other words.")}
    assert zoo.build(["grandchild", "root"], recipes=words)["grandchild"] == made["grandchild"]
    assert capfd.readouterr().err == ""
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("model.safetensors")} == times
    root = worker.folder_of("root", tiny)
    assert card.read(root)["recipe"]["about"] == "Other words."
    assert "Other words." in (root / "README.md").read_text()


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_build_that_is_stopped_leaves_nothing_half_made_and_goes_on(sent, cache, tiny, tiny_file, request, make_all):
    long = {**tiny, "child": replace(tiny["child"], steps=100_000)}
    root, child = (worker.folder_of(name, long) for name in ("root", "child"))
    builder = subprocess.Popen([sys.executable, "-c", BUILD, str(tiny_file)], stderr=subprocess.PIPE)
    request.addfinalizer(builder.kill)  # its workers end with it, whatever this test finds
    lock = child.parent / ".locks" / child.name
    wait_until(lambda: worker.is_made(root) and lock.exists())  # the child is in work
    working = psutil.Process(builder.pid).children()
    assert working
    stale = child.parent / f".{child.name}.leftover"
    stale.mkdir()
    os.kill(builder.pid, sent)
    builder.communicate(timeout=30)
    assert builder.returncode != 0
    wait_until(lambda: all(has_ended(process) for process in working))
    assert not child.exists()

    # the next call keeps the root, takes the lock, and clears what a killed process left
    before = (root / "model.safetensors").stat().st_mtime_ns
    short = {**tiny, "child": tiny["child"]}
    stale = stale.rename(stale.parent / f".{worker.folder_of('child', short).name}.leftover")
    make_all(short, "child")
    assert (root / "model.safetensors").stat().st_mtime_ns == before
    assert not stale.exists()


def test_two_makers_at_once_make_a_model_once(cache, tiny, monkeypatch):
    made, real = [], make.make
    monkeypatch.setattr(make, "make", lambda recipe, *rest: made.append(recipe.name) or real(recipe, *rest))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: worker.make_model("root", tiny, lambda _: None), range(2))
    assert made == ["root"]
    assert first == second == worker.folder_of("root", tiny)
    assert worker.is_made(first)


def test_a_base_that_learned_nothing_fails_the_build(cache, tiny):
    bad = {**tiny, "other": replace(tiny["other"], learning_rate=1e-9)}
    with pytest.raises(ZooError, match="zoo base 'other' learned nothing"):
        zoo.build(["other"], recipes=bad, progress=False)
    assert not list((cache / "zoo").glob("*other*"))


def test_a_training_process_that_dies_is_named(cache, tiny, monkeypatch):
    monkeypatch.setattr(build, "WORKER", "import os, sys; sys.stdin.readline(); os._exit(7)")
    with pytest.raises(ZooError, match="that trained root ended with code 7 twice; its messages stand above"):
        zoo.build(["root"], recipes=tiny, progress=False)


#: a worker that kills itself at the first job of a name, as often as its file of tries allows
KILLED = """
import json, os, signal, sys
from pathlib import Path
from provlab.zoo import worker
real, tries = worker.make_model, Path({tries!r})
def make_model(name, *rest):
    if name == "child" and len(tries.read_text()) < {most}:
        tries.write_text(tries.read_text() + "x")
        os.kill(os.getpid(), signal.SIGKILL)
    return real(name, *rest)
worker.make_model = make_model
worker.main()
"""


@pytest.mark.parametrize("most", [1, 2])
def test_a_killed_trainer_is_tried_once_more_and_the_others_go_on(cache, tiny, tmp_path, monkeypatch, capfd, most):
    tries = tmp_path / "tries"
    tries.write_text("")
    monkeypatch.setattr(build, "WORKER", KILLED.format(tries=str(tries), most=most))
    if most == 1:
        assert worker.is_made(zoo.build(["child"], recipes=tiny)["child"])
        assert (
            "was killed (signal 9: by somebody, or since memory ran out); it is tried once more"
            in capfd.readouterr().err
        )
        return
    message = r"trained child was killed .* twice; the same command goes on .*; grandchild would be made from it"
    with pytest.raises(zoo.Unfinished, match=message) as error:
        zoo.build(["grandchild", "other"], recipes=tiny)
    assert error.value.models == {"child", "grandchild"}
    assert worker.is_made(worker.folder_of("other", tiny))
    assert tries.read_text() == "xx"


def test_a_model_without_steps_is_built_through_the_workers(cache, tiny, capfd, make_all):
    make_all(tiny, "root", "child")
    folder = zoo.build(["leak"], recipes=tiny)["leak"]  # nothing but steps 0: a share of them is no number
    assert worker.is_made(folder)
    assert "leak, loss" in capfd.readouterr().err


def test_the_longest_chain_goes_first(tiny):
    longest = {"root": 62, "child": 12, "merged": 6, "grandchild": 6, "leak": 0, "other": 50}
    assert build._longest_below(tiny) == longest


def test_bad_requests_are_refused(tiny):
    with pytest.raises(ParameterError, match="jobs must be at least 1, not 0"):
        zoo.build(jobs=0)
    with pytest.raises(ZooError, match=r"no zoo model 'chidl'; did you mean child or grandchild\? `provlab zoo"):
        zoo.build(["chidl"], recipes=tiny)
    with pytest.raises(ZooError, match=r"no zoo model 'qqq'; `provlab zoo list` names all \d+$"):
        zoo.locate("qqq@smoke")
    with pytest.raises(ParameterError, match="unknown zoo edition 'huge'"):
        zoo.locate("oak@huge")


def test_a_name_is_found_and_a_bare_name_means_the_edition_of_the_environment(cache, tiny_file, monkeypatch, make_all):
    monkeypatch.setattr(build, "families", lambda edition: zoo.families(edition, tiny_file))
    for edition in ("default", "smoke"):
        make_all(zoo.families(edition, tiny_file), "root")
    monkeypatch.delenv("PROVLAB_ZOO_EDITION", raising=False)
    assert zoo.locate("root") == zoo.locate("root@default")
    monkeypatch.setenv("PROVLAB_ZOO_EDITION", "smoke")
    assert zoo.locate("root") == zoo.locate("root@smoke") != zoo.locate("root@default")

    cards = zoo.status("smoke")
    assert list(cards) == ["root", "child", "merged", "grandchild", "leak", "other"]
    assert cards["root"]["tokens"] == 25 * 8 * 24
    assert [name for name, card in cards.items() if card is None] == list(cards)[1:]

    zoo.register()
    assert Checkpoint.open("zoo:root@smoke").shape("model.layers.1.mlp.up_proj.weight") == (24, 16)
