"""Where a divergence is over what a model writes: against a space that is listed, and planted lines and groups."""

import itertools

import numpy as np
import pytest
from scipy import special

from provlab.modeldiff import excess, where, written
from provlab.modeldiff.reading import Reading
from provlab.modeldiff.representative import Direction, Draws

VOCABULARY, LENGTH = 4, 4
EVERYTHING = np.array(list(itertools.product(range(VOCABULARY), repeat=LENGTH)))


def laws(seed, sharp):
    """A law of the next token for each prefix, ``{prefix: (4,)}``."""
    rng = np.random.default_rng(seed)
    return {
        prefix: rng.dirichlet(np.full(VOCABULARY, sharp))
        for n in range(LENGTH)
        for prefix in itertools.product(range(VOCABULARY), repeat=n)
    }


def readings(a, b, rows):
    """Losses of each token under A and B, and KL(A || B) of its law."""
    losses = np.empty((2, len(rows), LENGTH))
    divergence = np.empty((len(rows), LENGTH))
    for r, row in enumerate(rows.tolist()):
        for place, token in enumerate(row):
            p, q = (law[tuple(row[:place])] for law in (a, b))
            losses[:, r, place] = -np.log([p[token], q[token]])
            divergence[r, place] = p @ np.log(p / q)
    return losses, divergence


@pytest.fixture(scope="module")
def listed():
    """Two laws; losses and divergences of all 256 outputs."""
    return readings(laws(0, 1.0), laws(1, 1.0), EVERYTHING)


def of_a(listed, rows, log_weight=None):
    """What A writes, by draws of some law."""
    losses, divergence = (values[..., rows, :] for values in listed)
    nll = losses.mean(axis=2)
    log_weight = -np.log(len(rows)) + LENGTH * nll[0] if log_weight is None else log_weight
    draws = Draws(EVERYTHING[rows], nll[0], log_weight, np.arange(len(rows)) % 20, 20)
    outputs = written.by_law(draws, nll[1], "A", LENGTH)
    return writes(outputs, losses[0] - losses[1], divergence)


def writes(outputs, by_token, divergence, own=None):
    """What a model writes, behind one opening, by its draws."""
    own = np.ones(len(outputs), dtype=bool) if own is None else own
    draws, at = outputs.draws, np.zeros(len(outputs), dtype=np.int64)
    return written.Written(outputs, draws.tokens, by_token, divergence, own, draws.nll, at)


def test_the_divergence_and_its_half_are_those_of_the_listed_space(listed):
    losses, divergence = listed
    law = np.exp(-losses[0].sum(axis=1))
    whole = law @ (losses[1] - losses[0]).sum(axis=1)
    nats = divergence.sum(axis=1)
    assert law @ nats == pytest.approx(whole)  # chain rule
    order = np.argsort(-nats)
    truth = law[order][: (np.cumsum((law * nats)[order]) < whole / 2).sum() + 1].sum()
    rng, held, half, width = np.random.default_rng(0), 0, 0, []
    for _ in range(60):
        drawn = of_a(listed, rng.choice(256, 2000, p=law / law.sum()))
        mean, share = drawn.mean(), drawn.half()[0]
        held += mean[1] <= whole / LENGTH <= mean[2]
        half += share[1] - 0.01 <= truth <= share[2] + 0.01  # one output of the 256 is up to a hundredth
        losses_alone = drawn.outputs.difference
        width.append((mean[2] - mean[1]) / (4 * losses_alone.std() / len(losses_alone) ** 0.5))
    assert held >= 53
    assert half >= 53
    assert np.median(width) < 0.6  # of an interval by the log ratios of whole outputs


def test_draws_of_another_law_are_weighted(listed):
    """Drawn uniformly, each of 256 stands for itself."""
    losses, divergence = listed
    drawn = of_a(listed, np.arange(256), np.zeros(256))
    law = np.exp(-losses[0].sum(axis=1))
    assert LENGTH * drawn.mean()[0] == pytest.approx(law @ divergence.sum(axis=1))
    rows = EVERYTHING[:, 0] == 2
    assert drawn.share(rows)[0] == pytest.approx(law[rows].sum())
    carried = (law * divergence.sum(axis=1))[rows].sum() / (law @ divergence.sum(axis=1))
    assert drawn.share_of_divergence(rows)[0] == pytest.approx(carried)
    share, disputed = drawn.half()
    assert drawn.share(disputed)[0] == pytest.approx(share[0])
    assert drawn.share_of_divergence(disputed)[0] >= 0.5


def test_intervals_of_few_draws_with_a_heavy_tail_hold_the_truth():
    """60 draws of 20 chains, log-normal nats: the plain chain bootstrap (planted) holds less often.

    A gate at the truth fails in no more than one of twenty, and one at a fifth of it finds the mean above that; by half
    of the width (planted once), of which the tail makes the most, it often did not.
    """
    rng, held, plain, half = np.random.default_rng(3), 0, 0, 0
    wrong, found = 0, 0
    truth, sigma = float(np.exp(1.6**2 / 2)), 1.6
    share = special.ndtr(special.ndtri(0.5) - sigma)  # of a log-normal law, what carries half: Phi(Phi^-1(1/2) - sigma)
    for _ in range(300):
        nats = rng.lognormal(0.0, sigma, 60)
        everywhere = np.ones(60, dtype=bool)
        draws = Draws(np.arange(60)[:, None], np.zeros(60), np.zeros(60), np.arange(60) % 20, 20)
        outputs = Direction("A", -nats, np.ones(60), everywhere, draws.chain, 20, draws=draws)
        drawn = writes(outputs, nats[:, None], nats[:, None])
        _, low, high = mean = drawn.mean()
        held += low <= truth <= high
        wrong += excess.above(mean, truth, 19) <= 0.05
        found += excess.above(mean, truth / 5, 19) <= 0.05
        _, low, high = drawn._ratio(nats, np.ones(60), 0)
        plain += low <= truth <= high
        _, low, high = drawn.half()[0]
        half += low <= share <= high
    assert held / 300 > 0.87
    assert held > plain + 5
    assert half / 300 > 0.95
    assert wrong / 300 < 0.05
    assert found / 300 > 0.95


