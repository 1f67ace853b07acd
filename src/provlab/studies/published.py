"""The papers' tables beside ours: published columns read from their files, ours from records."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from provlab.studies.lineage import published_table

# the short names of Tables 1 and 5 that are no hub id's last part
ALIASES = {
    "llama-7b-hf": "yahma/llama-7b-hf",
    "llemma-7b": "EleutherAI/llemma_7b",
    "open-llama-7b": "openlm-research/open_llama_7b",
}


def side_by_side(pairs: pd.DataFrame, mirrors: Mapping[str, str]) -> pd.DataFrame:
    """Rows of Tables 1 and 5 with the pair of the study that stands in their place.

    Parameters
    ----------
    pairs
        One row per pair and statistic, as `provlab.StudyReport.to_frame` gives.
    mirrors
        Source to the public model in whose place it stands.

    Returns
    -------
    DataFrame
        Columns are pairs (statistic, "published" or "ours"); numbers are text, as each side gives them. Empty if the
        study holds no pair of these tables.
    """
    here = {hub_id: source for source, hub_id in mirrors.items()}
    found = {(frozenset((row.a, row.b)), row.statistic): row for row in pairs.itertuples() if pd.isna(row.error)}
    rows = {}
    for table, name in (("independence_table1", "Table 1"), ("independence_table5", "Table 5")):
        for line in published_table(table):
            named = (_hub_id(line[side], here) for side in ("theta_1", "theta_2"))
            sources = [here[hub_id] for hub_id in named if hub_id in here]
            if len(sources) < 2:
                continue  # the study lacks one of the two
            ours = {s: found.get((frozenset(sources), s)) for s in ("phi_jsd", "phi_l2", "phi_u", "phi_h")}
            key = (name, f"{line['theta_1']}, {line['theta_2']}", ", ".join(_short(s) for s in sources))
            rows[key] = {
                ("related", ""): "no" if line["independent"] == "true" else "yes",
                ("log JSD", "published"): line["log_jsd"],
                ("log JSD", "ours"): _text(ours["phi_jsd"], lambda row: f"{np.log(row.value):.2f}"),
                ("p of phi_l2", "published"): line["p_l2"],
                ("p of phi_l2", "ours"): _text(ours["phi_l2"], lambda row: f"{10**row.log10_p:.2f}"),
                ("phi_U", "published p"): line["p_U"],
                ("phi_U", "ours log10 p"): _text(ours["phi_u"], lambda row: f"{row.log10_p:,.1f}"),
                ("phi_H", "published p"): line["p_H"],
                ("phi_H", "ours log10 p"): _text(ours["phi_h"], lambda row: f"{row.log10_p:,.1f}"),
            }
    if not rows:
        return pd.DataFrame()  # none of these models is in the study
    frame = pd.DataFrame.from_dict(rows, orient="index")
    frame.index = pd.MultiIndex.from_tuples(frame.index, names=["", "published pair", "our pair"])
    frame.columns = pd.MultiIndex.from_tuples(frame.columns)
    return frame


def _hub_id(name: str, hub_ids: Iterable[str]) -> str:
    """Hub id of a model that a table calls by the last part of its name; the name itself if none has it."""
    return ALIASES.get(name) or next((hub_id for hub_id in hub_ids if hub_id.rpartition("/")[2] == name), name)


def _short(source: str) -> str:
    return source.partition(":")[2].partition("@")[0] or source


def _text(row: Any, write: Callable[[Any], str]) -> str:
    return "" if row is None else write(row)
