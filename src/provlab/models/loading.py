"""Making the model of a checkpoint, and its tokenizer, with what transformers ships; no code of its own is run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import torch
import transformers

from provlab import machine
from provlab.errors import CheckpointError, InvalidWeightsError, one_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# transformers replaces functions of its classes while it loads a model, and puts back what it found: two loads at once
# in one process leave a replacement there for good, and no head is tied to its embedding any more
_loading = Lock()


class Loadable(Protocol):
    """The part of a `Checkpoint` that loading needs."""

    source: str
    config: dict[str, Any]

    @property
    def architecture(self) -> str:
        """As named in the config."""

    @property
    def pickled(self) -> bool:
        """Whether the weights are pickles."""

    def folder(self) -> Path:
        """Folder with everything that loading needs."""


def load_model(checkpoint: Loadable, dtype: torch.dtype | None, device: str) -> "PreTrainedModel":
    """Make the model, see `Checkpoint.load_model`."""
    _refuse_custom_code(checkpoint)
    model_class = getattr(transformers, checkpoint.architecture, None)
    if not (isinstance(model_class, type) and issubclass(model_class, transformers.PreTrainedModel)):
        raise CheckpointError(
            f"{checkpoint.source}: transformers {transformers.__version__} has no model {checkpoint.architecture}"
        )
    settings: dict[str, Any] = {
        "dtype": dtype or torch.float32,
        "local_files_only": True,
        "use_safetensors": not checkpoint.pickled,
        "trust_remote_code": False,
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # reported below in one line instead
    }
    try:
        with _loading, _quiet_transformers():
            loaded: Any = model_class.from_pretrained(checkpoint.folder(), **settings)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise CheckpointError(f"{checkpoint.source} cannot be loaded: {one_line(error)}") from error
    model, report = loaded
    if wrong := sorted(str(key) for key in (*report["missing_keys"], *report["mismatched_keys"])):
        raise InvalidWeightsError(
            f"{checkpoint.source} has no {wrong[0]} of the shape that its config.json says; copy it again"
        )
    with machine.using_device(device):
        return model.to(device).eval()


def tokenizer(checkpoint: Loadable) -> "PreTrainedTokenizerBase":
    """Make the tokenizer, see `Checkpoint.tokenizer`."""
    try:
        with _loading, _quiet_transformers():
            return transformers.AutoTokenizer.from_pretrained(
                checkpoint.folder(), local_files_only=True, trust_remote_code=False
            )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
        raise CheckpointError(f"{checkpoint.source} has no usable tokenizer: {one_line(error)}") from error


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
