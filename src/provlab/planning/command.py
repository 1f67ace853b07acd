"""``provlab plan``: what a study of these models will read, hold and take, before anything starts."""

import sys
from typing import Any

import rich_click as click

from provlab.cli import delivery, options, sources
from provlab.cli.command import Command


@click.command(cls=Command, more=options.known)
@click.argument(
    "models",
    nargs=-1,
    required=True,
    type=sources.ModelName(checked=False),
    help="as for study; shape:llama-2-7b*21 stands for 21 models of that shape, which need not exist",
)
@options.STATISTICS
@options.MEMORY
@click.option(
    "--diff",
    "by_diff",
    is_flag=True,
    help="what provlab diff of two models takes instead: --sequences (default: 4000, fewer of large models) of "
    "--sequence-length tokens (default: 25) in --dtype on --device",
)
@click.option("--workers", type=int, default=1, metavar="N", help="processes that compute (default: 1)")
@delivery.JSON
def command(
    models: tuple[str, ...],
    *,
    by_diff: bool,
    allow_pickle: bool,
    memory: str | None,
    workers: int,
    json: str | None,
    **settings: Any,
) -> int:
    """How many bytes, how much memory and how many hours does a study take?

    example: provlab plan zoo:oak zoo:elm --statistic phi_u
    """
    from provlab.planning import answers as planned

    settings = options.without_defaults(settings)
    if by_diff:
        names = {"sequence_length": "length", "n_sequences": "n", "dtype": "dtype", "device": "device"}
        given = {to: settings[name] for name, to in names.items() if name in settings}
        numbers, card = planned.diff_plan(models, memory=memory, allow_pickle=allow_pickle, **given)
    else:
        numbers, card = planned.study_plan(
            models,
            memory=memory,
            workers=workers,
            allow_pickle=allow_pickle,
            progress=sys.stderr.isatty(),
            **settings,
        )
        for source, why in numbers["refused"].items():
            print(f"left out: {source}: {why}", file=sys.stderr)
    delivery.deliver(json, lambda: numbers, card)
    return 0
