"""Folders as people find, merge and convert them: what transformers opens is read, and what is not read is named."""

import json
import shutil
import sys

import gguf_files
import numpy as np
import pytest
import sentencepiece
import sweep
import tiny_models
import torch
import transformers
from hub_server import Repo
from safetensors.torch import load_file, save_file

from provlab import compare
from provlab.errors import CheckpointError, InvalidWeightsError
from provlab.reading import anatomy, local
from provlab.reading.checkpoint import Checkpoint
from provlab.running.activations import mlp_activations

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
UP = "model.layers.0.mlp.up_proj.weight"


def verdict(a, b, **settings):
    return " ".join(compare(a, b, statistics=["phi_u"], progress=False, **settings).verdict().split())


# Two sets of weights in one folder


def _sharded_beside(folder, seed):
    tiny_models.build("llama", seed=seed).save_pretrained(folder / "other", max_shard_size="20KB")
    for path in (folder / "other").glob("model*"):
        shutil.move(path, folder)
    shutil.rmtree(folder / "other")
    return INDEX


def _gguf_beside(folder, seed, kind="F32"):
    model = tiny_models.build("llama", seed=seed)
    (folder / "model-f.gguf").write_bytes(gguf_files.content(*gguf_files.converted(model, kind)))
    return "model-f.gguf"


def _half_beside(folder, seed):
    model = tiny_models.build("llama", seed=seed).to(torch.bfloat16)
    model.save_pretrained(folder / "other", variant="fp16")
    shutil.move(folder / "other" / "model.fp16.safetensors", folder)
    shutil.rmtree(folder / "other")
    return "model.fp16.safetensors"


BESIDE = {"shards": _sharded_beside, "GGUF": _gguf_beside, "half": _half_beside}


@pytest.mark.parametrize("label", BESIDE)
def test_a_second_model_in_a_folder_is_an_error_that_asks_which(label, llama, tiny):
    other = BESIDE[label](llama, seed=7)
    with pytest.raises(CheckpointError, match="holds two models") as refusal:
        Checkpoint.open(llama)
    named = str(refusal.value).partition(" is meant: ")[2].split(" or ")
    assert named == [f"{llama}/{WEIGHTS}", f"{llama}/{other}"]
    read = [Checkpoint.open(path).array(UP) for path in named]
    stranger = tiny_models.build("llama", seed=7).state_dict()[UP].numpy()
    assert np.array_equal(read[0], Checkpoint.open(tiny("llama")).array(UP))
    assert np.abs(read[1] - stranger).max() < 0.01
    assert [type(Checkpoint.open(path).load_model()).__name__ for path in named] == ["LlamaForCausalLM"] * 2


@pytest.mark.parametrize("label", BESIDE)
def test_one_model_twice_in_a_folder_is_read_and_both_are_named(label, llama, models):
    other = BESIDE[label](llama, seed=0)
    assert Checkpoint.open(llama).notes == (
        f"Beside {WEIGHTS} of llama, which was read, lies {other}, with the same numbers.",
    )
    text = verdict(llama, tiny_models.save("llama", llama.parent / "b", seed=3))
    assert f"which was read, lies {other}, with the same numbers." in text


def test_a_copy_in_codes_is_one_model_and_so_is_one_that_lacks_a_head(tmp_path):
    settings = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    models = []
    for seed in range(2):
        torch.manual_seed(seed)
        config = transformers.LlamaConfig(**settings, vocab_size=64, tie_word_embeddings=True)
        models.append(transformers.LlamaForCausalLM(config).eval())
    models[0].save_pretrained(tmp_path)
    for model, kind in ((models[0], "Q4_0"), (models[0], "Q8_0")):
        (tmp_path / "a.gguf").write_bytes(gguf_files.content(*gguf_files.converted(model, kind)))
        (note,) = Checkpoint.open(tmp_path).notes
        assert note.endswith(f"lies a.gguf, with the same numbers, as far as its codes ({kind}) keep them.")
    (tmp_path / "a.gguf").write_bytes(gguf_files.content(*gguf_files.converted(models[1], "Q4_0")))
    with pytest.raises(CheckpointError, match="holds two models"):
        Checkpoint.open(tmp_path)


