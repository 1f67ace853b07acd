"""The papers' tables beside ours. Expected cells are copied by hand from Tables 1 and 5 of the paper."""

import numpy as np
import pandas as pd
import pytest

from provlab.report.lineage import published_parents
from provlab_study.llama_tree.side_by_side import side_by_side
from provlab_study.publishing.published import published_table

MIRRORS = {
    "zoo:a": "meta-llama/Llama-2-7b-hf",
    "zoo:b": "EleutherAI/llemma_7b",
    "zoo:c@smoke": "yahma/llama-7b-hf",
    "/folder/d": "lmsys/vicuna-7b-v1.5",
}
CAPTION = "Table 1: Llama-2-7b-hf (published) and a (ours) against others"


def row(a, b, statistic, value, log10_p, error=None):
    """One record; the paper's form of its p-value, which stands beside published ones, is what is given."""
    ours = log10_p if error or statistic == "phi_l2" else -0.125
    form = {"log10_p": ours, "paper_log10_p": log10_p}
    return {"a": a, "b": b, "statistic": statistic, "value": value, "error": error, **form}


@pytest.fixture(scope="module")
def tables():
    rows = [
        row("zoo:b", "zoo:a", "phi_u", 0.9, -321.987),  # the other way round than published
        row("zoo:a", "zoo:b", "phi_jsd", np.exp(-3.25), np.nan),
        row("zoo:a", "zoo:b", "phi_l2", -7.0, -2.0),
        row("zoo:a", "zoo:b", "phi_h", np.nan, np.nan, "it would not run"),
        row("zoo:a", "zoo:c@smoke", "phi_u", 0.01, -0.25),
        row("zoo:a", "zoo:c@smoke", "phi_h", 0.01, -1.25),
    ]
    return side_by_side(pd.DataFrame(rows), MIRRORS)


@pytest.fixture(scope="module")
def llama_1(tables):
    """The row of Llama 1, which the paper finds independent of Llama 2."""
    (result,) = [row for row in tables[CAPTION].to_dict("records") if row["published model"] == "llama-7b-hf"]
    return result


@pytest.fixture(scope="module")
def llemma(tables):
    """The row of Llemma, which descends from Llama 2."""
    (result,) = [row for row in tables[CAPTION].to_dict("records") if row["published model"] == "llemma-7b"]
    return result


def test_published_values_stand_in_their_own_columns(llama_1, llemma):
    assert llama_1["log JSD, published"] == "-11.10"
    assert llama_1["p of phi_l2, published"] == "0.98"
    assert llama_1["p of phi_U, published"] == "0.60"
    assert llama_1["p of phi_H, published"] == "0.25"
    assert (llama_1["related"], llemma["related"]) == ("no", "yes")


def test_ours_come_from_the_pair_in_whose_place_they_stand(llama_1, llemma):
    assert (llama_1["our model"], llemma["our model"]) == ("c", "b")
    assert llemma["ours, log10 p"] == "-322.0"
    assert llemma["ours"] == "-3.25"  # log JSD
    assert llemma["ours "] == "0.01"  # p of phi_l2
    assert llama_1["ours, log10 p"] == "-0.2"
    assert llama_1["ours, log10 p "] == "-1.2"  # phi_H


def test_what_was_not_run_stays_empty(llama_1, llemma):
    assert llemma["ours, log10 p "] == ""
    assert llama_1["ours"] == ""


def test_rows_and_tables_whose_models_the_study_lacks_are_left_out(tables):
    assert list(tables[CAPTION]["published model"]) == ["llama-7b-hf", "vicuna-7b-v1.5", "llemma-7b"]
    # Table 5 holds Vicuna 1.5 against the others
    others = [caption for caption in tables if caption != CAPTION]
    assert others == ["Table 5: vicuna-7b-v1.5 (published) and d (ours) against others"]
    assert "llemma-7b" in set(tables[others[0]]["published model"])


def test_of_no_mirrored_model_there_is_no_table():
    assert side_by_side(pd.DataFrame([row("/x", "/y", "phi_u", 0.5, -1.0)]), {}) == {}


def test_every_row_of_tables_1_and_5_finds_its_models():
    """A name that no model of the tree answers to would drop its row without a word."""
    ids = list(published_parents())
    pairs = pd.DataFrame([row(ids[0], ids[1], "phi_u", 0.5, -1.0)])
    result = side_by_side(pairs, {source: source for source in ids})
    for number, table in zip((1, 5), result.values(), strict=True):
        lines = published_table(f"independence_table{number}")
        assert len(table) == len(lines)
        assert len({line["theta_1"] for line in lines}) == 1  # which the caption names
