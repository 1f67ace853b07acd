"""Running a model of which one block at a time is in memory, in the dtype and on the device that were asked for.

Published weights are numbers of 16 bits, mapped from their files: the system drops those that nobody reads. Seven
billion of them in float32 are 27 GB, which few machines have, and seventy billion fit on no GPU. So a model that runs
over a text a few times is loaded as its files have it; each block is widened, and sent to the device, when it runs, and
dropped after. To widen is exact: outputs are those of the model that is loaded whole. A GPU with room for all blocks
keeps them, as each batch would send them again.
"""

import re
from typing import TYPE_CHECKING

import torch
from torch import nn

from provlab.reading.anatomy import Anatomy

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_OF_FREE = 0.7  # of a GPU's free memory that weights may take


def blocks_of(network: "PreTrainedModel", anatomy: Anatomy, dtype: torch.dtype) -> list[nn.Module] | None:
    """Return the modules of all transformer blocks, or None where the model cannot run by blocks.

    That is so where transformers calls the modules other than the files do; where the first parameter, by which a model
    says its device, is one of a block; where a module that is in no block has one, too, as the layers of Zamba that
    share weights; and where a number that no file has, such as a table of positions, was made in fewer bits than by the
    model that is loaded whole, and so rounded.
    """
    try:
        blocks = [network.get_submodule(anatomy.path_of(block)) for block in range(anatomy.n_blocks)]
    except AttributeError:
        return None
    distinct = {id(block): block for block in blocks}  # some models share one block's weights
    inside = {id(part) for block in distinct.values() for part in block.modules()}
    within = {id(p) for block in distinct.values() for p in block.parameters()}
    shared = any(id(p) in within and id(part) not in inside for part, _, p in _parameters(network))
    first = id(next(network.parameters())) in within
    return None if shared or first or _rounded(network, dtype) else list(distinct.values())


def _rounded(network: "PreTrainedModel", dtype: torch.dtype) -> bool:
    """Whether a number that no file has is held in fewer bits than by a model of this dtype."""
    made = {name: values for name, values in _made(network, dtype).items() if _narrow(values, dtype) and values.any()}
    if not made:
        return False
    with torch.device("meta"):
        whole = _made(type(network)._from_config(network.config, dtype=dtype), dtype)
    # the angles of rotary positions are float32 in either
    return any(_narrow(values, whole[name].dtype if name in whole else dtype) for name, values in made.items())


def _narrow(values: torch.Tensor, dtype: torch.dtype) -> bool:
    return values.is_floating_point() and values.itemsize < dtype.itemsize


