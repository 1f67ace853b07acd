"""Inputs by the model's own generation, each with its known probability: exact draws, where a model can write.

A causal model writes a sequence token by token and knows how likely each choice was, so the probability q(x) of all
that it wrote is exact, and 1 / q(x) is an unbiased count of inputs: sums of it over draws estimate how many inputs of
the whole space lie in any range of loss, in absolute numbers, from draws that are independent of each other. Written at
the model's own temperature, with a uniform first token that nothing predicts, q(x) depends on the mean loss z alone,

    q(x) = exp(-(length - 1) z) / vocabulary,

which is Equation 4 of the paper at T = 1 / (length - 1): inside any range Z the weights are bounded. Colder draws reach
lower losses; all draws together are weighted by the mixture they came from (the balance heuristic of multiple
importance sampling, Veach and Guibas 1995).

This is no part of the paper, which has Markov chains only. It needs no convergence and shares nothing with a chain but
the model, so that each can be held against the other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from provlab.errors import InputError
from provlab.modeldiff.nll import SequenceNll
from provlab.modeldiff.representative import bin_of, checked_edges

_AT_ONCE = 512  # sequences written side by side: with a cache of keys and values more at once gains little


@dataclass(frozen=True)
class Generated:
    """Sequences that a model wrote.

    Attributes
    ----------
    tokens
        ``(n, length)`` token ids.
    nll
        ``(n,)`` mean token NLL (nats) under the model, by the convention of its `SequenceNll`.
    log_weight
        ``(n,)``: log of 1 / (n q(x)), q the mixture of all temperatures. The weights of the draws with some
        property sum to the number of inputs that have it, in expectation.
    temper
        ``(n,)`` exponent under which each was written: 1 is the model's own distribution, above is colder.
    chain
        ``(n,)`` independent groups of equal make, for intervals.
    """

    tokens: NDArray[np.int64]
    nll: NDArray[np.float64]
    log_weight: NDArray[np.float64]
    temper: NDArray[np.float64]
    chain: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.nll)


@dataclass(frozen=True)
class Batch:
    """What one chain wrote: the draws of all tempers, which `join` weighs together with those of other chains.

    Attributes
    ----------
    tokens, nll, temper
        As in `Generated`.
    log_q
        ``(n,)`` log probability under the mixture of tempers.
    """

    tokens: NDArray[np.int64]
    nll: NDArray[np.float64]
    log_q: NDArray[np.float64]
    temper: NDArray[np.float64]


def write(nll: SequenceNll, n: int, length: int, *, tempers: Sequence[float] = (1.0,), seed: int = 0) -> Batch:
    """Let a model write one chain of `n` sequences; arguments as of `generate`, `n` rounded up to whole tempers."""
    exponents = np.array(sorted(set(map(float, tempers))))
    if not len(exponents) or not (exponents > 0).all() or exponents[0] > 1:
        raise InputError(f"tempers must be positive and the least of them at most 1, not {list(tempers)}")
    if n < 1:
        raise InputError(f"n must be at least 1, not {n}")
    if length < 2 or (nll.context is not None and length > nll.context):
        raise InputError(f"length must be from 2 to {nll.context}, the context of {nll.name}, not {length}")
    temper = np.repeat(np.arange(len(exponents)), -(-n // len(exponents)))
    generator = torch.Generator().manual_seed(seed)
    parts = [
        _write(nll, exponents, temper[begin : begin + _AT_ONCE], length, generator)
        for begin in range(0, len(temper), _AT_ONCE)
    ]
    tokens, losses, log_q = (np.concatenate(part) for part in zip(*parts, strict=True))
    # every temper wrote a like number, so the mixture is their plain mean
    return Batch(tokens, losses, logsumexp(log_q, axis=1) - math.log(len(exponents)), exponents[temper])


def join(batches: Sequence[Batch]) -> Generated:
    """Weigh the draws of several chains of one model together."""
    if len(batches) < 2 or len({len(batch.nll) for batch in batches}) > 1:
        raise InputError("join needs two or more chains of equally many draws")
    tokens, nll, log_q, temper = (
        np.concatenate([getattr(batch, name) for batch in batches]) for name in ("tokens", "nll", "log_q", "temper")
    )
    chain = np.repeat(np.arange(len(batches)), len(batches[0].nll))
    return Generated(tokens, nll, -log_q - math.log(len(nll)), temper, chain)


def generate(
    nll: SequenceNll,
    n: int,
    length: int,
    *,
    tempers: Sequence[float] = (1.0,),
    n_chains: int = 20,
    seed: int = 0,
) -> Generated:
    """Let a model write about `n` sequences, a like number at each temper.

    Parameters
    ----------
    nll
        The model, with its convention: without a start token the first token is uniform.
    n, length
        Sequences, and tokens in each. `n` is rounded up so that each chain has as many of each temper.
    tempers
        Exponents of the model's conditional distributions, normalised at each position; one must be at most 1, so
        that no part of the space is left out but by chance.
    n_chains
        Groups of draws for intervals, each from a seed of its own.
    seed
        Of the draws.

    Raises
    ------
    InputError
        A parameter is out of range, or `length` exceeds the model's context.
    """
    return join([write(nll, -(-n // n_chains), length, tempers=tempers, seed=s) for s in chain_seeds(seed, n_chains)])


def chain_seeds(seed: int, n_chains: int) -> list[int]:
    """Return one seed for each chain, the same for a chain however many there are."""
    return [int(np.random.SeedSequence([seed, chain]).generate_state(1)[0]) for chain in range(n_chains)]


@torch.inference_mode()
def _write(
    nll: SequenceNll,
    exponents: NDArray[np.float64],
    temper: NDArray[np.int64],
    length: int,
    generator: torch.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Write one sequence for each entry of `temper`: tokens, mean NLL, and log q under every exponent."""
    n, device = len(temper), nll.network.device
    power = torch.from_numpy(exponents).to(torch.float32)
    own = torch.from_numpy(temper)
    tokens = torch.empty(n, length, dtype=torch.int64)
    log_p = torch.zeros(n, dtype=torch.float64)
    log_q = torch.zeros(n, len(exponents), dtype=torch.float64)
    past: Any = None
    if nll.start_token is None:
        tokens[:, 0] = torch.randint(nll.vocabulary, (n,), generator=generator)
        log_q -= math.log(nll.vocabulary)
        read, first = tokens[:, :1], 1
    else:
        read, first = torch.full((n, 1), nll.start_token), 0
    for position in range(first, length):
        out = nll.network(input_ids=read.to(device), past_key_values=past, use_cache=True)
        past = out.past_key_values
        logits = out.logits[:, -1, : nll.vocabulary].float().cpu()
        tempered = torch.log_softmax(logits[:, None, :] * power[None, :, None], dim=-1)  # (n, exponents, vocabulary)
        probabilities = tempered[torch.arange(n), own].exp()
        read = torch.multinomial(probabilities, 1, generator=generator)
        tokens[:, position] = read[:, 0]
        log_q += tempered.gather(2, read[:, None, :].expand(n, len(exponents), 1)).squeeze(2).double()
        log_p += torch.log_softmax(logits, dim=-1).gather(1, read).squeeze(1).double()
    nll.evaluations += n
    return tokens.numpy(), (-log_p / (length - first)).numpy(), log_q.numpy()


