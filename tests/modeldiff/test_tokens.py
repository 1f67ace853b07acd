"""Tokens are paired by their strings, whatever their ids."""

import json
import shutil

import numpy as np
import pytest
import tiny_models
import torch
import transformers

from provlab.errors import CheckpointError, NotComparableError
from provlab.modeldiff import pipeline
from provlab.modeldiff.held_out import pieces as cut
from provlab.modeldiff.nll import sequence_nll
from provlab.modeldiff.tokens import opening, shared_tokens
from provlab.reading.checkpoint import Checkpoint


def shared(*folders):
    return shared_tokens([Checkpoint.open(folder) for folder in folders])


def change_vocabulary(folder, change):
    content = json.loads((folder / "tokenizer.json").read_text())
    change(content)
    (folder / "tokenizer.json").write_text(json.dumps(content))


def swap(content):
    """Two tokens change places."""
    table = content["model"]["vocab"]
    table["a"], table["b"] = table["b"], table["a"]


def test_models_of_one_tokenizer_share_all_of_it(models):
    common = shared(models["base"], models["other"])
    assert common.named
    assert not common.moved
    np.testing.assert_array_equal(common.ids[0], common.ids[1])


def test_models_without_tokenizers_are_judged_by_size(gpt2, tmp_path):
    for name, size in (("a", 4), ("b", 4), ("c", 5)):
        gpt2(vocab_size=size).save_pretrained(tmp_path / name)
    common = shared(tmp_path / "a", tmp_path / "b")
    assert (common.moved, common.left_out, common.named) == (0, (0, 0), False)
    with pytest.raises(NotComparableError, match="a has 4 tokens and c has 5"):
        shared(tmp_path / "a", tmp_path / "c")


def test_a_lost_tokenizer_is_refused(models, spoilt):
    for path in spoilt.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(NotComparableError, match="has no tokenizer"):
        shared(spoilt, models["base"])


def test_tokenizers_that_share_too_little_are_refused(models, spoilt):
    def rename(content):
        content["model"]["vocab"] = {f"{k}x" if v > 99 else k: v for k, v in content["model"]["vocab"].items()}
        content["model"]["merges"] = []

    change_vocabulary(spoilt, rename)
    with pytest.raises(NotComparableError, match=r"different tokenizers: they share \d+ of \d+ tokens"):
        shared(models["base"], spoilt)


@pytest.fixture
def moved(models, tmp_path):
    """The base with two tokens at each other's ids, in its tokenizer and its weights alike: the same model of texts."""
    folder = tmp_path / "moved"
    shutil.copytree(models["base"], folder)
    change_vocabulary(folder, swap)
    table = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    model = Checkpoint.open(folder).load_model()
    with torch.no_grad():
        for weight in {model.get_input_embeddings().weight, model.get_output_embeddings().weight}:
            weight[[table["a"], table["b"]]] = weight[[table["b"], table["a"]]].clone()
    model.save_pretrained(folder)
    return folder


def test_moved_tokens_are_paired_by_their_strings(models, moved, text):
    """Read by ids, the model and its twin would disagree; by strings they are one."""
    assert shared(models["base"], moved).moved == 2
    base, twin = pipeline.open_models([models["base"], str(moved)]).values()
    pieces = cut(base.encode(text), 12, 20)
    np.testing.assert_array_equal(pieces, cut(twin.encode(text), 12, 20))
    np.testing.assert_allclose(base.nll(pieces), twin.nll(pieces), atol=1e-5)
    assert base.texts(pieces) == twin.texts(pieces)


def test_rows_beyond_the_tokenizer_are_left_out(models, new_model, save_model, tmp_path):
    padded = save_model(new_model(1, vocab_size=320), tmp_path / "padded")
    common = shared(models["base"], padded)
    assert common.left_out[1] == common.left_out[0] + 20
    short = sequence_nll(Checkpoint.open(padded), ids=common.ids[1])
    assert short.vocabulary == len(common.ids[1])
    log_probs = short.next_log_probs(np.zeros((2, 3), dtype=int))
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1, atol=1e-5)


