"""Predicates that judge claims from stored records.

A predicate takes the `Evidence` of one experiment and the arguments of its row in ``claims.yml`` and returns a
`Verdict`. Thresholds come from the row; values come from the records. Each module's ``__all__`` names its predicates.
"""

from collections.abc import Callable

from provlab.studies.predicates import (
    distillation,
    evasion,
    lineage,
    modeldiff,
    pruning,
    retraining,
    robust_null,
    seeds,
    sharing,
    toy,
    validity,
)
from provlab.studies.predicates.evidence import FAILS, HOLDS, NOT_RUN, Evidence, Verdict

__all__ = ["FAILS", "HOLDS", "NOT_RUN", "PREDICATES", "Evidence", "Verdict"]

PREDICATES: dict[str, Callable[..., Verdict]] = {
    name: getattr(module, name)
    for module in (
        distillation,
        evasion,
        lineage,
        modeldiff,
        pruning,
        retraining,
        robust_null,
        seeds,
        sharing,
        toy,
        validity,
    )
    for name in module.__all__
}
