"""What rounding the weights makes of a model's own law: below that, two models differ as a copy in fewer bits does.

A model is read with its weights as they are, and again with each module's weights rounded while the module runs: to
bfloat16, or its matrices to 8 bits, row by row. Both are done where the two models of a comparison were read, on a
sample and on the sequences at which they are farthest apart, so that a change of few sequences is not taken for
rounding.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from provlab.modeldiff.nll import SequenceNll
from provlab.modeldiff.reading import measure

#: ways to round, the finest first; a model that is held in one of them is not changed by it
WAYS = ("bfloat16", "8 bits")
SAMPLE, FARTHEST = 24, 16  # sequences: of all that were read, and those at which the two are farthest apart
READ = 3 * (1 + len(WAYS)) * (SAMPLE + FARTHEST)  # a model reads for it: of a text, and of what either model writes
OPENINGS = 8  # of which the sample is taken
_NEAR = 1.25  # times: rounded alike by another way, and with the error of the sample
_BITS8 = 127.0


def _to_bfloat16(weight: torch.Tensor) -> torch.Tensor:
    return weight.to(torch.bfloat16).to(weight.dtype)


def _to_8_bits(weight: torch.Tensor) -> torch.Tensor:
    if weight.ndim < 2:
        return weight
    wide = weight.float()
    step = (wide.abs().amax(dim=-1, keepdim=True) / _BITS8).clamp_min(torch.finfo(wide.dtype).tiny)
    return ((wide / step).round() * step).to(weight.dtype)


_ROUNDED = dict(zip(WAYS, (_to_bfloat16, _to_8_bits), strict=True))


class _Rounded:
    """A network whose weights are rounded while a module of it runs; otherwise the network itself."""

    def __init__(self, network: torch.nn.Module, way: str) -> None:
        self._network, self._way = network, way

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        with _rounding(self._network, self._way):
            return self._network(*arguments, **settings)


@contextmanager
def _rounding(network: torch.nn.Module, way: str) -> Iterator[None]:
    """One module's weights at a time are there twice."""
    own: dict[torch.nn.Module, dict[str, Any]] = {}

    def enter(module: torch.nn.Module, *_: Any) -> None:
        own[module] = dict(module._parameters)
        for name, weight in own[module].items():
            if weight is not None:
                module._parameters[name] = _ROUNDED[way](weight)  # type: ignore[assignment]

    def leave(module: torch.nn.Module, *_: Any) -> None:
        module._parameters.update(own.pop(module, {}))

    hooks = []
    for module in network.modules():
        if module._parameters:
            hooks += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave, always_call=True)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for module in list(own):
            leave(module)


def rounded(nll: SequenceNll, way: str) -> SequenceNll:
    """The same model with its weights rounded whenever it is read; nothing is held twice but one module's weights."""
    other = copy.copy(nll)
    other.network, other._opened = _Rounded(nll.network, way), None  # type: ignore[assignment]
    return other


@dataclass(frozen=True)
class Rounding:
    """What one way of rounding makes of A and of B, the larger of the two, beside what is between A and B.

    Attributes
    ----------
    where
        What was read: of A, of B, or text.
    way
        One of `WAYS`.
    mean
        Mean of both divergences of a model from itself rounded, over the sample (nats per token).
    between
        That of A and B, over the same sequences.
    farthest, between_farthest
        The same over the sequences at which A and B are farthest apart.
    """

    where: str
    way: str
    mean: float
    between: float
    farthest: float
    between_farthest: float

    @property
    def excess(self) -> float:
        """How many times as far apart A and B are, in the mean or at the farthest."""
        return max(self.between / max(self.mean, 1e-300), self.between_farthest / max(self.farthest, 1e-300))

    @property
    def share(self) -> float:
        """How much of the distance of A and B this makes, in the mean: on the same sequences, so that few will do."""
        return self.mean / self.between if self.between > 0 else 1.0

    @property
    def explains(self) -> bool:
        """Whether A and B are no farther apart than this makes a model from itself, in the mean and at the farthest."""
        return self.excess <= _NEAR


def measured(
    where: str,
    pairs: Sequence[Sequence[SequenceNll]],
    tokens: NDArray[np.int64],
    at: NDArray[np.int64],
    distances: NDArray[np.float64],
) -> tuple[Rounding, ...]:
    """Measure each way of rounding.

    Parameters
    ----------
    where
        What is read, in a word.
    pairs
        A and B behind each opening.
    tokens, at
        ``(n, length)`` that both read, and ``(n,)`` the opening of each.
    distances
        ``(n,)`` divergence of A and B on each (nats per token).
    """
    few = np.flatnonzero(at < OPENINGS)
    sample = few[np.unique(np.linspace(0, len(few) - 1, min(len(few), SAMPLE)).round().astype(int))]
    rows = np.concatenate([sample, np.argsort(-distances, kind="stable")[:FARTHEST]])
    here, there = slice(len(sample)), slice(len(sample), None)
    apart = np.empty((len(WAYS), len(rows)))
    for opening in np.unique(at[rows]):
        own = at[rows] == opening
        apart[:, own] = np.max([_apart(nll, tokens[rows[own]]) for nll in pairs[opening]], axis=0)
    return tuple(
        Rounding(
            where, way, *(float(values[part].mean()) for part in (here, there) for values in (made, distances[rows]))
        )
        for way, made in zip(WAYS, apart, strict=True)
    )


def _apart(nll: SequenceNll, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean of both divergences of a model from itself rounded each way, ``(ways, n)`` (nats per token)."""
    divergence = measure([nll, *(rounded(nll, way) for way in WAYS)], tokens)["divergence"]
    return np.asarray((divergence[0, 1:] + divergence[1:, 0]).mean(axis=2, dtype=np.float64) / 2)
