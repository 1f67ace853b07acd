"""The attack lab: rows as they are written, attacks made and compared, and the table worked out by hand."""

import re
from importlib import resources

import numpy as np
import pandas as pd
import pytest
import tiny_models

from provlab.engine.store import Store
from provlab.errors import InputError, ParameterError, ProvlabError
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics import REGISTRY
from provlab.statistics.options import Options
from provlab_study.attack_lab import figures, measure, training
from provlab_study.attack_lab.measure import Instance
from provlab_study.attack_lab.rows import FRAMING, ROWS, AttackRow, rows
from provlab_study.publishing.page import PICTURE

# Rows -------------------------------------------------------------------------------------------------------


def test_rows_name_attacks_that_there_are():
    known = rows([])
    assert [row.label for row in known] == ["", *(label for labels in ROWS.values() for label in labels)]
    assert len({row.label for row in known}) == len(known)
    exact = {row.label for row in known if row.exact}
    assert {"T1", "split=3", "vocabulary+split=3+T3", "respelt", "respelt+T2+T3"} <= exact
    assert not exact & {"noise=1", "average=0.5@origin", "retrained", "retrained+T1+T2", "distilled"}
    assert all(AttackRow.read(label, "").places == ("origin",) for label in FRAMING)
    assert [row.label for row in rows(["T2", "T3+T2"])] == ["", "T2", "T3+T2"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rows(["fog"]), "no attack 'fog'"),
        (lambda: rows(["noise=-1"]), "noise=-1: give a number from 0 to 100, standard deviations"),
        (lambda: rows(["average=0.5@uncle"]), "take from the origin or the partner, not from uncle"),
        (lambda: figures.lab([], {}, pd.DataFrame()), "nothing to draw"),
    ],
)
def test_rows_that_cannot_be_are_refused(call, message):
    with pytest.raises((InputError, ParameterError), match=message):
        call()


# The table --------------------------------------------------------------------------------------------------


def results():
    """Two families, one attack that evades phi_match in one of them, one that phi_u refuses, one stranger accused."""
    result = []
    for origin, values in (("a", (-90.0, -0.3, -80.0)), ("b", (-90.0, -70.0, -80.0))):
        for attack, log10_p in zip(("", "T1", "split=3"), values, strict=True):
            result.append(measure.LabTest(attack, origin, "kin", "phi_match", log10_p, None, None))
            far = -40.0 if (attack, origin) == ("T1", "a") else -0.2
            result.append(measure.LabTest(attack, origin, "stranger", "phi_match", far, None, None))
            refused = "phi_u needs models of equal mlp_width, but a has 4" if attack == "split=3" else None
            own = None if refused else -50.0
            result.append(measure.LabTest(attack, origin, "kin", "phi_u", own, None, refused))
            result.append(
                measure.LabTest(attack, origin, "stranger", "phi_u", None if refused else -0.4, None, refused)
            )
    result.append(measure.LabTest("align@origin", "a", "framed", "phi_u", -60.0, None, None))
    return measure.corrected(result)


def test_cells_count_who_is_caught_accused_and_refused():
    result = {(item.attack, item.statistic): item for item in measure.cells(results())}
    cell = result["T1", "phi_match"]
    assert (cell.caught, cell.n, cell.accused, cell.n_strangers, cell.refused) == (1, 2, 1, 2, 0)
    assert (cell.verdict, cell.sound) == ("evades", False)
    assert (result["T1", "phi_u"].verdict, result["T1", "phi_u"].sound) == ("caught", True)
    assert (result["split=3", "phi_u"].verdict, result["split=3", "phi_u"].refused) == ("refused", 2)


def test_correction_is_over_all_tests_of_a_statistic():
    barely = [measure.LabTest(f"x{i}", "a", "kin", "phi_u", -2.1, None, None) for i in range(3)]
    assert [item.adjusted for item in measure.corrected(barely[:1])] == [-2.1]
    assert all(item.adjusted > -2 for item in measure.corrected(barely))


def test_tables():
    tested = results()
    cells = measure.cells(tested)
    table = measure.cell_table(cells)
    assert table.loc["T1", "phi_match"].startswith("1/2 (0.01 to 0.99); 1/2")
    assert table.loc["split=3", "phi_u"] == "–; –"
    far = measure.by_test(tested).query("ran and against == 'stranger'").groupby("statistic")
    assert far["hit"].sum()["phi_match"] == 1
    assert far.size()["phi_u"] == 4
    reasons = measure.refusal_table([Instance("x", "y", "zoo:oak", None, None, "no gate")], tested)
    assert list(reasons["reason"]) == ["no gate", "phi_u: needs models of equal mlp_width"]
    assert list(reasons["times"]) == [1, 4]


