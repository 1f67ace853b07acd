"""Fresh draws confirm a claim under a rule that was frozen before them, and no longer when its rule changes."""

from dataclasses import replace

import pytest

from provlab.errors import InputError
from provlab_study.publishing.confirmation import (
    Confirmation,
    Frozen,
    Row,
    confirmations,
    freeze,
    judged_on,
    passed_by,
    read_frozen,
    read_table,
    write_table,
)
from provlab_study.publishing.evidence import BAR_SET, NOT_RUN, WITHIN_SPREAD
from provlab_study.publishing.results import Results
from provlab_study.publishing.rules import settings

FROZEN = Frozen("2026-01-01", "a" * 40, "default", {"I1": "one", "I4": "four"})


def row(claim="I1", draw=5, status="holds", rule="one"):
    return Row(claim, draw, status, "0.051", "far", rule, "exchangeability", 12.5, "b" * 40, "a machine", "2026-01-02")


def rows(*statuses):
    return tuple(row(draw=draw, status=status) for draw, status in enumerate(statuses, 1))


def test_rows_that_were_written_before_reasons_were_kept_are_read(tmp_path):
    path = tmp_path / "table.csv"
    write_table([row(), replace(row(draw=6), why="too many")], path)
    assert [one.why for one in read_table(path)] == ["", "too many"]
    path.write_text("\n".join(line.rpartition(",")[0] for line in path.read_text().splitlines()))
    assert [one.why for one in read_table(path)] == ["", ""]


def test_fresh_draws_follow_from_the_rules_and_from_nothing_else():
    assert len(set(FROZEN.draws)) == 5
    assert all(0 < draw < 10_000 for draw in FROZEN.draws)
    assert replace(FROZEN, day="2026-02-02", commit="c" * 40).draws == FROZEN.draws
    assert replace(FROZEN, rules={**FROZEN.rules, "I4": "another"}).draws != FROZEN.draws


def test_what_is_frozen_stays_and_rules_that_changed_are_frozen_again_with_draws_of_their_own(tmp_path):
    path = tmp_path / "frozen.toml"
    assert read_frozen(path) == ()
    assert freeze(FROZEN, path) == FROZEN
    with pytest.raises(InputError, match=r"all rules are frozen in .* as they are"):
        freeze(FROZEN, path)
    later = Frozen("2026-02-02", "c" * 40, "default", {"I1": "one", "I4": "longer"})
    for why in ("", " ", "a\x7fb", "two\nlines"):  # what a table of settings could not hold, too
        with pytest.raises(
            InputError, match=r"say in a line of text why these rules .* 2026-01-01, commit aaaaaaaaa: I4"
        ):
            freeze(replace(later, why=why), path)
    assert read_frozen(path) == (FROZEN,)
    again = freeze(replace(later, why='its runs "stopped"'), path)
    assert again == replace(later, why='its runs "stopped"', rules={"I4": "longer"})
    assert read_frozen(path) == (FROZEN, again)


def test_a_rule_that_leads_to_draws_that_were_fresh_before_is_refused(tmp_path):
    """As a rule that is undone would, or by chance: these two share draw 35."""
    path = tmp_path / "frozen.toml"
    only = replace(FROZEN, rules={"I1": "one"})
    freeze(only, path)
    freeze(replace(only, rules={"I1": "more"}, why="longer"), path)
    with pytest.raises(InputError, match="the rules of I1 lead to draws that were fresh before"):
        freeze(replace(only, why="undone"), path)
    path.unlink()
    freeze(FROZEN, path)
    with pytest.raises(InputError, match=r"fresh before: 35$"):
        freeze(replace(FROZEN, rules={"I1": "r145"}, why="longer"), path)


def test_draws_of_an_earlier_freeze_never_count_for_a_rule_that_is_undone():
    changed = replace(FROZEN, rules={"I1": "more"}, why="longer")
    undone = replace(FROZEN, rules={"I1": "one", "I5": "five"}, why="shorter again")
    seen = [row(draw=draw) for draw in FROZEN.draws]
    found = confirmations((FROZEN, changed, undone), seen, {"I1": "one"})["I1"]
    assert (found.rows, found.changed, found.confirmed) == ((), False, False)
    new = [row(draw=draw) for draw in undone.draws]
    assert confirmations((FROZEN, changed, undone), [*seen, *new], {"I1": "one"})["I1"].rows == tuple(new)


def test_what_an_earlier_rule_denied_is_still_said():
    again = replace(FROZEN, rules={"I1": "more"}, why="longer")
    old = [
        row(draw=draw, status=status) for draw, status in zip(FROZEN.draws, ["holds", "fails", NOT_RUN], strict=False)
    ]
    new = [row(draw=again.draws[0], rule="more")]
    elsewhere = [row(draw=1, status="fails"), row(draw=again.draws[1], status="fails")]  # on no draw of that rule
    found = confirmations((FROZEN, again), [*old, *new, *elsewhere], {"I1": "more"})["I1"]
    assert found.denials == (old[1],)
    assert str(found) == "holds in 1 of 1 fresh draws; by an earlier rule in 1 of 2"


