"""The kind of worker makes no difference: a study by processes or on a cluster, with a worker killed in the middle, has
the records and the stored units of the serial one, bit by bit.
"""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from provlab import machine, studying
from provlab.cli import cluster as dask
from provlab.cli.cluster import cluster, parse_resources
from provlab.engine import jobs, workers
from provlab.engine.memory import Budget
from provlab.engine.pairs import open_models, run_pairs
from provlab.engine.passes import FeatureCache, ForwardPass
from provlab.engine.store import Store
from provlab.engine.workers import completed
from provlab.errors import InputError, ParameterError, WorkerError
from provlab.reading.counting import counting
from provlab.statistics.options import Options

FREE = Budget(10**9, False, 0, 1)
STATISTICS = ["phi_u", "phi_h", "phi_match", "phi_l2"]
PATIENCE = 120  # seconds until a test gives up on another process


@pytest.fixture(scope="module")
def options(text):
    return Options(text=text, n_permutations=3, n_block_permutations=3, n_sequences=2, sequence_length=8)


@pytest.fixture(scope="module")
def serial(models, options, tmp_path_factory):
    """Records and files of the study done here."""
    store = Store(tmp_path_factory.mktemp("serial"))
    return run(models.values(), options, store), files(store)


def run(sources, options, store=None, statistics=STATISTICS, **settings):
    return run_pairs(open_models(list(sources)), statistics, options, store=store, progress=False, **settings)


def files(store):
    """Finished units: a killed writer leaves its piece under a hidden name, which nothing reads."""
    result = [path.relative_to(store.root) for path in store.root.rglob("*") if path.is_file()]
    return {path: (store.root / path).read_bytes() for path in result if not any(p.startswith(".") for p in path.parts)}


@pytest.fixture
def after_first(monkeypatch):
    """Let something happen as soon as one piece is done: passes and all units that wait for them are still to come."""

    def plant(happens):
        recorded = []

        def watched(pieces, **how):
            for task, done in completed(pieces, **how):
                if not recorded:
                    happens()
                recorded.append((task, done))
                yield task, done

        monkeypatch.setattr("provlab.engine.pairs.completed", watched)
        return recorded

    return plant


# Processes of this machine -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_processes_of_which_one_is_killed_make_the_same_records(
    models, options, serial, after_first, tmp_path, monkeypatch
):
    pools, made = [], workers.processes
    monkeypatch.setattr(workers, "processes", lambda n: pools.append(n) or made(n))
    recorded = after_first(lambda: multiprocessing.active_children()[0].kill())
    store = Store(tmp_path)
    few = ["phi_u", "phi_h"]
    with counting() as count:
        records = run(models.values(), options, store, few, workers=2)
    assert pools == [2, 2]  # the pool broke, and was made again
    assert records == [record for record in serial[0] if record.statistic in few]
    assert files(store).items() < serial[1].items()
    assert len(files(store)) == 2 * sum(len(record.keys) for record in records)
    assert len({done.worker for _, done in recorded} - {f"{socket.gethostname()}:{os.getpid()}"}) >= 2
    assert count.tensors == sum(done.count.tensors for _, done in recorded) > 0


def task(block=0):
    return jobs.Job("phi_u", (block,), (("a", "b"),), {}, {}, None, Options(), FREE)


class Frail(Executor):
    """Breaks at each piece but every so many, whichever pool it is."""

    def __init__(self, every):
        self.every, self.tries, self.pools = every, 0, 0

    def submit(self, function, /, *arguments, **settings):
        self.tries += 1
        if self.tries % self.every:
            raise BrokenExecutor("died")
        future = Future()
        future.set_result(jobs.Done((), jobs.Count(), "me"))
        return future

    @contextmanager
    def processes(self, workers):
        self.pools += 1
        yield self


@pytest.mark.parametrize(("every", "pools"), [(10**6, workers.BREAKDOWNS + 1), (workers.BREAKDOWNS, 8)])
def test_breakdowns_are_counted_anew_after_each_piece_that_is_finished(every, pools, monkeypatch):
    """Workers that die again and again end in one line; with a piece finished now and then, they are made again."""
    frail = Frail(every)
    monkeypatch.setattr(workers, "processes", frail.processes)
    pieces = completed([task(i) for i in range(4)], workers=2)
    if every == workers.BREAKDOWNS:
        assert len(list(pieces)) == 4
        assert frail.pools >= pools
    else:
        with pytest.raises(
            WorkerError, match=r"died 4 times in a row, the last at phi_u on block 0, .* is kept"
        ) as why:
            list(pieces)
        assert "\n" not in str(why.value)
        assert frail.pools == pools


def test_an_executor_that_breaks_is_not_ours_to_mend(models, options):
    with pytest.raises(WorkerError, match="died 1 times in a row"):
        run(models.values(), options, statistics=["phi_u"], executor=Frail(10**6))


