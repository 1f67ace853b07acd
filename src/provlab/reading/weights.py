"""The weights of a checkpoint: the files that hold them, and each tensor by its name, read on demand.

Bytes are read, and numpy makes float32 of them, whatever the file's dtype: statistics on weights need no torch. A
container (`provlab.reading.files.container`) reads one file; `provlab.formats.codes` puts weights together that
are stored as codes and scales, and callers see no difference.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, InvalidWeightsError, UnknownArchitectureError
from provlab.reading import declared, diagnose
from provlab.reading.architectures import described, family_of, places, sees
from provlab.reading.counting import count_bytes
from provlab.reading.files.container import FORMATS, Container, TensorInfo, parts_of, sets_of
from provlab.reading.files.dtypes import itemsize, values

if TYPE_CHECKING:
    import torch

    from provlab.reading.files.source import Files

CONFIG = "config.json"
#: what compilation, sharding and checkpointing of activations put into names, wherever they wrap a module
_INSIDE = (
    "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module", "_fpw_module", "module"
)  # fmt: skip
_ANYWHERE = re.compile(rf"(?:^|(?<=\.))(?:{'|'.join(_INSIDE)})\.")
#: what adapters put there
_ADAPTED = "base_layer"
_UNMERGED = re.compile(r"\.lora_(?:embedding_)?A\b")
_IN_BLOCK = re.compile(r"\.\d+\.")
#: what adapters put before all names
_BEFORE = "base_model.model."
#: names of the tensors without which codes mean nothing
_SCALES = re.compile(r"[._](scales?|SCB|absmax|weight_scale|weight_scale_inv|scale_weight)$")
_AT_ONCE = 2**18  # bytes of a tensor that are searched for NaN and Inf, and turned into float32, at a time
#: how the names of files begin from which transformers makes a tokenizer
_OF_TOKENIZERS = (
    "tokenizer", "vocab", "merges", "special_tokens_map", "added_tokens", "spiece", "sentencepiece", "spm", "bpe",
    "source.spm", "target.spm", "target_vocab", "tekken", "tiktoken", "qwen.tiktoken", "dict.txt", "emoji.json",
    "entity_vocab", "byte_maps", "normalizer", "prophetnet.tokenizer", "word_", "chat_template",
)  # fmt: skip
_TEXTS = (".json", ".txt", ".model", ".jinja", ".codes", ".spm", ".tiktoken", ".tokenizer")  # how they end


def unwrapped(name: str) -> str:
    """Return a tensor's name without what training put into it, wherever that wrapped a module."""
    return _ANYWHERE.sub("", name)


def _bare(name: str) -> str:
    return unwrapped(name).replace(f".{_ADAPTED}.", ".")


def usual_names(names: Collection[str], config: Mapping[str, Any]) -> dict[str, str]:
    """Return the name in the file of each tensor, by the name without what wrapped the model when it was saved.

    Wrappers of training leave their names inside (``layers.0._orig_mod.mlp``) and before all (``module.``). A model
    that was part of another has its place there before its names (``language_model.``, ``pretrained_model.``,
    ``model.model.``): where the config names a class of the table, that is what stands before this class's own names.

    Raises
    ------
    ValueError
        Two tensors have one name without it, there are two models, or an adapter that was not merged.
    """
    if unmerged := next((name for name in names if _UNMERGED.search(name)), ""):
        raise ValueError(f"{unmerged} is of an adapter that was not merged; merge it with peft (merge_and_unload)")
    usual = {name: _bare(name) for name in names}
    while usual and all(short.startswith(_BEFORE) for short in usual.values()):
        usual = {name: short.removeprefix(_BEFORE) for name, short in usual.items()}
    if outer := _outer(usual.values(), config):
        shorter = {name: short.removeprefix(outer) for name, short in usual.items()}
        usual = shorter if len({*shorter.values()}) == len(names) else usual
    stored: dict[str, str] = {}
    for name, short in usual.items():
        if (other := stored.setdefault(short, name)) != name:
            raise ValueError(
                f"{other} and {name} are both {short}, without what wrapped them in training; save one alone"
            )
    return stored


