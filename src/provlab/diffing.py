"""The second question as a function: `diff` says over which inputs two models disagree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab import plugins
from provlab.errors import InputError, NotComparableError, ParameterError, ProvlabError
from provlab.files import cache_dir
from provlab.kept import ArrayCache
from provlab.machine import keep_freed_memory
from provlab.modeldiff import excess, held_out, pipeline, reading, where
from provlab.modeldiff.comparison import Summary
from provlab.modeldiff.composition import composition
from provlab.modeldiff.generation import checked_tempers
from provlab.modeldiff.held_out import N_PIECES
from provlab.modeldiff.items import answered
from provlab.modeldiff.pipeline import N_CHAINS, Exchange, Generation, SequenceModel
from provlab.modeldiff.reading import Reading
from provlab.modeldiff.representative import Direction, Draws, Side, checked_range, within
from provlab.modeldiff.tokens import SharedTokens, opening, shared_tokens
from provlab.modeldiff.written import Written, by_law, if_normal, lines, rounding
from provlab.models.checkpoint import identical
from provlab.report.difference import Difference
from provlab.report.outputs import Cluster, Disputed, Example, Output
from provlab.report.views import describe
from provlab.statistics.options import Options

_EXAMPLES, _TAIL = 3, 0.05  # of each end of D, and the share of inputs that an end is
_SIDES: tuple[Side, Side] = ("A", "B")
_MEMBERS, _LINES = 2, 5  # of each group of disputed outputs; lines that are disputed most
_NOWHERE = -2.0, -1.0  # a range that no loss lies in


def diff(
    a: str | Path,
    b: str | Path,
    *,
    text: str | None = None,
    prompt: str | None = None,
    items: Sequence[Mapping[str, Any]] = (),
    references: Sequence[str | Path] = (),
    length: int = 25,
    z: tuple[float, float] | None = None,
    shares: tuple[float, float] = (0.05, 0.5),
    n: int = 4000,
    tempers: Sequence[float] = (1.0,),
    exchange_steps: int = 0,
    seed: int = 0,
    device: str = "cpu",
    dtype: str = "float32",
    allow_pickle: bool = False,
    results: str | Path | None = None,
    progress: bool = True,
) -> Difference:
    """Say over which inputs two language models disagree (Model-diff).

    Parameters
    ----------
    a, b : str or Path
        Each a local checkpoint folder, a hub id ``org/name[@revision]``, or ``zoo:NAME``; of one tokenizer.
    text : str, optional
        Held-out text from whose losses Z is taken, and which both models read; by default prose that no zoo model was
        trained on.
    prompt : str, optional
        Inputs are what follows it, in each model's own chat template where it has one. Then no text is read, and Z is
        taken from the losses of what both models write.
    items : sequence of mapping
        Questions with answers, each as plain data: what lm-eval's ``--log_samples`` wrote, or ``prompt``, ``answer``
        and perhaps ``choices`` (`provlab.modeldiff.items`). Which answers changed, with a paired test. Then no text is
        read unless given.
    references : sequence of str or Path
        Models of A's recipe with other seeds: what a second training changes, beside which the difference is shown.
    length : int
        Tokens of an input.
    z : tuple of float, optional
        The range of mean token loss (nats) that makes an input one of a model's; then no text is read unless given.
    shares : tuple of float
        Otherwise Z lies between these quantiles of the losses under both models together.
    n : int
        Sequences that each model writes.
    tempers : sequence of float
        Exponents of what the models write with, see `provlab.modeldiff.generation.write`: above 1 for lower losses.
    exchange_steps : int
        Steps of replica exchange, the paper's way, as a second opinion; 0 for none. It has no start token before
        inputs, and then the others have none either.
    seed : int
        The seed of all draws; each model draws numbers of its own from it.
    device, dtype : str
        Where the models run, and in which precision.
    allow_pickle : bool
        Also open ``.bin`` weights, with ``weights_only=True``.
    results : str or Path, optional
        Folder of finished draws, where a run that was stopped goes on; by default one in provlab's cache.
    progress : bool
        Show bars on stderr.

    Raises
    ------
    ProvlabError
        If a model cannot be opened, the models share no tokenizer, or neither wrote inputs in Z; the message names the
        way out.
    """
    options = Options(seed=seed, device=device, dtype=dtype)
    for name, value, least in (("length", length, 2), ("n", n, 2 * N_CHAINS), ("exchange_steps", exchange_steps, 0)):
        if not isinstance(value, int) or value < least:
            raise ParameterError(f"{name} must be a whole number of at least {least}, not {value!r}")
    for name, content in (("text", text), ("prompt", prompt)):
        if content is not None and not content.strip():
            raise InputError(f"the {name} is empty; give some words")
    if prompt is not None and (text is not None or exchange_steps):
        raise InputError("a prompt goes with neither a text nor replica exchange; leave the one or the other out")
    z = None if z is None else checked_range(z)
    if not 0 <= shares[0] < shares[1] <= 1:
        raise InputError(f"shares must rise within 0 to 1, not {tuple(shares)}")
    settings = Generation(n, length, checked_tempers(tempers), N_CHAINS, seed)
    a, b, others = str(a), str(b), [str(source) for source in references]
    models = pipeline.open_models(
        [a, b, *others],
        opening=(lambda _: []) if exchange_steps else partial(opening, prompt=prompt),
        device=device,
        dtype=options.torch_dtype,
        allow_pickle=allow_pickle,
        progress=progress,
    )
    roles = ["A", "B", *(f"reference {k}" for k in range(1, len(others) + 1))]
    for (role, source), (role_2, other) in combinations(zip(roles, [a, b, *others], strict=True), 2):
        if identical([models[source].checkpoint, models[other].checkpoint]):
            raise InputError(
                f"{role} ({source}) and {role_2} ({other}) are identical, so they disagree nowhere; "
                "give different models"
            )
    pair = models[a], models[b]
    shared = shared_tokens([model.checkpoint for model in models.values()], controls=False)
    if not shared.named:
        raise NotComparableError(
            f"neither {pair[0].name} nor {pair[1].name} has a tokenizer; copy it beside the weights"
        )
    kept = ArrayCache(Path(results) if results else cache_dir() / "modeldiff")
    keep_freed_memory()
    of_text, rule = None, "the losses of what both models write"
    if text is not None or (prompt is None and z is None and not items):
        cut = held_out.pieces(pair[0].encode(_text(text)), length, N_PIECES, seed=seed)
        of_text = reading.read(list(models.values()), cut, kept)
        where_read = f"the {'given text' if text else 'held-out prose'}"
        rule = f"the losses of {len(cut)} pieces of {where_read} under both models"
    ranges = "as given" if z else f"the {shares[0]:.0%} and {shares[1]:.0%} quantiles of {rule}"
    drawn, floor = _drawn(pair, settings, kept)
    written = [side.written for side in drawn]
    if z is None:
        z = checked_range(_quantiles(of_text.nll[:2], shares) if of_text else _own_range(written, shares))
    if of_text is None:
        where_read = "what A writes"
        of_text_loss, read = None, reading.read(list(models.values()), _sample(written[0], seed), kept)
    else:
        of_text_loss, read = _text_loss(of_text), of_text
    words = {"tokens": _tokens_compared(shared), "start": _start(pair, prompt), "z": ranges}
    inputs = [_inputs(side, model, part, z, words) for side, model, part in zip(_SIDES, pair, drawn, strict=True)]
    apart = excess.apart(read.distances, where_read, others)
    parameters = {"length": length, "shares": list(shares), "n": n, "tempers": list(settings.tempers), "seed": seed}
    parameters |= {"device": device, "dtype": dtype, "n_chains": N_CHAINS, "exchange_steps": exchange_steps}
    parameters |= {"prompt": prompt, "references": others, "mixed": settings.tempers == (1.0,)}
    return Difference(
        (describe(a, pair[0].checkpoint), describe(b, pair[1].checkpoint)),
        z,
        (inputs[0], inputs[1]),
        (_output(written[0], pair, z, seed), _output(written[1], pair, z, seed)),
        apart,
        floor,
        parameters,
        words,
        of_text_loss,
        (_ends(inputs[0], written[0], pair, seed), _ends(inputs[1], written[1], pair, seed)),
        _exchanged(*pair, z, length, exchange_steps, kept, seed=seed) if exchange_steps else None,
        answered(*pair, items, seed=seed) if items else None,
    )


def _text(text: str | None) -> str:
    if text is None and (text := plugins.default_text()) is None:
        raise InputError("there is no held-out text here; give one by text or --text")
    return text


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Draws that stand for one model's inputs, their loss under the other one, and what the model writes."""

    draws: Draws
    other: NDArray[np.float64]
    written: Written


