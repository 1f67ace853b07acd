"""The anatomy of a checkpoint: its tensors compared with the table of architectures, and every shape with its config.

`of` compares a checkpoint with its entry in the table of `provlab.reading.architectures`; a class that the table lacks
is read by its tensors (`provlab.reading.layouts`), and so is a part of a model (`provlab.formats.part_by_shapes`).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from provlab import plugins
from provlab.errors import CheckpointError, InvalidWeightsError, UnknownArchitectureError
from provlab.reading import diagnose, experts, tying
from provlab.reading.architectures import (
    Architecture,
    Row,
    axis_sizes,
    config_axis,
    described,
    for_expert,
    instances,
    one_stack,
    places,
    sees,
    sizes_by_block,
    without_mlps,
)
from provlab.reading.language import language_part
from provlab.reading.layouts import by_tensors, part_instead
from provlab.reading.part import LANGUAGE
from provlab.reading.roles import Anatomy, Tensor, TensorPart, Tensors, Weights

__all__ = ["Anatomy", "Tensor", "TensorPart", "Tensors", "Weights", "of"]

# Buffers that old files keep: recomputed by transformers, no weights.
_BUFFERS = re.compile(
    r"(^|\.)(rotary_emb\.inv_freq|inv_freq|position_ids|masked_bias|attn\.bias|attention\.bias|tid2eid)$"
)
_PLAIN = ("float32", "bfloat16", "float16", "float64")


def of(checkpoint: Tensors) -> Anatomy:
    """Compare a checkpoint with the table of architectures, and every shape with its config.

    Raises
    ------
    UnknownArchitectureError
        No entry for the architecture that the config names.
    InvalidWeightsError
        A tensor is missing, superfluous (a block too many), or has a shape that contradicts the config.
    """
    piece = getattr(checkpoint, "piece", None)  # a model without files has none
    if piece and (piece.name != LANGUAGE or piece.prefix):
        return plugins.reader("part", f"{checkpoint.name}::{piece}").by_shapes(checkpoint, piece)
    try:
        name = checkpoint.architecture
        name, config = language_part(name, checkpoint.config)
        architecture = described(name)
        if config.get("is_encoder_decoder") and one_stack(name):
            raise UnknownArchitectureError(f"the architecture {name} has an encoder and a decoder, the table but one")
    except UnknownArchitectureError as error:
        if without_mlps(name):
            raise UnknownArchitectureError(f"{checkpoint.name}: {error}") from None
        return by_tensors(checkpoint, config, _compared, UnknownArchitectureError(f"{checkpoint.name}: {error}"))
    try:
        return _compared(checkpoint, name, architecture, config)
    except OtherShapeError as error:
        raise InvalidWeightsError(f"{error}{part_instead(checkpoint)}") from None


class OtherShapeError(InvalidWeightsError):
    """A tensor has another shape than the config says."""


def _compared(checkpoint: Tensors, name: str, architecture: Architecture, config: Mapping[str, Any]) -> Anatomy:
    """Compare a checkpoint with one entry of the table, errors as of `of`."""
    sizes = axis_sizes(checkpoint.name, config, architecture.keys)
    counted = sizes["blocks"]
    # the usual name of each tensor -> its name in the file; those that have got a role go
    left: dict[str, str] = {}
    for own in checkpoint.tensor_names:
        called = _usual(own, architecture)
        if (other := left.setdefault(called, own)) != own:
            raise InvalidWeightsError(f"{checkpoint.name} has {other} and {own}, both {called}; save one of them alone")
    prefix, outer = _prefixes(left, architecture)
    declared = tying.declared(checkpoint.config)
    _name_embedding(left, (prefix, outer), architecture, declared)
    # where some blocks have no MLP, those that have one are counted from 0
    only = architecture.only.split()
    numbers = [n for n in range(counted) if not only or any(prefix + name.format(block=n) in left for name in only)]
    sizes["blocks"] = len(numbers)
    by_block = sizes_by_block(checkpoint.name, config, architecture, counted)
    parts: list[TensorPart] = []
    for part, block, number, expert in instances(architecture, sizes):
        bare = part.called(number if number is None or part.decodes else numbers[number], expert)
        usual = bare if part.outside else prefix + bare
        stored = left.pop(usual, None) or (left.pop(outer + bare, None) if part.outside else None)
        if stored is None:
            if part.optional:
                continue
            _refuse_codes(checkpoint)
            _refuse_broken_promise(checkpoint, bare)
            raise InvalidWeightsError(_lacks(checkpoint.name, usual, name, left))
        loaded = bare if part.outside else ((architecture.prefix and prefix) or architecture.prefix) + bare
        module = part.module or loaded.rpartition(".")[0]
        here = by_block.get(numbers[number], {}) if number is not None and not part.decodes else {}
        parts.append(_measured(checkpoint, stored, part, (block, expert, module), (sizes, here)))
    if any(checkpoint.dtype(part.name) not in _PLAIN for part in parts):
        _refuse_codes(checkpoint)
    decoders = sizes.get("decoders", 0) if any(part.decodes for part in architecture.parts) else 0
    _check_blocks(checkpoint, architecture, left, counted + (config.get("num_nextn_predict_layers") or 0), decoders)
    anatomy = Anatomy(
        architecture=name,
        n_blocks=sizes["blocks"] + decoders,
        width=sizes["model"],
        vocab_size=sizes["vocab"],
        parts=tuple(parts),
        unnamed=tuple(sorted(name for usual, name in left.items() if not _BUFFERS.search(usual))),
        tied=_tied(checkpoint, declared, architecture, parts),
        within=checkpoint.architecture if sees(checkpoint.config) else None,
        mlp_width=max([sizes.get("mlp", sizes["expert"]), *(here.get("mlp", 0) for here in by_block.values())]),
        inputs=architecture.inputs,
        first_position=_first_position(architecture, config),
        norm_offset=0.0 if architecture.mlx_norms and _by_mlx(checkpoint) else architecture.norm_offset,
    )
    some = any("experts" in part.name for part in architecture.parts)
    if some and (missing := experts.missing(anatomy._index.keys(), anatomy.n_blocks, sizes["experts"])):
        _refuse_codes(checkpoint)
        raise InvalidWeightsError(
            f"{checkpoint.name} lacks tensors of {missing}, or has them under names that are not known; its files are "
            "whole: give the config and the weights of one model, as transformers saves them"
        )
    return anatomy


def _lacks(label: str, usual: str, architecture: str, left: Mapping[str, str]) -> str:
    """Say that a tensor is not there, and which one may be it, with more words in its name."""

    def within(name: str) -> bool:
        words = iter(name.split("."))
        return all(word in words for word in usual.split("."))  # in this order

    there = next((stored for name, stored in sorted(left.items()) if within(name)), "")
    remedy = f"it has {there}: rename its tensors as transformers saves them, or " if there else "its files are whole: "
    return (
        f"{label} lacks the tensor {usual}, which {architecture} needs; {remedy}give the config and the weights of one "
        "model, as transformers saves them"
    )


def _first_position(architecture: Architecture, config: Mapping[str, Any]) -> int:
    """Row of the table of positions at which a sequence begins: in some families behind that of padding."""
    first = architecture.first_position
    if first != "padding":
        return int(first)
    padding = config.get("pad_token_id")
    return padding + 1 if isinstance(padding, int) and padding >= 0 else 2  # transformers' own default is 1


def _prefixes(names: Collection[str], architecture: Architecture) -> tuple[str, str]:
    """Return the prefix of the base model in this file, and that of a wrapper, whose head stands beside the base model.

    Both follow from the name of the embedding.
    """
    in_block = next((part.called(0, 0) for part in architecture.parts if part.per_block and not part.optional), "")
    met = places(architecture, names) or (places(architecture, names, in_block) if in_block else [])
    prefix = next(iter(met), architecture.prefix)
    return prefix, prefix.removesuffix(architecture.prefix)


def _name_embedding(
    left: dict[str, str], before: tuple[str, str], architecture: Architecture, declared: tying.Tying
) -> None:
    """Give the embedding its name where a file keeps it under another's alone, among names by the usual ones.

    That is the head in what safetensors writes of a tied model, and the decoder's own in some copies of T5.
    """
    prefix, usual = before[0], architecture.parts[0].name
    if prefix + usual in left:
        return
    heads = [part.name for part in architecture.parts if part.segments[0].role == "head"] if declared.tied else []
    others = [*(prefix + name for name in architecture.instead), *(place + name for name in heads for place in before)]
    if other := next((name for name in others if name in left), ""):
        left[prefix + usual] = left.pop(other)


def _by_mlx(checkpoint: Tensors) -> bool:
    """Whether MLX wrote the files, as they say themselves, or its settings of codes do."""
    return "quantization" in checkpoint.config or getattr(checkpoint, "written_by", "") == "mlx"


def _tied(checkpoint: Tensors, declared: tying.Tying, architecture: Architecture, parts: list[TensorPart]) -> bool:
    """Whether the head is the embedding: the architecture has a head, and the file none."""

    def has_head(parts: Iterable[Row | TensorPart]) -> bool:
        return any(segment.role == "head" for part in parts for segment in part.segments)

    tied = has_head(architecture.parts) and not has_head(parts)
    if tied and declared.tied is False:
        heads = [part.name for part in architecture.parts if part.segments[0].role == "head"]
        for head in heads:
            _refuse_broken_promise(checkpoint, head)
        raise InvalidWeightsError(
            f"{checkpoint.name} lacks the head {heads[0]}, and {declared.why}; copy the weights again, or set "
            f"{tying.KEY} to true in config.json if the head is the embedding"
        )
    return tied


def _refuse_broken_promise(checkpoint: Tensors, name: str) -> None:
    """Raise CheckpointError if a table of shards places a tensor of this name in a file that lacks it."""
    absent: Mapping[str, str] = getattr(checkpoint, "absent", {})  # a model without files has none
    for stored, file in absent.items():
        if f".{stored}".endswith(f".{name}"):
            raise CheckpointError(
                f"{checkpoint.name}: {file} lacks {stored}, which the index places there; copy both again"
            )


def _refuse_codes(checkpoint: Tensors) -> None:
    """Raise InvalidWeightsError if tensors hold codes of a quantised copy."""
    names = checkpoint.tensor_names
    integers = (name for name in names if "int" in checkpoint.dtype(name) and not _BUFFERS.search(name))
    if message := diagnose.codes(names, checkpoint.config, integers):
        raise InvalidWeightsError(f"{checkpoint.name}: {message}")


def _usual(name: str, architecture: Architecture) -> str:
    """Translate a name to the one that the table uses."""
    for met, usual in architecture.aliases:
        if name.endswith(met):
            return name.removesuffix(met) + usual
    return name


def _measured(
    checkpoint: Tensors,
    name: str,
    part: Row,
    place: tuple[int | None, int | None, str],
    lengths: tuple[dict[str, int], dict[str, int]],
) -> TensorPart:
    """Compare a tensor's shape with the config.

    `place` is its block, expert and module, `lengths` those of axes in the model, and those that its block has instead.
    """
    (block, expert, module), (sizes, own) = place, lengths
    n_experts = sizes["experts"] if part.stacked else 0
    numbers = range(n_experts) if part.stacked else (expert,)
    segments = tuple(for_expert(segment, number) for number in numbers for segment in part.segments)
    shape = checkpoint.shape(name)
    if len(segments) == 1 and len(shape) == len(segments[0].axes):
        # an axis that the config does not fix takes the length that the first tensor has
        for axis, length in zip(segments[0].axes, shape, strict=True):
            sizes.setdefault(config_axis(axis), length)
    of_axes = {**sizes, **own}
    of_roles = [tuple(of_axes[config_axis(axis)] for axis in segment.axes) for segment in segments]
    rows = tuple(length[0] for length in of_roles)
    expected: tuple[int, ...] = (sum(rows) // max(n_experts, 1), *of_roles[0][1:])
    transposed = part.transposed
    if part.either:
        _refuse_square(checkpoint, name, expected)
        transposed = shape[1:] == expected[::-1]
    if transposed:
        expected = expected[::-1]
    if n_experts:
        expected = (n_experts, *expected)
    if shape != expected:
        _refuse_codes(checkpoint)
        grown = "vocab" in segments[0].axes and len(shape) == len(expected) and shape[1:] == expected[1:]
        tokens = f"where tokens were added or cut away, set vocab_size there to {shape[0]}; else " if grown else ""
        raise OtherShapeError(
            f"{checkpoint.name}: {name} has the shape {shape}, and its config says {expected}; {tokens}give the config "
            "and the weights of one model"
        )
    return TensorPart(
        name, block, segments, rows, shape, transposed, part.interleaved, sizes["head"], n_experts, module
    )


def _refuse_square(checkpoint: Tensors, name: str, shape: tuple[int, ...]) -> None:
    """Raise InvalidWeightsError for a matrix of which no shape tells whether its file keeps it transposed."""
    if shape == shape[::-1]:
        raise InvalidWeightsError(
            f"{checkpoint.name}: {name} holds square matrices ({shape[0]} x {shape[1]}), which some files of its "
            "class keep transposed and others do not, and nothing here says which; --part embedding compares its "
            "embedding alone"
        )


def _check_blocks(
    checkpoint: Tensors, architecture: Architecture, left_over: Mapping[str, str], encoders: int, decoders: int
) -> None:
    """Refuse tensors of blocks that the config does not count."""
    patterns = {
        re.escape(part.name.partition("{decoder}" if part.decodes else "{block}")[0]) + r"(\d+)\.": (
            decoders if part.decodes else encoders
        )
        for part in architecture.parts
        if part.per_block
    }
    for usual, name in left_over.items():
        for pattern, n_blocks in patterns.items():
            match = re.match(f"({re.escape(architecture.prefix)})?{pattern}", usual)
            if match and int(match[2]) >= n_blocks:
                raise InvalidWeightsError(
                    f"{checkpoint.name} has the tensor {name}, but its config counts {n_blocks} blocks; give "
                    "the config and the weights of one model"
                )
