"""The first question of many models: `study` tests all pairs of a list."""

from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

from provlab import plugins, policy
from provlab import statistics as registry
from provlab.engine.memory import budget_for
from provlab.engine.pairs import check_sources, open_models, train_missing
from provlab.engine.store import Store
from provlab.errors import InputError
from provlab.reading import part
from provlab.report.described import described
from provlab.report.family import check_primary
from provlab.report.lineage import Lineage
from provlab.report.study_report import StudyReport
from provlab.statistics import quick as few
from provlab.statistics.options import Options

__all__ = ["expand", "study", "train_missing"]


def expand(models: Sequence[str | Path]) -> list[str]:
    """Replace names that stand for many: ``zoo:*`` or ``zoo:*@edition`` by the zoo's Llama tree, in its order.

    Raises
    ------
    InputError
        If the models are one string instead of a list.
    """
    if isinstance(models, str):
        raise InputError(f"models must be a list of sources, not the text {models!r}")
    expanded: list[str] = []
    for whole in map(str, models):
        source, piece = part.split(whole)
        scheme, colon, name = source.partition(":")
        names = plugins.hook(scheme, "expand") if colon else None
        end = f"::{piece}" if piece else ""
        expanded += [f"{scheme}:{model}{end}" for model in names(name)] if names else [whole]
    return expanded


def study(
    models: Sequence[str | Path],
    *,
    statistics: Sequence[str] | None = None,
    blocks: Sequence[int] | None = None,
    pairs: Sequence[tuple[str, str]] | None = None,
    primary: str | None = None,
    fdr: bool = False,
    quick: bool = False,
    text: str | None = None,
    store: Store | None = None,
    allow_pickle: bool = False,
    progress: float = True,
    memory: int | str | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    **settings: object,
) -> StudyReport:
    """Test all pairs of a list of models; arguments as for `compare`, and ``zoo:*`` stands for the zoo's Llama tree.

    Each pair is asked what `compare` would ask it (`provlab.policy`). Tests are corrected over all pairs, so that a p
    near the bar of one pair may reject there and not here. With `pairs`, only these are tested; each names two of the
    models. A `quick` look reads the same few blocks of all.

    A pair that fails becomes a record with its reason and the rest goes on. With a store, finished results are never
    computed again, so a study that was stopped goes on where it was.

    Beside the pass that loads a model to run it, each tensor is read once, whatever the number of pairs and statistics,
    as long as the features of all models on one block fit into `memory` (``8GB``; by default most of what is free);
    beyond that models are taken in groups. Workers read it once per statistic. With
    `workers` that many processes of this machine share the work, with `executor` any backend with the interface of
    `concurrent.futures`, such as a Dask cluster's `Client(address).get_executor(pure=False)`; records are the same. A
    script that asks for workers must stand under ``if __name__ == "__main__":``.
    """
    settings = (few.SETTINGS if quick else {}) | settings
    options = Options(**settings, elsewhere=executor is not None)  # type: ignore[arg-type]
    names = registry.checked_names(statistics)
    few.check(quick, blocks)
    check_primary(primary, names)
    models = expand(models)
    for pair in pairs or ():
        if unknown := set(pair) - set(models):
            raise InputError(f"pairs name {min(unknown)}, which is not among the models")
    check_sources(models)
    budget_for(memory)  # refuses what is no size
    train_missing(models)
    opened = open_models(models, allow_pickle=allow_pickle)
    records, options = policy.ask(
        opened,
        names if statistics else None,
        options,
        text=text,
        blocks=blocks,
        quick=quick,
        pairs=pairs,
        primary=primary,
        fdr=fdr,
        store=store,
        progress=progress,
        memory=memory,
        workers=workers,
        executor=executor,
    )
    ran = tuple(dict.fromkeys(record.statistic for record in records))
    return StudyReport(
        described(opened.models, ran, options),
        tuple(records),
        options,
        primary,
        fdr,
        sources=tuple(models),
        statistics=ran,
        lineage=Lineage.of(models),
    )
