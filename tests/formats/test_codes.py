"""Weights that are stored as codes come back as the floats that they stand for.

Each way of storing is written here as its own tools describe it, number by number; MXFP4 is compared with transformers.
"""

import json
from contextlib import suppress

import numpy as np
import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from provlab import compare
from provlab.errors import CheckpointError
from provlab.formats.codes import coded_weights
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.files.container import TensorInfo

GROUP = 8
NF4 = [-1, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0, 0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626]
NF4 = torch.tensor([*NF4, 0.7230, 1])
UP = "model.layers.0.mlp.up_proj"


def packed(codes, bits=4, order=None):
    """Pack codes along the last axis into words of 32 bits, the first in the lowest bits."""
    words = np.zeros((*codes.shape[:-1], codes.shape[-1] * bits // 32), np.uint64)
    for i in range(codes.shape[-1]):
        place = i % (32 // bits)
        which = i - place + (order[place] if order else place)
        words[..., i * bits // 32] |= codes[..., which].numpy().astype(np.uint64) << np.uint64(place * bits)
    return torch.from_numpy(words.astype(np.uint32).view(np.int32).copy())


def by_group(weight):
    """Codes of 4 bits from 0 to 15, and for each row and group a scale and the code of zero."""
    rows = weight.unflatten(1, (-1, GROUP))
    low, high = rows.amin(2).clamp(max=0), rows.amax(2).clamp(min=0)
    scale = (high - low) / 15
    zero = torch.round(-low / scale).clamp(1, 15)
    codes = (torch.round(rows / scale[..., None]) + zero[..., None]).clamp(0, 15)
    return codes.flatten(1).long(), scale, zero.long()


def int8_by_row(weight):
    largest = weight.abs().amax(dim=1)
    return {"weight": torch.round(weight * 127 / largest[:, None]).to(torch.int8), "SCB": largest}


def nf4(weight, nested=False):
    blocks = weight.reshape(-1, GROUP)
    largest = blocks.abs().amax(1)
    codes = (blocks[..., None] / largest[:, None, None] - NF4).abs().argmin(-1).reshape(-1, 2)
    state = {"quant_type": "nf4", "blocksize": GROUP, "dtype": "float32", "shape": list(weight.shape)}
    result = {"weight": (codes[:, :1] << 4 | codes[:, 1:]).to(torch.uint8), "weight.quant_map": NF4}
    if nested:
        table, offset = torch.linspace(-1, 1, 256), largest.mean()
        outer = (largest - offset).abs().max()
        result["weight.absmax"] = ((largest - offset)[:, None] / outer - table).abs().argmin(1).to(torch.uint8)
        result |= {"weight.nested_absmax": outer[None], "weight.nested_quant_map": table}
        state |= {"nested_blocksize": 10**4, "nested_offset": float(offset)}
    else:
        result["weight.absmax"] = largest
    text = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
    return result | {"weight.quant_state.bitsandbytes__nf4": text}


def gptq(weight):
    order = torch.randperm(weight.shape[1], generator=torch.Generator().manual_seed(1))
    codes, scale, zero = by_group(weight[:, order])
    back = torch.argsort(order)
    return {
        "qweight": packed(codes[:, back]).T.contiguous(),
        "qzeros": packed((zero.T - 1).contiguous()),
        "scales": scale.T.half().contiguous(),
        "g_idx": (back // GROUP).int(),
    }


def awq(weight):
    codes, scale, zero = by_group(weight)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    return {
        "qweight": packed(codes.T, order=order),
        "qzeros": packed(zero.T, order=order),
        "scales": scale.T.half().contiguous(),
    }


def words(weight):
    codes, scale, zero = by_group(weight)
    return {
        "weight_packed": packed(codes),
        "weight_scale": scale,
        "weight_shape": torch.tensor(weight.shape),
        "weight_zero_point": packed(zero.T.contiguous()).T.contiguous(),
    }


def int8_by_channel(weight):
    largest = weight.abs().amax(dim=1, keepdim=True)
    return {"weight": torch.round(weight * 127 / largest).to(torch.int8), "weight_scale": largest / 127}


def fp8_by_tensor(weight):
    scale = weight.abs().max() / 448
    return {"weight": (weight / scale).to(torch.float8_e4m3fn), "weight_scale": scale, "input_scale": torch.ones(())}


def fp8_by_rectangle(weight):
    size = 16  # of squares, the last cut off
    scale = torch.stack([torch.stack([s.abs().max() for s in r.split(size, 1)]) for r in weight.split(size)]) / 448
    whole = scale.repeat_interleave(size, 0).repeat_interleave(size, 1)[: len(weight), : weight.shape[1]]
    return {"weight": (weight / whole).to(torch.float8_e4m3fn), "weight_scale_inv": scale}


def mxfp8(weight, dtype=torch.uint8):
    """Blocks of 32 inputs share a power of two, whose exponent is a byte less 127 (OCP Microscaling Formats 1.0)."""
    blocks = weight.split(32, dim=1)
    exponents = torch.stack([block.abs().amax(1).log2().floor() - 8 for block in blocks], 1)  # 448 = 1.75 * 2^8
    numbers = [block / 2.0 ** exponents[:, i : i + 1] for i, block in enumerate(blocks)]
    scales = (exponents + 127).to(torch.uint8).view(dtype)
    return {"weight": torch.cat(numbers, 1).clamp(-448, 448).to(torch.float8_e4m3fn), "weight_scale": scales}


def mlx(weight):
    codes, scale, zero = by_group(weight)
    return {"weight": packed(codes).view(torch.uint32), "scales": scale, "biases": -zero * scale}


FORMATS = {
    "bitsandbytes int8": (int8_by_row, {}, "bitsandbytes int8"),
    "nf4": (nf4, {}, "bitsandbytes nf4"),
    "nf4 of nested scales": (lambda weight: nf4(weight, nested=True), {}, "bitsandbytes nf4"),
    "GPTQ": (gptq, {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "GPTQ"),
    "AWQ": (awq, {"quantization_config": {"quant_method": "awq", "bits": 4}}, "AWQ"),
    "packed": (words, {"quantization_config": {"quant_method": "compressed-tensors"}}, "compressed-tensors"),
    "int8 by channel": (int8_by_channel, {}, "8 bits with scales"),
    "fp8 by tensor": (fp8_by_tensor, {}, "8 bits with scales"),
    "fp8 by rectangle": (
        fp8_by_rectangle,
        {"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 16]}},
        "8 bits with scales",
    ),
    "MXFP8": (mxfp8, {}, "8 bits with scales"),
    "MXFP8 in a dtype of its own": (lambda w: mxfp8(w, torch.float8_e8m0fnu), {}, "8 bits with scales"),
    "MLX": (mlx, {"quantization": {"group_size": GROUP, "bits": 4}}, "MLX"),
}


def quantise(folder, store, config):
    """Store the matrices of the MLPs in another way."""

    def change(tensors):
        for name in [name for name in tensors if ".mlp." in name]:
            module, weight = name.removesuffix(".weight"), tensors.pop(name)
            tensors |= {f"{module}.{ending}": value.contiguous().clone() for ending, value in store(weight).items()}

    tiny_models.rewrite(folder, change)
    tiny_models.edit_json(folder / "config.json", lambda settings: settings.update(config))
    return folder


def test_codes_that_run_over_the_ends_of_words():
    """Two rows of forty codes of 3 bits, as the package compressed-tensors 0.20.0 packs them."""
    codes = (np.arange(2)[:, None] * 3 + np.arange(40) * 5) % 8 - 4
    stored = [
        [-1468477784, -827819826, 2026809464, 7917224],
        [1137079619, 1967375989, -965393466, 13006147],
    ]
    tensors = {
        "m.weight_packed": np.array(stored, np.int32),
        "m.weight_scale": np.float32([[1], [0.5]]),
        "m.weight_shape": np.array([2, 40]),
    }

    def coded():
        info = {name: TensorInfo(array.shape, str(array.dtype)) for name, array in tensors.items()}
        return coded_weights(tensors, {}, info.__getitem__, tensors.__getitem__)["m.weight"]

    assert np.array_equal(coded().read(), codes * [[1], [0.5]])
    tensors["m.weight_packed"] = np.zeros((2, 20), np.int32)  # with gaps, as no such package writes them any more
    tensors["m.weight_shape"] = np.array([2, 200])
    with pytest.raises(ValueError, match="20 words for 200 codes of 3 bits"):
        coded().read()


@pytest.mark.parametrize("label", FORMATS)
def test_coded_weights_look_like_any_others(llama, tmp_path, label):
    store, config, message = FORMATS[label]
    full = Checkpoint.open(tiny_models.copy(llama, tmp_path / "full"))
    coded = Checkpoint.open(quantise(llama, store, config))
    assert coded.tensor_names == full.tensor_names
    assert coded.stored == [message]
    assert anatomy.of(coded).parts == anatomy.of(full).parts
    for name in full.tensor_names:
        result, true = coded.array(name), full.array(name)
        assert result.shape == coded.shape(name) == true.shape
        assert np.abs(result - true).max() <= 0.16 * np.abs(true).max(), name
        assert np.array_equal(coded.array(name, range(1, 3)), result[1:3])
    tokens = torch.arange(8)[None]
    with torch.no_grad():
        ours, theirs = (item.load_model()(tokens).logits for item in (coded, full))
    assert torch.corrcoef(torch.stack([ours.flatten(), theirs.flatten()]))[0, 1] > 0.95


def test_a_quantised_copy_is_known_and_a_stranger_is_not(llama, tmp_path):
    stranger = tiny_models.save("llama", tmp_path / "stranger", seed=7)
    full = tiny_models.copy(llama, tmp_path / "full")
    quantise(llama, awq, {})
    result = compare(llama, full, statistics=["phi_u"])
    assert result.records[0].outcome.log10_p < -60  # the floor of two blocks of 40 units is -93
    assert "stored as codes were de-quantised: those of" in result.verdict()
    assert result.models[0]["stored"] == ["AWQ"]
    assert compare(llama, stranger, statistics=["phi_u"]).records[0].outcome.log10_p > -3


def test_mxfp4_is_read_as_transformers_reads_it(tmp_path):
    rng = torch.Generator().manual_seed(0)
    blocks = torch.randint(0, 256, (2, 6, 3, 16), dtype=torch.uint8, generator=rng)
    scales = torch.randint(120, 131, (2, 6, 3), dtype=torch.uint8, generator=rng)
    save_file(
        {"e.up_blocks": blocks, "e.up_scales": scales, "e.up_bias": torch.ones(2)}, tmp_path / "model.safetensors"
    )
    (tmp_path / "config.json").write_text("{}")
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.tensor_names == ("e.up", "e.up_bias")
    assert checkpoint.shape("e.up") == (2, 96, 6)
    expected = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    assert np.array_equal(checkpoint.array("e.up"), expected)


@pytest.mark.parametrize("label", FORMATS)
def test_parts_that_do_not_fit_raise_nothing_foreign(llama, label):
    store, config, _ = FORMATS[label]
    quantise(llama, store, config)
    names = [name for name in load_file(llama / "model.safetensors") if name.startswith(UP) and "input" not in name]
    for name in names:

        def cut(tensors, name=name):
            value = tensors[name]
            tensors[name] = value[:-3].clone() if value.ndim else value.reshape(1, 1, 1, 1)

        folder = tiny_models.copy(llama, llama.parent / name)
        tiny_models.rewrite(folder, cut)
        with suppress(CheckpointError):
            checkpoint = Checkpoint.open(folder)
            assert checkpoint.array(UP + ".weight").shape == checkpoint.shape(UP + ".weight")
