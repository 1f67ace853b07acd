"""Numbers that were measured once: quoted from the table alone, each with its day, and written as they are read."""

import ast
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import measured as benchmark
import pytest

from provlab import measured

SOURCES = Path(measured.__file__).parent
TABLE = measured.table()
QUOTES = re.compile(r"""quoted\(["'](\w+)["']\)""")
MODULES = {
    path: text
    for path in sorted(SOURCES.rglob("*.py"))
    if QUOTES.search(text := path.read_text(encoding="utf-8")) and path.name != "measured.py"
}
#: what a sentence that depends on a case is filled with here
CASE = {"right": "", "n": "", "low": 0.0, "high": 1.0}


def typed(entry):
    """The numbers of a sentence as it has them: shares and fractions, and counts as "916 of 953"."""
    said = entry.words.format(**{**CASE, **entry.numbers})
    rows = [f"{right} of {n}" for _, right, n in entry.numbers.get("rows", [])]
    return {*re.findall(r"\d[\d,]* of \d[\d,]*|\d+\.\d+%?|\d+%", said), *rows} - {"0.0%", "95%", "100%"}


def in_code(text, entry):
    """Numbers of an entry that stand in comments and sentences of a module, and its rows where they are numbers."""
    own = ast.unparse(ast.parse(text))
    counts = [f"{right}, {n}" for _, right, n in entry.numbers.get("rows", [])]
    return sorted(
        [number for number in typed(entry) if re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d%])", text)]
        + [count for count in counts if count in own]
    )


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_number_of_a_quoted_sentence_stands_in_code(path):
    assert {name: in_code(MODULES[path], TABLE[name]) for name in QUOTES.findall(MODULES[path])} == {
        name: [] for name in QUOTES.findall(MODULES[path])
    }


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("edges", 'WORDS = "206 of 231 right in the tiny Llamas"'),
        ("edges", "#: 206 of 231 right"),
        ("joined", 'FEW = f"copies cost 0.0003 nats"'),
        ("joined", 'FEW = "those that wrote 7% of the output"'),
        ("score", "CALIBRATION = ((2.0, 96, 96), (4.0, 221, 221))"),
        ("descends", 'ERRORS = "1 of 183 was wrong"'),
        ("triples", 'TRIPLES = "right on 292 of 296 triples"'),
        ("nearest", 'COUNTED = "held in 916 of 953 questions"'),
        ("streams", "#: 0.13 at most for independent ones"),
    ],
)
def test_a_planted_number_is_seen(name, line):
    old = measured.Measured(**{**vars(TABLE[name]), "numbers": PLANTED[name]})
    (text,) = [text for text in MODULES.values() if name in QUOTES.findall(text)]
    assert in_code(text, old) == []
    assert in_code(f"{text}\n{line}\n", old) != []


#: numbers of this test, so that an entry that is measured again changes none of it
PLANTED = {
    "edges": {"right": 206, "n": 231},
    "joined": {"pairs": 69, "least": 0.4, "small": 0.07, "small_nats": 0.0003, "large": 0.3, "large_nats": 0.009},
    "score": {"rows": [[2.0, 96, 96], [4.0, 221, 221]], "arms": 27},
    "descends": {"wrong": 1, "said": 183, "most": 0.026, "lists": 60},
    "triples": {"right": 292, "n": 296, "arms": 8},
    "nearest": {"held": 916, "n": 953, "size": 2.6, "kin": 5.7, "held_merges": 78, "n_merges": 90},
    "streams": {"related": 0.98, "kin": 9, "independent": 0.13, "pairs": 45},
}


def test_every_entry_is_quoted_and_every_quotation_has_one():
    assert {name for text in MODULES.values() for name in QUOTES.findall(text)} == set(TABLE) == set(benchmark.ENTRIES)


@pytest.mark.parametrize("name", TABLE)
def test_an_entry_says_when_at_which_commit_where_and_how(name):
    entry = TABLE[name]
    assert date.fromisoformat(entry.date).isoformat() == entry.date
    assert re.fullmatch(r"[0-9a-f]{8,40}(\+changes)?", entry.commit)
    assert entry.machine
    assert re.fullmatch(rf"(PROVLAB_DRAW=\d+ )?python benchmarks/measured\.py {name} --seeds [\d -]+", entry.command)
    assert entry.command.endswith(f"--seeds {benchmark.ENTRIES[name][1]}")  # the same again, where no seeds are given
    case = CASE if name == "score" else {}
    assert entry.says(**case).endswith(f" (measured on {entry.date})")
    assert "{" not in entry.says(**case)


def test_the_table_is_written_as_it_is_read(tmp_path):
    text = benchmark.as_toml(TABLE)
    assert text == measured.TABLE.read_text(encoding="utf-8")
    (tmp_path / "table.toml").write_text(text, encoding="utf-8")
    assert measured.table(tmp_path / "table.toml") == TABLE


def test_the_benchmark_counts_one_small_family(monkeypatch):
    monkeypatch.setattr(benchmark, "N_MODELS", 3)
    monkeypatch.setattr(benchmark, "STORED", ("plain",))
    counted = benchmark.triples([0])
    assert set(counted) == set(TABLE["triples"].numbers)
    assert counted["right"] <= counted["n"] <= 1


def test_seeds_are_written_in_short():
    assert benchmark.spread(["100-102", "200"]) == [100, 101, 102, 200]


def test_a_name_that_is_no_entry_is_refused():
    done = subprocess.run([sys.executable, benchmark.__file__, "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "invalid choice" in done.stderr
