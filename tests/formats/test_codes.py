"""Weights that are stored as codes come back as the floats that they stand for.

Whole folders are stored here as each tool describes it; `test_references` compares each way number by number.
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
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint

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


def declared(method, **settings):
    return {"quantization_config": {"quant_method": method, **settings}}


def grouped(**weights):
    """Settings as compressed-tensors states them."""
    return declared("compressed-tensors", config_groups={"group_0": {"targets": ["Linear"], "weights": weights}})


BY_FOUR = {"bits": 4, "group_size": GROUP}
FORMATS = {
    "bitsandbytes int8": (int8_by_row, {}, "bitsandbytes int8"),
    "nf4": (nf4, {}, "bitsandbytes nf4"),
    "nf4 of nested scales": (lambda weight: nf4(weight, nested=True), {}, "bitsandbytes nf4"),
    "GPTQ": (gptq, declared("gptq", **BY_FOUR), "GPTQ"),
    "AWQ": (awq, declared("awq", **BY_FOUR), "AWQ"),
    "packed": (
        words,
        grouped(num_bits=4, type="int", strategy="group", group_size=GROUP, symmetric=False),
        "compressed-tensors",
    ),
    "int8 by channel": (int8_by_channel, grouped(num_bits=8, type="int", strategy="channel"), "8 bits with scales"),
    "fp8 by tensor": (fp8_by_tensor, declared("fp8"), "8 bits with scales"),
    "fp8 by rectangle": (fp8_by_rectangle, declared("fp8", weight_block_size=[16, 16]), "8 bits with scales"),
    "MXFP8": (mxfp8, declared("mxfp8"), "8 bits with scales"),
    "MXFP8 in a dtype of its own": (
        lambda w: mxfp8(w, torch.float8_e8m0fnu), declared("mxfp8"), "8 bits with scales"
    ),
    "MLX": (mlx, {"quantization": {"group_size": GROUP, "bits": 4}}, "MLX"),
}  # fmt: skip


def quantise(folder, store, config):
    """Store the matrices of the MLPs in another way."""

    def change(tensors):
        for name in [name for name in tensors if ".mlp." in name]:
            module, weight = name.removesuffix(".weight"), tensors.pop(name)
            tensors |= {f"{module}.{ending}": value.contiguous().clone() for ending, value in store(weight).items()}

    tiny_models.rewrite(folder, change)
    tiny_models.edit_json(folder / "config.json", lambda settings: settings.update(config))
    return folder


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
    quantise(llama, awq, FORMATS["AWQ"][1])
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


def fp8(weight, **more):
    """Squares of 16, the last cut off."""
    return fp8_by_rectangle(weight) | more


def renamed(store, old, new):
    return lambda weight: {name.replace(old, new): value for name, value in store(weight).items()}


SQUARES = {"quant_method": "fp8", "weight_block_size": [16, 16]}
#: what a folder holds and says -> what the refusal says, and what its advice makes of the folder
REFUSED = {
    "no size of blocks": (
        fp8,
        declared("fp8"),
        "weight_block_size or block_structure, which decides the numbers, is not stated in quantization_config of",
        lambda config: config["quantization_config"].update(weight_block_size=[16, 16]),
    ),
    "two sizes of blocks": (
        fp8,
        declared("fp8", weight_block_size=[16, 16]) | {"text_config": declared("fp8", weight_block_size=[16, 8])},
        r"says \[16, 16\], and weight_block_size of text_config.quantization_config says \[16, 8\]; remove the",
        lambda config: config.pop("text_config"),
    ),
    "blocks of another size": (
        fp8,
        declared("fp8", weight_block_size=[8, 8]),
        r"weight_block_size of quantization_config says \[8, 8\], and its scales are 3 x 2 for 40 x 24",
        lambda config: config["quantization_config"].update(weight_block_size="16x16"),
    ),
    "no declaration": (
        fp8,
        {},
        "quant_method, which decides the numbers, is not stated in quantization_config of config.json; state it there",
        lambda config: config.update(quantization_config=SQUARES),
    ),
    "no bits": (
        gptq,
        declared("gptq", group_size=GROUP),
        "bits or w_bit or num_bits, which decides the numbers, is not stated",
        lambda config: config["quantization_config"].update(bits=4),
    ),
    "another method": (
        gptq,
        declared("awq", **BY_FOUR),
        "quant_method of quantization_config says awq, and there are 40 words of eight outputs for 3 x 40 scales",
        lambda config: config["quantization_config"].update(quant_method="gptq"),
    ),
    "said to be no codes": (
        mlx,
        {"quantization": {**BY_FOUR, "model.layers.0.mlp.up_proj": False}},
        "quantization.model.layers.0.mlp.up_proj says that it is not coded, and its tensors are codes; remove",
        lambda config: config["quantization"].pop("model.layers.0.mlp.up_proj"),
    ),
}


@pytest.mark.parametrize("label", REFUSED)
def test_what_is_not_said_or_said_twice_is_refused_and_the_advice_works(llama, label):
    store, config, message, remedy = REFUSED[label]
    quantise(llama, store, config)
    with pytest.raises(CheckpointError, match=message) as caught:
        Checkpoint.open(llama).array(f"{UP}.weight")
    assert "\n" not in str(caught.value)
    assert "copy it again" not in str(caught.value)
    tiny_models.edit_json(llama / "config.json", remedy)
    assert np.isfinite(Checkpoint.open(llama).array(f"{UP}.weight")).all()


BARE = ("scale", "scale_inv", "weight_scales", "w_scale", "weight.scale", "qscale", "")


@pytest.mark.parametrize("name", BARE)
def test_eight_bits_without_a_scale_that_is_known_and_declared_are_refused(llama, tmp_path, name):
    full = Checkpoint.open(tiny_models.copy(llama, tmp_path / "full")).array(UP + ".weight")
    quantise(llama, lambda weight: {"weight": fp8(weight)["weight"]} | ({name: torch.ones(3, 2)} if name else {}), {})
    with pytest.raises(CheckpointError, match=r"is stored as codes: .*give the checkpoint that|not stated") as caught:
        Checkpoint.open(llama).array(f"{UP}.weight")
    assert len(str(caught.value).removeprefix(str(llama))) < 300
    assert np.isfinite(Checkpoint.open(tmp_path / "full").array(UP + ".weight") - full).all()  # the remedy


def test_deepseek_s_name_of_scales_is_read_where_it_is_declared(llama):
    quantise(llama, renamed(fp8, "weight_scale_inv", "scale"), {"quantization_config": SQUARES})
    theirs = Checkpoint.open(llama).array(UP + ".weight")
    tiny_models.rewrite(
        llama, lambda tensors: tensors.update({n.replace(".scale", ".weight_scale_inv"): tensors.pop(n) for n in
                                               [n for n in tensors if n.endswith(".scale")]})
    )  # fmt: skip
    assert np.array_equal(Checkpoint.open(llama).array(UP + ".weight"), theirs)


def test_layers_may_be_coded_otherwise_than_the_rest(llama, tmp_path):
    """MLX names such layers beside the settings of all, and compressed-tensors has a group for each."""
    full = Checkpoint.open(tiny_models.copy(llama, tmp_path / "full"))
    quantise(llama, mlx, {"quantization": {"group_size": 4, "bits": 4}})
    for folder in (llama,):
        with pytest.raises(CheckpointError, match=r"says 4 and .*says 4, and there are 3 words for 3 groups"):
            Checkpoint.open(folder).shape(UP + ".weight")
    modules = [name.removesuffix(".weight") for name in full.tensor_names if ".mlp." in name]
    tiny_models.edit_json(
        llama / "config.json",
        lambda config: config["quantization"].update({module: dict(BY_FOUR) for module in modules}),
    )
    assert Checkpoint.open(llama).shape(UP + ".weight") == full.shape(UP + ".weight")


def test_groups_that_do_not_agree_are_told_apart_by_their_targets(llama):
    right = {"num_bits": 8, "type": "int", "strategy": "channel"}
    groups = {
        "group_0": {"targets": [r"re:.*up_proj$"], "weights": right},
        "group_1": {"targets": ["Linear"], "weights": right | {"strategy": "tensor"}},
    }
    quantise(llama, int8_by_channel, declared("compressed-tensors", config_groups=groups))
    checkpoint = Checkpoint.open(llama)
    assert checkpoint.array(UP + ".weight").shape == checkpoint.shape(UP + ".weight")
    with pytest.raises(CheckpointError, match=r"group_1.weights says tensor, and its scales are 40 x 1 for 40 x 24"):
        checkpoint.array(UP.replace("up", "gate") + ".weight")


def test_scales_beside_plain_weights_are_no_codes(llama, tmp_path):
    """A calibration leaves them there; `transformers` reads the weights as they are."""
    full = Checkpoint.open(tiny_models.copy(llama, tmp_path / "full")).array(UP + ".weight")
    quantise(llama, lambda weight: {"weight": weight, "weight_scale": torch.ones(len(weight), 1)}, {})
    assert np.array_equal(Checkpoint.open(llama).array(UP + ".weight"), full)


def test_a_factor_that_no_way_reads_is_named(llama):
    quantise(llama, lambda weight: int8_by_row(weight) | {"pre_quant_scale": torch.ones(24)}, {})
    with pytest.raises(CheckpointError, match=r"up_proj.pre_quant_scale stands beside it and is not read; give the"):
        Checkpoint.open(llama).array(UP + ".weight")
