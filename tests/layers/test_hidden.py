"""An import of ours stands in a function only where it spares a slow library."""

import hidden
import pytest


def test_every_import_in_a_function_spares_a_slow_library(capsys):
    assert hidden.main() == 0
    assert "each of which spares a slow library" in capsys.readouterr().out


FILES = {
    "__init__": "",
    "small": "import json",
    "slow": "import scipy.special",
    "behind": "from ours.slow import f",
    "lazy": "def f():\n    import torch",
    "typed": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas",
    "wide/__init__": "import numba",
    "wide/narrow": "",
}


@pytest.mark.parametrize(
    ("code", "faults"),
    [
        ("from ours import small", 1),
        ("from ours.lazy import f", 1),
        ("import ours.typed", 1),
        ("from ours import slow", 0),
        ("from ours.behind import f", 0),
        ("import ours.wide.narrow", 0),  # its package is slow
        ("import json", 0),
        ("import scipy", 0),
    ],
)
def test_a_planted_import_is_seen(tmp_path, code, faults):
    for name, text in {**FILES, "planted": f"def f():\n    {code}"}.items():
        path = tmp_path / "ours" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    lines, _ = hidden.hidden(tmp_path)
    assert len(lines) == faults
    assert all(line.startswith("ours.planted:2: ") for line in lines)


def test_a_slow_library_that_is_there_already_is_not_spared(tmp_path):
    (tmp_path / "slow.py").write_text("import scipy")
    (tmp_path / "planted.py").write_text("import scipy\n\n\ndef f():\n    if True:\n        import slow")
    assert hidden.hidden(tmp_path) == (["planted:6: import slow spares no slow library; move it to the top"], 0)
