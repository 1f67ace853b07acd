"""What Model-diff costs: planned for every model, measured for those that are here."""

from provlab.chapters.how_it_scales import figures, measure
from provlab.planning import rates

RATES = rates.Rates(
    product=1e11, threads=2.0, prepared=1e9, read=1e9, hashed=1e9, call=1e-4, permuted=1e8, divergence=1e8,
    easy=rates.Law(512, 0.1, 3.0), hard=rates.Law(512, 0.2, 3.0), cores=2,
)  # fmt: skip


def test_models_are_timed_and_shapes_are_planned(models):
    costs = measure.diff_costs([models["base"]], ["gpt-2"], [8, 16], 1000, RATES, seed=0)
    assert [(cost.length, cost.vocabulary) for cost in costs] == [(8, 300), (16, 300), (8, 50_257), (16, 50_257)]
    assert all(min(cost.judged, cost.written, cost.bare) > 100 for cost in costs[:2])
    assert costs[2].judged is costs[3].written is None
    assert costs[3].planned.tokens == 3500 * 15
    table = figures.diff_table(costs, caption="costs")._repr_html_()
    assert "124,356,864" in table
