"""The commands: ``provlab compare | run | reproduce | zoo | claims``.

Exit status 0 when a command ran, 2 with one line on stderr when it could not, 130 when it was stopped.
"""

import argparse
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from provlab.errors import InputError, ParameterError, ProvlabError
from provlab.files import atomic_file

MAX_BLOCKS = 10_000  # more than any model has: a mistyped range must not fill the memory


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Print one line and leave with 2."""
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parsed = _parser().parse_args(arguments)
    _quiet()
    try:
        command: Callable[[argparse.Namespace], int] = parsed.command
        return command(parsed)
    except ProvlabError as error:
        print(f"provlab: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone; nothing is wrong
        return 0
    except OSError as error:
        print(f"provlab: error: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        if os.environ.get("PROVLAB_DEBUG"):
            raise
        print(
            f"provlab: internal error: {type(error).__name__}: {' '.join(str(error).split())} "
            "(PROVLAB_DEBUG=1 shows where)",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print(
            "provlab: stopped; what was finished is kept, the same command goes on from there",
            file=sys.stderr,
        )
        return 130


def _quiet() -> None:
    """Leave stderr to progress bars and to our own errors."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.disable(logging.WARNING)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="provlab", description="Were two language models trained independently?")
    commands = parser.add_subparsers(required=True, metavar="command", parser_class=_Parser)

    compare = commands.add_parser("compare", help="test a pair of models")
    compare.add_argument("a", help="zoo:NAME, a checkpoint folder, or a hub id org/name[@revision]")
    compare.add_argument("b", help="the other model")
    compare.add_argument(
        "--statistic",
        action="append",
        metavar="NAME[,NAME]",
        help="which statistics (default: all that apply)",
    )
    compare.add_argument("--blocks", metavar="0,1,4-7", help="which transformer blocks, counted from 0 (default: all)")
    compare.add_argument(
        "--device", default="cpu", help="where activations are computed: cpu, cuda, cuda:1 (default: cpu)"
    )
    compare.add_argument("--dtype", default="float32", help="in which precision (default: float32)")
    compare.add_argument("--seed", type=int, default=0, help="of tokens and permutations (default: 0)")
    compare.add_argument(
        "--permutations", type=int, default=99, metavar="T", help="of PERMTEST for phi_l2 (default: 99)"
    )
    compare.add_argument("--sequences", type=int, default=32, metavar="N", help="inputs of activations (default: 32)")
    compare.add_argument("--sequence-length", type=int, default=64, metavar="N", help="tokens in each (default: 64)")
    compare.add_argument("--allow-pickle", action="store_true", help="also open .bin weights (weights_only)")
    compare.add_argument("--json", metavar="FILE", help="write everything as JSON; - is standard output")
    compare.set_defaults(command=_compare)

    run = commands.add_parser("run", help="run a notebook with your own parameters")
    run.add_argument("notebook", help="its name in notebooks/, or a path")
    run.add_argument(
        "-p",
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="as often as needed; values are YAML, lists may be a,b",
    )
    run.add_argument(
        "-o", "--output", metavar="FILE", help="where the executed notebook goes (default: below _results/)"
    )
    run.set_defaults(command=_run)

    reproduce = commands.add_parser("reproduce", help="run the notebooks of a plan, skipping what is up to date")
    reproduce.add_argument("plan", help="a YAML file, see notebooks/profiles/")
    reproduce.add_argument("-o", "--output", required=True, metavar="FOLDER", help="where executed notebooks go")
    reproduce.add_argument("--force", action="store_true", help="run all of them again")
    reproduce.add_argument("--yes", action="store_true", help="do not ask before models are fetched")
    reproduce.set_defaults(command=_reproduce)

    zoo = commands.add_parser("zoo", help="the embedded models of known lineage")
    actions = zoo.add_subparsers(required=True, metavar="action", parser_class=_Parser)
    listing = actions.add_parser("list", help="names, parents, and what is built")
    building = actions.add_parser("build", help="train what is not there yet")
    building.add_argument("names", nargs="*", help="which models, with their ancestors (default: all)")
    building.add_argument("--jobs", type=int, default=None, help="processes, one core each (default: all cores)")
    for action in (listing, building):
        action.add_argument(
            "--edition", default=None, help="default or smoke (default: $PROVLAB_ZOO_EDITION or default)"
        )
    listing.set_defaults(command=_zoo_list)
    building.set_defaults(command=_zoo_build)

    claims = commands.add_parser("claims", help="judge the papers' claims from stored records")
    claims.add_argument("--json", metavar="FILE", help="write a list of claims as JSON; - is standard output")
    claims.add_argument(
        "--results", metavar="FOLDER", help="a folder of results (default: that of the last reproduction)"
    )
    claims.set_defaults(command=_claims)
    return parser


def _check_json(target: str | None) -> None:
    """Refuse a file that cannot be written, before any work is done for it."""
    if target is None or target == "-":
        return
    path = Path(target)
    if not path.parent.is_dir():
        raise InputError(f"--json: {path.parent} is no folder, so {path.name} cannot be written there; make it first")
    if path.is_dir():
        raise InputError(f"--json: {path} is a folder; give a file name, or - for standard output")