def test_entries_of_the_table_of_flaws_that_a_run_contradicts():
    """Planted: T2 seen by phi_u in one of two families is no contradiction, in both it is; one framed is enough."""

    def run(caught, accused):
        tests = [
            measure.LabTest(attack, origin, against, statistic, -90.0 if hit else -0.1, None, None)
            for attack, against, statistic, hits in (
                ("T2", "kin", "phi_u", caught),
                ("align@origin", "framed", "phi_match", accused),
            )
            for origin, hit in zip("ab", hits, strict=True)
        ]
        refused = measure.LabTest("pad=16", "a", "kin", "phi_u", None, None, "phi_u needs models of equal width")
        tested = measure.corrected([*tests, refused])
        return measure.contradictions(measure.cells(tested), tested)

    assert run((False, True), (False, False)) == []
    assert run((True, True), (False, False)) == ["T2, phi_u: the table says evades, this run caught"]
    (message,) = run((False, False), (False, True))
    assert message == "align@origin, phi_match: the table says withstands, this run in part"


def framed(statistic, attack="mimics+experts=2@origin", log10_p=None, refused=None):
    return measure.LabTest(attack, "a", measure.FRAMED, statistic, log10_p, None, refused)


def test_what_a_framing_makes_of_a_test_that_gives_no_p_value():
    """Planted: phi_views refuses experts by the table; one that ran contradicts it, one withheld accuses nobody."""
    tests = [framed("phi_views", refused="phi_views compares one MLP a block"), framed("phi_match")]
    assert measure.contradictions([], measure.corrected([*tests, framed("phi_u", log10_p=-0.1)])) == []
    (message,) = measure.contradictions([], measure.corrected([framed("phi_views", log10_p=-0.1)]))
    assert message.endswith("phi_views: the table says refused, this run withstands")
    (message,) = measure.contradictions([], measure.corrected([framed("phi_match", refused="no gate")]))
    assert message.endswith("phi_match: the table says withstands, this run refused")


def test_entries_of_the_table_of_flaws_that_a_run_leaves_open():
    """A run of two tests of one framing says nothing of all others, and names them; one of all entries names none."""
    left = measure.unmeasured([], measure.corrected([framed("phi_views", refused="one MLP"), framed("phi_match")]))
    assert "mimics+experts=2@origin" in left["phi_u"]
    assert "mimics+experts=2@origin" not in (*left.get("phi_views", ()), *left["phi_match"])
    every = [framed(statistic, attack, log10_p=-0.1) for attack, statistic, _ in measure.entries()]
    assert measure.unmeasured([], measure.corrected(every)) == {}


def test_the_picture_says_what_is_lost_and_who_is_accused():
    costs = pd.DataFrame({"growth": [1.0, 1.0, 2.0], "loss": 0.0}, index=["", "T1", "split=3"])
    groups = {"": "as it is", "T1": "kept", "split=3": "kept"}
    drawn = figures.lab(measure.cells(results()), groups, costs)
    assert "Attacks under which most are caught, of 2: φ_MATCH 1, φ_U 1" in drawn.caption
    assert "Cells in which a stranger is accused (with !): 1." in drawn.caption
    assert "Caught by none: no attack." in drawn.caption
    assert PICTURE in drawn._repr_mimebundle_()["text/html"]  # so that it may open its page


def test_a_cell_of_the_table_says_what_it_counts():
    cells = [measure.Cell("average", "phi_u", 6, 7, 1, 7, 0), measure.Cell("average", "phi_h", 0, 0, 0, 7, 7)]
    costs = pd.DataFrame({"growth": [1.0], "loss": [0.25]}, index=["average"])
    html = figures.lab(cells, {"average": "lossy"}, costs).html
    assert re.findall(r'<td class="(.*?)" title="(.*?)">(.*?)</td>', html) == [
        (
            "caught accused",
            "average, φ_U: 6 of 7 descendants caught; 1 of 7 strangers accused; the attack: 1.00 times the parameters, "
            "+0.250 nats a token",
            "6/7!",
        ),
        (
            "refused",
            "average, φ_H: the statistic refuses; 0 of 7 strangers accused; the attack: 1.00 times the parameters, "
            "+0.250 nats a token",
            "",
        ),
    ]


# Made and compared ------------------------------------------------------------------------------------------


@pytest.fixture
def family(models):
    """The models of the suite's own small zoo: a base, its descendant, and two strangers."""
    return measure.OneBase(str(models["base"]), str(models["tuned"]), str(models["other"]), "")


