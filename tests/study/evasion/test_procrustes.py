"""Least squares against closed forms: an exact rotation, a square system, and the share of variance of random data."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from provlab.errors import InputError
from provlab_study.evasion import figures
from provlab_study.evasion.procrustes import ROWS, Alignment, Block, residuals, undo, undo_matched

RNG = np.random.default_rng(0)


def test_a_rotation_is_undone():
    X = RNG.standard_normal((40, 8))
    assert undo(X, 3 * X @ stats.ortho_group.rvs(8, random_state=1)) < 1e-12


def test_strangers_are_fitted_as_far_as_there_are_unknowns():
    """Projecting random Y onto d of n dimensions leaves sqrt(1 - d / n) of it; all of it is fitted where n = d."""
    X, Y = RNG.standard_normal((2, 400, 100))
    assert undo(X, Y) == pytest.approx(np.sqrt(1 - 100 / 400), abs=0.01)
    assert undo(X[:100], Y[:100]) < 1e-8


def test_shuffled_rows_are_put_in_order_by_what_they_answer():
    """Units that answer alike are found whatever basis they are written in; without that nothing is undone."""
    X, inputs = RNG.standard_normal((60, 8)), RNG.standard_normal((8, 100))
    order = RNG.permutation(60)
    Y = 2 * X[order] @ stats.ortho_group.rvs(8, random_state=2)
    answers = X @ inputs
    assert undo(X, Y) > 0.8
    assert undo_matched(X, Y, answers, answers[order], seed=0) < 1e-12
    stranger = RNG.standard_normal((60, 8))
    assert undo_matched(X, stranger, answers, stranger @ inputs, seed=0) > 0.5


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (np.ones((3, 2)), np.ones((2, 3)), "one shape"),
        (np.ones(3), np.ones(3), "one shape"),
        (np.full((3, 2), np.nan), np.ones((3, 2)), "finite"),
        (np.ones((3, 2)), np.zeros((3, 2)), "not zero"),
    ],
)
def test_bad_input_is_refused(X, Y, message):
    with pytest.raises(InputError, match=message):
        undo(X, Y)


def test_the_picture_says_which_groups_overlap():
    pairs = [["a", "b"], ["a", "c"], ["a", "d"]]
    undone = [
        Alignment("up", 2.7, pairs, [True, True, False], [0.8, 0.9, 0.85]),
        Alignment("embedding", 4.0, pairs[:2], [True, False], [0.0, 0.7]),
    ]
    drawn = figures.residuals(undone, caption="Undone.")
    assert drawn.caption == (
        "Undone. The groups overlap: up, 2.7. All dependent pairs lie below all others: embedding, 4."
    )


def test_with_a_row_for_each_column_any_two_models_are_aligned():
    """Two unrelated blocks, and one with itself in another basis: with more rows, only the latter is undone."""
    rng = np.random.default_rng(6)

    def block(d=8, h=24):
        shapes = {"up": (h, d), "value": (d, d), "embedding": (40, d), "folded_up": (h, d), "inputs": (d, 64)}
        arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        return Block(**arrays, gates=rng.normal(size=(h, 64)), tokens=np.arange(64))

    first, other = block(), block()
    basis = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    turned = replace(first, inputs=basis @ first.inputs, embedding=first.embedding @ basis)
    apart, alike = residuals(first, other), residuals(first, turned)
    assert [rows for what, rows in apart if what == "inputs of the MLP"] == list(ROWS)
    assert [rows for what, rows in apart if what == "embedding"] == list(ROWS[:-1])  # 40 tokens, 8 columns
    for what in ("embedding", "inputs of the MLP"):
        assert apart[what, 1.0] == pytest.approx(0.0, abs=1e-9)
        assert apart[what, 4.0] > 0.7
        assert alike[what, 4.0] == pytest.approx(0.0, abs=1e-9)
    assert apart["value projection", 1.0] == pytest.approx(0.0, abs=1e-9)
    names = {what for what, _ in residuals(first, replace(other, tokens=np.arange(1, 65)))}
    assert names == {"up projection", "value projection"}
