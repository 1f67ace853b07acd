"""Draw the README's two pictures from the records of a reproduction: ``make pictures``.

Each carries the machine, the commit and the date that its records come from.
"""

import sys
from pathlib import Path

from provlab import api, provenance
from provlab.engine.store import Store
from provlab.plots import style
from provlab.publishing import claims
from provlab.publishing.scoreboard import made_by, scoreboard

HERE = Path(__file__).parent / "_assets" / "readme"


def main(profile: str) -> None:
    """Write scoreboard.png and heatmap.png from the records of one profile."""
    store = Store(provenance.results_root() / profile)
    judged = [row for row in claims.evaluate(store) if row["experiment"]]
    scoreboard(judged, made_by(store.experiments())).save(HERE / "scoreboard.png")
    # every unit is found in the store, so nothing is computed again
    study = api.study(["zoo:*"], statistics=["phi_u"], store=store, progress=False)
    heatmap = study.figure("phi_u")
    tree = [found for found in store.experiments() if found["name"] == "llama_tree"]
    heatmap.figure.suptitle(made_by(tree), color=style.MUTED, fontsize=style.SMALL, x=0.02, ha="left")
    heatmap.save(HERE / "heatmap.png")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "default")
