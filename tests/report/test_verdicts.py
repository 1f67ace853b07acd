"""What `compare` says of each kind of pair that a reader may bring: planted results, and checkpoints.

Models of 48 units in three blocks: independent ones agree on one unit in 48 by chance. The kin are the base after noise
of 1.5 standard deviations in its up projections: phi_u finds them, phi_match, which has gate and up noise of two models
to withstand, in some draws only.
"""

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import fill

import numpy as np
import pytest
import tiny_models
import torch
from planted import comparison, says, sentence
from planted import record as planted_record

import provlab
from provlab import statistics
from provlab.attacks.disguise import disguise
from provlab.attest import shelf
from provlab.engine.table import PairRecord
from provlab.errors import CheckpointError
from provlab.inference import allowing, pvalues
from provlab.inference.matching import match
from provlab.reading import local
from provlab.reading.checkpoint import Checkpoint
from provlab.report import findings
from provlab.report.decide import EQUAL, IDENTICAL, NOT_REJECTED, ORDER, REJECTED, ROWS, SAME, UNTESTED
from provlab.report.findings import LABELS, WORDS
from provlab.statistics import flaws
from provlab.statistics.order import why_withheld
from provlab.statistics.results import BlockResult, Detail, Outcome
from provlab_study.attack_lab.rows import AttackRow

#: random weights read no text, so that phi_jsd beside these would leave the question open
SILENT = [name for name in statistics.USUAL if name != "phi_jsd"]
SMALL = {"n_permutations": 19, "n_block_permutations": 99, "n_sequences": 8, "sequence_length": 32, "progress": False}


@pytest.fixture(scope="module")
def verdict(text):
    """Verdict of two sources by some statistics, in one line."""

    def of(a, b, *statistics, **settings):
        result = provlab.compare(str(a), str(b), statistics=list(statistics) or None, text=text, **SMALL, **settings)
        return result, " ".join(result.verdict().split())

    return of


@pytest.fixture(scope="module")
def aligned(models, new_model, save_model, tmp_path_factory):
    """The stranger, its units in the order of the base's: outputs stay as they are."""
    stranger = new_model(4)
    stranger.load_state_dict(type(stranger).from_pretrained(models["stranger"]).state_dict())
    base = type(stranger).from_pretrained(models["base"])
    with torch.no_grad():
        for mine, theirs in zip(stranger.model.layers, base.model.layers, strict=True):
            order = match(theirs.mlp.up_proj.weight.numpy(), mine.mlp.up_proj.weight.numpy()).indices
            for projection in (mine.mlp.up_proj, mine.mlp.gate_proj):
                projection.weight.copy_(projection.weight[order])
            mine.mlp.down_proj.weight.copy_(mine.mlp.down_proj.weight[:, order])
    return save_model(stranger, tmp_path_factory.mktemp("aligned") / "model")


@pytest.fixture(scope="module")
def disguised(models, tmp_path_factory):
    """The base itself with its hidden units and its embedding in another order.

    No noise: what is asked is whether order alone is seen through, not how much noise phi_match withstands.
    """
    folder = tmp_path_factory.mktemp("disguised") / "model"
    disguise(Checkpoint.open(models["base"]), folder, seed=1, kinds=("T1", "T2"))
    return folder


@pytest.fixture(scope="module")
def noisy(models, tmp_path_factory):
    """The base with noise of 0.3 standard deviations in every matrix."""
    folder = tmp_path_factory.mktemp("noisy") / "model"
    disguise(Checkpoint.open(models["base"]), folder, seed=1, kinds=("noise=0.3",))
    return folder


# Planted results -----------------------------------------------------------------------------------------------------

