"""False sentences do not come back, and facts that pages repeat are those of one table."""

import json
import re
from pathlib import Path

import pytest

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
    path = next(path for end in ("", ".md", ".ipynb", ".py") if (path := ROOT / f"{page}{end}").is_file())
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