def test_two_pickled_models_are_two_models(llama):
    """The table of another model's shards beside one pickle; transformers writes none any more."""
    tensors = [tiny_models.build("llama", seed=seed).state_dict() for seed in range(2)]
    (llama / WEIGHTS).unlink()
    torch.save(tensors[0], llama / "pytorch_model.bin")
    torch.save(tensors[1], llama / "pytorch_model-00001-of-00001.bin")
    index = {"weight_map": dict.fromkeys(tensors[1], "pytorch_model-00001-of-00001.bin")}
    (llama / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"two models, pytorch_model.bin and pytorch_model.bin.index.json, which"):
        Checkpoint.open(llama, allow_pickle=True)
    chosen = Checkpoint.open(llama / "pytorch_model.bin.index.json", allow_pickle=True)
    assert np.array_equal(chosen.array(UP), tensors[1][UP].numpy())


def test_weights_that_nobody_reads_are_named(llama):
    shutil.copy(llama / WEIGHTS, llama / "consolidated.safetensors")
    (llama / "projector.gguf").write_bytes(b"GGUF" + bytes(99))
    assert [note.partition(", which was read, ")[2] for note in Checkpoint.open(llama).notes] == [
        "lies projector.gguf, which cannot be compared.",
        "lie weights that were not: consolidated.safetensors.",
    ]


def test_on_the_hub_both_are_named_and_either_can_be_given(llama, serve):
    other = _gguf_beside(llama, seed=7)
    serve(org__two=Repo(llama))
    (note,) = Checkpoint.open("org/two").notes
    assert note == f"Beside {WEIGHTS} of two, which was read, lies {other}, which was neither read nor compared."
    first, second = (Checkpoint.open(f"org/two/{name}") for name in (WEIGHTS, other))
    assert (first.source, first.notes) == (f"org/two/{WEIGHTS}", ())
    assert np.array_equal(first.array(UP), Checkpoint.open(llama / WEIGHTS).array(UP))
    assert np.array_equal(second.array(UP), Checkpoint.open(llama / other).array(UP))


# Tables of shards that promise more, or less, than there is


def test_tensors_that_nobody_reads_may_differ_between_index_and_shards(sharded):
    """The reference is what transformers opens."""
    shard = sorted(sharded.glob("model-*.safetensors"))[0]
    tensors = load_file(shard)
    save_file(tensors | {"mtp.norm.weight": torch.ones(24)}, shard, {"format": "pt"})
    tiny_models.edit_json(sharded / INDEX, lambda i: i["weight_map"].update({"mtp.fc.weight": shard.name}))
    tokens = torch.arange(8)[None]
    theirs = transformers.LlamaForCausalLM.from_pretrained(sharded)(tokens).logits
    checkpoint = Checkpoint.open(sharded)
    assert "mtp.norm.weight" in checkpoint.tensor_names
    assert "mtp.fc.weight" not in checkpoint.tensor_names
    assert torch.equal(checkpoint.load_model()(tokens).logits, theirs)
    text = verdict(sharded, tiny_models.save("llama", sharded.parent / "b", seed=3))
    assert "The index of sharded names tensors that are in no file, such as mtp.fc.weight." in text
    assert "hold tensors that the index does not place there, such as mtp.norm.weight." in text
    with pytest.raises(CheckpointError, match=r"lacks mtp.fc.weight, which the index places there; copy both again"):
        checkpoint.array("mtp.fc.weight")


def test_a_tied_head_may_be_listed_and_not_stored(tmp_path):
    model = tiny_models.build("llama_tied")
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    tiny_models.edit_json(
        tmp_path / INDEX,
        lambda i: i["weight_map"].update({"lm_head.weight": i["weight_map"]["model.embed_tokens.weight"]}),
    )
    checkpoint = Checkpoint.open(tmp_path)
    assert anatomy.of(checkpoint).tied
    tokens = torch.arange(8)[None]
    assert torch.equal(checkpoint.load_model()(tokens).logits, model(tokens).logits)


def test_an_index_may_place_a_tensor_in_another_shard(sharded):
    before = Checkpoint.open(sharded).array(UP)
    tiny_models.edit_json(
        sharded / INDEX,
        lambda i: i["weight_map"].update({UP: min({*i["weight_map"].values()} - {i["weight_map"][UP]})}),
    )
    checkpoint = Checkpoint.open(sharded)
    assert np.array_equal(checkpoint.array(UP), before)
    assert checkpoint.absent == {}
    assert "does not place there, such as " + UP in checkpoint.notes[0]


# Names with wrappers in them: one normaliser for weights and for forward passes


