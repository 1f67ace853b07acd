"""Tiny random models of every architecture in the table, made by transformers itself: to try things on in a second."""

from collections.abc import Mapping

import torch
import transformers
from transformers import PreTrainedModel

WIDTH, MLP_WIDTH, BLOCKS, VOCABULARY = 24, 40, 2, 50

_COMMON = {
    "hidden_size": WIDTH,
    "intermediate_size": MLP_WIDTH,
    "num_hidden_layers": BLOCKS,
    "num_attention_heads": 4,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = _COMMON | {"num_key_value_heads": 2}
_GPT2 = {
    "n_embd": WIDTH,
    "n_inner": MLP_WIDTH,
    "n_layer": BLOCKS,
    "n_head": 4,
    "vocab_size": VOCABULARY,
    "n_positions": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_BERT = _COMMON | {"type_vocab_size": 2}
_EXPERTS = _GROUPED | {"num_local_experts": 3, "num_experts_per_tok": 2}

#: label -> (model class, keyword arguments of its config class)
TINY: dict[str, tuple[str, Mapping[str, object]]] = {
    "llama": ("LlamaForCausalLM", _GROUPED),
    "llama_tied": ("LlamaForCausalLM", _GROUPED | {"tie_word_embeddings": True}),
    "llama_biased": ("LlamaForCausalLM", _GROUPED | {"attention_bias": True, "mlp_bias": True}),
    "llama_base": ("LlamaModel", _GROUPED),
    "mistral": ("MistralForCausalLM", _GROUPED | {"head_dim": 8}),
    "mistral_base": ("MistralModel", _GROUPED | {"head_dim": 8}),
    "qwen2": ("Qwen2ForCausalLM", _GROUPED),
    "qwen2_base": ("Qwen2Model", _GROUPED),
    "qwen3": ("Qwen3ForCausalLM", _GROUPED | {"head_dim": 8}),
    "qwen3_base": ("Qwen3Model", _GROUPED | {"head_dim": 8}),
    "gemma": ("GemmaForCausalLM", _GROUPED | {"head_dim": 8}),
    "gemma2": ("Gemma2ForCausalLM", _GROUPED | {"head_dim": 8}),
    "gemma3": ("Gemma3ForCausalLM", _GROUPED | {"head_dim": 8}),
    "olmo": ("OlmoForCausalLM", _GROUPED),
    "olmo2": ("Olmo2ForCausalLM", _GROUPED),
    "phi3": ("Phi3ForCausalLM", _GROUPED),
    "gpt2": ("GPT2LMHeadModel", _GPT2),
    "gpt2_base": ("GPT2Model", _GPT2),
    "gpt_neox": ("GPTNeoXForCausalLM", _COMMON),
    "gpt_neox_base": ("GPTNeoXModel", _COMMON),
    "bert_masked": ("BertForMaskedLM", _BERT),
    "bert_classifier": ("BertForSequenceClassification", _BERT),
    "bert_base": ("BertModel", _BERT),
    "mixtral": ("MixtralForCausalLM", _EXPERTS),
}


def build(label: str, *, seed: int = 0) -> PreTrainedModel:
    """Make a random model, every parameter (norms and biases too) away from its initial constant.

    Parameters
    ----------
    label
        A key of `TINY`.
    seed
        Decides the weights; the global generator stays as it is.
    """
    class_name, arguments = TINY[label]
    model_class = getattr(transformers, class_name)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model: PreTrainedModel = model_class(model_class.config_class(**arguments)).eval()
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model
