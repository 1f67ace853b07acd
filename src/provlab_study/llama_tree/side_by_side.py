"""The paper's Tables 1 and 5 beside ours: published columns read from their files, ours from records."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from provlab.report.lineage import short_name
from provlab_study.publishing.published import published_table

# the short names of Tables 1 and 5 that are no hub id's last part
ALIASES = {
    "llama-7b-hf": "yahma/llama-7b-hf",
    "llemma-7b": "EleutherAI/llemma_7b",
    "open-llama-7b": "openlm-research/open_llama_7b",
}


def side_by_side(pairs: pd.DataFrame, mirrors: Mapping[str, str]) -> dict[str, pd.DataFrame]:
    """Tables 1 and 5 with the pairs of the study that stand in their rows' places.

    Parameters
    ----------
    pairs
        One row per pair and statistic, as `provlab.StudyReport.to_frame` gives.
    mirrors
        Source to the public model in whose place it stands.

    Returns
    -------
    dict of DataFrame
        By caption, which names the model that a table compares with all others; one row for each of these. Numbers
        are text, as each side gives them. A row whose models the study lacks is left out, and so is an empty table.
    """
    here = {hub_id: source for source, hub_id in mirrors.items()}
    pairs_by = {(frozenset((row.a, row.b)), row.statistic): row for row in pairs.itertuples() if pd.isna(row.error)}
    tables = {}
    for table, name in (("independence_table1", "Table 1"), ("independence_table5", "Table 5")):
        lines = published_table(table)
        first = here.get(_hub_id(lines[0]["theta_1"], here))
        rows = []
        for line in lines:
            second = here.get(_hub_id(line["theta_2"], here))
            if first is None or second is None:
                continue
            ours = {s: pairs_by.get((frozenset((first, second)), s)) for s in ("phi_jsd", "phi_l2", "phi_u", "phi_h")}
            rows.append(
                {
                    "published model": line["theta_2"],
                    "our model": short_name(second),
                    "related": "no" if line["independent"] == "true" else "yes",
                    "log JSD, published": line["log_jsd"],
                    "ours": _text(ours["phi_jsd"], lambda row: f"{np.log(row.value):.2f}"),
                    "p of phi_l2, published": line["p_l2"],
                    "ours ": _text(ours["phi_l2"], lambda row: f"{10**row.log10_p:.2f}"),
                    "p of phi_U, published": line["p_U"],
                    "ours, log10 p": _text(ours["phi_u"], lambda row: f"{row.paper_log10_p:,.1f}"),
                    "p of phi_H, published": line["p_H"],
                    "ours, log10 p ": _text(ours["phi_h"], lambda row: f"{row.paper_log10_p:,.1f}"),
                }
            )
        if rows:
            caption = f"{name}: {lines[0]['theta_1']} (published) and {short_name(str(first))} (ours) against others"
            tables[caption] = pd.DataFrame(rows)
    return tables


def _hub_id(name: str, hub_ids: Iterable[str]) -> str:
    """Hub id of a model that a table calls by the last part of its name; the name itself if none has it."""
    return ALIASES.get(name) or next((hub_id for hub_id in hub_ids if hub_id.rpartition("/")[2] == name), name)


def _text(row: Any, write: Callable[[Any], str]) -> str:
    return "" if row is None else write(row)
