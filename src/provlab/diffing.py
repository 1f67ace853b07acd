"""The second question as a function: `diff` says over which inputs two models disagree."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab import plugins
from provlab.errors import InputError, NotComparableError, ParameterError, ProvlabError
from provlab.files import cache_dir
from provlab.kept import Kept
from provlab.modeldiff import excess, pipeline, where
from provlab.modeldiff.comparison import Summary
from provlab.modeldiff.composition import composition
from provlab.modeldiff.generation import checked_tempers
from provlab.modeldiff.held_out import N_PIECES, HeldOut
from provlab.modeldiff.pipeline import N_CHAINS, Exchange, Generation, Model
from provlab.modeldiff.representative import Direction, Draws, Side, checked_range, within
from provlab.modeldiff.tokens import SharedTokens, opening, shared_tokens
from provlab.models.checkpoint import identical
from provlab.report.difference import Cluster, Difference, Example
from provlab.report.views import describe
from provlab.statistics.base import Options

_EXAMPLES, _TAIL = 3, 0.05  # of each end of D, and the share of inputs that an end is
_SIDES: tuple[Side, Side] = ("A", "B")
_MEMBERS = 2  # of each group of disputed inputs
_NOWHERE = -2.0, -1.0  # a range that no loss lies in


def diff(
    a: str | Path,
    b: str | Path,
    *,
    text: str | None = None,
    prompt: str | None = None,
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
    for both in combinations([a, b, *others], 2):
        if identical(models[source].checkpoint for source in both):
            raise InputError(f"{' and '.join(both)} are identical, so they disagree nowhere; give different models")
    pair = models[a], models[b]
    shared = shared_tokens([model.checkpoint for model in models.values()], controls=False)
    if not shared.named:
        raise NotComparableError(
            f"neither {pair[0].name} nor {pair[1].name} has a tokenizer; copy it beside the weights"
        )
    kept = Kept(Path(results) if results else cache_dir() / "modeldiff")
    text_loss, name, rule = None, "what A writes", "the losses of what both models write"
    if text is not None or (prompt is None and z is None):
        held_out = HeldOut({"text": _text(text)}, N_PIECES, kept, seed)
        losses = held_out.each_loss(pair, length)
        text_loss = [*losses.mean(axis=1).tolist(), excess.mean_of(losses[1] - losses[0])]
        name = f"the {'given text' if text else 'held-out prose'}"
        rule = f"the losses of {N_PIECES} pieces of {name} under both models"
    ranges = "as given" if z else f"the {shares[0]:.0%} and {shares[1]:.0%} quantiles of {rule}"
    drawn = _drawn(pair, settings, kept)
    predictions = pair[0].nll.predictions(length)
    own = [excess.written(draws, other, side, predictions) for side, (draws, other) in zip(_SIDES, drawn, strict=True)]
    if z is None:
        z = held_out.range_of(*pair, length, shares) if text_loss else _own_range(own, shares)
    read = held_out.pieces(pair[0], length) if text_loss else _sample(own[0], drawn[0][0], seed)
    words = {"tokens": _tokens_compared(shared), "start": _start(pair, prompt), "z": ranges}
    inputs = [_inputs(side, model, *judged, z, words) for side, model, judged in zip(_SIDES, pair, drawn, strict=True)]
    if not any(inputs):
        raise NotComparableError(words["empty A"])
    apart = excess.apart(*pair, [models[source] for source in others], read, name, inputs[0], kept)
    parameters = {"length": length, "shares": list(shares), "n": n, "tempers": list(settings.tempers), "seed": seed}
    parameters |= {"device": device, "dtype": dtype, "n_chains": N_CHAINS, "exchange_steps": exchange_steps}
    parameters |= {"prompt": prompt, "references": others, "mixed": settings.tempers == (1.0,)}
    return Difference(
        (describe(a, pair[0].checkpoint), describe(b, pair[1].checkpoint)),
        z,
        (inputs[0], inputs[1]),
        (excess.price(own[0], predictions, seed=seed), excess.price(own[1], predictions, seed=seed)),
        apart,
        parameters,
        words,
        text_loss,
        (_ends(inputs[0], pair, seed), _ends(inputs[1], pair, seed)),
        (_clusters(inputs[0], pair, seed), _clusters(inputs[1], pair, seed)),
        _exchanged(*pair, z, length, exchange_steps, kept, seed=seed) if exchange_steps else None,
    )


def _text(text: str | None) -> str:
    if text is None and (text := plugins.default_text()) is None:
        raise InputError("there is no held-out text here; give one by text or --text")
    return text


def _drawn(pair: tuple[Model, Model], settings: Generation, kept: Kept) -> list[tuple[Draws, NDArray[np.float64]]]:
    """Draws that stand for the inputs of each model, and their losses under the other one."""
    if settings.tempers == (1.0,):
        first, second = pipeline.mixed(*pair, settings, kept)
        return [(first, second.nll), (second, first.nll)]
    drawn = []
    for model, other in (pair, pair[::-1]):
        draws = pipeline.generated(model, settings, kept)
        # judged again by the arithmetic that judges the other: rounding differs from that of writing token by token
        draws = replace(draws, nll=pipeline.judged(model, draws.tokens, kept))
        drawn.append((draws, pipeline.judged(other, draws.tokens, kept)))
    return drawn


def _sample(own: Direction, draws: Draws, seed: int) -> NDArray[np.integer[Any]]:
    """Some of what a model writes, chain by chain."""
    chance = own.weight / own.weight.sum()
    rows = np.random.default_rng(seed).choice(len(chance), N_PIECES, p=chance)
    return draws.tokens[rows[np.argsort(draws.chain[rows], kind="stable")]]


def _own_range(own: Sequence[Direction], shares: tuple[float, float]) -> tuple[float, float]:
    """Two quantiles of the losses of what each of two models writes, both models counting alike."""
    losses = np.concatenate([side.draws.nll for side in own if side.draws is not None])
    weights = np.concatenate([side.weight / side.weight.sum() for side in own])
    low, high = np.quantile(losses, shares, weights=weights, method="inverted_cdf")
    return float(low), float(high)


def _inputs(
    side: Side, model: Model, draws: Draws, other: NDArray[np.float64], z: tuple[float, float], words: dict[str, str]
) -> Direction:
    """The draws in Z; none, and a reason in `words`, where they are too few."""
    inside = within(draws.nll, z)
    if len(np.unique(draws.chain[inside])) < 2:
        low, high = np.quantile(draws.nll, [0.01, 0.99])
        words[f"empty {side}"] = (
            f"{model.name} has {int(inside.sum())} of {len(draws)} sequences with a loss in Z = [{z[0]:g}, {z[1]:g}], "
            f"too few; most have {low:.3g} to {high:.3g}: move Z there, write more, or, for lower losses, with tempers "
            "such as 1, 1.15, 1.3"
        )
        return Direction.from_draws(draws.within(_NOWHERE), other[:0], side, z)
    return Direction.from_draws(draws.within(z), other[inside], side, z)


def _shown(inputs: Direction, rows: Sequence[int], end: str, pair: tuple[Model, Model]) -> tuple[Example, ...]:
    """Rows of a model's inputs, with D of each token."""
    assert inputs.draws is not None  # only an enumeration has none
    tokens = inputs.draws.tokens[np.asarray(rows)]
    by_token = where.by_token(pair[0].nll, pair[1].nll, tokens)
    first = [None] * (tokens.shape[1] - by_token.shape[1])  # a first token that nothing predicts
    return tuple(
        Example(
            end,
            float(inputs.difference[row]),
            float(inputs.draws.nll[row]),
            pair[0].texts(tokens[k : k + 1])[0],
            tuple(zip(pair[0].pieces(tokens[k]), [*first, *map(float, by_token[k])], strict=True)),
        )
        for k, row in enumerate(rows)
    )


