"""A vocabulary numbered again, or with more tokens: text in, text out as before, and so what is found of the two."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from provlab.attacks.disguise import disguise
from provlab.engine.pairs import open_models, run_pairs, with_common_vocabulary
from provlab.engine.store import Store
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics import get, text
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.text import common_strings, spellings

SIZE = 300
STATISTICS = ["phi_match", "phi_h", "phi_jsd"]


@pytest.fixture(scope="module")
def disguised(models, tmp_path_factory):
    """The tuned model with its ids permuted, with tokens added in addition, and the stranger's ids permuted."""
    root = tmp_path_factory.mktemp("vocabularies")
    ways = {"permuted": ("tuned", []), "extended": ("tuned", ["extend=9"]), "stranger": ("stranger", [])}
    return {
        name: disguise(Checkpoint.open(models[who]), root / name, seed=seed, kinds=[*more, "vocabulary"]).folder
        for seed, (name, (who, more)) in enumerate(ways.items())
    }


@pytest.fixture(scope="module")
def options(text):
    return Options(text=text, n_sequences=16, sequence_length=32, seed=1)


def outcomes(options, *sources, statistics=STATISTICS, **settings):
    records = run_pairs(open_models([str(s) for s in sources]), statistics, options, progress=False, **settings)
    assert [record.error for record in records] == [None] * len(records)
    return {(record.a, record.b, record.statistic): record.outcome for record in records}


@pytest.mark.parametrize("name", ["permuted", "extended"])
def test_other_ids_change_nothing(models, disguised, options, name):
    """The reference is the tuned model itself, given the same strings."""
    vocabulary = common_strings(Model.open(str(source)) for source in (models["base"], disguised[name]))
    drawn = replace(options, vocab_size=SIZE, vocabulary=vocabulary)
    plain = outcomes(drawn, models["base"], models["tuned"])
    result = outcomes(options, models["base"], disguised[name])
    base, tuned, other = models["base"], models["tuned"], str(disguised[name])
    assert result[base, other, "phi_match"] == plain[base, tuned, "phi_match"]
    assert result[base, other, "phi_jsd"].value == pytest.approx(
        plain[base, tuned, "phi_jsd"].value, rel=1e-4 if name == "permuted" else 0.02
    )
    assert result[base, other, "phi_h"] == plain[base, tuned, "phi_h"]
    assert result[base, other, "phi_h"].log10_p < -10


def test_the_stranger_stays_one(models, disguised, options):
    """Controls, with ids permuted and as they are."""
    for other in (models["stranger"], str(disguised["stranger"])):
        result = outcomes(options, models["base"], other)
        assert result[models["base"], other, "phi_match"].log10_p > -2
        assert result[models["base"], other, "phi_h"].log10_p > -2
        kin = outcomes(options, models["base"], disguised["permuted"], statistics=["phi_jsd"])
        nearest = kin[models["base"], str(disguised["permuted"]), "phi_jsd"].value
        assert result[models["base"], other, "phi_jsd"].value > nearest


def test_divergence_of_a_model_from_itself_is_none(models, disguised, options):
    for name in ("permuted", "extended"):
        result = outcomes(options, models["tuned"], disguised[name], statistics=["phi_jsd"])
        (outcome,) = result.values()
        assert outcome.value == pytest.approx(0.0, abs=1e-6)


def test_a_study_draws_strings_that_all_have(models, disguised, options):
    """All pairs of three models, with their features made once for each model."""
    sources = [models["base"], models["tuned"], str(disguised["permuted"]), str(disguised["extended"])]
    result = outcomes(options, *sources)
    itself = result[models["tuned"], str(disguised["permuted"]), "phi_h"]
    assert itself.log10_p == pytest.approx(itself.reach)
    assert result[models["tuned"], str(disguised["permuted"]), "phi_match"].log10_p < -100
    assert result[sources[2], sources[3], "phi_h"].log10_p == pytest.approx(itself.reach)


