r"""When both models' inputs must lie on one side: an identity, and chains of tokens where every number in it is exact.

For an exponent b let A_b be the law with probability exp(-b L_A(x)) / Z_A(b), L_A(x) the loss of a whole input under A
(Equation 4 of the paper at the temperature 1 / ((N - 1) b)), and B_b alike. With d = L_B - L_A and Lambda the log of
Z_A / Z_B,

    b E_A[d] = Lambda + KL(A_b || B_b),        b E_B[d] = Lambda - KL(B_b || A_b).

Both models' inputs have D < 0 in the mean, D = -d / (N - 1), if and only if Lambda > KL(B_b || A_b). At b = 1 both laws
are normalised, so Lambda = 0, and no two models are one-sided, however well they are trained.

Where the models are chains, each token depending on the one before alone, all of it follows from products of matrices.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

Table = NDArray[np.float64]
_SIZE = 60  # tokens of a chain


@dataclass(frozen=True)
class Sides:
    """Both sides of the identity at one exponent.

    Attributes
    ----------
    world, copy, noise, exponent
        Which chain, number of its copy, standard deviation of the noise on its logits, and b.
    ratio
        Lambda = log Z_A(b) / Z_B(b).
    forth, back
        KL(A_b || B_b) and KL(B_b || A_b), in nats an input.
    mean_a, mean_b
        E_A[d] and E_B[d]: what an input costs B more than A, over inputs of A_b and of B_b.
    """

    world: str
    copy: int
    noise: float
    exponent: float
    ratio: float
    forth: float
    back: float
    mean_a: float
    mean_b: float

    @property
    def side(self) -> int:
        """1 where inputs of both have D < 0 in the mean, -1 where D > 0, 0 where two-sided."""
        return 1 if min(self.mean_a, self.mean_b) > 0 else -1 if max(self.mean_a, self.mean_b) < 0 else 0

    @property
    def predicted(self) -> int:
        """The same by the theorem: Lambda against the two divergences."""
        return 1 if self.ratio > self.back else -1 if -self.ratio > self.forth else 0

    @property
    def off(self) -> float:
        """How far the identity is from holding (nats): rounding."""
        errors = (
            self.exponent * self.mean_a - self.ratio - self.forth,
            self.exponent * self.mean_b - self.ratio + self.back,
        )
        return max(map(abs, errors))


def chain(size: int, certainty: float, *, seed: int) -> Table:
    """Logits of the next token by the one before, ``(size, size)``: one follows with a probability, the others alike.

    The likely ones make one circle of all tokens, in an order of the seed.
    """
    order = np.random.default_rng(seed).permutation(size)
    logits = np.zeros((size, size))
    logits[order, np.roll(order, -1)] = math.log(certainty / (1 - certainty) * (size - 1))
    return logits


def sides(
    a: Table, b: Table, *, length: int, exponent: float, world: str = "", copy: int = 0, noise: float = 0.0
) -> Sides:
    """Compute both sides of the identity for two chains, whose first token is any with like probability.

    Parameters
    ----------
    a, b
        Logits ``(size, size)``: of the next token (column) by the one before (row).
    length
        Tokens of an input.
    exponent
        b of the laws that inputs are drawn from.
    world, copy, noise
        Kept with the result.
    """
    logs = [log_softmax(table, axis=1) for table in (a, b)]  # log p(next | before)
    laws = [_tempered(exponent * log, length) for log in logs]
    (pairs_a, first_a, steps_a, z_a), (pairs_b, first_b, steps_b, z_b) = laws
    apart = logs[0] - logs[1]  # what a pair of tokens costs B more
    return Sides(
        world, copy, noise, exponent, z_a - z_b,
        _divergence((pairs_a, first_a, steps_a), (first_b, steps_b)),
        _divergence((pairs_b, first_b, steps_b), (first_a, steps_a)),
        float((pairs_a * apart).sum()), float((pairs_b * apart).sum()),
    )  # fmt: skip


def _tempered(scores: Table, length: int) -> tuple[Table, Table, list[Table], float]:
    """The law of chains with weight exp(sum of scores): sums of its pairs, its first token, its steps, log Z."""
    ahead = [np.zeros(len(scores))]  # log of the weight of all endings, by the token before them
    for _ in range(length - 1):
        ahead.append(logsumexp(scores + ahead[-1], axis=1))
    log_z = float(logsumexp(ahead[-1]))
    here = np.exp(ahead[-1] - log_z)  # law of the first token
    first, pairs, steps = here, np.zeros_like(scores), []
    for after, before in zip(ahead[-2::-1], ahead[:0:-1], strict=True):
        step = scores + after - before[:, None]  # log law of the next token
        joint = here[:, None] * np.exp(step)
        pairs += joint
        steps.append(step)
        here = joint.sum(axis=0)
    return pairs, first, steps, log_z


def _divergence(law: tuple[Table, Table, list[Table]], other: tuple[Table, list[Table]]) -> float:
    """KL of two laws of chains by the chain rule, without their normalisers."""
    _, first, steps = law
    result, here = float(first @ (np.log(first) - np.log(other[0]))), first
    for own, theirs in zip(steps, other[1], strict=True):
        joint = here[:, None] * np.exp(own)
        result += float((joint * (own - theirs)).sum())
        here = joint.sum(axis=0)
    return result


def table(
    worlds: dict[str, float], noises: list[float], exponents: list[float], *, copies: int, length: int, seed: int
) -> list[Sides]:
    """Noisy copies of chains at several exponents.

    Parameters
    ----------
    worlds
        Name of a chain to the probability of the likely token (`chain`).
    noises
        Standard deviations of the noise on logits.
    exponents
        Those of the laws that inputs are drawn from.
    copies
        How many of each chain and noise.
    length
        Tokens of an input.
    seed
        The seed of the chains and the noise.
    """
    rows = []
    for place, (world, certainty) in enumerate(worlds.items()):
        base = chain(_SIZE, certainty, seed=seed + place)
        for noise in noises:
            for copy in range(copies):
                rng = np.random.default_rng([seed, place, copy, round(1e9 * noise)])
                other = base + noise * rng.standard_normal(base.shape)
                rows += [
                    sides(base, other, length=length, exponent=b, world=world, copy=copy, noise=noise)
                    for b in exponents
                ]
    return rows
