"""The two questions as two functions: `compare` two models, `study` all pairs of many."""

from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provlab import statistics as registry
from provlab.engine.ledger import Bench
from provlab.engine.pairs import open_models, run_pairs, with_common_vocabulary
from provlab.engine.store import Store
from provlab.errors import InputError, NotComparableError, ParameterError, ProvlabError
from provlab.report.comparison import Comparison
from provlab.report.family import LEVEL, check_primary
from provlab.report.views import describe
from provlab.statistics.base import Options, devices_elsewhere
from provlab.statistics.flaws import ORDER_FREE

if TYPE_CHECKING:
    from provlab.report.study_report import StudyReport


def expand(models: Sequence[str | Path]) -> list[str]:
    """Replace ``zoo:*`` or ``zoo:*@edition`` by the zoo's Llama tree, in the order of the tree.

    Raises
    ------
    InputError
        If the models are one string instead of a list.
    """
    if isinstance(models, str):
        raise InputError(f"models must be a list of sources, not the text {models!r}")
    expanded: list[str] = []
    for source in map(str, models):
        if source == "zoo:*" or source.startswith("zoo:*@"):
            from provlab import zoo
            from provlab.engine.lineage import tree_order

            edition = source.partition("@")[2]
            suffix = f"@{edition}" if edition else ""
            recipes = zoo.families(edition or zoo.default_edition())
            parents = zoo.parents(zoo.collection(zoo.TREE, recipes))
            expanded += [f"zoo:{name}{suffix}" for name in tree_order(parents)]
        else:
            expanded.append(source)
    return expanded


def _train_missing(models: Sequence[str]) -> None:
    """Train the zoo models among these that are not there yet, on all cores; opened one by one they would use one."""
    embedded = [source.removeprefix("zoo:").partition("@") for source in models if source.startswith("zoo:")]
    if not embedded:
        return
    from provlab import zoo

    by_edition: dict[str, list[str]] = {}
    for name, _, edition in embedded:
        by_edition.setdefault(edition or zoo.default_edition(), []).append(name)
    for edition, names in by_edition.items():
        with suppress(ProvlabError):  # what cannot be made becomes a record with its reason when it is opened
            known = zoo.families(edition)
            zoo.build([name for name in names if name in known], edition=edition)


def _with_text(options: Options, names: Sequence[str], text: str | None) -> Options:
    """Options with the text, or the zoo's held-out prose if none is given and a statistic reads text.

    Called once all else is checked: the first use of the zoo's text makes its corpus, which takes a while.
    """
    reads = any("text_sha256" in registry.get(name).parameters(options) for name in names)
    if text is None and reads:
        from provlab import zoo

        text = zoo.held_out_text("prose")
    return replace(options, text=text or "")


def _described(bench: Bench) -> tuple[dict[str, Any], ...]:
    """What a report says of each model, and what decides which statistics could read it."""
    return tuple(
        describe(source, model.checkpoint)
        | {
            "blocks": model.anatomy.n_blocks,
            "gated": model.anatomy.has("gate") or model.anatomy.has("gate.0"),
            "experts": any(model.anatomy.mlps(block) != ("",) for block in range(model.anatomy.n_blocks)),
        }
        for source, model in bench.models.items()
    )


