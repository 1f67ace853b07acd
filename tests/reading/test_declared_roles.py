"""What a layout means is declared by its config: it is read so, or refused by both names; remedies are tried.

Each row is a small model as transformers saves it, with one change that public folders have.
"""

import json

import numpy as np
import pytest
import tiny_models
import torch
import transformers
from safetensors.torch import load_file, save_file

from provlab.errors import CheckpointError, InvalidWeightsError
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.coverage import coverage

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
_LLAMA = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip
_GEMMA4 = {
    **_LLAMA, "head_dim": 16, "global_head_dim": 16, "vocab_size_per_layer_input": 100,
    "hidden_size_per_layer_input": 8,
}  # fmt: skip


def _llama(**settings):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**_LLAMA, **settings))


def _gemma4(**settings):
    layers = settings.get("num_hidden_layers", 2)
    kinds = ["sliding_attention", "full_attention"] * (layers // 2)
    config = transformers.Gemma4TextConfig(**{**_GEMMA4, "layer_types": kinds, **settings})
    return transformers.Gemma4ForCausalLM(config)


def _t5():
    settings = {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4, "vocab_size": 100}
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(**settings, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    )


def _qwen3_vl_moe(width=48):
    text = {**_LLAMA, "moe_intermediate_size": width, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}
    text["rope_parameters"] = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4}
    vision = {
        "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64,
        "deepstack_visual_indexes": [0], "patch_size": 4,
    }  # fmt: skip
    config = transformers.Qwen3VLMoeConfig(text_config=text, vision_config=vision)
    return transformers.Qwen3VLMoeForConditionalGeneration(config)


@pytest.fixture
def folder(tmp_path):
    """Save a model with changed tensors and config: ``folder(model, tensors, config, written_by)``."""

    def saved(model, tensors=lambda _: None, config=lambda _: None, by="pt"):
        model.save_pretrained(tmp_path)
        content = load_file(tmp_path / "model.safetensors")
        tensors(content)
        content = {name: tensor.contiguous().clone() for name, tensor in content.items()}
        save_file(content, tmp_path / "model.safetensors", metadata={"format": by})
        tiny_models.edit_json(tmp_path / "config.json", config)
        return tmp_path

    return saved


def read(path):
    checkpoint = Checkpoint.open(path)
    return checkpoint, anatomy.of(checkpoint)


# Heads


def _head_alone(tensors):
    tensors[HEAD] = tensors.pop(EMBEDDING)


def test_a_tied_model_whose_file_keeps_the_head_alone_is_read(folder):
    """`safetensors.torch.save_model` writes one name of two; the reference is transformers' own reading."""
    path = folder(_llama(tie_word_embeddings=True), _head_alone)
    checkpoint, found = read(path)
    theirs = transformers.LlamaForCausalLM.from_pretrained(path)
    assert found.tied
    assert found.tensor_name("embedding") == found.tensor_name("head") == HEAD
    table = theirs.model.embed_tokens.weight.detach().numpy()
    assert np.array_equal(found.read(checkpoint, "embedding"), table)
    assert np.array_equal(found.read(checkpoint, "head"), table)
    assert torch.equal(checkpoint.load_model().model.embed_tokens.weight, theirs.lm_head.weight)


def test_an_untied_model_that_keeps_the_head_alone_is_refused(folder):
    path = folder(_llama(tie_word_embeddings=False), lambda tensors: tensors.pop(EMBEDDING))
    with pytest.raises(InvalidWeightsError, match=f"lacks the tensor {EMBEDDING}"):
        read(path)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (lambda config: config.pop("tie_word_embeddings"), "has no tie_word_embeddings, which is false for llama"),
        (lambda config: None, "its config says tie_word_embeddings: false"),
    ],
)
def test_a_head_that_is_lost_is_refused_and_both_remedies_work(config, words, folder):
    model = _llama(tie_word_embeddings=False)
    path = folder(model, lambda tensors: tensors.pop(HEAD), config)
    with pytest.raises(InvalidWeightsError, match=f"lacks the head {HEAD}, and .*{words}; copy the weights again, or"):
        read(path)
    tiny_models.edit_json(path / "config.json", lambda config: config.update(tie_word_embeddings=True))
    assert read(path)[1].tied
    tiny_models.edit_json(path / "config.json", lambda config: config.update(tie_word_embeddings=False))
    save_file({name: t.clone() for name, t in model.state_dict().items()}, path / "model.safetensors", {"format": "pt"})
    assert not read(path)[1].tied


