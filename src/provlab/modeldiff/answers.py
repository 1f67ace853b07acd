"""Questions with answers under two models, in words, as a table, as JSON."""

from typing import Any

from provlab.inference import pvalues
from provlab.modeldiff.gates import TEST_LEVEL
from provlab.modeldiff.items import Paired
from provlab.modeldiff.outputs import finite, loss_words
from provlab.plots.numbers import format_interval
from provlab.report import views

_SHOWN, _LONGEST = 10, 50  # items, and the characters of the end of a context


def items_words(paired: Paired, level: float = TEST_LEVEL) -> str:
    """Changes from A to B over the items, and whether they are more than chance at a level."""
    wrong, right = paired.turned
    a, b = paired.accuracy()
    value, low, high = (100 * share for share in paired.more_right())
    shown = "more than chance changes" if paired.p <= level else "not shown to be more than chance changes"
    repeated = f"; {paired.repeated:,} lines ask one of these again and are left out" if paired.repeated else ""
    return (
        f"A answers {a:.1%} of {len(paired.items):,} items right and B {b:.1%}, a change of "
        f"{format_interval(value, low, high, '+.1f')} points. {wrong} turned wrong and {right} right, {shown} "
        f"(McNemar's exact test, {pvalues.in_words(paired.p)}). On the right answers B's loss is "
        f"{loss_words(paired.costs())}{repeated}"
    )


def items_table(paired: Paired) -> views.Table:
    """The items whose right answer costs B the most more than A."""
    rows = []
    for item in paired.items[:_SHOWN]:
        turned = {(True, False): "wrong", (False, True): "right"}.get(item.right, "")
        end = item.context[-_LONGEST:]
        shown = repr(end)[1:-1] if len(end) == len(item.context) else f"…{repr(end)[1:-1]}"
        losses = f"{item.loss[0]:.2f}, {item.loss[1]:.2f}"
        apart = f"{item.divergence[0]:.3f}, {item.divergence[1]:.3f}"
        rows.append((item.name, turned, losses, apart, shown, repr(item.answer)[1:-1]))
    header = ("item, worst first", "turned", "loss under A, B", "KL both ways", "after", "right answer")
    return views.Table(header, rows)


def items_json(paired: Paired) -> dict[str, Any]:
    """Everything; items by their names, so that a later run can be compared with it."""
    forth, back = paired.divergence()
    wrong, right = paired.turned
    return {
        "n": len(paired.items),
        "accuracy": list(paired.accuracy()),
        "more_right": paired.more_right(),
        "turned_wrong": wrong,
        "turned_right": right,
        "repeated": paired.repeated,
        "mcnemar_log10_p": paired.log10_p,
        "costs": finite(paired.costs()),
        "divergence": [finite(forth), finite(back)],
        "items": [
            {
                "name": item.name,
                "right": list(item.right),
                "loss": list(item.loss),
                "divergence": list(item.divergence),
            }
            for item in paired.items
        ],
    }
