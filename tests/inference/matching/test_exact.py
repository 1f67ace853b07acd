"""The fast way against scipy's solver on float64, in thousands of problems, and its certificate against planted faults.

Reference values: `scipy.optimize.linear_sum_assignment` on float64 similarities. Where several assignments are equally
good, objectives are compared and not indices.
"""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment

from provlab import machine
from provlab.inference import matching
from provlab.inference.matching import (
    assign,
    assignment,
    certificate,
    compiled,
    dependent,
    match,
    match_shuffled,
    polish,
)
from provlab.inference.matching.cosine import cosines, cosines_float64, error_bound, unit_rows

CASES = 2000  # of `assign` and of `match` each


def cosines_by_definition(A, B):
    A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    return (A / np.linalg.norm(A, axis=1)[:, None]) @ (B / np.linalg.norm(B, axis=1)[:, None]).T


def objective_by_scipy(similarity):
    rows, columns = linear_sum_assignment(similarity, maximize=True)
    return similarity[rows, columns].sum()


def objective_of(similarity, indices):
    small = similarity if similarity.shape[0] <= similarity.shape[1] else similarity.T
    assert sorted(set(indices.tolist())) == sorted(indices.tolist())
    assert len(indices) == small.shape[0]
    return small[np.arange(len(indices)), indices].sum()


