"""The table of architectures: which tensor plays which role, and what each of its axes counts.

To add an architecture, describe its tensors once as a tuple of `Part`s and enter it at the bottom in
`ARCHITECTURES` under the name that its ``config.json`` gives. Everything else (reading a role, checking
shapes, hooks for activations, permutations that preserve the outputs) follows from the entry.

Axes carry symbolic names. Two axes with the same name are indexed by the same units: ``model`` is the
residual stream, ``mlp`` the hidden units of one block's feedforward network, ``query`` and ``key`` the
attention heads laid side by side (``key`` has fewer with grouped queries), ``head`` one head.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Segment:
    """One role inside a tensor.

    Attributes
    ----------
    role
        For example ``"up"``; a bias is the role of its matrix with ``_bias`` appended.
    axes
        Symbolic names, output units first: ``("mlp", "model")`` for an up projection.
    """

    role: str
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """One tensor of the file, or one per block if its name holds ``{block}``.

    Attributes
    ----------
    name
        The tensor's name, without the prefix of the base model.
    segments
        The roles it holds; more than one in a fused projection.
    transposed
        The file keeps ``(input units, output units)``, as GPT-2's ``Conv1D`` does.
    interleaved
        The segments alternate head by head (GPT-NeoX) instead of following each other.
    optional
        A checkpoint may lack it (biases that the config switches off, a tied head).
    outside
        It belongs to what stands on the base model, and so never carries the base model's prefix.
    module
        Path of its module in the loaded model, where it is not the tensor's name without its ending.
    """

    name: str
    segments: tuple[Segment, ...]
    transposed: bool = False
    interleaved: bool = False
    optional: bool = False
    outside: bool = False
    module: str | None = None

    @property
    def per_block(self) -> bool:
        """Whether there is one such tensor in every block."""
        return "{block}" in self.name


@dataclass(frozen=True)
class Architecture:
    """What one name in ``config.json`` stands for.

    Attributes
    ----------
    parts
        Its tensors.
    prefix
        The attribute of the model class that holds the base model, ``""`` for the base model itself.
        Files are read with and without it, since both are found under one architecture.
    aliases
        Endings of tensor names that are also met, in old files or loaded models, each with its usual one.
    centred
        Its norms subtract the mean (LayerNorm); RMSNorm does not.
    norm_offset
        What the norms add to their weights before multiplying: 1 in Gemma.
    rotary
        Positions enter by rotating queries and keys (RoPE).
    """

    parts: tuple[Part, ...]
    prefix: str = ""
    aliases: tuple[tuple[str, str], ...] = ()
    centred: bool = False
    norm_offset: float = 0.0
    rotary: bool = True

    def base(self) -> "Architecture":
        """Return the base model alone: no prefix, and nothing that stands outside it."""
        return replace(self, parts=tuple(part for part in self.parts if not part.outside), prefix="")


def _vector(name: str, role: str, *axes: str, optional: bool = False) -> Part:
    """Describe a tensor that is one role as it stands: a norm's weights, an embedding."""
    return Part(name, (Segment(role, axes),), optional=optional)


def _norm(module: str, role: str, axis: str = "model", *, bias: bool = False) -> tuple[Part, ...]:
    """Describe a norm: its weights and, for a LayerNorm, its bias."""
    weight = _vector(f"{module}.weight", role, axis)
    return (weight, _vector(f"{module}.bias", f"{role}_bias", axis)) if bias else (weight,)


def _linear(
    module: str,
    *segments: tuple[str, str, str],
    transposed: bool = False,
    interleaved: bool = False,
) -> tuple[Part, ...]:
    """Describe a linear layer by its ``(role, output axis, input axis)`` triples; it may have a bias."""
    weight = Part(
        f"{module}.weight",
        tuple(Segment(role, (rows, columns)) for role, rows, columns in segments),
        transposed=transposed,
        interleaved=interleaved,
    )
    bias_part = Part(
        f"{module}.bias",
        tuple(Segment(f"{role}_bias", (rows,)) for role, rows, _ in segments),
        interleaved=interleaved,
        optional=True,
    )
    return weight, bias_part


def _outside(*parts: Part) -> tuple[Part, ...]:
    """Mark parts that stand on the base model."""
    return tuple(replace(part, outside=True) for part in parts)


def _optional(*parts: Part) -> tuple[Part, ...]:
    """Mark parts that a checkpoint may lack."""
    return tuple(replace(part, optional=True) for part in parts)


_QUERY, _KEY, _VALUE = ("query", "query", "model"), ("key", "key", "model"), ("value", "key", "model")
_OUTPUT = ("output", "model", "query")
_GATE, _UP, _DOWN = ("gate", "mlp", "model"), ("up", "mlp", "model"), ("down", "model", "mlp")
_BLOCK = "layers.{block}"

