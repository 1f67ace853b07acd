"""A shelf of fingerprints, and which of its models a new one is kin of.

A fingerprint of a 7B model has some 11 MB. Its rows are chosen before another model is seen, so each matching has
its own null law:

- Rows of the first hidden units of block 0, twice: of the up projection, and of the gate (of the down projection where
  there is none). *Up rows* is phi_U of these units. Whether units are sorted is tested over all units of all blocks,
  when the fingerprint is made, so this guard is that of a whole comparison. *Both rows* is phi_MATCH by these weights,
  which asks for no order.
- Rows of tokens that look untrained. The stream may have been rotated, and the rotation is found by the other tokens,
  whose table is too large to keep. So each row is kept by its inner products with rows of trained tokens, *anchors*,
  whitened: with W = X (X^T X)^(-1/2) of the anchors' rows X, these are coordinates of the row in a space that the
  tokens span, which no rotation changes. Tokens and anchors are the first by hashes of their spellings, so two models
  keep the same ones. *Untrained tokens* is phi_UNSEEN in these coordinates. Short random projections of the rows as
  they stand show which of them were drawn from one seed after training (`phi_unseen.drawn_alike`).

Holm over all tests of the shelf keeps the family-wise error. A model is kin where *both rows* rejects; else the answer
is weaker, see `Kin.outcomes`. An order and rows of untrained tokens are no kinship even together, as both can be given
to any model and change no output. Which kin may be the
nearest ancestor is `provlab.attest.nearest`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.attest import nearest as ancestors
from provlab.errors import CheckpointError, InputError, NotComparableError, ProvlabError, nearest
from provlab.inference import pvalues
from provlab.inference.matching import tie_seed, unit_rows
from provlab.kept import read_arrays, write_arrays
from provlab.models.canonical import applied, merged, silu
from provlab.plots.numbers import format_log10_p
from provlab.report import views
from provlab.report.card import OPEN, QUIET, RELATED, Card, in_short
from provlab.report.family import LEVEL
from provlab.statistics import order, phi_unseen
from provlab.statistics.alive import living_rows
from provlab.statistics.base import Model, Options
from provlab.statistics.order import OrderedRows
from provlab.statistics.phi_match import PhiMatch
from provlab.statistics.phi_u import correlation_with_identity, has_experts
from provlab.statistics.phi_unseen import LEAST, centred, untrained
from provlab.statistics.text import spellings
from provlab.statistics.two_views import Views, tied

SCHEMA = "provlab.shelf/3"
UNITS, TOKENS, ANCHORS = 512, 512, 2048  # rows of each kind that are kept, at most
SKETCH = 64  # dimensions of the projections of rows as they stand
_SHOWN = 8  # models on a card
_NODES = 24  # at which a normal input of a gate is seen
_RIDGE = 0.01  # of the mean eigenvalue of the anchors: directions that they hardly show are not blown up
UP, BOTH, UNSEEN = TESTS = ("up rows", "both rows", "untrained tokens")
KIN, ORDER, ROWS, NONE = "kin", "by order alone", "rows of one origin", "none"
NOT_TESTED = (
    "other blocks than the first, and units beyond the first "
    f"{UNITS}: a model whose units were put in another order, or whose stream was rotated, shows by its untrained "
    "tokens alone",
    "what units of these rows write on text: it is estimated by weights, and rows of untrained tokens can be copied "
    "at no cost; by activations, provlab compare asks how much agreeing units write",
    "sorts of both models by a rule unlike the keys that were tested: so agreement by order alone makes no kin",
    "models that are not on the shelf: none of them is no acquittal; provlab compare reads two models whole",
)
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
    sorted_by
        By which key the units of all blocks seem sorted most (`provlab.statistics.order.findings`); None without units.
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
        return cls(
            source, checkpoint.digest, up, second, written, **kept, width=anatomy.width, sorted_by=order_of_units
        )

    def write(self, shelf: Path) -> Path:
        """Put it on a shelf, under its digest."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        about = json.dumps({"schema": SCHEMA} | {name: values[name] for name in values.keys() - arrays.keys()})
        path = shelf / f"{self.digest[:24]}.npz"
        write_arrays(path, {"about": np.array(about), **arrays})
        return path

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
    units of one gate are brought together first (`provlab.models.canonical`).
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
    middle = (0.0 if bias is None else bias) + (0.0 if mean is None else rows @ mean)
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
    trained = _first(np.setdiff1d(np.flatnonzero(table.any(axis=1)), ids), codes, ANCHORS)
    ids = _first(ids, codes, TOKENS)
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


