"""Workers of a study: processes of this machine, or any executor, such as a Dask cluster's.

Each piece is handed out as a description (`provlab.engine.tasks`) and answered with results, which the caller writes
into the store as they come: one writer, and a crashed worker loses its current piece.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager

from provlab import machine
from provlab.engine.tasks import Done, PassTask, Task, do
from provlab.errors import WorkerError

BREAKDOWNS = 3  # in a row, with no piece finished in between: then the next try would end the same way


class Workers:
    """An executor that the caller made: it is used as it is, and neither mended nor shut down.

    Parameters
    ----------
    executor
        Its workers must be able to import provlab and to open the models.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def submit(self, task: Task) -> "Future[Done]":
        """Hand out one piece."""
        return self.executor.submit(do, task)

    def renew(self) -> bool:
        """Replace workers that broke down, if this object started them."""
        return False

    def finish(self) -> None:
        """Let go when all is done."""

    def stop(self) -> None:
        """End in the middle of a study; pieces that are not begun are cancelled by the caller."""


class Processes(Workers):
    """Processes on this machine, spawned (never forked: torch and forks do not go together).

    The machine's cores are divided among them. A breakdown of one is a breakdown of the standard library's whole pool,
    which is then made again.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._threads = str(max(1, machine.cores() // workers))
        super().__init__(self._pool())

    def _pool(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._workers, mp_context=context, initializer=_begin)

    def submit(self, task: Task) -> "Future[Done]":
        """Hand out one piece; processes start with the first pieces, and with few threads each."""
        with _environment(dict.fromkeys(machine.THREADS, self._threads)):
            return super().submit(task)

    def renew(self) -> bool:
        """Make the pool again."""
        self.executor.shutdown(wait=False, cancel_futures=True)
        self.executor = self._pool()
        return True

    def finish(self) -> None:
        """End the processes, which have nothing left to do."""
        self.executor.shutdown()

    def stop(self) -> None:
        """End the processes in the middle of their pieces."""
        for process in list((getattr(self.executor, "_processes", None) or {}).values()):  # public from Python 3.14 on
            process.terminate()
        self.executor.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """Begin as a worker: the parent handles Ctrl-C, and this process ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Environment of processes that start within; what the user set himself stays."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def completed(tasks: Sequence[Task], workers: Workers) -> Generator[tuple[Task, Done], None, None]:
    """Hand out all passes and then all units, and yield each with its results as it comes.

    Raises
    ------
    WorkerError
        If workers die again and again; what came before is not lost.
    """
    passes = [task for task in tasks if isinstance(task, PassTask)]
    futures: dict[Future[Done], int] = {}
    breakdowns = 0
    try:
        for wave in (passes, [task for task in tasks if not isinstance(task, PassTask)]):
            left: dict[int, Task] = dict(enumerate(wave))
            while left:
                futures.clear()
                broken = False
                try:
                    for i, task in left.items():
                        futures[workers.submit(task)] = i
                except BrokenExecutor:
                    broken = True
                for future in as_completed(list(futures)):
                    i = futures[future]
                    try:
                        done = future.result()
                    except BrokenExecutor:  # a broken pool fails all that it had, at once
                        broken = True
                    except (Exception, CancelledError) as error:
                        raise _explained(error, left[i]) from error
                    else:
                        breakdowns = 0
                        yield left.pop(i), done
                breakdowns += broken
                if broken and (breakdowns > BREAKDOWNS or not workers.renew()):
                    raise WorkerError(
                        f"worker processes died {breakdowns} times in a row, the last at {left[min(left)].place}, and "
                        "said nothing; most often the machine has too little memory (lower memory or workers), or a "
                        'script that starts workers lacks if __name__ == "__main__"; what was finished is kept'
                    )
    except BaseException:
        for future in futures:
            future.cancel()
        workers.stop()
        raise
    workers.finish()


def _explained(error: BaseException, task: Task) -> BaseException:
    """Turn a cluster's own error into one line; a fault of the program stays what it is."""
    text = " ".join(str(error).split())[:200]
    if isinstance(error, CancelledError):
        return WorkerError(f"{task.place} was cancelled: the scheduler has gone; what was finished is kept")
    if type(error).__module__.partition(".")[0] in ("distributed", "dask"):
        return WorkerError(
            f"{task.place} was given up by the cluster ({type(error).__name__}: {text}); what was finished is kept"
        )
    return error
