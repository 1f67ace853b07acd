"""The first question of many models: `tree` finds their families, which is later, and whose parent is shown."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from provlab import policy
from provlab import statistics as registry
from provlab.engine.memory import budget_for
from provlab.engine.pairs import check_sources, open_models, run_pairs
from provlab.engine.store import Store
from provlab.engine.table import PairRecord
from provlab.errors import InputError, NotComparableError, nearest
from provlab.forest import grow
from provlab.forest.families import LEVEL, join, log10_bar
from provlab.forest.result import BY_TABLE, SCHEMA, Family, Forest, bridge
from provlab.plots.numbers import format_log10_p
from provlab.report.described import described
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
    both models are sorted, is tested by phi_match. A pair with a model that seems alone is tested by phi_e, which reads
    no block. Where phi_e rejects, the pair is tested by phi_match_all, which meets units in any order and blocks at any
    place: then the two are one family, or neither is said to be alone. All pairs of a family are related; a model that
    is related to two families which are not, as their mean is, stands between them. Edges come from embedding rows that
    training did not touch, and where these are silent from estimates; see `provlab.forest`. With `outgroup`, one of the
    models is known to have parted first from its family. Other arguments as for `study`; what a store holds is not
    computed again.

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
    lone = {group[0] for group in families.groups if len(group) == 1} - set(families.bridges)
    apart = [pair for pair in combinations(models, 2) if lone & set(pair)]
    # the embedding stays where units were moved, and blocks: where two agree, a test of any place is asked
    looks = tested(BY_TABLE, apart) if apart and BY_TABLE not in names else []
    few = np.log10(LEVEL / max(len(apart), 1))
    agree = {
        (r.a, r.b): r.outcome.log10_p
        for r in looks
        if r.outcome and r.outcome.log10_p is not None and r.outcome.reach <= few
    }
    if apart and len(agree) == len(apart):  # of all that are said to be alone, or of none
        names.append(BY_TABLE)
    bar = log10_bar(len(models), LEVEL)
    again = [pair for pair, p in agree.items() if p <= few and log10_p.get(pair, 0.0) > -bar]
    if again and policy.LOOK not in names:
        looked = tested(policy.LOOK, again)
        found = {(r.a, r.b): r.outcome.log10_p for r in looked if r.outcome and r.outcome.log10_p is not None}
        # two tests of a pair: each at half of its level
        log10_p |= {pair: min(p, log10_p.get(pair, 0.0)) + float(np.log10(2)) for pair, p in found.items()}
        families = join(models, log10_p, LEVEL)
        names.append(policy.LOOK)
    told = "{} finds that their embeddings agree (log10 p {}), and no test of units told why"
    still = [pair for pair in again if log10_p.get(pair, 0.0) > -bar]
    untold = {pair: told.format(BY_TABLE, format_log10_p(agree[pair])) for pair in still}
    groups = families.groups
    pairs = [pair for group in groups for pair in combinations(group, 2)]
    readings = run_pairs(opened, grow.READINGS, options, pairs=pairs, **engine)
    grown = []
    for group in groups:
        if group[0] in families.bridges:
            grown.append(bridge(group[0], families.bridges[group[0]], log10_p))
            continue
        own = [record for record in readings if record.a in group]
        grown.append(grow.family(group, opened.models, own, outgroup) if len(group) > 1 else Family(group))
    errors = {(r.a, r.b): str(r.error) for r in records if r.error and (r.a, r.b) not in log10_p} | untold
    errors = {pair: why for pair, why in errors.items() if not any(set(pair) <= set(group) for group in groups)}
    failed = tuple(f"{a} {b}: {why}" for (a, b), why in errors.items())
    unread = tuple(dict.fromkeys(model for pair in errors for model in pair))
    about = tuple(grown), tuple(names), families.joins, bar, failed, options, outgroup, families.partly, unread
    measured = grow.READINGS if pairs else ()
    ran = *names, *measured, *{record.statistic for record in looks}
    models_read = described(opened.models, ran, options, forms=True)
    return Forest(models_read, *about, measured)


def ask_again(sources: Sequence[str], kept: Path, **arguments: Any) -> Forest:
    """Ask without a store, as a report is recomputed; `SCHEMA` is the form of its JSON."""
    return tree(sources, store=None, progress=False, **arguments)
