"""The anatomy, compared with models that transformers builds: its modules are the reference."""

import pytest
import tiny_models
import torch
import transformers
from tiny_models import BLOCKS, MLP_WIDTH, TINY, VOCABULARY, WIDTH

from provlab.errors import InputError, InvalidWeightsError, MissingRoleError
from provlab.reading import anatomy as anatomy_module
from provlab.reading.architectures import classes, described
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.language import inferred, language_part
from provlab.statistics import experts as of_experts
from provlab.statistics.model import Model

LABELS = sorted(TINY)


def read(anatomy, checkpoint, role, block=None):
    return torch.from_numpy(anatomy.read(checkpoint, role, block))


def opened(folder):
    checkpoint = Checkpoint.open(folder)
    return checkpoint, anatomy_module.of(checkpoint)


def untried(names):
    """Architectures that are described in full, and that no tiny model stands for."""
    return {name for name in names if described(name).complete} - {name for name, _ in TINY.values()}


def test_every_architecture_described_in_full_has_its_tiny_model():
    assert untried(classes()) == set()
    assert untried([*classes(), "LlamaForTokenClassification"]) == {"LlamaForTokenClassification"}  # planted


@pytest.mark.parametrize("label", LABELS)
def test_every_tensor_is_one_part_and_split_and_join_are_inverse(label, tiny):
    checkpoint, anatomy = opened(tiny(label))
    assert sorted(part.name for part in anatomy.parts) == sorted(checkpoint.tensor_names)
    assert anatomy.unnamed == ()
    assert (anatomy.n_blocks, anatomy.width, anatomy.mlp_width) == (BLOCKS, WIDTH, MLP_WIDTH)
    assert anatomy.vocab_size == VOCABULARY
    for part in anatomy.parts:
        assert part.shape == checkpoint.shape(part.name)
        tensor = checkpoint.tensor(part.name)
        pieces = part.split(tensor)
        for segment in part.segments:
            assert pieces[segment.role].ndim == len(segment.axes)
        assert torch.equal(part.join(pieces), tensor)


def _weight(module):
    """Weights as ``(output units, input units)``, found from what the module is."""
    return module.weight.T if type(module).__name__ == "Conv1D" else module.weight


@pytest.mark.parametrize("label", [label for label in LABELS if label != "mixtral"])
def test_roles_are_the_modules_weights(label, tiny):
    """The module path leads to the module in transformers' model whose weight is the role."""
    checkpoint, anatomy = opened(tiny(label))
    model = tiny_models.build(label)
    for part in anatomy.parts:
        for segment in part.segments:
            role, block = segment.role, part.block
            value = read(anatomy, checkpoint, role, block)
            assert value.dtype == torch.float32
            assert tuple(value.shape) == anatomy.shape(role, block)
            assert anatomy.tensor_name(role, block) == part.name
            if len(part.segments) > 1 or role.endswith(("bias", "bias_copy")):
                continue
            module = model.get_submodule(anatomy.module(role, block))
            assert torch.equal(value, _weight(module)), role


def test_fused_gpt2_is_split_as_the_model_splits_it(tiny):
    checkpoint, anatomy = opened(tiny("gpt2"))
    attention = tiny_models.build("gpt2").transformer.h[1].attn
    x = torch.randn(5, WIDTH)
    expected = attention.c_attn(x).split(WIDTH, dim=-1)  # GPT2Attention.forward
    for role, want in zip(("query", "key", "value"), expected, strict=True):
        bias = read(anatomy, checkpoint, f"{role}_bias", 1)
        torch.testing.assert_close(x @ read(anatomy, checkpoint, role, 1).T + bias, want)


