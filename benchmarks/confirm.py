"""Freeze the rules of all claims, and judge them on fresh draws of the whole study.

    python benchmarks/confirm.py freeze           # when all rules stand; commit it before any fresh draw
    python benchmarks/confirm.py freeze "why"     # again, those that changed since
    make reproduce DRAW=N                         # N: one of the draws that this prints
    python benchmarks/confirm.py add _results/draw-N/default

Rows go into ``confirmation.csv`` of the study, which the scoreboard shows.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

from provlab import provenance
from provlab.errors import InputError
from provlab_study.publishing.confirmation import (
    Frozen,
    freeze,
    judged_on,
    read_frozen,
    read_table,
    standing,
    write_table,
)
from provlab_study.publishing.results import Results
from provlab_study.publishing.rules import rule_digests

PROFILE = "default"


def main(verb: str, what: str = "") -> None:
    """Do what the verb says."""
    now = rule_digests(PROFILE)
    if verb == "freeze":
        commit = provenance.commit()
        if commit is None or "+" in commit:
            raise InputError("rules are frozen on a commit: commit what changed")
        frozen = freeze(Frozen(f"{datetime.now(UTC):%Y-%m-%d}", commit, PROFILE, now, what))
        print(f"{len(frozen.rules)} rules frozen; the fresh draws are {', '.join(map(str, frozen.draws))}")
    elif verb == "add":
        if not (before := read_frozen()):
            raise InputError("no rules are frozen: python benchmarks/confirm.py freeze")
        rows = judged_on(Results(Path(what)), before, now)
        others = [row for row in read_table() if (row.claim, row.draw) not in {(new.claim, new.draw) for new in rows}]
        write_table([*others, *rows])
        print(f"{len(rows)} claims judged on draw {rows[0].draw}: {sum(row.holds for row in rows)} hold")
        if changed := dict(standing(before).items() - now.items()):
            print(f"left out, as their rules changed since they were frozen: {', '.join(sorted(changed))}")
    else:
        raise InputError(f"freeze, or add FOLDER, not {verb}")


if __name__ == "__main__":
    main(*sys.argv[1:])
