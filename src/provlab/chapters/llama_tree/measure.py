"""What the page on the Llama tree looks up, and how it sums up PERMTEST's size and what a divergence tells."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from provlab import zoo
from provlab.chapters.shared.groups import Area, area_under_curve
from provlab.engine.lineage import Lineage, published_parents, recipe_of, recipes_of, short_name
from provlab.publishing.published import published_table
from provlab.report import StudyReport

LONG_TRAINED = "EleutherAI/llemma_7b"  # whose share of its base's tokens is published (Abstract)
LONG = 0.375  # share of its base's tokens that makes a training a long one


@dataclass(frozen=True)
class LongTraining:
    """A base, a descendant trained on for `LONG` of the base's tokens in one go, and a child of that one.

    Attributes
    ----------
    base, child, grandchild
        Sources of the study.
    share
        Of the base's tokens; None for public models, whose share is only published.
    """

    base: str
    child: str
    grandchild: str
    share: float | None


def long_training(lineage: Lineage) -> LongTraining | None:
    """Find a long training in a study, that of the model in Llemma's place first; None if there is none."""
    stands_for = mirrors(lineage)
    for child in sorted(lineage.models, key=lambda source: stands_for.get(source) != LONG_TRAINED):
        seen = _share_of_base(child)
        long = stands_for.get(child) == LONG_TRAINED if seen is None else seen >= LONG
        grandchild = next((m for m in lineage.models if lineage.parents.get(m) == child), None)
        base = lineage.root(child)
        if long and base in lineage.models and base != child and grandchild:
            return LongTraining(str(base), child, grandchild, seen)
    return None


def mirrors(lineage: Lineage) -> dict[str, str]:
    """Public model in whose place each source stands: its mirror for a zoo model, itself for one of the tree."""
    found = {}
    for source in lineage.models:
        recipe = recipe_of(source)
        hub_id = recipe.mirrors if recipe else source.partition("@")[0]
        if hub_id in published_parents():
            found[source] = str(hub_id)
    return found


def _share_of_base(source: str) -> float | None:
    """Tokens of a zoo model's own training over those of its base; None for any other source."""
    recipe = recipe_of(source)
    if recipe is None:
        return None
    recipes = recipes_of(source.partition("@")[2])
    chain = zoo.lineage(recipe.name, recipes)
    return zoo.tokens(recipe.name, recipes) / zoo.tokens(chain[-1], recipes)


def permtest_of(study: StudyReport, pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """p-values by PERMTEST of some pairs: of whole models by phi_l2, of each block's MLP by phi_l2_blocks."""
    chosen = {frozenset(pair) for pair in pairs}
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for record in study.records:
        if record.outcome and frozenset((record.a, record.b)) in chosen and record.statistic.startswith("phi_l2"):
            row = rows.setdefault((record.a, record.b), {"a": short_name(record.a), "b": short_name(record.b)})
            if record.statistic == "phi_l2":
                row["whole model"] = f"{10 ** (record.outcome.log10_p or 0.0):.2f}"
            else:
                row |= {f"block {one.block}": f"{10 ** (one.log10_p or 0.0):.3f}" for one in record.outcome.blocks}
    return pd.DataFrame(rows.values())


def divergence_areas(frame: pd.DataFrame) -> pd.DataFrame:
    """How well the divergence ranks the pairs of the paper's Tables 1 and 5, and ours: areas under the curve."""
    lines = {
        frozenset((row["theta_1"], row["theta_2"])): row
        for table in ("independence_table1", "independence_table5")
        for row in published_table(table)
    }  # the pair that stands in both tables counts once
    pairs = [(row["theta_1"], row["theta_2"]) for row in lines.values()]
    related = [row["independent"] == "false" for row in lines.values()]
    areas = {"published": _area_row(pairs, [float(row["log_jsd"]) for row in lines.values()], related)}
    known = frame[(frame["statistic"] == "phi_jsd") & frame["error"].isna() & frame["dependent"].notna()]
    dependent = known["dependent"].astype(bool)
    if dependent.any() and not dependent.all():
        areas["ours"] = _area_row(list(zip(known["a"], known["b"], strict=True)), known["value"], dependent)
    return pd.DataFrame(areas.values(), index=list(areas))


def _area_row(pairs: Sequence[tuple[str, str]], values: Sequence[float], related: Sequence[bool]) -> dict[str, object]:
    area: Area = area_under_curve(pairs, values, related)
    n_related = int(np.sum(related))
    return {
        "dependent pairs": n_related,
        "independent pairs": len(pairs) - n_related,
        "area under the curve": f"{area.value:.2f}",
        "95% interval": f"{area.low:.2f} to {area.high:.2f}",
    }
