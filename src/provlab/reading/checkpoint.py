"""One way to open a model: from a folder, from the hub, or from a registered scheme such as ``zoo:oak``.

A `Checkpoint` reads its config at once and each tensor when it is asked for; the model itself is made only
by `Checkpoint.load_model`. Code that comes with a checkpoint is never run.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from inspect import signature
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from provlab import machine, plugins
from provlab.errors import CheckpointError, InputError, one_line
from provlab.files import cache_dir, digest, sha256_file
from provlab.reading import beside, diagnose, part, sources, tying
from provlab.reading.architectures import sees
from provlab.reading.counting import count_bytes
from provlab.reading.declared import SIDE_FILES, Declared
from provlab.reading.files.container import is_weights
from provlab.reading.held import once
from provlab.reading.language import headless, inferred, no_tokens
from provlab.reading.local import LocalFiles
from provlab.reading.steps import SharedRun
from provlab.reading.weights import CONFIG, WeightFiles, read_json, side_files, tokenizer_files

#: by which transformers puts an adapter on the base that it names, whatever lies beside it
_ADAPTER = "adapter_config.json"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+-]*):(.+)", re.DOTALL)
if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from provlab.reading.files.source import Files

_schemes: dict[str, Callable[..., Path]] = {}


def register_scheme(scheme: str, resolver: Callable[..., Path]) -> None:
    """Let ``scheme:name`` open the folder ``resolver(name)``; a second call replaces the first.

    A resolver that opens a checkpoint itself may take ``allow_pickle`` too.
    """
    _schemes[scheme] = resolver


def identical(checkpoints: "Iterable[Checkpoint]") -> bool:
    """Whether checkpoints are one, byte for byte.

    Where their hashes say so, of files or of tensors, files on this machine are hashed again.

    Raises
    ------
    CheckpointError
        A file is not the one that its remembered hash belongs to.
    """
    models = list(checkpoints)
    same, contents = len({model.digest for model in models}) == 1, {model.content for model in models}
    if not same and (len(contents) > 1 or contents == {None}):
        return False
    for model in models:
        for name in filter(model._files.here, model._decisive):
            if sha256_file(path := model._files.path(name)) != model._files.sha256(name):
                raise CheckpointError(f"{path} changed unseen since it was hashed; delete {cache_dir() / 'hashes'}")
    return same


def _hashes(files: "Files", names: list[str]) -> list[str]:
    """SHA-256 of files, side by side where several must be read on this machine: one takes as long as its bytes."""
    unknown = [name for name in names if not files.hash_known(name)] if isinstance(files, LocalFiles) else []

    def hashed(share: list[str]) -> dict[str, str]:
        return {name: files.sha256(name) for name in share}

    n = machine.threads()
    made = [machine.Beside(partial(hashed, unknown[k::n])) for k in range(min(n, len(unknown)))]
    known = {name: sha256 for thread in made for name, sha256 in thread.result().items()}
    return [known.get(name) or files.sha256(name) for name in names]


def _resolver(scheme: str) -> Callable[..., Path] | None:
    if scheme not in _schemes and (resolver := plugins.hook(scheme, "locate")):
        register_scheme(scheme, resolver)
    return _schemes.get(scheme)


def _takes_pickle(resolver: Callable[..., Path]) -> bool:
    return "allow_pickle" in signature(resolver).parameters


def _located(source: str | Path) -> "tuple[str, str, Files]":
    """Canonical form, label and files of a folder, or of a repository on the hub."""
    text = str(source)
    if not text:
        raise CheckpointError("the model source is empty; give a folder, org/name or scheme:name")
    try:
        path = Path(text).expanduser()
        local = isinstance(source, Path) or text[0] in "./~" or path.exists()
    except (OSError, RuntimeError) as error:  # too long a name, or the home of an unknown user
        why = getattr(error, "strerror", None) or one_line(error)
        raise CheckpointError(f"{text[:80]} is no path: {why}; give a folder that exists") from error
    if local:
        files = LocalFiles(path)
        return files.label, files.name, files
    from provlab.reading.hub import HubFiles  # the hub's client is slow to import and rarely needed

    text = text.removesuffix("/")
    repo, at, revision = text.partition("@")
    shown = revision[:7] if len(revision) == 40 else revision  # of a commit, as git does
    return text, f"{repo.rpartition('/')[2]}{at}{shown}", HubFiles.resolve(text)


class Checkpoint:
    """A model on disk or on the hub, read lazily. Make one with `Checkpoint.open`.

    Attributes
    ----------
    source
        Canonical form of what was opened: an absolute path, ``org/name[@revision]`` or ``scheme:name``.
    name
        Short label for tables and plots.
    config
        The content of ``config.json``.
    piece
        The part that alone is compared, see `provlab.reading.part`; mostly none.
    """

    def __init__(
        self,
        source: str,
        name: str,
        files: "Files",
        *,
        allow_pickle: bool = False,
        weights: WeightFiles | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.source = source
        self.name = name
        self.piece: part.Part | None = None
        self._files = files
        self.run: SharedRun | None = None  # see `loaded_once`
        config = read_json(files, CONFIG) if CONFIG in files.names() else None
        self._merged, self._notes = weights is not None, notes
        self._as_stored = weights or WeightFiles(files, config, allow_pickle=allow_pickle)
        self.config: dict[str, Any] = self._as_stored.config
        if isinstance(files, LocalFiles):  # headers cost nothing here, and damage shows at once
            for file in self._weights.files:
                self._weights.header(file)
            if not self._merged:
                _ = self.notes  # two models in one folder are refused

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Sentences for a verdict: what else the folder holds, and what of it is not obeyed."""
        return (*self._notes, *([] if self._merged else [*self._of_weights(), *self._of_config()]))

    def _of_config(self) -> Iterator[str]:
        named = self.config.get("architectures")
        first = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""
        if read := self._headless(first):
            yield f"The weights of {self.name} are those of {read}: the head of {first} is not there."
        if contradiction := tying.declared(self.config).note:
            yield f"config.json of {self.name} {contradiction}."
        for key, value in no_tokens(self.config).items():
            rows = self.config.get("vocab_size")
            yield (
                f"config.json of {self.name} names {one_line(repr(value))[:40]} as its {key}, which is none of the "
                f"{rows} tokens: it was not obeyed."
            )
        for way in self._otherwise():
            yield f"Loaded by transformers, {self.name} may be another model: {way}, not obeyed here."

    def _otherwise(self) -> Iterator[str]:
        """Yield what lies in the folder by which transformers makes another model of it than the one that is read."""
        if _ADAPTER in self._files.names() and not self._files.chosen:
            yield f"its {_ADAPTER}"
        if self.config.get("transformers_weights"):
            yield "the file that its config.json names (transformers_weights)"
        if self.config.get("auto_map"):
            yield "the code that its config.json names (auto_map)"

    def _of_weights(self) -> Iterator[str]:
        stored, names = self._as_stored, self._files.names()
        if not self._files.chosen and sum(map(is_weights, names)) > len(stored.files) + len(stored.index):
            yield from beside.sentences(
                self.name, self._files, self._weights, local=isinstance(self._files, LocalFiles)
            )
        for tensors, words in (
            (stored.absent, "The index of {} names tensors that are in no file, such as {}."),
            (stored.unplaced, "The files of {} hold tensors that the index does not place there, such as {}."),
        ):
            if tensors:
                yield words.format(self.name, one_line(min(tensors))[:100])

    @cached_property
    def _weights(self) -> WeightFiles:
        """The tensors, with codes and scales put together if there are any."""
        if self._merged or not self._as_stored.may_be_codes:
            return self._as_stored
        codes = plugins.reader("codes", self.source)
        weights: WeightFiles = codes.CodedWeights(self._files, self._as_stored.config, allow_pickle=True)
        return weights

    @classmethod
    def open(cls, source: str | Path, *, allow_pickle: bool = False) -> "Checkpoint":
        """Open a checkpoint.

        Parameters
        ----------
        source
            A folder, or one of its files of weights (a path that exists, or text that begins with ``.``, ``/`` or
            ``~``), a hub id ``org/name[/file][@revision]`` or the address of its page, or ``scheme:name``;
            ``BASE+ADAPTER`` is any of these
            with a LoRA adapter merged into it, which is a folder or on the hub; ``MODEL::PART`` is a part of any.
        allow_pickle
            Accept ``.bin`` files if there is nothing else; torch reads them with ``weights_only=True``, so that no code
            of theirs is run. A crafted one can still keep torch busy without end.

        Raises
        ------
        CheckpointError
            Nothing is there, or what is there is incomplete, damaged or unsafe.
        """
        whole, piece = part.split(source)
        if piece:
            return cls._open_part(whole, piece, allow_pickle)
        text = str(source)
        match = _SCHEME.fullmatch(text) if isinstance(source, str) else None
        # a resolver that opens checkpoints splits its own text: an adapter belongs to the innermost of its models
        if "+" in text and not (match and (resolver := _resolver(match[1])) and _takes_pickle(resolver)):
            adapter = plugins.reader("adapter", text)
            if pair := adapter.split(text):
                base, (source, name, files) = cls.open(pair[0], allow_pickle=allow_pickle), _located(pair[1])
                both = adapter.Both(base._files, files)
                weights = adapter.AdaptedWeights(both, base._weights, allow_pickle=allow_pickle)
                kept = [note for note in base.notes if base._files.label != files.label or _ADAPTER not in note]
                notes = (*kept, *weights.notes)
                return cls(f"{base.source}+{source}", f"{base.name}+{name}", both, weights=weights, notes=notes)
        if re.search(r"^hf:|huggingface\.co/|hf\.co/|models--", text):
            source = sources.plain(source)
            match = _SCHEME.fullmatch(source) if isinstance(source, str) else None
        if match:
            return cls._open_scheme(match[1], match[2], allow_pickle)
        return cls(*_located(source), allow_pickle=allow_pickle)

    @classmethod
    def _open_part(cls, source: str, piece: part.Part, allow_pickle: bool) -> "Checkpoint":
        if piece.name == part.ADAPTER and not piece.prefix:
            adapter = plugins.reader("adapter", source)
            name, label, files = _located(adapter.alone(source))
            weights: WeightFiles = adapter.AdapterWeights(files, allow_pickle=allow_pickle)
            whole, placed = cls(name, label, files, weights=weights), piece
        else:
            whole = cls.open(source, allow_pickle=allow_pickle)
            weights, placed = whole._weights, part.placed(whole, piece)
        label, notes = f"{whole.name}::{piece.name}", (*whole.notes, part.note(whole.name, placed))
        made = cls(f"{whole.source}::{piece}", label, whole._files, weights=weights, notes=notes)
        made.piece = placed
        return made

    @classmethod
    def _open_scheme(cls, scheme: str, name: str, allow_pickle: bool) -> "Checkpoint":
        resolver = _resolver(scheme)
        if resolver is None:
            raise sources.unknown(scheme, name, {*_schemes, *plugins.named(plugins.SCHEMES)})
        takes = {"allow_pickle": allow_pickle} if _takes_pickle(resolver) else {}
        return cls(f"{scheme}:{name}", name, LocalFiles(Path(resolver(name, **takes))), allow_pickle=allow_pickle)

    def __repr__(self) -> str:
        return f"Checkpoint({self.source!r})"

    @cached_property
    def architecture(self) -> str:
        """The first of the config's ``architectures``, or its base model where there is no head.

        Where the config has none, it is inferred from ``model_type`` and tensors.
        """
        named = self.config.get("architectures")
        if named in (None, []) and (architecture := inferred(self.config, self.tensor_names)):  # few leave it out
            return architecture
        if not isinstance(named, list) or not named or not isinstance(named[0], str):
            raise CheckpointError(
                f'{self.source}: config.json names no architecture; add architectures, such as ["LlamaForCausalLM"]'
            )
        return self._headless(named[0]) or named[0]

    def _headless(self, named: str) -> str | None:
        return None if sees(self.config) else headless(named, self.config, self.tensor_names)

    @property
    def commit(self) -> str | None:
        """The hub's commit, ``None`` for a folder."""
        return self._files.commit

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 over the names and SHA-256 of config and weight files: equal digests, equal models."""
        hashes = zip(self._decisive, _hashes(self._files, self._decisive), strict=True)
        lines = [f"{name} {sha256}\n" for name, sha256 in hashes]
        lines += [f"part {self.piece}\n"] if self.piece else []
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @cached_property
    def content(self) -> str | None:
        """Hex SHA-256 over name, dtype, shape and SHA-256 of the bytes of each tensor, in the order of the names.

        Two models whose tensors are the same have one, whatever order, shards or metadata their files have. Where some
        may be codes, what says how they are read counts, in the config and in files beside it. None where the files
        are no safetensors, are not all here, or were read in part.
        """
        weights = self._as_stored
        if self._merged or self.piece or (hashes := weights.hashes()) is None:
            return None
        infos = {name: weights.info(name) for name in hashes}
        said = [json.dumps(Declared(self.config).content, sort_keys=True)] if weights.may_be_codes else []
        beside = [[name, self._files.sha256(name)] for name in SIDE_FILES if name in self._files.names()]
        return digest([*([n, infos[n].dtype, infos[n].shape, hashes[n]] for n in sorted(hashes)), *said, *beside])

    @property
    def config_digest(self) -> str:
        """Hex SHA-256 of the config, whatever the order of its keys and the spaces between them."""
        return hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()

    @cached_property
    def tokenizer_digest(self) -> str | None:
        """Hex SHA-256 over the names and SHA-256 of the tokenizer's files; None where there are none."""
        lines = [f"{name} {file['sha256']}\n" for name, file in self.tokenizer_files().items()]
        return hashlib.sha256("".join(lines).encode()).hexdigest() if lines else None

    def tokenizer_files(self) -> dict[str, dict[str, Any]]:
        """``sha256`` and ``size`` (bytes) of the files that the tokenizer is made from, by name."""
        names = tokenizer_files(self._files)
        return {name: {"sha256": self._files.sha256(name), "size": self._files.size(name)} for name in names}

    def files(self) -> dict[str, dict[str, Any]]:
        """``sha256`` and ``size`` (bytes) of config and weight files, by name; no hash that `read_in_part` spares."""
        unknown = self.unverified if isinstance(self._files, LocalFiles) else ()
        return {
            name: {"sha256": None if name in unknown else self._files.sha256(name), "size": self._files.size(name)}
            for name in self._decisive
        }

    def read_in_part(self) -> None:
        """Hash no large file of a folder, as some units alone are compared; before the first look at `digest`.

        The files are `unverified`, and what stands for them in `digest` changes with their path, size and times.
        """
        if isinstance(self._files, LocalFiles):
            self._files.partly = True

    @cached_property
    def _decisive(self) -> list[str]:
        """Names of the files that decide which model this is: weights, config, and what says how codes are read."""
        return sorted({*({CONFIG, *SIDE_FILES} & self._files.names()), *self._as_stored.files})

    @cached_property
    def rival(self) -> str:
        """Name of a pickle beside the weights of a folder that holds other numbers; "" if none is seen."""
        others = [name for name in self._files.names() if re.fullmatch(r"pytorch_model.*\.bin", name)]
        if self.pickled or not others or not isinstance(self._files, LocalFiles):
            return ""

        return diagnose.rival(self._files, sorted(others), self._as_stored)

    def bytes_to_hash(self) -> int:
        """Bytes that `digest` reads on this machine: of files whose hash is not remembered; the hub's are known."""
        return sum(self._files.size(name) for name in self._decisive if not self._files.hash_known(name))

    def bytes_to_fetch(self) -> int:
        """Bytes of the weight files that are not on this machine, and are fetched to run the model; 0 for a folder."""
        return sum(self._files.size(file) for file in self._decisive if not self._files.here(file))

    @cached_property
    def unverified(self) -> list[str]:
        """Weight files that were read in part when this was first called: their SHA-256 was not computed."""
        return [file for file in self._decisive if self._files.in_part(file)]

    @property
    def stored(self) -> list[str]:
        """The kinds of codes that weights are de-quantised from, such as ``Q4_K``; mostly none."""
        return self._weights.stored

    @property
    def plain(self) -> bool:
        """Whether transformers reads the weight files as they are read here: safetensors without codes."""
        return self._weights.plain

    @property
    def written_by(self) -> str:
        """The program that the header of the weights names: pt, mlx, ...; "" if none."""
        return self._weights.written_by

    @property
    def renamed(self) -> dict[str, str]:
        """Names of tensors in the files by the usual ones, where training or another model wrapped this one."""
        return self._weights.renamed

    @property
    def absent(self) -> dict[str, str]:
        """Tensors that the table of shards places in a file that lacks them: name -> file."""
        return self._weights.absent

    @property
    def pickled(self) -> bool:
        """Whether the weights are pickles, which are fetched whole before a header is known."""
        return self._as_stored.format.pickled

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors, sorted."""
        return self._weights.tensor_names

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, from its file's header."""
        return self._weights.info(name).shape

    def dtype(self, name: str) -> str:
        """Return the dtype of a tensor in its file, by torch's name: ``bfloat16``."""
        return self._weights.info(name).dtype

    def array(self, name: str, rows: range | None = None) -> NDArray[np.float32]:
        """Read one tensor as float32, without reading the others; torch is not needed for it.

        Within a study it is read once a block for all statistics, and cannot be written to (`provlab.reading.held`).

        Parameters
        ----------
        name
            As in the file.
        rows
            Read these rows alone, which lie together in the file; all if None.

        Raises
        ------
        InvalidWeightsError
            It holds NaN or Inf.
        CheckpointError
            There is no such tensor, or its file is damaged.
        """
        return once(self, (name, rows), lambda: self._weights.array(name, rows))

    def tensor(self, name: str) -> "torch.Tensor":
        """Read one tensor for torch, in the file's dtype; the same otherwise."""
        return self._weights.tensor(name)

    def folder(self) -> Path:
        """Folder with everything that loading needs; for a hub id the missing files are fetched."""
        return self._files.whole([*self._decisive, *self._as_stored.index])

    def weight_paths(self) -> dict[str, Path]:
        """Return the files that hold the weights, and their index, by name; for a hub id missing ones are fetched."""
        return {name: self._files.path(name) for name in (*self._weights.files, *self._weights.index)}

    def side_files(self) -> list[Path]:
        """Paths of the small files beside the weights: config, tokenizer, generation settings."""
        return [self._files.path(name) for name in side_files(self._files)]

    def load_model(
        self, dtype: "torch.dtype | None" = None, device: str = "cpu", *, by_blocks: bool = False
    ) -> "PreTrainedModel":
        """Make the model in evaluation mode, with the class that transformers has for its architecture.

        Parameters
        ----------
        dtype, device
            float32 on the CPU by default.
        by_blocks
            Whether one block at a time may be in this dtype and on this device, see `provlab.reading.by_blocks`: for
            a few passes over a text, and not for training.

        Raises
        ------
        CheckpointError
            transformers has no such class, or the config asks for code of its own.
        InvalidWeightsError
            A weight is missing or has another shape (transformers would draw it at random).
        InputError
            There is no such device, or it is a part of a model.
        """
        from provlab.reading import loading

        if self.piece and self.piece.name != part.LANGUAGE:
            raise InputError(f"{self.name} is a part of a model, which is compared by its weights, and not run")
        key = str(dtype or "torch.float32"), device, by_blocks
        if self.run is not None and key in self.run.loaded:
            return self.run.loaded[key]
        model = loading.load_model(self, dtype, device, by_blocks=by_blocks)
        count_bytes("tensors", self._weights.nbytes)
        if self.run is not None:
            self.run.loaded[key] = model
        return model

    @contextmanager
    def loaded_once(self, run: SharedRun | None = None) -> Iterator[None]:
        """Keep the model that `load_model` makes within the block, so that several callers can run the same one."""
        self.run = run or SharedRun()
        try:
            yield
        finally:
            self.run = None

    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """Return the tokenizer, made on the first call.

        Raises
        ------
        CheckpointError
            There is none, or it needs code of its own.
        """
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> "PreTrainedTokenizerBase":
        from provlab.reading import tokenizing

        if self.tokenizer_digest is None:
            raise CheckpointError(f"{self.source} has no tokenizer; put its files, such as tokenizer.json, beside it")
        return tokenizing.tokenizer(self)

    def encode(self, text: str) -> list[int]:
        """Cut a text into the tokenizer's ids, without special tokens; errors as of `tokenizer`."""
        return self.cut(text)[0]

    def cut(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Cut a text into the tokenizer's ids, and return where each begins and ends in the text, in characters."""
        from provlab.reading import tokenizing

        tokenizer = self.tokenizer()
        with tokenizing.usable_tokenizer(self.source):
            fast = tokenizer.is_fast
            cut = tokenizer(text, add_special_tokens=False, verbose=False, return_offsets_mapping=fast)
            ids: list[int] = cut["input_ids"]
            if fast:
                return ids, cut["offset_mapping"]
            ends = [0, *accumulate(len(tokenizer.decode([number])) for number in ids)]
        return ids, list(pairwise(ends))

    def pieces(self, size: int) -> list[str]:
        """Return what each id below `size` adds to a text when it is decoded; "" where that is no whole character."""
        from provlab.reading import tokenizing

        tokenizer = self.tokenizer()
        with tokenizing.usable_tokenizer(self.source):
            # behind a letter, as a token at the beginning of a text may lose its space
            first: list[int] = tokenizer.encode("a", add_special_tokens=False, verbose=False)[-1:]
            numbers = [[*first, number] for number in range(min(size, len(tokenizer)))]
            texts = tokenizer.batch_decode(numbers, clean_up_tokenization_spaces=False)
            begin = len(tokenizer.decode(first, clean_up_tokenization_spaces=False))
        return ["" if "\ufffd" in text else text[begin:] for text in texts]

    def vocabulary(self) -> dict[str, int] | None:
        """Return the tokenizer's token -> id, None where the checkpoint has no tokenizer.

        Raises
        ------
        CheckpointError
            The tokenizer is damaged, or needs code of its own.
        """
        return dict(self.tokenizer().get_vocab()) if self.tokenizer_digest else None
