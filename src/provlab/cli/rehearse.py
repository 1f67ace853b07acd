"""``provlab rehearse``: what a pair of full size costs here, measured on synthetic weights."""

import argparse
import sys
from pathlib import Path

from provlab.errors import InputError


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("shape", help="llama-2-7b, llama-3.1-8b, ... (any other word lists them), or a config.json")
    parser.add_argument(
        "--copy",
        default="noisy",
        metavar="KIND",
        help="the second model: noisy or pruned (copy of the first), or independent (default: noisy)",
    )
    parser.add_argument(
        "--other", metavar="SHAPE", help="shape of the pruned copy (default: llama-3.2-3b of llama-3.1-8b)"
    )
    parser.add_argument(
        "--statistic", help="phi_u, or phi_match at random tokens (default: phi_u; for a pruned copy phi_match)"
    )
    parser.add_argument("--blocks", default="1", metavar="N", help="how many to write and compare, or all (default: 1)")
    parser.add_argument(
        "--noise", type=float, default=0.5, help="noise of a copy, in standard deviations (default: 0.5)"
    )
    parser.add_argument(
        "--vocabulary",
        default="4096",
        metavar="N",
        help="rows of the token tables to write, or all; no statistic here depends on them (default: 4096)",
    )
    parser.add_argument(
        "--sequences", type=int, default=32, metavar="N", help="input sequences of phi_match (default: 32)"
    )
    parser.add_argument(
        "--sequence-length", type=int, default=64, metavar="N", help="tokens in each sequence (default: 64)"
    )
    parser.add_argument(
        "--device", default="cpu", help="where phi_match runs the models: cpu, cuda, cuda:1 (default: cpu)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and tokens (default: 0)")
    parser.add_argument(
        "--models", type=int, default=21, metavar="N", help="extrapolate to all pairs of N (default: 21)"
    )
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="workers like this machine to extrapolate to (default: 1)"
    )
    parser.add_argument(
        "--folder", metavar="FOLDER", help="folder on whose disk to write (default: the temporary folder)"
    )
    parser.set_defaults(command=_rehearse)


def _rehearse(arguments: argparse.Namespace) -> int:
    from provlab.planning.rehearsal import rehearse
    from provlab.plots.numbers import format_duration as duration

    if arguments.folder and not Path(arguments.folder).is_dir():
        raise InputError(f"--folder {arguments.folder} is no folder; give one that exists")
    default = "phi_match" if arguments.copy == "pruned" else "phi_u"
    rehearsal = rehearse(
        arguments.shape,
        arguments.copy,
        other=arguments.other,
        statistic=arguments.statistic or default,
        blocks=_all_or_number("--blocks", arguments.blocks),
        noise=arguments.noise,
        vocabulary=_all_or_number("--vocabulary", arguments.vocabulary),
        n_sequences=arguments.sequences,
        sequence_length=arguments.sequence_length,
        device=arguments.device,
        seed=arguments.seed,
        folder=Path(arguments.folder) if arguments.folder else None,
        progress=sys.stderr.isatty(),
    )
    print(rehearsal)
    if arguments.copy != "pruned":  # such a study would be of parents and children, not of equals
        study = rehearsal.study(arguments.models, workers=arguments.workers)
        workers = f"{arguments.workers} worker{'s' if arguments.workers > 1 else ''} like this one"
        print(
            f"All {arguments.models * (arguments.models - 1) // 2:,} pairs of {arguments.models} such models, "
            f"extrapolated: {duration(study.seconds)} with {workers} ({duration(study.cpu_seconds)} of CPU)"
        )
    return 0


def _all_or_number(option: str, text: str) -> int | None:
    """``all`` is None."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{option} must be a whole number of at least 1, or all, not {text!r}")
    return int(text)