_EMBEDDING = (_vector("embed_tokens.weight", "embedding", "vocab", "model"),)
_ATTENTION = (
    *_linear(f"{_BLOCK}.self_attn.q_proj", _QUERY),
    *_linear(f"{_BLOCK}.self_attn.k_proj", _KEY),
    *_linear(f"{_BLOCK}.self_attn.v_proj", _VALUE),
    *_linear(f"{_BLOCK}.self_attn.o_proj", _OUTPUT),
)
_GATED_MLP = (
    *_linear(f"{_BLOCK}.mlp.gate_proj", _GATE),
    *_linear(f"{_BLOCK}.mlp.up_proj", _UP),
    *_linear(f"{_BLOCK}.mlp.down_proj", _DOWN),
)
_INPUT_NORM = _norm(f"{_BLOCK}.input_layernorm", "input_norm")
_POST_ATTENTION_NORM = _norm(f"{_BLOCK}.post_attention_layernorm", "post_attention_norm")
_PRE_MLP_NORM = _norm(f"{_BLOCK}.pre_feedforward_layernorm", "pre_mlp_norm")
_POST_MLP_NORM = _norm(f"{_BLOCK}.post_feedforward_layernorm", "post_mlp_norm")
_FINAL_NORM = _norm("norm", "final_norm")
_HEAD = _outside(_vector("lm_head.weight", "head", "vocab", "model", optional=True))
_HEAD_NORMS = (
    *_norm(f"{_BLOCK}.self_attn.q_norm", "q_norm", "head"),
    *_norm(f"{_BLOCK}.self_attn.k_norm", "k_norm", "head"),
)

