"""What embeddings say of two residual streams: in order, in any order, and in any basis."""

from itertools import combinations
from math import comb, factorial, log10

import numpy as np
import pytest

from provlab import compare
from provlab.attacks.disguise import disguise
from provlab.engine.pairs import open_models, run_pairs
from provlab.errors import NotComparableError
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics import get, phi_e
from provlab.statistics.options import Options
from provlab.statistics.phi_e import PhiAxes

NAMES = ("phi_e", "phi_axes", "stream_score")
VOCABULARY, WIDTH = 400, 40


def table(rows):
    return rows.astype(np.float32), np.arange(len(rows))


def compared(name, a, b, seed=0):
    statistic = get(name)
    sides = table(a), table(b)
    if name == "stream_score":  # of models that were not run
        sides = tuple((side, [], np.arange(len(side[0]))) for side in sides)
    return statistic.aggregate([statistic.compare_block(*sides, None, Options(seed=seed))])


def language(rng, width=WIDTH, share=0.5):
    """A table of which a share is what all that learned one language know, in a basis of its own."""
    common = np.random.default_rng(0).standard_normal((VOCABULARY, 12))
    own = rng.standard_normal((VOCABULARY, width))
    return share * common @ rng.standard_normal((12, width)) / 12**0.5 + (1 - share) * own


def rotation(rng, width=WIDTH):
    return np.linalg.qr(rng.standard_normal((width, width)))[0]


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def test_kin_and_what_hides_them(rng):
    base = language(rng)
    child = base + 0.1 * rng.standard_normal(base.shape)
    order, signs = rng.permutation(WIDTH), rng.choice([-1.0, 1.0], WIDTH)
    ways = {
        "as it is": child,
        "permuted": child[:, order],
        "signs": 3 * child[:, order] * signs,
        "rotated": child @ rotation(rng),
    }
    result = {way: {name: compared(name, base, made) for name in NAMES} for way, made in ways.items()}
    floor = -log10(factorial(WIDTH))
    assert result["as it is"]["phi_e"].log10_p == pytest.approx(floor) == result["as it is"]["phi_e"].reach
    for way in ("permuted", "signs", "rotated"):
        assert result[way]["phi_e"].log10_p > -4, way
    for way in ("as it is", "permuted", "signs"):
        assert result[way]["phi_axes"].value == 1.0
        assert result[way]["phi_axes"].log10_p == result[way]["phi_axes"].reach < -50
    assert result["rotated"]["phi_axes"].log10_p == 0
    for way in ways:
        assert result[way]["stream_score"].value > 0.9
        assert result[way]["stream_score"].log10_p is None


def test_strangers_of_one_language(rng):
    """Sizes: phi_e's by the law of independent matchings, the axes' none, as no bound is ever near."""
    tables = [language(rng) for _ in range(25)]
    pairs = list(combinations(tables, 2))
    p = np.array([compared("phi_e", a, b, seed).log10_p for seed, (a, b) in enumerate(pairs)])
    for level, most in ((0.05, 28), (0.01, 10), (0.001, 4)):  # binomial of 300, at the level and one in 1,000
        assert (p <= np.log10(level)).sum() <= most
    assert all(compared("phi_axes", a, b).value == 0 for a, b in pairs)
    scores = [compared("stream_score", a, b).value for a, b in pairs[:40]]
    assert 0 < np.mean(scores) < 0.5  # no p-value: strangers share what both know


@pytest.mark.parametrize("share", [0.3, 0.45])
@pytest.mark.parametrize("kind", ["loud", "turned", "loud and turned"])
def test_rows_of_tokens_that_no_text_has_decide_no_score(rng, kind, share):
    """They cost nothing to change, and once a few long ones took the score of a copy to nought."""
    base = language(rng)
    copy = base @ rotation(rng)
    some = rng.permutation(VOCABULARY)[: round(share * VOCABULARY)]
    copy[some] = copy[some] @ rotation(rng) if "turned" in kind else rng.standard_normal((len(some), WIDTH))
    copy[some] *= 100 if "loud" in kind else 1
    assert compared("stream_score", base, copy).value > 0.9