def _outer(names: Collection[str], config: Mapping[str, Any]) -> str:
    """Return what stands before a known class's own names, by the name of the embedding; ``""`` if nothing does."""
    named = config.get("architectures")
    if sees(config) or not isinstance(named, list) or not named or not isinstance(named[0], str):
        return ""
    try:
        architecture = described(named[0])
    except UnknownArchitectureError:
        return ""
    met = places(architecture, names)
    _refuse_two(met, names)
    before = next(iter(met), "").removesuffix(architecture.prefix)
    if before and not before.endswith(".") and architecture.prefix != "model.":
        return ""  # the end of a longer name, as ``bert.`` is of ``roc_bert.``; ``language_model.`` is a wrapper
    word = before.replace("_", "").removesuffix(".")
    family = family_of(named[0]).lower()
    if word and (word == family or (len(word) > 3 and word in family)):  # ``roberta.`` of XLMRoberta; ``lm.`` is none
        return ""  # what transformers calls the base model of a class whose row of the table begins with another
    # no wrapper, but a part of the model, where other blocks lie elsewhere: an encoder beside a decoder
    return before if all(name.startswith(before) for name in names if _IN_BLOCK.search(name)) else ""


def _refuse_two(places: Sequence[str], names: Collection[str]) -> None:
    """Raise ValueError where the same blocks stand at two of these places: a model beside its teacher, or its mean."""
    blocks: dict[frozenset[str], str] = {}
    for place in places:
        here = frozenset(n.removeprefix(place) for n in names if n.startswith(place) and _IN_BLOCK.search(n))
        if here and (other := blocks.setdefault(here, place)) != place:
            raise ValueError(f"it holds two models of one class, in {other}* and {place}*; save one of them alone")


def renamings(stored: Mapping[str, str]) -> dict[str, str]:
    """Return `usual_names` as patterns of names and what takes their place, one after the other, for transformers."""
    patterns: dict[str, str] = {}
    for word in (*_INSIDE, _ADAPTED):
        most = max((name.split(".").count(word) for name in stored.values()), default=0)
        patterns |= {rf"(?:^|(?<=\.)){word}\.(?#{i})": "" for i in range(most)}  # each takes away one
    before = {_bare(name).removesuffix(short) for short, name in stored.items()} - {""}
    return patterns | {f"^{re.escape(prefix)}": "" for prefix in before}


