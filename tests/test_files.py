"""Files written whole or not at all."""

import hashlib
import json
import os

import pytest

from provlab import files
from provlab.files import atomic_file, atomic_folder, cache_dir, digest, sha256_file, write_json


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "deep" / "x.json"
    with atomic_file(path) as temporary:
        temporary.write_text("new")
        assert temporary.suffix == ".json"  # libraries that look at the name write the right kind
        assert temporary.parent == path.parent  # renaming across file systems would not be atomic
        assert not path.exists()
    assert path.read_text() == "new"
    assert names(path.parent) == ["x.json"]
    assert oct(path.stat().st_mode & 0o777) == "0o644"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_file_that_fails_leaves_what_was(tmp_path, error):
    path = tmp_path / "x.json"
    path.write_text("old")
    with pytest.raises(error), atomic_file(path) as temporary:  # noqa: PT012
        temporary.write_text("ha")
        raise error
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x.json"]


def test_a_folder_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(ValueError, match="no"), atomic_folder(path) as temporary:  # noqa: PT012
        (temporary / "half").touch()
        raise ValueError("no")
    assert names(tmp_path) == ["model"]
    assert names(path) == ["old"]
    with atomic_folder(path) as temporary:
        (temporary / "new").touch()
    assert names(tmp_path) == ["model"]
    assert names(path) == ["new"]
    assert oct(path.stat().st_mode & 0o777) == "0o755"


def test_json_is_indented_and_refuses_nan(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"b": [1.5, None], "a": "ä"})
    assert json.loads(path.read_text()) == {"b": [1.5, None], "a": "ä"}
    assert path.read_text().endswith("\n")
    for bad in (float("nan"), float("-inf"), object()):
        with pytest.raises((ValueError, TypeError)):
            write_json(path, {"b": bad})
    assert json.loads(path.read_text())["b"] == [1.5, None]
    assert names(tmp_path) == ["x.json"]


def test_digests(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abc" * 10**6)
    assert sha256_file(path) == hashlib.sha256(b"abc" * 10**6).hexdigest()
    assert digest({"a": 1, "b": [2, None]}) == digest({"b": [2, None], "a": 1})
    different = [{"a": 1}, {"a": "1"}, {"a": 1.5}, {"a": True}, {"a": None}, {"a": [1]}, [1], "a", None]
    assert len({digest(item) for item in different}) == len(different)
    with pytest.raises(ValueError, match="Out of range"):
        digest(float("nan"))


def test_the_cache_is_where_the_user_says(monkeypatch, tmp_path):
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "mine"))
    assert cache_dir() == tmp_path / "mine"
    monkeypatch.setenv("PROVLAB_CACHE", "~/mine")
    assert cache_dir().is_absolute()
    monkeypatch.delenv("PROVLAB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "provlab"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "provlab"


def test_a_replacement_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_json(tmp_path / "x.json", 1)
    with pytest.raises(OSError, match="no space"), atomic_folder(tmp_path / "folder"):
        pass
    assert names(tmp_path) == []
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("atomic", [atomic_file, atomic_folder])
def test_an_error_names_what_was_asked_for_and_no_temporary_name(tmp_path, atomic):
    path = tmp_path / ("a" * 252)  # a temporary name beside it is too long
    with pytest.raises(OSError, match="too long") as refusal, atomic(path):
        pass
    assert refusal.value.filename == str(path)
