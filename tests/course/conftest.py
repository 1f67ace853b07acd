"""Notebooks of the course name models of the zoo; here tiny ones of the same origin stand in for them."""

import pytest

from provlab import api
from provlab.models import checkpoint

STANDS_IN = {"oak": "base", "oak-chat": "tuned", "elm": "stranger"}


@pytest.fixture(autouse=True)
def small_zoo(own_schemes, request, monkeypatch):
    def locate(reference):
        return request.getfixturevalue("models")[STANDS_IN[reference.partition("@")[0]]]

    checkpoint.register_scheme("zoo", locate)
    monkeypatch.setattr(api, "_train_missing", lambda models: None)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """A notebook that asks torch for one thread asks it for itself alone."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
