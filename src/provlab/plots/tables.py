"""Tables of a page: numbers right-aligned and written as everywhere, gaps as a dash."""

from collections.abc import Callable
from html import escape
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from provlab.plots.numbers import format_log10_p

GAP = "–"


class FrameTable:
    """A frame that shows itself as a small HTML table; made by `table`."""

    def __init__(self, frame: pd.DataFrame, caption: str) -> None:
        self.frame = frame
        self.caption = caption

    def __repr__(self) -> str:
        return f"{self.caption}\n{self.frame.to_string()}".strip()

    def _repr_html_(self) -> str:
        # rows that are merely numbered need no labels; numbers that have a name, 6, 8, ... units, do
        index = not isinstance(self.frame.index, pd.RangeIndex) or self.frame.index.name is not None
        names = [name or "" for name in self.frame.index.names] if index else []
        head = "".join(
            f"<th scope='col'>{escape(str(name))}</th>" if str(name) else "<td></td>"  # a heading says something
            for name in [*names, *self.frame.columns]
        )
        # log10 p is written as everywhere; columns of it are known by their heading
        writers = [format_log10_p if holds_log10_p(str(column)) else _three_digits for column in self.frame.columns]
        rows = []
        for label, row in zip(self.frame.index, self.frame.itertuples(index=False, name=None), strict=True):
            labels = (label if isinstance(label, tuple) else (label,)) if index else ()
            cells = [f"<th scope='row'>{escape(str(level))}</th>" for level in labels]
            for write, value in zip(writers, row, strict=True):
                number = isinstance(value, Real) and not isinstance(value, bool) and not pd.isna(value)
                cells.append(f"<td{' class=number' * number}>{escape(_written(value, write))}</td>")
            rows.append(f"<tr>{''.join(cells)}</tr>")
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        return (
            f'<table class="provlab-table">{caption}<thead><tr>{head}</tr></thead>'
            f"<tbody>{''.join(rows)}</tbody></table>"
        )


def table(frame: pd.DataFrame, *, caption: str = "") -> FrameTable:
    """Return a frame as a table of the book.

    Parameters
    ----------
    frame
        Floats in columns whose name holds ``log10``, and floors, are written as log10 p, others with three digits;
        a plain numbering of the rows is left out.
    caption
        Above the table.
    """
    return FrameTable(frame, caption)


def holds_log10_p(heading: str) -> bool:
    """Whether a column's numbers are log10 p, by its heading: one with ``log10`` in it, or ``floor``."""
    return "log10" in heading or heading == "floor"


def _three_digits(value: float) -> str:
    return f"{value:z#.3g}"


def _written(value: Any, write_float: Callable[[float], str]) -> str:
    """Text of one cell: gaps as a dash, whole numbers with thousands separated."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return GAP
    if isinstance(value, (float, np.floating)):
        return write_float(float(value))
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
