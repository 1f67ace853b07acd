"""Results of a statistic: of each block, with what aggregation and verdict need beside the number; and the outcome.

Evidence is p, ability is reach, and silence is a reach of 0 with its reason. A result that could say nothing keeps the
p-value that is valid, has ``reach`` 0, and says ``why`` in one sentence.

All three are frozen. A `Detail` has a field for each thing that more than one module reads; what a statistic alone
reads again stands under ``own``. As JSON a detail is the mapping of those that are set, ``own`` among them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NotComparableError, ParameterError
from provlab.inference import pvalues
from provlab.inference.matching import UnitRows

FIELDS = 2  # raised when a result has other fields: 1 kept floors, powers and reasons in its detail
FEW = "too few hidden units may count for any p-value below 1"


class MissingDetailError(NotComparableError):
    """A result lacks what is read of it: another version kept it, or a statistic left it out."""


@dataclass(frozen=True, kw_only=True)
class Detail:
    """A result but for its number. A field that nothing was written to is None.

    Attributes
    ----------
    n, agree : int
        Units compared (positions, for phi_jsd; dimensions, for phi_axes), and those with one partner by both matchings.
    paper_log10_p : float
        The paper's form of the p-value, log10.
    common : int
        Dimensions that independent models are allowed to share (phi_axes).
    dropped : list of int
        How many units of the first and of the second model were left out, as they do nothing of their own.
    without : list of int
        Which units these are, of the model with fewer, if they are few (phi_match).
    order : list of mapping
        What is known of the order of a block's units, of either model (`provlab.statistics.order.described`); of
        an outcome, the `provlab.statistics.order.findings` of either model.
    together : list of int
        A label for each block, of an outcome alone; blocks of one label depend on each other and count as one test.
    zeros : list of int, or str
        `provlab.statistics.alive.zeros_alike` of a block of phi_u; of its outcome, the sentence about them.
    written : list of float
        Share of the block's output that the units which agree write, of either model (phi_match).
    tied : list of float
        Mean size of the cosine between the gate and the up row of a unit, of either model (phi_match).
    experts : int
        How many pairs of experts were compared (`provlab.statistics.experts.best`).
    pair : list of str
        Which of these the p-value is that of.
    anchor : int
        Which model was the anchor of the smaller p-value, 0 or 1 (phi_anchor).
    distances : list of float
        Squared Frobenius norms ``(1 + copies,)`` of differences: the block's, and its permuted copies' (phi_l2).
    stream : list of mapping
        As ``order``, of the dimensions of the residual stream (phi_l2).
    rounding, spread : float
        Divergence in nats of a model from itself in fewer bits, and of one position from the next (phi_jsd).
    unit : float
        Largest relative error of a number of these bits (phi_jsd).
    losses, frequencies : list of float
        Loss in nats of the next token, of either model, and of the frequencies of the tokens that it read (phi_jsd).
    forms : list of str
        In which form either model read the text (phi_jsd; `provlab.reading.forms`).
    partner : int
        The block of the second model that this block of the first is nearest to, where all meet all.
    all_blocks : mapping
        What was found where all blocks met all (`provlab.engine.all_blocks`); of an outcome alone.
    said : str
        A sentence about the result for the verdict.
    own : mapping
        Name -> what the statistic alone reads again; JSON-able. No name is a field's, as a record is one mapping.

    Raises
    ------
    ParameterError
        A name of ``own`` is a field's: a finished result would be read back otherwise than it was.
    """

    n: int | None = None
    agree: int | None = None
    paper_log10_p: float | None = None
    common: int | None = None
    dropped: list[int] | None = None
    without: list[int] | None = None
    order: Sequence[Mapping[str, Any]] | None = None
    together: list[int] | None = None
    zeros: list[int] | str | None = None
    written: list[float] | None = None
    tied: list[float] | None = None
    experts: int | None = None
    pair: list[str] | None = None
    anchor: int | None = None
    distances: list[float] | None = None
    stream: Sequence[Mapping[str, Any]] | None = None
    rounding: float | None = None
    spread: float | None = None
    unit: float | None = None
    losses: list[float] | None = None
    frequencies: list[float] | None = None
    forms: list[str] | None = None
    partner: int | None = None
    all_blocks: Mapping[str, Any] | None = None
    said: str | None = None
    own: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if known := sorted(NAMES & self.own.keys()):
            raise ParameterError(
                f"own holds {known[0]}, which is a field of Detail; set the field, or name it otherwise"
            )

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Detail":
        """Read what `as_record` wrote; a key that is no field is the statistic's own."""
        known = {name: value for name, value in record.items() if name in NAMES}
        return cls(**known, own={name: value for name, value in record.items() if name not in NAMES})

    def as_record(self) -> dict[str, Any]:
        """Return what is set, as JSON-able data."""
        values = {name: getattr(self, name) for name in NAMES}
        return {name: value for name, value in values.items() if value is not None} | dict(self.own)

    def __or__(self, other: "Detail") -> "Detail":
        """Return both; where both have a field set, the other's."""
        return Detail.from_record(self.as_record() | other.as_record())

    def needed(self, name: str) -> Any:
        """Return a field that must be set.

        Raises
        ------
        MissingDetailError
            It is not.
        """
        if (value := getattr(self, name)) is None:
            raise MissingDetailError(f"a result holds no {name} in its detail, and what is made of it needs that")
        return value


NAMES = frozenset(each.name for each in fields(Detail)) - {"own"}


