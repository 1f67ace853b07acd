"""Comparisons and measurements that came out as stated, without models."""

import inspect
from pathlib import Path

from provlab.engine.store import Store
from provlab.engine.table import PairRecord
from provlab.report.comparison import Comparison
from provlab.statistics.options import Options
from provlab.statistics.results import Detail, Outcome
from provlab_study.publishing import claims
from provlab_study.publishing.evidence import ClaimStatus, RunRecords


def record(statistic, value, pair=("/a", "/b"), why=None, **detail):
    """A record with this log10 p, None for none and `why`, or a text: why the statistic was refused."""
    if isinstance(value, str):
        return PairRecord(*pair, statistic, None, value)
    reach = 0.0 if value is None else -2.0 if statistic == "phi_l2" else -300.0
    return PairRecord(*pair, statistic, Outcome(0.5, value, (), reach, why, Detail(**detail)))


def comparison(log10_p, *, about=None, withheld=None, **family):
    """A comparison by statistic -> log10 p or why refused; facts of both models; statistic -> why withheld."""
    models = tuple({"source": source, "name": source[1:], **(about or {})} for source in ("/a", "/b"))
    records = [record(name, value) for name, value in log10_p.items()]
    records += [record(name, None, why=reason) for name, reason in (withheld or {}).items()]
    return Comparison(models, tuple(records), Options(), **family)


def row(claim):
    """The row of the claim with this id."""
    return next(row for row in claims.load_claims() if row["id"] == claim)


def evidence(measurements, profile="default"):
    """What a run left that made these measurements and no other."""
    return RunRecords({"profile": profile, "measurements": measurements, "pairs": []}, Store(Path("nowhere")))


def judge(row, kept, **others) -> ClaimStatus:
    """The verdict of a claim's row on this evidence; others are records under other names, and other bars."""
    function = claims.predicate(row)
    names = inspect.signature(function).parameters.keys()
    left = {**kept.experiment.get("parameters", {}), **kept.experiment["measurements"]}
    records = ({"pairs": kept.pairs} if "pairs" in names else {}) | {name: left[name] for name in names & left.keys()}
    return function(**claims.bars(row, kept.experiment["profile"]) | records | others)


def judged(row, measurements, profile="default", **others) -> ClaimStatus:
    """The verdict of a claim's row on these measurements."""
    return judge(row, evidence(measurements, profile), **others)
