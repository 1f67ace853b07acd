"""What a shelf keeps of one model, and its file.

A fingerprint of a 7B model has some 11 MB. Its rows are chosen before another model is seen:

- Rows of the first hidden units of block 0, twice: of the up projection, and of the gate (of the down projection where
  there is none). Whether units are sorted is tested over all units of all blocks, when the fingerprint is made, so this
  guard is that of a whole comparison.
- Rows of tokens that look untrained. The stream may have been rotated, and the rotation is found by the other tokens,
  whose table is too large to keep. So each row is kept by its inner products with rows of trained tokens, *anchors*,
  whitened: with W = X (X^T X)^(-1/2) of the anchors' rows X, these are coordinates of the row in a space that the
  tokens span, which no rotation changes. Tokens and anchors are the first by hashes of their spellings, so two models
  keep the same ones. Short random projections of the rows as they stand are kept beside them.

`provlab.attest.kin` reads two of them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, InputError, NotComparableError
from provlab.kept import read_arrays, write_arrays
from provlab.reading.canonical import applied, merged, silu
from provlab.report.decide import EQUAL, IDENTICAL
from provlab.report.described import described
from provlab.report.findings import of_models
from provlab.statistics import order, phi_unseen
from provlab.statistics.alive import living_rows
from provlab.statistics.model import Model
from provlab.statistics.order import OrderedRows
from provlab.statistics.phi_u import has_experts
from provlab.statistics.phi_unseen import LEAST, centred, untrained
from provlab.statistics.text import sampled, spellings

SCHEMA = "provlab.shelf/3"
UNITS, TOKENS, ANCHORS = 512, 512, 2048  # rows of each kind that are kept, at most
SKETCH = 64  # dimensions of the projections of rows as they stand
_NODES = 24  # at which a normal input of a gate is seen
_RIDGE = 0.01  # of the mean eigenvalue of the anchors: directions that they hardly show are not blown up
Rows = NDArray[np.float16]


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The rows that are kept of one model; arrays are empty where it has none of a kind.

    Attributes
    ----------
    up, second
        ``(units, width)``: rows of up projection and gate, or columns of the down projection.
    written
        ``(units,)``: what each of them writes of the block's output by weights, as if the kept units were all.
    unseen
        ``(tokens, anchors)``: coordinates of untrained tokens.
    tokens, anchors
        What each token is, see `provlab.statistics.text.spellings`.
    sketch, anchor_sketch
        ``(tokens, SKETCH)`` and ``(anchors, SKETCH)``: rows as they stand, projected.
    width
        Width of the residual stream.
    content, config
        `Checkpoint.content`, the same for the same tensors in other files, and `Checkpoint.config_digest`; "" where not
        known.
    sorted_by
        By which key the units of all blocks seem sorted most (`provlab.statistics.order.findings`); None without units.
    notes
        Sentences that qualify any answer about the model (`provlab.report.findings.of_models`).
    """

    source: str
    digest: str
    up: Rows
    second: Rows
    written: NDArray[np.float32]
    unseen: Rows
    tokens: NDArray[np.int64]
    anchors: NDArray[np.int64]
    sketch: Rows
    anchor_sketch: Rows
    width: int
    sorted_by: dict[str, Any] | None
    content: str = ""
    config: str = ""
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, source: str, model: Model) -> "Fingerprint":
        """Read a model.

        Raises
        ------
        NotComparableError
            It has neither an up projection that all tokens pass nor enough untrained tokens.
        """
        anatomy, checkpoint = model.anatomy, model.checkpoint
        hidden, order_of_units = _hidden(model), None
        if len(hidden[0]):
            order_of_units = _sorted_by(model)
        table = anatomy.read(checkpoint, "embedding", None)
        kept = of_embedding(table, spellings(checkpoint, len(table)))
        if order_of_units is None and len(kept["tokens"]) < LEAST:
            raise NotComparableError(f"{source} has nothing that a shelf keeps; compare it by provlab compare")
        up, second = (_half(rows) for rows in hidden)
        written = _written(model)[: len(up)] if len(up) else np.empty(0, np.float32)
        about: dict[str, Any] = {
            "width": anatomy.width,
            "sorted_by": order_of_units,
            "content": checkpoint.content or "",
            "config": checkpoint.config_digest,
            "notes": [words for _, words in of_models(described({source: model}))],
        }
        return cls(source, checkpoint.digest, up, second, written, **kept, **about)

    def write(self, shelf: Path) -> Path:
        """Put it on a shelf, under its digest."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        about = json.dumps({"schema": SCHEMA} | {name: values[name] for name in values.keys() - arrays.keys()})
        path = shelf / f"{self.digest[:24]}.npz"
        write_arrays(path, {"about": np.array(about), **arrays})
        return path

    def same_as(self, other: "Fingerprint") -> str:
        """Say whether two are of one model: "identical" by files, "equal in content" by tensors, else ""."""
        if self.digest == other.digest:
            return IDENTICAL
        return EQUAL if self.content and self.content == other.content else ""

    def about(self) -> str:
        """Describe in lines the rows that are kept of the model."""
        units = f"{len(self.up)} hidden units of block 0, width {self.width}" if len(self.up) else "no hidden units"
        return (
            f"{self.source}\n  digest {self.digest}\n  {units}\n"
            f"  {len(self.tokens)} tokens that look untrained, {len(self.anchors)} trained ones beside them"
        )

    @classmethod
    def read(cls, path: Path) -> "Fingerprint":
        """Read one of a shelf.

        Raises
        ------
        CheckpointError
            The file is damaged, or of another version.
        """
        arrays = read_arrays(path)
        again = "delete it and add its model again"
        try:
            about = json.loads(str(arrays.pop("about")))
            if about.pop("schema") == SCHEMA:
                return cls(**{**about, **arrays})
            again = f"make it again by provlab shelf add {about['source']} --shelf {path.parent}"
        except (KeyError, TypeError, ValueError, AttributeError):
            pass
        raise CheckpointError(f"{path} is no fingerprint of version {SCHEMA}; {again}")


def _hidden(model: Model) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows of the first hidden units, twice; empty without an up projection that all tokens pass."""
    anatomy, checkpoint = model.anatomy, model.checkpoint
    if not anatomy.has("up") or has_experts(model, 0):
        none = np.empty((0, anatomy.width), np.float32)
        return none, none
    units = min(UNITS, anatomy.shape("up", 0)[0])
    up = anatomy.read(checkpoint, "up", 0, units=units)
    if anatomy.has("gate"):
        return up, anatomy.read(checkpoint, "gate", 0, units=units)
    return up, np.ascontiguousarray(anatomy.read(checkpoint, "down", 0)[:, :units].T)


