"""Making the model of a checkpoint with what transformers ships; no code of its own is run."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import torch
import transformers

from provlab import machine
from provlab.errors import CheckpointError, InvalidWeightsError, UnknownArchitectureError, one_line
from provlab.reading import anatomy
from provlab.reading.architectures import KEYS
from provlab.reading.by_blocks import blocks_of, kept_on, run_by_blocks
from provlab.reading.files.container import TensorInfo
from provlab.reading.files.writing import write_safetensors
from provlab.reading.language import no_tokens
from provlab.reading.steps import runs_by_blocks
from provlab.reading.weights import renamings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# transformers replaces functions of its classes while it loads a model, and restores them afterwards: two loads at once
# in one process leave a replacement there for good, and no head is tied to its embedding any more
LOADING = Lock()

# keys of config.json by which transformers would read other weights than the hashed files, or fetch code; and settings
# of quantised weights, which are de-quantised here
_NOT_OBEYED = {"transformers_weights", "attn_implementation", "_attn_implementation", "experts_implementation"}
_NOT_OBEYED |= {"quantization_config", "quantization"}
DTYPES = {"dtype", "torch_dtype"}  # given here; some tools write it as torch spells it, torch.float16
_NOT_OBEYED |= DTYPES


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
        with _only_the_weights(checkpoint) as folder, LOADING, quiet_transformers():
            loaded: Any = model_class.from_pretrained(folder, **settings)
    except Exception as error:  # transformers' own checks of a config raise errors of many kinds
        raise CheckpointError(f"{checkpoint.source} cannot be loaded: {one_line(error)}") from error
    model, report = loaded
    # a key alone, or with its shape in the file and that of the model
    wrong = {
        key if isinstance(key, str) else key[0]: key for key in (*report["missing_keys"], *report["mismatched_keys"])
    }
    if wrong:
        name = min(wrong)
        shapes = (
            ""
            if isinstance(wrong[name], str)
            else " ({} in the file, {} by the config)".format(
                *(" x ".join(map(str, shape)) for shape in wrong[name][1:3])
            )
        )
        raise InvalidWeightsError(
            f"{checkpoint.source} has no {name} of the shape that its config.json says{shapes}; give the config and "
            "the weights of one model"
        )
    if any(p.ndim == 3 and any(n * p.itemsize % _ALIGNED for n in p.shape[1:]) for p in model.parameters()):
        model.set_experts_implementation("eager")  # the products of all experts at once refuse such widths
    return model


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
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).symlink_to(path.resolve())
        else:
            tensors = {name: TensorInfo(checkpoint.shape(name), "float32") for name in checkpoint.tensor_names}
            write_safetensors(folder / "model.safetensors", tensors, lambda name: [checkpoint.array(name)])
        (folder / "config.json").write_text(json.dumps(obeyed(checkpoint.config)), encoding="utf-8")
        yield folder


def obeyed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config, and those nested in it, without the keys and the tokens that are not obeyed."""
    absent = {*no_tokens(config)}
    kept = {
        key: obeyed(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if key not in _NOT_OBEYED | absent
    }
    return kept | dict.fromkeys(absent & {"pad_token_id"})  # whose default may be none of the tokens either


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
def quiet_transformers() -> Iterator[None]:
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
