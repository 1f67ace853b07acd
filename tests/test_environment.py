"""pyproject.toml says what is needed, requirements.lock at which version, environment.yml gives conda the same."""

import os
import subprocess
import sys
import sysconfig
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from provlab import provenance

ROOT = Path(__file__).resolve().parents[1]
# of these the lock names the public version; the machine may hold a local one, such as 2.13.0+cpu
SET_UP_TOOLS = {"pip", "setuptools", "wheel", "provlab", "provlab-study"}
STUDY = "src/provlab_study"  # the project of its own that is installed beside the library


def direct_requirements(pyproject: dict) -> list[Requirement]:
    extras = pyproject["project"]["optional-dependencies"]
    study = tomllib.loads((ROOT / STUDY / "pyproject.toml").read_text())["project"]["dependencies"]
    of_study = {extra for line in study if (own := Requirement(line)).name == "provlab" for extra in own.extras}
    optional = [line for extra in ("book", "test", *sorted(of_study)) for line in extras[extra]]
    lines = [*pyproject["project"]["dependencies"], *optional, *study]
    return [Requirement(line) for line in lines if Requirement(line).name != "provlab"]


def read_lock(text: str) -> dict[str, Version]:
    pins = [Requirement(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {canonicalize_name(pin.name): Version(next(iter(pin.specifier)).version) for pin in pins}


def drift(pyproject: dict, lock: str, environment: dict) -> list[str]:
    """One line for each way in which the three files disagree."""
    faults = []
    pins = read_lock(lock)
    for line in lock.splitlines():
        if line.strip() and not line.startswith("#") and line.count("==") != 1:
            faults.append(f"the lock does not pin {line}")
    for requirement in direct_requirements(pyproject):
        name = canonicalize_name(requirement.name)
        if name not in pins:
            faults.append(f"{name} is not in the lock")
        elif not requirement.specifier.contains(pins[name], prereleases=True):
            faults.append(f"the lock has {name} {pins[name]}, pyproject.toml wants {requirement.specifier}")
    packages = environment["dependencies"]
    conda = {line.split("=")[0]: line.split("=")[1] for line in packages if isinstance(line, str) and "=" in line}
    pip = next((entry["pip"] for entry in packages if isinstance(entry, dict)), [])
    if not {"-r requirements.lock", "-e .", f"-e {STUDY}"} <= set(pip):
        faults.append("environment.yml does not install requirements.lock and both projects")
    if set(conda) != {"python"}:
        faults.append(f"environment.yml pins more than python: {', '.join(sorted(conda))}")
    elif not Requirement(f"python{pyproject['project']['requires-python']}").specifier.contains(conda["python"]):
        faults.append(f"environment.yml has python {conda['python']}, which pyproject.toml does not allow")
    if environment["name"] != "provlab":
        faults.append("the Makefile knows the conda environment as provlab")
    return faults


@pytest.fixture
def files():
    return [
        tomllib.loads((ROOT / "pyproject.toml").read_text()),
        (ROOT / "requirements.lock").read_text(),
        yaml.safe_load((ROOT / "environment.yml").read_text()),
    ]


def test_the_three_files_agree(files):
    assert drift(*files) == []


def test_both_projects_are_installed_wherever_one_is():
    places = ["Makefile", ".binder/postBuild", "environment.yml", "notebooks/course/student_readme.md"]
    assert [name for name in places if STUDY not in (ROOT / name).read_text()] == []


def test_python_is_the_same_everywhere(files):
    pyproject, lock, environment = files
    assert "(Python 3.11," in lock.splitlines()[0]
    assert "python=3.11" in environment["dependencies"]
    assert pyproject["tool"]["ruff"]["target-version"] == "py311"
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        steps = next(iter(yaml.safe_load(workflow.read_text())["jobs"].values()))["steps"]
        assert [s["with"]["python-version"] for s in steps if "setup-python" in s.get("uses", "")] == ["3.11"]


def test_what_is_installed_is_what_the_lock_says(files):
    # not all of sys.path: an import of setuptools puts its own copies of some packages there
    where = list({sysconfig.get_path(kind) for kind in ("purelib", "platlib")})
    installed = {canonicalize_name(d.name): Version(d.version) for d in metadata.distributions(path=where)}
    wrong = {
        name: (str(version), str(installed.get(name)))
        for name, version in read_lock(files[1]).items()
        if name not in installed or installed[name].public != version.public
    }
    assert not wrong, f"run 'make env': {wrong}"


def too_new(distributions, python: str) -> list[str]:
    """Name the distributions that do not install on this version of Python."""
    needs = {f"{d.name} {d.version}": d.metadata.get("Requires-Python") or "" for d in distributions}
    return [name for name, needed in needs.items() if python not in SpecifierSet(needed)]


def test_every_pin_installs_on_the_python_of_debian():
    # Debian 12 has 3.11.2: a pin that asks for 3.11.5 ends the README's first command there
    here = list(metadata.distributions(path=[sysconfig.get_path("purelib")]))
    assert too_new(here, "3.11.2") == []
    assert "numpy" in str(too_new(here, "3.8.0"))


@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        (lambda p, lock, e: (p, lock.replace("scipy==1.", "scipy==0."), e), "scipy"),
        (lambda p, lock, e: (p, "\n".join(x for x in lock.splitlines() if not x.startswith("pandas=")), e), "pandas"),
        (lambda p, lock, e: (p, lock + "\nnumpy>=2\n", e), "does not pin numpy"),
        (
            lambda p, lock, e: (p, lock, e | {"dependencies": ["python=3.9", {"pip": e["dependencies"][-1]["pip"]}]}),
            "3.9",
        ),
        (lambda p, lock, e: (p, lock, e | {"dependencies": ["python=3.11", {"pip": ["-e ."]}]}), "does not install"),
        (lambda p, lock, e: (p, lock, e | {"dependencies": ["numpy=2.4", *e["dependencies"]]}), "more than python"),
        (
            lambda p, lock, e: (
                p | {"project": p["project"] | {"dependencies": [*p["project"]["dependencies"], "not-there>=1"]}},
                lock,
                e,
            ),
            "not-there",
        ),
    ],
)
def test_a_planted_drift_is_found(files, plant, fault):
    faults = drift(*plant(*files))
    assert any(fault in line for line in faults), faults


