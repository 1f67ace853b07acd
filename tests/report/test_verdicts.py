"""What `compare` says of each kind of pair that a reader may bring: planted results, and checkpoints.

Models of 48 units in three blocks: independent ones agree on one unit in 48 by chance. The kin are the base after noise
of 1.5 standard deviations in its up projections: phi_u finds them, phi_match, which has gate and up noise of two models
to withstand, in some draws only.
"""

import shutil
from dataclasses import replace
from textwrap import fill

import numpy as np
import pytest
import tiny_models
import torch
from planted import comparison
from planted import record as planted_record

import provlab
from provlab import statistics
from provlab.engine.table import PairRecord
from provlab.errors import CheckpointError
from provlab.inference import allowing, pvalues
from provlab.inference.matching import match
from provlab.models import local
from provlab.models.checkpoint import Checkpoint
from provlab.models.disguise import disguise
from provlab.statistics import flaws
from provlab.statistics.order import why_withheld
from provlab.statistics.results import BlockResult, Detail, Outcome
from provlab_study.attack_lab.rows import AttackRow

#: random weights read no text, so that phi_jsd beside these would say: acquit nobody
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

CALIBRATED = "the independent models that"
ALONE = "that order alone is not the cause"
BY_ORDER = "Independent training is rejected by order alone, by phi_u"
UNTESTED = "Independence could not be tested: "
NO_GATE = "phi_match needs a gated MLP"
#: log10 p (or why refused), what is known of the models, the outcome, what the verdict says, what it must not say
PLANTED = {
    "all reject": (
        {"phi_u": -20.0, "phi_match": -9.0, "phi_match_unsigned": -9.0}, {}, "rejected",
        ["the weights of the two are not independent. By phi_u independent weights would agree",
         "a common ancestor; a common initial draw; a mask, noise or any choice that both share. A common origin",
         "is not descent: the test does not say which cause it was, nor which model came first.",
         f"phi_match and phi_match_unsigned ignore the order of units, so {ALONE}."],
        ["put into", "suspect", CALIBRATED, "by order alone"],
    ),
    "order alone": (
        {"phi_u": -20.0, "phi_match": -0.3}, {}, "by order alone",
        [f"{BY_ORDER} (Holm over 2 tests", "independent weights, one of them in the order that training left, would",
         "Possible causes: hidden units of one put into the other's order, or those of both by one rule; a common ance",
         "An order changes no output, and a sort by a rule that the check does not know is not found.",
         "phi_match ignores the order of units, and nothing is rejected by that.",
         "Not asked for, and may strengthen it: phi_match_unsigned, phi_anchor."],
        ["suspect", ALONE, "not independent"],
    ),
    "order, by statistics of which one is no longer below the level": (
        {"phi_u": -20.0, "phi_views": -9.0}, {}, "rejected", [f"phi_views ignores the order of units, so {ALONE}"], [],
    ),
    "order, nothing else asked": (
        {"phi_u": -20.0}, {}, "by order alone",
        [f"{BY_ORDER} (one test", "No test that ignores the order of units gave a p-value. Not asked for, and may str"],
        ["suspect", ALONE],
    ),
    "order of units and of the stream": (
        {"phi_u": -20.0, "phi_e": -20.0, "phi_match_unsigned": -0.2}, {}, "by order alone",
        [f"{BY_ORDER}, phi_e ("], [],
    ),
    "order, no gates": (
        {"phi_u": -20.0, "phi_match": NO_GATE}, {"gated": False}, "by order alone",
        ["gave a p-value. Not asked for, and may strengthen it: phi_views.", "Not run: phi_match (needs a gated MLP)"],
        ["suspect"],
    ),
    "order, experts": (
        {"phi_u": -20.0, "phi_match": "phi_match has experts"}, {"experts": True}, "by order alone",
        ["No test that ignores the order of units gave a p-value. Not asked for, and may strengthen it: phi_match_uns"],
        ["phi_views", "suspect"],
    ),
    "no theorem": (
        {"phi_u": -0.3, "phi_match": -9.0}, {}, "rejected",
        ["rejected by phi_match (Holm over 2 tests, family-wise error at most 0.01): the two agree more than the ",
         f"{CALIBRATED} it was calibrated on. By phi_match such models would agree as closely"],
        ["not independent", "put into", "phi_u ("],
    ),
    "imitations in order": (
        {"phi_u": -0.3, "phi_h": -20.0, "phi_match": -0.3}, {}, "by order alone",
        ["imitations of the other's units, in their order, that write next to nothing (at the cost of wider MLPs)",
         "An order changes no output"], [ALONE],
    ),
    "no theorem, two": (
        {"phi_match": -9.0, "phi_match_unsigned": -9.0}, {}, "rejected",
        [f"{CALIBRATED} these tests were", "share; an unrelated model whose units are joined by imitations of"],
        ["not independent"],
    ),
    "rows of tokens": (
        {"phi_u": -0.3, "phi_match_unsigned": -0.1, "phi_unseen": -262.8}, {}, "rows of one origin",
        ["These rows have one origin: phi_unseen (Holm over 3 tests", "rows of tokens that neither was trained on were",
         "Nothing is said of the rest of the weights. Possible causes: rows copied from one model into the other,",
         "which costs nothing where no text has these tokens, and which either side could have done; a common"],
        ["Independent training is rejected", "not independent", "quality"],
    ),
    "rows and order": (
        {"phi_u": -20.0, "phi_unseen": -262.8}, {}, "rows of one origin",
        ["These rows have one origin: phi_unseen (", "phi_u reject too, by order alone, which changes no output."], [],
    ),
    "another's embedding": (
        {"phi_u": -0.3, "phi_e": -30.0, "phi_axes": -30.0}, {}, "rows of one origin",
        ["These rows have one origin: phi_e, phi_axes ("], ["put into", "Independent training is rejected"],
    ),
    "rows and units": (
        {"phi_match": -9.0, "phi_unseen": -262.8}, {}, "rejected", ["rejected by phi_match, phi_unseen"], [],
    ),
    "nothing": (
        {"phi_u": -0.3, "phi_match": -0.2, "phi_match_unsigned": -0.1}, {}, "not rejected",
        ["this is how independent models agree. That is no proof of independence.",
         "hide a common origin: hidden units in another order (from phi_u); each unit split in two whose gates differ",
         "not fooled by any of these: phi_e, phi_axes."],
        ["at a loss", "could not be tested"],
    ),
    "nothing by phi_match": (
        {"phi_u": -0.3, "phi_match": -0.2}, {}, "could not be tested",
        [f"{UNTESTED}phi_u, phi_match (Holm over 2 tests, family-wise error at most 0.01) do not reject, and disg",
         "a copy from all that could have rejected: up projections times a negative number (from phi_u, phi_match)",
         "Not asked for, and may test it: phi_match_unsigned, phi_anchor."],
        ["how independent models agree"],
    ),
    "nothing by phi_u": (
        {"phi_u": -0.3}, {}, "could not be tested",
        [f"{UNTESTED}phi_u (one test, level 0.01) does not reject, and disguises that cost nothing hide a copy from",
         "rejected: hidden units in another order (from phi_u). Not asked for, and may test it: phi_match_unsigned"],
        [],
    ),
    "nothing by phi_u, no gates": (
        {"phi_u": -0.3}, {"gated": False}, "could not be tested", ["may test it: phi_unseen, phi_views."], [],
    ),
    "some refused": (
        {"phi_u": -0.3, "phi_match_unsigned": -0.2, "phi_views": "phi_views needs a head"}, {}, "not rejected",
        ["error at most 0.01), and phi_views could not be tested: this is how", "Not run: phi_views (needs a head)."],
        [],
    ),
    "all refused that ignore the order": (
        {"phi_u": -0.3, "phi_match": "cut differently", "phi_match_unsigned": "cut differently", "stream_score": None},
        {}, "could not be tested",
        [f"{UNTESTED}the stream score is 0.5 (0.5 and more), as for related models, and no test rejects: phi_u (one",
         "Moreover, disguises that cost nothing hide a copy from all that could have rejected: hidden units in",
         "Asked for, and could not have rejected: phi_match, phi_match_unsigned.",
         "Descriptive, and no test: stream_score 0.5 (near 1 for related",
         "Not run: phi_match, phi_match_unsigned (cut differently)."],
        ["how independent models agree", "not rejected", "would hide"],
    ),
    "the stream of related models": (
        {"phi_u": -0.3, "phi_match_unsigned": -0.2, "stream_score": None}, {}, "could not be tested",
        ["they accuse nobody, and where they stand nobody is acquitted."], ["how independent models agree"],
    ),
    "refused, and rejected by order": (
        {"phi_u": -9.0, "phi_match": "cut"}, {}, "by order alone", ["put into"], ["suspect"],
    ),
    "no p-value at all": (
        {"phi_jsd": None, "phi_match": "no gate"}, {}, "could not be tested",
        ["could not be tested: no statistic gave a p-value. Not asked", "Descriptive, and no test: phi_jsd 0.5."], [],
    ),
    "identical": ({"phi_u": -9.0}, {"digest": "x"}, "identical", ["are the same, byte for byte"], []),
}  # fmt: skip


