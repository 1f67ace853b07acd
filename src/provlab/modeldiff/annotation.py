"""Which model's disagreement is right: precision and recall against a person's scores, or an oracle's (Section 3.4).

A person scores inputs from 1 (what the models were trained for) to 0 (nothing of the kind). `write_sheet` draws inputs
bin by bin of D into a table with an empty column for the scores, which opens in JupyterLab or any spreadsheet;
`read_sheet` takes it back and refuses a sheet that does not fit what was drawn. Where a rule says what is good, as in
the toy, `oracle` scores every input and nothing need be filled in.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provlab.errors import InputError
from provlab.files import atomic_file
from provlab.modeldiff.composition import composition
from provlab.modeldiff.representative import Direction, bin_of, checked_edges

COLUMNS = ("row", "side", "bin", "D", "text", "score")
_DIGITS = 6  # of D in a sheet


@dataclass(frozen=True)
class Sheet:
    """Inputs of one model chosen for scoring, some from each bin of D.

    Attributes
    ----------
    side
        Whose inputs they are.
    edges
        ``(k + 1,)`` of D.
    rows
        ``(n,)`` their row numbers in the `Direction`.
    bins
        ``(n,)`` the bin of each.
    difference
        ``(n,)`` D.
    texts
        What a person reads, one for each.
    """

    side: str
    edges: NDArray[np.float64]
    rows: NDArray[np.int64]
    bins: NDArray[np.int64]
    difference: NDArray[np.float64]
    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)


def choose(direction: Direction, edges: ArrayLike, texts: Sequence[str], *, per_bin: int = 5, seed: int = 0) -> Sheet:
    """Draw inputs for scoring, up to `per_bin` different texts from each bin of D, by their weights.

    Raises
    ------
    InputError
        `texts` do not match the rows, or no input lies in any bin.
    """
    edges = checked_edges(edges)
    if len(texts) != len(direction.difference):
        raise InputError(f"texts must be one for each of {len(direction.difference)} inputs, not {len(texts)}")
    if per_bin < 1:
        raise InputError(f"per_bin must be at least 1, not {per_bin}")
    found = composition(direction, edges, distinct=texts, n_examples=per_bin, seed=seed)
    rows = np.concatenate([one.examples for one in found])
    if not len(rows):
        raise InputError(f"no input has D between {edges[0]:g} and {edges[-1]:g}; take other edges")
    difference = direction.difference[rows]
    chosen = tuple(texts[row] for row in rows)
    return Sheet(direction.side, edges, rows, bin_of(difference, edges), difference, chosen)


def write_sheet(sheet: Sheet, path: Path, *, overwrite: bool = False) -> Path:
    """Write a sheet as CSV with an empty score column, whole or not at all.

    Raises
    ------
    InputError
        The file is there: it may hold scores. Pass ``overwrite=True`` to lose them.
    """
    if path.exists() and not overwrite:
        raise InputError(f"{path} is there and may hold scores; read it with read_sheet, or write to another file")
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows([*line, ""] for line in _lines(sheet))
    with atomic_file(path) as temporary:
        temporary.write_text(stream.getvalue(), encoding="utf-8")
    return path


def _lines(sheet: Sheet) -> list[list[str]]:
    return [
        [str(row), sheet.side, str(bin_), f"{d:.{_DIGITS}f}", _one_line(text)]
        for row, bin_, d, text in zip(sheet.rows, sheet.bins, sheet.difference, sheet.texts, strict=True)
    ]


def _one_line(text: str) -> str:
    """Show line ends and tabs as signs: a table has one line a row, and a leading = must not become a formula."""
    shown = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f" {shown}" if shown[:1] in ("=", "+", "-", "@") else shown


def read_sheet(sheet: Sheet, path: Path, *, allow_missing: bool = False) -> NDArray[np.float64]:
    """Read the scores that a person gave.

    Parameters
    ----------
    sheet
        What was written: the file must still hold its rows, in any order.
    path
        The CSV.
    allow_missing
        Return NaN for inputs without a score instead of refusing them.

    Returns
    -------
    ndarray
        ``(n,)`` scores in the order of the sheet.

    Raises
    ------
    InputError
        Naming the line: a score that is no number from 0 to 1 or is missing, a row changed, lost or twice there.
    """
    if not path.is_file():
        raise InputError(f"there is no sheet {path}; write it with write_sheet and fill in the column score")
    try:
        # a spreadsheet may put a byte-order mark at the beginning
        with path.open(encoding="utf-8-sig", newline="") as stream:
            lines = list(csv.DictReader(stream))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as CSV in UTF-8 ({error}); save it as such") from error
    if lines and not set(COLUMNS) <= set(lines[0]):
        raise InputError(f"{path} must have the columns {', '.join(COLUMNS)}; it has {', '.join(map(str, lines[0]))}")
    expected = {line[0]: (place, line) for place, line in enumerate(_lines(sheet))}
    scores = np.full(len(sheet), np.nan)
    seen = set()
    for number, line in enumerate(lines, start=2):
        if line["row"] not in expected or line["row"] in seen:
            twice = "stands there twice" if line["row"] in seen else "is none of the sheet's"
            raise InputError(f"{path}, line {number}: row {line['row']!r} {twice}; fill in scores and leave the rest")
        seen.add(line["row"])
        place, wanted = expected[line["row"]]
        if [line[name] for name in COLUMNS[:-1]] != wanted:
            raise InputError(f"{path}, line {number}: the row was changed; fill in scores and leave the rest")
        scores[place] = _score(line["score"], f"{path}, line {number}", allow_missing)
    if len(seen) < len(sheet):
        raise InputError(f"{path} lacks {len(sheet) - len(seen)} of {len(sheet)} rows; write the sheet anew")
    return scores


def _score(text: str | None, where: str, allow_missing: bool) -> float:
    if not (text or "").strip():
        if allow_missing:
            return float("nan")
        raise InputError(f"{where}: the score is missing; fill it in, or read with allow_missing=True")
    try:
        score = float(str(text).replace(",", "."))
    except ValueError:
        score = float("nan")
    if not 0 <= score <= 1:
        raise InputError(f"{where}: the score must be a number from 0 to 1, not {text!r}")
    return score


def oracle(
    tokens: NDArray[np.integer[Any]], rule: Callable[[NDArray[np.integer[Any]]], ArrayLike]
) -> NDArray[np.float64]:
    """Score inputs by a rule: ``rule(tokens)`` gives ``(n,)`` scores for ``(n, length)`` tokens.

    Raises
    ------
    InputError
        The rule gives another number of scores, or one outside [0, 1].
    """
    scores = np.asarray(rule(tokens), dtype=np.float64)
    if scores.shape != (len(tokens),) or not ((scores >= 0) & (scores <= 1)).all():
        raise InputError(f"the oracle must give one score from 0 to 1 for each of {len(tokens)} inputs")
    return scores


@dataclass(frozen=True)
class Agreement:
    """How far annotations agree with what a model finds likely, over one range of D (Equations 8, 9).

    Attributes
    ----------
    precision
        Share of good inputs among those in the range, with `precision_low` and `precision_high`.
    recall
        Good inputs in the range for each good input of the model over all of `edges`; proportional to Equation 9, whose
        denominator is the constant number of good inputs in X. With `recall_low` and `recall_high`.
    n
        Scored inputs in the range.
    level
        Of the intervals, by bootstrap over the scored inputs of each bin.
    """

    precision: float
    precision_low: float
    precision_high: float
    recall: float
    recall_low: float
    recall_high: float
    n: int
    level: float


def agreement(
    direction: Direction,
    edges: ArrayLike,
    rows: ArrayLike,
    scores: ArrayLike,
    where: tuple[float, float],
    *,
    level: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
) -> Agreement:
    """Compute precision and recall of the inputs with D in a range, from scores bin by bin.

    Parameters
    ----------
    direction
        Of one model's inputs.
    edges
        ``(k + 1,)`` of D: r(D) is the mean score in a bin, and the bin counts with the weight of all its inputs.
    rows, scores
        ``(n,)`` row numbers in `direction` of the scored inputs, and their scores; NaN is left out.
    where
        The range of D that is summed over; bins whose middle lies in it count. D < 0 on A's inputs is PD_A->B.
    level, n_resamples, seed
        Of the bootstrap: scores are drawn with replacement within each bin, weights stay.

    Raises
    ------
    InputError
        A bin that has inputs in it has no score, so that its mean is not known.
    """
    edges = checked_edges(edges)
    scored, given = np.asarray(rows, dtype=np.int64), np.asarray(scores, dtype=np.float64)
    if scored.shape != given.shape:
        raise InputError(f"rows and scores must agree in size: {scored.size} and {given.size}")
    known = np.isfinite(given)
    scored, given = scored[known], given[known]
    n_bins = len(edges) - 1
    place = bin_of(direction.difference, edges)
    mass = np.bincount(place[place >= 0], direction.weight[place >= 0], minlength=n_bins)
    own = place[scored]
    by_bin = [given[own == k] for k in range(n_bins)]
    for k, values in enumerate(by_bin):
        if mass[k] > 0 and not len(values):
            raise InputError(
                f"no input with D in [{edges[k]:g}, {edges[k + 1]:g}] is scored; score some, or take wider bins"
            )
    middle = (edges[1:] + edges[:-1]) / 2
    inside = (middle >= where[0]) & (middle <= where[1]) & (mass > 0)
    if not inside.any():
        raise InputError(f"no input lies in a bin of D between {where[0]:g} and {where[1]:g}; take another range")
    rng = np.random.default_rng(seed)
    means = np.zeros((n_resamples + 1, n_bins))
    for k, values in enumerate(by_bin):
        if len(values):
            means[0, k] = values.mean()
            means[1:, k] = rng.choice(values, size=(n_resamples, len(values))).mean(axis=1)
    good = means * mass
    precision = good[:, inside].sum(axis=1) / mass[inside].sum()
    total = good.sum(axis=1)
    recall = np.divide(good[:, inside].sum(axis=1), total, out=np.zeros(len(total)), where=total > 0)
    tail = (1 - level) / 2
    low, high = (np.quantile([precision[1:], recall[1:]], q, axis=1) for q in (tail, 1 - tail))
    n = int(np.isin(own, np.flatnonzero(inside)).sum())
    return Agreement(
        float(precision[0]), float(low[0]), float(high[0]), float(recall[0]), float(low[1]), float(high[1]), n, level
    )
