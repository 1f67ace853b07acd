"""A device gives the results of the CPU, and one that is too coarse is found out.

torch on the CPU stands for a GPU: its sums are taken in another order than numpy's.
"""

import threading
import time
import weakref
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

import provlab
from provlab import machine, studying
from provlab.arrays import of, on
from provlab.engine import jobs
from provlab.engine.device import _Multiply, product_on
from provlab.engine.jobs import _Waiting
from provlab.errors import InputError, NotComparableError
from provlab.inference import pvalues
from provlab.inference.matching import match_shuffled, multiplied_by
from provlab.inference.matching.cosine import elsewhere
from provlab.statistics.phi_u import PhiU
from provlab.statistics.two_views import grouped


def pairs(n):
    """Pairs of matrices: independent, noisy copies, of unequal sizes, with equal rows, with zeros, of few values."""
    rng = np.random.default_rng(0)
    for k in range(n):
        rows, more, columns = rng.integers(2, 60), rng.integers(0, 20), rng.integers(2, 40)
        a = rng.standard_normal((rows, columns), np.float32)
        b = rng.standard_normal((rows + more, columns), np.float32)
        kind = k % 6
        if kind == 1:
            b[:rows] = a[rng.permutation(rows)] + 0.3 * b[:rows]
        elif kind == 2:
            a[rows // 2 :] = a[: rows - rows // 2]
        elif kind == 3:
            a[:, columns // 2 :] = 0
            a[:, 0] += 1
        elif kind == 4:
            a, b = np.sign(a), np.sign(b)
        elif kind == 5:
            b[:rows] = -a
        yield a, b


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("summed", [4096, 16], ids=["at once", "by parts"])
def test_the_matching_is_that_of_the_cpu(unsigned, summed, monkeypatch):
    for module in ("engine.device", "inference.matching.cosine"):
        monkeypatch.setattr(f"provlab.{module}.SUMMED", summed)
    for k, (a, b) in enumerate(pairs(200)):
        here = match_shuffled(a, b, seed=k, unsigned=unsigned)
        with multiplied_by(_Multiply("cpu")):
            there = match_shuffled(a, b, seed=k, unsigned=unsigned)
        assert there.certified
        assert there.objective == pytest.approx(here.objective, abs=1e-9)
        if k % 6 not in (2, 4):  # where rows are equal, several matchings are as good
            same = there.indices == here.indices
            if k % 6 == 5 and len(a) == len(b):  # similarities are symmetric: each cycle is as good the other way round
                same |= there.indices == np.argsort(here.indices)
            assert same.all()
            assert pvalues.spearman(there.indices) == pvalues.spearman(here.indices)


def test_a_study_on_another_device_finds_the_same(models, monkeypatch):
    devices = []

    def on(name):
        devices.append(name)
        return _Multiply("cpu")

    def records():
        names = ["phi_u", "phi_match", "phi_match_unsigned"]
        sources = [models["base"], models["tuned"], models["other"]]
        return studying.study(sources, statistics=names, text="a b c " * 999, progress=False).records

    here = records()
    monkeypatch.setattr(jobs, "product_on", on)
    there = records()
    assert set(devices) == {"cpu"}
    for ours, theirs in zip(here, there, strict=True):
        assert ours.error is None
        assert theirs.outcome.log10_p == ours.outcome.log10_p


@pytest.fixture
def three_threads(as_device, monkeypatch):
    monkeypatch.setattr(machine, "threads", lambda: 3)
    return as_device


#: all that is computed where the models run, by the names of the functions
THERE = {
    *("wrote", "near_pairs", "shares", "sum_of_squares", "squared"),  # canonical form, and what units write
    *("_gram", "jensen_shannon", "_given"),
    *("_cosines", "beside"),  # of two embeddings, and of one that is turned
}


def test_a_comparison_on_a_device_says_what_one_on_the_cpu_says(models, text, three_threads, monkeypatch):
    names = ["phi_u", "phi_h", "phi_match", "phi_match_unsigned", "phi_l2", "phi_l2_blocks", "phi_jsd", "stream_score"]

    def compared(other):
        return provlab.compare(models["base"], other, statistics=names, text=text, progress=False)

    for other in ("tuned", "other"):
        there = compared(models[other])
        with monkeypatch.context() as patch:
            patch.setattr("provlab.arrays.at_home", lambda device: True)
            patch.setattr(jobs, "product_on", product_on)
            here = compared(models[other])
        assert there.verdict() == here.verdict()
        for ours, theirs in zip(here.records, there.records, strict=True):
            assert (theirs.statistic, theirs.error) == (ours.statistic, ours.error)
            if ours.outcome is not None:
                assert theirs.outcome.log10_p == ours.outcome.log10_p
                assert theirs.outcome.value == pytest.approx(ours.outcome.value, rel=1e-5, abs=1e-7)
    assert three_threads >= THERE


def by_phi_u(models, *names):
    sources = [models[name] for name in names]
    return studying.study(sources, statistics=["phi_u"], text="-", progress=False).records


def test_assignments_of_several_blocks_go_on_side_by_side(models, three_threads, monkeypatch):
    """Each comparison waits until all three blocks are compared: one after the other, none would end."""
    before, real, meeting = by_phi_u(models, "base", "tuned"), PhiU.compare_block, threading.Barrier(3)

    def compare_block(self, a, b, block, options):
        meeting.wait(timeout=60)
        return real(self, a, b, block, options)

    monkeypatch.setattr(PhiU, "compare_block", compare_block)
    (record,) = by_phi_u(models, "base", "tuned")
    assert record.error is None
    assert record.outcome == before[0].outcome
    assert [block.block for block in record.outcome.blocks] == [0, 1, 2]


def test_pairs_of_one_block_go_on_side_by_side_once_the_first_has_shown_its_memory(models, three_threads, monkeypatch):
    names = ("base", "tuned", "other")
    before, real, meeting, alone = by_phi_u(models, *names), PhiU.compare_block, threading.Barrier(2), []
    running = []

    def compare_block(self, a, b, block, options):
        if threading.current_thread() is threading.main_thread():
            alone.append((block, len(running)))
            return real(self, a, b, block, options)
        running.append(block)
        meeting.wait(timeout=60)
        time.sleep(0.3)
        running.remove(block)
        return real(self, a, b, block, options)

    monkeypatch.setattr(PhiU, "compare_block", compare_block)
    records = by_phi_u(models, *names)
    assert [record.outcome for record in records] == [record.outcome for record in before]
    assert alone == [(0, 0), (1, 0), (2, 0)]


def test_what_fails_in_a_thread_is_said_as_ever(models, three_threads, monkeypatch):
    real = PhiU.compare_block

    def compare_block(self, a, b, block, options):
        if block == 1:
            raise NotComparableError("they do not compare")
        return real(self, a, b, block, options)

    monkeypatch.setattr(PhiU, "compare_block", compare_block)
    (record,) = by_phi_u(models, "base", "tuned")
    assert record.error == "they do not compare"


@pytest.mark.parametrize(("room", "most"), [(10**9, 3), (3 * 2 * 100, 2), (1, 1)])
def test_so_many_run_side_by_side_as_fit_into_memory(room, most):
    """Each holds three times the 100 bytes of its features."""
    waiting, running, peak, lock = _Waiting(), 0, 0, threading.Lock()
    waiting.room = room

    def work():
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        time.sleep(0.2)
        with lock:
            running -= 1

    results = [waiting.begin(work, 100) for _ in range(3)]
    assert [result() for result in results] == [None] * 3
    assert peak == most


def test_a_device_holds_one_similarity_at_a_time(monkeypatch):
    inside, most = [], []

    @contextmanager
    def using_device(device):
        inside.append(device)
        most.append(len(inside))
        time.sleep(0.05)
        yield
        inside.pop()

    monkeypatch.setattr(machine, "using_device", using_device)
    unit = np.eye(4, dtype=np.float32)
    threads = [machine.Beside(partial(_Multiply("cpu"), unit, unit)) for _ in range(3)]
    assert all(np.array_equal(thread.result(), unit) for thread in threads)
    assert most == [1, 1, 1]


def test_a_comparison_that_is_done_holds_nothing():
    features = np.zeros(3)
    held = weakref.ref(features)
    done = machine.Beside(partial(np.sum, features))
    del features
    assert done.result() == 0
    assert held() is None


def test_groups_of_like_gates_are_looked_for_on_a_device(as_device):
    gate = np.random.default_rng(0).standard_normal((90, 300), np.float32)
    gate[40:60] = -gate[:20] + 0.1 * gate[60:80]
    in_groups = grouped(gate, of)
    assert np.flatnonzero(in_groups).tolist() == [*range(20), *range(40, 60)]
    as_device.clear()
    assert np.array_equal(grouped(gate, on("cpu")), in_groups)
    assert "near_pairs" in as_device


def test_the_cpu_multiplies_as_ever():
    assert product_on("cpu") is None
    assert product_on("cuda:0") is not None


def test_a_product_of_less_precision_is_refused(monkeypatch):
    """TF32 keeps 10 of 23 bits: its error is thousands of times what the certificate allows for."""
    import torch

    real = torch.from_numpy
    monkeypatch.setattr(torch, "from_numpy", lambda rows: real(rows).bfloat16().float())
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((30, 64), np.float32) for _ in range(2))
    with multiplied_by(_Multiply("cpu")), pytest.raises(InputError, match="more than float32 allows"):
        match_shuffled(a, b, seed=0)


def test_a_product_without_numbers_is_refused(monkeypatch):
    """NaN is neither above a bound nor below it."""
    import torch

    real = torch.from_numpy
    monkeypatch.setattr(torch, "from_numpy", lambda rows: real(rows) * torch.nan)
    a = np.random.default_rng(1).standard_normal((30, 64), np.float32)
    with multiplied_by(_Multiply("cpu")), pytest.raises(InputError, match="more than float32 allows"):
        match_shuffled(a, a, seed=0)


def test_a_device_that_is_not_there_is_one_line():
    a = np.eye(3, dtype=np.float32)
    with multiplied_by(_Multiply("cuda:99")), pytest.raises(InputError, match="device 'cuda:99' cannot be used"):
        match_shuffled(a, a, seed=0)


def test_a_product_ends_with_its_context():
    with multiplied_by(product := _Multiply("cpu")):
        assert elsewhere() is product
        with pytest.raises(ValueError), multiplied_by(None):  # noqa: PT011, PT012 - an error ends it as well
            assert elsewhere() is None
            raise ValueError
        assert elsewhere() is product
    assert elsewhere() is None
