"""The first question of many models: `tree` finds their families, which is later, and whose parent is shown."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from provlab import policy
from provlab import statistics as registry
from provlab.api import described
from provlab.engine.memory import budget_for
from provlab.engine.pairs import check_sources, open_models, run_pairs
from provlab.engine.store import Store
from provlab.engine.table import PairRecord
from provlab.errors import InputError, NotComparableError, nearest
from provlab.forest import grow
from provlab.forest.families import LEVEL, join, log10_bar
from provlab.forest.result import SCHEMA, Family, Forest, bridge
from provlab.statistics.options import Options
from provlab.studying import expand, train_missing

__all__ = ["SCHEMA", "ask_again", "tree"]


def tree(
    models: Sequence[str | Path],
    *,
    outgroup: str | None = None,
    statistic: str = "phi_u",
    text: str | None = None,
    store: Store | None = None,
    allow_pickle: bool = False,
    progress: bool = True,
    memory: int | str | None = None,
    **settings: object,
) -> Forest:
    """Find the families of a list of models, and the tree of each, in levels that say how sure each statement is.

    Families come from the p-values of `statistic` over all pairs and blocks; a pair that it gives no p-value, since
    both models are sorted, is tested by phi_match. All pairs of a family are related; a model that is related to two
    families which are not, as their mean is, stands between them. Edges come from embedding rows that training did not
    touch, and where these are silent from estimates; see `provlab.forest`. With `outgroup`, one of the models is known
    to have parted first from its family. Other arguments as for `study`; what a store holds is not computed again.

    Raises
    ------
    ProvlabError
        If a model cannot be opened, or no pair can be compared; the message names the way out.
    """
    options = Options(**settings)  # type: ignore[arg-type]
    models = expand(models)
    if outgroup is not None and outgroup not in models:
        hint = nearest(outgroup, models) or "; name it there too"
        raise InputError(f"the outgroup {outgroup} is not among the models{hint}")
    check_sources(models)
    budget_for(memory)  # refuses what is no size
    registry.checked_names([statistic])
    train_missing(models)
    opened = open_models(models, allow_pickle=allow_pickle, strict=True)
    engine: dict[str, Any] = {"store": store, "progress": progress, "memory": memory}

    def tested(name: str, pairs: Sequence[tuple[str, str]] | None = None) -> list[PairRecord]:
        return policy.ask(opened, registry.checked_names([name]), options, text=text, pairs=pairs, **engine)[0]

    records, names = tested(statistic), [statistic]
    if withheld := {(r.a, r.b): None for r in records if r.outcome and r.outcome.log10_p is None and r.outcome.why}:
        records = [r for r in records if (r.a, r.b) not in withheld] + tested("phi_match", list(withheld))
        names.append("phi_match")
    log10_p = {(r.a, r.b): r.outcome.log10_p for r in records if r.outcome and r.outcome.log10_p is not None}
    if not log10_p:
        raise NotComparableError(str(records[0].error or f"{statistic} gives no p-value; name another statistic"))
    families = join(models, log10_p, LEVEL)
    groups = families.groups
    pairs = [pair for group in groups for pair in combinations(group, 2)]
    readings = run_pairs(opened, grow.READINGS, options, pairs=pairs, **engine)
    grown = []
    for group in groups:
        if group[0] in families.bridges:
            grown.append(bridge(group[0], families.bridges[group[0]], log10_p))
            continue
        own = [record for record in readings if record.a in group]
        grown.append(grow.Tree.of(group, opened.models, own).grow(outgroup) if len(group) > 1 else Family(group))
    bar, failed = log10_bar(len(models), LEVEL), tuple(f"{r.a} {r.b}: {r.error}" for r in records if r.error)
    about = tuple(grown), tuple(names), families.joins, bar, failed, options, outgroup, families.partly
    return Forest(described(opened), *about)


def ask_again(sources: Sequence[str], kept: Path, **arguments: Any) -> Forest:
    """Ask without a store, as a report is recomputed; `SCHEMA` is the form of its JSON."""
    return tree(sources, store=None, progress=False, **arguments)
