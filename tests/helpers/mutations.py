"""Checkpoints spoilt at random, format by format, and the doors that they are tried at.

Whatever is wrong with a file, a door opens or raises a `ProvlabError` of one line, in `SECONDS` of CPU time and
`MEMORY`, and runs no code of the file's.
"""

import copy
import io
import json
import pickle
import random
import resource
import shutil
import signal
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf_files
import tiny_models
import torch
from safetensors.torch import save_file
from transformers import MambaConfig, MambaForCausalLM

from provlab.errors import ProvlabError
from provlab.planning.skeleton import Skeleton
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.local import LocalFiles
from provlab.reading.weights import read_json


class Late(BaseException):
    """A door took too long; no error, so that nobody catches it."""


SECONDS, MEMORY = 2.0, 512 * 2**20
CANARY = "canary"  # the folder that code hidden in a pickle makes

HOSTILE: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 7, 10**6, 10**9, 2**63, 10**40, -(10**40), 0.5, 1e308,
    float("nan"), float("inf"), "", "x", "x" * 20_000, "../../etc/passwd", "LlamaForCausalLM", "GPT2LMHeadModel",
    "os.system", "\x00\n", "日本", [], [[]], [1, "x", None], {}, {"x": 1}, {"model_type": "llama"},
    {"quant_method": "gptq"}, ["x"] * 5000,
]  # fmt: skip


