"""Build the zoo: the models of an edition, parents before children, on several cores.

A build can be stopped at any point, also by ``kill -9``. Models appear in the cache whole or not at all,
those that are there are never made again, and two builds at once share the work. A model whose process was killed, as
where memory ran out, is tried once more; where that fails too, models that do not come from it are still made.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from provlab.errors import ParameterError, ZooError
from provlab.files import cache_dir
from provlab.processes import LARGE_PAGES
from provlab.zoo import card, corpus
from provlab.zoo.kinds import KINDS
from provlab.zoo.reading import default_edition, families, in_order
from provlab.zoo.recipes import Recipe, lineage, named, plain
from provlab.zoo.worker import folder_of, is_made

WORKER = "from provlab.zoo.worker import main; main()"
_SECONDS_TO_STOP = 15.0


class Progress:
    """A bar over all training steps on a terminal; elsewhere one line for each finished model."""

    def __init__(self, missing: Mapping[str, Recipe], shown: bool) -> None:
        self.finished, self.begun = 0, time.monotonic()
        self.steps = dict.fromkeys(missing, 0)
        self.total = sum(recipe.own_steps for recipe in missing.values())
        hidden = not (shown and sys.stderr.isatty())
        self.shown = shown and hidden  # as lines
        self.bar = tqdm(total=self.total, desc="zoo", unit="step", smoothing=0.05, leave=False, disable=hidden)

    def note(self, text: str) -> None:
        """Say something that is not a finished model, where no bar is shown."""
        if self.shown:
            sys.stderr.write(f"zoo: {text}\n")
            sys.stderr.flush()

    def at(self, name: str, steps: int) -> None:
        """Set the steps done of one model."""
        self.steps[name] = max(steps, self.steps[name])
        self.bar.set_postfix_str(name, refresh=False)
        self.bar.update(sum(self.steps.values()) - self.bar.n)

    def done(self, name: str, steps: int, folder: Path) -> None:
        """Count a model as finished."""
        self.at(name, steps)
        self.finished += 1
        done, seconds = sum(self.steps.values()), time.monotonic() - self.begun
        left = seconds * (self.total - done) / max(done, 1)  # a quantised model has no steps
        about = card.read(folder)
        self.note(
            f"{name}, loss {about['initial_loss']:.2f} -> {about['final_loss']:.2f} "
            f"({self.finished} of {len(self.steps)}, {seconds:.0f} s, about {left:.0f} s left)"
        )


class _Worker:
    """A training process, and the thread that hands on its messages."""

    def __init__(self, messages: "queue.Queue[tuple[_Worker, dict[str, Any]]]") -> None:
        self.messages = messages
        self.name: str | None = None  # of the model in work
        environment = {
            **LARGE_PAGES,
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_VERBOSITY": "error",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "PYTHONWARNINGS": "ignore",
            "PROVLAB_CACHE": str(cache_dir()),
        }
        # its own session: a Ctrl-C at the terminal reaches the builder alone, which then closes the pipe;
        # -P: the folder that the user stands in may hold a random.py
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as answers:
            for line in answers:
                self.messages.put((self, json.loads(line)))
        self.messages.put((self, {"ended": self.process.wait()}))

    def start(self, name: str, recipes: Mapping[str, Recipe]) -> None:
        self.name = name
        assert self.process.stdin is not None
        job = {"name": name, "recipes": [plain(recipes[ancestor]) for ancestor in lineage(name, recipes)]}
        with contextlib.suppress(BrokenPipeError):  # it ended: `_listen` reports that
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def wait(self, deadline: float) -> None:
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Unfinished(ZooError):
    """Some models could not be made; all others that were asked for are there.

    Attributes
    ----------
    models
        Names of those that are not.
    """

    def __init__(self, message: str, models: frozenset[str]) -> None:
        super().__init__(message)
        self.models = models


def _how_it_ended(code: int) -> str:
    """A process's exit status in words."""
    if code == -signal.SIGKILL:
        return "was killed (signal 9: by somebody, or since memory ran out)"
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"


def _longest_below(recipes: Mapping[str, Recipe]) -> dict[str, int]:
    """Return the steps on the longest chain from each model down to a leaf, its own included."""
    longest: dict[str, int] = {}
    for name in reversed(list(recipes)):  # children stand after their parents
        below = [longest[child] for child in longest if recipes[child].parent == name]
        longest[name] = recipes[name].own_steps + max(below, default=0)
    return longest