def test_a_run_attacks_compares_and_leaves_nothing(family, text, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "store").mkdir()
    tried = [AttackRow.read(label, "kept") for label in ("", "T2", "identity=1", "average=0.5@partner", "swap=9")]
    sizes = {"n_sequences": 4, "sequence_length": 8, "seed": 0, "text": text}
    instances, tested = measure.run(
        tried, [family], ["phi_u", "phi_match"], Store(tmp_path / "store"), steps={}, n_trained=1,
        framing=[AttackRow.read("align@origin", "framing")], **sizes,
    )  # fmt: skip
    # without a partner
    assert [item.attack for item in instances] == ["", "T2", "identity=1", "swap=9", "align@origin"]
    assert "has no next one" in next(item.refused for item in instances if item.attack == "swap=9")
    result = {(item.attack, item.against, item.statistic): item for item in tested}
    assert result["", "kin", "phi_u"].log10_p < -10
    assert result["T2", "kin", "phi_u"].log10_p > -5
    assert result["identity=1", "kin", "phi_u"].log10_p < -10  # as phi_match, it compares all blocks with all
    assert result["identity=1", "kin", "phi_match"].log10_p is not None
    assert result["align@origin", "framed", "phi_u"].log10_p < -10
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_descendants_are_attacked_and_strangers_framed_each_with_the_loss_of_its_own(family, tmp_path, monkeypatch):
    attacked = {}

    def made(row, _, checkpoint, before, *rest):
        attacked[row.label] = checkpoint.source, before
        raise ProvlabError("no further")

    monkeypatch.setattr(measure, "made", made)
    monkeypatch.setattr(measure, "_compared", lambda *_: [])
    monkeypatch.setattr(measure, "loss", lambda checkpoint, text: f"loss of {checkpoint.source} on {text}")
    rows, framing = [AttackRow.read("T2", "kept")], [AttackRow.read("align@origin", "framing")]
    how = {"steps": {}, "n_trained": 0, "framing": framing, "seed": 0, "text": "words"}
    measure.run(rows, [family], ["phi_u"], Store(tmp_path / "store"), **how)
    assert attacked == {
        "T2": (family.tune, f"loss of {family.tune} on words"),
        "align@origin": (family.stranger, f"loss of {family.stranger} on words"),
    }


def test_trained_attacks_write_models_with_weights_of_their_own(text, tmp_path, monkeypatch):
    folder = tiny_models.save("llama", tmp_path / "model")
    tokens = np.random.default_rng(0).integers(tiny_models.VOCABULARY, size=(4, 16))
    monkeypatch.setattr(training, "encode", lambda checkpoint, options: tokens)
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "cache"))
    model = Checkpoint.open(str(folder))
    new = Checkpoint.open(str(training.retrained(model, tmp_path / "retrained", Options(text=text), 5)))
    mlp, rest = ("model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.weight")
    assert abs(np.corrcoef(new.array(mlp).ravel(), model.array(mlp).ravel())[0, 1]) < 0.2
    assert (new.array(rest) == model.array(rest)).all()
    draw = type("Text", (), {"draw": lambda self, batch, length, rng: __import__("torch").from_numpy(tokens)})
    monkeypatch.setattr(training.Mixture, "load", lambda shares, split: draw())
    student = Checkpoint.open(str(training.distilled(model, tmp_path / "distilled", 7, 2)))
    assert student.tensor_names == model.tensor_names
    assert abs(np.corrcoef(student.array(rest).ravel(), model.array(rest).ravel())[0, 1]) < 0.2


@pytest.mark.parametrize(
    ("attack", "statistic", "against", "hits", "n", "verdict"),
    [
        ("T2", "phi_u", measure.KIN, 0, 4, "borne out"),
        ("T2", "phi_u", measure.KIN, 3, 4, "open"),  # the table says that it finds most of none
        ("T2", "phi_u", measure.KIN, 4, 4, "denied"),
        ("T2", "phi_match", measure.KIN, 3, 3, "borne out"),
        ("T2", "phi_match", measure.KIN, 0, 3, "open"),
        ("T2", "phi_match", measure.KIN, 0, 4, "denied"),
        ("align@origin", "phi_match", measure.FRAMED, 0, 4, "borne out"),
        ("align@origin", "phi_match", measure.FRAMED, 1, 3, "open"),  # one accused of three is no rate of its own
        ("align@origin", "phi_match", measure.FRAMED, 2, 4, "denied"),
        ("align@origin", "phi_u", measure.FRAMED, 4, 4, "borne out"),
    ],
)
def test_an_entry_is_denied_by_the_interval_of_its_rate(attack, statistic, against, hits, n, verdict):
    tests = [
        measure.LabTest(attack, f"{i}", against, statistic, -90.0 if i < hits else -0.1, None, None) for i in range(n)
    ]
    (entry,) = measure.judged(measure.corrected(tests))
    assert (entry.hits, entry.n, entry.verdict) == (hits, n, verdict)
    assert entry.interval[0] <= hits / n <= entry.interval[1]


def test_a_refusal_is_denied_by_one_model_that_could_be_compared():
    refused = framed("phi_views", refused="phi_views compares one MLP a block")
    assert [entry.verdict for entry in measure.judged(measure.corrected([refused]))] == ["borne out"]
    ran = framed("phi_views", log10_p=-0.1)
    assert [entry.verdict for entry in measure.judged(measure.corrected([refused, ran]))] == ["denied"]


def test_the_race_names_rows_of_the_lab_and_tests_that_exist():
    race = pd.read_csv(resources.files("provlab_study.attack_lab") / "race.csv", keep_default_na=False)
    assert set(race["attack"]) <= {row.label for row in rows([])}
    assert set(race["found by"]) - {""} <= REGISTRY.keys()
    assert ((race["found by"] == "") == (race["found since"] == "")).all()
    dates = race[["tried since", "found since"]].stack()
    assert dates.str.fullmatch(r"(2026-\d\d-\d\d)?").all()
