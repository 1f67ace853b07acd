"""What a reader sees of a comparison and a study: frames, text, HTML, JSON."""

import hashlib
import json
from dataclasses import replace
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from planted import comparison

import provlab
from provlab.engine.pairs import PairRecord
from provlab.engine.store import Store
from provlab.errors import ParameterError
from provlab.reading.checkpoint import Checkpoint
from provlab.report.family import LEVEL
from provlab.report.lineage import Lineage
from provlab.report.study_report import StudyReport
from provlab.report.views import Table
from provlab.statistics import USUAL
from provlab.statistics.options import Options
from provlab.statistics.results import Outcome

#: of so few units nothing in any order is rejected, so that all blocks are looked at, too
ASKED = (*USUAL, "phi_match_all", "phi_anchor")
WHOLE = {"phi_jsd", "phi_unseen", "phi_match_all"}  # statistics with one result of the whole models
SMALL = {"n_permutations": 99, "n_block_permutations": 99, "n_sequences": 8, "sequence_length": 32}


@pytest.fixture(scope="module")
def related(models, text):
    return provlab.compare(models["base"], models["tuned"], text=text, progress=False, seed=7, **SMALL)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def study(models, text, store, tmp_path_factory):
    """Four models that open and one that does not."""
    sources = [models["base"], models["tuned"], models["stranger"], models["other"], "/no/such/model"]
    return provlab.study(
        sources,
        statistics=["phi_u", "phi_h", "phi_jsd"],
        text=text,
        store=store,
        progress=False,
        n_sequences=2,
        sequence_length=8,
    )


