"""What reports keep for machines: which model one was, and the numbers of one statistic on one pair."""

from typing import TYPE_CHECKING, Any

import numpy as np

from provlab.reading import part
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.language import language_part
from provlab.statistics.results import floor

if TYPE_CHECKING:
    from provlab.engine.table import PairRecord
    from provlab.statistics.results import Outcome


def describe(source: str, checkpoint: Checkpoint, *, tokenizer: bool = False) -> dict[str, Any]:
    """Say which model this was: source, commit, digest, files, which of them were read in part, and as what codes.

    With `tokenizer` its files are named too: an answer that rests on what a tokenizer says is of that one alone.
    """
    within = None
    if part.language(checkpoint):
        within, _ = language_part(checkpoint.architecture, checkpoint.config)
    return {
        "source": source,
        "name": checkpoint.name,
        "architecture": checkpoint.architecture,
        "commit": checkpoint.commit,
        "digest": checkpoint.digest,
        "content": checkpoint.content,
        "config": checkpoint.config_digest,
        "files": checkpoint.files(),
        "not_verified": checkpoint.unverified,
        "rival": checkpoint.rival,
        "notes": list(checkpoint.notes),
        "stored": checkpoint.stored,
        "language_part": within,
        **({"tokenizer": checkpoint.tokenizer_files()} if tokenizer else {}),
    }


def numbers(outcome: "Outcome | None") -> dict[str, float]:
    """Numbers of one statistic on one pair, NaN where there is none.

    Keys: value, log10_p, floor; paper_log10_p, the paper's own form of the p-value; and agree, the share of hidden
    units over all blocks that are matched to themselves (alike by gate and up, for phi_MATCH): where p-values stand at
    the floor it still tells pairs apart.
    """
    values: dict[str, float | None] = dict.fromkeys(("value", "log10_p", "floor", "paper_log10_p", "agree"))
    if outcome:
        values |= {"value": outcome.value, "log10_p": outcome.log10_p}
        values |= {"floor": None if outcome.log10_p is None else floor(outcome)}
        values |= {"paper_log10_p": outcome.detail.paper_log10_p, "agree": _agree(outcome)}
    return {name: np.nan if number is None else float(number) for name, number in values.items()}


def _agree(outcome: "Outcome") -> float | None:
    matched = [block.detail for block in outcome.blocks if block.detail.agree is not None]
    n = sum(detail.n or 0 for detail in matched)
    return sum(detail.agree or 0 for detail in matched) / n if n else None  # every block may have been left out


def record_json(record: "PairRecord") -> dict[str, Any]:
    """One statistic on one pair, with its blocks or the reason why there are none."""
    if record.outcome is None:
        return {**dict.fromkeys(numbers(None)), "blocks": [], "error": record.error}
    outcome = record.outcome
    return {
        **{name: None if np.isnan(number) else number for name, number in numbers(outcome).items()},
        **({"detail": detail} if (detail := outcome.detail.as_record()) else {}),
        "blocks": [block.as_record() for block in outcome.blocks],
        "error": None,
    }