def spoil_json(content: Any, rng: random.Random) -> bytes:
    """One to three changes of a JSON value, or of its text."""
    content = copy.deepcopy(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(content))
        if not places:
            break
        holder, key = rng.choice(places)
        change = rng.randrange(6)
        if change == 0:
            del holder[key]
        elif change == 1 and isinstance(holder, dict):
            others = ("x" * 20_000, "", key + "x", key[:-1], "model_type", "architectures")
            holder[rng.choice(others)] = holder.pop(key)
        elif change == 2 and isinstance(holder[key], int) and not isinstance(holder[key], bool):
            value = holder[key]
            holder[key] = rng.choice((-value, value + 1, 2 * value, value * 10**6, value - 1))
        elif change == 3:
            holder[key] = copy.deepcopy(rng.choice([other[at] for other, at in places]))
        else:
            holder[key] = copy.deepcopy(rng.choice(HOSTILE))
    text = json.dumps(content).encode()
    if rng.random() < 0.15:
        text = spoil_bytes(text, rng)
    if rng.random() < 0.01:
        text = rng.choice((b"[" * 10**5, b'{"a":' * 10**5, b"", b"\xff\xfe", b"null", b"9" * 10_000))
    return text


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield whatever holds something, with the key that it has there."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def spoil_bytes(content: bytes, rng: random.Random, within: int | None = None) -> bytes:
    """One to four changes of bytes, near the beginning if `within` says so."""
    spoilt = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        reach = min(len(spoilt), within or len(spoilt))
        at = rng.randrange(reach) if reach else 0
        length = rng.choice((1, 1, 2, 4, 8, 50))
        change = rng.randrange(6)
        if change == 0 and spoilt:
            spoilt[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            del spoilt[at : at + length]
        elif change == 2:
            spoilt[at:at] = rng.randbytes(length)
        elif change == 3:
            spoilt[at : at + length] = rng.choice((b"\x00", b"\xff", b"9", b"-", b"\x7f")) * length
        elif change == 4:
            other = rng.randrange(reach) if reach else 0
            spoilt[at : at + length] = spoilt[other : other + length]
        elif rng.random() < 0.3:
            del spoilt[at:]
    return bytes(spoilt)


class _Call:
    """A call that Python's own reader makes: the mark that code ran."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.mkdir, (str(self.path),)


def _calls(canary: Path, rng: random.Random) -> bytes:
    """Opcodes that make the canary, by one of several names, and drop what came of it."""
    path = str(canary)
    calls = (
        f"cos\nmkdir\n(V{path}\ntR0",
        f"cposix\nsystem\n(Vmkdir {path}\ntR0",
        f"cbuiltins\nexec\n(Vimport os; os.mkdir('{path}')\ntR0",
        f"(Vimport os; os.mkdir('{path}')\nibuiltins\neval\n0",
        f"ctorch.serialization\nos.mkdir\n(V{path}\ntR0",
        f"cnumpy.testing._private.utils\nrunstring\n(Vimport os; os.mkdir('{path}')\n}}tR0",
        f"ccodecs\nos.system\n(Vmkdir {path}\ntR0",
    )
    return rng.choice(calls).encode()


def spoil_pickle(content: bytes, rng: random.Random, canary: Path) -> bytes:
    """Change bytes of a pickle, or put calls into it."""
    if rng.random() < 0.4:
        at = 2 if rng.random() < 0.7 else rng.randrange(len(content))
        content = content[:at] + _calls(canary, rng) + content[at:]
        if rng.random() < 0.5:
            return content
    if rng.random() < 0.05:
        return pickle.dumps({"a": _Call(canary), "b": 1}, protocol=2)
    return spoil_bytes(content, rng)


def _spoil_zip(content: bytes, rng: random.Random, canary: Path) -> bytes:
    """Change the pickle in a zip archive, the names, sizes or contents of its entries, or bytes of the archive."""
    if rng.random() < 0.3:
        return spoil_bytes(content, rng, within=rng.choice((None, 2000)))
    spoilt = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(spoilt, "w") as new:
        for name in old.namelist():
            entry = old.read(name)
            if name.endswith(".pkl"):
                entry = spoil_pickle(entry, rng, canary)
            elif rng.random() < 0.05:
                entry = spoil_bytes(entry, rng) if entry else entry
            if rng.random() < 0.02:
                continue
            packed = rng.random() < 0.05
            new.writestr(name, entry, zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED)
    return spoilt.getvalue()


def _spoil_header(content: bytes, rng: random.Random) -> bytes:
    end = 8 + int.from_bytes(content[:8], "little")
    if rng.random() < 0.5:
        header = spoil_json(json.loads(content[8:end]), rng)
        length = len(header) if rng.random() < 0.9 else rng.choice((0, 1, len(header) * 2, 2**40, 2**63))
        return length.to_bytes(8, "little") + header + content[end:]
    return spoil_bytes(content, rng, within=end)


def _spoil_legacy(content: bytes, rng: random.Random, canary: Path) -> bytes:
    return spoil_pickle(content, rng, canary) if rng.random() < 0.5 else spoil_bytes(content, rng, within=3000)


def _spoil_gguf(content: bytes, rng: random.Random) -> bytes:
    """Change bytes of the header, or put hostile numbers where counts, lengths, types and sizes stand."""
    if rng.random() < 0.5:
        return spoil_bytes(content, rng, within=2100)
    spoilt = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.choice((4, 8, 16, 24)) if rng.random() < 0.2 else rng.randrange(24, 2100)
        number = rng.choice((0, 1, 5, 8, 9, 12, 255, 2**16, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1))
        width = 8 if number >= 2**32 else rng.choice((1, 4, 8))
        spoilt[at : at + width] = (number % 256**width).to_bytes(width, "little")
    return bytes(spoilt)


@dataclass(frozen=True)
class Format:
    """One way to store a model: which file is spoilt, how, and the doors that read it."""

    file: str
    make: Callable[[Path], object]
    spoil: Callable[[bytes, random.Random, Path], bytes]
    doors: tuple[str, ...]


def _json(content: bytes, rng: random.Random, canary: Path) -> bytes:
    return spoil_json(json.loads(content), rng)


def _tiny(folder: Path, **how: Any) -> None:
    tiny_models.build("llama").save_pretrained(folder, **how)


def _tokenizer(folder: Path) -> None:
    _tiny(folder)
    text = "the model reads a page of text and says which word comes next " * 20
    tiny_models.as_llamas(folder, text, 60)


def _mamba(folder: Path) -> None:
    """Save a model that the table of architectures lacks."""
    config = MambaConfig(vocab_size=50, hidden_size=8, state_size=2, num_hidden_layers=2, pad_token_id=0)
    MambaForCausalLM(config).save_pretrained(folder)


def _pickled(folder: Path, **how: Any) -> None:
    model = tiny_models.build("llama")
    model.config.architectures = ["LlamaForCausalLM"]
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin", **how)


def _adapter(folder: Path) -> None:
    """Write what peft writes of rank 2, beside its base."""
    _tiny(folder / "base")
    settings = {
        "base_model_name_or_path": str(folder / "base"), "bias": "none", "fan_in_fan_out": False, "lora_alpha": 4,
        "lora_dropout": 0.0, "modules_to_save": None, "peft_type": "LORA", "r": 2, "rank_pattern": {},
        "alpha_pattern": {}, "target_modules": ["up_proj"], "task_type": "CAUSAL_LM", "use_dora": False,
        "use_rslora": False,
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    at = "base_model.model.model.layers.{}.mlp.up_proj.lora_{}.weight"
    shapes = {"A": (2, tiny_models.WIDTH), "B": (tiny_models.MLP_WIDTH, 2)}
    tensors = {at.format(block, side): torch.ones(shape) for block in (0, 1) for side, shape in shapes.items()}
    save_file(tensors, folder / "adapter_model.safetensors")


FORMATS: dict[str, Format] = {
    "header": Format("model.safetensors", _tiny, lambda c, rng, _: _spoil_header(c, rng), ("open", "load")),
    "index": Format("model.safetensors.index.json", lambda f: _tiny(f, max_shard_size="20KB"), _json, ("open", "load")),
    "config": Format("config.json", _tiny, _json, ("open", "skeleton", "load")),
    "config of BERT": Format(
        "config.json", lambda f: tiny_models.save("bert_masked", f), _json, ("open", "skeleton", "load")
    ),
    "config of another family": Format("config.json", _mamba, _json, ("load",)),
    "tokenizer": Format("tokenizer.json", _tokenizer, _json, ("tokenizer",)),
    "bin": Format("pytorch_model.bin", _pickled, _spoil_zip, ("open", "load")),
    "legacy": Format(
        "pytorch_model.bin",
        lambda f: _pickled(f, _use_new_zipfile_serialization=False),
        _spoil_legacy,
        ("open", "load"),
    ),
    "gguf": Format(
        "model.gguf",
        lambda f: gguf_files.save("llama", f / "model.gguf"),
        lambda c, rng, _: _spoil_gguf(c, rng),
        ("open", "load"),
    ),
    "adapter": Format("adapter_config.json", _adapter, _json, ("merged",)),
}


def _open(source: Path | str) -> None:
    """Open, read all headers, find the roles, and read one matrix."""
    checkpoint = Checkpoint.open(source, allow_pickle=True)
    for name in checkpoint.tensor_names:
        checkpoint.shape(name), checkpoint.dtype(name)
    anatomy.of(checkpoint).read(checkpoint, "up", 0)


def _skeleton(folder: Path) -> None:
    """Lay out the tensors that a config promises."""
    skeleton = Skeleton("model", read_json(LocalFiles(folder), "config.json"))
    for name in skeleton.tensor_names:
        skeleton.shape(name), skeleton.dtype(name)


DOORS: dict[str, Callable[[Path], object]] = {
    "open": _open,
    "merged": lambda folder: _open(f"{folder / 'base'}+{folder}"),
    "load": lambda folder: Checkpoint.open(folder, allow_pickle=True).load_model(),
    "skeleton": _skeleton,
    "tokenizer": lambda folder: Checkpoint.open(folder).vocabulary(),
}


@contextmanager
def limits() -> Iterator[None]:
    """Within, this process gets `MEMORY` more than it has, and a signal after `SECONDS` of CPU time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

    def late(*_: object) -> None:
        raise Late(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGPROF, late)
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def fault(door: str, folder: Path) -> tuple[str, str]:
    """Try one door: what is wrong with the way it refuses (nothing, mostly), and what it says."""
    try:
        with limits():
            DOORS[door](folder)
    except ProvlabError as error:
        text = str(error).replace(str(folder), "")
        if len(" ".join(word for word in text.split() if "/" not in word)) > error.longest:
            return f"a line of more than {error.longest} characters: {text[:60]}", text
        return ("several lines" if "\n" in text else "" if text else "no words"), text
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  a panic in a library's Rust is no Exception
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "/provlab/" in f.filename]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        return f"{type(error).__name__} at {place}: {str(error)[:80]}", str(error)
    return "", ""