def test_no_job_is_handed_out_before_all_passes_are_done(tmp_path):
    """An executor that breaks at the first pass, and mends itself: the job would find no features."""
    tried = []

    class Mending(ThreadPoolExecutor):
        def submit(self, function, task):
            tried.append(type(task))
            raise BrokenExecutor("died")

    a_pass = ForwardPass(jobs.Reference("a", "0"), {"phi_h": "key"}, FeatureCache(tmp_path, 0), Options(), FREE)
    with Mending(1) as executor, pytest.raises(WorkerError, match="the last at a pass of a"):
        list(completed([a_pass, task()], executor=executor))
    assert tried == [ForwardPass]


def test_any_executor_will_do(models, options, serial, tmp_path):
    with ThreadPoolExecutor(2) as threads:
        assert run(models.values(), options, Store(tmp_path), executor=threads) == serial[0]
    assert files(Store(tmp_path)) == serial[1]


def test_a_stopped_study_goes_on_and_runs_no_model_again(models, options, serial, after_first, tmp_path):
    """Features of passes lie beside the store until the study is done; what was finished is not handed out again."""
    store = Store(tmp_path)
    handed = []

    class Counting(ThreadPoolExecutor):
        def submit(self, function, task):
            handed.append(task)
            if len(handed) == 8:
                raise KeyboardInterrupt
            return super().submit(function, task)

    with Counting(1) as threads, pytest.raises(KeyboardInterrupt):
        run(models.values(), options, store, executor=threads)
    passed = [task for task in handed[:7] if isinstance(task, ForwardPass)]
    assert len(passed) == len(models)
    handed[:7], left = [], list((tmp_path / "features").iterdir())
    assert left
    handed.clear()
    handed += [None] * 8
    with Counting(1) as threads:
        assert run(models.values(), options, store, executor=threads) == serial[0]
    again = [task for task in handed[8:] if isinstance(task, ForwardPass)]
    assert sum(len(task.features) for task in again) == 2 * len(models) - len(left)
    assert not (tmp_path / "features").exists()
    assert files(store) == serial[1]
    handed.clear()
    with Counting(1) as threads:
        run(models.values(), options, store, executor=threads)
    assert handed == []


