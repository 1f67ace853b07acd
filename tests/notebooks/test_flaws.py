"""The find-the-flaw labs: the reference solution passes, and every planted wrong one fails where it should."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

ROOT = Path(__file__).parents[2]
LABS = {path.stem: path for path in sorted((ROOT / "notebooks" / "course" / "flaws").glob("*.ipynb"))}
ANSWERS = {"control": "test_control", "flaw": "test_flaw", "repaired": "test_repair"}  # a solution and its test
POINTS = {"test_control": 3, "test_flaw": 2, "test_repair": 5}
_SOLUTION = re.compile(r"^( *)### BEGIN SOLUTION\n.*?### END SOLUTION", re.DOTALL | re.MULTILINE)

# what a student might hand in: the cell and its code, beside the faulty analysis itself, which is tried in all labs
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


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Labs with torch ask for one thread."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Lab:
    """Code cells by their id, run in one namespace."""

    def __init__(self, name: str) -> None:
        notebook = nbformat.read(LABS[name], as_version=4)
        nbformat.validate(notebook)
        self.name, self.cells = name, notebook.cells
        self.code = {cell.id: cell.source for cell in self.cells if cell.cell_type == "code"}
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def run(self, cell: str, code: str | None = None) -> None:
        exec(compile(self.code[cell] if code is None else code, f"{self.name}/{cell}", "exec"), self.names)

    def fails(self, cell: str, code: str) -> None:
        """The test of a cell fails by an assertion when the cell holds this code."""
        self.run(cell, code)
        with pytest.raises((AssertionError, NotImplementedError)):
            self.run(ANSWERS[cell])


@pytest.mark.parametrize("name", LABS)
def test_a_lab_is_an_assignment_that_its_solution_passes_and_wrong_ones_fail(name: str) -> None:
    lab = Lab(name)
    graded = {cell.id: cell.metadata.nbgrader.points for cell in lab.cells if cell.metadata.nbgrader.grade}
    assert graded == POINTS
    assert all(cell.metadata.nbgrader.grade_id == cell.id for cell in lab.cells)
    assert all("### BEGIN HIDDEN TESTS" in lab.code[cell] for cell in graded)
    assert not any(cell.get("outputs") for cell in lab.cells)
    for cell in lab.code:  # full marks
        lab.run(cell)
    right = lab.names["flaw"]
    for cell in ANSWERS:  # untouched
        stub, n = _SOLUTION.subn(r"\1raise NotImplementedError", lab.code[cell])
        assert n >= 1
        if cell != "flaw":
            lab.fails(cell, stub)
            lab.run(cell)
    for letter in {"A", "B", "C", "D", None} - {right}:
        lab.fails("flaw", f"flaw = {letter!r}")
    lab.fails("repaired", "repaired = faulty")  # the flaw is still there
    lab.fails("control", "def control(*arguments): return 0.05")
    lab.run("control")
    for cell, code in WRONG[name].items():
        lab.fails(cell, code)
        lab.run(cell)


def test_the_list_names_every_lab() -> None:
    page = (ROOT / "book" / "course" / "flaws.md").read_text()
    assert len(LABS) == 10
    for name in LABS:
        assert page.count(f"`{name}`") == 1
        title = Lab(name).cells[0].source.splitlines()[0].removeprefix("# ")
        assert title in page
