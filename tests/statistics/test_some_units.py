"""phi_U on the first K hidden units alone: which rows these are, what is read of them, and what is said.

Reference values: rows of arrays read whole, Spearman's correlation of a matching done here, bytes by hand.
"""

from pathlib import Path

import numpy as np
import pytest
import spread_units
import tiny_models

from provlab import api, studying
from provlab.engine.pairs import open_models, run_pairs
from provlab.engine.store import Store
from provlab.engine.table import ResultCache
from provlab.errors import InputError, NotComparableError, ParameterError
from provlab.inference import pvalues
from provlab.inference.matching import match
from provlab.models.checkpoint import Checkpoint
from provlab.models.counting import counting
from provlab.models.formats.container import TensorInfo
from provlab.planning.sketch import shapes_of
from provlab.planning.study import plan
from provlab.report.study_report import StudyReport
from provlab.statistics import get
from provlab.statistics.base import Model, Options

WIDTH, HIDDEN, BLOCKS = 24, 48, 3  # of the tiny models
K = 20


def compare(a, b, **settings):
    return api.compare(a, b, progress=False, **({"units": K} | settings))


def by_hand(a, b, block, k=K):
    """log10 p of the first k rows, matched here."""
    rows = [model.anatomy.read(model.checkpoint, "up", block)[:k] for model in (a, b)]
    return pvalues.spearman(match(*rows).indices).log10_p


@pytest.mark.parametrize("label", ["llama", "phi3", "gpt2", "gpt_neox", "bert_base", "qwen2"])
@pytest.mark.parametrize("shards", [False, True])
def test_the_rows_are_the_first_of_the_role(tmp_path, label, shards):
    """In every layout; only where units are rows that lie together is nothing else read."""
    tiny_models.build(label).save_pretrained(tmp_path / "m", max_shard_size="20KB" if shards else "5GB")
    model = Model.open(str(tmp_path / "m"))
    whole = model.anatomy.read(model.checkpoint, "up", 1)
    with counting() as count:
        some = model.anatomy.read(model.checkpoint, "up", 1, units=5)
    assert np.array_equal(some, whole[:5])
    assert count.tensors == (4 * whole.size if label == "gpt2" else 4 * 5 * whole.shape[1])
    with pytest.raises(InputError, match=r"has \d+ units, fewer than 500: give fewer, or leave units out"):
        model.anatomy.read(model.checkpoint, "up", 1, units=500)


def test_rows_of_a_pickle_are_the_same(tmp_path):
    import torch

    tiny_models.save("llama", tmp_path / "m")
    whole = Checkpoint.open(tmp_path / "m")
    state = {name: whole.tensor(name) for name in whole.tensor_names}
    (tmp_path / "m" / "model.safetensors").unlink()
    torch.save(state, tmp_path / "m" / "pytorch_model.bin")
    result = Model.open(str(tmp_path / "m"), allow_pickle=True)
    name = result.anatomy.tensor_name("up", 0)
    assert np.array_equal(result.checkpoint.array(name, range(3, 7)), state[name].numpy()[3:7])


def test_the_matching_is_that_of_these_rows(models):
    result = compare(models["base"], models["tuned"]).records[0]
    a, b = (Model.open(models[name]) for name in ("base", "tuned"))
    assert [block.log10_p for block in result.outcome.blocks] == [by_hand(a, b, block) for block in range(BLOCKS)]
    assert {block.detail.n for block in result.outcome.blocks} == {K}
    assert {block.detail.floor for block in result.outcome.blocks} == {pvalues.log10_floor(K)}
    assert [block.detail.of_units for block in result.outcome.blocks] == [[HIDDEN, HIDDEN]] * BLOCKS


def test_planted_wrong_rows_give_another_matching(models, monkeypatch):
    """Were other rows taken for the first on one side, the units would not be matched as they are."""
    some, calls = TensorInfo.some, []

    def shifted(self, rows):
        calls.append(rows)
        return some(self, range(rows.start + len(calls) % 2, rows.stop + len(calls) % 2))

    monkeypatch.setattr(TensorInfo, "some", shifted)
    (record,) = compare(models["base"], models["tuned"], blocks=[0]).records
    assert len(calls) == 2
    assert record.outcome.log10_p != by_hand(*(Model.open(models[name]) for name in ("base", "tuned")), 0)


def test_what_is_planned_is_what_is_read(models):
    opened, options = open_models(list(models.values())), Options(units=K)
    planned = plan(opened.models, ["phi_u"], options)
    with counting() as count:
        run_pairs(opened, ["phi_u"], options, progress=False)
    assert count.tensors == planned.bytes_to_read == 5 * BLOCKS * K * WIDTH * 4
    assert planned.largest < plan(opened.models, ["phi_u"], Options()).largest


