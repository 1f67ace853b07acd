"""Rules that were frozen, and what fresh draws of the study said of them.

``frozen.toml`` holds the digest of each claim's rule (`rules`) on the day when all rules stood. The numbers of the
fresh draws follow from these digests, so that nobody could have chosen them. ``confirmation.csv`` holds a row for each
claim and draw that was judged afterwards. A row counts while its rule is the frozen one and the claim's rule of today:
a rule that changes puts its claim back by itself. Such rules may be frozen again; from these follow draws of their own,
which nobody had seen when the rules changed.
"""

import csv
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import comb
from pathlib import Path

from provlab.errors import InputError
from provlab.files import atomic_file, digest
from provlab.provenance import BETWEEN_DRAWS
from provlab_study.publishing import claims
from provlab_study.publishing.evidence import HELD, NOT_RUN, share_interval
from provlab_study.publishing.results import Results
from provlab_study.publishing.rules import rule_digests, settings

FROZEN = Path(__file__).with_name("frozen.toml")
TABLE = Path(__file__).with_name("confirmation.csv")
FRESH = 5  # draws of the whole study
LEVEL = 0.05
#: a claim is confirmed where it holds in more than this share of worlds, at `LEVEL`: by all of 5 draws, or 7 of 8
SHARE = 0.5


@dataclass(frozen=True)
class Frozen:
    """What was written before any draw that follows from it was judged.

    Attributes
    ----------
    day, commit, profile
        When, on which code, and of which profile.
    rules : mapping
        Digest of each claim's rule, by the claim's id.
    why
        What made rules change that had been frozen before; "" the first time.
    """

    day: str
    commit: str
    profile: str
    rules: Mapping[str, str]
    why: str = ""

    @property
    def draws(self) -> tuple[int, ...]:
        """Numbers of the fresh draws, from 1 to 9999, all different; they follow from the rules."""
        drawn: dict[int, None] = {}
        for i in range(10 * FRESH):
            drawn[int(digest([dict(self.rules), i]), 16) % 9999 + 1] = None
        return tuple(drawn)[:FRESH]

    def __str__(self) -> str:
        """The day and the commit."""
        return f"{self.day}, commit {self.commit[:9]}"


def read_frozen(path: Path = FROZEN) -> tuple[Frozen, ...]:
    """What was frozen, the first first; nothing where no rules are."""
    if not path.exists():
        return ()
    return tuple(Frozen(**one) for one in tomllib.loads(path.read_text(encoding="utf-8")).get("frozen", ()))


def freeze(new: Frozen, path: Path = FROZEN) -> Frozen:
    """Write what is frozen now behind what was before: of its rules those that are not frozen as they are.

    Raises
    ------
    InputError
        If each rule is frozen as it is, nothing says why some are not, or a draw that would follow is one that followed
        before: a rule that is undone must not lead back to draws that were seen.
    """
    before = read_frozen(path)
    fresh = replace(new, rules=dict(new.rules.items() - standing(before).items()))
    changed = ", ".join(claim for claim in new.rules if claim in fresh.rules)
    if not changed:
        raise InputError(f"all rules are frozen in {path} as they are")
    if before and not (new.why.strip() and new.why.isprintable()):
        raise InputError(f"say in a line of text why these rules changed or came after {before[-1]}: {changed}")
    if seen := {draw for one in before for draw in one.draws} & set(fresh.draws):
        raise InputError(f"the rules of {changed} lead to draws that were fresh before: {', '.join(map(str, seen))}")
    lines = [f"{name} = {json.dumps(getattr(new, name))}" for name in ("day", "commit", "profile", "why")]
    rules = [f'{claim} = "{fresh.rules[claim]}"' for claim in new.rules if claim in fresh.rules]
    text = path.read_text(encoding="utf-8") + "\n" if before else ""
    with atomic_file(path) as temporary:
        temporary.write_text(
            text + "\n".join(["[[frozen]]", *lines, "", "[frozen.rules]", *rules, ""]), encoding="utf-8"
        )
    return fresh


