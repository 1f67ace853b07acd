"""A low-rank adapter (LoRA, as peft saves it) over a base model: W + s B A, made for a tensor when it is asked for."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import regex
from numpy.typing import NDArray

from provlab.errors import CheckpointError, UnknownArchitectureError, one_line
from provlab.reading import sources, tying
from provlab.reading.architectures import described, sees
from provlab.reading.files.container import FORMATS, TensorInfo
from provlab.reading.files.dtypes import values
from provlab.reading.files.source import Files
from provlab.reading.weights import WeightFiles, read_json, unwrapped

CONFIG, WEIGHTS, PICKLED = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
MERGED = "LoRA"  # as what a merged model is said to be stored
CODES = ()  # it reads none

# peft leaves the adapter's own name out, and a checkpoint of training or of another tool may keep it
_OWN = r"(?:\.(?!(?:weight|bias)$)(?P<adapter>[\w-]+))?"
_PAIR = re.compile(rf"(?P<module>.+)\.lora_(?P<embedding>embedding_)?(?P<side>[AB]){_OWN}(?:\.weight)?")
_BIAS = re.compile(rf"(?P<module>.+)\.lora_B{_OWN}\.bias")
_MAGNITUDE = re.compile(rf"(?P<module>.+)\.lora_magnitude_vector{_OWN}(?:\.weight)?")
#: where peft keeps what a whole module was, and what training made of it
_BEFORE = re.compile(r"\.(?:base_layer|original_module)(?=\.)")
# settings of peft's by which a tensor is more than the sum of W and a product, or W another than the base's
_NOT_MERGED = {
    "use_qalora": "QA-LoRA",
    "alora_invocation_tokens": "aLoRA",
    "layer_replication": "blocks repeated",
    "trainable_token_indices": "rows of an embedding",
    "target_parameters": "experts in one tensor",
}
_NOT_MERGED |= dict.fromkeys(("megatron_config", "use_bdlora", "arrow_config", "kasa_config"), "a variant of LoRA")
_NOT_MERGED |= dict.fromkeys(("velora_config", "monteclora_config"), "a variant of LoRA")
_SECONDS = 0.2  # that a pattern of names may take: some take for ever, (a*)*b
#: what stands before the names of a language model, by itself or as a part of a model that does more
_BEFORE_ALL = re.compile(r"^(?:(?:model|language_model|text_model|thinker|llm|lm)\.)+")
_MERGE = "merge it (peft: merge_and_unload, then save_pretrained) and give that folder"
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
    here = next((pair for pair in pairs if _exists(Path(pair[1]) / CONFIG) or _within(Path(pair[1]))), None)
    if not here and (not pairs or (pairs[0][0][0] in "./~" and not _exists(Path(pairs[0][0])))):
        return None
    base, adapter = here or pairs[0]
    if here and not _exists(Path(adapter) / CONFIG):
        first, *others = _within(Path(adapter))
        if others:
            raise CheckpointError(f"{adapter} holds several adapters; give the folder of one, as {first}")
        adapter = str(first)
    return base, str(sources.plain(adapter))


def _within(folder: Path) -> list[Path]:
    """Return the folders in a folder that hold adapters: peft saves one that has a name of its own there."""
    try:
        return sorted(path.parent for path in folder.expanduser().glob(f"*/{CONFIG}"))
    except (OSError, RuntimeError, ValueError):  # no path at all
        return []


def _exists(path: Path) -> bool:
    try:
        return path.expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # no path at all
        return False


class Both:
    """The files of a base and those of an adapter beside it, see `provlab.reading.files.source.Files`."""

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

    In DoRA the sum is then scaled, so that the weights of each output unit have a given length (arXiv 2402.09353).

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
    magnitude
        Name of the lengths, one for each output unit; empty where the sum is not scaled.
    """

    whole: str = ""
    first: str = ""
    second: str = ""
    scale: float = 1.0
    transposed: bool = False
    magnitude: str = ""


