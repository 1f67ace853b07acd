"""Whether a change is larger than another seed's: against laws that are known, and sizes over many sets of seeds."""

import itertools
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from provlab.kept import ArrayCache
from provlab.modeldiff import excess, nll, reading
from provlab.modeldiff.nll import SequenceNll, sequence_nll

LENGTH = 4
EVERYTHING = np.array(list(itertools.product(range(4), repeat=LENGTH)))


@pytest.fixture(scope="module")
def models(gpt2):
    """Four tiny models behind a start token, so that laws of whole sequences sum to one."""
    return [
        SimpleNamespace(nll=sequence_nll(gpt2(k), start=[1]), key={"k": k}, source=f"m{k}", bar=lambda steps, *_: steps)
        for k in range(4)
    ]


@pytest.fixture(scope="module")
def read(models, tmp_path_factory):
    return reading.read(models, EVERYTHING, ArrayCache(tmp_path_factory.mktemp("read")))


def test_what_is_read_is_the_losses_and_the_divergences_of_the_laws(models, read, monkeypatch):
    """Weighted by A's own law, the divergences of next tokens add up to the divergence of whole sequences."""
    losses = [model.nll(EVERYTHING) for model in models]
    np.testing.assert_allclose(read.nll, losses, atol=1e-6)
    logs = [-LENGTH * loss for loss in losses]
    for i, j in itertools.permutations(range(4), 2):
        law = np.exp(logs[i])
        assert LENGTH * law @ read.distances[i, j] == pytest.approx(law @ (logs[i] - logs[j]), rel=1e-4)
    assert (read.divergence >= 0).all()
    assert (read.divergence[0, 0] == 0).all()
    monkeypatch.setattr(models[0].nll, "read", lambda *_, **__: (torch.full((256, LENGTH - 1, 4), torch.nan), None))
    with pytest.raises(Exception, match="NaN or Inf"):
        reading.measure([model.nll for model in models], EVERYTHING)


def test_no_laws_are_held_while_the_next_are_made(models, monkeypatch):
    """Reading by m models holds m laws at a time, each a number for every token of the vocabulary, and not 2 m."""
    made, alive, make = [], [], SequenceNll._laws

    def watched(self, *arguments):
        alive.append(sum(law() is not None for law in made))
        laws = make(self, *arguments)
        made.append(weakref.ref(laws))
        return laws

    monkeypatch.setattr(SequenceNll, "_laws", watched)
    monkeypatch.setattr(nll, "_TOKENS", 32 * LENGTH)
    reading.measure([model.nll for model in models], EVERYTHING)
    assert alive == [0, 1, 2, 3] * (len(EVERYTHING) // 32)


@pytest.mark.parametrize("near", [1, 7 * 50, 1 << 16])
def test_divergences_are_those_of_the_definition_however_many_laws_are_taken_at_once(near, monkeypatch):
    rng = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2, 6, 5, 50, generator=rng)
    logits[:, 0, 0, 3] = -torch.inf  # a token that neither has: it adds nothing
    logits[1, 1] = logits[0, 1]  # equal laws
    p, q = torch.log_softmax(logits, dim=-1)
    monkeypatch.setitem(reading._NEAR, "cpu", near)
    measured = reading.divergences(p, q).numpy()
    for k, (first, second) in enumerate([(p, q), (q, p)]):
        terms = first.double().exp() * torch.nan_to_num(first.double() - second.double())
        np.testing.assert_allclose(measured[k], terms.sum(dim=-1).numpy(), rtol=1e-5, atol=1e-6)
    assert measured.shape == (2, 6, 5)
    assert (measured[:, 1] == 0).all()
    assert (measured >= 0).all()
    q[2, 2] = torch.nan
    assert reading.divergences(p, q)[1, 2, 2].isnan()  # the law itself is NaN: measure refuses it


