"""Architectures: which tensor plays which role, and what each of its axes counts.

The table itself is `architectures.toml`, which says how to add a family. An architecture needs no checkpoint:
`provlab.reading.anatomy` compares a checkpoint with it, `provlab.planning.skeleton` makes shapes of models from it.

Axes carry symbolic names. Two axes with the same name are indexed by the same units: ``model`` is the residual stream,
``mlp`` the hidden units of one block's feedforward network, ``query`` and ``key`` the attention heads laid side by side
(``key`` has fewer with grouped queries), ``head`` one head.
"""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from provlab.errors import InvalidWeightsError, UnknownArchitectureError, one_line

#: what a class of transformers adds to the name of its family, longest first
_HEADS = (
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForConditionalGeneration",
    "ForMultipleChoice",
    "ForPreTraining",
    "ForMaskedLM",
    "ForCausalLM",
    "LMHeadModel",
    "MTModel",
    "EncoderModel",
    "Model",
)
#: symbolic axis -> entries of a config that may give its length
KEYS = {
    "mlp": ("intermediate_size", "n_inner", "ffn_dim", "hidden_dim", "d_ff", "ffn_hidden_size"),
    "blocks": ("num_hidden_groups", "num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "model": ("hidden_size", "n_embd", "d_model", "dim"),
}
_QUERIES = ("num_attention_heads", "n_head", "num_heads", "n_heads")
_KEYS = ("num_key_value_heads",)
_EXPERT = ("moe_intermediate_size", "intermediate_size")
_OTHER_KEYS = (_QUERIES, _KEYS, _EXPERT, ("intermediate_size_mlp", "head_dim"))
_MOST = {"blocks": 2_000, "decoders": 2_000, "experts": 10_000}  # numbers beyond these are damage


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
class Row:
    """One tensor of the file, or one per block if its name holds ``{block}``, or ``{decoder}`` in a second stack.

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
    either
        Some files keep a stacked tensor transposed, and others do not; the shapes tell, unless they are square.
    optional
        A checkpoint may lack it (biases that the config switches off, a tied head).
    outside
        It stands on the base model, and so never carries the base model's prefix.
    module
        Path of its module in the loaded model, where it is not the tensor's name without its ending.
    """

    name: str
    segments: tuple[Segment, ...]
    transposed: bool = False
    interleaved: bool = False
    stacked: bool = False
    either: bool = False
    optional: bool = False
    outside: bool = False
    module: str | None = None

    @property
    def per_block(self) -> bool:
        """Whether there is one such tensor in every block."""
        return "{block}" in self.name or self.decodes

    @property
    def decodes(self) -> bool:
        """Whether it belongs to a block of the decoder, in a model that has an encoder too."""
        return "{decoder}" in self.name

    def called(self, number: int | None, expert: int | None) -> str:
        """Name of the tensor in one block, by the number that this has in its stack."""
        return self.name.format(block=number, decoder=number, expert=expert)


@dataclass(frozen=True)
class Architecture:
    """The meaning of one name in ``config.json``; the table explains the attributes."""

    parts: tuple[Row, ...]
    prefix: str = ""
    aliases: tuple[tuple[str, str], ...] = ()
    centred: bool = False
    norm_offset: float = 0.0
    rotary: bool = True
    complete: bool = False
    keys: Mapping[str, str] = field(default_factory=dict)
    only: str = ""
    inputs: str = "tokens"
    first_position: int | str = 0
    wider: Mapping[str, Any] = field(default_factory=dict)
    instead: tuple[str, ...] = ()
    mlx_norms: bool = False

    def base(self) -> "Architecture":
        """Return the base model alone: no prefix, and nothing that stands outside it."""
        return replace(self, parts=tuple(part for part in self.parts if not part.outside), prefix="")


# The table -----------------------------------------------------------------------------------------------------------


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "architectures.toml").read_text(encoding="utf-8"))


