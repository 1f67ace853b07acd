"""Inputs as token ids of each model's own tokenizer, and what two models read alike.

Ids may be renumbered, and the rows of the embedding with them; strings of tokens may be respelt, or be cut at other
places: text in and text out stay as they are. So tokens are paired by what they decode to, and inputs by their places
in the text, of which 64-bit numbers are kept, and never by ids. A wrong pairing costs power and not size: where two
models are independent, any inputs will do.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, InvalidWeightsError, NotComparableError, ParameterError
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.forms import Form, forms
from provlab.running.room import stacked
from provlab.statistics.base import Statistic, require_positions
from provlab.statistics.model import Model
from provlab.statistics.options import Options

Columns = tuple[NDArray[np.int64], NDArray[np.int64]]
#: sequences on which a model's forms are tried
TRIED = 2
#: nats a token by which another form must be better to be read; a begin token changes a short text by less than .1
BETTER = 0.25
_KEPT = 8  # tokenizers whose `spellings` are kept, some MB each
_SPELT: dict[tuple[object, ...], NDArray[np.int64]] = {}


def cut(checkpoint: Checkpoint, options: Options) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut the head of the held-out text into sequences of token ids by the checkpoint's own tokenizer.

    Where `Options.shared` says at which places all models of a study have a token, it is these tokens alone, and a
    model without a tokenizer is given the ids that stand there.

    Returns
    -------
    tuple of two arrays
        Ids and places, ``(n_sequences, sequence_length)`` int64 each. A place says from where to where in the text a
        token goes, spaces around it aside; no two tokens have one.

    Raises
    ------
    ParameterError
        If no text is given.
    NotComparableError
        If the checkpoint has no tokenizer, or the text is too short for the number of tokens asked for.
    """
    if not options.text:
        raise ParameterError("this statistic reads held-out text, and none was given (option text)")
    needed = options.n_sequences * options.sequence_length
    places, ids = np.array(options.shared or [], dtype=np.int64).reshape(-1, 2).T  # (2, tokens)
    if options.shared is None or checkpoint.tokenizer_digest:
        try:
            own_ids, own_places = _whole(checkpoint, options)
        except CheckpointError as error:  # its weights can still be compared
            raise NotComparableError(str(error)) from error
        at = np.isin(own_places, places) if options.shared else slice(None)
        ids, places = own_ids[at][:needed], own_places[at][:needed]
    if len(ids) < needed:
        raise NotComparableError(
            f"the held-out text has {len(ids)} tokens for {checkpoint.name}, fewer than the {needed} asked for; "
            "lower n_sequences or sequence_length"
        )
    shape = options.n_sequences, options.sequence_length
    return ids[:needed].reshape(shape), places[:needed].reshape(shape)


def encode(checkpoint: Checkpoint, options: Options) -> NDArray[np.int64]:
    """Token ids of `cut`."""
    return cut(checkpoint, options)[0]


def shared_tokens(models: Iterable[Model], options: Options) -> tuple[tuple[int, int], ...] | None:
    """Tokens of the text that all tokenizers cut alike, each as its place and its id in the first model that has one.

    None where all models read the same anyway, or too few tokens are left. Where no model has a tokenizer, ids are
    drawn at random: any inputs will do where two models are independent.
    """
    # one tokenizer gives other inputs to a model that lacks the embeddings of some of its tokens
    # nor does one of the same files cut alike for each kind of model: transformers goes by that, too
    made = {
        (model.checkpoint.tokenizer_digest, model.checkpoint.config.get("model_type"), model.anatomy.vocab_size): model
        for model in models
    }
    bare = next((model for (digest, *_), model in made.items() if digest is None), None)
    known = {key: model for key, model in made.items() if key[0] is not None}
    needed = options.n_sequences * options.sequence_length
    if bare is None and len(known) < 2:
        return None
    if not known and bare is not None:
        drawn = np.random.default_rng(options.seed).integers(options.vocab_size or bare.anatomy.vocab_size, size=needed)
        return tuple(enumerate(drawn.tolist()))
    cuts = []
    for model in known.values():
        with suppress(CheckpointError):  # its own passes say why
            cuts.append(_whole(model.checkpoint, options))
    if not cuts or (bare is None and all(np.array_equal(cuts[0][1][:needed], places[:needed]) for _, places in cuts)):
        return None
    ids, places = cuts[0]
    at = np.logical_and.reduce([np.isin(places, others) for _, others in cuts])
    return (
        tuple(zip(places[at][:needed].tolist(), ids[at][:needed].tolist(), strict=True)) if at.sum() >= needed else None
    )


