"""Advice of a comparison is checked against the two models: what it names can be run on them."""

import re

import pytest
from planted import says

from provlab import api
from provlab.statistics import flaws
from provlab.statistics import get as get_statistic
from provlab.statistics.model import Model


@pytest.fixture
def unlike(gpt2, tmp_path):
    """Two without gates, of unequal width and depth."""
    folders = [tmp_path / "wide", tmp_path / "narrow"]
    gpt2(0, vocab_size=40, n_embd=32).save_pretrained(folders[0])
    gpt2(1, vocab_size=40, n_layer=3).save_pretrained(folders[1])
    return [str(folder) for folder in folders]


def test_unequal_width_without_gates_is_told_of_the_test_that_exists(unlike):
    result = api.compare(*unlike, statistics=["phi_u", "phi_h", "phi_match", "stream_score"], progress=False)
    assert says(result, "tested", "none")
    assert "phi_match can compare" not in result.verdict()
    assert "give two models" not in result.verdict()
    advised = re.search(r"(\w+, \w+) may tell more", result.verdict())[1].split(", ")
    assert advised == ["phi_unseen", "phi_axes"]  # in the order of the table: phi_axes sees through more than phi_e
    models = [Model.open(source) for source in unlike]
    for name in advised:
        get_statistic(name).blocks(*models)  # none refuses the pair


def test_the_test_that_is_named_gives_a_p_value(unlike):
    report = api.compare(*unlike, statistics=["phi_u", "phi_e"], progress=False)
    by_name = {record.statistic: record for record in report.records}
    assert by_name["phi_e"].outcome.log10_p is not None
    assert "phi_e can compare embeddings of different width" in by_name["phi_u"].error


@pytest.mark.parametrize(
    ("kind", "other"), [("one width", {"hidden_size": 32}), ("one depth", {"num_hidden_layers": 4})]
)
def test_the_table_says_who_refuses_models_of_another_shape(kind, other, new_model, save_model, text, tmp_path):
    """All of these read two models with gates of one shape, and of another shape all but those of the table."""
    names = list(flaws.NEEDS)
    folders = [str(save_model(new_model(0), tmp_path / "a")), str(save_model(new_model(1, **other), tmp_path / "b"))]
    report = api.compare(*folders, statistics=names, text=text, n_sequences=8, sequence_length=16, progress=False)
    assert [r.statistic for r in report.records if r.error] == [name for name in names if kind in flaws.NEEDS[name]]
