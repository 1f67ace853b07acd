"""The tables of the page on the toy, from its records."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from provlab.chapters.toy_modulo30.measure import A, B, LongRun, Truth
from provlab.chapters.toy_modulo30.records import (
    BiasRecord,
    GenerationRecord,
    NaiveRecord,
    NormalisationRecord,
    Numbers,
    OracleRecord,
    RangeRecord,
    SamplingRecord,
    ThroughReferenceRecord,
)
from provlab.modeldiff.comparison import TERMS
from provlab.modeldiff.ladder import Ladder
from provlab.publishing.published import published_table, scalar

Names = Sequence[str]


def _terms(values: Sequence[float] | Sequence[str]) -> dict[str, float | str]:
    return dict(zip(TERMS, values, strict=True))


def generations(records: Sequence[GenerationRecord]) -> pd.DataFrame:
    """Shares of valid sequences, beside the published one."""
    return pd.DataFrame(
        {
            "model": row.model,
            "sequences": row.n,
            "valid, plain": f"{row.valid / row.n:.2%}",
            "valid, exact": f"{row.exact:.4%}",
            f"valid at T = {row.temperature:g}": f"{row.papers:.4%}",
            "published": scalar("generated sequences that satisfy the objective", "modeldiff_scalars"),
        }
        for row in records
    )


def extents(truth: Truth, names: Names) -> pd.DataFrame:
    """Least and largest D, published and ours."""
    rows = []
    for line, name, one in zip(
        published_table("modeldiff_table2")[:2], names, (truth.compared.a, truth.compared.b), strict=False
    ):
        rows.append(
            {
                "inputs of": line["representative_inputs"],
                "least D, published": line["D_min"],
                "largest D, published": line["D_max"],
                "our model": name,
                "least D, ours": one.difference.min(),
                "largest D, ours": one.difference.max(),
                "inputs in Z, ours": int(one.weight.sum()),
            }
        )
    return pd.DataFrame(rows)


def ladders(laid: Sequence[Ladder], names: Names) -> pd.DataFrame:
    """Temperatures of each model."""
    return pd.DataFrame(
        {
            "model": name,
            "temperatures": ", ".join(f"{t:.3g}" for t in one.temperatures),
            "expected swap rate": one.swap_rate,
            "communication barrier": one.barrier,
        }
        for name, one in zip(names, laid, strict=True)
    )


def convergence(runs: Sequence[LongRun], names: Names) -> pd.DataFrame:
    """How well the chains of the long runs mixed."""
    return pd.DataFrame(
        {
            "run": k + 1,
            "model": names[model],
            "largest R-hat": one.gates[model].rhat.max(),
            "fewest effective draws": one.gates[model].ess.min(),
            "lowest swap rate": samples.swap_rate.min(),
            "round trips a chain": samples.round_trips.mean(),
            "gate": str(one.gates[model]),
        }
        for k, one in enumerate(runs)
        for model, samples in one.samples.items()
    )


def ratios(record: SamplingRecord) -> pd.DataFrame:
    """The enumerated ratio, the sampled ones, how often intervals covered it, and the published ones."""
    published = [
        {"ratio": f"published, {word}", **_terms(scalar(quantity, "modeldiff_scalars").split(":"))}
        for word, quantity in (
            ("enumerated", "enumerated ratio PD_AB:PA_AB:PA_BA:PD_BA"),
            ("sampled", "sampled ratio"),
        )
    ]
    covered = [f"{share:.0%}" for share in record.coverage]
    return pd.DataFrame(
        [
            {"ratio": "enumerated", **_terms(record.exact)},
            *({"ratio": f"sampled, run {k + 1}", **_terms(one.ratio)} for k, one in enumerate(record.runs)),
            {"ratio": "sampled, moves without the rule", **_terms(record.blind.ratio)},
            {"ratio": f"covered in {len(record.repeats)} short runs", **_terms(covered)},
            *published,
        ]
    )


def naive(record: NaiveRecord, runs: Sequence[LongRun], names: Names) -> pd.DataFrame:
    """Distances to the enumeration with weights and without."""
    return pd.DataFrame(
        {
            "run": k + 1,
            "inputs of": names[side],
            "with weights": record.weighted[-1][k][side],
            "without": record.naive[-1][k][side],
            "times as far": record.naive[-1][k][side] / record.weighted[-1][k][side],
            "ratio without": str(one.naive.ratio()),
        }
        for k, one in enumerate(runs)
        for side in (A, B)
    )


def biases(records: Sequence[BiasRecord], names: Names) -> pd.DataFrame:
    """Exact distances by temperature."""
    return pd.DataFrame(
        {"T": row.temperature, f"inputs of {names[A]}": row.A, f"inputs of {names[B]}": row.B} for row in records
    )


def normalisation(record: NormalisationRecord) -> pd.DataFrame:
    """Uneven draws, divided and as they are."""
    return pd.DataFrame(
        {"40,000 draws of A, 200,000 of B": word, **_terms(values)}
        for word, values in (
            ("enumerated", record.exact),
            ("divided by the draws in R3", record.sampled),
            ("counts as they are", record.unnormalised),
        )
    )


def sweep(records: Sequence[RangeRecord]) -> pd.DataFrame:
    """Ratios by range."""
    return pd.DataFrame(
        {
            "share left out at either end": "" if row.tail is None else f"{row.tail:.1%}",
            "range Z": f"{row.low:.2f} to {row.high:.2f}",
            **_terms(row.ratio),
        }
        for row in records
    )


def oracle(records: Sequence[OracleRecord]) -> pd.DataFrame:
    """Precision and recall of each term in each range."""
    return pd.DataFrame([{**vars(row), "z": f"{row.z[0]:.2f} to {row.z[1]:.2f}"} for row in records]).rename(
        columns=lambda name: name.replace("exact_", "enumerated ").replace("plain_", "plain ")
    )


def through_reference(records: Sequence[ThroughReferenceRecord]) -> pd.DataFrame:
    """Terms in units of A's inputs."""
    columns = ["A's inputs, D < 0", "A's inputs, D > 0", "other's inputs, D < 0", "other's inputs, D > 0"]

    def row(name: str, values: Numbers) -> dict[str, object]:
        return {"": name, **dict(zip(columns, map(float, values), strict=True))}

    rows = []
    for one in records:
        rows.append(row(f"{one.pair}, enumerated", one.exact))
        rows.append(row(f"{one.pair}, sampled, mean", np.mean(one.runs, axis=0)))
    return pd.DataFrame(rows)
