"""Predicates about an adversary who trains MLPs anew: what the fresh weights still show."""

from provlab.chapters.mlp_retraining.measure import BlockRecord
from provlab.publishing.evidence import NOT_RUN, Evidence, Verdict, judge, log10_words


def found_after_retraining(
    evidence: Evidence, measurement: str, blocks: str, log10_p: float, control: float
) -> Verdict:
    """Each retrained block is below `log10_p` against the base, and above `control` against the stranger.

    `measurement` holds a `BlockRecord` for each retrained block, and `blocks` says how many blocks the model has: all
    of them must have been retrained.
    """
    rows = evidence.records(measurement, BlockRecord)
    n_blocks = int(evidence.measurement(blocks))
    strange = [row.log10_p_stranger for row in rows if row.log10_p_stranger is not None]
    if not rows:
        return Verdict(NOT_RUN, "", "no block was retrained")
    weakest = max(rows, key=lambda row: row.log10_p)
    strongest = min(row.log10_p for row in rows)
    fit = f"relative error {min(row.relative for row in rows):.2g} to {max(row.relative for row in rows):.2g}"
    ours = (
        f"{len(rows)} blocks retrained ({fit}): {log10_words(strongest)} to {weakest.log10_p:,.1f} against the base"
        + (f", smallest {min(strange):,.1f} against a stranger" if strange else "")
    )
    missing = sorted(set(range(n_blocks)) - {row.block for row in rows})
    lost = [row.block for row in rows if not row.log10_p < log10_p]
    problems = [
        (bool(missing), f"block {missing[0] if missing else ''} was not retrained"),
        (len(strange) < len(rows), "a block was not compared with a stranger"),
        (
            bool(lost),
            f"{len(lost)} of {len(rows)} blocks not below {log10_p:g}, the weakest is block {weakest.block}",
        ),
        (bool(strange) and min(strange) <= control, f"a stranger's block is at or below {control:g}"),
    ]
    return judge(ours, f"every block below {log10_p:g}, and none of a stranger at or below {control:g}", problems)
