"""The corpus: where it comes from, what is held out, and the tokenizer."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from provlab.errors import ParameterError, ZooError
from provlab.zoo import corpus

#: a module with long and short members; the comments make one class too long for one document
MODULE = (Path(__file__).with_name("module.txt").read_text(encoding="utf-8")).replace(
    "        # COMMENTS\n", "".join(f"        # {line}\n" for line in range(70))
)


def test_units_are_the_module_and_long_classes_are_cut_between_members():
    units = corpus.units("pkg/mod.py", MODULE)
    assert "".join(unit.source for unit in units) == MODULE
    heads = [unit.source.lstrip().split("\n")[0] for unit in units]
    assert heads == [
        '"""A module about numbers, with a docstring that is certainly longer than eighty characters."""',
        "import math",
        "@staticmethod",
        "class Short:",
        "class Long:",
        "def first(self):",
        "# 0",  # comments after the last statement of a member go with the next one
        "TABLE = 1",
    ]


def test_docstrings_go_with_their_unit():
    result = [doc for unit in corpus.units("pkg/mod.py", MODULE) for doc in unit.docstrings]
    assert [(doc.name, doc.text) for doc in result[1:]] == [
        ("pkg.mod.double", "Return twice the number."),
        ("pkg.mod.Short", "A short class."),
        ("pkg.mod.Short.method", "Do nothing."),
        ("pkg.mod.Long", "A long class."),
        ("pkg.mod.Long.first", "First of all."),
    ]
    assert result[0].name == "pkg.mod"
    assert result[1].signature == "def double(\n    x,\n):"
    assert result[1].body.strip().endswith("return 2 * x")


def test_a_file_that_is_no_python_is_left_out():
    assert corpus.units("template.py", "def $name:\n") == []


def test_what_debian_ships_separately_is_left_out():
    parts = {part for path in corpus.sources() for part in path.split("/")}
    apart = {"test", "tests", "idlelib", "lib2to3", "distutils", "tkinter", "turtledemo", "ensurepip", "site-packages"}
    assert not parts & apart
    assert list(corpus.sources()) == sorted(corpus.sources())


def test_a_python_without_sources_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus.sysconfig, "get_path", lambda _: str(tmp_path))
    corpus.sources.cache_clear()
    with pytest.raises(ZooError, match="holds hardly any; use a Python that was installed with its sources"):
        corpus.sources()
    monkeypatch.undo()
    corpus.sources.cache_clear()


@pytest.fixture(scope="module")
def made(corpus_folder):
    return corpus.Corpus(corpus_folder)


@pytest.fixture(scope="module")
def tokenizer(made):
    return Tokenizer.from_file(str(made.tokenizer_folder / "tokenizer.json"))


def test_every_domain_has_text_to_train_on_and_text_held_out(made):
    for domain in corpus.DOMAINS:
        train, held_out = made.tokens(domain), made.tokens(domain, "held_out")
        assert len(train) > 200_000
        assert 0.02 < len(held_out) / len(train) < 0.1
        assert max(train.max(), held_out.max()) < corpus.VOCABULARY


def test_no_training_sees_the_held_out_prose(made, tokenizer):
    # A line may stand twice in the library, so a few lines of held-out docstrings do occur elsewhere; a
    # split by domain, or a hash that differs between domains, would let nearly all of them occur.
    lines = {line.strip() for line in made.held_out_text("prose").split("\n") if len(line.strip()) > 50}
    for domain in corpus.DOMAINS:
        training = tokenizer.decode(made.tokens(domain).tolist())
        assert sum(line in training for line in lines) < 0.05 * len(lines), domain


def test_tokens_are_the_documents_joined_by_the_end_of_text_and_in_no_order_of_modules(made, tokenizer):
    """The statistic phi_JSD reads the head of this text: it must not be all about modules that begin with "a"."""
    assert tokenizer.get_vocab_size() == corpus.VOCABULARY
    end = tokenizer.token_to_id(corpus.END_OF_TEXT)
    ids = made.tokens("prose", "held_out")
    documents = np.split(ids, np.flatnonzero(ids == end))[:-1]
    assert made.held_out_text("prose") == "\n".join(tokenizer.decode(ids.tolist()) for ids in documents)
    texts = [tokenizer.decode(ids[ids != end].tolist()) for ids in documents]
    hashes = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    assert len(hashes) > 50
    assert hashes == sorted(hashes)


def test_the_tokenizer_keeps_every_byte_and_is_the_same_each_time():
    texts = [MODULE, "naïve café, 数学, \x00\t\r\n"] * 20
    first, second = (corpus.train_tokenizer(iter(texts)) for _ in range(2))
    assert first.to_str() == second.to_str()
    assert first.decode(first.encode(texts[1]).ids) == texts[1]


def test_worked_arithmetic_is_right_and_always_the_same():
    pages = list(corpus._worked_arithmetic(3))
    assert pages == list(corpus._worked_arithmetic(3))
    for line in "".join(text for _, text in pages).splitlines():
        if " mod " not in line and "/" not in line:
            values = [eval(part) for part in line.split(" = ")]
            assert len(set(values)) == 1, line


def test_an_unknown_domain_is_refused():
    with pytest.raises(ParameterError, match="unknown text domain 'verse'; known: code, math, niche"):
        corpus.held_out_text("verse")
