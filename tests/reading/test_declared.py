"""What a folder says of codes is found wherever a tool writes it, by module, and refused where it is said twice."""

import pytest

from provlab.reading.declared import DeclarationError, Declared

UP, DOWN = "model.layers.0.mlp.up_proj", "model.layers.0.mlp.down_proj"
GROUP = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}
FP8 = {"quant_method": "fp8", "weight_block_size": [64, 32]}
#: what stands where -> what is asked, and the answer for the up projection of the first block
ANSWERS = {
    "a list": ({"quantization_config": FP8}, {}, "block", (64, 32)),
    "a text": ({"quantization_config": FP8 | {"weight_block_size": "64x32"}}, {}, "block", (64, 32)),
    "that there are none": ({"quantization_config": FP8 | {"weight_block_size": None}}, {}, "block", ()),
    "inside": ({"text_config": {"quantization_config": FP8}}, {}, "method", "fp8"),
    "an older name": ({"compression_config": {"quantization_config": FP8}}, {}, "method", "fp8"),
    "groups": ({"quantization_config": {"config_groups": {"group_0": GROUP}}}, {}, "group", 32),
    "groups in a list": ({"quantization_config": {"config_groups": [GROUP]}}, {}, "bits", 4),
    "numbers as text": (
        {"quantization_config": {"config_groups": {"a": {"weights": {"num_bits": "4"}}}}}, {}, "bits", 4
    ),
    "a scheme by its name": ({"quantization_config": {"config_groups": {"W4A16": ["Linear"]}}}, {}, "group", 128),
    "a group's own format": (
        {"quantization_config": {"format": "mixed-precision", "config_groups": {"a": GROUP | {"format": "dense"}}}},
        {},
        "label",
        "dense",
    ),
    "a file beside": ({}, {"quantize_config.json": {"bits": 8, "meta": {"checkpoint_format": "GPTQ_V2"}}}, "bits", 8),
    "what belongs to it": (
        {}, {"quantize_config.json": {"bits": 8, "meta": {"checkpoint_format": "GPTQ_V2"}}}, "label", "gptq_v2"
    ),
    "a file of one tool": ({}, {"quantize_config.json": {"bits": 8}}, "method", "gptq"),
    "a file beside a config that names the method": (
        {"quantization_config": {"quant_method": "awq"}}, {"quantize_config.json": {"bits": 4}}, "method", "awq"
    ),
    "ModelOpt's file": ({}, {"hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4"}}}, "method", "modelopt"),
    "AWQ's word for zeros": ({"quantization_config": {"zero_point": True}}, {}, "symmetric", False),
    "MLX": ({"quantization": {"bits": 4}, "quantization_config": {"bits": 4}}, {}, "method", "mlx"),
    "MLX, by module": ({"quantization": {"bits": 4, f"language_model.{UP}": {"bits": 8}}}, {}, "bits", 8),
    "MLX, another module": ({"quantization": {"bits": 4, DOWN: {"bits": 8}}}, {}, "bits", 4),
    "GPTQModel, by pattern": (
        {"quantization_config": {"bits": 4, "dynamic": {r"+:.*\.up_proj": {"bits": 8}}}}, {}, "bits", 8
    ),
    "DeepSeek's word, beside": ({"expert_dtype": "fp4", "quantization_config": FP8}, {}, "experts", "fp4"),
    "nothing": ({}, {}, "bits", None),
}  # fmt: skip


@pytest.mark.parametrize("label", ANSWERS)
def test_one_answer_wherever_it_stands(label):
    config, beside, field, answer = ANSWERS[label]
    assert Declared(config, beside).of(UP).get(field) == answer


def test_two_groups_count_for_their_targets():
    groups = {
        "group_0": {"targets": [r"re:.*down_proj$"], "weights": {"num_bits": 8}},
        "group_1": {"targets": ["Linear"], "weights": {"num_bits": 4}},
    }
    declared = Declared({"quantization_config": {"config_groups": groups}})
    assert [declared.of(module).get("bits") for module in (UP, DOWN)] == [4, 8]


REFUSED = {
    "twice": (
        {"quantization_config": {"bits": 4}, "text_config": {"quantization_config": {"w_bit": 8}}},
        "^bits of quantization_config says 4, and w_bit of text_config.quantization_config says 8; remove the one that",
    ),
    "no number": ({"quantization_config": {"bits": "four"}}, "^bits of quantization_config is four, and no value that"),
    "a flag": ({"quantization_config": {"bits": True}}, "^bits of quantization_config is True, and no value"),
    "not at all": ({"quantization_config": {"sym": True}}, "^bits or w_bit or num_bits, .* is not stated in quant"),
}


@pytest.mark.parametrize("label", REFUSED)
def test_what_has_no_one_answer_is_refused(label):
    config, message = REFUSED[label]
    with pytest.raises(DeclarationError, match=message):
        Declared(config).of(UP).need("bits")


def test_what_is_said_twice_alike_is_said_once_and_of_others_is_not_asked():
    config = {"quantization_config": {"bits": "4", "damp_percent": 0.1}, "quantization": {"bits": 4, "damp_percent": 1}}
    assert Declared(config).of(UP).need("bits") == 4


def test_a_module_may_be_said_to_have_no_codes():
    declared = Declared({"quantization_config": {"bits": 4, "dynamic": {r"-:.*\.up_proj": {}}}})
    assert declared.of(UP).uncoded == r"quantization_config.dynamic[-:.*\.up_proj]"
    assert not declared.of(DOWN).uncoded


def test_a_pattern_that_takes_for_ever_names_nothing():
    pattern = "re:" + "(.|..|...)*" * 4 + "[0-9]$"
    groups = {"a": {"targets": [pattern], "weights": {"num_bits": 8}}, "b": GROUP}
    assert Declared({"quantization_config": {"config_groups": groups}}).of(UP).get("bits") == 4
