"""A format of weight files as a package of one's own would bring it, whole: arrays of numpy in one archive.

CONTRIBUTING.md points here.
"""

from pathlib import Path
from types import SimpleNamespace
from zipfile import BadZipFile

import numpy as np
import pytest
from safetensors.numpy import load_file

import provlab
from provlab import plugins
from provlab.errors import CheckpointError
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.files import container
from provlab.reading.files.container import Container, Format, TensorInfo


class NpzFile(Container):
    """Tensors under the names that transformers gives them."""

    config = None  # it stands in config.json

    def __init__(self, source, file):
        try:
            with source.path(file).open("rb") as opened, np.load(opened) as archive:
                self.arrays = dict(archive)  # of a large model, read one when it is asked for
            self.header = {name: TensorInfo(array.shape, str(array.dtype)) for name, array in self.arrays.items()}
        except (OSError, ValueError, EOFError, BadZipFile) as error:
            # `damaged` says more of most formats; what begins like an archive of zip it takes for a pickle
            raise CheckpointError(f"{source.label}: {file} is truncated or corrupt ({error}); copy it again") from error

    def read(self, name, rows):
        array = self.arrays[name] if rows is None else self.arrays[name][rows.start : rows.stop]
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)  # bytes, in the dtype of the header


FORMAT = Format(f"{__name__}.NpzFile", single="*.npz", ending=".npz")


@pytest.fixture
def brought(monkeypatch):
    """As by an entry point in `provlab.containers` whose name is the ending: ``npz = "package.module:FORMAT"``."""
    there = plugins.named
    point = SimpleNamespace(load=lambda: FORMAT)
    monkeypatch.setattr(
        plugins, "named", lambda group: {**there(group)} | ({"npz": point} if group == plugins.CONTAINERS else {})
    )
    container._format_of.cache_clear()
    yield
    container._format_of.cache_clear()


@pytest.fixture
def folder(models, tmp_path):
    """A model of the tests, stored so."""
    weights = load_file(f"{models['base']}/model.safetensors")
    np.savez(tmp_path / "model.npz", **weights)
    (tmp_path / "config.json").write_bytes(Path(models["base"], "config.json").read_bytes())
    return tmp_path


@pytest.mark.usefixtures("brought")
def test_its_tensors_are_those_of_the_safetensors_file(models, folder):
    mine, theirs = Checkpoint.open(folder), Checkpoint.open(models["base"])
    assert mine.tensor_names == theirs.tensor_names
    assert all(np.array_equal(mine.array(name), theirs.array(name)) for name in theirs.tensor_names)
    p = [
        provlab.compare(source, models["tuned"], statistics=["phi_u"], progress=False).records[0].outcome.log10_p
        for source in (folder, models["base"])
    ]
    assert p[0] == p[1] < -8


@pytest.mark.usefixtures("brought")
def test_a_damaged_file_is_refused_in_one_line(folder):
    whole = (folder / "model.npz").read_bytes()
    (folder / "model.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"model\.npz is truncated or corrupt .*; copy it again"):
        Checkpoint.open(folder)


def test_without_the_package_it_is_no_checkpoint(folder):
    with pytest.raises(CheckpointError):
        Checkpoint.open(folder)
