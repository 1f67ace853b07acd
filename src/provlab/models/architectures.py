"""Architectures described in full: which tensor plays which role, and what each of its axes counts (see `parts`).

Here stand those whose every tensor is described, so that they can be disguised; `families` has the others and
is where both are looked up.
"""

from dataclasses import replace

from provlab.models.parts import Architecture, linear, norm, optional, outside, vector

QUERY, KEY, VALUE = ("query", "query", "model"), ("key", "key", "model"), ("value", "key", "model")
OUTPUT = ("output", "model", "query")
GATE, UP, DOWN = ("gate", "mlp", "model"), ("up", "mlp", "model"), ("down", "model", "mlp")
BLOCK = "layers.{block}"

EMBEDDING = (vector("embed_tokens.weight", "embedding", "vocab", "model"),)
ATTENTION = (
    *linear(f"{BLOCK}.self_attn.q_proj", QUERY),
    *linear(f"{BLOCK}.self_attn.k_proj", KEY),
    *linear(f"{BLOCK}.self_attn.v_proj", VALUE),
    *linear(f"{BLOCK}.self_attn.o_proj", OUTPUT),
)
GATED_MLP = (
    *linear(f"{BLOCK}.mlp.gate_proj", GATE),
    *linear(f"{BLOCK}.mlp.up_proj", UP),
    *linear(f"{BLOCK}.mlp.down_proj", DOWN),
)
INPUT_NORM = norm(f"{BLOCK}.input_layernorm", "input_norm")
POST_ATTENTION_NORM = norm(f"{BLOCK}.post_attention_layernorm", "post_attention_norm")
_PRE_MLP_NORM = norm(f"{BLOCK}.pre_feedforward_layernorm", "pre_mlp_norm")
POST_MLP_NORM = norm(f"{BLOCK}.post_feedforward_layernorm", "post_mlp_norm")
FINAL_NORM = norm("norm", "final_norm")
HEAD = outside(vector("lm_head.weight", "head", "vocab", "model", optional=True))
HEAD_NORMS = (
    *norm(f"{BLOCK}.self_attn.q_norm", "q_norm", "head"),
    *norm(f"{BLOCK}.self_attn.k_norm", "k_norm", "head"),
)