def test_two_levels_that_contradict_on_tying_are_noted(folder):
    path = folder(_qwen3_vl_moe(), config=lambda config: config["text_config"].update(tie_word_embeddings=True))
    checkpoint, found = read(path)
    assert not found.tied  # the outer level says so, and the head is there
    assert [note for note in checkpoint.notes if "the outer level counts, as in transformers" in note]


# Embeddings of others, and of none


def _draft(tensors):
    tensors["mtp.embed_tokens.weight"] = torch.randn(10, 64)
    tensors |= {n.replace("model.layers", "mtp.layers"): t + 1 for n, t in tensors.items() if ".layers.0." in n}


def _mean(tensors):
    tensors["ema.embed_tokens.weight"] = torch.randn(10, 64)


@pytest.mark.parametrize("change", [_draft, _mean])
def test_the_embedding_is_that_of_the_model_and_not_the_one_of_the_shortest_name(change, folder):
    model = _llama(tie_word_embeddings=False)
    checkpoint, found = read(folder(model, change))
    assert found.tensor_name("embedding") == EMBEDDING
    assert np.array_equal(found.read(checkpoint, "up", 0), model.model.layers[0].mlp.up_proj.weight.detach().numpy())
    assert checkpoint.load_model().model.embed_tokens.weight.shape == (100, 64)


@pytest.mark.parametrize("stack", ["decoder", "encoder"])
def test_a_t5_that_keeps_its_embedding_in_a_stack_is_read(stack, folder):
    model = _t5()

    def moved(tensors):
        tensors[f"{stack}.embed_tokens.weight"] = tensors.pop("shared.weight")
        tensors[HEAD] = torch.randn(100, 64)

    path = folder(model, moved)
    checkpoint, found = read(path)
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(path)
    assert np.array_equal(found.read(checkpoint, "embedding"), theirs.shared.weight.detach().numpy())
    assert not found.tied
    assert np.array_equal(found.read(checkpoint, "head"), theirs.lm_head.weight.detach().numpy())


@pytest.mark.parametrize("empty", [[], None])
def test_an_empty_list_of_architectures_is_none(empty, folder):
    checkpoint, found = read(folder(_llama(), config=lambda config: config.update(architectures=empty)))
    assert found.architecture == checkpoint.architecture == "LlamaForCausalLM"


def test_no_class_and_no_kind_is_refused_and_the_remedy_works(llama):
    tiny_models.edit_json(llama / "config.json", lambda config: config.update(architectures=[], model_type=""))
    with pytest.raises(CheckpointError, match="names no architecture; add architectures, such as") as refusal:
        read(llama)
    named = json.loads(str(refusal.value).rpartition("such as ")[2])
    tiny_models.edit_json(llama / "config.json", lambda config: config.update(architectures=named))
    assert read(llama)[1].architecture == "LlamaForCausalLM"


# Widths


def test_blocks_that_are_twice_as_wide_are_read(folder):
    model = _gemma4(num_hidden_layers=4, use_double_wide_mlp=True, num_kv_shared_layers=2)
    checkpoint, found = read(folder(model))
    assert [found.shape("up", block) for block in range(4)] == [(96, 64)] * 2 + [(192, 64)] * 2
    assert found.mlp_width == 192
    for block in range(4):
        theirs = model.model.layers[block].mlp.down_proj.weight.detach().numpy()
        assert np.array_equal(found.read(checkpoint, "down", block), theirs)


def _narrower(tensors):
    for name, tensor in tensors.items():
        if "layers.1.mlp" in name:
            tensors[name] = tensor[:48] if tensor.shape[0] == 96 else tensor[:, :48]


def test_a_width_for_each_block_is_read_and_a_list_of_another_length_is_refused(folder):
    path = folder(_llama(), _narrower, lambda config: config.update(intermediate_size=[96, 48]))
    assert [read(path)[1].shape("up", block) for block in range(2)] == [(96, 64), (48, 64)]
    tiny_models.edit_json(path / "config.json", lambda config: config.update(intermediate_size=[96, 48, 96]))
    with pytest.raises(InvalidWeightsError, match=r"intermediate_size in config\.json has 3 lengths for 2 blocks"):
        read(path)


