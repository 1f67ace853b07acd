"""``provlab study --scheduler``: a Dask cluster as an executor, if its workers have the versions of this machine."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from provlab.errors import ParameterError, WorkerError

RETRIES = 2  # of a piece that ended in an error on a worker: another may be in better health
CONNECT = 10  # seconds for a scheduler to answer, and for a first worker to be there
#: packages that numbers may depend on: their versions must be equal wherever the pieces of one study are done
PACKAGES = ("provlab", "numpy", "scipy", "numba", "torch", "transformers", "tokenizers")


def parse_resources(text: str | None) -> dict[str, float]:
    """``GPU=1,MEM=2`` as a mapping.

    Raises
    ------
    ParameterError
        If the text is anything else.
    """
    parts = [part.partition("=") for part in text.split(",")] if text else []
    try:
        resources = {name.strip(): float(amount) for name, _, amount in parts}
    except ValueError:
        resources = {"": 0.0}
    if not all(name and amount > 0 for name, amount in resources.items()):
        raise ParameterError(f"resources are a list such as GPU=1, not {text!r}")
    return resources


@contextmanager
def cluster(address: str, resources: Mapping[str, float]) -> Iterator[Executor]:
    """Connect to the Dask scheduler at ``tcp://host:port``; each piece needs these `resources` of a worker.

    Raises
    ------
    WorkerError
        If the scheduler cannot be reached, has no worker that fits, or one with other versions.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise WorkerError("a scheduler needs Dask's distributed; install provlab[dask]") from error
    try:
        client = Client(address, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:  # among them TimeoutError
        raise WorkerError(f"no scheduler answers at {address}; start one by: dask scheduler") from error
    with client:
        _check_workers(client, address, resources)
        needs = {"resources": dict(resources)} if resources else {}
        yield client.get_executor(pure=False, retries=RETRIES, **needs)


def _check_workers(client: Any, address: str, resources: Mapping[str, float]) -> None:
    try:
        client.wait_for_workers(1, timeout=CONNECT)
    except TimeoutError as error:
        raise WorkerError(f"{address} has no workers; start some by: dask worker {address} --nthreads 1") from error
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    for name, amount in resources.items():
        if not any(worker["resources"].get(name, 0) >= amount for worker in workers):
            offer = f"{name}={amount:g}"
            raise WorkerError(
                f"no worker of {address} offers {offer}; start one by: dask worker {address} --resources {offer}"
            )
    versions = client.get_versions(packages=PACKAGES)
    for worker, there in versions["workers"].items():
        for name in PACKAGES:
            here, elsewhere = versions["client"]["packages"][name], there["packages"][name]
            if here != elsewhere:
                raise WorkerError(
                    f"worker {worker} has {name} {elsewhere or 'not installed'} and this machine {here}; "
                    "numbers may depend on it, so install the same on both"
                )
