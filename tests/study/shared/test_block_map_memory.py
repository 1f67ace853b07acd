"""All blocks against all blocks with every activation in files: the same numbers, and rows normalised once a block."""

import numpy as np
import pytest

from provlab.engine import localise
from provlab.models import room
from provlab.statistics import two_views
from provlab.statistics.base import Model, Options
from provlab_study.shared.block_map import block_map


@pytest.fixture(scope="module")
def pair(models):
    return Model.open(models["base"]), Model.open(models["sibling"])


def test_files_give_the_numbers_that_memory_gives(pair, text, tmp_path, monkeypatch):
    options = Options(text=text, n_sequences=16, sequence_length=32)
    in_memory = block_map(*pair, options, progress=False)
    monkeypatch.setattr(room, "IN_MEMORY", 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    opened, prepared, kept = [], [], localise._kept

    def of_views(features, limit):
        result = kept(features, limit)
        if isinstance(result, two_views.Views):
            opened.append([isinstance(view.unit, np.memmap) for view in result[:2]])
        return result

    monkeypatch.setattr(localise, "_kept", of_views)
    living_rows = two_views.living_rows
    monkeypatch.setattr(two_views, "living_rows", lambda *a, **k: prepared.append(1) or living_rows(*a, **k))
    in_files = block_map(*pair, options, progress=False)
    assert np.array_equal(in_memory.log10_p, in_files.log10_p)
    blocks = [model.anatomy.n_blocks for model in pair]
    assert opened == [[True, True]] * blocks[1]
    assert len(prepared) == sum(blocks)  # gate and up, once for each block of either model
    del in_files
    assert list(tmp_path.iterdir()) == []
