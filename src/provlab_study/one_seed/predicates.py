"""Predicate on weights by others: six published models began as one draw, and none has what another trained."""

from collections.abc import Mapping, Sequence
from typing import Any

from provlab_study.one_seed.measure import Seeded, SharedTraining
from provlab_study.publishing.evidence import NOT_RUN, Bar, ClaimStatus, judge


def one_draw(
    seeded: Sequence[Mapping[str, Any]], kept: Sequence[Mapping[str, Any]], *, level: float, share: float, models: int
) -> ClaimStatus:
    """Each model's key biases name the same seed at `level` (log10 p), and no model keeps `share` of another's path.

    Descent leaves a child all of its parent's path but what its own training undid; trainings that began at one draw
    and went their own ways share next to none.
    """
    drawn, paths = [Seeded(**row) for row in seeded], [SharedTraining(**row) for row in kept]
    if len(drawn) < models or len(paths) < models * (models - 1):
        return ClaimStatus(NOT_RUN, "", f"needs {models} models of packages: provlab run one_seed -p fetch=true")
    seeds = sorted({row.seed for row in drawn})
    weakest, most = max(drawn, key=lambda row: row.log10_p), max(paths, key=lambda row: row.share)
    ours = (
        f"seed {', '.join(map(str, seeds))} for {len(drawn)} models, weakest log10 p {weakest.log10_p:,.1f} "
        f"({weakest.atom}, {weakest.tried} seeds tried); largest share of a path kept {most.share:.3f} "
        f"({most.child} of {most.parent})"
    )
    problems = [(len(seeds) > 1, f"the models name {len(seeds)} seeds")]
    bars = [
        Bar("largest log10 p of a named seed", [weakest.log10_p], level),
        Bar("largest share of another model's path", [most.share], share),
    ]
    return judge(ours, "one seed names all draws, and no model has what another trained", problems, bars)
