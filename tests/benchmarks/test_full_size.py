"""A rehearsal in a shape that takes no time: what it measures adds up, what it finds is what was planted."""

import json
import shutil
from collections import namedtuple

import cost
import full_size
import numpy as np
import pytest
import synthetic
from cost import Cost, measure
from full_size import rehearse

from provlab.errors import InputError, NotComparableError
from provlab.planning import shapes

SMALL = {"n_sequences": 8, "sequence_length": 32}


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scratch")
    result = rehearse("tiny", "noisy", blocks=2, seed=1, folder=folder)
    assert list(folder.iterdir()) == []  # nothing is left behind
    return result


def test_a_noisy_copy_is_found_unit_by_unit(noisy):
    """Every unit's cosine with its copy is near 0.89, with others at most 5 / sqrt(64): no unit can be mistaken."""
    assert noisy.right == (1.0, 1.0)
    assert all(block.log10_p == pytest.approx(block.reach) for block in noisy.blocks)


def test_independent_models_are_not_found():
    result = rehearse("tiny", "independent", blocks=None, seed=2)
    assert result.right is None
    assert result.noise == 0.0
    assert len(result.blocks) == 4
    assert min(block.log10_p for block in result.blocks) > -3


def test_a_pruned_copy_is_found_by_activations():
    result = rehearse("tiny", "pruned", statistic="phi_match", blocks=None, noise=0.0, seed=3, **SMALL)
    assert result.shapes == ("tiny", "tiny-pruned")
    assert result.depths == (4, 3)
    assert len(result.blocks) == 3
    assert min(result.right) > 0.5
    assert max(block.log10_p for block in result.blocks) < -20


def test_phi_u_reads_one_projection_of_each_block(noisy):
    """176 x 64 weights of two bytes."""
    assert noisy.read_bytes == 176 * 64 * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "odd"}, "kind must be"),
        ({"statistic": "phi_l2"}, "phi_u or phi_match"),
        ({"shape": "llama-2-7b", "kind": "pruned"}, "name the shape of the pruned copy"),
        ({"other": "tiny-pruned"}, "of one shape"),
        ({"blocks": 9}, "1 to 4"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        rehearse(**{"shape": "tiny"} | arguments)


def test_both_models_must_fit_before_the_first_is_written(tmp_path, monkeypatch):
    """Room for one and a half of them."""
    usage = namedtuple("usage", "total used free")
    item = synthetic.n_bytes(shapes.shape("tiny"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, item * 3 // 2))
    monkeypatch.setattr(synthetic, "synthesise", lambda *arguments, **more: pytest.fail("a model was written"))
    with pytest.raises(InputError, match="write fewer blocks"):
        rehearse("tiny", "noisy", blocks=None, vocabulary=None, folder=tmp_path)


def test_phi_u_says_why_it_cannot_compare_a_pruned_copy():
    with pytest.raises(NotComparableError, match="phi_match can compare models of different width"):
        rehearse("tiny", "pruned")


# Cost -----------------------------------------------------------------------------------------------------------------


def test_memory_is_the_peak_above_what_was_there():
    """An array that is gone again when the work ends, and is large beside what else a process takes meanwhile."""
    size = 25_000_000
    held = np.ones(size // 5)
    total, result = measure(lambda: float(np.ones(size).sum()))
    assert total == size
    assert 0.95 < result.memory / (8 * size) < 1.3
    assert held.size


def test_a_lower_peak_than_an_earlier_one_is_seen():
    """Linux alone can start the peak again; elsewhere memory is an upper bound."""
    if cost._status("VmHWM") is None:
        pytest.skip("no /proc here")
    size = 25_000_000
    measure(lambda: float(np.ones(size).sum()))
    _, result = measure(lambda: float(np.ones(size // 12).sum()))
    assert result.memory < 8 * size / 2


def test_costs_add_up():
    assert Cost(1, 2, 30) + Cost(4, 5, 20) == Cost(5, 7, 30)
    assert Cost(1, 2, 30).times(3) == Cost(3, 6, 30)
    assert cost.mean([Cost(1, 2, 30), Cost(3, 4, 10)]) == Cost(2, 3, 30)


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command_prints_the_table(capsys, tmp_path):
    full_size.main(["tiny", "--blocks", "2", "--folder", str(tmp_path)])
    out = capsys.readouterr().out
    assert "phi_u on 2 of 4 blocks" in out
    assert "compare a block of a pair" in out
    assert list(tmp_path.iterdir()) == []


def test_json_has_the_costs(capsys):
    full_size.main(["tiny", "--copy", "pruned", "--blocks", "all", "--sequences", "4", "--json"])
    record = json.loads(capsys.readouterr().out)
    assert record["statistic"] == "phi_match"
    assert record["depths"] == [4, 3]
    assert len(record["log10_p"]) == len(record["right"]) == 3
    assert record["compare"]["cpu_seconds"] > 0
    assert "phi_match on 3 of 3 blocks" in record["table"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny", "--blocks", "some"], "--blocks must be a whole number"),
        (["tiny", "--folder", "nowhere"], "--folder nowhere is no folder"),
        (["giant"], "giant is no known shape"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        full_size.main(arguments)