NO_GATE = "phi_match needs a gated MLP"
#: log10 p (or why refused), what is known of the models, the outcome; the sentences that the verdict holds, each with
#: some of its facts, and labels under which it says nothing
#: a model of 200 numbers, 30 of them in the MLP of a block
_COVERED = {
    "numbers": 200, "roles": {"gate": 30, "up": 30, "down": 30, "query": 50, "embedding": 30}, "unnamed": {"x": 30},
    "hidden": {}, "block": 30,
}  # fmt: skip
PLANTED = {
    "all reject": (
        {"phi_u": -20.0, "phi_match": -9.0, "phi_match_unsigned": -9.0}, {}, REJECTED,
        [("answer", "rejected", {}), ("how rare", "by theorem", {"name": "phi_u", "p": "10^-20.0"}),
         ("beside it", "borne_out", {"units": "phi_match, phi_match_unsigned"}),
         ("may be", "which", {"cause": "a common ancestor; a common initial draw"})],
        ["why", "ask too", "not run", "mind", "fooled by"],
    ),
    "order alone": (
        {"phi_u": -20.0, "phi_match": -0.3}, {}, ORDER,
        [("tested", "order", {"hits": "phi_u"}), ("how rare", "order", {}),
         ("may be", "which", {"cause": WORDS["may be"]["order"]}),
         ("beside it", "nothing", {"able": "phi_match"}),
         ("ask too", "advice", {"advice": "phi_match_unsigned, phi_match_all"})],
        ["why", "fooled by"],
    ),
    "order, by statistics of which one is no longer below the level": (
        {"phi_u": -20.0, "phi_views": -9.0}, {}, REJECTED, [("beside it", "borne_out", {"units": "phi_views"})], [],
    ),
    "order, nothing else asked": (
        {"phi_u": -20.0}, {}, ORDER,
        [("tested", "order", {"family": "one test, level 0.01"}), ("beside it", "not_made", {})], ["why"],
    ),
    "order of units and of the stream": (
        {"phi_u": -20.0, "phi_e": -20.0, "phi_match_unsigned": -0.2}, {}, ORDER,
        [("tested", "order", {"hits": "phi_u, phi_e"})], [],
    ),
    "order, no gates": (
        {"phi_u": -20.0, "phi_match": NO_GATE}, {"gated": False}, ORDER,
        [("beside it", "not_made", {}), ("ask too", "advice", {"advice": "phi_unseen, phi_views"}),
         ("not run", "refused", {"names": "phi_match", "reason": "needs a gated MLP"})], [],
    ),
    "order, experts": (
        {"phi_u": -20.0, "phi_match": "phi_match has experts"}, {"experts": True}, ORDER,
        [("ask too", "advice", {"advice": "phi_match_unsigned, phi_match_all"})], [],
    ),
    "no theorem": (
        {"phi_u": -0.3, "phi_match": -9.0}, {}, REJECTED,
        [("answer", "calibrated", {}), ("how rare", "calibrated", {"name": "phi_match"}),
         ("may be", "framing", {"what": flaws.FRAMINGS[-1].what})], ["beside it"],
    ),
    "imitations in order": (
        {"phi_u": -0.3, "phi_h": -20.0, "phi_match": -0.3}, {}, ORDER,
        [("may be", "framing", {"cost": "wider MLPs"})], [],
    ),
    "rows of tokens": (
        {"phi_u": -0.3, "phi_match_unsigned": -0.1, "phi_unseen": -262.8}, {}, ROWS,
        [("answer", "rows", {}), ("tested", "rows", {"by_rows": "phi_unseen"}),
         ("may be", "which", {"cause": WORDS["may be"]["rows"]})], ["why"],
    ),
    "rows and order": (
        {"phi_u": -20.0, "phi_unseen": -262.8}, {}, ROWS,
        [("tested", "rows", {"by_rows": "phi_unseen"}), ("beside it", "rows_and_order", {"ordered": "phi_u"})], [],
    ),
    "another's embedding": (
        {"phi_u": -0.3, "phi_e": -30.0, "phi_axes": -30.0}, {}, ROWS,
        [("tested", "rows", {"by_rows": "phi_axes"}), ("how rare", "calibrated", {"name": "phi_axes"})], [],
    ),
    "rows and units": (
        {"phi_match": -9.0, "phi_unseen": -262.8}, {}, REJECTED,
        [("tested", "rejected", {"hits": "phi_match, phi_unseen"})], ["beside it"],
    ),
    "nothing": (
        {"phi_u": -0.3, "phi_match": -0.2, "phi_match_unsigned": -0.1}, {}, NOT_REJECTED,
        [("tested", "not_rejected", {}),
         ("fooled by", "way", {"what": "hidden units in another order", "names": "phi_u"}),
         ("fooled by", "costly", {"names": "phi_match, phi_match_unsigned", "cost": "wider MLPs, some quality"}),
         ("ask too", "advice", {"advice": "phi_unseen, phi_axes"})],
        ["why", "how rare", "may be"],
    ),
    "nothing by phi_match": (
        {"phi_u": -0.3, "phi_match": -0.2}, {}, UNTESTED,
        [("tested", "untested", {"tested": "phi_u, phi_match"}),
         ("why", "hiding", {"ways": "up projections times a negative number (from phi_u, phi_match)"}),
         ("ask too", "advice", {"advice": "phi_match_unsigned, phi_match_all"})],
        ["fooled by", "how rare"],
    ),
    "nothing by phi_u": (
        {"phi_u": -0.3}, {}, UNTESTED,
        [("why", "hiding", {"ways": "hidden units in another order (from phi_u)"})], [],
    ),
    "nothing by phi_u, no gates": (
        {"phi_u": -0.3}, {"gated": False}, UNTESTED, [("ask too", "advice", {"advice": "phi_unseen, phi_views"})], [],
    ),
    "some refused": (
        {"phi_u": -0.3, "phi_match_unsigned": -0.2, "phi_views": "phi_views needs a head"}, {}, NOT_REJECTED,
        [("not run", "refused", {"names": "phi_views", "reason": "needs a head"})], [],
    ),
    "all refused that ignore the order": (
        {"phi_u": -0.3, "phi_match": "cut differently", "phi_match_unsigned": "cut differently", "stream_score": None},
        {}, UNTESTED,
        [("why", "stream_score", {"value": "0.5", "bound": "0.5"}),
         ("why", "hiding", {"ways": "hidden units in another order (from phi_u)"}),
         ("mind", "described", {"figures": "stream_score 0.5"}),
         ("not run", "refused", {"names": "phi_match, phi_match_unsigned", "reason": "cut differently"})],
        ["fooled by"],
    ),
    "the stream of related models": (
        {"phi_u": -0.3, "phi_match_unsigned": -0.2, "stream_score": None}, {}, UNTESTED,
        [("why", "stream_score", {})], ["fooled by"],
    ),
    "refused, and rejected by order": ({"phi_u": -9.0, "phi_match": "cut"}, {}, ORDER, [], []),
    "no p-value at all": (
        {"phi_jsd": None, "phi_match": "no gate"}, {}, UNTESTED,
        [("tested", "none", {}), ("why", "unable", {}), ("mind", "described", {"figures": "phi_jsd 0.5"})], [],
    ),
    "equal in content": (
        {"phi_u": -9.0, "phi_match": -9.0}, {"content": "x", "config": "c"}, EQUAL, [("answer", "equal", {})], LABELS,
    ),
    "tensors without a role": (
        {"phi_match_unsigned": -0.3, "phi_u": -0.3}, {"coverage": _COVERED | {"hidden": {"x.*.experts": 30}}}, UNTESTED,
        [("why", "parts", {"name": "a", "share": "15%", "places": "x.*.experts"}),
         ("why", "closed", {"closed": flaws.OF_PAIR["parts"].closed}),
         ("looked at", "read", {"name": "a and b", "tests": "phi_match_unsigned 45%, phi_u 15%", "share": "55%",
                                "parts": "attention 25%, embedding 15%, no role 15%"})],
        ["fooled by"],
    ),
    "fewer than a block has": (
        {"phi_match_unsigned": -0.3}, {"coverage": _COVERED | {"hidden": {"x.*.experts": 29}}}, NOT_REJECTED,
        [("looked at", "read", {"share": "55%"})], ["why"],
    ),
    "identical": ({"phi_u": -9.0}, {"digest": "x"}, IDENTICAL, [("answer", "identical", {})], LABELS),
}  # fmt: skip


