"""Sheets for a person, and precision and recall from scores: by hand, by an oracle, and by brute force."""

import csv

import numpy as np
import pytest

from provlab.errors import InputError
from provlab.modeldiff.annotation import agreement, choose, oracle, read_sheet, write_sheet
from provlab.modeldiff.representative import Direction

EDGES = [-2.0, -1.0, 0.0, 1.0]


def made(difference, weight=None):
    n = len(difference)
    return Direction(
        "A",
        np.asarray(difference, dtype=float),
        np.ones(n) if weight is None else np.asarray(weight, dtype=float),
        np.ones(n, bool),
        np.zeros(n, int),
        1,
    )


@pytest.fixture
def sheet():
    direction = made(np.linspace(-1.9, 0.9, 29))
    texts = [f"text {i}, with a comma" for i in range(28)] + ["=SUM(A1)\n\t\\end"]
    return choose(direction, EDGES, texts, per_bin=4, seed=3)


def fill(path, scores):
    with path.open(encoding="utf-8", newline="") as stream:
        lines = list(csv.DictReader(stream))
    for line, score in zip(lines, scores, strict=True):
        line["score"] = score
    with path.open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, lines[0])
        table.writeheader()
        table.writerows(lines)
    return lines


def test_a_sheet_filled_in_comes_back(sheet, tmp_path):
    path = write_sheet(sheet, tmp_path / "sheet.csv")
    assert len(sheet) == 12
    assert np.bincount(sheet.bins).tolist() == [4, 4, 4]
    given = np.round(np.linspace(0, 1, 12), 3)
    lines = fill(path, given)
    np.testing.assert_allclose(read_sheet(sheet, path), given)
    path.write_text(  # sorted by a person in a spreadsheet that adds a mark and writes decimal commas
        "\ufeffrow,side,bin,D,text,score\n"
        + "".join(
            f'{line["row"]},A,{line["bin"]},{line["D"]},"{line["text"]}","{str(score).replace(".", ",")}"\n'
            for line, score in reversed(list(zip(lines, given, strict=True)))
        ),
        encoding="utf-8",
    )
    np.testing.assert_allclose(read_sheet(sheet, path), given)


def test_texts_stay_in_one_line_and_are_no_formula(tmp_path):
    sheet = choose(made([0.5]), EDGES, ["=SUM(A1)\n\t\\end"])
    text = write_sheet(sheet, tmp_path / "one.csv").read_text(encoding="utf-8")
    assert text == "row,side,bin,D,text,score\n0,A,2,0.500000, =SUM(A1)\\n\\t\\\\end,\n"