def compare(
    a: str | Path,
    b: str | Path,
    *,
    statistics: Sequence[str] | None = None,
    blocks: Sequence[int] | None = None,
    primary: str | None = None,
    fdr: bool = False,
    until_settled: bool = False,
    all_blocks: bool = False,
    text: str | None = None,
    store: Store | None = None,
    allow_pickle: bool = False,
    progress: bool = True,
    **settings: object,
) -> Comparison:
    """Test whether two models were trained independently.

    Parameters
    ----------
    a, b : str or Path
        Each a local checkpoint folder, a hub id ``org/name[@revision]``, or ``zoo:NAME``.
    statistics : sequence of str, optional
        Registered names; all by default. One that does not apply to the pair, or fails, becomes a row with the reason.
    blocks : sequence of int, optional
        Transformer blocks to read, counted from 0; all by default.
    primary : str, optional
        The statistic declared to judge by: only its tests are corrected and stand in the verdict, the others are
        description. By default all statistics on all pairs are one family.
    fdr : bool
        Control the false discovery rate (Benjamini-Yekutieli) in place of the family-wise error (Holm).
    until_settled : bool
        Read blocks in a seeded order and stop once their e-values reject, for one statistic of weights: the primary
        one, or the only one named. The p-value is valid whenever reading stops.
    all_blocks : bool
        Compare every block of one model with every block of the other, by phi_match and its unsigned form where both
        have gates, else by phi_u: those of them that are asked. Done unasked where the two are of unequal depth; the
        p-value is the smallest, by Holm over all pairs of blocks.
    text : str, optional
        Held-out text for phi_jsd and phi_match; by default prose that no zoo model was trained on.
    store : Store, optional
        Where finished units are kept and found again.
    allow_pickle : bool
        Also open ``.bin`` weights, with ``weights_only=True``.
    progress : bool
        Show a bar on stderr.
    **settings
        Fields of `provlab.statistics.base.Options`: seed, units, device, dtype, n_permutations, ...

    Raises
    ------
    ProvlabError
        If a model cannot be opened, or no statistic applies; the message names the way out.
    """
    options = Options(**settings)  # type: ignore[arg-type]
    names = registry.checked_names(statistics, units=options.units)
    check_primary(primary, names)
    if until_settled:
        names = [primary] if primary else names
        if len(names) > 1:
            raise ParameterError("blocks are read until settled for one statistic; name it by primary or --primary")
    if all_blocks and (blocks is not None or until_settled):
        raise ParameterError("all blocks are compared with all; leave out blocks and until_settled, or all_blocks")
    a, b = str(a), str(b)
    bench = open_models([a, b], allow_pickle=allow_pickle, strict=True)
    options = with_common_vocabulary(_with_text(options, names, text), bench.models, names)
    if until_settled:
        from provlab.engine.sequential import until_settled as read_until_settled

        records = [
            read_until_settled(bench, names[0], options, level=LEVEL, store=store, blocks=blocks, progress=progress)
        ]
    else:
        records = []
        depths = {model.anatomy.n_blocks for model in bench.models.values()}
        if blocks is None and (all_blocks or len(depths) > 1):
            from provlab.engine.localise import all_with_all  # phi_match, and with it torch

            records = all_with_all(bench, names, options, explicit=all_blocks, store=store, progress=progress)
        left = [name for name in names if name not in {record.statistic for record in records}]
        records += run_pairs(bench, left, options, store=store, blocks=blocks, progress=progress)
        records.sort(key=lambda record: names.index(record.statistic))
    if all(record.error for record in records):
        raise NotComparableError(str(records[0].error))
    if len({model.checkpoint.digest for model in bench.models.values()}) < len(bench.models):
        for model in bench.models.values():
            model.checkpoint.read_again()
    seeing = [record for record in records if record.statistic in ORDER_FREE]
    if statistics is None and seeing and not any(r.outcome and r.outcome.log10_p is not None for r in seeing):
        # no test here could see a disguised copy; a figure that is no test, where both models have embeddings
        scored = run_pairs(bench, ["stream_score"], options, store=store, progress=progress)
        records += [record for record in scored if record.outcome]
    return Comparison(_described(bench), tuple(records), options, primary, fdr)


def study(
    models: Sequence[str | Path],
    *,
    statistics: Sequence[str] | None = None,
    blocks: Sequence[int] | None = None,
    pairs: Sequence[tuple[str, str]] | None = None,
    primary: str | None = None,
    fdr: bool = False,
    text: str | None = None,
    store: Store | None = None,
    allow_pickle: bool = False,
    progress: bool = True,
    memory: int | str | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    **settings: object,
) -> "StudyReport":
    """Test all pairs of a list of models; arguments as for `compare`, and ``zoo:*`` stands for the zoo's Llama tree.

    With `pairs`, only these are tested; each names two of the models.

    A pair that fails becomes a record with its reason and the rest goes on. With a store, finished units are never
    computed again, so a study that was stopped goes on where it was.

    Each tensor is read once per statistic, whatever the number of pairs, as long as the features of all models on one
    block fit into `memory` (``8GB``; by default most of what is free); beyond that models are taken in groups. With
    `workers` that many processes of this machine share the work, with `executor` any backend with the interface of
    `concurrent.futures`, such as a Dask cluster's `Client(address).get_executor(pure=False)`; records are the same. A
    script that asks for workers must stand under ``if __name__ == "__main__":``.
    """
    from provlab.engine.lineage import Lineage
    from provlab.report.study_report import StudyReport  # tables and pictures of many pairs: pandas

    with devices_elsewhere() if executor is not None else nullcontext():
        options = Options(**settings)  # type: ignore[arg-type]
        names = registry.checked_names(statistics, units=options.units)
        check_primary(primary, names)
        models = expand(models)
        for pair in pairs or ():
            if unknown := set(pair) - set(models):
                raise InputError(f"pairs name {min(unknown)}, which is not among the models")
        _train_missing(models)
        bench = open_models(models, allow_pickle=allow_pickle)
        options = with_common_vocabulary(_with_text(options, names, text), bench.models, names)
        records = run_pairs(
            bench,
            names,
            options,
            store=store,
            blocks=blocks,
            pairs=pairs,
            progress=progress,
            memory=memory,
            workers=workers,
            executor=executor,
        )
        lineage = Lineage.of(models)
        return StudyReport(
            tuple(models), tuple(names), _described(bench), tuple(records), options, lineage, primary, fdr
        )