def test_a_model_reads_its_start_token_and_a_prompt_in_its_template(models, spoilt):
    base = Checkpoint.open(models["base"])
    words = base.encode("the model")
    assert (opening(base), opening(base, "the model")) == ([0], [0, *words])
    assert 0 in shared(models["base"], spoilt).ids[0]
    assert 0 not in shared_tokens([base], controls=False).ids[0]
    (spoilt / "chat_template.jinja").write_text(
        "{{ messages[0]['content'] }}{% if add_generation_prompt %} so{% endif %}"
    )
    talks = Checkpoint.open(spoilt)
    assert opening(talks, "the model") == talks.encode("the model so")
    (spoilt / "chat_template.jinja").write_text("{{ raise_exception('no system role') }}")
    with pytest.raises(CheckpointError, match="a chat template that cannot be used: no system role; mend chat_templ"):
        opening(Checkpoint.open(spoilt), "the model")


def test_of_several_chat_templates_the_default_is_taken_or_asked_for(spoilt):
    (spoilt / "chat_template.jinja").unlink(missing_ok=True)

    def templates(*names):
        entries = [{"name": name, "template": f"{name} {{{{ messages[0]['content'] }}}}"} for name in names]
        tiny_models.edit_json(spoilt / "tokenizer_config.json", lambda c: c.update(chat_template=entries))
        return Checkpoint.open(spoilt)

    several = templates("tool_use", "rag")
    with pytest.raises(CheckpointError, match=r"has 2 chat templates \(rag, tool_use\) and none named default; mend"):
        opening(several, "the model")
    for names in (("rag", "default"), ("rag",)):
        base = templates(*names)
        assert opening(base, "the model") == base.encode(f"{names[-1]} the model")


NO_TEMPLATES = {"number": 5, "texts": ["a"], "no name": [{"nom": "a"}], "no text": {"default": 1}}


@pytest.mark.parametrize("label", NO_TEMPLATES)
def test_a_template_that_is_none_is_named_where_it_is_asked_for_and_hinders_nothing_else(label, models, spoilt):
    (spoilt / "chat_template.jinja").unlink(missing_ok=True)
    tiny_models.edit_json(spoilt / "tokenizer_config.json", lambda c: c.update(chat_template=NO_TEMPLATES[label]))
    base = Checkpoint.open(spoilt)
    assert base.encode("the model") == Checkpoint.open(models["base"]).encode("the model")
    with pytest.raises(
        CheckpointError, match="a chat template that cannot be used: it is neither a text nor a list of"
    ):
        opening(base, "the model")


def test_a_template_that_writes_the_day_writes_the_same_one_always(spoilt):
    (spoilt / "chat_template.jinja").write_text("{{ strftime_now('%d %b %Y') }} {{ messages[0]['content'] }}")
    base = Checkpoint.open(spoilt)
    assert opening(base, "the model") == base.encode("26 Jul 2024 the model")


def test_a_template_of_tokens_that_were_added_is_named(spoilt):
    tokenizer = transformers.AutoTokenizer.from_pretrained(spoilt)
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.chat_template = "<|im_start|>{{ messages[0]['content'] }}<|im_end|>"
    tokenizer.save_pretrained(spoilt)
    base = Checkpoint.open(spoilt)
    with pytest.raises(
        CheckpointError, match=r"template writes '<\|im_start\|>', '<\|im_end\|>' \(id 300\), and the model has 300 emb"
    ):
        opening(base, "the model")
    (spoilt / "chat_template.jinja").unlink(missing_ok=True)
    with pytest.raises(CheckpointError, match=r"the prompt has '<\|im_end\|>' \(id 301\)"):
        opening(Checkpoint.open(spoilt), "so <|im_end|> it")


def test_pieces_avoid_tokens_that_are_not_shared():
    ids = np.r_[np.arange(10), -1, np.arange(10)]
    assert cut(ids, 5, 50).min() == 0
    with pytest.raises(Exception, match="no 12 tokens in a row"):
        cut(ids, 12, 5)
