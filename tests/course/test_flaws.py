"""The find-the-flaw labs: wrong solutions lose the marks of what they got wrong, and no others.

That the reference solution gets full marks, the untouched release none, and that nothing hidden is handed out is tested
with the assignments.
"""

from pathlib import Path

import grading
import nbformat
import pytest

LIST = Path(__file__).parents[2] / "book" / "course" / "flaws.md"
POINTS = {"test_control": 3, "test_flaw": 2, "test_repair": 5}
TESTED_BY = {"control": "test_control", "flaw": "test_flaw", "repaired": "test_repair"}

# what a student might hand in, beside the faulty analysis as it was and a control that always says the same
WRONG = {
    "euclidean_matching": {
        "control": """def control(analysis, n_pairs=40, seed=0):  # nothing is disguised
    rng = np.random.default_rng(seed)
    models = [base(rng) for _ in range(n_pairs)]
    return float(np.mean([analysis(up, tuned(up, rng)) <= -3 for up in models]))""",
        "repaired": """def repaired(first, second):  # one factor for all rows
    return faulty(first / np.linalg.norm(first), second / np.linalg.norm(second))""",
    },
    "ties_by_position": {
        "repaired": """def repaired(first, second, rng):  # not put back
    return faulty(first, second[rng.permutation(len(second))], rng)""",
    },
    "p_of_zero": {
        "repaired": """def repaired(first, second, rng):  # valid, but cannot reach the level
    return float(np.log10((COPIES * 10 ** faulty(first, second, rng) + 1) / (COPIES + 1)))""",
    },
    "nan_dropped": {
        "repaired": """def repaired(first, second):  # right, but a block with a NaN goes by
    kept = [(a, b) for a, b in zip(first, second) if np.isfinite(a).all() and np.isfinite(b).all()]
    return pvalues.fisher([correlation_and_log10_p(a, b)[1] for a, b in kept])""",
    },
    "fisher_of_dependent": {
        "repaired": """def repaired(first, second):  # the best of six
    return min(log10_p(first[:, piece], second[:, piece]) for piece in PIECES)""",
    },
    "one_seed_twice": {
        "control": """def control(train, n_pairs=200, seed=0):  # of trained networks
    pairs = [(train(s, 20), train(s + 1, 20)) for s in range(0, 2 * n_pairs, 2)]
    return float(np.mean([log10_p(*pair) <= np.log10(LEVEL) for pair in pairs]))""",
        "repaired": "def repaired(seed, steps=100): return faulty(seed // 2, steps)",
    },
    "norm_cosines": {
        "repaired": "def repaired(first, second, rng): return bool(cosine(first, second) >= 0.999)",
    },
    "wrong_layer": {
        "repaired": """def repaired(model):  # hidden units, but of the first block
    with torch.inference_mode():
        return torch.relu(model[0].up(INPUTS)).numpy().T""",
    },
    "no_control_for_distillation": {
        "repaired": """def repaired(first, second, rng):  # valid, and blind to renumbered units
    return pvalues.spearman(match(first[0], second[0])).log10_p""",
    },
    "tuned_range": {
        "repaired": """def repaired(nll_a, nll_b, held_out, published):  # by one of the models
    z = tuple(np.quantile(nll_a[held_out], [0.05, 0.95]))
    return z, ratio(nll_a, nll_b, z)""",
    },
}


def marks(path: Path, answers: dict[str, str]) -> set[str]:
    """The tests that are lost; all others have full marks."""
    result = grading.grade(path, answers)
    assert set(result) == set(POINTS)
    assert all(points in (0, POINTS[test]) for test, points in result.items())
    return {test for test, points in result.items() if not points}


@pytest.mark.parametrize("path", grading.LABS, ids=lambda path: path.stem)
def test_the_flaw_left_in_is_caught(path: Path) -> None:
    assert grading.full_marks(path) == POINTS
    assert marks(path, {"repaired": "repaired = faulty"}) == {"test_repair"}


@pytest.mark.parametrize("path", grading.LABS, ids=lambda path: path.stem)
def test_a_wrong_control_another_name_and_half_a_repair_lose_their_marks(path: Path) -> None:
    right = next(cell.source for cell in grading.load(path).cells if cell.id == "flaw").split('flaw = "')[1][0]
    another = f"flaw = {min(set('ABCD') - {right})!r}"
    wrong = {"control": "def control(*arguments): return 0.05", "flaw": another} | WRONG[path.stem]
    assert marks(path, wrong) == {TESTED_BY[cell] for cell in wrong}


def test_the_list_names_every_lab_with_its_week_and_title() -> None:
    page = LIST.read_text()
    assert len(grading.LABS) == 10
    for path in grading.LABS:
        lab = nbformat.read(path, as_version=4)
        title = lab.cells[0].source.splitlines()[0].removeprefix("# ")
        assert f"| `{path.stem}` | {lab.metadata.course.week} | {title} |" in page
