"""How often a study reads its models: all pairs together, against pair by pair, both measured by counting bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from provlab.models.counting import counting
from provlab.statistics.base import Options
from provlab.studies.pairs import open_models, run_pairs
from provlab.studies.schedule import plan


@dataclass(frozen=True)
class Reads:
    """Bytes of tensors read by one statistic over all pairs of some models.

    Attributes
    ----------
    n_models, n_pairs : int
        How many.
    needed : int
        Bytes of the tensors that the statistic needs, each counted once.
    together : int
        Bytes that a study of all models read.
    apart : int
        Bytes that were read when each pair was tested on its own.
    """

    n_models: int
    n_pairs: int
    needed: int
    together: int
    apart: int

    @property
    def ratio_together(self) -> float:
        """Bytes read by the study over those needed; 1 is the least."""
        return self.together / self.needed

    @property
    def ratio_apart(self) -> float:
        """Bytes read pair by pair over those needed: one less than the number of models."""
        return self.apart / self.needed


def measure_reads(
    sources: Sequence[str], statistic: str, options: Options, *, memory: int | str | None = None
) -> Reads:
    """Run one statistic over all pairs twice, together and pair by pair, and count the bytes of tensors read.

    Bytes that are hashed are not in it: files are hashed once a machine, and a study of either kind needs the hashes.

    Parameters
    ----------
    sources, statistic, options
        Which models, which statistic, which inputs.
    memory
        A limit for the study of all pairs, as for `provlab.study`; a tight one has tensors read more than once.
    """
    bench = open_models(sources)
    pairs = list(combinations(sources, 2))
    needed = plan(bench.models, [statistic], options).bytes_needed
    with counting() as together:
        run_pairs(bench, [statistic], options, progress=False, memory=memory)
    with counting() as apart:
        for pair in pairs:
            run_pairs(open_models(pair), [statistic], options, progress=False)
    return Reads(len(sources), len(pairs), needed, together.tensors, apart.tensors)
