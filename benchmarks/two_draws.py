"""Does any random number escape the draw? Lists what two draws of one profile have in common.

    make pages PROFILE=smoke; make pages PROFILE=smoke DRAW=1
    python benchmarks/two_draws.py _results/smoke _results/draw-1/smoke

A draw enters every seed (`provlab.provenance.draw`), so two draws should share no number that chance decides. Compared
are all lists of a page's record that hold at least two numbers that are not whole, by their path in the record. Those
that are equal stand in the table, each with its reason from `REASONS`; one without a reason ends with status 1.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from provlab_study.publishing.results import Results

#: beginnings of paths, and why what lies there is the same on every draw
REASONS = {
    "how_it_scales": "shapes, bytes and published goals: nothing is drawn",
    "public_cases": "weights by others, and replays of a public script",
    "evasion/undone/rows": "how many rows a column has: a setting",
    "exchangeability/example_one/dependent": "models of one start: each p is 1 / (T + 1), the smallest that there is",
    "exchangeability/shared_initialisation/p": "models of one start: each p is 1 / (T + 1), the smallest that there is",
    "miqu/bits": "sizes of codes in published files",
    "mlp_retraining/implied": "read from the paper's tables",
    "striped_hyena/sharing/pairs": "matrices in one order: each p is the smallest that there is",
    "striped_hyena/overlap/x": "a grid",
}


def arrays(record: Any, path: str) -> Iterator[tuple[str, list[float]]]:
    """All lists of numbers in a record, with their paths, and fields of a list of mappings as one list each."""
    if isinstance(record, dict):
        for key, value in record.items():
            yield from arrays(value, f"{path}/{key}")
    elif isinstance(record, list) and record and all(isinstance(one, dict) for one in record):
        for key in record[0]:
            yield from arrays([one.get(key) for one in record], f"{path}/{key}")
    elif isinstance(record, list) and sum(isinstance(one, float) and one % 1 != 0 for one in record) > 1:
        yield path, record
    elif isinstance(record, list):
        for i, value in enumerate(record):
            if isinstance(value, list | dict):
                yield from arrays(value, f"{path}/{i}")


def main(first: str, second: str) -> int:
    """Print the table; return 1 if an array is equal without a reason."""
    seen, without_reason = 0, 0
    other = {run["name"]: run for run in Results(Path(second)).experiments()}
    for run in Results(Path(first)).experiments():
        if run["name"] not in other:
            print(f"{run['name']}: not in {second}")
            continue
        if run.get("draw", 0) == other[run["name"]].get("draw", 0):
            print(f"{run['name']}: both records are of draw {run.get('draw', 0)}")
            return 2
        drawn = dict(arrays(other[run["name"]]["measurements"], run["name"]))
        for path, values in arrays(run["measurements"], run["name"]):
            seen += 1
            if drawn.get(path) == values:
                reason = next((why for begins, why in REASONS.items() if path.startswith(begins)), "")
                without_reason += not reason
                print(f"{path} ({len(values)} numbers): {reason or 'NO REASON'}")
    print(f"{seen} arrays compared, {without_reason} equal without a reason")
    return int(without_reason > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
