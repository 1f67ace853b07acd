"""One policy for every door: `compare` and `study` give each pair one outcome, and blocks that were moved are found."""

from itertools import combinations
from pathlib import Path

import moved
import numpy as np
import pytest
import silenced
from planted import says

import provlab
from provlab import policy
from provlab.attacks.disguise import disguise
from provlab.engine.pairs import open_models
from provlab.engine.store import Store
from provlab.reading.checkpoint import Checkpoint
from provlab.report.decide import IDENTICAL, NOT_REJECTED, REJECTED, SAME, UNTESTED
from provlab.statistics.results import Outcome

BLOCKS = 6
SMALL = {"n_permutations": 9, "n_block_permutations": 9, "n_sequences": 8, "sequence_length": 32, "progress": False}
#: copies of the base, by attacks of the catalogue, and strangers made to look like it
COPIES = ("T2", "T3", "T1+T2", "T6-+T2", "redraw=0.3+T2", "identity=1+T2", "duplicates=2", "jitter=0.5", "noise=0.3")
THIEVES = (
    "align",
    "rows",
    "posing=0.3",
)  # the last one holds copies of its units. None has a p near the bar of one pair


@pytest.fixture(scope="module")
def prose():
    return moved.learnable()


@pytest.fixture(scope="module")
def trained(new_model, save_model, tmp_path_factory, prose):
    """Folders of models that read the text: ``trained(seed, blocks)``."""
    root, made = tmp_path_factory.mktemp("trained"), {}

    def folder(seed, blocks=BLOCKS):
        if (seed, blocks) not in made:
            model = new_model(seed, num_hidden_layers=blocks, initializer_range=0.08)
            made[seed, blocks] = str(
                moved.learnt(model, save_model(model, root / f"m{seed}-{blocks}"), prose, rate=0.005)
            )
        return made[seed, blocks]

    return folder


@pytest.fixture(scope="module")
def moved_copy(trained, tmp_path_factory):
    """The base without its two middle blocks, and with an empty one at either end."""
    folder = tmp_path_factory.mktemp("moved") / "copy"
    middle = BLOCKS // 2
    kept = [i for i in range(BLOCKS) if i not in (middle - 1, middle)]
    moved.with_blocks(trained(1), folder, [None, *kept, None])
    return str(folder)


def outcomes_of(a, b, text, store, **settings):
    """The outcome by each door; the second finds in the store what both ask."""
    how = {"text": text, "store": Store(store), **SMALL, **settings}
    return {"compare": provlab.compare(a, b, **how).outcome, "study": provlab.study([a, b], **how).outcomes()[a, b]}


def test_one_empty_block_more_hides_nothing_from_any_door(trained, prose, tmp_path):
    """Units shuffled, unseen rows drawn again: `study` could not test what `compare` rejected."""
    base, copy = trained(1), str(tmp_path / "copy")
    moved.with_blocks(base, Path(copy), [0, None, *range(1, BLOCKS)])
    assert set(outcomes_of(base, copy, prose, tmp_path / "store").values()) == {REJECTED}
    tests = ["phi_u", "phi_match", "phi_match_unsigned"]  # the store has them
    assert set(outcomes_of(base, copy, prose, tmp_path / "store", statistics=tests).values()) == {REJECTED}
    forest = provlab.tree([base, trained(2), copy], statistic="phi_match", text=prose, **SMALL)
    assert sorted(len(family.models) for family in forest.families) == [1, 2]


def test_moved_blocks_are_found_by_every_call_that_looks(trained, moved_copy, prose, tmp_path):
    base = trained(1)
    assert set(outcomes_of(base, moved_copy, prose, tmp_path / "store").values()) == {REJECTED}
    report = provlab.compare(base, moved_copy, text=prose, **SMALL)
    (look,) = [record for record in report.records if record.statistic == policy.LOOK]
    places = look.outcome.detail.all_blocks["found"]
    assert [0, 1] in places
    assert set(map(tuple, places)) <= {(0, 1), (1, 2), (4, 3), (5, 4)}
    tests = ["phi_u", "phi_match_unsigned"]
    assert provlab.compare(base, moved_copy, statistics=tests, all_blocks=True, text=prose, **SMALL).outcome == REJECTED
    named = provlab.compare(base, moved_copy, statistics=["phi_u", policy.LOOK], text=prose, **SMALL)
    assert named.outcome == REJECTED


