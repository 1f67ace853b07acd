"""Odd folders that are read, and the name of the folder below."""

import json

import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file

from provlab.errors import CheckpointError
from provlab.models import anatomy
from provlab.models.checkpoint import Checkpoint

UP = "model.layers.0.mlp.up_proj.weight"


def test_a_folder_around_a_model_names_the_one_below(llama, tmp_path):
    outer = tmp_path / "outer"
    tiny_models.copy(llama, outer / "inner" / "abc")
    with pytest.raises(CheckpointError, match=r"no config.json, but the folder .*inner/abc has; give that one"):
        Checkpoint.open(outer)


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


def test_fp8_without_scales_is_read_as_it_is(llama):
    tiny_models.rewrite(llama, lambda tensors: tensors.update({UP: tensors[UP].to(torch.float8_e4m3fn)}))
    checkpoint = Checkpoint.open(llama)
    assert anatomy.of(checkpoint).read(checkpoint, "up", 0).shape == (tiny_models.MLP_WIDTH, tiny_models.WIDTH)