def _inside(word, *places):
    def renamed(name):
        for place in places:
            name = name.replace(place, f"{place}{word}.", 1)
        return name

    return renamed


def _before(prefix):
    return lambda name: prefix + name


NAMES = {
    "module": _before("module."),
    "compiled": _before("_orig_mod."),
    "adapted": _before("base_model.model."),
    "both": _before("module._orig_mod."),
    "in parallel twice": _before("module.module."),
    "in parallel twice, compiled": _before("module.module._orig_mod."),
    "another name after": _before("_orig_mod.a."),
    "a part of the family's name": _before("lla."),
    "compiled blocks": _inside("_orig_mod", "layers.0.", "layers.1."),
    "compiled twice": _inside("_orig_mod", "model.", "layers.0.", "mlp."),
    "checkpointed": _inside("_checkpoint_wrapped_module", "layers.0.", "layers.1."),
    "sharded in blocks": _inside("_fsdp_wrapped_module", "model.", "layers.0.", "layers.1."),
    "checkpointed and sharded": lambda name: _inside("_fsdp_wrapped_module", "model.", "layers.0.")(
        _inside("_checkpoint_wrapped_module", "layers.0.", "layers.1.")(name)
    ),
    "in parallel in blocks": _inside("module", "layers.0.", "layers.1."),
    "an adapter's base": lambda name: name.replace("up_proj.", "up_proj.base_layer."),
    "an adapter's base, compiled": lambda name: "_orig_mod." + name.replace("up_proj.", "up_proj.base_layer."),
    "language_model": _before("language_model."),
    "language_model in place of model": lambda n: (
        "language_model." + n.removeprefix("model.") if n.startswith("model.") else n
    ),
    "pretrained_model": _before("pretrained_model."),
    "model.model": _before("model."),
    "model.model alone": lambda n: f"model.{n}" if n.startswith("model.") else n,
    "transformer": lambda n: n.replace("model.", "transformer.", 1),
}


@pytest.mark.parametrize("label", NAMES)
def test_wrappers_are_no_part_of_a_name_for_weights_nor_for_forward_passes(label, llama, tiny):
    tensors = load_file(llama / WEIGHTS)
    renamed = {NAMES[label](name): value for name, value in tensors.items()}
    assert renamed.keys() != tensors.keys()
    if label == "pretrained_model":
        renamed["v_head.summary.weight"] = torch.ones(1, 24)  # as trl saves beside the model
    save_file(renamed, llama / WEIGHTS, {"format": "pt"})
    ours, plain = Checkpoint.open(llama), Checkpoint.open(tiny("llama"))
    roles = [(part.segments[0].role, part.block) for part in anatomy.of(plain).parts]
    for role, block in roles:
        here, there = (anatomy.of(c).read(c, role, block) for c in (ours, plain))
        assert np.array_equal(here, there)
    tokens = np.arange(16).reshape(2, 8)
    here, there = (mlp_activations(c, tokens)["hidden"] for c in (ours, plain))
    assert all(map(np.array_equal, here, there))


@pytest.mark.parametrize("name", ["ErnieForMaskedLM", "Data2VecTextForMaskedLM", "XLMRobertaXLForMaskedLM"])
def test_what_transformers_calls_the_base_model_is_no_wrapper(name, tmp_path):
    """It is another word than that of the class whose row of the table these share."""
    model = sweep.made(name, 0)
    model.save_pretrained(tmp_path)
    checkpoint = Checkpoint.open(tmp_path)
    assert (checkpoint.architecture, checkpoint.notes, checkpoint.renamed) == (name, (), {})
    tokens = torch.arange(5, 29)[None]
    assert torch.equal(checkpoint.load_model()(tokens).logits, model(tokens).logits)


def test_a_file_of_another_name_is_read_by_its_path(llama):
    (llama / WEIGHTS).rename(llama / "mine.safetensors")
    with pytest.raises(
        CheckpointError, match=r"has no model.safetensors, but mine.safetensors; give the path"
    ) as refused:
        Checkpoint.open(llama)
    assert UP in Checkpoint.open(str(refused.value).rpartition("give the path of one: ")[2]).tensor_names


# Heads that are not there, and parts of a model that are no wrapper