def test_a_test_that_an_open_disguise_fools_changes_nothing(trained, moved_copy, prose, tmp_path):
    """Blocks moved, units shuffled, the stream turned, unseen rows drawn again: a test of rows once missed it."""
    base = trained(1)
    kinds = ["redraw=0.8", "T3", "T2"]
    hidden = str(disguise(Checkpoint.open(moved_copy), tmp_path / "hidden", seed=2, kinds=kinds).folder)
    seen = {}
    for more in ((), ("phi_unseen",), ("phi_h",), ("phi_e",), ("stream_score",), ("phi_unseen", "phi_axes", "phi_jsd")):
        tests = ["phi_u", "phi_match_unsigned", *more]
        seen[more] = outcomes_of(base, hidden, prose, tmp_path / "store", statistics=tests)
    assert {word for words in seen.values() for word in words.values()} == {UNTESTED}, seen
    assert set(outcomes_of(base, hidden, prose, tmp_path / "store").values()) == {REJECTED}
    everywhere = provlab.compare(
        base, hidden, statistics=["phi_u", "phi_match_unsigned"], all_blocks=True, text=prose, **SMALL
    )
    assert everywhere.outcome == REJECTED


def test_the_look_is_made_where_nothing_rejects(trained, prose):
    """It costs a related pair nothing, and a stranger's nothing is found anywhere."""
    base = trained(1)
    strangers = provlab.compare(base, trained(2), text=prose, **SMALL)
    asked = [record.statistic for record in strangers.records]
    assert asked[-3:] == [policy.LOOK, policy.BY_GATES, "stream_score"]
    assert strangers.outcome == NOT_REJECTED
    # what would have been found, anywhere by some units and in place by all of them
    assert says(strangers, "could see", "share", power="90%", name=policy.LOOK)
    assert says(strangers, "could see", "in_place", power="90%", name="phi_match_unsigned")
    blocks = provlab.compare(base, trained(2), blocks=[0, 1, 2], text=prose, **SMALL)
    assert not {policy.LOOK, policy.BY_GATES} & {record.statistic for record in blocks.records}


@pytest.mark.parametrize("change", [silenced.decoys_of_up, silenced.decoys_of_gate, silenced.decoys_of_both])
def test_imitating_one_view_or_either_is_found_before_a_pair_is_not_rejected(trained, prose, tmp_path, change):
    """The units' own rows are 60% off; beside them stand decoys that have a row each, and write next to nothing."""
    base = trained(1)
    copy = silenced.disguised(base, tmp_path / "copy", change, usual=("T1", "T2", "redraw=0.5"))
    found = provlab.compare(base, copy, text=prose, **SMALL)
    p = {record.statistic: record.outcome.log10_p for record in found.records if record.outcome}
    assert p["phi_match"] > -2
    assert p["phi_match_unsigned"] > -2
    assert found.outcome == REJECTED
    assert p[policy.BY_GATES] < -4  # a third of a few units


def test_two_honest_strangers_of_32_blocks_get_an_answer(trained, prose, tmp_path):
    """The default tests, within their time: all blocks met all by a few units of each."""
    a, b = trained(3, 32), trained(4, 32)
    found = outcomes_of(a, b, prose, tmp_path / "store")
    assert found == {"compare": NOT_REJECTED, "study": NOT_REJECTED}


