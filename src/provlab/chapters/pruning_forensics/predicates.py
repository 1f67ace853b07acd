"""Predicates about pruned models: which blocks and which hidden units of a parent a child is made of."""

import numpy as np
from numpy.typing import NDArray

from provlab.chapters.pruning_forensics.measure import MapRecord, UnitsRecord
from provlab.chapters.shared import calibration
from provlab.publishing.evidence import NOT_RUN, Evidence, Verdict, judge, log10_words


def blocks_mapped(evidence: Evidence, measurement: str, cut: str, level: float) -> Verdict:
    """Holm's procedure finds the kept pairs of blocks of each child with this `cut`, no others, and none of strangers.

    Each map is corrected by itself, over all its pairs of blocks. `cut` is "depth" (blocks were left out) or "width"
    (MLPs are narrower). A child whose kept blocks nobody knows decides nothing.
    """
    maps = evidence.records(measurement, MapRecord)
    children = [one for one in maps if one.related and cut in one.cut and one.kept is not None]
    strangers = [one for one in maps if not one.related]
    if not children:
        return Verdict(NOT_RUN, "", f"of no model run that was cut in {cut} the kept blocks are known")
    n_kept = n_found = n_wrong = n_other = n_strange = 0
    weakest, problems = -np.inf, []
    for one in children:
        called, kept = one.called(level), one.truth()
        assert kept is not None  # of children whose kept blocks are known
        n_kept, n_found = n_kept + kept.sum(), n_found + (called & kept).sum()
        n_other, n_wrong = n_other + (~kept).sum(), n_wrong + (called & ~kept).sum()
        weakest = max(weakest, float(one.log10_p[kept].max()))
        missed, wrong = (_words(np.argwhere(mask)) for mask in (kept & ~called, called & ~kept))
        problems.append((bool(missed), f"{one.child}: missed {missed}"))
        problems.append((bool(wrong), f"{one.child}: wrongly found {wrong}"))
    for one in strangers:
        called = one.called(level)
        n_strange += called.size
        problems.append((bool(called.any()), f"{one.child} and its stranger: found {_words(np.argwhere(called))}"))
    ours = (
        f"{n_found} of {n_kept} kept blocks of {len(children)} children, the weakest {log10_words(weakest)}; "
        f"{n_wrong} of {n_other} other pairs"
    )
    ours += f"; none of {n_strange} with strangers" if strangers and not any(p for p, _ in problems) else ""
    return judge(ours, f"Holm at {level:g} over all pairs of blocks draws the map of what was kept", problems)


def units_recovered(evidence: Evidence, measurement: str, precision: float, recall: float) -> Verdict:
    """Units on which gate and up agree are those that were kept: in each block beyond chance, over all to these bounds.

    Units of an MLP share activations and are no independent draws, so the interval of a block is only a yardstick.
    """
    rows = [row for row in evidence.records(measurement, UnitsRecord) if row.by == "both"]
    if not rows:
        return Verdict(NOT_RUN, "", "of no model run the kept hidden units are known")
    called, kept, found = (sum(getattr(row, key) for row in rows) for key in ("called", "kept", "found"))
    got = (found / called if called else 0.0, found / kept)
    by_chance = [row for row in rows if not _beyond_chance(row)]
    weakest = min(row.found / row.kept for row in rows)
    ours = (
        f"precision {got[0]:.3f}, recall {got[1]:.2f} over {kept:,} kept units of {len(rows)} blocks; "
        f"recall from {weakest:.2f} in one block"
    )
    problems = [
        (got[0] < precision, f"precision {got[0]:.3f} is below {precision:g}"),
        (got[1] < recall, f"recall {got[1]:.2f} is below {recall:g}"),
        (bool(by_chance), f"{len(by_chance)} blocks are no better than naming units at random"),
    ]
    why = f"precision at least {precision:g}, recall at least {recall:g}, each block beyond chance"
    return judge(ours, why, problems)


def _words(pairs: NDArray[np.int64]) -> str:
    return ", ".join(f"{old} to {new}" for old, new in pairs.tolist())


def _beyond_chance(row: UnitsRecord) -> bool:
    if not row.called:
        return False
    low, _ = calibration.size_interval(row.found, row.called)
    return bool(low > row.kept / row.width)
