"""The second question as a function: `diff` says over which inputs two models disagree."""

from collections.abc import Mapping, Sequence
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
from provlab.modeldiff import excess, held_out, pipeline, trial
from provlab.modeldiff.comparison import Summary
from provlab.modeldiff.disputed import weigh
from provlab.modeldiff.drawing import Pair, Range, draw
from provlab.modeldiff.generation import checked_tempers
from provlab.modeldiff.held_out import N_PIECES
from provlab.modeldiff.items import answered
from provlab.modeldiff.pipeline import N_CHAINS, Exchange, Generation, SequenceModel
from provlab.modeldiff.report import SCHEMA, Difference
from provlab.modeldiff.representative import checked_range
from provlab.modeldiff.tokens import SharedTokens, opening, shared_tokens
from provlab.reading.checkpoint import identical
from provlab.report.views import describe
from provlab.statistics.options import Options

__all__ = ["SCHEMA", "ask_again", "diff", "trial"]


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
    tested: bool = False,
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
    tested : bool
        Whether `Difference.fails` is to be asked: a text too short for its test is refused before anything is drawn.

    Raises
    ------
    ProvlabError
        If a model cannot be opened, the models share no tokenizer, or neither wrote inputs in Z; the message names the
        way out.
    """
    options = Options(seed=seed, device=device, dtype=dtype)
    _check(length=length, n=n, exchange_steps=exchange_steps, text=text, prompt=prompt, shares=shares)
    settings = Generation(n, length, checked_tempers(tempers), N_CHAINS, seed)
    z = None if z is None else checked_range(z)
    a, b, others = str(a), str(b), [str(source) for source in references]
    models = _opened(
        [a, b, *others],
        opening=(lambda _: []) if exchange_steps else partial(opening, prompt=prompt),
        device=device,
        dtype=options.torch_dtype,
        allow_pickle=allow_pickle,
        progress=progress,
    )
    pair = models[0], models[1]
    one, other = (describe(source, model.checkpoint) for source, model in zip((a, b), pair, strict=True))
    parameters = {"length": length, "shares": list(shares), "n": n, "tempers": list(settings.tempers), "seed": seed}
    parameters |= {"device": device, "dtype": dtype, "n_chains": N_CHAINS, "exchange_steps": exchange_steps}
    parameters |= {"prompt": prompt, "references": others, "mixed": settings.tempers == (1.0,)}
    if identical([model.checkpoint for model in pair]):
        return Difference.of_copies((one, other), z, parameters)
    words = {"tokens": _tokens_compared(models), "start": _start(pair, prompt), "z": "as given"}

    kept = ArrayCache(Path(results) if results else cache_dir() / "modeldiff")
    keep_freed_memory()
    pieces, where, of = None, "what A writes", "what both models write"
    if text is not None or (prompt is None and z is None and not items):
        where = "the given text" if text else "the held-out prose"
        pieces = _pieces(models, _text(text), where, settings, tested=tested)
        of = f"{len(pieces)} pieces of {where} under both models"
    if z is None:
        words["z"] = f"the {shares[0]:.0%} and {shares[1]:.0%} quantiles of the losses of {of}"
    drawn = draw(models, settings, kept, pieces=pieces, z=z, shares=shares)

    first, second = (weigh(side, pair, drawn.z, seed=seed) for side in drawn.sides)
    apart = excess.apart(drawn.read.distances, where, others)
    text_loss = None if pieces is None else excess.losses(drawn.read.nll)
    exchange = _exchanged(*pair, drawn.z, length, exchange_steps, kept, seed=seed) if exchange_steps else None
    changed = answered(*pair, items, seed=seed) if items else None
    return Difference(
        (one, other), drawn.z, (first, second), apart, drawn.floor, parameters, words, text_loss, exchange, changed
    )


def _check(
    *, length: int, n: int, exchange_steps: int, text: str | None, prompt: str | None, shares: tuple[float, float]
) -> None:
    """Raise InputError or ParameterError for what can be refused before a model is opened."""
    for name, value, least in (("length", length, 2), ("n", n, 2 * N_CHAINS), ("exchange_steps", exchange_steps, 0)):
        if not isinstance(value, int) or value < least:
            raise ParameterError(f"{name} must be a whole number of at least {least}, not {value!r}")
    for name, content in (("text", text), ("prompt", prompt)):
        if content is not None and not content.strip():
            raise InputError(f"the {name} is empty; give some words")
    if prompt is not None and (text is not None or exchange_steps):
        raise InputError("a prompt goes with neither a text nor replica exchange; leave the one or the other out")
    if not 0 <= shares[0] < shares[1] <= 1:
        raise InputError(f"shares must rise within 0 to 1, not {tuple(shares)}")


def _opened(sources: list[str], **how: Any) -> list[SequenceModel]:
    """A, B and the references; none but B may be a copy of another, for it would be no second training."""
    opened = pipeline.open_models(sources, **how)
    models = [opened[source] for source in sources]
    roles = ["A", "B", *(f"reference {k}" for k in range(1, len(models) - 1))]
    for (one, model), (two, other) in list(combinations(zip(roles, models, strict=True), 2))[1:]:
        if identical([model.checkpoint, other.checkpoint]):
            raise InputError(
                f"{one} ({model.source}) and {two} ({other.source}) are identical, so they disagree nowhere; "
                "give different models"
            )
    return models


def _text(text: str | None) -> str:
    if text is None and (text := plugins.default_text()) is None:
        raise InputError("there is no held-out text here; give one by text or --text")
    return text


def _pieces(
    models: Sequence[SequenceModel], text: str, where: str, settings: Generation, *, tested: bool
) -> NDArray[np.int64]:
    """Cut a text into pieces, ``(n, length)``; without references a test of the distance needs enough of them."""
    pieces = held_out.pieces(models[0].encode(text), settings.length, N_PIECES, seed=settings.seed)
    if tested and len(models) == 2 and (short := excess.too_short(len(pieces), settings.length)):
        raise InputError(f"{where} is too short for a test: {short}")
    return pieces


def _exchanged(
    a: SequenceModel, b: SequenceModel, z: Range, length: int, steps: int, kept: ArrayCache, *, seed: int
) -> Summary | str:
    """Compare by replica exchange, or say why that gives no number."""
    settings = Exchange(length, n_steps=steps, seed=seed)
    try:
        return pipeline.model_diff(a, b, z, settings, kept).summary(seed=seed)
    except ProvlabError as error:
        return str(error)


def _start(pair: Pair, prompt: str | None) -> str:
    """Say what stands before inputs."""
    if not len(pair[0].nll.start):
        return "Nothing stands before it: its first token, in ‹ ›, is any of these and not judged."
    if prompt is None:
        return "Each model reads its start token before it, as in training."
    talks = [name for name, model in zip("AB", pair, strict=True) if model.checkpoint.tokenizer().chat_template]
    template = f", which {' and '.join(talks)} read{'s' * (len(talks) == 1)} in a chat template" if talks else ""
    begin = repr(prompt if len(prompt) <= 80 else f"{prompt[:79]}…")
    return f"It follows the prompt {begin} of {len(prompt):,} characters{template}."


def _tokens_compared(models: Sequence[SequenceModel]) -> str:
    """Say of which tokens inputs are made.

    Raises
    ------
    NotComparableError
        No model says what its tokens are.
    """
    shared: SharedTokens = shared_tokens([model.checkpoint for model in models], controls=False)
    if not shared.named:
        raise NotComparableError(
            f"neither {models[0].name} nor {models[1].name} has a tokenizer; copy it beside the weights"
        )
    sentence = f"Inputs are made of the {len(shared.ids[0]):,} tokens that both models have"
    if any(shared.left_out):
        sentence += f"; {shared.left_out[0]:,} of A's ids and {shared.left_out[1]:,} of B's are not among them"
    if shared.moved:
        sentence += f"; {shared.moved:,} have another id in B and are paired by their strings"
    return sentence + "."


def ask_again(sources: Sequence[str], kept: Path, **arguments: Any) -> Difference:
    """Ask once more, draws in an empty folder, as a report is recomputed; `SCHEMA` is the form of its JSON."""
    return diff(*sources, results=kept, progress=False, **arguments)