def _written(model: Model) -> NDArray[np.float32]:
    """Share of the output of block 0 that each hidden unit writes, by weights, times units over those that are kept.

    A gate g with bias b sees inputs of mean m and scale s in each dimension, the bias and weight of the norm before it:
    b + g.m plus normal noise of standard deviation |g s|. So a unit whose gate is shut by its bias writes nothing, and
    units of one gate are brought together first (`provlab.reading.canonical`).
    """
    anatomy, checkpoint = model.anatomy, model.checkpoint

    def read(role: str | None) -> NDArray[np.float32] | None:
        return anatomy.read(checkpoint, role, 0) if role and anatomy.has(role) else None

    key = "gate" if anatomy.has("gate") else "up"
    rows, bias, norm = read(key), read(f"{key}_bias"), anatomy.norm_before(key)
    up, down = anatomy.read(checkpoint, "up", 0), anatomy.read(checkpoint, "down", 0).T  # (units, width)
    assert rows is not None
    scale, mean = read(norm), read(f"{norm}_bias" if norm else None)
    spread = np.linalg.norm(rows if scale is None else rows * scale, axis=1)
    middle = (0.0 if bias is None else bias) + (0.0 if mean is None else rows @ mean)  # (units, width) @ (width,)
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    inputs = np.asarray(middle)[..., None] + spread[:, None] * nodes  # (units, nodes)
    fires = np.sqrt(np.square(silu(inputs)) @ (weights / weights.sum()))  # GELU differs little
    activity = fires * (np.linalg.norm(up, axis=1) if key == "gate" else 1.0)
    units = merged(rows if key == "gate" else None, up, down, activity)
    really = [np.linalg.norm(applied(units, side, role), axis=1) for side, role in ((up, "up"), (down, "down"))]
    squares = np.square(fires * really[1] * (really[0] if key == "gate" else really[0] > 0), dtype=np.float64)
    total = squares.sum()
    return np.asarray(squares / total * max(len(squares) / UNITS, 1.0) if total > 0 else squares, np.float32)


def _sorted_by(model: Model) -> dict[str, Any] | None:
    """Test the order of all units of all blocks, one block in memory at a time; None where no block has units."""
    orders = []
    for block in range(model.anatomy.n_blocks):
        if has_experts(model, block):
            continue
        try:
            (rows,) = living_rows(model.anatomy.read(model.checkpoint, "up", block), name="the up projection")
        except InputError:  # it has no units
            continue
        orders.append(OrderedRows.of(rows, called="up rows").order)
    return order.findings(orders, order.groups(orders)) if orders else None


def of_embedding(table: NDArray[np.float32], codes: NDArray[np.int64]) -> dict[str, Any]:
    """Arrays of a `Fingerprint` from an embedding ``(vocabulary, width)`` and what each token is, ``(vocabulary,)``."""
    ids, mean = untrained(table)
    trained = sampled(np.setdiff1d(np.flatnonzero(table.any(axis=1)), ids), codes, ANCHORS)
    ids = sampled(ids, codes, TOKENS)
    rows, anchors = table[ids].astype(np.float64), table[trained].astype(np.float64)
    rows = phi_unseen.without(rows, mean)
    onto = np.random.default_rng(table.shape[1]).standard_normal((table.shape[1], SKETCH))
    sketches = [centred(side) @ onto if len(side) else np.empty((0, SKETCH)) for side in (rows, anchors)]
    return {
        "unseen": _half(_coordinates(rows, anchors)),
        "tokens": codes[ids],
        "anchors": codes[trained],
        "sketch": _half(sketches[0]),
        "anchor_sketch": _half(sketches[1]),
    }


def _coordinates(rows: NDArray[np.float64], anchors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows ``(n, d)`` in the space that anchors ``(m, d)`` span, ``(n, m)``: turned rows have the same coordinates."""
    if not (len(rows) and len(anchors)):
        return np.zeros((len(rows), len(anchors)))
    few = len(anchors) <= anchors.shape[1]
    # (m, m) or (d, d), the smaller
    values, vectors = np.linalg.eigh(anchors @ anchors.T if few else anchors.T @ anchors)
    values = np.maximum(values, 0)
    root = (vectors / np.sqrt(values + _RIDGE * values.mean())) @ vectors.T  # as many on either side
    # (n, d) @ (d, m), with the root between
    return np.asarray(rows @ anchors.T @ root if few else rows @ root @ anchors.T)


def _half(rows: NDArray[Any]) -> Rows:
    """Rows in half precision, all scaled by one number so that the largest entry is 1."""
    return np.asarray(rows / (np.abs(rows).max(initial=0.0) or 1.0), np.float16)
