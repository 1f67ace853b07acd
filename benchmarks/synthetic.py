"""Checkpoints of the true shapes with weights that nobody trained: what full size costs, without a download.

Three kinds. *Independent*: every weight matrix is a new draw, as an initialisation would be. A *noisy copy* of a
checkpoint adds to every weight normal noise of a stated size. A *pruned copy* keeps some blocks, hidden units, heads
and residual coordinates of a larger one, so that a Llama-3.1-8B becomes a model in the shape of Llama-3.2-3B.

Tensors are written as they are made, in bfloat16, so that memory is that of one tensor whatever the model; the folder
appears when it is whole. Weights depend on the seed and the tensor's name alone: a model of two blocks is the first
two of the whole.

``python benchmarks/synthetic.py llama-2-7b FOLDER`` writes one; ``--copy-of`` and ``--pruned-from`` write copies.
"""

import argparse
import hashlib
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from provlab.errors import InputError, ProvlabError
from provlab.files import atomic_folder, write_json
from provlab.planning.shapes import STANDARD_DEVIATION, shape, truncated
from provlab.planning.skeleton import Skeleton
from provlab.reading import anatomy as anatomy_module
from provlab.reading.architectures import axis_sizes
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.files.container import TensorInfo
from provlab.reading.files.writing import write_safetensors
from provlab.reading.symmetry import Permutation
from provlab.reading.weights import CONFIG

_SHARD = 4 * 10**9  # bytes of a file, about those of published checkpoints
_SLAB = 2**22  # values drawn at a time
_INDEX = "model.safetensors.index.json"

Slabs = Iterator[torch.Tensor]


@dataclass(frozen=True)
class Written:
    """A checkpoint that was written: the folder, the number of its tensors, and the bytes of its weights."""

    folder: Path
    tensors: int
    n_bytes: int


def synthesise(config: dict[str, Any], folder: Path, *, seed: int = 0, progress: bool = False) -> Written:
    """Write a checkpoint whose matrices are independent normal draws and whose norms are 1.

    Parameters
    ----------
    config
        From `shape`, or any ``config.json`` whose architecture the table knows.
    folder
        Where; it must not exist yet.
    seed
        The seed of the weights: two seeds make independent models.

    Raises
    ------
    InputError
        The folder exists, or its disk is too small.
    """
    skeleton = Skeleton(folder.name, config)
    deviation = float(config.get("initializer_range", STANDARD_DEVIATION))

    def slabs(name: str) -> Slabs:
        lengths = skeleton.shape(name)
        if len(lengths) == 1:
            yield torch.ones(lengths)
        else:
            yield from (deviation * slab for slab in _normal(lengths, seed, name))

    return _write(skeleton, slabs, folder, {"kind": "independent", "seed": seed}, progress)


def noisy_copy(
    parent: Checkpoint, folder: Path, *, noise: float, seed: int = 0, blocks: int | None = None, progress: bool = False
) -> Written:
    """Write a copy of a checkpoint with noise on every matrix.

    Parameters
    ----------
    parent
        Any checkpoint.
    folder
        Where; it must not exist yet.
    noise
        Standard deviation of what is added, in standard deviations of the tensor. The cosine between a row and its
        copy is then about ``1 / sqrt(1 + noise**2)``.
    seed
        The seed of the noise; another than the parent's.
    blocks
        Copy only the first ones.

    Raises
    ------
    InputError
        As `synthesise`; or `noise` is no number of at least 0.
    """
    _check_noise(noise)
    skeleton = Skeleton(folder.name, truncated(dict(parent.config), blocks, parent.name))
    about = {"kind": "noisy copy", "parent": parent.source, "noise": noise, "seed": seed}

    def slabs(name: str) -> Slabs:
        return _with_noise(parent.tensor(name), noise, seed, name)

    return _write(skeleton, slabs, folder, about, progress)


@dataclass(frozen=True)
class Kept:
    """What a pruned copy keeps of its parent, in the parent's order.

    Attributes
    ----------
    blocks
        Parent's block of each block.
    units
        For each block of the copy, the hidden units of its MLP.
    axes
        Axis name -> indices kept, for all blocks alike: coordinates of the stream, rows of the attention heads.
    """

    blocks: tuple[int, ...]
    units: tuple[NDArray[np.int64], ...]
    axes: Mapping[str, NDArray[np.int64]]

    @property
    def orders(self) -> dict[tuple[str, int | None], NDArray[np.int64]]:
        """Indices kept along each axis, in the parent's blocks, as `provlab.reading.symmetry.Permutation` takes it."""
        units = {("mlp", block): units for block, units in zip(self.blocks, self.units, strict=True)}
        return units | {(axis, None): indices for axis, indices in self.axes.items()}


