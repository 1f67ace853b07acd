"""A low-rank adapter (LoRA, as peft saves it) over a base model: W + s B A, made for a tensor when it is asked for."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, one_line
from provlab.models import sources
from provlab.models.formats.container import FORMATS, TensorInfo
from provlab.models.formats.dtypes import values
from provlab.models.formats.source import Files
from provlab.models.weights import WeightFiles, read_json

CONFIG, WEIGHTS, PICKLED = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
MERGED = "LoRA"  # as what a merged model is said to be stored

_PAIR = re.compile(r"(?P<module>.+)\.lora_(?P<embedding>embedding_)?(?P<side>[AB])(?:\.default)?(?:\.weight)?")
_WHOLE = re.compile(r"\.(?:base_layer|original_module|modules_to_save(?:\.default)?)(?=\.)")
# settings of peft's by which a tensor is more than the sum of W and a product, or W another than the base's
_NOT_MERGED = {
    "use_dora": "DoRA",
    "lora_bias": "biases of its own",
    "use_qalora": "QA-LoRA",
    "alora_invocation_tokens": "aLoRA",
    "layer_replication": "blocks repeated",
    "trainable_token_indices": "rows of an embedding",
    "target_parameters": "experts in one tensor",
}
_NOT_MERGED |= dict.fromkeys(("megatron_config", "use_bdlora", "arrow_config", "kasa_config"), "a variant of LoRA")
_NOT_MERGED |= dict.fromkeys(("velora_config", "monteclora_config"), "a variant of LoRA")
_BEGUN = (None, True, False, "gaussian", "eva", "orthogonal")  # ways to begin that leave W as it is


def split(text: str) -> tuple[str, str] | None:
    """Split ``BASE+ADAPTER``; None for a path that is there, or where nothing names an adapter.

    Paths may hold a ``+`` themselves: the adapter is the shortest end that is a folder with an adapter, else the
    text after the last ``+``.
    """
    if _exists(Path(text)):
        return None
    pairs = [(text[:place], text[place + 1 :]) for place, letter in enumerate(text) if letter == "+"][::-1]
    pairs = [pair for pair in pairs if all(pair)]
    here = next((pair for pair in pairs if _exists(Path(pair[1]) / CONFIG)), None)
    if not here and (not pairs or (pairs[0][0][0] in "./~" and not _exists(Path(pairs[0][0])))):
        return None
    base, adapter = here or pairs[0]
    return base, str(sources.plain(adapter))


def _exists(path: Path) -> bool:
    try:
        return path.expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # no path at all
        return False


class Both:
    """The files of a base and those of an adapter beside it, see `provlab.models.formats.source.Files`."""

    def __init__(self, base: Files, adapter: Files) -> None:
        self.base, self.adapter = base, adapter
        self.chosen = base.chosen
        self.label = f"{base.label}+{adapter.label}"
        self.commit = "+".join(filter(None, (base.commit, adapter.commit))) or None

    def _of(self, name: str) -> Files:
        return self.adapter if name in (CONFIG, WEIGHTS, PICKLED) else self.base

    def names(self) -> frozenset[str]:
        """Names of all files."""
        return frozenset(
            name for files in (self.base, self.adapter) for name in files.names() if self._of(name) is files
        )

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Any other method of `Files`, whose first argument is the name of a file: that of the place that has it."""
        return lambda name, *arguments: getattr(self._of(name), method)(name, *arguments)

    def whole(self, weight_files: Iterable[str]) -> Path:
        """Folder with all files of the base, these weight files among them: its tokenizer is that of both."""
        return self.base.whole([name for name in weight_files if self._of(name) is self.base])


class Change(NamedTuple):
    """What an adapter does to one tensor: it puts another in its place, or adds scale * B A, or both.

    Attributes
    ----------
    whole
        Name of the tensor that stands in its place; empty where none does.
    first, second : str
        Names of A and of B; empty where there is no product.
    scale
        The scale of the product.
    transposed
        The base stores this tensor with inputs as rows.
    """

    whole: str = ""
    first: str = ""
    second: str = ""
    scale: float = 1.0
    transposed: bool = False


