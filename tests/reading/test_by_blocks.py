"""A model of which one block at a time is widened says what the whole one says, and leaves its weights as they were."""

import gc
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from provlab.attacks.precision import Float64
from provlab.errors import InputError
from provlab.reading import anatomy
from provlab.reading.by_blocks import blocks_of, kept_on, run_by_blocks
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.examples import TINY, build
from provlab.reading.steps import runs_by_blocks
from provlab.running.activations import mlp_activations

TOKENS = torch.tensor([[1, 5, 7, 9, 2, 4]])


def saved(folder, label, dtype=torch.bfloat16):
    build(label).to(dtype).save_pretrained(folder)
    return Checkpoint.open(folder)


def output(network):
    decoded = {"decoder_input_ids": TOKENS} if network.config.is_encoder_decoder else {}
    with torch.inference_mode():
        return network(input_ids=TOKENS, **decoded)[0]


def narrow(network):
    return sum(p.dtype == torch.bfloat16 for p in network.parameters())


@pytest.mark.parametrize("label", TINY)
def test_outputs_are_those_of_the_whole_model(tmp_path, label):
    checkpoint = saved(tmp_path, label)
    try:
        whole = output(checkpoint.load_model())
    except Exception as error:  # noqa: BLE001 (a model that does not run on these inputs says so either way)
        pytest.skip(str(error))
    network = checkpoint.load_model(by_blocks=True)
    assert torch.equal(output(network), whole)
    assert torch.equal(output(network), whole)
    assert narrow(network) > 0
    assert network.dtype == torch.float32


def test_blocks_of_unequal_shapes_do_not_add_up_in_memory():
    """Each block takes memory of the one before it where shapes agree, and the rest is let go."""
    widths = [8 * k for k in range(1, 9)]
    network = torch.nn.Module()
    network.blocks = torch.nn.ModuleList(torch.nn.Linear(16, width, dtype=torch.bfloat16) for width in widths)
    network.config = SimpleNamespace(dtype=torch.bfloat16)
    run_by_blocks(network, list(network.blocks), torch.float32, "cpu")
    weights = []
    with torch.inference_mode():
        for block in network.blocks:
            block.register_forward_hook(lambda module, *_: weights.append(weakref.ref(module.weight)), prepend=True)
            assert block(torch.ones(1, 16)).dtype == torch.float32
    gc.collect()
    assert [weight() is not None for weight in weights] == [False] * 7 + [True]


def test_a_factor_of_an_embedding_is_not_rounded(tmp_path):
    checkpoint = saved(tmp_path, "gemma3")
    network = checkpoint.load_model(by_blocks=True)
    factor = network.get_input_embeddings().embed_scale
    assert float(factor) == pytest.approx(network.get_input_embeddings().scalar_embed_scale, rel=1e-7)


def test_a_table_made_in_16_bits_is_loaded_whole(tmp_path):
    checkpoint = saved(tmp_path, "llama")
    network = checkpoint.load_model(torch.bfloat16)
    assert blocks_of(network, anatomy.of(checkpoint), torch.float32)
    network.register_buffer("slopes", torch.ones(3, dtype=torch.bfloat16), persistent=False)
    assert blocks_of(network, anatomy.of(checkpoint), torch.float32) is None
    assert blocks_of(network, anatomy.of(checkpoint), torch.bfloat16)


def test_angles_that_are_float32_in_any_model_do_not_keep_it_from_running_in_float64(tmp_path):
    """A proof of a disguise: 54 GB of a model of 7 billion numbers in float64, were it whole."""
    checkpoint = saved(tmp_path, "llama")
    network, whole = (checkpoint.load_model(torch.float64, by_blocks=each) for each in (True, False))
    assert narrow(network) > 0 == narrow(whole)
    with Float64():
        assert torch.equal(output(network), output(whole))


def test_a_pickled_model_runs_by_blocks_from_the_float32_that_is_written_for_it(tmp_path):
    folder = Path(saved(tmp_path / "plain", "llama").source)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    checkpoint = Checkpoint.open(folder, allow_pickle=True)
    assert torch.equal(output(checkpoint.load_model(by_blocks=True)), output(checkpoint.load_model()))
    network = checkpoint.load_model(torch.float64, by_blocks=True)
    with Float64():
        output(network)
    kinds = anatomy.of(checkpoint)
    of_blocks = len([part for part in kinds.parts if part.block is not None])
    assert sum(p.dtype == torch.float32 for p in network.parameters()) == of_blocks


def test_one_block_is_widened_at_a_time(tmp_path):
    checkpoint = saved(tmp_path, "llama")
    network = checkpoint.load_model(by_blocks=True)
    kinds = anatomy.of(checkpoint)
    of_block = len([part for part in kinds.parts if part.block == 0])
    counts = []
    for block in range(kinds.n_blocks):
        network.get_submodule(kinds.module("down", block)).register_forward_hook(
            lambda *_: counts.append(narrow(network))
        )
    output(network)
    assert counts == [narrow(network) - of_block] * kinds.n_blocks


def test_a_block_is_widened_into_the_memory_of_the_one_before(tmp_path):
    """New pages for each take twice as long as to widen; a run after one that was broken off has them still."""
    checkpoint = saved(tmp_path, "llama")
    network = checkpoint.load_model(by_blocks=True)
    kinds = anatomy.of(checkpoint)
    places = []
    for block in range(kinds.n_blocks):
        down = network.get_submodule(kinds.module("down", block))
        down.register_forward_hook(lambda module, *_: places.append(module.weight.data_ptr()))
    output(network)
    output(network)
    assert len(places) == 2 * kinds.n_blocks > 2
    assert len(set(places)) == 1


