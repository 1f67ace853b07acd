"""Workers of a study: processes of this machine, or any executor, such as a Dask cluster's.

Each job is handed out as a description (`provlab.engine.jobs`) and answered with results, which the caller writes
into the store as they come: one writer, and a crashed worker loses its current job.
"""

import multiprocessing
import signal
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext, suppress

from provlab import machine
from provlab.engine.jobs import Done, Job, Task, do
from provlab.engine.passes import ForwardPass
from provlab.errors import WorkerError
from provlab.processes import THREADS, end_with_parent, starting_with

BREAKDOWNS = 3  # in a row, with no job finished in between: then the next try would end the same way


@contextmanager
def processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes on this machine, spawned (never forked: torch and forks do not go together), which share its cores.

    They are ended in the middle of their jobs where an error leaves the context.
    """
    threads = str(max(1, machine.cores() // workers))
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)
    with starting_with(dict.fromkeys(THREADS, threads)):
        try:
            yield pool
            pool.shutdown()
        except BaseException:
            for process in list((getattr(pool, "_processes", None) or {}).values()):  # public from Python 3.14 on
                process.terminate()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _begin() -> None:
    """Begin as a worker: the parent handles Ctrl-C, and this process ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def completed(
    tasks: Sequence[Task], *, workers: int = 1, executor: Executor | None = None
) -> Generator[tuple[Task, Done], None, None]:
    """Hand out all passes and then all jobs, and yield each with its results as it comes.

    A breakdown of one of our processes is a breakdown of the standard library's whole pool, so that another one takes
    over what is left. An executor that the caller made is used as it is, and neither mended nor shut down.

    Raises
    ------
    WorkerError
        If workers die again and again; what came before is not lost.
    """
    left = dict(enumerate(tasks))
    breakdowns = 0
    while left:
        known = len(left)
        with processes(workers) if executor is None else nullcontext(executor) as pool:
            for kind in (ForwardPass, Job):
                wave = {i: task for i, task in left.items() if isinstance(task, kind)}
                for i, done in _handed_out(pool, wave):
                    yield left.pop(i), done
                if wave.keys() & left.keys():  # the pool broke
                    break
        breakdowns = 1 if len(left) < known else breakdowns + 1
        if left and (executor is not None or breakdowns > BREAKDOWNS):
            raise WorkerError(
                f"worker processes died {breakdowns} times in a row, the last at {left[min(left)].name}, and said "
                "nothing; most often the machine has too little memory (lower memory or workers), or a script that "
                'starts workers lacks if __name__ == "__main__"; what was finished is kept'
            )


def _handed_out(pool: Executor, tasks: dict[int, Task]) -> Iterator[tuple[int, Done]]:
    """Yield what becomes of each task, as it comes; nothing of those that were not finished when a pool broke.

    Raises
    ------
    WorkerError
        A cluster gave a task up.
    """
    futures: dict[Future[Done], int] = {}
    try:
        with suppress(BrokenExecutor):
            for i, task in tasks.items():
                futures[pool.submit(do, task)] = i
        for future in as_completed(futures):
            try:
                done = future.result()
            except BrokenExecutor:
                continue
            except Exception as error:
                if why := _given_up(error):
                    raise WorkerError(f"{tasks[futures[future]].name} was {why}; what was finished is kept") from error
                raise
            yield futures[future], done
    finally:
        for future in futures:
            future.cancel()


def _given_up(error: Exception) -> str | None:
    """Say why a cluster gave a task up; None for other errors."""
    if isinstance(error, CancelledError):
        return "cancelled: the scheduler has gone"
    if type(error).__module__.partition(".")[0] in ("distributed", "dask"):
        return f"given up by the cluster ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
    return None
