"""One arithmetic of p-values: tails of distributions are taken in `provlab.inference.pvalues` and nowhere else.

The source is read with `ast`. Quantiles (``isf``, ``ppf``), of which intervals are made, are no tails.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import provlab

SRC = Path(provlab.__file__).parents[1]
HOME = "provlab.inference.pvalues"

SPECIAL = {
    *("bdtr", "bdtrc", "betainc", "betaincc", "betainccinv", "betaincinv", "btdtr", "chdtr", "chdtrc", "chdtri"),
    *("erf", "erfc", "erfcx", "fdtr", "fdtrc", "gammainc", "gammaincc", "gammainccinv", "gammaincinv", "gdtr", "gdtrc"),
    *("hyp2f1", "kolmogorov", "log_ndtr", "nbdtr", "ndtr", "pdtr", "pdtrc", "smirnov", "stdtr"),
}
METHODS = {"sf", "cdf", "logsf", "logcdf"}  # of whatever distribution, under whatever name
TESTS = {"binomtest", "combine_pvalues", "false_discovery_control", "kendalltau", "kstest", "pearsonr", "spearmanr"}

# what is neither Spearman's tail nor Fisher's
EXCEPTIONS = {
    "provlab_study.shared.calibration.bands": {
        "kstest",
        "sf",
        "cdf",
        "betaincinv",
    },  # KS and beta
    "provlab_study.shared.calibration.check": {"logsf"},  # binomial
    "provlab.inference.tail": {"log_ndtr"},  # of the saddlepoint formula
    "provlab.inference.evalues": {"gammainc"},  # 1 - p + p ln p without cancellation
    "provlab_study.evasion.predicates": {
        "kstest",
        "cdf",
    },  # KS against values below the uniform, and the range of uniforms
    "provlab_study.matching_and_pvalues.measure": {"binomtest"},  # of PERMTEST's counts, whose rate is the t tail's p
    "provlab_study.robust_null.common_units": {"sf", "ndtr"},  # a normal law about a shifted mean
    "provlab_study.power.planted": {"ndtr", "stdtr"},  # laws of similarities
    "provlab_study.plagiarism.measure": {"cdf"},  # the share of a normal law beyond zero
    "provlab.modeldiff.bootstrap": {
        "ndtr",
        "betaincinv",
    },  # percentiles of few chains; Clopper and Pearson
    "provlab.modeldiff.written": {"ndtr"},  # the share of a normal law beyond zero
    "provlab_study.power.blocks_needed": {"cdf"},  # a power, by the normal law
}


def _aliases(tree: ast.AST) -> dict[str, str]:
    """What the names that a file imports stand for."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {
                a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
                for a in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return known


def _dotted(node: ast.expr, known: dict[str, str]) -> str:
    """``scipy.stats.t.sf`` of ``stats.t(5).sf``."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, known)}.{node.attr}"
    if isinstance(node, ast.Call):
        return _dotted(node.func, known)
    return known.get(node.id, node.id) if isinstance(node, ast.Name) else "?"


def tails(path: Path) -> Iterator[str]:
    """Names of functions, used or imported by a file, that give tails."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    known = _aliases(tree)
    named = [_dotted(node, known) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    for full in [*named, *known.values()]:
        before, _, last = full.rpartition(".")
        special = last in SPECIAL and before in ("scipy.special", "math", "torch.special")
        if special or last in METHODS or (last in TESTS and before == "scipy.stats"):
            yield last


def elsewhere(root: Path) -> list[str]:
    """Uses outside of `HOME` that are no exception, and exceptions that nobody uses."""
    bad, unused = [], {(module, name) for module, names in EXCEPTIONS.items() for name in names}
    for path in sorted(root.rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for name in set(tails(path)) if module != HOME else ():
            if name not in EXCEPTIONS.get(module, set()):
                bad.append(f"{module} uses {name}; inference/pvalues.py has it, with an axis")
            unused.discard((module, name))
    return bad + [f"{module} has no {name} any more" for module, name in sorted(unused)]


def test_tails_are_taken_in_one_place():
    assert elsewhere(SRC) == []


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("from scipy import special\np = special.betainc(3, 0.5, q)\n", "betainc"),
        ("from scipy.special import chdtrc as upper\n", "chdtrc"),
        ("import scipy.special\nf = scipy.special.stdtr\n", "stdtr"),
        ("import scipy.special as sp\nf = sp.gammaincc\n", "gammaincc"),
        ("from scipy.stats import t\np = t.logsf(2.0, 5)\n", "logsf"),
        ("from scipy import stats\nlaw = stats.t(5)\np = law.sf(2.0)\n", "sf"),
        ("def p(x):\n    from scipy import stats\n    return stats.chi2(4).cdf(x)\n", "cdf"),
        ("from scipy import stats\np = stats.spearmanr(a, b).pvalue\n", "spearmanr"),
    ],
)
def test_a_planted_copy_is_seen(tmp_path, code, name):
    (tmp_path / "power.py").write_text(code, encoding="utf-8")
    assert f"power uses {name}; inference/pvalues.py has it, with an axis" in elsewhere(tmp_path)


def test_what_is_no_tail_is_no_fault(tmp_path):
    (tmp_path / "power.py").write_text(
        "from scipy import special, stats\nz = stats.t.isf(0.025, 5)\n", encoding="utf-8"
    )
    assert not [message for message in elsewhere(tmp_path) if message.startswith("power")]


def test_an_exception_that_nobody_uses_is_seen(tmp_path):
    assert "provlab_study.power.planted has no stdtr any more" in elsewhere(tmp_path)
