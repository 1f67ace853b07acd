"""What the page on hybrids measures: tensors called and taken, the heads, valid axes, and ways to combine tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab.chapters.shared import calibration, joint_null
from provlab.chapters.striped_hyena import shared_axis, tensors
from provlab.engine.lineage import short_name
from provlab.engine.store import Store
from provlab.inference import pvalues
from provlab.inference.matching import match, match_shuffled
from provlab.models.checkpoint import Checkpoint
from provlab.plots import format_interval
from provlab.publishing.published import published_table

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
#: rows of Table 10 -> the tensor in their place, all of block 0
TABLE_10 = {
    "embedding": EMBEDDING,
    "attention query matrix": "model.layers.0.self_attn.q_proj.weight",
    "attention key matrix": "model.layers.0.self_attn.k_proj.weight",
    "attention value matrix": "model.layers.0.self_attn.v_proj.weight",
    "attention output matrix": "model.layers.0.self_attn.o_proj.weight",
    "MLP gate projection": "model.layers.0.mlp.gate_proj.weight",
    "MLP up projection": "model.layers.0.mlp.up_proj.weight",
    "MLP down projection": "model.layers.0.mlp.down_proj.weight",
}
#: (hybrid, other model, axis) -> the tests over that axis, corrected, strongest first
Tests = Mapping[tuple[str, str, str], pd.DataFrame]


def short(tensor: str) -> str:
    """A tensor's name without what all names have: ``model.layers.0.mlp.up_proj.weight`` is 0.mlp.up."""
    for part in ("model.", "layers.", ".weight", "self_attn.", "_proj"):
        tensor = tensor.replace(part, "")
    return tensor


def tests_of(
    hybrids: Sequence[str], parent: str, unrelated: Sequence[str], *, seed: int, store: Store
) -> dict[tuple[str, str, str], pd.DataFrame]:
    """Test every hybrid against its parent and against unrelated models, over both axes, with corrections."""
    tests = {}
    for hybrid in hybrids:
        for other in (parent, *unrelated):
            truth = tensors.origins(hybrid) if other == parent else {}
            found = tensors.compare_tensors(Checkpoint.open(hybrid), Checkpoint.open(other), seed=seed, store=store)
            for axis in tensors.AXES:
                tests[hybrid, other, axis] = tensors.corrected(found, axis, truth)
    return tests


# Which tensors were taken? ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sharing:
    """A hybrid tested against one other model over one axis: what claim I12 is judged from.

    Attributes
    ----------
    hybrid, against
        Sources.
    related
        Whether the other model is the hybrid's parent.
    axis
        "rows" or "columns".
    n_tests, n_taken
        Pairs of tensors that were tested, and those of them that the recipe says were taken.
    pairs
        Taken pairs, and those with a corrected p below 0.1: first, second, log10_p, holm, benjamini_yekutieli, taken.
    """

    hybrid: str
    against: str
    related: bool
    axis: str
    n_tests: int
    n_taken: int
    pairs: list[dict[str, Any]]


def sharing(tests: Tests, hybrids: Sequence[str], parent: str) -> list[Sharing]:
    """What claim I12 is judged from, of these hybrids."""
    found = []
    for (hybrid, other, axis), frame in tests.items():
        if hybrid in hybrids:
            kept = frame[frame["taken"] | (frame[list(tensors.CORRECTIONS)].min(axis=1) < -1)]
            pairs = kept.drop(columns=["axis", "n", "rho", "paper_log10_p", "cosine"]).to_dict("records")
            found.append(Sharing(hybrid, other, other == parent, axis, len(frame), int(frame["taken"].sum()), pairs))
    return found


def strongest(frame: pd.DataFrame, level: float) -> pd.DataFrame:
    """Strongest partner of each tensor of the hybrid, in the order of the file; `figures.tensor_evidence` draws it."""
    taken = set(frame.loc[frame["taken"], "first"])
    best = frame.sort_values("log10_p", kind="stable").drop_duplicates("first").sort_values("first")
    return pd.DataFrame(
        {
            "tensor": [short(name) for name in best["first"]],
            "partner": [short(name) for name in best["second"]],
            "log10_p": best["log10_p"].to_numpy(),
            "taken": [name in taken for name in best["first"]],
            "called": (best["holm"] <= np.log10(level)).to_numpy(),
        }
    )


def recoveries(tests: Tests, hybrids: Sequence[str], parent: str, level: float) -> pd.DataFrame:
    """Calls compared with the recipe, one row a hybrid, axis and correction."""
    rows = []
    for hybrid in hybrids:
        for axis in tensors.AXES:
            for correction in tensors.CORRECTIONS:
                counted = tensors.recovery(tests[hybrid, parent, axis], level, correction)
                precision, recall = counted.intervals()
                rows.append(
                    {
                        "hybrid": short_name(hybrid),
                        "matched": axis,
                        "correction": correction.replace("_", " "),
                        "taken": len(counted.found) + len(counted.missed),
                        "found": len(counted.found),
                        "wrong": len(counted.wrong),
                        "precision": format_interval(counted.precision, *precision, 2),
                        "recall": format_interval(counted.recall, *recall, 2),
                        "n tests": counted.n_tests,
                    }
                )
    return pd.DataFrame(rows)