# Roles of norms follow the names in the files. Llama's post_attention_norm stands before the MLP; in
# Gemma 2 and 3 and OLMo 2 it stands at the end of the attention, before the residual sum.
_LLAMA = Architecture(
    (*_EMBEDDING, *_INPUT_NORM, *_ATTENTION, *_POST_ATTENTION_NORM, *_GATED_MLP, *_FINAL_NORM, *_HEAD),
    prefix="model.",
)
_GEMMA = replace(_LLAMA, norm_offset=1.0)
_QWEN3 = replace(_LLAMA, parts=(*_LLAMA.parts, *_HEAD_NORMS))
_GEMMA2 = replace(_GEMMA, parts=(*_LLAMA.parts, *_PRE_MLP_NORM, *_POST_MLP_NORM))
_GEMMA3 = replace(_GEMMA2, parts=(*_GEMMA2.parts, *_HEAD_NORMS))
# OLMo's LayerNorm has no parameters at all.
_OLMO = Architecture((*_EMBEDDING, *_ATTENTION, *_GATED_MLP, *_HEAD), prefix="model.", centred=True)
_OLMO2 = Architecture(
    (
        *_OLMO.parts,
        *_POST_ATTENTION_NORM,
        *_POST_MLP_NORM,
        *_FINAL_NORM,
        *_norm(f"{_BLOCK}.self_attn.q_norm", "q_norm", "query"),
        *_norm(f"{_BLOCK}.self_attn.k_norm", "k_norm", "key"),
    ),
    prefix="model.",
)
_PHI3 = Architecture(
    (
        *_EMBEDDING,
        *_INPUT_NORM,
        *_linear(f"{_BLOCK}.self_attn.qkv_proj", _QUERY, _KEY, _VALUE),
        *_linear(f"{_BLOCK}.self_attn.o_proj", _OUTPUT),
        *_POST_ATTENTION_NORM,
        *_linear(f"{_BLOCK}.mlp.gate_up_proj", _GATE, _UP),
        *_linear(f"{_BLOCK}.mlp.down_proj", _DOWN),
        *_FINAL_NORM,
        *_HEAD,
    ),
    prefix="model.",
)
# Each expert has hidden units of its own: roles gate.0, up.0, down.0 with the axis mlp.0, and so on.
_EXPERTS = f"{_BLOCK}.block_sparse_moe"
_MIXTRAL = Architecture(
    (
        *_EMBEDDING,
        *_INPUT_NORM,
        *_ATTENTION,
        *_POST_ATTENTION_NORM,
        *_linear(f"{_EXPERTS}.gate", ("router", "experts", "model")),
        *_linear(f"{_EXPERTS}.experts.{{expert}}.w1", _GATE),
        *_linear(f"{_EXPERTS}.experts.{{expert}}.w2", _DOWN),
        *_linear(f"{_EXPERTS}.experts.{{expert}}.w3", _UP),
        *_FINAL_NORM,
        *_HEAD,
    ),
    prefix="model.",
)
_GPT2 = Architecture(
    (
        _vector("wte.weight", "embedding", "vocab", "model"),
        _vector("wpe.weight", "position_embedding", "positions", "model"),
        *_norm("h.{block}.ln_1", "input_norm", bias=True),
        *_linear("h.{block}.attn.c_attn", _QUERY, _KEY, _VALUE, transposed=True),
        *_linear("h.{block}.attn.c_proj", _OUTPUT, transposed=True),
        *_norm("h.{block}.ln_2", "post_attention_norm", bias=True),
        *_linear("h.{block}.mlp.c_fc", _UP, transposed=True),
        *_linear("h.{block}.mlp.c_proj", _DOWN, transposed=True),
        *_norm("ln_f", "final_norm", bias=True),
        *_HEAD,
    ),
    prefix="transformer.",
    centred=True,
    rotary=False,
)
_GPT_NEOX = Architecture(
    (
        _vector("embed_in.weight", "embedding", "vocab", "model"),
        *_norm(f"{_BLOCK}.input_layernorm", "input_norm", bias=True),
        *_linear(f"{_BLOCK}.attention.query_key_value", _QUERY, _KEY, _VALUE, interleaved=True),
        *_linear(f"{_BLOCK}.attention.dense", _OUTPUT),
        *_norm(f"{_BLOCK}.post_attention_layernorm", "post_attention_norm", bias=True),
        *_linear(f"{_BLOCK}.mlp.dense_h_to_4h", _UP),
        *_linear(f"{_BLOCK}.mlp.dense_4h_to_h", _DOWN),
        *_norm("final_layer_norm", "final_norm", bias=True),
        replace(_HEAD[0], name="embed_out.weight", module="lm_head"),
    ),
    prefix="gpt_neox.",
    # transformers calls the module lm_head once it is loaded
    aliases=(("lm_head.weight", "embed_out.weight"),),
    centred=True,
)
_LAYER = "encoder.layer.{block}"
_BERT = Architecture(
    (
        _vector("embeddings.word_embeddings.weight", "embedding", "vocab", "model"),
        _vector("embeddings.position_embeddings.weight", "position_embedding", "positions", "model"),
        _vector("embeddings.token_type_embeddings.weight", "token_type_embedding", "types", "model"),
        *_norm("embeddings.LayerNorm", "embedding_norm", bias=True),
        *_linear(f"{_LAYER}.attention.self.query", _QUERY),
        *_linear(f"{_LAYER}.attention.self.key", _KEY),
        *_linear(f"{_LAYER}.attention.self.value", _VALUE),
        *_linear(f"{_LAYER}.attention.output.dense", _OUTPUT),
        *_norm(f"{_LAYER}.attention.output.LayerNorm", "post_attention_norm", bias=True),
        *_linear(f"{_LAYER}.intermediate.dense", _UP),
        *_linear(f"{_LAYER}.output.dense", _DOWN),
        *_norm(f"{_LAYER}.output.LayerNorm", "post_mlp_norm", bias=True),
        *_optional(*_linear("pooler.dense", ("pooler", "pooled", "model"))),
    ),
    prefix="bert.",
    aliases=((".LayerNorm.gamma", ".LayerNorm.weight"), (".LayerNorm.beta", ".LayerNorm.bias")),
    centred=True,
    rotary=False,
)
_BERT_MASKED = replace(
    _BERT,
    parts=(
        *_BERT.parts,
        # The transformed stream meets the embedding again in the decoder, so its axis is the model's.
        *_outside(*_linear("cls.predictions.transform.dense", ("head_transform", "model", "model"))),
        *_outside(*_norm("cls.predictions.transform.LayerNorm", "head_norm", bias=True)),
        *_outside(_vector("cls.predictions.bias", "head_bias", "vocab")),
        *_outside(_vector("cls.predictions.decoder.weight", "head", "vocab", "model", optional=True)),
        *_outside(_vector("cls.predictions.decoder.bias", "head_bias_copy", "vocab", optional=True)),
        *_outside(*_optional(*_linear("cls.seq_relationship", ("next_sentence", "labels", "pooled")))),
    ),
)
_BERT_CLASSIFIER = replace(
    _BERT, parts=(*_BERT.parts, *_outside(*_linear("classifier", ("classifier", "labels", "pooled"))))
)

#: architecture as named in config.json -> its description
ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": _LLAMA,
    "LlamaModel": _LLAMA.base(),
    "MistralForCausalLM": _LLAMA,
    "MistralModel": _LLAMA.base(),
    "MixtralForCausalLM": _MIXTRAL,
    "Qwen2ForCausalLM": _LLAMA,
    "Qwen2Model": _LLAMA.base(),
    "Qwen3ForCausalLM": _QWEN3,
    "Qwen3Model": _QWEN3.base(),
    "GemmaForCausalLM": _GEMMA,
    "Gemma2ForCausalLM": _GEMMA2,
    "Gemma3ForCausalLM": _GEMMA3,
    "OlmoForCausalLM": _OLMO,
    "Olmo2ForCausalLM": _OLMO2,
    "Phi3ForCausalLM": _PHI3,
    "GPT2LMHeadModel": _GPT2,
    "GPT2Model": _GPT2.base(),
    "GPTNeoXForCausalLM": _GPT_NEOX,
    "GPTNeoXModel": _GPT_NEOX.base(),
    "BertForMaskedLM": _BERT_MASKED,
    "BertForSequenceClassification": _BERT_CLASSIFIER,
    "BertModel": _BERT.base(),
}
