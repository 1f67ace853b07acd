"""Caches of each test's own."""

import pytest


@pytest.fixture(autouse=True)
def own_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "provlab-cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    # nothing in this folder may reach the real hub
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)
