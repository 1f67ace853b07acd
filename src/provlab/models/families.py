"""Further architectures, by the name that ``config.json`` gives them.

To add one, describe its tensors once as a tuple of `Part`s and enter it at the bottom. Reading a role, checking shapes
and hooks for activations follow from the entry. Other classes on the same base model, such as
``LlamaForSequenceClassification``, need none: their heads are left unnamed, and so are, in some families here, heads of
attention that are laid out in ways of their own, routers of experts, and scalars beside them. No statistic reads those;
transformations that would have to move them refuse.
"""

from collections.abc import Sequence
from dataclasses import replace

from provlab.models.architectures import (
    ATTENTION,
    BERT,
    BLOCK,
    DOWN,
    EMBEDDING,
    FINAL_NORM,
    GATE,
    GATED_MLP,
    HEAD,
    HEAD_NORMS,
    INPUT_NORM,
    KEY,
    LAYER,
    LLAMA,
    OLMO,
    OLMO2,
    OUTPUT,
    POST_ATTENTION_NORM,
    POST_MLP_NORM,
    QUERY,
    UP,
    VALUE,
)
from provlab.models.parts import Architecture, Part, linear, norm, optional, stacked, vector


def _layer_norm(name: str, role: str) -> tuple[Part, ...]:
    """Describe a LayerNorm that may do without its bias."""
    weight, bias = norm(name, role, bias=True)
    return weight, *optional(bias)


# The same names as Llama's, with other norms or another MLP.
_LLAMA_NORMS = (
    *_layer_norm(f"{BLOCK}.input_layernorm", "input_norm"),
    *optional(*_layer_norm(f"{BLOCK}.post_attention_layernorm", "post_attention_norm")),
)
_STABLELM = Architecture(
    (*EMBEDDING, *_LLAMA_NORMS, *ATTENTION, *GATED_MLP, *_layer_norm("norm", "final_norm"), *HEAD),
    prefix="model.",
    centred=True,
)
_PLAIN_MLP = (*linear(f"{BLOCK}.mlp.up_proj", UP), *linear(f"{BLOCK}.mlp.down_proj", DOWN))
_ARCEE = Architecture(
    (*EMBEDDING, *INPUT_NORM, *ATTENTION, *POST_ATTENTION_NORM, *_PLAIN_MLP, *FINAL_NORM, *HEAD), prefix="model."
)
_NEMOTRON = Architecture(
    (*EMBEDDING, *_LLAMA_NORMS, *ATTENTION, *_PLAIN_MLP, *_layer_norm("norm", "final_norm"), *HEAD),
    prefix="model.",
    centred=True,
    norm_offset=1.0,
)
_STARCODER2 = Architecture(
    (
        *EMBEDDING,
        *_LLAMA_NORMS,
        *ATTENTION,
        *linear(f"{BLOCK}.mlp.c_fc", UP),
        *linear(f"{BLOCK}.mlp.c_proj", DOWN),
        *_layer_norm("norm", "final_norm"),
        *HEAD,
    ),
    prefix="model.",
    centred=True,
)
_APERTUS = Architecture(
    (
        *EMBEDDING,
        *norm(f"{BLOCK}.attention_layernorm", "input_norm"),
        *ATTENTION,
        *HEAD_NORMS,
        *norm(f"{BLOCK}.feedforward_layernorm", "post_attention_norm"),
        *_PLAIN_MLP,
        *FINAL_NORM,
        *HEAD,
    ),
    prefix="model.",
)
_EXAONE4 = replace(OLMO2, parts=(*OLMO.parts, *POST_ATTENTION_NORM, *POST_MLP_NORM, *FINAL_NORM, *HEAD_NORMS))
_HUNYUAN = replace(
    LLAMA,
    parts=(
        *LLAMA.parts,
        *norm(f"{BLOCK}.self_attn.query_layernorm", "q_norm", "head"),
        *norm(f"{BLOCK}.self_attn.key_layernorm", "k_norm", "head"),
    ),
)
_MINICPM3 = Architecture(  # its attention is compressed
    (*EMBEDDING, *INPUT_NORM, *POST_ATTENTION_NORM, *GATED_MLP, *FINAL_NORM, *HEAD), prefix="model."
)
_GLM = Architecture(
    (
        *EMBEDDING,
        *INPUT_NORM,
        *ATTENTION,
        *POST_ATTENTION_NORM,
        *linear(f"{BLOCK}.mlp.gate_up_proj", GATE, UP),
        *linear(f"{BLOCK}.mlp.down_proj", DOWN),
        *FINAL_NORM,
        *HEAD,
    ),
    prefix="model.",
)
_GLM4 = replace(
    _GLM,
    parts=(
        *_GLM.parts,
        *norm(f"{BLOCK}.post_self_attn_layernorm", "attention_end_norm"),
        *norm(f"{BLOCK}.post_mlp_layernorm", "post_mlp_norm"),
    ),
)
_PHI = Architecture(
    (
        *EMBEDDING,
        *norm(f"{BLOCK}.input_layernorm", "input_norm", bias=True),
        *ATTENTION[:6],
        *linear(f"{BLOCK}.self_attn.dense", OUTPUT),
        *linear(f"{BLOCK}.mlp.fc1", UP),
        *linear(f"{BLOCK}.mlp.fc2", DOWN),
        *norm("final_layernorm", "final_norm", bias=True),
        *HEAD,
    ),
    prefix="model.",
    centred=True,
)
_OPT = Architecture(
    (
        *EMBEDDING,
        vector("embed_positions.weight", "position_embedding", "positions_and_2", "model"),
        *ATTENTION[:6],
        *linear(f"{BLOCK}.self_attn.out_proj", OUTPUT),
        *norm(f"{BLOCK}.self_attn_layer_norm", "input_norm", bias=True),
        *linear(f"{BLOCK}.fc1", UP),
        *linear(f"{BLOCK}.fc2", DOWN),
        *norm(f"{BLOCK}.final_layer_norm", "post_attention_norm", bias=True),
        *optional(*norm("final_layer_norm", "final_norm", bias=True)),
        *HEAD,
    ),
    prefix="model.decoder.",
    centred=True,
    rotary=False,
)


