"""A zoo small enough to train in seconds, in caches of its own."""

import shutil
from pathlib import Path

import pytest

from provlab.zoo import corpus, reading, worker


@pytest.fixture(scope="session")
def tiny_file():
    return Path(__file__).with_name("tiny.yml")


@pytest.fixture
def tiny(tiny_file):
    return reading.families(path=tiny_file)


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory):
    """Make the real corpus, once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROVLAB_CACHE", str(tmp_path_factory.mktemp("corpus")))
        return corpus.load().folder


@pytest.fixture
def new_cache(corpus_folder, tmp_path_factory, monkeypatch):
    """Return a function that moves this test to an empty cache (which holds the corpus already)."""

    def move():
        cache = tmp_path_factory.mktemp("cache")
        shutil.copytree(corpus_folder, cache / corpus_folder.name)
        monkeypatch.setenv("PROVLAB_CACHE", str(cache))
        return cache

    return move


@pytest.fixture
def cache(new_cache):
    return new_cache()


@pytest.fixture(scope="session")
def make_all():
    """Make models of some recipes one after the other: their folders."""
    return lambda recipes, *names: [worker.make_model(name, recipes, lambda _: None) for name in names]