def _drawn(
    pair: tuple[SequenceModel, SequenceModel], settings: Generation, kept: ArrayCache
) -> tuple[list[_Drawn], float]:
    """What both models wrote, and the largest difference of losses that rounding alone makes (nats per token)."""
    raw = [pipeline.generated(model, settings, kept) for model in pair]
    mixed = settings.tempers == (1.0,)
    if mixed:
        read = [reading.read(pair, np.concatenate([draws.tokens for draws in raw]), kept)] * 2
        of_own = [read[0].nll[0, : len(raw[0])], read[0].nll[1, len(raw[0]) :]]
    else:
        read = [reading.read(pair, draws.tokens, kept) for draws in raw]
        of_own = [read[0].nll[0], read[1].nll[1]]
    # the same losses, as the model wrote token by token and as it read all at once, and what this makes of D
    floor = sum(
        rounding(draws.nll, own, model.nll.spacing) for draws, own, model in zip(raw, of_own, pair, strict=True)
    )
    result, predictions = [], pair[0].nll.predictions(settings.length)
    losses = [_rounded_off(part.nll, floor) for part in read]
    if mixed:
        log_q = [model.nll.log_first - predictions * nll for model, nll in zip(pair, losses[0], strict=True)]
        draws = list(pipeline.one_sample(raw, list(losses[0]), log_q))
    else:
        draws = [replace(part, nll=losses[k][k]) for k, part in enumerate(raw)]
    for k, (side, part) in enumerate(zip(_SIDES, draws, strict=True)):
        others = losses[k][1 - k]
        own = np.ones(len(others), dtype=bool)
        if mixed:
            own[len(raw[0]) :], own[: len(raw[0])] = k == 1, k == 0
        by_token = (read[k].loss[0] - read[k].loss[1]).astype(np.float64)
        of_next = read[k].divergence[k, 1 - k].astype(np.float64)
        law = by_law(part, others, side, predictions)
        result.append(_Drawn(part, others, Written(law, read[k].tokens, by_token, of_next, own)))
    return result, floor


