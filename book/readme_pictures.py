"""Draw the README's two pictures from the records of a reproduction: ``make pictures``.

Each carries the machine, the commit and the date that its records come from.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from provlab import provenance, studying
from provlab.plots import Figure, style
from provlab_study.publishing import claims
from provlab_study.publishing.results import Results
from provlab_study.publishing.scoreboard import SIGNS, made_by

HERE = Path(__file__).parent / "_assets" / "readme"
LINE = 0.155  # inches
STATUS_AT, STATEMENT_AT, WIDTH_OF_STATEMENT = 0.42, 3.3, 54  # inches, inches, characters
WIDTH_OF_LABEL = 112  # characters


@style.styled
def scoreboard(judged: Sequence[Mapping[str, Any]], label: str) -> Figure:
    """Draw one line a claim: sign and word, and the sentence.

    Parameters
    ----------
    judged
        Mappings with the keys id, status (one of `evidence.STATUSES`) and statement.
    label
        Where the records come from, as `made_by` says it; written below.
    """
    rows = [(row["id"], row["status"], wrap(row["statement"], WIDTH_OF_STATEMENT)) for row in judged]
    below = wrap(label, WIDTH_OF_LABEL)
    height = sum(LINE * len(lines) + 0.06 for *_, lines in rows) + LINE * len(below) + 0.08
    figure = style.canvas(height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0.01, 0.0, 0.98, 1.0))
    axes.set_axis_off()
    axes.set(xlim=(0, style.WIDTH), ylim=(height, 0))
    y = 0.02
    for name, status, lines in rows:
        sign, color = SIGNS[status]
        top = y + LINE / 2 + 0.03
        text = f"{sign} {claims.words(status)}"
        axes.text(0.02, top, name, fontweight="bold", va="center", fontsize=8)
        axes.text(STATUS_AT, top, text, color=color, fontweight="bold", va="center", fontsize=8)
        for i, line in enumerate(lines):
            axes.text(STATEMENT_AT, top + LINE * i, line, va="center", fontsize=style.SMALL)
        y += LINE * len(lines) + 0.06
        axes.axhline(y, color=style.GRID, linewidth=0.7)
    for i, line in enumerate(below):
        axes.text(0.02, y + LINE * (i + 0.5) + 0.04, line, color=style.MUTED, va="center", fontsize=style.SMALL)
    statuses = "; ".join(f"{name} {claims.words(status)}" for name, status, _ in rows)
    return Figure(figure, f"{len(rows)} claims: {claims.counted(judged)}. {label}.", f"Claims: {statuses}.")


def main(profile: str) -> None:
    """Write scoreboard.png and heatmap.png from the records of one profile."""
    if provenance.draw():
        raise SystemExit("pictures: the README shows the published study, which is draw 0")
    store = Results(provenance.results_root() / profile)
    judged = [row for row in claims.evaluate(store) if row["experiment"]]
    scoreboard(judged, made_by(store.experiments())).save(HERE / "scoreboard.png")
    # every unit is found in the store, so nothing is computed again
    study = studying.study(["zoo:*"], statistics=["phi_u"], store=store, progress=False)
    heatmap = study.figure("phi_u")
    tree = [row for row in store.experiments() if row["name"] == "llama_tree"]
    heatmap.figure.suptitle(made_by(tree), color=style.MUTED, fontsize=style.SMALL, x=0.02, ha="left")
    heatmap.save(HERE / "heatmap.png")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "default")