@pytest.mark.parametrize("family", ["MPNet", "Bert", "XLMRoberta", "Roberta", "DistilBert", "Electra"])
def test_an_encoder_of_sentences_is_read_as_the_base_model_that_it_is(family, tmp_path):
    """As sentence-transformers saves it: the config names the class with a head, which is in no file."""
    plain, folder = tmp_path / "plain", tmp_path / "sentences"
    sweep.made(f"{family}Model", 0).save_pretrained(plain)
    shutil.copytree(plain, folder)
    tiny_models.edit_json(folder / "config.json", lambda c: c.update(architectures=[f"{family}ForMaskedLM"]))
    ours, theirs = Checkpoint.open(folder), Checkpoint.open(plain)
    assert ours.architecture == f"{family}Model"
    assert ours.notes == (
        f"The weights of sentences are those of {family}Model: the head of {family}ForMaskedLM is not there.",
    )
    tokens = np.arange(5, 21).reshape(2, 8)
    here, there = (mlp_activations(c, tokens)["hidden"] for c in (ours, theirs))
    assert all(map(np.array_equal, here, there))


def test_a_tied_head_is_no_missing_one(tmp_path):
    """As the first GPT-2 lies on the hub: names of the base model, and the class with the head."""
    model = tiny_models.build("gpt2")
    model.transformer.save_pretrained(tmp_path)
    tiny_models.edit_json(tmp_path / "config.json", lambda c: c.update(architectures=["GPT2LMHeadModel"]))
    checkpoint = Checkpoint.open(tmp_path)
    assert (checkpoint.architecture, checkpoint.notes) == ("GPT2LMHeadModel", ())
    tokens = torch.arange(8)[None]
    assert torch.equal(checkpoint.load_model()(tokens).logits, model(tokens).logits)


@pytest.mark.parametrize("name", ["WhisperForConditionalGeneration", "WhisperModel"])
def test_a_model_that_hears_is_compared_by_its_weights_and_not_run(name, tmp_path):
    sweep.made(name, 0).save_pretrained(tmp_path / "a")
    sweep.made(name, 0, 0.1).save_pretrained(tmp_path / "b")
    checkpoint = Checkpoint.open(tmp_path / "a")
    assert checkpoint.renamed == {}  # a decoder is no wrapper
    ups = [anatomy.of(checkpoint).tensor_name("up", block).removeprefix("model.") for block in range(4)]
    assert ups == [f"{stack}.layers.{n}.fc1.weight" for stack in ("encoder", "decoder") for n in range(2)]
    result = compare(tmp_path / "a", tmp_path / "b", statistics=["phi_u", "phi_h", "phi_jsd"], progress=False)
    assert result.records[0].outcome.log10_p < -30
    for record in result.records[1:]:
        assert "reads sound and no tokens: it is compared by its weights, and not run" in record.error
    assert type(checkpoint.load_model()).__name__ == name


@pytest.mark.parametrize("name", ["BartModel", "MarianModel"])
def test_an_encoder_with_its_decoder_is_read_without_a_head(name, tmp_path):
    sweep.made(name, 0).save_pretrained(tmp_path)
    checkpoint = Checkpoint.open(tmp_path)
    assert anatomy.of(checkpoint).tensor_name("up", 0) == "encoder.layers.0.fc1.weight"
    assert len(mlp_activations(checkpoint, np.arange(5, 21).reshape(2, 8))["hidden"]) == 4


@pytest.mark.parametrize(
    "name", ["WhisperForConditionalGeneration", "BartForConditionalGeneration", "T5ForConditionalGeneration"]
)
def test_a_decoder_that_was_copied_is_found_below_an_encoder_that_was_not(name, tmp_path):
    """Each stack is read, and blocks of the decoder are counted after those of the encoder."""
    models = [sweep.made(name, seed) for seed in range(2)]
    decoder = {key: value for key, value in models[0].state_dict().items() if "decoder." in key}
    models[1].load_state_dict(models[1].state_dict() | decoder)
    for label, model in zip("ab", models, strict=True):
        model.save_pretrained(tmp_path / label)
    result = compare(tmp_path / "a", tmp_path / "b", statistics=["phi_u"], progress=False)
    p = [block.log10_p for block in result.records[0].outcome.blocks]
    assert max(p[2:]) < -30 < -5 < min(p[:2])
    if "Whisper" not in name:  # of the decoder alone, where nothing above the blocks asked for runs
        ran = compare(tmp_path / "a", tmp_path / "b", statistics=["phi_h"], blocks=[0, 2], progress=False)
        p = [block.log10_p for block in ran.records[0].outcome.blocks]
        assert p[1] < -30 < -5 < p[0]