@dataclass(frozen=True)
class BlockResult:
    """One statistic on one block of one pair.

    Attributes
    ----------
    block : int or None
        Counted from 0; None for a statistic of the whole model.
    value, log10_p : float
        The raw statistic, and its log10 p where it has one: what is valid, even if the block could say nothing.
    reach : float
        The smallest log10 p that could have come out here; 0: it could say nothing.
    why : str or None
        One sentence, why the reach is 0.
    detail : Detail
        What aggregation and verdict need as well.
    matching : array or None
        ``(h,)`` int64, the partner of each hidden unit, for statistics that match units; ``(2, h)`` for phi_MATCH, by
        gate and by up. Where units were left out, of each that stayed, on the side that has fewer of these.
    """

    block: int | None
    value: float
    log10_p: float | None = None
    reach: float = 0.0
    why: str | None = None
    detail: Detail = field(default_factory=Detail)
    matching: NDArray[np.int64] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_record(cls, record: Mapping[str, Any], matching: NDArray[np.int64] | None = None) -> "BlockResult":
        """Read what `as_record` wrote; what stands for a pair of blocks is none that can be counted."""
        block = record["block"] if isinstance(record["block"], int) else None
        if "reach" not in record:
            raise MissingDetailError("a result holds no reach: it was kept by another version")
        numbers = record["value"], record["log10_p"], record["reach"], record.get("why")
        return cls(block, *numbers, Detail.from_record(record["detail"]), matching)

    def as_record(self) -> dict[str, Any]:
        """Return all but the matching, as JSON-able data."""
        numbers = {name: getattr(self, name) for name in ("block", "value", "log10_p", "reach", "why")}
        return {**numbers, "detail": self.detail.as_record()}

    @property
    def left_out(self) -> bool:
        """Whether the block has no units that could be compared (`provlab.statistics.alive`)."""
        return self.detail.n == 0

    def about(self, **values: Any) -> "BlockResult":
        """Return the same with these fields of the detail."""
        return replace(self, detail=replace(self.detail, **values))


@dataclass(frozen=True)
class Outcome:
    """One statistic on one pair: the aggregate over blocks, and the blocks.

    Attributes
    ----------
    value : float
        The raw statistic (mean Spearman correlation over blocks, minus a distance, a divergence in nats).
    log10_p : float or None
        The log10 p of the aggregate; None for a statistic that yields no p-value, and where none is valid.
    reach : float
        The smallest log10 p that could have come out; 0: it could say nothing.
    why : str or None
        One sentence, why the reach is 0 or there is no p-value.
    detail : Detail
        What is known of it beside that.
    """

    value: float
    log10_p: float | None
    blocks: tuple[BlockResult, ...]
    reach: float = 0.0
    why: str | None = None
    detail: Detail = field(default_factory=Detail)

    def about(self, **values: Any) -> "Outcome":
        """Return the same with these fields of the detail."""
        return replace(self, detail=replace(self.detail, **values))

    def without_p(self, why: str) -> "Outcome":
        """Return the same without its p-value in any form, and why it has none."""
        return replace(self, log10_p=None, reach=0.0, why=why).about(paper_log10_p=None)


def floor(result: BlockResult | Outcome) -> float:
    """The smallest log10 p that could have come out: what did come out could, also where a copy may be missed."""
    return result.reach if result.log10_p is None else min(result.reach, result.log10_p)


def reachable(reaches: Sequence[float]) -> NDArray[np.float64]:
    """What blocks could have given to a thief who goes on: ``(blocks,)``, 0 for the strongest k where k are silent.

    Units that silence a test cost little, so who silenced k blocks may have trained as many others again, or left them
    out: those that speak loudest. Where half of the blocks are silent, nothing is left.
    """
    could = np.minimum(np.asarray(reaches, dtype=np.float64), 0.0)
    could[np.argsort(could, kind="stable")[: int((could == 0).sum())]] = 0.0
    return could


def silence(blocks: Sequence[BlockResult]) -> str | None:
    """The reason that most silent blocks give, and how many are silent; None where none is."""
    reasons = Counter(block.why for block in blocks if block.why)
    return f"{reasons.total()} of {len(blocks)} blocks: {reasons.most_common(1)[0][0]}" if reasons else None


#: at which a pair of blocks is found, by Holm over all pairs
FOUND = 0.01
_SHOWN = 12  # pairs of blocks that a verdict names


def of_all_blocks(log10_p: NDArray[np.float64], compared: int) -> tuple[NDArray[np.float64], dict[str, Any], str]:
    """Bring the p-values of all pairs of blocks together, ``(blocks of one, blocks of the other)``.

    Returns
    -------
    tuple
        The p-values by Holm over all pairs; what `Detail.all_blocks` holds; and which pairs were found, in words. Pairs
        beyond the `compared` ones count as no evidence.
    """
    holm = pvalues.holm(log10_p.ravel()).reshape(log10_p.shape)
    found = np.argwhere(holm <= np.log10(FOUND)).tolist()
    lost = holm.size - compared
    everywhere = {"shape": list(holm.shape), "found": found, "not_compared": lost, "log10_p": log10_p.tolist()}
    words = ", ".join(f"{i} with {j}" for i, j in found[:_SHOWN]) or "none"
    words += f" and {len(found) - _SHOWN} more" * (len(found) > _SHOWN)
    return holm, everywhere, words + f"; {lost} pairs could not be compared" * bool(lost)


def of_matching(correlation: pvalues.Spearman, first: NDArray[np.int64], second: NDArray[np.int64]) -> Detail:
    """Detail of a block whose p-value is Spearman's of two matchings ``(n,)``."""
    return Detail(n=correlation.n, agree=int((first == second).sum()), paper_log10_p=correlation.paper_log10_p)


def dropped(a: UnitRows, b: UnitRows) -> list[int] | None:
    """How many units of either side were left out; None where none was."""
    counts = [len(side.left_out) for side in (a, b)]
    return counts if any(counts) else None
