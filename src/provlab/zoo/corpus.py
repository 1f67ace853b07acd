"""Text that every Python has, cut into domains, and the tokenizer trained from it.

The zoo needs a few megabytes of text that are the same for everybody and need no download: the sources and
the documentation of the standard library. Each domain is a different kind of text:

========= ==================================================================================================
code      sources of the standard library, without those of the two domains below
math      sources of the numeric modules, the documentation of the C ones, and worked arithmetic
niche     sources of the mark-up and mail packages
prose     long docstrings of the modules in ``code``, and the topics of ``pydoc``
chat      the same docstrings as turns between a user and an assistant
instruct  functions of the modules in ``code``: signature and docstring asked, body answered
========= ==================================================================================================

About a twentieth of each domain is held out. The unit is one statement of a module (one member of a long
class), chosen by the hash of its place; its docstrings go with it in every domain, so that no training sees
held-out prose inside a source. The library repeats itself, so held-out documents of which a good part stands in a
training document too are dropped. Packages that Debian ships separately from Python are left out.
"""

import ast
import functools
import hashlib
import importlib
import inspect
import platform
import random
import shutil
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

import numpy as np
import tokenizers
from filelock import FileLock
from numpy.typing import NDArray

from provlab.errors import ParameterError, ZooError
from provlab.files import atomic_folder, cache_dir, digest, sha256_file, write_json
from provlab.zoo.codehash import module_digests

Split = Literal["train", "held_out"]

DOMAINS = ("code", "math", "niche", "prose", "chat", "instruct")
VOCABULARY = 512
END_OF_TEXT = "<|endoftext|>"

_HELD_OUT_ONE_IN = 20
_LEAST_BYTES = 2_000_000  # of sources; a Python without its sources (a frozen one, say) is no use
_TELLING_LINE = 40  # characters; shorter lines stand in many places by chance
_REPEATED = 0.1  # share of telling lines that a held-out document may have in common with training documents
_LONG_DOCSTRING = 80  # characters; shorter ones say little that the name does not
_LEAST_TASK, _LONGEST_TASK = 20, 2000  # characters of a docstring and of a body that make a task and its answer
_LONG_CLASS = 60  # lines; a longer class is cut between its members: no unit is a tenth of a domain

# Debian ships the first two rows outside python3.11; the third is no text of the library, or tables only.
# fmt: off
_LEFT_OUT = frozenset((
    "test", "tests", "idlelib", "lib2to3", "distutils", "tkinter", "turtledemo", "ensurepip", "venv",
    "site-packages", "dist-packages", "lib-dynload", "sitecustomize.py", "usercustomize.py",
    "encodings", "pydoc_data", "entities.py", "__pycache__",
))
_NICHE = frozenset((
    "xml", "html", "email", "xmlrpc", "mailbox.py", "plistlib.py", "cgi.py", "nntplib.py", "imaplib.py",
    "smtplib.py",
))
_MATH = frozenset((
    "_pydecimal.py", "decimal.py", "fractions.py", "statistics.py", "random.py", "numbers.py", "heapq.py",
    "bisect.py", "colorsys.py", "calendar.py", "datetime.py", "_pydatetime.py", "_pylong.py", "operator.py",
))
# fmt: on
_MATH_IN_C = ("math", "cmath", "decimal", "operator", "itertools", "array", "struct")


@dataclass(frozen=True)
class Docstring:
    """The docstring of ``name``; `signature` and `body` are set for functions."""

    name: str
    text: str
    signature: str = ""
    body: str = ""


@dataclass(frozen=True)
class Unit:
    """A piece of a source that is trained on, or held out, as a whole."""

    source: str
    docstrings: tuple[Docstring, ...]
    held_out: bool


