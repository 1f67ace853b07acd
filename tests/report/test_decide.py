"""The rule of a verdict: what it was before, where it differs and why, and what no further test may do to it."""

import hashlib
from collections import Counter
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from planted import comparison, record

from provlab.report import decide
from provlab.report.decide import NOT_REJECTED, ORDER, OUTCOMES, REJECTED, REJECTIONS, ROWS, SAME, UNTESTED
from provlab.statistics import flaws, get
from provlab.statistics.results import BlockResult

NAMES = ("phi_u", "phi_h", "phi_match", "phi_match_unsigned", "phi_unseen", "phi_e", "phi_anchor")
IN_ORDER, OF_ROWS = {"phi_u", "phi_h", "phi_e"}, {"phi_unseen", "phi_e"}
STANDING = {"phi_match_unsigned", "phi_anchor"}
ON_TEXT = {"phi_match", "phi_match_unsigned", "phi_anchor"}
#: SHA-256 of the outcomes of all combinations, a line each, of the code of 28 November 2026
FROZEN = "3d437accb0e4efe32996123a9c7fca532e5c44868dc3ae53010c2181b04dad87"


def holm(log10_p):
    worst, adjusted = -np.inf, {}
    for k, name in enumerate(sorted(log10_p, key=log10_p.__getitem__)):
        worst = max(worst, log10_p[name] + np.log10(len(log10_p) - k))
        adjusted[name] = worst
    return adjusted


def before(log10_p, reach, unread, kin, stream, moved):
    """The rule as it was, written anew: seven lists, and a branch for each."""
    rejecting = {name for name, p in holm(log10_p).items() if p <= -2}
    able = {n for n in log10_p if reach[n] <= -2 - np.log10(max(len(log10_p) - len(rejecting), 1))}
    if rejecting - IN_ORDER - OF_ROWS:
        return REJECTED
    if rejecting:
        return ROWS if rejecting - IN_ORDER else ORDER
    silent = not STANDING & able
    in_place = not silent and not able & (OF_ROWS | (set() if moved else STANDING)) and not stream
    return UNTESTED if silent or in_place or kin or unread else NOT_REJECTED


def planted_test(name, log10_p, reach=-300.0, *, moved=False):
    reads = {"text": name in ON_TEXT, "places": moved and name not in OF_ROWS}
    return decide.Test(name, get(name).evidence, frozenset(what for what, so in reads.items() if so), log10_p, reach)


def now(log10_p, reach, unread, kin, stream, moved):
    """The rule as it is; a stream score that is not that of kin is no part of it."""
    adjusted = holm(log10_p)
    able = {name: reach[name] + np.log10(len(log10_p)) for name in log10_p}
    tests = [planted_test(name, adjusted[name], able[name], moved=moved) for name in log10_p]
    return decide.decide(tests, disguises(unread), kin=["figure"] * kin).outcome


def disguises(unread=False):
    return [*flaws.FREE, flaws.OF_PAIR["places"], *[flaws.OF_PAIR["text"]] * unread]


def every_combination():
    """Seven tests at two p-values, one of them perhaps unable; what is known of the pair."""
    for size in range(1, 8):
        for names in combinations(NAMES, size):
            for values in product((-0.2, -20.0), repeat=size):
                log10_p = dict(zip(names, values, strict=True))
                for unable in (False, True):
                    none = {"phi_match_unsigned"} if unable else set()
                    reach = {name: 0.0 if name in none and p > -2 else -300.0 for name, p in log10_p.items()}
                    for known in product((0, 1), repeat=4):
                        yield log10_p, reach, *known


def test_every_difference_to_the_rule_before_has_a_name():
    """Frozen by a digest of what the code gave; 69,952 combinations."""
    digest, differ = hashlib.sha256(), Counter()
    for combination in every_combination():
        old, new = before(*combination), now(*combination)
        digest.update(f"{old}\n".encode())
        if old != new:
            log10_p, *_, stream, moved = combination
            assert (old, new, moved) == (NOT_REJECTED, UNTESTED, 1)
            rows = OF_ROWS & log10_p.keys()
            differ["the stream score looked beyond places" if stream else f"{bool(rows)}: rows did"] += 1
    assert digest.hexdigest() == FROZEN
    assert differ == {"True: rows did": 120, "the stream score looked beyond places": 160}