def test_a_run_that_is_broken_off_leaves_the_weights_as_they_were(tmp_path):
    checkpoint = saved(tmp_path, "llama")
    network = checkpoint.load_model(by_blocks=True)
    before = narrow(network)

    def broken(*_):
        assert narrow(network) < before
        raise InputError

    handle = network.get_submodule(anatomy.of(checkpoint).module("down", 0)).register_forward_hook(broken)
    with pytest.raises(InputError):
        output(network)
    handle.remove()
    assert narrow(network) == before
    assert torch.equal(output(network), output(checkpoint.load_model()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_activations_are_the_same_in_any_dtype(tmp_path, dtype):
    """bfloat16 of a file in float16 is rounded, so such a model is loaded whole."""
    checkpoint = saved(tmp_path, "llama", torch.float16)
    kinds = ("gate", "up", "units", "written")
    theirs, ours = (
        mlp_activations(model, TOKENS.numpy(), kinds=kinds, dtype=dtype)
        for model in (checkpoint.load_model(dtype), checkpoint)
    )
    for kind in kinds:
        for x, y in zip(theirs[kind], ours[kind], strict=True):
            np.testing.assert_array_equal(x, y)


def test_a_head_that_is_the_embedding_stays_it(tmp_path):
    network = saved(tmp_path, "qwen2").load_model(by_blocks=True)
    tied = network.config.tie_word_embeddings
    assert (network.get_output_embeddings().weight is network.get_input_embeddings().weight) == tied


def test_a_device_holds_one_block_at_a_time(tmp_path):
    """torch's device without numbers stands for one that is too small for the model."""
    checkpoint = saved(tmp_path, "llama")
    kinds = anatomy.of(checkpoint)
    network = checkpoint.load_model(device="meta", by_blocks=True)
    own = sum(1 for part in kinds.parts if part.block == 0)
    outside = sum(p.device.type == "meta" for p in network.parameters())
    counts = []
    for block in range(kinds.n_blocks):
        network.get_submodule(kinds.module("down", block)).register_forward_hook(
            lambda *_: counts.append(sum(p.device.type == "meta" for p in network.parameters()))
        )
    with torch.inference_mode():
        network(input_ids=TOKENS.to("meta"))
    assert counts == [outside + own] * kinds.n_blocks
    assert sum(p.device.type == "cpu" for p in network.parameters()) == own * kinds.n_blocks


def test_weights_without_a_role_are_not_rounded(tmp_path):
    """Files of two dtypes: a norm or a decay that no statistic reads may stand in float32."""
    checkpoint = saved(tmp_path, "llama")
    assert runs_by_blocks(checkpoint, "float32") == "bfloat16"
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.0.self_attn.extra"] = torch.ones(3)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    assert runs_by_blocks(Checkpoint.open(tmp_path), "float32") is None
    tensors["model.layers.0.self_attn.extra"] = torch.arange(3)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    assert runs_by_blocks(Checkpoint.open(tmp_path), "float32") == "bfloat16"


def test_a_model_whose_blocks_lend_weights_to_others_is_loaded_whole(tmp_path):
    checkpoint = saved(tmp_path, "llama")
    network = checkpoint.load_model(torch.bfloat16)
    kinds = anatomy.of(checkpoint)
    assert blocks_of(network, kinds, torch.float32)
    network.borrowed = torch.nn.Linear(3, 3)
    network.borrowed.weight = network.get_submodule(kinds.module("down", 0)).weight
    assert blocks_of(network, kinds, torch.float32) is None


def test_a_buffer_of_the_file_is_widened(tmp_path):
    checkpoint = saved(tmp_path, "llama")
    network = checkpoint.load_model(torch.bfloat16)
    network.register_buffer("shift", torch.full((2,), 0.3, dtype=torch.bfloat16))
    blocks = blocks_of(network, anatomy.of(checkpoint), torch.float32)
    shift = run_by_blocks(network, blocks, torch.float32, "cpu").shift
    assert shift.dtype == torch.float32
    assert torch.equal(shift, torch.full((2,), 0.3, dtype=torch.bfloat16).float())


def test_a_table_that_no_file_has_is_loaded_whole(tmp_path):
    """Marian makes its positions itself, in the dtype of the model."""
    config = transformers.MarianConfig(
        vocab_size=64, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_ffn_dim=24,
        decoder_attention_heads=2, encoder_ffn_dim=24, max_position_embeddings=32, pad_token_id=0,
    )  # fmt: skip
    transformers.MarianMTModel(config).to(torch.bfloat16).save_pretrained(tmp_path)
    checkpoint = Checkpoint.open(tmp_path)
    network = checkpoint.load_model(by_blocks=True)
    assert torch.equal(output(network), output(checkpoint.load_model()))


@pytest.mark.parametrize(("free", "kept"), [(10**9, True), (10**4, False)])
def test_a_gpu_with_room_keeps_all_blocks(tmp_path, monkeypatch, free, kept):
    checkpoint = saved(tmp_path, "llama")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 10**12))
    network = checkpoint.load_model(torch.bfloat16)
    assert kept_on("cuda:0", network, torch.float32) == kept
    assert not kept_on("cpu", network, torch.float32)
    moved = run_by_blocks(network, [], torch.float32, "cpu")
    assert narrow(moved) == 0
    assert torch.equal(output(moved), output(checkpoint.load_model()))