@pytest.mark.parametrize("case", PLANTED)
def test_planted(case):
    log10_p, about, outcome, present, silent = PLANTED[case]
    result = comparison(log10_p, about=about)
    assert result.outcome == result.to_json()["outcome"] == outcome
    shown = f"{result.answer()} {result.verdict()}".casefold()
    missing = [said for said in present if not re.search(sentence(*said[:2], **said[2]).casefold(), shown)]
    assert missing == [], shown
    assert {label for label, _ in result.card().remarks}.isdisjoint(silent), result.card().remarks


def test_a_verdict_as_a_paragraph_and_as_a_card_says_the_same():
    """One in full, so that somebody reads what the table of words comes to."""
    result = comparison({"phi_u": -20.0, "phi_match": -0.3, "phi_views": "phi_views needs a head"})
    assert result.verdict() == (
        "Independent training is rejected by order alone, by phi_u (Holm over 2 tests, family-wise error at most "
        "0.01): hidden units, or dimensions, of like rank are alike. p about 10^-20.0 by phi_u: so seldom would "
        "independent weights agree as closely. One of them is taken to stand in the order that training left. In "
        "any order of units nothing is rejected, by phi_match. No test here says which, nor which first: "
        "hidden units of one put into the other's order, or those of both by one rule; a common ancestor; a common "
        "initial draw; a mask, noise or any choice that both share. phi_match_unsigned, phi_match_all may tell more. "
        "Not run: phi_views (needs a head)."
    )
    assert [label for label, _ in result.card().remarks] == ["how rare", "beside it", "may be", "ask too", "not run"]
    for label, text in result.card().remarks:
        first = text.partition(" (")[0].partition("; ")[0]
        assert first in result.verdict(), label


