"""Results of statistics: what is kept of them is read back as it was, whichever version kept it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from provlab.engine.store import Store
from provlab.engine.table import ResultCache
from provlab.errors import NotComparableError, ParameterError
from provlab.inference import pvalues
from provlab.statistics import get
from provlab.statistics.aggregate import aggregated
from provlab.statistics.options import Options
from provlab.statistics.results import (
    NAMES,
    BlockResult,
    Detail,
    MissingDetailError,
    Outcome,
    floor,
    reachable,
    silence,
)

KEPT = {
    "block": 2,
    "value": 0.5,
    "log10_p": -3.0,
    "reach": 0.0,
    "why": "silenced",
    "detail": {"n": 8, "agree": 3, "order": [{}, {}]},
}
MEASURED = {
    "block": None,
    "value": 0.1,
    "log10_p": None,
    "reach": 0.0,
    "why": None,
    "detail": {"kept": 7, "rows": 9, "readable": True},
}


@pytest.mark.parametrize("record", [KEPT, MEASURED])
def test_a_record_is_read_back_as_it_was_kept(record):
    result = BlockResult.from_record(record)
    assert json.loads(json.dumps(result.as_record())) == record
    assert BlockResult.from_record(result.as_record()) == result


def test_what_is_no_field_is_the_statistics_own():
    assert BlockResult.from_record(MEASURED).detail == Detail(own={"kept": 7, "rows": 9, "readable": True})


def test_a_field_under_own_is_refused_since_it_would_be_read_back_as_the_field():
    with pytest.raises(ParameterError, match="own holds n, which is a field of Detail"):
        Detail(own={"n": 3})


def test_a_store_gives_back_a_result_with_its_matching(tmp_path):
    cache = ResultCache(Store(tmp_path), get("phi_u"), Options())
    result = BlockResult(2, 0.5, -3.0, -0.8, detail=Detail(n=3, agree=1), matching=np.array([2, 0, 1]))
    cache.store.put("ab", result.as_record(), result.matching)
    kept = cache.get("ab")
    assert kept == result
    assert kept.matching.tolist() == [2, 0, 1]


def test_details_are_joined_and_the_second_says_what_both_know():
    joined = Detail(n=4, agree=1, own={"a": 1}) | Detail(agree=2, said="so", own={"b": 2})
    assert joined == Detail(n=4, agree=2, said="so", own={"a": 1, "b": 2})


def test_a_p_value_without_what_its_aggregate_needs_is_refused_in_one_line():
    """A statistic of a reader's own may forget it, and older records may lack it."""
    first, second = (BlockResult(i, 0.5, -3.0, -9.0, detail=Detail(order=[{}] * (1 - i) or None)) for i in (0, 1))
    with pytest.raises(MissingDetailError, match="holds no order") as raised:
        aggregated([first, second])
    assert isinstance(raised.value, NotComparableError)


def test_a_result_at_a_pair_of_blocks_has_no_block_that_can_be_counted():
    assert BlockResult.from_record(KEPT | {"block": [1, 2]}).block is None


def blocks(*reaches, log10_p=-0.3):
    """Blocks of a pair by their reach; those that reach nothing say why, and have p = 1 if `log10_p` is 0."""
    return [
        BlockResult(i, 0.1, log10_p, reach, None if reach else "decoys agree", Detail(n=20, paper_log10_p=0.0))
        for i, reach in enumerate(reaches)
    ]


@pytest.mark.parametrize(
    ("reaches", "left"),
    [
        ([-9.0, -9.0, -9.0], [-9.0, -9.0, -9.0]),
        ([-9.0, 0.0, -5.0, -7.0], [0.0, 0.0, -5.0, -7.0]),  # the strongest may be the next
        ([0.0, 0.0, 0.0, -9.0, -9.0, -9.0, -9.0, -5.0], [0.0] * 6 + [-9.0, -5.0]),
        ([0.0] * 5 + [-9.0] * 3, [0.0] * 8),
        ([0.0, -9.0], [0.0, 0.0]),
    ],
)
def test_who_silenced_blocks_may_silence_as_many_others(reaches, left):
    """By hand: with 3 of 8 silent two speak, with 5 of 8 none."""
    assert reachable(reaches).tolist() == left


def test_a_pair_reaches_what_its_blocks_do_by_the_same_aggregation_as_p():
    speaking = aggregated(blocks(-9.0, -9.0, 0.0, -9.0))
    assert speaking.reach == pytest.approx(float(pvalues.fisher(np.array([0.0, -9.0, 0.0, -9.0]))))
    assert speaking.log10_p == pytest.approx(float(pvalues.fisher(np.full(4, -0.3))))
    assert speaking.why is None


def test_a_pair_with_most_blocks_silent_keeps_a_valid_p_value_and_reaches_nothing():
    silent = aggregated(blocks(-9.0, 0.0, 0.0))
    assert silent.log10_p == pytest.approx(float(pvalues.fisher(np.full(3, -0.3))))
    assert (silent.reach, silent.why) == (0.0, "2 of 3 blocks: decoys agree")


def test_where_no_block_says_anything_and_none_could_there_is_no_p_value():
    nothing = aggregated(blocks(0.0, 0.0, log10_p=0.0))
    assert (nothing.log10_p, nothing.reach, nothing.why) == (None, 0.0, "2 of 2 blocks: decoys agree")
    assert aggregated(blocks(0.0, 0.0)).log10_p < 0  # what is valid stays
    assert aggregated(blocks(0.0, -9.0, log10_p=0.0)).log10_p == 0.0  # one could have spoken


def test_the_reason_of_most_is_the_pairs():
    three = [
        replace(block, why=why) for block, why in zip(blocks(0.0, 0.0, 0.0), ("few", "faint", "faint"), strict=True)
    ]
    assert silence(three) == "3 of 3 blocks: faint"
    assert silence(blocks(-9.0)) is None


def test_a_p_value_is_taken_in_all_its_forms():
    outcome = Outcome(0.5, -3.0, (), -4.6, detail=Detail(paper_log10_p=-2.7, n=8)).without_p("sorted")
    assert (outcome.log10_p, outcome.reach, outcome.why, outcome.detail) == (None, 0.0, "sorted", Detail(n=8))


def test_every_field_is_described():
    described = [line.partition(" : ")[0].strip() for line in Detail.__doc__.splitlines() if " : " in line]
    names = [name for line in described for name in line.split(", ")]
    assert sorted(names) == sorted([*NAMES, "own"])


def test_what_came_out_could_have_come_out_also_where_a_copy_may_be_missed():
    silent = BlockResult(0, 0.9, -138.0, 0.0, "a copy may be missed")
    assert floor(silent) == floor(Outcome(0.9, -138.0, (silent,))) == -138.0
    assert floor(replace(silent, log10_p=-0.2, reach=-300.0)) == -300.0
    assert floor(replace(silent, log10_p=None, reach=-2.0)) == -2.0
