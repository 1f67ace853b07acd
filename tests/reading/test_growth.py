"""Steps of a tokenizer that would make a text thousands of times longer are refused, and published ones are taken."""

import base64

import pytest
import tiny_models

from provlab.errors import CheckpointError
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.growth import refuse_growth


def charsmap(letters):
    """A map as SentencePiece saves it, with an empty trie and one string."""
    return base64.b64encode((0).to_bytes(4, "little") + b"a" * letters + b"\0").decode()


@pytest.mark.parametrize(
    ("key", "steps", "step", "fine"),
    [
        ("normalizer", "normalizers", {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}, 2),
        ("normalizer", "normalizers", {"type": "Replace", "pattern": {"Regex": "a"}, "content": "aa"}, 2),
        ("normalizer", "normalizers", {"type": "Precompiled", "precompiled_charsmap": charsmap(30)}, 1),
        ("normalizer", "normalizers", {"type": "NFKC"}, 3),
        ("normalizer", "normalizers", {"pattern": {"String": "a"}, "content": "aa"}, 2),
        ("normalizer", "normalizers", {"type": "Prepend", "prepend": "a"}, 2),
        ("decoder", "decoders", {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}, 2),
        ("pre_tokenizer", "pretokenizers", {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always",
                                            "split": False}, 2),
        ("pre_tokenizer", "pretokenizers", {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                                            "use_regex": False}, 2),
    ],
)  # fmt: skip
def test_steps_that_would_fill_the_memory_are_refused(spoilt, key, steps, step, fine):
    def plant(content, times=40):
        content[key] = {"type": "Sequence", steps: [step] * times}

    path = spoilt / "tokenizer.json"
    tiny_models.edit_json(path, plant)
    path.write_text(path.read_text().replace("Replace", r"Repl\u0061ce"))  # as JSON may spell it
    with pytest.raises(CheckpointError, match=r"the steps of \w+ in tokenizer.json may make a text .* times as long"):
        Checkpoint.open(spoilt).encode("a banana")
    refuse_growth({key: {"type": "Sequence", steps: [step] * fine}})


@pytest.mark.parametrize(
    "content",
    [
        {"normalizer": {"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * 900}},
        {"model": {"continuing_subword_prefix": "x" * 5000}},
        {"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}] * 2000, "pair": []}},
        {"normalizer": {"normalizers": [{"normalizers": [{"prepend": "a" * 99}]}] * 2}},
        {
            "normalizer": {"type": "Prepend", "prepend": "a" * 99},
            "pre_tokenizer": {"pretokenizers": [{"type": "Metaspace", "replacement": "_"}] * 4},
        },
        {
            "normalizer": {"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * 99},
            "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}] * 9, "pair": []},
        },
    ],
)
def test_one_step_may_be_too_much(content):
    with pytest.raises(ValueError, match="take the publisher's copy"):
        refuse_growth(content)


@pytest.mark.parametrize(
    ("expression", "fine"),
    [(" {2,}", True), ("\\n", True), (r"\s+", True), ("[àáâ]", True), ("ab.", True)]
    + [
        (empty, False)
        for empty in ("", "a*", "a?", "a|", "()", "(?=a)", r"\b", "^", "a{0,3}", "a{,3}", "[^a]*", "x{01}")
    ],
)
def test_an_expression_that_may_match_nothing_lengthens_a_text(expression, fine):
    """Eight that put one letter for one change nothing, and eight that put one for none double a text eight times."""
    step = {"type": "Replace", "pattern": {"Regex": expression}, "content": "x"}
    tokenizer = {"normalizer": {"type": "Sequence", "normalizers": [step] * 8}}
    if fine:
        refuse_growth(tokenizer)
    else:
        with pytest.raises(ValueError, match="times as long"):
            refuse_growth(tokenizer)


def test_steps_of_published_tokenizers_are_taken():
    """Those of XLNet, RemBERT and Llama 2, as far as they lengthen a text."""
    quotes = [{"type": "Replace", "pattern": {"String": mark}, "content": '"'} for mark in ("``", "''")]
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    normal = {"type": "Precompiled", "precompiled_charsmap": charsmap(33)}
    steps = [*quotes, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, normal, spaces]
    metaspace = {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}
    refuse_growth({"normalizer": {"type": "Sequence", "normalizers": steps}, "pre_tokenizer": metaspace})
    llama = [{"type": "Prepend", "prepend": "_"}, {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]
    back = [{"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    single = [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]
    pair = [*single, {"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "B"}}]
    refuse_growth(
        {
            "normalizer": {"type": "Sequence", "normalizers": llama},
            "decoder": {"type": "Sequence", "decoders": back},
            "post_processor": {"type": "TemplateProcessing", "single": single, "pair": pair},
            "model": {"unk_token": "<unk>", "continuing_subword_prefix": None},
        }
    )


def test_two_replacements_make_a_longer_text(spoilt):
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    tiny_models.edit_json(
        spoilt / "tokenizer.json",
        lambda content: content.update(normalizer={"type": "Sequence", "normalizers": [step] * 2}),
    )
    assert len(Checkpoint.open(spoilt).encode("a banana")) > 8
