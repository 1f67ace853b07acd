"""A process that trains zoo models, one after the other: started by `build`.

It reads jobs as lines of JSON from standard input and answers in lines of JSON on standard output. Plain
processes and pipes, instead of a pool that pickles, because a script without a ``__main__`` guard, a notebook
and a shell can all start a build, and because a closed pipe tells the worker that its builder is gone,
however that happened.
"""

import json
import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from filelock import FileLock, Timeout

from provlab.errors import ProvlabError
from provlab.files import atomic_folder, cache_dir
from provlab.processes import collect_seldom
from provlab.zoo import card, corpus
from provlab.zoo.kinds import KINDS
from provlab.zoo.recipes import Recipe, address, parse

if TYPE_CHECKING:  # a made model needs no torch
    from provlab.zoo.make import Made

_SECONDS_BETWEEN_REPORTS = 0.3


class Stopped(Exception):
    """The work is to end now, leaving nothing half-written."""


def folder_of(name: str, recipes: Mapping[str, Recipe]) -> Path:
    """Return where a model lies once it is made; nothing needs to exist."""
    return cache_dir() / "zoo" / f"{name}-{address(name, recipes)[:16]}"


def is_made(folder: Path) -> bool:
    """Whether a model's folder is there; it appears whole or not at all."""
    return (folder / card.CARD).is_file() and (folder / "model.safetensors").is_file()


def make_model(name: str, recipes: Mapping[str, Recipe], report: Callable[[int], None]) -> Path:
    """Train one model, whose parent must be made, into its folder; do nothing where it is made already.

    Parameters
    ----------
    name, recipes
        The model, and the recipes of it and its ancestors.
    report
        Called with the number of steps done, also with 0 while another process makes the same model; what it
        raises ends the work.

    Raises
    ------
    ZooError
        If the training failed; nothing is left in place then.
    """
    recipe, folder = recipes[name], folder_of(name, recipes)
    with _sole_maker(folder, report):
        if not is_made(folder):
            from provlab.zoo.make import make  # here, so that a made model needs no torch

            begun = time.monotonic()
            made = make(recipe, folder_of(recipe.parent, recipes) if recipe.parent else None, report)
            _save(folder, recipe, recipes, made, time.monotonic() - begun)
    return folder


def _save(folder: Path, recipe: Recipe, recipes: Mapping[str, Recipe], made: "Made", seconds: float) -> None:
    """Write a model into its folder, which appears whole; the folder's lock is held."""
    for stale in folder.parent.glob(f".{folder.name}.*"):  # a killed process left it
        shutil.rmtree(stale, ignore_errors=True)
    with atomic_folder(folder) as temporary:
        made.model.save_pretrained(temporary)
        if KINDS[recipe.kind].corpus:
            shutil.copytree(corpus.load().tokenizer_folder, temporary, dirs_exist_ok=True)
        for file in temporary.iterdir():
            file.chmod(0o644)  # safetensors makes its files private
        card.write(temporary, card.describe(recipe, recipes, made, seconds))


def _sole_maker(folder: Path, report: Callable[[int], None]) -> FileLock:
    """Return the held lock of a model's folder, waiting for as long as another process makes the model."""
    locks = folder.parent / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    lock = FileLock(locks / folder.name)
    while True:
        try:
            lock.acquire(timeout=_SECONDS_BETWEEN_REPORTS)
        except Timeout:
            report(0)
        else:
            return lock


def _listen(jobs: "queue.Queue[dict[str, Any] | None]", gone: threading.Event) -> None:
    for line in sys.stdin:
        jobs.put(json.loads(line))
    gone.set()
    jobs.put(None)


def _answer(to: TextIO, **content: object) -> None:
    try:
        to.write(json.dumps(content) + "\n")
        to.flush()
    except BrokenPipeError:  # the builder was killed: nobody listens, and what is finished is on disk
        os._exit(1)


def main() -> None:
    """Work until standard input closes."""
    collect_seldom()
    # what libraries print must not get between the answers
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    jobs: queue.Queue[dict[str, Any] | None] = queue.Queue()
    gone = threading.Event()
    threading.Thread(target=_listen, args=(jobs, gone), daemon=True).start()
    while (job := jobs.get()) is not None:
        recipes = {recipe["name"]: parse(recipe) for recipe in job["recipes"]}
        reported = time.monotonic()

        def report(steps: int) -> None:
            nonlocal reported
            if gone.is_set():
                raise Stopped
            if time.monotonic() - reported > _SECONDS_BETWEEN_REPORTS:
                reported = time.monotonic()
                _answer(answers, steps=steps)

        try:
            make_model(job["name"], recipes, report)
        except Stopped:
            return
        except ProvlabError as error:
            _answer(answers, failed=str(error))
        else:
            _answer(answers, done=True)
