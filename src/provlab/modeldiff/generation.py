"""Inputs by the model's own generation, each with its known probability: exact draws, where a model can write.

A causal model writes a sequence token by token and knows how likely each choice was, so the probability q(x) of all
that it wrote is exact, and 1 / q(x) is an unbiased count of inputs: sums of it over draws estimate how many inputs of
the whole space lie in any range of loss, in absolute numbers, from draws that are independent of each other. Written at
the model's own temperature, with a uniform first token that nothing predicts, q(x) depends on the mean loss z alone,

    q(x) = exp(-(length - 1) z) / vocabulary,

which is Equation 4 of the paper at T = 1 / (length - 1): inside any range Z the weights are bounded. Behind a start
token or a prompt all tokens are predicted, and q(x) = exp(-length z). Colder draws reach lower losses; all draws
together are weighted by the mixture they came from (the balance heuristic of multiple importance sampling, Veach and
Guibas 1995).

This is no part of the paper, which has Markov chains only. It needs no convergence and shares nothing with a chain but
the model, so that each checks the other.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy.special import logsumexp

from provlab.errors import InputError
from provlab.kept import Arrays
from provlab.modeldiff.nll import SequenceNll
from provlab.modeldiff.representative import Draws

#: sequences written side by side, if they fit: on a GPU a step of few takes as long as one of many
AT_ONCE = {"cpu": 512, "cuda": 2048}


def write(nll: SequenceNll, n: int, length: int, *, tempers: Sequence[float], seed: int) -> Arrays:
    """Let a model write one chain, see `write_chains`."""
    return write_chains(nll, n, length, tempers=tempers, seeds=[seed])[0]


def write_chains(
    nll: SequenceNll, n: int, length: int, *, tempers: Sequence[float], seeds: Sequence[int]
) -> list[Arrays]:
    """Let a model write chains of about `n` sequences, a like number at each temper, all side by side.

    Parameters
    ----------
    nll
        The model; a first token that nothing predicts is uniform.
    n, length
        Sequences of a chain, rounded up to as many of each temper, and tokens in each.
    tempers
        Exponents of the model's conditional distributions, normalised at each position: 1 is the model's own, above is
        colder. One must be at most 1, so that no part of the space is left out but by chance.
    seeds
        One for each chain.

    Returns
    -------
    list of dict of ndarray
        For each chain ``tokens`` ``(n, length)``, ``nll`` ``(n,)``, the mean token NLL (nats), and ``log_q`` ``(n,)``,
        the log probability under the mixture of tempers; `join` weighs those of several chains together.

    Raises
    ------
    InputError
        A parameter is out of range, or `length` exceeds the model's context.
    """
    exponents = np.array(checked_tempers(tempers))
    if n < 1:
        raise InputError(f"n must be at least 1, not {n}")
    if nll.context is not None and nll.context < 2:
        raise InputError(
            f"what stands before an input has {len(nll.start):,} tokens and fills the context of {nll.name}; give a "
            "shorter prompt"
        )
    if length < 2 or (nll.context is not None and length > nll.context):
        raise InputError(f"length must be from 2 to {nll.context}, the context of {nll.name}, not {length}")
    k, each = len(exponents), -(-n // len(exponents))
    # each row is drawn by its own exponent, which stands first, and judged by all
    of_chain = torch.from_numpy(np.stack([np.roll(exponents, -own) for own in np.repeat(np.arange(k), each)]))
    generators = [nll.generator(seed) for seed in seeds]
    rows = len(of_chain)
    prefixes = [torch.empty(rows, 0, dtype=torch.int64) if len(nll.start) else nll.first(rows, g) for g in generators]
    places = length - prefixes[0].shape[1]
    chances = torch.cat([nll.chances(rows, places, generator) for generator in generators])
    prefix, by_row = torch.cat(prefixes), of_chain.repeat(len(seeds), 1)
    parts, at_once = [], _at_once(nll, length, k)
    for some in torch.arange(len(by_row)).split(at_once):
        written = nll.write_on(prefix[some], length, by_row[some], chances[some.to(chances.device)])
        tokens, log_p, log_q = (part.cpu().numpy() for part in written)
        parts.append((tokens, -log_p / nll.predictions(length), log_q + nll.log_first))
    tokens, losses, log_q = (np.concatenate(part) for part in zip(*parts, strict=True))
    # every temper wrote a like number, so the mixture is their plain mean
    mixed = logsumexp(log_q, axis=1) - math.log(k)
    chains = [slice(i * rows, (i + 1) * rows) for i in range(len(seeds))]
    return [{"tokens": tokens[chain], "nll": losses[chain], "log_q": mixed[chain]} for chain in chains]


def write_stacked(nll: SequenceNll, n: int, length: int, *, tempers: Sequence[float], seeds: Sequence[int]) -> Arrays:
    """Let a model write chains, see `write_chains`; one array of each kind, chain by chain, to be kept."""
    chains = write_chains(nll, n, length, tempers=tempers, seeds=seeds)
    return {name: np.stack([chain[name] for chain in chains]) for name in chains[0]}


def side_by_side(nll: SequenceNll, n: int, length: int, n_chains: int, n_tempers: int) -> int:
    """How many chains of `n` sequences are written side by side: as many as are held at once, and at least one."""
    return max(1, min(n_chains, _at_once(nll, length, n_tempers) // n))


def _at_once(nll: SequenceNll, length: int, n_tempers: int) -> int:
    """How many sequences are written side by side."""
    most = AT_ONCE.get(nll.network.device.type, AT_ONCE["cpu"])
    return min(most, nll.at_once(length, n_tempers * nll.vocabulary))


def checked_tempers(tempers: Sequence[float]) -> tuple[float, ...]:
    """Return exponents in rising order, none twice; raise InputError unless they are positive and one is at most 1."""
    exponents = tuple(sorted(set(map(float, tempers))))
    if not exponents or not all(0 < temper < math.inf for temper in exponents) or exponents[0] > 1:
        raise InputError(f"tempers must be positive numbers and the least of them at most 1, not {list(tempers)}")
    return exponents


def join(chains: Sequence[Arrays]) -> Draws:
    """Weigh what several chains of one model wrote: each draw stands for 1 / (n q(x)) inputs, n of all chains."""
    if len(chains) < 2 or len({len(chain["nll"]) for chain in chains}) > 1:
        raise InputError("join needs two or more chains of equally many draws")
    tokens, nll, log_q = (np.concatenate([chain[name] for chain in chains]) for name in ("tokens", "nll", "log_q"))
    chain = np.repeat(np.arange(len(chains)), len(chains[0]["nll"]))
    return Draws(tokens, nll, -log_q - math.log(len(nll)), chain, len(chains))


def chain_seeds(seed: int, n_chains: int) -> list[int]:
    """Return one seed for each chain, the same for a chain however many there are."""
    return [int(np.random.SeedSequence([seed, chain]).generate_state(1)[0]) for chain in range(n_chains)]