def _ends(inputs: Direction, pair: tuple[Model, Model], seed: int) -> tuple[Example, ...]:
    """Inputs of one model from both ends of D, drawn by weight."""
    edges = np.unique(inputs.quantile([0, _TAIL, 1 - _TAIL, 1]))
    if len(edges) < 2:
        return ()
    assert inputs.draws is not None  # only an enumeration has none
    names = [row.tobytes() for row in inputs.draws.tokens]
    bins = composition(inputs, edges, labels={}, distinct=names, n_examples=_EXAMPLES, seed=seed)
    return (
        *_shown(inputs, bins[0].examples.tolist(), "D lowest", pair),
        *_shown(inputs, bins[-1].examples.tolist(), "D highest", pair),
    )


def _clusters(inputs: Direction, pair: tuple[Model, Model], seed: int) -> tuple[Cluster, ...]:
    """Groups of a model's inputs that the other finds least likely."""
    groups = where.groups(inputs, pair[0].nll, pair[1].nll, n_members=_MEMBERS, seed=seed)
    return tuple(
        Cluster(
            tuple(pair[0].pieces(np.array([token]))[0] for token in group.tokens),
            group.share,
            group.log10_count,
            _shown(inputs, group.rows, "group", pair),
        )
        for group in groups
    )


def _exchanged(
    a: Model, b: Model, z: tuple[float, float], length: int, steps: int, kept: Kept, *, seed: int
) -> Summary | str:
    """Compare by replica exchange, or say why that gives no number."""
    settings = Exchange(length, n_steps=steps, seed=seed)
    try:
        return pipeline.model_diff(a, b, z, settings, kept).summary(seed=seed)
    except ProvlabError as error:
        return str(error)


def _start(pair: tuple[Model, Model], prompt: str | None) -> str:
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
