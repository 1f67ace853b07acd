"""Descriptions that passes and jobs share, and how their errors name models."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from provlab.engine.memory import Budget, gigabytes
from provlab.errors import InputError, NotComparableError, NoUnitsError
from provlab.statistics.results import BlockResult

Result = BlockResult | BaseException


@dataclass(frozen=True)
class Reference:
    """Serialisable model reference: how to open it, whether without hashing it, and the digest that it must have."""

    source: str
    digest: str
    allow_pickle: bool = False
    in_part: bool = False


def too_large(what: str, needed: int, budget: Budget, held: int = 0) -> str:
    """Say that the memory given is too small beside bytes that are held already, and which limit would do."""
    return (
        f"{what} needs about {gigabytes(needed)} beside the libraries, and "
        f"{gigabytes(budget.process - held)} of the memory given are left for it in each process; raise the limit to "
        f"{gigabytes(budget.limit_for(needed + held))}"
    )


@contextmanager
def named(what: str, *pair: str) -> Iterator[None]:
    """Name the models in errors about arrays: inference calls those of a pair W1 and W2.

    Raises
    ------
    NotComparableError
        In place of an `InputError`.
    """
    try:
        yield
    except NoUnitsError:  # of one block, which is left out
        raise
    except InputError as error:
        models = " of {} (W1) and {} (W2)".format(*pair) if pair else ""
        raise NotComparableError(f"{what}{models}: {error}") from error