class Tags(HTMLParser):
    """Fails on a tag that is never closed or closed out of order; keeps the text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.text = [], ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in ("img", "input", "br", "hr", "col"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass  # <img/> closes itself

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


# One pair ------------------------------------------------------------------------------------------------------------


def test_frame_of_a_comparison(related):
    frame = related.to_frame()
    assert list(frame.columns) == [
        *("statistic", "value", "log10_p", "floor", "paper_log10_p", "agree", "blocks", "error"),
        *("holm_log10_p", "adjusted_log10_p"),
    ]
    assert list(frame["statistic"]) == list(ASKED)
    assert list(frame["blocks"]) == [1 if name in WHOLE else 3 for name in ASKED]
    assert frame["log10_p"].dtype == frame["floor"].dtype == np.float64
    jsd = frame.set_index("statistic").loc["phi_jsd"]
    assert np.isnan(jsd["log10_p"])
    assert np.isnan(jsd["holm_log10_p"])


def test_holm_is_over_the_tests_that_yield_p_values():
    frame = comparison(
        {"phi_u": -4.0, "phi_h": -1.0, "phi_l2": -2.0, "phi_jsd": None, "phi_match": "no gate"}
    ).to_frame()
    # by hand (Holm 1979): 3 x 10^-4, 2 x 10^-2, 1 x 10^-1
    expected = [np.log10(3e-4), np.log10(1e-1), np.log10(2e-2), np.nan, np.nan]
    np.testing.assert_allclose(frame["holm_log10_p"], expected, rtol=1e-12)
    assert list(frame["error"]) == [None, None, None, None, "no gate"]


def test_frame_of_blocks(related):
    blocks = related.blocks_frame()
    assert list(blocks.columns) == ["a", "b", "statistic", "block", "value", "log10_p", "paper_log10_p"]
    assert len(blocks) == sum(1 if name in WHOLE else 3 for name in ASKED)
    ours = blocks[blocks["statistic"] == "phi_u"]
    assert list(ours["block"]) == [0, 1, 2]
    assert list(ours["log10_p"]) == [block.log10_p for block in related.records[0].outcome.blocks]


def test_assumptions_are_those_of_what_ran(related):
    assert list(related.assumptions()) == [name for name in ASKED if name != "phi_jsd"]
    assert all(related.assumptions().values())
    assert comparison({"phi_u": -1.0, "phi_match": "no gate", "phi_jsd": None}).assumptions().keys() == {"phi_u"}


def test_text_of_a_comparison(related, models):
    text = str(related)
    assert text.startswith(f"{models['base']}  against  {models['tuned']}\n")
    for name in ASKED:
        assert f"\n{name} " in text
    assert "no p-value" in text
    assert [line for line in text.splitlines()[3:] if len(line) > 100] == []
    refused = str(comparison({"phi_u": -1.0, "phi_match": "no gate"}))
    assert "not run" in refused
    assert "no gate" in refused


def test_html_of_a_comparison(related):
    shown = Tags(related._repr_html_())
    assert related.verdict() in shown.text
    assert all(name in shown.text for name in ASKED)
    assert "<img" in related._repr_html_()


def test_a_notebook_shows_the_answer_the_picture_and_a_short_table(related):
    html = related._repr_html_()
    places = [
        html.index(part) for part in (related.answer(), "<figure", "<table", related.verdict()[:40], "Assumed by")
    ]
    assert places == sorted(places)


@pytest.mark.parametrize(("rows", "folds"), [(8, False), (9, True)])
def test_a_table_that_is_longer_than_a_screen_folds(related, rows, folds, monkeypatch):
    monkeypatch.setattr(type(related), "parts", lambda _: [Table(("statistic",), [("phi_u",)] * rows)])
    assert (f"<details><summary>statistic: {rows} rows</summary><table>" in related._repr_html_()) == folds


def test_html_escapes_what_it_did_not_write():
    result = comparison({"phi_u": "<script>alert(1)</script>"})
    html = replace(result, models=({"source": "<b>"}, {"source": "/b"}))._repr_html_()
    Tags(html)
    assert "<script>" not in html
    assert "&lt;b&gt;" in html


# JSON ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def content(related):
    return json.loads(json.dumps(related.to_json(), allow_nan=False))  # NaN or Inf would be refused here


def test_json_has_every_statistic_under_its_name(content):
    assert list(content["statistics"]) == list(ASKED)
    for name, result in content["statistics"].items():
        assert {"log10_p", "value", "blocks", "error"} <= result.keys()
        assert isinstance(result["value"], float)
        assert (result["log10_p"] is None) == (name == "phi_jsd")
        assert [block["block"] for block in result["blocks"]] == ([None] if name in WHOLE else [0, 1, 2])
        for block in result["blocks"]:
            assert {"block", "log10_p", "value"} <= block.keys()


def test_json_says_which_models_these_were(content, models):
    for model, source in zip(content["models"], (models["base"], models["tuned"]), strict=True):
        assert model["source"] == source
        assert model["architecture"] == "LlamaForCausalLM"
        assert model["commit"] is None  # of a folder
        assert model["digest"] == Checkpoint.open(source).digest
        assert model["files"].keys() == {"config.json", "model.safetensors"}
        for name, entry in model["files"].items():
            raw = (Path(source) / name).read_bytes()
            assert entry == {"sha256": hashlib.sha256(raw).hexdigest(), "size": len(raw)}


def test_json_says_how_it_was_computed(content, text):
    assert content["seed"] == content["parameters"]["seed"] == 7
    assert content["parameters"]["n_sequences"] == 8
    assert content["parameters"]["text"] == hashlib.sha256(text.encode()).hexdigest()
    assert content["parameters"]["vocab_size"] == 300
    assert content["versions"]["numpy"] == np.__version__
    assert content["versions"]["provlab"] == metadata.version("provlab")
    assert content["schema"] == "provlab.compare/1"
    assert content["outcome"] == "rows of one origin"  # and by order: of so few units phi_match finds too few again
    assert content["verdict"].startswith("Rows of the embedding agree by phi_unseen (")
    assert content["level"] == LEVEL


def test_json_of_what_could_not_run():
    result = comparison({"phi_u": -1.0, "phi_match": "no gate"}).to_json()["statistics"]["phi_match"]
    numbers = dict.fromkeys(("value", "log10_p", "floor", "paper_log10_p", "agree"))
    assert result == {**numbers, "blocks": [], "error": "no gate"}


# Many pairs ----------------------------------------------------------------------------------------------------------


def test_frame_of_a_study(study):
    frame = study.to_frame()
    assert list(frame.columns) == [
        *("a", "b", "statistic", "value", "log10_p", "floor", "paper_log10_p", "agree"),
        *("detail", "dependent", "siblings", "error", "holm_log10_p", "adjusted_log10_p", "rejected"),
    ]
    assert len(frame) == 3 * 10
    failed = frame["error"].notna()
    assert failed.sum() == 3 * 4
    assert list(failed) == list(frame["b"] == "/no/such/model")
    assert all(value is None for value in frame["dependent"])  # of these nothing is known
    assert not frame.loc[failed, "rejected"].any()
    assert frame.loc[failed, ["value", "log10_p", "floor"]].isna().all(axis=None)


def test_only_the_related_pair_is_rejected(study, models):
    frame = study.to_frame()
    rejected = frame[(frame["statistic"] == "phi_u") & frame["rejected"]]
    assert [(row.a, row.b) for row in rejected.itertuples()] == [(models["base"], models["tuned"])]


def test_matrix_is_symmetric_and_labelled_by_short_names(study):
    for column in ("log10_p", "holm_log10_p"):
        matrix = study.matrix("phi_u", column)
        names = ["base", "tuned", "stranger", "other", "model"]
        assert list(matrix.index) == list(matrix.columns) == names
        pd.testing.assert_frame_equal(matrix, matrix.T)
        assert np.isnan(np.diag(matrix)).all()
        assert matrix.loc["model"].isna().all()
        assert matrix.iloc[:4, :4].notna().to_numpy().sum() == 12
    frame = study.to_frame()
    row = frame[frame["statistic"] == "phi_u"].iloc[1]
    assert study.matrix("phi_u").loc["base", "stranger"] == row["log10_p"]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["zoo:oak@smoke", "zoo:elm@smoke"], ["oak", "elm"]),
        (["zoo:oak@smoke", "zoo:oak"], ["zoo:oak@smoke", "zoo:oak"]),
        (["org/x@main", "/folder/y/"], ["x", "y"]),
        (["a/x", "b/x"], ["a/x", "b/x"]),
    ],
)
def test_labels_are_short_where_that_is_unambiguous(sources, expected):
    report = StudyReport((), (), Options(), sources=tuple(sources), statistics=(), lineage=Lineage.of(sources))
    assert list(report.labels().values()) == expected


def test_truth_and_families_come_from_the_lineage():
    sources = ["zoo:oak", "zoo:oak-explain", "zoo:elm", "/folder/y"]
    records = tuple(
        PairRecord(a, b, "phi_u", Outcome(0.1, -0.5, (), -100.0))
        for i, a in enumerate(sources)
        for b in sources[i + 1 :]
    )
    kept = {"sources": tuple(sources), "statistics": ("phi_u",), "lineage": Lineage.of(sources)}
    report = StudyReport((), records, Options(), **kept)
    truth = report.truth()
    assert truth.loc["oak", "oak-explain"]
    assert truth.to_numpy().sum() == 2
    assert report.families() == {"oak": "oak", "oak-explain": "oak", "elm": "elm", "y": "unknown"}
    assert list(report.to_frame()["dependent"]) == [True, False, None, False, None, None]
    (row,) = report.summary().to_dict("records")
    assert row["dependent rejected"] == "0 of 1"
    assert row["independent rejected"] == "0 of 2"


def test_text_of_a_study(study, models):
    text = str(study)
    assert text.startswith("5 models, judged by Holm over 12 tests, family-wise error at most 0.01")
    failures = " ".join(text.partition("Not run")[2].split())
    assert f"phi_u {models['base']} /no/such/model: /no/such/model does not exist" in failures
    assert "no p-value" in text


def test_html_and_figures_of_a_study(study):
    shown = Tags(study._repr_html_())
    assert "phi_u" in shown.text
    for name in ("phi_u", "phi_jsd"):
        assert "alt=" in study.figure(name).to_html()


def test_matchings_come_back_from_the_store(study, store, models):
    result = study.matchings("phi_u", store)
    assert len(result) == 6  # the pairs that ran
    blocks = result[models["base"], models["tuned"]]
    assert [sorted(block) for block in blocks] == [list(range(48))] * 3
    with pytest.raises(ParameterError, match="phi_jsd keeps no matching"):
        study.matchings("phi_jsd", store)


def test_a_study_of_nothing_but_failures_still_shows_itself():
    report = provlab.study(["/no/a", "/no/b"], statistics=["phi_u"], progress=False)
    assert "1" in str(report)
    assert "/no/a does not exist" in str(report)
    Tags(report._repr_html_())
    assert report.matrix("phi_u").isna().all(axis=None)