def _gpt_like(
    *attention: Part, embedding: str = "wte", up: str, down: str, rotary: bool = False, second_norm: str = ""
) -> Architecture:
    """Describe a family that keeps GPT-2's names for its blocks and norms."""
    return Architecture(
        (
            vector(f"{embedding}.weight", "embedding", "vocab", "model"),
            *optional(vector("wpe.weight", "position_embedding", "positions", "model")),
            *optional(*norm(f"{embedding}_layernorm", "embedding_norm", bias=True)),
            *optional(*norm("h.{block}.ln_1", "input_norm", bias=True)),
            *optional(*norm("h.{block}.input_layernorm", "input_norm", bias=True)),
            *optional(*norm(f"h.{{block}}.{second_norm}", "post_attention_norm", bias=True) if second_norm else ()),
            *attention,
            *linear(f"h.{{block}}.mlp.{up}", UP),
            *linear(f"h.{{block}}.mlp.{down}", DOWN),
            *norm("ln_f", "final_norm", bias=True),
            *HEAD,
        ),
        prefix="transformer.",
        centred=True,
        rotary=rotary,
    )


def _separate_heads(module: str, names: str = "q_proj k_proj v_proj out_proj") -> tuple[Part, ...]:
    """Describe an attention whose four projections lie in `module` under these names."""
    roles = (QUERY, KEY, VALUE, OUTPUT)
    return tuple(
        part for name, role in zip(names.split(), roles, strict=True) for part in linear(f"{module}.{name}", role)
    )


