"""False sentences do not come back, and facts that pages repeat are those of one table."""

import json
import re
from pathlib import Path

import pytest
from scipy import stats

from provlab import statistics
from provlab.statistics import flaws

ROOT = Path(__file__).resolve().parents[2]
# Each was in the book and false: its page, a part of it, and the fact that contradicts it.
FALSE = [
    ("notebooks/llama_tree", "the p-values of all other pairs pass a test of uniformity", "phi_MATCH did not"),
    ("src/provlab/report/comparison", "hide a common origin from phi_u, phi_h and phi_l2", "not from phi_l2"),
    ("notebooks/audit", "and $\\phi_U$ and $\\phi_H$ reject", "a framed order does not deceive phi_H"),
    ("notebooks/attack_lab", "That is what the null hypothesis says", "a student depends on its teacher"),
    ("notebooks/attack_lab", "unless somebody gives them the order", "an embedding frames as well"),
    ("notebooks/attack_lab", "An attack with an empty column of loss is exact", "losses below 0.005 are not printed"),
    ("notebooks/audit", "signs of up rows (T6-, `signs`)", "phi_MATCH withstands `signs`"),
    ("notebooks/pruning_forensics", "for longer than the parent hides it", "one block of six was lost"),
    ("notebooks/in_the_wild", "which is what MATCH with Spearman's law does", "phi_U loses permuted copies"),
    ("notebooks/in_the_wild", "public models of 1 to 70 billion", "BERT and GPT-2 have a tenth of one"),
    ("notebooks/mlp_retraining", "in some blocks (a dash)", "in three of four"),
    ("notebooks/mlp_retraining", "by a wide margin", "-15.4 at a bar of -12"),
    ("notebooks/exchangeability", "In the picture intervals are judged one by one", "they hold together"),
    ("src/provlab_study/exchangeability/claims.yml", '"exact, by Theorem 1"', "no theorem on fine-tunes"),
    ("notebooks/evasion", "A statistic without power has uniform", "phi_U leaves the band"),
    ("src/provlab/plots/pairs", "disagree with it (framed)", "framed means accused innocents"),
    ("notebooks/distillation", "and its width decides which", "the intervals overlap"),
    ("notebooks/power", "the computation agrees with simulation", "0.682 predicted, 0.741 measured"),
    ("notebooks/robust_null", "one pair of independent models is enough", "it is one draw a block"),
    ("book/index", "is known exactly", "by an approximation between floor and bulk"),
    ("book/index", "with its most similar partner", "an assignment has the largest sum"),
    ("book/reading_a_verdict", "independent models look like this all the time", "-1 comes once in ten"),
    ("book/two_papers", "take $\\phi_U$ and $\\phi_H$ their power", "T2 alone hides from phi_H"),
    ("notebooks/olmo_seeds", "and to $\\phi_{MATCH}$", "the paper's form rejects for one pair of 40"),
    # the definition of independence differed from page to page
    ("book/glossary", "trained from independent random initialisations", "a distilled student is not independent"),
    ("book/two_papers", "from random numbers that were drawn apart", "a distilled student is not independent"),
    ("book/symbols", "both were trained from independent random numbers", "a distilled student is not independent"),
    ("notebooks/attack_lab", "and stays silent", "posing frames phi_MATCH"),
    ("notebooks/audit", "stays silent", "posing frames phi_MATCH"),
    ("book/course/session_06", "stays silent", "posing frames phi_MATCH"),
    ("book/course/guide", "stays silent", "posing frames phi_MATCH"),
    ("book/how_to_read", "Every number in this book was computed", "sizes of tests are dated measurements"),
    ("book/index", "rather than the digits", "seven of 38 statuses differed"),
    ("README", "rather than the digits", "seven of 38 statuses differed"),
    ("README", "reproduces verdicts, not digits", "seven of 38 statuses differed"),
    ("notebooks/exchangeability", "The same holds for language models", "there raw distances separate"),
    ("notebooks/striped_hyena", "no other row of the table does so", "0.mlp.up by columns does"),
    ("notebooks/miqu", "fewer bits than it takes to identify one hidden unit", "found at 4 bits, lost at 3"),
    ("notebooks/plagiarism", "for no copy do the inputs of both models lie on one side of zero", "copies 1 and 3 do"),
    ("notebooks/plagiarism", "would be both marks right of the dotted line", "two copies have both marks there"),
    ("notebooks/attack_lab", "sizes['date'].max()", "33 of 58 rows were older"),
    ("notebooks/attack_lab", "may be counted fifty times", "that does not explain nine times the level"),
    ("notebooks/family_forest", "which models are neighbours", "rows decide 2 of 11 edges"),
    ("notebooks/family_forest", "Where a peer draws more true edges", "two peers did, and the sentence hid it"),
    ("notebooks/in_the_wild", "unless the tables below say so", "where nothing was fetched there is no table"),
    ("notebooks/attack_lab", "How robust is the null", "no chapter has this name"),
    ("book/course/session_09", "dependence has no direction", "Family forest gives directions"),
    ("book/course/guide", "dependence has no direction", "Family forest gives directions"),
    ("book/_assets/tester.js", "this page reads F32, F16 and BF16", "it reads F64 too"),
    ("book/course/session_02", "a correlation of one third already prints", "its p-value is 7e-284"),
    ("notebooks/matching_and_pvalues", "a correlation of one third already prints", "its p-value is 7e-284"),
    ("book/course/session_09", "a CKA seldom", "it accuses none of 500 independent pairs"),
    ("book/course/session_09", "accuses models of one text", "the CKA accuses none of 500 independent pairs"),
    ("book/course/session_10", "with a bar that was fixed beforehand", "23 of 45 claims hold post hoc"),
    ("notebooks/course/assignments/a6_audit_report", "by somebody who knows the base", "T2 is a random order"),
]
# Each was missing beside a table that is read wrongly without it.
NEEDED = [
    (
        "notebooks/matching_and_pvalues",
        "Two-sided t tail and one-sided law",
        "the columns differ by 0.3 for this reason",
    ),
    ("notebooks/matching_and_pvalues", 'shown.insert(4, "after Holm"', "one of the rows is small by chance"),
    ("notebooks/plagiarism", "beyond their intervals", "no case is one-sided, rather than few"),
    ("src/provlab_study/scoreboard/front_page", "all by Holm's correction", "Evasion also counts pair by pair"),
]


