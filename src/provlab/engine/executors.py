"""Who does the pieces of a study: this process, or any executor (of this machine's `processes`, of a Dask cluster).

`completed` is the one loop. Each piece is handed out as a description (`provlab.engine.units`) and answered with
results, which the caller writes into the store as they come: one writer, and whoever dies loses only the piece in hand.
"""

from collections.abc import Container, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import replace

from provlab.engine.schedule import Pair
from provlab.engine.units import Done, PassTask, Task, UnitTask, do, results
from provlab.errors import WorkerError
from provlab.models.counting import Count
from provlab.statistics.base import Features, Model

BREAKDOWNS = 3  # in a row, with no piece finished in between: then the next try would end the same way


class Workers:
    """An executor that somebody else made: it is used as it is, and neither mended nor shut down.

    Parameters
    ----------
    executor
        Its workers must be able to import provlab and to open the models.

    Attributes
    ----------
    at_once : float
        Pieces that are handed out before the first is done.
    """

    at_once = float("inf")

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._futures: list[Future[Done]] = []

    def submit(self, task: Task) -> "Future[Done]":
        """Hand out one piece."""
        future = self.executor.submit(do, task)
        self._futures.append(future)
        return future

    def renew(self) -> bool:
        """Replace workers that broke down, if that is ours to do."""
        return False

    def finish(self) -> None:
        """Let go when all is done."""

    def stop(self) -> None:
        """Take back what nobody has begun."""
        for future in self._futures:
            future.cancel()


class InPlace(Workers):
    """One piece after the other in this process; each result is computed when it is asked for, and is there at once.

    Parameters
    ----------
    models
        Open already, by source.
    failed
        Statistic -> pairs that failed, growing as they do: they are not tried on further blocks.
    """

    at_once = 1

    def __init__(self, models: Mapping[str, Model], failed: Mapping[str, Container[Pair]]) -> None:
        self._models, self._failed = models, failed
        self._prepared: dict[tuple[str, str], Features] = {}

    def submit(self, task: Task) -> "Future[Done]":
        """Promise the results of one piece."""
        if isinstance(task, UnitTask):
            failed = self._failed[task.statistic]
            task = replace(task, pairs=tuple(pair for pair in task.pairs if pair not in failed))
            # what was prepared for other blocks is kept as long as its model is met
            met = {(task.statistic, source) for source in task.models}
            self._prepared = {key: features for key, features in self._prepared.items() if key in met}
        found = results(task, lambda reference: self._models[reference.source], self._prepared)
        future: Future[Done] = Future()
        future.set_result(Done(found, Count(), "this process"))
        return future

    def stop(self) -> None:
        """Nothing has begun that is not asked for."""


def completed(tasks: Sequence[Task], workers: Workers) -> Generator[tuple[Task, Done], None, None]:
    """Hand out all tasks and yield each with its results as it comes; a unit waits for the passes that it reads from.

    Parameters
    ----------
    tasks
        In the order in which they should be done.
    workers
        Who does them.

    Raises
    ------
    WorkerError
        If workers die again and again; what came before is not lost.
    """
    waiting = dict(enumerate(tasks))
    running: dict[Future[Done], int] = {}
    missing = {key for task in tasks if isinstance(task, PassTask) for key in task.features.values()}
    breakdowns = 0
    try:
        while waiting or running:
            lost: list[int] = []
            for i, task in list(waiting.items()):
                if len(running) >= workers.at_once:
                    break
                if isinstance(task, UnitTask) and not missing.isdisjoint(task.features.values()):
                    continue
                del waiting[i]
                try:
                    running[workers.submit(task)] = i
                except BrokenExecutor:
                    lost.append(i)
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                i = running.pop(future)
                try:
                    result = future.result()
                except BrokenExecutor:
                    lost.append(i)
                except (Exception, CancelledError) as error:
                    raise _explained(error, tasks[i]) from error
                else:
                    breakdowns = 0
                    yield tasks[i], result
                    if isinstance(tasks[i], PassTask):
                        missing -= set(tasks[i].features.values())
            if lost:
                wait(running)  # a broken pool fails all that it had, at once
                for future in [future for future in running if isinstance(_error(future), BrokenExecutor)]:
                    lost.append(running.pop(future))
                breakdowns += 1
                if breakdowns > BREAKDOWNS or not workers.renew():
                    raise WorkerError(
                        f"worker processes died {breakdowns} times in a row, the last at {tasks[min(lost)].place}, and "
                        "said nothing; most often the machine has too little memory (lower memory or workers), or a "
                        'script that starts workers lacks if __name__ == "__main__"; what was finished is kept'
                    )
                waiting = {i: tasks[i] for i in sorted({*lost, *waiting})}
    except BaseException:
        workers.stop()
        raise
    workers.finish()


def _error(future: "Future[Done]") -> BaseException | None:
    return None if future.cancelled() else future.exception()


def _explained(error: BaseException, task: Task) -> BaseException:
    """Turn what a cluster says of its own troubles into one line; a fault of the program stays what it is."""
    text = " ".join(str(error).split())[:200]
    if isinstance(error, CancelledError):
        return WorkerError(f"{task.place} was cancelled: the scheduler has gone; what was finished is kept")
    if type(error).__module__.partition(".")[0] in ("distributed", "dask"):
        return WorkerError(
            f"{task.place} was given up by the cluster ({type(error).__name__}: {text}); what was finished is kept"
        )
    return error
