"""Making the tokenizer of a checkpoint with what transformers ships, by its files; no code of its own is run."""

import json
import os
import random
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import transformers

from provlab.errors import CheckpointError, one_line
from provlab.processes import bounded
from provlab.reading.growth import refuse_growth
from provlab.reading.language import no_tokens
from provlab.reading.loading import DTYPES, LOADING, Loadable, obeyed, quiet_transformers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def tokenizer(checkpoint: Loadable) -> "PreTrainedTokenizerBase":
    """Make the tokenizer, see `Checkpoint.tokenizer`.

    transformers goes by the class of the model where nothing names the tokenizer's, and makes one of no tokens where
    this class reads none of the files that are there, as for a GPT-2 with a list of words. Then the files decide.
    """
    folder = checkpoint.folder()
    names = {path.name for path in checkpoint.side_files()}
    settings: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with usable_tokenizer(checkpoint.source, tuple(sorted(names & _VOCABULARIES))), LOADING, quiet_transformers():
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
    dtypes = [checkpoint.config.get(key) for key in DTYPES]
    spoilt = no_tokens(checkpoint.config) or any(isinstance(name, str) and "." in name for name in dtypes)
    if not spoilt or not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        return {}
    return {"config": transformers.CONFIG_MAPPING[kind].from_dict(obeyed(checkpoint.config))}


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
        if "trust_remote_code" in str(error):
            raise CheckpointError(
                f"{source} has no usable tokenizer: it is made by code of its own, which is never run; put a "
                "tokenizer.json beside its files, as save_pretrained of a fast tokenizer writes it"
            ) from error
        if isinstance(error, KeyError):
            error = ValueError(f"a file of it lacks {error}; copy it again")
        made_from = f"; of its files there are {', '.join(files)}" if files else ""
        raise CheckpointError(f"{source} has no usable tokenizer: {one_line(error, 160)}{made_from}") from error


#: takes the place of the function that gives a template the day: Llama 3's template writes it where it is given none
_DAY = (
    "{%- macro strftime_now(format) -%}{%- if format == '%Y-%m-%d' -%}2024-07-26{%- else -%}26 Jul 2024{%- endif -%}"
    "{%- endmacro -%}"
)


#: what a template may take: it is a program that came with the model, and one of a user's turn takes milliseconds
_SECONDS, _MEMORY = 5, 1_000_000_000
#: letters that it may write around what it is given; no system prompt of a publisher comes near
_AROUND = 100_000


def rendered(
    called: str, tokenizer: "PreTrainedTokenizerBase", turns: Sequence[Mapping[str, str]], *, asks: bool
) -> str:
    """Return what a tokenizer's one chat template makes of turns, and with `asks` what begins an answer to them.

    It is rendered as transformers does it, with bounds on its time, its memory and what it writes. A template that
    writes the day, or draws words at random as jinja lets it, writes the same always, so that a result of today can be
    had again tomorrow.

    Raises
    ------
    CheckpointError
        The template cannot be used; the message says why.
    """
    templates = tokenizer.chat_template
    where = "mend chat_template in tokenizer_config.json, or chat_template.jinja"
    if isinstance(templates, dict) and "default" not in templates and len(templates) > 1:
        names = one_line(", ".join(sorted(templates)))[:100]
        raise CheckpointError(f"{called} has {len(templates)} chat templates ({names}) and none named default; {where}")
    single = templates.get("default", next(iter(templates.values()))) if isinstance(templates, dict) else templates
    template = (_DAY if "strftime_now" in str(single) else "") + str(single)

    conversation = [dict(turn) for turn in turns]

    def made() -> str:
        random.seed(0)  # of the copy, in which this runs
        text = str(
            tokenizer.apply_chat_template(
                conversation, chat_template=template, add_generation_prompt=asks, tokenize=False
            )
        )
        more = len(text) - sum(len(turn["content"]) for turn in turns)
        if more > _AROUND:
            raise ValueError(f"it writes {more:,} letters around a text, more than {_AROUND:,}")
        return text

    try:
        return bounded(made, seconds=_SECONDS, memory=_MEMORY)
    except (RuntimeError, OSError) as error:  # of the template, or of a system that has no room for a copy
        why = one_line(error)
        raise CheckpointError(f"{called} has a chat template that cannot be used: {why}; {where}") from error


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