def kept(parent: Mapping[str, Any], child: Mapping[str, Any], *, seed: int) -> Kept:
    """Draw what a copy in the shape of `child` keeps of `parent`, both configs.

    Attention heads are kept group by group, so that each query head stays with its key head.

    Raises
    ------
    InputError
        The child is larger somewhere, or differs where nothing can be pruned (vocabulary, size of a head).
    """
    old, new = (axis_sizes(name, config) for name, config in (("parent", parent), ("child", child)))
    for axis in ("vocab", "head"):
        if old[axis] != new[axis]:
            raise InputError(f"a pruned copy keeps the axis {axis!r} as it is, but it is {old[axis]} and {new[axis]}")
    if larger := [axis for axis in ("blocks", "model", "mlp", "query", "key") if new[axis] > old[axis]]:
        raise InputError(
            f"a pruned copy can be no larger than its parent, but the axis {larger[0]!r} goes from "
            f"{old[larger[0]]} to {new[larger[0]]}"
        )
    groups = old["key"] // old["head"], new["key"] // old["head"]
    members = old["query"] // old["key"], new["query"] // new["key"]
    if members[1] > members[0]:
        raise InputError(
            f"the copy would have {members[1]} query heads to a key head, and the parent has {members[0]} only"
        )
    rng = np.random.default_rng(seed)

    def some(n: int, of: int) -> NDArray[np.int64]:
        return np.sort(rng.choice(of, n, replace=False))

    key_heads = some(groups[1], groups[0])
    query_heads = np.concatenate([head * members[0] + some(members[1], members[0]) for head in key_heads])
    rows = np.arange(old["head"])
    return Kept(
        tuple(int(block) for block in some(new["blocks"], old["blocks"])),
        tuple(some(new["mlp"], old["mlp"]) for _ in range(new["blocks"])),
        {
            "model": some(new["model"], old["model"]),
            "key": (key_heads[:, None] * old["head"] + rows).ravel(),
            "query": (query_heads[:, None] * old["head"] + rows).ravel(),
        },
    )


def pruned_copy(
    parent: Checkpoint,
    config: dict[str, Any],
    folder: Path,
    *,
    seed: int = 0,
    noise: float = 0.0,
    progress: bool = False,
) -> Written:
    """Write a copy in a smaller shape: randomly kept blocks, hidden units, heads and coordinates of the parent.

    Parameters
    ----------
    parent
        A checkpoint, of the architecture that `config` names.
    config
        The smaller shape.
    folder
        Where; it must not exist yet.
    seed
        The seed of what is kept (see `kept`) and of the noise.
    noise
        Added to what is kept, in standard deviations of the tensor, as healing would.

    Raises
    ------
    InputError
        As `synthesise` and `kept`; or the architectures differ.
    """
    _check_noise(noise)
    if [parent.architecture] != config.get("architectures"):
        raise InputError(f"{parent.name} is a {parent.architecture}, and a pruned copy of it stays one")
    keep = kept(parent.config, config, seed=seed)
    skeleton = Skeleton(folder.name, config)
    whole, small = anatomy_module.of(parent), anatomy_module.of(skeleton)
    parts = {part.name: part for part in small.parts}

    def slabs(name: str) -> Slabs:
        part = parts[name]
        source = whole.part(part.segments[0].role, None if part.block is None else keep.blocks[part.block])
        cut = Permutation((source,), keep.orders)  # an order may leave units out
        return _with_noise(cut({source.name: parent.tensor(source.name)})[source.name], noise, seed, name)

    about = {
        "kind": "pruned copy",
        "parent": parent.source,
        "kept_blocks": list(keep.blocks),
        "noise": noise,
        "seed": seed,
    }
    return _write(skeleton, slabs, folder, about, progress)


def _check_noise(noise: float) -> None:
    if not 0.0 <= noise < math.inf:
        raise InputError(f"noise must be a number of at least 0, not {noise}")


