"""Comparisons and measurements that came out as stated, without models."""

import inspect
import re
from pathlib import Path

from provlab.engine.store import Store
from provlab.engine.table import PairRecord
from provlab.report.comparison import Comparison
from provlab.report.findings import NAMES, WORDS
from provlab.statistics.base import Options
from provlab.statistics.results import Detail, Outcome
from provlab_study.publishing import claims
from provlab_study.publishing.evidence import ClaimStatus, RunRecords


def record(statistic, value, pair=("/a", "/b"), **detail):
    """A record with this log10 p, None for none, or a text: why the statistic was refused."""
    if isinstance(value, str):
        return PairRecord(*pair, statistic, None, value)
    floor = -2.0 if statistic == "phi_l2" else -300.0
    return PairRecord(*pair, statistic, Outcome(0.5, value, (), floor, Detail(**detail)))


def comparison(log10_p, *, about=None, withheld=None, **family):
    """A comparison by statistic -> log10 p or why refused; facts of both models; statistic -> why withheld."""
    models = tuple({"source": source, "name": source[1:], **(about or {})} for source in ("/a", "/b"))
    records = [record(name, value) for name, value in log10_p.items()]
    records += [record(name, None, withheld=reason) for name, reason in (withheld or {}).items()]
    return Comparison(models, tuple(records), Options(), **family)


def says(result, label, key, **facts):
    """Whether a verdict holds a sentence of the table of words, with these facts and any others."""
    return bool(re.search(sentence(label, key, **facts), " ".join(result.verdict().split())))


def sentence(label, key, **facts):
    """A sentence of the table of words as a pattern: whoever changes it changes no test."""
    named = {name: re.escape(str(fact)) for name, fact in (NAMES | facts).items()}
    pieces = re.split(r"\\{(\w+)\\}", re.escape(WORDS[label][key]))
    return "".join(named.get(piece, ".*?") if k % 2 else piece for k, piece in enumerate(pieces))


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
