"""Predicates about an adversary who trains fresh MLPs: what their weights still show."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from provlab.inference import pvalues
from provlab_study.publishing.evidence import NOT_RUN, Bar, ClaimStatus, judge, log10_words


def found_after_retraining(
    blocks: Sequence[Mapping[str, Any]], n_blocks: int, *, log10_p: float, control: float, error: float
) -> ClaimStatus:
    """Each retrained block is below `log10_p` against the base, and above `control` against the stranger.

    Both in the paper's form, two-sided and over all units, in which its Table 8 is: ours, which sets units aside, would
    leave -5 of the -26 of the weakest published block.

    `blocks` has a row for each block and each seed that it was retrained with: a seed is a replicate, judged by its
    weakest block. `n_blocks` says how many blocks the model has: with each seed all of them must have been
    retrained, and imitate but for a relative `error`. A stranger's blocks are judged one by one, and a replicate's
    together by Fisher.
    """
    rows = blocks
    by_seed = {seed: [row for row in rows if row["seed"] == seed] for seed in sorted({row["seed"] for row in rows})}
    if not rows:
        return ClaimStatus(NOT_RUN, "", "no block was retrained")
    if len({tuple(row["paper_log10_p"] for row in some) for some in by_seed.values()}) < len(by_seed):
        return ClaimStatus(NOT_RUN, "", "two seeds gave the same numbers: one retraining was kept twice")
    problems: list[tuple[bool, str]] = []
    for seed, some in by_seed.items():
        retrained = [row["block"] for row in some]
        missing = sorted(set(range(n_blocks)) - set(retrained))
        problems.append((bool(missing), f"block {missing[0] if missing else ''} was not retrained with seed {seed}"))
        problems.append((len(set(retrained)) < len(retrained), f"a block was retrained twice with seed {seed}"))
        strange = _strangers(some)
        known = len(strange) == len(some) and bool(np.isfinite(strange).all())
        problems.append((not known, "a block was not compared with a stranger"))
        if known:
            problems.append((min(strange) <= control, f"a stranger's block is at or below {control:g}"))
            together = pvalues.fisher(np.array(strange))
            problems.append((not together > control, f"a stranger's blocks together are at {together:.1f}"))
    worst = max(rows, key=lambda row: (not row["relative"] <= error, row["relative"]))
    problems.append(
        (not worst["relative"] <= error, f"block {worst['block']} imitates no better than {worst['relative']:.2g}")
    )
    weakest = [float(np.max([row["paper_log10_p"] for row in some])) for some in by_seed.values()]  # NaN if one is
    strangers = _strangers(rows)
    fit = f"relative error {min(row['relative'] for row in rows):.2g} to {max(row['relative'] for row in rows):.2g}"
    ours = (
        f"{n_blocks} blocks retrained with {len(by_seed)} seeds ({fit}): "
        f"{log10_words(min(row['paper_log10_p'] for row in rows))} to {np.max(weakest):,.1f} against the base; "
        f"weakest block by seed {', '.join(f'{x:,.1f}' for x in weakest)}"
        + (f"; smallest {min(strangers):,.1f} against a stranger" if strangers else "")
    )
    bars = [Bar("weakest block", weakest, log10_p)]
    why = f"every block below {log10_p:g}, and none of a stranger at or below {control:g}"
    return judge(ours, why, problems, bars)


def _strangers(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    return [row["paper_log10_p_stranger"] for row in rows if row["paper_log10_p_stranger"] is not None]
