"""What is kept knows the code that made it: an edit that counts is seen wherever it is reached, and no other."""

import importlib
import sys
from functools import partial
from pathlib import Path

import pytest

from provlab import codehash, plugins, statistics
from provlab.attacks import disguise
from provlab.codehash import code_digest, reached
from provlab.engine.store import Store
from provlab.engine.table import ResultCache
from provlab.modeldiff import ladder, moves, nll, sampler
from provlab.reading import architectures
from provlab.statistics import phi_u
from provlab.statistics.model import Model
from provlab.statistics.options import Options

PACKAGE = {
    "__init__": "",
    "rule": '''"""The rule."""
from typing import TYPE_CHECKING

from .below import step
if TYPE_CHECKING:
    from theirs.seen import Seen
_RATE = 0.3  # a rate
def answer(x: int = 1) -> float:
    """Say it."""
    from theirs.inside import more
    return _RATE * step(x) + more()
class Asked:
    def answer(self) -> float:
        return answer()
''',
    "below": "from importlib import import_module\ndef step(x):\n    return import_module('theirs.named.late').N * x\n",
    "inside": "import theirs.seconds\ndef more():\n    return 2\n",
    "seconds": "__makes_no_numbers__ = True\nfrom theirs import beyond\n",
    "beyond": "",
    "named/__init__": "",
    "named/late": "N = 1\n",
    "seen": "class Seen: ...\n",
    "apart": "",
    "base": "class Base:\n    def answer(self):\n        return 1\n",
    "made": "from theirs.base import Base\nclass Made(Base): ...\n",
}


def forget():
    for function in (codehash._digest_of, codehash._module, codehash._file):
        function.cache_clear()


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """A package of somebody's: its modules, and a way to edit one of them."""
    for name, source in PACKAGE.items():
        path = tmp_path / "theirs" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield lambda name: importlib.import_module(f"theirs.{name}"), tmp_path / "theirs"
    for name in [name for name in sys.modules if name.partition(".")[0] == "theirs"]:
        del sys.modules[name]
    forget()


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text() if old or path.exists() else ""
    assert old in text
    path.write_text(text.replace(old, new) if old else text + new)
    forget()


@pytest.mark.parametrize(
    ("module", "old", "new", "counts"),
    [
        ("rule", "_RATE = 0.3", "_RATE = 0.7", True),
        ("rule", "  # a rate", "  # another word", False),
        ("rule", "The rule.", "The rules.", False),
        ("rule", "\ndef answer", "\n\n\ndef answer", False),
        ("below", "* x", "* x * x", True),  # imported at the top, by a relative name
        ("inside", "return 2", "return 3", True),  # imported in a function
        ("named/late", "N = 1", "N = 2", True),  # named in a string
        ("seconds", "", "wait = 3\n", False),  # says that it makes no numbers
        ("beyond", "", "x = 1\n", False),  # reached through that one alone
        ("seen", "", "x = 1\n", False),  # for the type checker
        ("apart", "", "x = 1\n", False),
        ("rule.toml", "", "x = 1\n", True),  # a table of the module's name
        ("other.toml", "", "x = 1\n", False),
    ],
)
def test_what_is_reached_counts(theirs, module, old, new, counts):
    load, folder = theirs
    path = folder / (module if "." in module else f"{module}.py")
    rule = load("rule")
    ways = (rule.answer, rule.Asked, rule.Asked().answer, partial(rule.answer, x=2), partial(partial(rule.answer), 2))
    before = [code_digest(way) for way in ways]
    edited(path, old, new)
    assert [was != code_digest(way) for was, way in zip(before, ways, strict=True)] == [counts] * len(ways)


def test_a_base_and_what_is_bound_to_a_function_count(theirs):
    """A ladder is laid by a callable of anybody's: what a model's losses are is no import of the ladder's."""
    load, folder = theirs
    made, rule, base = load("made"), load("rule"), load("base")
    ways = (made.Made, made.Made().answer, partial(rule.answer, made.Made()), partial(rule.answer, x=base.Base))
    before, alone = [code_digest(way) for way in ways], code_digest(rule.answer)
    edited(folder / "base.py", "return 1", "return 2")
    assert [was != code_digest(way) for was, way in zip(before, ways, strict=True)] == [True] * 4
    assert code_digest(rule.answer) == alone


