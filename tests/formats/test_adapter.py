"""BASE+ADAPTER is what peft makes of both by merge_and_unload."""

import re
import warnings

import numpy as np
import peft
import pytest
import tiny_models
import torch
from hub_server import Repo
from safetensors.torch import load_file, save_file

from provlab import compare
from provlab.errors import CheckpointError, InvalidWeightsError
from provlab.formats.adapter import split
from provlab.reading import anatomy as anatomy_module
from provlab.reading.checkpoint import Checkpoint, register_scheme

UP = "model.layers.0.mlp.up_proj.weight"
KINDS = {
    "plain": ("llama", {"target_modules": ["q_proj", "up_proj"]}),
    "rank-stabilised": ("llama", {"target_modules": ["up_proj", "down_proj"], "use_rslora": True}),
    "patterns": (
        "llama",
        {
            "target_modules": ["up_proj", "gate_proj"],
            "rank_pattern": {"layers.1.mlp.up_proj": 5},
            "alpha_pattern": {"gate_proj": 3, r"^model.layers.0.mlp.up_proj": 7},
        },
    ),
    "patterns with repetitions": (
        "llama",
        {
            "target_modules": ["up_proj", "gate_proj"],
            "rank_pattern": {r".*layers\.1\..*up_proj": 5},
            "alpha_pattern": {r".*layers\.1.*": 16, r"layers.\d+.mlp.gate_proj": 3},
        },
    ),
    "patterns with groups and alternatives": (
        "llama",
        {
            "target_modules": ["up_proj", "gate_proj", "q_proj", "k_proj"],
            "alpha_pattern": {
                r".*\.layers\.1\..*(q_proj|k_proj)$": 16,
                r"(?:.*\.)?mlp\.(up|gate)_proj": 3,
                "(a*)*b": 9,
            },
        },
    ),
    "whole modules": ("llama", {"target_modules": ["up_proj"], "modules_to_save": ["lm_head", "norm"]}),
    "biases": ("bert_masked", {"target_modules": ["query", "dense"], "bias": "lora_only"}),
    "inputs as rows": ("gpt2", {"target_modules": ["c_attn", "c_proj", "c_fc"]}),
    "an embedding": ("llama", {"target_modules": ["embed_tokens", "v_proj"]}),
    "lengths of their own": ("llama", {"target_modules": ["up_proj", "down_proj"], "use_dora": True}),
    "lengths of columns": ("gpt2", {"target_modules": ["c_fc", "c_proj"], "use_dora": True}),
    "biases beside": ("llama_biased", {"target_modules": ["up_proj"], "lora_bias": True, "use_rslora": True}),
}
#: of a base whose head is its embedding; of one whose vocabulary grows from 50 tokens to 53, or shrinks
RUNNING = {
    "head": ("llama_tied", {"target_modules": ["lm_head", "up_proj"]}, 50),
    "whole head": ("llama_tied", {"target_modules": ["up_proj"], "modules_to_save": ["lm_head"]}, 50),
    "embedding": ("llama_tied", {"target_modules": ["embed_tokens", "up_proj"]}, 50),
    "whole embedding": ("llama_tied", {"target_modules": ["up_proj"], "modules_to_save": ["embed_tokens"]}, 50),
    "both": ("llama_tied", {"target_modules": ["embed_tokens", "lm_head", "up_proj"]}, 50),
    "both alike": ("llama_tied", {"target_modules": ["lm_head", "up_proj"], "ensure_weight_tying": True}, 50),
    "more tokens, tied": ("llama_tied", {"target_modules": ["up_proj"]}, 53),
    "more tokens": ("llama", {"target_modules": ["up_proj"]}, 53),
    "more tokens, both trained": ("llama", {"target_modules": ["up_proj", "lm_head", "embed_tokens"]}, 53),
    "fewer tokens": ("llama", {"target_modules": ["up_proj"]}, 40),
    "more tokens, head": ("llama_tied", {"target_modules": ["lm_head", "up_proj"]}, 53),
    "more tokens, head with lengths": ("llama_tied", {"target_modules": ["lm_head", "up_proj"], "use_dora": True}, 53),
    "more tokens, whole head": ("llama_tied", {"target_modules": ["up_proj"], "modules_to_save": ["lm_head"]}, 53),
    "more tokens, whole ends": (
        "llama_tied",
        {"target_modules": ["up_proj"], "modules_to_save": ["lm_head", "embed_tokens"]},
        53,
    ),
    "more tokens, whole ends, untied": (
        "llama",
        {"target_modules": ["up_proj"], "modules_to_save": ["lm_head", "embed_tokens"]},
        53,
    ),
}


