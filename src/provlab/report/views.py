"""What the reports of a pair and of a study share: the level of a verdict, frames and plain text tables."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provlab.engine.ledger import PairRecord
from provlab.inference import pvalues
from provlab.statistics.base import Model

if TYPE_CHECKING:
    import pandas as pd

LONGEST_RULE = 60  # characters
LEVEL = 0.01  # of every verdict: the chance, under independence, of one false word among the tests read together


def describe(source: str, model: Model) -> dict[str, Any]:
    """Say which model this was: source, architecture, commit, one digest, and the SHA-256 of each file."""
    checkpoint = model.checkpoint
    return {
        "source": source,
        "name": model.name,
        "architecture": checkpoint.architecture,
        "commit": checkpoint.commit,
        "digest": checkpoint.digest,
        "files": checkpoint.files(),
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


def holm_adjusted(log10_p: ArrayLike) -> NDArray[np.float64]:
    """Holm-adjusted log10 p of the values that are there, NaN elsewhere."""
    adjusted = np.array(log10_p, dtype=float)
    there = ~np.isnan(adjusted)
    if there.any():
        adjusted[there] = pvalues.holm(adjusted[there])
    return adjusted


def with_reasons(frame: "pd.DataFrame", records: Sequence[PairRecord]) -> "pd.DataFrame":
    """Add why each record failed, None where it did not (and not the NaN that a column of text would hold)."""
    import pandas as pd

    return frame.assign(error=pd.Series([record.error for record in records], dtype=object))


def blocks_frame(records: Iterable[PairRecord]) -> "pd.DataFrame":
    """One row per pair, statistic and block: value, log10_p."""
    import pandas as pd

    columns = ["a", "b", "statistic", "block", "value", "log10_p"]
    rows = [
        (record.a, record.b, record.statistic, block.block, block.value, block.log10_p)
        for record in records
        if record.outcome
        for block in record.outcome.blocks
    ]
    return pd.DataFrame(rows, columns=columns).astype({"log10_p": float})


def record_json(record: PairRecord) -> dict[str, Any]:
    """One statistic on one pair, with its blocks or the reason why there are none."""
    if record.outcome is None:
        return {"log10_p": None, "value": None, "floor": None, "blocks": [], "error": record.error}
    outcome = record.outcome
    return {
        "log10_p": outcome.log10_p,
        "value": outcome.value,
        "floor": outcome.floor,
        **({"detail": outcome.detail} if outcome.detail else {}),
        "blocks": [
            {"block": block.block, "log10_p": block.log10_p, "value": block.value, "detail": block.detail}
            for block in outcome.blocks
        ],
        "error": None,
    }