def finding(tests: Tests, hybrids: Sequence[str], parent: str, level: float) -> str:
    """Sentences on what was found of what was taken, and what against unrelated models (Holm), for the page."""
    words = []
    for axis in tensors.AXES:
        counted = [tensors.recovery(tests[hybrid, parent, axis], level) for hybrid in hybrids]
        found, missed = (sum(len(getattr(one, kind)) for one in counted) for kind in ("found", "missed"))
        words.append(f"{found} of {found + missed} taken tensors are found by {axis}")
    strange = [frame for (_, other, _), frame in tests.items() if other != parent]
    calls = sum(int((frame["holm"] <= np.log10(level)).sum()) for frame in strange)
    return (
        f"After Holm's correction at {level:g} within each comparison, {' and '.join(words)}, all hybrids together. Of "
        f"{sum(map(len, strange)):,} tests against models that gave nothing {calls} "
        f"{'is' if calls == 1 else 'are'} called; these are {len(strange)} comparisons with this level each."
    )


def _namesake(frame: pd.DataFrame, name: str, column: str) -> float:
    """One value of the test of a tensor against the tensor of the same name."""
    return float(frame.loc[(frame["first"] == name) & (frame["second"] == name), column].iloc[0])


def beside_table_10(tests: Tests, hybrids: Sequence[str], parent: str) -> pd.DataFrame:
    """The paper's Table 10 and the hybrids against their parent, by rows and in the paper's two-sided form."""
    taken = tensors.origins(hybrids[-1])
    return pd.DataFrame(
        [
            {
                "parameter": line["parameter"],
                "p of phi_U, published": line["p_U"],
                **{
                    f"log10 p, {short_name(one)}": f"{p:,.1f}"
                    for one in hybrids
                    for p in (_namesake(tests[one, parent, "rows"], name, "paper_log10_p"),)
                },
                "taken by ours": "yes" if name in taken else "no",
            }
            for line in published_table("independence_table10_stripedhyena")
            for name in (TABLE_10[line["parameter"]],)
        ]
    )


# Taken, or trained in a shared basis? -----------------------------------------------------------------------------


def calls_beyond(tests: Tests, hybrids: Sequence[str], parent: str, level: float) -> pd.DataFrame:
    """The calls by rows (Holm) that the recipe does not list, each with what the recipe says about it."""
    rows = []
    for hybrid in hybrids:
        taken = tensors.origins(hybrid)
        frame = tests[hybrid, parent, "rows"]
        for call in frame[~frame["taken"] & (frame["holm"] <= np.log10(level))].to_dict("records"):
            if call["first"] in taken:
                reason = "the first was taken, and the second was trained together with its origin"
            elif EMBEDDING in taken and call["first"] == call["second"] == HEAD:
                reason = "both were trained on one embedding"
            else:
                reason = "none known"
            rows.append(
                {
                    "hybrid": short_name(hybrid),
                    "of the hybrid": short(call["first"]),
                    "of the parent": short(call["second"]),
                    "log10 p": call["log10_p"],
                    "Holm": call["holm"],
                    "mean cosine": call["cosine"],
                    "reason": reason,
                }
            )
    return pd.DataFrame(rows)