def test_interleaved_gpt_neox_is_split_as_the_model_splits_it(tiny):
    checkpoint, anatomy = opened(tiny("gpt_neox"))
    attention = tiny_models.build("gpt_neox").gpt_neox.layers[1].attention
    x = torch.randn(1, 5, WIDTH)
    # GPTNeoXAttention.forward: (batch, length, heads, 3 * head) -> heads first -> three chunks
    heads = attention.query_key_value(x).view(1, 5, 4, 3 * WIDTH // 4).transpose(1, 2)
    for role, want in zip(("query", "key", "value"), heads.chunk(3, dim=-1), strict=True):
        got = x @ read(anatomy, checkpoint, role, 1).T + read(anatomy, checkpoint, f"{role}_bias", 1)
        torch.testing.assert_close(got, want.transpose(1, 2).flatten(2))


def test_fused_phi3_is_split_as_the_model_splits_it(tiny):
    checkpoint, anatomy = opened(tiny("phi3"))
    block = tiny_models.build("phi3").model.layers[0]
    x = torch.randn(5, WIDTH)
    gate, up = block.mlp.gate_up_proj(x).chunk(2, dim=-1)  # Phi3MLP.forward
    torch.testing.assert_close(x @ read(anatomy, checkpoint, "gate", 0).T, gate)
    torch.testing.assert_close(x @ read(anatomy, checkpoint, "up", 0).T, up)
    query, key, value = block.self_attn.qkv_proj(x).split((24, 12, 12), dim=-1)  # 4 heads, 2 key heads of 6
    for role, want in {"query": query, "key": key, "value": value}.items():
        torch.testing.assert_close(x @ read(anatomy, checkpoint, role, 0).T, want)


def test_mixtral_roles_by_expert(tiny):
    checkpoint, anatomy = opened(tiny("mixtral"))
    expert = tiny_models.build("mixtral").model.layers[1].mlp.experts
    gate, up = expert.gate_up_proj[2].chunk(2)  # as MixtralExperts.forward does
    assert torch.equal(read(anatomy, checkpoint, "gate.2", 1), gate)
    assert torch.equal(read(anatomy, checkpoint, "up.2", 1), up)
    assert torch.equal(read(anatomy, checkpoint, "down.2", 1), expert.down_proj[2])
    with pytest.raises(MissingRoleError, match=r"no module of its own.*up\.0"):
        anatomy.module("up.0", 0)
    with pytest.raises(MissingRoleError, match=r"'up'.*up\.0"):
        read(anatomy, checkpoint, "up", 0)


@pytest.mark.parametrize("label", ["llama_tied", "gemma2", "gpt2", "bert_masked"])
def test_tied_head_is_the_embedding(label, tiny):
    checkpoint, anatomy = opened(tiny(label))
    assert anatomy.tied
    assert anatomy.has("head")
    assert torch.equal(read(anatomy, checkpoint, "head"), read(anatomy, checkpoint, "embedding"))
    assert anatomy.shape("head") == (VOCABULARY, WIDTH)


def test_untied_head(tiny):
    checkpoint, anatomy = opened(tiny("llama"))
    assert not anatomy.tied
    assert not torch.equal(read(anatomy, checkpoint, "head"), read(anatomy, checkpoint, "embedding"))


def test_gpt2_file_without_prefix_under_the_name_of_the_full_model(tiny, tmp_path):
    """The hub's own gpt2 is such a file; it also keeps the causal mask as a buffer."""
    folder = tiny_models.copy(tiny("gpt2"), tmp_path / "gpt2")

    def strip(tensors):
        for name in list(tensors):
            tensors[name.removeprefix("transformer.")] = tensors.pop(name)
        tensors["h.0.attn.bias"] = torch.ones(1, 1, 32, 32)

    tiny_models.rewrite(folder, strip)
    checkpoint, anatomy = opened(folder)
    assert anatomy.tensor_name("up", 0) == "h.0.mlp.c_fc.weight"
    assert anatomy.module("up", 0) == "transformer.h.0.mlp.c_fc"
    assert anatomy.unnamed == ()
    assert checkpoint.load_model().transformer.h[0].mlp.c_fc.weight.shape == (WIDTH, MLP_WIDTH)


def test_bert_file_with_old_names_of_norms(tiny, tmp_path):
    """bert-base-uncased on the hub is such a file."""
    folder = tiny_models.copy(tiny("bert_masked"), tmp_path / "bert")

    def age(tensors):
        for name in list(tensors):
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[old] = tensors.pop(name)

    tiny_models.rewrite(folder, age)
    _, anatomy = opened(folder)
    assert anatomy.tensor_name("embedding_norm") == "bert.embeddings.LayerNorm.gamma"
    assert anatomy.unnamed == ()


def test_unnamed_tensors_are_listed(llama):
    tiny_models.rewrite(llama, lambda tensors: tensors.update(extra=torch.zeros(3)))
    assert opened(llama)[1].unnamed == ("extra",)


@pytest.mark.parametrize("label", LABELS)
def test_an_altered_shape_is_refused(label, tiny, tmp_path):
    folder = tiny_models.copy(tiny(label), tmp_path / label)
    name = next(part.name for part in opened(folder)[1].parts if part.block == 1)

    def shorten(tensors):
        tensors[name] = tensors[name][:-1].contiguous()

    tiny_models.rewrite(folder, shorten)
    with pytest.raises(InvalidWeightsError) as refusal:
        opened(folder)
    shape = Checkpoint.open(folder).shape(name)
    assert name in str(refusal.value)
    assert f"has the shape {shape}" in str(refusal.value)
    assert str((shape[0] + 1, *shape[1:])) in str(refusal.value)


@pytest.mark.parametrize(
    ("lost", "entries", "message"),
    [
        ("model.norm.weight", {}, r"lacks the tensor model\.norm\.weight"),
        ("lm_head.weight", {}, "tie_word_embeddings"),
        (None, {"num_hidden_layers": 1}, r"layers\.1.*counts 1 blocks"),
        (None, {"vocab_size": None}, "lacks vocab_size"),
        *[
            (None, {"intermediate_size": value}, "intermediate_size in config.json must be a positive integer")
            for value in ("64", 0, -1, 2.5, True, "a/b " * 200)
        ],
    ],
)
def test_a_config_and_tensors_that_do_not_agree_are_refused(llama, lost, entries, message):
    tiny_models.rewrite(llama, lambda tensors: tensors.pop(lost, None))
    tiny_models.edit_json(llama / "config.json", lambda config: config.update(entries))
    with pytest.raises(InvalidWeightsError, match=message) as refused:
        opened(llama)
    assert len(str(refused.value)) < 300  # what looks like a path is quoted in part as well


@pytest.mark.parametrize(
    ("role", "block", "message"),
    [
        *[("up", n, f"block must be 0 to 1 for 'up' of GPT2LMHeadModel, not {n}") for n in (None, -1, BLOCKS)],
        ("embedding", 0, "belongs to no block"),
        ("gate", 0, r"GPT2LMHeadModel.*'gate'"),
    ],
)
def test_a_role_that_is_not_there(tiny, role, block, message):
    checkpoint, anatomy = opened(tiny("gpt2"))
    with pytest.raises((InputError, MissingRoleError), match=message):
        read(anatomy, checkpoint, role, block)


def test_experts_of_one_tensor_are_those_of_the_model(tmp_path):
    """GPT-OSS keeps all experts in one tensor, gate and up row by row."""
    settings = dict(TINY["mixtral"][1]) | {"head_dim": 8}
    model = transformers.GptOssForCausalLM(transformers.GptOssConfig(**settings)).eval()
    model.save_pretrained(tmp_path)
    checkpoint, anatomy = opened(tmp_path)
    assert anatomy.mlps(1) == ("0", "1", "2")
    experts = model.model.layers[1].mlp.experts
    read = of_experts.read(Model(checkpoint, anatomy), "up", 1)
    for number in range(3):
        both = experts.gate_up_proj[number].T  # GptOssExperts.forward takes every other column
        torch.testing.assert_close(torch.from_numpy(read[str(number)]), both[1::2].detach())
        assert torch.equal(torch.from_numpy(anatomy.read(checkpoint, f"gate.{number}", 1)), both[::2].detach())
    for part in anatomy.parts:
        tensor = checkpoint.tensor(part.name)
        assert torch.equal(part.join(part.split(tensor)), tensor)


@pytest.fixture
def dense_first(tmp_path):
    """As DeepSeek: one MLP in block 0; in block 1 experts, and one that is shared."""
    numbers = dict(TINY["mixtral"][1])
    numbers |= {"n_routed_experts": 3, "moe_intermediate_size": 16, "first_k_dense_replace": 1, "n_group": 1}
    numbers |= {"topk_group": 1, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4}
    transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(**numbers)).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_dense_and_shared_experts_have_their_own_widths(dense_first):
    checkpoint, anatomy = opened(dense_first)
    assert (anatomy.mlps(0), anatomy.mlps(1)) == (("",), ("0", "1", "2", "shared"))
    assert {name: len(rows) for name, rows in of_experts.read(Model(checkpoint, anatomy), "up", 1).items()} == {
        "0": 16, "1": 16, "2": 16, "shared": 16,
    }  # fmt: skip
    with pytest.raises(MissingRoleError, match="one for each expert"):
        anatomy.part("up", 1)