@cache
def _rows() -> dict[str, dict[str, Any]]:
    """Return the row of the table for each class in it, in the order of the table."""
    return {name: row for row in _table()["family"] for name in row["classes"]}


def layouts() -> Iterator[tuple[str, Architecture]]:
    """Yield the first class of each row of the table, with the row."""
    for row in _table()["family"]:
        yield row["classes"][0], _in_table(row["classes"][0])


@cache
def families() -> dict[str, str]:
    """Return the first class of each family in the table."""
    return {family: name for name in reversed(_rows()) if (family := family_of(name))}


def family_of(name: str) -> str:
    """Return the name of a class without its head."""
    return next((name.removesuffix(head) for head in _HEADS if name.endswith(head)), "")


def plain(name: str) -> str:
    """Return a ``model_type``, or the family of a class, as one is compared with the other."""
    return name.replace("-", "").replace("_", "").lower()


def class_of(model_type: object) -> str | None:
    """Return the first class of the family that a ``model_type`` names; None for an unknown one."""
    kind = plain(str(model_type))
    kinds = (kind, kind.removesuffix("model").removesuffix("text"))
    return next((name for family, name in families().items() if plain(family) in kinds), None)


def classes() -> tuple[str, ...]:
    """Return the names of all classes in the table."""
    return tuple(_rows())


@cache
def _in_table(name: str) -> Architecture:
    """Read the row of one class; raise ValueError for a row with a fault."""
    row = {key: value for key, value in _rows()[name].items() if key != "classes"}
    try:
        parts = tuple(_parts(row.pop("parts")))
        several: dict[str, Any] = {
            "aliases": tuple(row.pop("aliases", {}).items()),
            "instead": tuple(row.pop("instead", ())),
        }
        return Architecture(parts, **several, **row)
    except (KeyError, TypeError, ValueError) as error:  # an unknown role or group, key or mark; no roles
        raise ValueError(f"architectures.toml, {name}: {error}") from error


def _parts(text: str) -> Iterator[Row]:
    """Read rows of the table; a line without a dot names a group, with arguments for the names in braces."""
    for line in filter(str.strip, text.splitlines()):
        name, *words = line.split()
        if "." not in name:
            group = _table()["groups"][name]
            for word in words:
                argument, _, value = word.partition("=")
                group = group.replace(f"{{{argument}}}", value)
            yield from _parts(group)
            continue
        roles, *marks = words
        name.format(block=0, decoder=0, expert=0)  # raises KeyError for an argument that the line lacks
        options: dict[str, Any] = {mark.partition("=")[0]: mark.partition("=")[2] or True for mark in marks}
        segments = tuple(map(_segment, roles.replace("],", "] ").split() if "[" in roles else roles.split(",")))
        tensor, _, bias = name.partition("+")
        yield Row(tensor.removesuffix("?"), segments, optional=tensor.endswith("?"), **options)
        if bias:
            options.pop("transposed", None)
            of_bias = tuple(Segment(f"{segment.role}_bias", segment.axes[:1]) for segment in segments)
            bare = tensor.removesuffix("?").removesuffix("weight")
            yield Row(f"{bare}bias", of_bias, optional=bias.endswith("?"), **options)


def _segment(text: str) -> Segment:
    """Read a role, with its axes in brackets where they are not those that the table gives it."""
    role, _, axes = text.partition("[")
    roles = _table()["roles"]
    if axes:
        return Segment(role, tuple(axes.removesuffix("]").split(",")))
    if role in roles:
        return Segment(role, tuple(roles[role].split()))
    return Segment(role, tuple(roles[role.removesuffix("_bias")].split()[:1]))


