"""Which runs are compared: names by budget and number, or lists of a reader's own."""

import pytest

from provlab.errors import ParameterError
from provlab_study.olmo_seeds.measure import TokenBudget, budgets


def test_models_of_several_budgets_are_taken_one_budget_behind_the_other() -> None:
    made = budgets(["a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4"], ["ax", "ay", "bx", "by"], 4, 10, tokens=[5, 7])
    assert [budget.tokens for budget in made] == [5, 7]
    assert [budget.independent for budget in made] == [[("a1", "a3"), ("a2", "a4")], [("b1", "b3"), ("b2", "b4")]]
    assert [budget.same_start for budget in made] == [[("a1", "ax"), ("a2", "ay")], [("b1", "bx"), ("b2", "by")]]
    assert budgets(["a", "b"], ["c"], 4, 10) == [TokenBudget(0, [("a", "b")], [("a", "c")])]


@pytest.mark.parametrize(
    ("runs", "reruns", "tokens"),
    [("ab", "", []), ("abc", "d", []), ("abcd", "ef", [1, 2, 3]), ("abcdef", "ghi", [1, 2])],
)
def test_lists_that_do_not_answer_each_other_are_refused(runs: str, reruns: str, tokens: list[int]) -> None:
    with pytest.raises(ParameterError, match="it takes two runs with own seeds for each rerun"):
        budgets(list(runs), list(reruns), 4, 10, tokens)
