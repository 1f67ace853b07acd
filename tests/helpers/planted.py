"""Comparisons and measurements that came out as stated, without models; and good records with one thing spoilt."""

import copy
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from provlab.engine.store import Store
from provlab.engine.table import PairRecord
from provlab.report.comparison import Comparison
from provlab.report.findings import NAMES, WORDS
from provlab.statistics.options import Options
from provlab.statistics.results import Detail, Outcome
from provlab_study.publishing import claims
from provlab_study.publishing.evidence import FAILS, ClaimStatus, RunRecords


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


class Plant(NamedTuple):
    """One change of a good record, after which its claim has this status, and these words in the reason."""

    spoilt: str
    change: Callable[[Any], object]
    status: str = FAILS
    words: str = ""

    def check(self, judge: Callable[[Any], ClaimStatus], good: Any) -> ClaimStatus:
        """Spoil a copy of the good record, which a test beside this one shows to hold, and look at the verdict."""
        record = copy.deepcopy(good)
        self.change(record)
        verdict = judge(record)
        assert verdict.status == self.status, verdict
        assert self.words in verdict.why
        assert verdict.why
        return verdict

    def __str__(self) -> str:
        return self.spoilt


def at(record: Any, *path: Any) -> Any:
    """What stands deep in a record."""
    for step in path:
        record = record[step]
    return record


def put(*path: Any, value: Any) -> Callable[[Any], object]:
    """Set one value, or a slice, deep in a record."""
    return lambda record: at(record, *path[:-1]).__setitem__(path[-1], value)


def update(*path: Any, **values: Any) -> Callable[[Any], object]:
    """Set some values of one row."""
    return lambda record: at(record, *path).update(values)


def every(*path: Any, change: Callable[[int, Any], dict[str, Any]]) -> Callable[[Any], object]:
    """Change each row of a list, by its number and what it is."""
    return lambda record: [row.update(change(k, row)) for k, row in enumerate(at(record, *path))]