@pytest.mark.parametrize(("key", "outcome"), [("digest", IDENTICAL), ("content", EQUAL)])
def test_where_no_test_was_needed_the_answer_comes_first_and_what_lies_beside_the_weights_is_said(key, outcome):
    result = comparison({"phi_u": -9.0}, about={key: "x", "notes": ["An adapter lies there."]})
    assert result.outcome == outcome
    assert result.verdict().startswith(f"The two models are {findings.answer(outcome)}. An adapter lies there.")


def test_every_sentence_of_the_table_is_said_somewhere():
    source = "".join(Path(where.__file__).read_text() for where in (findings,))
    chosen = {*findings.KEYS.values(), "by theorem", "calibrated", "in_part", "of_the_rest", "no_p", "refused"}
    chosen |= {"priced", "unpriced", "unknown"}
    asked = set(re.findall(r'(?:say\(|words\[)"[a-z ]+"(?:, "([a-z_]+)")?', source)) | chosen
    unsaid = [key for label in WORDS for key in WORDS[label] if key not in asked | {"causes"}]
    assert unsaid == []


def test_withheld_p_values_leave_the_question_open():
    tied = dict.fromkeys(("phi_match", "phi_match_unsigned"), "gate and up are tied")
    result = comparison({"phi_u": -0.3}, withheld=tied)
    assert result.outcome == UNTESTED
    assert says(result, "not run", "no_p", names="phi_match, phi_match_unsigned", reason="gate and up are tied")
    assert not says(result, "mind", "described")
    ordered = comparison({}, withheld={"phi_u": why_withheld([{"by": "x", "log10_p": -9.0}] * 2)})
    assert "after training, a by the x (10^-9 for a random order), b by the x" in ordered.verdict()
    untied = {"phi_match": "gate and up are tied"}
    assert comparison({"phi_u": -0.3, "phi_match_unsigned": -0.1}, withheld=untied).outcome == NOT_REJECTED


def test_a_test_declared_beforehand_hides_no_other():
    """phi_match at 10^-40 is description beside a declared phi_u, and still no picture of independent models."""
    result = comparison({"phi_u": -0.3, "phi_match": -40.0}, primary="phi_u")
    assert says(result, "tested", "untested", tested="phi_u")
    assert says(result, "mind", "small", small="phi_match")
    assert "description only, not corrected: phi_match 10^-40.0." in result.verdict()


def test_ids_that_a_model_was_lent_are_named():
    result = comparison({"phi_match": -9.0})
    models = tuple({**model, "lent_ids": model["name"] == "b"} for model in result.models)
    assert says(replace(result, models=models), "mind", "lent", name="b", ids="the ids of the other's tokens")


@pytest.mark.parametrize(
    ("lent", "losses", "outcome"),
    [
        ("", (3.0, 4.0), NOT_REJECTED),
        ("", (3.0, 9.0), UNTESTED),
        ("", (9.0, 9.0), UNTESTED),
        ("", None, NOT_REJECTED),
        ("b", (3.0, 3.0), NOT_REJECTED),
        ("b", (3.0, 5.0), UNTESTED),
        ("b", (9.0, 9.0), UNTESTED),
        ("b", None, UNTESTED),
    ],
    ids=[
        "both read", "one of the two reads", "a text for neither", "own, not measured",
        "lent, reads", "lent, does not", "lent, neither", "lent, not measured",
    ],
)  # fmt: skip
def test_ids_count_only_where_they_were_read_as_text(lent, losses, outcome):
    """5.0 is the loss of the tokens' frequencies.

    A text that neither reads says nothing: a copy with other numbers of tokens costs nothing.
    """
    result = comparison({"phi_match_unsigned": -0.3})
    read = [
        planted_record("phi_jsd", None, losses=losses, frequencies=[5.0, 5.0], spread=1.0, rounding=0.0, n=9, unit=0.0)
    ]
    models = tuple({**model, "lent_ids": model["name"] == lent} for model in result.models)
    result = replace(result, models=models, records=(*result.records, *(read if losses else [])))
    assert result.outcome == outcome
    blamed = [
        name for name in "ab" if says(result, "why", "unread", name=name) or says(result, "why", "lent", name=name)
    ]
    assert blamed == ([] if outcome == NOT_REJECTED else ["a", "b"] if losses == (9.0, 9.0) else ["b"])
    assert says(result, "why", "closed", closed=flaws.OF_PAIR["text"].closed) == (outcome == UNTESTED)
    assert says(result, "fooled by", "tokenizer") == (outcome == NOT_REJECTED and losses is None)