def read_json(files: "Files", name: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    CheckpointError
        The file is no JSON, or holds something other than an object.
    """
    try:
        content = json.loads(files.path(name).read_text(encoding="utf-8-sig"))  # some editors begin with a mark
    except OSError as error:
        raise CheckpointError(f"{files.label}: {name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        why = diagnose.content(files.path(name)) or "copy it again"
        raise CheckpointError(f"{files.label}: {name} is no valid JSON; {why}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{files.label}: {name} must hold a JSON object; copy it again")
    return content


def side_files(files: "Files") -> list[str]:
    """Names of the small files beside the weights that transformers reads: config, tokenizer, generation settings."""
    others = {CONFIG, "generation_config.json"} & files.names()
    return sorted({*others, *tokenizer_files(files)})


def tokenizer_files(files: "Files") -> list[str]:
    """Names of the small files that a tokenizer is made from, with its chat template, as a text is read in that too."""
    return sorted(name for name in files.names() if name.startswith(_OF_TOKENIZERS) and name.endswith(_TEXTS))


class WeightFiles:
    """All tensors of a checkpoint, by the names that transformers gives them.

    Parameters
    ----------
    config
        Content of ``config.json``; None where there is none, and the weights must hold one themselves.

    Attributes
    ----------
    files
        Names of the weight files, sorted.
    index
        Names of the tables of shards: one, or none.
    format
        Format of the files.
    config
        As given, or as the weights hold it.
    """

    def __init__(
        self, source: "Files", config: dict[str, Any] | None, *, allow_pickle: bool = False, which: str = ""
    ) -> None:
        self._source = source
        self._lock = Lock()
        self._opened: dict[str, Container] = {}
        names = source.names()
        sets = sets_of(names, which or source.chosen)
        if not sets:
            missing = "weights (model.safetensors, or shards with their index)"
            raise _unreadable(source, CONFIG if config is None else missing)
        (kind, first), *others = sets
        #: names of the files, or tables, of other sets of weights in the folder, which are not read
        self.others = tuple(other.file for other in others)
        self.format = kind
        if kind.pickled and not allow_pickle:
            named_so = first.endswith(".bin") and source.here(first)
            if named_so and (other := diagnose.content(source.path(first), pickled=True)):
                raise CheckpointError(f"{source.label} has {first}, but {other}")
            raise CheckpointError(
                f"{source.label} has weights only as pickle ({kind.single}); convert them to safetensors, or "
                "pass --allow-pickle (allow_pickle=True) if you trust the source"
            )
        if others and others[0].format == kind and first != kind.table != others[0].file:
            raise _unreadable(source, others[0].file)  # several GGUF files
        self._map = _weight_map(source, first) if first == kind.table else None
        self.index = () if self._map is None else (first,)
        self.files = tuple(parts_of(first, names) if self._map is None else sorted({*self._map.values()}))
        for name in self.files:
            root = getattr(source, "root", None)  # a folder on this machine, where shards may lie further down
            if name not in names and not ("/" in name and root and (root / name).is_file()):
                further = ", or download the whole folder and give that" * ("/" in name and root is None)
                raise CheckpointError(f"{source.label}: {first} needs {name}, which is missing; copy it again{further}")
        if config is None and (config := self._container(self.files[0]).config) is None:
            raise _unreadable(source, CONFIG)
        self.config = config

    @cached_property
    def _places(self) -> dict[str, tuple[str, str]]:
        """File and name in it of each tensor, by its usual name."""
        files = self.files if self._map is not None else self.files[:1]  # the first part of a GGUF file knows all
        held: dict[str, str] = {}
        for file in files:
            for name in self.header(file):
                if (other := held.setdefault(name, file)) != file and not self._alike(name, other, file):
                    raise CheckpointError(
                        f"{self._source.label}: {other} and {file} hold {name} with different numbers; copy both again"
                    )
        try:
            return {usual: (held[name], name) for usual, name in usual_names(held, self.config).items()}
        except ValueError as error:
            raise CheckpointError(f"{self._source.label}: {error}") from error

    def _alike(self, name: str, *files: str) -> bool:
        """Whether a tensor that several files hold is one."""
        first, second = (self._container(file) for file in files)
        same = (
            first.header[name].shape == second.header[name].shape
            and first.header[name].dtype == second.header[name].dtype
        )
        return same and np.array_equal(first.read(name, None), second.read(name, None))

    @cached_property
    def renamed(self) -> dict[str, str]:
        """Names in the files by the usual ones, where any differ."""
        stored = {usual: name for usual, (_, name) in self._places.items()}
        return stored if any(usual != name for usual, name in stored.items()) else {}

    @cached_property
    def absent(self) -> dict[str, str]:
        """Tensors that the index places in a file that does not hold them, and nor do the others: name -> file."""
        held = {name for _, name in self._places.values()}
        return {name: file for name, file in (self._map or {}).items() if name not in held}

    @cached_property
    def unplaced(self) -> dict[str, str]:
        """Tensors that a file holds and the index does not place there, which are read: name -> file."""
        placed = self._map or {}
        return {n: file for file, n in self._places.values() if self._map is not None and placed.get(n) != file}

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors, sorted."""
        return tuple(sorted(self._places))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, as they are read."""
        return sum(self.info(name).nbytes for name in self.tensor_names)

    @property
    def plain(self) -> bool:
        """Whether transformers reads the files as they are read here: safetensors without codes."""
        return self.format == FORMATS[0]

    @cached_property
    def may_be_codes(self) -> bool:
        """Whether a tensor, by its name or dtype, may belong to a weight that is stored as codes and scales."""
        infos = ((name, self.info(name)) for name in self._places)
        return any(
            _SCALES.search(name) or declared.looks_coded(name, info.dtype, len(info.shape)) for name, info in infos
        )

    @property
    def stored(self) -> list[str]:
        """The kinds of codes as which weights are stored, sorted; empty where all are stored as they are."""
        return sorted({info.stored for container in self._opened.values() for info in container.header.values()} - {""})

    @property
    def written_by(self) -> str:
        """The program that the first file's header names: pt, mlx, ...; "" if none."""
        return str(getattr(self._container(self.files[0]), "written_by", ""))

    def header(self, file: str) -> Mapping[str, TensorInfo]:
        """Shapes and dtypes of the tensors in one file, by their names there.

        Raises
        ------
        CheckpointError
            The file is truncated or corrupt.
        """
        return self._container(file).header

    def info(self, name: str) -> TensorInfo:
        """Shape and dtype of one tensor."""
        file, stored = self._place(name)
        return self.header(file)[stored]

    def _place(self, name: str) -> tuple[str, str]:
        if name in self._places:
            return self._places[name]
        if name in self.absent:
            raise CheckpointError(
                f"{self._source.label}: {self.absent[name]} lacks {name}, which the index places there; copy both again"
            )
        raise CheckpointError(f"{self._source.label} has no tensor {name!r}")

    def array(self, name: str, rows: range | None = None) -> NDArray[np.float32]:
        """One tensor, or some rows of it, as float32, checked to be finite; nothing else of it is read.

        Raises
        ------
        InvalidWeightsError
            It holds NaN or Inf.
        """
        content, info = self._read(name, rows)
        if info.dtype == "float32":
            _checked(self._source.label, name, content, info.dtype, None)
            return content.view(np.float32).reshape(info.shape)
        numbers = np.empty(len(content) // itemsize(info.dtype), np.float32)
        _checked(self._source.label, name, content, info.dtype, numbers)
        return numbers.reshape(info.shape)

    def tensor(self, name: str) -> "torch.Tensor":
        """One tensor for torch, in the file's dtype; the same otherwise."""
        import torch

        content, info = self._read(name)
        _checked(self._source.label, name, content, info.dtype, None)
        if not len(content):
            return torch.empty(info.shape, dtype=getattr(torch, info.dtype))
        return torch.from_numpy(content).view(getattr(torch, info.dtype)).reshape(info.shape)

    def hashes(self) -> dict[str, str] | None:
        """Hex SHA-256 of the bytes of each tensor in the files, by its usual name; None where that is not known."""
        if self.format.reader != FORMATS[0].reader:
            return None
        of_files = {file: self._source.tensor_hashes(file) for file in self.files}
        if any(hashes is None for hashes in of_files.values()):
            return None
        return {usual: (of_files[file] or {})[name] for usual, (file, name) in self._places.items()}

    def _read(self, name: str, rows: range | None = None) -> tuple[NDArray[np.uint8], TensorInfo]:
        """Read the bytes of one tensor, or of some rows of it, and count them."""
        content, info = self._content(name, rows), self.info(name)
        if rows is not None:
            info = info._replace(shape=(len(rows), *info.shape[1:]))
        count_bytes("tensors", info.nbytes)
        return content, info

    def _content(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Read the bytes of one tensor, or of some rows of it."""
        file, stored = self._place(name)
        return self._container(file).read(stored, rows)

    def _container(self, file: str) -> Container:
        """Open a file."""
        with self._lock:
            file = self.files[0] if self._map is None else file  # of a file that was split, the first knows all parts
            if file not in self._opened:
                container = self.format.opened(self._source, file)
                if not container.header:
                    raise CheckpointError(f"{self._source.label}: {file} holds no tensor")
                self._opened[file] = container
            return self._opened[file]


def _weight_map(source: "Files", index: str) -> dict[str, str]:
    """Read the table tensor -> shard; raise CheckpointError if it is none, or points outside the folder."""
    table = read_json(source, index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise CheckpointError(f"{source.label}: {index} has no weight_map; copy it again")
    for tensor, shard in table.items():
        if not isinstance(shard, str) or not shard:
            raise CheckpointError(f"{source.label}: {index} gives no file name for {tensor}; copy it again")
        place = PurePosixPath(shard)  # a folder further down is in the folder
        if place.is_absolute() or ".." in place.parts or "\\" in shard or str(place) != shard:
            raise CheckpointError(
                f"{source.label}: {index} points outside the folder, to {shard!r}, and files in it alone are read; "
                "put that file into the folder, and its name there into the index"
            )
    return table


def _unreadable(source: "Files", missing: str) -> CheckpointError:
    return CheckpointError(diagnose.unreadable(source, missing))


def _checked(label: str, name: str, content: NDArray[np.uint8], dtype: str, into: NDArray[np.float32] | None) -> None:
    """Raise InvalidWeightsError if a tensor's bytes hold NaN or Inf; put its numbers, ``(n,)``, into an array if given.

    Piece by piece, so that what is looked at and turned into float32 is in the processor's cache still.
    """
    size = itemsize(dtype)
    n_nan = n_inf = 0
    for start in range(0, len(content) if into is not None or "float" in dtype else 0, _AT_ONCE):
        some = values(content[start : start + _AT_ONCE], dtype)
        if "float" in dtype and not np.isfinite(some).all():
            n_nan, n_inf = n_nan + int(np.isnan(some).sum()), n_inf + int(np.isinf(some).sum())
        if into is not None:
            into[start // size : start // size + len(some)] = some
    if n_nan or n_inf:
        n = len(content) // size
        raise InvalidWeightsError(f"{label}: {name} holds {n_nan} NaN and {n_inf} Inf among {n} values; copy it again")
