"""A shelf of fingerprints: kin are found among strangers, and what is on no shelf is said."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from provlab.attest import shelf
from provlab.statistics.base import Model


@pytest.fixture(scope="module")
def kept(models, tmp_path_factory):
    """Base, stranger and other on a shelf."""
    folder = tmp_path_factory.mktemp("shelf")
    shelf.add([models[name] for name in ("base", "stranger", "other")], folder)
    return folder


@pytest.fixture
def copy(kept, tmp_path):
    return Path(shutil.copytree(kept, tmp_path / "copy"))


def kin_of(result):
    names = result.title().partition(": kin of ")[2].partition(" (")[0]
    return [Path(name).name for name in names.split(", ")]


def test_kin_is_named_and_strangers_are_not(kept, models):
    result = shelf.identify(models["tuned"], kept)
    assert kin_of(result) == ["base"]
    assert result.title().endswith("base (Holm over 6 tests on 3 models, family-wise error at most 0.01)")
    assert "other blocks than the first" in str(result)
    assert kin_of(shelf.identify(models["base"], kept)) == ["base"]
    assert "identical" in str(shelf.identify(models["base"], kept))


def test_none_is_said(models, tmp_path):
    shelf.add([models["stranger"], models["other"]], tmp_path)
    assert "kin of none" in shelf.identify(models["base"], tmp_path).title()


def test_untrained_tokens_find_kin_whose_units_were_shuffled(models):
    """Rows of tokens that training scaled alone; up rows in another order."""
    full = shelf.Fingerprint.of(models["base"], Model.open(models["base"]))
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, full.up.shape[1])).astype(np.float16)
    tokens = np.arange(60)
    base = shelf.Fingerprint("a", "a", full.up, rows, tokens)
    child = shelf.Fingerprint("b", "b", rng.permutation(full.up), rows[10:] * np.float16(0.9), tokens[10:])
    assert shelf.log10_p(base, child, "up rows") > -3
    assert shelf.log10_p(base, child, "untrained tokens") == pytest.approx(-64.5, abs=1)  # of 50!
    alone = shelf.Fingerprint("c", "c", full.up, rng.normal(size=rows.shape).astype(np.float16), tokens)
    assert shelf.log10_p(base, alone, "untrained tokens") > -3


def test_sizes_of_7b_stay_near_8_mb():
    width = 4096
    assert (shelf.UNITS + shelf.TOKENS) * width * 2 < 8.5e6


def test_the_null_law_holds_over_many_strangers():
    """p-values of independent rows, 400 pairs a test: no more small ones than their level says."""
    rng = np.random.default_rng(1)

    def drawn():
        rows = rng.normal(size=(60, 32)).astype(np.float16)
        return shelf.Fingerprint("x", "x", rows, rng.normal(size=(40, 32)).astype(np.float16), np.arange(40))

    for test in shelf.TESTS:
        small = np.mean([shelf.log10_p(drawn(), drawn(), test) <= np.log10(0.05) for _ in range(400)])
        assert small <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def damaged(folder):
    path = next(iter(folder.glob("*.npz")))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def of_another_version(folder):
    path = next(iter(folder.glob("*.npz")))
    arrays = shelf.read_arrays(path)
    about = json.loads(str(arrays["about"])) | {"schema": "provlab.shelf/0"}
    shelf.write_arrays(path, arrays | {"about": np.array(json.dumps(about))})


def emptied(folder):
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (damaged, "is damaged"),
        (of_another_version, "is no fingerprint of version provlab.shelf/1; delete it and add its model again"),
        (emptied, "holds no fingerprints; make some by provlab shelf add"),
    ],
)
def test_a_bad_shelf_is_refused_in_one_line(run, copy, models, plant, message):
    plant(copy)
    status, out, err = run("identify", models["tuned"], "--shelf", copy)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_the_commands_and_models_of_another_shape(run, models, new_model, save_model, tmp_path):
    wide = save_model(new_model(2, hidden_size=32), tmp_path / "wide")
    status, out, err = run("shelf", "add", models["base"], wide, "--shelf", tmp_path / "s")
    assert (status, err, out.count("MB")) == (0, "", 2)
    status, out, _ = run("identify", models["tuned"], "--shelf", tmp_path / "s", "--json", "-")
    content = json.loads(out)
    assert {row["adjusted_log10_p"] is None for row in content["tests"] if row["error"]} == {True}
    errors = {(Path(row["source"]).name, row["error"]) for row in content["tests"]}
    assert errors == {("base", None), ("wide", "another width: 24 and 32")}
    assert run("shelf", "add", tmp_path / "nowhere", "--shelf", tmp_path / "s")[0] == 2