def test_draws_that_were_seen_before_a_rule_was_frozen_again_never_count(tmp_path):
    again = Frozen("2026-02-02", "c" * 40, "default", {"I1": "more"}, "its runs stopped")
    now = {"I1": "more", "I4": "four"}
    store = Results(tmp_path)
    store.put_experiment("exchangeability", experiment(FROZEN.draws[0]))
    with pytest.raises(InputError, match="no claim whose rule is the one that was frozen on 2026-01-01"):
        judged_on(store, (FROZEN, again), now)
    store.put_experiment("exchangeability", experiment(again.draws[0]))
    new = judged_on(store, (FROZEN, again), now)
    assert new == [row(draw=again.draws[0], rule="more")]
    old = [row(draw=draw) for draw in FROZEN.draws]
    assert confirmations((FROZEN, again), [*old, *new], now)["I1"].rows == tuple(new)
    assert confirmations((FROZEN, again), [*old, *new], {**now, "I1": "one"})["I1"].changed  # undone: neither counts


@pytest.mark.parametrize(
    ("statuses", "confirmed"),
    [
        (["holds"] * 4, False),  # 0.473 of worlds at least
        (["holds"] * 5, True),  # 0.549
        ([BAR_SET] * 5, True),  # settled after draw 0, before these
        (["holds"] * 5 + [NOT_RUN], True),
        (["holds"] * 6 + ["fails"], False),  # 0.479
        (["holds"] * 7 + [WITHIN_SPREAD], True),  # 0.529
        ([NOT_RUN] * 5, False),
        ([], False),
    ],
)
def test_confirmed_is_more_than_half_of_all_worlds(statuses, confirmed):
    assert Confirmation(rows(*statuses)).confirmed == confirmed


@pytest.mark.parametrize(
    ("statuses", "still_open"),
    [([], True), (["holds"] * 4, True), (["holds"] * 5, False), (["holds", "fails"], False), ([NOT_RUN], False)],
)
def test_a_claim_is_open_while_the_draws_that_are_left_can_confirm_it(statuses, still_open):
    assert Confirmation(rows(*statuses)).open == still_open
    assert not Confirmation((), changed=True).open


def test_what_five_draws_can_show():
    assert [round(passed_by(share), 3) for share in (0.5, 0.9, 1.0)] == [0.031, 0.59, 1.0]


def test_a_claim_whose_rule_changed_has_no_rows(tmp_path):
    table = [row(draw=draw) for draw in FROZEN.draws] + [row("I4", draw, rule="four") for draw in FROZEN.draws]
    as_it_was = confirmations((FROZEN,), table, {"I1": "one", "I4": "four"})
    assert all(one.confirmed and not one.changed for one in as_it_was.values())
    now = confirmations((FROZEN,), table, {"I1": "one", "I4": "laxer", "O9": "new"})
    assert now["I1"].confirmed
    assert (now["I4"].rows, now["I4"].confirmed, str(now["I4"])) == (
        (),
        False,
        "its rule changed after rules were frozen; by an earlier rule in 5 of 5",
    )
    assert (now["O9"].changed, str(now["O9"])) == (True, "its rule changed after rules were frozen")  # it came later
    # and rows that were judged by another rule than the frozen one never count
    assert (
        confirmations(
            (FROZEN,), [row(rule="laxer", draw=draw) for draw in FROZEN.draws], {"I1": "laxer", "I4": "four"}
        )["I1"].rows
        == ()
    )


def test_the_table_keeps_its_rows(tmp_path):
    path = tmp_path / "confirmation.csv"
    assert read_table(path) == []
    write_table([row("I4", 7), row("I1", 9), row("I1", 2)], path)
    assert [(one.claim, one.draw) for one in read_table(path)] == [("I1", 2), ("I1", 9), ("I4", 7)]
    assert read_table(path)[0] == row("I1", 2)


def experiment(draw):
    asked = settings("exchangeability", "default")
    verdict = {"status": "holds", "ours": "0.051", "why": "", "margin": "far", "replicates": ""}
    return {
        "name": "exchangeability",
        "profile": "default",
        "parameters": {**asked, "seed": asked["seed"] + draw * 100_000},
        "pairs": [],
        "measurements": {},
        "judgements": {"I1": verdict},
        "draw": draw,
        "commit": "b" * 40,
        "machine": "a machine",
        "seconds": 12.5,
        "finished": "2026-01-02",
    }


def test_a_fresh_draw_is_judged_by_the_rules_that_are_as_they_were_frozen(tmp_path):
    fresh = FROZEN.draws[0]
    store = Results(tmp_path)
    store.put_experiment("exchangeability", experiment(fresh))
    now = dict(FROZEN.rules)
    assert judged_on(store, (FROZEN,), now) == [row(draw=fresh)]
    assert judged_on(store, (FROZEN,), {**now, "I4": "laxer"}) == [row(draw=fresh)]
    with pytest.raises(InputError, match="no claim whose rule is the one that was frozen on 2026-01-01"):
        judged_on(store, (FROZEN,), {**now, "I1": "laxer"})
    for said, wrong in (
        ("ran with the profile smoke; rules are of default", {"profile": "smoke"}),
        ("ran with other parameters than its profile gives: seed$", {"parameters": {"seed": 7}}),
        ("ran with other parameters than its profile gives: n_pairs$", {"parameters": {"n_pairs": 7}}),
        ("ran on code that is in no commit", {"commit": "b" * 40 + "+changes"}),
        ("ran on code that is in no commit", {"commit": None}),
    ):
        store.put_experiment("exchangeability", experiment(fresh) | wrong)
        with pytest.raises(InputError, match=said):
            judged_on(store, (FROZEN,), now)
    store.put_experiment("exchangeability", experiment(0))
    with pytest.raises(InputError, match="holds records of the draws 0; one of the fresh ones is asked for"):
        judged_on(store, (FROZEN,), now)