def test_scores_are_not_overwritten(sheet, tmp_path):
    path = write_sheet(sheet, tmp_path / "sheet.csv")
    with pytest.raises(InputError, match="may hold scores"):
        write_sheet(sheet, path)
    assert write_sheet(sheet, path, overwrite=True) == path


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t.replace(",A,", ",B,", 1), "line 2: the row was changed"),
        (lambda t: t.replace("text 1", "text 9", 1), "line .*: the row was changed"),
        (lambda t: "\n".join(t.splitlines()[:-1]), "lacks 1 of 12 rows"),
        (lambda t: t + t.splitlines()[-1], "line 14: row '.*' stands there twice"),
        (lambda t: t + '999,A,0,-1.0,"x",1', "row '999' is none of the sheet's"),
        (lambda t: t.replace("score", "points", 1), "must have the columns"),
        (lambda t: t.replace(",0.5", ",", 1), "line 2: the score is missing"),
        (lambda t: t.replace(",0.5", ",1.5", 1), "line 2: the score must be a number from 0 to 1, not '1.5'"),
        (lambda t: t.replace(",0.5", ",good", 1), "not 'good'"),
        (lambda t: t.replace(",0.5", ",nan", 1), "not 'nan'"),
    ],
)
def test_a_spoilt_sheet_is_refused(sheet, tmp_path, spoil, message):
    path = write_sheet(sheet, tmp_path / "sheet.csv")
    fill(path, ["0.5"] * len(sheet))
    text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
    head, first, rest = text.split("\n", 2)  # D of the first row may hold ".5" as well: spoil its end
    path.write_text(spoil(f"{head}\n{first}\n{rest}".replace("\r", "")), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_sheet(sheet, path)


def test_missing_scores_may_be_declared(sheet, tmp_path):
    path = write_sheet(sheet, tmp_path / "sheet.csv")
    fill(path, ["1"] * 11 + [""])
    scores = read_sheet(sheet, path, allow_missing=True)
    assert np.isnan(scores).sum() == 1
    with pytest.raises(InputError, match="there is no sheet"):
        read_sheet(sheet, tmp_path / "other.csv")


# Equations 8 and 9 ----------------------------------------------------------------------------------------------------


def test_precision_and_recall_by_hand():
    """Bins of weight 2, 4, 4 with mean scores 0.5, 1, 0.25: D < 0 has (1 + 4) / 6 and (1 + 4) / (1 + 4 + 1)."""
    direction = made([-1.5, -1.5, -0.5, 0.5, 0.5], [1, 1, 4, 2, 2])
    found = agreement(direction, EDGES, [0, 1, 2, 3, 4], [1, 0, 1, 0.5, 0], (-2, 0))
    assert found.precision == pytest.approx(5 / 6)
    assert found.recall == pytest.approx(5 / 6)
    assert found.n == 3
    assert found.precision_low <= found.precision <= found.precision_high


def test_an_oracle_on_everything_is_the_plain_share():
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 10, (3000, 4))
    direction = made(rng.uniform(-2, 1, 3000), rng.uniform(0.5, 2, 3000))
    scores = oracle(tokens, lambda t: (t.sum(axis=1) % 3 == 0).astype(float))
    edges = np.linspace(-2, 1, 13)
    found = agreement(direction, edges, np.arange(3000), scores, (-2, 0))
    below = direction.difference < 0
    good = direction.weight * scores
    assert found.precision == pytest.approx(good[below].sum() / direction.weight[below].sum(), abs=0.01)
    assert found.recall == pytest.approx(good[below].sum() / good.sum(), abs=0.01)


def test_intervals_cover():
    """A few scored inputs a bin stand for all: 95% intervals of precision over 100 repeats."""
    rng = np.random.default_rng(1)
    difference = rng.uniform(-2, 0, 4000)
    truth = (rng.random(4000) < 0.5 - 0.2 * difference).astype(float)
    direction = made(difference)
    covered = 0
    for repeat in range(100):
        rows = rng.choice(4000, 80, replace=False)
        found = agreement(direction, [-2, -1, 0], rows, truth[rows], (-2, 0), seed=repeat, n_resamples=300)
        covered += found.precision_low <= truth.mean() <= found.precision_high
    assert covered >= 88


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: agreement(made([-0.5, 0.5]), EDGES, [0], [1.0], (-2, 0)), r"no input with D in \[0, 1\] is scored"),
        (lambda: agreement(made([-0.5]), EDGES, [0], [1.0], (0, 1)), "no input lies in a bin"),
        (lambda: agreement(made([-0.5]), EDGES, [0, 0], [1.0], (-2, 0)), "agree in size: 2 and 1"),
        (lambda: choose(made([-0.5]), EDGES, []), "one for each of 1 inputs, not 0"),
        (lambda: choose(made([5.0]), EDGES, ["x"]), "no input has D between -2 and 1"),
        (lambda: choose(made([0.5]), EDGES, ["x"], per_bin=0), "per_bin must be at least 1"),
        (lambda: oracle(np.zeros((3, 2), int), lambda t: [0.0, 2.0, 1.0]), "one score from 0 to 1 for each of 3"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(InputError, match=message):
        call()