def test_a_block_of_another_width_than_its_own_is_refused_and_the_part_that_is_offered_works(folder):
    path = folder(_llama(), _narrower)
    with pytest.raises(
        InvalidWeightsError, match=r"has the shape \(48, 64\), and its config says \(96, 64\)"
    ) as refusal:
        read(path)
    offered = str(refusal.value).partition("--part ")[2].partition(" ")[0]
    assert offered == "blocks=model.layers"
    name, _, prefix = offered.partition("=")
    assert read(f"{path}::{name}={prefix}")[1].n_blocks == 2


# Experts


def test_experts_beside_an_mlp_are_read(folder):
    model = _gemma4(enable_moe_block=True, num_experts=8, top_k_experts=2, moe_intermediate_size=32)
    checkpoint, found = read(folder(model))
    assert [*found.mlps(0)] == ["", *map(str, range(8))] or [*found.mlps(0)] == [*map(str, range(8)), ""]
    up = model.model.layers[1].experts.gate_up_proj[3, 32:].detach().numpy()
    assert np.array_equal(found.read(checkpoint, "up.3", 1), up)
    covered = coverage(checkpoint, found)
    assert sum(covered["hidden"].values()) < covered["block"]  # what is left are the gates of embeddings by block


def _turned(tensors):
    for name, tensor in tensors.items():
        if "mlp.experts" in name:
            tensors[name] = tensor.mT


@pytest.mark.parametrize("change", [lambda tensors: None, _turned])
def test_experts_are_read_in_either_layout(change, folder):
    """As published, (expert, in, out), and as other tools save them; transformers reads both."""
    model = _qwen3_vl_moe()
    checkpoint, found = read(folder(model, change))
    experts = model.model.language_model.layers[0].mlp.experts
    assert np.array_equal(found.read(checkpoint, "gate.2", 0), experts.gate_up_proj[2, :48].detach().numpy())
    assert np.array_equal(found.read(checkpoint, "down.2", 0), experts.down_proj[2].detach().numpy())


@pytest.mark.parametrize(("width", "tensor"), [(32, "gate_up_proj"), (64, "down_proj")])
def test_square_experts_are_refused_and_the_remedy_works(width, tensor, folder):
    path = folder(_qwen3_vl_moe(width))
    with pytest.raises(InvalidWeightsError, match=rf"{tensor} holds square matrices .64 x 64.*--part embedding"):
        read(path)
    assert read(f"{path}::embedding")[1].has("embedding")


# Norms of MLX


@pytest.mark.parametrize(
    ("by", "config", "offset"),
    [("pt", {}, 1.0), ("mlx", {}, 0.0), ("pt", {"quantization": {"bits": 4, "group_size": 64}}, 0.0)],
)
def test_norms_that_hold_their_one_already_get_no_second(by, config, offset, tmp_path):
    """mlx-lm adds 1 to the norms of Qwen3.5 where it converts them, and to none of Gemma's."""
    names = {
        "qwen": ("Qwen3_5ForCausalLM", "qwen3_5_text"), "gemma": ("GemmaForCausalLM", "gemma"),
    }  # fmt: skip
    found = {}
    for label, (name, kind) in names.items():
        path = tmp_path / label
        model = _llama(tie_word_embeddings=True)
        model.save_pretrained(path)
        tensors = load_file(path / "model.safetensors")
        save_file(tensors, path / "model.safetensors", metadata={"format": by})
        about = {"architectures": [name], "model_type": kind}
        tiny_models.edit_json(path / "config.json", lambda content, about=about: content.update(about | config))
        found[label] = read(path)[1].norm_offset
    assert found == {"qwen": offset, "gemma": 1.0}


# Files