def words(page: str) -> str:
    """All text of a page or a module, with single spaces."""
    path = next(path for end in (".md", ".ipynb", ".py", "") if (path := ROOT / f"{page}{end}").is_file())
    text = path.read_text()
    if path.suffix == ".ipynb":
        text = "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize(("page", "part", "why"), FALSE)
def test_a_false_sentence_is_gone(page, part, why):
    assert part not in words(page), why


@pytest.mark.parametrize(("page", "part", "why"), NEEDED)
def test_a_table_says_how_it_is_read(page, part, why):
    assert part in words(page), why


def test_the_two_papers_name_what_hides_from_each_statistic():
    hides = {}
    for disguise in flaws.DISGUISES:
        for transformation in {name for name in disguise.shown if re.fullmatch(r"T\d", name)}:
            for statistic in disguise.fooled & {"phi_u", "phi_h"}:
                hides.setdefault(statistic, set()).add(transformation)
    sentence = re.search(r"Together they hide a copy.*?\. ", words("book/two_papers"))[0]
    by_u, by_h = sentence.split("against $\\phi_U$")
    assert set(re.findall(r"T\d", by_u)) == hides["phi_u"]
    assert set(re.findall(r"T\d", by_h)) == hides["phi_h"]


@pytest.mark.parametrize("page", ["book/course/session_02", "notebooks/matching_and_pvalues"])
def test_the_correlation_at_which_a_p_value_prints_as_zero(page):
    rho, units = float(re.search(r"a correlation of ([\d.]+) already", words(page))[1]), 11_008
    t = rho * ((units - 2) / (1 - rho**2)) ** 0.5
    assert stats.t.sf(t, units - 2) == 0.0
    assert stats.t.sf(t - 0.5, units - 2) > 0.0  # and not long before


PROSE = [
    page.relative_to(ROOT).with_suffix("").as_posix()
    for page in sorted([*(ROOT / "book").rglob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")])
]
# a sentence that defines independence by random numbers: a student of another's answers has random numbers of its own
BY_RANDOM_NUMBERS = re.compile(r"(?i)(independent (if|means)|H_0|it holds when)[^.]*random (numbers|initiali)[^.]*\.")


@pytest.mark.parametrize("page", PROSE)
def test_independence_is_not_defined_by_random_numbers_alone(page):
    for sentence in BY_RANDOM_NUMBERS.finditer(words(page)):
        assert "computed from" in sentence[0] or "independence" in sentence[0], sentence[0]


def test_the_definition_test_sees_the_four_old_sentences():
    old = (
        "Two models are independent if they were trained from independent random initialisations.",
        "Independent means: trained from random numbers that were drawn apart.",
        "It holds when each was started and trained with random numbers of its own.",
        "$H_0$: both were trained from independent random numbers.",
    )
    assert all(BY_RANDOM_NUMBERS.search(sentence) for sentence in old)


def test_every_test_of_the_library_is_defined_in_the_index_of_symbols():
    symbols = words("book/symbols")
    own = {entry.module for entry in statistics.REGISTRY.values() if entry.module.startswith("provlab.")}
    missing = {module for module in own if module not in symbols}
    assert not missing
