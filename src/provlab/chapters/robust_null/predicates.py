"""Predicates about phi_MATCH between strangers, where no theorem makes its values p-values."""

from collections.abc import Mapping

import numpy as np

from provlab.chapters.robust_null.measure import Uniformity
from provlab.chapters.shared import calibration
from provlab.inference import pvalues
from provlab.publishing.evidence import NOT_RUN, Evidence, Verdict, judge


def behaves_like_pvalue(
    evidence: Evidence, measurement: str, texts: int, level: float, min_pairs: Mapping[str, int]
) -> Verdict:
    """No test of uniformity rejects over the independent pairs, per block and aggregated, on each text.

    The measurement holds a `Uniformity` for each text: the bases are compared with the uniform by Kolmogorov and
    Smirnov's test over all pairs, the tree by joint copies, since there the descendants of one model repeat each other.
    All these tests are read together, with Holm's correction, at `level`. The actual size at a nominal 0.05 is reported
    and not judged.
    """
    measured = {text: Uniformity(**found) for text, found in evidence.measurement(measurement).items()}
    enough = min_pairs.get(evidence.profile, max(min_pairs.values()))
    names, tests, words, fewest = [], [], [], np.inf
    for text, found in measured.items():
        blocks = np.array([blocks for _, _, blocks in found.bases], dtype=float)
        if not blocks.size:
            return Verdict(NOT_RUN, "", f"no pair of bases was run on {text}")
        aggregate = pvalues.fisher(blocks, axis=1)
        results = {
            "bases, per block": calibration.ks_uniform(blocks.ravel()).p,
            "bases, aggregated": calibration.ks_uniform(aggregate).p,
            "tree, per block": found.tree["blocks"],
            "tree, aggregated": found.tree["aggregated"],
        }
        names += [f"{text}: {name}" for name in results]
        tests += list(results.values())
        fewest = min(fewest, len(blocks))
        words.append(
            f"{text}: KS p = {results['bases, per block']:.2g} over {blocks.size:,} blocks of {len(blocks)} pairs, "
            f"{results['bases, aggregated']:.2g} aggregated; actual size at 0.05 {found.size:.4f} a block"
        )
    adjusted = pvalues.holm(np.log10(np.maximum(tests, 1e-300)))
    rejected = [name for name, value in zip(names, adjusted, strict=True) if value <= np.log10(level)]
    problems = [
        (len(measured) < texts, f"only {len(measured)} texts, fewer than {texts}"),
        (fewest < enough, f"only {fewest:g} pairs of bases, fewer than {enough}"),
        (bool(rejected), f"not uniform: {', '.join(rejected)}"),
    ]
    why = f"none of {len(tests)} tests of uniformity rejects at {level:g} after Holm's correction"
    return judge("; ".join(words), why, problems)