@pytest.mark.parametrize("case", PLANTED)
def test_planted(case):
    log10_p, about, outcome, present, absent = PLANTED[case]
    result = comparison(log10_p, about=about)
    assert result.outcome == result.to_json()["outcome"] == outcome
    assert [text for text in present if text not in result.verdict()] == [], result.verdict()
    assert [text for text in absent if text in result.verdict()] == [], result.verdict()


def test_withheld_p_values_are_no_acquittal():
    tied = dict.fromkeys(("phi_match", "phi_match_unsigned"), "gate and up are tied")
    result = comparison({"phi_u": -0.3}, withheld=tied)
    assert result.outcome == "could not be tested"
    assert "No p-value: phi_match, phi_match_unsigned (gate and up are tied)." in result.verdict()
    assert "Descriptive" not in result.verdict()
    ordered = comparison({}, withheld={"phi_u": why_withheld([{"by": "x", "log10_p": -9.0}] * 2)})
    assert "after training, a by the x (10^-9 for a random order), b by the x" in ordered.verdict()
    untied = {"phi_match": "gate and up are tied"}
    assert comparison({"phi_u": -0.3, "phi_match_unsigned": -0.1}, withheld=untied).outcome == "not rejected"


def test_a_test_declared_beforehand_hides_no_other():
    """phi_match at 10^-40 is description beside a declared phi_u, and still no picture of independent models."""
    message = comparison({"phi_u": -0.3, "phi_match": -40.0}, primary="phi_u").verdict()
    assert message.startswith("Independence could not be tested: phi_u (one test, level 0.01) does not reject, and")
    assert "Not corrected, phi_match would reject." in message
    assert "how independent models agree" not in message
    assert "description only, not corrected: phi_match 10^-40.0." in message


