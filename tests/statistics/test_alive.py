"""Units that do nothing: a model may be given any number of them, and what matches units must see through that."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from provlab import api
from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.inference.matching import unit_rows
from provlab.statistics import get
from provlab.statistics.alive import alive
from provlab.statistics.base import Options

SIZES = {"n_sequences": 16, "sequence_length": 32, "progress": False}
BY_MATCH = ("phi_u", "phi_h", "phi_match", "phi_match_unsigned", "phi_views", "median_max")


@pytest.fixture(scope="module")
def attacked(save_model, tmp_path_factory):
    """Write a copy of a model after `change` has been at each of its MLPs."""

    def write(folder, change):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.no_grad():
            for block, layer in enumerate(model.model.layers):
                change(block, layer.mlp)
        model.config.intermediate_size = model.model.layers[0].mlp.up_proj.weight.shape[0]
        return str(save_model(model, tmp_path_factory.mktemp("attacked") / "model"))

    return write


def zero_unit(block, mlp):
    """One unit of block 1 off: its rows and its column are zero."""
    if block == 1:
        mlp.up_proj.weight[5] = mlp.gate_proj.weight[5] = 0
        mlp.down_proj.weight[:, 5] = 0


def outcomes(a, b, text, statistics=BY_MATCH):
    found = api.compare(a, b, statistics=list(statistics), text=text, **SIZES)
    return found, {record.statistic: record.outcome for record in found.records}


def test_a_zero_unit_takes_no_statistic_away(models, text, attacked):
    folder = attacked(models["base"], zero_unit)
    for a, b, dropped in ((models["base"], folder, [0, 1]), (folder, models["base"], [1, 0])):
        found, after = outcomes(a, b, text)
        assert None not in after.values()
        for name in BY_MATCH:
            if name != "median_max":
                assert after[name].log10_p < -50
                assert [block.detail.get("dropped") for block in after[name].blocks] == [None, dropped, None]
        assert abs(after["median_max"].value) < 0.01
        assert f"were left out: {dropped[0]} of " in found.verdict()
        assert "phi_u, phi_h, phi_match, phi_match_unsigned, phi_views." in found.verdict()


def test_other_units_off_on_either_side(models, text, attacked):
    """Five of 48 here, seven there: the units that are left keep their numbers."""

    def off(numbers):
        def change(_, mlp):
            mlp.up_proj.weight[numbers] = 0

        return change

    a, b = attacked(models["base"], off([0, 1, 2, 3, 4])), attacked(models["base"], off([0, 40, 41, 42, 43, 44, 45]))
    for outcome in outcomes(a, b, text, BY_MATCH[:4])[1].values():
        for block in outcome.blocks:
            assert block.detail["dropped"] == [5, 7]
            assert block.detail["n"] == 41
            assert block.detail["agree"] >= 30
            assert block.matching.max() == 47


def test_nothing_dropped_is_said_of_honest_pairs(models, text):
    found, after = outcomes(models["base"], models["tuned"], text)
    assert all("dropped" not in block.detail for outcome in after.values() for block in outcome.blocks)
    assert "left out" not in found.verdict()


def test_the_number_of_a_unit_is_where_it_stood():
    rows = np.eye(5, dtype=np.float32)
    prepared = unit_rows(rows, keep=np.array([True, False, True, False, True]))
    assert prepared.places.tolist() == [0, 2, 4]
    assert prepared.left_out.tolist() == [1, 3]
    np.testing.assert_array_equal(prepared.unit, rows[[0, 2, 4]])
    assert unit_rows(rows).places.tolist() == [0, 1, 2, 3, 4]


def test_one_unit_is_too_few():
    with pytest.raises(InputError, match="W has 1 rows that are not zero, and a matching needs two"):
        alive(np.diag([1.0, 0, 0]), name="W")


@pytest.mark.parametrize("statistic", ["phi_u", "phi_match"])
def test_p_values_of_strangers_with_dead_units_are_uniform(statistic):
    """600 pairs of 24 random units, of which some are dead at random on either side: sizes and the mean of p."""
    rng = np.random.default_rng(3)
    one, tokens = get(statistic), np.zeros((1, 1), np.int64)
    found = []
    for pair in range(600):
        sides = []
        for _ in range(2):
            kept = np.ones(24, bool)
            kept[rng.choice(24, rng.integers(0, 6), replace=False)] = False
            views = [unit_rows(rng.standard_normal((24, 8)).astype(np.float32), keep=kept) for _ in range(2)]
            sides.append((*views, tokens) if statistic == "phi_match" else views[0])
        found.append(one.compare_block(*sides, 0, Options(seed=pair)).log10_p)
    p = 10.0 ** np.array(found)
    for level in (0.01, 0.05, 0.2):
        assert (p <= level).sum() <= 600 * level + 3 * np.sqrt(600 * level * (1 - level))
    assert pvalues.fisher(np.array(found)) > -3
    assert p.mean() > 0.46
