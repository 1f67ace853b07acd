"""All blocks against all blocks, with room for all of them and for hardly any: the same numbers."""

import numpy as np
import pytest

from provlab.engine import memory
from provlab.running import room
from provlab.statistics import two_views
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab_study.shared.block_map import block_map


@pytest.fixture(scope="module")
def pair(models):
    return Model.open(models["base"]), Model.open(models["sibling"])


def test_little_memory_gives_the_numbers_that_much_gives(pair, text, tmp_path, monkeypatch):
    options = Options(text=text, n_sequences=16, sequence_length=32)
    prepared, living_rows = [], two_views.living_rows
    monkeypatch.setattr(two_views, "living_rows", lambda *a, **k: prepared.append(1) or living_rows(*a, **k))
    in_memory = block_map(*pair, options, progress=False)
    blocks = sum(model.anatomy.n_blocks for model in pair)
    assert len(prepared) == blocks  # gate and up, once for each block of either model
    monkeypatch.setattr(room, "IN_MEMORY", 0)
    monkeypatch.setattr(memory, "free", lambda: 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    prepared.clear()
    in_files = block_map(*pair, options, progress=False)
    assert len(prepared) > blocks  # what does not fit is read again
    assert np.array_equal(in_memory.log10_p, in_files.log10_p)
    del in_files
    assert list(tmp_path.iterdir()) == []