def _rounded_off(losses: NDArray[np.float64], floor: float) -> NDArray[np.float64]:
    """Losses under A and B, ``(2, n)``, B's as A's where they differ by no more than rounding."""
    a, b = losses
    return np.stack([a, np.where(np.abs(a - b) <= floor, a, b)])


def _quantiles(losses: NDArray[np.float64], shares: tuple[float, float]) -> tuple[float, float]:
    low, high = np.quantile(losses, shares)
    return float(low), float(high)


def _text_loss(read: Reading) -> list[Any]:
    """Mean loss of a text under A and under B, and B's less A's with its interval."""
    a, b = read.nll[:2]
    return [float(a.mean()), float(b.mean()), excess.mean_of(b - a)]


def _sample(written: Written, seed: int) -> NDArray[np.integer[Any]]:
    """Some of what a model writes, chain by chain."""
    weight, chain = written.outputs.weight, written.outputs.chain
    rows = np.random.default_rng(seed).choice(len(weight), N_PIECES, p=weight / weight.sum())
    return written.tokens[rows[np.argsort(chain[rows], kind="stable")]]


def _own_range(written: Sequence[Written], shares: tuple[float, float]) -> tuple[float, float]:
    """Two quantiles of the losses of what each of two models writes, both models counting alike."""
    sides = [side.outputs for side in written]
    losses = np.concatenate([side.draws.nll for side in sides if side.draws is not None])
    weights = np.concatenate([side.weight / side.weight.sum() for side in sides])
    low, high = np.quantile(losses, shares, weights=weights, method="inverted_cdf")
    return float(low), float(high) if high > low else float(np.nextafter(high, np.inf))