def test_distances_beside_references_are_means_and_quantiles_over_the_pieces(read):
    distance = excess.apart(read.distances, "all", ["m2", "m3"])
    each = (read.distances + read.distances.swapaxes(0, 1)) / 2
    both, tails = each.mean(axis=2), np.quantile(each, 0.99, axis=2)
    assert distance.both[0] == pytest.approx(both[0, 1])
    assert distance.references[1].farther[0] == pytest.approx(both[0, 1] - both[0, 3])
    np.testing.assert_allclose(distance.among.means, both.sum(axis=1)[1:] / 3)
    np.testing.assert_allclose(distance.among.tails, tails.sum(axis=1)[1:] / 3)
    np.testing.assert_allclose(distance.among.from_a, both[0, 1:])
    alone = excess.apart(read.distances[:2, :2], "all", [])
    assert (alone.among, alone.excess) == (None, alone.both)
    assert alone.p(0.0) < 1e-6 < 0.5 < alone.p(2 * alone.both[0])


def of_means(*means):
    """B and references of which the mean alone is known."""
    return excess.Among(means, (1.0,) * len(means), means)


def test_the_test_among_references_by_hand():
    """k = 2: references at 1 and 3, B at 5 is 3 above their mean; two thirds of what is B's own make the difference.

    Less 2.9 nats B is at 5 - 1.93, the farthest; less 3.1 it is not.
    """
    among = of_means(5.0, 1.0, 3.0)
    assert [among.p(size) for size in (0.0, 2.9, 3.1, 100.0)] == [1 / 3, 1 / 3, 2 / 3, 1]
    assert among.excess[0] == pytest.approx(3 / (1 - 1 / 3))  # B's own distance is a third of each reference's mean
    t = 3 / (np.sqrt(2) * np.sqrt(3 / 2))
    assert among.t_p(0.0) == pytest.approx(0.5 - np.arctan(t) / np.pi)  # Student's law of one degree
    assert of_means(0.5, 1.0).p(0.0) == 1
    assert of_means(5.0, 1.0).excess[1:] == [-np.inf, np.inf]  # one reference has no spread
    assert among.t_p(among.excess[0]) == pytest.approx(0.5)


def test_the_tail_finds_what_the_mean_does_not():
    """B's mean is below the others', and its tail three times theirs."""
    among = excess.Among((0.9, 1.0, 1.1, 1.0), (6.0, 2.0, 2.1, 1.9), (0.9, 1.0, 1.1, 1.0))
    assert among.p() == 1 / 4
    assert (among.to_json()["rank_p_mean"], among.to_json()["rank_p_tail"]) == (1.0, 1 / 4)
    assert (
        excess.Among((2.0, 1.0, 1.1), (1.0, 1.0, 1.1), (2.0, 1.0, 1.1)).p() == 1 / 3
    )  # and the mean what the tail does not


def test_a_small_change_is_none_that_far_references_tell_of():
    assert excess.Among((0.5, 0.6, 0.6), (1.0, 1.0, 1.0), (0.05, 0.54, 0.55)).small
    assert not excess.Among((0.5, 0.6, 0.6), (1.0, 1.0, 1.0), (0.4, 0.54, 0.55)).small


def seeds(rng, n, spread=0.035, rest=0.02):
    """Distances of n seeds: a part of either and a rest, 7% in all."""
    own = rng.normal(0, spread, n)
    table = 1 + own[:, None] + own + np.triu(rng.normal(0, rest, (n, n)), 1)
    table = np.triu(table, 1)
    return table + table.T


def among_seeds(table, tails=None):
    """A, B and seeds by their tables of distances."""
    of = [tuple(t.sum(axis=1)[1:] / (len(t) - 1)) for t in (table, table if tails is None else tails)]
    return excess.Among(*of, tuple(table[0, 1:]))


@pytest.mark.parametrize("k", [1, 2, 3, 5, 9, 19])
@pytest.mark.parametrize("far", [0.0, 0.05])
def test_one_more_seed_passes_as_rarely_as_the_level_says(k, far):
    """1,000 sets each, also where one seed in twenty lies far out; then Student's t (planted) has no level."""
    rng, fired, by_t = np.random.default_rng(100 + k), 0, 0
    for _ in range(1000):
        own = np.where(rng.random(k + 2) < far, 0.3, 0.0)
        table = seeds(rng, k + 2) + own[:, None] + own
        np.fill_diagonal(table, 0)
        among = among_seeds(table, 3 * seeds(rng, k + 2, 0.2, 0.1))
        fired += among.p(0.0) <= among.least
        by_t += k > 1 and among.t_p(0.0) <= 0.01
    assert fired / 1000 == pytest.approx(1 / (k + 1), abs=3 * (1 / (k + 1) / 1000) ** 0.5)
    if far and k >= 3:
        assert by_t / 1000 > 0.025


