"""The tokens of a comparison: those that all its models have, whatever their ids.

Two models judge the same input only if they read the same strings. Tokens are therefore paired by their strings and
numbered from 0, in the order of the first model's ids; each model has its own ids of them. Rows that pad a vocabulary
beyond its tokenizer, and tokens that were added to one model alone, are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, NotComparableError
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.tokenizing import rendered, usable_tokenizer

#: a text, or the turns of a chat: who speaks, and what
Prompt = str | tuple[tuple[str, str], ...]
_LEAST_SHARED = 0.9  # of the smallest tokenizer's tokens; below, losses would be those of a mutilated language


@dataclass(frozen=True, eq=False)
class SharedTokens:
    """The tokens that several models have in common.

    Attributes
    ----------
    ids
        For each model ``(n,)``: its own id of every token of the comparison.
    left_out
        For each model, how many ids of its vocabulary are not among them.
    moved
        Tokens that have another id in one of the models than in the first.
    named
        Whether there are tokenizers, so that the tokens are known by their strings.
    """

    ids: tuple[NDArray[np.int64], ...]
    left_out: tuple[int, ...]
    moved: int
    named: bool


def shared_tokens(checkpoints: Sequence[Checkpoint], *, controls: bool = True) -> SharedTokens:
    """Pair the tokens of models by their strings; models without any tokenizer by their ids.

    Parameters
    ----------
    checkpoints
        The checkpoints of the models.
    controls
        Whether tokens that are no text (begin, end, unknown, turns of a dialogue) are among them.

    Raises
    ------
    NotComparableError
        The tokenizers share too little, one model has a tokenizer and another has none, or models without tokenizers
        have vocabularies of different sizes.
    """
    sizes = [_vocabulary_size(checkpoint) for checkpoint in checkpoints]
    tables = [_token_table(checkpoint, size, controls) for checkpoint, size in zip(checkpoints, sizes, strict=True)]
    first, known = checkpoints[0], [table for table in tables if table is not None]
    if not known:
        for checkpoint, size in zip(checkpoints, sizes, strict=True):
            if size != sizes[0]:
                raise NotComparableError(
                    f"{first.name} has {sizes[0]} tokens and {checkpoint.name} has {size}, and neither has a tokenizer "
                    "that says which are the same; Model-diff needs two models of one tokenizer"
                )
        return SharedTokens((np.arange(sizes[0]),) * len(sizes), (0,) * len(sizes), 0, named=False)
    if len(known) < len(tables):
        without = checkpoints[tables.index(None)].name
        raise NotComparableError(f"{without} has no tokenizer, so nothing says that its ids mean what the other's do")
    for checkpoint, table in zip(checkpoints, known, strict=True):
        common, least = len(table.keys() & known[0].keys()), min(len(table), len(known[0]))
        if common < _LEAST_SHARED * least:
            raise NotComparableError(
                f"{first.name} and {checkpoint.name} have different tokenizers: they share {common:,} of {least:,} "
                f"tokens ({_LEAST_SHARED:.0%} are needed); Model-diff needs two models of one tokenizer"
            )
    strings = set(known[0]).intersection(*known[1:])
    shared = sorted(strings, key=known[0].__getitem__)
    ids = tuple(np.array([table[string] for string in shared], dtype=np.int64) for table in known)
    moved = int(np.any([own != ids[0] for own in ids], axis=0).sum())
    return SharedTokens(ids, tuple(size - len(shared) for size in sizes), moved, named=True)


def _vocabulary_size(checkpoint: Checkpoint) -> int:
    size = checkpoint.config.get("vocab_size", checkpoint.config.get("text_config", {}).get("vocab_size"))
    if not isinstance(size, int):
        raise CheckpointError(f"{checkpoint.source}: config.json has no vocab_size; copy the config again")
    return size


def _token_table(checkpoint: Checkpoint, size: int, controls: bool) -> dict[str, int] | None:
    """Return token -> id of what the model has a row for, None where it comes with no tokenizer at all."""
    table = checkpoint.vocabulary()
    if table is None:
        return None
    apart: set[int] = set()
    if not controls:
        tokenizer = checkpoint.tokenizer()
        apart = {
            *tokenizer.all_special_ids,
            *(k for k, added in tokenizer.added_tokens_decoder.items() if added.special),
        }
    return {string: number for string, number in table.items() if number < size and number not in apart}


def opening(checkpoint: Checkpoint, prompt: Prompt | None = None) -> list[int]:
    """Return a model's own ids of what stands before an input as in training: its start token, and a prompt.

    A prompt is put into the chat template where the model has one, a text as what a user says; otherwise it follows the
    start token, the one that the tokenizer names as the beginning of a text, turns as lines of "role: content" and the
    name of the one who is to answer. Without both there is nothing.

    Raises
    ------
    CheckpointError
        The tokenizer or its template cannot be used.
    """
    tokenizer = checkpoint.tokenizer()
    if prompt and tokenizer.chat_template:
        spoken = (("user", prompt),) if isinstance(prompt, str) else prompt
        turns = [{"role": role, "content": content} for role, content in spoken]
        ids = checkpoint.encode(rendered(checkpoint.source, tokenizer, turns, asks=True))
        return _embedded(checkpoint, ids, "its chat template writes")
    said = prompt or ""
    if not isinstance(said, str):
        said = "".join(f"{role}: {content}\n" for role, content in said) + "assistant:"
    with usable_tokenizer(checkpoint.source):
        first = tokenizer.bos_token_id
    written = _embedded(checkpoint, checkpoint.encode(said), "the prompt has") if said else []
    return written if first is None or first >= _vocabulary_size(checkpoint) else [first, *written]


def _embedded(checkpoint: Checkpoint, ids: list[int], who: str) -> list[int]:
    """Return ids of tokens, unless the model has no embedding of one."""
    size = _vocabulary_size(checkpoint)
    if outside := sorted({number for number in ids if number >= size}):
        tokens = ", ".join(repr(checkpoint.tokenizer().decode([number]))[:40] for number in outside[:2])
        raise CheckpointError(
            f"{checkpoint.source}: {who} {tokens} (id {outside[0]}), and the model has {size} embeddings; give the "
            "weights and the tokenizer of one model, or leave the prompt out"
        )
    return ids
