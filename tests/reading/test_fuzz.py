"""Spoilt checkpoints by the hundred: a door opens, or refuses in one line, soon, and runs nothing."""

import mutations
import pytest
from transformers.utils import logging

from provlab.errors import CheckpointError, ProvlabError
from provlab.reading import tokenizing
from provlab.reading.checkpoint import Checkpoint

# of 500 tries each; loading goes through transformers and takes a hundred times longer
N_OPEN, N_LOAD = 500, 40


@pytest.mark.parametrize("name", list(mutations.FORMATS))
def test_only_our_own_refusals(name, tmp_path):
    logging.disable_progress_bar()
    for door in mutations.FORMATS[name].doors:
        n = N_LOAD if door == "load" else N_OPEN
        tried = mutations.fuzz(name, range(n), tmp_path, (door,))
        assert dict(tried.faults) == {}, tried.seeds
        assert tried.refused > n / 10
        assert tried.opened > 0  # a door that refuses whatever it is given tests nothing


@pytest.mark.parametrize("seed", [9514, 12501])
def test_a_panic_in_the_tokenizers_library_is_a_refusal(seed, tmp_path):
    """Rust's panic comes to Python as an exception that is none of `Exception`."""
    tried = mutations.fuzz("tokenizer", [seed], tmp_path)
    assert (tried.refused, dict(tried.faults)) == (1, {})


def test_a_panic_while_a_text_is_encoded_is_a_refusal(llama, monkeypatch):
    class PanicException(BaseException):  # as pyo3 names it
        pass

    class Broken:
        is_fast = True

        def __call__(self, text, **settings):
            raise PanicException("index out of bounds")

    monkeypatch.setattr(tokenizing, "tokenizer", lambda checkpoint: Broken())
    monkeypatch.setattr(Checkpoint, "tokenizer_digest", "that of some file")
    with pytest.raises(CheckpointError, match="has no usable tokenizer: index out of bounds"):
        Checkpoint.open(llama).encode("text")


def _refuse(folder):
    raise ProvlabError("x" * 20_000 + "\n" + "and so on " * 900)


PLANTED = {
    "IndexError": lambda folder: [][0],
    "MemoryError": lambda folder: bytearray(64 * mutations.MEMORY),  # more than an earlier test may have left free
    "Late": lambda folder: [None for _ in iter(int, 1)],
    "code was run": lambda folder: (folder.parent / mutations.CANARY).mkdir(),
}


@pytest.mark.parametrize(("wrong", "door"), PLANTED.items(), ids=PLANTED)
def test_what_is_planted_is_found(wrong, door, tmp_path, monkeypatch):
    """A foreign error, too much memory, an endless loop, and code that runs, where files are spoilt alone."""
    monkeypatch.setattr(mutations, "SECONDS", 0.2)
    good = []
    monkeypatch.setitem(mutations.DOORS, "open", lambda folder: door(folder) if good else good.append(1))
    faults = mutations.fuzz("header", range(3), tmp_path, ("open",)).faults
    assert faults.total() == 3
    assert all(wrong in fault for fault in faults)


def test_what_was_found_is_known_after_each_file(tmp_path):
    """So that a long run tells as it goes."""
    tried = [attempt.n for attempt in mutations.attempts("header", range(3), tmp_path, ("open",))]
    assert tried == [1, 2, 3]


def test_long_words_and_lines_are_cut_where_they_are_made(tmp_path, monkeypatch):
    """Both ends stay: the thing, and the way out."""
    monkeypatch.setitem(mutations.DOORS, "open", _refuse)
    wrong, message = mutations.fault("open", tmp_path)
    assert wrong == ""
    assert len(message) <= ProvlabError.longest
    assert message.startswith("xxx")
    assert message.endswith("and so on")
    path = "/a/very/long/path" * 10
    assert path in str(ProvlabError(f"{path} {'of a model ' * 30}"))