def test_rounds_go_on_until_the_tokens_are_settled(rng):
    """Almost half of the rows point the other way: four rounds gave 0.3, as they had not found which half it is."""
    base = rng.standard_normal((10 * VOCABULARY, WIDTH))
    copy = (base + rng.standard_normal(base.shape)) @ rotation(rng)
    copy[: round(0.49 * len(copy))] *= -1
    assert compared("stream_score", base, copy).value > 0.45


@pytest.mark.parametrize("kin", [False, True])
def test_two_rotations_do_where_no_row_was_turned_apart(rng, monkeypatch, kin):
    base = language(rng)
    other = base @ rotation(rng) + rng.standard_normal(base.shape) / 2 if kin else language(rng)
    made = []
    whitener = phi_e._whitener
    monkeypatch.setattr(phi_e, "_whitener", lambda table: made.append(table) or whitener(table))
    compared("stream_score", base, other)
    assert len(made) == 2 * 2  # a rotation of all, one of the better half; for either half of the tokens


def test_one_half_of_many_tokens_says_what_both_say(rng, monkeypatch):
    base = language(rng)
    base = base[rng.integers(VOCABULARY, size=phi_e._MANY)] + rng.standard_normal((phi_e._MANY, WIDTH))
    copy = (base + rng.standard_normal(base.shape)) @ rotation(rng)
    single = compared("stream_score", base, copy).value
    monkeypatch.setattr(phi_e, "_MANY", len(base) + 1)
    both = compared("stream_score", base, copy).value
    assert single != both == pytest.approx(single, abs=0.01)


def test_the_bound_holds_of_turned_tables(rng):
    """So few dimensions that chance finds some again; one table against itself, turned: they know all alike."""
    width = 19
    base = table(rng.standard_normal((VOCABULARY, width)))
    turned = [table(base[0] @ rotation(rng, width)) for _ in range(1000)]
    p = 10 ** np.array([PhiAxes().compare_block(base, other, None, Options()).log10_p for other in turned])
    assert (p < 1).mean() > 0.01
    for level in sorted(set(p)):
        assert (p <= level).mean() <= level


def test_the_bound_by_hand():
    """C(3, 2) C(4, 2) 2! 2^(-(2 + 1) / 2), and one dimension alone where that is less."""
    from provlab.statistics.phi_e import _log10_p

    assert _log10_p(2, (3, 4), 0) == pytest.approx(min(0.0, log10(36 * 2**-1.5)))
    item, two = 40 * 40 * 2**-19.5, comb(40, 2) ** 2 * 2 * 2 ** -((39 + 38) / 2)
    assert _log10_p(1, (40, 40), 0) == pytest.approx(log10(item))
    assert _log10_p(2, (40, 40), 0) == pytest.approx(log10(two))
    assert _log10_p(2, (40, 40), 2) == 0.0  # allowed for


def test_padding_and_dead_dimensions(rng):
    base = language(rng)
    padded = np.zeros((VOCABULARY, WIDTH + 10))
    padded[:, rng.permutation(WIDTH + 10)[:WIDTH]] = base
    assert compared("phi_axes", base, padded).value == 1.0
    assert compared("phi_axes", padded, base).log10_p < -40
    assert compared("stream_score", padded, base).value == pytest.approx(1.0)
    dead = base.copy()
    dead[:, 3] = 0
    result = compared("phi_e", base, dead)
    assert result.log10_p < -30
    assert result.detail.dropped == [0, 1]


def test_models_by_the_strings_of_their_tokens(models, tmp_path):
    anew = str(tmp_path / "anew")
    disguise(Checkpoint.open(models["tuned"]), tmp_path / "anew", seed=1, kinds=["vocabulary", "extend", "pad"])
    sources = [models["base"], models["tuned"], anew, models["stranger"]]
    records = run_pairs(open_models(sources), NAMES, Options(), progress=False)
    result = {(r.a, r.b, r.statistic): r.outcome for r in records}
    for name in NAMES:
        kin, other = result[models["base"], models["tuned"], name], result[models["base"], anew, name]
        assert other.value == pytest.approx(kin.value, abs=0.05)
        stranger = result[models["base"], models["stranger"], name]
        assert kin.value > 0.5 > stranger.value
        if name != "stream_score":
            assert max(kin.log10_p, other.log10_p) < -5  # padding makes for more places
            assert stranger.log10_p > -2