class AdaptedWeights(WeightFiles):
    """The tensors of a base, with what an adapter makes of them, in float32."""

    def __init__(self, source: Both, base: WeightFiles, *, allow_pickle: bool = False) -> None:
        """Compare the adapter with the base.

        Raises
        ------
        CheckpointError
            It is none, of a kind that is not merged here, or does not fit the base.
        """
        if isinstance(base, AdaptedWeights):
            raise CheckpointError(f"{source.label}: one adapter is merged, not two; merge one with peft, and save it")
        self._source, self._base, self._label = source, base, source.adapter.label
        names = source.adapter.names()
        weights = WEIGHTS if WEIGHTS in names else PICKLED
        for name in (CONFIG, weights):
            if name not in names:
                raise CheckpointError(
                    f"{self._label} is no adapter, as it has no {name}; give the folder that peft saved"
                )
        if weights == PICKLED and not allow_pickle:
            raise CheckpointError(
                f"{self._label} has its adapter only as pickle ({PICKLED}); pass --allow-pickle (allow_pickle=True) if "
                "you trust the source"
            )
        self.files, self.index, self.config = (*base.files, CONFIG, weights), base.index, base.config
        self.format = next(kind for kind in FORMATS if kind.pickled == (weights == PICKLED))
        self._settings = read_json(source.adapter, CONFIG)
        self._refuse_other_kinds()
        self._adapter = self.format.opened(source.adapter, weights)
        self._changes = self._compared()

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors, sorted: those of the base."""
        return self._base.tensor_names

    @property
    def absent(self) -> dict[str, str]:  # type: ignore[override]
        """As of the base."""
        return self._base.absent

    @property
    def plain(self) -> bool:
        """Whether transformers reads the files as they are read here: it would read the base alone."""
        return False

    @property
    def stored(self) -> list[str]:
        """As what codes the base is stored, and that an adapter was merged into it."""
        return [*self._base.stored, MERGED]

    def info(self, name: str) -> TensorInfo:
        """Shape and dtype of one tensor."""
        info = self._base.info(name)
        return TensorInfo(info.shape, "float32") if name in self._changes else info

    def _content(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Read the bytes of one tensor, or of some rows of it, of the merged model."""
        content = self._base._content(name, rows)
        if name not in self._changes:
            return content
        change, info = self._changes[name], self._base.info(name)
        merged = values(content, info.dtype).reshape(-1, *info.shape[1:])
        part = slice(None) if rows is None else slice(rows.start, rows.stop)
        if change.whole:
            merged = self._array(change.whole)[part]
        if change.first:
            left, right = self._array(change.second), self._array(change.first)
            if change.transposed:
                left, right = right.T, left.T
            with np.errstate(over="ignore", invalid="ignore"):  # the caller looks for NaN and Inf
                merged = merged + np.float32(change.scale) * (left[part] @ right)
        return np.ascontiguousarray(merged, np.float32).reshape(-1).view(np.uint8)

    def _array(self, name: str) -> NDArray[np.float32]:
        """Read a tensor of the adapter."""
        info = self._adapter.header[name]
        return values(self._adapter.read(name, None), info.dtype).astype(np.float32, copy=False).reshape(info.shape)

    def _refuse_other_kinds(self) -> None:
        kind, begun = self._settings.get("peft_type"), self._settings.get("init_lora_weights")
        unlike = [what for key, what in _NOT_MERGED.items() if self._settings.get(key)]
        unlike += [str(begun)] if begun not in _BEGUN else []
        if kind != "LORA" or unlike:
            raise CheckpointError(
                f"{self._label} is an adapter of a kind that is not merged here ({(unlike or [str(kind)])[0][:40]}); "
                "merge it (peft: merge_and_unload, then save_pretrained) and give that folder"
            )

    def _compared(self) -> dict[str, Change]:
        """Return what changes each tensor of the base, after comparing names and shapes."""
        changes: dict[str, Change] = {}
        pairs: dict[tuple[str, bool], dict[str, str]] = {}
        for name, info in self._adapter.header.items():
            inner = name.removeprefix("base_model.model.")
            if match := _PAIR.fullmatch(inner):
                pairs.setdefault((match["module"], bool(match["embedding"])), {})[match["side"]] = name
            elif "lora_" in inner:
                raise CheckpointError(
                    f"{self._label}: {one_line(name)[:100]} is no part of an adapter that is merged here"
                )
            else:
                target = self._found(_WHOLE.sub("", inner))
                if info.shape != self._base.info(target).shape:
                    raise self._unfit(target)
                changes[target] = Change(name)
        for (module, embedding), sides in pairs.items():
            if sides.keys() != {"A", "B"}:
                raise CheckpointError(f"{self._label}: {one_line(module)[:100]} lacks lora_A or lora_B; copy it again")
            target = self._found(f"{module}.weight")
            product = self._product(module, sides, self._base.info(target).shape, embedding)
            changes[target] = product._replace(whole=changes.get(target, product).whole)
        return changes

    def _product(self, module: str, sides: Mapping[str, str], shape: tuple[int, ...], embedding: bool) -> Change:
        """Compare A and B, of shapes (rank, inputs) and (outputs, rank), with the tensor that they change."""
        a, b = (self._adapter.header[sides[side]].shape for side in "AB")
        transposed = embedding or self._settings.get("fan_in_fan_out") is True
        if len(a) != 2 or len(b) != 2 or a[0] != b[1] or not a[0] or (b[0], a[1]) != shape[:: -1 if transposed else 1]:
            raise self._unfit(f"{module}.weight")
        alpha = self._alpha(module)
        if not isinstance(alpha, int | float) or not abs(alpha) < 1e30:
            raise CheckpointError(f"{self._label}: {CONFIG} has no number as its lora_alpha; copy it again")
        rank = math.sqrt(a[0]) if self._settings.get("use_rslora") else a[0]
        return Change(first=sides["A"], second=sides["B"], scale=alpha / rank, transposed=transposed)

    def _alpha(self, module: str) -> Any:
        """Return the alpha of a module: of a pattern that its name ends in (or is, after ``^``), else that of all."""
        patterns = self._settings.get("alpha_pattern") or {}
        for pattern, alpha in (patterns if isinstance(patterns, dict) else {str(patterns): None}).items():
            if not re.fullmatch(r"\^?(\\\.|[\w.-])+", pattern):
                shown = one_line(pattern)[:60]
                raise CheckpointError(f"{self._label}: {CONFIG} has a pattern that is not read here: {shown}")
            if re.match(rf"(.*\.)?({pattern})$", module):
                return alpha
        return self._settings.get("lora_alpha")

    def _found(self, name: str) -> str:
        """Return the base's own name of a tensor: it may lack, or have, what stands before a model with a head."""
        names = self._base.tensor_names
        longer = [known for known in names if known.endswith(f".{name}")]
        matches = [known for known in (name, name.partition(".")[2]) if known in names] or longer
        if not matches or (len(longer) > 1 and matches == longer):
            raise CheckpointError(
                f"{self._label} changes {one_line(name)[:100]}, which the base has not; give the base it was made for"
            )
        return matches[0]

    def _unfit(self, name: str) -> CheckpointError:
        return CheckpointError(
            f"{self._label}: {one_line(name)[:100]} does not fit the base; give the base it was made for"
        )
