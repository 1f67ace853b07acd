"""What one model writes, weighed: how far the other is from it there, and the outputs that it disputes most."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from provlab.modeldiff import where, words
from provlab.modeldiff.composition import composition
from provlab.modeldiff.drawing import Drawn, Losses, Range
from provlab.modeldiff.openings import Openings
from provlab.modeldiff.pipeline import SequenceModel
from provlab.modeldiff.representative import Direction, Draws, Side, within
from provlab.modeldiff.written import Written, if_normal, lines

_EXAMPLES, _TAIL = 3, 0.05  # of each end of D, and the share of inputs that an end is
_MEMBERS, _LINES = 2, 5  # of each group of disputed outputs; lines that are disputed most
_WORDS, _ABOUT, _NAMING = 4, 3, 30  # words that name a group, and others of its members; members that are read for them
_AFTER = 40  # characters of an opening's end
CHANGED = (
    0.1  # an output whose perplexity is higher by more than this share for one model than for the other is changed
)


@dataclass(frozen=True)
class Example:
    """An input of one model.

    Attributes
    ----------
    end
        Where it is from: ``D lowest``, ``D highest``, ``line``, or ``group``.
    after
        The end of the opening before it; empty where there is one for all.
    difference, nll
        D, and the loss under the model whose input it is (nats per token).
    text
        The input.
    tokens
        What each token adds to the text, and D there in nats; None where nothing predicts the token.
    """

    end: str
    difference: float
    nll: float
    text: str
    tokens: tuple[tuple[str, float | None], ...]
    after: str = ""


@dataclass(frozen=True)
class Disputed:
    """A line that one model writes and the other disputes most, with its near copies (`modeldiff.written.Line`)."""

    nats: float
    share: Sequence[float]
    divergence: Sequence[float]
    example: Example


@dataclass(frozen=True)
class Cluster:
    """Disputed outputs of one model whose difference lies at the same tokens, see `provlab.modeldiff.where.Group`.

    Attributes
    ----------
    words
        Those that carry most of the difference.
    about
        Words that are in many more of its members, or of what these follow, than of the others.
    """

    words: tuple[str, ...]
    about: tuple[str, ...]
    share: Sequence[float]
    divergence: Sequence[float]
    first: tuple[str, float] | None
    members: tuple[Example, ...]


@dataclass(frozen=True)
class Output:
    """Output of one model: how far the other's law is from its own there, and where.

    Attributes
    ----------
    divergence
        KL of the other model from this one, in nats per token: value, low, high.
    less_likely
        Share of the outputs that the other finds less likely.
    if_normal
        The share that a normal log ratio with this divergence would give (`provlab.modeldiff.written.if_normal`).
    worth
        Equally weighted draws that those of the outputs are worth.
    half
        The least share of the outputs that carries half of the divergence; None where no output differs.
    by_z
        For the outputs below Z, in Z and above Z: their share, and the share of the divergence that they carry.
    lines, groups
        The lines that the other disputes most, and groups of the outputs that carry half of the divergence.
    changed
        The share of the outputs whose perplexity changes by more than `CHANGED`.
    """

    divergence: Sequence[float]
    less_likely: Sequence[float]
    if_normal: float
    worth: float
    half: Sequence[float] | None = None
    by_z: dict[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    lines: tuple[Disputed, ...] = ()
    groups: tuple[Cluster, ...] = ()
    changed: Sequence[float] = (0.0, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Weighed:
    """One model's side of a comparison.

    Attributes
    ----------
    inputs
        Its inputs, with all draws in Z; empty for a model that wrote too few there.
    losses
        Where all its draws lie, beside Z.
    output
        What it writes: where the divergence is.
    examples
        Inputs in Z, from both ends of D.
    """

    inputs: Direction
    losses: Losses
    output: Output
    examples: tuple[Example, ...] = ()

    @classmethod
    def of_copy(cls, side: Side) -> "Weighed":
        """The side of a model that is compared with its own copy: nothing is drawn, and nothing can differ."""
        nowhere = Draws(np.empty((0, 1), np.int64), np.empty(0), np.empty(0), np.empty(0, np.int64), 0)
        inputs = Direction.from_draws(nowhere, np.empty(0), side, (0.0, 1.0))
        return cls(inputs, Losses(0, 0, 0.0, 0.0), Output((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.0, 0.0))


def weigh(drawn: Drawn, openings: Openings, z: Range, *, seed: int) -> Weighed:
    """Weigh what one of two models wrote, over all of it and over Z."""
    output = over(drawn.written, openings, z, seed=seed)
    return Weighed(drawn.inputs, drawn.losses, output, _ends(drawn, openings, seed))


def _shown(written: Written, rows: Sequence[int], end: str, openings: Openings) -> tuple[Example, ...]:
    """Rows of what a model writes, with D of each token."""
    own = 0 if written.side == "A" else 1
    first = [None] * (written.tokens.shape[1] - written.predictions)  # a first token that nothing predicts
    after = [_visible(text)[-_AFTER:] if len(openings) > 1 else "" for text in openings.texts]
    examples = []
    for row in rows:
        model = openings.behind[written.at[row]][own]
        pieces = map(_visible, model.pieces(written.tokens[row]))
        examples.append(
            Example(
                end,
                float(written.outputs.difference[row]),
                float(written.nll[row]),
                model.texts(written.tokens[row : row + 1])[0],
                tuple(zip(pieces, [*first, *map(float, written.by_token[row])], strict=True)),
                after[written.at[row]],
            )
        )
    return tuple(examples)


def _visible(text: str) -> str:
    """A text with its line ends made visible."""
    return repr(text)[1:-1]


def _ends(drawn: Drawn, openings: Openings, seed: int) -> tuple[Example, ...]:
    """Inputs of one model in Z from both ends of D, drawn by weight."""
    inputs = drawn.inputs
    edges = np.unique(inputs.quantile([0, _TAIL, 1 - _TAIL, 1]))
    if len(edges) < 2:
        return ()
    names = [(drawn.written.at[row], drawn.written.tokens[row].tobytes()) for row in drawn.rows]
    bins = composition(inputs, edges, labels={}, distinct=names, n_examples=_EXAMPLES, seed=seed)
    return tuple(
        example
        for end, part in (("D lowest", bins[0]), ("D highest", bins[-1]))
        for example in _shown(drawn.written, drawn.rows[part.examples].tolist(), end, openings)
    )


def over(written: Written, openings: Openings, z: Range | None, *, seed: int) -> Output:
    """Where the divergence is over what one model writes, or over the pieces of a text."""
    outputs = written.outputs
    divergence = written.mean(seed=seed)
    plain = Output(
        divergence,
        list(outputs.share(outputs.disagreement, seed=seed)),
        if_normal(written.predictions * divergence[0]),
        outputs.effective,
        changed=list(outputs.share(np.abs(outputs.difference) > np.log1p(CHANGED), seed=seed)),
    )
    if not (outputs.difference != 0).any():
        return plain
    half, disputed = written.half(seed=seed)
    parts = (
        {}
        if z is None
        else {"below Z": written.nll < z[0], "in Z": within(written.nll, z), "above Z": written.nll > z[1]}
    )
    return replace(
        plain,
        half=half,
        by_z={k: (written.share(v, seed=seed), written.share_of_divergence(v, seed=seed)) for k, v in parts.items()},
        lines=tuple(
            Disputed(line.nats, line.share, line.divergence, _shown(written, [line.row], "line", openings)[0])
            for line in lines(written, _LINES, seed=seed)
        ),
        groups=tuple(
            _named(written, group, openings) for group in where.groups(written, disputed, n_members=_MEMBERS, seed=seed)
        ),
    )


def _named(written: Written, group: where.Group, openings: Openings) -> Cluster:
    """A group by the words at which its difference lies, and by those that set its members apart."""
    own = 0 if written.side == "A" else 1

    def model(row: int) -> SequenceModel:
        return openings.behind[written.at[row]][own]

    def text(row: int) -> str:
        return f"{openings.texts[written.at[row]]} {''.join(model(row).pieces(written.tokens[row]))}"

    heaviest = group.heaviest[:_NAMING]
    spelt = [words.of_tokens(model(row).pieces(written.tokens[row])) for row in heaviest]
    inside = set(group.heaviest)
    others = [row for row in np.flatnonzero(written.own).tolist() if row not in inside]
    about = words.typical(
        [text(row) for row in heaviest], [text(row) for row in others[:: len(others) // 100 + 1]], _ABOUT
    )
    first = None
    if group.first:
        row, at, share = group.first
        first = words.of_tokens(model(row).pieces(written.tokens[row]))[at], share
    return Cluster(
        tuple(words.heaviest(spelt, np.maximum(written.toward[heaviest], 0.0), _WORDS)),
        tuple(about),
        group.share,
        group.divergence,
        first,
        _shown(written, group.rows, "group", openings),
    )