_GPTJ = _gpt_like(*_separate_heads("h.{block}.attn"), up="fc_in", down="fc_out", rotary=True)
_GPT_NEO = _gpt_like(*_separate_heads("h.{block}.attn.attention"), up="c_fc", down="c_proj", second_norm="ln_2")
_BLOOM = _gpt_like(
    *linear("h.{block}.self_attention.query_key_value", QUERY, KEY, VALUE, interleaved=True),
    *linear("h.{block}.self_attention.dense", OUTPUT),
    embedding="word_embeddings",
    up="dense_h_to_4h",
    down="dense_4h_to_h",
    second_norm="post_attention_layernorm",
)
_FALCON = _gpt_like(  # three ways to lay out its heads, told apart by flags of the config
    *linear("h.{block}.self_attention.dense", OUTPUT),
    embedding="word_embeddings",
    up="dense_h_to_4h",
    down="dense_4h_to_h",
    rotary=True,
    second_norm="post_attention_layernorm",
)
_MPT = Architecture(
    (
        vector("wte.weight", "embedding", "vocab", "model"),
        *_layer_norm("blocks.{block}.norm_1", "input_norm"),
        *linear("blocks.{block}.attn.Wqkv", QUERY, KEY, VALUE),
        *linear("blocks.{block}.attn.out_proj", OUTPUT),
        *_layer_norm("blocks.{block}.norm_2", "post_attention_norm"),
        *linear("blocks.{block}.ffn.up_proj", UP),
        *linear("blocks.{block}.ffn.down_proj", DOWN),
        *_layer_norm("norm_f", "final_norm"),
        *HEAD,
    ),
    prefix="transformer.",
    centred=True,
    rotary=False,
)


def _bert_like(prefix: str, *attention: Part) -> Architecture:
    """Describe a family that keeps BERT's names for embeddings and MLP; its embedding may be narrower (ELECTRA)."""
    return Architecture(
        (
            vector("embeddings.word_embeddings.weight", "embedding", "vocab", "embedding"),
            *optional(vector("embeddings.position_embeddings.weight", "position_embedding", "positions", "embedding")),
            *optional(vector("embeddings.token_type_embeddings.weight", "token_type_embedding", "types", "embedding")),
            *norm("embeddings.LayerNorm", "embedding_norm", "embedding", bias=True),
            *attention,
            *linear(f"{LAYER}.intermediate.dense", UP),
            *linear(f"{LAYER}.output.dense", DOWN),
            *norm(f"{LAYER}.output.LayerNorm", "post_mlp_norm", bias=True),
        ),
        prefix=prefix,
        aliases=BERT.aliases,
        centred=True,
        rotary=False,
    )


