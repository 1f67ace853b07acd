"""A project of two notebooks, and a stand-in for papermill."""

from pathlib import Path

import pytest
from small_notebooks import write

from provlab_study.publishing import runner


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with two notebooks, entered."""
    (tmp_path / "pyproject.toml").touch()
    for name in ("tree", "board"):
        write(tmp_path / "notebooks" / f"{name}.ipynb", "print(seed)")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def executed(monkeypatch):
    """Stand in for papermill (starting a kernel takes seconds): the "executed" notebook is a copy."""
    calls = []

    def execute(source, target, *, parameters, **settings):
        calls.append((Path(source).stem, dict(parameters)))
        Path(target).write_bytes(Path(source).read_bytes())

    monkeypatch.setattr(runner.papermill, "execute_notebook", execute)
    return calls
