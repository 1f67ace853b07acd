"""Names what a folder or file holds that cannot be read as weights, with the remedy."""

__makes_no_numbers__ = True

import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provlab.reading import declared
from provlab.reading.files.pickle_names import pickles

if TYPE_CHECKING:
    from provlab.reading.files.source import Files

_SHARD = re.compile(r"-\d{5}-of-\d{5}\.safetensors$")
_INNER = 1000  # folders further down that are looked at
_COMPARED = 2**26  # bytes of tensors that are compared with a pickle beside them

#: ending of a file -> what it is, and what to give in its place
_OTHER_FORMATS = {
    ".pth": "weights in the layout of their own code; give the copy in transformers' layout (often named -hf)",
    ".h5": "TensorFlow weights; load them with from_tf=True, call save_pretrained, and give that folder",
    ".msgpack": "Flax weights; load them with from_flax=True, call save_pretrained, and give that folder",
    ".ot": "weights for Rust; give the copy in safetensors",
    ".onnx": "a graph for inference; give the checkpoint that it was exported from",
    ".npz": "arrays of MLX or numpy; give the checkpoint that they were made from",
    ".nemo": "a NeMo archive; convert it to transformers' layout and give that folder",
}
#: ending of a tensor's name -> the tools that write such tensors with codes in place of weights
_CODES = {
    ".qweight": "GPTQ or AWQ",
    ".SCB": "bitsandbytes, 8 bits",
    ".absmax": "bitsandbytes, 4 bits",
    ".weight_packed": "compressed-tensors",
    ".weight_scale_inv": "fp8 with scales",
    ".weight_scale": "codes with scales",
    ".scale_weight": "fp8 with scales",
    ".scales": "MLX",
    "_blocks": "MXFP4",
    "_qdata": "torchao",
    ".W_q": "HQQ",
    ".codebooks": "AQLM",
}
#: how pickles begin, and the archives in which torch puts them
_PICKLED = (b"PK\x03\x04", b"\x80\x02", b"\x80\x04")
#: first bytes of a file -> what it is, and the remedy
_CONTENTS = {
    b"version https://git-lfs": "it is a pointer of Git LFS, not the file itself: run git lfs pull",
    b"<": "it is a web page, saved in place of the file (a login or an error): download it again",
    b"GGUF": "it is GGUF under another name: name it model.gguf, alone in a folder",
    **dict.fromkeys(_PICKLED, "it is a pickle under another name: convert it to safetensors"),
}


def unreadable(files: "Files", missing: str) -> str:
    """Return one line on a folder without `missing` (a file, or weights), or with several: content and remedy."""
    if partial := getattr(files, "partial", ""):  # a copy in the cache that another program began
        return str(partial)
    names = files.names()
    if missing in names:
        ending = missing[missing.rindex(".") :].lower()
        first = min(name for name in names if name.lower().endswith(ending) and name != missing)
        return f"{files.label} holds several models, {first} and {missing}; give the path of one of these files"
    if "adapter_config.json" in names:
        return (
            f"{files.label} is an adapter, not a model: it holds what fine-tuning added to {_base_model(files)}; name "
            "both, as BASE+ADAPTER"
        )
    weights = ["model.safetensors"] if "model.safetensors" in names else pickles(names)
    if missing == "config.json" and weights:
        return (
            f"{files.label} has {weights[0]}, but no config.json beside it, which names the model; put the model's "
            "there (transformers: config.save_pretrained writes one)"
        )
    if len(weights) > 1:
        first, second = weights[:2]
        return f"{files.label} has {first} and {second}; give a folder with one model, the weights and config.json"
    for ending, kind in _OTHER_FORMATS.items():
        if others := sorted(name for name in names if name.endswith(ending)):
            return f"{files.label} has no {missing}, but {others[0]}: {kind}"
    shards = sorted(name for name in names if name.endswith(".safetensors"))
    if shards and "config.json" in names:
        if whole := [name for name in shards if not _SHARD.search(name)]:
            which = f"{files.label}/{whole[0]}"
            return f"{files.label} has no model.safetensors, but {', '.join(whole[:3])}; give the path of one: {which}"
        return f"{files.label} has {shards[0]} but no model.safetensors.index.json; copy the index too"
    root = getattr(files, "root", None)  # a folder that holds checkpoints further down, such as a snapshot
    inner = sorted(root.glob("**/config.json"))[:_INNER] if root and "config.json" not in names else []
    if len(inner) == 1:
        return f"{files.label} has no {missing}, but the folder {inner[0].parent} has; give that one"
    if inner:
        last = max(
            inner, key=lambda path: ([int(number) for number in re.findall(r"\d+", path.parent.name)], path)
        ).parent
        shown = ", ".join(str(path.parent.relative_to(root)) for path in inner[:3]) + ", ..." * (len(inner) > 3)
        return f"{files.label} holds several models, in {shown}; give the folder of one: {last}"
    return f"{files.label} has no {missing}; give the folder that holds it"