def test_an_encoder_and_its_decoder_may_be_of_other_sizes(tmp_path):
    sizes = {"encoder_layers": 3, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 48, "d_model": 32}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 2, "vocab_size": 60}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    torch.manual_seed(0)
    transformers.BartForConditionalGeneration(
        transformers.BartConfig(**sizes, **heads, **tokens, forced_eos_token_id=None)
    ).save_pretrained(tmp_path)
    checkpoint = Checkpoint.open(tmp_path)
    roles = anatomy.of(checkpoint)
    assert [roles.shape("up", block) for block in range(roles.n_blocks)] == [(64, 32)] * 3 + [(48, 32)]
    hidden = mlp_activations(checkpoint, np.arange(5, 21).reshape(2, 8))["hidden"]
    assert [len(units) for units in hidden] == [64, 64, 64, 48]
    tiny_models.rewrite(tmp_path, lambda t: t.pop("model.decoder.layers.0.fc2.weight"))
    with pytest.raises(CheckpointError, match=r"lacks the tensor model.decoder.layers.0.fc2.weight"):
        anatomy.of(Checkpoint.open(tmp_path))


# Files by what they hold, and links


@pytest.mark.parametrize("name", ["M.GGUF", "9f2a" * 16, "sha256-9f2a", "weights.dat", "model.gguf.part"])
def test_gguf_is_known_by_its_content(name, tmp_path):
    gguf_files.save("llama", tmp_path / "there" / "a.gguf")
    expected = Checkpoint.open(tmp_path / "there" / "a.gguf").array(UP)
    (tmp_path / "here").mkdir()
    shutil.copy(tmp_path / "there" / "a.gguf", tmp_path / "here" / name)
    assert np.array_equal(Checkpoint.open(tmp_path / "here" / name).array(UP), expected)
    assert np.array_equal(Checkpoint.open(tmp_path / "here").array(UP), expected)


def test_two_gguf_files_without_an_ending_are_named(tmp_path):
    gguf_files.save("llama", tmp_path / "9f2a")
    shutil.copy(tmp_path / "9f2a", tmp_path / "8e1b")
    with pytest.raises(
        CheckpointError, match=r"holds several models; give the path of one: .*8e1b or .*9f2a$"
    ) as refused:
        Checkpoint.open(tmp_path)
    assert UP in Checkpoint.open(str(refused.value).rpartition(" or ")[2]).tensor_names


def test_a_folder_of_links_into_the_hub_s_cache_is_read(llama, tmp_path, monkeypatch):
    blobs = local.hub_cache() / "models--org--name" / "blobs"
    blobs.mkdir(parents=True)
    for name in ("config.json", WEIGHTS):
        shutil.move(llama / name, blobs / name)
        (llama / name).symlink_to(blobs / name)
    Checkpoint.open(llama).array(UP)
    other = tmp_path / "models--org--name" / "blobs"  # which is not this user's cache
    shutil.copytree(blobs, other)
    (llama / WEIGHTS).unlink()
    (llama / WEIGHTS).symlink_to(other / WEIGHTS)
    with pytest.raises(CheckpointError, match="leads outside the folder"):
        Checkpoint.open(llama)


# Configs and tokenizers that say what the weights have not


def test_a_config_that_begins_with_the_mark_of_an_editor(llama):
    (llama / "config.json").write_bytes(b"\xef\xbb\xbf" + (llama / "config.json").read_bytes())
    assert Checkpoint.open(llama).architecture == "LlamaForCausalLM"


@pytest.mark.parametrize("label", ["llama", "llama_base", "qwen2", "gpt2", "bert_masked", "bert_base", "gpt_neox"])
def test_a_config_without_architectures_is_known_by_its_tensors(tiny, tmp_path, label):
    folder = tiny_models.copy(tiny(label), tmp_path / "copy")
    named = json.loads((folder / "config.json").read_text())["architectures"][0]
    tiny_models.edit_json(folder / "config.json", lambda config: config.update(architectures=None))
    checkpoint = Checkpoint.open(folder)
    assert checkpoint.architecture == named
    assert anatomy.of(checkpoint).n_blocks == tiny_models.BLOCKS


