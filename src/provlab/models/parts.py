"""What an architecture is: tensors, the roles they play, and what each of their axes counts.

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
        The segments alternate head by head (GPT-NeoX), in experts row by row, instead of following each other.
    stacked
        The first axis of the tensor counts the experts of a block; the segments are those of one expert.
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
    stacked: bool = False
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


def vector(name: str, role: str, *axes: str, optional: bool = False) -> Part:
    """Describe a tensor that is one role as it stands: a norm's weights, an embedding."""
    return Part(name, (Segment(role, axes),), optional=optional)


def norm(module: str, role: str, axis: str = "model", *, bias: bool = False) -> tuple[Part, ...]:
    """Describe a norm: its weights and, for a LayerNorm, its bias."""
    weight = vector(f"{module}.weight", role, axis)
    return (weight, vector(f"{module}.bias", f"{role}_bias", axis)) if bias else (weight,)


def linear(
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


def stacked(name: str, *segments: tuple[str, ...], transposed: bool = False, interleaved: bool = False) -> Part:
    """Describe the matrices, or biases, of all experts of a block that lie in one tensor."""
    held = tuple(Segment(role, tuple(axes)) for role, *axes in segments)
    return Part(name, held, transposed=transposed, interleaved=interleaved, stacked=True)


def outside(*parts: Part) -> tuple[Part, ...]:
    """Mark parts that stand on the base model."""
    return tuple(replace(part, outside=True) for part in parts)


def optional(*parts: Part) -> tuple[Part, ...]:
    """Mark parts that a checkpoint may lack."""
    return tuple(replace(part, optional=True) for part in parts)