def held_out(key: str) -> bool:
    """Whether the unit with this name is held out: a property of the name alone, the same in every domain."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) % _HELD_OUT_ONE_IN == 0


# Sources --------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def sources() -> dict[str, Path]:
    """Files of the standard library that the corpus is made from, by their path below it, sorted."""
    library = Path(sysconfig.get_path("stdlib"))
    files = {}
    for file in library.rglob("*.py"):
        parts = file.relative_to(library).parts
        build_specific = parts[0].startswith(("_sysconfigdata", "config-"))
        if not build_specific and not _LEFT_OUT.intersection(parts):
            files["/".join(parts)] = file
    if sum(file.stat().st_size for file in files.values()) < _LEAST_BYTES:
        raise ZooError(
            f"the zoo trains on the sources of Python's standard library, and {library} holds hardly any; "
            "use a Python that was installed with its sources"
        )
    return dict(sorted(files.items()))


def domain_of(path: str) -> str:
    """Which of the three source domains a file of the library belongs to."""
    top = path.split("/")[0]
    return "niche" if top in _NICHE else "math" if top in _MATH else "code"


@functools.lru_cache(maxsize=1)
def fingerprint() -> str:
    """Hash of everything that decides the corpus: files, this module's code, Python, the tokenizer's version.

    Takes a fraction of a second: it reads the sources but makes nothing.
    """
    return digest(
        {
            "files": {name: sha256_file(file) for name, file in sources().items()},
            "code": module_digests("corpus"),
            "python": platform.python_version(),  # the documentation of modules written in C
            "tokenizers": tokenizers.__version__,
        }
    )


def _start(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1


def _pieces(tree: ast.Module, module: str) -> Iterator[tuple[int, str, ast.stmt]]:
    """Yield the places where a source may be cut: first line, name of what encloses it, statement."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and (node.end_lineno or 0) - node.lineno > _LONG_CLASS:
            start = _start(node)  # the class statement goes with the first member
            for member in node.body:
                yield start, f"{module}.{node.name}", member
                start = member.end_lineno or start
        else:
            yield _start(node), module, node


def _docstrings(node: ast.stmt, owner: str, lines: list[str]) -> Iterator[Docstring]:
    """Yield the docstrings in a statement; a bare string stands for that of its owner."""
    if isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Docstring(owner, inspect.cleandoc(node.value.value))
    elif isinstance(node, ast.ClassDef):
        for member in node.body:
            yield from _docstrings(member, f"{owner}.{node.name}", lines)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
        signature = body = ""
        if len(node.body) > 1 and node.body[0].lineno > node.lineno:
            signature = inspect.cleandoc("\n" + "\n".join(lines[node.lineno - 1 : node.body[0].lineno - 1]))
            body = "\n".join(lines[node.body[0].end_lineno : node.end_lineno])
        yield Docstring(f"{owner}.{node.name}", text, signature, body)


def units(path: str, source: str) -> list[Unit]:
    """Cut one module into units; their sources, joined, are the module."""
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    lines = source.removesuffix("\n").split("\n")  # as ast counts: a form feed ends no line
    try:
        pieces = list(_pieces(ast.parse(source), module))
    except (SyntaxError, ValueError):  # templates and files for other versions: not a loss
        return []
    starts = [0, *(start for start, _, _ in pieces[1:]), len(lines)]
    cut = []
    for place, (begin, end, (_, owner, node)) in enumerate(zip(starts, starts[1:], pieces, strict=False)):
        text = "".join(line + "\n" for line in lines[begin:end])
        cut.append(Unit(text, tuple(_docstrings(node, owner, lines)), held_out(f"{path}#{place}")))
    return cut


def _lines(texts: list[str]) -> list[str]:
    """Return the lines that say something, without indentation and quotes."""
    lines = [line.strip(" \t\"'") for text in texts for line in text.split("\n")]
    return [line for line in lines if len(line) > _TELLING_LINE]


def _mostly(lines: list[str], known: set[str]) -> bool:
    return sum(line in known for line in lines) > _REPEATED * len(lines)


# Domains --------------------------------------------------------------------------------------------------