def test_shards_in_a_folder_further_down_are_read_and_hashed(sharded, tmp_path):
    names = sorted(path.name for path in sharded.glob("model-*.safetensors"))
    before = Checkpoint.open(sharded)
    digest, content, up = before.digest, before.content, before.array("model.layers.0.mlp.up_proj.weight")
    (sharded / "shards").mkdir()
    for name in names:
        (sharded / name).rename(sharded / "shards" / name)

    def below(index):
        index["weight_map"] = {tensor: f"shards/{file}" for tensor, file in index["weight_map"].items()}

    tiny_models.edit_json(sharded / "model.safetensors.index.json", below)
    checkpoint = Checkpoint.open(sharded)
    assert np.array_equal(checkpoint.array("model.layers.0.mlp.up_proj.weight"), up)
    assert set(checkpoint.files()) == {"config.json", *(f"shards/{name}" for name in names)}
    assert checkpoint.digest != digest
    assert checkpoint.content == content
    checkpoint.load_model()
    transformers.LlamaForCausalLM.from_pretrained(sharded)  # which opens it too


@pytest.mark.parametrize("shard", ["../other.safetensors", "/tmp/other.safetensors", "shards/../../x", "a\\b"])
def test_shards_outside_the_folder_are_still_refused(shard, sharded):
    def outside(index):
        index["weight_map"] = dict.fromkeys(index["weight_map"], shard)

    tiny_models.edit_json(sharded / "model.safetensors.index.json", outside)
    with pytest.raises(CheckpointError, match="points outside the folder"):
        Checkpoint.open(sharded)


def test_several_checkpoints_of_one_training_are_listed_and_the_last_one_is_offered(tiny, tmp_path):
    for step in (500, 1000):
        tiny_models.copy(tiny("llama"), tmp_path / f"checkpoint-{step}")
    (tmp_path / "trainer_state.json").write_text("{}")
    with pytest.raises(CheckpointError, match="several models, in checkpoint-1000, checkpoint-500") as refusal:
        Checkpoint.open(tmp_path)
    offered = str(refusal.value).rpartition("the folder of one: ")[2]
    assert offered.endswith("checkpoint-1000")
    Checkpoint.open(offered)


def test_a_shape_that_transformers_refuses_is_said_in_words(llama):
    """The pooled head of a classifier has no role, so that only loading compares it."""
    tiny_models.rewrite(llama, lambda tensors: tensors.update({"score.weight": torch.zeros(3, 24)}))
    about = {"architectures": ["LlamaForSequenceClassification"], "num_labels": 2}
    tiny_models.edit_json(llama / "config.json", lambda config: config.update(about))
    with pytest.raises(InvalidWeightsError, match=r"no score.weight .* says \(3 x 24 in the file, 2 x 24 by"):
        Checkpoint.open(llama).load_model()


# Words


def test_a_tokenizer_made_by_code_names_a_remedy_that_works(models, tmp_path):
    """transformers asks for an option that no command has."""
    path = tiny_models.copy(models["base"], tmp_path / "own")
    kept = (path / "tokenizer.json").read_text()
    (path / "tokenizer.json").unlink()
    about = {"auto_map": {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]}, "tokenizer_class": "OwnTokenizer"}
    (path / "tokenizer_config.json").write_text(json.dumps(about))
    (path / "qwen.tiktoken").write_text("aGVsbG8= 0\n")
    with pytest.raises(CheckpointError, match=r"made by code of its own, which is never run; put a tokenizer\.json"):
        Checkpoint.open(path).tokenizer()
    (path / "tokenizer.json").write_text(kept)
    (path / "tokenizer_config.json").write_text("{}")
    assert Checkpoint.open(path).encode("hello")


def test_a_tokenizer_that_lacks_a_part_is_said_in_words(llama):
    (llama / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"no usable tokenizer: .*copy it again"):
        Checkpoint.open(llama).tokenizer()


def test_the_remedy_for_shards_outside_works(sharded, tmp_path):
    names = sorted(path.name for path in sharded.glob("model-*.safetensors"))
    (sharded / names[0]).rename(tmp_path / names[0])

    def placed(index, where):
        index["weight_map"] = {t: where if f.endswith(names[0]) else f for t, f in index["weight_map"].items()}

    index = sharded / "model.safetensors.index.json"
    tiny_models.edit_json(index, lambda content: placed(content, f"../{names[0]}"))
    with pytest.raises(CheckpointError, match="put that file into the folder, and its name there into the index"):
        Checkpoint.open(sharded)
    (tmp_path / names[0]).rename(sharded / names[0])
    tiny_models.edit_json(index, lambda content: placed(content, names[0]))
    assert read(sharded)[1].n_blocks == 2
