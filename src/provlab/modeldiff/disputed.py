"""What one model writes, weighed: how far the other is from it there, and the outputs that it disputes most."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from provlab.modeldiff import where
from provlab.modeldiff.composition import composition
from provlab.modeldiff.drawing import Drawn, Losses, Pair, Range
from provlab.modeldiff.representative import Direction, Draws, Side, within
from provlab.modeldiff.written import Written, if_normal, lines

_EXAMPLES, _TAIL = 3, 0.05  # of each end of D, and the share of inputs that an end is
_MEMBERS, _LINES = 2, 5  # of each group of disputed outputs; lines that are disputed most


@dataclass(frozen=True)
class Example:
    """An input of one model.

    Attributes
    ----------
    end
        Where it is from: ``D lowest``, ``D highest``, ``line``, or ``group``.
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


@dataclass(frozen=True)
class Disputed:
    """A line that one model writes and the other disputes most, with its near copies (`modeldiff.written.Line`)."""

    nats: float
    share: Sequence[float]
    divergence: Sequence[float]
    example: Example


@dataclass(frozen=True)
class Cluster:
    """Disputed outputs of one model whose difference lies at the same tokens, see `provlab.modeldiff.where.Group`."""

    tokens: tuple[str, ...]
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
    """

    divergence: Sequence[float]
    less_likely: Sequence[float]
    if_normal: float
    worth: float
    half: Sequence[float] | None = None
    by_z: dict[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    lines: tuple[Disputed, ...] = ()
    groups: tuple[Cluster, ...] = ()


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


def weigh(drawn: Drawn, pair: Pair, z: Range, *, seed: int) -> Weighed:
    """Weigh what one of two models wrote, over all of it and over Z."""
    output = _output(drawn.written, pair, z, seed)
    return Weighed(drawn.inputs, drawn.losses, output, _ends(drawn.inputs, drawn.written, pair, seed))


def _shown(written: Written, rows: Sequence[int], end: str, pair: Pair) -> tuple[Example, ...]:
    """Rows of what a model writes, with D of each token."""
    own = 0 if written.side == "A" else 1
    first = [None] * (written.tokens.shape[1] - written.predictions)  # a first token that nothing predicts
    assert written.outputs.draws is not None  # only an enumeration has none
    return tuple(
        Example(
            end,
            float(written.outputs.difference[row]),
            float(written.outputs.draws.nll[row]),
            pair[own].texts(written.tokens[row : row + 1])[0],
            tuple(
                zip(pair[own].pieces(written.tokens[row]), [*first, *map(float, written.by_token[row])], strict=True)
            ),
        )
        for row in rows
    )


def _ends(inputs: Direction, written: Written, pair: Pair, seed: int) -> tuple[Example, ...]:
    """Inputs of one model in Z from both ends of D, drawn by weight."""
    edges = np.unique(inputs.quantile([0, _TAIL, 1 - _TAIL, 1]))
    if len(edges) < 2:
        return ()
    assert inputs.draws is not None  # only an enumeration has none
    names = [row.tobytes() for row in inputs.draws.tokens]
    bins = composition(inputs, edges, labels={}, distinct=names, n_examples=_EXAMPLES, seed=seed)
    of_draw = {row.tobytes(): k for k, row in enumerate(written.tokens)}
    lowest, highest = ([of_draw[names[k]] for k in part.examples.tolist()] for part in (bins[0], bins[-1]))
    return *_shown(written, lowest, "D lowest", pair), *_shown(written, highest, "D highest", pair)


def _output(written: Written, pair: Pair, z: Range, seed: int) -> Output:
    """Where the divergence is over what one model writes."""
    outputs = written.outputs
    assert outputs.draws is not None  # only an enumeration has none
    divergence = written.mean(seed=seed)
    plain = Output(
        divergence,
        list(outputs.share(outputs.disagreement, seed=seed)),
        if_normal(written.predictions * divergence[0]),
        outputs.effective,
    )
    if not (outputs.difference != 0).any():
        return plain
    half, disputed = written.half(seed=seed)
    nll = outputs.draws.nll
    parts = {"below Z": nll < z[0], "in Z": within(nll, z), "above Z": nll > z[1]}

    def text(token: int) -> str:
        return pair[0].pieces(np.array([token]))[0]

    return replace(
        plain,
        half=half,
        by_z={k: (written.share(v, seed=seed), written.share_of_divergence(v, seed=seed)) for k, v in parts.items()},
        lines=tuple(
            Disputed(line.nats, line.share, line.divergence, _shown(written, [line.row], "line", pair)[0])
            for line in lines(written, _LINES, seed=seed)
        ),
        groups=tuple(
            Cluster(
                tuple(map(text, group.tokens)),
                group.share,
                group.divergence,
                group.first and (text(group.first[0]), group.first[1]),
                _shown(written, group.rows, "group", pair),
            )
            for group in where.groups(written, disputed, n_members=_MEMBERS, seed=seed)
        ),
    )
