"""Assignments and labs of the course: what is graded, and that hidden tests stay hidden."""

import ast

import grading
import nbformat
import pytest
from nbgrader import utils

EVERY = grading.ASSIGNMENTS + grading.LABS

# For each notebook, wrong solutions that a student might write: what is answered, and the tests that this must fail.
PLANTS = {
    "a1_exchangeability": {
        "without the pair itself": (
            {"p_value": "def p_value(observed, copies):\n    return float(np.mean(np.asarray(copies) >= observed))"},
            {"p_value_seen", "p_value_hidden"},
        ),
        "ties for rejection": (
            {
                "p_value": "def p_value(observed, copies):\n"
                "    return float((1 + np.sum(np.asarray(copies) > observed)) / (len(copies) + 1))"
            },
            {"p_value_hidden"},
        ),
        "columns in the inverse order": (
            {
                "renumbered": "def renumbered(model, order):\n"
                "    back = np.argsort(order)\n"
                '    return {"gate": model["gate"][back], "up": model["up"][back], "down": model["down"][:, back]}'
            },
            {"renumbered_hidden"},
        ),
        "one pair again and again": (
            {
                "null_p_values": "def null_p_values(draw, n_pairs, rng):\n"
                "    p = permtest(closeness, draw(rng), draw(rng), Renumberings(), n_permutations=19, rng=rng).p\n"
                "    return np.full(n_pairs, p)"
            },
            {"null_hidden"},
        ),
        "all exchangeable": (
            {"exchangeable": "exchangeable = dict.fromkeys(range(8), True)"},
            {"exchangeable_hidden"},
        ),
    },
    "a2_matching_and_pvalues": {
        "products for cosines": ({"cosines": "def cosines(W1, W2):\n    return W1 @ W2.T"}, {"cosines_hidden"}),
        "partners the other way round": (
            {"recovered": "def recovered_order(shuffled, W1):\n    return matching.match(W1, shuffled).indices"},
            {"recovered_hidden"},
        ),
        "two-sided": (
            {
                "exact_p": """
def exact_p(found):
    n = len(found)
    middle = n * (n * n - 1) / 6
    away = [abs(sum((x - k) ** 2 for k, x in enumerate(p)) - middle) for p in itertools.permutations(range(n))]
    return np.mean(np.array(away) >= abs(sum((x - k) ** 2 for k, x in enumerate(found)) - middle))
"""
            },
            {"exact_p_seen", "exact_p_hidden"},
        ),
        "a floor that overflows": (
            {"floor": "def log10_floor(n):\n    return math.log10(1 / math.prod(map(float, range(1, n + 1))))"},
            {"floor_hidden"},
        ),
        "the paper's form for the law": (
            {"phi_u": "def phi_u(W1, W2):\n    return pvalues.spearman(matching.match(W1, W2).indices).paper_log10_p"},
            {"phi_u_seen", "phi_u_hidden"},
        ),
    },
    "a3_many_tests": {
        "through doubles": (
            {"fisher": "def fisher(log10_p):\n    return np.log10(stats.combine_pvalues(10 ** np.array(log10_p))[1])"},
            {"fisher_hidden"},
        ),
        "Holm in sorted order": (
            {
                "holm": """
def holm(log10_p):
    values = np.sort(log10_p)
    return np.minimum(np.maximum.accumulate(values + np.log10(np.arange(len(values), 0, -1))), 0.0)
"""
            },
            {"holm_hidden"},
        ),
        "false alarms by test": (
            {
                "false_alarms": """
def false_alarms(adjust, m, n_studies, level, rng):
    studies = np.log10(rng.uniform(size=(n_studies, m)))
    return np.mean([adjust(study) <= math.log10(level) for study in studies])
"""
            },
            {"false_alarms_seen", "false_alarms_hidden"},
        ),
        "the smallest without a price": (
            {
                "sizes": """
def sizes(log10_p, level):
    by_fisher = pvalues.fisher(log10_p, axis=1)
    return np.mean(by_fisher <= math.log10(level)), np.mean(np.min(log10_p, axis=1) <= math.log10(level))
"""
            },
            {"sizes_seen", "sizes_hidden"},
        ),
        "no chains": (
            {
                "families": """
def families(names, rejected):
    found = [{name} for name in names]
    for a, b in rejected:
        found = [family for family in found if not family & {a, b}] + [{a, b}]
    return sorted(found, key=len, reverse=True)
"""
            },
            {"families_hidden"},
        ),
    },
    "a4_robust_matching": {
        "down multiplied too": (
            {
                "disguised": """
def disguised(model, order, scale):
    rows = {name: model[name][order] for name in ("gate", "up")}
    return {"gate": rows["gate"], "up": rows["up"] * scale[:, None], "down": model["down"][:, order] * scale}
"""
            },
            {"disguised_seen", "disguised_hidden"},
        ),
        "the scale of the old unit": (
            {
                "disguised": """
def disguised(model, order, scale):
    scaled = {"gate": model["gate"], "up": model["up"] * scale[:, None], "down": model["down"] / scale}
    return {name: weights[:, order] if name == "down" else weights[order] for name, weights in scaled.items()}
"""
            },
            {"disguised_hidden"},
        ),
        "up against the identity twice": (
            {
                "tests": """
def phi_u(first, second):
    return pvalues.spearman(matching.match(first["up"], second["up"]).indices).log10_p
phi_match = phi_u
"""
            },
            {"tests_hidden"},
        ),
        "up against itself": (
            {
                "tests": """
def phi_u(first, second):
    return pvalues.spearman(matching.match(first["up"], second["up"]).indices).log10_p
def phi_match(first, second):
    ups = matching.match(first["up"], second["up"]).indices
    return pvalues.spearman(ups, ups).log10_p
"""
            },
            {"tests_seen", "tests_hidden"},
        ),
        "all survives": (
            {"survives": "survives = {name: True for name in range(6)}"},
            {"survives_hidden"},
        ),
        "an allowance for each side": (
            {
                "allowed": """
def allowed(a, b, allowance, rng):
    return pvalues.log10_p_allowing(a, b, 2 * int(allowance * len(a)) % len(a), rng=rng)
def size(allowance, level, n_pairs, rng):
    found = [allowed(*common_units(rng), allowance, rng) for _ in range(n_pairs)]
    return float(np.mean(np.array(found) <= np.log10(level)))
"""
            },
            {"allowed_hidden"},
        ),
    },
    "a5_density_of_states": {
        "the sum for the mean": (
            {
                "nll": """
def nll(model, tokens):
    start, following = model
    return -np.log(start)[tokens[:, 0]] - np.log(following)[tokens[:, :-1], tokens[:, 1:]].sum(axis=1)
"""
            },
            {"nll_seen", "nll_hidden"},
        ),
        "rows and columns exchanged": (
            {
                "nll": """
def nll(model, tokens):
    start, following = model
    logs = np.log(start)[tokens[:, 0]] + np.log(following)[tokens[:, 1:], tokens[:, :-1]].sum(axis=1)
    return -logs / tokens.shape[1]
"""
            },
            {"nll_seen", "nll_hidden"},
        ),
        "one more in each bin": (
            {"density": "def density(losses, edges):\n    return np.log10(np.histogram(losses, edges)[0] + 1)"},
            {"density_seen", "density_hidden"},
        ),
        "an empty bin is a warning": (
            {"density": "def density(losses, edges):\n    return np.log10(np.histogram(losses, edges)[0])"},
            {"density_hidden"},
        ),
        "the length of this space for every length": (
            {"log_weight": "def log_weight(losses, length):\n    return 6 * np.asarray(losses) - np.log(len(losses))"},
            {"log_weight_hidden"},
        ),
        "ties counted as agreement": (
            {
                "terms": """
def terms(nll_a, nll_b, z):
    d = nll_a - nll_b
    own_a, own_b = ((z[0] <= nll) & (nll <= z[1]) for nll in (nll_a, nll_b))
    kinds = [own_a & (d < 0), own_a & (d >= 0), own_b & (d <= 0), own_b & (d > 0)]
    return np.array([kind.sum() for kind in kinds]) / own_a.sum()
"""
            },
            {"terms_hidden"},
        ),
        "weights that overflow": (
            {
                "effective": "def effective(log_weights):\n"
                "    w = np.exp(log_weights)\n"
                "    return float(w.sum() ** 2 / (w**2).sum())"
            },
            {"effective_hidden"},
        ),
    },
    "a6_audit_report": {
        "a test that renumbering blinds": (
            {"plan": 'plan = {"primary": "phi_u", "level": 0.01, "control": (BASE, "zoo:elm@smoke")}'},
            {"plan_hidden"},
        ),
        "a control that is none": (
            {"plan": 'plan = {"primary": "phi_match", "level": 0.01, "control": (BASE, "zoo:oak-chat@smoke")}'},
            {"plan_hidden"},
        ),
        "judged by everything": (
            {
                "study": "frame = provlab.study(\n"
                '    [BASE, *SUSPECTS], statistics=["phi_u", "phi_match"], text=TEXT, progress=False\n'
                ").to_frame()"
            },
            {"study_hidden"},
        ),
        "not corrected": (
            {
                "verdicts": """
def verdicts(frame, base, primary, level):
    rows = frame[(frame["statistic"] == primary) & ((frame["a"] == base) | (frame["b"] == base))]
    words = {True: "not independent", False: "no evidence"}
    return {r.b if r.a == base else r.a: words[r.log10_p <= math.log10(level)] for r in rows.itertuples()}
"""
            },
            {"verdicts_hidden"},
        ),
        "a proof of independence": (
            {"sentences": "sentences = {k: k != 1 and k not in (5, 7) for k in range(8)}"},
            {"sentences_hidden"},
        ),
    },
}
SETTINGS = {"grade": False, "grade_id": "a", "locked": True, "schema_version": 3, "solution": False, "task": False}
GRADED = nbformat.from_dict({"nbgrader": SETTINGS | {"grade": True, "points": 1}})
CASES = [(path, name) for path in grading.ASSIGNMENTS for name in PLANTS.get(path.stem, ())]


