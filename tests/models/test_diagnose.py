"""Files that are no weights are named, with the remedy, and never read as weights."""

import json

import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file

from provlab.errors import CheckpointError, InvalidWeightsError
from provlab.models import anatomy
from provlab.models.checkpoint import Checkpoint
from provlab.models.language import inferred

UP = "model.layers.0.mlp.up_proj.weight"


def _files(**contents):
    def make(folder):
        for path in folder.iterdir():
            path.unlink()
        for name, content in contents.items():
            (folder / name.replace("__", ".")).write_bytes(content)

    return make


def _weights_as(content):
    return lambda folder: (folder / "model.safetensors").write_bytes(content)


def _tensors(change, **config):
    def make(folder):
        tiny_models.rewrite(folder, change)
        tiny_models.edit_json(folder / "config.json", lambda content: content.update(config))

    return make


def _as(dtype, beside=None):
    """Turn a weight into another dtype, and put a tensor beside it that a way of quantising writes."""

    def change(tensors):
        tensors[UP] = (100 * tensors[UP]).to(torch.int32).to(dtype)
        if beside:
            tensors[UP.replace("weight", beside)] = torch.ones(4)

    return change


def _stored(method, shape, dtype, *beside):
    """Store a weight in a layout of its own, with scales beside it."""

    def change(tensors):
        outputs, inputs = tensors[UP].shape
        tensors[UP] = torch.zeros(shape(outputs, inputs), dtype=dtype)
        tensors |= {UP.removesuffix("weight") + name: torch.ones(1) for name in beside}

    return _tensors(change, **{"quantization_config": {"quant_method": method}} if method else {})


def _packed(beside):
    """Put codes under another name in place of a weight."""
    return lambda tensors: tensors.update({UP.replace("weight", beside): tensors.pop(UP).to(torch.int32)})


