"""Predicates about family forests: related models together, edges and directions right where rows speak."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from provlab.forest.result import DESCENDS, NOT_GIVEN, ROWS
from provlab_study.family_forest.measure import MISSED, Judged
from provlab_study.publishing.evidence import NOT_RUN, WITHIN_SPREAD, Bar, ClaimStatus, judge, read

Rows = Sequence[Mapping[str, Any]]


def _of_few(verdict: ClaimStatus, bars: Sequence[Bar], n: int, least: int, what: str) -> ClaimStatus:
    """The verdict on fewer units than `least`: a whole interval beyond its bar refutes a claim, nothing else decides.

    One wrong edge of a dozen is no share of wrong edges.
    """
    if n >= least:
        return verdict
    sides = [[(end > bar.at) == bar.above for end in bar.interval or ()] for bar in bars]
    if any(side and not any(side) for side in sides):
        return verdict
    return replace(verdict, status=WITHIN_SPREAD, why=f"{n} {what}, fewer than {least}: too few to decide")


def families_apart(families: Mapping[str, Any], *, level: float, joined: float) -> ClaimStatus:
    """No family holds independent models, in draws under the null no more often than promised, and kin are joined.

    Kin whose units were shuffled count by phi_match: phi_u, which reads their order, is blind to them by construction.
    """
    counts = families
    errors, draws = counts["draws"][f"{level:g}"]["mean e-value"], counts["n_draws"]
    related = counts["related"]
    together = related - counts["split"]
    ours = (
        f"{counts['glued']} of {counts['pairs']:,} pairs wrongly in one family, {counts['split']} of {related} related "
        f"ones apart; {errors} of {draws:,} draws with a wrong join"
    )
    problems = [(counts["glued"] > 0, f"{counts['glued']} pairs of independent models are in one family")]
    bars = [
        Bar.share("share of draws with a wrong join", errors, draws, level),
        Bar.share("share of related pairs in one family", together, related, joined, above=True),
    ]
    return judge(ours, f"no independent models in one family, wrong joins within {level:g}", problems, bars)


def edges_right(judged: Rows, *, share: float, spoken: float, least: int, forged: str) -> ClaimStatus:
    """Rows speak on so many of the true edges, and so many of those drawn there are true; forgers do not count."""
    rows = _grown(judged, forged)
    drawn = [row for row in rows if row.speaks]
    true = sum(row.right or row.joined == MISSED for row in rows)
    if not drawn or not true:
        return ClaimStatus(NOT_RUN, "", "rows speak on no edge of these arms")
    right = sum(row.right for row in drawn)
    ours = (
        f"{right} of {len(drawn)} edges right where rows speak, {right} of {true} true edges found so; "
        f"{sum(row.right for row in rows)} over all of {len({row.arm for row in rows})} arms"
    )
    bars = [
        Bar.share("share of edges right", right, len(drawn), share, above=True),
        Bar.share("share of true edges on which rows speak, and rightly", right, true, spoken, above=True),
    ]
    verdict = judge(ours, f"above {share:g} of the edges, and above {spoken:g} of the true ones", bars=bars)
    return _of_few(verdict, bars, len(drawn), least, "edges on which rows speak")


def descent_right(kin: Rows, *, wrong: float, said: float, missing: float, least: int) -> ClaimStatus:
    """Where an edge says *descends*, the first model is an ancestor, in families without some parents too.

    It is said of a share of the edges of parent and child; and where an edge says that the parent was not given, the
    first model is no ancestor.
    """
    rows = [row for row in read(Judged, kin) if row.joined != MISSED]
    shown = [row for row in rows if row.relation == DESCENDS]
    if not shown:
        return ClaimStatus(NOT_RUN, "", f"none of {len(rows)} edges says descends")
    errors, true = sum(not row.forward for row in shown), sum(row.right for row in rows)
    left_out = [row for row in rows if row.parent == NOT_GIVEN]
    given = sum(bool(row.forward) for row in left_out)
    ours = (
        f"{errors} of {len(shown)} edges that say descends are wrong, and {len(shown) - errors} of {true} edges of "
        f"parent and child say it; {given} of {len(left_out)} wrong where the parent is said to be missing"
    )
    bars = [
        Bar.share("share of edges that say descends and are wrong", errors, len(shown), wrong),
        Bar.share(
            "share of edges of parent and child that say it", len(shown) - errors, max(true, 1), said, above=True
        ),
    ]
    if left_out:
        bars.append(Bar.share("share wrong where it is said to be missing", given, len(left_out), missing))
    verdict = judge(ours, f"at most {wrong:g} of the edges that say descends are wrong", bars=bars)
    return _of_few(verdict, bars, len(shown), least, "edges that say descends")


def directions_right(judged: Rows, *, wrong: float, answered: float, arms: Sequence[str], forged: str) -> ClaimStatus:
    """Directions by the clock are hardly ever wrong, and it answers where decay is on and embeddings are untied."""
    rows = _grown(judged, forged)
    clock = [row for row in rows if row.directed == ROWS and row.forward is not None]
    questions = [row for row in rows if row.arm in arms and row.right]
    if not clock or not questions:
        return ClaimStatus(NOT_RUN, "", "no clock speaks in these arms")
    errors, answers = sum(not row.forward for row in clock), sum(row.directed == ROWS for row in questions)
    asked = len({row.arm for row in questions})
    ours = f"{errors} of {len(clock)} directions wrong; {answers} of {len(questions)} answered in {asked} arms"
    bars = [
        Bar.share("share of directions by the clock that are wrong", errors, len(clock), wrong),
        Bar.share("share answered", answers, len(questions), answered, above=True),
    ]
    return judge(ours, f"at most {wrong:g} wrong, above {answered:g} answered", bars=bars)


def _grown(judged: Rows, forged: str) -> list[Judged]:
    return [row for row in read(Judged, judged) if row.arm != "zoo" and not row.arm.startswith(forged)]