def test_ids_that_a_model_was_lent_are_named():
    result = comparison({"phi_match": -9.0})
    models = tuple({**model, "lent_ids": model["name"] == "b"} for model in result.models)
    message = replace(result, models=models).verdict()
    assert "No tokenizer comes with b: in place of the text it was given the ids of the other's tokens." in message


@pytest.mark.parametrize(
    ("lent", "losses", "outcome"),
    [
        ("", (3.0, 4.0), "not rejected"),
        ("", (3.0, 9.0), "could not be tested"),
        ("", (9.0, 9.0), "could not be tested"),
        ("", None, "not rejected"),
        ("b", (3.0, 3.0), "not rejected"),
        ("b", (3.0, 5.0), "could not be tested"),
        ("b", (9.0, 9.0), "could not be tested"),
        ("b", None, "could not be tested"),
    ],
    ids=[
        "both read", "one of the two reads", "a text for neither", "own, not measured",
        "lent, reads", "lent, does not", "lent, neither", "lent, not measured",
    ],
)  # fmt: skip
def test_ids_acquit_only_where_they_were_read_as_text(lent, losses, outcome):
    """5.0 is the loss of the tokens' frequencies.

    A text that neither reads acquits nobody: a copy with other numbers of tokens costs nothing.
    """
    result = comparison({"phi_match_unsigned": -0.3})
    read = [
        planted_record("phi_jsd", None, losses=losses, frequencies=[5.0, 5.0], spread=1.0, rounding=0.0, n=9, unit=0.0)
    ]
    models = tuple({**model, "lent_ids": model["name"] == lent} for model in result.models)
    result = replace(result, models=models, records=(*result.records, *(read if losses else [])))
    assert result.outcome == outcome
    which = "a and b" if losses == (9.0, 9.0) else "b"
    assert (f"nothing shows that {which} read a text" in result.verdict()) == (outcome != "not rejected")
    unknown = "a tokenizer that is not the model's own (from phi_match_unsigned; phi_jsd tells by its loss)"
    assert (unknown in result.verdict()) == (outcome == "not rejected" and losses is None)
    assert ("or give a text that both know (--text)." in result.verdict()) == (losses == (9.0, 9.0))


