"""Classes that the table lacks, read by their tensors: a known layout is named, and what it may hide is refused."""

import re

import pytest
import sweep
import tiny_models
import torch
from tiny_models import BLOCKS, MLP_WIDTH, WIDTH

from provlab.api import compare
from provlab.errors import UnknownArchitectureError
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint


@pytest.fixture
def novel(tiny, tmp_path):
    """Make a tiny model whose class is new."""

    def make(label="llama", named="NovelForCausalLM"):
        folder = tiny_models.copy(tiny(label), tmp_path / "novel")
        tiny_models.edit_json(folder / "config.json", lambda config: config.update(architectures=[named]))
        return folder

    return make


def named(folder):
    return anatomy.of(Checkpoint.open(folder))


@pytest.mark.parametrize(
    ("label", "layout"),
    [("llama", "LlamaForCausalLM"), ("qwen3", "Qwen3ForCausalLM"), ("gemma2", "Gemma2ForCausalLM"),
     ("olmo2", "Olmo2ForCausalLM"), ("bert_masked", "BertForMaskedLM")],
)  # fmt: skip
def test_a_new_class_is_read_by_its_tensors(label, layout, novel, tiny):
    read, table = named(novel(label)), named(tiny(label))
    assert (read.architecture, read.named, table.named) == (layout, "NovelForCausalLM", None)
    assert {p.name: p.segments for p in read.parts} == {p.name: p.segments for p in table.parts}


def test_the_verdict_says_so(novel, tiny, llama):
    def text(a):
        return " ".join(str(compare(a, tiny("llama_base"), statistics=["phi_u"], progress=False)).split())

    assert (
        "NovelForCausalLM, which the table of architectures lacks: it was read by its tensors, as LlamaForCausalLM"
        in text(novel())
    )
    assert "read by its tensors" not in text(llama)


def test_a_name_that_a_terminal_obeys_is_not_printed(novel, llama):
    text = str(compare(novel(named="\x1b[31mEvil\x07"), llama, statistics=["phi_u"], progress=False))
    assert text.replace("\n", "").isprintable()
    assert "?[31mEvil?" in text


#: tensors of every block that a Llama does not have, and the reason
_PLANTS = {
    "mlp.act_scale": ((MLP_WIDTH,), "as long as the MLP is wide"),
    "second_mlp.up_proj.weight": ((MLP_WIDTH, WIDTH), "as long as the MLP is wide"),
    "mlp.limit": ((1,), "beside .*mlp"),
    "mlp.router.weight": ((3, WIDTH), "beside .*mlp"),
    "pre_ff_norm.weight": ((WIDTH,), "a norm, scale or gate of a block"),
    "layer_scalar": ((1,), "a norm, scale or gate of a block"),
}


@pytest.mark.parametrize("extra", _PLANTS)
def test_a_tensor_that_may_change_the_computation_is_refused(extra, novel):
    shape, reason = _PLANTS[extra]
    folder = novel()
    more = {f"model.layers.{block}.{extra}": torch.ones(shape) for block in range(BLOCKS)}
    tiny_models.rewrite(folder, lambda tensors: tensors.update(more))
    with pytest.raises(UnknownArchitectureError, match=rf"nor is it read by its tensors as Llama.*{reason}"):
        named(folder)


@pytest.mark.parametrize("extra", [{"sinks": (4,)}, {"q_norm.weight": (6,)}, {"v2_proj.weight": (9, WIDTH)}, {}])
def test_an_attention_that_is_not_understood_is_left_unread(extra, novel):
    folder = novel()
    more = {f"model.layers.{n}.self_attn.{name}": torch.ones(s) for n in range(BLOCKS) for name, s in extra.items()}
    tiny_models.rewrite(folder, lambda tensors: tensors.update(more))
    if not extra:  # heads that do not agree with the config
        tiny_models.edit_json(folder / "config.json", lambda config: config.update(num_attention_heads=8, head_dim=6))
    read = named(folder)
    assert {"gate", "up", "down"} <= {*read.roles}
    assert not {"query", "key", "value", "output"} & {*read.roles}
    assert {*more} < {*read.unnamed}


def test_a_mixer_of_its_own_leaves_the_mlp_as_it_is(novel):
    folder = novel()
    more = {f"model.layers.{block}.mixer.{name}": torch.ones(3, WIDTH) for block in range(BLOCKS) for name in "ab"}
    tiny_models.rewrite(folder, lambda tensors: tensors.update(more))
    assert named(folder).unnamed == tuple(sorted(more))


@pytest.mark.parametrize(
    ("label", "change", "reason"),
    [
        ("phi3", {}, "holds several roles"),
        ("gpt2", {}, "holds several roles"),
        ("llama", {"intermediate_size": MLP_WIDTH + 1}, "has the shape"),
        ("llama", {"num_hidden_layers": 1}, "counts 1 blocks"),
        ("llama", {"hidden_size": None}, "config.json lacks hidden_size"),
    ],
)
def test_what_does_not_agree_is_refused(label, change, reason, novel):
    folder = novel(label)
    tiny_models.edit_json(folder / "config.json", lambda config: config.update(change))
    with pytest.raises(UnknownArchitectureError, match=f"nor is it read by its tensors as .*{reason}"):
        named(folder)


def test_matrices_that_may_be_turned_are_refused(novel):
    folder = novel()

    def square(tensors):
        for name in [name for name in tensors if ".mlp." in name]:
            tensors[name] = torch.randn(WIDTH, WIDTH)

    tiny_models.rewrite(folder, square)
    tiny_models.edit_json(folder / "config.json", lambda config: config.update(intermediate_size=WIDTH))
    with pytest.raises(UnknownArchitectureError, match="as wide as the stream"):
        named(folder)