_BERT_ATTENTION = (
    *_separate_heads(f"{LAYER}.attention", "self.query self.key self.value output.dense"),
    *norm(f"{LAYER}.attention.output.LayerNorm", "post_attention_norm", bias=True),
)
_DEBERTA_OUTPUT = (*linear(f"{LAYER}.attention.output.dense", OUTPUT), *_BERT_ATTENTION[-2:])
_ALBERT_LAYER = "encoder.albert_layer_groups.{block}.albert_layers.0"  # one block, run many times
_ALBERT = replace(
    _bert_like(
        "albert.",
        *_separate_heads(f"{_ALBERT_LAYER}.attention", "query key value dense"),
        *norm(f"{_ALBERT_LAYER}.attention.LayerNorm", "post_attention_norm", bias=True),
        *linear(f"{_ALBERT_LAYER}.ffn", UP),
        *linear(f"{_ALBERT_LAYER}.ffn_output", DOWN),
        *norm(f"{_ALBERT_LAYER}.full_layer_layer_norm", "post_mlp_norm", bias=True),
    ),
)
_ALBERT = replace(_ALBERT, parts=tuple(part for part in _ALBERT.parts if not part.name.startswith(LAYER)))
_DISTIL_LAYER = "transformer.layer.{block}"
_DISTILBERT = replace(
    BERT,
    parts=(
        *BERT.parts[:2],
        *norm("embeddings.LayerNorm", "embedding_norm", bias=True),
        *_separate_heads(f"{_DISTIL_LAYER}.attention", "q_lin k_lin v_lin out_lin"),
        *norm(f"{_DISTIL_LAYER}.sa_layer_norm", "post_attention_norm", bias=True),
        *linear(f"{_DISTIL_LAYER}.ffn.lin1", UP),
        *linear(f"{_DISTIL_LAYER}.ffn.lin2", DOWN),
        *norm(f"{_DISTIL_LAYER}.output_layer_norm", "post_mlp_norm", bias=True),
    ),
    prefix="distilbert.",
)
_MODERNBERT = Architecture(
    (
        vector("embeddings.tok_embeddings.weight", "embedding", "vocab", "model"),
        *_layer_norm("embeddings.norm", "embedding_norm"),
        *optional(*_layer_norm(f"{BLOCK}.attn_norm", "input_norm")),
        *linear(f"{BLOCK}.attn.Wqkv", QUERY, KEY, VALUE),
        *linear(f"{BLOCK}.attn.Wo", OUTPUT),
        *_layer_norm(f"{BLOCK}.mlp_norm", "post_attention_norm"),
        *linear(f"{BLOCK}.mlp.Wi", GATE, UP),  # the first half goes through the activation
        *linear(f"{BLOCK}.mlp.Wo", DOWN),
        *_layer_norm("final_norm", "final_norm"),
    ),
    prefix="model.",
    centred=True,
)
_NOMIC_LAYER = "encoder.layers.{block}"
_NOMIC = Architecture(
    (
        *BERT.parts[:1],
        *BERT.parts[2:3],
        *norm("emb_ln", "embedding_norm", bias=True),
        *linear(f"{_NOMIC_LAYER}.attn.Wqkv", QUERY, KEY, VALUE),
        *linear(f"{_NOMIC_LAYER}.attn.out_proj", OUTPUT),
        *norm(f"{_NOMIC_LAYER}.norm1", "post_attention_norm", bias=True),
        *linear(f"{_NOMIC_LAYER}.mlp.fc11", UP),
        *linear(f"{_NOMIC_LAYER}.mlp.fc12", GATE),
        *linear(f"{_NOMIC_LAYER}.mlp.fc2", DOWN),
        *norm(f"{_NOMIC_LAYER}.norm2", "post_mlp_norm", bias=True),
    ),
    prefix="nomic_bert.",
    centred=True,
)
# The encoder alone: the decoder's blocks are others, and their number may differ.
_T5_LAYER = "encoder.block.{block}.layer"
_T5 = Architecture(
    (
        vector("shared.weight", "embedding", "vocab", "model"),
        *norm(f"{_T5_LAYER}.0.layer_norm", "input_norm"),
        *_separate_heads(f"{_T5_LAYER}.0.SelfAttention", "q k v o"),
        *norm(f"{_T5_LAYER}.1.layer_norm", "post_attention_norm"),
        *optional(*linear(f"{_T5_LAYER}.1.DenseReluDense.wi", UP)),
        *optional(*linear(f"{_T5_LAYER}.1.DenseReluDense.wi_0", GATE)),
        *optional(*linear(f"{_T5_LAYER}.1.DenseReluDense.wi_1", UP)),
        *linear(f"{_T5_LAYER}.1.DenseReluDense.wo", DOWN),
        *norm("encoder.final_layer_norm", "final_norm"),
        *HEAD,
    ),
    rotary=False,
)


_MLP_NAMES = ("gate_proj", "up_proj", "down_proj")
_SHARED = (
    ("gate.shared", "mlp.shared", "model"),
    ("up.shared", "mlp.shared", "model"),
    ("down.shared", "model", "mlp.shared"),
)


def _experts(
    module: str, names: Sequence[str] = _MLP_NAMES, *, shared: str = "shared_expert", fused: tuple[Part, ...] = ()
) -> tuple[Part, ...]:
    """Describe experts, alone or all in one tensor, an MLP beside them that sees all tokens, or one in their place.

    Blocks of one model differ in which of these they have; `provlab.models.anatomy` refuses a block that lacks a part.
    """
    in_one = stacked(f"{module}.experts.gate_up_proj", GATE, UP), stacked(f"{module}.experts.down_proj", DOWN)
    return optional(
        *_weights(f"{module}.experts.{{expert}}", names, (GATE, UP, DOWN)),
        *(fused or in_one),
        *_weights(f"{module}.{shared}", _MLP_NAMES, _SHARED),
        *_weights(module, _MLP_NAMES, (GATE, UP, DOWN)),
    )


def _weights(module: str, names: Sequence[str], roles: Sequence[tuple[str, str, str]]) -> tuple[Part, ...]:
    return tuple(linear(f"{module}.{name}", role)[0] for name, role in zip(names, roles, strict=True))


_NOT_MLP = tuple(part for part in LLAMA.parts if part not in GATED_MLP)
_NOT_MLP_OR_ATTENTION = tuple(part for part in _NOT_MLP if part not in ATTENTION)
_MIXTRAL_NAMES = ("w1", "w3", "w2")


