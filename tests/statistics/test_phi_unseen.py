"""phi_UNSEEN: what is found through a cover, what is not, and how often independent tables are rejected."""

from math import factorial, log10

import numpy as np
import pytest
from tables import UNSEEN, WIDTH, WORDS, added, trained, tuned, turned

from provlab.arrays import on
from provlab.errors import NotComparableError
from provlab.statistics import get, phi_unseen
from provlab.statistics.options import Options
from provlab.statistics.phi_unseen import LEAST, untrained

FLOOR = -log10(factorial(UNSEEN))


def table(rows, spelt=None):
    rows = np.asarray(rows, np.float32)
    return rows, np.arange(len(rows)) if spelt is None else spelt


def compared(a, b, seed=0):
    return get("phi_unseen").compare_block(table(a), table(b), None, Options(seed=seed))


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.mark.parametrize("push", [0, 8])
def test_found_through_every_cover_of_the_stream(rng, push):
    """Tuned, and rotated, scaled, or with a wider stream; also where the embedding is the head, which pushes rows."""
    base = trained(rng, push=push)
    child = tuned(rng, base)
    wider = np.hstack([child, np.zeros((len(child), 16))])
    covered = {"as it is": child, "rotated": turned(rng, child), "scaled": 3.7 * child, "wider": turned(rng, wider)}
    for way, other in covered.items():
        for result in (compared(base, other), compared(other, base)):
            assert result.log10_p == pytest.approx(FLOOR), way
            assert result.detail.agree == UNSEEN


def test_a_narrower_stream(rng):
    base = trained(rng)
    assert compared(base, turned(rng, base)[:, :24]).log10_p < FLOOR / 2


KINDS = {
    "usual": {},
    "narrow and wide": {"width": 24},
    "much language": {"share": 10.0},
    "little decay": {"decay": 1.0},
    "much decay": {"decay": 0.1},
    "pushed": {"push": 8.0},
}


@pytest.mark.parametrize("kind", KINDS)
def test_independent_tables_are_rejected_as_often_as_said(kind):
    """100 pairs; a test of the size that it states passes these bounds in less than one case of 1,000."""
    rng = np.random.default_rng(2)
    sides = [(trained(rng), trained(rng, **KINDS[kind])) for _ in range(100)]
    p = np.array([compared(*pair, seed).log10_p for seed, pair in enumerate(sides)])
    for level, most in ((0.05, 13), (0.01, 5), (0.001, 2)):
        assert (p <= np.log10(level)).sum() <= most, level


def test_an_order_by_length_is_no_agreement(rng):
    """Unseen rows of both models sorted by their lengths, which nothing but the numbers of the tokens shows."""
    sides = []
    for _ in range(40):
        pair = [trained(rng), trained(rng)]
        for rows in pair:
            rows[WORDS:] = rows[WORDS:][np.linalg.norm(rows[WORDS:], axis=1).argsort()]
        sides.append(compared(*pair).log10_p)
    assert (np.array(sides) <= -2).sum() <= 4


def test_what_looks_untrained_is(rng):
    for settings in ({}, {"decay": 0.1}, {"push": 8.0}, {"width": 64}):
        rows = trained(rng, **settings)
        ids, mean = untrained(rows.astype(np.float32))
        assert (ids >= WORDS).sum() >= 0.9 * UNSEEN
        assert (ids < WORDS).mean() < 0.1, settings
        assert np.linalg.norm(mean) == pytest.approx(1)
        turned_ids, _ = untrained(turned(rng, rows).astype(np.float32))
        assert np.array_equal(ids, turned_ids)


def test_where_all_tokens_were_trained_none_is_taken(rng, monkeypatch):
    """Two models of one language whose rarest tokens agree: a test of these would reject."""
    a, b = (trained(rng)[:WORDS] for _ in range(2))
    assert len(untrained(a.astype(np.float32))[0]) < LEAST
    with pytest.raises(NotComparableError, match=rf"needs {LEAST} tokens that look untrained in both .* it found 0 \("):
        compared(a, b)
    # the plant: taken nevertheless, they agree
    monkeypatch.setattr(phi_unseen, "untrained", lambda rows: (np.arange(WORDS - 60, WORDS), np.zeros(WIDTH)))
    assert compared(a, b).log10_p < -2


def test_rows_that_were_set_are_not_taken(rng):
    rows = trained(rng)
    rows[-20:-10], rows[-10:] = 0, 0.01
    ids, _ = untrained(rows.astype(np.float32))
    assert len(set(range(WORDS, WORDS + UNSEEN - 20)) & set(ids)) >= 30
    assert not set(ids) & set(range(WORDS + UNSEEN - 20, WORDS + UNSEEN))


def test_tokens_are_paired_by_their_spellings(rng):
    base = trained(rng)
    order = rng.permutation(len(base))
    other = tuned(rng, base)[order]
    statistic = get("phi_unseen")
    assert statistic.compare_block(table(base), table(other, order), None, Options()).log10_p == pytest.approx(FLOOR)
    with pytest.raises(NotComparableError, match="it found"):  # other tokens have these numbers
        statistic.compare_block(table(base), table(other), None, Options())


def test_tokens_added_to_one_model_hide_nothing(rng):
    """Their rows are nearly those of others, unseen ones too."""
    base = trained(rng)
    child = tuned(rng, base)
    like = child[rng.integers(len(child), size=300)]
    added = np.vstack([child, like + 0.05 * rng.standard_normal(like.shape)])
    assert compared(base, added).log10_p == pytest.approx(FLOOR)