@dataclass(frozen=True)
class Density:
    """How many inputs of the whole space a model gives a loss in each bin: its density of states.

    Attributes
    ----------
    edges
        ``(k + 1,)`` of NLL (nats a token).
    log10_count, log10_low, log10_high
        ``(k,)`` inputs in the bin, and the interval by bootstrap over chains; -inf where none was met.
    n
        ``(k,)`` draws behind each.
    """

    edges: NDArray[np.float64]
    log10_count: NDArray[np.float64]
    log10_low: NDArray[np.float64]
    log10_high: NDArray[np.float64]
    n: NDArray[np.int64]


def density_of_states(
    drawn: Generated, edges: ArrayLike, *, level: float = 0.95, n_resamples: int = 500, seed: int = 0
) -> Density:
    """Count the inputs of the whole space in bins of loss.

    Parameters
    ----------
    drawn
        Of one model.
    edges
        ``(k + 1,)`` of NLL.
    level, n_resamples, seed
        Of the interval by bootstrap over chains.
    """
    edges = checked_edges(edges)
    place = bin_of(drawn.nll, edges)
    k, n_chains = len(edges) - 1, int(drawn.chain.max()) + 1
    log_sums = np.full((n_chains, k), -np.inf)
    for bin_ in range(k):
        for one in range(n_chains):
            rows = (place == bin_) & (drawn.chain == one)
            if rows.any():
                log_sums[one, bin_] = logsumexp(drawn.log_weight[rows])
    drawn_chains = np.random.default_rng(seed).integers(n_chains, size=(n_resamples, n_chains))
    resampled = logsumexp(log_sums[drawn_chains], axis=1) / math.log(10)
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2], axis=0, method="nearest")
    count = logsumexp(log_sums, axis=0) / math.log(10)
    return Density(edges, count, low, high, np.bincount(place[place >= 0], minlength=k))


def log10_number(drawn: Generated, where: NDArray[np.bool_]) -> float:
    """Return the log10 of the number of inputs of the whole space for which `where` (``(n,)`` over draws) holds."""
    if not where.any():
        return -math.inf
    return float(logsumexp(drawn.log_weight[where]) / math.log(10))