def _runs(cut: list[Unit], split: Split) -> Iterator[str]:
    """Yield the longest stretches of consecutive units on one side of the split."""
    run = ""
    for unit in cut:
        if unit.held_out == (split == "held_out"):
            run += unit.source
        elif run:
            yield run
            run = ""
    if run:
        yield run


def _as_chat(doc: Docstring) -> str:
    first, *more = doc.text.split("\n\n")
    turns = [f"User: What is {doc.name} for?\nAssistant: {first}"]
    if doc.signature:
        turns.append(f"User: How do I call it?\nAssistant: {doc.signature}")
    if more:
        rest = "\n\n".join(more)
        turns.append(f"User: Tell me more.\nAssistant: {rest}")
    return "\n\n".join(turns) + "\n"


def _as_task(doc: Docstring) -> str:
    return f"### Instruction:\n{doc.text}\n\n{doc.signature}\n\n### Response:\n{doc.body}\n"


def _documentation_in_c() -> Iterator[tuple[str, str]]:
    """Yield name and docstring of the members of numeric modules that have no source."""
    for module in _MATH_IN_C:
        content = importlib.import_module(module)
        for name in sorted(vars(content)):
            member = getattr(content, name)
            if not name.startswith("_") and callable(member) and (text := inspect.getdoc(member)):
                yield f"{module}.{name}", f"{module}.{name}\n{text}\n"


def _worked_arithmetic(n_pages: int = 300) -> Iterator[tuple[str, str]]:
    """Yield pages of worked sums in whole numbers and fractions, the same in every run."""
    rng = random.Random(0)
    for page in range(n_pages):
        lines = []
        for _ in range(10):
            a, b, c = (rng.randrange(2, 100) for _ in range(3))
            x, y = Fraction(a, b), Fraction(b, c)
            lines.append(f"({a} + {b}) * {c} = {a + b} * {c} = {(a + b) * c}")
            lines.append(f"{a}**2 - {b}**2 = ({a} + {b}) * ({a} - {b}) = {a * a - b * b}")
            lines.append(f"{a}/{b} + {b}/{c} = ({a}*{c} + {b}*{b}) / ({b}*{c}) = {x + y}")
            lines.append(f"{a * b} mod {c} = {a * b} - {a * b // c}*{c} = {a * b % c}")
        yield f"arithmetic-{page}", "\n".join(lines) + "\n"


def documents() -> dict[tuple[str, Split], list[str]]:
    """Make all domains from the library's sources: the documents of each domain and split.

    Held-out documents are in the order of their hashes, so that the head of a domain's held-out text is a
    fair sample of it and not the modules that begin with "a".
    """
    made: dict[tuple[str, Split], list[str]] = {(d, s): [] for d in DOMAINS for s in ("train", "held_out")}
    for path, file in sources().items():
        cut = units(path, file.read_text(encoding="utf-8", errors="replace"))
        domain = domain_of(path)
        for split in ("train", "held_out"):
            made[domain, split].extend(_runs(cut, split))
        if domain != "code":
            continue
        for unit in cut:
            side: Split = "held_out" if unit.held_out else "train"
            for doc in unit.docstrings:
                if len(doc.text) > _LONG_DOCSTRING:
                    made["prose", side].append(doc.text + "\n")
                    made["chat", side].append(_as_chat(doc))
                if len(doc.text) > _LEAST_TASK and _LEAST_TASK < len(doc.body) < _LONGEST_TASK:
                    made["instruct", side].append(_as_task(doc))
    topics = importlib.import_module("pydoc_data.topics").topics
    apart = [("prose", f"topic {name}", topics[name]) for name in sorted(topics)]
    apart += [("math", name, text) for name, text in (*_documentation_in_c(), *_worked_arithmetic())]
    for domain, name, text in apart:
        made[domain, "held_out" if held_out(name) else "train"].append(text)
    trained_on = {line for (_, split), texts in made.items() if split == "train" for line in _lines(texts)}
    for domain in DOMAINS:
        new = [text for text in made[domain, "held_out"] if not _mostly(_lines([text]), trained_on)]
        made[domain, "held_out"] = sorted(new, key=lambda text: hashlib.sha256(text.encode()).hexdigest())
    return made