def test_every_test_has_a_deadline(pytestconfig, tmp_path):
    """One that spins ends as a failure, and the others go on."""
    assert 0 < float(pytestconfig.getini("timeout")) <= 900
    path = tmp_path / "test_spin.py"
    path.write_text("def test_spins():\n    while True:\n        pass\n\ndef test_other():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "timeout=1", str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "Timeout" in done.stdout


def shown_by_make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Where make would write, by its own variables."""
    shows = "where:;@echo $(BUILD) $(BOOK) $(OF_WORLD) $${PROVLAB_DRAW}"
    return run_make("--eval", shows, "where", *arguments, **environment)


def run_make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run make as from a shell, also where a make runs these tests."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PROVLAB_", "MAKE", "MFLAGS"))}
    command = ["make", "-s", *arguments]
    return subprocess.run(command, cwd=ROOT, env=clean | environment, capture_output=True, text=True, check=False)


def test_no_two_draws_share_a_folder(monkeypatch):
    assert shown_by_make().stdout.split() == ["_build/default", "_build/html", "0"]
    mine = {draw: shown_by_make(f"DRAW={draw}").stdout.split() for draw in ("0", "1", "2")}
    assert mine["0"] == ["_build/default", "_build/html", "0"]
    assert mine["1"] == ["_build/default-draw-1", "_build/html-draw-1", "/draw-1", "1"]
    assert not any(set(mine["1"]).intersection(mine[other]) for other in ("0", "2"))
    assert shown_by_make(PROVLAB_DRAW="1").stdout.split() == mine["1"]  # as a make within make finds it
    monkeypatch.setenv("PROVLAB_RESULTS", "/mine")
    for draw, lies in (("0", "/mine"), ("1", "/mine/draw-1")):
        monkeypatch.setenv(provenance.DRAW_VARIABLE, draw)
        assert str(provenance.results_root()) == lies
    assert "_build/.html" not in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("draw", ["00", "1 2", "x", "10000", "-1"])
def test_make_refuses_what_is_no_draw(draw):
    refused = shown_by_make(f"DRAW={draw}")
    assert refused.returncode == 2
    assert f"DRAW is a whole number from 0 to 9999 without zeros before it, not '{draw}'" in refused.stderr


@pytest.mark.parametrize(("built", "shown"), [(True, "whole"), (False, "in part")])
def test_a_book_that_a_check_finds_fault_with_is_shown_and_the_fault_too(built, shown, tmp_path):
    """In place of the first chapters, which an hour of computing would end with."""
    pages = tmp_path / "make"  # in place of the make that runs the pages, builds the book and checks it
    new = tmp_path / "build" / "_build" / "html"
    writes = f"mkdir -p {new} && echo whole > {new}/index.html; " if built else ""
    pages.write_text(f"#!/bin/sh\n{writes}exit 3\n")
    pages.chmod(0o755)
    new.mkdir(parents=True)
    (new / "index.html").write_text("of another day")
    book = tmp_path / "book"
    book.mkdir()
    (book / "index.html").write_text("in part")
    ran = run_make("-o", "env", "reproduce", f"MAKE={pages}", f"BUILD={tmp_path}/build", f"BOOK={book}")
    assert ran.returncode == 2
    assert (book / "index.html").read_text().strip() == shown
    assert ("the book, with what is said above of it" in ran.stdout) == built