def planted(monkeypatch, tmp_path, module, old, new):
    """Let a module of provlab have another source."""
    path = Path(module.__file__)
    text = path.read_text()
    assert text.count(old) == 1
    (tmp_path / path.name).write_text(text.replace(old, new))
    if (table := path.with_suffix(".toml")).exists():
        (tmp_path / table.name).write_text(table.read_text())
    real = codehash._file.__wrapped__
    monkeypatch.setattr(codehash, "_file", lambda name: tmp_path / path.name if name == module.__name__ else real(name))
    for function in (codehash._digest_of, codehash._module):
        function.cache_clear()


@pytest.fixture(autouse=True)
def forgotten():
    yield
    for function in (codehash._digest_of, codehash._module):
        function.cache_clear()


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (ladder, "_SWAP_RATE = 0.3", "_SWAP_RATE = 0.7"),
        (ladder, "_CHAINS = 8", "_CHAINS = 9"),
        (moves, "_WHOLE = ", "_WHOLE = 2 * "),
        (sampler, "def own_temperature", "_MORE = 1\n\n\ndef own_temperature"),
    ],
)
def test_a_ladder_is_laid_anew_by_another_rule(monkeypatch, tmp_path, module, old, new):
    lay = partial(ladder.lay, None, moves=moves.WRITING)
    before = code_digest(lay)
    planted(monkeypatch, tmp_path, module, old, new)
    assert code_digest(lay) != before


def test_a_ladder_knows_the_losses_it_is_laid_by(monkeypatch, tmp_path):
    reader = object.__new__(nll.SequenceNll)
    before = code_digest(partial(ladder.lay, reader))
    planted(monkeypatch, tmp_path, nll, 'JUDGED = {"cpu": 1 << 22', 'JUDGED = {"cpu": 1 << 21')
    assert code_digest(partial(ladder.lay, reader)) != before


def test_a_result_is_kept_under_the_code_of_its_statistic(monkeypatch, tmp_path, models):
    pair = [Model.open(models[name]) for name in ("base", "tuned")]
    kept = ResultCache(Store(tmp_path / "store"), statistics.get("phi_u"), Options())
    before = kept.key(pair, 0)
    assert before == kept.key(pair, 0)
    planted(monkeypatch, tmp_path, architectures, "import tomllib", "import tomllib\n\n_HERE = 1")
    assert kept.key(pair, 0) != before


def test_of_a_statistic_that_was_typed_in_the_version_counts(tmp_path, models):
    """As in a notebook, whose cells are in no module: it must work, and only its author knows what changed."""
    pair = [Model.open(models[name]) for name in ("base", "tuned")]
    names = {"PhiU": phi_u.PhiU, "__name__": "__main__"}
    exec("class Mine(PhiU):\n    name = 'mine'\n    version = 1", names)
    keys = []
    for version in (1, 2, 2):
        names["Mine"].version = version
        keys.append(ResultCache(Store(tmp_path), names["Mine"](), Options()).key(pair, 0))
    assert keys[0] != keys[1] == keys[2]
    assert ResultCache(None, names["Mine"](), Options()).key(pair, 0) == ""


def test_no_report_or_picture_or_command_is_reached_by_a_statistic():
    """An edit there leaves records; readers of formats, which are loaded by name, count."""
    kinds = [type(statistics.get(name)) for name in statistics.REGISTRY]
    ours = [kind for kind in kinds if kind.__module__.startswith("provlab.")]  # chapters may have registered theirs
    assert len(ours) > 10
    for kind in ours:
        modules = reached(codehash._homes(kind))
        assert kind.__module__ in modules
        rooms = {module.split(".")[1] for module in modules}
        its_own = kind.__module__.split(".")[1]
        allowed = {"arrays", "files", "formats", "inference", "processes", "reading", "running", "statistics", its_own}
        assert rooms <= allowed  # processes: a chat template is rendered in one
        assert {point.module for point in plugins.named(plugins.CONTAINERS).values()} < modules.keys()
        assert "provlab.reading.files.safetensors" in modules  # named in a string
        assert not {"provlab.errors", "provlab.reading.hub"} & modules.keys()
        assert len(modules) > 40


def test_disguised_models_keep_their_seeds_and_know_their_code(monkeypatch, tmp_path, models):
    made = []
    monkeypatch.setattr(disguise, "disguise", lambda checkpoint, folder, *, seed, kinds: made.append((folder, seed)))
    monkeypatch.setattr(disguise, "code_digest", lambda function: str(len(made)))
    for _ in range(2):
        disguise.locate(f"T2:{models['base']}")
    (first, seed), (second, same) = made
    assert (first != second, seed == same) == (True, True)
