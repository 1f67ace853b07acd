"""Fossils: numbers that training leaves at their initial draw, and the seed that drew them.

Softmax takes off whatever is the same for all keys. A bias of the keys adds q . b to every score of a query q, so its
gradient is zero but for rounding, and without weight decay the bias keeps its initial draw; with decay it keeps its
direction until rounding takes over. Its numbers are drawn alike and independently, so that under independence all
orders of one model's are equally likely, and Spearman's law is an exact p-value of d numbers a block (phi_K).

This shows a *common initial draw*, which is less than descent: two models that were begun with one seed and trained
apart have it too. Whether they share training as well shows in what they changed (`provlab.forest.descent`).

Silent (`why_silent`): models without such biases, or with biases that begin at zero, as those of BERT and GPT-2 in
transformers do; and rotary positions, as in Qwen2: there the bias is turned by the position of the key, does not
cancel, and is trained like any other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NotComparableError, ParameterError
from provlab.inference import pvalues
from provlab.reading.architectures import described
from provlab.statistics.model import Model

ROLE = "key_bias"
Draws = Mapping[int, NDArray[np.floating]]  # block -> (d,)


@dataclass(frozen=True)
class Draw:
    """Evidence of a common initial draw.

    Attributes
    ----------
    log10_p
        Fisher's over blocks, which are independent under independence.
    cosines
        Cosine of each block.
    numbers
        In all blocks.
    seed
        That drew them, where seeds were tried; `log10_p` is then corrected for how many.
    """

    log10_p: float
    cosines: Mapping[int, float]
    numbers: int
    seed: int | None = None


def why_silent(model: Model) -> str | None:
    """Say why the biases of a model's keys are no fossils; None where they may be."""
    named = not model.anatomy.part_name  # the shapes of a part do not say how its keys are used
    if named and described(model.anatomy.architecture).rotary and not model.anatomy.has("position_embedding"):
        return "positions turn the keys, so that their bias does not cancel and is trained"
    if not model.anatomy.has(ROLE):
        return "its keys have no bias"
    if not any(np.any(bias) for bias in _read(model).values()):
        return "the biases of its keys are zero, as they began"
    return None


def key_biases(model: Model) -> dict[int, NDArray[np.float32]]:
    """Biases of the keys, by block.

    Raises
    ------
    NotComparableError
        They are no fossils; the message says why.
    """
    if reason := why_silent(model):
        raise NotComparableError(f"{model.name}: {reason}")
    return _read(model)


def _read(model: Model) -> dict[int, NDArray[np.float32]]:
    return {block: model.anatomy.read(model.checkpoint, ROLE, block) for block in range(model.anatomy.n_blocks)}


def common_draw(a: Draws, b: Draws) -> Draw:
    """Test whether two sets of biases began as one draw: small p where they agree.

    Raises
    ------
    NotComparableError
        No block of theirs has biases of one size.
    """
    blocks = [block for block in a if block in b and a[block].shape == b[block].shape]
    if not blocks:
        raise NotComparableError("no block of the two models has key biases of one size")
    values, cosines = [], {}
    for block in blocks:
        first, second = (np.asarray(side[block], dtype=np.float64) for side in (a, b))
        # places in ascending order; equal numbers are left in the order of the file, which a stranger does not share
        ranks = [np.argsort(np.argsort(side, kind="stable"), kind="stable") for side in (first, second)]
        values.append(pvalues.spearman(*ranks).log10_p)
        lengths = np.linalg.norm(first) * np.linalg.norm(second)
        cosines[block] = float(first @ second / lengths) if lengths else 0.0
    return Draw(pvalues.fisher(values), cosines, sum(a[block].size for block in blocks))


def named_seed(biases: Draws, replay: Callable[[int], Draws], seeds: Iterable[int]) -> Draw:
    """Name the seed whose replayed draw agrees best; the p-value is corrected for all seeds that were tried.

    Parameters
    ----------
    biases
        Biases of a model.
    replay
        What a framework draws from a seed; see `linear_layers`.
    seeds
        To try.
    """
    tried = {seed: common_draw(biases, replay(seed)) for seed in seeds}
    if not tried:
        raise ParameterError("seeds: none is given to try")
    seed = min(tried, key=lambda seed: tried[seed].log10_p)
    best = tried[seed]
    return Draw(min(best.log10_p + float(np.log10(len(tried))), 0.0), best.cosines, best.numbers, seed)


def linear_layers(layers: Sequence[tuple[int, int, int | None]]) -> Callable[[int], dict[int, NDArray[np.float32]]]:
    """Replay of `torch.manual_seed(seed)` and then `torch.nn.Linear` layers in the order in which a model makes them.

    Parameters
    ----------
    layers
        Each layer's inputs, outputs, and the block whose key bias it has, None for all other layers. They draw too.
    """

    def replay(seed: int) -> dict[int, NDArray[np.float32]]:
        import torch  # slow

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = [(block, torch.nn.Linear(inputs, outputs)) for inputs, outputs, block in layers]
        return {block: layer.bias.detach().numpy() for block, layer in made if block is not None}

    return replay