def test_a_copy_with_other_numbers_of_tokens_and_no_tokenizer_is_not_acquitted(models, text, tmp_path):
    """It costs nothing: the copy reads nonsense where the base reads the text, and no unit looks like another."""
    folder = tmp_path / "copy"
    disguise(Checkpoint.open(models["base"]), folder, seed=1, kinds=("vocabulary", "T2", "T3"))
    for path in folder.glob("tokenizer*"):
        path.unlink()
    result = provlab.compare(models["base"], folder, text=text, **SMALL)
    assert all(r.outcome.log10_p > -3 for r in result.records if r.outcome and r.outcome.log10_p is not None)
    assert result.outcome == "could not be tested"
    assert "put its own tokenizer into its folder" in result.verdict()


def test_a_copy_with_other_numbers_of_tokens_and_the_tokenizer_of_another_is_not_acquitted(
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
    assert provlab.compare(base, folder, text=text, **SMALL).outcome == "same function"
    for path in base.glob("tokenizer*"):
        shutil.copy(path, folder / path.name)
    result = provlab.compare(base, folder, text=text, **SMALL)
    assert all(r.outcome.log10_p > -3 for r in result.records if r.outcome and r.outcome.log10_p is not None)
    assert result.outcome == "could not be tested"
    assert "nothing shows that copy read a text" in result.verdict()


def test_blocks_that_were_moved_are_found_among_all_and_acquit_nobody_where_only_equal_places_met(
    new_model, save_model, text, tmp_path
):
    """A copy without two blocks in the middle, with an empty one at either end: none is at its place.

    An unrelated model is acquitted once something looks beyond the places: its embedding, or all blocks.
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
    alone = "do not reject, and each pairs blocks of one index alone: a copy whose blocks were moved, some left out and"
    assert result.outcome == "could not be tested"
    assert alone in result.verdict()
    assert "Compare all blocks with all (--all-blocks), or ask stream_score too" in result.verdict()
    assert ("ask too", "stream_score, phi_unseen") in result.card().remarks
    assert provlab.compare(a, b, all_blocks=True, **settings).outcome == "rejected"
    scored = settings | {"statistics": [*settings["statistics"], "stream_score"]}
    assert provlab.compare(a, b, **scored).outcome == "could not be tested"
    stranger = save_model(new_model(3, num_hidden_layers=6), tmp_path / "stranger")
    assert provlab.compare(a, stranger, **settings).outcome == "could not be tested"
    result = provlab.compare(a, stranger, **scored)
    assert result.outcome == "not rejected"
    moved = "blocks moved, some left out and empty ones put in (from phi_u, phi_match_unsigned; --all-blocks tells)"
    assert moved in result.verdict()
    result = provlab.compare(a, stranger, all_blocks=True, **settings)
    assert result.outcome == "not rejected"
    assert "blocks moved" not in result.verdict()


def test_blocks_that_were_not_read_are_counted():
    blocks = tuple(BlockResult(i, 0.1, -0.2, -60.0) for i in (0, 2))
    record = PairRecord("/a", "/b", "phi_u", Outcome(0.1, -0.2, blocks, -60.0))
    result = comparison({}, about={"blocks": 12})
    assert "Blocks read: 0, 2, which is 2 of 12." in replace(result, records=(record,)).verdict()
    assert "Blocks read" not in replace(comparison({}, about={"blocks": 2}), records=(record,)).verdict()


@pytest.mark.parametrize("share", [0.93, 0.07])
def test_the_share_of_the_output_that_agreeing_units_write_is_named(share):
    """A share as small as that of copies that were joined to a stranger is named with what looks like it."""
    blocks = (
        BlockResult(0, 0.9, -50.0, -60.0, detail=Detail(written=[0.97, share])),
        BlockResult(1, 0.1, 0.0, why="gates are tied"),
    )
    record = PairRecord("/a", "/b", "phi_match", Outcome(0.5, -40.0, blocks, -60.0))
    result = replace(comparison({}), records=(record,))
    message, joined = result.verdict(), "Copies of the other's units that were joined to a stranger look like this"
    assert f"The units that agree by phi_match write {share:.0%} of the output of the MLPs." in message
    assert (joined in message) == (joined in " ".join(str(result).split())) == (share == 0.07)
    assert "A copy may go unseen by phi_match (1 of 2 blocks: gates are tied)." in message


# The table of flaws --------------------------------------------------------------------------------------------------


def test_flaws_name_statistics_and_attacks_that_exist():
    for flaw in (*flaws.DISGUISES, *flaws.FRAMINGS):
        names = [*flaw.fooled, *flaw.withstand, *flaw.refuse]
        assert len(names) == len(set(names)), flaw.what  # none fooled and withstanding at once
        assert {*names, *flaws.ORDERED, *flaws.ORDER_FREE} <= set(statistics.REGISTRY)
        for label in flaw.shown:
            AttackRow.read(label, "")
    first = flaws.DISGUISES[0]
    assert first.shown[0] == "T2"
    assert first.fooled <= flaws.ORDERED
    assert not first.fooled & set(flaws.ORDER_FREE)


def test_advice_is_for_models_that_a_statistic_takes(verdict, new_model, gpt2, save_model, tmp_path):
    """The statistics that `flaws.applicable` leaves out refuse models without gates, and those with experts."""
    experts = [tiny_models.save("mixtral", tmp_path / f"experts{seed}", seed=seed) for seed in (1, 2)]
    kinds = {
        "gated": ([save_model(new_model(seed), tmp_path / f"gated{seed}") for seed in (1, 2)], True, False),
        "plain": ([save_model(gpt2(seed), tmp_path / f"plain{seed}") for seed in (1, 2)], False, False),
        "experts": (experts, True, True),
    }
    by_units = [name for name in flaws.ORDER_FREE if name != "phi_unseen"]  # which asks for tokens, not for MLPs
    for name, (pair, gated, with_experts) in kinds.items():
        records = verdict(*pair, "phi_u", *by_units)[0].records
        fitting = [record.statistic for record in records if record.outcome and record.statistic != "phi_u"]
        assert flaws.applicable(by_units, gated=gated, experts=with_experts, wide=False, deep=False) == fitting, name


def test_disguises_cover_every_test_and_no_more_than_needed():
    assert [flaw.shown[0] for flaw in flaws.hiding(["phi_u"])] == ["T2"]
    assert [flaw.shown[0] for flaw in flaws.hiding(["phi_u", "phi_match", "phi_match_unsigned"])] == [
        "T2",
        "jitter=0.5",
    ]
    usual = [name for name in statistics.USUAL if name != "phi_jsd"]
    assert set(usual) <= set().union(*(flaw.fooled for flaw in flaws.hiding(usual)))


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
    assert result.outcome == "rejected"
    assert message.startswith("Independent training is rejected by phi_u, phi_h")
    assert "tests, family-wise error at most 0.01): the weights of the two are not independent." in message
    assert "Possible causes: a common ancestor; a common initial draw; a mask, noise or any choice that both" in message
    assert len(fill(message, 100).splitlines()) <= 12
    assert "by the paper's two-sided form)" in message  # the paper's number beside ours
    agree = result.to_frame().set_index("statistic")["agree"]
    assert agree["phi_u"] > 0.9
    assert f"{agree['phi_u']:.1%}" in str(result)


def test_kin_that_are_known_by_rows_and_order_alone(verdict, models):
    """Noise of 1.5 leaves too few of 48 units to phi_match; what is left could be had for nothing."""
    result, message = verdict(models["base"], models["tuned"])
    assert result.outcome == "rows of one origin"
    assert "phi_u, phi_h reject too, by order alone, which changes no output." in message
    assert "phi_match and phi_match_unsigned ignore the order of units, and nothing is rejected by that." in message
    # of 144 units in all blocks independent models have 3 by chance; 15 or more once in a million pairs
    assert result.to_frame().set_index("statistic").loc["phi_match", "agree"] > 0.1


def test_stranger(verdict, models):
    result, message = verdict(models["base"], models["other"], *SILENT)
    assert message.startswith(
        f"Independent training is not rejected by {', '.join(SILENT)} (Holm over {len(SILENT)} tests"
    )
    assert "That is no proof of independence." in message
    assert f"phi_l2 cannot reject here: its smallest p is 0.05 over {len(SILENT)} tests." in message  # T = 19
    assert "These disguises would hide a common origin: hidden units in another order (from phi_u, phi_h)" in message
    assert len(fill(message, 100).splitlines()) <= 12
    assert result.to_frame().set_index("statistic").loc["phi_u", "agree"] < 0.15


def test_a_rare_draw(verdict, models):
    """Base and stranger stand near 10^-3 by the correlation of the two matchings, by nothing but their order of units.

    One or none of 48 units is matched alike in each block. Units numbered again, which independent models must bear
    (Theorem 1), give the same two matchings any p-value, as often as its level says; so phi_match numbers them itself.
    """
    result, _ = verdict(models["base"], models["stranger"], *SILENT)
    assert result.outcome == "not rejected"
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
    _, message = verdict(models["base"], aligned, "phi_u", "phi_match")
    assert message.startswith(f"{BY_ORDER} (Holm over 2 tests, family-wise error at most")
    assert "hidden units of one put into the other's order, or those of both by one rule" in message
    assert "phi_match ignores the order of units, and nothing is rejected by that." in message


def test_disguised_kin(verdict, models, disguised):
    """phi_u is silent, phi_match is not."""
    result, message = verdict(models["base"], disguised, "phi_u", "phi_match")
    assert result.to_frame()["adjusted_log10_p"].iloc[0] > -2
    assert message.startswith("Independent training is rejected by phi_match (Holm over 2 tests")
    assert "suspect" not in message
    assert "phi_u" not in message.split("):")[0]


def test_statistics_refused(verdict, models, new_model, save_model, tmp_path):
    """Another width: what needs equal ones says so, and is counted in no correction."""
    wide = save_model(new_model(9, hidden_size=32), tmp_path / "wide")
    _, message = verdict(models["base"], wide, *SILENT)
    assert message.startswith("Independent training is not rejected by phi_h, phi_match, phi_match_unsigned")
    assert "Not run: phi_u (needs models of equal width" in message
    assert "Not run: phi_l2 (needs equal shapes" in message


def test_no_gates(verdict, gpt2, save_model, tmp_path):
    two = [save_model(gpt2(seed), tmp_path / str(seed)) for seed in (1, 2)]
    _, message = verdict(*two, "phi_u", "phi_match")
    assert message.startswith("Independence could not be tested: phi_u (one test, level 0.01) does not reject, and dis")
    assert "Not run: phi_match (needs a gated MLP, which GPT2LMHeadModel" in message
    result, message = verdict(*two)
    assert result.outcome == "could not be tested"
    assert "how independent models agree" not in message
    assert "Not asked for, and may test it: phi_views. Descriptive, and no test: stream_score " in message
    assert "stream_score" in list(result.to_frame()["statistic"])  # unasked, where no test sees a disguised copy
    _, message = verdict(*two, "phi_u")
    assert "Not asked for, and may test it: phi_unseen, phi_views." in message
