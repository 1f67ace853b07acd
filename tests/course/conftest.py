"""Notebooks of the course name models of the zoo; here tiny ones of the same origin stand in for them."""

from collections.abc import Iterator

import pytest
import torch

import provlab
from provlab import studying
from provlab.reading import checkpoint

_KEPT: dict[str, object] = {}  # what studies said: one notebook is graded many times


@pytest.fixture(scope="session")
def stand_ins(new_model, save_model, tmp_path_factory):
    """A base, a model tuned from it, and a stranger: folders."""
    folder = tmp_path_factory.mktemp("zoo")
    oak, tuned, elm = new_model(1), new_model(1), new_model(4)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weights in tuned.parameters():
            weights.add_(0.1 * weights.std() * torch.randn(weights.shape, generator=generator))
    return {name: save_model(model, folder / name) for name, model in [("oak", oak), ("oak-chat", tuned), ("elm", elm)]}


@pytest.fixture(autouse=True)
def small_zoo(own_schemes, request, monkeypatch):
    def study(models, **settings):
        request_of = repr((models, settings))
        if request_of not in _KEPT:
            _KEPT[request_of] = studying.study(models, **settings)
        return _KEPT[request_of]

    checkpoint.register_scheme("zoo", lambda name: request.getfixturevalue("stand_ins")[name.partition("@")[0]])
    monkeypatch.setattr(studying, "train_missing", lambda models: None)
    monkeypatch.setattr(provlab, "study", study)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """A notebook that asks torch for one thread asks it for itself alone."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