def adapt(base, folder, *, seed=0, rows=50, merged=True, name="default", **settings):
    """Write an adapter of random numbers, and return the model that peft merges of it and its base, or runs."""
    config = peft.LoraConfig(**({"r": 4, "lora_alpha": 6} | settings))
    with warnings.catch_warnings(), torch.random.fork_rng(), torch.no_grad():
        warnings.simplefilter("ignore")  # peft uses what transformers renames, and tells what it saves
        torch.manual_seed(seed)
        plain = Checkpoint.open(base).load_model()
        if rows != 50:
            plain.resize_token_embeddings(rows)
        model = peft.get_peft_model(plain, config, adapter_name=name)
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.3)
        model.save_pretrained(folder, save_embedding_layers=True if rows != 50 else "auto")
        return (model.merge_and_unload() if merged else model).eval()


@pytest.fixture
def pair(llama, tmp_path):
    """Return a base and an adapter as it is named, and the adapter's folder."""
    adapt(llama, tmp_path / "adapter", target_modules=["up_proj"])
    return f"{llama}+{tmp_path / 'adapter'}", tmp_path / "adapter"


@pytest.mark.parametrize("label", KINDS)
def test_what_is_merged_is_what_peft_merges(tmp_path, label):
    architecture, settings = KINDS[label]
    tiny_models.save(architecture, tmp_path / "base")
    theirs = adapt(tmp_path / "base", tmp_path / "adapter", **settings)
    base = Checkpoint.open(tmp_path / "base")
    merged = Checkpoint.open(f"{tmp_path / 'base'}+{tmp_path / 'adapter'}")
    assert merged.tensor_names == base.tensor_names
    expected = theirs.state_dict()
    changed = 0
    for name in base.tensor_names:
        result = merged.array(name)
        key = name if name in expected else next(item for item in expected if item.endswith(f".{name}"))
        np.testing.assert_allclose(result, expected[key], atol=1e-5)
        np.testing.assert_allclose(merged.array(name, range(len(result) - 1, len(result))), result[-1:], atol=1e-6)
        changed += not np.array_equal(result, base.array(name))
    assert changed >= 2
    tokens = torch.arange(8)[None]
    with torch.no_grad():
        ours = merged.load_model()(tokens).logits
        torch.testing.assert_close(ours, theirs(tokens).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("label", RUNNING)
def test_a_head_tied_in_the_base_and_other_tokens_are_read_as_they_were_trained(tmp_path, label):
    """The reference is the adapter as it runs: merging changes both ends of a tied base."""
    architecture, settings, rows = RUNNING[label]
    tiny_models.save(architecture, tmp_path / "base")
    theirs = adapt(tmp_path / "base", tmp_path / "adapter", rows=rows, merged=False, **settings)
    checkpoint = Checkpoint.open(f"{tmp_path / 'base'}+{tmp_path / 'adapter'}")
    anatomy = anatomy_module.of(checkpoint)
    assert (anatomy.vocab_size, anatomy.shape("head")[0]) == (rows, rows)
    tokens = torch.arange(rows - 8, rows)[None]
    with torch.no_grad():
        torch.testing.assert_close(checkpoint.load_model()(tokens).logits, theirs(tokens).logits, atol=1e-4, rtol=1e-4)
    apart = architecture == "llama_tied"
    assert (not anatomy.tied) == (apart or architecture == "llama")
    assert [note.endswith("these are tied: each was read apart.") for note in checkpoint.notes] == [True] * apart


def test_an_adapter_with_a_name_lies_in_a_folder_of_its_own(llama, tmp_path):
    theirs = adapt(llama, tmp_path / "a3", name="mine", target_modules=["up_proj"]).state_dict()[UP]
    for text in (f"{llama}+{tmp_path / 'a3'}", f"{llama}+{tmp_path / 'a3' / 'mine'}"):
        np.testing.assert_allclose(Checkpoint.open(text).array(UP), theirs, atol=1e-5)
    tiny_models.copy(tmp_path / "a3" / "mine", tmp_path / "a3" / "yours")
    with pytest.raises(CheckpointError, match=r"a3 holds several adapters; give the folder of one, as .*a3/mine"):
        Checkpoint.open(f"{llama}+{tmp_path / 'a3'}")


KEPT = {
    "its own name": lambda name: re.sub(r"(lora_[AB])", r"\1.mine", name),
    "compiled": lambda name: f"_orig_mod.{name}",
    "compiled within": lambda name: name.replace("base_model.model.", "base_model.model._orig_mod."),
    "in parallel": lambda name: f"module.{name}",
    "checkpointed": lambda name: name.replace("layers.0.", "layers.0._checkpoint_wrapped_module."),
    "sharded": lambda name: "_fsdp_wrapped_module." + name.replace("layers.0.", "layers.0._fsdp_wrapped_module."),
    "peft twice": lambda name: f"base_model.model.{name}",
    "all of it": lambda name: "module._orig_mod." + re.sub(r"(lora_[AB])", r"\1.default", name),
}


PLACES = {
    "the language part of a model that does more": ("", "model.", "model.language_model."),
    "a part before whose names stands the wrapper's": ("", "", "language_model."),
    "a text model, of one that does more": ("model.language_model.", "model.", "model."),
    "another wrapper": ("language_model.model.", "model.", "model.language_model."),
}


@pytest.mark.parametrize("label", PLACES)
def test_an_adapter_fits_the_language_model_wherever_that_stands(pair, llama, tmp_path, label):
    """One adapter, trained on the language model alone or as part of another, and a base that is the other."""
    trained, old, new = PLACES[label]
    expected = Checkpoint.open(pair[0]).array(UP)
    if trained:
        _renamed("base_model.model.model.", f"base_model.model.{trained}")(pair[1])

    def placed(tensors):
        for name in [name for name in tensors if name.startswith(old)]:
            tensors[new + name.removeprefix(old)] = tensors.pop(name)
        tensors[f"model.visual.{UP.removeprefix('model.')}"] = torch.ones(2, 2)  # an encoder's own, which is none of it

    tiny_models.rewrite(llama, placed)
    if new != "model.":
        tiny_models.edit_json(
            llama / "config.json",
            lambda config: config.update(architectures=["LlavaForConditionalGeneration"], text_config=dict(config)),
        )
    merged = Checkpoint.open(pair[0])
    name = next(
        name for name in merged.tensor_names if name.endswith(UP.removeprefix("model.")) and "visual" not in name
    )
    assert np.array_equal(merged.array(name), expected)
    _renamed("layers.1", "layers.7")(pair[1])
    with pytest.raises(CheckpointError, match=r"layers.7.mlp.up_proj.weight, which the base has not"):
        Checkpoint.open(pair[0])


@pytest.mark.parametrize("label", KEPT)
def test_what_training_left_in_an_adapter_s_names_is_no_part_of_them(pair, label):
    text, folder = pair
    expected = Checkpoint.open(text).array(UP)
    _tensors(lambda tensors: {KEPT[label](name): value for name, value in tensors.items()})(folder)
    assert np.array_equal(Checkpoint.open(text).array(UP), expected)


def test_the_digest_is_of_both_and_reports_say_what_was_merged(llama, pair, tmp_path):
    text, _ = pair
    merged, base = Checkpoint.open(text), Checkpoint.open(llama)
    weights = {"model.safetensors", "adapter_model.safetensors"}
    assert set(merged.files()) == weights | {"config.json", "adapter_config.json"}
    assert Checkpoint.open(merged.source).digest == merged.digest != base.digest
    assert merged.name == f"{base.name}+adapter"
    assert merged.bytes_to_hash() > base.bytes_to_hash() > 0
    adapt(llama, tmp_path / "other", target_modules=["up_proj"], seed=1)
    assert Checkpoint.open(f"{llama}+{tmp_path / 'other'}").digest != merged.digest
    result = compare(text, llama, statistics=["phi_u"])
    assert result.records[0].outcome.log10_p < -10  # its numbers are not small
    assert f"A LoRA adapter was merged into its base, in float32: {text}" in result.verdict()
    assert result.models[0]["stored"] == ["LoRA"]


def test_both_may_lie_on_the_hub(llama, pair, serve):
    _, folder = pair
    serve(org__base=Repo(llama), org__ad=Repo(folder))
    local = Checkpoint.open(f"{llama}+{folder}")
    for text in ("org/base+org/ad", f"https://huggingface.co/org/base+{folder}"):
        assert Checkpoint.open(text).digest == local.digest
    assert np.array_equal(Checkpoint.open("org/base+org/ad").array(UP), local.array(UP))


def test_an_adapter_belongs_to_the_innermost_model(llama, pair):
    text, folder = pair
    register_scheme("plainly", lambda name: llama)
    assert Checkpoint.open(f"plainly:x+{folder}").digest == Checkpoint.open(text).digest
    once, merged = Checkpoint.open(f"disguised:T1+split=2:{text}"), Checkpoint.open(text)
    assert once.digest != merged.digest
    tokens = torch.arange(8)[None]
    with torch.no_grad():
        ours, theirs = (item.load_model()(tokens).logits for item in (once, merged))
    torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)