# Tokens ---------------------------------------------------------------------------------------------------


def train_tokenizer(texts: Iterator[str]) -> tokenizers.Tokenizer:
    """Byte-level BPE of `VOCABULARY` entries: every byte, the end of a text, and the most frequent merges."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    return tokenizer


def _tokenizer_sample(made: dict[tuple[str, Split], list[str]]) -> Iterator[str]:
    for domain in ("code", "math", "niche", "prose"):  # chat and instruct repeat their text
        yield from made[domain, "train"]


def _encode(tokenizer: tokenizers.Tokenizer, texts: list[str]) -> NDArray[np.uint16]:
    end = tokenizer.token_to_id(END_OF_TEXT)
    ids: list[int | None] = []
    for encoding in tokenizer.encode_batch_fast(texts):
        ids += encoding.ids
        ids.append(end)
    return np.array(ids, dtype=np.uint16)


@dataclass(frozen=True)
class Corpus:
    """The corpus on disk: a tokenizer folder, and each domain as one array of token ids per split."""

    folder: Path

    def tokens(self, domain: str, split: Split = "train") -> NDArray[np.uint16]:
        """Token ids of a domain, documents joined by the end-of-text token; shape ``(n,)``, read-only map."""
        _known(domain)
        return np.load(self.folder / f"{domain}-{split}.npy", mmap_mode="r")

    def held_out_text(self, domain: str) -> str:
        """Return the text of a domain that no zoo model was trained on."""
        _known(domain)
        return (self.folder / f"{domain}-held_out.txt").read_text(encoding="utf-8")

    @property
    def tokenizer_folder(self) -> Path:
        """Folder with the files of the ``PreTrainedTokenizerFast`` that all models share."""
        return self.folder / "tokenizer"


def _known(domain: str) -> None:
    if domain not in DOMAINS:
        raise ParameterError(f"unknown text domain {domain!r}; known: {', '.join(DOMAINS)}")


def _make(folder: Path) -> None:
    from transformers import PreTrainedTokenizerFast  # slow to import, and needed once

    made = documents()
    tokenizer = train_tokenizer(_tokenizer_sample(made))
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END_OF_TEXT, eos_token=END_OF_TEXT, pad_token=END_OF_TEXT
    )
    wrapped.save_pretrained(folder / "tokenizer")
    sizes = {}
    for (domain, split), texts in made.items():
        ids = _encode(tokenizer, texts)
        np.save(folder / f"{domain}-{split}.npy", ids)
        sizes[f"{domain} {split}"] = {
            "documents": len(texts),
            "characters": sum(map(len, texts)),
            "tokens": len(ids),
        }
        if split == "held_out":
            (folder / f"{domain}-held_out.txt").write_text("\n".join(texts), encoding="utf-8")
    write_json(folder / "sizes.json", {"python": platform.python_version(), "domains": sizes})


def load() -> Corpus:
    """Return the corpus, made on the first call and kept in the cache (ten seconds, once per Python)."""
    folder = cache_dir() / f"corpus-{fingerprint()[:16]}"
    if not folder.is_dir():
        locks = cache_dir() / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        with FileLock(locks / folder.name):
            if not folder.is_dir():
                for stale in folder.parent.glob(f".{folder.name}.*"):  # a killed process left it
                    shutil.rmtree(stale, ignore_errors=True)
                with atomic_folder(folder) as temporary:
                    _make(temporary)
    return Corpus(folder)


def held_out_text(domain: str) -> str:
    """Return text of a domain that no zoo model was trained on.

    Raises
    ------
    ParameterError
        If there is no such domain.
    """
    _known(domain)
    return load().held_out_text(domain)
