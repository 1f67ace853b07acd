"""Which tensors of two models differ, and by how much: planted changes are listed, each at its place."""

import numpy as np
import pytest
import tiny_models
import torch
from safetensors.torch import load_file

from provlab import compare
from provlab.reading import anatomy, changes
from provlab.reading.checkpoint import Checkpoint


def differing(a, b):
    one, other = Checkpoint.open(a), Checkpoint.open(b)
    found = changes.changes(one, other, anatomy.of(one), anatomy.of(other))
    return {row["role"]: row for row in found if row["differing"]}


def _norms(tensors):
    for name, tensor in tensors.items():
        if "input_layernorm" in name:
            tensors[name] = tensor * 1.2


def _expert(tensors):
    for name, tensor in tensors.items():
        if "layers.1" in name and ".experts.2." in name:
            tensors[name] = -tensor


def _head(tensors):
    tensors["lm_head.weight"][:10] *= 1.1


PLANTS = {
    "norms x 1.2": ("llama", _norms, {"input_norm": ("", 1.0, 0.2)}),
    "one expert replaced": (
        "mixtral", _expert, dict.fromkeys(("gate", "up", "down"), ("block 1, expert 2", None, None)),
    ),
    "rows of the head": ("llama", _head, {"head": ("", 0.2, None)}),
}  # fmt: skip


@pytest.mark.parametrize("case", PLANTS)
@pytest.mark.parametrize("most", [changes.MOST, 2000])
def test_a_planted_change_is_listed_with_its_place(case, most, tiny, tmp_path, monkeypatch):
    """Also where only parts of each tensor are read, in proportion: rows at the beginning, the middle and the end."""
    monkeypatch.setattr(changes, "MOST", most)
    label, change, expected = PLANTS[case]
    path = tiny_models.copy(tiny(label), tmp_path / "b")
    tiny_models.rewrite(path, change)
    found = differing(tiny(label), path)
    assert found.keys() == expected.keys()
    before, after = (load_file(folder / "model.safetensors") for folder in (tiny(label), path))
    for role, (where, share, relative) in expected.items():
        row = found[role]
        assert row["where"] == where
        if most > 2000:
            assert share is None or row["differing"] == pytest.approx(share)
            if relative is not None:
                assert row["relative"] == pytest.approx(relative, rel=1e-5)
            names = [name for name in before if not torch.equal(before[name], after[name])]
            change = np.sqrt(sum(float((after[n] - before[n]).square().sum()) for n in names))
            assert change > 0


def test_nothing_is_listed_for_a_copy_and_a_role_that_is_new_for_none(tiny, tmp_path):
    path = tiny_models.copy(tiny("llama"), tmp_path / "b")
    assert differing(tiny("llama"), path) == {}
    tiny_models.rewrite(path, lambda tensors: tensors.update({"extra.weight": torch.ones(3)}))
    assert differing(tiny("llama"), path) == {}


def test_not_a_number_is_left_out(tiny, tmp_path):
    path = tiny_models.copy(tiny("llama"), tmp_path / "b")
    tiny_models.rewrite(path, lambda tensors: tensors["lm_head.weight"].fill_(float("nan")))
    assert differing(tiny("llama"), path) == {}


def test_compare_shows_them_whole_and_as_json(tiny, tmp_path):
    path = tiny_models.copy(tiny("llama"), tmp_path / "b")
    tiny_models.rewrite(path, _norms)
    result = compare(tiny("llama"), path, statistics=["phi_u"], progress=False)
    (row,) = [row for row in result.to_json()["changes"] if row["differing"]]
    assert (row["role"], round(row["relative"], 4)) == ("input_norm", 0.2)
    assert "tensors that differ" in str(result)
    assert "The same in both: embedding, " in str(result)