def _run(missing: Mapping[str, Recipe], recipes: Mapping[str, Recipe], jobs: int, progress: Progress) -> None:
    """Train the missing models on `jobs` processes; the model with the longest chain below it first."""
    urgency = _longest_below(missing)
    waiting = sorted(missing, key=lambda name: -urgency[name])
    pending = set(missing)
    messages: queue.Queue[tuple[_Worker, dict[str, Any]]] = queue.Queue()
    workers: list[_Worker] = []
    again: set[str] = set()  # tried a second time
    faults: list[str] = []
    given_up: set[str] = set()

    def give_up(name: str, why: str) -> None:
        """Leave out a model, and what is made from it."""
        below = {other for other in pending if name in lineage(other, recipes)}
        given_up.update(below)
        pending.difference_update(below)
        waiting[:] = [other for other in waiting if other not in below]
        also = f"; {', '.join(sorted(below - {name}))} would be made from it" if len(below) > 1 else ""
        faults.append(why + also)
        progress.note(why)

    try:
        workers += [_Worker(messages) for _ in range(min(jobs, len(missing)))]
        while pending:
            for worker in workers:
                ready = [name for name in waiting if recipes[name].parent not in pending]
                if worker.name is None and ready:
                    waiting.remove(ready[0])
                    worker.start(ready[0], recipes)
            worker, message = messages.get()
            name = worker.name or "?"
            if "steps" in message:
                progress.at(name, message["steps"])
            elif "done" in message:
                worker.name = None
                pending.remove(name)
                progress.done(name, recipes[name].own_steps, folder_of(name, recipes))
            elif "failed" in message:
                worker.name = None
                give_up(name, message["failed"])
            else:
                worker.close()
                workers.remove(worker)
                if name in pending or not workers:  # one that was idle is not missed
                    workers.append(_Worker(messages))
                ended = f"the process that trained {name} {_how_it_ended(message['ended'])}"
                if name not in pending:
                    continue
                if name in again:
                    way_out = "the same command goes on with the models that are missing"
                    words = "" if message["ended"] < 0 else "its messages stand above, and "  # a killed one has none
                    give_up(name, f"{ended} twice; {words}{way_out}")
                    continue
                again.add(name)
                waiting.insert(0, name)
                progress.note(f"{ended}; it is tried once more")
        if faults:
            raise Unfinished(". ".join(faults), frozenset(given_up))
    finally:
        deadline = time.monotonic() + _SECONDS_TO_STOP
        for worker in workers:
            worker.close()
        for worker in workers:
            worker.wait(deadline)


def build(
    names: Iterable[str] | None = None,
    *,
    edition: str = "default",
    jobs: int = 2,
    progress: bool = True,
    recipes: Mapping[str, Recipe] | None = None,
) -> dict[str, Path]:
    """Make zoo models that are not there yet, with their ancestors.

    Parameters
    ----------
    names
        Models to make; all of the edition by default.
    edition
        Size of the zoo, see ``families.yml``.
    jobs
        Training processes at once, each on one thread.
    progress
        Whether to show the progress on standard error.
    recipes
        Recipes of another zoo, in place of the edition's.

    Returns
    -------
    dict
        Folder of each model asked for.

    Raises
    ------
    ZooError
        If a name is unknown, or a model learned nothing or went to NaN. Models finished before remain.
    ParameterError
        If the edition is unknown or `jobs` is not positive.
    """
    if jobs < 1:
        raise ParameterError(f"jobs must be at least 1, not {jobs}")
    recipes = families(edition) if recipes is None else in_order(recipes)
    chosen = [named(name, recipes).name for name in (recipes if names is None else names)]
    needed = {ancestor for name in chosen for ancestor in lineage(name, recipes)}
    folders = {name: folder_of(name, recipes) for name in recipes if name in needed}
    for name, folder in folders.items():
        if is_made(folder):
            card.refresh(folder, recipes[name])
    if missing := {name: recipes[name] for name in folders if not is_made(folders[name])}:
        bar = Progress(missing, progress)
        with bar.bar:
            bar.note(f"{len(missing)} of {len(folders)} models to train into {cache_dir() / 'zoo'}")
            if any(KINDS[recipe.kind].corpus for recipe in missing.values()):
                corpus.load()  # once, before the workers ask for it
            _run(missing, recipes, jobs, bar)
    return {name: folders[name] for name in chosen}


def locate(reference: str) -> Path:
    """Return the folder of ``name`` or ``name@edition``, trained on first use with its ancestors.

    A bare name means the edition in ``$PROVLAB_ZOO_EDITION``, or "default".

    Raises
    ------
    ZooError
        If the name is unknown (with its nearest neighbours), or the training failed.
    ParameterError
        If the edition is unknown.
    """
    name, _, edition = reference.partition("@")
    return build([name], edition=edition or default_edition())[name]


def status(edition: str = "default") -> dict[str, dict[str, Any] | None]:
    """Return all models of an edition, in the order of the tree, with the card of each that is made, else None."""
    recipes = families(edition)
    folders = {name: folder_of(name, recipes) for name in recipes}
    return {name: card.read(folder) if is_made(folder) else None for name, folder in folders.items()}
