"""Held-out text as token ids: the inputs of phi_JSD and phi_MATCH."""

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, NotComparableError, ParameterError
from provlab.models.checkpoint import Checkpoint
from provlab.statistics.base import Options


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
    wanted = options.n_sequences * options.sequence_length
    try:
        tokenizer = checkpoint.tokenizer()
    except CheckpointError as error:  # its weights can be compared all the same
        raise NotComparableError(str(error)) from error
    # a token of a byte-level vocabulary is rarely longer than 16 characters: do not encode a whole book
    ids = tokenizer.encode(options.text[: 16 * wanted], add_special_tokens=False)[:wanted]
    if len(ids) < wanted:
        raise NotComparableError(
            f"the held-out text has {len(ids)} tokens for {checkpoint.name}, fewer than the {wanted} asked for; "
            "lower n_sequences or sequence_length"
        )
    return np.asarray(ids, dtype=np.int64).reshape(options.n_sequences, options.sequence_length)
