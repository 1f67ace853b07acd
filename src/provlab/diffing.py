"""The second question as a function: `diff` says over which inputs two models disagree."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from provlab.errors import InputError, NotComparableError, ParameterError, ProvlabError
from provlab.files import cache_dir
from provlab.kept import Kept
from provlab.modeldiff import pipeline
from provlab.modeldiff.comparison import Comparison, Summary
from provlab.modeldiff.held_out import N_PIECES, HeldOut
from provlab.modeldiff.pipeline import N_CHAINS, Exchange, Generation, Model
from provlab.modeldiff.representative import Direction, Side, checked_range, within
from provlab.modeldiff.tokens import SharedTokens, shared_tokens
from provlab.report.difference import Difference, examples
from provlab.report.views import describe
from provlab.statistics.base import Options

_EXAMPLES, _TAIL = 3, 0.05  # of each end of D, and the share of inputs that an end is


def diff(
    a: str | Path,
    b: str | Path,
    *,
    text: str | None = None,
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
        Held-out text from whose losses Z is taken; by default prose that no zoo model was trained on.
    length : int
        Tokens of an input.
    z : tuple of float, optional
        The range of mean token loss (nats) that makes an input one of a model's; then no text is read unless given.
    shares : tuple of float
        Otherwise Z lies between these quantiles of the losses of pieces of the text under both models together.
    n : int
        Sequences that each model writes.
    tempers : sequence of float
        Exponents of what the models write with, see `provlab.modeldiff.generation.write`: above 1 for lower losses.
    exchange_steps : int
        Steps of replica exchange, the paper's way, as a second opinion; 0 for none.
    seed : int
        Of all draws; each model draws numbers of its own from it.
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
        If a model cannot be opened, the two share no tokenizer, or a model wrote no input in Z; the message names the
        way out.
    """
    options = Options(seed=seed, device=device, dtype=dtype)
    for name, value, least in (("length", length, 2), ("n", n, 2 * N_CHAINS), ("exchange_steps", exchange_steps, 0)):
        if not isinstance(value, int) or value < least:
            raise ParameterError(f"{name} must be a whole number of at least {least}, not {value!r}")
    if text is not None and not text.strip():
        raise InputError("the text is empty; give some pages that neither model was trained on")
    z = None if z is None else checked_range(z)
    if not 0 <= shares[0] < shares[1] <= 1:
        raise InputError(f"shares must rise within 0 to 1, not {tuple(shares)}")
    a, b = str(a), str(b)
    models = pipeline.open_models(
        [a, b], device=device, dtype=options.torch_dtype, allow_pickle=allow_pickle, progress=progress
    )
    if len({model.checkpoint.digest for model in models.values()}) < 2:
        raise InputError(f"{a} and {b} are identical, so they disagree nowhere; give two different models")
    first, second = pair = models[a], models[b]
    shared = shared_tokens([model.checkpoint for model in pair])
    if not shared.named:
        raise NotComparableError(f"neither {first.name} nor {second.name} has a tokenizer; copy it beside the weights")
    for model in pair:
        if model.nll.context is not None and length > model.nll.context:
            raise InputError(f"length {length} exceeds the context of {model.name}: {model.nll.context}; give less")
    kept = Kept(Path(results) if results else cache_dir() / "modeldiff")
    text_loss = None
    chosen = "as given"
    if text is not None or z is None:
        held_out = HeldOut({"text": _text(text)}, N_PIECES, kept, seed)
        of_a, of_b = held_out.losses(pair, length)
        text_loss = of_a, of_b
        asked_z, z = z, held_out.range_of(first, second, length, shares, z or ())
        if asked_z is None:
            which = "given text" if text else "zoo's held-out prose"
            chosen = (
                f"the {shares[0]:.0%} and {shares[1]:.0%} quantiles of the losses of {N_PIECES} pieces of the {which} "
                "under both models"
            )
    settings = Generation(n, length, tuple(float(temper) for temper in tempers), N_CHAINS, seed)
    compared = Comparison(
        _inputs("A", first, second, z, settings, kept), _inputs("B", second, first, z, settings, kept), z
    )
    summary = [
        examples(compared, side, model.texts, n=_EXAMPLES, tail=_TAIL, seed=seed)
        for side, model in zip("AB", pair, strict=True)
    ]
    parameters = {"length": length, "shares": list(shares), "n": n, "tempers": list(settings.tempers), "seed": seed}
    parameters |= {"device": device, "dtype": dtype, "n_chains": N_CHAINS, "exchange_steps": exchange_steps}
    exchange = _exchanged(first, second, z, length, exchange_steps, kept, seed=seed) if exchange_steps else None
    return Difference(
        (describe(a, first.checkpoint), describe(b, second.checkpoint)),
        compared,
        parameters,
        chosen,
        text_loss,
        (summary[0], summary[1]),
        _tokens_compared(shared),
        exchange,
    )


def _text(text: str | None) -> str:
    if text is not None:
        return text
    from provlab import zoo

    return zoo.held_out_text("prose")


def _inputs(
    side: Side, model: Model, other: Model, z: tuple[float, float], settings: Generation, kept: Kept
) -> Direction:
    """Let a model write, and both judge what of it lies in Z."""
    draws = pipeline.generated(model, settings, kept)
    # judged again by the arithmetic that judges the other: rounding differs from that of writing token by token
    draws = replace(draws, nll=pipeline.judged(model, draws.tokens, kept))
    if len(np.unique(draws.chain[within(draws.nll, z)])) < 2:
        low, high = np.quantile(draws.nll, [0.01, 0.99])
        raise NotComparableError(
            f"{model.name} wrote {int(within(draws.nll, z).sum())} of {len(draws)} sequences with a loss in Z = "
            f"[{z[0]:g}, {z[1]:g}], too few; most have {low:.3g} to {high:.3g}: move Z there, write more, or, for "
            "lower losses, with tempers such as 1, 1.15, 1.3"
        )
    return pipeline.judged_inputs(draws, side, z, other, kept)


def _exchanged(
    a: Model, b: Model, z: tuple[float, float], length: int, steps: int, kept: Kept, *, seed: int
) -> Summary | str:
    """Compare by replica exchange, or say why that gives no number."""
    settings = Exchange(length, n_steps=steps, seed=seed)
    try:
        return pipeline.model_diff(a, b, z, settings, kept).summary(seed=seed)
    except ProvlabError as error:
        return str(error)


def _tokens_compared(shared: SharedTokens) -> str:
    """Say of which tokens inputs are made."""
    sentence = f"Inputs are made of the {len(shared.ids[0]):,} tokens that both models have"
    if any(shared.left_out):
        sentence += f"; {shared.left_out[0]:,} ids of A and {shared.left_out[1]:,} of B are left out"
    if shared.moved:
        sentence += f"; {shared.moved:,} have another id in B and are paired by their strings"
    return sentence + "."
