"""``provlab disguise``: write a model as an adversary would show it."""

import tomllib
from importlib import resources
from pathlib import Path

import rich_click as click

from provlab import plugins
from provlab.cli import delivery, options, sources
from provlab.cli.command import Command
from provlab.cli.screen import show
from provlab.errors import InputError
from provlab.reading.checkpoint import Checkpoint
from provlab.report.card import Card
from provlab.report.views import Table


def attacks() -> list[str]:
    """Names of all attacks; their table is read alone, since the attacks themselves import torch."""
    return list(tomllib.loads((resources.files("provlab.attacks") / "catalogue.toml").read_text("utf-8")))


@click.command(cls=Command)
@sources.model("source", required=False)
@click.argument("folder", required=False, type=delivery.OutputFolder(new=True), help="a new folder")
@options.repeated(
    "--with",
    "kinds",
    options.WordList("ATTACKS", attacks, "+"),
    "attacks in their order, such as T1+split=2+T3; may be repeated (default: those of T1 to T6 that exist)",
)
@click.option(
    "--other", "others", type=sources.ModelName(), multiple=True, help="a model that attacks take from; may be repeated"
)
@options.SEED
@click.option(
    "--text",
    type=options.TextFile(),
    help="held-out text to measure a loss on (default: prose that no zoo model has seen)",
)
@options.ALLOW_PICKLE
@click.option("--list", "listing", is_flag=True, help="list the attacks and leave")
def command(
    source: str | None,
    folder: str | None,
    *,
    kinds: list[str] | None,
    others: tuple[str, ...],
    seed: int | None,
    text: str | None,
    allow_pickle: bool,
    listing: bool,
) -> int:
    """How would a thief hide a model? Exact attacks are proved by the outputs; of lossy ones the loss is measured.

    example: provlab disguise zoo:oak-chat hidden --with T1+split=3
    """
    from provlab.attacks import catalogue
    from provlab.attacks.disguise import disguise

    if listing:
        show(_listing(catalogue.listing()))
        return 0
    if source is None or folder is None:
        raise InputError("give a model and a new folder: provlab disguise zoo:oak-chat hidden --with T1+split")
    lossy = any(not catalogue.Step.read(kind).attack.exact for kind in kinds or ())
    model, *donors = (Checkpoint.open(name, allow_pickle=allow_pickle) for name in (source, *others))
    if text is None:
        text = (plugins.default_text() or "") if lossy else ""
    made = disguise(model, Path(folder), seed=seed or 0, kinds=kinds, others=donors, text=text)
    changed = "outputs unchanged" if made.difference_saved is not None else "outputs changed"
    show(
        Card(
            f"{made.folder}: {source} by {'+'.join(made.applied)}, {changed}.",
            remarks=[*made.facts(), ("ask", f"provlab compare {source} {made.folder} says what is found")],
        )
    )
    return 0


def _listing(rows: list[tuple[str, str, str]]) -> Card:
    """All attacks, in a line each."""
    exact = sum(kind == "exact" for _, kind, _ in rows)
    return Card(
        f"{exact} attacks keep the outputs (exact), {len(rows) - exact} change them (lossy).",
        body=[Table(("attack", "outputs", "what it does"), rows)],
        remarks=[("use", "provlab disguise MODEL NEW --with ATTACK+ATTACK")],
    )
