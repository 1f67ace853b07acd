"""Everything that provlab refuses, as one family of exceptions.

A message is one line that names the thing refused and the way out. The command line prints it and
exits with 2; a study turns it into a record with its reason and goes on with the other pairs.
"""

__makes_no_numbers__ = True

import re
from collections.abc import Iterable
from difflib import get_close_matches

_ERRNO = re.compile(r"\[Errno -?\d+\] ")  # how Python begins the words of a system's error
_WORD = 30  # letters of a word that is not broken


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?`` for the name that a misspelt word is nearest to, "" where none is near."""
    by_letters = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), list(by_letters), 1, 0.6)
    return f"; did you mean {by_letters[near[0]]}?" if near else ""


def one_line(error: object, longest: int = 240) -> str:
    """Bring a text to one line of so many characters, the middle left out; an error without a text gives its type.

    Words stay whole where there are any. Texts of files reach a terminal: a character that it would obey and not print
    becomes ``?``.
    """
    text = " ".join(_ERRNO.sub("", str(error)).split()) or type(error).__name__
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    if len(text) <= longest:
        return text
    first, last = text[: longest // 2 - 2], text[2 - longest // 2 :]
    if " " in first[-_WORD:] and " " in last[:_WORD]:
        return f"{first.rpartition(' ')[0]} ... {last.partition(' ')[2]}"
    return f"{first}...{last}"


class ProvlabError(Exception):
    """Base of all errors that a user can mend; ``str(error)`` is one line, the middle of long words left out."""

    longest = 350  # characters of a sentence, beside the paths in it

    def __init__(self, text: object = "") -> None:
        words = [one_line(word, 200) for word in str(text).split()]
        longest = self.longest + sum(len(word) for word in words if "/" in word)
        super().__init__(one_line(" ".join(words), longest) if words else "")


#: what becomes the reason of one pair's record and ends no study: whatever a model or a statistic raises, but no Ctrl-C
PAIR_FAILURES = (Exception,)


def reason(error: BaseException) -> str:
    """One line for a record: our own errors speak for themselves, others are named."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ProvlabError) else f"{type(error).__name__}: {one_line(text)}"


class InputError(ProvlabError, ValueError):
    """An array, a number or a parameter does not fit; the message names the argument."""


class ParameterError(InputError):
    """A notebook, command or recipe parameter is unknown or has the wrong type."""


class CheckpointError(ProvlabError):
    """A checkpoint cannot be opened: missing, truncated, outside its folder, or unreachable."""


class InvalidWeightsError(CheckpointError):
    """A tensor holds NaN or Inf, or its shape contradicts the config."""


class UnknownArchitectureError(ProvlabError):
    """The config names an architecture that `provlab.reading.anatomy` does not describe."""

    longest = 2000  # it lists all that are


class MissingRoleError(ProvlabError):
    """The architecture has no tensor in the role asked for (a gate in GPT-2, say)."""


class NoSuchSymmetryError(ProvlabError):
    """A transformation would change this model's outputs; the message says which part of it forbids it."""


class NotComparableError(ProvlabError):
    """A statistic does not apply to this pair of models; the message says why."""


class NoUnitsError(InputError, NotComparableError):
    """A block of one model has too few living units to be compared; the block is left out, and no other one."""


class EvidenceError(ProvlabError):
    """A folder of evidence does not agree with itself or with the models; the message says what differs."""


class WorkerError(ProvlabError):
    """Workers of a study cannot be reached, do not fit, or die again and again."""


class ZooError(ProvlabError):
    """A zoo recipe is wrong, or a model that it describes learned nothing."""
