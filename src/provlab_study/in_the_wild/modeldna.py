"""modelDNA, a tool of others, asked of pairs in a process of its own where it is installed.

It makes a probability of four scores of sampled weights: how standard deviations run over blocks, the cosine of norms
and biases, the cosine of weights at the same places, and spectra. It reads safetensors and GGUF.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from provlab.errors import ProvlabError, one_line

VERSION = "0.1.0"  # of which the rates are published that stand beside ours
INSTALL = f"pip install modeldna=={VERSION}"
#: it calls descent from the first probability on, and from the second on it abstains
DESCENT, ABSTAINS = 0.9, 0.5
#: in its README of 0.1.0
PUBLISHED = (
    "on public models 0 of 107 unrelated pairs reach it (the largest is 0.66) and the related ones do "
    "(the smallest is 0.94)"
)
_PATIENCE = 900  # seconds for all pairs

# Pairs of folders are read from stdin; a line of JSON is printed for each, a probability or null. A model is read once.
_ASKED = """
import json, math, sys
from functools import cache
from modeldna.compare import compare_fingerprints
from modeldna.fingerprint.extract import extract_fingerprint
from modeldna.io.source import open_source
from modeldna.verdict import judge

@cache
def fingerprint(folder):
    try:
        return extract_fingerprint(open_source(folder), mode="fast", model_id=folder)
    except Exception:  # a format that it does not read
        return None

for a, b in json.load(sys.stdin):
    of_a, of_b, probability = fingerprint(a), fingerprint(b), None
    if of_a and of_b:
        dtypes = {"suspect_dtype": of_a.arch.torch_dtype, "candidate_dtypes": {b: of_b.arch.torch_dtype}}
        first = judge([(compare_fingerprints(of_a, of_b), b)], **dtypes).candidates
        probability = first[0].probability if first else None
    print(json.dumps(probability if probability is None or math.isfinite(probability) else None), flush=True)
"""


def here() -> bool:
    """Whether the version that is pinned here is installed."""
    try:
        return version("modeldna") == VERSION
    except PackageNotFoundError:
        return False


def probabilities(pairs: Sequence[tuple[Path, Path]]) -> list[float | None]:
    """Ask for the probability that the first of each pair descends from the second, by its command `compare`.

    Returns
    -------
    list
        A probability for each pair; None where it reads one of the two not, or says that the two cannot be compared.

    Raises
    ------
    ProvlabError
        It ends in an error, or takes too long.
    """
    command = [sys.executable, "-c", _ASKED]
    folders = json.dumps([[str(a), str(b)] for a, b in pairs])
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}  # it is given folders, and need ask nobody
    try:
        done = subprocess.run(
            command, input=folders, env=environment, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ProvlabError(f"modelDNA did not answer in {_PATIENCE} s; ask of fewer pairs") from error
    answers = [line for line in done.stdout.splitlines() if line]
    if done.returncode or len(answers) != len(pairs):
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ProvlabError(f"modelDNA ended in an error ({one_line(last)[:200]}); {INSTALL}, or remove it")
    return [None if (value := json.loads(line)) is None else float(value) for line in answers]
