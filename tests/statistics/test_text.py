"""Text cut otherwise by two tokenizers: a disguise of the tokenizer leaves phi_MATCH with what both read alike."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast

from provlab import statistics
from provlab.engine.pairs import open_models, run_pairs
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.text import cut, shared_tokens, spellings
from provlab_study.attack_lab.respelling import respelt


def edited(source, folder, change):
    """A copy of a model with another ``tokenizer.json``, by default that of the attack lab."""
    if change is None:
        return str(respelt(Checkpoint.open(source), folder))
    shutil.copytree(source, folder)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return str(folder)


def thin(content):
    """Take out the last merges, and their tokens with them: some words are cut into more tokens."""
    model = content["model"]
    for first, second in model["merges"][-12:]:
        del model["vocab"][first + second]
    model["merges"] = model["merges"][:-12]


def another_class(content):
    """Words without the space before them, as where transformers takes the class of another architecture."""
    content["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": " "}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ],
    }


CHANGES = {"respelt": None, "thinned": thin, "another class": another_class}


@pytest.fixture(scope="module")
def options(text):
    return Options(text=text, n_sequences=16, sequence_length=32, seed=1)


@pytest.fixture(scope="module")
def disguised(models, tmp_path_factory):
    root = tmp_path_factory.mktemp("cut")
    return {
        (name, who): edited(Path(models[who]), root / f"{name} {who}".replace(" ", "-"), change)
        for name, change in CHANGES.items()
        for who in ("tuned", "stranger")
    }


def test_the_disguises_are_what_they_say(models, disguised, text, options):
    """Text in and out stays, and other strings, or other places, are read."""
    plain = Checkpoint.open(models["tuned"])
    for name in CHANGES:
        other = Checkpoint.open(disguised[name, "tuned"])
        assert other.tokenizer().decode(other.encode(text[:200])) == text[:200], name
        same = np.array_equal(cut(plain, options)[1], cut(other, options)[1])
        assert same == (name == "respelt")
    respelt = Checkpoint.open(disguised["respelt", "tuned"])
    assert np.array_equal(cut(plain, options)[0], cut(respelt, options)[0])
    assert plain.vocabulary() != respelt.vocabulary()


@pytest.mark.parametrize("name", CHANGES)
def test_copies_are_found_and_independent_models_are_not(models, disguised, options, name):
    sources = [models["tuned"], disguised[name, "tuned"], disguised[name, "stranger"]]
    records = run_pairs(open_models(sources), ["phi_match", "phi_jsd"], options, progress=False)
    assert [record.error for record in records] == [None] * 6
    copy, independent, _, divergence, further, _ = (record.outcome for record in records)
    assert copy.log10_p < -100
    assert independent.log10_p > -2
    assert abs(divergence.value) < further.value / 2  # a token may have lost its space


def test_without_a_tokenizer_the_other_ones_ids_are_read(models, options, tmp_path):
    """One side has none, or both, where ids are drawn; an independent model stays one."""
    bare = {}
    for who in ("tuned", "stranger"):
        bare[who] = str(shutil.copytree(models[who], tmp_path / who, ignore=shutil.ignore_patterns("tokenizer*")))
    sources = [models["base"], bare["tuned"], bare["stranger"]]
    copy, independent, both = run_pairs(
        open_models([models["tuned"], *sources[1:]]), ["phi_match"], options, progress=False
    )
    assert copy.outcome.log10_p < -100
    assert independent.outcome.log10_p > -2
    assert both.outcome.log10_p > -2
    plain = run_pairs(open_models([models["base"], models["tuned"]]), ["phi_match"], options, progress=False)[0]
    lent = run_pairs(open_models(sources[:2]), ["phi_match"], options, progress=False)[0]
    assert lent.outcome == plain.outcome
    (drawn,) = run_pairs(open_models([bare["tuned"], bare["stranger"]]), ["phi_match"], options, progress=False)
    assert drawn.outcome.log10_p > -2


def test_one_numbering_of_places_is_left_alone(models, disguised, options):
    """Models that read the same anyway, and tokenizers with too little in common."""
    assert shared_tokens([Model.open(models[name]) for name in ("tuned", "stranger")], options) is None
    sources = [Model.open(source) for source in (models["tuned"], disguised["respelt", "tuned"])]
    assert shared_tokens(sources, options) is None
    sources = [Model.open(source) for source in (models["tuned"], disguised["thinned", "tuned"])]
    shared = replace(options, shared=shared_tokens(sources, options))
    ids, places = zip(*(cut(source.checkpoint, shared) for source in sources), strict=True)
    assert np.array_equal(*ids)
    assert np.array_equal(*places)
    assert shared.text_sha256 != options.text_sha256
    short = replace(options, text=options.text[:1500])
    assert shared_tokens(sources, short) is None
    (record,) = run_pairs(
        open_models([models["tuned"], disguised["thinned", "tuned"]]), ["phi_match"], short, progress=False
    )
    assert "cut the text differently" in record.error


def test_tokens_are_known_by_what_they_decode_to(models, disguised):
    plain = Checkpoint.open(models["tuned"])
    respelt = Checkpoint.open(disguised["respelt", "tuned"])
    size = len(plain.vocabulary())
    # the first is the end of a text, which the decoder respells too
    assert np.array_equal(spellings(plain, size + 3)[1:], spellings(respelt, size + 3)[1:])
    assert len(set(spellings(plain, size + 3).tolist())) == size + 3
    pieces = plain.pieces(size)
    assert pieces[plain.vocabulary()["Ġnever"]] == " never"
    assert pieces[plain.vocabulary()["m"]] == "m"
    assert "" in pieces  # a byte that is no character


def test_places_of_tokens(models, text):
    """By hand: bytes of one character have its place, one after the other; spaces do not count."""
    checkpoint = Checkpoint.open(models["base"])
    options = Options(text="why never é" + text, n_sequences=1, sequence_length=8)
    ids, places = (array.ravel() for array in cut(checkpoint, options))
    begin, length, within = places >> 24, places >> 12 & 4095, places & 4095
    assert checkpoint.tokenizer().decode(ids[:4]) == "why never"
    assert (begin[:2].tolist(), length[0]) == ([0, 1], 1)
    assert len(set(places.tolist())) == 8
    two = np.flatnonzero(begin == 10)[-2:]
    assert within[two].tolist() == [0, 1]


def test_one_tokenizer_that_two_kinds_of_model_cut_unlike_is_read_where_both_agree(tiny, tmp_path):
    """transformers goes by the model's kind: a Qwen2 is given each digit alone, whatever the file says."""
    text = "it was 1984 or 2001, and they'll go on to 12345 things. " * 20
    trainer = ByteLevelBPETokenizer()
    trainer.train_from_iterator([text], vocab_size=300, special_tokens=["<end>"], show_progress=False)
    models = []
    for kind in ("llama", "qwen2"):
        path = tiny_models.copy(tiny("llama"), tmp_path / kind)
        PreTrainedTokenizerFast(tokenizer_object=trainer._tokenizer, eos_token="<end>").save_pretrained(path)
        about = {"model_type": kind, "vocab_size": 300}
        tiny_models.edit_json(path / "config.json", lambda config, about=about: config.update(about))
        models.append(SimpleNamespace(checkpoint=Checkpoint.open(path), anatomy=SimpleNamespace(vocab_size=300)))
    assert len({model.checkpoint.tokenizer_digest for model in models}) == 1
    options = Options(text=text, n_sequences=4, sequence_length=16)
    alone = [cut(model.checkpoint, options)[1] for model in models]
    assert not np.array_equal(*alone)
    options = replace(options, shared=shared_tokens(models, options))
    together = [cut(model.checkpoint, options)[1] for model in models]
    assert np.array_equal(*together)


@pytest.mark.parametrize(
    ("name", "file", "read"),
    [
        ("kept_rows", "tokenizer_config.json", True),  # a result of one pairing of tokens was kept for another
        ("phi_e", "tokenizer_config.json", True),
        ("phi_match", "chat_template.jinja", True),  # as was one of a text in another form
        ("phi_u", "tokenizer_config.json", False),
        ("weight_distance", "tokenizer_config.json", False),
    ],
)
def test_a_result_is_of_one_tokenizer_with_its_template_where_that_is_read(models, text, tmp_path, name, file, read):
    folder = shutil.copytree(models["base"], tmp_path / "base")
    statistic, options = statistics.get(name), Options(text=text)
    before = statistic.identity(Model.open(str(folder)), options)
    path = folder / file
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, "extra": 1}))
    assert (statistic.identity(Model.open(str(folder)), options) != before) == read
