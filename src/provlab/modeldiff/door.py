"""The second question as a function: `diff` says over which inputs two models disagree."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from provlab import plugins
from provlab.errors import InputError, NotComparableError, ParameterError, ProvlabError
from provlab.files import cache_dir
from provlab.kept import ArrayCache
from provlab.machine import keep_freed_memory
from provlab.modeldiff import excess, held_out, pipeline, trial
from provlab.modeldiff.comparison import Summary
from provlab.modeldiff.disputed import over, weigh
from provlab.modeldiff.drawing import Range, draw
from provlab.modeldiff.gates import TEST_LEVEL, Given, checked, parsed
from provlab.modeldiff.generation import checked_tempers
from provlab.modeldiff.items import Paired, answered, lines, questions
from provlab.modeldiff.openings import Openings, checked_prompts, words_of
from provlab.modeldiff.pipeline import N_CHAINS, Exchange, Generation, SequenceModel
from provlab.modeldiff.report import SCHEMA, Difference
from provlab.modeldiff.representative import checked_range
from provlab.modeldiff.tokens import Prompt, SharedTokens, opening, shared_tokens
from provlab.reading.checkpoint import identical
from provlab.report.records import describe
from provlab.statistics.options import Options

__all__ = ["SCHEMA", "answers", "ask_again", "diff", "items_of", "trial"]

Pair = tuple[SequenceModel, SequenceModel]


def diff(
    a: str | Path,
    b: str | Path,
    *,
    text: str | None = None,
    prompts: Sequence[Prompt] = (),
    items: Sequence[Mapping[str, Any]] = (),
    references: Sequence[str | Path] = (),
    fail_on: str | Sequence[str] = (),
    level: float = TEST_LEVEL,
    length: int = 25,
    z: tuple[float, float] | None = None,
    shares: tuple[float, float] = (0.05, 0.5),
    n: int | None = None,
    tempers: Sequence[float] = (1.0,),
    exchange_steps: int = 0,
    seed: int = 0,
    device: str = "cpu",
    dtype: str = "float32",
    allow_pickle: bool = False,
    results: str | Path | None = None,
    progress: float = 1.0,
) -> Difference:
    """Say over which inputs two language models disagree (Model-diff).

    Parameters
    ----------
    a, b : str or Path
        Each a local checkpoint folder, a hub id ``org/name[@revision]``, or ``zoo:NAME``; of one tokenizer.
    text : str, optional
        Held-out text from whose losses Z is taken, and which both models read; by default prose that no zoo model was
        trained on. Its pieces at which the two are farthest apart are shown beside what they write.
    prompts : sequence of str or of turns
        Openings: inputs are what follows one of them, in each model's own chat template where it has one. An opening is
        a text, or turns of a chat as pairs of role and content. Z is then taken from the losses of what both models
        write; no text is read unless given.
    items : sequence of mapping
        Questions with answers, each as plain data: what lm-eval's ``--log_samples`` wrote, or ``prompt``, ``answer``
        and perhaps ``choices`` (`provlab.modeldiff.items`). Which answers changed, with a paired test. Then no text is
        read unless given.
    references : sequence of str or Path
        Models that were made as B was, but for the change: other seeds of A's recipe, or siblings, which are A
        fine-tuned again. B is ranked among them.
    fail_on : str or sequence of str
        What to fail on: ``answers``, ``text``, ``outputs``, the last two with a size after ``=`` (nats per token; by
        default none beside references, and else what rounding a model to 8 bits makes of it), or ``any``
        (`provlab.modeldiff.gates`). Several are corrected by Holm.
    level : float
        The chance that a gate fails where none should.
    length : int
        Tokens of an input.
    z : tuple of float, optional
        The range of mean token loss (nats) that makes an input one of a model's; then no text is read unless given.
    shares : tuple of float
        Otherwise Z lies between these quantiles of the losses under both models together.
    n : int, optional
        Sequences that each model writes; by default as many as a pair of this size answers in an hour with, on two
        cores, and at most 4,000 (`provlab.modeldiff.trial.default_n`).
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
    progress : float
        Seconds between two looks of a bar on stderr; 0 shows none.

    Raises
    ------
    ProvlabError
        If a model cannot be opened, the models share no tokenizer, neither wrote inputs in Z, or a gate could not fail
        on any data; the message names the way out.
    """
    options = Options(seed=seed, device=device, dtype=dtype)
    prompts = checked_prompts(prompts)
    _check(length=length, n=n, exchange_steps=exchange_steps, text=text, prompts=prompts, shares=shares)
    gates, tempers = parsed(fail_on), checked_tempers(tempers)
    z = None if z is None else checked_range(z)
    a, b, others = str(a), str(b), [str(source) for source in references]
    if gates:
        # what can be known of them before a model is opened; a text is cut by the tokenizer
        checked(gates, level, Given(questions(items), len(others), ""))
    models = _opened(
        [a, b, *others],
        opening=(lambda _: []) if exchange_steps else opening,
        device=device,
        dtype=options.torch_dtype,
        allow_pickle=allow_pickle,
        progress=progress,
    )
    pair = models[0], models[1]
    one, other = (describe(source, model.checkpoint) for source, model in zip((a, b), pair, strict=True))
    asked, n = n is not None, n or trial.default_n(max(of.nll.network.num_parameters() for of in pair), device, length)
    settings = Generation(n, length, tempers, N_CHAINS, seed)
    parameters = {"length": length, "shares": list(shares), "n": n, "tempers": list(tempers), "seed": seed}
    parameters |= {"device": device, "dtype": dtype, "n_chains": N_CHAINS, "exchange_steps": exchange_steps}
    parameters |= {"prompts": len(prompts), "references": others, "mixed": tempers == (1.0,)}
    if identical([model.checkpoint for model in pair]):
        return Difference.of_copies((one, other), z, parameters, gates, level)
    openings = Openings.of(models, prompts, settings)
    words = {"tokens": _tokens_compared(models), "start": _start(pair, openings, prompts), "z": "as given"}
    if not any(len(nll.start) for nll in openings.nlls[0]):
        words["without_start"] = f"{pair[0].nll.vocabulary:,}"

    kept = ArrayCache(Path(results) if results else cache_dir() / "modeldiff")
    keep_freed_memory()
    pieces, where, of = None, "what A writes", "what both models write"
    if text is not None or not (prompts or z is not None or items):
        where = "the given text" if text else "the held-out prose"
        most = trial.most_pieces(n, given=text is not None, asked=asked)
        pieces = held_out.pieces(models[0].encode(_text(text)), length, most, seed=seed)
        if not prompts:
            of = f"{len(pieces)} pieces of {where} under both models"
    if gates:
        short = "" if pieces is None else excess.too_short(len(pieces), length)
        gates = checked(gates, level, Given(questions(items), len(others), short))
    if z is None:
        words["z"] = f"the {shares[0]:.0%} and {shares[1]:.0%} quantiles of the losses of {of}"
    drawn = draw(models, openings, settings, kept, pieces=pieces, z=z, shares=shares)

    first, second = (weigh(side, openings, drawn.z, seed=seed) for side in drawn.sides)
    plain = Openings.of(models, (), settings)
    return Difference(
        (one, other),
        drawn.z,
        (first, second),
        excess.apart(drawn.read.distances, where, others),
        drawn.floor,
        parameters,
        words,
        text_loss=None if pieces is None else excess.losses(drawn.read.nll),
        exchange=_exchanged(*pair, drawn.z, length, exchange_steps, kept, seed=seed) if exchange_steps else None,
        items=answered(*pair, items, seed=seed) if items else None,
        text=None if drawn.text is None else over(drawn.text, plain, None, seed=seed),
        roundings=drawn.roundings,
        gates=gates,
        level=level,
    )


def _check(
    *,
    length: int,
    n: int | None,
    exchange_steps: int,
    text: str | None,
    prompts: Sequence[Prompt],
    shares: tuple[float, float],
) -> None:
    """Raise InputError or ParameterError for what can be refused before a model is opened."""
    numbers = [
        ("length", length, 2),
        ("exchange_steps", exchange_steps, 0),
        *[("n", n, 2 * N_CHAINS)] * (n is not None),
    ]
    for name, value, least in numbers:
        if not isinstance(value, int) or value < least:
            raise ParameterError(f"{name} must be a whole number of at least {least}, not {value!r}")
    for name, content in [("text", text), *(("prompt", words_of(prompt)) for prompt in prompts)]:
        if content is not None and not content.strip():
            raise InputError(f"the {name} is empty; give some words")
    if prompts and exchange_steps:
        raise InputError("replica exchange has nothing before inputs; leave it or the prompts out")
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


def _exchanged(
    a: SequenceModel, b: SequenceModel, z: Range, length: int, steps: int, kept: ArrayCache, *, seed: int
) -> Summary | str:
    """Compare by replica exchange, or say why that gives no number."""
    settings = Exchange(length, n_steps=steps, seed=seed)
    try:
        return pipeline.model_diff(a, b, z, settings, kept).summary(seed=seed)
    except ProvlabError as error:
        return str(error)


def _start(pair: Pair, openings: Openings, prompts: Sequence[Prompt]) -> str:
    """Say what stands before inputs."""
    if not prompts:
        if not len(pair[0].nll.start):
            return "Nothing stands before it: its first token, in ‹ ›, is any of these and not judged."
        return "Each model reads its start token before it, as in training."
    talks = [name for name, model in zip("AB", pair, strict=True) if model.checkpoint.tokenizer().chat_template]
    template = f", which {' and '.join(talks)} read{'s' * (len(talks) == 1)} in a chat template" if talks else ""
    if len(openings) == 1:
        prompt = openings.texts[0]
        begin = repr(prompt if len(prompt) <= 80 else f"{prompt[:79]}…")
        return f"It follows the prompt {begin} of {len(prompt):,} characters{template}."
    some = "" if len(openings) == len(prompts) else f" of {len(prompts):,} that were given"
    some += ", drawn by the seed" * (len(openings) < len(set(prompts)))
    return f"It follows one of {len(openings)} prompts{some}, all as often{template}."


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
    return diff(*sources, results=kept, progress=0, **arguments)


def items_of(text: str) -> list[dict[str, Any]]:
    """Items as lines of JSON have them (`provlab.modeldiff.items`), each refused here if it is none."""
    rows = lines(text)
    questions(rows)
    return rows


def answers(
    a: str | Path,
    b: str | Path,
    items: Sequence[Mapping[str, Any]],
    *,
    seed: int = 0,
    device: str = "cpu",
    dtype: str = "float32",
    allow_pickle: bool = False,
    progress: float = 1.0,
) -> Paired:
    """Let two models answer items, and write nothing; what `diff` says of items, without the rest.

    Raises
    ------
    ProvlabError
        If a model cannot be opened, the two share no tokenizer, or a row is no item.
    """
    options = Options(seed=seed, device=device, dtype=dtype)
    how: dict[str, Any] = {"device": device, "dtype": options.torch_dtype, "allow_pickle": allow_pickle}
    one, other = _opened([str(a), str(b)], opening=opening, progress=progress, **how)
    return answered(one, other, items, seed=seed)