@dataclass
class Tried:
    """What came of many spoilt checkpoints of one format."""

    n: int
    opened: int
    refused: int
    faults: Counter[str]
    seeds: dict[str, int]  # one case of each fault

    def __str__(self) -> str:
        return f"{self.n} tries: {self.opened} opened, {self.refused} refused, {self.faults.total()} wrong"


def fuzz(name: str, seeds: range, folder: Path, doors: tuple[str, ...] | None = None) -> Tried:
    """Spoil the checkpoint of a format, once for each seed, and try its doors."""
    *_, tried = attempts(name, seeds, folder, doors)
    return tried


def attempts(name: str, seeds: range, folder: Path, doors: tuple[str, ...] | None = None) -> Iterator[Tried]:
    """Yield what `fuzz` has found so far, after each seed: always the same object."""
    made, format_ = folder / name, FORMATS[name]
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    format_.make(made)
    canary, path = folder / CANARY, made / format_.file
    good = path.read_bytes()
    for door in doors or format_.doors:
        DOORS[door](made)  # so that a refusal is due to what is spoilt
    tried = Tried(0, 0, 0, Counter(), {})
    for seed in seeds:
        path.write_bytes(format_.spoil(good, random.Random(seed), canary))
        for door in doors or format_.doors:
            try:
                wrong, message = fault(door, made)
            except Late as error:  # raised as the limit was being lifted
                wrong, message = f"Late: {error}", ""
            if canary.exists():
                wrong = "code was run"
                canary.rmdir()
            tried.n += 1
            tried.opened += not message and not wrong
            tried.refused += bool(message)
            if wrong:
                tried.faults[f"{door}: {wrong}"] += 1
                tried.seeds.setdefault(f"{door}: {wrong}", seed)
        yield tried
