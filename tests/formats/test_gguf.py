"""GGUF gives back the checkpoint that it was made from: names, rows, norms and config; damaged files are refused."""

import struct
import sys

import gguf_files
import numpy as np
import pytest
import sweep
import tiny_models
import torch
import transformers

from provlab import compare
from provlab.errors import CheckpointError
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint

UP = "model.layers.0.mlp.up_proj.weight"
FAMILIES = """
    llama llama_tied llama_biased mistral qwen2 qwen3 gemma gemma2 gemma3 olmo2 phi3 GraniteForCausalLM
    SmolLM3ForCausalLM Starcoder2ForCausalLM CohereForCausalLM NemotronForCausalLM
    Exaone4ForCausalLM Glm4ForCausalLM Olmo3ForCausalLM
"""


def logits(model):
    with torch.no_grad():
        return model(torch.arange(8)[None]).logits


@pytest.mark.parametrize("label", FAMILIES.split())
def test_every_tensor_and_the_logits_come_back(label, tmp_path):
    model = sweep.made(label, 0) if label.endswith("LM") else tiny_models.build(label)
    # none of the defaults; the first the file does not say: it is so in all but the largest Gemmas
    unusual = {"query_pre_attn_scalar": getattr(model.config, "head_dim", 0), "logit_scale": 0.3}
    unusual |= dict.fromkeys(("norm_epsilon", "norm_eps", "layer_norm_eps", "rms_norm_eps"), 0.01)
    if some := {key: value for key, value in unusual.items() if hasattr(model.config, key)}:
        model.config.update(some)
        weights, model = model.state_dict(), type(model)(model.config).eval()
        model.load_state_dict(weights)
    checkpoint = Checkpoint.open(gguf_files.save(model, tmp_path / "model.gguf").parent)
    true = {name: value.numpy() for name, value in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del true["lm_head.weight"]
    assert checkpoint.tensor_names == tuple(sorted(true))
    assert anatomy.of(checkpoint).parts
    assert checkpoint.stored == []
    assert not checkpoint.plain
    for name, value in true.items():
        assert np.allclose(checkpoint.array(name), value, atol=1e-6, rtol=0), name
        assert np.array_equal(checkpoint.array(name, range(1, 3)), checkpoint.array(name)[1:3])
    assert torch.allclose(logits(checkpoint.load_model()), logits(model), atol=1e-5)


@pytest.mark.parametrize(("kind", "dtype"), [("F16", "float16"), ("BF16", "bfloat16")])
def test_halves_stay_halves(kind, dtype, tmp_path):
    model = tiny_models.build("llama")
    (tmp_path / "a.gguf").write_bytes(gguf_files.content(*gguf_files.converted(model, kind), version=2))
    checkpoint = Checkpoint.open(tmp_path / "a.gguf")
    for name in (UP, "model.layers.1.self_attn.q_proj.weight"):
        assert checkpoint.dtype(name) == dtype
        assert torch.equal(checkpoint.tensor(name), model.state_dict()[name].to(getattr(torch, dtype)))


def of_width(width, seed=0):
    sizes = {"hidden_size": width, "intermediate_size": width, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=50, max_position_embeddings=32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize(("kind", "width", "off"), [("Q4_0", 64, 0.13), ("Q8_0", 64, 0.005), ("Q4_K", 256, 0.1)])
def test_a_quantised_copy_is_known_and_a_stranger_is_not(kind, width, off, tmp_path):
    model = of_width(width)
    for seed, name in enumerate(("full", "stranger")):
        of_width(width, seed).save_pretrained(tmp_path / name)
    path = tmp_path / "copy.gguf"
    path.write_bytes(gguf_files.content(*gguf_files.converted(model, kind)))
    copy, full = Checkpoint.open(path), Checkpoint.open(tmp_path / "full")
    for name in full.tensor_names:
        values, true = copy.array(name), full.array(name)
        assert np.abs(values - true).max() <= off * np.abs(true).max(), name
        assert np.array_equal(copy.array(name, range(3, 9)), values[3:9])
    both = torch.stack([logits(copy.load_model()).flatten(), logits(model).flatten()])
    assert torch.corrcoef(both)[0, 1] > 0.95
    against = {n: compare(path, tmp_path / n, statistics=["phi_u"]) for n in ("full", "stranger")}
    # the floor of two blocks of so many units
    floor = -2 * sum(np.log10(np.arange(1, width + 1)))
    assert against["full"].records[0].outcome.log10_p < 0.95 * floor
    assert against["stranger"].records[0].outcome.log10_p > -3
    assert against["full"].models[0]["stored"] == [kind]
    assert f"({kind})" in against["full"].verdict()


def test_without_the_package_the_refusal_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    (tmp_path / "a.gguf").write_bytes(gguf_files.content(*gguf_files.converted(of_width(64), "Q8_0")))
    with pytest.raises(CheckpointError, match=r"a.gguf is read by the package gguf; pip install 'provlab\[gguf\]'"):
        Checkpoint.open(tmp_path)


def test_frequencies_are_divided_as_the_file_does(tmp_path):
    """Llama 3.1's are, which stands in the file as a tensor."""
    config = tiny_models.build("llama").config
    config.rope_parameters = {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    plain = 10000.0 ** -(np.arange(0, 6, 2) / 6)
    factors = (plain / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)
    assert factors.max() > 2
    metadata, tensors = gguf_files.converted(model)
    (tmp_path / "a.gguf").write_bytes(gguf_files.content(metadata, tensors | {"rope_freqs.weight": (factors, "F32")}))
    loaded = Checkpoint.open(tmp_path).load_model()
    assert torch.allclose(logits(loaded), logits(model), atol=1e-5)
    tensors["rope_freqs.weight"] = (factors[:2], "F32")
    (tmp_path / "a.gguf").write_bytes(gguf_files.content(metadata, tensors))
    with pytest.raises(CheckpointError, match="have not 3 frequencies to divide"):
        Checkpoint.open(tmp_path)


def test_short_and_long_texts_have_divisors_of_their_own(tmp_path):
    """Phi-3's, each a tensor in the file."""
    config = tiny_models.build("phi3").config
    factors = {"short_factor": [1.0, 1.5, 2.0], "long_factor": [1.0, 3.0, 9.0]}
    config.original_max_position_embeddings = 6  # fewer than the tokens of `logits`
    config.rope_parameters = {"rope_type": "longrope", "rope_theta": 10000.0, **factors}
    config.rope_parameters["original_max_position_embeddings"] = 6
    model = transformers.Phi3ForCausalLM(config).eval()
    metadata, tensors = gguf_files.converted(model)
    metadata["phi3.rope.scaling.original_context_length"] = 6
    for which, numbers in factors.items():
        tensors[f"rope_factors_{which.removesuffix('_factor')}.weight"] = np.array(numbers, np.float32), "F32"
    (tmp_path / "a.gguf").write_bytes(gguf_files.content(metadata, tensors))
    assert torch.allclose(logits(Checkpoint.open(tmp_path).load_model()), logits(model), atol=1e-5)


def test_one_of_several_files_is_given_by_its_path(tmp_path):
    for i in range(2):
        gguf_files.save("llama", tmp_path / f"{i}.gguf", seed=i)
    with pytest.raises(CheckpointError, match=r"several models, 0.gguf and 1.gguf; give the path of one"):
        Checkpoint.open(tmp_path)
    first, second = (Checkpoint.open(str(tmp_path / f"{i}.gguf")) for i in range(2))
    assert (first.name, first.source) == ("0", str(tmp_path / "0.gguf"))
    assert first.digest != second.digest
    assert Checkpoint.open(first.source).digest == first.digest


def test_several_files_are_named_however_their_endings_are_written(tmp_path):
    for i, name in enumerate(["A.GGUF", "b.gguf"]):
        gguf_files.save("llama", tmp_path / name, seed=i)
    with pytest.raises(CheckpointError, match=r"several models, A.GGUF and b.gguf; give the path of one"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize("alone", [True, False])
def test_a_file_that_was_split_is_one_model(alone, tmp_path):
    """As llama.cpp's gguf-split does it: the first part alone describes the model."""
    model = tiny_models.build("llama")
    metadata, tensors = gguf_files.converted(model)
    names = [sorted(tensors)[:5], sorted(tensors)[5:]]
    for n, (some, beside) in enumerate(zip(names, (metadata, {"split.no": 1}), strict=True), 1):
        part = gguf_files.content(beside | {"split.count": 2}, {name: tensors[name] for name in some})
        (tmp_path / f"a-0000{n}-of-00002.gguf").write_bytes(part)
    checkpoint = Checkpoint.open(str(tmp_path / "a-00001-of-00002.gguf") if alone else tmp_path)
    assert set(checkpoint.files()) == {"a-00001-of-00002.gguf", "a-00002-of-00002.gguf"}
    assert set(checkpoint.tensor_names) == set(model.state_dict())
    assert all(np.allclose(checkpoint.array(name), value, atol=1e-6) for name, value in model.state_dict().items())
    (tmp_path / "a-00002-of-00002.gguf").unlink()
    with pytest.raises(CheckpointError, match="is one of 2 parts, and 1 of them are here; copy all"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize("label", ["mixtral", "qwen3_moe", "olmoe"])
def test_experts_come_back_one_by_one(label, tmp_path):
    more = {"num_experts": 3, "moe_intermediate_size": 40, "norm_topk_prob": True, "head_dim": 6}
    model = tiny_models.build("mixtral")
    if label == "olmoe":
        config = transformers.OlmoeConfig(**dict(tiny_models.TINY["mixtral"][1]) | {"num_experts": 3})
        model = transformers.OlmoeForCausalLM(config).eval()
    if label == "qwen3_moe":
        config = transformers.Qwen3MoeConfig(**dict(tiny_models.TINY["mixtral"][1]) | more)
        model = transformers.Qwen3MoeForCausalLM(config).eval()
    model.save_pretrained(tmp_path / "full")
    full = Checkpoint.open(tmp_path / "full")
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_files.content(*gguf_files.converted(model, of_experts=full)))
    checkpoint = Checkpoint.open(path)
    assert set(checkpoint.tensor_names) == set(full.tensor_names)
    assert all(np.allclose(checkpoint.array(name), full.array(name), atol=1e-6) for name in full.tensor_names)
    assert anatomy.of(checkpoint).mlps(1) == ("0", "1", "2")
    assert torch.allclose(logits(checkpoint.load_model()), logits(model), atol=1e-5)


def _told(**changes):
    def change(metadata, tensors):
        metadata.update({key.replace("__", "."): value for key, value in changes.items()})
        return gguf_files.content(metadata, tensors)

    return change


def _at(place, value):
    def change(metadata, tensors):
        content = bytearray(gguf_files.content(metadata, tensors))
        content[place : place + len(value)] = value
        return bytes(content)

    return change


def _endless_array(metadata, tensors):
    """An array of numbers whose length is damaged: the package itself would read nothing for hours."""
    metadata["llama.attention.head_count_kv"] = [2, 2]
    content = bytearray(gguf_files.content(metadata, tensors))
    at = content.index(b"head_count_kv") + len("head_count_kv") + 8  # behind the types of value and entries
    content[at : at + 8] = struct.pack("<Q", 2**60)
    return bytes(content)


def _of_unknown_type(metadata, tensors):
    """The last number before a tensor's place is its type."""
    content = bytearray(gguf_files.content(metadata, tensors))
    name, (weight, _) = list(tensors.items())[-1]
    at = content.rindex(gguf_files.text(name)) + len(gguf_files.text(name)) + 4 + 8 * np.ndim(weight)
    content[at : at + 4] = struct.pack("<I", 999)
    return bytes(content)


def _placed_before_the_file(metadata, tensors):
    """The number behind a tensor's type is its place, which the package adds to that of the first in 64 bits."""
    content = bytearray(gguf_files.content(metadata, tensors))
    name, (weight, _) = list(tensors.items())[-1]
    at = content.rindex(gguf_files.text(name)) + len(gguf_files.text(name)) + 8 + 8 * np.ndim(weight)
    content[at : at + 8] = struct.pack("<Q", 2**64 - 1024)
    return bytes(content)


SPOILT = {
    "a place before the file": (_placed_before_the_file, "overflow"),
    "a type of later days": (
        _of_unknown_type,
        r"a type \(999\) that the package gguf does not know; pip install -U",
    ),
    "cut": (lambda metadata, tensors: gguf_files.content(metadata, tensors)[:-1], "ends 1 bytes too early"),
    "cut in the header": (lambda metadata, tensors: gguf_files.content(metadata, tensors)[:1500], "bytes too early"),
    "version 1": (_at(4, struct.pack("<I", 1)), "version 1 which"),
    "big-endian": (_at(4, struct.pack(">I", 3)), "big-endian"),
    "countless tensors": (_at(8, struct.pack("<Q", 2**60)), "bytes too early"),
    "countless keys": (_at(16, struct.pack("<Q", 2**63)), "truncated or corrupt"),
    "an endless text": (_at(24, struct.pack("<Q", 2**40)), "bytes too early"),
    "alignment": (_told(general__alignment=0), "Invalid alignment"),
    "no blocks": (_told(llama__block_count=0), "no llama.block_count"),
    "heads as text": (_told(llama__attention__head_count="x"), "no number for llama.attention.head_count"),
    "uneven heads": (
        _told(llama__attention__head_count_kv=[2, 1]),
        "has blocks that differ in llama.attention.head_count_kv, which is not read",
    ),
    "heads that do not divide": (_told(llama__attention__head_count=5), "24 rows for 5 heads"),
    "another architecture": (_told(general__architecture="mamba"), "'mamba', which is not read from GGUF .read are"),
    "an endless array": (_endless_array, "promises an array of 1152921504606846976 entries"),
    "experts": (_told(llama__expert_count=8), "has not the 8 experts that it promises"),
    "endless blocks": (_told(llama__block_count=2**31), "promises more blocks than it has tensors"),
    "draft blocks": (_told(llama__nextn_predict_layers=1), "counts 1 draft blocks among its own, which is not read"),
    "pictures": (_told(llama__rope__dimension_sections=[2, 2]), "places of pictures, which is not read from GGUF"),
    "parts": (_told(split__count=3), "is one of 3 parts, and 1 of them are here; copy all"),
}


@pytest.mark.parametrize("label", SPOILT)
def test_a_damaged_file_is_refused_in_one_line(label, tmp_path):
    change, message = SPOILT[label]
    (tmp_path / "model.gguf").write_bytes(change(*gguf_files.converted(tiny_models.build("llama"))))
    with pytest.raises(CheckpointError, match=message):
        Checkpoint.open(tmp_path)


def test_arrays_of_one_value_for_all_blocks(tmp_path):
    metadata, tensors = gguf_files.converted(tiny_models.build("llama"))
    metadata["llama.attention.head_count_kv"] = [2, 2]
    (tmp_path / "model.gguf").write_bytes(gguf_files.content(metadata, tensors, aligned=32))
    assert Checkpoint.open(tmp_path).config["num_key_value_heads"] == 2
