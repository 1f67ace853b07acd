"""Making the model of a checkpoint, and its tokenizer, with what transformers ships; no code of its own is run."""

import json
import math
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import torch
import transformers

from provlab import machine
from provlab.errors import CheckpointError, InvalidWeightsError, UnknownArchitectureError, one_line
from provlab.models import anatomy
from provlab.models.architectures import KEYS
from provlab.models.by_blocks import blocks_of, kept_on, run_by_blocks
from provlab.models.formats.container import TensorInfo
from provlab.models.formats.writing import write_safetensors
from provlab.models.growth import refuse_growth
from provlab.models.language import no_tokens
from provlab.models.steps import runs_by_blocks
from provlab.models.weights import renamings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# transformers replaces functions of its classes while it loads a model, and restores them afterwards: two loads at once
# in one process leave a replacement there for good, and no head is tied to its embedding any more
_loading = Lock()

# keys of config.json by which transformers would read other weights than the hashed files, or fetch code; and settings
# of quantised weights, which are de-quantised here
_NOT_OBEYED = {"transformers_weights", "attn_implementation", "_attn_implementation", "experts_implementation"}
_NOT_OBEYED |= {"quantization_config", "quantization"}
_DTYPES = {"dtype", "torch_dtype"}  # given here; some tools write it as torch spells it, torch.float16
_NOT_OBEYED |= _DTYPES


class Loadable(anatomy.Weights, Protocol):
    """The part of a `Checkpoint` that loading needs."""

    source: str

    @property
    def plain(self) -> bool:
        """Whether transformers reads the weight files as they are read here."""

    @property
    def renamed(self) -> dict[str, str]:
        """Names in the files by the usual ones, where any differ."""

    def folder(self) -> Path:
        """Folder with everything that loading needs."""

    def side_files(self) -> list[Path]:
        """Paths of the small files beside the weights."""

    def weight_paths(self) -> dict[str, Path]:
        """Return the files that hold the weights, and their index, by name."""


_ALIGNED = 16  # bytes, of which torch's products of grouped matrices want multiples along each axis


def load_model(
    checkpoint: Loadable, dtype: torch.dtype | None, device: str, *, by_blocks: bool = False
) -> "PreTrainedModel":
    """Make the model, see `Checkpoint.load_model`."""
    precision = dtype or torch.float32
    stored = runs_by_blocks(checkpoint, str(precision).removeprefix("torch.")) if by_blocks else None
    if stored and (known := _known(checkpoint)):
        network = _loaded(checkpoint, getattr(torch, stored))
        if (blocks := blocks_of(network, known, precision)) is not None:
            with machine.using_device(device):
                apart = [] if kept_on(device, network, precision) else blocks
                return run_by_blocks(network, apart, precision, device).eval()
    whole: Any = _loaded(checkpoint, precision)
    with machine.using_device(device):
        return whole.to(device).eval()


def _known(checkpoint: Loadable) -> anatomy.Anatomy | None:
    try:
        return anatomy.of(checkpoint)
    except UnknownArchitectureError:
        return None


def _loaded(checkpoint: Loadable, dtype: torch.dtype) -> Any:
    """Make the model on the CPU."""
    _refuse_custom_code(checkpoint)
    model_class = getattr(transformers, checkpoint.architecture, None)
    if not (isinstance(model_class, type) and issubclass(model_class, transformers.PreTrainedModel)):
        raise CheckpointError(
            f"{checkpoint.source}: transformers {transformers.__version__} has no model {checkpoint.architecture}"
        )
    _refuse_empty_promises(checkpoint)
    settings: dict[str, Any] = {
        "dtype": dtype,
        "local_files_only": True,
        "use_safetensors": True,
        "trust_remote_code": False,
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # reported below in one line instead
    }
    if checkpoint.plain and (renamed := checkpoint.renamed):
        settings["key_mapping"] = renamings(renamed)
    try:
        with _only_the_weights(checkpoint) as folder, _loading, _quiet_transformers():
            loaded: Any = model_class.from_pretrained(folder, **settings)
    except Exception as error:  # transformers' own checks of a config raise errors of many kinds
        raise CheckpointError(f"{checkpoint.source} cannot be loaded: {one_line(error)}") from error
    model, report = loaded
    if wrong := sorted(str(key) for key in (*report["missing_keys"], *report["mismatched_keys"])):
        raise InvalidWeightsError(
            f"{checkpoint.source} has no {wrong[0]} of the shape that its config.json says; give the config and "
            "the weights of one model"
        )
    if any(p.ndim == 3 and any(n * p.itemsize % _ALIGNED for n in p.shape[1:]) for p in model.parameters()):
        model.set_experts_implementation("eager")  # the products of all experts at once refuse such widths
    return model


