"""Results of statistics: what is kept of them is read back as it was, whichever version kept it."""

import json

import numpy as np
import pytest

from provlab.engine.store import Store
from provlab.engine.table import ResultCache
from provlab.errors import NotComparableError, ParameterError
from provlab.statistics import get
from provlab.statistics.base import Options, aggregated
from provlab.statistics.results import NAMES, BlockResult, Detail, MissingDetailError, Outcome, withheld

# written by the version that kept details as they came, before they had fields
KEPT = {"block": 2, "value": 0.5, "log10_p": -3.0, "detail": {"n": 8, "agree": 3, "floor": -4.6, "order": [{}, {}]}}
MEASURED = {"block": None, "value": 0.1, "log10_p": None, "detail": {"kept": 7, "rows": 9, "readable": True}}


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
    result = BlockResult(2, 0.5, -3.0, Detail(n=3, agree=1, floor=-0.8), np.array([2, 0, 1]))
    cache.store.put("ab", result.as_record(), result.matching)
    kept = cache.get("ab")
    assert kept == result
    assert kept.matching.tolist() == [2, 0, 1]


def test_details_are_joined_and_the_second_says_what_both_know():
    joined = Detail(n=4, floor=-1.0, own={"a": 1}) | Detail(floor=-2.0, said="so", own={"b": 2})
    assert joined == Detail(n=4, floor=-2.0, said="so", own={"a": 1, "b": 2})


def test_a_p_value_without_what_its_aggregate_needs_is_refused_in_one_line():
    """A statistic of a reader's own may forget it, and older records may lack it."""
    with pytest.raises(MissingDetailError, match="holds no floor") as raised:
        aggregated([BlockResult(0, 0.5, -3.0), BlockResult(1, 0.5, -3.0)])
    assert isinstance(raised.value, NotComparableError)


def test_a_result_at_a_pair_of_blocks_has_no_block_that_can_be_counted():
    assert BlockResult.from_record(KEPT | {"block": [1, 2]}).block is None


def test_the_power_is_what_can_be_reached_where_it_is_known():
    assert (Detail(floor=-4.6).reach, Detail(floor=-4.6, power=-2.0).reach, Detail().reach) == (-4.6, -2.0, None)
    assert Detail(floor=-4.6, power=0.0).reach == 0.0


def test_a_p_value_is_withheld_in_all_its_forms():
    outcome = withheld(Outcome(0.5, -3.0, (), -4.6, Detail(paper_log10_p=-2.7, n=8)), "sorted")
    assert (outcome.log10_p, outcome.floor, outcome.detail) == (None, None, Detail(n=8, withheld="sorted"))


def test_every_field_is_described():
    described = [line.partition(" : ")[0].strip() for line in Detail.__doc__.splitlines() if " : " in line]
    names = [name for line in described for name in line.split(", ")]
    assert sorted(names) == sorted([*NAMES, "own"])