def test_the_command_plans_it(run):
    status, out, _ = run("plan", "shape:llama-2-7b*2", "--units", 1024, "--blocks", 0, "--json", "-")
    assert status == 0
    assert f'"bytes_to_read": {2 * 1024 * 4096 * 2}' in out
    models = shapes_of(["shape:llama-2-7b*2"]).models
    (reason,) = plan(models, ["phi_u"], Options(units=20_000), blocks=[0]).refused
    name = "model.layers.0.mlp.up_proj.weight"
    assert reason == f"{name} has 11008 units, fewer than 20000: give fewer, or leave units out"


def test_reading_until_settled_reads_these_rows_only(models):
    with counting() as count:
        result = compare(models["base"], models["stranger"], until_settled=True)
    detail = result.records[0].outcome.detail.until_settled
    assert count.tensors == detail["bytes_read"] == 2 * BLOCKS * K * WIDTH * 4


def test_all_blocks_with_all(models):
    result = compare(models["base"], models["tuned"], all_blocks=True)
    assert result.records[0].outcome.log10_p < -5
    assert f"phi_u read the first {K} of {HIDDEN} hidden units of each block" in result.verdict()


def test_more_units_than_there_are(models, run):
    status, out, err = run("compare", models["base"], models["tuned"], "--units", HIDDEN + 1)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"has {HIDDEN} units, fewer than {HIDDEN + 1}: give fewer, or leave units out" in err
    with pytest.raises(NotComparableError, match=f"fewer than {HIDDEN + 1}"):
        compare(models["base"], models["tuned"], units=HIDDEN + 1, all_blocks=True)
    assert compare(models["base"], models["tuned"], units=HIDDEN).records[0].outcome.log10_p < -50


def test_statistics_that_read_all_units_refuse(models):
    assert [record.statistic for record in compare(models["base"], models["tuned"]).records] == ["phi_u"]
    with pytest.raises(ParameterError, match=r"phi_h reads all hidden units.* phi_u alone"):
        compare(models["base"], models["tuned"], statistics=["phi_u", "phi_h"])


def test_keys_contain_the_number_and_without_it_are_as_before(models, tmp_path):
    pair = [Model.open(models[name]) for name in ("base", "tuned")]
    store, statistic = Store(tmp_path), get("phi_u")
    keys = [ResultCache(store, statistic, Options(units=units)).key(pair, 0) for units in (None, 8, K, HIDDEN)]
    assert len(set(keys)) == 4
    assert statistic.parameters(Options(seed=3)) == {"seed": 3}
    for units in (None, K):
        compare(models["base"], models["tuned"], store=store, units=units)
    again = [compare(models["base"], models["tuned"], store=store, units=units) for units in (None, K)]
    assert [item.records[0].outcome.blocks[0].detail.n for item in again] == [HIDDEN, K]


def test_a_verdict_says_what_it_rests_on(models):
    result = compare(models["base"], models["stranger"])
    verdict = result.verdict()
    assert "phi_u (one test, level 0.01) does not reject" in verdict
    assert f"phi_u read the first {K} of {HIDDEN} hidden units of each block." in verdict
    assert "if it does not reject, run it without units" in verdict
    whole = compare(models["base"], models["stranger"], units=None, statistics=["phi_u"])
    assert "hidden units of each block" not in whole.verdict()
    assert result.to_json()["parameters"]["units"] == K


def test_a_partner_that_begins_elsewhere_is_seen_by_all_units_only(models, tmp_path):
    """A copy whose first half of units was cut off: of its first rows none has its partner among the first."""

    def cut(gate, up, down, rng):
        return gate[HIDDEN // 2 :], up[HIDDEN // 2 :], down[:, HIDDEN // 2 :]

    folder = spread_units.write(models["base"], tmp_path / "cut", cut)
    part = compare(models["base"], folder)
    assert part.records[0].outcome.log10_p > -2
    assert "Where units were moved or left out" in part.verdict()
    assert f"the first {K} of {HIDDEN} and {HIDDEN // 2} hidden units" in part.verdict()
    assert compare(models["base"], folder, units=None, statistics=["phi_u"]).records[0].outcome.log10_p < -20


def test_units_that_are_zero_are_left_out(models, tmp_path):
    """The others are matched, the smaller side into the larger."""
    folder = spread_units.write(models["base"], tmp_path / "off", spread_units.off(3, 30))
    outcome = compare(models["base"], folder).records[0].outcome
    assert [(block.detail.n, block.detail.dropped) for block in outcome.blocks] == [(K - 1, [0, 1])] * BLOCKS
    assert outcome.log10_p < -20


def test_a_study_takes_it_and_one_narrow_model_ends_nothing(models, new_model, save_model, tmp_path):
    narrow = str(save_model(new_model(7, intermediate_size=8), tmp_path / "narrow"))
    result = studying.study([models["base"], models["tuned"], narrow], units=K, progress=False)
    assert isinstance(result, StudyReport)
    errors = result.to_frame().set_index(["a", "b"])["error"]
    assert errors[models["base"], models["tuned"]] is None
    assert "has 8 units, fewer than 20" in errors[models["base"], narrow]
    assert Path(narrow).is_dir()