def tokenizer(checkpoint: Loadable) -> "PreTrainedTokenizerBase":
    """Make the tokenizer, see `Checkpoint.tokenizer`.

    transformers goes by the class of the model where nothing names the tokenizer's, and makes one of no tokens where
    this class reads none of the files that are there, as for a GPT-2 with a list of words. Then the files decide.
    """
    folder = checkpoint.folder()
    names = {path.name for path in checkpoint.side_files()}
    settings: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with usable_tokenizer(checkpoint.source, tuple(sorted(names & _VOCABULARIES))), _loading, _quiet_transformers():
        try:
            if "tokenizer.json" in names:
                refuse_growth(_json_object(folder / "tokenizer.json"))
            settings |= _config_in_place(checkpoint)
            with _no_output():
                made = transformers.AutoTokenizer.from_pretrained(folder, **settings, **_template_in_place(folder))
            if "tokenizer.json" in names:
                return made
            if not (reads := _files_of(made)) or reads & names:
                return _judged(made)
        except Exception:  # whatever a class makes of files that are not its own; the error goes on unless they decide
            for name in sorted(names & _SETTINGS):
                _json_object(folder / name)
            if not _kind_by_files(names):
                raise
        kind = _kind_by_files(names)
        return _judged(made if kind is None else _made_by_files(kind, folder, names & _VOCABULARIES))


#: files with all tokens of a tokenizer
_SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model")
_VOCABULARIES = {"tokenizer.json", "vocab.json", "merges.txt", "vocab.txt", *_SENTENCEPIECE}


#: files with settings of a tokenizer, each a JSON object
_SETTINGS = {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}
#: in place of a chat template that is none, so that only who asks for it meets an error
_NO_TEMPLATE = "{{ raise_exception('it is neither a text nor a list of texts with names') }}"


def _json_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; raise ValueError, with the file's name, if it is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is no valid JSON; copy it again") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} must hold a JSON object; copy it again")
    return content


def _config_in_place(checkpoint: Loadable) -> dict[str, Any]:
    """Return a config to be used in place of the file, where transformers would refuse this for its tokens or dtype."""
    kind = checkpoint.config.get("model_type")
    dtypes = [checkpoint.config.get(key) for key in _DTYPES]
    spoilt = no_tokens(checkpoint.config) or any(isinstance(name, str) and "." in name for name in dtypes)
    if not spoilt or not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        return {}
    return {"config": transformers.CONFIG_MAPPING[kind].from_dict(_obeyed(checkpoint.config))}