def described(name: str) -> Architecture:
    """Return an architecture by its name in ``config.json``: its own, or that of its family without the head.

    Raises
    ------
    UnknownArchitectureError
        The table has no such family.
    """
    family, in_table = family_of(name), families()
    if name in _rows():
        return _in_table(name)
    if family in in_table:
        architecture = _in_table(in_table[family])
        if name.endswith("EncoderModel"):
            architecture = replace(architecture, parts=tuple(part for part in architecture.parts if not part.decodes))
        return replace(
            architecture.base(),
            prefix="" if name in (f"{family}Model", f"{family}EncoderModel") else architecture.prefix,
        )
    if instead := without_mlps(name):
        raise UnknownArchitectureError(
            f"the architecture {name} has no MLPs, but {instead}: no statistic of hidden units applies to it"
        )
    raise UnknownArchitectureError(
        f"the architecture {name} is not one of the {len(in_table)} families of provlab/reading/architectures.toml, "
        "where one entry adds another"
    )


def one_stack(name: str) -> bool:
    """Whether a class is known only by its family, of which the table has no decoder beside an encoder."""
    whole = name not in _rows() and not name.endswith("EncoderModel")
    return whole and not any(part.decodes for part in described(name).parts)


def places(architecture: Architecture, names: Collection[str], of: str = "") -> list[str]:
    """Return what stands before the class's own names in a file, at each place of its embedding; the likeliest first.

    Of another tensor of the class, if it is named.

    That is where most blocks lie, before a draft head with an embedding of its own or a mean of the weights; then
    behind the class's own prefix, and then the shortest.
    """
    embedding = of or architecture.parts[0].name
    in_block = next((part.name.partition("{")[0] for part in architecture.parts if part.per_block), "")
    met = {name.removesuffix(embedding) for name in names if f".{name}".endswith(f".{embedding}")}

    def rank(place: str) -> tuple[int, bool, int, str]:
        found = {name[len(place + in_block) :].partition(".")[0] for name in names if name.startswith(place + in_block)}
        return -len(found), not place.endswith(architecture.prefix), len(place), place

    return sorted(met, key=rank if len(met) > 1 else len)


def without_mlps(name: str) -> str | None:
    """Return what a class has in place of MLPs, if the table says so."""
    instead: str | None = _table()["no_mlp"].get(family_of(name))
    return instead


def sees(config: Mapping[str, Any]) -> bool:
    """Whether a config is that of a model that does more than language."""
    return not {"text_config", "vision_config"}.isdisjoint(config)


# The lengths of axes, and every tensor that there should be ----------------------------------------------------------