def _moe(*experts: Part, others: tuple[Part, ...] = _NOT_MLP) -> Architecture:
    """Describe a family of Llama's names with experts."""
    return Architecture((*others, *experts), prefix="model.")


_QWEN2_MOE = _moe(*_experts(f"{BLOCK}.mlp"))
_QWEN3_MOE = _moe(*_experts(f"{BLOCK}.mlp"), *HEAD_NORMS)
_OLMOE = _moe(
    *_experts(f"{BLOCK}.mlp"),
    *norm(f"{BLOCK}.self_attn.q_norm", "q_norm", "query"),
    *norm(f"{BLOCK}.self_attn.k_norm", "k_norm", "key"),
)
_FLEX_OLMO = replace(OLMO2, parts=(*(part for part in OLMO2.parts if part not in GATED_MLP), *_experts(f"{BLOCK}.mlp")))
_DEEPSEEK = _moe(*_experts(f"{BLOCK}.mlp", shared="shared_experts"), others=_NOT_MLP_OR_ATTENTION)
_GLM4_MOE = _moe(*_experts(f"{BLOCK}.mlp", shared="shared_experts"))
_HUNYUAN_MOE = replace(
    _HUNYUAN,
    parts=(
        *(part for part in _HUNYUAN.parts if part not in GATED_MLP),
        *_experts(f"{BLOCK}.mlp", shared="shared_mlp"),
    ),
)
_GPT_OSS = _moe(
    stacked(f"{BLOCK}.mlp.experts.gate_up_proj", GATE, UP, transposed=True, interleaved=True),
    stacked(f"{BLOCK}.mlp.experts.gate_up_proj_bias", ("gate_bias", "mlp"), ("up_bias", "mlp"), interleaved=True),
    stacked(f"{BLOCK}.mlp.experts.down_proj", DOWN, transposed=True),
    stacked(f"{BLOCK}.mlp.experts.down_proj_bias", ("down_bias", "model")),
)
_LLAMA4 = _moe(
    *_experts(
        f"{BLOCK}.feed_forward",
        fused=(
            stacked(f"{BLOCK}.feed_forward.experts.gate_up_proj", GATE, UP, transposed=True),
            stacked(f"{BLOCK}.feed_forward.experts.down_proj", DOWN, transposed=True),
        ),
    )
)
_PHIMOE = replace(
    _STABLELM,
    parts=(
        *(part for part in _STABLELM.parts if part not in GATED_MLP),
        *_experts(f"{BLOCK}.block_sparse_moe", _MIXTRAL_NAMES),
    ),
)
_MINIMAX = _moe(*_experts(f"{BLOCK}.block_sparse_moe", _MIXTRAL_NAMES), others=_NOT_MLP_OR_ATTENTION)


def _granite_moe(module: str, others: tuple[Part, ...]) -> Architecture:
    return _moe(
        stacked(f"{BLOCK}.{module}.input_linear.weight", GATE, UP),
        stacked(f"{BLOCK}.{module}.output_linear.weight", DOWN),
        *optional(linear(f"{BLOCK}.shared_mlp.input_linear", *_SHARED[:2])[0]),
        *optional(linear(f"{BLOCK}.shared_mlp.output_linear", _SHARED[2])[0]),
        others=others,
    )


_JAMBA = _moe(  # most of its blocks have no attention
    *norm(f"{BLOCK}.input_layernorm", "input_norm"),
    *norm(f"{BLOCK}.pre_ff_layernorm", "post_attention_norm"),
    *_experts(f"{BLOCK}.feed_forward"),
    *norm("final_layernorm", "final_norm"),
    others=(*EMBEDDING, *HEAD),
)
# Every few of its blocks look at the picture in place of the text, and eight tokens stand for pictures.
_MLLAMA = replace(
    LLAMA,
    parts=(
        vector("embed_tokens.weight", "embedding", "vocab_and_8", "model"),
        *_NOT_MLP_OR_ATTENTION[1:],
        *optional(*ATTENTION),
        *GATED_MLP,
    ),
)