def _inputs(
    side: Side, model: SequenceModel, drawn: _Drawn, z: tuple[float, float], words: dict[str, str]
) -> Direction:
    """The draws in Z; none, and a reason in `words`, where they are too few."""
    draws = drawn.draws
    inside = within(draws.nll, z)
    if len(np.unique(draws.chain[inside])) < 2:
        low, high = np.quantile(draws.nll, [0.01, 0.99])
        words[f"empty {side}"] = (
            f"{model.name} has {int(inside.sum())} of {len(draws)} sequences with a loss in Z = [{z[0]:g}, {z[1]:g}], "
            f"too few; most have {low:.3g} to {high:.3g}: move Z there, write more, or, for lower losses, with tempers "
            "such as 1, 1.15, 1.3"
        )
        return Direction.from_draws(draws.within(_NOWHERE), drawn.other[:0], side, z)
    return Direction.from_draws(draws.within(z), drawn.other[inside], side, z)


def _shown(
    written: Written, rows: Sequence[int], end: str, pair: tuple[SequenceModel, SequenceModel]
) -> tuple[Example, ...]:
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


def _ends(
    inputs: Direction, written: Written, pair: tuple[SequenceModel, SequenceModel], seed: int
) -> tuple[Example, ...]:
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


def _output(written: Written, pair: tuple[SequenceModel, SequenceModel], z: tuple[float, float], seed: int) -> Output:
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


def _exchanged(
    a: SequenceModel, b: SequenceModel, z: tuple[float, float], length: int, steps: int, kept: ArrayCache, *, seed: int
) -> Summary | str:
    """Compare by replica exchange, or say why that gives no number."""
    settings = Exchange(length, n_steps=steps, seed=seed)
    try:
        return pipeline.model_diff(a, b, z, settings, kept).summary(seed=seed)
    except ProvlabError as error:
        return str(error)


def _start(pair: tuple[SequenceModel, SequenceModel], prompt: str | None) -> str:
    """Say what stands before inputs."""
    if not len(pair[0].nll.start):
        return "Nothing stands before it: its first token, in ‹ ›, is any of these and not judged."
    if prompt is None:
        return "Each model reads its start token before it, as in training."
    talks = [name for name, model in zip("AB", pair, strict=True) if model.checkpoint.tokenizer().chat_template]
    template = f", which {' and '.join(talks)} read{'s' * (len(talks) == 1)} in a chat template" if talks else ""
    begin = repr(prompt if len(prompt) <= 80 else f"{prompt[:79]}…")
    return f"It follows the prompt {begin} of {len(prompt):,} characters{template}."


def _tokens_compared(shared: SharedTokens) -> str:
    """Say of which tokens inputs are made."""
    sentence = f"Inputs are made of the {len(shared.ids[0]):,} tokens that both models have"
    if any(shared.left_out):
        sentence += f"; {shared.left_out[0]:,} of A's ids and {shared.left_out[1]:,} of B's are not among them"
    if shared.moved:
        sentence += f"; {shared.moved:,} have another id in B and are paired by their strings"
    return sentence + "."