def test_a_text_is_weighed_as_if_it_were_written_and_either_model_may_dispute_it():
    """By hand: two models of 30 pieces, apart at one piece, where A's loss is higher, and at another, where B's is."""
    loss = np.full((2, 30, 2), 1.0, np.float32)
    loss[0, 7, 1], loss[1, 9, 0] = 5.0, 3.0
    divergence = np.zeros((2, 2, 30, 2), np.float32)
    divergence[0, 1, 7, 1], divergence[1, 0, 7, 1], divergence[1, 0, 9, 0] = 2.0, 4.0, 1.0
    read = Reading(np.arange(60).reshape(30, 2), loss, divergence)
    text = written.of_text(read, np.zeros(30, dtype=np.int64))
    assert text.nats[7] == pytest.approx(3.0)  # the mean of both
    assert (text.toward[7, 1], text.toward[9, 0]) == (4.0, 2.0)
    assert [line.row for line in written.lines(text, 5, seed=0)] == [7, 9]
    assert text.outputs.n_chains == 10  # three neighbours each
    assert text.share(text.nats > 1)[0] == pytest.approx(1 / 30)


def memorised(n=600, side="B"):
    """20-token outputs of noise; a fiftieth are one line, which the other model gives 5 nats a token less."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 50, (n, 20))
    line = np.arange(20) + 20
    copies = np.arange(0, n, 50)
    tokens[copies] = line
    tokens[copies[1:], 19] = 3  # near copies
    toward = rng.normal(0.05, 0.3, (n, 20))
    toward[copies] = 5.0
    divergence = np.full((n, 20), 0.05)
    divergence[copies] = 5.0
    sign = 1 if side == "B" else -1
    draws = Draws(tokens, np.full(n, 3.0), np.zeros(n), np.arange(n) % 20, 20)
    everywhere = np.ones(n, dtype=bool)
    outputs = Direction(side, sign * toward.mean(axis=1), np.ones(n), everywhere, draws.chain, 20, draws=draws)
    return writes(outputs, sign * toward, divergence), copies


@pytest.mark.parametrize("side", ["A", "B"])
def test_a_memorised_line_is_first_and_shown_once(side):
    drawn, copies = memorised(side=side)
    first, second, *_ = written.lines(drawn, 5, seed=0)
    assert first.row in copies
    assert second.row not in copies  # its near copies are it
    assert first.nats == pytest.approx(100)
    assert first.share[0] == pytest.approx(len(copies) / 600)
    carried = 100 * len(copies) / (100 * len(copies) + 600 - len(copies))
    assert first.divergence[0] == pytest.approx(carried, rel=1e-6)
    half, _ = drawn.half()
    assert half[0] <= len(copies) / 600


def test_what_a_model_hardly_writes_is_no_line_of_its():
    drawn, copies = memorised()
    other = writes(drawn.outputs, drawn.by_token, drawn.divergence, ~np.isin(np.arange(600), copies))
    assert all(line.row not in copies for line in written.lines(other, 5, seed=0))


@pytest.mark.parametrize("side", ["A", "B"])
def test_groups_are_told_by_the_tokens_that_carry_the_difference(side):
    """The other model has lost token 2 in a tenth of the outputs, and token 3 in another."""
    rng, n, sign = np.random.default_rng(0), 900, 1 if side == "B" else -1
    tokens = rng.choice([0, 1, 4, 5], (n, 5))
    tokens[:100, 2:4], tokens[100:200, 1] = 2, 3
    toward = np.where(np.isin(tokens, [2, 3]), 6.0, -0.01)
    draws = Draws(tokens, np.full(n, 1.0), np.zeros(n), np.arange(n) % 20, 20)
    everywhere = np.ones(n, dtype=bool)
    outputs = Direction(side, sign * toward.mean(axis=1), np.ones(n), everywhere, draws.chain, 20, draws=draws)
    drawn = writes(outputs, sign * toward, np.maximum(toward, 0.01))
    _, disputed = drawn.half(0.99)
    groups = where.groups(drawn, disputed, n_members=2, seed=0)
    for token, share, carried in ((2, 1 / 9, 2 / 3), (3, 1 / 9, 1 / 3)):
        own = [group for group in groups if token in tokens[group.heaviest[0]]]
        assert sum(group.share[0] for group in own) == pytest.approx(share, abs=0.02)
        assert sum(group.divergence[0] for group in own) == pytest.approx(carried, abs=0.03)
        assert all(tokens[group.first[:2]] == token and group.first[2] == 1.0 for group in own)
        assert all((tokens[group.rows] == token).any(axis=1).all() for group in own)
    assert where.first_parting(drawn, ~disputed) is None


def test_a_normal_log_ratio_gives_the_share_of_its_mean():
    """By draws: of variance 2 K about K, as the ratio of two laws has the mean 1."""
    draws = np.random.default_rng(0).normal(2.0, 2.0, 200_000)  # K = 2
    assert np.exp(-draws).mean() == pytest.approx(1, abs=0.05)
    assert written.if_normal(2.0) == pytest.approx((draws > 0).mean(), abs=0.005)
    assert written.if_normal(0.0) == 0.5
    assert written.if_normal(2.0) == special.ndtr(1.0)
