"""The protocol of a statistic: features made once per model, compared block by block, then aggregated.

A statistic of the papers compares two models through one or more *blocks* (transformer blocks, counted from 0; a
statistic of the whole model has the single block ``None``). A job of a study is (statistic, block) over all models, so
a statistic never sees a pair before both models' features of that block are there, and never reads a tensor twice.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NotComparableError
from provlab.files import digest
from provlab.reading.part import ADAPTER
from provlab.statistics.aggregate import aggregated, nothing_compared
from provlab.statistics.model import Model, tensor_names
from provlab.statistics.options import Options
from provlab.statistics.results import BlockResult, Detail, Outcome

Array = NDArray[np.float32]
#: what makes a p-value one: see `Statistic`
BY_THEOREM, CALIBRATED, UNCALIBRATED = "by theorem", "calibrated", "uncalibrated"
#: what agrees where a test rejects
Evidence = Literal["units", "order", "rows"]


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
        Raised whenever the same inputs would give other numbers, where no file holds the class, as in a notebook: a
        finished result counts for one version. The code of a file is known by itself (`provlab.codehash`).
    symbol : str
        In pictures, as TeX where it is mathematics, not inherited; by default what `provlab.statistics.symbol` makes of
        the name.
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
    spells : bool
        Whether it pairs tokens by their spellings, which a model's tokenizer has, where it reads no text.
    meets_all : bool
        Whether it can compare every block of one model with every block of the other (`provlab.engine.all_blocks`).
    permutes_units_alone : bool
        Whether its p-value rests on the order of hidden units, and of nothing that two adapters have from their base.
    needs_gates : bool
        Whether it compares gated MLPs alone.
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
    spells: ClassVar[bool] = False
    meets_all: ClassVar[bool] = False
    permutes_units_alone: ClassVar[bool] = False
    needs_gates: ClassVar[bool] = False
    recorded: ClassVar[type[Features] | None] = None
    taken_from: ClassVar[type[Features] | None] = None
    predicts: ClassVar[bool] = False

    def parameters(self, options: Options) -> dict[str, Any]:
        """Return the part of the options that this statistic's numbers depend on; None stands for what is not set."""
        values = {name: getattr(options, name) for name in self.settings}
        return {name: value for name, value in values.items() if value is not None or name == "vocab_size"}

    def reads_tokenizers(self, options: Options) -> bool:
        """Whether its numbers depend on tokenizers: by text, by random tokens that all models have, or by spellings."""
        return self.spells or bool(self.parameters(options).keys() & {"text_sha256", "vocab_size"})

    def identity(self, model: Model, options: Options) -> str:
        """Return what stands for a model in keys: its digest, with its tokenizer's where that is read.

        Weights that were read in part are none of the verified model's, whose files a pass over inputs needs whole.
        """
        checkpoint = model.checkpoint
        known: list[str | None] = [checkpoint.digest]
        if self.reads_tokenizers(options):
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
            if of.part_name == ADAPTER and self.assumptions and not self.permutes_units_alone:
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
        """Return a result; refuse what is no number, a p-value by an unchecked order, or one out of reach.

        Raises
        ------
        NotComparableError
            The value is no finite number; the statistic reads the order, and the detail holds no ``order``; or the
            reach was not set.
        """
        if not np.isfinite([result.value, result.log10_p or 0.0, result.reach]).all():
            raise NotComparableError(
                f"{self.name} gives {result.value:g} with a log10 p of {result.log10_p}: it has no value on this block"
            )
        if result.log10_p is not None and not result.why and result.log10_p < result.reach - 1e-6:
            raise NotComparableError(
                f"{self.name} gives a log10 p of {result.log10_p:.3g} and a reach of {result.reach:.3g}: set the reach "
                "of a BlockResult to the smallest log10 p that could have come out there"
            )
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
        why = f"{which or 'one of the two models'} has fewer than two hidden units there that write anything"
        nothing = Detail(n=0, agree=0, paper_log10_p=0.0)
        return BlockResult(block, 0.0, 0.0 if self.assumptions else None, 0.0, why, nothing)

    def outcome(self, blocks: Sequence[BlockResult]) -> Outcome:
        """`aggregate` of the blocks that were compared, beside those that were left out.

        Which blocks these are follows from each model's own weights, so the p-value of the others is one as before.
        """
        living = [block for block in blocks if not block.left_out]
        return replace(self.aggregate(living), blocks=tuple(blocks)) if living else nothing_compared(blocks)


def require_positions(statistic: Statistic, model: Model, options: Options) -> None:
    """Raise NotComparableError if the model's table of positions is shorter than the inputs."""
    if (positions := model.anatomy.longest) is not None and options.sequence_length > positions:
        raise NotComparableError(
            f"{statistic.name} reads sequences of {options.sequence_length} tokens, but {model.name} has only "
            f"{positions} positions; lower sequence_length"
        )
