"""The order of work: costs follow from the plan of each step, on made-up rates."""

from provlab.planning.rates import PowerLaw, Rates
from provlab_study.audit import work

RATES = Rates(
    product=1e11, forward=1e11, threads=1.0, prepared=1e8, read=1e9, hashed=1e9, turned=1e9, ordered=1e9,
    lengths=1e9, near=1e9, decomposed=1e9, call=1e-3, permuted=1e8, divergence=1e8,
    easy=PowerLaw(256, 1e-2, 2.0), hard=PowerLaw(256, 1e-1, 2.0), cores=2,
)  # fmt: skip


def test_costs_of_the_steps():
    few, weights, views, _, crossed = (work.minutes(step, "tiny", RATES) for step in work.ORDER)
    assert all(low < high for low, high, _ in (few, weights, views, crossed))
    assert few[2] <= weights[2] < views[2] == crossed[2]  # reading grows with blocks and with a pass, not with pairs
    assert crossed[1] > views[1]


def test_comparing_all_with_all_is_charged_for_comparisons_only():
    step = work.ORDER[2]
    once, crossed = (
        work.minutes(work.CostedStep("", "", step.statistics, None, every), "tiny", RATES) for every in (False, True)
    )
    hardest = work.minutes(work.CostedStep("", "", step.statistics, (0,), False), "tiny", RATES)
    assert crossed[0] > once[0] > hardest[0]