def _whole(checkpoint: Checkpoint, options: Options) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids and places of all tokens of a text that is long enough."""
    # a token of a byte-level vocabulary is rarely longer than 16 characters: do not encode a whole book
    text = options.text[: 16 * options.n_sequences * options.sequence_length]
    cut_ids, spans = checkpoint.cut(text)
    ids, places = np.asarray(cut_ids, dtype=np.int64), _places(text, spans)
    size = checkpoint.config.get("vocab_size")
    embedded = ids < size if isinstance(size, int) else slice(None)  # a tokenizer may know tokens that were added to it
    return ids[embedded], places[embedded]


def _places(text: str, spans: Iterable[tuple[int, int]]) -> NDArray[np.int64]:
    """Numbers of spans without the spaces around them, and of the tokens of one character in their order."""
    inner = []
    for begin, end in spans:
        piece = text[begin:end]
        bare = piece.strip()
        inner.append((begin + piece.index(bare), len(bare)) if bare else (begin, len(piece)))
    begins, lengths = np.array(inner, dtype=np.int64).reshape(-1, 2).T
    number = np.arange(len(begins))
    same = np.r_[False, (np.diff(begins) == 0) & (np.diff(lengths) == 0)]
    within = number - np.maximum.accumulate(np.where(same, 0, number))
    return (begins << 24) + (np.minimum(lengths, 4095) << 12) + within


def one_pass(
    statistic: Statistic,
    model: Model,
    options: Options,
    kinds: tuple[str, ...],
    tokens: NDArray[np.int64] | None = None,
) -> tuple[dict[str, list[NDArray[Any]]], NDArray[np.int64]]:
    """Run a model once over the held-out text, or over `tokens`: activations per kind and block, and places of tokens.

    The places are those of `cut`; of given tokens they are their ids.

    Raises
    ------
    NotComparableError
        If the model has too few positions for the inputs.
    """
    from provlab.running.activations import LOG_PROBS, mlp_activations  # torch is not needed to compare weights

    require_positions(statistic, model, options)
    run = model.checkpoint.run if tokens is None and model.anatomy.has("head") else None
    if tokens is None:
        (tokens, places), form = cut(model.checkpoint, options), read_as(model, options)
    else:
        places, form = tokens, _fitting(model, options)[0]
    predicts = run is not None and run.predicts and (run.tokens is None or run.tokens.size < tokens.size)
    recorded = mlp_activations(
        model.checkpoint,
        tokens,
        kinds=(*kinds, LOG_PROBS) if predicts else kinds,
        device=options.device,
        dtype=options.torch_dtype,
        positions=options.kept_positions(),
        blocks=options.blocks,
        form=form,
    )
    if run is not None and (log_probs := recorded.pop(LOG_PROBS, None)):  # none where a logit is no number
        run.log_probs, run.tokens = log_probs[0], tokens
    return recorded, places


def predicted(model: Model, tokens: NDArray[np.int64], options: Options) -> NDArray[np.float32]:
    """Log probabilities of the next token over the text, from a run that was made for activations, or from one more.

    Parameters
    ----------
    tokens
        Ids of the text, as `cut` gives them.

    Returns
    -------
    array
        ``(n_sequences * sequence_length, vocab)``.
    """
    from provlab.running.predictions import next_token_log_probs

    run = model.checkpoint.run
    if run is not None and run.log_probs is not None and run.tokens is not None and np.array_equal(run.tokens, tokens):
        return run.log_probs
    form = read_as(model, options)
    chunks = next_token_log_probs(model.checkpoint, tokens, device=options.device, dtype=options.torch_dtype, form=form)
    return stacked(chunks, tokens.size)


def read_as(model: Model, options: Options) -> Form:
    """Return the form in which a model reads the text: that of its tokenizer, unless it predicts far better in another.

    Whoever makes a model chooses behind which token it works, so the forms that its folder names are tried
    (`provlab.reading.forms`) on `TRIED` sequences: one that makes the loss smaller by more than `BETTER` is read
    instead. A model that predicts no next token is read as its tokenizer writes.
    """
    run = model.checkpoint.run
    if run is not None and run.form is not None:
        return Form(*run.form)
    fitting = _fitting(model, options)
    form = fitting[0]
    if len(fitting) > 1 and model.anatomy.has("head"):
        form = _best(model, fitting, options)
    if run is not None:
        run.form = form
    return form


def _fitting(model: Model, options: Options) -> list[Form]:
    """The forms in which a model may be given the inputs, of which `require_positions` says that they fit bare."""
    longest, size = model.anatomy.longest, model.anatomy.vocab_size
    return forms(model.checkpoint, size, (longest or np.inf) - options.sequence_length, options.around)


def _best(model: Model, fitting: Sequence[Form], options: Options) -> Form:
    """The first form, or that of the least loss where this is far smaller."""
    from provlab.running.predictions import next_token_log_probs

    how: dict[str, Any] = {"device": options.device, "dtype": options.torch_dtype}
    network = model.checkpoint.load_model(options.torch_dtype, options.device, by_blocks=True)
    tokens = cut(model.checkpoint, options)[0][:TRIED]
    if tokens.shape[1] < 2 or not network.can_generate():
        return fitting[0]
    losses = np.full(len(fitting), np.inf)
    for k, form in enumerate(fitting):
        with suppress(InvalidWeightsError):  # a logit is no number: the statistic that needs it says so
            laws = [*next_token_log_probs(model.checkpoint, tokens, form=form, **how)]
            losses[k] = loss_of(np.concatenate(laws), tokens)
    best = int(np.argmin(losses))
    return fitting[best if losses[best] < losses[0] - BETTER else 0]


def loss_of(log_probs: NDArray[np.float32], tokens: NDArray[np.int64]) -> float:
    """Mean loss of the next token in nats, from ``(positions, vocabulary)`` and ``(sequences, length)``."""
    known = log_probs.reshape(*tokens.shape, -1)[:, :-1]  # (sequences, length - 1, vocabulary)
    return float(-np.take_along_axis(known, tokens[:, 1:, None], axis=2).mean(dtype=np.float64))


def spellings(checkpoint: Checkpoint, size: int) -> NDArray[np.int64]:
    """Say what each token is, alike for all tokenizers.

    Parameters
    ----------
    checkpoint
        With a tokenizer.
    size
        The size of the vocabulary that the model knows; the tokenizer may know fewer tokens, or more.

    Returns
    -------
    array
        ``(size,)`` int64, read-only: a hash of what each id decodes to, at least 0, or of its string where that is no
        text of its own (a part of a character); of an id that the tokenizer has not, a negative number of its own.
    """
    # by the files, and by what decides the tokenizer's class where they do not: models of a study mostly share one
    kinds = (repr(checkpoint.config.get(name)) for name in ("model_type", "architectures"))
    key = checkpoint.tokenizer_digest, size, *kinds
    if key not in _SPELT:
        codes = _spelt(checkpoint, size)
        codes.setflags(write=False)
        while len(_SPELT) >= _KEPT:
            del _SPELT[next(iter(_SPELT))]
        _SPELT[key] = codes
    return _SPELT[key]


def _spelt(checkpoint: Checkpoint, size: int) -> NDArray[np.int64]:
    """`spellings`, which at a vocabulary of 262,144 take seconds."""
    codes = -1 - np.arange(size, dtype=np.int64)
    if (table := checkpoint.vocabulary()) is None:
        return codes
    pieces = checkpoint.pieces(size)
    times = Counter(pieces)
    for token, number in table.items():
        if number < size:
            piece = pieces[number] if number < len(pieces) else ""
            own = f"text {piece}" if piece and times[piece] == 1 else f"token {token}"
            hashed = hashlib.blake2b(own.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            codes[number] = int.from_bytes(hashed, "little") >> 1
    return codes


def common(a: NDArray[np.int64], b: NDArray[np.int64]) -> Columns | None:
    """Ids of the tokens that two vocabularies have in common, by their spellings, ``(n,)`` each; None if all are.

    Where nothing says what the ids of one of them are, vocabularies of one size are taken as one.
    """
    if np.array_equal(a, b) or (len(a) == len(b) and max(a.max(), b.max()) >= 0 > min(a.max(), b.max())):
        return None
    _, of_a, of_b = np.intersect1d(a, b, return_indices=True)
    named = a[of_a] >= 0
    return of_a[named], of_b[named]


def sampled(ids: NDArray[np.int64], codes: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Choose so many tokens, the same for all models: the first by a hash of what they are, as `spellings` says."""
    hashed = codes[ids].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.sort(ids[np.argsort(hashed ^ (hashed >> np.uint64(31)), kind="stable")[:most]])


def common_strings(models: Iterable[Model]) -> tuple[str, ...] | None:
    """Return the strings that all tokenizers have, sorted, where these number them differently; else None.

    Models without a tokenizer are left out: nothing says what their ids mean.
    """
    known = {(model.checkpoint.tokenizer_digest, model.anatomy.vocab_size): model for model in models}
    if len({digest for digest, _ in known} - {None}) < 2:
        return None  # no tokenizer is made, which is slow, where all are one
    tables = [table for model in known.values() if (table := strings(model)) is not None]
    ids: dict[str, int] = {}
    named: dict[int, str] = {}
    alike = all(
        ids.setdefault(token, number) == number and named.setdefault(number, token) == token
        for table in tables
        for token, number in table.items()
    )
    return None if alike else tuple(sorted(set.intersection(*map(set, tables))))


def strings(model: Model) -> Mapping[str, int] | None:
    """Return token -> id of those that the model has an embedding of, None without a tokenizer that can be used."""
    try:
        table = model.checkpoint.vocabulary()
    except CheckpointError:
        return None
    return table and {token: number for token, number in table.items() if number < model.anatomy.vocab_size}
