"""Notebooks by name: inspected before they run, moved into place on success, skipped while up to date."""

import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor

import nbformat
import pytest
from small_notebooks import write

from provlab.errors import ParameterError, ProvlabError
from provlab_study.publishing import runner
from provlab_study.publishing.parameters import find_notebook


def test_a_notebook_is_found_by_name_and_by_path(project, monkeypatch):
    tree = project / "notebooks" / "tree.ipynb"
    assert find_notebook("tree") == tree
    assert find_notebook("notebooks/tree.ipynb").samefile(tree)
    monkeypatch.chdir(project / "notebooks")  # from inside the project, too
    assert find_notebook("tree") == tree
    with pytest.raises(ParameterError, match=r"'three' \(did you mean tree\?\) in .*; there are: board, tree"):
        find_notebook("three")
    with pytest.raises(ParameterError, match=r"no notebook other/tree.ipynb \(did you mean tree\?\)"):
        find_notebook("other/tree.ipynb")


# Stamps --------------------------------------------------------------------------------------------------------------


def test_the_stamp_changes_with_what_a_page_is_made_from(project, monkeypatch):
    path = find_notebook("tree")
    first = runner.stamp(path, {"seed": 1})
    stamps = {
        "parameters": runner.stamp(path, {"seed": 2}),
        "more parameters": runner.stamp(path, {"seed": 1, "scale": 1}),
        "inputs": runner.stamp(path, {"seed": 1}, "before"),
    }
    write(path, "print(seed + 1)")
    stamps["source"] = runner.stamp(path, {"seed": 1})
    notebook = nbformat.read(write(path, "print(seed)"), as_version=4)
    notebook.cells[1].metadata["tags"] = ["hide-input"]
    nbformat.write(notebook, path)
    stamps["tags"] = runner.stamp(path, {"seed": 1})
    write(path, "print(seed)")
    monkeypatch.setattr(runner, "reached", lambda code, chapters: {"provlab": "another"})
    stamps["library"] = runner.stamp(path, {"seed": 1})
    monkeypatch.undo()
    monkeypatch.setattr(runner.provenance, "versions", lambda: {"numpy": "0"})
    stamps["versions"] = runner.stamp(path, {"seed": 1})
    monkeypatch.undo()
    assert first not in stamps.values()
    assert len(set(stamps.values())) == len(stamps)


def test_the_stamp_does_not_change_with_anything_else(project):
    path = find_notebook("tree")
    first = runner.stamp(path, {"seed": 1, "scale": 2.0})
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1]["execution_count"] = 7
    notebook.cells[1]["outputs"] = [nbformat.v4.new_output("stream", text="5\n")]
    notebook.metadata["kernelspec"]["display_name"] = "My Python"
    nbformat.write(notebook, path)
    assert runner.stamp(path, {"scale": 2.0, "seed": 1}) == first
    copy = project / "elsewhere.ipynb"
    copy.write_bytes(path.read_bytes())
    assert runner.stamp(copy, {"seed": 1, "scale": 2.0}) == first


def test_an_experiment_depends_on_its_own_chapter_and_what_shows_claims_on_all(project, monkeypatch):
    requests = []
    monkeypatch.setattr(runner, "reached", lambda code, chapters: requests.append((code, chapters)) or {})
    tree = write(project / "notebooks" / "tree.ipynb", "import provlab\nrun.finish()", parameters="seed: int = 0")
    board = write(project / "notebooks" / "board.ipynb", "import provlab", "show()", parameters="seed: int = 0")
    for path in (tree, board):
        runner.stamp(path, {})
    assert requests == [
        ("seed: int = 0\nimport provlab\nrun.finish()", {"tree"}),
        ("seed: int = 0\nimport provlab\nshow()", None),
    ]


# Running -------------------------------------------------------------------------------------------------------------


def test_a_real_run_makes_a_page_with_its_stamp(project):
    write(project / "notebooks" / "tree.ipynb", "import os\nprint(seed, models, os.getcwd())")
    output = project / "book" / "tree.ipynb"
    runner.run(find_notebook("tree"), {"seed": 5, "models": ["x"]}, output, progress=False)
    page = nbformat.read(output, as_version=4)
    assert page.cells[-1].outputs[0].text == f"5 ['x'] {project}\n"
    assert runner.stamp_of(output) == runner.stamp(find_notebook("tree"), {"seed": 5, "models": ["x"]})
    assert [path.name for path in output.parent.iterdir()] == ["tree.ipynb"]