def axis_sizes(
    label: str, config: Mapping[str, Any], own: Mapping[str, str] | None = None, block: int | None = None
) -> dict[str, int]:
    """Length of each symbolic axis according to the config; ``blocks`` counts the blocks.

    Axes that the config does not fix (the labels of a classifier) are left out. Errors name `label`. `own` are keys
    that a family has for an axis, which come first. Where a config has a list, a length for each block, it is that of
    `block`, and the largest where none is given.
    """

    def size(axis: str, *keys: str, default: int | None = None) -> int:
        for key in (*filter(None, [(own or {}).get(axis)]), *keys):
            if (value := config.get(key)) is not None:
                if isinstance(value, list) and value:
                    if axis == "blocks":
                        value = len(value)  # the kind of each
                    elif all(isinstance(each, int) for each in value):
                        value = max(value) if block is None or block >= len(value) else value[block]
                if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST.get(axis, 10**9):
                    shown = one_line(repr(value), 60)
                    raise InvalidWeightsError(f"{label}: {key} in config.json must be a positive integer, not {shown}")
                return value
        if default is None:
            raise InvalidWeightsError(
                f"{label}: config.json lacks {' or '.join(keys)} (length of the axis {axis!r}); copy it again"
            )
        return default

    width = size("model", *KEYS["model"])
    heads = size("query", *_QUERIES)
    head = size("head", "head_dim", "d_kv", default=max(1, width // heads))
    sizes = {
        "blocks": size("blocks", *KEYS["blocks"]),
        "model": width,
        "vocab": size("vocab", "vocab_size"),
        "mlp": size("mlp", "intermediate_size_mlp", *KEYS["mlp"], default=4 * width),
        "head": head,
        "query": heads * head,
        "key": size("key", *_KEYS, default=heads) * head,
        "pooled": width,
        "experts": 0,
    }
    sizes["expert"] = size("expert", *_EXPERT, default=sizes["mlp"])
    for axis, keys in {
        "positions": ("max_position_embeddings", "n_positions"),
        "types": ("type_vocab_size",),
        "shared": ("shared_expert_intermediate_size", "shared_intermediate_size"),
        "experts": ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"),
    }.items():
        if any(config.get(key) for key in keys):  # DeBERTa counts 0 types where it has none
            sizes[axis] = size(axis, *keys)
    own = own or {}
    if own.get("decoders"):  # T5's older configs count both stacks at once
        sizes["decoders"] = size("decoders", default=sizes["blocks"])
    sizes |= {axis: size(axis, key) for axis, key in own.items() if axis not in sizes}
    return {axis: length for axis, length in sizes.items() if own.get(axis) != ""}


def sizes_by_block(
    label: str, config: Mapping[str, Any], architecture: Architecture, n_blocks: int
) -> dict[int, dict[str, int]]:
    """Lengths of axes in the blocks whose lengths are not those of the whole: block -> axis -> length.

    Raises
    ------
    InvalidWeightsError
        As of `axis_sizes`; or a list has another number of lengths than there are blocks.
    """
    lists = {key: value for key, value in config.items() if isinstance(value, list) and len({*map(str, value)}) > 1}
    keys = {*chain(*KEYS.values(), *_OTHER_KEYS), *architecture.keys.values()} - {*KEYS["blocks"]}
    differing: dict[int, dict[str, int]] = {}
    if varying := sorted(keys & lists.keys()):
        for key in varying:
            if len(lists[key]) != n_blocks:
                raise InvalidWeightsError(
                    f"{label}: {key} in config.json has {len(lists[key])} lengths for {n_blocks} blocks; give the "
                    "config and the weights of one model"
                )
        whole = axis_sizes(label, config, architecture.keys)
        for block in range(n_blocks):
            here = axis_sizes(label, config, architecture.keys, block)
            differing[block] = {axis: length for axis, length in here.items() if length != whole.get(axis)}
    if architecture.wider and config.get(architecture.wider["flag"]):
        last = config.get(architecture.wider["last"])
        whole = axis_sizes(label, config, architecture.keys)
        for block in range(n_blocks - (last if isinstance(last, int) else 0), n_blocks):
            times = int(architecture.wider["times"])
            differing.setdefault(block, {})[architecture.wider["axis"]] = times * whole[architecture.wider["axis"]]
    return {block: lengths for block, lengths in differing.items() if lengths}


def config_axis(axis: str) -> str:
    """Return the axis whose length the config gives: ``expert`` for ``mlp.3``."""
    axis, _, number = axis.partition(".")
    return "expert" if number.isdigit() else number or axis


def instances(
    architecture: Architecture, sizes: Mapping[str, int]
) -> Iterator[tuple[Row, int | None, int | None, int | None]]:
    """Yield every part with each block it exists for, the block's number in its stack, and each expert.

    Blocks of a decoder come after those of its encoder.
    """
    blocks = sizes["blocks"]
    for part in architecture.parts:
        before, there = (blocks, sizes.get("decoders", 0)) if part.decodes else (0, blocks)
        for number in range(there) if part.per_block else (None,):
            for expert in range(sizes["experts"]) if "{expert}" in part.name else (None,):
                yield part, None if number is None else before + number, number, expert


def for_expert(segment: Segment, expert: int | None) -> Segment:
    """Name an expert's roles and hidden units apart: ``up.3`` has the axis ``mlp.3``."""
    if expert is None:
        return segment
    axes = tuple(f"mlp.{expert}" if axis == "mlp" else axis for axis in segment.axes)
    return Segment(f"{segment.role}.{expert}", axes)
