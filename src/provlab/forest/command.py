"""``provlab tree``: the families of many models, and the tree of each."""

import sys

import rich_click as click

from provlab import statistics as registry
from provlab.cli import delivery, options, sources
from provlab.cli.command import Command
from provlab.engine.store import Store
from provlab.errors import InputError


@click.command(cls=Command)
@sources.model("models", nargs=-1, required=True, help="as for study")
@click.option(
    "--outgroup", type=sources.ModelName(checked=False), help="one of them, known to have parted first from its family"
)
@click.option(
    "--statistic",
    type=options.Word("NAME", lambda: registry.REGISTRY),
    help="it joins families (default: phi_u)",
)
@sources.PART
@options.SEED
@options.MEMORY
@options.ALLOW_PICKLE
@delivery.RESULTS
@delivery.VERBOSE
@delivery.report
@click.option("--picture", type=delivery.OutputFile(".png"), help="draw the forest as PNG")
@delivery.JSON
@click.option("--mermaid", is_flag=True, help="print a flow chart of Mermaid")
@click.option("--dot", is_flag=True, help="print a graph for Graphviz")
def command(
    models: tuple[str, ...],
    *,
    outgroup: str | None,
    statistic: str | None,
    part: str | None,
    seed: int | None,
    memory: str | None,
    allow_pickle: bool,
    results: str | None,
    picture: str | None,
    json: str | None,
    mermaid: bool,
    dot: bool,
    verbose: bool,
    report: str | None = None,
) -> int:
    """Which models are of one family, which of two is later, and whose parent is shown?

    example: provlab tree zoo:oak zoo:oak-chat zoo:elm
    """
    from provlab.forest.door import tree

    if bool(json) + mermaid + dot > 1:
        raise InputError("--json, --mermaid and --dot are three forms of one answer; give one of them")
    if outgroup is not None:
        (outgroup,) = sources.parted([outgroup], part)
    settings = options.without_defaults({"outgroup": outgroup, "statistic": statistic, "seed": seed})
    result = tree(
        sources.parted(models, part),
        memory=memory,
        allow_pickle=allow_pickle,
        store=Store(delivery.store_root(results)),
        progress=sys.stderr.isatty(),
        **settings,
    )
    delivery.write_report(report, "tree", settings, result)
    if picture:
        delivery.afterwards(lambda: result.drawn().save(picture))
    text = result.to_mermaid() if mermaid else result.to_dot() if dot else result
    delivery.deliver(json, result.to_json, text, verbose=verbose)
    return 0