def test_a_comparison_shows_how_many_dimensions_agree(models):
    result = compare(models["base"], models["tuned"], statistics=list(NAMES), progress=False)
    assert result.to_frame()["agree"].dropna().tolist() == [1.0, 1.0]
    assert result._repr_html_()


def test_what_all_tokens_have_in_common_makes_no_kin(rng):
    """Behind a block rows share a position, and what a model keeps at the first place of a text."""
    loud = [language(rng) + 50 * rng.standard_normal(WIDTH) for _ in range(2)]
    assert compared("stream_score", *loud).value < 0.5
    assert compared("stream_score", loud[0], loud[0] @ rotation(rng)).value > 0.99


@pytest.fixture(scope="module")
def coded(models, tmp_path_factory):
    """A copy whose table stands in an uneven basis, which a block in front undoes; one more with empty ones before."""
    made = {name: tmp_path_factory.mktemp("coded") / name for name in ("coded+T3", "coded+front=4")}
    for name, folder in made.items():
        disguise(Checkpoint.open(models["base"]), folder, seed=1, kinds=name.split("+"))
    return [str(folder) for folder in made.values()]


def test_a_block_in_front_hides_no_table(models, coded, monkeypatch):
    def outcome(*pair):
        return run_pairs(open_models(list(pair)), ["stream_score"], Options(), progress=False)[0].outcome

    found = outcome(models["base"], coded[0])
    assert found.value > 0.99
    assert found.detail.said == "stream_score was read behind 0 blocks of one and 1 of the other."
    assert outcome(coded[0], models["base"]).value == pytest.approx(found.value, abs=1e-3)
    assert outcome(coded[0], models["stranger"]).value < 0.5
    assert outcome(models["base"], coded[1]).value < 0.7  # more empty blocks than it reads: it says nothing
    monkeypatch.setattr(phi_e.StreamScore, "BLOCKS", 5)
    monkeypatch.setattr(phi_e.StreamScore, "version", -1)  # as nothing else tells the passes apart
    assert outcome(models["base"], coded[1]).value > 0.99


def test_the_score_of_a_table_alone_is_as_of_a_model_that_is_not_run(models, monkeypatch):
    def refuse(*_):
        raise NotComparableError("not run")

    pair = [models["base"], models["tuned"]]
    (whole,) = run_pairs(open_models(pair), ["stream_score"], Options(), progress=False)
    monkeypatch.setattr(phi_e, "behind_blocks", refuse)
    (alone,) = run_pairs(open_models(pair), ["stream_score"], Options(), progress=False)
    assert alone.outcome.value == pytest.approx(whole.outcome.value, abs=0.05)
    assert alone.outcome.value > 0.5


def test_too_few_tokens_in_common(rng):
    base = language(rng)
    other = (base.astype(np.float32), np.arange(VOCABULARY) + VOCABULARY - 10)
    with pytest.raises(NotComparableError, match="share 10 tokens, fewer than the residual stream has dimensions"):
        get("phi_e").compare_block(table(base), other, None, Options())


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1.0, 1e20, 1e37])
def test_the_stream_score_knows_no_scale(rng, scale):
    base = language(rng)
    assert compared("stream_score", base, base * scale).value == pytest.approx(1.0, abs=1e-5)
    assert compared("stream_score", base, base * scale).value <= 1.0


@pytest.mark.parametrize("at_once", [2**14, 30])
def test_on_a_device_the_score_is_that_of_the_cpu(rng, at_once, as_device, monkeypatch):
    monkeypatch.setattr(phi_e, "_SENT", at_once)
    base = language(rng)
    child = (base + 0.1 * rng.standard_normal(base.shape)) @ rotation(rng)
    for other in (child, language(np.random.default_rng(7)), child[:, :30]):
        there = compared("stream_score", base, other).value
        with monkeypatch.context() as patch:
            patch.setattr("provlab.arrays.at_home", lambda device: True)
            here = compared("stream_score", base, other).value
        assert there == pytest.approx(here, rel=1e-5)
    assert as_device >= {"_cosines", "beside"}
