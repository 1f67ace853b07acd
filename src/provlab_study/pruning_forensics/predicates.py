"""Predicates about pruned models: which blocks and which hidden units of a parent a child is made of."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab_study.pruning_forensics.measure import MapRecord
from provlab_study.publishing.evidence import HOLDS, NOT_RUN, Bar, ClaimStatus, judge, log10_words, read
from provlab_study.shared import calibration


def blocks_mapped(maps: Sequence[Mapping[str, Any]], *, cut: str, level: float) -> ClaimStatus:
    """Holm's procedure finds the kept pairs of blocks of each child with this `cut`, no others, and none of strangers.

    Each map is corrected by itself, over all its pairs of blocks. `cut` is "depth" (blocks were left out) or "width"
    (MLPs are narrower). A child whose kept blocks nobody knows decides nothing. Every other child must have been mapped
    with a stranger as well: a test that follows depth alone, for any parent, would draw the same maps. Neither a
    stranger's map nor the rest of a child's may have too many small p-values, or hardly any up to 1/2: a map of ones
    finds no stranger either. A child's floor must let Holm's procedure call a pair; a stranger's is no measure, since
    phi_MATCH sets it to 0 wherever it has a reason to doubt that it would have seen a copy.
    """
    records = read(MapRecord, maps)
    children = [record for record in records if record.related and cut in record.cut and record.kept is not None]
    strangers = [record for record in records if not record.related]
    if not children:
        return ClaimStatus(NOT_RUN, "", f"of no model run that was cut in {cut} the kept blocks are known")
    rows = [
        (record, record.called(level), record.truth() if record.related else np.zeros(record.log10_p.shape, dtype=bool))
        for record in (*children, *strangers)
    ]
    problems, weakest, weakest_kept, strongest_other = [], -np.inf, -np.inf, 0.0  # the latter two by Holm
    for record, called, kept in rows:
        assert kept is not None  # of children whose kept blocks are known
        name = record.child if record.related else f"{record.child} and a stranger ({record.parent})"
        missed, wrong = (_words(np.argwhere(mask)) for mask in (kept & ~called, called & ~kept))
        problems += [
            (bool(missed), f"{name}: missed {missed}"),
            (bool(wrong), f"{name}: wrongly found {wrong}"),
            *calibration.too_many_small(f"other pairs of blocks of {name}", record.log10_p[~kept], n_sets=len(rows)),
            *calibration.too_few_small(f"other pairs of blocks of {name}", record.log10_p[~kept]),
            (
                record.related and not record.floor + np.log10(called.size) <= np.log10(level),
                f"{name}: no pair can be called, since the floor is {log10_words(record.floor)}",
            ),
            (
                record.related and bool((record.log10_p < record.floor - 1e-6).any()),
                f"{name}: a pair is below the floor of {log10_words(record.floor)}",
            ),
        ]
        weakest = max(weakest, float(record.log10_p[kept].max(initial=-np.inf)))
        weakest_kept = max(weakest_kept, float(record.adjusted()[kept].max(initial=-np.inf)))
        strongest_other = min(strongest_other, float(record.adjusted()[~kept].min(initial=0.0)))

    def counted(related: bool, kept_ones: bool) -> str:
        masks = [np.array([called, kept == kept_ones]) for record, called, kept in rows if record.related == related]
        return f"{sum(mask.all(axis=0).sum() for mask in masks)} of {sum(mask[1].sum() for mask in masks)}"

    ours = (
        f"{counted(True, True)} kept blocks of {len(children)} children, the weakest {log10_words(weakest)}; "
        f"{counted(True, False)} other pairs; {counted(False, False)} with strangers"
    )
    bars = (
        Bar("weakest kept pair by Holm, log10 p", [weakest_kept], np.log10(level)),
        Bar("strongest other pair by Holm, log10 p", [strongest_other], np.log10(level), above=True),
    )
    verdict = judge(ours, f"Holm at {level:g} over all pairs of blocks draws the map of what was kept", problems, bars)
    alone = sorted({record.child for record in children} - {record.child for record in strangers})
    if alone and verdict.status == HOLDS:
        return ClaimStatus(NOT_RUN, "", f"no stranger was mapped with {', '.join(alone)}")
    return verdict


def units_recovered(
    units: Sequence[Mapping[str, Any]],
    stranger_units: Sequence[Mapping[str, Any]],
    *,
    precision: float,
    recall: float,
    weakest: float,
) -> ClaimStatus:
    """Each unit on which gate and up agree is the very unit of the parent that stands in its place.

    Each block must be beyond chance and above a recall of `weakest`, and all together above both bounds. Between blocks
    of strangers (`stranger_units`) at most a share 1 - `precision` of the units may be named: there each name is wrong.
    That the unit named is *one* of those that were kept is reported and not enough: a matching that shuffled the kept
    units among each other would have it. Units of an MLP share activations and are no independent draws, so an interval
    is only a yardstick. The chance of a block is that of naming a kept unit, far above that of naming the right one.
    """
    rows = [row for row in units if row["by"] == "both"]
    if not rows:
        return ClaimStatus(NOT_RUN, "", "of no model run the kept hidden units are known")
    called, kept, kept_ones, placed = (sum(row[key] for row in rows) for key in ("called", "kept", "found", "placed"))
    by_chance = [row for row in rows if not _beyond_chance(row)]
    least = min(rows, key=lambda row: row["placed"] / row["kept"])
    exact = calibration.size_interval(placed, called) if called else None
    bars = [
        Bar(
            "precision of the exact place", [placed / called if called else 0.0], precision, above=True, interval=exact
        ),
        Bar.share("recall", placed, kept, recall, above=True),
        Bar.share("recall in the weakest block", least["placed"], least["kept"], weakest, above=True),
    ]
    named, of = (sum(row[key] for row in stranger_units) for key in ("called", "units"))
    if stranger_units:
        bars.append(Bar.share("share of units named between strangers", named, of, round(1 - precision, 6)))
    ours = (
        f"precision {bars[0].values[0]:.3f}, recall {bars[1].values[0]:.2f} over {kept:,} kept units of {len(rows)} "
        f"blocks, each unit at its very place; recall from {least['placed'] / least['kept']:.2f} in one block; "
        f"{kept_ones - placed} of {called:,} units named are kept ones of another place; between strangers {named:,} "
        f"of {of:,} are named"
    )
    problems = [(bool(by_chance), f"{len(by_chance)} blocks are no better than naming units at random")]
    why = f"precision above {precision:g}, recall above {recall:g}, each block beyond chance and above {weakest:g}"
    verdict = judge(ours, why, problems, bars)
    if not stranger_units and verdict.status == HOLDS:
        return ClaimStatus(NOT_RUN, "", "no units of strangers were matched")
    return verdict


def _words(pairs: NDArray[np.int64]) -> str:
    return ", ".join(f"{old} to {new}" for old, new in pairs.tolist())


def _beyond_chance(row: Mapping[str, int]) -> bool:
    if not row["called"]:
        return False
    low, _ = calibration.size_interval(row["placed"], row["called"])
    return bool(low > row["kept"] / row["width"])