SIMILARITIES = {
    "normal": lambda n, m, rng: rng.normal(size=(n, m)),
    "float32": lambda n, m, rng: rng.normal(size=(n, m)).astype(np.float32),
    "three values": lambda n, m, rng: rng.integers(0, 3, (n, m)),
    "int32": lambda n, m, rng: rng.integers(-1000, 1000, (n, m)).astype(np.int32),
    "int8": lambda n, m, rng: rng.integers(-100, 100, (n, m)).astype(np.int8),
    "bool": lambda n, m, rng: rng.random((n, m)) < 0.3,
    "constant": lambda n, m, rng: np.full((n, m), -2.5),
    "rank one": lambda n, m, rng: np.outer(rng.random(n), rng.random(m)),
    "rank one, signed": lambda n, m, rng: np.outer(rng.normal(size=n), rng.normal(size=m)).astype(np.float32),
    "equal rows": lambda n, m, rng: rng.normal(size=(1 + n // 3, m))[rng.integers(0, 1 + n // 3, n)],
    "distances on a line": lambda n, m, rng: -np.abs(rng.random((n, 1)) - rng.random(m)),
    "huge or small": lambda n, m, rng: rng.normal(size=(n, m)) * 10.0 ** rng.choice([-305, -30, 30, 306]),
    "nearly equal": lambda n, m, rng: 1 + 1e-12 * rng.normal(size=(n, m)),
    "a column that all want": lambda n, m, rng: rng.normal(size=(n, m)) + 100 * (np.arange(m) == 0),
}

ROWS = {
    "normal": lambda n, d, rng: rng.normal(size=(n, d)),
    "float32": lambda n, d, rng: rng.normal(size=(n, d)).astype(np.float32),
    "signs": lambda n, d, rng: np.sign(rng.normal(size=(n, d))),
    "equal rows": lambda n, d, rng: rng.normal(size=(1 + n // 3, d))[rng.integers(0, 1 + n // 3, n)],
    "one direction": lambda n, d, rng: rng.normal(size=(n, 1)) * np.ones((1, d)),
    "almost one direction": lambda n, d, rng: 1e-5 * rng.normal(size=(n, d)) + np.ones((1, d)),
    "heavy tails": lambda n, d, rng: np.exp(3 * rng.normal(size=(n, d))),
    "small integers": lambda n, d, rng: rng.integers(1, 4, (n, d)),
    "shared direction": lambda n, d, rng: rng.normal(size=(n, d)) + 5 * rng.normal(size=(n, 1)) * np.ones((1, d)),
    "float16": lambda n, d, rng: (rng.normal(size=(n, d)) + 0.01).astype(np.float16),
}


def shapes(rng):
    n, m = rng.integers(1, 60, 2)
    return (n, n) if rng.random() < 0.4 else (n, m)


@pytest.mark.parametrize("kind", SIMILARITIES)
def test_assign_is_as_good_as_scipy_and_certified(kind):
    rng = np.random.default_rng(1)
    for _ in range(CASES // len(SIMILARITIES) + 1):
        similarity = SIMILARITIES[kind](*shapes(rng), rng)
        result = assign(similarity)
        exact = similarity.astype(np.float64)
        scale = np.abs(exact).max() or 1.0
        assert objective_of(exact / scale, result.indices) == pytest.approx(
            objective_by_scipy(exact / scale), rel=0, abs=1e-12
        )
        assert result.certified
        assert 0 <= result.gap <= 1e-12 * scale


@pytest.mark.parametrize("kind", ROWS)
def test_match_is_as_good_as_scipy_on_float64_cosines(kind):
    rng = np.random.default_rng(2)
    for case in range(CASES // len(ROWS)):
        n, m = shapes(rng)
        d = int(rng.integers(1, 50))
        A, B = ROWS[kind](n, d, rng), ROWS["normal" if case % 3 == 0 else kind](m, d, rng)
        exact = cosines_by_definition(A, B)
        if unsigned := case % 5 == 0:
            exact = np.abs(exact)
        result = match_shuffled(A, B, seed=case, unsigned=unsigned) if case % 2 or unsigned else match(A, B)
        assert objective_of(exact, result.indices) == pytest.approx(objective_by_scipy(exact), rel=0, abs=1e-12)
        assert result.objective == pytest.approx(objective_of(exact, result.indices), rel=0, abs=1e-12)
        assert result.certified


@pytest.mark.parametrize(
    "kind", ["normal", "rank one", "rank one, signed", "three values", "a column that all want", "float32"]
)
@pytest.mark.parametrize("shape", [(700, 700), (300, 700), (1200, 1100)])
def test_larger_problems_where_lists_are_read_again(kind, shape):
    similarity = SIMILARITIES[kind](*shape, np.random.default_rng(3)).astype(np.float32)
    if kind.startswith("rank one") and shape[0] != shape[1]:
        similarity = similarity[:250, :300]  # scipy's solver takes long here, too
    result = assign(similarity)
    exact = similarity.astype(np.float64)
    assert result.objective == pytest.approx(objective_by_scipy(exact), rel=1e-12)
    assert result.certified


# The certificate ------------------------------------------------------------------------------------------------------


def solved(n, m, seed=4):
    similarity = np.random.default_rng(seed).normal(size=(n, m)).astype(np.float32)
    solution = assignment.solve(similarity)
    return similarity, solution.partners.astype(np.int64), solution.prices


@pytest.mark.parametrize("shape", [(50, 50), (30, 50), (1, 7), (1, 1)])
def test_the_certificate_of_an_optimum_closes(shape):
    similarity, indices, prices = solved(*shape)
    tolerance = certificate.tolerance(similarity[np.arange(len(indices)), indices], prices)
    assert abs(certificate.gap(similarity, indices, prices)) <= tolerance


@pytest.mark.parametrize("shape", [(50, 50), (30, 50)])
def test_a_planted_swap_is_caught(shape):
    similarity, indices, prices = solved(*shape)
    best = similarity[np.arange(len(indices)), indices].astype(float).sum()
    for i in range(len(indices) - 1):
        wrong = indices.copy()
        wrong[[i, i + 1]] = wrong[[i + 1, i]]
        lost = best - similarity[np.arange(len(wrong)), wrong].astype(float).sum()
        assert lost > 1e-4
        assert certificate.gap(similarity, wrong, prices) >= lost - 1e-12  # the gap never understates


@pytest.mark.parametrize("shape", [(50, 50), (30, 50)])
def test_a_planted_wrong_price_is_caught(shape):
    similarity, indices, prices = solved(*shape)
    for column in indices:
        wrong = prices.copy()
        wrong[column] += 3.0  # its row now prefers another
        assert certificate.gap(similarity, indices, wrong) > 0.1
        wrong[column] -= 6.0  # now others prefer it, or it is below zero where columns are left over
        assert certificate.gap(similarity, indices, wrong) > 0.1


def test_what_is_no_assignment_has_no_certificate():
    similarity, indices, prices = solved(5, 8)
    twice = indices.copy()
    twice[0] = twice[1]
    assert certificate.gap(similarity, twice, prices) == np.inf
    assert certificate.gap(similarity, indices + 8, prices) == np.inf
    assert certificate.gap(similarity, indices, np.where(np.arange(8) == indices[0], np.nan, prices)) == np.inf
    free = np.setdiff1d(np.arange(8), indices)[0]
    paid = prices.copy()
    paid[free] += 0.5  # a price on a column that nobody owns
    assert certificate.gap(similarity, indices, paid) >= 0.5 - 1e-12


def test_a_wrong_solver_is_not_certified(monkeypatch):
    honest = assignment.solve

    def swapped(similarity):
        solution = honest(similarity)
        solution.partners[[0, 1]] = solution.partners[[1, 0]]
        return solution

    monkeypatch.setattr("provlab.inference.matching.exact.assignment.solve", swapped)
    similarity = np.random.default_rng(5).normal(size=(40, 40)).astype(np.float32)
    result = assign(similarity)
    assert not result.certified
    lost = objective_by_scipy(similarity.astype(float)) - result.objective
    assert result.gap >= lost - 1e-9


# float32 and float64 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(60, 60), (40, 60)])
def test_polish_mends_what_float32_got_wrong(shape):
    """Each row stands near two others, equally near as far as float32 can tell: the better is wanted."""
    mended = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        base = rng.normal(size=(shape[0] // 2, 24))
        A = np.repeat(base, 2, axis=0) + 1e-5 * rng.normal(size=(shape[0], 24))
        B = np.concatenate([A, rng.normal(size=(shape[1] - shape[0], 24))])
        B = B + 1e-5 * rng.normal(size=B.shape)
        first, second = unit_rows(A), unit_rows(B)
        similarity = cosines(first, second)
        solution = assignment.solve(similarity)
        polished = polish.polish(similarity, solution, first, second)
        assert polished is not None
        exact = cosines_by_definition(A, B)
        best = objective_by_scipy(exact)
        assert objective_of(exact, polished.indices) == pytest.approx(best, rel=0, abs=1e-12)
        assert polished.certified
        mended += best - objective_of(exact, solution.partners) > 1e-12
    assert mended > 0 or shape[0] < shape[1]  # else the test would show nothing


def test_polish_mends_a_wrong_assignment_and_proves_no_wrong_price():
    rng = np.random.default_rng(6)
    first, second = (unit_rows(rows) for rows in rng.normal(size=(2, 30, 9)))
    similarity = cosines(first, second)
    honest = assignment.solve(similarity)
    wrong = assignment.Solution(np.roll(honest.partners, 1), honest.prices)
    assert_array_equal(polish.polish(similarity, wrong, first, second).indices, honest.partners)
    wrong = assignment.Solution(np.roll(honest.partners, 1), np.roll(honest.prices, 1))
    polished = polish.polish(similarity, wrong, first, second)
    assert polished is None or polished.gap > 0.1 or (polished.indices == honest.partners).all()


@pytest.mark.parametrize("shape", [(20, 30), (300, 300), (7, 1)])
def test_edges_above_a_floor_are_all_listed(shape):
    rng = np.random.default_rng(7)
    similarity = rng.integers(0, 9, shape).astype(np.float32)  # many stand at the floor
    prices, floors = rng.integers(0, 3, shape[1]).astype(float), rng.integers(3, 8, shape[0]).astype(float)
    starts, columns = certificate.above(similarity, prices, floors, similarity.size)
    for i, row in enumerate(similarity):
        expected = np.flatnonzero(row - prices > floors[i])
        assert sorted(columns[starts[i] : starts[i + 1]]) == expected.tolist()
    assert certificate.above(similarity, prices, floors, len(columns) - 1) is None


def test_the_error_bound_holds():
    rng = np.random.default_rng(8)
    for d in (1, 7, 300, 5000, 20_000):
        first, second = unit_rows(rng.normal(size=(30, d)) ** 3), unit_rows(rng.normal(size=(20, d)) ** 3)
        error = np.abs(cosines(first, second) - cosines_float64(first, second)).max()
        assert error < error_bound(d)


def test_long_rows_are_summed_by_parts_and_need_no_product_in_float64(monkeypatch):
    """As the columns of an embedding of 60,000 tokens: cosines spread by .004, and in one sum may be wrong as much."""
    monkeypatch.setattr(polish, "FEW_EDGES", 0)
    monkeypatch.setattr("provlab.inference.matching.exact.cosines_float64", None)
    A, B = np.random.default_rng(8).normal(size=(2, 200, 60_000)).astype(np.float32)
    result = match(A, B)
    assert result.certified
    assert result.objective == pytest.approx(objective_by_scipy(cosines_by_definition(A, B)), abs=1e-12)


# Dependent pairs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def tried(monkeypatch):
    monkeypatch.setattr("provlab.inference.matching.exact.WORTH_TRYING", 0)


@pytest.mark.parametrize("noise", [0.01, 0.5, 1.0])
@pytest.mark.parametrize("unsigned", [False, True])
def test_a_noisy_copy_is_matched_without_most_of_the_product(tried, noise, unsigned):
    rng = np.random.default_rng(9)
    A = rng.normal(size=(400, 512)).astype(np.float32) * rng.uniform(0.3, 3, 512).astype(np.float32)
    kept, order = rng.permutation(400)[:300], rng.permutation(400)
    B = A[kept] + noise * rng.normal(size=(300, 512)).astype(np.float32)
    if unsigned:
        B *= rng.choice([-1, 1], 300).astype(np.float32)[:, None]
    first, second = unit_rows(B), unit_rows(A)
    result = dependent.distinct_best(first, second, order=order, unsigned=unsigned)
    assert result is not None
    assert_array_equal(order[result[0]], kept)
    exact = np.abs(cosines_by_definition(B, A)) if unsigned else cosines_by_definition(B, A)
    assert_allclose(result[1], exact.max(axis=1), rtol=1e-13)
    chosen = dependent.columns_worth_taking(first, second, unsigned)
    assert len(chosen) < 256
    assert match_shuffled(B, A, seed=0, unsigned=unsigned).certified


def test_a_row_that_is_almost_one_column_keeps_what_it_has_beside_it(tried):
    """Its entry there rounds to 1, and the root of what is missing is a thousand times the rounding: by hand."""
    n, k = 200, 31
    rng, shared = np.random.default_rng(0), np.ones(31) / 31**0.5
    Z = rng.normal(size=(n, k))
    Z -= np.outer(Z @ shared, shared)
    B = np.zeros((n + 1, 512))
    B[:n, 1 : k + 1] = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    A = B[:n].copy()
    A[:, 0] = 0.5
    A[0], B[0] = 0, 0
    A[0, 0], A[0, 1 : k + 1], A[0, -1] = 1, 1.5e-4 * shared, 1.8e-4
    B[0, -1], B[n, 1 : k + 1] = 1, shared  # cosines of 1.8e-4 and 1.5e-4 with the row
    A, B = A.astype(np.float32), B.astype(np.float32)
    result = match(A, B)
    assert result.certified
    assert result.indices[0] == 0
    assert result.objective == pytest.approx(objective_by_scipy(cosines_by_definition(A, B)), abs=1e-12)


def test_independent_pairs_and_rows_that_want_the_same_column_are_declined(tried):
    rng = np.random.default_rng(10)
    A, B = rng.normal(size=(2, 400, 512)).astype(np.float32)
    assert dependent.distinct_best(unit_rows(A), unit_rows(B)) is None
    copy = A + 0.1 * B
    assert dependent.distinct_best(unit_rows(A), unit_rows(copy)) is not None
    A[7] = A[8]  # rows 7 and 8 now want the same column
    assert dependent.distinct_best(unit_rows(A), unit_rows(copy)) is None
    result = match(A, copy)
    assert result.certified
    assert result.objective == pytest.approx(objective_by_scipy(cosines_by_definition(A, copy)), abs=1e-12)


def test_a_partner_hidden_in_the_columns_left_out_is_found(tried):
    """One row's partner shares nothing with it in the columns of high energy: only the bound can tell."""
    rng = np.random.default_rng(11)
    A = rng.normal(size=(400, 512))
    A[:, :16] *= 8.0
    B = A + 0.05 * rng.normal(size=A.shape)
    A[5, :16] = B[5, :16] = 0.0
    B[5, 16:] = A[5, 16:]
    result = dependent.distinct_best(unit_rows(A), unit_rows(B))
    assert result is not None
    assert_array_equal(result[0], np.arange(400))


# Compiling, threads, memory maps --------------------------------------------------------------------------------------


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)


def test_nothing_is_compiled_at_import():
    run("import sys, provlab.inference.matching; assert 'numba' not in sys.modules")


def test_where_numba_cannot_be_imported_scipy_solves_with_one_notice():
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import numpy as np\n"
        "from provlab.inference.matching import assign, match\n"
        "rows = np.random.default_rng(0).normal(size=(9, 5))\n"
        "found = [match(rows, rows[::-1]), assign(rows), match(rows, rows)]\n"
        "assert found[0].indices.tolist() == list(range(9))[::-1]\n"
        "assert not any(one.certified for one in found)\n"
    )
    notices = [line for line in run(code).stderr.splitlines() if "Warning" in line]
    assert len(notices) == 1
    assert "numba cannot be imported" in notices[0]


def test_told_not_to_compile_the_answers_are_the_same(monkeypatch):
    rng = np.random.default_rng(12)
    A, B = rng.normal(size=(40, 12)), rng.normal(size=(55, 12))

    def result():
        signs = (match_shuffled(A, B, seed=1, unsigned=unsigned) for unsigned in (False, True))
        return [match(A, B), match(B, A), *signs, assign(A @ B.T)]

    fast = result()
    monkeypatch.setenv("PROVLAB_NO_COMPILE", "1")
    matching._notice.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="PROVLAB_NO_COMPILE") as notices:
            slow = result()
        assert len(notices) == 1
    finally:
        monkeypatch.undo()
        matching._notice.cache_clear()
    for item, other in zip(fast, slow, strict=True):
        assert_array_equal(item.indices, other.indices)
        assert item.objective == pytest.approx(other.objective, rel=1e-13)
        assert (item.certified, other.certified, other.gap) == (True, False, np.inf)


def test_where_no_cache_can_be_written_kernels_are_compiled_all_the_same(monkeypatch):
    real = compiled.numba.njit

    def without_cache(cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return real(**options)

    monkeypatch.setattr(compiled.numba, "njit", without_cache)

    @compiled.kernel()
    def twice(x):
        return 2 * x

    assert twice(21) == 42


def test_where_no_lock_can_be_made_it_goes_without(monkeypatch, tmp_path):
    blocked = tmp_path / "a file"
    blocked.touch()
    monkeypatch.setenv("PROVLAB_CACHE", str(blocked / "below"))
    with matching._one_at_a_time():
        pass


@pytest.mark.parametrize("value", ["1", "2", "3"])
def test_threads_change_nothing(monkeypatch, value):
    monkeypatch.setenv("NUMBA_NUM_THREADS", value)
    assert machine.threads() == int(value)
    monkeypatch.setattr(compiled, "ENTRIES", 1000)
    rng = np.random.default_rng(13)
    A, B = rng.normal(size=(200, 30)), rng.normal(size=(230, 30))
    result = match(A, B)
    assert result.certified
    assert result.objective == pytest.approx(objective_by_scipy(cosines_by_definition(A, B)), abs=1e-12)


def test_memory_maps_and_what_cannot_be_written_are_read(tmp_path):
    rng = np.random.default_rng(14)
    A = rng.normal(size=(30, 8)).astype(np.float32)
    np.save(tmp_path / "a.npy", A)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_array_equal(match(mapped, A[::-1]).indices, np.arange(30)[::-1])
        assert_array_equal(match(A, unit_rows(mapped)).indices, np.arange(30))
        assert assign(np.load(tmp_path / "a.npy", mmap_mode="r")).certified


@pytest.mark.parametrize("module", [assignment, polish], ids=lambda module: module.__name__)
def test_kernels_call_kernels_of_their_own_file_alone(module):
    """A cached caller would not notice that a kernel of another file has changed."""
    kernels = [result for result in vars(module).values() if isinstance(result, Dispatcher)]
    assert kernels
    assert {result.py_func.__module__ for result in kernels} == {module.__name__}


def test_all_modules_of_kernels_are_looked_at():
    folder = Path(assignment.__file__).parent
    using = {path.stem for path in folder.glob("*.py") if "\n@kernel(" in path.read_text(encoding="utf-8")}
    assert using == {"assignment", "polish"}