def test_failures_elsewhere_are_those_of_here(models, options, spoilt, tmp_path):
    """A damaged model is a record with its reason, the same from every worker."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(spoilt / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][5] = float("nan")
    save_file(tensors, spoilt / "model.safetensors", metadata={"format": "pt"})
    sources = [models["base"], str(spoilt), models["other"], str(tmp_path / "missing")]
    here = run(sources, options)
    with ThreadPoolExecutor(2) as threads:
        assert run(sources, options, executor=threads) == here
    assert {record.error is None for record in here} == {True, False}


def test_a_worker_with_other_weights_says_so(models, options):
    reference = jobs.Reference(models["base"], "0" * 64)
    piece = jobs.Job(
        "phi_u",
        (0,),
        ((models["base"], models["other"]),),
        {models["base"]: reference, models["other"]: jobs.Reference(models["other"], "0" * 64)},
        {},
        None,
        options,
        FREE,
    )
    ((_, failed),) = jobs.do(piece).results
    assert f"{models['base']} holds other weights on {socket.gethostname()} than where the study began" in str(failed)


def test_a_worker_that_does_not_see_the_features_says_so(models, options, tmp_path):
    sources = models["base"], models["other"]
    references = {m.checkpoint.source: m.checkpoint.digest for m in open_models(list(sources)).models.values()}
    piece = jobs.Job(
        "phi_h",
        (0,),
        (sources,),
        {source: jobs.Reference(source, digest) for source, digest in references.items()},
        dict.fromkeys(sources, "elsewhere"),
        FeatureCache(tmp_path, 0),
        options,
        FREE,
    )
    ((_, failed),) = jobs.do(piece).results
    assert f"the features of base are not in {tmp_path / 'elsewhere'}; let all workers see" in str(failed)


def test_a_fault_elsewhere_is_named_by_its_type(models, options, monkeypatch):
    from provlab.statistics.phi_u import PhiU

    monkeypatch.setattr(PhiU, "compare_block", lambda *_: [][0])
    with ThreadPoolExecutor(1) as threads:
        result = run(models.values(), options, statistics=["phi_u"], executor=threads)
    assert {record.error for record in result} == {"IndexError: list index out of range"}


def test_what_travels_is_small(models, options, monkeypatch):
    """A description of a unit weighs less than a thousandth of what it reads at full size; and no text where none is
    read."""
    import pickle

    sent = []

    class Weighing(ThreadPoolExecutor):
        def submit(self, function, task):
            sent.append((task, len(pickle.dumps(task))))
            return super().submit(function, task)

    with Weighing(1) as threads:
        run(models.values(), options, executor=threads)
    for piece, size in sent:
        reads_text = isinstance(piece, ForwardPass) or piece.statistic == "phi_match"
        assert size < 8000 + (len(options.text) if reads_text else 0)


def test_a_device_that_only_the_workers_have(models):
    with ThreadPoolExecutor(1) as threads:
        report = studying.study(list(models.values())[:2], statistics=["phi_u"], executor=threads, device="cuda:99")
    assert report.to_json()["parameters"]["device"] == "cuda:99"
    with pytest.raises(ParameterError, match="device 'cuda:99' cannot be used on this machine"):
        studying.study(list(models.values())[:2], statistics=["phi_u"], device="cuda:99")


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "2"])
def test_numbers_of_workers_that_are_none(workers, models, options):
    with pytest.raises(InputError, match="workers must be a whole number of at least 1"):
        run(models.values(), options, workers=workers)


def test_threads_are_divided_among_processes(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    with workers.processes(3):
        assert os.environ["OMP_NUM_THREADS"] == "2"
        assert os.environ["MKL_NUM_THREADS"] == "3"  # as the user has set it
    assert "OMP_NUM_THREADS" not in os.environ


# A Dask cluster ------------------------------------------------------------------------------------------------------

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def dask_cluster(tmp_path_factory):
    """A scheduler and two workers as processes of this machine: its address, and the workers' processes."""
    folder = tmp_path_factory.mktemp("dask")
    about = folder / "scheduler.json"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DASK_DISTRIBUTED__DASHBOARD__LINK": ""}
    started = []

    def start(command, *arguments):
        with (folder / f"{command}{len(started)}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_" + command, *arguments, "--no-dashboard"],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=folder,
            )
        started.append(process)
        return process

    try:
        start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(about))
        deadline = time.monotonic() + PATIENCE
        while not about.exists() or not about.read_text().strip():
            assert started[0].poll() is None, (folder / "scheduler0.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        address = json.loads(about.read_text())["address"]
        options = ["--no-nanny", "--nthreads", "1", "--resources", "GPU=1", "--local-directory", str(folder)]
        workers = [start("worker", address, "--host", "127.0.0.1", *options) for _ in range(2)]
        yield address, workers
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_dask_worker_killed_in_the_middle_costs_nothing_but_its_unit(
    models, options, serial, after_first, dask_cluster, tmp_path, monkeypatch
):
    address, (doomed, other) = dask_cluster
    monkeypatch.setattr(dask, "CONNECT", PATIENCE)
    with distributed.Client(address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=PATIENCE)
    recorded = after_first(doomed.kill)  # SIGKILL: it says no goodbye
    store = Store(tmp_path)
    with cluster(address, {"GPU": 1}) as executor:
        records = run(models.values(), options, store, executor=executor)
    assert doomed.wait(PATIENCE) == -signal.SIGKILL
    assert other.poll() is None
    assert records == serial[0]
    assert files(store) == serial[1]
    # what the other has done is more than what was handed to it at first
    assert sum(done.worker.endswith(f":{other.pid}") for _, done in recorded) >= len(recorded) - 2
    # and a resource that no worker has is refused instead of waited for
    refused = r"no worker of tcp://.* offers TPU=1; start one by: dask worker .*TPU=1"
    with pytest.raises(WorkerError, match=refused), cluster(address, {"TPU": 1}):
        pass


@pytest.mark.parametrize("address", ["nonsense", "tcp://", "spam://127.0.0.1:1", "127.0.0.1:x"])
def test_an_address_that_is_none(address, monkeypatch):
    monkeypatch.setattr(dask, "CONNECT", 0.5)
    with pytest.raises(WorkerError, match="no scheduler answers at"), cluster(address, {}):
        pass


def test_other_versions_are_refused():
    here = dict.fromkeys(dask.PACKAGES, "2.0")

    class Client:
        def wait_for_workers(self, *_, **__): ...

        def scheduler_info(self, **_):
            return {"workers": {}}

        def get_versions(self, **_):
            return {"client": {"packages": here}, "workers": {"tcp://w:1": {"packages": {**here, "torch": "1.0"}}}}

    with pytest.raises(WorkerError, match=r"worker tcp://w:1 has torch 1.0 and this machine 2.0; numbers may depend"):
        dask._check_workers(Client(), "tcp://s:1", {})


@pytest.mark.parametrize(
    ("text", "result"), [(None, {}), ("", {}), ("GPU=1", {"GPU": 1.0}), (" GPU=2, MEM=1e9", {"GPU": 2.0, "MEM": 1e9})]
)
def test_resources_are_read(text, result):
    assert parse_resources(text) == result


@pytest.mark.parametrize("text", ["GPU", "GPU=", "=1", "GPU=-1", "GPU=nan", "GPU=x", "GPU=1,,"])
def test_resources_that_are_none(text):
    with pytest.raises(ParameterError, match="resources are a list such as GPU=1"):
        parse_resources(text)
