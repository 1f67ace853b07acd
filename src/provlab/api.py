"""The first question as a function: `compare` says whether two models were trained independently."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from provlab import plugins
from provlab import statistics as registry
from provlab.engine.all_blocks import able
from provlab.engine.pairs import open_models, run_pairs, with_common_vocabulary
from provlab.engine.sequential import until_settled as read_until_settled
from provlab.engine.store import Store
from provlab.engine.table import OpenedModels
from provlab.errors import NotComparableError, ParameterError
from provlab.models.checkpoint import Checkpoint, identical
from provlab.report.comparison import Comparison
from provlab.report.family import LEVEL, FamilyOfTests, check_primary
from provlab.report.views import describe
from provlab.statistics.base import Options


def with_text(options: Options, names: Sequence[str], text: str | None) -> Options:
    """Options with the text, or prose that a scheme offers if none is given and a statistic reads text.

    Called once all else is checked: the first use of the zoo's text makes its corpus, which takes a while.
    """
    reads = any("text_sha256" in registry.get(name).parameters(options) for name in names)
    if text is None and reads:
        text = plugins.default_text()
    return replace(options, text=text or "")


def fitting(opened: OpenedModels, usual: Sequence[str]) -> list[str]:
    """Return the usual tests; where no model has a block, as tables taken alone, those of an embedding."""
    if any(model.anatomy.n_blocks for model in opened.models.values()):
        return list(usual)
    by_name = {name: registry.get(name) for name in registry.REGISTRY}
    return [name for name, test in by_name.items() if test.roles == ("embedding",) and test.assumptions]


def described(opened: OpenedModels, *, lent: bool = False) -> tuple[dict[str, Any], ...]:
    """What a report says of each model, and what decides which statistics could read it.

    Where ids were `lent`, a model without a tokenizer was given those of another, or random ones.
    """
    return tuple(
        describe(source, model.checkpoint)
        | {
            "read_as": model.anatomy.architecture if model.anatomy.named else None,
            "blocks": model.anatomy.n_blocks,
            "width": model.anatomy.width,
            "gated": model.anatomy.gated,
            "experts": any(model.anatomy.mlps(block) != ("",) for block in range(model.anatomy.n_blocks)),
        }
        | ({"lent_ids": model.checkpoint.tokenizer_digest is None} if lent else {})
        for source, model in opened.models.items()
    )


def _units_may_be_spread(opened: OpenedModels) -> bool:
    """Whether one model with gates has more hidden units, so that those that matter may each be a part of the other's.

    phi_MATCH pairs units one to one, and could not see it. How many matter is not known before the models are run.
    """
    counts = []
    for model in opened.models.values():
        anatomy = model.anatomy
        if not anatomy.gated:
            return False
        mlps = [len(anatomy.mlps(block)) for block in range(anatomy.n_blocks)]
        counts.append(anatomy.mlp_width * max(mlps, default=1))
    return max(counts) > min(counts)


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
    progress: float = True,
    **settings: object,
) -> Comparison:
    """Test whether two models were trained independently.

    Parameters
    ----------
    a, b : str or Path
        Each a local checkpoint folder, a hub id ``org/name[@revision]``, or ``zoo:NAME``; ``MODEL::PART`` is a part of
        one, as ``MODEL::vision`` or ``MODEL::tower=PREFIX``.
    statistics : sequence of str, optional
        Registered names; the default set otherwise, with phi_anchor where one model has more hidden units.
        One that does not apply to the pair, or fails, becomes a row with the reason.
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
        Compare every block of one model with every block of the other, by phi_u, and by phi_match and its unsigned form
        where both have gates: those of them that are asked. Done unasked where the two are of unequal depth; the
        p-value is the smallest, by Holm over all pairs of blocks.
    text : str, optional
        Held-out text for phi_jsd and phi_match; by default prose that no zoo model was trained on.
    store : Store, optional
        Where finished results are kept and found again.
    allow_pickle : bool
        Also open ``.bin`` weights, with ``weights_only=True``.
    progress : float
        Show a bar on stderr, at most once in so many seconds; 0 or False shows none.
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
    if a == b:  # answered without a test
        itself = describe(a, Checkpoint.open(a, allow_pickle=allow_pickle))
        return Comparison((itself, itself), (), options, primary, fdr)
    in_part = registry.hashes_nothing(names, options.units)
    opened = open_models([a, b], allow_pickle=allow_pickle, strict=True, in_part=in_part)
    names = names if statistics else fitting(opened, names)
    whole = options.units is None and not until_settled
    if statistics is None and whole and _units_may_be_spread(opened):  # known before any test is made
        names = [*names, "phi_anchor"]
    options = with_common_vocabulary(with_text(options, names, text), opened.models, names)
    if until_settled:
        records = [
            read_until_settled(opened, names[0], options, level=LEVEL, store=store, blocks=blocks, progress=progress)
        ]
    else:
        records = []
        depths = {model.anatomy.n_blocks for model in opened.models.values()}
        if blocks is None and (all_blocks or len(depths) > 1):
            everywhere = able(names, list(opened.models.values()), explicit=all_blocks)
            records = run_pairs(opened, everywhere, options, store=store, all_blocks=True, progress=progress)
        left = [name for name in names if name not in {record.statistic for record in records}]
        records += run_pairs(opened, left, options, store=store, blocks=blocks, progress=progress)
        records.sort(key=lambda record: names.index(record.statistic))
    if all(record.error for record in records):
        raise NotComparableError(str(records[0].error))
    identical(model.checkpoint for model in opened.models.values())  # refuses a remembered hash that is wrong
    seeing = any(registry.get(record.statistic).evidence != "order" for record in records)
    if statistics is None and seeing and not FamilyOfTests.of(records, primary, fdr=fdr).rejected.any():
        # a disguised copy may have silenced the tests; a figure that is no test, where both models have embeddings
        scored = run_pairs(opened, ["stream_score"], options, store=store, progress=progress)
        records += [record for record in scored if record.outcome]
    models = described(opened, lent=options.shared is not None)  # the text's tokens were brought together
    return Comparison(models, tuple(records), options, primary, fdr)