def test_a_plus_in_a_path_is_part_of_it(llama, pair, tmp_path, monkeypatch):
    _, folder = pair
    there, adapter = tiny_models.copy(llama, tmp_path / "a+b"), tiny_models.copy(folder, tmp_path / "c+d")
    assert Checkpoint.open(str(there)).source == str(there)
    assert split(f"{there}+{adapter}") == (str(there), str(adapter))
    assert Checkpoint.open(f"{there}+{adapter}").digest == Checkpoint.open(f"{llama}+{folder}").digest
    assert split(f"{tmp_path}/absent+{folder.name}") is None
    assert split("org/base+org/adapter") == ("org/base", "org/adapter")
    with pytest.raises(CheckpointError, match=r"absent\+x does not exist"):
        Checkpoint.open(f"{tmp_path}/absent+x")


def _config(**entries):
    return lambda folder: tiny_models.edit_json(folder / "adapter_config.json", lambda content: content.update(entries))


def _tensors(change):
    def spoil(folder):
        tensors = load_file(folder / "adapter_model.safetensors")
        save_file(change(tensors), folder / "adapter_model.safetensors")

    return spoil


def _renamed(old, new):
    return _tensors(lambda tensors: {name.replace(old, new): value for name, value in tensors.items()})


BAD = {
    "DoRA without lengths": (_config(use_dora=True), r"lora_magnitude_vector does not fit the base"),
    "one axis": (_config(use_qalora=True), r"not merged here \(QA-LoRA\); merge it \(peft"),
    "another kind": (_config(peft_type="IA3"), r"not merged here \(IA3\)"),
    "another base": (_config(init_lora_weights="pissa"), r"not merged here \(pissa\)"),
    "blocks repeated": (_config(layer_replication=[[0, 2]]), "blocks repeated"),
    "no kind": (lambda folder: (folder / "adapter_config.json").write_text("{}"), r"not merged here \(None\)"),
    "no JSON": (lambda folder: (folder / "adapter_config.json").write_text("["), "is no valid JSON"),
    "no alpha": (_config(lora_alpha=None), "has no number as its lora_alpha"),
    "a huge alpha": (_config(lora_alpha=10**400), "has no number as its lora_alpha"),
    "a pattern without end": (
        _config(alpha_pattern={"(.|..|...)*" * 4 + "[0-9]": 1}),
        r"a pattern that takes too long, \(\.\|.*; merge it",
    ),
    "half a pattern": (_config(alpha_pattern={"(a": 1}), r"a pattern that is no regular expression, \(a; merge it"),
    "patterns in a list": (_config(alpha_pattern=["x y"]), "alpha_pattern in adapter_config.json is no table"),
    "no such block": (_renamed("layers.1", "layers.7"), r"changes model.layers.7.mlp.up_proj.weight, which the base"),
    "half a pair": (_renamed("layers.1.mlp.up_proj.lora_A", "layers.1.mlp.down_proj.lora_A"), "lacks lora_A or lora_B"),
    "another width": (_tensors(lambda t: {n: v[:, :-1].clone() for n, v in t.items()}), "does not fit the base"),
    "another part": (_renamed("lora_A", "lora_C"), "is no part of an adapter that is merged"),
    "two in one file": (
        _tensors(lambda t: t | {re.sub(r"(lora_[AB])", r"\1.two", name): value + 1 for name, value in t.items()}),
        "holds several adapters, one without a name and two; save one of them alone",
    ),
    "one of two, wrapped": (
        _tensors(lambda t: t | {f"module.{name}": value + 1 for name, value in t.items()}),
        r"and module\.base_model.*without what wrapped them in training; save one alone",
    ),
    "one of two, by the usual name": (
        _tensors(lambda t: t | {name.replace(".weight", ".default.weight"): value + 1 for name, value in t.items()}),
        "without what wrapped them in training; save one alone",
    ),
    "cut off": (lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"x" * 20), "truncated or corrupt"),
    "no weights": (lambda folder: (folder / "adapter_model.safetensors").unlink(), "no adapter_model.bin"),
    "no config": (lambda folder: (folder / "adapter_config.json").unlink(), "is no adapter, as it has no adapter_conf"),
}