def _write_json(target: str, content: Any) -> None:
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    with atomic_file(Path(target)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def parse_blocks(text: str | None) -> list[int] | None:
    """``0,2,4-6`` as ``[0, 2, 4, 5, 6]``; None stays None.

    Raises
    ------
    InputError
        If the text is anything else.
    """
    if text is None:
        return None
    blocks: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise InputError(f"--blocks is a list such as 0,1,4-7, not {text!r}")
        if int(last if dash else first) >= MAX_BLOCKS:
            raise InputError(f"--blocks: no model has a block {last if dash else first}; blocks are counted from 0")
        blocks += range(int(first), int(last if dash else first) + 1)
    return list(dict.fromkeys(blocks))


def _compare(arguments: argparse.Namespace) -> int:
    from provlab.api import compare

    _check_json(arguments.json)
    names = [name.strip() for given in arguments.statistic or [] for name in given.split(",") if name.strip()]
    comparison = compare(
        arguments.a,
        arguments.b,
        statistics=names if arguments.statistic else None,
        blocks=parse_blocks(arguments.blocks),
        allow_pickle=arguments.allow_pickle,
        progress=sys.stderr.isatty(),
        device=arguments.device,
        dtype=arguments.dtype,
        seed=arguments.seed,
        n_permutations=arguments.permutations,
        n_sequences=arguments.sequences,
        sequence_length=arguments.sequence_length,
    )
    if arguments.json:
        _write_json(arguments.json, comparison.to_json())
    if arguments.json != "-":
        print(comparison)
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from provlab import provenance, runner
    from provlab.experiment import checked_profile

    path = runner.find_notebook(arguments.notebook)
    given = runner.as_lists(path, runner.parse_assignments(arguments.parameter))
    if "profile" in runner.parameters_of(path):
        given.setdefault("profile", "own")  # so that own runs never mix with a reproduction
    default = provenance.results_root() / checked_profile(str(given.get("profile", "own"))) / path.name
    output = Path(arguments.output) if arguments.output else default
    runner.run(path, given, output, progress=sys.stderr.isatty())
    print(output)
    return 0


def _reproduce(arguments: argparse.Namespace) -> int:
    from provlab import provenance, runner, zoo
    from provlab.studies.store import Store

    plan = runner.Plan.read(Path(arguments.plan))
    if plan.fetches and not arguments.yes:
        _ask(plan)
    if plan.zoo:
        zoo.build(edition=plan.zoo["edition"])
    ran = runner.run_plan(plan, Path(arguments.output), force=arguments.force)
    Store(provenance.results_root()).mark_current(plan.profile)
    print(
        f"{ran} of {len(plan.experiments)} notebooks ran"
        + (", the others were up to date" if ran < len(plan.experiments) else "")
    )
    return 0


def _ask(plan: Any) -> None:
    """Print what a plan fetches and needs, and go on only with a yes."""
    total = sum(float(model["gigabytes"]) for model in plan.fetches)
    for model in plan.fetches:
        print(f"  {model['id']:<50} {float(model['gigabytes']):>8.1f} GB")
    print(f"{len(plan.fetches)} models, {total:,.1f} GB. {plan.needs}".strip())
    if not sys.stdin.isatty():
        raise ParameterError("nobody is there to agree to fetching these; agree with --yes (make: YES=1)")
    if input("Fetch them? [y/N] ").strip().lower() not in ("y", "yes"):
        raise ParameterError("nothing was fetched")


def _zoo_list(arguments: argparse.Namespace) -> int:
    from provlab import zoo

    edition = arguments.edition or zoo.default_edition()
    rows = zoo.status(edition)
    suffix = "" if edition == "default" else f"@{edition}"
    print(f"{'model':<28}{'parent':<22}{'kind':<12}{'collection':<14}{'steps':>6}  built")
    for row in rows:
        print(
            f"{'zoo:' + row.name + suffix:<28}{row.parent or '-':<22}{row.kind:<12}{row.collection:<14}{row.steps:>6}  "
            f"{'yes' if row.built else 'no'}"
        )
    print(f"{sum(row.built for row in rows)} of {len(rows)} models of the edition {edition} are built")
    return 0


def _zoo_build(arguments: argparse.Namespace) -> int:
    from provlab import zoo

    edition = arguments.edition or zoo.default_edition()
    jobs = {} if arguments.jobs is None else {"jobs": arguments.jobs}
    built = zoo.build(arguments.names or None, edition=edition, **jobs)
    for name, path in built.items():
        print(f"{name}: {path}")
    return 0


def _claims(arguments: argparse.Namespace) -> int:
    from provlab import provenance
    from provlab.studies import claims
    from provlab.studies.store import Store

    _check_json(arguments.json)
    if arguments.results and not Path(arguments.results).is_dir():
        raise InputError(f"--results {arguments.results} is no folder of results; give that of a profile")
    store = Store(Path(arguments.results)) if arguments.results else Store(provenance.results_root()).current()
    rows = claims.evaluate(store)
    if arguments.json:
        _write_json(arguments.json, rows)
    if arguments.json != "-":
        print(claims.as_text(rows))
    return 0
