"""``provlab diff``: over which inputs two models disagree."""

import re
from pathlib import Path
from typing import Any

import rich_click as click

from provlab.cli import delivery, options, sources
from provlab.cli.command import Command
from provlab.errors import InputError

_ROW = re.compile(r'\{.*"(messages|prompt|arguments)"\s*:.*\}\s*$')  # a line of a chat log, or of items
#: the beginning of such rows as one list, which is no text either
_LIST = re.compile(r'\s*\[\s*\{.{0,9999}?"(messages|prompt|arguments)"\s*:', re.DOTALL)


def _rows(text: str, path: str) -> list[dict[str, Any]] | None:
    """Lines of JSON, by the name of their file or since the first is one of these; None for a text."""
    first = text.lstrip().partition("\n")[0]
    if Path(path).suffix.lower() != ".jsonl" and not (_ROW.match(first) or _LIST.match(text)):
        return None
    from provlab.modeldiff.items import lines

    return lines(text)


class TextOrItems(options.TextFile):
    """A text, or the items of a file of JSON lines."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the keyword argument of `provlab.diff` that it is, with its value."""
        text = super().convert(value, param, ctx)
        rows = _rows(text, value)
        return {"text": text} if rows is None else {"items": rows}


class PromptSet(options.TextFile):
    """Openings: lines of a text, or of JSON."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the openings."""
        text = super().convert(value, param, ctx)
        if (rows := _rows(text, value)) is None:
            return [line for line in text.splitlines() if line.strip()]
        from provlab.modeldiff.openings import prompt_of

        return [prompt_of(row, number) for number, row in enumerate(rows, 1)]


class Gates(options.WordList):
    """What to fail on, read before any model is."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Return the gates, each as it was written."""
        from provlab.modeldiff.gates import parsed

        parsed(value)
        return super().convert(value, param, ctx)


def _gates() -> tuple[str, ...]:
    from provlab.modeldiff.gates import ANY, GATES

    return (*GATES, ANY)


class Numbers(click.ParamType):
    """Numbers in a list: ``1,1.5`` as any, or ``3:4.2`` as two."""

    def __init__(self, name: str) -> None:
        self.name, self.between = name, ":" if ":" in name else ","

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Return the numbers."""
        try:
            numbers = tuple(float(part) for part in value.split(self.between))
        except ValueError:
            numbers = ()
        if not numbers or (self.between == ":" and len(numbers) != 2):
            what = "two numbers such as 0.5:1" if self.between == ":" else "numbers such as 1,1.5"
            self.fail(f"it is {what}, not {value!r}", param, ctx)
        return numbers


@click.command(cls=Command, surplus=sources.TWO)
@sources.model("a")
@sources.model("b", help="the other model, of the same tokenizer")
@click.option(
    "--text",
    "inputs",
    type=TextOrItems(),
    default=None,
    help="held-out text, UTF-8 (default: prose that no zoo model was trained on); or FILE.jsonl, questions with "
    "answers: what lm-eval --log_samples wrote, or lines with prompt, answer and perhaps choices",
)
@click.option(
    "--prompts",
    type=PromptSet(),
    help="openings, in the chat template if any: each line of a text, or FILE.jsonl, a chat log (messages), lm-eval's "
    'items, or {"prompt": ...}',
)
@click.option(
    "--reference",
    "references",
    type=sources.ModelName(),
    multiple=True,
    help="a model made as B was, without the change: another seed of A's recipe, or A fine-tuned again; repeat it",
)
@click.option("--length", type=int, metavar="N", help="tokens of an input (default: 25)")
@click.option("--range", "z", type=Numbers("LO:HI"), help="range of mean loss, nats per token, such as 3.0:4.2")
@click.option(
    "--from-text",
    "shares",
    type=Numbers("LO:HI"),
    help="or the quantiles of the text's losses that bound it (default: 0.05:0.5)",
)
@click.option(
    "--sequences",
    "n",
    type=int,
    metavar="N",
    help="that each model writes (default: 4000, fewer of large models on a CPU)",
)
@click.option("--tempers", type=Numbers("1,1.15,1.3"), help="write colder too, to reach lower losses (default: 1)")
@click.option("--exchange", "exchange_steps", type=int, metavar="STEPS", help="replica exchange as a second opinion")
@options.SEED
@options.DEVICE
@options.DTYPE
@options.ALLOW_PICKLE
@delivery.RESULTS
@click.option(
    "--fail-on",
    type=Gates("GATES", _gates),
    help="exit with 1 where a test rejects: answers (more turned wrong than right), text and outputs (farther apart in "
    "nats per token than a size such as text=0.1; by default than 8 bits round a model, or than --reference models "
    "are), or any; several by Holm. Exit codes: 0 passed or equal, 1 failed, 2 could not run, 3 not decided",
)
@click.option("--level", type=float, metavar="P", help="the chance of a wrong 1 (default: 0.05)")
@click.option("--html", type=delivery.OutputFile(".html"), help="write the report as one HTML file that needs no other")
@delivery.VERBOSE
@delivery.report
@delivery.JSON
def command(
    a: str,
    b: str,
    *,
    inputs: dict[str, Any] | None,
    references: tuple[str, ...],
    results: str | None,
    html: str | None,
    json: str | None,
    verbose: bool,
    report: str | None = None,
    **settings: Any,
) -> int:
    """Over which inputs do two models of one tokenizer disagree, and by how much?

    example: provlab diff zoo:oak zoo:oak-chat --sequences 400
    """
    if settings["level"] is not None and not settings["fail_on"]:
        raise InputError("--level is that of --fail-on; give both")
    if settings["z"] and settings["shares"]:
        raise InputError("--range and --from-text both bound the loss; give one of them")
    from provlab.modeldiff.door import diff

    settings = options.without_defaults(settings | (inputs or {}) | {"references": list(references) or None})
    difference = diff(a, b, progress=delivery.seconds_between_bars(), results=results, **settings)
    delivery.write_report(report, "diff", settings, difference)
    if html:
        delivery.afterwards(lambda: delivery.write_text(html, difference.to_page()))
    delivery.deliver(json, difference.to_json, difference, verbose=verbose)
    return difference.decided.status