@pytest.mark.parametrize("label", BAD)
def test_what_cannot_be_merged_is_refused_in_one_line(pair, label):
    text, folder = pair
    spoil, content = BAD[label]
    spoil(folder)
    with pytest.raises(CheckpointError, match=content) as caught:
        Checkpoint.open(text)
    assert "\n" not in str(caught.value)
    assert len(re.sub(r"/\S+", "", str(caught.value))) < 350


def test_numbers_that_overflow_are_named(pair):
    text, folder = pair
    _tensors(lambda tensors: {name: value * 1e30 for name, value in tensors.items()})(folder)
    with pytest.raises(InvalidWeightsError, match=r"up_proj.weight holds \d+ NaN and \d+ Inf"):
        Checkpoint.open(text).array(UP)


def test_a_pickled_adapter_must_be_trusted(pair):
    text, folder = pair
    expected = Checkpoint.open(text).array(UP)
    torch.save(load_file(folder / "adapter_model.safetensors"), folder / "adapter_model.bin")
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="only as pickle"):
        Checkpoint.open(text)
    assert np.array_equal(Checkpoint.open(text, allow_pickle=True).array(UP), expected)


def test_one_adapter_is_merged_not_two(pair):
    text, folder = pair
    with pytest.raises(CheckpointError, match="one adapter is merged, not two"):
        Checkpoint.open(f"{text}+{folder}")