@pytest.mark.parametrize("unread", [False, True])
@pytest.mark.parametrize("kin", [False, True])
def test_the_silence_of_a_test_that_an_open_disguise_hides_from_says_nothing_and_one_that_sees_through_closes(
    unread, kin
):
    """Whatever stands beside it, at places or not: all sets of tests that do not reject, and one test more."""
    kinds = [planted_test(name, -0.2, moved=moved) for name in NAMES for moved in (False, True)]
    kinds.append(planted_test("phi_anchor", -0.2, 0.0))  # it could say nothing
    open_here, figures = disguises(unread), ["figure"] * kin
    sees = {test: test.able and all(decide.seen(flaw, test) for flaw in open_here) for test in kinds}
    for size in range(4):
        for tests in combinations(kinds, size):
            alone = decide.decide(tests, open_here, kin=figures).outcome
            for test in kinds:
                beside = decide.decide([*tests, test], open_here, kin=figures).outcome
                assert beside == (NOT_REJECTED if sees[test] and not kin else alone)
    assert any(sees.values()) != unread


def test_the_silence_of_a_test_that_no_row_knows_says_nothing():
    unknown = decide.Test("phi_mine", "units", frozenset(), -0.3, -300.0)
    assert decide.decide([unknown], flaws.FREE).outcome == UNTESTED
    assert decide.decide([decide.Test("phi_mine", "units", frozenset(), -9.0, -300.0)], flaws.FREE).outcome == REJECTED


def test_the_files_and_the_function_stand_above_the_tests():
    small = planted_test("phi_u", -9.0)
    assert decide.decide([small], (), same=True).outcome == SAME
    assert decide.decide([small], (), same=True, identical=True).outcome == OUTCOMES[0]
    assert decide.decide([small], (), beside=[planted_test("phi_match", -9.0)]).outcome == REJECTED
    assert decide.decide([], flaws.FREE, beside=[planted_test("phi_match", -9.0)]).outcome == UNTESTED
    assert set(REJECTIONS) < set(OUTCOMES)


#: what a record of all blocks with all says
MET = {"shape": [4, 4]}


def in_blocks(name, n=4, **outcome):
    """A record of n blocks of one index, or of all with all."""
    item = record(name, -0.2, **outcome)
    blocks = tuple(BlockResult(k, 0.1, -0.2, -300.0) for k in range(n))
    return type(item)(item.a, item.b, name, type(item.outcome)(0.1, -0.2, blocks, -300.0, None, item.outcome.detail))


@pytest.mark.parametrize(
    ("records", "outcome"),
    [
        ([in_blocks("phi_match_unsigned")], UNTESTED),
        ([in_blocks("phi_match_unsigned"), record("phi_unseen", -0.2)], UNTESTED),  # rows are drawn again for nothing
        ([in_blocks("phi_match_unsigned"), record("phi_e", -0.2)], UNTESTED),
        ([in_blocks("phi_match_unsigned"), record("stream_score", None)], UNTESTED),
        (
            [in_blocks("phi_match_unsigned"), in_blocks("phi_u", all_blocks=MET)],
            UNTESTED,
        ),  # units in another order
        ([in_blocks("phi_match_unsigned", all_blocks=MET)], NOT_REJECTED),
        ([in_blocks("phi_match_unsigned"), in_blocks("phi_anchor", all_blocks=MET)], NOT_REJECTED),
        ([in_blocks("phi_match_unsigned", 2)], NOT_REJECTED),  # no block of two can be moved
    ],
)
def test_who_met_all_blocks_closes_that_they_were_moved(records, outcome):
    """A record says so itself. The second fault was that a test of rows, or a stream score, closed it as well."""
    result = comparison({})
    assert type(result)(result.models, tuple(records), result.options).outcome == outcome


@pytest.mark.parametrize("score", [0.0, 0.2, 0.49])
@pytest.mark.parametrize(
    "tests",
    [
        {"phi_u": -0.3},
        {"phi_match_unsigned": -0.2},
        {"phi_unseen": -0.2, "phi_e": -0.2},
        {"phi_u": -0.3, "phi_match_unsigned": -0.2, "phi_unseen": -0.1},
    ],
)
def test_a_low_stream_score_lifts_no_guard(tests, score):
    """A table in an uneven basis has one, at no cost of quality; a high one keeps a pair from *not rejected*."""
    result = comparison(tests)
    outcomes = {}
    for value in (score, 0.9):
        item = record("stream_score", None)
        scored = replace(item, outcome=replace(item.outcome, value=value))
        outcomes[value] = replace(result, records=(*result.records, scored)).outcome
    assert outcomes == {score: result.outcome, 0.9: UNTESTED}
