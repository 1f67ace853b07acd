"""The first question as a function: `compare` says whether two models were trained independently."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from provlab import policy
from provlab import statistics as registry
from provlab.engine.pairs import open_models, train_missing
from provlab.engine.store import Store
from provlab.engine.table import OpenedModels
from provlab.errors import NotComparableError, ParameterError
from provlab.reading.changes import changes
from provlab.reading.checkpoint import Checkpoint, identical
from provlab.report.comparison import Comparison
from provlab.report.described import described
from provlab.report.family import check_primary
from provlab.report.records import describe
from provlab.statistics import quick as few
from provlab.statistics.options import Options


def compare(
    a: str | Path,
    b: str | Path,
    *,
    statistics: Sequence[str] | None = None,
    blocks: Sequence[int] | None = None,
    primary: str | None = None,
    fdr: bool = False,
    all_blocks: bool = False,
    quick: bool = False,
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
        Registered names; what `provlab.policy` says of the pair otherwise. One that does not apply to the pair, or
        fails, becomes a row with the reason.
    blocks : sequence of int, optional
        Transformer blocks to read, counted from 0; all by default.
    primary : str, optional
        The statistic declared to judge by: only its tests are corrected and stand in the verdict, the others are
        description. By default all statistics on all pairs are one family.
    fdr : bool
        Control the false discovery rate (Benjamini-Yekutieli) in place of the family-wise error (Holm).
    all_blocks : bool
        Compare every block of one model with every block of the other, by phi_u, and by phi_match and its unsigned form
        where both have gates: those of them that are asked. Done unasked where the two are of unequal depth; the
        p-value is the smallest, by Holm over all pairs of blocks.
    quick : bool
        Read a few whole blocks, drawn by both models' digests, and 256 tokens (`provlab.statistics.quick`).
    text : str, optional
        Held-out text for phi_jsd and phi_match; by default prose that no zoo model was trained on.
    store : Store, optional
        Where finished results are kept and found again.
    allow_pickle : bool
        Also open ``.bin`` weights, with ``weights_only=True``.
    progress : float
        Show a bar on stderr, at most once in so many seconds; 0 or False shows none.
    **settings
        Fields of `provlab.statistics.options.Options`: seed, device, dtype, n_permutations, ...

    Raises
    ------
    ProvlabError
        If a model cannot be opened, or no statistic applies; the message names the way out.
    """
    options = Options(**(few.SETTINGS if quick else {}) | settings)
    names = registry.checked_names(statistics)
    check_primary(primary, names)
    if all_blocks and (blocks is not None or quick):
        raise ParameterError("all blocks are compared with all; leave out blocks and quick, or all_blocks")
    few.check(quick, blocks)
    a, b = str(a), str(b)
    if a == b:  # answered without a test
        itself = describe(a, Checkpoint.open(a, allow_pickle=allow_pickle))
        return Comparison((itself, itself), (), options, primary, fdr)
    train_missing([a, b])  # together, so that the whole work is announced at once
    opened = open_models([a, b], allow_pickle=allow_pickle, strict=True)
    records, options = policy.ask(
        opened,
        names if statistics else None,
        options,
        text=text,
        blocks=blocks,
        all_blocks=all_blocks,
        quick=quick,
        primary=primary,
        fdr=fdr,
        store=store,
        progress=progress,
    )
    if all(record.error for record in records):
        raise NotComparableError(str(records[0].error))
    identical(model.checkpoint for model in opened.models.values())  # refuses a remembered hash that is wrong
    models = described(opened.models, {record.statistic for record in records}, options, forms=True)
    return Comparison(models, tuple(records), options, primary, fdr, _changes(opened))


def _changes(opened: OpenedModels) -> tuple[dict[str, Any], ...]:
    """Which tensors of two models differ; nothing where they are not on this machine, or of two depths or widths."""
    a, b = opened.models.values()
    shapes = {(of.anatomy.n_blocks, of.anatomy.width) for of in (a, b)}
    if len(shapes) > 1 or any(of.checkpoint.bytes_to_fetch() or of.checkpoint.unverified for of in (a, b)):
        return ()
    return changes(a.checkpoint, b.checkpoint, a.anatomy, b.anatomy)
