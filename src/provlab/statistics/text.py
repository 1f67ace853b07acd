"""Inputs as token ids of each model's own tokenizer, and whether two models read the same: tokens are their strings.

Ids may be renumbered, and the rows of the embedding with them: text in and text out stay as they are. So what two
models were given is compared by the strings, of which a 64-bit hash is kept, and never by ids.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, NotComparableError, ParameterError
from provlab.models.checkpoint import Checkpoint
from provlab.statistics.base import Model, Options, Statistic, require_positions

Columns = tuple[NDArray[np.int64], NDArray[np.int64]]


def encode(checkpoint: Checkpoint, options: Options) -> NDArray[np.int64]:
    """Cut the head of the held-out text into sequences of token ids by the checkpoint's own tokenizer.

    Returns
    -------
    array
        ``(n_sequences, sequence_length)`` int64.

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
    try:
        # a token of a byte-level vocabulary is rarely longer than 16 characters: do not encode a whole book
        ids = checkpoint.encode(options.text[: 16 * needed])[:needed]
    except CheckpointError as error:  # its weights can still be compared
        raise NotComparableError(str(error)) from error
    if len(ids) < needed:
        raise NotComparableError(
            f"the held-out text has {len(ids)} tokens for {checkpoint.name}, fewer than the {needed} asked for; "
            "lower n_sequences or sequence_length"
        )
    return np.asarray(ids, dtype=np.int64).reshape(options.n_sequences, options.sequence_length)


def one_pass(
    statistic: Statistic,
    model: Model,
    options: Options,
    kinds: tuple[str, ...],
    tokens: NDArray[np.int64] | None = None,
) -> tuple[dict[str, list[NDArray[Any]]], NDArray[np.int64]]:
    """Run a model once over the held-out text, or over `tokens`: activations per kind and block, and the tokens.

    Raises
    ------
    NotComparableError
        If the model has too few positions for the inputs.
    """
    from provlab.models.activations import mlp_activations  # torch is not needed to compare weights

    require_positions(statistic, model, options)
    tokens = encode(model.checkpoint, options) if tokens is None else tokens
    positions = options.kept_positions()
    return mlp_activations(
        model.checkpoint, tokens, kinds=kinds, device=options.device, dtype=options.torch_dtype, positions=positions
    ), tokens


def spellings(checkpoint: Checkpoint, size: int) -> NDArray[np.int64]:
    """Say what each token is, alike for all tokenizers.

    Parameters
    ----------
    checkpoint
        With a tokenizer.
    size
        Of the vocabulary that the model knows; the tokenizer may know fewer tokens, or more.

    Returns
    -------
    array
        ``(size,)`` int64: a hash of the string of each id, at least 0; of an id that the tokenizer has not, a negative
        number of its own.
    """
    codes = -1 - np.arange(size, dtype=np.int64)
    for token, number in (checkpoint.vocabulary() or {}).items():
        if number < size:
            hashed = hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            codes[number] = int.from_bytes(hashed, "little") >> 1
    return codes


def common(a: NDArray[np.int64], b: NDArray[np.int64]) -> Columns | None:
    """Ids of the tokens that two vocabularies have in common, by their spellings, ``(n,)`` each; None if all are."""
    if np.array_equal(a, b):
        return None
    _, of_a, of_b = np.intersect1d(a, b, return_indices=True)
    named = a[of_a] >= 0
    return of_a[named], of_b[named]


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
