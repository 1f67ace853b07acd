"""Pairs of models, the second one in disguise, as a heatmap."""

import numpy as np
import pandas as pd

from provlab import plots
from provlab.chapters.evasion.measure import Disguised
from provlab.engine.lineage import Lineage, short_names
from provlab.plots.figure import Figure


def disguised_pairs(frame: pd.DataFrame, disguised: Disguised, lineage: Lineage, *, statistic: str) -> Figure:
    """Draw what a statistic says of each pair, and the truth above the diagonal where every origin is known.

    Parameters
    ----------
    frame
        The study of the disguised pairs, as `provlab.StudyReport.to_frame` gives.
    disguised
        These pairs.
    lineage
        Of the models as they are.
    """
    sources, names = disguised.sources, short_names(disguised.sources)
    back = {other: source for source, other in disguised.hidden.items()}
    rows = frame[frame["statistic"] == statistic]

    def board(column: str) -> pd.DataFrame:
        matrix = pd.DataFrame(np.nan, index=list(names.values()), columns=list(names.values()))
        for a, b, value in zip(rows["a"], rows["b"], rows[column], strict=True):
            first, second = names[a], names[back[b]]
            matrix.loc[first, second] = matrix.loc[second, first] = value
        return matrix

    truth = None
    if all(lineage.root(source) for source in sources):
        related = [[a != b and bool(lineage.dependent(a, b)) for b in sources] for a in sources]
        truth = pd.DataFrame(related, index=list(names.values()), columns=list(names.values()))
    return plots.pair_heatmap(
        board("log10_p"),
        {names[source]: names.get(root, root) for source, root in lineage.families().items()},
        statistic=statistic,
        floor=float(rows["floor"].min()),
        truth=truth,
        adjusted=board("holm_log10_p"),
        caption="The second model of each pair in disguise.",
    )