def codes(names: Iterable[str], config: Mapping[str, Any], integers: Iterable[str] = ()) -> str | None:
    """Return one line on weights that are codes in a layout that is not read; None if nothing shows that they are.

    Parameters
    ----------
    names
        Names of all tensors.
    config
        Content of ``config.json``.
    integers
        Names of weights whose numbers are integers.
    """
    said = declared.Declared(config)
    method = None
    with suppress(declared.DeclarationError):
        method = said.of("").get("method")
    signs = [(name, tool) for ending, tool in _CODES.items() for name in names if name.endswith(ending)]
    signs += [(name, "integers") for name in integers]
    if not signs and not method:
        return None
    name, tool = signs[0] if signs else (said.places[0], "")
    return (
        f"its weights are codes of a quantised copy ({method or tool}; {name}) in a layout that is not read; "
        "give the checkpoint that it was made from, or de-quantise it and save that"
    )


def content(path: Path, *, pickled: bool = False) -> str:
    """Name a file that should be weights or JSON and is not, with the remedy; ``""`` if nothing shows that.

    Where it may be a pickle, that is nothing to be named.
    """
    try:
        with path.open("rb") as stream:
            begins = stream.read(200).lstrip()
    except OSError:
        return ""
    signs = [sign for sign in _CONTENTS if begins.startswith(sign) and not (sign == b"GGUF" and path.suffix == ".gguf")]
    signs = [sign for sign in signs if not (pickled and sign in _PICKLED)]
    return _CONTENTS[signs[0]] if signs else ""


def rival(files: "Files", pickled: Sequence[str], weights: Any) -> str:
    """Return the first pickle if tensors, the smallest of those that are read, are not in the pickles; else "".

    `weights` are a checkpoint's `WeightFiles`. No pickle is loaded: torch writes a zip archive, whose table has length
    and CRC-32 of what every tensor lies in. Where it lacks the length of some tensor, as in another dtype, nothing
    is reported.
    """
    sums: dict[int, set[int]] = {}
    with suppress(OSError, zipfile.BadZipFile):
        for file in pickled:
            for entry in zipfile.ZipFile(files.path(file)).infolist():
                if entry.CRC and not entry.compress_type:  # torch need not write one
                    sums.setdefault(entry.file_size, set()).add(entry.CRC)
    tensors = sorted((weights.info(name).nbytes, name) for name in weights.tensor_names)
    if not {size for size, _ in tensors} <= sums.keys():
        return ""
    ends = accumulate(size for size, _ in tensors)
    few = [tensor for tensor, end in zip(tensors, ends, strict=True) if end <= _COMPARED]
    same = all(zlib.crc32(weights._content(name, None).data) in sums[size] for size, name in few)
    return "" if same else pickled[0]


def _base_model(files: "Files") -> str:
    """Name the model that an adapter was trained on, if its config does."""
    try:
        config = json.loads(files.path("adapter_config.json").read_text(encoding="utf-8"))
        return str(config["base_model_name_or_path"])[:200]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "its base model"