def _first(ids: NDArray[np.int64], codes: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Choose so many tokens, the same for all models: the first by a hash of what they are."""
    hashed = codes[ids].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.sort(ids[np.argsort(hashed ^ (hashed >> np.uint64(31)), kind="stable")[:most]])


def _coordinates(rows: NDArray[np.float64], anchors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows ``(n, d)`` in the space that anchors ``(m, d)`` span, ``(n, m)``: turned rows have the same coordinates."""
    if not (len(rows) and len(anchors)):
        return np.zeros((len(rows), len(anchors)))
    few = len(anchors) <= anchors.shape[1]
    values, vectors = np.linalg.eigh(anchors @ anchors.T if few else anchors.T @ anchors)
    values = np.maximum(values, 0)
    root = (vectors / np.sqrt(values + _RIDGE * values.mean())) @ vectors.T
    return np.asarray(rows @ anchors.T @ root if few else rows @ root @ anchors.T)


def _half(rows: NDArray[Any]) -> Rows:
    """Rows in half precision, all scaled by one number so that the largest entry is 1."""
    return np.asarray(rows / (np.abs(rows).max(initial=0.0) or 1.0), np.float16)


def log10_p(a: Fingerprint, b: Fingerprint, test: str) -> tuple[float, str]:
    """log10 p of one test of two fingerprints, and what qualifies it, in words.

    Raises
    ------
    ProvlabError
        There is none; the message says why.
    """
    return _by_tokens(a, b) if test == UNSEEN else _by_units(a, b, test)


def _by_units(a: Fingerprint, b: Fingerprint, test: str) -> tuple[float, str]:
    if a.width != b.width:
        raise NotComparableError(f"another width: {a.width} and {b.width}")
    if not (len(a.up) and len(b.up)):
        raise NotComparableError("a model has no up projection that all tokens pass")
    if test == UP:
        findings = [side.sorted_by or {"log10_p": 0.0} for side in (a, b)]
        sorts = [finding["log10_p"] for finding in findings]
        if min(sorts) <= np.log10(order.LEVEL) and max(sorts) <= np.log10(order.BESIDE):
            raise NotComparableError(order.why_withheld(findings))
        first, second = (living_rows(side.up.astype(np.float32), name=test)[0] for side in (a, b))
        return float(correlation_with_identity(first, second, 0, tie_seed(0, test, 0)).log10_p or 0.0), ""
    sides = []
    for side in (a, b):
        up, second = living_rows(side.up.astype(np.float32), side.second.astype(np.float32), name=test)
        written = side.written[up.places].astype(np.float64)
        sides.append(Views(second, up, np.zeros((0, 0), np.int64), written, tied(second, up)))
    result = PhiMatch().compare_block(sides[0], sides[1], 0, Options())
    if result.detail.withheld:
        raise NotComparableError(result.detail.withheld)
    return float(result.log10_p or 0.0), ""


def _by_tokens(a: Fingerprint, b: Fingerprint) -> tuple[float, str]:
    tokens, of_a, of_b = np.intersect1d(a.tokens, b.tokens, return_indices=True)
    if len(tokens) < LEAST:
        raise NotComparableError(f"{len(tokens)} tokens look untrained in both, and {LEAST} are needed")
    anchors, in_a, in_b = np.intersect1d(a.anchors, b.anchors, return_indices=True)
    if len(anchors) < LEAST:
        raise NotComparableError(f"the two share {len(anchors)} trained tokens that are kept, and {LEAST} are needed")
    one_width = a.width == b.width
    if one_width:  # else no row of one can be a row of the other as it stands
        streams = phi_unseen.of_the_streams(_sketched(a.anchor_sketch[in_a], b.anchor_sketch[in_b]))
        in_a, in_b = in_a[streams], in_b[streams]
    # in an order of its own, so that nothing that follows the numbers of the tokens looks like agreement
    mixed = np.random.default_rng(tie_seed(0, UNSEEN, "tokens")).permutation(len(tokens))
    of_a, of_b = of_a[mixed], of_b[mixed]
    note, sides = "", ((a, of_a, in_a), (b, of_b, in_b))
    own, others = (centred(side.unseen[ids][:, columns].astype(np.float64)) for side, ids, columns in sides)
    if one_width:
        alike = phi_unseen.drawn_alike(_sketched(a.sketch[of_a], b.sketch[of_b]), phi_unseen.cosines(own, others))
        if alike.any():
            note = phi_unseen.one_seed(UNSEEN, int(alike.sum()), len(alike))
            own, others = own[~alike], others[~alike]
        if len(own) < LEAST:
            raise NotComparableError(note)
    first, second = (unit_rows(centred(side), name=UNSEEN) for side in (own, others))
    return float(correlation_with_identity(first, second, None, tie_seed(0, UNSEEN, None)).log10_p or 0.0), note


def _sketched(first: Rows, second: Rows) -> NDArray[np.float64]:
    return phi_unseen.cosines(first.astype(np.float64), second.astype(np.float64))


@dataclass(frozen=True)
class Kin(views.Report):
    """The models of a shelf that one model is kin of.

    Attributes
    ----------
    source, digest
        The model.
    tests
        For each model of the shelf and each of `TESTS`: ``source``, ``digest``, ``test``, ``log10_p``,
        ``adjusted_log10_p`` by Holm, ``note``, what qualifies it, and ``error``, why there is none.
    nearest
        The kin among which the nearest ancestor on the shelf is, if any of them is an ancestor; see
        `provlab.attest.nearest`.
    """

    source: str
    digest: str
    tests: tuple[dict[str, Any], ...]
    nearest: tuple[str, ...] = ()

    @property
    def outcomes(self) -> dict[str, str]:
        """For each model of the shelf how it is related.

        "kin" where both rows of hidden units agree in any order; "rows of one origin" where untrained tokens do, be it
        with up rows; "by order alone" where up rows do, and nothing else; else "none".
        """
        rejecting: dict[str, set[str]] = {test["source"]: set() for test in self.tests}
        for test in self.tests:
            if test["error"] is None and test["adjusted_log10_p"] <= np.log10(LEVEL):
                rejecting[test["source"]].add(test["test"])
        return {
            source: KIN if BOTH in by else ROWS if UNSEEN in by else ORDER if UP in by else NONE
            for source, by in rejecting.items()
        }

    def _named(self, outcome: str) -> list[str]:
        return [source for source, reached in self.outcomes.items() if reached == outcome]

    def title(self) -> str:
        """Kin of which, at which level, or none."""
        return f"{self._answer()} ({self._level()})"

    def _answer(self) -> str:
        weaker = "".join(f"; {words}: {', '.join(some)}" for words in (ORDER, ROWS) if (some := self._named(words)))
        return f"{self.source}: kin of {', '.join(self._named(KIN)) or 'none'}{weaker}"

    def _level(self) -> str:
        tested = [test for test in self.tests if test["error"] is None]
        over = f"Holm over {len(tested)} tests on {len(self.tests) // len(TESTS)} models"
        return f"{over}, family-wise error at most {LEVEL}"

    def card(self) -> Card:
        """Which models are kin, each with its smallest p-value, how many are not, and what qualifies that."""
        rows = []
        found = [source for outcome in (KIN, ROWS, ORDER) for source in self._named(outcome)]
        for source in found[:_SHOWN]:
            tests = [test for test in self.tests if test["source"] == source and test["error"] is None]
            least = min(tests, key=lambda test: float(test["adjusted_log10_p"]))
            same = "identical" if least["digest"] == self.digest else self.outcomes[source]
            rows.append((source, same, format_log10_p(least["adjusted_log10_p"]), least["test"]))
        body: list[Any] = [views.Table(("model", "is", "log10 p, corrected", "by"), rows, right=(2,))] * bool(rows)
        beyond = f"; {len(found) - _SHOWN} more: -v" * (len(found) > _SHOWN)
        body.append(f"Found {len(found)} of {len(self.outcomes)} models of the shelf{beyond}.")
        failed = [f"{test['source']}: {test['test']}: {test['error']}" for test in self.tests if test["error"]]
        remarks = [
            ("nearest", in_short([self._ancestry().removeprefix("Nearest ancestor: ")]) if rows else ""),
            (
                "mind",
                in_short([*(words for outcome, words in _WEAKER.items() if self._named(outcome)), *self._notes()]),
            ),
            ("not run", in_short(failed)),
            ("not tested", in_short(NOT_TESTED, 210)),
            ("judged by", self._level()),
        ]
        tone = RELATED if self._named(KIN) else OPEN if found else QUIET
        return Card(f"{self._answer()}.", tone, body, [(label, text) for label, text in remarks if text])

    def _notes(self) -> list[str]:
        return [f"{test['source']}: {test['note']}" for test in self.tests if test["note"]]

    def parts(self) -> list[str | views.Table | views.Listed]:
        """A row for each test, what weaker answers mean, and the ways in which kin stay unseen."""
        same = {True: " (identical)", False: ""}
        values = [test["error"] or format_log10_p(test["adjusted_log10_p"]) for test in self.tests]
        names = [test["source"] + same[test["digest"] == self.digest] for test in self.tests]
        rows = list(zip(names, (test["test"] for test in self.tests), values, strict=True))
        parts: list[str | views.Table | views.Listed] = [
            views.Table(("model of the shelf", "test", "log10 p, corrected"), rows)
        ]
        for outcome, words in _WEAKER.items():
            if some := self._named(outcome):
                parts.append(f"{', '.join(some)}: {words}")
        parts += self._notes()
        parts.append(self._ancestry())
        return [*parts, views.Listed("Not tested", NOT_TESTED)]

    def _ancestry(self) -> str:
        """The set that holds the nearest ancestor, in words."""
        if not self.nearest:
            return "Nearest ancestor: none on this shelf, as far as these tests see kin."
        names = ", ".join(self.nearest)
        if any(test["digest"] == self.digest and test["source"] in self.nearest for test in self.tests):
            return f"Nearest ancestor: {names} is the same model, file by file."
        return (
            f"Nearest ancestor: among {names}, if any kin is an ancestor: kin may all be siblings and descendants. "
            f"Stated coverage {ancestors.COVERAGE:.0%}; {ancestors.COUNTED}. No such count is made of larger models."
        )

    def drawn(self) -> None:
        """No picture."""

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        about = {"outcomes": self.outcomes, "level": LEVEL, "not_tested": NOT_TESTED, "coverage": ancestors.COVERAGE}
        return {"schema": "provlab.identify/3", **vars(self), **about}


_WEAKER = {
    ORDER: "hidden units agree by order alone, and by no test that ignores it. A common origin does that, and so does "
    "one rule by which both were sorted; provlab compare can tell by activations.",
    ROWS: "the embedding rows of tokens that no text has are of one origin: a common ancestor, a common initial draw, "
    "or copied rows, which change no output, as an order of hidden units does not either. Nothing is said of the other "
    "weights; provlab compare can tell by activations.",
}


def identify(source: str, shelf: Path, *, allow_pickle: bool = False) -> Kin:
    """Say which models of a shelf a model is kin of.

    Raises
    ------
    ProvlabError
        The model cannot be opened, or the shelf is empty, damaged or of another version.
    """
    others = [kept for _, kept in fingerprints(shelf)]
    return answer(Fingerprint.of(source, Model.open(source, allow_pickle=allow_pickle)), others)


def fingerprints(shelf: Path) -> list[tuple[Path, Fingerprint]]:
    """Files and fingerprints of a shelf.

    Raises
    ------
    CheckpointError
        The shelf is empty, damaged or of another version.
    """
    paths = sorted(shelf.glob("*.npz"))
    if not paths:
        raise CheckpointError(f"{shelf} holds no fingerprints; make some by provlab shelf add MODEL --shelf {shelf}")
    return [(path, Fingerprint.read(path)) for path in paths]


def of_models(sources: Sequence[str], shelf: Path) -> list[tuple[Path, Fingerprint]]:
    """Those of some models, named as they were added; all are looked up before one is used.

    Raises
    ------
    InputError
        A model is not on the shelf.
    """
    entries = fingerprints(shelf)
    known = {kept.source: (path, kept) for path, kept in entries}
    for source in sources:
        if source not in known:
            hint = nearest(source, known) or f"; there are {', '.join(known)}"
            raise InputError(f"{source} is not on the shelf {shelf}{hint}")
    return [entry for entry in entries if entry[1].source in sources]


def answer(own: Fingerprint, others: Sequence[Fingerprint]) -> Kin:
    """Say which of the others the model of one fingerprint is kin of."""
    tests: list[dict[str, Any]] = []
    for other, name in product(others, TESTS):
        test: dict[str, Any] = {
            "source": other.source,
            "digest": other.digest,
            "test": name,
            "log10_p": None,
            "note": "",
            "error": None,
        }
        try:
            test["log10_p"], test["note"] = log10_p(own, other, name)
        except ProvlabError as error:
            test["error"] = str(error)
        tests.append(test | {"adjusted_log10_p": None})
    tested = [test for test in tests if test["error"] is None]
    for test, value in zip(tested, pvalues.holm(np.array([test["log10_p"] for test in tested])), strict=True):
        test["adjusted_log10_p"] = float(value)
    kin = Kin(own.source, own.digest, tuple(tests))
    return replace(kin, nearest=_nearest(own, others, kin))


def _nearest(own: Fingerprint, others: Sequence[Fingerprint], kin: Kin) -> tuple[str, ...]:
    """Kin that may be the nearest ancestor; one whose units stand elsewhere has no distance, and so may always be."""
    outcomes = kin.outcomes
    related = [other for other in others if outcomes[other.source] == KIN]
    if same := [other.source for other in related if other.digest == own.digest]:
        return tuple(same)
    in_place = {
        test["source"]
        for test in kin.tests
        if test["test"] == UP and test["error"] is None and test["adjusted_log10_p"] <= np.log10(LEVEL)
    }
    placed = [other for other in related if other.source in in_place]
    kept = ancestors.candidates(*ancestors.distances([(side.up, side.second) for side in (own, *placed)]))
    near = {placed[k - 1].source for k in kept}
    return tuple(other.source for other in related if other.source in near or other.source not in in_place)


def add(sources: Sequence[str], shelf: Path, *, allow_pickle: bool = False) -> list[Path]:
    """Put fingerprints of models on a shelf; all of them are read before the first is written."""
    made = [Fingerprint.of(source, Model.open(source, allow_pickle=allow_pickle)) for source in sources]
    return [fingerprint.write(shelf) for fingerprint in made]