def test_fp8_without_scales_is_refused(llama):
    tiny_models.rewrite(llama, lambda tensors: tensors.update({UP: tensors[UP].to(torch.float8_e4m3fn)}))
    checkpoint = Checkpoint.open(llama)
    with pytest.raises(CheckpointError, match=r"no scale that is known .*; give the checkpoint that it"):
        anatomy.of(checkpoint).read(checkpoint, "up", 0)


CONFIGS = {
    "padding beyond the vocabulary": ({"pad_token_id": 300}, "300 as its pad_token_id, which is none of the 300 tok"),
    "padding as text": ({"pad_token_id": "<pad>"}, "'<pad>' as its pad_token_id, which is none of the 300 tokens"),
    "padding as a list": ({"pad_token_id": [0]}, "[0] as its pad_token_id, which is none of the 300 tokens"),
    "an end as text": ({"eos_token_id": "</s>"}, "'</s>' as its eos_token_id, which is none of the 300 tokens"),
    "an end beyond": ({"eos_token_id": [0, 300]}, ""),
    "torch's name of a dtype": ({"torch_dtype": "torch.float16"}, ""),
    "torch's name of a dtype, new": ({"dtype": "torch.bfloat16"}, ""),
}


def test_deepseek_v4_is_read_under_the_names_of_its_publisher(tmp_path):
    """Its embedding and head have names of their own; its router's table of tokens is whole numbers, and no codes."""
    config = transformers.DeepseekV4Config(**sweep.shrunk(transformers.DeepseekV4Config))
    transformers.DeepseekV4ForCausalLM(config).save_pretrained(tmp_path / "saved")
    shutil.copytree(tmp_path / "saved", tmp_path / "published")

    def published(tensors):
        for name in [*tensors]:
            short = name.removeprefix("model.").replace("embed_tokens.", "embed.")
            tensors[short] = tensors.pop(name)

    tiny_models.rewrite(tmp_path / "published", published)
    saved, own = (Checkpoint.open(str(tmp_path / name)) for name in ("saved", "published"))
    assert {"embed.weight", "head.weight", "layers.0.ffn.gate.tid2eid"} <= {*own.tensor_names}
    a, b = anatomy.of(saved), anatomy.of(own)
    assert a.roles == b.roles
    for part in a.parts:
        same = b.part(part.segments[0].role, part.block)
        assert np.array_equal(saved.array(part.name), own.array(same.name))
    ids = torch.arange(8)[None]
    with torch.no_grad():
        assert torch.equal(saved.load_model()(ids).logits, own.load_model()(ids).logits)
    twice = shutil.copytree(tmp_path / "published", tmp_path / "twice")
    tiny_models.rewrite(twice, lambda tensors: tensors.update({"embed_tokens.weight": 3 * tensors["embed.weight"]}))
    with pytest.raises(InvalidWeightsError, match=r"has embed\.weight and embed_tokens\.weight, both"):
        anatomy.of(Checkpoint.open(str(twice)))
    tiny_models.rewrite(tmp_path / "published", lambda tensors: tensors.pop("norm.weight"))
    with pytest.raises(InvalidWeightsError, match=r"lacks the tensor norm\.weight"):  # and not that it holds codes
        anatomy.of(Checkpoint.open(str(tmp_path / "published")))


@pytest.mark.parametrize("label", CONFIGS)
def test_tokens_and_dtypes_that_are_none_hinder_no_forward_pass_and_no_tokenizer(label, spoilt, models):
    entries, named = CONFIGS[label]
    tiny_models.edit_json(spoilt / "config.json", lambda config: config.update(entries))
    assert Checkpoint.open(spoilt).vocabulary() == Checkpoint.open(models["base"]).vocabulary()
    result = compare(spoilt, models["tuned"], statistics=["phi_h"], progress=False)
    plain = compare(models["base"], models["tuned"], statistics=["phi_h"], progress=False)
    assert result.records[0].outcome.log10_p == plain.records[0].outcome.log10_p
    assert [named in note for note in Checkpoint.open(spoilt).notes] == [True] * bool(named)


