"""Everything that provlab refuses, as one family of exceptions.

A message is one line that names the thing refused and the way out. The command line prints it and
exits with 2; a study turns it into a record with its reason and goes on with the other pairs.
"""

_LONGEST_WORD = 200  # characters


def one_line(error: object) -> str:
    """Bring an error's text, or another's, to one line of at most 240 characters; one without a text gives its type."""
    return _cut(" ".join(str(error).split()) or type(error).__name__, 240)


def _cut(text: str, length: int) -> str:
    """Leave out the middle of what is longer: a sentence begins with the thing and ends with the way out."""
    kept = (length - 3) // 2
    return text if len(text) <= length else f"{text[:kept]}...{text[-kept:]}"


class ProvlabError(Exception):
    """Base of all errors that a user can mend; ``str(error)`` is one complete line.

    A file may name a tensor by a thousand characters, or by several lines. Of such words, and of sentences longer than
    anyone reads, the middle is left out here, once for all messages.

    Attributes
    ----------
    longest
        Characters of a sentence, beside the paths in it.
    """

    longest = 350

    def __init__(self, text: object = "") -> None:
        words = [_cut(word, _LONGEST_WORD) for word in str(text).split()]
        of_paths = sum(len(word) for word in words if "/" in word)
        super().__init__(_cut(" ".join(words), self.longest + of_paths))


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
    """The config names an architecture that `provlab.models.anatomy` does not describe; the message lists all."""

    longest = 2000


class MissingRoleError(ProvlabError):
    """The architecture has no tensor in the role asked for (a gate in GPT-2, say)."""


class NoSuchSymmetryError(ProvlabError):
    """A transformation would change this model's outputs; the message says which part of it forbids it."""


class NotComparableError(ProvlabError):
    """A statistic does not apply to this pair of models; the message says why."""


class WorkerError(ProvlabError):
    """Workers of a study cannot be reached, do not fit, or die again and again."""


class ZooError(ProvlabError):
    """A zoo recipe is wrong, or a model that it describes learned nothing."""
