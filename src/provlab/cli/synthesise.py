"""``provlab synthesise``: write a checkpoint of a true shape whose weights nobody trained."""

import argparse
import sys
from pathlib import Path


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("shape", help="llama-2-7b, llama-3.1-8b, ... (any other word lists them), or a config.json")
    parser.add_argument("folder", help="a new folder for it")
    parser.add_argument("--blocks", type=int, metavar="N", help="write only the first N blocks (default: all)")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the weights; another seed gives another model (default: 0)"
    )
    origin = parser.add_mutually_exclusive_group()
    origin.add_argument("--copy-of", metavar="MODEL", help="copy this model with noise instead, in its own shape")
    origin.add_argument("--pruned-from", metavar="MODEL", help="keep the part of this larger model that has the shape")
    parser.add_argument(
        "--noise",
        type=float,
        metavar="X",
        help="noise of a copy, in standard deviations of each tensor (default: 0.5 or 0)",
    )
    parser.set_defaults(command=_synthesise)


def _synthesise(arguments: argparse.Namespace) -> int:
    from provlab.errors import InputError
    from provlab.models.checkpoint import Checkpoint
    from provlab.planning import shapes, synthetic
    from provlab.planning.skeleton import Skeleton

    folder = Path(arguments.folder)
    config = shapes.shape(arguments.shape, arguments.blocks)
    common = {"seed": arguments.seed, "progress": sys.stderr.isatty()}
    if arguments.copy_of:
        parent = Checkpoint.open(arguments.copy_of)
        if Skeleton(folder.name, config).shapes.items() - Skeleton(parent.name, parent.config).shapes.items():
            raise InputError(f"{arguments.copy_of} has not the shape {arguments.shape}; --copy-of keeps the shape")
        noise = 0.5 if arguments.noise is None else arguments.noise
        written = synthetic.noisy_copy(parent, folder, noise=noise, blocks=arguments.blocks, **common)
    elif arguments.pruned_from:
        parent = Checkpoint.open(arguments.pruned_from)
        written = synthetic.pruned_copy(parent, config, folder, noise=arguments.noise or 0.0, **common)
    elif arguments.noise is not None:
        raise InputError("--noise is that of a copy; name its parent by --copy-of or --pruned-from")
    else:
        written = synthetic.synthesise(config, folder, **common)
    print(f"{written.folder}: {written.tensors} tensors, {written.n_bytes / 1e9:,.2f} GB")
    return 0