def test_a_run_takes_what_machines_and_editors_bring(project, tmp_path, monkeypatch):
    """Another kernel called python3, braces in paths, a long TMPDIR, a notebook that does not name its kernel."""
    kernels = tmp_path / "theirs" / "kernels" / "python3"
    kernels.mkdir(parents=True)
    (kernels / "kernel.json").write_text('{"argv": ["/no/such/python"], "display_name": "x", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "theirs"))
    deep = tmp_path / ("d" * 89)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    path = write(project / "notebooks" / "b{run}.ipynb", "import sys\nprint(sys.executable, seed)")
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.clear()
    nbformat.write(notebook, path)
    output = project / "{out}" / "b{run}.ipynb"
    runner.run(path, {"seed": 7}, output, progress=False)
    page = nbformat.read(output, as_version=4)
    assert f"{sys.executable} 7\n" in [o["text"] for cell in page.cells for o in cell.get("outputs", [])]


def test_a_real_failure_leaves_no_page_and_one_line(project):
    path = write(project / "notebooks" / "tree.ipynb", "1 + 1", "raise ValueError('first\\nsecond')")
    output = project / "book" / "tree.ipynb"
    with pytest.raises(ProvlabError) as refused:
        runner.run(path, {"seed": 5}, output, progress=False)
    failed = project / "book" / "tree.failed.ipynb"
    assert str(refused.value) == f"notebook tree failed in cell 4: ValueError: first second; see {failed}"
    assert [result.name for result in output.parent.iterdir()] == ["tree.failed.ipynb"]
    assert "ValueError" in failed.read_text()


def test_a_real_death_of_the_kernel_is_said(project):
    path = write(project / "notebooks" / "tree.ipynb", "import os", "os._exit(1)")
    output = project / "book" / "tree.ipynb"
    with pytest.raises(ProvlabError, match=r"notebook tree: the kernel died, .*; see .*tree\.failed\.ipynb"):
        runner.run(path, {}, output, progress=False)
    assert [result.name for result in output.parent.iterdir()] == ["tree.failed.ipynb"]


def test_a_kernel_that_is_done_says_nothing_when_it_ends(project, capfd):
    """Its last message, to which papermill waits for the answer, keeps it busy for a second after that."""
    busy = (
        "import time\nhandlers = get_ipython().kernel.shell_handlers\nanswer = handlers['kernel_info_request']\n"
        "async def slow(*message):\n    await answer(*message)\n    time.sleep(1)\n"
        "handlers['kernel_info_request'] = slow"
    )
    path = write(project / "notebooks" / "tree.ipynb", busy)
    runner.run(path, {}, project / "book" / "tree.ipynb", progress=False)
    assert "KeyboardInterrupt" not in "".join(capfd.readouterr())


def test_a_kernel_looks_through_all_objects_seldom_and_its_cells_see_no_name_of_it(project):
    write(
        project / "notebooks" / "tree.ipynb",
        "import gc\nassert gc.get_threshold()[2] > 100",
        "assert 'provlab' not in dir()",
    )
    runner.run(project / "notebooks" / "tree.ipynb", {}, project / "tree.ipynb", progress=False)


def test_kernels_that_run_together_share_no_address(project):
    """Two notebooks that started at once were given one TCP port, and one file of the folder that both run in."""
    connection = "import json\nfrom ipykernel.connect import get_connection_info as connected"
    wait = "import pathlib, time\npathlib.Path(here).touch()\nwhile not pathlib.Path(there).exists(): time.sleep(0.05)"
    paths = []
    for here, there in ("ab", "ba"):
        code = f"here, there = {here!r}, {there!r}\n{wait}\n{connection}\nprint(json.loads(connected())['ip'])"
        paths.append(write(project / "notebooks" / f"{here}.ipynb", code))
    outputs = [project / "book" / path.name for path in paths]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        runs = [pool.submit(runner.run, *pair, progress=False) for pair in zip(paths, [{}, {}], outputs, strict=True)]
        assert [run.result(60) for run in runs] == [None, None]
    addresses = [nbformat.read(output, as_version=4).cells[-1].outputs[0].text for output in outputs]
    assert len(set(addresses)) == 2
    assert not list(project.glob("kernel-ipc*"))


def test_nothing_runs_before_everything_is_checked(project, executed):
    path, output = find_notebook("tree"), project / "book" / "tree.ipynb"
    for settings in ({"sede": 1}, {"seed": "one"}):
        with pytest.raises(ParameterError):
            runner.run(path, settings, output)
    (project / "folder").mkdir()
    with pytest.raises(ParameterError, match=r"folder is a folder; give a file name, .*folder/tree.ipynb say"):
        runner.run(path, {}, project / "folder")
    before = path.read_bytes()
    with pytest.raises(ParameterError, match="is the notebook itself"):
        runner.run(path, {}, project / "notebooks" / ".." / "notebooks" / "tree.ipynb")
    assert path.read_bytes() == before
    assert executed == []
    assert not output.parent.exists()


def test_a_failed_notebook_of_before_is_swept_away(project, executed):
    output = project / "book" / "tree.ipynb"
    output.parent.mkdir()
    (project / "book" / "tree.failed.ipynb").touch()
    runner.run(find_notebook("tree"), {}, output)
    assert [path.name for path in output.parent.iterdir()] == ["tree.ipynb"]
