"""Where numbers come from: the draw of the world, versions, the commit, the processor, the folder of results."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from provlab import machine
from provlab.errors import ParameterError

LIBRARIES = (
    "provlab",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "peft",
    "numpy",
    "scipy",
    "pandas",
)

DRAW_VARIABLE = "PROVLAB_DRAW"
#: how far the seeds of two draws lie apart, of recipes and of notebooks: far more than any of them counts up
BETWEEN_DRAWS = 100_000
_DRAWS = 10_000  # so that all seeds stay below 2^32


def draw() -> int:
    """Return the draw of the world, from ``$PROVLAB_DRAW``; 0 is that of the published study.

    A draw enters every seed: of the zoo's weights and their order of data (`provlab.zoo.families`), and of each
    notebook. What models are given to learn is no draw: corpora, held-out text and the data of the toys are the same in
    all worlds.

    Raises
    ------
    ParameterError
        If the variable holds no whole number from 0 to 9999.
    """
    text = os.environ.get(DRAW_VARIABLE) or "0"
    if not (text.isascii() and text.isdecimal()) or int(text) >= _DRAWS:
        raise ParameterError(f"a draw is a whole number from 0 to {_DRAWS - 1}, not {text!r} ({DRAW_VARIABLE})")
    return int(text)


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that numbers depend on, as far as they are installed."""
    return {"python": platform.python_version()} | {name: found for name in LIBRARIES if (found := _version(name))}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def processor() -> str:
    """Processor, its widest vectors and the cores: what decides the order of sums, and with it the last digits."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = fields.get("flags", "").split()
    vectors = [word for word, flag in (("AVX-512", "avx512f"), ("AVX2", "avx2")) if flag in flags][:1]
    numbers = [f"{word} {fields[key]}" for word, key in (("family", "cpu family"), ("model", "model")) if key in fields]
    inside = ", ".join(numbers + vectors)
    name = fields.get("model name") or platform.processor() or platform.machine()
    return f"{name}{f' ({inside})' if inside else ''}, {machine.cores()} {'core' if machine.cores() == 1 else 'cores'}"


def commit() -> str | None:
    """Commit of the project's checkout, with ``+changes`` if files differ; None outside a checkout."""
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)  # an installed copy may lie in another's checkout
        head = _git("rev-parse", "HEAD")
        return head + ("+changes" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    return done.stdout.strip()


def results_root() -> Path:
    """Folder of results: ``$PROVLAB_RESULTS``, else ``_results`` in the nearest folder above that is a project.

    A project is a folder with a ``notebooks`` folder and a ``pyproject.toml``; outside of one it is the working folder.
    What another draw than 0 gives lies below it, in ``draw-N``: no world overwrites another's results.

    Raises
    ------
    ParameterError
        See `draw`.
    """
    named = os.environ.get("PROVLAB_RESULTS")
    root = Path(named).expanduser() if named else project_root() / "_results"
    return root / f"draw-{draw()}" if draw() else root


def project_root() -> Path:
    """Nearest folder at or above the working folder that is a project, else the working folder."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "notebooks").is_dir() and (folder / "pyproject.toml").is_file():
            return folder
    return here