def test_what_a_pair_is_asked(models, new_model, save_model, tmp_path):
    folders = {
        "shallow": save_model(new_model(8, num_hidden_layers=2), tmp_path / "shallow"),
        "wide": save_model(new_model(9, intermediate_size=96), tmp_path / "wide"),
    }
    sources = [models["base"], models["stranger"], *map(str, folders.values())]
    base, stranger, shallow, wide = (open_models(sources).models[source] for source in sources)
    usual = policy.first(base, stranger)
    assert not any(test.all_blocks for test in usual)
    may = policy.may_follow(base, stranger, usual)
    assert may == [policy.Asked(policy.LOOK), policy.Asked(policy.BY_GATES)]
    assert {"phi_u", "phi_match", "phi_match_unsigned"} <= {
        t.statistic for t in policy.first(base, shallow) if t.all_blocks
    }
    at_any_place = [policy.Asked(policy.BY_GATES, all_blocks=True)]
    assert policy.may_follow(base, shallow, policy.first(base, shallow)) == at_any_place
    assert policy.first(base, wide)[-1] == policy.Asked("phi_anchor")
    assert policy.may_follow(base, wide, policy.first(base, wide)) == [policy.Asked(policy.LOOK)]
    assert policy.may_follow(base, stranger, [policy.Asked("phi_u")]) == []
    assert policy.first(base, wide, ["phi_u"]) == [policy.Asked("phi_u")]
    assert policy.first(base, shallow, ["phi_u"]) == [policy.Asked("phi_u", all_blocks=True)]
    assert policy.first(base, shallow, ["phi_u"], blocks=[0]) == [policy.Asked("phi_u")]
    by_gates, score = policy.Asked(policy.BY_GATES), policy.Asked("stream_score")
    assert policy.further(may, usual, {}, []) == [by_gates, score]  # nothing in place could have rejected
    able = {"phi_match_unsigned": Outcome(0.0, -1.0, (), -50.0)}
    assert policy.further(may, usual, able, []) == [*may, score]
    assert policy.further(may, usual, able, ["phi_unseen", "phi_u"]) == may  # what costs nothing
    assert policy.further(may, usual, able, ["phi_match"]) == []


def test_a_study_and_60_comparisons_say_one_thing(trained, moved_copy, prose, tmp_path):
    """Copies in many disguises, strangers, and strangers made to look like the base."""
    base = trained(1)
    named = {"base": base, "stranger": trained(2), "moved": moved_copy}
    for kinds in COPIES:
        made = disguise(Checkpoint.open(base), tmp_path / kinds, seed=1, kinds=kinds.split("+"))
        named[kinds] = str(made.folder)
    for kind in THIEVES:
        origin = Checkpoint.open(base)
        made = disguise(Checkpoint.open(trained(2)), tmp_path / kind, seed=1, kinds=[kind], others=[origin])
        named[kind] = str(made.folder)
    pairs = list(combinations(named.values(), 2))
    pairs = [pair for pair in pairs if {base, named["stranger"], moved_copy}.intersection(pair)]
    pairs += [pair for pair in combinations(named.values(), 2) if pair not in pairs][: 60 - len(pairs)]
    assert len(pairs) == 60
    store = Store(Path(tmp_path) / "store")
    study = provlab.study(list(named.values()), pairs=pairs, text=prose, store=store, **SMALL).outcomes()
    alone = {(a, b): provlab.compare(a, b, text=prose, store=store, **SMALL).outcome for a, b in pairs}
    names = {folder: name for name, folder in named.items()}
    differ = {(names[a], names[b]): (study[a, b], alone[a, b]) for a, b in pairs if study[a, b] != alone[a, b]}
    # a study is corrected for 60 pairs: where the words differ, the p-value lies between the two bars
    for (a, b), outcomes in differ.items():
        records = provlab.compare(named[a], named[b], text=prose, store=store, **SMALL).records
        strongest = min(record.outcome.log10_p for record in records if record.outcome and record.outcome.log10_p)
        assert strongest > np.log10(0.01 / 60 / len(records)), (a, b, outcomes, strongest)
    assert len(differ) <= 1
    assert {REJECTED, NOT_REJECTED, SAME} <= set(study.values())
    for kinds in ("T2", "T3", "moved", "identity=1+T2"):
        assert study[base, named[kinds]] in (REJECTED, SAME, IDENTICAL)
    for kind in (*THIEVES[:2], "stranger"):
        assert study[base, named[kind]] not in (REJECTED, SAME, IDENTICAL)