def heads(tests: Tests, compared: Sequence[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """The head of a hybrid against that of another model, for each (hybrid, other, what it took from the other)."""
    return [
        {
            "hybrid": short_name(hybrid),
            "against": short_name(other),
            "took": took,
            "log10 p of the head": _namesake(frame, HEAD, "log10_p"),
            "Holm": _namesake(frame, HEAD, "holm"),
            "mean cosine of heads": _namesake(frame, HEAD, "cosine"),
            "mean cosine of embeddings": _namesake(frame, EMBEDDING, "cosine"),
        }
        for hybrid, other, took in compared
        for frame in (tests[hybrid, other, "rows"],)
    ]


def cause_of_the_head(rows: Sequence[Mapping[str, Any]], level: float) -> str:
    """Sentences on what the two controls say of the head, for the page."""
    called = {row["took"]: row["Holm"] <= np.log10(level) for row in rows}
    alone, without = called["embedding"], called["projections"]
    said = f"The head {'is' if alone else 'is not'} called where the hybrid took the embedding alone, and "
    said += f"{'is' if without else 'is not'} called where it took the projections alone. "
    if alone and not without:
        return said + "So the shared embedding is enough to make the heads alike, and it is needed."
    return said + "So the controls do not single out the embedding as the cause."


# An axis whose order means something ------------------------------------------------------------------------------


def between_bases(bases: Sequence[str], *, seed: int) -> list[dict[str, Any]]:
    """The tests of four matrices between all pairs of independent bases, by rows and by columns."""
    opened = {source: Checkpoint.open(source) for source in bases}
    rows = []
    for name in (HEAD, EMBEDDING, TABLE_10["attention query matrix"], TABLE_10["MLP up projection"]):
        matrix = {source: checkpoint.array(name) for source, checkpoint in opened.items()}
        for axis in tensors.AXES:
            turned = {source: one if axis == "rows" else one.T for source, one in matrix.items()}
            log10_p = np.array(
                [
                    pvalues.spearman(match_shuffled(turned[a], turned[b], seed=seed).indices).log10_p
                    for a, b in combinations(bases, 2)
                ]
            )
            small, n = int((log10_p <= np.log10(0.05)).sum()), len(log10_p)
            rows.append(
                {
                    "matrix": short(name),
                    "matched": axis,
                    "pairs": n,
                    "share below 0.05": format_interval(small / n, *calibration.size_interval(small, n), 2),
                    "KS p": calibration.ks_uniform(log10_p).p,
                    "smallest log10 p": float(log10_p.min()),
                }
            )
    return rows


def invalid_tests(rows: Sequence[Mapping[str, Any]], level: float) -> str:
    """Sentences on which of `between_bases` are not uniform (Holm over all of them), for the page."""
    adjusted = pvalues.holm(np.log10(np.maximum([row["KS p"] for row in rows], 1e-300)))
    bad = [
        f"`{row['matrix']}` by {row['matched']}"
        for row, one in zip(rows, adjusted, strict=True)
        if one <= np.log10(level)
    ]
    if not bad:
        return f"None of these {len(rows)} tests leaves the uniform law at {level:g}, after Holm's correction."
    return f"Not uniform between independent bases at {level:g}, after Holm's correction: {', '.join(bad)}."


# Why not Fisher? --------------------------------------------------------------------------------------------------


def residual_axis(checkpoint: Checkpoint) -> dict[str, NDArray[np.float32]]:
    """Every matrix of a Llama, turned so that its rows are dimensions of the residual stream."""
    turned = {}
    for names in tensors.matrices(checkpoint).values():
        for name in names:
            matrix = checkpoint.array(name)
            writes = "o_proj" in name or "down_proj" in name  # (model, units); all others are (units, model)
            turned[name] = matrix if writes else matrix.T
    return turned


def zoo_null(
    parent: str, unrelated: Sequence[str], n_draws: int, *, rng: np.random.Generator
) -> tuple[list[str], NDArray[np.float64]]:
    """Names of the matrices on the residual stream, and the joint null of their tests, ``(draws, tests)`` log10 p."""
    giver = residual_axis(Checkpoint.open(parent))
    pooled = []
    for other in unrelated:
        stranger = residual_axis(Checkpoint.open(other))
        matchings = np.stack([match(giver[name], stranger[name]).indices for name in giver])
        pooled.append(joint_null.relabelled_null(matchings, n_draws // len(unrelated), rng=rng))
    return list(giver), np.concatenate(pooled)


def sizes(nulls: Mapping[str, NDArray[np.float64]], level: float) -> tuple[pd.DataFrame, dict[str, dict[str, int]]]:
    """How often each way of combining tests calls independent models, as a table and as counts.

    Parameters
    ----------
    nulls
        By description, ``(draws, tests)`` log10 p under independence.
    level
        Of every way.
    """
    rows, counts = [], {}
    for what, null in nulls.items():
        called = shared_axis.rejections(null, level)
        counts[what] = {**called, "draws": len(null)}
        shares = {
            way: format_interval(k / len(null), *calibration.size_interval(k, len(null))) for way, k in called.items()
        }
        rows.append({"tests": what, "n tests": null.shape[1], **shares})
    return pd.DataFrame(rows), counts


def sweep(n_tests: int, n_draws: int, level: float, *, rng: np.random.Generator) -> pd.DataFrame:
    """Share of independent pairs that each way calls, as the tests have more and more in common.

    Returns
    -------
    DataFrame
        way, x (the share that the tests have in common), y and its exact 95% interval, low and high.
    """
    units, features, sets = 64, 128, 4
    points = []
    for overlap in (0.0, 0.5, 0.8, 0.95, 1.0):
        profiles = (shared_axis.common_profile(units, features, n_tests, overlap, rng=rng) for _ in range(sets))
        null = np.concatenate([joint_null.relabelled_null(found, n_draws // sets, rng=rng) for found in profiles])
        for way, count in shared_axis.rejections(null, level).items():
            low, high = calibration.size_interval(count, len(null))
            points.append({"way": way, "x": overlap, "y": count / len(null), "low": low, "high": high})
    return pd.DataFrame(points)


def combining(points: pd.DataFrame, level: float) -> dict[str, bool]:
    """What the page says of ways to combine tests -> whether this sweep shows it."""
    fisher = points[points["way"] == "Fisher"]
    safe = points[points["way"].isin(["Holm", "Benjamini-Yekutieli"])]
    apart = fisher[fisher["x"] == 0]
    return {
        f"Fisher's size is above {level:g} when the tests are alike": bool(
            fisher.sort_values("y").iloc[-1]["low"] > level
        ),
        f"Holm and Benjamini-Yekutieli stay within {level:g}": bool((safe["low"] <= level).all()),
        "Fisher's size is right when the tests have nothing in common": bool(
            ((apart["low"] <= level) & (level <= apart["high"])).all()
        ),
    }
