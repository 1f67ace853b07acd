"""The protocol of a statistic: features made once per model, compared block by block, then aggregated.

A statistic of the papers compares two models through one or more *blocks* (transformer blocks, counted from 0; a
statistic of the whole model has the single block ``None``). A job of a study is (statistic, block) over all models, so
a statistic never sees a pair before both models' features of that block are there, and never reads a tensor twice.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from provlab import machine
from provlab.errors import NotComparableError, ParameterError
from provlab.files import digest
from provlab.inference import pvalues
from provlab.models import anatomy
from provlab.models.checkpoint import Checkpoint
from provlab.models.formats.dtypes import itemsize
from provlab.models.part import ADAPTER
from provlab.statistics import order
from provlab.statistics.results import BlockResult, Detail, Outcome, withheld

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float32]

PASS = ("n_sequences", "sequence_length", "device", "dtype")  # options of a pass over inputs
#: what makes a p-value one: see `Statistic`
BY_THEOREM, CALIBRATED, UNCALIBRATED = "by theorem", "calibrated", "uncalibrated"
#: what agrees where a test rejects
Evidence = Literal["units", "order", "rows"]
DTYPES = ("float32", "float64", "bfloat16", "float16")  # in which models run, by torch's names

_elsewhere: ContextVar[bool] = ContextVar("provlab_elsewhere", default=False)


@contextmanager
def devices_elsewhere() -> Iterator[None]:
    """Within, options may name a device that this machine lacks: others will compute on it."""
    token = _elsewhere.set(True)
    try:
        yield
    finally:
        _elsewhere.reset(token)


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
    units : int or None
        Only so many hidden units of each block, of the model that has fewer, are matched among all of the other, by
        statistics that can; None for all. A product then costs that share of the whole.
    vocab_size : int or None
        Random tokens are drawn below it; ``None`` until a study sets it to the smallest vocabulary of its models.
    vocabulary : tuple of str or None
        Random tokens are drawn among these strings instead: set by a study where its models' tokenizers number the
        strings that they share differently. Identified in records by its SHA-256.
    blocks : tuple of int or None
        Only these transformer blocks are recorded in a pass: set by a study where some were asked for.
    shared : tuple of (int, int) or None
        Tokens of the text, each as its place and an id: set by a study where its models' tokenizers cut the text
        differently, or one has none (`provlab.statistics.text.shared_tokens`). Part of what stands for the text.
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
    units: int | None = None
    vocab_size: int | None = None
    vocabulary: tuple[str, ...] | None = field(default=None, repr=False)
    shared: tuple[tuple[int, int], ...] | None = field(default=None, repr=False)
    blocks: tuple[int, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        counts = ("n_permutations", "n_block_permutations", "n_sequences", "sequence_length", "activation_tokens")
        for name, least in {**dict.fromkeys(counts, 1), "seed": 0, "units": 2}.items():
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
            if not whole and (name, value) != ("units", None):
                raise ParameterError(f"{name} must be a whole number of at least {least}, not {value!r}")
        if self.dtype not in DTYPES:
            meant = {"fp": "float", "bf": "bfloat", "f": "float"}
            digits = str(self.dtype).lower().lstrip("abcdefghijklmnopqrstuvwxyz_.")
            name = meant.get(str(self.dtype).lower().removesuffix(digits), "") + digits
            hint = f"; did you mean {name}?" if name in DTYPES else ""
            raise ParameterError(f"dtype must be {', '.join(DTYPES)}, not {self.dtype!r}{hint}")
        if not _elsewhere.get():
            _check_device(self.device)

    @property
    def compared_units(self) -> int | None:
        """As `units`, under the name that records have: those of ``units`` are of the first of both models."""
        return self.units

    @cached_property
    def text_sha256(self) -> str:
        """Hex SHA-256 that stands for the text in records, and for the choice of its tokens."""
        whole = hashlib.sha256(self.text.encode()).hexdigest()
        return whole if self.shared is None else digest([whole, self.shared])

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
        from provlab.models.activations import sample_positions

        return sample_positions(self.n_sequences * self.sequence_length, self.activation_tokens, seed=self.seed)

    @property
    def sampled_tokens(self) -> int | None:
        """How many positions were drawn; None where all are kept."""
        return None if self.kept_tokens == self.n_sequences * self.sequence_length else self.kept_tokens

    def as_record(self) -> dict[str, Any]:
        """All options as JSON-able data, the text by its hash."""
        record = {**asdict(self), "text": self.text_sha256, "vocabulary": self.vocabulary_sha256}
        del record["blocks"]  # each record says which
        return {**record, "shared": self.shared and len(self.shared)}


@dataclass(frozen=True)
class Model:
    """A checkpoint and which of its tensors plays which part."""

    checkpoint: Checkpoint
    anatomy: anatomy.Anatomy

    @classmethod
    def open(cls, source: str, *, allow_pickle: bool = False, in_part: bool = False) -> "Model":
        """Open a source string (folder, hub id or scheme:name) and read its anatomy; see `Checkpoint.read_in_part`."""
        checkpoint = Checkpoint.open(source, allow_pickle=allow_pickle)
        if in_part:
            checkpoint.read_in_part()
        return cls(checkpoint, anatomy.of(checkpoint))

    @property
    def name(self) -> str:
        """Short label of the checkpoint."""
        return self.checkpoint.name


class Features(ABC):
    """Features that a statistic reads of one model; ``block(i)`` may read lazily and is called once per block.

    Arrays that it reads may be those of another statistic too: what is to be changed is copied first.
    """

    @abstractmethod
    def block(self, block: int | None) -> Any:
        """Features of one block, as `Statistic.compare_block` takes them."""

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays of recorded features by name: of a field ``gate`` that is a list, ``gate.0``, ``gate.1``, ..."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                arrays[name] = value
            elif isinstance(value, list):
                arrays |= {f"{name}.{i}": array for i, array in enumerate(value)}
        return arrays

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], model: "Model") -> "Features":
        """Rebuild features of the same model from `as_arrays`."""
        values: dict[str, Any] = {}
        for entry in fields(cls):  # type: ignore[arg-type]
            name = entry.name
            if entry.type in (Model, "Model"):
                values[name] = model
            elif name in arrays:
                values[name] = arrays[name]
            else:
                values[name] = [arrays[f"{name}.{i}"] for i in range(len(arrays)) if f"{name}.{i}" in arrays]
        return cls(**values)


class Statistic(ABC):
    """A statistic on pairs of models. Subclass it in a file of its own and register it.

    Class attributes
    ----------------
    name : str
        Key in commands and records.
    version : int
        Raised whenever the same inputs would give other numbers: stored records of older versions are not used.
    symbol : str
        In pictures, as TeX where it is mathematics; empty for its name.
    reads : str
        One line: what it reads of each model.
    assumptions : str
        Under which its p-value is one; empty for a raw value.
    warrant : str
        What makes its p-value one under these: `BY_THEOREM`; `CALIBRATED`, on independent models; or `UNCALIBRATED`,
        nothing yet, and then it decides nothing.
    evidence : str
        What agrees where its p-value is small: hidden "units" in any order; an "order" of units, or of dimensions, in
        the file; or "rows" of the embedding. Two models that were sorted by one rule look related to a statistic of an
        order. So it must hold ``order`` in the detail of each block, which
        `provlab.statistics.phi_u.correlation_with_identity` puts there for `provlab.statistics.order.OrderedRows`.
    roles : tuple of str, or None
        Tensors that it reads of a block; None for all of them, or for none where one pass recorded its features.
    settings : tuple of str
        Names of the options, or of properties of `Options`, that its numbers depend on.
    independent_blocks : bool
        Whether its p-values of several blocks are independent under the null, so that blocks may be read until settled.
    recorded : type of Features, or None
        What one pass of the model over its inputs leaves for all blocks: a dataclass whose fields are an array, or a
        list of arrays, or the `Model` itself. None where each block is read on its own.
    taken_from : type of Features, or None
        What another statistic records, of which `prepare_from` makes features of this one, so that a model is run once
        for both.
    predicts : bool
        Whether that is what the model predicts on the text, which a run over the text for activations gives, too.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    symbol: ClassVar[str] = ""
    reads: ClassVar[str]
    assumptions: ClassVar[str] = ""
    warrant: ClassVar[str] = UNCALIBRATED
    evidence: ClassVar[Evidence] = "order"
    roles: ClassVar[tuple[str, ...] | None] = None
    settings: ClassVar[tuple[str, ...]] = ()
    independent_blocks: ClassVar[bool] = False
    recorded: ClassVar[type[Features] | None] = None
    taken_from: ClassVar[type[Features] | None] = None
    predicts: ClassVar[bool] = False

    def parameters(self, options: Options) -> dict[str, Any]:
        """Return the part of the options that this statistic's numbers depend on; None stands for what is not set."""
        values = {name: getattr(options, name) for name in self.settings}
        return {name: value for name, value in values.items() if value is not None or name == "vocab_size"}

    def identity(self, model: Model, options: Options) -> str:
        """Return what stands for a model in keys: its digest, with its tokenizer's where inputs come through that.

        Weights that were read in part are none of the verified model's, whose files a pass over inputs needs whole.
        """
        checkpoint = model.checkpoint
        known: list[str | None] = [checkpoint.digest]
        if self.parameters(options).keys() & {"text_sha256", "vocabulary_sha256"}:
            known.append(checkpoint.tokenizer_digest)
        if self.recorded is None and checkpoint.unverified:
            known.append("read in part")
        return digest(known) if len(known) > 1 else checkpoint.digest

    def require(self, a: Model, b: Model) -> None:
        """Raise NotComparableError where no block of one model can be compared with any of the other."""
        return

    def require_parts(self, *models: Model) -> None:
        """Raise NotComparableError where a part of a model was asked for in which the statistic can read nothing."""
        for model in models:
            name, of = model.name, model.anatomy
            if of.part_name and self.recorded is not None:
                raise NotComparableError(f"{self.name} runs a model, and {name} is a part, compared by its weights")
            if of.part_name and not of.n_blocks:
                raise NotComparableError(f"{self.name} needs blocks, and {name} is a table alone; phi_e compares it")
            if of.part_name == ADAPTER and self.assumptions and self.name != "phi_u":
                raise NotComparableError(
                    f"{self.name} permutes inputs and outputs too, which two adapters have from their base; phi_u "
                    "permutes the units between A and B alone"
                )

    def blocks(self, a: Model, b: Model) -> list[int | None]:
        """List the blocks at which a pair is compared; raise NotComparableError where the statistic does not apply."""
        self.require_parts(a, b)
        self.require(a, b)
        if a.anatomy.n_blocks != b.anatomy.n_blocks:
            raise NotComparableError(
                f"{self.name} compares block with block, but {a.name} has {a.anatomy.n_blocks} and "
                f"{b.name} {b.anatomy.n_blocks} blocks"
            )
        return list(range(a.anatomy.n_blocks))

    @abstractmethod
    def prepare(self, model: Model, options: Options) -> Features:
        """Make (or arrange to read) one model's features, once for all its pairs."""

    def prepare_from(self, features: Features, model: Model) -> Features:
        """Make one model's features of those that a statistic left which records `taken_from`, by the same options."""
        raise NotImplementedError(f"{self.name} names taken_from, and makes nothing of it")

    def tensors(self, model: Model, partner: Model, block: int | None, options: Options) -> dict[str, int | None]:
        """Tensors of `model` that are read to compare one block with `partner`, and how many first rows (None: all)."""
        if self.recorded is not None and self.roles is None:
            return {}
        return dict.fromkeys(tensor_names(model.anatomy, block, self.roles))

    @abstractmethod
    def compare_block(self, a: Any, b: Any, block: int | None, options: Options) -> BlockResult:
        """Compare two models' features of one block."""

    def checked(self, result: BlockResult) -> BlockResult:
        """Return a result; refuse a p-value by the order of units beside which no check of this order stands.

        Raises
        ------
        NotComparableError
            The statistic reads the order, and the detail holds no ``order``.
        """
        if self.evidence == "order" and result.log10_p is not None and result.detail.order is None:
            raise NotComparableError(
                f"{self.name} gives p-values, and nothing checks whether its units were sorted: compare OrderedRows by "
                "correlation_with_identity, or set evidence = 'units' if no order of the units changes the p-value"
            )
        return result

    def aggregate(self, blocks: Sequence[BlockResult]) -> Outcome:
        """Bring the blocks of one pair together: Fisher over their p-values, or the mean of a score without them."""
        return aggregated(blocks)

    def without(self, block: int | None, sides: Sequence[bool]) -> BlockResult:
        """Stand in for a block that is left out, as `sides` (first, second) have no two units alive there.

        `sides` is empty where it is not known which.
        """
        which = " and ".join(w for w, s in zip(("the first", "the second"), sides, strict=False) if s)
        has = f"{which or 'one of the two models'} has fewer than two hidden units there that write anything"
        has = has if block is None else f"block {block} is left out, as {has}"
        nothing = Detail(n=0, agree=0, floor=0.0, power=0.0, paper_log10_p=0.0, left_out=True, withheld=has)
        return BlockResult(block, 0.0, 0.0 if self.assumptions else None, nothing)

    def outcome(self, blocks: Sequence[BlockResult]) -> Outcome:
        """`aggregate` of the blocks that were compared, beside those that were left out.

        Which blocks these are follows from each model's own weights, so the p-value of the others is one as before.
        """
        living = [block for block in blocks if not block.detail.left_out]
        if len(living) == len(blocks):
            return self.aggregate(blocks)
        if not living:
            return withheld(Outcome(0.0, None, tuple(blocks)), f"{blocks[0].detail.withheld}; so is every other one")
        return replace(self.aggregate(living), blocks=tuple(blocks))


