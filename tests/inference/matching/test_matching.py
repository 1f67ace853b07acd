"""MATCH against enumeration, against float64, and against inputs that have no answer."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment

from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.inference.matching import assign, cosine, cosine_similarity, match, match_shuffled, unit_rows


def best_objective(similarity: np.ndarray) -> float:
    """Largest total over all injections of the smaller side, by trying them all."""
    small = similarity if similarity.shape[0] <= similarity.shape[1] else similarity.T
    rows = np.arange(small.shape[0])
    choices = itertools.permutations(range(small.shape[1]), small.shape[0])
    return max(float(small[rows, list(choice)].sum()) for choice in choices)


@given(h1=st.integers(1, 6), h2=st.integers(1, 6), seed=st.integers(0, 10_000), tied=st.booleans())
@settings(max_examples=60, deadline=None)
def test_assignment_is_the_best_of_all_injections(h1, h2, seed, tied):
    rng = np.random.default_rng(seed)
    similarity = rng.normal(size=(h1, h2))
    if tied:
        similarity = np.rint(similarity)
    result = assign(similarity)
    assert result.indices.dtype == np.int64
    assert result.indices.shape == (min(h1, h2),)
    assert len(set(result.indices.tolist())) == min(h1, h2)
    small = similarity if h1 <= h2 else similarity.T
    assert small[np.arange(min(h1, h2)), result.indices].sum() == pytest.approx(result.objective, abs=1e-12)
    assert result.objective == pytest.approx(best_objective(similarity), abs=1e-12)


@pytest.mark.parametrize(("h1", "h2"), [(40, 40), (25, 40), (40, 25)])
def test_a_shuffled_copy_is_matched_to_its_original(h1, h2):
    rng = np.random.default_rng(h1 * 100 + h2)
    large = rng.normal(size=(max(h1, h2), 12))
    kept = rng.permutation(max(h1, h2))[: min(h1, h2)]
    small = large[kept] * rng.uniform(0.1, 9.0, size=(kept.size, 1)) + 1e-3 * rng.normal(size=(kept.size, 12))
    result = match(small, large) if h1 <= h2 else match(large, small)
    assert_array_equal(result.indices, kept)
    assert result.objective == pytest.approx(kept.size, rel=1e-4)


def test_renumbering_either_side_renumbers_the_matching():
    """MATCH(pi W1, W2) = pi MATCH(W1, W2): what lets PERMTEST permute the matching instead (Theorem 2)."""
    rng = np.random.default_rng(3)
    W1, W2 = rng.normal(size=(2, 50, 20))
    p, q = rng.permutation(50), rng.permutation(50)
    matching = match(W1, W2).indices
    assert_array_equal(match(W1[p], W2).indices, matching[p])
    assert_array_equal(match(W1, W2[q]).indices, np.argsort(q)[matching])


def test_matching_of_independent_gaussians_is_a_uniform_permutation():
    """All 6 matchings of 3 rows equally often: chi-square below its 99.9% quantile (5 degrees)."""
    rng = np.random.default_rng(11)
    trials = 1200
    recorded = [tuple(match(*rng.normal(size=(2, 3, 4))).indices) for _ in range(trials)]
    counts = np.array([recorded.count(order) for order in itertools.permutations(range(3))])
    assert counts.sum() == trials
    assert ((counts - trials / 6) ** 2 / (trials / 6)).sum() < 20.5


def test_cosine_agrees_with_float64(monkeypatch):
    rng = np.random.default_rng(0)
    W1, W2 = rng.normal(size=(70, 33)), rng.normal(size=(45, 33))
    reference = (W1 @ W2.T) / np.outer(np.linalg.norm(W1, axis=1), np.linalg.norm(W2, axis=1))
    for block_rows in (1, 7, 45, 1024):
        monkeypatch.setattr(cosine, "WIDE", block_rows)
        similarity = cosine_similarity(W1, W2)
        assert similarity.dtype == np.float32
        assert_allclose(similarity, reference, atol=3e-7)


def test_torch_tensors_views_and_integers_are_read():
    rng = np.random.default_rng(4)
    W1, W2 = rng.normal(size=(2, 9, 6)).astype(np.float32)
    before = W1.copy()
    reference = match(W1, W2)
    assert_array_equal(W1, before)
    result = match(torch.from_numpy(W1), torch.from_numpy(np.ascontiguousarray(W2.T)).T)
    assert_array_equal(result.indices, reference.indices)
    assert result.objective == pytest.approx(reference.objective, rel=1e-6)
    assert_array_equal(match(np.eye(4, dtype=np.int8), np.eye(4)).indices, np.arange(4))


def test_one_row_one_column_and_duplicates():
    assert match([[2.0]], [[-3.0]]).objective == -1.0
    assert match([[1.0, 2.0]], [[0.0, 1.0], [2.0, 4.0], [1.0, 0.0]]).indices.tolist() == [1]
    assert match([[0.0, 1.0], [2.0, 4.0], [1.0, 0.0]], [[1.0, 2.0]]).indices.tolist() == [1]
    same = match(np.ones((5, 3)), np.ones((5, 3)))
    assert sorted(same.indices.tolist()) == list(range(5))
    assert same.objective == pytest.approx(5.0, rel=1e-6)


GOOD = np.eye(3)


@pytest.mark.parametrize(
    ("W1", "W2", "message"),
    [
        (np.ones(3), GOOD, "W1 has 1 dimensions"),
        (GOOD, np.ones((2, 3, 1)), "W2 has 3 dimensions"),
        (np.ones((0, 3)), GOOD, "W1 is empty"),
        (GOOD, np.ones((3, 0)), "W2 is empty"),
        (GOOD, np.ones((3, 4)), "W1 has 3 columns and W2 has 4"),
        ([[1.0, np.nan], [np.nan, np.inf]], np.eye(2), "W1 holds 2 NaN and 1 Inf"),
        (np.eye(2), [[1.0, -np.inf], [0.0, 1.0]], "W2 holds 0 NaN and 1 Inf"),
        (GOOD, [[1.0, 0, 0], [0, 0, 0], [0, 0, 0]], "W2 has 2 zero rows \\(the first is row 1\\)"),
        (GOOD + 1j, GOOD, "W1 has dtype complex128"),
        ([["a", "b", "c"]], GOOD, "W1 has dtype"),
        ([[1.0, 2.0], [3.0]], GOOD, "W1 is no numpy array"),
        (unit_rows(GOOD), unit_rows(np.eye(2)), "W1 has 3 columns and W2 has 2"),
        (torch.eye(3, dtype=torch.bfloat16), GOOD, "W1 is no numpy array"),
        (GOOD, torch.eye(3, requires_grad=True), "W2 is no numpy array"),
    ],
)
def test_what_cannot_be_matched_is_refused_by_name(W1, W2, message):
    with pytest.raises(InputError, match=message) as refused:
        match(W1, W2)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("similarity", [np.ones(3), np.ones((0, 2)), [[np.nan]], [[1.0, np.inf]]])
def test_similarities_without_an_assignment_are_refused(similarity):
    with pytest.raises(InputError, match="similarity"):
        assign(similarity)


@pytest.mark.parametrize(("h1", "h2"), [(30, 30), (20, 31), (31, 20), (1, 1)])
def test_without_ties_the_shuffled_match_is_the_match(h1, h2):
    rng = np.random.default_rng(7)
    W1, W2 = rng.normal(size=(h1, 12)), rng.normal(size=(h2, 12))
    plain, shuffled = match(W1, W2), match_shuffled(W1, W2, seed=3)
    np.testing.assert_array_equal(shuffled.indices, plain.indices)
    assert shuffled.objective == pytest.approx(plain.objective, rel=1e-12)


def test_equal_rows_do_not_look_like_a_common_origin():
    # one sign a row: two kinds of rows are left, and nearly every matching is as good as any other
    rng = np.random.default_rng(8)
    by_position, fooled, honest = [], [], []
    for _ in range(6):
        W1, W2 = (np.sign(rng.normal(size=(256, 1))) * np.ones((1, 16)) for _ in range(2))
        textbook = linear_sum_assignment(cosine_similarity(W1, W2), maximize=True)[1]
        by_position.append(pvalues.spearman(textbook).log10_p)
        fooled.append(pvalues.spearman(match(W1, W2).indices).log10_p)
        honest += [pvalues.spearman(match_shuffled(W1, W2, seed=seed).indices).log10_p for seed in range(20)]
    # the fault that is guarded against: a solver pairs equal rows by the order of both sides, scipy's more than ours
    assert by_position[0] < -30
    assert min(fooled) < -8
    assert min(honest) > -4


@pytest.mark.parametrize(("h1", "h2"), [(20, 20), (12, 20), (20, 12)])
def test_prepared_rows_are_taken_wherever_a_matrix_is(h1, h2):
    rng = np.random.default_rng(9)
    W1, W2 = rng.normal(size=(h1, 12)), rng.normal(size=(h2, 12)).astype(np.float32)
    first, second = unit_rows(W1), unit_rows(torch.from_numpy(W2))
    assert first.shape == W1.shape
    assert len(first) == h1
    assert unit_rows(first) is first
    assert first.rows is W1  # no copy: values that are equal in float32 are computed from it
    assert first.nbytes == first.unit.nbytes + 16 * h1
    assert_allclose(np.linalg.norm(first.unit, axis=1), 1.0, atol=1e-6)
    assert_allclose(first.lengths / first.scales, np.linalg.norm(W1, axis=1), rtol=1e-15)
    for x, y in ((first, second), (W1, second), (first, W2)):
        assert_array_equal(cosine_similarity(x, y), cosine_similarity(W1, W2))
        assert_array_equal(match(x, y).indices, match(W1, W2).indices)
        assert_array_equal(match_shuffled(x, y, seed=1).indices, match_shuffled(W1, W2, seed=1).indices)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("unsigned", [False, True])
def test_blocks_of_any_size_give_one_product(monkeypatch, shuffled, unsigned):
    monkeypatch.setattr(cosine, "WIDE", 30)
    rng = np.random.default_rng(2)
    A, B = rng.standard_normal((90, 32)), rng.standard_normal((101, 32))
    order = rng.permutation(101) if shuffled else None
    expected = (A / np.linalg.norm(A, axis=1)[:, None]) @ (B / np.linalg.norm(B, axis=1)[:, None]).T
    expected = expected if order is None else expected[:, order]
    result = cosine.cosines(unit_rows(A), unit_rows(B), order=order, unsigned=unsigned)
    assert_allclose(result, np.abs(expected) if unsigned else expected, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e-30, 1e30, 1e300, np.float32(1e-37), np.float32(1e37)])
def test_rows_whose_squares_overflow_or_vanish(scale):
    W = np.array([[3.0, -4.0], [0.0, 1.0]], dtype=np.asarray(scale).dtype)
    prepared = unit_rows(W * scale)
    assert_allclose(prepared.unit, [[0.6, -0.8], [0, 1]], rtol=1e-3 if scale < 1e-307 else 1e-6)
    assert np.isfinite(prepared.lengths).all()
    assert (prepared.lengths > 1e-16).all()
    assert_allclose(cosine_similarity(prepared, W), cosine_similarity(W, W), atol=1e-3 if scale < 1e-307 else 3e-7)
