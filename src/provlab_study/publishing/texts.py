"""The text that a page's models read: of a file here, or of a data set on the hub.

A file of a data set has the address by which fsspec opens it, ``hf://datasets/OWNER/NAME[@REVISION]/PATH``; one in a
zip archive there ``zip://MEMBER::hf://datasets/...``. It is fetched as weights are: at one commit, which the page's
records name, compared with the hub's checksum, and kept in the hub's cache.
"""

import hashlib
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from provlab.errors import InputError, ParameterError, one_line

_NAME = r"\w[\w.-]*"
_ADDRESS = re.compile(
    rf"(?:zip://(?P<member>[^:]+)::)?hf://datasets/(?P<repo>{_NAME}/{_NAME})(?:@(?P<revision>{_NAME}))?"
    rf"/(?P<folder>(?:{_NAME}/)*)(?P<name>{_NAME})"
)
_ON_THE_HUB = ("hf://", "zip://")
_LARGEST = 2**27  # bytes of a text in an archive
_HOW = "hf://datasets/OWNER/NAME[@REVISION]/PATH, or of a zip archive zip://MEMBER::hf://datasets/OWNER/NAME/PATH.zip"


@dataclass(frozen=True)
class Text:
    """A text, and where it is from.

    Attributes
    ----------
    source
        As given; empty for the project's own.
    content
        The text itself.
    commit
        Of the data set on the hub; empty for a file here.
    """

    source: str
    content: str
    commit: str = ""

    @property
    def record(self) -> dict[str, str | int]:
        """What says later which text it was."""
        sha256 = hashlib.sha256(self.content.encode()).hexdigest()
        return {"source": self.source, "commit": self.commit, "sha256": sha256, "characters": len(self.content)}


def on_the_hub(source: str) -> bool:
    """Whether a source of text is an address on the hub, and no file here."""
    return source.startswith(_ON_THE_HUB)


def check_source(name: str, source: str) -> None:
    """Raise ParameterError unless a parameter names a file that is there, or has the form of an address."""
    if on_the_hub(source):
        _address(source, f"parameter {name}")
    elif not Path(source).expanduser().is_file():
        raise ParameterError(f"parameter {name}: there is no file {source}; give one that is there, or {_HOW}")


def repository(source: str) -> str:
    """The data set of an address, ``OWNER/NAME``."""
    return _address(source)["repo"]


def _address(source: str, what: str = "text") -> re.Match[str]:
    if match := _ADDRESS.fullmatch(source):
        return match
    raise ParameterError(f"{what}: {one_line(source)} is no address of a text on the hub; give {_HOW}")


def read(source: str) -> Text:
    """Read a text from a file, or from an address on the hub.

    Raises
    ------
    InputError
        It is no text in UTF-8, or the archive has no such member.
    CheckpointError
        The hub has no such data set or file, or cannot be asked.
    """
    path, commit, member = Path(source).expanduser(), "", None
    if on_the_hub(source):
        from provlab.reading.hub import HubFiles  # the hub's client is slow to import and rarely needed

        match = _address(source)
        repo = match["repo"]
        inside = f"/{match['folder'].rstrip('/')}" if match["folder"] else ""
        revision = f"@{match['revision']}" if match["revision"] else ""
        files = HubFiles.resolve(f"{repo}{inside}{revision}", "dataset")
        if match["name"] not in files.names():
            raise InputError(f"text: {repo} has no file {match['folder']}{match['name']} at commit {files.commit}")
        path, commit, member = files.path(match["name"]), files.commit or "", match["member"]
    try:
        content = path.read_bytes() if member is None else _of_archive(path, member)
        return Text(source, content.decode("utf-8"), commit)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"text: {source} cannot be read as UTF-8 ({one_line(error)})") from error


def _of_archive(path: Path, member: str) -> bytes:
    """Read one member of a zip archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
            if member not in names:
                raise InputError(f"text: {path.name} has no {member}; it has {one_line(', '.join(names))[:200]}")
            if archive.getinfo(member).file_size > _LARGEST:
                raise InputError(f"text: {member} has more than {_LARGEST} bytes; give a smaller one")
            return archive.read(member)
    except (zipfile.BadZipFile, RuntimeError) as error:  # RuntimeError: encrypted, or packed in a way that is not known
        raise InputError(f"text: {path.name} is no zip archive that can be read ({one_line(error)})") from error