def tensor_names(of: anatomy.Anatomy, block: int | None, roles: Sequence[str] | None = None) -> list[str]:
    """Tensors of one block, in the order of the anatomy; of some roles, those that hold any of them."""
    return [
        part.name
        for part in of.parts
        if part.block == block and (roles is None or any(segment.role in roles for segment in part.segments))
    ]


def tensor_bytes(model: Model, name: str, rows: int | None = None) -> int:
    """Bytes of a tensor, or of so many of its rows, in its file."""
    return numel(model, name, rows) * itemsize(model.checkpoint.dtype(name))


def numel(model: Model, name: str, rows: int | None = None) -> int:
    """Numbers in a tensor, or in so many of its rows."""
    first, *others = *model.checkpoint.shape(name), 1
    return math.prod((first if rows is None else rows, *others))


def require_positions(statistic: Statistic, model: Model, options: Options) -> None:
    """Raise NotComparableError if the model's table of positions is shorter than the inputs."""
    if (positions := model.anatomy.longest) is not None and options.sequence_length > positions:
        raise NotComparableError(
            f"{statistic.name} reads sequences of {options.sequence_length} tokens, but {model.name} has only "
            f"{positions} positions; lower sequence_length"
        )


def aggregated(blocks: Sequence[BlockResult]) -> Outcome:
    """Aggregate the blocks of one pair; a single result of the whole model (block None) stands for itself.

    p-values are combined by Fisher's method (Algorithm 3), which is valid where blocks are independent under the null;
    Theorem 2 gives that for statistics of MATCH per block. Blocks that stand in one order in both models are one test
    first, by Bonferroni. So are their floors; the paper's two-sided p-values, where they are known, are combined as the
    paper does. The value is the mean over blocks. Where both models are sorted there is no p-value
    (`provlab.statistics.order`).
    """
    first = blocks[0]
    about = Detail()
    labels = np.arange(len(blocks))
    if first.detail.order is not None:
        about, labels = order.of_pair([block.detail.needed("order") for block in blocks])
    if first.block is None:
        outcome = Outcome(first.value, first.log10_p, tuple(blocks), first.detail.floor, first.detail | about)
        return withheld(outcome, about.withheld) if about.withheld else outcome
    value = float(np.mean([block.value for block in blocks]))
    if first.log10_p is None:
        return Outcome(value, None, tuple(blocks))

    def fisher(numbers: list[Any], labels: NDArray[np.int64]) -> float:
        return pvalues.fisher(order.bonferroni(np.array(numbers), labels))

    if first.detail.paper_log10_p is not None:
        paper = [block.detail.needed("paper_log10_p") for block in blocks]
        about = replace(about, paper_log10_p=fisher(paper, np.arange(len(blocks))))
    if len(np.unique(labels)) < len(blocks):
        about = replace(about, together=labels.tolist())
    log10_p = fisher([block.log10_p for block in blocks], labels)
    floor = fisher([block.detail.needed("floor") for block in blocks], labels)
    outcome = Outcome(value, log10_p, tuple(blocks), floor, about)
    return withheld(outcome, about.withheld) if about.withheld else outcome
