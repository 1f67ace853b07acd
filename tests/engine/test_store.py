"""The store: written whole or not at all, found again by key, and a damaged file is named."""

import json

import numpy as np
import pytest

from provlab.engine.store import Store
from provlab.errors import CheckpointError
from provlab_study.publishing.results import Results

KEY = Store.key(statistic="phi_u", block=0)
UNIT = {"value": 0.5, "log10_p": -3.0, "detail": {"n": 4}}


@pytest.fixture
def store(tmp_path):
    return Results(tmp_path / "results")


def everything_below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_unit_comes_back_with_its_matching(store):
    store.put(KEY, UNIT, np.array([2, 0, 1]))
    assert store.get(KEY) == UNIT
    assert store.matching(KEY).dtype == np.int64
    assert store.matching(KEY).tolist() == [2, 0, 1]
    assert everything_below(store.root) == [f"units/{KEY[:2]}/{KEY}.json", f"units/{KEY[:2]}/{KEY}.npy"]


def test_what_was_never_put_is_none(store):
    assert store.get(KEY) is None
    assert store.matching(KEY) is None
    assert store.experiment("none") is None
    assert list(store.experiments()) == []
    assert not store.root.exists()


def test_keys_depend_on_every_part_and_not_on_their_order():
    parts = {"statistic": "phi_u", "version": 1, "a": "x", "b": "y", "block": 0, "parameters": {"seed": 0}}
    keys = {Store.key(**parts)}
    assert keys == {Store.key(**dict(reversed(parts.items())))}
    for name, other in {
        "statistic": "phi_h",
        "version": 2,
        "a": "z",
        "b": "z",
        "block": None,
        "parameters": {"seed": 1},
    }.items():
        keys.add(Store.key(**{**parts, name: other}))
    keys.add(Store.key(**{**parts, "a": "y", "b": "x"}))
    assert len(keys) == 8


@pytest.mark.parametrize("where", ["provlab.engine.store.np.save", "provlab.files.os.replace"])
def test_stopped_in_the_middle_nothing_is_left(store, monkeypatch, where):
    """The unit is what says "finished": it must come after its matching."""

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(where, stopped)
    with pytest.raises(KeyboardInterrupt):
        store.put(KEY, UNIT, np.arange(3))
    assert everything_below(store.root) == []


@pytest.mark.parametrize("damage", [b"", b'{"value": 0.5, "lo', b"\xff\xfe\x00"])
def test_a_damaged_unit_is_named(store, damage):
    store.put(KEY, UNIT)
    path = next(store.root.rglob("*.json"))
    path.write_bytes(damage)
    with pytest.raises(CheckpointError, match=f"{path} is damaged .*delete that file and run again") as refused:
        store.get(KEY)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("cut", [0, 5, 60, -4])
def test_a_damaged_matching_is_named(store, cut):
    store.put(KEY, UNIT, np.arange(48))
    path = next(store.root.rglob("*.npy"))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CheckpointError, match=f"{path} is damaged .*delete that file and run again"):
        store.matching(KEY)


def test_experiments_by_name_and_the_last_profile(store):
    assert store.current().root == store.root / "default"
    store.mark_current("smoke")
    assert store.current().root == store.root / "smoke"
    whole = {"profile": "smoke", "pairs": [], "measurements": {}}
    for name in ("b", "a"):
        store.put_experiment(name, {"name": name, **whole})
    assert [result["name"] for result in store.experiments()] == ["a", "b"]
    assert store.experiment("a") == {"name": "a", **whole}
    assert json.loads((store.root / "experiments" / "b.json").read_text()) == {"name": "b", **whole}


@pytest.mark.parametrize("content", ["[]", "{}", "null", '"text"', '{"name": "a"}', '{"value": 1.0}'])
def test_a_result_of_another_kind_is_named(store, content):
    store.put(KEY, UNIT)
    store.put_experiment("a", {})
    for path in store.root.rglob("*.json"):
        path.write_text(content)
    for read in (lambda: store.get(KEY), lambda: store.experiment("a"), lambda: list(store.experiments())):
        with pytest.raises(CheckpointError, match=r"is damaged \(it must hold .*\); delete that file and run again"):
            read()
