"""A Dask cluster as an executor for a study, once it is known to give the same numbers."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib import metadata
from typing import Any

from provlab.errors import ParameterError, WorkerError

RETRIES = 2  # of a piece that ended in an error on a worker: another may be in better health
CONNECT = 10  # seconds for a scheduler to answer, and for a first worker to be there
#: what numbers may depend on: must be equal wherever the pieces of one study are done
VERSIONS = ("provlab", "numpy", "scipy", "numba", "torch", "transformers", "tokenizers")


def parse_resources(text: str | None) -> dict[str, float]:
    """``GPU=1,MEM=2`` as a mapping.

    Raises
    ------
    ParameterError
        If the text is anything else.
    """
    found: dict[str, float] = {}
    for part in text.split(",") if text else ():
        name, _, amount = part.partition("=")
        try:
            found[name.strip()] = float(amount)
        except ValueError:
            found[name.strip()] = -1.0
        if not name.strip() or not found[name.strip()] > 0:
            raise ParameterError(f"resources are a list such as GPU=1, not {text!r}")
    return found


@contextmanager
def cluster(
    address: str, *, resources: Mapping[str, float] | None = None, timeout: float | None = None, workers: int = 1
) -> Iterator[Executor]:
    """Connect to a Dask scheduler; an executor for `provlab.study`.

    Parameters
    ----------
    address
        ``tcp://host:port`` of the scheduler.
    resources
        What each piece needs of a worker, by name, such as ``{"GPU": 1}``; workers say what they have when they start.
    timeout
        Seconds for the scheduler to answer, and for workers to be there; 10 by default.
    workers
        How many to wait for; those that come later are used, too.

    Raises
    ------
    WorkerError
        If the scheduler cannot be reached, has no worker that fits, or one with other versions of what numbers depend
        on.
    """
    timeout = CONNECT if timeout is None else timeout
    try:
        from distributed import Client
    except ImportError as error:
        raise WorkerError("a scheduler needs Dask's distributed; install provlab[dask]") from error
    try:
        client = Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:  # among them TimeoutError
        raise WorkerError(f"no scheduler answers at {address}; start one by: dask scheduler") from error
    try:
        _check_workers(client, address, dict(resources or {}), timeout, workers)
        needs = {"resources": dict(resources)} if resources else {}
        executor = client.get_executor(pure=False, retries=RETRIES, **needs)
        try:
            yield executor
        finally:
            executor.shutdown(wait=False)
    finally:
        client.close()


def versions() -> dict[str, str]:
    """Versions, here, of what numbers may depend on."""
    found = {}
    for name in VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def _check_workers(client: Any, address: str, resources: dict[str, float], timeout: float, least: int) -> None:
    try:
        client.wait_for_workers(least, timeout=timeout)
    except TimeoutError as error:
        raise WorkerError(f"{address} has no workers; start some by: dask worker {address} --nthreads 1") from error
    workers = client.scheduler_info(n_workers=-1)["workers"]
    for name, amount in resources.items():
        if not any(worker["resources"].get(name, 0) >= amount for worker in workers.values()):
            offer = f"{name}={amount:g}"
            raise WorkerError(
                f"no worker of {address} offers {offer}; start one by: dask worker {address} --resources {offer}"
            )
    here = versions()
    try:
        found = client.run(versions)
    except (ImportError, AttributeError, OSError) as error:  # not there, or an older one
        raise WorkerError(f"a worker of {address} cannot import provlab ({error}); install the same there") from error
    for worker, there in found.items():
        for name, version in here.items():
            if there[name] != version:
                raise WorkerError(
                    f"worker {worker} has {name} {there[name]} and this machine {version}; numbers may depend on it, "
                    "so install the same on both"
                )
