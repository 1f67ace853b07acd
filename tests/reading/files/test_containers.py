"""Kinds of files of weights that entry points bring: the core names none of them."""

from types import SimpleNamespace

import pytest

from provlab import plugins
from provlab.errors import CheckpointError
from provlab.reading.files import container


@pytest.fixture
def bring(monkeypatch):
    """Let these formats, or errors, be what entry points bring."""

    def load(format_or_error):
        if isinstance(format_or_error, Exception):
            raise format_or_error
        return format_or_error

    def of(**brought):
        points = {name: SimpleNamespace(load=lambda each=each: load(each)) for name, each in brought.items()}
        monkeypatch.setattr(plugins, "named", lambda group: points if group == plugins.CONTAINERS else {})
        container._format_of.cache_clear()

    yield of
    monkeypatch.undo()
    container._format_of.cache_clear()


def test_a_format_of_ones_own_is_found_by_its_ending(bring):
    mine = container.Format("mine.File", "*.mine", ending=".mine")
    bring(mine=mine)
    assert container.sets_of(frozenset({"weights.mine", "config.json"})) == [container.WeightSet(mine, "weights.mine")]
    assert container.is_weights("weights.MINE")
    assert container.sets_of(frozenset({"weights.mine", "model.safetensors"}))[0].file == "model.safetensors"


def test_a_file_named_by_its_hash_is_of_the_kind_that_was_brought(bring):
    mine, other = (
        container.Format("mine.File", "*.mine", ending=".mine"),
        container.Format("o.File", "*.o", ending=".o"),
    )
    bring(mine=mine, o=other)
    assert container.sets_of(frozenset(), "3f5a") == [container.WeightSet(mine, "3f5a")]
    assert container.sets_of(frozenset(), "W.O") == [container.WeightSet(other, "W.O")]
    assert container.formats(["W.O"]) == (*container.FORMATS, other)


def test_without_its_reader_a_file_is_no_weights_and_is_refused_where_it_is_named(bring):
    bring(gone=ImportError("blocked"))
    assert container.formats(["model.gone"]) == container.FORMATS
    assert not container.is_weights("model.gguf")
    assert container.sets_of(frozenset({"model.gguf"})) == []
    with pytest.raises(CheckpointError, match=r"model\.gguf is of a kind that nothing reads which is installed"):
        container.sets_of(frozenset({"model.gguf"}), "model.gguf")


def test_gguf_comes_by_an_entry_point():
    assert [kind.single for kind in container.formats(["a.gguf"])[len(container.FORMATS) :]] == ["*.gguf"]
