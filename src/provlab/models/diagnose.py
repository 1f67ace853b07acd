"""What a folder or file is that cannot be read as weights: named, with the way out."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from provlab.models.formats.container import pickles


class Named(Protocol):
    """The part of a checkpoint's files that a diagnosis needs."""

    label: str

    def names(self) -> frozenset[str]:
        """Names of all files."""

    def path(self, name: str) -> Path:
        """Path of a file here."""


# what a file's ending stands for, and what to give in its place
_OTHER_FORMATS = {
    ".pth": "weights in the layout of their own code; give the copy in transformers' layout (often named -hf)",
    ".h5": "TensorFlow weights; load them with from_tf=True, call save_pretrained, and give that folder",
    ".msgpack": "Flax weights; load them with from_flax=True, call save_pretrained, and give that folder",
    ".ot": "weights for Rust; give the copy in safetensors",
    ".onnx": "a graph for inference; give the checkpoint that it was exported from",
    ".npz": "arrays of MLX or numpy; give the checkpoint that they were made from",
    ".nemo": "a NeMo archive; convert it to transformers' layout and give that folder",
}

# who writes tensors with such names beside codes in place of weights
_CODES = {
    ".qweight": "GPTQ or AWQ",
    ".SCB": "bitsandbytes, 8 bits",
    ".absmax": "bitsandbytes, 4 bits",
    ".weight_packed": "compressed-tensors",
    ".weight_scale_inv": "fp8 with scales",
    ".weight_scale": "fp8 or int8 with scales",
    ".scale_weight": "fp8 with scales",
    ".scales": "MLX",
    "_blocks": "MXFP4",
}


def unreadable(files: Named, missing: str) -> str:
    """Say of a folder without `missing` (a file, or weights of any name) or with too many of them what it holds.

    Returns
    -------
    str
        One line: what was looked for, what is there, and what to give.
    """
    if told := getattr(files, "partial", ""):  # a copy in the cache that others began
        return str(told)
    names = files.names()
    if missing in names:
        first = min(name for name in names if name.endswith(missing[missing.rindex(".") :]))
        return f"{files.label} holds several models, {first} and {missing}; give the path of one of these files"
    if "adapter_config.json" in names:
        base = _base_model(files)
        return (
            f"{files.label} is an adapter, not a model: it holds what fine-tuning added to {base}; name both, "
            "as BASE+ADAPTER"
        )
    found = ["model.safetensors"] if "model.safetensors" in names else pickles(names)
    if missing != "config.json" and len(found) > 1:
        return f"{files.label} has {found[0]} and {found[1]}; give a folder with one model, the weights and config.json"
    if missing == "config.json" and found:
        return (
            f"{files.label} has {found[0]}, but no config.json beside it, which says what model it is; put the "
            "model's there (transformers: config.save_pretrained writes one)"
        )
    for ending, what in _OTHER_FORMATS.items():
        if found := sorted(name for name in names if name.endswith(ending)):
            return f"{files.label} has no {missing}, but {found[0]}: {what}"
    shards = sorted(name for name in names if name.endswith(".safetensors"))
    if shards and "config.json" in names:
        return (
            f"{files.label} has {shards[0]} but no model.safetensors.index.json; copy the index too, or name a single "
            "file model.safetensors"
        )
    if not names and (inner := _inside(files)):
        return f"{files.label} has no {missing}, but the folder {inner} has; give that one"
    return f"{files.label} has no {missing}; give the folder that holds it"


def codes(names: Iterable[str], config: Mapping[str, Any], integers: Iterable[str] = ()) -> str | None:
    """Say by whom the tensors of a checkpoint were quantised; None if nothing tells that they were.

    Parameters
    ----------
    names
        Of all tensors.
    config
        Content of ``config.json``.
    integers
        Names of weights whose numbers are integers.
    """
    told = config.get("quantization_config") or config.get("quantization") or {}
    method = told.get("quant_method") if isinstance(told, Mapping) else None
    for ending, who in _CODES.items():
        if found := next((name for name in names if name.endswith(ending)), None):
            return _quantised(found, str(method or who))
    if first := next(iter(integers), None):
        return _quantised(first, str(method or "integers"))
    return None


def _quantised(tensor: str, who: str) -> str:
    return (
        f"its weights are codes of a quantised copy ({who}; {tensor}), which mean nothing without their scales; "
        "give the checkpoint that it was made from, or de-quantise it and save that"
    )


def content(path: Path) -> str:
    """Say what a file is that should be weights or JSON and is not; empty if its first bytes tell nothing."""
    try:
        with path.open("rb") as stream:
            begins = stream.read(200).lstrip()
    except OSError:
        return ""
    if begins.startswith(b"version https://git-lfs"):
        return "it is a pointer of Git LFS, not the file itself: run git lfs pull"
    if begins[:1] == b"<":
        return "it is a web page, saved in place of the file (a login or an error): download it anew"
    if begins.startswith(b"GGUF") and path.suffix != ".gguf":
        return "it is GGUF under another name: name it model.gguf, alone in a folder"
    if begins.startswith((b"PK\x03\x04", b"\x80\x02", b"\x80\x04")):
        return "it is a pickle under another name: convert it to safetensors"
    return ""


def _base_model(files: Named) -> str:
    """Name the model that an adapter was trained on, as far as it says."""
    try:
        told = json.loads(files.path("adapter_config.json").read_text(encoding="utf-8"))
        return str(told["base_model_name_or_path"])[:200]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "its base model"


def _inside(files: Named) -> str:
    """Path of the one folder below that is a checkpoint: a snapshot of the hub's cache, a subfolder of a download."""
    root = getattr(files, "root", None)
    found = sorted(Path(root).glob("**/config.json"))[:2] if root else []
    return str(found[0].parent) if len(found) == 1 else ""
