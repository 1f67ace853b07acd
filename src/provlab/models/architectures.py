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
    """

    name: str
    segments: tuple[Segment, ...]
    transposed: bool = False
    interleaved: bool = False
    optional: bool = False
    outside: bool = False

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
        Endings of tensor names in old files, each with its name today.
    """

    parts: tuple[Part, ...]
    prefix: str = ""
    aliases: tuple[tuple[str, str], ...] = ()

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
    bias: str = "optional",
) -> tuple[Part, ...]:
    """Describe a linear layer by its ``(role, output axis, input axis)`` triples; `bias` may be "always"."""
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
        optional=bias == "optional",
    )
    return weight, bias_part


def _outside(*parts: Part, optional: bool = False) -> tuple[Part, ...]:
    """Mark parts that stand on the base model."""
    return tuple(replace(part, outside=True, optional=optional or part.optional) for part in parts)


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
    *_norm(f"{_BLOCK}.self_attn.q_norm", "query_norm", "head"),
    *_norm(f"{_BLOCK}.self_attn.k_norm", "key_norm", "head"),
)

_LLAMA = Architecture(
    (*_EMBEDDING, *_INPUT_NORM, *_ATTENTION, *_POST_ATTENTION_NORM, *_GATED_MLP, *_FINAL_NORM, *_HEAD),
    prefix="model.",
)

#: architecture as named in config.json -> its description
ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": _LLAMA,
    "LlamaModel": _LLAMA.base(),
}
