"""A file of inputs that people score, and precision and recall from their scores (Section 3.4, Equations 8 and 9)."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab.errors import InputError
from provlab.files import atomic_file
from provlab.modeldiff.bootstrap import LEVEL, share_interval
from provlab.modeldiff.comparison import TERMS, BothDirections
from provlab.modeldiff.representative import Direction, effective

_COLUMNS = ("term", "row", "times", "input", "score")
_RESAMPLES = 4000
Texts = Callable[[NDArray[Any]], list[str]]


def of_term(compared: BothDirections, term: str) -> tuple[Direction, NDArray[np.bool_]]:
    """Return the model's inputs that a term is about, and which of them it counts."""
    side = compared.a if term.endswith("AB") else compared.b
    return side, side.disagreement if term.startswith("PD") else ~side.disagreement & (side.difference != 0)


def write(path: Path, compared: BothDirections, texts: Texts, *, n: int, seed: int = 0) -> int:
    """Write inputs of each term to score; return their number, or that of scores where the file stays as it is.

    Each term has `n` inputs, drawn by weight, so that each input of the space is as likely to be among them. An input
    that was drawn again stands there once, with its number of `times`. Scores are from 0, "completely bad", to 1,
    "perfectly good"; they may stay empty. A file in which somebody gave scores stays as it is.
    """
    if path.is_file() and len(scored := read(path)):
        return len(scored)
    rows = []
    for k, term in enumerate(TERMS):
        side, counted = of_term(compared, term)
        weight = side.weight * counted
        if not weight.sum() > 0 or side.draws is None:
            continue
        drawn = np.random.default_rng([seed, k]).choice(len(side), size=n, p=weight / weight.sum())
        chosen, times = np.unique(drawn, return_counts=True)
        words = texts(side.draws.tokens[chosen])
        rows += [(term, row, count, text, "") for row, count, text in zip(chosen, times, words, strict=True)]
    with atomic_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([_COLUMNS, *rows])
    return len(rows)


def scored_by_labels(path: Path, is_first_kind: Sequence[NDArray[np.float64]]) -> Path:
    """Write a copy whose scores say whether an input looks like its model's kind: first kind for A, the other for B."""
    frame = pd.read_csv(path, keep_default_na=False)
    of_a = frame["term"].str.endswith("AB")
    frame["score"] = [
        is_first_kind[0][row] if first else 1 - is_first_kind[1][row]
        for first, row in zip(of_a, frame["row"], strict=True)
    ]
    copy = path.with_name(f"{path.stem}-by-labels.csv")
    with atomic_file(copy) as temporary:
        frame.to_csv(temporary, index=False)
    return copy


def read(path: Path) -> pd.DataFrame:
    """Read the rows that have a score.

    Raises
    ------
    InputError
        A column is missing, a term is unknown, or a score is no number from 0 to 1.
    """
    frame = pd.read_csv(path, dtype={"term": str, "input": str, "score": str}, keep_default_na=False)
    if missing := set(_COLUMNS) - set(frame):
        raise InputError(f"{path}: the column {min(missing)} is missing; fill in the file as it was written")
    frame = frame[frame["score"].str.strip() != ""].copy()
    scores = pd.to_numeric(frame["score"].str.replace(",", "."), errors="coerce")
    wrong = frame[~scores.between(0, 1) | ~frame["term"].isin(TERMS)]
    if len(wrong):
        first = wrong.iloc[0]
        raise InputError(
            f"{path}, {first['term']}, row {first['row']}: the score is {first['score']!r}; give a number from 0 to 1, "
            "or nothing"
        )
    return frame.assign(score=scores)


def precision_recall(scored: pd.DataFrame, compared: BothDirections, *, seed: int = 0) -> pd.DataFrame:
    """Precision of each term, and its part of the model's good inputs (recall), with 95% intervals.

    Equation 9 gives recall up to the number of good inputs in the model's range, which both terms of a model share:
    here it is their sum, so that recalls of a model add up to 1, leaving out inputs with D = 0. The scored inputs are
    draws of draws, so that the intervals count 1 / (1 / n + 1 / m) effective ones, of n scores and m effective draws;
    for recall the size of the term is as uncertain as its share of the draws.

    Parameters
    ----------
    scored
        What `read` gives.
    compared
        The comparison that the inputs are of.
    """
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    good: dict[str, NDArray[np.float64]] = {}
    for term in TERMS:
        some = scored[scored["term"] == term]
        side, counted = of_term(compared, term)
        if not len(some):
            continue
        times = some["times"].to_numpy(dtype=float)
        precision = float(np.average(some["score"], weights=times))
        worth = 1 / (1 / times.sum() + 1 / effective(side.weight[counted]))
        low, high = share_interval(precision, worth)
        hits = precision * worth
        drawn = np.append(precision, rng.beta(hits + 0.5, worth - hits + 0.5, size=_RESAMPLES))
        share, draws = side.share(counted)[0], side.effective
        sizes = np.append(share, rng.beta(share * draws + 0.5, (1 - share) * draws + 0.5, size=_RESAMPLES))
        good[term] = drawn * sizes
        rows.append({"term": term, "scored": len(some), "precision": precision, "low": float(low), "high": float(high)})
    for row in rows:
        own = good[row["term"]]
        both = sum(values for term, values in good.items() if term[-2:] == row["term"][-2:])
        with np.errstate(invalid="ignore"):
            recall = own / both
        tail = (1 - LEVEL) / 2
        value, (low, high) = float(recall[0]), np.nanquantile(recall[1:], [tail, 1 - tail])
        row |= {"recall": value, "recall_low": min(value, float(low)), "recall_high": max(value, float(high))}
    return pd.DataFrame(rows)
