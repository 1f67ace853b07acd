"""The tables of the page on language models."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from provlab.chapters.model_diff.measure import Domains, Pair, short_names
from provlab.chapters.model_diff.records import CapabilityRecord, WaysRecord
from provlab.modeldiff.comparison import TERMS, Summary
from provlab.modeldiff.held_out import HeldOut, Range
from provlab.modeldiff.pipeline import Model
from provlab.modeldiff.representative import Draws
from provlab.publishing.published import published_table
from provlab.report import difference

# comparisons of this page to experiments of Table 2
_EXPERIMENTS = {"sizes": "2", "long": "3", "generations": "4"}


def models(opened: Mapping[str, Model], text: HeldOut, length: int) -> pd.DataFrame:
    """Size and held-out loss of each model."""
    return pd.DataFrame(
        {
            "model": name,
            "parameters": sum(p.numel() for p in opened[source].nll.network.parameters()),
            f"held-out loss, {length} tokens": text.losses([opened[source]], length)[0],
            "SHA-256 of its files": opened[source].checkpoint.digest[:16],
        }
        for source, name in short_names(opened).items()
    )


def ranges(found: Mapping[str, Range]) -> pd.DataFrame:
    """Z of each comparison."""
    columns = {name: [f"{low:.2f} to {high:.2f}"] for name, (low, high) in found.items()}
    return pd.DataFrame(columns, index=["Z (nats per token)"])


def published_and_ours(
    found: Mapping[str, Summary], pairs: Mapping[str, Pair], short: Mapping[str, str]
) -> pd.DataFrame:
    """Rows of Table 2 beside the comparisons that stand in their places."""
    lines = {(row["experiment"], row["representative_inputs"][0]): row for row in published_table("modeldiff_table2")}
    rows = []
    for name, experiment in _EXPERIMENTS.items():
        ours = found[name]
        for side, source, extent in zip("AB", pairs[name], (ours.extent_a, ours.extent_b), strict=True):
            line, first = lines[experiment, side], side == "A"
            rows.append(
                {
                    "published inputs": line["representative_inputs"],
                    "published D": f"{line['D_min']} to {line['D_max']}",
                    "published ratio": " : ".join(line[term] for term in TERMS) if first else "",
                    "our inputs": f"{side}: {short[source]}",
                    "our D, 1% to 99%": f"{extent[0]:.2f} to {extent[1]:.2f}",
                    "ours by R3": difference.ratio_text(ours.by_r3) if first else "",
                    "ours by count": difference.ratio_text(ours.by_count) if first else "",
                }
            )
    return pd.DataFrame(rows)


def numbers(found: Mapping[str, Summary]) -> pd.DataFrame:
    """Inputs that there are, and that were drawn."""
    return pd.DataFrame(
        {
            "comparison": name,
            "draws of A, of B in Z": " and ".join(f"{k:,}" for k in row.n),
            "of these in R3": " and ".join(f"{k:,}" for k in row.n_common),
            "log10 |X_A|": row.log10_inputs[0],
            "log10 |X_B|": row.log10_inputs[1],
            "log10 |R3| by A": row.log10_common[0],
            "log10 |R3| by B": row.log10_common[1],
        }
        for name, row in found.items()
    )


def ways(records: Sequence[WaysRecord]) -> pd.DataFrame:
    """Each number by both ways, with 95% intervals."""

    def shown(row: Sequence[float]) -> str:
        value, low, high = row
        return f"{value:.3f} ({low:.3f} to {high:.3f})"

    return pd.DataFrame(
        {
            "comparison": row.pair,
            "number": row.what,
            "by generation": shown(row.generation),
            "by replica exchange": shown(row.exchange),
            "apart, in joint intervals": row.apart,
        }
        for row in records
    )


def capability(records: Sequence[CapabilityRecord]) -> pd.DataFrame:
    """Held-out loss and number of inputs in Z."""
    rows = []
    for pair in records:
        more, low, high = (10**value for value in pair.log10_more)
        rows.append(
            {
                "A": pair.models[0],
                "B": pair.models[1],
                "held-out loss of A": pair.held_out[0],
                "of B": pair.held_out[1],
                "B's inputs in Z for one of A's": more,
                "95% interval": f"{low:.2f} to {high:.2f}",
            }
        )
    return pd.DataFrame(rows)


def from_low_to_high(opened: Mapping[str, Model], drawn: Mapping[str, Draws]) -> pd.DataFrame:
    """Eight inputs of each model from the lowest loss to the highest; `drawn` by short names."""
    rows = []
    for source, name in short_names(opened).items():
        one = drawn[name]
        ranks = np.argsort(one.nll)[:: max(1, len(one) // 8)][:8]
        texts = opened[source].texts(one.tokens[ranks])
        rows += [{"model": name, "NLL": one.nll[rank], "input": text} for rank, text in zip(ranks, texts, strict=True)]
    return pd.DataFrame(rows)


def by_difference(found: Domains, side: int) -> pd.DataFrame:
    """Quarters of one model's inputs by D, with examples."""
    rows = []
    for one in found.bins[side]:
        for place, row in enumerate(one.examples):
            rows.append(
                {
                    "D": "" if place else f"{one.low:.2f} to {one.high:.2f}",
                    "looks like code": "" if place else f"{one.labels['code']:.0%}",
                    "for example": found.texts[side][row],
                }
            )
    return pd.DataFrame(rows)