def _made(network: "PreTrainedModel", dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Numbers that may be in no file, by name."""
    paths = {id(module): path for path, module in network.named_modules()}
    made = {f"{paths[id(part)]}.{name}": buffer for part, name, buffer in _buffers(network, dtype)}
    return made | {name: values for name, values in network.state_dict().items() if _may_be_missing(network, name)}


def _may_be_missing(network: "PreTrainedModel", name: str) -> bool:
    """Whether transformers makes a weight itself where the files have it not."""
    return any(re.search(pattern, name) for pattern in network._keys_to_ignore_on_load_missing or ())


def kept_on(device: str, network: "PreTrainedModel", dtype: torch.dtype) -> bool:
    """Whether a GPU has room for a whole model and what runs beside it."""
    if not device.startswith("cuda"):
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return dtype.itemsize * sum(parameter.numel() for parameter in network.parameters()) <= _OF_FREE * free


def run_by_blocks(
    network: "PreTrainedModel", blocks: list[nn.Module], dtype: torch.dtype, device: str
) -> "PreTrainedModel":
    """Bring all but the blocks to a dtype and device, and let each block follow where it runs.

    Parameters
    ----------
    network
        A model as its files have it, on the CPU. It is changed.
    blocks
        From `blocks_of`; none, to bring all of the model there now.
    """
    within = {id(parameter) for block in blocks for parameter in block.parameters()}
    spare = _Spare(dtype, device)
    for block in blocks:
        _follow(block, spare)
    brought: dict[int, nn.Parameter] = {}  # a head that is the embedding stays it
    for module, name, parameter in _parameters(network):
        if id(parameter) not in within:
            setattr(module, name, brought.setdefault(id(parameter), _brought(parameter, dtype, device)))
    for module, name, buffer in _buffers(network, dtype):
        setattr(module, name, buffer.to(device))
    network.config.dtype = dtype
    return network


def _parameters(module: nn.Module) -> list[tuple[nn.Module, str, nn.Parameter]]:
    """The parameters of a module and of those in it, with their owners and their names there."""
    return [(part, name, p) for part in module.modules() for name, p in part.named_parameters(recurse=False)]


def _buffers(network: nn.Module, dtype: torch.dtype) -> list[tuple[nn.Module, str, torch.Tensor]]:
    """The same of buffers, as they were meant.

    Those of the file are exact in a wider dtype. The factor of Gemma's embedding is made in the dtype of the model, and
    kept as a number beside it.
    """

    def meant(part: nn.Module, name: str, buffer: torch.Tensor) -> torch.Tensor:
        if (exact := getattr(part, f"scalar_{name}", None)) is not None:
            return torch.tensor(exact)
        of_file = name not in part._non_persistent_buffers_set and buffer.is_floating_point()
        return buffer.to(dtype) if of_file and buffer.itemsize < dtype.itemsize else buffer

    every = [(part, name, b) for part in network.modules() for name, b in part.named_buffers(recurse=False)]
    return [(part, name, meant(part, name, buffer)) for part, name, buffer in every]


def _brought(values: torch.Tensor, dtype: torch.dtype, device: str) -> nn.Parameter:
    moved = values.detach().to(device, dtype if values.is_floating_point() else None)
    return nn.Parameter(moved, requires_grad=False)


class _Spare:
    """Widened weights of the block that ran last, whose memory the next block takes.

    Else the system would give each block new pages, which takes twice as long as to widen into those that are there. A
    GPU's memory is kept by torch itself.
    """

    def __init__(self, dtype: torch.dtype, device: str) -> None:
        self._dtype, self._device = dtype, device
        self._free: dict[torch.Size, list[nn.Parameter]] = {}

    def widened(self, stored: nn.Parameter) -> nn.Parameter:
        """Return a weight in the dtype and on the device."""
        if self._kept(stored) and (free := self._free.get(stored.shape)):
            weight = free.pop()
            weight.data.copy_(stored.detach())
            return weight
        with torch.inference_mode(False):  # so that it may be written to again
            return _brought(stored, self._dtype, self._device)

    def drop(self) -> None:
        """Let go of what the next block has not taken: blocks of other shapes would add up to the whole model."""
        self._free.clear()

    def give_back(self, stored: nn.Parameter, weight: nn.Parameter) -> None:
        """Take the memory of a weight that was `widened`."""
        if self._kept(stored):
            self._free.setdefault(weight.shape, []).append(weight)

    def _kept(self, stored: nn.Parameter) -> bool:
        """Whether what is brought is a copy, in memory."""
        return self._device == "cpu" and stored.is_floating_point() and stored.dtype != self._dtype


def _follow(block: nn.Module, spare: _Spare) -> None:
    stored = _parameters(block)

    def before(*_: object) -> None:
        for module, name, values in stored:
            setattr(module, name, spare.widened(values))
        spare.drop()

    def after(*_: object) -> None:
        for module, name, values in stored:
            if (weight := getattr(module, name)) is not values:  # it is where widening was broken off
                spare.give_back(values, weight)
                setattr(module, name, values)

    block.register_forward_pre_hook(before)
    block.register_forward_hook(after, always_call=True)  # where a run is broken off, too
