"""Workers that are processes of this machine."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import ProcessPoolExecutor as Pool
from contextlib import contextmanager

from provlab import machine
from provlab.engine.executors import Workers
from provlab.engine.units import Done, Task


class Processes(Workers):
    """Processes on this machine, started afresh (never forked: torch and forks do not go together).

    The machine's cores are divided among them. A breakdown of one is a breakdown of the standard library's whole pool,
    which is then made anew.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._threads = max(1, machine.cores() // workers)
        super().__init__(self._pool())

    def _pool(self) -> Pool:
        return Pool(self._workers, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)

    def submit(self, task: Task) -> "Future[Done]":
        """Hand out one piece; processes start with the first pieces, and with few threads each."""
        with _environment(dict.fromkeys(machine.THREADS, str(self._threads))):
            return super().submit(task)

    def renew(self) -> bool:
        """Make the pool anew."""
        self.executor.shutdown(wait=False, cancel_futures=True)
        self.executor = self._pool()
        return True

    def finish(self) -> None:
        """End the processes, which have nothing left to do."""
        self.executor.shutdown()

    def stop(self) -> None:
        """End the processes, whatever they are at."""
        processes = list((getattr(self.executor, "_processes", None) or {}).values())  # public from Python 3.14 on
        for process in processes:
            process.terminate()
        self.executor.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """Begin as a worker: Ctrl-C is for whoever leads, and with that process this one ends too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    leader = multiprocessing.parent_process()
    if leader is not None:

        def follow() -> None:
            leader.join()
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
