"""What the page on evasion measures: groups, counts and sentences, on values worked out by hand."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from provlab.chapters.evasion import figures, measure
from provlab.chapters.evasion.measure import Block, Disguised, PreservedRecord, Scores
from provlab.chapters.shared.groups import Groups
from provlab.engine.lineage import Lineage
from provlab.models import examples
from provlab.models.checkpoint import Checkpoint
from provlab.statistics.base import Options

KNOWN = Lineage(("a", "b", "c"), {"a": None, "b": "a", "c": None}, {})
UNKNOWN = Lineage(("a", "b", "c"), {}, {})


def test_each_pair_has_its_second_model_in_disguise():
    plain = Disguised.of(["a", "b", "c"])
    assert plain.pairs == [("a", "disguised:b"), ("a", "disguised:c"), ("b", "disguised:c")]
    assert plain.one_each() == [("a", "disguised:b"), ("b", "disguised:c")]
    turned = Disguised.of(["a", "b", "c"], "T6-")
    assert plain.chain(KNOWN) == [("a", "disguised:c")]
    assert turned.related(KNOWN) == [("a", "disguised:T6-:b")]
    assert turned.related(UNKNOWN) == []


def test_blocks_of_chosen_pairs_in_either_order():
    def record(statistic, a, b, *log10_p):
        return SimpleNamespace(
            statistic=statistic, a=a, b=b, outcome=SimpleNamespace(blocks=[SimpleNamespace(log10_p=p) for p in log10_p])
        )

    failed = SimpleNamespace(statistic="phi_u", a="a", b="d", outcome=None)
    study = SimpleNamespace(
        records=[
            record("phi_u", "b", "a", -1, -2),
            record("phi_h", "a", "b", -3),
            record("phi_u", "a", "c", -4),
            failed,
        ]
    )
    assert measure.block_log10_p(study, "phi_u", [("a", "b"), ("a", "d")]) == [-1, -2]


def frame(rows):
    table = pd.DataFrame(rows, columns=["a", "b", "statistic", "dependent", "log10_p", "holm_log10_p"])
    table["dependent"] = table["dependent"].astype(object)
    return table.assign(floor=-100.0, value=0.5)


ROWS = [
    ("a", "disguised:b", "phi_match", True, -50.0, -49.0),
    ("a", "disguised:c", "phi_match", False, -2.1, -1.8),
    ("b", "disguised:c", "phi_match", False, -9.0, -8.0),
]


def test_findings_count_calls_after_correction():
    said = measure.pair_findings(frame(ROWS), ["phi_match"])
    assert "φ_MATCH calls 1 of 1 dependent pairs and 1 of 2 independent pairs related" in said
    unknown = frame([(a, b, statistic, None, p, holm) for a, b, statistic, _, p, holm in ROWS])
    assert measure.pair_findings(unknown, ["phi_match"]) == ""


def test_the_heatmap_has_a_truth_only_where_every_origin_is_known():
    pairs = Disguised.of(["a", "b", "c"])
    known = figures.disguised_pairs(frame(ROWS), pairs, KNOWN, statistic="phi_match")
    assert "known lineage" in known.alt
    assert "calls 2 of 3 pairs" in known.alt
    unknown = figures.disguised_pairs(frame(ROWS), pairs, UNKNOWN, statistic="phi_match")
    assert "known lineage" not in unknown.alt


def test_what_survives():
    columns = {"as it is": "d", "T2": "disguised:T2:d"}
    rows = []
    for statistic in (*measure.TESTS, *measure.SCORES):
        copy, strange = (0.0, 0.6) if statistic == "median_max" else (1.0, 0.2)
        rows += [
            (statistic, "d", copy, -50.0),
            (statistic, "disguised:T2:d", (copy + strange) / 2, -2.0),
            (statistic, "stranger", strange, -0.1),
        ]
    table = pd.DataFrame(rows, columns=["statistic", "b", "value", "log10_p"])
    texts, found = measure.surviving(table, columns, "stranger")
    by_name = dict(zip((*measure.TESTS, *measure.SCORES), found, strict=True))
    assert by_name["phi_u"] == [True, True]  # by Holm the second of two is asked for 0.01
    assert by_name["phi_l2"] == [True, True]  # 99 permutations allow no less
    assert by_name["huref_a"] == by_name["median_max"] == [True, False]  # half way is not near enough
    assert texts[0] == ["-50.0", "-2.0"]
    assert texts[-1] == ["0.00", "0.30"]


def test_negative_constants_are_counted_beside_positive_ones():
    plain = frame([*ROWS, ("a", "disguised:b", "phi_match_unsigned", True, -40.0, -39.0)])
    negative = frame([("a", "x", "phi_match", None, -0.3, 0.0), ("a", "x", "phi_match_unsigned", None, -41.0, -40.0)])
    table = measure.negative_table(plain, negative)
    assert table.iloc[:, 2].tolist() == ["1 of 1", "1 of 1", "0 of 1", "1 of 1"]
    assert table["largest log10 p"].tolist() == [-50.0, -40.0, -0.3, -41.0]


def test_invariants_by_group():
    rows = [(s, b, v) for s in measure.INVARIANTS for b, v in (("kin", 0.9), ("disguised:T5:kin", 0.1), ("far", 0.2))]
    table = pd.DataFrame(rows, columns=["statistic", "b", "value"])
    groups = {"dependent": ["kin"], "disguised": ["disguised:T5:kin"], "independent": ["far"]}
    found = measure.invariants(table, groups)
    assert list(found) == ["M_a", "M_b", "M_c"]
    assert (found["M_b"].dependent, found["M_b"].disguised, found["M_b"].independent) == ([0.9], [0.1], [0.2])
    shown = measure.invariants_table(found)
    assert shown["ours"].tolist() == ["dependent, 1 models", "dependent, T5, 1 models", "independent, 1 models"]
    assert shown["M_a, ours"][1] == "0.10 to 0.10"
    assert len(measure.invariants_published()) == 8  # Table 7


def test_the_score_is_sorted_by_known_origin_only():
    table = pd.DataFrame({"dependent": pd.Series([True, False, None], dtype=object), "value": [0.1, 0.6, 0.5]})
    table = table.assign(a=["a", "a", "x"], b=["b", "c", "y"])
    found = measure.median_max(table, [("a", "c")])
    assert found == Scores(independent=[0.6], dependent=[0.1], chain=[0.6])
    assert measure.median_max_table(found)["ours"].tolist() == ["0.10 to 0.10", "0.60 to 0.60"]
    assert measure.median_max_table(Groups([], []))["ours"].tolist() == ["", ""]


def test_refusals_name_each_architecture_once():
    records = [
        PreservedRecord("A", "a", "T1", 1e-15, None),
        PreservedRecord("A", "a", "T3", None, "a norm"),
        PreservedRecord("A", "a2", "T3", None, "a norm"),
        PreservedRecord("B", "b", "T3", None, "a norm"),
    ]
    table = measure.refusal_table(records)
    assert table.to_dict("list") == {"architectures": ["A, B"], "why not": ["a norm"]}
    shown = measure.preserved_table(records[:2])
    assert shown.loc["a"].tolist() == ["1e‑15", "–"]


def block(rng, h=40, width=4, tokens=0):
    """A block of random matrices."""
    shapes = {"up": (h, width), "value": (width, width), "embedding": (h, width), "folded_up": (h, width)}
    arrays = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    inputs = rng.standard_normal((width, 60))
    return Block(**arrays, gates=arrays["folded_up"] @ inputs, inputs=inputs, tokens=np.full((2, 3), tokens))


def disguised(own, rng):
    """The same block with its units shuffled and its stream rotated, as far as an investigator sees."""
    order, turn = rng.permutation(len(own.up)), stats.ortho_group.rvs(own.up.shape[1], random_state=rng)
    return Block(
        up=own.up[order] @ turn,
        value=own.value @ turn,
        embedding=own.embedding @ turn,
        folded_up=own.folded_up[order] @ turn,
        gates=own.gates[order],
        inputs=turn.T @ own.inputs,
        tokens=own.tokens,
    )


def test_undone_groups_residuals_by_attack(monkeypatch):
    rng = np.random.default_rng(0)
    base = block(rng)
    kept = {"base": base, "disguised:kin": disguised(base, rng), "disguised:far": block(rng)}
    kept["disguised:foreign"] = block(rng, tokens=1)
    monkeypatch.setattr(measure, "first_block", lambda source, options, allow_pickle: kept[source])
    found = measure.undone("base", ["kin"], ["far", "foreign"], Options())
    assert found["value projection"] == Groups(independent=[0.0, 0.0], dependent=[0.0])  # as many unknowns as equations
    assert min(found["up projection"].dependent) > 0.8  # the rows are shuffled
    for attack in ("embedding", "inputs of the MLP", "up projection (units matched)"):
        assert found[attack].dependent == [0.0], attack
        assert len(found[attack].independent) == 1, attack  # other tokens
        assert found[attack].independent[0] > 0.5, attack
    drawn = figures.residuals(found, caption="Undone.")
    assert "The groups overlap: " in drawn.caption
    assert drawn.caption.endswith("embedding, inputs of the MLP, up projection (units matched).")


def test_how_far_weights_moved(tmp_path):
    network = examples.build("llama", seed=0)
    network.save_pretrained(tmp_path / "a")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5)
    network.save_pretrained(tmp_path / "b")
    one, other = (Checkpoint.open(str(tmp_path / name)) for name in "ab")
    assert measure._moved(one, one) == 0.0
    assert measure._moved(one, other) == pytest.approx(0.5)
