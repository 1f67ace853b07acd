"""The three sentences with which the book opens, written from the records of a run."""

from collections.abc import Callable

import numpy as np

from provlab.inference import pvalues
from provlab_study.publishing.evidence import RunRecords, known
from provlab_study.publishing.results import Results

LEVEL = 0.01
UNKNOWN = "The descent of the models that were compared here is not known."


def sentences(store: Results, *, origin: str, adversary: str, counted: str) -> list[str]:
    """A sentence each on pairs of known origin, on an adversary, and on counted disagreement, from a run's records.

    Parameters
    ----------
    store
        The store of the run.
    origin, adversary, counted
        Names of the experiments that left the records. Where one has not run, the sentence says so.
    """
    writers: list[tuple[str, Callable[[RunRecords], str]]] = [
        (origin, _origin),
        (adversary, _adversary),
        (counted, _counted),
    ]
    return [
        write(RunRecords(experiment, store)) if (experiment := store.experiment(name)) else f"Not run here: {name}."
        for name, write in writers
    ]


def _rejected(evidence: RunRecords, statistic: str) -> tuple[int, int, int, int]:
    """Dependent pairs found, all of them, independent pairs accused, all of them, by Holm at `LEVEL`."""
    dependent, independent, _ = known(evidence.pairs, statistic)
    log10_p = np.concatenate([dependent["log10_p"], independent["log10_p"]]).astype(float)
    below = pvalues.holm(log10_p) <= np.log10(LEVEL)
    n = len(dependent)
    return int(below[:n].sum()), n, int(below[n:].sum()), len(independent)


def _origin(evidence: RunRecords) -> str:
    hit, n, accused, others = _rejected(evidence, "phi_u")
    if not n + others:
        return UNKNOWN
    return (
        f"A test that reads nothing but weights finds {hit} of the {n} pairs of language models with a common origin, "
        f"and accuses {accused} of the {others} pairs without one."
    )


def _adversary(evidence: RunRecords) -> str:
    plain, n, *_ = _rejected(evidence, "phi_u")
    if not n:
        return UNKNOWN
    robust = _rejected(evidence, "phi_match")[0]
    turned = np.asarray(evidence.measurement("negative"), dtype=float)
    still = int((pvalues.holm(turned) <= np.log10(LEVEL)).sum())
    return (
        f"If somebody disguises the second model of each pair without changing what it says, this test finds {plain} "
        f"of {n}. Another, φ_MATCH, is built for such disguises and finds {robust}; if signs are flipped too, it finds "
        f"{still} of {len(turned)} (all by Holm's correction at {LEVEL:g})."
    )


def _counted(evidence: RunRecords) -> str:
    inputs = evidence.measurement("space")["inputs"]
    sampling = evidence.measurement("sampling")
    ratios = np.array([run["ratio"] for run in sampling["runs"]])  # (runs, 4)
    off = float(np.abs(ratios / np.array(sampling["exact"]) - 1).max())
    return (
        f"Where two models disagree can be counted. For two toy models we count agreement and disagreement on all "
        f"{inputs:,} inputs; estimates from samples come within {off:.1%} of the counts."
    )