def standing(frozen: Iterable[Frozen]) -> dict[str, str]:
    """Digest of each claim's rule as it was frozen last."""
    return {claim: rule for one in frozen for claim, rule in one.rules.items()}


def last_of(frozen: Iterable[Frozen]) -> dict[str, Frozen]:
    """When each claim's rule was frozen last."""
    return {claim: one for one in frozen for claim in one.rules}


@dataclass(frozen=True)
class Row:
    """One claim, judged on one fresh draw.

    Attributes
    ----------
    claim, draw
        Its id, and the number of the draw.
    status, ours, margin
        As the scoreboard has them.
    rule
        Digest by which it was judged.
    experiment, seconds, commit, machine, finished
        The page whose record was judged, and how long it ran beside others, on which code and machine, and until when.
    why
        What the predicate said of it; "" of rows that were written before it was kept.
    """

    claim: str
    draw: int
    status: str
    ours: str
    margin: str
    rule: str
    experiment: str
    seconds: float
    commit: str
    machine: str
    finished: str
    why: str = ""

    @property
    def holds(self) -> bool:
        """Whether the claim holds on this draw; a rule settled after a look at draw 0 was settled before this one."""
        return self.status in HELD


def read_table(path: Path = TABLE) -> list[Row]:
    """All rows; none where there is no table."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as stream:
        return [
            Row(**{**row, "draw": int(row["draw"]), "seconds": float(row["seconds"])})  # type: ignore[arg-type]
            for row in csv.DictReader(stream)
        ]


def write_table(rows: Iterable[Row], path: Path = TABLE) -> None:
    """Write rows by claim and draw."""
    order = [claim["id"] for claim in claims.load_claims()]
    with atomic_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in sorted(rows, key=lambda row: (order.index(row.claim), row.draw)))


def judged_on(store: Results, frozen: Sequence[Frozen], now: Mapping[str, str]) -> list[Row]:
    """Rows of the fresh draw that a results folder holds, for claims whose rule of today (`now`) led to that draw.

    Raises
    ------
    InputError
        If the records are not of one of the fresh draws, of the profile whose rules were frozen, with its parameters
        and of code that is committed, or no claim among them has its frozen rule.
    """
    runs = {run["name"]: run for run in store.experiments()}
    found = sorted({int(run.get("draw", 0)) for run in runs.values()})
    before = [one for one in frozen if set(found) <= set(one.draws)]
    if len(found) != 1 or not before:
        raise InputError(
            f"{store.root} holds records of the draws {', '.join(map(str, found)) or 'none'}; "
            f"one of the fresh ones is asked for: {', '.join(str(draw) for one in frozen for draw in one.draws)}"
        )
    for name, run in runs.items():
        if run["profile"] != before[0].profile:
            raise InputError(f"{name} ran with the profile {run['profile']}; rules are of {before[0].profile}")
        asked = settings(name, run["profile"])
        asked |= {key: value + found[0] * BETWEEN_DRAWS for key, value in asked.items() if key == "seed"}
        if changed := [key for key, value in run["parameters"].items() if value != asked.get(key)]:
            raise InputError(f"{name} ran with other parameters than its profile gives: {', '.join(changed)}")
        if "+" in (run["commit"] or "+"):
            raise InputError(
                f"{name} ran on code that is in no commit ({run['commit']}): run it again in a clean clone"
            )
    as_frozen = dict(before[0].rules.items() & now.items())
    rows = []
    for claim in claims.evaluate(store):
        if claim["id"] in as_frozen and claim["experiment"] in runs:
            run = runs[claim["experiment"]]
            made = {key: run[key] for key in ("seconds", "machine", "finished")} | {"commit": run["commit"] or ""}
            said = {key: claim[key] for key in ("status", "ours", "margin", "experiment", "why")}
            rows.append(Row(claim["id"], found[0], rule=as_frozen[claim["id"]], **said, **made))
    if not rows:
        raise InputError(f"{store.root} has no claim whose rule is the one that was frozen on {before[0]}")
    return rows


def confirms(held: int, tried: int) -> bool:
    """Whether so many draws of so many show that a claim holds in more than `SHARE` of worlds.

    The lower end of the exact 90% interval decides (Clopper and Pearson, 1934), so one side has `LEVEL`.
    """
    return tried > 0 and share_interval(held, tried, 1 - 2 * LEVEL)[0] > SHARE


def passed_by(share: float) -> float:
    """Probability that `FRESH` draws confirm a claim that holds in this share of worlds."""
    needed = next(held for held in range(FRESH + 1) if confirms(held, FRESH))
    return sum(comb(FRESH, held) * share**held * (1 - share) ** (FRESH - held) for held in range(needed, FRESH + 1))


@dataclass(frozen=True)
class Confirmation:
    """What fresh draws said of one claim.

    Attributes
    ----------
    rows : tuple of Row
        Judged by the rule that was frozen and still stands.
    changed : bool
        Whether the claim's rule is not the one that was frozen last: its rows do not count.
    earlier : tuple of Row
        Judged by a rule that was frozen before this one: they do not count, and what they denied is still said.
    """

    rows: tuple[Row, ...]
    changed: bool = False
    earlier: tuple[Row, ...] = ()

    @property
    def held(self) -> int:
        """In how many draws the claim holds."""
        return sum(row.holds for row in self.rows)

    @property
    def tried(self) -> int:
        """In how many draws it could be judged."""
        return sum(row.status != NOT_RUN for row in self.rows)

    @property
    def denials(self) -> tuple[Row, ...]:
        """Where it was judged and does not hold, by its rule or an earlier one."""
        return tuple(row for row in (*self.earlier, *self.rows) if not row.holds and row.status != NOT_RUN)

    @property
    def confirmed(self) -> bool:
        """Whether it holds in more than `SHARE` of worlds, at `LEVEL`."""
        return confirms(self.held, self.tried)

    @property
    def open(self) -> bool:
        """Whether it is not confirmed, and would be if it held in all fresh draws that are left."""
        left = max(FRESH - len(self.rows), 0)
        return not self.changed and not self.confirmed and confirms(self.held + left, self.tried + left)

    def __str__(self) -> str:
        """In words."""
        before = Confirmation(self.earlier)
        said = f"; by an earlier rule in {before.held} of {before.tried}" if before.tried else ""
        if self.changed:
            return f"its rule changed after rules were frozen{said}"
        return (
            f"holds in {self.held} of {self.tried} fresh draws" if self.tried else "no fresh draw was judged"
        ) + said


def confirmations(frozen: Sequence[Frozen], rows: Sequence[Row], now: Mapping[str, str]) -> dict[str, Confirmation]:
    """What fresh draws said of each claim, by its id, under the rules of `now`.

    A row counts if it was judged by today's rule, on a draw that follows from the last time that this was frozen.
    """
    last, of = last_of(frozen), {claim: [row for row in rows if row.claim == claim] for claim in now}
    found = {}
    for claim, rule in now.items():
        one = last.get(claim)
        stands = one is not None and one.rules[claim] == rule
        counts = [row for row in of[claim] if one and stands and row.rule == rule and row.draw in one.draws]
        earlier = [row for row in of[claim] if row not in counts and is_frozen(row, frozen)]
        found[claim] = Confirmation(tuple(counts), bool(frozen) and not stands, tuple(earlier))
    return found


def is_frozen(row: Row, frozen: Iterable[Frozen]) -> bool:
    """Whether a row was judged by a rule that some freeze has, on a draw that follows from it."""
    return any(one.rules.get(row.claim) == row.rule and row.draw in one.draws for one in frozen)


def of_study() -> dict[str, Confirmation]:
    """What the project's table says of each claim, under the rules as they stand."""
    frozen = read_frozen()
    return confirmations(frozen, read_table(), rule_digests(frozen[-1].profile if frozen else "default"))