def _weights_of(source: Files, *, allow_pickle: bool) -> str:
    """Name of the file of an adapter's weights; raise CheckpointError where there is none to read."""
    names = source.names()
    weights = WEIGHTS if WEIGHTS in names else PICKLED
    for name in (CONFIG, weights):
        if name not in names:
            raise CheckpointError(f"{source.label} is no adapter, as it has no {name}; give the folder that peft saved")
    if weights == PICKLED and not allow_pickle:
        raise CheckpointError(
            f"{source.label} has its adapter only as pickle ({PICKLED}); pass --allow-pickle (allow_pickle=True) if "
            "you trust the source"
        )
    return weights


def alone(source: str) -> str:
    """Return the folder or the repository of the adapter that a source names, with its base or without it."""
    if pair := split(source):
        return pair[1]
    within = [] if _exists(Path(source) / CONFIG) else _within(Path(source))
    if len(within) > 1:
        raise CheckpointError(f"{source} holds several adapters; give the folder of one, as {within[0]}")
    return str(within[0]) if within else str(sources.plain(source))


class AdapterWeights(WeightFiles):
    """The tensors of an adapter alone, A and B as peft saved them; see `provlab.reading.part`."""

    def __init__(self, source: Files, *, allow_pickle: bool = False) -> None:
        """Open the adapter.

        Raises
        ------
        CheckpointError
            It is none.
        """
        weights = _weights_of(source, allow_pickle=allow_pickle)
        self._source, self.files, self.index = source, (weights,), ()
        self.format = next(kind for kind in FORMATS if kind.pickled == (weights == PICKLED))
        self.config = {**read_json(source, CONFIG), "architectures": [MERGED]}
        self._adapter = self.format.opened(source, weights)

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors, sorted."""
        return tuple(sorted(self._adapter.header))

    @property
    def absent(self) -> dict[str, str]:
        """No index places any."""
        return {}

    @property
    def stored(self) -> list[str]:
        """No codes."""
        return []

    @property
    def renamed(self) -> dict[str, str]:
        """No names but those of the file."""
        return {}

    def header(self, file: str) -> Mapping[str, TensorInfo]:
        """Shapes and dtypes of the tensors."""
        return self._adapter.header

    def info(self, name: str) -> TensorInfo:
        """Shape and dtype of one tensor."""
        return self._adapter.header[name]

    def _content(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        return self._adapter.read(name, rows)


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
        weights = _weights_of(source.adapter, allow_pickle=allow_pickle)
        self.files, self.index, self.config = (*base.files, CONFIG, weights), base.index, base.config
        self.format = next(kind for kind in FORMATS if kind.pickled == (weights == PICKLED))
        self._settings = read_json(source.adapter, CONFIG)
        self._refuse_other_kinds()
        self._adapter = self.format.opened(source.adapter, weights)
        self._ends = _ends(base)
        self._shapes: dict[str, tuple[int, ...]] = {}  # of tensors that the adapter made longer or shorter
        self._as_before: dict[str, str] = {}  # the adapter's names of what it changes, as that was before training
        self._changes = self._compared()
        self._untied = self._tied_apart()

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors, sorted: those of the base, and the head where the adapter sets it apart."""
        return tuple(sorted({*self._base.tensor_names, *([self._ends[1]] if self._untied else [])}))

    @property
    def notes(self) -> list[str]:
        """What a verdict should say of the merge."""
        apart = "An adapter trained the head or the embedding of a base in which these are tied: each was read apart."
        return [apart] if self._untied else []

    @property
    def absent(self) -> dict[str, str]:
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
        info = self._base.info(self._origin(name))
        shape = self._shapes.get(name, info.shape)
        return TensorInfo(shape, "float32") if name in self._changes else info

    def _origin(self, name: str) -> str:
        """Return the base's tensor that one is made from: the embedding for a head that was tied to it."""
        return (
            self._ends[0] if self._ends[0] and name == self._ends[1] and name not in self._base.tensor_names else name
        )

    def _content(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Read the bytes of one tensor, or of some rows of it, of the merged model."""
        origin = self._origin(name)
        if name not in self._changes:
            return self._base._content(origin, rows)
        change, info = self._changes[name], self._base.info(origin)
        scaled_apart = change.magnitude and change.transposed  # a length is that of a column: all rows are read
        read, part = (None, slice(None)) if rows is None or scaled_apart else (rows, slice(rows.start, rows.stop))
        if change.whole:
            merged = self._array(change.whole)[part]
        else:
            merged = values(self._base._content(origin, read), info.dtype).reshape(-1, *info.shape[1:])
        if change.first:
            left, right = self._array(change.second), self._array(change.first)
            if change.transposed:
                left, right = right.T, left.T
            with np.errstate(over="ignore", invalid="ignore"):  # the caller looks for NaN and Inf
                merged = merged + np.float32(change.scale) * (left[part] @ right)  # (outputs, rank) @ (rank, inputs)
        elif change.second:  # a bias
            merged = merged + np.float32(change.scale) * self._array(change.second)[part]
        if change.magnitude:
            lengths = np.linalg.norm(merged, axis=0 if change.transposed else 1)
            with np.errstate(divide="ignore", invalid="ignore"):
                scales = self._array(change.magnitude).reshape(-1)[part] / lengths
            merged = merged * (scales if change.transposed else scales[:, None])
        if scaled_apart and rows is not None:
            merged = merged[rows.start : rows.stop]
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
            raise self._other_kind((unlike or [str(kind)])[0][:40])

    def _other_kind(self, kind: str) -> CheckpointError:
        return CheckpointError(f"{self._label} is an adapter of a kind that is not merged here ({kind}); {_MERGE}")

    def _own_name(self) -> str:
        """Return the adapter's name, where its tensors have it; refuse two adapters in one file."""
        matches = [kind.fullmatch(_inner(n)) for n in self._adapter.header for kind in (_PAIR, _BIAS, _MAGNITUDE)]
        names = sorted(
            {"" if match["adapter"] in (None, "default") else match["adapter"] for match in matches if match}
        )
        if len(names) > 1:
            shown = " and ".join(one_line(name)[:40] if name else "one without a name" for name in names[:2])
            raise CheckpointError(f"{self._label} holds several adapters, {shown}; save one of them alone, with peft")
        return (names or [""])[0] or "default"

    def _refuse_twice(self, own: str) -> None:
        """Refuse two tensors of one name without what training left in it: a copy beside them, such as a mean."""
        holders: dict[str, str] = {}
        for name in self._adapter.header:
            inner = _inner(name)
            if match := next((m for kind in (_PAIR, _BIAS, _MAGNITUDE) if (m := kind.fullmatch(inner))), None):
                begin, end = match.span("adapter")
                inner = (inner if begin < 0 else inner[: begin - 1] + inner[end:]).removesuffix(".weight")
            inner = inner.replace(f".modules_to_save.{own}.", ".modules_to_save.")
            if (other := holders.setdefault(inner, name)) != name:
                raise CheckpointError(
                    f"{self._label}: {one_line(other)[:100]} and {one_line(name)[:100]} are both "
                    f"{one_line(inner)[:100]}, without what wrapped them in training; save one alone"
                )

    def _compared(self) -> dict[str, Change]:
        """Return what changes each tensor of the base, after comparing names and shapes."""
        changes: dict[str, Change] = {}
        pairs: dict[tuple[str, bool], dict[str, str]] = {}
        magnitudes: dict[str, str] = {}
        own = self._own_name()
        self._refuse_twice(own)
        trained = re.compile(rf"\.modules_to_save(?:\.{re.escape(own)})?(?=\.)")
        for name in sorted(self._adapter.header, key=lambda name: (".modules_to_save." in name, name)):
            info, inner = self._adapter.header[name], _inner(name)
            if match := _PAIR.fullmatch(inner):
                pairs.setdefault((match["module"], bool(match["embedding"])), {})[match["side"]] = name
            elif match := _BIAS.fullmatch(inner):
                target = self._found(f"{match['module']}.bias")
                if info.shape != self._base.info(target).shape:
                    raise self._unfit(target)
                changes[target] = Change(second=name, scale=self._scale(match["module"], self._rank(match["module"])))
            elif match := _MAGNITUDE.fullmatch(inner):
                magnitudes[match["module"]] = name
            elif "lora_" in inner:
                raise CheckpointError(
                    f"{self._label}: {one_line(name)[:100]} is no part of an adapter that is merged here"
                )
            else:
                target = self._found(trained.sub("", _BEFORE.sub("", inner)))
                if _BEFORE.search(inner):
                    self._as_before[target] = name
                    if target in changes:
                        continue  # what training made of it
                before = self._base.info(self._origin(target)).shape
                if info.shape != before:
                    if target not in self._ends or info.shape[1:] != before[1:]:
                        raise self._unfit(target)
                    self._shapes[target] = info.shape  # the vocabulary grew with the adapter, or shrank
                changes[target] = Change(name)
        for (module, embedding), sides in pairs.items():
            if sides.keys() != {"A", "B"}:
                raise CheckpointError(
                    f"{self._label}: {one_line(module)[:100]} lacks lora_A or lora_B; give the folder that peft saved"
                )
            target = self._found(f"{module}.weight")
            shape = self._shapes.get(target, self._base.info(self._origin(target)).shape)
            product = self._product(module, sides, shape, embedding)
            if magnitude := magnitudes.pop(module, ""):
                lengths, outputs = self._adapter.header[magnitude].shape, shape[1 if product.transposed else 0]
                if embedding:
                    raise self._other_kind("DoRA of an embedding")
                if math.prod(lengths) != outputs:
                    raise self._unfit(f"{module}.lora_magnitude_vector")
                product = product._replace(magnitude=magnitude)
            elif self._settings.get("use_dora"):
                raise self._unfit(f"{module}.lora_magnitude_vector")
            changes[target] = product._replace(whole=changes.get(target, product).whole)
        if magnitudes:
            raise self._unfit(f"{min(magnitudes)}.lora_magnitude_vector")
        return changes

    def _tied_apart(self) -> bool:
        """Whether the head, tied to the embedding in the base, has weights of its own in the model that was trained.

        peft trains either of them alone: a running adapter leaves the other as it was, though ``merge_and_unload`` may
        change both. The config says so then, and how many rows there are.
        """
        embedding, head = self._ends
        tied = bool(embedding and head) and head not in self._base.tensor_names
        if tied and head in self._shapes and embedding not in self._changes and head in self._as_before:
            # peft saves one end of those that were tied and grew: the other is as this one was before training
            self._changes[embedding] = Change(self._as_before[head])
            self._shapes[embedding] = self._adapter.header[self._as_before[head]].shape
        changed = [end for end in self._ends if end in self._changes]
        resized = {self._shapes[end][0] for end in changed if end in self._shapes}
        rows = {self.info(end).shape[0] for end in changed} if resized else resized
        if resized and len(changed) == 1 and not tied:
            rows |= {self._base.info(end).shape[0] for end in self._ends if end and end not in changed}
        if len(rows) > 1:
            raise self._unfit(next(iter(self._shapes)))
        if rows:
            self.config = {**self.config, "vocab_size": rows.pop()}
        untied = tied and bool(changed) and not (resized and changed == [embedding])
        if untied:
            self.config = {**self.config, "tie_word_embeddings": False}
        return untied

    def _product(self, module: str, sides: Mapping[str, str], shape: tuple[int, ...], embedding: bool) -> Change:
        """Compare A and B, of shapes (rank, inputs) and (outputs, rank), with the tensor that they change."""
        a, b = (self._adapter.header[sides[side]].shape for side in "AB")
        transposed = embedding or self._settings.get("fan_in_fan_out") is True
        if len(a) != 2 or len(b) != 2 or a[0] != b[1] or not a[0] or (b[0], a[1]) != shape[:: -1 if transposed else 1]:
            raise self._unfit(f"{module}.weight")
        scale = self._scale(module, a[0])
        return Change(first=sides["A"], second=sides["B"], scale=scale, transposed=transposed)

    def _rank(self, module: str) -> int:
        """Return the rank of a module's A."""
        for name, info in self._adapter.header.items():
            match = _PAIR.fullmatch(_inner(name))
            if match and match["module"] == module and match["side"] == "A" and info.shape and info.shape[0]:
                return info.shape[0]
        raise CheckpointError(
            f"{self._label}: {one_line(module)[:100]} lacks lora_A or lora_B; give the folder that peft saved"
        )

    def _scale(self, module: str, rank: int) -> float:
        alpha = self._alpha(module)
        if not isinstance(alpha, int | float) or not abs(alpha) < 1e30:
            raise CheckpointError(
                f"{self._label}: {CONFIG} has no number as its lora_alpha; state the one that it was trained with"
            )
        return float(alpha / (math.sqrt(rank) if self._settings.get("use_rslora") else rank))

    def _alpha(self, module: str) -> Any:
        """Return the alpha of a module: of a pattern that its name ends in (or is, after ``^``), else that of all."""
        patterns = self._settings.get("alpha_pattern") or {}
        if not isinstance(patterns, dict):
            raise CheckpointError(f"{self._label}: alpha_pattern in {CONFIG} is no table of patterns; {_MERGE}")
        for pattern, alpha in patterns.items():
            try:  # as peft asks, which takes the first that fits
                if regex.match(rf"(.*\.)?({pattern})$", module, timeout=_SECONDS):
                    return alpha
            except (regex.error, TimeoutError) as error:
                shown = one_line(pattern)[:60]
                why = "takes too long" if isinstance(error, TimeoutError) else "is no regular expression"
                raise CheckpointError(f"{self._label}: {CONFIG} has a pattern that {why}, {shown}; {_MERGE}") from error
        return self._settings.get("lora_alpha")

    def _found(self, name: str) -> str:
        """Return the base's own name of a tensor.

        It may lack, or have, what stands before a model with a head, or before the language part of one that does more.
        """
        if name == self._ends[1]:
            return name  # perhaps tied to the embedding in the base
        names = self._base.tensor_names
        longer = [known for known in names if known.endswith(f".{name}")]
        matches = [known for known in (name, name.partition(".")[2]) if known in names] or longer
        matches = matches or self._by_place.get(_BEFORE_ALL.sub("", name), [])
        if not matches or (len(matches) > 1 and matches[0] not in (name, name.partition(".")[2])):
            raise CheckpointError(
                f"{self._label} changes {one_line(name)[:100]}, which the base has not; give the base it was made for"
            )
        return matches[0]

    @cached_property
    def _by_place(self) -> dict[str, list[str]]:
        """The base's names by what is left of them without what stands before a language model."""
        places: dict[str, list[str]] = {}
        for name in self._base.tensor_names:
            places.setdefault(_BEFORE_ALL.sub("", name), []).append(name)
        return places

    def _unfit(self, name: str) -> CheckpointError:
        return CheckpointError(
            f"{self._label}: {one_line(name)[:100]} does not fit the base; give the base it was made for"
        )


def _inner(name: str) -> str:
    """Return the model's own name of what an adapter changes, without peft's and without what wrapped it in training.

    A tensor below `base_layer` keeps that, which tells it from what training made of it.
    """
    while (shorter := unwrapped(name).removeprefix("base_model.model.")) != name:
        name = shorter
    return name


def _ends(base: WeightFiles) -> tuple[str, str]:
    """Return the names of the embedding and of the head of a base; empty where its class, or its head, is unknown."""
    named = base.config.get("architectures")
    if sees(base.config) or not isinstance(named, list) or not named or not isinstance(named[0], str):
        return "", ""
    try:
        architecture = described(named[0])
    except UnknownArchitectureError:
        return "", ""
    embedding = architecture.prefix + architecture.parts[0].name
    heads = [part.name for part in architecture.parts if part.outside and part.segments[0].role == "head"]
    if embedding not in base.tensor_names or not heads:
        return "", ""
    tied = tying.declared(base.config).tied is not False
    return embedding, heads[0] if tied or heads[0] in base.tensor_names else ""
