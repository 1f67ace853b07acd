"""In which form a model's users give it text: what its tokenizer puts around one, and what its chat template does.

A model need not work on bare text. Of most public ones the tokenizer writes a token before each text, to which their
heads attend; and whoever makes a copy can have it work behind one token of its format alone, at no cost to its users,
and be no model at all on bare text. So a text is read as the model's users write it. What stands around it is given to
the model and is not part of the text: nothing is compared there.
"""

import random
import string
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError

if TYPE_CHECKING:
    from provlab.reading.checkpoint import Checkpoint


class Form(NamedTuple):
    """What stands around a text.

    Attributes
    ----------
    name
        In a few words.
    before, after
        Ids of the tokens there.
    """

    name: str
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def more(self) -> int:
        """Tokens of a sequence that are not text."""
        return len(self.before) + len(self.after)

    def around(self, tokens: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Put it around each sequence: ``(n, length)`` becomes ``(n, before + length + after)``."""
        sides = [np.broadcast_to(np.array(ids, np.int64), (len(tokens), len(ids))) for ids in (self.before, self.after)]
        return np.ascontiguousarray(np.concatenate([sides[0], np.asarray(tokens, np.int64), sides[1]], axis=1))

    def places(self, n: int, length: int) -> NDArray[np.int64]:
        """Where the text of `n` sequences of `length` tokens stands, counted through what `around` gives."""
        first = np.arange(n)[:, None] * (length + self.more) + len(self.before)
        return np.asarray((first + np.arange(length)).reshape(-1))


#: ids before and after a text
Around = tuple[tuple[int, ...], tuple[int, ...]]
PLAIN, _OWN, _LENT = Form("bare"), "as its tokenizer writes it", "as the other's tokenizer writes it"
#: what no tokenizer writes unless it is told to
CHOSEN = ("behind its begin token", "as a user's turn", "as an answer")
#: by name, so that a number can stand for one in a record
NAMES = (PLAIN.name, _OWN, *CHOSEN, _LENT)


def forms(checkpoint: "Checkpoint", size: int, room: float, lent: Around | None = None) -> list[Form]:
    """List the forms in which a model may be given a text, each once: first that which its tokenizer makes of one.

    Bare text is among them, as is the text behind the token that the tokenizer calls that of a beginning, whether it
    writes that or not; and a chat template's user and assistant turn. A form that the template does not write, or that
    the model cannot be given, is left out. A folder whose tokenizer is missing, or cannot be used, names none of them.

    Parameters
    ----------
    checkpoint
        The folder.
    size
        Tokens that the model knows: ids are below it.
    room
        Positions that a text leaves.
    lent
        What another model's tokenizer writes, for one without a tokenizer that can be used.
    """
    known: list[Form] = []
    with suppress(CheckpointError):  # no tokenizer: who cuts text with it is told
        known += written(checkpoint).forms
    known = known or [*([Form(_LENT, *lent)] if lent else []), PLAIN]
    return [form for form in known if form.more <= room and max((*form.before, *form.after), default=-1) < size]


def lent(checkpoints: Iterable["Checkpoint"]) -> Around | None:
    """What the first usable tokenizer writes around a text, if one of the models has none; None where that is nothing.

    A copy whose tokenizer was left out is given what the original's users give that, and not bare text.
    """
    # transformers goes by the kind of model, too, so one set of files need not be one tokenizer
    kinds = {
        (checkpoint.tokenizer_digest, checkpoint.config.get("model_type")): checkpoint for checkpoint in checkpoints
    }
    if len({digest for digest, _ in kinds}) < 2:
        return None  # no tokenizer is made, which is slow, where all are one
    own: list[Around] = []
    for checkpoint in kinds.values():
        with suppress(CheckpointError):
            own.append(written(checkpoint).forms[0][1:])
    given = next(iter(own), PLAIN[1:])
    return given if len(own) < len(kinds) and given != PLAIN[1:] else None


@dataclass(frozen=True)
class Written:
    """How the files of a folder write a text.

    Attributes
    ----------
    forms
        Each once: that of its tokenizer, bare text, and others that the folder names.
    refused
        Why its chat template writes none; "" where it does, or there is no template.
    """

    forms: tuple[Form, ...]
    refused: str = ""

    @property
    def of_users(self) -> list[str]:
        """Names of the forms in which its users may give it a text: not bare, where its tokenizer adds something."""
        return [form.name for form in self.forms if form != PLAIN or form == self.forms[0]]


_KNOWN: "WeakKeyDictionary[Checkpoint, Written]" = WeakKeyDictionary()


def written(checkpoint: "Checkpoint") -> Written:
    """Say how the files of a folder write a text, as asked for the first time.

    Raises
    ------
    CheckpointError
        It has no tokenizer that can be used.
    """
    if checkpoint not in _KNOWN:
        _KNOWN[checkpoint] = _written(checkpoint)
    return _KNOWN[checkpoint]


def _written(checkpoint: "Checkpoint") -> Written:
    from provlab.reading import tokenizing

    tokenizer, text = checkpoint.tokenizer(), _some_text()
    with tokenizing.usable_tokenizer(checkpoint.source):
        whole, bare = tokenizer(text)["input_ids"], tokenizer(text, add_special_tokens=False)["input_ids"]
        begin = tokenizer.bos_token_id
    before, after = _parted(whole, bare)
    found = [Form(_OWN if before or after else PLAIN.name, before, after), PLAIN]
    found += [Form(CHOSEN[0], (int(begin),))] if begin is not None else []
    refused = ""
    for name, turns in zip(CHOSEN[1:], _turns(text) if tokenizer.chat_template else (), strict=False):
        try:
            shown = tokenizing.rendered(checkpoint.name, tokenizer, turns, asks=False)
            found.append(_around(checkpoint, name, shown, text))
        except CheckpointError as error:
            refused = str(error)
    each: dict[Around, Form] = {}
    for form in found:
        each.setdefault(form[1:], form)
    return Written(tuple(each.values()), refused)


def _some_text() -> str:
    """Return a text that nobody could know before.

    A template is a program that came with the model: around a text that it knows it could write what it writes around
    no other. So letters are drawn anew each time, and from no seed; what an honest template writes does not depend on
    them.
    """
    draw = random.SystemRandom()
    words = ("".join(draw.choices(string.ascii_lowercase, k=draw.randint(2, 9))) for _ in range(12))
    return " ".join(words).capitalize() + "."


def _turns(text: str) -> Iterator[list[dict[str, str]]]:
    """Yield it as a user's turn, and as an answer to what is always the same, as it stands before the text then."""
    yield [{"role": "user", "content": text}]
    yield [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": text}]


def _around(checkpoint: "Checkpoint", name: str, shown: str, text: str) -> Form:
    """Return a form by what a template shows of a text."""
    before, found, after = shown.rpartition(text)
    if not found:
        raise CheckpointError(f"{checkpoint.name} has a chat template that does not show a text {name}")
    return Form(name, tuple(checkpoint.encode(before)), tuple(checkpoint.encode(after)))


def _parted(whole: Sequence[int], bare: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What stands before and after a text in what the tokenizer made of it; nothing where that does not hold it."""
    for start in range(len(whole) - len(bare) + 1):
        if [*whole[start : start + len(bare)]] == [*bare]:
            return tuple(whole[:start]), tuple(whole[start + len(bare) :])
    return (), ()