def _normal(lengths: tuple[int, ...], seed: int, name: str) -> Slabs:
    """Draw a tensor from the standard normal distribution, some rows at a time; seed and name decide it."""
    address = hashlib.sha256(f"{seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(address[:8], "little", signed=True))
    at_once = max(1, _SLAB // math.prod(lengths[1:]))
    for start in range(0, lengths[0], at_once):
        yield torch.randn((min(at_once, lengths[0] - start), *lengths[1:]), generator=generator)


def _with_noise(tensor: torch.Tensor, noise: float, seed: int, name: str) -> Slabs:
    """Yield a tensor by rows, with noise if it is a matrix."""
    if tensor.ndim == 1 or not noise:
        yield tensor
        return
    # the first rows say well enough how large the weights are, without a float32 copy of an embedding
    deviation = float(tensor[: max(1, _SLAB // math.prod(tensor.shape[1:]))].float().std(correction=0))
    start = 0
    for slab in _normal(tuple(tensor.shape), seed, name):
        rows = tensor[start : start + len(slab)].float()
        yield rows.add_(slab, alpha=noise * deviation)
        start += len(slab)


def _write(
    skeleton: Skeleton, slabs: Callable[[str], Slabs], folder: Path, about: Mapping[str, Any], progress: bool
) -> Written:
    """Write config, shards and index into a temporary folder, which becomes `folder`."""
    names = list(skeleton.shapes)
    sizes = {name: 2 * math.prod(skeleton.shape(name)) for name in names}
    total = n_bytes(skeleton.config)
    check_room(folder, total)
    shards: list[list[str]] = [[]]
    for name in names:
        if shards[-1] and sum(sizes[name] for name in shards[-1]) + sizes[name] > _SHARD:
            shards.append([])
        shards[-1].append(name)
    files = {f"model-{i:05d}-of-{len(shards):05d}.safetensors": held for i, held in enumerate(shards, 1)}
    with (
        atomic_folder(folder) as temporary,
        tqdm(total=total, unit="B", unit_scale=True, desc=folder.name, disable=not progress, leave=False) as bar,
    ):
        for file, held in files.items():
            _write_shard(temporary / file, held, skeleton, slabs, bar)
        write_json(temporary / CONFIG, skeleton.config | {"dtype": "bfloat16"})
        weight_map = {name: file for file, held in files.items() for name in held}
        write_json(temporary / _INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})
        write_json(temporary / "synthetic.json", dict(about))
    return Written(folder, len(names), total)


def n_bytes(config: dict[str, Any]) -> int:
    """Bytes of weights that a checkpoint of this config takes in bfloat16."""
    return sum(2 * math.prod(lengths) for lengths in Skeleton("config", config).shapes.values())


def check_room(folder: Path, needed: int) -> None:
    """Raise InputError if `folder` exists or `needed` bytes do not fit on its disk, before anything is written."""
    if os.path.lexists(folder):
        raise InputError(f"{folder} exists already; give the name of a new folder")
    standing = next(parent for parent in (folder.absolute().parent, *folder.absolute().parents) if parent.exists())
    with suppress(OSError):
        free = shutil.disk_usage(standing).free
        if free < needed * 1.01:
            raise InputError(
                f"{folder} needs {needed / 1e9:,.1f} GB, and {standing} has {free / 1e9:,.1f} GB free; "
                "write fewer blocks, or give a folder on another disk"
            )


def _write_shard(
    path: Path, names: list[str], skeleton: Skeleton, slabs: Callable[[str], Slabs], bar: "tqdm[Any]"
) -> None:
    """Write one safetensors file in bfloat16, as its tensors come."""

    def rounded(name: str) -> Iterator[NDArray[Any]]:
        for slab in slabs(name):
            content = slab.to(torch.bfloat16).contiguous().view(torch.int16).numpy()
            yield content
            bar.update(content.nbytes)

    write_safetensors(path, {name: TensorInfo(skeleton.shape(name), "bfloat16") for name in names}, rounded)


def main(command: list[str] | None = None) -> None:
    """Write one checkpoint."""
    parser = argparse.ArgumentParser(description="write a checkpoint of a true shape whose weights nobody trained")
    parser.add_argument("shape", help="llama-2-7b, llama-3.1-8b, ... (any other word lists them), or a config.json")
    parser.add_argument("folder", help="a new folder for it")
    parser.add_argument("--blocks", type=int, metavar="N", help="write only the first N blocks (default: all)")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the weights; another seed gives another model (default: 0)"
    )
    origin = parser.add_mutually_exclusive_group()
    origin.add_argument("--copy-of", metavar="MODEL", help="copy this model with noise instead, in its own shape")
    origin.add_argument("--pruned-from", metavar="MODEL", help="keep the part of this larger model that has the shape")
    parser.add_argument(
        "--noise",
        type=float,
        metavar="X",
        help="noise of a copy, in standard deviations of each tensor (default: 0.5 or 0)",
    )
    arguments = parser.parse_args(command)
    folder = Path(arguments.folder)
    config = shape(arguments.shape, arguments.blocks)
    common = {"seed": arguments.seed, "progress": sys.stderr.isatty()}
    if arguments.copy_of:
        parent = Checkpoint.open(arguments.copy_of)
        if Skeleton(folder.name, config).shapes.items() - Skeleton(parent.name, parent.config).shapes.items():
            raise InputError(f"{arguments.copy_of} has not the shape {arguments.shape}; --copy-of keeps the shape")
        noise = 0.5 if arguments.noise is None else arguments.noise
        written = noisy_copy(parent, folder, noise=noise, blocks=arguments.blocks, **common)
    elif arguments.pruned_from:
        parent = Checkpoint.open(arguments.pruned_from)
        written = pruned_copy(parent, config, folder, noise=arguments.noise or 0.0, **common)
    elif arguments.noise is not None:
        raise InputError("--noise is that of a copy; name its parent by --copy-of or --pruned-from")
    else:
        written = synthesise(config, folder, **common)
    print(f"{written.folder}: {written.tensors} tensors, {written.n_bytes / 1e9:,.2f} GB")


if __name__ == "__main__" and len(sys.argv) > 1:
    try:
        main()
    except ProvlabError as error:
        sys.exit(f"error: {error}")