def faults(notebook):
    """Faults of a notebook as a source for nbgrader."""
    result, ids = [], [grading.grade_id(cell) for cell in notebook.cells if grading.grade_id(cell)]
    if notebook.metadata.get("course", {}).get("week") not in (1, 2, 3, 4, 5):
        result.append("names no week")
    if len(ids) != len(set(ids)):
        result.append("two cells have one id")
    for cell in notebook.cells:
        name = grading.grade_id(cell) or cell.id
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count is not None):
            result.append(f"{name} has outputs")
        if ("BEGIN HIDDEN TESTS" in cell.source) > utils.is_grade(cell):
            result.append(f"{name} has hidden tests and no points")
        if ("BEGIN SOLUTION" in cell.source) != utils.is_solution(cell):
            result.append(f"{name} has a solution that is not marked as one, or none")
        if utils.is_grade(cell):
            if utils.is_solution(cell) or not cell.metadata.nbgrader.points:
                result.append(f"{name} cannot be graded by itself")
            elif isinstance(ast.parse(cell.source).body[-1], ast.Expr):
                result.append(f"{name} ends in a value, which nbgrader takes for points")
    return result


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_a_notebook_is_a_source_for_nbgrader(path):
    assert faults(grading.load(path)) == []


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda cells: cells[1].update(source="### BEGIN HIDDEN TESTS\n### END HIDDEN TESTS"), "no points"),
        (lambda cells: cells[1].update(source="### BEGIN SOLUTION\n### END SOLUTION"), "solution"),
        (lambda cells: cells[1].metadata.nbgrader.update(grade=True, points=0), "cannot be graded"),
        (
            lambda cells: cells[1].update(source="0.5") or cells[1].metadata.nbgrader.update(points=1, grade=True),
            "value",
        ),
        (lambda cells: cells[1].update(execution_count=1), "outputs"),
        (lambda cells: cells.append(cells[1]), "one id"),
        (lambda cells: None, "week"),
    ],
)
def test_faults_are_seen(spoil, message):
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# Title"),
            nbformat.v4.new_code_cell("x = 1", metadata={"nbgrader": dict(SETTINGS)}),
        ],
        metadata={"course": {"week": 6 if message == "week" else 1}},
    )
    spoil(notebook.cells)
    assert any(message in fault for fault in faults(notebook))


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_the_reference_solution_gets_full_marks(path):
    assert grading.grade(path) == grading.full_marks(path)


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_the_untouched_release_gets_none(path):
    assert set(grading.grade(path, untouched=True).values()) == {0}


@pytest.mark.parametrize(("path", "name"), CASES, ids=lambda part: getattr(part, "stem", part))
def test_a_wrong_solution_loses_the_marks_that_it_should(path, name):
    answers, lost = PLANTS[path.stem][name]
    full = grading.full_marks(path)
    assert grading.grade(path, answers) == {test: 0 if test in lost else points for test, points in full.items()}


@pytest.mark.parametrize("path", grading.ASSIGNMENTS, ids=lambda path: path.stem)
def test_three_wrong_solutions_are_tried(path):
    assert len(PLANTS[path.stem]) >= 3


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_nothing_hidden_is_handed_out_or_back(path):
    hidden = grading.hidden_lines(path)
    assert hidden
    for notebook in (grading.released(path), grading.feedback(path)):
        text = nbformat.writes(notebook)
        words = "\n".join(cell.source for cell in notebook.cells) + text
        assert "HIDDEN TESTS" not in words
        assert "BEGIN SOLUTION" not in words
        visible = {line.strip() for cell in notebook.cells for line in cell.source.splitlines()}
        assert not visible & set(hidden)
        assert not [line for line in hidden if line in words]
