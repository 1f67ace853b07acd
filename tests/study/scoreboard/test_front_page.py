"""The sentences of the front page are counted in records."""

import pandas as pd

from provlab_study.publishing.results import Results
from provlab_study.scoreboard import front_page
from provlab_study.scoreboard.front_page import UNKNOWN, sentences


def test_the_front_page_says_what_a_run_has_not_come_to(tmp_path):
    names = {"origin": "tree", "adversary": "hidden", "counted": "toy"}
    assert sentences(Results(tmp_path), **names) == [f"Not run here: {name}." for name in names.values()]


def test_the_front_pages_sentences_are_counted_in_the_records(tmp_path, monkeypatch):
    """Two dependent pairs and two independent ones, of which one each is as a test should not have it."""
    rows = {
        "phi_u": ([-30.0, -1.0], [-20.0, -0.5]),
        "phi_match": ([-30.0, -20.0], [-0.1, -0.5]),
    }
    monkeypatch.setattr(
        front_page,
        "known",
        lambda pairs, statistic: (*(pd.DataFrame({"log10_p": values}) for values in rows[statistic]), 0),
    )
    store = Results(tmp_path)
    sampling = {"exact": [1.0, 0.5, 1.0, 0.5], "runs": [{"ratio": [1.0, 0.51, 1.0, 0.5]}]}
    for name, measurements in (
        ("tree", {}),
        ("hidden", {"negative": [-9.0, -2.1, -0.2]}),  # the second by chance, one of three
        ("toy", {"space": {"inputs": 1000}, "sampling": sampling}),
    ):
        store.put_experiment(name, {"name": name, "profile": "smoke", "measurements": measurements, "pairs": []})
    origin, adversary, counted = sentences(store, origin="tree", adversary="hidden", counted="toy")
    assert "finds 1 of the 2 pairs of language models with a common origin, and accuses 1 of the 2 pairs" in origin
    assert "this test finds 1 of 2. Another, φ_MATCH," in adversary
    assert adversary.endswith("finds 2; if signs are flipped too, it finds 1 of 3 (all by Holm's correction at 0.01).")
    assert counted.endswith("on all 1,000 inputs; estimates from samples come within 2.0% of the counts.")
    rows["phi_u"] = ([], [])  # a reader's own models, of which nothing is known
    store.put_experiment("hidden", {"name": "hidden", "profile": "smoke", "measurements": {}, "pairs": []})
    assert sentences(store, origin="tree", adversary="hidden", counted="toy")[:2] == [UNKNOWN, UNKNOWN]
