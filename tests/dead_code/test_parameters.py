"""Every optional parameter is passed by something, or stands in parameters.txt with the reason."""

from pathlib import Path

import parameters
import pytest
import unused

ALLOWED = Path(__file__).with_name("parameters.txt")


def test_every_optional_parameter_is_passed():
    assert unused.faults(parameters.dead(unused.ROOT), ALLOWED.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("module", "calls", "dead"),
    [
        ("def f(a, b=1): pass", "f(0)", {"a.f(b)"}),
        ("def f(a, b=1): pass", "", {"a.f(b)"}),
        ("def f(a, b=1): pass", "f(0, 2)", set()),
        ("def f(a, b=1): pass", "x.f(0, b=2)", set()),
        ("def f(a, b=1): pass", "f(*x)", set()),
        ("def f(a, b=1): pass", "f(0, **x)", set()),
        ("def f(a, b=1): pass", "from a import f as g\ng(0, 2)", set()),
        ("def f(a, b=1): pass", "pool.submit(f, 0, 2)", set()),
        ("def f(a, b=1): pass", "partial(f, b=2)", set()),
        ("def f(a, b=1): pass", "map(f, x)", {"a.f(b)"}),
        ("def f(*, b=1, c): pass", "f(c=2)", {"a.f(b)"}),
        ("class C:\n    def f(self, a=1): pass", "C().f()", {"a.C.f(a)"}),
        ("class C:\n    def f(self, a=1): pass", "C().f(2)", set()),
        ("class C:\n    def __init__(self, a=1): pass", "C()", {"a.C.__init__(a)"}),
        ("class C:\n    def __init__(self, a=1): pass", "C(2)", set()),
        ("@dataclass\nclass C:\n    a: int\n    b: int = 1", "C(2)", {"a.C(b)"}),
        ("@dataclass\nclass C:\n    a: int\n    b: int = 1", "replace(C(2), b=3)", set()),
        ("@dataclass\nclass C:\n    a: int = 1\n    @classmethod\n    def of(cls): return cls(2)", "", set()),
    ],
)
def test_a_planted_dead_parameter_is_named(tmp_path, module, calls, dead):
    for name, text in {"src/provlab/a.py": module, "benchmarks/b.py": calls}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert set(parameters.dead(tmp_path)) == dead
