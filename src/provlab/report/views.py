"""What the reports of a pair and of a study share: plain text tables, records for machines."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from provlab.engine.ledger import PairRecord
from provlab.models.architectures import sees
from provlab.models.checkpoint import Checkpoint
from provlab.statistics.base import Outcome

LONGEST_RULE = 60  # characters


def describe(source: str, checkpoint: Checkpoint) -> dict[str, Any]:
    """Say which model this was: source, commit, digest, files, which of them were read in part, and as what codes."""
    within = None
    if sees(checkpoint.config):
        from provlab.models.language import language_part

        within, _ = language_part(checkpoint.architecture, checkpoint.config)
    return {
        "source": source,
        "name": checkpoint.name,
        "architecture": checkpoint.architecture,
        "commit": checkpoint.commit,
        "digest": checkpoint.digest,
        "files": checkpoint.files(),
        "not_verified": checkpoint.unverified,
        "stored": checkpoint.stored,
        "language_part": within,
    }


def text_table(rows: Sequence[Sequence[str]], header: Sequence[str], right: Iterable[int]) -> str:
    """Plain text table with two spaces between columns."""
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    # a long reason in the last column needs no long rule above it
    rules = ["-" * min(width, LONGEST_RULE) for width in widths]
    for row in [header, rules, *rows]:
        cells = [cell.rjust(widths[i]) if i in set(right) else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def numbers(outcome: Outcome | None) -> dict[str, float]:
    """Numbers of one statistic on one pair, NaN where there is none.

    Keys: value, log10_p, floor; paper_log10_p, the paper's own form of the p-value; and agree, the share of hidden
    units over all blocks that are matched to themselves (alike by gate and up, for phi_MATCH): where p-values stand at
    the floor it still tells pairs apart.
    """
    values: dict[str, float | None] = dict.fromkeys(("value", "log10_p", "floor", "paper_log10_p", "agree"))
    if outcome:
        values |= {"value": outcome.value, "log10_p": outcome.log10_p, "floor": outcome.floor}
        values |= {"paper_log10_p": outcome.detail.get("paper_log10_p"), "agree": _agree(outcome)}
    return {name: np.nan if number is None else float(number) for name, number in values.items()}


def _agree(outcome: Outcome) -> float | None:
    matched = [block.detail for block in outcome.blocks if "agree" in block.detail]
    return sum(detail["agree"] for detail in matched) / sum(detail["n"] for detail in matched) if matched else None


def record_json(record: PairRecord) -> dict[str, Any]:
    """One statistic on one pair, with its blocks or the reason why there are none."""
    if record.outcome is None:
        return {**dict.fromkeys(numbers(None)), "blocks": [], "error": record.error}
    outcome = record.outcome
    return {
        **{name: None if np.isnan(number) else number for name, number in numbers(outcome).items()},
        **({"detail": outcome.detail} if outcome.detail else {}),
        "blocks": [
            {"block": block.block, "log10_p": block.log10_p, "value": block.value, "detail": block.detail}
            for block in outcome.blocks
        ],
        "error": None,
    }
