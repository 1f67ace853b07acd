"""``provlab diff``: over which inputs two models disagree."""

import argparse
import sys
from pathlib import Path
from typing import Any

from provlab.cli import arguments as common
from provlab.errors import InputError
from provlab.files import atomic_file


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    common.add_model(parser, "a", help="zoo:NAME, a checkpoint folder, or a hub id org/name[@revision]")
    common.add_model(parser, "b", help="the other model, of the same tokenizer")
    parser.add_argument(
        "--text",
        metavar="FILE",
        help="held-out text, UTF-8 (default: prose that no zoo model was trained on); or FILE.jsonl, questions with "
        "answers: what lm-eval --log_samples wrote, or lines with prompt, answer and perhaps choices",
    )
    parser.add_argument(
        "--prompt", metavar="FILE", help="inputs are what follows this text, in the chat template if any"
    )
    common.add_model(
        parser,
        "--reference",
        action="append",
        metavar="MODEL",
        help="a model of A's recipe with another seed: what a second training changes; may be given again",
    )
    parser.add_argument("--length", type=int, metavar="N", help="tokens of an input (default: 25)")
    of_loss = parser.add_mutually_exclusive_group()
    of_loss.add_argument("--range", metavar="LO:HI", help="range of mean loss, nats per token, such as 3.0:4.2")
    of_loss.add_argument(
        "--from-text", metavar="LO:HI", help="or the quantiles of the text's losses that bound it (default: 0.05:0.5)"
    )
    parser.add_argument("--sequences", type=int, dest="n", metavar="N", help="that each model writes (default: 4000)")
    parser.add_argument("--tempers", metavar="1,1.15,1.3", help="write colder too, to reach lower losses (default: 1)")
    parser.add_argument(
        "--exchange", type=int, dest="exchange_steps", metavar="STEPS", help="replica exchange as a second opinion"
    )
    parser.add_argument("--seed", type=int, help="of all draws (default: 0)")
    parser.add_argument("--device", help="where the models run: cpu, cuda, cuda:1 (default: cpu)")
    parser.add_argument("--dtype", help="their precision: float32, bfloat16, float16 (default: float32)")
    parser.add_argument("--allow-pickle", action="store_true", help="also open .bin weights (weights_only)")
    parser.add_argument(
        "--results", metavar="FOLDER", help="folder of finished draws, from which the command goes on after a stop"
    )
    parser.add_argument(
        "--fail-above",
        type=float,
        metavar="X",
        help="exit with 1 if B is more than X nats per token farther from A and its references than another seed is "
        "(without a reference: than X from A), by a test of the level: with k references "
        "by B's rank among k + 2 models, so that P must be at least 1 / (k + 2)",
    )
    parser.add_argument(
        "--level", type=float, metavar="P", help="of that test: the chance of a wrong exit code (default: 0.05)"
    )
    parser.add_argument("--html", metavar="FILE", help="write the report as one HTML file that needs no other")
    common.add_verbose(parser)
    common.add_report(parser)
    common.add_json(parser)
    parser.set_defaults(command=_diff)


def _diff(arguments: argparse.Namespace) -> int:
    common.check_json(arguments.json)
    common.check_json(arguments.html, "--html")
    common.check_models([arguments.a, arguments.b, *(arguments.reference or [])])
    if arguments.level is not None and arguments.fail_above is None:
        raise InputError("--level is that of --fail-above; give both")
    values = {
        **_text_or_items(arguments.text),
        "prompt": common.text("--prompt", arguments.prompt),
        "references": arguments.reference,
        "z": _numbers("--range", arguments.range, ":", two=True),
        "shares": _numbers("--from-text", arguments.from_text, ":", two=True),
        "tempers": _numbers("--tempers", arguments.tempers, ","),
        **{
            name: getattr(arguments, name)
            for name in ("length", "n", "exchange_steps", "seed", "device", "dtype", "allow_pickle")
        },
    }
    if arguments.results and Path(arguments.results).is_file():
        raise InputError(f"--results {arguments.results} is a file; give a folder")
    from provlab.diffing import diff
    from provlab.modeldiff.excess import TEST_LEVEL, check_limit

    limit, level = arguments.fail_above, TEST_LEVEL if arguments.level is None else arguments.level
    if limit is not None:
        check_limit(limit, level, len(arguments.reference or []))
    settings = {name: value for name, value in values.items() if value is not None}
    progress = sys.stderr.isatty()
    kept, tested = arguments.results, limit is not None
    difference = diff(arguments.a, arguments.b, progress=progress, results=kept, tested=tested, **settings)
    common.report(arguments.report, "diff", settings, difference)
    if arguments.html:
        with atomic_file(Path(arguments.html)) as temporary:
            temporary.write_text(difference.to_page(), encoding="utf-8")
    common.deliver(arguments.json, difference.to_json, lambda: difference, verbose=arguments.verbose)
    if limit is None:
        return 0
    fails = difference.fails(limit, level)
    print(f"provlab: {'fails' if fails else 'passes'}: the {difference.test_words(limit, level)}", file=sys.stderr)
    return int(fails)


def _text_or_items(name: str | None) -> dict[str, Any]:
    """A text, or the items of a file of JSON lines."""
    content = common.text("--text", name)
    if name is None or content is None or Path(name).suffix.lower() != ".jsonl":
        return {"text": content}
    from provlab.modeldiff.items import lines

    return {"items": lines(content)}


def _numbers(flag: str, text: str | None, between: str, *, two: bool = False) -> tuple[float, ...] | None:
    """``3:4.2`` as two numbers, ``1,1.5`` as any; None stays None."""
    if text is None:
        return None
    try:
        numbers = tuple(float(part) for part in text.split(between))
        if not two or len(numbers) == 2:
            return numbers
    except ValueError:
        pass
    raise InputError(f"{flag} is {'two numbers such as 0.5:1' if two else 'numbers such as 1,1.5'}, not {text!r}")