@pytest.mark.parametrize(
    ("lost", "name"),
    [
        ("layers.1.mlp.experts.2.up_proj", "expert 2 of block 1"),
        ("layers.1.mlp.experts.2.down_proj", "expert 2 of block 1"),
        ("layers.1.mlp.shared_experts.gate_proj", "shared MLP of block 1"),
        ("layers.0.mlp.down_proj", "the MLP of block 0"),
        ("layers.0.mlp.up_proj", "the MLP of block 0"),
    ],
)
def test_a_block_that_lacks_a_part_of_its_experts_is_refused(dense_first, lost, name):
    tiny_models.rewrite(dense_first, lambda tensors: tensors.pop(f"model.{lost}.weight"))
    with pytest.raises(InvalidWeightsError, match=f"lacks tensors of {name}|{name}"):
        opened(dense_first)


def test_a_block_that_predicts_further_tokens_is_none_of_the_models(dense_first):
    def add(tensors):
        tensors["model.layers.2.mlp.up_proj.weight"] = torch.zeros(4, 4)

    tiny_models.rewrite(dense_first, add)
    assert opened(dense_first)[1].n_blocks == 2
    tiny_models.edit_json(dense_first / "config.json", lambda config: config.update(num_nextn_predict_layers=0))
    with pytest.raises(InvalidWeightsError, match="counts 2 blocks"):
        opened(dense_first)


def test_a_text_config_that_leaves_all_out_has_the_defaults_of_its_type():
    text = {"model_type": "llama", "vocab_size": 32064}
    name, config = language_part("LlavaForConditionalGeneration", {"text_config": text})
    assert name == "LlamaForCausalLM"
    assert {key: config[key] for key in ("hidden_size", "num_hidden_layers", "vocab_size")} == {
        "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 32064,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "name"),
    [("qwen3_moe", "Qwen3MoeForCausalLM"), ("deepseek_v3", "DeepseekV3ForCausalLM"), ("gpt_oss", "GptOssForCausalLM"),
     ("ernie4_5", "Ernie4_5ForCausalLM"), ("gemma3_text", "Gemma3ForCausalLM"), ("mamba", None)],
)  # fmt: skip
def test_a_config_without_architectures_is_known_by_its_type(model_type, name):
    config = {"model_type": model_type, "tie_word_embeddings": False}
    assert inferred(config, ["lm_head.weight"]) == name
