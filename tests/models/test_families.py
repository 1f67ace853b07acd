"""Every family of the table, as transformers makes it: a noised copy is found, another seed is not."""

import pytest
import torch
import transformers

from provlab.engine.pairs import open_models, run_pairs
from provlab.errors import UnknownArchitectureError
from provlab.models import architectures
from provlab.models.architectures import classes, described
from provlab.statistics.base import Options

_BERT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 60,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LLAMA = _BERT | {"num_key_value_heads": 2}
_GPT2 = {"n_embd": 32, "n_inner": 64, "n_layer": 2, "n_head": 4, "vocab_size": 60, "n_positions": 64}
_DISTIL = {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 60, "max_position_embeddings": 64}
_T5 = {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 4, "d_kv": 8, "vocab_size": 60}
# each config counts its experts by one of these
_MOE = _LLAMA | dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 3) | {"num_experts_per_tok": 2}
_DEEPSEEK = _MOE | {
    "moe_intermediate_size": 48,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_DEEPSEEK |= {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
_VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "image_size": 16,
}
_VISION |= {"patch_size": 8}
_QWEN_VISION = {
    "depth": 1,
    "hidden_size": 32,
    "out_hidden_size": 32,
    "num_heads": 4,
    "patch_size": 8,
    "intermediate_size": 48,
}
_ROTATED = _LLAMA | {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}}
#: where the config has other keys, or needs more of them; all others are made with _MOE, _LLAMA or _BERT
_SETTINGS = {
    "GPT2LMHeadModel": _GPT2,
    "GPT2Model": _GPT2,
    "GPT2ForSequenceClassification": _GPT2,
    "GPTJForCausalLM": _GPT2 | {"rotary_dim": 4},
    "GPTNeoForCausalLM": _BERT | {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
    "BloomForCausalLM": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 60},
    "FalconForCausalLM": _BERT | {"ffn_hidden_size": 64},
    "MptForCausalLM": {"d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 60},
    "OPTForCausalLM": _BERT | {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "ElectraForMaskedLM": _BERT | {"embedding_size": 16},
    "AlbertForMaskedLM": _BERT | {"embedding_size": 16},
    "DebertaForMaskedLM": _BERT | {"pooler_hidden_size": 32},
    "DebertaV2ForMaskedLM": _BERT | {"pooler_hidden_size": 32},
    "DistilBertForMaskedLM": _DISTIL,
    "DistilBertModel": _DISTIL,
    "T5ForConditionalGeneration": _T5,
    "T5EncoderModel": _T5,
    "GPTNeoXForCausalLM": _BERT,
    "GPTNeoXModel": _BERT,
    "PhiForCausalLM": _BERT,
    "HeliumForCausalLM": _LLAMA | {"head_dim": 8},
    "HunYuanDenseV1ForCausalLM": _LLAMA | {"head_dim": 8},
    "ElectraForPreTraining": _BERT | {"embedding_size": 16},
    "Qwen2MoeForCausalLM": _MOE | {"moe_intermediate_size": 48, "shared_expert_intermediate_size": 56},
    "Qwen3MoeForCausalLM": _MOE | {"moe_intermediate_size": 48, "head_dim": 8},
    "Qwen3NextForCausalLM": _MOE | {"moe_intermediate_size": 48, "head_dim": 8, "shared_expert_intermediate_size": 56},
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV3ForCausalLM": _DEEPSEEK,
    "Glm4MoeForCausalLM": _DEEPSEEK,
    "Dots1ForCausalLM": _DEEPSEEK,
    "Ernie4_5_MoeForCausalLM": _DEEPSEEK
    | {"moe_num_experts": 3, "moe_num_shared_experts": 1, "moe_layer_start_index": 1},
    "GptOssForCausalLM": _MOE | {"head_dim": 8},
    "HunYuanMoEV1ForCausalLM": _MOE | {"head_dim": 8},
    "GraniteMoeSharedForCausalLM": _MOE | {"shared_intermediate_size": 56},
    "MllamaForConditionalGeneration": {
        "text_config": _LLAMA
        | {"cross_attention_layers": [1], "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
        "vision_config": {
            **_VISION,
            "num_global_layers": 1,
            "attention_heads": 4,
            "vision_output_dim": 64,
            "intermediate_layers_indices": [0],
            "supported_aspect_ratios": [[1, 1]],
            "max_num_tiles": 1,
        },
    },
    "Qwen2VLForConditionalGeneration": {"text_config": _ROTATED, "vision_config": _QWEN_VISION | {"embed_dim": 32}},
    "Qwen2_5_VLForConditionalGeneration": {"text_config": _ROTATED, "vision_config": _QWEN_VISION},
    "Qwen3VLForConditionalGeneration": {
        "text_config": _ROTATED | {"head_dim": 8},
        "vision_config": _QWEN_VISION | {"deepstack_visual_indexes": [0]},
    },
}
#: further classes of known families, which have no entry of their own
_HEADS = (
    "LlamaForSequenceClassification",
    "LlamaForQuestionAnswering",
    "LlamaModel",
    "MistralModel",
    "Qwen2Model",
    "Qwen3Model",
    "GPT2Model",
    "GPTNeoXModel",
    "BertModel",
    "MistralForSequenceClassification",
    "Qwen2ForSequenceClassification",
    "MistralForTokenClassification",
    "GemmaModel",
    "Phi3Model",
    "GPT2ForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
    "BertForPreTraining",
    "RobertaForSequenceClassification",
    "XLMRobertaModel",
    "ElectraForPreTraining",
    "MPNetModel",
    "DistilBertModel",
    "ModernBertModel",
    "T5EncoderModel",
)


#: models that see, of which the language part is compared: known by their text_config, where others are in the table
_WRAPPERS = {
    "LlavaForConditionalGeneration": ("llama", "clip_vision_model"),
    "LlavaNextForConditionalGeneration": ("mistral", "clip_vision_model"),
    "Idefics3ForConditionalGeneration": ("llama", None),
    "PaliGemmaForConditionalGeneration": ("gemma", "siglip_vision_model"),
    "Gemma3ForConditionalGeneration": (None, None),
    "Mistral3ForConditionalGeneration": ("mistral", "pixtral"),
    "InternVLForConditionalGeneration": ("qwen2", None),
    "AyaVisionForConditionalGeneration": ("cohere2", "siglip_vision_model"),
}
for _name, _kinds in _WRAPPERS.items():
    _language, _vision = ({"model_type": kind} if kind else {} for kind in _kinds)
    _SETTINGS[_name] = {"text_config": _LLAMA | {"head_dim": 8} | _language, "vision_config": _VISION | _vision}
_SETTINGS["InternVLForConditionalGeneration"]["vision_config"] |= {"image_size": [16, 16], "patch_size": [8, 8]}


def _model(name, seed):
    model_class = getattr(transformers, name)
    usual = _BERT if "ert" in name.lower() or name.startswith("MPNet") else _MOE
    settings = _SETTINGS.get(name, usual)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = model_class(model_class.config_class(**settings)).eval()
        for parameter in model.parameters():  # away from constants
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("name", [*classes(), *_HEADS, *_WRAPPERS])
def test_a_noised_copy_is_found_and_another_seed_is_not(name, tmp_path):
    base, other, copy = _model(name, 0), _model(name, 1), _model(name, 0)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(2)
        for parameter in copy.parameters():
            parameter.add_(0.1 * parameter.std(unbiased=False) * torch.randn_like(parameter))
    for label, model in (("base", base), ("other", other), ("copy", copy)):
        model.save_pretrained(tmp_path / label)
    sources = [str(tmp_path / label) for label in ("base", "other", "copy")]
    pairs = [(sources[0], sources[1]), (sources[0], sources[2])]
    stranger, kin = run_pairs(open_models(sources), ["phi_u"], Options(), pairs=pairs, progress=False)
    assert stranger.error is None
    assert stranger.outcome.log10_p > -3.5
    assert kin.outcome.log10_p < -60


def test_an_unknown_family_is_named_with_the_known_ones():
    with pytest.raises(UnknownArchitectureError, match=r"NovelForCausalLM is not known; known are .* Albert, "):
        described("NovelForCausalLM")


#: what a reader of today's hub meets first: none of these may leave the tests above
_COMMON = """
    LlamaForCausalLM LlamaModel MistralForCausalLM Qwen2ForCausalLM Qwen3ForCausalLM GemmaForCausalLM
    Gemma2ForCausalLM Gemma3ForCausalLM Phi3ForCausalLM OlmoForCausalLM Olmo2ForCausalLM GPT2LMHeadModel GPT2Model
    GPTNeoXForCausalLM BertForMaskedLM BertModel MixtralForCausalLM MPNetForMaskedLM RobertaForMaskedLM
    XLMRobertaForMaskedLM DistilBertForMaskedLM ElectraForMaskedLM DebertaV2ForMaskedLM AlbertForMaskedLM
    ModernBertForMaskedLM T5ForConditionalGeneration BertForSequenceClassification BertForTokenClassification
    BertForQuestionAnswering BertForPreTraining Qwen2MoeForCausalLM Qwen3MoeForCausalLM OlmoeForCausalLM
    DeepseekV2ForCausalLM DeepseekV3ForCausalLM GptOssForCausalLM PhiForCausalLM FalconForCausalLM OPTForCausalLM
    BloomForCausalLM GPTJForCausalLM GPTNeoForCausalLM StableLmForCausalLM Starcoder2ForCausalLM CohereForCausalLM
    GraniteForCausalLM SmolLM3ForCausalLM Glm4ForCausalLM Olmo3ForCausalLM LlamaForSequenceClassification
    MistralForSequenceClassification Qwen2ForSequenceClassification GPT2ForSequenceClassification GemmaModel
    Phi3Model
"""


def test_the_usual_families_are_tested():
    assert set(_COMMON.split()) <= {*classes(), *_HEADS}


@pytest.mark.parametrize("name", ["MambaForCausalLM", "Mamba2ForCausalLM"])
def test_a_family_without_mlps_is_refused_with_the_reason(name):
    with pytest.raises(UnknownArchitectureError, match="has no MLPs, but state spaces"):
        described(name)


def test_every_row_of_the_table_is_read():
    for name in classes():
        parts = described(name).parts
        assert parts[0].segments[0].role == "embedding"  # by which the anatomy finds the prefix in a file
        assert len({part.name for part in parts}) == len(parts)
        for part in parts:
            assert part.name.format(block=0, expert=0).replace(".", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("norm.weight  no_such_role", "no_such_role"),
        ("norm.weight  final_norm  upside_down", "upside_down"),
        ("no_such_group", "no_such_group"),
        ("norm.weight", "not enough values"),
        ("projections at=layers.{block}", "'query'"),
    ],
)
def test_a_row_with_a_fault_is_refused(row, message, monkeypatch):
    monkeypatch.setattr(architectures, "_rows", lambda: {"Novel": {"classes": ["Novel"], "parts": row}})
    architectures._in_table.cache_clear()
    with pytest.raises(ValueError, match=rf"architectures\.toml, Novel: .*{message}"):
        described("Novel")
