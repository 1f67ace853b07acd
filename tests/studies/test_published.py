"""The papers' tables beside ours. Expected cells are copied by hand from Tables 1 and 5 of the paper."""

import numpy as np
import pandas as pd
import pytest

from provlab.studies.lineage import PUBLISHED, published_table
from provlab.studies.published import side_by_side

MIRRORS = {
    "zoo:a": "meta-llama/Llama-2-7b-hf",
    "zoo:b": "EleutherAI/llemma_7b",
    "zoo:c@smoke": "yahma/llama-7b-hf",
    "/folder/d": "lmsys/vicuna-7b-v1.5",
}
LLEMMA = ("Table 1", "Llama-2-7b-hf, llemma-7b", "a, b")
LLAMA_1 = ("Table 1", "Llama-2-7b-hf, llama-7b-hf", "a, c")


def row(a, b, statistic, value, log10_p, error=None):
    return {"a": a, "b": b, "statistic": statistic, "value": value, "log10_p": log10_p, "error": error}


@pytest.fixture(scope="module")
def table():
    rows = [
        row("zoo:b", "zoo:a", "phi_u", 0.9, -321.987),  # the other way round than published
        row("zoo:a", "zoo:b", "phi_jsd", np.exp(-3.25), np.nan),
        row("zoo:a", "zoo:b", "phi_l2", -7.0, -2.0),
        row("zoo:a", "zoo:b", "phi_h", np.nan, np.nan, "it would not run"),
        row("zoo:a", "zoo:c@smoke", "phi_u", 0.01, -0.25),
        row("zoo:a", "zoo:c@smoke", "phi_h", 0.01, -1.25),
    ]
    return side_by_side(pd.DataFrame(rows), MIRRORS)


def test_published_values_stand_in_their_own_columns(table):
    assert table.loc[LLAMA_1, ("log JSD", "published")] == "-11.10"
    assert table.loc[LLAMA_1, ("p of phi_l2", "published")] == "0.98"
    assert table.loc[LLAMA_1, ("phi_U", "published p")] == "0.60"
    assert table.loc[LLAMA_1, ("phi_H", "published p")] == "0.25"
    assert table.loc[LLAMA_1, ("related", "")] == "no"
    assert table.loc[LLEMMA, ("related", "")] == "yes"


def test_ours_come_from_the_pair_in_whose_place_they_stand(table):
    assert table.loc[LLEMMA, ("phi_U", "ours log10 p")] == "-322.0"
    assert table.loc[LLEMMA, ("log JSD", "ours")] == "-3.25"
    assert table.loc[LLEMMA, ("p of phi_l2", "ours")] == "0.01"
    assert table.loc[LLAMA_1, ("phi_U", "ours log10 p")] == "-0.2"


def test_what_was_not_run_stays_empty(table):
    assert table.loc[LLEMMA, ("phi_H", "ours log10 p")] == ""
    assert table.loc[LLAMA_1, ("log JSD", "ours")] == ""


def test_rows_whose_models_the_study_lacks_are_left_out(table):
    published = {(line["theta_1"], line["theta_2"]) for line in published_table("independence_table1")}
    shown = {tuple(name.split(", ")) for _, name, _ in table.index}
    assert shown & published == {("Llama-2-7b-hf", "llama-7b-hf"), ("Llama-2-7b-hf", "llemma-7b")} | (
        published & {("Llama-2-7b-hf", "vicuna-7b-v1.5")}
    )


def test_of_no_mirrored_model_the_table_is_empty():
    rows = [row("/x", "/y", "phi_u", 0.5, -1.0)]
    assert side_by_side(pd.DataFrame(rows), {}).empty


def test_every_row_of_tables_1_and_5_finds_its_models():
    """A name that no model of the tree answers to would drop its row without a word."""
    ids = [line["model_id"] for line in published_table("llama7b_tree")]
    pairs = pd.DataFrame([row(ids[0], ids[1], "phi_u", 0.5, -1.0)])
    lines = [line for name in (1, 5) for line in published_table(f"independence_table{name}")]
    assert len(side_by_side(pairs, {source: source for source in ids})) == len(lines)


def test_no_published_table_is_damaged():
    for path in PUBLISHED.iterdir():
        rows = published_table(path.name.removesuffix(".csv"))
        assert rows, path
        assert all(None not in line and None not in line.values() for line in rows), path