def test_one_numbering_draws_ids_as_before(models, disguised, options):
    """The strings are asked for only where ids differ: more tokens behind the others change no record."""
    same = [Model.open(models[name]) for name in ("base", "stranger")]
    assert common_strings(same) is None
    vocabulary = common_strings([*same, Model.open(str(disguised["extended"]))])
    assert set(vocabulary) == set(same[0].checkpoint.vocabulary())
    opened = open_models([models["base"], str(disguised["permuted"])]).models
    assert with_common_vocabulary(options, opened, ["phi_u"]).vocabulary is None
    assert with_common_vocabulary(options, opened, ["phi_h"]).vocabulary == vocabulary
    assert "vocabulary_sha256" not in get("phi_h").parameters(options)


def test_without_a_tokenizer_ids_count(models, disguised, options, tmp_path):
    """A pair of which one has none is given ids, as nothing says what they mean; beside others it is out."""
    bare = tmp_path / "bare"
    shutil.copytree(models["tuned"], bare)
    for path in bare.glob("tokenizer*"):
        path.unlink()
    (outcome,) = outcomes(options, models["base"], bare, statistics=["phi_h"]).values()
    (plain,) = outcomes(options, models["base"], models["tuned"], statistics=["phi_h"]).values()
    assert outcome == plain
    sources = [models["base"], str(disguised["permuted"]), str(bare)]
    records = run_pairs(open_models(sources), ["phi_h"], options, progress=False)
    assert [bool(record.error) for record in records] == [False, True, True]
    assert "has no tokenizer, and the others of this study number their tokens differently" in records[1].error


def test_another_tokenizer_reuses_no_record(models, disguised, options, tmp_path):
    """Weights and config are as they were; the tokenizer decides what the model was given."""
    store = Store(tmp_path / "results")
    folder = shutil.copytree(models["tuned"], tmp_path / "tuned")
    statistics = ["phi_match", "phi_u"]
    sources = [models["base"], str(folder)]
    before = run_pairs(open_models(sources), statistics, options, store=store, progress=False)
    (folder / "tokenizer.json").write_text((disguised["permuted"] / "tokenizer.json").read_text())
    after = run_pairs(open_models(sources), statistics, options, store=store, progress=False)
    assert set(before[0].keys).isdisjoint(after[0].keys)
    assert before[1].keys == after[1].keys  # weights only
    assert before[0].outcome != after[0].outcome


def test_what_has_no_string_is_like_nothing(models):
    checkpoint = Model.open(models["base"]).checkpoint
    spelt = spellings(checkpoint, SIZE + 5)
    assert (spelt[: len(checkpoint.vocabulary())] >= 0).all()
    assert len(set(spelt)) == SIZE + 5
    assert (spelt[len(checkpoint.vocabulary()) :] < 0).all()


def test_models_of_one_tokenizer_are_spelt_once(models, disguised, monkeypatch):
    """At 262,144 tokens that takes four seconds, for each statistic that pairs tokens and each model of a study."""
    made, spelt = [], text._spelt
    monkeypatch.setattr(text, "_SPELT", {})
    monkeypatch.setattr(text, "_spelt", lambda checkpoint, size: made.append(size) or spelt(checkpoint, size))
    base, tuned, other = (Checkpoint.open(x) for x in (models["base"], models["tuned"], disguised["permuted"]))
    assert np.array_equal(spellings(base, SIZE), spellings(tuned, SIZE))
    assert made == [SIZE]
    assert not np.array_equal(spellings(base, SIZE), spellings(other, SIZE))
    spellings(base, SIZE + 1)
    assert made == [SIZE, SIZE, SIZE + 1]
    with pytest.raises(ValueError, match="read-only"):
        spellings(base, SIZE)[0] = 1
    for size in range(20):
        spellings(tuned, size)
    assert len(text._SPELT) == text._KEPT


def test_records_name_the_strings_by_their_hash():
    item = Options(vocabulary=("a", "b"))
    assert (
        item.as_record()["vocabulary"] == item.vocabulary_sha256 != replace(item, vocabulary=("a",)).vocabulary_sha256
    )
    assert Options().as_record()["vocabulary"] is None
