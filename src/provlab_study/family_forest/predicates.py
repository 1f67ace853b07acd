"""Predicates about family forests: related models together, edges and directions right where rows speak."""

from collections.abc import Mapping, Sequence
from typing import Any

from scipy import stats

from provlab.forest.result import DESCENDS, NOT_GIVEN, ROWS
from provlab_study.family_forest.measure import MISSED, Judged
from provlab_study.publishing.evidence import NOT_RUN, Bar, ClaimStatus, judge, read

Rows = Sequence[Mapping[str, Any]]


def _bar(what: str, k: int, n: int, at: float, *, above: bool) -> Bar:
    """A share with its exact 95% interval."""
    low, high = stats.binomtest(k, n).proportion_ci()
    return Bar(what, [k / n], at, above=above, interval=(float(low), float(high)))


def families_apart(families: Mapping[str, Any], *, level: float) -> ClaimStatus:
    """No family holds independent models, and in draws under the null no more often than promised."""
    counts = families
    errors, draws = counts["draws"][f"{level:g}"]["mean e-value"], counts["n_draws"]
    ours = (
        f"{counts['glued']} of {counts['pairs']:,} pairs wrongly in one family, {counts['split']} related ones apart; "
        f"{errors} of {draws:,} draws with a wrong join"
    )
    problems = [(counts["glued"] > 0, f"{counts['glued']} pairs of independent models are in one family")]
    bar = _bar("share of draws with a wrong join", errors, draws, level, above=False)
    return judge(ours, f"no independent models in one family, wrong joins within {level:g}", problems, [bar])


def edges_right(judged: Rows, *, share: float, least: int, forged: str) -> ClaimStatus:
    """Among edges of models grown for this page where rows speak, so many are true; arms of forgers do not count."""
    rows = _grown(judged, forged)
    spoken = [row for row in rows if row.speaks]
    if len(spoken) < least:
        return ClaimStatus(NOT_RUN, "", f"rows speak on {len(spoken)} edges, fewer than {least}")
    right = sum(row.right for row in spoken)
    ours = (
        f"{right} of {len(spoken)} edges right where rows speak, {sum(row.right for row in rows)} of {len(rows)} over "
        f"all of {len({row.arm for row in rows})} arms"
    )
    bar = _bar("share of edges right", right, len(spoken), share, above=True)
    return judge(ours, f"above {share:g} of the edges", bars=[bar])


def descent_right(kin: Rows, *, wrong: float, least: int) -> ClaimStatus:
    """Where an edge says *descends*, the first model is an ancestor, in families without some parents too."""
    rows = read(Judged, kin)
    shown = [row for row in rows if row.relation == DESCENDS]
    if len(shown) < least:
        return ClaimStatus(NOT_RUN, "", f"{len(shown)} edges say descends, fewer than {least}")
    errors, drawn = sum(not row.forward for row in shown), sum(row.joined != MISSED for row in rows)
    missing = [row for row in rows if row.parent == NOT_GIVEN]
    ours = (
        f"{errors} of {len(shown)} edges that say descends are wrong, {drawn - len(shown)} of {drawn} do not say it; "
        f"{sum(bool(row.forward) for row in missing)} of {len(missing)} wrong where the parent is said to be missing"
    )
    bar = _bar("share of edges that say descends and are wrong", errors, len(shown), wrong, above=False)
    return judge(ours, f"at most {wrong:g} of the edges that say descends are wrong", bars=[bar])


def directions_right(judged: Rows, *, wrong: float, answered: float, arms: Sequence[str], forged: str) -> ClaimStatus:
    """Directions by the clock are hardly ever wrong, and it answers where decay is on and embeddings are untied."""
    rows = _grown(judged, forged)
    clock = [row for row in rows if row.directed == ROWS and row.forward is not None]
    questions = [row for row in rows if row.arm in arms and row.right]
    if not clock or not questions:
        return ClaimStatus(NOT_RUN, "", "no clock speaks in these arms")
    errors, answers = sum(not row.forward for row in clock), sum(row.directed == ROWS for row in questions)
    ours = f"{errors} of {len(clock)} directions wrong; {answers} of {len(questions)} answered in {len(arms)} arms"
    bars = [
        _bar("share of directions by the clock that are wrong", errors, len(clock), wrong, above=False),
        _bar("share answered", answers, len(questions), answered, above=True),
    ]
    return judge(ours, f"at most {wrong:g} wrong, above {answered:g} answered", bars=bars)


def _grown(judged: Rows, forged: str) -> list[Judged]:
    return [row for row in read(Judged, judged) if row.arm != "zoo" and not row.arm.startswith(forged)]
