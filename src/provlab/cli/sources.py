"""Names of models at the command line: what may be written, what is refused before any work, what a shell completes."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import rich_click as click
from click.shell_completion import CompletionItem

from provlab import plugins
from provlab.errors import CheckpointError, ProvlabError, nearest
from provlab.reading.part import NAMES as PARTS
from provlab.reading.part import split
from provlab.reading.sources import unknown

#: names that many know a model of the hub by -> its name there
KNOWN_AS = {
    **dict.fromkeys(("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2"), "openai-community"),
    **dict.fromkeys(("bert-base-uncased", "bert-base-cased", "bert-large-uncased"), "google-bert"),
    **dict.fromkeys(("roberta-base", "roberta-large", "xlm-roberta-base"), "FacebookAI"),
    **dict.fromkeys(("t5-small", "t5-base"), "google-t5"),
    "distilbert-base-uncased": "distilbert",
}
#: how a model is written
WRITTEN = "zoo:NAME, a checkpoint folder, or a hub id org/name[@revision]"

Decorator = Callable[[Any], Any]


class ModelName(click.ParamType):
    """A model's name; one that stands for no model is refused, unless it is not to be `checked`."""

    name = "MODEL"

    def __init__(self, *, checked: bool = True) -> None:
        self.checked = checked

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        if self.checked:
            check(value)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """Offer models and files."""
        return [CompletionItem(incomplete, type="file"), *map(CompletionItem, names(incomplete))]


def model(name: str, **settings: Any) -> Decorator:
    """Let a command take a model, or several."""
    return click.argument(name, type=ModelName(), **{"help": WRITTEN, **settings})


def pair(command: Any) -> Any:
    """Let a command take two models, `a` and `b`."""
    return model("a")(model("b", help="the other model")(command))


#: said where a pair is asked for and more are given
TWO = "; two models are taken here, provlab study A B C tests all pairs of many"

PART = click.option(
    "--part",
    metavar="NAME",
    help=f"compare a part alone: {', '.join(PARTS)}, or by NAME=PREFIX what lies below a prefix (MODEL::NAME is that "
    "of one model)",
)


def names(begun: str) -> list[str]:
    """Models that a scheme lists, such as ``zoo:oak``; a scheme is loaded only once it is begun."""
    scheme = begun.partition(":")[0]
    offers = []
    for known in plugins.named(plugins.SCHEMES):
        listed = plugins.hook(known, "names") if scheme and known.startswith(scheme) else None
        offers += [f"{known}:{name}" for name in listed()] if listed else [f"{known}:"]
    return [offer for offer in offers if offer.startswith(begun)]


def parted(sources: Iterable[str], named: str | None) -> list[str]:
    """Return the sources with the part that was named; those that name one of their own keep it.

    Raises
    ------
    InputError
        No part has this name, and no prefix says which tensors it has.
    """
    whole = [source if named is None or split(source)[1] else f"{source}::{named}" for source in sources]
    for source in whole:
        split(source)
    return whole


def check(named: str) -> None:
    """Refuse a name that stands for no model, before any model is opened, trained or fetched.

    Raises
    ------
    ProvlabError
        A scheme does not have the name, a folder does not exist, or a name lacks its scheme or its organisation.
    """
    schemes = plugins.named(plugins.SCHEMES)
    source, _ = split(named)
    scheme, colon, name = source.partition(":")
    if not source.strip():
        raise CheckpointError("a model's name is empty; give zoo:NAME, a checkpoint folder, or a hub id org/name")
    if more := _several(source):
        raise CheckpointError(f"{source} is no model; models are given with blanks between: {' '.join(more)}")
    if colon and not source.startswith((".", "/", "~")):
        if name and scheme not in schemes and nearest(scheme, schemes):
            raise unknown(scheme, name, schemes)
        if has := plugins.hook(scheme, "check"):
            has(name)
    elif "+" in source or Path(source).expanduser().exists():
        return
    elif source.startswith((".", "/", "~")):
        raise CheckpointError(f"{source} does not exist; give a checkpoint folder that does")
    elif source in KNOWN_AS:
        raise CheckpointError(f"{source} is no folder here; did you mean {KNOWN_AS[source]}/{source}?")
    elif source in plugins.named(plugins.STATISTICS):
        raise CheckpointError(f"{source} is a statistic and no model; several are given by --statistic phi_u,{source}")
    elif "/" not in source and "@" not in source:
        for known in schemes:
            if _has(known, source):
                raise CheckpointError(f"{source} is no folder here; did you mean {known}:{source}?")


def _several(source: str) -> list[str]:
    """Names of models that were joined by commas; blanks stand between models."""
    parts = [part.strip() for part in source.split(",") if part.strip()]
    of_schemes = {part.partition(":")[0] in plugins.named(plugins.SCHEMES) for part in parts}
    joined = len(parts) > 1 and len(of_schemes) == 1 and not Path(source).expanduser().exists()
    return parts if joined else []


def _has(scheme: str, name: str) -> bool:
    """Whether a scheme knows a name."""
    check = plugins.hook(scheme, "check")
    try:
        return check is not None and check(name) is None
    except ProvlabError:
        return False
