"""Whether a head is the embedding: what the config declares, at the level that transformers obeys, or its default."""

import random
import warnings

import pytest
import transformers

from provlab.reading import tying
from provlab.reading.architectures import class_of
from provlab.reading.tying import KEY, declared

KINDS = [*transformers.CONFIG_MAPPING]
#: classes whose defaults are compared in every run; `make sweep` compares all
_SOME = [
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gpt2", "gpt_neox", "bert", "phi3", "t5", "opt", "olmo",
    "olmo2", "mixtral", "falcon", "llava", "qwen2_vl", "paligemma", "idefics3",
]  # fmt: skip


def _theirs(kind, **config):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(transformers.CONFIG_MAPPING[kind](**config), KEY, None)


def _differing(kinds):
    for kind in kinds:
        if kind not in transformers.CONFIG_MAPPING:
            continue
        sees = "text_config" in (getattr(transformers.CONFIG_MAPPING[kind], "sub_configs", None) or {})
        if class_of(kind) is None and not sees:
            continue  # no row of the table has it: nothing is taken for granted
        levels = [{}, *({"text_config": {KEY: inner}} for inner in (True, False) if sees)]
        for level in levels:
            for own in ({}, {KEY: True}, {KEY: False}):
                config = level | own
                try:
                    theirs = _theirs(kind, **config)
                except Exception:  # noqa: BLE001  a class that wants more than this
                    continue
                if theirs is None and "text_config" in config:
                    continue  # it leaves that to the model inside
                ours = declared({"model_type": kind, **config}).tied
                if ours != bool(theirs) and (own or kind not in tying._table()["inner"]):
                    yield kind, config, ours, theirs


#: transformers obeys no key here: tied in any case, or in none; provlab takes what the config says, or refuses it
_WHATEVER_IT_SAYS = {
    "blt_global_transformer", "blt_local_decoder", "blt_patcher", "csm", "dbrx", "hunyuan_vl", "longt5", "mt5",
    "paddleocr_vl", "perception_lm", "pop2piano", "shieldgemma2", "t5", "udop", "umt5", "vibevoice", "vilt",
}  # fmt: skip


def test_the_defaults_are_those_of_transformers():
    assert [row for row in _differing(_SOME) if row[0] not in _WHATEVER_IT_SAYS] == []


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
def test_the_defaults_of_every_class_are_those_of_transformers():
    assert [row for row in _differing(KINDS) if row[0] not in _WHATEVER_IT_SAYS] == []


def test_a_default_that_is_wrong_is_found(monkeypatch):
    """Planted: one kind moved to the other side of the table."""
    table = {key: kinds - {"llama"} for key, kinds in tying._table().items()}
    monkeypatch.setattr(tying, "_table", lambda: table)
    assert [(kind, config) for kind, config, *_ in _differing(["llama"])] == [("llama", {})]


@pytest.mark.parametrize(
    ("config", "tied", "words"),
    [
        ({"model_type": "llama"}, False, "has no tie_word_embeddings, which is false for llama"),
        ({"architectures": ["LlamaForCausalLM"]}, False, "which is false for Llama"),
        ({"model_type": "gemma"}, True, "which is true for gemma"),
        ({"model_type": "llama", KEY: True}, True, "says tie_word_embeddings: true"),
        ({"model_type": "nobody's"}, None, "its config has no tie_word_embeddings"),
        ({"model_type": "qwen3_vl", "text_config": {KEY: True}}, False, "which is false for qwen3_vl"),
        ({"model_type": "llava", "text_config": {KEY: True}}, True, "its text_config says"),
        ({"model_type": "blip-2", KEY: False, "text_config": {"model_type": "opt"}}, True, "its text_config has no"),
    ],
)
def test_what_is_declared_is_named(config, tied, words):
    found = declared(config)
    assert (found.tied, words in found.why) == (tied, True)


@pytest.mark.parametrize("own", [None, True, False])
@pytest.mark.parametrize("inner", [None, True, False])
def test_two_levels_that_contradict_are_said_with_the_one_that_counts(own, inner):
    levels = {"text_config": {"model_type": "llama"} | ({} if inner is None else {KEY: inner})}
    found = declared({"model_type": "qwen3_vl", **levels} | ({} if own is None else {KEY: own}))
    assert found.tied == bool(own)
    assert bool(found.note) == (inner is not None and inner != bool(own))
    if found.note:
        assert found.note.endswith("the outer level counts, as in transformers")


def test_a_sample_of_all_classes_has_transformers_defaults():
    sample = random.Random(0).sample(sorted(set(KINDS) - _WHATEVER_IT_SAYS), 12)
    assert list(_differing(sample)) == []
