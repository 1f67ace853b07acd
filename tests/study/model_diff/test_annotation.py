"""The file that people score: what it holds, what is refused, and how often its intervals hold the truth."""

import numpy as np
import pandas as pd
import pytest

from provlab.errors import InputError
from provlab.modeldiff.comparison import BothDirections, from_enumeration
from provlab.modeldiff.representative import Direction, Draws, within
from provlab_study.model_diff import annotation

Z = (2.0, 4.0)
RNG = np.random.default_rng(0)
NLL_A = RNG.uniform(1.5, 5, 5000)
NLL_B = NLL_A + RNG.normal(0.3, 0.4, 5000)
GOOD = (RNG.random(5000) < np.where(NLL_A < NLL_B, 0.9, 0.3)).astype(float)


def drawn(seed, n=400):
    """Inputs of both models, drawn by exp(-2 z) and weighted back."""
    rng, sides = np.random.default_rng(seed), []
    for side, own, other in (("A", NLL_A, NLL_B), ("B", NLL_B, NLL_A)):
        inside = np.flatnonzero((own >= Z[0]) & (own <= Z[1]))
        chance = np.exp(-2 * own[inside])
        rows = rng.choice(inside, n, p=chance / chance.sum())
        draws = Draws(rows[:, None], own[rows], 2 * own[rows], np.arange(n) % 20, 20)
        sides.append(Direction.from_draws(draws, other[rows], side, Z))
    return BothDirections(*sides, Z)


def scored(path, seed):
    compared = drawn(seed)
    annotation.write(path, compared, lambda tokens: [str(row[0]) for row in tokens], n=40, seed=seed)
    frame = pd.read_csv(path)
    frame["score"] = GOOD[frame["input"]]
    frame.to_csv(path, index=False)
    return annotation.precision_recall(annotation.read(path), compared, seed=seed)


def test_precision_and_recall_cover_what_all_inputs_have(tmp_path):
    """Over 60 files of 160 inputs, four terms each: exact precision and recall lie in 95% intervals."""
    exact = from_enumeration(NLL_A, NLL_B, Z)
    truth = []
    for term in annotation.TERMS:
        side, counted = annotation.of_term(exact, term)
        good = GOOD[within(NLL_A if side.side == "A" else NLL_B, Z)]
        truth.append((good[counted].mean(), good[counted].sum() / good.sum()))
    hits = []
    for seed in range(60):
        table = scored(tmp_path / f"{seed}.csv", seed)
        for row, (precision, recall) in zip(table.itertuples(), truth, strict=True):
            hits.append((row.low <= precision <= row.high, row.recall_low <= recall <= row.recall_high))
    rates = np.mean(hits, axis=0)
    assert (rates >= 0.9).all(), rates


def test_the_file_is_read_as_people_leave_it(tmp_path):
    path = tmp_path / "a.csv"
    scored(path, 0)
    frame = pd.read_csv(path, dtype=str)
    frame.loc[0, "score"], frame.loc[1, "score"] = " ", "0,5"
    frame.to_csv(path, index=False)
    read = annotation.read(path)
    assert len(read) == len(frame) - 1
    assert read["score"].iloc[0] == 0.5
    for score in ("2", "good", "nan"):
        frame.loc[2, "score"] = score
        frame.to_csv(path, index=False)
        with pytest.raises(InputError, match=rf"PD_AB, row \d+: the score is '{score}'; give a number from 0 to 1"):
            annotation.read(path)
    frame.drop(columns="times").to_csv(path, index=False)
    with pytest.raises(InputError, match="the column times is missing"):
        annotation.read(path)


def test_a_file_with_scores_is_never_written_over(tmp_path):
    path = tmp_path / "file.csv"
    scored(path, 1)
    kept = path.read_bytes()
    annotation.write(path, drawn(2), lambda tokens: [str(row[0]) for row in tokens], n=40, seed=2)
    assert path.read_bytes() == kept