def test_a_sibling_passes_as_rarely_as_the_level_says():
    """A is the centre of all: it is nearer to each than they are to each other, and is not ranked."""
    rng, fired, with_a = np.random.default_rng(1), 0, 0
    for _ in range(1000):
        table = seeds(rng, 5)
        table[0] *= 0.5
        table[:, 0] *= 0.5
        fired += among_seeds(table).p() <= 1 / 4
        means = table.sum(axis=1) / 4
        with_a += (means >= means[1]).mean() <= 1 / 5  # planted: as if A were one of them
    assert fired / 1000 == pytest.approx(1 / 4, abs=0.041)
    assert with_a / 1000 > 1 / 5 + 0.02


@pytest.mark.parametrize("k", [2, 3, 5, 9])
def test_a_change_is_found_and_its_interval_holds_it(k):
    """1,000 sets each, where distances are normal."""
    rng, noticed, held = np.random.default_rng(k), 0, 0
    for _ in range(1000):
        table = seeds(rng, k + 2)
        table[1, :] += 0.3
        table[:, 1] += 0.3
        np.fill_diagonal(table, 0)
        changed = among_seeds(table)
        noticed += changed.p(0.0) <= changed.least
        held += changed.excess[1] <= 0.3 <= changed.excess[2]
    assert held / 1000 == pytest.approx(0.95, abs=0.021)
    assert noticed / 1000 > 0.95


def test_a_mean_above_a_size_by_its_interval():
    """Student's interval of 19 degrees is 2.093 errors to either side: at 3 errors above, p is 0.0037."""
    assert excess.above([3.0, 3 - 2.0930, 3 + 2.0930], 0.0, 19) == pytest.approx(0.00368, rel=1e-2)
    assert excess.above([3.0, 1.0, 5.0], 3.0, 19) == pytest.approx(0.5)
    assert excess.above([3.0, 1.0, 30.0], 1.0, 19) == pytest.approx(0.025)  # however far the other end is
    assert excess.above([3.0, -20.0, 5.0], 5.0, 19) == pytest.approx(0.975)
    assert excess.above([3.0, -np.inf, np.inf], 0.0, 19) == 1
    assert (excess.above([1.0, 1.0, 1.0], 0.5, 19), excess.above([1.0, 1.0, 1.0], 1.0, 19)) == (0, 1)


def test_intervals_allow_for_neighbours_that_resemble_each_other():
    """Pieces of a text drift together: an interval that takes them as independent covers far too seldom."""
    rng, n, held, plain = np.random.default_rng(1), 500, 0, 0
    for _ in range(400):
        values = np.repeat(rng.normal(size=100), 5) + rng.normal(size=n)
        _, low, high = excess.mean_of(values)
        held += low < 0 < high
        plain += abs(values.mean()) < 1.96 * values.std(ddof=1) / n**0.5
    assert 0.92 < held / 400 < 0.98
    assert plain / 400 < 0.85


@pytest.mark.parametrize("n", [2, 6, 14, 15, 24, 60])
def test_few_pieces_have_an_interval_that_holds_or_none(n):
    """Neighbours are correlated by 0.3, as losses of neighbouring pieces of prose are."""
    rng, held = np.random.default_rng(n), 0
    if n < 15:
        assert excess.mean_of(rng.normal(size=n))[1:] == [-np.inf, np.inf]
        return
    for _ in range(600):
        noise = rng.normal(size=n + 1)
        _, low, high = excess.mean_of(noise[1:] + 0.34 * noise[:-1])
        held += low <= 0 <= high
    assert 0.9 < held / 600 < 0.98