# Roles of norms follow the names in the files. Llama's post_attention_norm stands before the MLP; in
# Gemma 2 and 3 and OLMo 2 it stands at the end of the attention, before the residual sum.
LLAMA = Architecture(
    (*EMBEDDING, *INPUT_NORM, *ATTENTION, *POST_ATTENTION_NORM, *GATED_MLP, *FINAL_NORM, *HEAD),
    prefix="model.",
)
_GEMMA = replace(LLAMA, norm_offset=1.0)
_QWEN3 = replace(LLAMA, parts=(*LLAMA.parts, *HEAD_NORMS))
_GEMMA2 = replace(_GEMMA, parts=(*LLAMA.parts, *_PRE_MLP_NORM, *POST_MLP_NORM))
_GEMMA3 = replace(_GEMMA2, parts=(*_GEMMA2.parts, *HEAD_NORMS))
# OLMo's LayerNorm has no parameters at all.
OLMO = Architecture((*EMBEDDING, *ATTENTION, *GATED_MLP, *HEAD), prefix="model.", centred=True)
OLMO2 = Architecture(
    (
        *OLMO.parts,
        *POST_ATTENTION_NORM,
        *POST_MLP_NORM,
        *FINAL_NORM,
        *norm(f"{BLOCK}.self_attn.q_norm", "q_norm", "query"),
        *norm(f"{BLOCK}.self_attn.k_norm", "k_norm", "key"),
    ),
    prefix="model.",
)
_PHI3 = Architecture(
    (
        *EMBEDDING,
        *INPUT_NORM,
        *linear(f"{BLOCK}.self_attn.qkv_proj", QUERY, KEY, VALUE),
        *linear(f"{BLOCK}.self_attn.o_proj", OUTPUT),
        *POST_ATTENTION_NORM,
        *linear(f"{BLOCK}.mlp.gate_up_proj", GATE, UP),
        *linear(f"{BLOCK}.mlp.down_proj", DOWN),
        *FINAL_NORM,
        *HEAD,
    ),
    prefix="model.",
)
# Each expert has hidden units of its own: roles gate.0, up.0, down.0 with the axis mlp.0, and so on.
_EXPERTS = f"{BLOCK}.block_sparse_moe"
_MIXTRAL = Architecture(
    (
        *EMBEDDING,
        *INPUT_NORM,
        *ATTENTION,
        *POST_ATTENTION_NORM,
        *linear(f"{_EXPERTS}.gate", ("router", "experts", "model")),
        *linear(f"{_EXPERTS}.experts.{{expert}}.w1", GATE),
        *linear(f"{_EXPERTS}.experts.{{expert}}.w2", DOWN),
        *linear(f"{_EXPERTS}.experts.{{expert}}.w3", UP),
        *FINAL_NORM,
        *HEAD,
    ),
    prefix="model.",
)
_GPT2 = Architecture(
    (
        vector("wte.weight", "embedding", "vocab", "model"),
        vector("wpe.weight", "position_embedding", "positions", "model"),
        *norm("h.{block}.ln_1", "input_norm", bias=True),
        *linear("h.{block}.attn.c_attn", QUERY, KEY, VALUE, transposed=True),
        *linear("h.{block}.attn.c_proj", OUTPUT, transposed=True),
        *norm("h.{block}.ln_2", "post_attention_norm", bias=True),
        *linear("h.{block}.mlp.c_fc", UP, transposed=True),
        *linear("h.{block}.mlp.c_proj", DOWN, transposed=True),
        *norm("ln_f", "final_norm", bias=True),
        *HEAD,
    ),
    prefix="transformer.",
    centred=True,
    rotary=False,
)
_GPT_NEOX = Architecture(
    (
        vector("embed_in.weight", "embedding", "vocab", "model"),
        *norm(f"{BLOCK}.input_layernorm", "input_norm", bias=True),
        *linear(f"{BLOCK}.attention.query_key_value", QUERY, KEY, VALUE, interleaved=True),
        *linear(f"{BLOCK}.attention.dense", OUTPUT),
        *norm(f"{BLOCK}.post_attention_layernorm", "post_attention_norm", bias=True),
        *linear(f"{BLOCK}.mlp.dense_h_to_4h", UP),
        *linear(f"{BLOCK}.mlp.dense_4h_to_h", DOWN),
        *norm("final_layer_norm", "final_norm", bias=True),
        replace(HEAD[0], name="embed_out.weight", module="lm_head"),
    ),
    prefix="gpt_neox.",
    # transformers calls the module lm_head once it is loaded
    aliases=(("lm_head.weight", "embed_out.weight"),),
    centred=True,
)
LAYER = "encoder.layer.{block}"
BERT = Architecture(
    (
        vector("embeddings.word_embeddings.weight", "embedding", "vocab", "model"),
        vector("embeddings.position_embeddings.weight", "position_embedding", "positions", "model"),
        vector("embeddings.token_type_embeddings.weight", "token_type_embedding", "types", "model"),
        *norm("embeddings.LayerNorm", "embedding_norm", bias=True),
        *linear(f"{LAYER}.attention.self.query", QUERY),
        *linear(f"{LAYER}.attention.self.key", KEY),
        *linear(f"{LAYER}.attention.self.value", VALUE),
        *linear(f"{LAYER}.attention.output.dense", OUTPUT),
        *norm(f"{LAYER}.attention.output.LayerNorm", "post_attention_norm", bias=True),
        *linear(f"{LAYER}.intermediate.dense", UP),
        *linear(f"{LAYER}.output.dense", DOWN),
        *norm(f"{LAYER}.output.LayerNorm", "post_mlp_norm", bias=True),
        *optional(*linear("pooler.dense", ("pooler", "pooled", "model"))),
    ),
    prefix="bert.",
    aliases=((".LayerNorm.gamma", ".LayerNorm.weight"), (".LayerNorm.beta", ".LayerNorm.bias")),
    centred=True,
    rotary=False,
)
_BERT_MASKED = replace(
    BERT,
    parts=(
        *BERT.parts,
        # The transformed stream meets the embedding again in the decoder, so its axis is the model's.
        *outside(*linear("cls.predictions.transform.dense", ("head_transform", "model", "model"))),
        *outside(*norm("cls.predictions.transform.LayerNorm", "head_norm", bias=True)),
        *outside(vector("cls.predictions.bias", "head_bias", "vocab")),
        *outside(vector("cls.predictions.decoder.weight", "head", "vocab", "model", optional=True)),
        *outside(vector("cls.predictions.decoder.bias", "head_bias_copy", "vocab", optional=True)),
        *outside(*optional(*linear("cls.seq_relationship", ("next_sentence", "labels", "pooled")))),
    ),
)
_BERT_CLASSIFIER = replace(
    BERT, parts=(*BERT.parts, *outside(*linear("classifier", ("classifier", "labels", "pooled"))))
)


#: architecture as named in config.json -> its description
IN_FULL: dict[str, Architecture] = {
    "LlamaForCausalLM": LLAMA,
    "LlamaModel": LLAMA.base(),
    "MistralForCausalLM": LLAMA,
    "MistralModel": LLAMA.base(),
    "MixtralForCausalLM": _MIXTRAL,
    "Qwen2ForCausalLM": LLAMA,
    "Qwen2Model": LLAMA.base(),
    "Qwen3ForCausalLM": _QWEN3,
    "Qwen3Model": _QWEN3.base(),
    "GemmaForCausalLM": _GEMMA,
    "Gemma2ForCausalLM": _GEMMA2,
    "Gemma3ForCausalLM": _GEMMA3,
    "OlmoForCausalLM": OLMO,
    "Olmo2ForCausalLM": OLMO2,
    "Phi3ForCausalLM": _PHI3,
    "GPT2LMHeadModel": _GPT2,
    "GPT2Model": _GPT2.base(),
    "GPTNeoXForCausalLM": _GPT_NEOX,
    "GPTNeoXModel": _GPT_NEOX.base(),
    "BertForMaskedLM": _BERT_MASKED,
    "BertForSequenceClassification": _BERT_CLASSIFIER,
    "BertModel": BERT.base(),
}