def test_rows_redrawn_silence_it_and_rows_copied_fool_it(rng):
    base, stranger = trained(rng), trained(rng)
    redrawn, framed = tuned(rng, base), stranger.copy()
    redrawn[WORDS:] = 0.8 * rng.standard_normal((UNSEEN, WIDTH))
    left, _, right = np.linalg.svd(base[:WORDS].T @ stranger[:WORDS])
    framed[WORDS:] = base[WORDS:] @ left @ right
    assert compared(base, redrawn).log10_p > -3
    assert compared(base, framed).log10_p == pytest.approx(FLOOR)


# Rows that a framework drew ------------------------------------------------------------------------------------------


def strangers(rng, n, **settings):
    return [(trained(rng, **settings), trained(rng, **settings)) for _ in range(n)]


def test_rows_added_with_one_seed_are_not_counted(rng):
    """As they stand they are equal; the streams are not."""
    for a, b in strangers(rng, 12):
        result = compared(added(a), added(b))
        assert result.log10_p > -3
        assert "untrained tokens are not counted by phi_unseen" in result.detail.said
        assert result.detail.n <= UNSEEN
        assert np.isfinite(compared(added(a), added(b, seed=43)).log10_p)


def test_where_only_added_rows_are_untrained_there_is_no_evidence(rng):
    a, b = trained(rng)[:WORDS], trained(rng)[:WORDS]
    with pytest.raises(NotComparableError, match=r"has no evidence: 6[0-4] of 6. .* One seed drew them after training"):
        compared(added(a), added(b))


def test_many_added_rows_do_not_turn_the_streams(rng, monkeypatch):
    """Longer than unseen ones they pass for trained, and Procrustes would be theirs: then short ones agree."""
    sides = [added(added(rows, 600, 1, std=3.0), 64, 2) for rows in (trained(rng), trained(rng))]
    assert compared(*sides).log10_p > -3
    monkeypatch.setattr(phi_unseen, "of_the_streams", lambda raw: np.ones(len(raw), dtype=bool))
    assert compared(*sides).log10_p < -4


def test_kin_with_added_rows_are_found(rng):
    """Related streams explain that rows are parallel; turned streams too, where the added rows turned with them."""
    base = added(trained(rng))
    child = tuned(rng, base)
    child[-64:] = 0.9 * base[-64:]
    for other in (child, turned(rng, child)):
        result = compared(base, other)
        assert result.log10_p == pytest.approx(-log10(factorial(result.detail.n)))
        assert result.detail.said is None


@pytest.mark.parametrize("near", [3e-5, 0.0])
def test_rows_set_to_the_mean_of_all_hide_nothing(rng, near):
    """As `resize_token_embeddings` makes them by default: the mean of the others, and next to no noise."""

    def resized(rows):
        noise = near * np.random.default_rng(42).standard_normal((64, rows.shape[1]))
        return np.vstack([rows, rows.mean(axis=0) + noise * rows.std(axis=0)])

    base = trained(rng)
    base += 0.3 * rng.standard_normal(WIDTH)
    result = compared(resized(base), resized(tuned(rng, base)))
    assert result.log10_p == pytest.approx(FLOOR)
    assert compared(resized(base), resized(trained(rng))).log10_p > -3


# Large vocabularies --------------------------------------------------------------------------------------------------


def test_of_many_untrained_tokens_some_are_drawn(rng, monkeypatch):
    monkeypatch.setattr(phi_unseen, "MOST", 40)
    base = trained(rng)
    result = compared(base, tuned(rng, base))
    assert result.detail.n == 40
    assert result.detail.said == f"phi_unseen drew 40 of {UNSEEN} untrained tokens."
    assert result.log10_p == pytest.approx(-log10(factorial(40)))
    p = np.array([compared(*pair, seed).log10_p for seed, pair in enumerate(strangers(rng, 60))])
    assert (p <= np.log10(0.05)).sum() <= 9


def test_time_and_memory_of_an_early_checkpoint_are_linear_in_the_vocabulary(rng):
    """All rows untrained: 128,256 of them took 66 GB to match."""
    import tracemalloc

    peaks = []
    for size in (16_032, 128_256):
        sides = [rng.standard_normal((size, 64)).astype(np.float32) for _ in range(2)]
        tracemalloc.start()
        result = compared(*sides)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert result.detail.n == phi_unseen.MOST
    assert peaks[1] < 8 * peaks[0]
    assert peaks[1] < 400e6


def test_on_a_device_the_streams_are_aligned_as_on_the_cpu(rng, as_device, monkeypatch):
    base = trained(rng)
    child, stranger = turned(rng, tuned(rng, base)), trained(np.random.default_rng(7))
    monkeypatch.setattr(phi_unseen, "_CHUNK", 30)
    sent = []
    monkeypatch.setattr(phi_unseen, "on", lambda device: lambda rows: sent.append(len(rows)) or on(device)(rows))
    for other in (child, stranger):
        there = compared(base, other)
        with monkeypatch.context() as patch:
            patch.setattr("provlab.arrays.at_home", lambda device: True)
            here = compared(base, other)
        assert there.log10_p == here.log10_p
    assert max(sent) == 30
