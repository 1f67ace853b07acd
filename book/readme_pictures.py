"""Draw the README's two pictures from the records of a reproduction: ``make pictures``."""

import sys
from pathlib import Path

from provlab import api, plots, provenance
from provlab.studies import claims
from provlab.studies.store import Store

HERE = Path(__file__).parent / "_assets" / "readme"


def main(profile: str) -> None:
    """Write scoreboard.png and heatmap.png from the records of one profile."""
    store = Store(provenance.results_root() / profile)
    judged = [row for row in claims.evaluate(store) if row["experiment"]]
    plots.scoreboard(judged).save(HERE / "scoreboard.png")
    # every unit is found in the store, so nothing is computed again
    study = api.study(["zoo:*"], statistics=["phi_u"], store=store, progress=False)
    study.figure("phi_u").save(HERE / "heatmap.png")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "default")