def _template_in_place(folder: Path) -> dict[str, Any]:
    """Return the chat template to be used in place of that of the settings, if this one is no template."""
    try:
        template = _json_object(folder / "tokenizer_config.json").get("chat_template")
    except (OSError, ValueError):  # absent, or broken as a whole
        return {}
    if isinstance(template, list):
        pairs = [
            (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (0, 0) for entry in template
        ]
    else:
        pairs = (
            [*template.items()] if isinstance(template, dict) else [("default", "" if template is None else template)]
        )
    fits = all(isinstance(text, str) for pair in pairs for text in pair)
    return {} if fits else {"chat_template": _NO_TEMPLATE}


def _judged(tokenizer: "PreTrainedTokenizerBase") -> "PreTrainedTokenizerBase":
    """Return a tokenizer that was made from other files, if its steps do not make a text too long."""
    if tokenizer.is_fast:
        refuse_growth(json.loads(tokenizer.backend_tokenizer.to_str()))
    return tokenizer


def _files_of(tokenizer: "PreTrainedTokenizerBase") -> set[str]:
    """Return the names of the files that a tokenizer's class reads, beside that of any class."""
    return {*tokenizer.vocab_files_names.values()} - {"tokenizer.json"}


def _kind_by_files(names: Collection[str]) -> str | None:
    """Return the class that reads the files there are: pairs of bytes, a list of words, or SentencePiece."""
    if {"vocab.json", "merges.txt"} <= {*names}:
        return "GPT2Tokenizer"
    if "vocab.txt" in names:
        return "BertTokenizer"
    return "SentencePiece" if {*_SENTENCEPIECE} & {*names} else None


def _made_by_files(kind: str, folder: Path, names: Collection[str]) -> "PreTrainedTokenizerBase":
    """Make a tokenizer of one class from the files that it reads."""
    settings: dict[str, Any] = {"local_files_only": True}
    if kind == "BertTokenizer":
        words = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        settings["do_lower_case"] = all(word == word.lower() for word in words if not word.startswith("["))
    called = {}
    if kind == "SentencePiece":
        (file,) = [name for name in _SENTENCEPIECE if name in names][:1]
        kind = "LlamaTokenizer" if _merges(folder / file) else "T5Tokenizer"  # pairs are merged, or pieces have weights
        called[file] = {"LlamaTokenizer": "tokenizer.model", "T5Tokenizer": "spiece.model"}[kind]
        settings |= {"extra_ids": 0} if kind == "T5Tokenizer" else {}
    with TemporaryDirectory(prefix="provlab-") as place:
        for name in (*names, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
            if (folder / name).exists():
                (Path(place) / called.get(name, name)).symlink_to((folder / name).resolve())
        made: PreTrainedTokenizerBase = getattr(transformers, kind).from_pretrained(place, **settings)
        return made


def _merges(path: Path) -> bool:
    """Whether a SentencePiece model merges pairs, as its own settings say; else its pieces have weights."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    model.ParseFromString(path.read_bytes())
    return bool(model.trainer_spec.model_type == model.trainer_spec.BPE)


@contextmanager
def usable_tokenizer(source: str, files: Sequence[str] = ()) -> Iterator[None]:
    """Within, what a tokenizer raises is a CheckpointError, and a panic of its Rust code too.

    `files` are those that it is made from.
    """
    try:
        yield
    except BaseException as error:  # a panic is no `Exception`
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        made_from = f"; of its files there are {', '.join(files)}" if files else ""
        raise CheckpointError(f"{source} has no usable tokenizer: {one_line(error, 160)}{made_from}") from error


#: takes the place of the function that gives a template the day: Llama 3's template writes it where it is given none
_DAY = (
    "{%- macro strftime_now(format) -%}{%- if format == '%Y-%m-%d' -%}2024-07-26{%- else -%}26 Jul 2024{%- endif -%}"
    "{%- endmacro -%}"
)


@contextmanager
def usable_template(source: str, tokenizer: "PreTrainedTokenizerBase") -> Iterator[str]:
    """Yield the tokenizer's one chat template; within, what a template raises is a CheckpointError that says so.

    A template that writes the day writes the same one always, so that a result of today can be had again tomorrow.
    """
    templates = tokenizer.chat_template
    where = "mend chat_template in tokenizer_config.json, or chat_template.jinja"
    if isinstance(templates, dict) and "default" not in templates and len(templates) > 1:
        names = one_line(", ".join(sorted(templates)))[:100]
        raise CheckpointError(f"{source} has {len(templates)} chat templates ({names}) and none named default; {where}")
    single = templates.get("default", next(iter(templates.values()))) if isinstance(templates, dict) else templates
    try:
        yield (_DAY if "strftime_now" in str(single) else "") + str(single)
    except Exception as error:  # a template is a program, and may raise what it likes
        why = one_line(error)
        raise CheckpointError(f"{source} has a chat template that cannot be used: {why}; {where}") from error


@contextmanager
def _only_the_weights(checkpoint: Loadable) -> Iterator[Path]:
    """Yield a folder with the weight files that the digest covers, and a config that names no others.

    In the checkpoint's own folder transformers would apply an adapter that lies beside the weights, and obey a key of
    the config that names another file. Weights that it does not read as they are read here (codes, other formats) are
    written for it, one tensor at a time.
    """
    with TemporaryDirectory(prefix="provlab-") as name:
        folder = Path(name)
        if checkpoint.plain:
            for file, path in checkpoint.weight_paths().items():
                (folder / file).symlink_to(path.resolve())
        else:
            tensors = {name: TensorInfo(checkpoint.shape(name), "float32") for name in checkpoint.tensor_names}
            write_safetensors(folder / "model.safetensors", tensors, lambda name: [checkpoint.array(name)])
        (folder / "config.json").write_text(json.dumps(_obeyed(checkpoint.config)), encoding="utf-8")
        yield folder


def _obeyed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config, and those nested in it, without the keys and the tokens that are not obeyed."""
    absent = {*no_tokens(config)}
    obeyed = {
        key: _obeyed(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if key not in _NOT_OBEYED | absent
    }
    return obeyed | dict.fromkeys(absent & {"pad_token_id"})  # whose default may be none of the tokens either


def _refuse_empty_promises(checkpoint: Loadable) -> None:
    """Compare the config with the tensors: transformers would draw missing ones at random, of any size."""
    try:
        anatomy.of(checkpoint)
    except UnknownArchitectureError:
        names = checkpoint.tensor_names
        n_numbers = sum(math.prod(checkpoint.shape(name)) for name in names)
        most = dict.fromkeys(("vocab_size", *KEYS["mlp"], *KEYS["model"]), n_numbers)
        most |= dict.fromkeys(KEYS["blocks"], len(names))
        for key, value in _numbers(checkpoint.config):
            if value > most.get(key, math.inf):
                raise InvalidWeightsError(
                    f"{checkpoint.source}: config.json promises {value} by {key}, and has no tensors for it; "
                    "give the config and the weights of one model"
                ) from None


def _numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a config and of those nested in it."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif isinstance(value, int | float):
            yield key, value


def _refuse_custom_code(checkpoint: Loadable) -> None:
    """Accept ``auto_map`` only where it names classes that transformers ships itself (Phi-3 does so)."""
    auto_map = checkpoint.config.get("auto_map")
    targets = auto_map.values() if isinstance(auto_map, dict) else [auto_map] if auto_map else []
    for target in targets:
        if not hasattr(transformers, str(target).rpartition(".")[2]):
            raise CheckpointError(
                f"{checkpoint.source}: config.json asks for code of its own (auto_map: {target}), which is "
                "never run; only architectures that transformers ships can be loaded"
            )


@contextmanager
def _no_output() -> Iterator[None]:
    """Let nothing reach standard output: tokenizers prints keys of its file there that it does not know, as they are.

    It is no Python code, so that the file descriptor itself is turned away.
    """
    if sys.stdout is None:  # closed by the caller
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Silence transformers' progress bar and its table of keys, which `load_model` judges itself."""
    log = transformers.utils.logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