#: architecture as named in config.json -> its description
FURTHER: dict[str, Architecture] = {
    **dict.fromkeys(
        (
            "Ministral3ForCausalLM",
            "SmolLM3ForCausalLM",
            "GraniteForCausalLM",
            "HeliumForCausalLM",
            "Ernie4_5ForCausalLM",
            "SeedOssForCausalLM",
            "DiffLlamaForCausalLM",
        ),
        LLAMA,
    ),
    "Olmo3ForCausalLM": OLMO2,
    **dict.fromkeys(("StableLmForCausalLM", "CohereForCausalLM", "Cohere2ForCausalLM"), _STABLELM),
    "ArceeForCausalLM": _ARCEE,
    "NemotronForCausalLM": _NEMOTRON,
    "Starcoder2ForCausalLM": _STARCODER2,
    "ApertusForCausalLM": _APERTUS,
    "Exaone4ForCausalLM": _EXAONE4,
    "HunYuanDenseV1ForCausalLM": _HUNYUAN,
    "MiniCPM3ForCausalLM": _MINICPM3,
    "Qwen2MoeForCausalLM": _QWEN2_MOE,
    "Qwen3MoeForCausalLM": _QWEN3_MOE,
    "OlmoeForCausalLM": _OLMOE,
    "FlexOlmoForCausalLM": _FLEX_OLMO,
    **dict.fromkeys(("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"), _DEEPSEEK),
    "Qwen3NextForCausalLM": replace(_QWEN2_MOE, parts=(*_NOT_MLP_OR_ATTENTION, *_experts(f"{BLOCK}.mlp"))),
    **dict.fromkeys(("Glm4MoeForCausalLM", "Dots1ForCausalLM", "Ernie4_5_MoeForCausalLM"), _GLM4_MOE),
    "HunYuanMoEV1ForCausalLM": _HUNYUAN_MOE,
    "GptOssForCausalLM": _GPT_OSS,
    "Llama4ForCausalLM": _LLAMA4,
    "PhimoeForCausalLM": _PHIMOE,
    **dict.fromkeys(("MiniMaxForCausalLM", "MiniMaxM2ForCausalLM"), _MINIMAX),
    **dict.fromkeys(
        ("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"), _granite_moe("block_sparse_moe", _NOT_MLP)
    ),
    "JetMoeForCausalLM": _granite_moe("mlp", _NOT_MLP_OR_ATTENTION),
    "JambaForCausalLM": _JAMBA,
    **dict.fromkeys(("Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"), LLAMA),
    "Qwen3VLForConditionalGeneration": replace(LLAMA, parts=(*LLAMA.parts, *HEAD_NORMS)),
    "MllamaForConditionalGeneration": _MLLAMA,
    "GlmForCausalLM": _GLM,
    "Glm4ForCausalLM": _GLM4,
    "PhiForCausalLM": _PHI,
    "OPTForCausalLM": _OPT,
    "GPTJForCausalLM": _GPTJ,
    "GPTNeoForCausalLM": _GPT_NEO,
    "BloomForCausalLM": _BLOOM,
    "FalconForCausalLM": _FALCON,
    "MptForCausalLM": _MPT,
    **dict.fromkeys(
        ("RobertaForMaskedLM", "XLMRobertaForMaskedLM", "CamembertForMaskedLM"),
        _bert_like("roberta.", *_BERT_ATTENTION),
    ),
    "ElectraForMaskedLM": _bert_like("electra.", *_BERT_ATTENTION),
    "MPNetForMaskedLM": _bert_like(
        "mpnet.",
        *_separate_heads(f"{LAYER}.attention.attn", "q k v o"),
        *norm(f"{LAYER}.attention.LayerNorm", "post_attention_norm", bias=True),
    ),
    "DebertaForMaskedLM": _bert_like("deberta.", *_DEBERTA_OUTPUT),
    "DebertaV2ForMaskedLM": _bert_like(
        "deberta.",
        *_separate_heads(f"{LAYER}.attention.self", "query_proj key_proj value_proj _")[:6],
        *_DEBERTA_OUTPUT,
    ),
    "AlbertForMaskedLM": _ALBERT,
    "DistilBertForMaskedLM": _DISTILBERT,
    "ModernBertForMaskedLM": _MODERNBERT,
    "NomicBertModel": _NOMIC.base(),
    "T5ForConditionalGeneration": _T5,
}

#: families without hidden units in which a matching could be read, and what they have in place of MLPs
NO_MLP: dict[str, str] = dict.fromkeys(("Mamba", "Mamba2", "FalconMamba"), "state spaces")
