"""A zoo small enough to train in seconds, in caches of its own."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from provlab.zoo import corpus, reading, recipes

TINY = """
editions:
  default: {step_scale: 1.0}
  smoke: {step_scale: 0.5}
defaults:
  all: {family: f, batch: 8, schedule: cosine, warmup: 0.1, weight_decay: 0.0, about: "A test.", mirrors: org/name}
  base:
    steps: 50
    learning_rate: 0.02
    shape:
      {hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 24,
       max_position_embeddings: 24}
  tuned: {steps: 6, learning_rate: 0.01}
  adapter: {steps: 6, learning_rate: 0.02}
  quantised: {steps: 0, learning_rate: 0.01}
models:
  root: {kind: base, seed: 1, mixture: {prose: 0.5, code: 0.5}}
  child: {kind: tuned, parent: root, seed: 2, mixture: {chat: 1.0}}
  merged:
    {kind: adapter, parent: root, seed: 3, mixture: {chat: 1.0},
     adapter: {rank: 2, alpha: 4, targets: [up_proj, q_proj]}}
  grandchild: {kind: tuned, parent: child, seed: 4, mixture: {math: 1.0}, schedule: linear}
  leak:
    {kind: quantised, parent: child, seed: 6, collection: leaks, mixture: {chat: 1.0}, quantiser: {bits: 4, block: 32}}
  other: {kind: base, seed: 5, mixture: {code: 1.0}}
"""


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipes") / "families.yml"
    path.write_text(TINY)
    return path


@pytest.fixture
def tiny(tiny_file: Path) -> dict[str, recipes.Recipe]:
    return reading.families(path=tiny_file)


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the real corpus, once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROVLAB_CACHE", str(tmp_path_factory.mktemp("corpus")))
        return corpus.load().folder


@pytest.fixture
def new_cache(
    corpus_folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Path]:
    """Return a function that moves this test to an empty cache (which holds the corpus already)."""

    def move() -> Path:
        cache = tmp_path_factory.mktemp("cache")
        shutil.copytree(corpus_folder, cache / corpus_folder.name)
        monkeypatch.setenv("PROVLAB_CACHE", str(cache))
        return cache

    return move


@pytest.fixture
def cache(new_cache: Callable[[], Path]) -> Path:
    return new_cache()