@pytest.fixture
def encoder_and_decoder(tmp_path):
    """Make a wrapper of two BERTs, whose config is two configs."""
    folder = tmp_path / "both"
    sweep.made("EncoderDecoderModel", 0).save_pretrained(folder)
    return folder


def test_what_a_refusal_advises_works(encoder_and_decoder):
    """And nothing else is advised: what a layout's own error says is meant for a model of that class."""
    with pytest.raises(UnknownArchitectureError) as refusal:
        named(encoder_and_decoder)
    first, second = re.search(r"--part (blocks=\S+) \(or (\S+)\) compares", str(refusal.value)).groups()
    for part in (first, f"blocks={second}"):
        assert named(f"{encoder_and_decoder}::{part}").n_blocks == 2
    assert not re.search("copy it again|give the config", str(refusal.value))


def test_no_part_is_advised_past_what_may_change_the_computation(novel):
    folder = novel()
    more = {f"model.layers.{block}.mlp.act_scale": torch.ones(MLP_WIDTH) for block in range(BLOCKS)}
    tiny_models.rewrite(folder, lambda tensors: tensors.update(more))
    with pytest.raises(UnknownArchitectureError, match=r"as long as the MLP is wide$"):
        named(folder)

    def rename(tensors):
        for name in list(tensors):
            tensors[name.replace("mlp.", "feed.")] = tensors.pop(name)

    tiny_models.rewrite(folder, rename)
    with pytest.raises(UnknownArchitectureError, match=r"its tensors; --part embedding compares its embedding alone$"):
        named(folder)
    assert named(f"{folder}::embedding").n_blocks == 0


def test_of_two_stacks_none_is_left_unread(novel):
    """A layout of one stack would pass over a tower that was copied."""
    folder = novel()

    def add(tensors):
        blocks = {name: tensor for name, tensor in tensors.items() if ".layers." in name}
        tensors.update({name.replace("model.", "model.tower."): tensor + 1 for name, tensor in blocks.items()})

    tiny_models.rewrite(folder, add)
    with pytest.raises(UnknownArchitectureError, match=r"blocks in model.layers and in model.tower.layers, of which"):
        named(folder)


def test_a_family_that_is_known_by_its_decoder_is_read_with_its_encoder(tmp_path):
    sweep.made("BartForConditionalGeneration", 0).save_pretrained(tmp_path)
    tiny_models.edit_json(tmp_path / "config.json", lambda c: c.update(architectures=["TrOCRForConditionalGeneration"]))
    read = named(tmp_path)
    assert (read.architecture, read.n_blocks) == ("BartForConditionalGeneration", 4)


@pytest.mark.parametrize("name", ["cls.weight", "head.decoder.weight"])
def test_a_head_of_another_name_is_left_unread(name, novel, tiny):
    folder = novel()
    tiny_models.rewrite(folder, lambda tensors: tensors.update({name: tensors.pop("lm_head.weight")}))
    read = named(folder)
    assert (read.tied, read.unnamed, read.n_blocks) == (False, (name,), BLOCKS)
    assert "head" not in read.roles


def test_other_tensors_are_no_layout_and_the_table_is_named(novel):
    folder = novel()

    def rename(tensors):
        for name in list(tensors):
            tensors[name.replace("mlp.", "feed.")] = tensors.pop(name)

    tiny_models.rewrite(folder, rename)
    with pytest.raises(UnknownArchitectureError, match="no known layout has its tensors") as refusal:
        named(folder)
    assert re.search(r"NovelForCausalLM is not one of the \d+ families of .*architectures\.toml", str(refusal.value))


def test_a_hybrid_that_transformers_lacks_is_compared_with_the_model_that_its_mlps_came_from(tiny, tmp_path):
    """Names as in StripedHyena's repository; the MLPs are a Mistral's, whose attention it does not have."""
    folder = tiny_models.copy(tiny("mistral"), tmp_path / "striped")
    names = {"model.embed_tokens": "embedding_layer", "lm_head": "unembed", "model.norm.weight": "norm.scale"}
    names |= {"model.layers": "blocks", "gate_proj": "l1", "up_proj": "l2", "down_proj": "l3"}
    names |= {"input_layernorm.weight": "pre_norm.scale", "post_attention_layernorm.weight": "post_norm.scale"}

    def rename(tensors):
        for name in list(tensors):
            values, new = tensors.pop(name), name
            for old, usual in names.items():
                new = new.replace(old, usual)
            if "self_attn" not in name:
                tensors[f"backbone.{new}"] = values

    config = {"inner_mlp_size": MLP_WIDTH, "intermediate_size": None, "num_layers": BLOCKS, "num_hidden_layers": None}
    tiny_models.rewrite(folder, rename)
    tiny_models.edit_json(
        folder / "config.json", lambda c: c.update(config, architectures=["StripedHyenaModelForCausalLM"])
    )
    result = compare(folder, tiny("mistral"), statistics=["phi_u"], progress=False)
    assert result.records[0].outcome.log10_p < -60
    assert "read by its tensors" not in str(result)


def test_of_a_hybrid_the_blocks_with_an_mlp_are_counted(tmp_path):
    model = sweep.made("NemotronHForCausalLM", 0)
    model.save_pretrained(tmp_path)
    read = named(tmp_path)
    assert read.n_blocks == 2
    assert [read.tensor_name("up", block) for block in range(2)] == [
        f"backbone.layers.{number}.mixer.up_proj.weight" for number in (1, 3)
    ]
