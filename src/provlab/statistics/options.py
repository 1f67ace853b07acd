"""What a user may set of a comparison, and what each statistic records of it."""

import hashlib
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from provlab import machine
from provlab.errors import ParameterError
from provlab.files import digest
from provlab.reading.forms import Around

if TYPE_CHECKING:
    import torch

PASS = ("n_sequences", "sequence_length", "device", "dtype")  # options of a pass over inputs
DTYPES = ("float32", "float64", "bfloat16", "float16")  # in which models run, by torch's names


def _check_device(device: str) -> None:
    """Raise ParameterError unless torch can compute on `device` here."""
    if not isinstance(device, str):
        raise ParameterError(f"device must be text such as cpu or cuda:0, not {device!r}")
    if device == "cpu":
        return
    if device.lower() in ("gpu", "nvidia"):
        raise ParameterError(f"there is no device {device!r}; did you mean cuda?")
    import torch  # slow to import, and statistics on weights do without

    with machine.using_device(device):
        torch.zeros(1, device=device).tolist()  # the device "meta" makes tensors and holds no numbers


@dataclass(frozen=True)
class Options:
    """What a user may set; each statistic reads some of it and records just that.

    Attributes
    ----------
    seed : int
        Every random draw (tokens, permutations) derives from it.
    device, dtype : str
        Where models run, and all that is as large as their weights is computed (`provlab.arrays`): ``cpu``, ``cuda``;
        and in which precision they run: ``float32``, ``bfloat16``, ...
    n_permutations : int
        T of PERMTEST for the whole-model phi_l2 (the paper: 99).
    n_block_permutations : int
        T of PERMTEST for phi_l2_blocks.
    n_sequences, sequence_length : int
        Inputs of the activation statistics: uniformly random tokens (phi_h) or held-out text (phi_jsd, phi_match).
    activation_tokens : int
        Positions of these inputs at which MLP activations are kept: all, or a seeded sample of so many where there are
        more, so that the size of features does not grow with the text. At 16,384 gate and up of a 7B model take 46 GB
        of temporary files.
    text : str
        The held-out text; identified in records by its SHA-256.
    vocab_size : int or None
        Random tokens are drawn below it; ``None`` until a study sets it to the smallest vocabulary of its models.
    vocabulary : tuple of str or None
        Random tokens are drawn among these strings instead: set by a study where its models' tokenizers number the
        strings that they share differently. Identified in records by its SHA-256.
    around : pair of tuples of int, or None
        Ids before and after a text, or random tokens, for a model without a tokenizer that can be used: set by a study
        to what another's tokenizer writes there (`provlab.reading.forms.lent`). Part of what stands for the text, too.
    blocks : tuple of int or None
        Only these transformer blocks are recorded in a pass: set by a study where some were asked for.
    shared : tuple of (int, int) or None
        Tokens of the text, each as its place and an id: set by a study where its models' tokenizers cut the text
        differently, or one has none (`provlab.statistics.text.shared_tokens`). Part of what stands for the text.
    elsewhere : bool
        Others compute, perhaps on a device that this machine lacks.
    """

    seed: int = 0
    device: str = "cpu"
    dtype: str = "float32"
    n_permutations: int = 99
    n_block_permutations: int = 999
    n_sequences: int = 32
    sequence_length: int = 64
    activation_tokens: int = 16_384
    text: str = field(default="", repr=False)
    vocab_size: int | None = None
    vocabulary: tuple[str, ...] | None = field(default=None, repr=False)
    shared: tuple[tuple[int, int], ...] | None = field(default=None, repr=False)
    around: Around | None = field(default=None, repr=False)
    blocks: tuple[int, ...] | None = field(default=None, repr=False)
    elsewhere: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        counts = ("n_permutations", "n_block_permutations", "n_sequences", "sequence_length", "activation_tokens")
        for name, least in {**dict.fromkeys(counts, 1), "seed": 0}.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ParameterError(f"{name} must be a whole number of at least {least}, not {value!r}")
        if self.dtype not in DTYPES:
            meant = {"fp": "float", "bf": "bfloat", "f": "float"}
            digits = str(self.dtype).lower().lstrip("abcdefghijklmnopqrstuvwxyz_.")
            name = meant.get(str(self.dtype).lower().removesuffix(digits), "") + digits
            hint = f"; did you mean {name}?" if name in DTYPES else ""
            raise ParameterError(f"dtype must be {', '.join(DTYPES)}, not {self.dtype!r}{hint}")
        if not self.elsewhere:
            _check_device(self.device)

    @cached_property
    def text_sha256(self) -> str:
        """Hex SHA-256 that stands for the text in records, and for the choice of its tokens."""
        whole = hashlib.sha256(self.text.encode()).hexdigest()
        more = [given for given in (self.shared, self.around) if given is not None]
        return digest([whole, *more]) if more else whole

    @cached_property
    def vocabulary_sha256(self) -> str | None:
        """Hex SHA-256 that stands for the strings in records, None without them."""
        return None if self.vocabulary is None else digest(self.vocabulary)

    @property
    def torch_dtype(self) -> "torch.dtype":
        """The dtype as torch knows it."""
        import torch

        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    @property
    def kept_tokens(self) -> int:
        """Positions at which MLP activations are kept."""
        return min(self.n_sequences * self.sequence_length, self.activation_tokens)

    def kept_positions(self) -> NDArray[np.int64] | None:
        """Which positions these are, the same for every model; None for all."""
        from provlab.running.activations import sample_positions

        return sample_positions(self.n_sequences * self.sequence_length, self.activation_tokens, seed=self.seed)

    @property
    def sampled_tokens(self) -> int | None:
        """How many positions were drawn; None where all are kept."""
        return None if self.kept_tokens == self.n_sequences * self.sequence_length else self.kept_tokens

    def as_record(self) -> dict[str, Any]:
        """All options as JSON-able data, the text by its hash."""
        record = {**asdict(self), "text": self.text_sha256, "vocabulary": self.vocabulary_sha256}
        del record["blocks"], record["elsewhere"]  # each record says which
        return {**record, "shared": self.shared and len(self.shared)}
