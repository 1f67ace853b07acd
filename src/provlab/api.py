"""The two questions as two functions: `compare` two models, `study` all pairs of many."""

from collections.abc import Sequence

from provlab import statistics as registry
from provlab import zoo
from provlab.errors import NotComparableError
from provlab.report import Comparison, StudyReport, describe
from provlab.statistics.base import Options
from provlab.studies.lineage import Lineage, tree_order
from provlab.studies.pairs import open_models, run_pairs, with_common_vocabulary
from provlab.studies.store import Store


def expand(models: Sequence[str]) -> list[str]:
    """Replace ``zoo:*`` or ``zoo:*@edition`` by all models of the zoo, in the order of the tree."""
    expanded: list[str] = []
    for source in models:
        if source == "zoo:*" or source.startswith("zoo:*@"):
            edition = source.partition("@")[2]
            suffix = f"@{edition}" if edition else ""
            parents = zoo.parents(zoo.families(edition or zoo.default_edition()))
            expanded += [f"zoo:{name}{suffix}" for name in tree_order(parents)]
        else:
            expanded.append(source)
    return expanded


def _options(text: str | None, settings: dict[str, object]) -> Options:
    """Options with the zoo's held-out prose where no text is given."""
    held_out = zoo.held_out_text("prose") if text is None else text
    return Options(text=held_out, **settings)  # type: ignore[arg-type]


def compare(
    a: str,
    b: str,
    *,
    statistics: Sequence[str] | None = None,
    blocks: Sequence[int] | None = None,
    text: str | None = None,
    store: Store | None = None,
    allow_pickle: bool = False,
    progress: bool = True,
    **settings: object,
) -> Comparison:
    """Test whether two models were trained independently.

    Parameters
    ----------
    a, b : str
        Each a local checkpoint folder, a hub id ``org/name[@revision]``, or ``zoo:NAME``.
    statistics : sequence of str, optional
        Registered names; all by default. One that does not apply to the pair becomes a row with the reason.
    blocks : sequence of int, optional
        Transformer blocks to read, counted from 0; all by default.
    text : str, optional
        Held-out text for phi_jsd and phi_match; by default prose that no zoo model was trained on.
    store : Store, optional
        Where finished units are kept and found again.
    allow_pickle : bool
        Also open ``.bin`` weights, with ``weights_only=True``.
    progress : bool
        Show a bar on stderr.
    **settings
        Fields of `provlab.statistics.base.Options`: seed, device, dtype, n_permutations, ...

    Raises
    ------
    ProvlabError
        If a model cannot be opened or read, or no statistic applies; the message names the way out.
    """
    names = registry.checked_names(statistics)
    options = _options(text, settings)
    bench = open_models([a, b], allow_pickle=allow_pickle, strict=True)
    options = with_common_vocabulary(options, bench.models)
    records = run_pairs(bench, names, options, store=store, blocks=blocks, progress=progress, strict=True)
    if all(record.error for record in records):
        raise NotComparableError(str(records[0].error))
    models = tuple(describe(source, model) for source, model in bench.models.items())
    return Comparison(models, tuple(records), options, Lineage.of([a, b]).dependent(a, b))


def study(
    models: Sequence[str],
    *,
    statistics: Sequence[str] | None = None,
    blocks: Sequence[int] | None = None,
    text: str | None = None,
    store: Store | None = None,
    allow_pickle: bool = False,
    progress: bool = True,
    **settings: object,
) -> StudyReport:
    """Test all pairs of a list of models; arguments as for `compare`, and ``zoo:*`` stands for the whole zoo.

    A pair that fails becomes a record with its reason and the rest goes on. With a store, finished units are never
    computed again, so a study that was stopped goes on where it was.
    """
    names = registry.checked_names(statistics)
    options = _options(text, settings)
    models = expand(models)
    bench = open_models(models, allow_pickle=allow_pickle)
    options = with_common_vocabulary(options, bench.models)
    records = run_pairs(bench, names, options, store=store, blocks=blocks, progress=progress)
    described = tuple(describe(source, model) for source, model in bench.models.items())
    return StudyReport(tuple(models), tuple(names), described, tuple(records), options, Lineage.of(models))