def test_a_copy_with_other_numbers_of_tokens_and_no_tokenizer_could_not_be_tested(models, text, tmp_path):
    """It costs nothing: the copy reads nonsense where the base reads the text, and no unit looks like another."""
    folder = tmp_path / "copy"
    disguise(Checkpoint.open(models["base"]), folder, seed=1, kinds=("vocabulary", "T2", "T3"))
    for path in folder.glob("tokenizer*"):
        path.unlink()
    result = provlab.compare(models["base"], folder, text=text, **SMALL)
    assert all(r.outcome.log10_p > -3 for r in result.records if r.outcome and r.outcome.log10_p is not None)
    assert result.outcome == UNTESTED
    assert says(result, "why", "closed", closed=flaws.OF_PAIR["text"].closed)


def test_a_copy_with_other_numbers_of_tokens_and_the_tokenizer_of_another_could_not_be_tested(
    models, text, new_model, save_model, tmp_path
):
    """It costs nothing to a thief who keeps the right one. The base is trained until it reads the text."""
    model, tokens = new_model(1), torch.tensor(Checkpoint.open(models["base"]).cut(text)[0][: 32 * 64]).view(64, 32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(40):
        batch = tokens[step % 8 :: 8]
        optimizer.zero_grad()
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
    base, folder = save_model(model, tmp_path / "base"), tmp_path / "copy"
    disguise(Checkpoint.open(str(base)), folder, seed=1, kinds=("vocabulary", "T2", "T3"))
    assert provlab.compare(base, folder, text=text, **SMALL).outcome == SAME
    for path in base.glob("tokenizer*"):
        shutil.copy(path, folder / path.name)
    result = provlab.compare(base, folder, text=text, **SMALL)
    assert all(r.outcome.log10_p > -3 for r in result.records if r.outcome and r.outcome.log10_p is not None)
    assert result.outcome == UNTESTED
    assert says(result, "why", "unread", name="copy")


def test_blocks_that_were_moved_are_found_among_all_and_could_not_be_tested_where_only_equal_places_met(
    new_model, save_model, text, tmp_path
):
    """A copy without two blocks in the middle, with an empty one at either end: none is at its place.

    The second fault: a stream score, or a test of rows, was enough for *not rejected*, and costs nothing to silence.
    """
    base, copy = (new_model(seed, num_hidden_layers=6) for seed in (1, 2))
    kept = dict(zip(range(1, 5), (0, 1, 4, 5), strict=True))
    with torch.no_grad():
        copy.model.embed_tokens.load_state_dict(base.model.embed_tokens.state_dict())
        for place, layer in enumerate(copy.model.layers):
            if place in kept:
                layer.load_state_dict(base.model.layers[kept[place]].state_dict())
            else:
                layer.self_attn.o_proj.weight.zero_()
                layer.mlp.down_proj.weight.zero_()
    a, b = (save_model(model, tmp_path / name) for model, name in ((base, "base"), (copy, "copy")))
    settings = {"statistics": ["phi_u", "phi_match_unsigned"], "text": text, **SMALL}
    result = provlab.compare(a, b, **settings)
    assert all(record.outcome.log10_p > -3 for record in result.records)
    assert result.outcome == UNTESTED
    assert says(result, "why", "closed", closed=flaws.OF_PAIR["places"].closed)
    assert provlab.compare(a, b, all_blocks=True, **settings).outcome == REJECTED
    stranger = save_model(new_model(3, num_hidden_layers=6), tmp_path / "stranger")
    scored = settings | {"statistics": [*settings["statistics"], "stream_score", "phi_unseen"]}
    for other in (b, stranger):
        assert provlab.compare(a, other, **scored).outcome in (UNTESTED, ROWS)
    assert provlab.compare(a, stranger, **scored).outcome == UNTESTED
    result = provlab.compare(a, stranger, all_blocks=True, **settings)
    assert result.outcome == NOT_REJECTED
    assert "blocks moved" not in result.verdict()


def test_blocks_that_were_not_read_are_counted():
    blocks = tuple(BlockResult(i, 0.1, -0.2, -60.0) for i in (0, 2))
    record = PairRecord("/a", "/b", "phi_u", Outcome(0.1, -0.2, blocks, -60.0))
    result = comparison({}, about={"blocks": 12})
    assert says(replace(result, records=(record,)), "mind", "blocks", blocks="0, 2", n=2, depth=12)
    assert not says(replace(comparison({}, about={"blocks": 2}), records=(record,)), "mind", "blocks")


@pytest.mark.parametrize("share", [1.04, 0.93, 0.07])
def test_the_share_of_the_output_that_agreeing_units_write_is_named(share):
    """A share as small as that of copies that were joined to a stranger is named with what looks like it.

    Units that cancel each other write more one by one than together: all of the output, and no more than that.
    """
    blocks = (
        BlockResult(0, 0.9, -50.0, -60.0, detail=Detail(written=[max(0.97, share), share])),
        BlockResult(1, 0.1, 0.0, why="gates are tied"),
    )
    record = PairRecord("/a", "/b", "phi_match", Outcome(0.5, -40.0, blocks, -60.0))
    result = replace(comparison({}), records=(record,))
    assert says(result, "mind", "written", name="phi_match", share=f"{min(share, 1):.0%}")
    assert says(result, "mind", "few") == (share == 0.07)
    silent = replace(result, records=(replace(record, outcome=replace(record.outcome, log10_p=-0.1)),))
    assert says(silent, "not run", "in_part", names="phi_match", reason="1 of 2 blocks: gates are tied")


# The table of flaws --------------------------------------------------------------------------------------------------


def test_flaws_name_statistics_and_attacks_that_exist():
    for flaw in (*flaws.DISGUISES, *flaws.FRAMINGS):
        names = [*flaw.fooled, *flaw.withstand, *flaw.refuse]
        assert len(names) == len(set(names)), flaw.what  # none fooled and withstanding at once
        assert {*names, *flaws.NEEDS} <= set(statistics.REGISTRY)
        for label in flaw.shown:
            AttackRow.read(label, "")
    first = flaws.DISGUISES[0]
    assert first.shown[0] == "T2"
    assert {statistics.get(name).evidence for name in first.fooled} == {"order"}


def test_the_price_is_that_of_the_cheapest_row_that_hides_from_all_that_ran():
    """Planted rows: one that misses a test is none, tokens come before nats and these before parameters."""
    assert flaws.cheapest(["phi_u"]).shown[0] == "T2"
    assert flaws.cheapest(["phi_u"]).price == flaws.Price()

    def row(what, *fooled, **price):
        return flaws.Flaw(what, fooled=frozenset(fooled), cost="much", price=flaws.Price(**price) if price else None)

    both = ("phi_u", "phi_match")
    rows = [
        row("misses one", "phi_u", tokens=0),
        row("trains", *both, tokens=5),
        row("not measured", *both),
        row("loses", *both, nats=0.02, parameters=1.1),
        row("is large", *both, parameters=3.0),
    ]
    order = ["is large", "loses", "trains", "not measured"]
    while order:
        assert flaws.cheapest(both, rows).what == order[0]
        rows = [flaw for flaw in rows if flaw.what != order[0]]
        order.pop(0)
    assert flaws.cheapest(both, rows) is None
    price = flaws.Price(tokens=2048, nats=0.02, parameters=1.6, on="2026-11-29")
    assert (
        price.words()
        == "1.60 times the parameters, 0.02 nats a token, 2,048 tokens of training (measured on 2026-11-29)"
    )
    assert flaws.Price().words() == "nothing"


@pytest.mark.parametrize(
    ("known", "key"),
    [
        (
            flaws.Flaw("a way", fooled=frozenset(["phi_match_unsigned"]), cost="x", price=flaws.Price(parameters=2)),
            "priced",
        ),
        (flaws.Flaw("a way", fooled=frozenset(["phi_match_unsigned"]), cost="x"), "unpriced"),
        (flaws.Flaw("a way", fooled=frozenset(["phi_u"])), "unknown"),
    ],
)
def test_not_rejected_names_its_price_on_the_first_line_and_in_json(known, key, monkeypatch):
    monkeypatch.setattr(flaws, "cheapest", partial(flaws.cheapest, known=[known]))
    result = comparison({"phi_match_unsigned": -0.2, "phi_h": "phi_h needs equal depth"})
    assert result.outcome == NOT_REJECTED
    assert says(result, "to hide one", key, ran="phi_match_unsigned")  # what did not run hides nothing
    facts = {"price": known.price.words()} if key == "priced" else {}
    assert findings.say("answer", key, **facts)[0][1] in result.card().answer
    told = result.to_json()["price"]
    assert told["hides_from"] == ["phi_match_unsigned"]
    assert told["by"] == (None if key == "unknown" else "a way")
    assert (told["price"] is None) == (key != "priced")
    assert comparison({"phi_match_unsigned": -9.0}).to_json()["price"] is None


def test_what_has_no_cost_has_the_price_of_nothing_and_no_other_is_free():
    for flaw in flaws.DISGUISES:
        assert (flaw.price == flaws.Price()) == (not flaw.cost), flaw.what
        if flaw.price and flaw.cost:
            assert re.fullmatch(r"2026-\d\d-\d\d", flaw.price.on), flaw.what
            assert flaw.price > flaws.Price(), flaw.what


def test_advice_is_for_models_that_a_statistic_takes(verdict, new_model, gpt2, save_model, tmp_path):
    """The statistics that `flaws.applicable` leaves out refuse models without gates, and those with experts."""
    experts = [tiny_models.save("mixtral", tmp_path / f"experts{seed}", seed=seed) for seed in (1, 2)]
    kinds = {
        "gated": ([save_model(new_model(seed), tmp_path / f"gated{seed}") for seed in (1, 2)], True, False),
        "plain": ([save_model(gpt2(seed), tmp_path / f"plain{seed}") for seed in (1, 2)], False, False),
        "experts": (experts, True, True),
    }
    by_units = [name for name in flaws.NEEDS if statistics.get(name).evidence == "units"]
    for name, (pair, gated, with_experts) in kinds.items():
        records = verdict(*pair, "phi_u", *by_units)[0].records
        fitting = [record.statistic for record in records if record.outcome and record.statistic != "phi_u"]
        lacking = ["gates"] * (not gated) + ["one MLP"] * with_experts
        assert [name for name in flaws.applicable(lacking) if name in by_units] == fitting, name


def test_disguises_cover_every_test_and_no_more_than_needed():
    def hiding(names):
        return [flaw for flaw, _ in flaws.hiding((f, [n for n in names if n in f.fooled]) for f in flaws.DISGUISES)]

    assert [flaw.shown[0] for flaw in hiding(["phi_u"])] == ["T2"]
    assert [flaw.shown[0] for flaw in hiding(["phi_u", "phi_match", "phi_match_unsigned"])] == ["T2", "jitter=0.5"]
    usual = [name for name in statistics.USUAL if name != "phi_jsd"]
    assert set(usual) <= set().union(*(flaw.fooled for flaw in hiding(usual)))
    both = flaws.hiding((flaw, ["phi_match"]) for flaw in flaws.OF_PAIR.values())
    assert len(both) == 3  # a reader can shut out each, and any alone is not enough


# Checkpoints ---------------------------------------------------------------------------------------------------------


def test_identical(verdict, models, spoilt):
    """A copy of the base's folder, not spoilt here."""
    _, message = verdict(models["base"], spoilt, "phi_u")
    assert message.startswith(
        "The two models are identical: configuration and weight files are the same, byte for byte."
    )


def test_identical_is_never_said_from_memory(verdict, models, monkeypatch):
    monkeypatch.setattr(local, "remembered_sha256", lambda path: "0" * 64)
    with pytest.raises(CheckpointError, match="changed unseen"):
        verdict(models["base"], models["tuned"], "phi_u")


def test_kin(verdict, models, noisy):
    result, message = verdict(models["base"], noisy)
    assert result.outcome == REJECTED
    assert says(result, "tested", "rejected", hits="phi_u, phi_h, phi_match, phi_match_unsigned, phi_unseen")
    assert len(fill(message, 100).splitlines()) <= 12
    assert says(result, "how rare", "paper")  # the paper's number beside ours
    agree = result.to_frame().set_index("statistic")["agree"]
    assert agree["phi_u"] > 0.9
    assert f"{agree['phi_u']:.1%}" in str(result)


def test_kin_that_are_known_by_rows_and_order_alone(verdict, models):
    """Noise of 1.5 leaves too few of 48 units to phi_match; what is left could be had for nothing."""
    result, _ = verdict(models["base"], models["tuned"])
    assert result.outcome == ROWS
    assert says(result, "beside it", "rows_and_order", ordered="phi_u, phi_h")
    assert says(result, "beside it", "nothing", able="phi_match, phi_match_unsigned, phi_match_all, phi_anchor")
    # of 144 units in all blocks independent models have 3 by chance; 15 or more once in a million pairs
    assert result.to_frame().set_index("statistic").loc["phi_match", "agree"] > 0.1


def test_stranger(verdict, models):
    result, message = verdict(models["base"], models["other"], *SILENT, all_blocks=True)
    assert says(result, "tested", "not_rejected", tested=", ".join(SILENT))
    assert f"phi_l2 cannot reject here: its smallest p is 0.05 over {len(SILENT)} tests." in message  # T = 19
    assert says(result, "fooled by", "way", what="hidden units in another order", names="phi_u, phi_h")
    assert (
        len(fill(message, 100).splitlines()) <= 20
    )  # three met all blocks, and say so; what none looked at; the price
    assert result.to_frame().set_index("statistic").loc["phi_u", "agree"] < 0.15


def test_a_rare_draw(verdict, models):
    """Base and stranger stand near 10^-3 by the correlation of the two matchings, by nothing but their order of units.

    One or none of 48 units is matched alike in each block. Units numbered again, which independent models must bear
    (Theorem 1), give the same two matchings any p-value, as often as its level says; so phi_match numbers them itself.
    """
    result, _ = verdict(models["base"], models["stranger"], *SILENT)
    assert not result.family.rejected.any()
    outcome = next(record.outcome for record in result.records if record.statistic == "phi_match")
    as_they_stand = pvalues.fisher([pvalues.spearman(*block.matching).log10_p for block in outcome.blocks])
    assert as_they_stand < -2.5 < outcome.log10_p
    assert max(block.detail.agree for block in outcome.blocks) <= 1
    rng = np.random.default_rng(0)
    drawn = np.empty((2000, len(outcome.blocks)))
    for row in drawn:
        for i, block in enumerate(outcome.blocks):
            by_gate, by_up = rng.permutation(48)[block.matching]
            row[i] = allowing.log10_p_allowing(by_gate, by_up, 5, rng=rng)
    p = 10 ** pvalues.fisher(drawn, axis=1)
    for level in (0.05, 0.01, 0.001):
        assert (p <= level).mean() <= level + 3 * np.sqrt(level * (1 - level) / len(p))


def test_aligned_stranger(verdict, models, aligned):
    result, _ = verdict(models["base"], aligned, "phi_u", "phi_match")
    assert result.outcome == ORDER
    assert says(result, "may be", "which", cause=WORDS["may be"]["order"])
    assert says(result, "beside it", "nothing", able="phi_match")


def test_disguised_kin(verdict, models, disguised):
    """phi_u is silent, phi_match is not."""
    result, _ = verdict(models["base"], disguised, "phi_u", "phi_match")
    assert result.to_frame()["adjusted_log10_p"].iloc[0] > -2
    assert says(result, "tested", "rejected", hits="phi_match", answer=WORDS["answer"]["calibrated"])


def test_statistics_refused(verdict, models, new_model, save_model, tmp_path):
    """Another width: what needs equal ones says so, and is counted in no correction."""
    wide = save_model(new_model(9, hidden_size=32), tmp_path / "wide")
    result, message = verdict(models["base"], wide, *SILENT, all_blocks=True)
    assert says(result, "tested", "not_rejected", tested="phi_h, phi_match, phi_match_unsigned, phi_unseen")
    assert "Not run: phi_u (needs models of equal width" in message
    assert "Not run: phi_l2 (needs equal shapes" in message


def test_no_gates(verdict, gpt2, save_model, tmp_path):
    two = [save_model(gpt2(seed), tmp_path / str(seed)) for seed in (1, 2)]
    result, message = verdict(*two, "phi_u", "phi_match")
    assert result.outcome == UNTESTED
    assert "Not run: phi_match (needs a gated MLP, which GPT2LMHeadModel" in message
    result, _ = verdict(*two)
    assert result.outcome == UNTESTED
    assert says(result, "mind", "stream_score")
    assert "stream_score" in list(result.to_frame()["statistic"])  # unasked, where no test sees a disguised copy
    result, _ = verdict(*two, "phi_u")
    assert says(result, "ask too", "advice", advice="phi_unseen, phi_views") == (
        len(result.records[0].outcome.blocks) < 3
    )


def test_each_answer_says_how_the_files_of_a_model_qualify_it(models, spoilt, tmp_path):
    """A pair's, a study's, a tree's, and a shelf's of the model that is asked about and of one that is kept."""
    auto_map = {"AutoModelForCausalLM": "modeling_llama.LlamaForCausalLM"}
    tiny_models.edit_json(spoilt / "config.json", lambda config: config.update(auto_map=auto_map))
    honest, other = models["tuned"], str(spoilt)
    for name, source in (("of it", other), ("beside it", honest)):
        shelf.add([source], tmp_path / name)
    answers = [
        provlab.compare(honest, other, statistics=["phi_u"], progress=False),
        provlab.study([honest, other], statistics=["phi_u"], progress=False),
        provlab.tree([honest, other], progress=False),
        shelf.identify(other, tmp_path / "beside it"),
        shelf.identify(honest, tmp_path / "of it"),
    ]
    note = "Loaded by transformers, spoilt may be another model"
    for found in answers:
        assert " ".join(str(found).split()).count(note) == 1
        assert any(note in text for label, text in found.card().remarks if label == "mind")
        assert note in json.dumps(found.to_json())
    assert note not in str(shelf.identify(models["stranger"], tmp_path / "of it"))
