"""How far apart two models are, in nats, and how much of it a second training of one recipe would give as well.

Any two different laws find what they write themselves more likely than the other does, in the mean (Gibbs' inequality);
for inputs of many tokens nearly all of them are then "less likely". That share alone says nothing. The distance in nats
(the Kullback-Leibler divergence) does, beside the distance of two models that differ by their seed.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from provlab.files import digest
from provlab.kept import Arrays, Kept
from provlab.modeldiff.bootstrap import LEVEL, percentiles
from provlab.modeldiff.composition import label_share
from provlab.modeldiff.pipeline import Model, judged
from provlab.modeldiff.representative import Direction, Draws, Side

N_GROUPS = 20  # neighbouring pieces of text, which resemble each other, are one of so many groups


def divergences(a: Model, b: Model, tokens: NDArray[np.integer[Any]], kept: Kept) -> NDArray[np.float64]:
    """Divergences of the laws of the next token, mean over the places of each sequence (nats per token).

    Returns
    -------
    ndarray
        ``(n, 2)``: KL(A || B) and KL(B || A).
    """

    def measure() -> Arrays:
        parts = []
        ids = a.nll.checked(tokens, shortest=2)
        for (_, p), (_, q) in zip(a.nll.laws(ids), b.nll.laws(ids), strict=True):
            ratio = (p - q.to(p.device)).double()
            both = [(law.exp() * sign * ratio).sum(dim=-1).mean(dim=1) for law, sign in ((p, 1), (q.to(p.device), -1))]
            parts.append(np.stack([side.cpu().numpy() for side in both], axis=1))
        result = np.concatenate(parts)
        a.nll.refuse_non_finite(result)
        return {"kl": result}

    key = {"a": a.key, "b": b.key, "tokens": digest(tokens.tolist())}
    return kept.get("divergences", key, measure)["kl"]


def mean_of(values: NDArray[np.float64]) -> list[float]:
    """Mean and its 95% interval of ``(n,)`` values in the order of the text: Student's, over means of neighbours."""
    groups = np.array([part.mean() for part in np.array_split(values, min(N_GROUPS, len(values)))])
    mean, n = float(values.mean()), len(groups)
    reach = float(groups.std(ddof=1)) / math.sqrt(n) * special.stdtrit(n - 1, (1 + LEVEL) / 2) if n > 1 else math.inf
    return [mean, mean - reach, mean + reach]


@dataclass(frozen=True)
class Reference:
    """A model of A's recipe with another seed, as far from A as a second training goes.

    Attributes
    ----------
    model
        Its source.
    forth, back
        KL(A || it) and KL(it || A) where the models read, each as value, low, high (nats per token).
    excess
        By how much the mean of both divergences is larger between A and B, piece against piece.
    beyond
        Share of A's inputs in Z that B finds less likely than the reference does; half, if B is no farther from A.
        None where A has none.
    log10_beyond
        Log10 of how many inputs these are.
    """

    model: str
    forth: list[float]
    back: list[float]
    excess: list[float]
    beyond: list[float] | None
    log10_beyond: float | None


@dataclass(frozen=True)
class Apart:
    """How far B is from A where both read the same tokens, beside references.

    Attributes
    ----------
    where
        What they read, in words.
    forth, back
        KL(A || B) and KL(B || A), value, low, high (nats per token).
    both
        The mean of the two.
    references
        One for each model that was given.
    """

    where: str
    forth: list[float]
    back: list[float]
    both: list[float]
    references: tuple[Reference, ...] = ()

    @property
    def excess(self) -> list[float]:
        """Distance of A and B less that of A and the farthest reference; the whole distance where there is none."""
        return min((row.excess for row in self.references), default=self.both)

    @property
    def rank_p(self) -> float | None:
        """Chance of B ranking so high among the references if it were one of them (their seeds are exchangeable)."""
        if not self.references:
            return None
        return (1 + sum(row.excess[0] <= 0 for row in self.references)) / (1 + len(self.references))


def apart(
    a: Model,
    b: Model,
    references: list[Model],
    tokens: NDArray[np.integer[Any]],
    where: str,
    inputs: Direction,
    kept: Kept,
) -> Apart:
    """Compare the distance of two models with that of references from the first.

    Parameters
    ----------
    a, b
        The two models.
    references
        Models of A's recipe.
    tokens, where
        ``(n, length)`` what all of them read, neighbours side by side, and what it is.
    inputs
        A's inputs in Z.
    kept
        Where divergences and losses are kept.
    """
    of_b = divergences(a, b, tokens, kept)
    rows = []
    for model in references:
        of_it = divergences(a, model, tokens, kept)
        beyond = log10 = None
        if inputs.draws is not None and inputs:
            # D = NLL_A - NLL_B: the loss under B is that under A less D
            farther = inputs.draws.nll - inputs.difference > judged(model, inputs.draws.tokens, kept)
            beyond = list(inputs.share(farther))
            log10 = float(inputs.log10_count(inputs.weight[farther].sum())) if farther.any() else None
        excess = mean_of((of_b - of_it).mean(axis=1))
        rows.append(Reference(model.source, mean_of(of_it[:, 0]), mean_of(of_it[:, 1]), excess, beyond, log10))
    forth, back = (mean_of(side) for side in of_b.T)
    return Apart(where, forth, back, mean_of(of_b.mean(axis=1)), tuple(rows))


def written(draws: Draws, other: NDArray[np.float64], side: Side, predictions: int) -> Direction:
    """Return what a model writes, each sequence as often as the model at its own temper writes it.

    Parameters
    ----------
    draws
        The draws of the model.
    other
        ``(n,)`` their loss under the other one.
    side
        Whose they are.
    predictions
        Tokens of a sequence that are judged.
    """
    log_weight = draws.log_weight - predictions * draws.nll
    difference = draws.nll - other if side == "A" else other - draws.nll
    weight, everywhere = np.exp(log_weight - log_weight.max()), np.ones(len(other), dtype=bool)
    return Direction(side, difference, weight, everywhere, draws.chain.astype(np.int64), draws.n_chains, draws=draws)


def price(own: Direction, predictions: int, *, seed: int) -> dict[str, Any]:
    """Return what the other model's law costs on what a model writes, and the share that it finds less likely.

    Returns
    -------
    dict
        ``extra`` the mean of its additional loss (nats per token), an estimate of the divergence, and ``less_likely``
        the share, both as value, low, high; ``by_gibbs`` the share that follows from the divergence alone: since the
        ratio of two laws has mean 1 under the second one, a normal log ratio with mean K has the variance 2 K, and is
        positive with the chance Phi(sqrt(K / 2)).
    """
    losses = -own.difference if own.side == "A" else own.difference
    means = label_share(own, losses, np.ones(len(losses), dtype=bool), seed=seed)
    low, high = percentiles(means[1:], own.n_chains)
    return {
        "extra": [float(means[0]), float(low), float(high)],
        "less_likely": list(own.share(own.disagreement, seed=seed)),
        "by_gibbs": float(special.ndtr(math.sqrt(max(0.0, predictions * float(means[0])) / 2))),
    }
