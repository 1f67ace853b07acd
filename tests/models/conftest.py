"""Tiny models, made once, and caches that are nobody's."""

import pytest
import tiny_models


@pytest.fixture(autouse=True)
def own_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "provlab-cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    # nothing in this folder may reach the real hub
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Folder of the tiny model with a label; not to be written to."""
    made = {}

    def folder(label):
        if label not in made:
            made[label] = tiny_models.save(label, tmp_path_factory.mktemp("tiny") / label)
        return made[label]

    return folder


@pytest.fixture
def llama(tiny, tmp_path):
    """Make a copy of the tiny Llama, to be spoilt at will."""
    return tiny_models.copy(tiny("llama"), tmp_path / "llama")


@pytest.fixture
def sharded(tmp_path):
    """Make a tiny Llama in several shards, to be spoilt at will."""
    folder = tmp_path / "sharded"
    tiny_models.build("llama").save_pretrained(folder, max_shard_size="20KB")
    return folder