def test_tokens_without_an_embedding_are_left_out_of_a_text(spoilt, models, text):
    """A word of the text was added to the tokenizer, and the embedding was not made longer."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(spoilt)
    tokenizer.add_tokens(["model"])
    assert tokenizer("the model", add_special_tokens=False)["input_ids"][-1] == 300
    tokenizer.save_pretrained(spoilt)
    result = compare(spoilt, models["tuned"], statistics=["phi_match", "phi_h"], text=text, progress=False)
    assert [record.error for record in result.records] == [None, None]


def _words(text):
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({*text.split()})]


def test_a_gpt2_with_a_list_of_words_is_read_by_it(tmp_path, text):
    """As Chinese GPT-2s lie on the hub, some without a tokenizer_config.json."""
    tiny_models.save("gpt2", tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(_words(text)))
    checkpoint = Checkpoint.open(tmp_path)
    ids, spans = checkpoint.cut("the model reads")
    assert [checkpoint.tokenizer().decode([i]) for i in ids] == ["the", "model", "reads"]
    assert spans == [(0, 3), (4, 9), (10, 15)]
    assert len(checkpoint.vocabulary()) == len(_words(text))


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("name", ["spiece.model", "tokenizer.model"])
def test_a_gpt2_with_sentencepiece_is_read_by_it(tmp_path, text, name, kind):
    """As Japanese GPT-2s lie on the hub. The reference is the package sentencepiece."""
    tiny_models.save("gpt2", tmp_path)
    lines = [text[i : i + 60] for i in range(0, 3000, 60)]
    (tmp_path / "lines").write_text("\n".join(lines))
    settings = {"vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2, "model_type": kind}
    sentencepiece.SentencePieceTrainer.train(input=tmp_path / "lines", model_prefix=tmp_path / "made", **settings)
    (tmp_path / "made.model").rename(tmp_path / name)
    reference = sentencepiece.SentencePieceProcessor(str(tmp_path / name))
    assert Checkpoint.open(tmp_path).encode(lines[3]) == reference.encode(lines[3])


def test_a_tokenizer_that_does_not_fit_says_which_files_there_are(tmp_path):
    tiny_models.save("gpt2", tmp_path)
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(CheckpointError, match=r"no usable tokenizer: .*; of its files there are merges.txt$"):
        Checkpoint.open(tmp_path).tokenizer()


def test_nothing_of_a_tokenizer_s_file_is_printed(spoilt, capfd):
    """The library prints keys that it does not know, as they are: a terminal would obey them."""

    def plant(content):
        content["added_tokens"] = [
            {"id": 0, "content": "a", "special": True, "lstrip": False, "rstrip": False, "single_word": False,
             "normalized": False, "\x1b[31mevil": 1}
        ]  # fmt: skip

    tiny_models.edit_json(spoilt / "tokenizer.json", plant)
    Checkpoint.open(spoilt).vocabulary()
    assert capfd.readouterr().out == ""


def test_a_tokenizer_is_read_where_standard_output_is_closed(spoilt, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert Checkpoint.open(spoilt).vocabulary()


def test_a_vocabulary_that_a_merge_cut_is_compared_by_what_is_left(spoilt, models, text):
    def cut(tensors):
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            tensors[name] = tensors[name][:280].clone()

    tiny_models.rewrite(spoilt, cut)
    with pytest.raises(
        InvalidWeightsError, match=r"where tokens were added or cut away, set vocab_size there to 280; e"
    ):
        anatomy.of(Checkpoint.open(spoilt))
    tiny_models.edit_json(spoilt / "config.json", lambda config: config.update(vocab_size=280))
    result = compare(spoilt, models["tuned"], text=text, progress=False)
    ran = {record.statistic for record in result.records if record.outcome}
    assert {"phi_u", "phi_h", "phi_match", "phi_jsd"} <= ran


def test_units_that_agree_are_counted_by_rank_where_zeros_move_places(models, new_model, save_model, tmp_path):
    """Eight units of zeros between those of a copy move all places, and no rank."""
    base = transformers.LlamaForCausalLM.from_pretrained(models["base"])
    width = base.config.intermediate_size
    wider = new_model(0, intermediate_size=width + 8)
    places = np.delete(np.arange(width + 8), np.arange(3, width + 8, 7)[:8])
    state, wide = base.state_dict(), wider.state_dict()
    for name, tensor in state.items():
        if "mlp" not in name:
            wide[name] = tensor
        else:
            wide[name].zero_()
            wide[name][(slice(None), places) if "down" in name else places] = tensor
    wider.load_state_dict(wide)
    folder = save_model(wider, tmp_path / "padded")
    result = compare(models["base"], folder, statistics=["phi_u"], progress=False)
    assert result.records[0].outcome.value == 1
    assert [block.detail.agree for block in result.records[0].outcome.blocks] == [width] * 3