GIVEN = {
    "an adapter": (
        _files(adapter_config__json=b'{"base_model_name_or_path": "org/base"}', adapter_model__safetensors=b"x"),
        "is an adapter, .* added to org/base; name both, as BASE",
    ),
    "an adapter that says nothing": (_files(adapter_config__json=b"["), "is an adapter, .* added to its base model"),
    "ONNX": (
        _files(config__json=b"{}", model__onnx=b"x"),
        "but model.onnx: a graph for inference; give the checkpoint",
    ),
    "Meta's layout": (
        _files(params__json=b"{}", consolidated__00__pth=b"x"),
        "but consolidated.00.pth: .*often named -hf",
    ),
    "TensorFlow": (_files(config__json=b"{}", tf_model__h5=b"x"), "but tf_model.h5: TensorFlow"),
    "another name": (
        _files(config__json=b"{}", other__safetensors=b"x"),
        "has other.safetensors but no model.saf",
    ),
    "a pointer": (_weights_as(b"version https://git-lfs.github.com/spec/v1"), "pointer of Git LFS.*: run git lfs pull"),
    "a page": (_weights_as(b"<!DOCTYPE html>"), "it is a web page, .*: download it again"),
    "a pickle": (_weights_as(b"PK\x03\x04" + bytes(99)), "it is a pickle under another name: convert"),
    "GGUF under another name": (_weights_as(b"GGUF" + bytes(99)), "it is GGUF under another name: name it model.gguf"),
    "GPTQ": (
        _tensors(_packed("qweight"), quantization_config={"quant_method": "gptq"}),
        "codes of a quantised copy .gptq; .*; give the checkpoint that it was made from",
    ),
    "AWQ that does not say so": (_tensors(_packed("qweight")), "codes of a quantised copy .GPTQ or AWQ"),
    "compressed tensors": (_tensors(_packed("weight_packed")), "codes of a quantised copy .compressed-tensors"),
    "MLX": (_tensors(_as(torch.uint32, "scales"), quantization={"bits": 4}), "codes of a quantised copy .MLX"),
    "bitsandbytes": (
        _tensors(_as(torch.int8, "SCB")),
        "codes and scales of model.layers.0.mlp.up_proj.weight .bitsandbytes int8. do not fit together",
    ),
    "4 bits": (_tensors(_as(torch.uint8, "weight.absmax")), "codes of a quantised copy .bitsandbytes, 4 bits"),
    "fp8": (
        _tensors(_as(torch.float8_e4m3fn, "weight_scale_inv")),
        "codes and scales of model.layers.0.mlp.up_proj.weight .8 bits with scales. do not fit together",
    ),
    "int8": (_tensors(_as(torch.int8)), "codes of a quantised copy .integers; model.layers.0.mlp.up_proj.weight"),
    "BitNet": (
        _stored("bitnet", lambda outputs, inputs: (outputs // 4, inputs), torch.uint8, "weight_scale"),
        "codes of a quantised copy .bitnet; .* in a layout that is not read",
    ),
    "NVFP4": (
        _stored("modelopt", lambda o, i: (o, i // 2), torch.uint8, "weight_scale", "weight_scale_2"),
        "codes of a quantised copy .modelopt; .* in a layout that is not read",
    ),
    "EETQ": (
        _stored(None, lambda outputs, inputs: (inputs, outputs), torch.int8, "weight_scales"),
        "codes of a quantised copy .integers; .* in a layout that is not read",
    ),
    "Meta's names": (
        _tensors(lambda tensors: tensors.update({"layers.0.feed_forward.w3.weight": tensors.pop(UP)})),
        f"lacks the tensor {UP}, .* its files are whole: give .*, as transformers saves them",
    ),
}


def _read(folder):
    checkpoint = Checkpoint.open(folder)
    anatomy.of(checkpoint)
    return checkpoint.array(UP)


@pytest.mark.parametrize("label", GIVEN)
def test_other_files_are_named(llama, label):
    make, text = GIVEN[label]
    make(llama)
    with pytest.raises(CheckpointError, match=text) as refusal:
        _read(llama)
    assert "\n" not in str(refusal.value)


def test_a_folder_around_a_model_names_the_one_below(llama, tmp_path):
    outer = tmp_path / "outer"
    tiny_models.copy(llama, outer / "inner" / "abc")
    with pytest.raises(CheckpointError, match=r"no config.json, but the folder .*inner/abc has; give that one"):
        Checkpoint.open(outer)


def test_a_page_in_place_of_the_config(llama):
    (llama / "config.json").write_text("<html>Sign in</html>")
    with pytest.raises(CheckpointError, match=r"config.json is no valid JSON; it is a web page"):
        Checkpoint.open(llama)


def test_a_config_that_begins_with_the_mark_of_an_editor(llama):
    (llama / "config.json").write_bytes(b"\xef\xbb\xbf" + (llama / "config.json").read_bytes())
    assert Checkpoint.open(llama).architecture == "LlamaForCausalLM"


def test_true_weights_are_no_codes(tiny):
    for label in tiny_models.TINY:
        anatomy.of(Checkpoint.open(tiny(label)))


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod.", "module._orig_mod.", "base_model.model."])
def test_a_wrapper_s_prefix_is_no_part_of_the_name(llama, tmp_path, wrapper):
    honest = Checkpoint.open(tiny_models.copy(llama, tmp_path / "honest"))
    tensors = load_file(llama / "model.safetensors")
    save_file({wrapper + name: value for name, value in tensors.items()}, llama / "model.safetensors", {"format": "pt"})
    wrapped = Checkpoint.open(llama)
    ours, theirs = (anatomy.of(checkpoint).read(checkpoint, "up", 1) for checkpoint in (wrapped, honest))
    assert (ours == theirs).all()
    tokens = torch.arange(8)[None]
    with torch.no_grad():
        assert torch.equal(wrapped.load_model()(tokens).logits, honest.load_model()(tokens).logits)


@pytest.mark.parametrize("label", ["llama", "llama_base", "qwen2", "gpt2", "bert_masked", "bert_base", "gpt_neox"])
def test_a_config_without_architectures_is_told_by_its_tensors(tiny, tmp_path, label):
    folder = tiny_models.copy(tiny(label), tmp_path / "copy")
    named = json.loads((folder / "config.json").read_text())["architectures"][0]
    tiny_models.edit_json(folder / "config.json", lambda config: config.update(architectures=None))
    checkpoint = Checkpoint.open(folder)
    assert checkpoint.architecture == named
    assert anatomy.of(checkpoint).n_blocks == tiny_models.BLOCKS


def test_an_unknown_type_infers_nothing():
    assert inferred({"model_type": "mamba"}, []) is None


def test_a_quantised_head_alone_is_refused_too(llama):
    tiny_models.rewrite(
        llama, lambda tensors: tensors.update({"lm_head.weight": tensors["lm_head.weight"].to(torch.int8)})
    )
    with pytest.raises(InvalidWeightsError, match="codes of a quantised copy"):
        anatomy.of(Checkpoint.open(llama))


def test_fp8_without_scales_is_read_as_it_is(llama):
    _tensors(_as(torch.float8_e4m3fn))(llama)
    checkpoint = Checkpoint.open(llama)
    assert anatomy.of(checkpoint).read(checkpoint, "up", 0).shape == (tiny_models.MLP_WIDTH, tiny_models.WIDTH)
