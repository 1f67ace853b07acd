"""Caches of each test's own, and a hub."""

import pytest
from hub_server import HubServer

from provlab.reading import hub


@pytest.fixture(autouse=True)
def own_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "provlab-cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    # nothing in this folder may reach the real hub
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def serve(monkeypatch):
    """Start a hub with these repositories and point HF_ENDPOINT to it."""
    servers = []

    def start(**repos):
        server = HubServer({name.replace("__", "/"): repo for name, repo in repos.items()})
        servers.append(server.__enter__())
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        return server

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def large(monkeypatch):
    """Let files of a few kilobytes be too large to be fetched whole, and their tensors come in several pieces."""
    monkeypatch.setattr(hub, "_SMALL", 0)
    monkeypatch.setattr(hub, "_START", 8)
    monkeypatch.setattr(hub, "_PIECE", 1000)
