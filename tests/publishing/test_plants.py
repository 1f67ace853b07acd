"""Records in which a claim is broken though most of its numbers look right: none of them may hold.

Each row of `PLANTS` changes a good record, which holds, in one place.
"""

import json
from itertools import combinations, pairwise

import numpy as np
import pandas as pd
import pytest
from planted import judge

from provlab.chapters.evasion import measure
from provlab.publishing import claims
from provlab.publishing.evidence import Evidence
from provlab.publishing.results import Results

ROWS = {row["id"]: row for row in claims.load_claims()}
TREE = {"oak": 12, "elm": 2, "fir": 2, "yew": 2, "ash": 1, "bay": 1, "fig": 1}  # models of each tree: 21
FAMILY = {f"{tree}-{k}": tree for tree, n in TREE.items() for k in range(n)}
PAIRS = list(combinations(FAMILY, 2))
STATISTICS = ("phi_u", "phi_h", "phi_match", "phi_l2", "phi_l2_blocks")
BLOCKS, T = 4, 99


def dependent(a, b):
    return FAMILY[a] == FAMILY[b]


def tree_of_pairs(rejecting=STATISTICS):
    """A frame of the tree: dependent pairs found by these statistics, all others uniform on a grid of quantiles."""
    rng, rows = np.random.default_rng(8), []
    for statistic in STATISTICS:
        grid = iter(rng.permutation((np.arange(len(PAIRS)) + 0.5) / len(PAIRS)))
        for a, b in PAIRS:
            p = max(np.ceil(next(grid) * (T + 1)) / (T + 1), 0.02) if statistic == "phi_l2" else next(grid)
            known = dependent(a, b) and statistic in rejecting
            log10_p = (-2.0 if statistic == "phi_l2" else -500.0) if known else np.log10(p)
            blocks = [-100.0] * BLOCKS if known else list(np.log10(rng.permutation((np.arange(4) + rng.random()) / 4)))
            row = {"a": a, "b": b, "statistic": statistic, "dependent": dependent(a, b), "error": None, "value": 0.0}
            rows.append(row | {"siblings": dependent(a, b), "log10_p": log10_p, "blocks": blocks, "keys": ["unit"]})
    frame = pd.DataFrame(rows)
    for column in ("dependent", "error"):
        frame[column] = frame[column].astype(object)
    return frame


def in_tree(**measurements):
    chain = [[f"{a}-0", f"{b}-0"] for a, b in pairwise(TREE)]
    long = {"base": "oak-0", "child": "oak-1", "grandchild": "oak-2", "share": 0.5}
    kept = {"chain_of_trees": chain, "long_training": long, "one_each": list(pairwise(FAMILY)), "negative": [-1.0]}
    kept["ks_by_symmetry"] = {name: {"p": 0.4} for name in STATISTICS}
    return {**kept, **measurements}


def set_p(statistic, log10_p, n=None, *, known=False):
    """The first n independent pairs (dependent ones if `known`) of a statistic at this value."""

    def change(record):
        frame = record["pairs"]
        places = frame.index[frame["statistic"].eq(statistic) & frame["dependent"].eq(known)]
        frame.loc[places[:: max(1, len(places) // n)][:n] if n else places, "log10_p"] = log10_p

    return change


def put(*path, value):
    def change(record):
        target = record["measurements"]
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value

    return change


def both(*changes):
    return lambda record: [change(record) for change in changes]


def uniform_on_grid(n, small=None):
    """p-values of PERMTEST, each multiple of 1/100 as often, or so many of them at 0.01 (and fewer at 0.02)."""
    steps = np.arange(n) % (T + 1) + 1
    if small is not None:
        steps[np.flatnonzero(steps == 2)[: small - n // (T + 1)]] = 1
    return (steps / (T + 1)).tolist()


def sharing(hybrid, related, n_tests, small=0):
    """Nine taken tensors of a hybrid; against an unrelated model all pairs, so many of them at 0.005."""
    grid = np.where(np.arange(n_tests) < small, 0.005, (np.arange(n_tests) + 0.5) / n_tests)
    log10_p, corrected = ([-90.0] * 9, -88.0) if related else (np.log10(grid).tolist(), 0.0)
    names = [f"w{k}" for k in range(len(log10_p))]
    rest = {"holm": corrected, "benjamini_yekutieli": corrected, "taken": related}
    pairs = [{"first": w, "second": w, "log10_p": p, **rest} for w, p in zip(names, log10_p, strict=True)]
    run = {"hybrid": hybrid, "against": "oak" if related else "elm", "related": related, "axis": "columns"}
    return run | {"n_tests": n_tests, "n_taken": 9 * related, "pairs": pairs}


def uniformity(kind, per, n_pairs, size=(0.05, 0.01, 0.001), width=0.15):
    ends = {"low": [s * (1 - width) for s in size], "high": [s * (1 + width) for s in size]}
    row = {"text": "prose", "models": kind, "per": per, "n_pairs": n_pairs, "smallest": -3.0, "ks_p": 0.4}
    return row | {"n_copies": 9999, "level": [0.05, 0.01, 0.001], "size": list(size), **ends}


def preserved(scale=1.0, difference=1e-15):
    kinds, names = ("T1", "T2", "T3", "T4", "T5", "T6"), ["LlamaForCausalLM", *"abcdefghijklm"]
    row = {"difference": difference, "refused": None, "moved": 0.5}
    if "scale" in measure.PreservedRecord.__dataclass_fields__:
        row["scale"] = scale
    return [row | {"architecture": name, "model": name, "kind": kind} for name in names for kind in kinds]


def block_map(related, cut=("depth", "width"), seed=1):
    log10_p = np.log10((np.random.default_rng(seed).permutation(48) + 0.5) / 48).reshape(8, 6)
    if related:
        log10_p[range(6), range(6)] = -40.0
    record = {"parent": "spruce" if related else "elm", "child": "small", "related": related, "floor": -300.0}
    record |= {"cut": list(cut) if related else [], "kept": list(range(6)) if related else None}
    return record | {"log10_p": log10_p.tolist()}


def strangers_at(log10_p):
    return lambda record: record["measurements"]["maps"][1].update(log10_p=np.full((8, 6), log10_p).tolist())


def summary(**changed):
    ratio = {"reference": "PD_AB", "value": [1.0, 0.02, 0.01, 1.1]}
    ratio |= {"low": [1.0, 0.01, 0.005, 1.0], "high": [1.0, 0.03, 0.02, 1.2]}
    fields = {"z": [2.0, 3.0], "n": [900, 900], "n_common": [30, 30], "effective": [500.0, 500.0]}
    fields |= {"log10_inputs": [20.0, 20.0], "log10_common": [18.0, 18.0], "by_r3": ratio, "by_count": ratio}
    fields |= {"extent_a": [-1.4, 0.1], "extent_b": [-0.1, 1.3]}
    return fields | {"below_a": [0.98, 0.97, 0.99], "below_b": [0.02, 0.01, 0.03]} | changed


def ways():
    names = ("number, A", "number, B", "share, A", "share, B")
    numbers = {"generation": [0.95, 0.94, 0.96], "exchange": [0.95, 0.94, 0.96]}
    return [{"pair": "sizes", "what": name, **numbers} for name in names]


def sides(a=0.7, b=0.7):
    """Five copies of each of two noises, which scatter about these shares, and a stranger."""
    rows = [
        (f"noise {level}, {k}", "noise", [a + d, a + d - 0.08, a + d + 0.08], [b + d, b + d - 0.08, b + d + 0.08])
        for level in ("0.001", "1e-05")
        for k, d in enumerate((-0.02, -0.01, 0.0, 0.01, 0.02))
    ]
    rows.append(("stranger", "stranger", [0.99, 0.98, 1.0], [0.02, 0.0, 0.1]))
    return [summary(below_a=a, below_b=b, pair=pair, kind=kind) for pair, kind, a, b in rows]


def swept(share):
    fields = {"mean": 1.0, "variance": 1.0, "slope": 1.0, "predicted_b": 0.5, "loss": 2.0, "kind": "noise"}
    around = [share, share - 0.05, share + 0.05]
    return [fields | {"pair": f"noise {n}, 0", "below_a": around, "below_b": around} for n in ("0.001", "1e-05")]


def retrained(weakest):
    return [
        {"seed": seed, "block": block, "loss": 0.1, "relative": 0.01, "relative_text": 0.01, "log10_p": log10_p - block}
        | {"log10_p_unsigned": log10_p, "log10_p_stranger": -0.4, "log10_p_stranger_unsigned": -0.4}
        for seed, log10_p in enumerate(weakest)
        for block in range(2)
    ]


def distilled(perfect):
    uniform = np.log10((np.arange(28) + 0.5) / 28).tolist()
    recipe = {"independent": uniform, "dependent": [-40.0, -30.0, -9.0], "cosine": 0.1, "relative": 0.05}
    kept = {ROWS["I25"]["predicate"]["recipe"]: recipe | {"width_factor": 2.0}}
    return {"distilled": kept, "one_teacher": [-9.0], "perfect": perfect}


TERMS = [1.0, 0.02, 0.03, 1.1]
NORMALISATION = {"example": [3.0, 2.0, 3.0, 3.0], "common": [500, 500], "exact": TERMS, "sampled": TERMS}
NORMALISATION["unnormalised"] = [1.0, 0.02, 2.0, 3.0]
THREE = [[0.98, 0.02, 0.5, 0.02], [0.4, 0.6, 0.45, 0.6]]
CAPABILITY = {
    "models": ["s", "m"],
    "held_out": [3.2, 2.8],
    "apart": [-0.4, -0.42, -0.38],
    "log10_more": [0.2, 0.1, 0.3],
    "effective": [300.0, 200.0],
}
REPETITION = {"model": "s", "nll": 0.4, "lowest": 0.8, "counted": 0.8, "counted_nll": 0.5, "in_z": 0.1, "text": 0.05}
DOMAINS = {"code_side": 0.9, "prose_side": 0.1, "gap": [0.8, 0.7, 0.9], "accuracy": 0.85}
DOMAINS |= {"code_rise": [0.2, 0.1, 0.3], "prose_rise": [0.1, 0.05, 0.15]}


def through(k, terms):
    """Three runs of a comparison of three models, near these terms, and none like another."""
    return {"pair": "BC"[k], "exact": THREE[k], "runs": [[t * (1 + run / 1000) for t in terms] for run in range(3)]}


GOOD = {
    "I1": lambda: {
        "example_one": {"independent": uniform_on_grid(2000), "dependent": [0.01] * 200, "n_permutations": T}
    },
    "I4": in_tree,
    "I6": in_tree,
    "I8": in_tree,
    "I9": in_tree,
    "I12": lambda: {"sharing": [sharing("h", True, 340), sharing("h", False, 340)]},
    "I15": lambda: {"preserved": preserved()},
    "I16": in_tree,
    "I17": lambda: {
        "uniformity": [
            row | {"text": text}
            for text in ("prose", "noise")
            for kind in ("bases", "tree")
            for row in (uniformity(kind, "block", 780), uniformity(kind, "pair", 780))
        ]
    },
    "I21": lambda: {"blocks": retrained([-16.0, -17.0, -15.5]), "n_blocks": 2},
    "I22": lambda: {"maps": [block_map(True), block_map(False, seed=2)]},
    "I23": lambda: {"maps": [block_map(True), block_map(False, seed=2)]},
    "I25": lambda: distilled([-0.3, -0.2, -0.8]),
    "D4": lambda: {"normalisation": dict(NORMALISATION)},
    "D5": lambda: {"sizes": summary(), "ways": ways()},
    "D8": lambda: {"capability": [dict(CAPABILITY)]},
    "D9": lambda: {"repetition": [dict(REPETITION)], "sizes": summary()},
    "D10": lambda: {"domains": dict(DOMAINS)},
    "D12": lambda: {"sides": sides(), "sweep": swept(0.7)},
    "D13": lambda: {"three": [through(0, THREE[0]), through(1, THREE[1])]},
}
PAPERS = {"I4": STATISTICS, "I6": STATISTICS, "I8": STATISTICS, "I9": STATISTICS, "I16": ("phi_match",)}


def everywhere(record):
    for statistic in ("phi_u", "phi_h"):
        set_p(statistic, -500.0)(record)


def all_but_the_chain(record):
    """PERMTEST finds every independent pair, but for those that are judged one by one."""
    frame, chain = record["pairs"], [(f"{a}-0", f"{b}-0") for a, b in pairwise(TREE)]
    apart = np.array([pair not in chain for pair in zip(frame["a"], frame["b"], strict=True)])
    frame.loc[apart & frame["statistic"].eq("phi_l2") & frame["dependent"].eq(False), "log10_p"] = -2.0


# claim, what is broken, the change, and the status
PLANTS = [
    ("I1", "size 0.02 at 0.01", put("example_one", "independent", value=uniform_on_grid(2000, 36)), "fails"),
    ("I4", "8 of 141 independent pairs at 1.3e-4", set_p("phi_u", np.log10(1.3e-4), 8), "fails"),
    ("I6", "135 of 141 independent pairs at 0.01", all_but_the_chain, "fails"),
    ("I8", "every pair at 10^-500", everywhere, "fails"),
    ("I9", "every pair at 10^-500", everywhere, "fails"),
    ("I9", "nobody knows the share of tokens", put("long_training", "share", value=None), "not run"),
    ("I12", "only taken tensors were tested", put("sharing", 0, value=sharing("h", True, 9)), "fails"),
    ("I12", "size 0.04 at 0.01, unrelated models", put("sharing", 1, value=sharing("h", False, 340, 14)), "fails"),
    ("I15", "a head of zeros", put("preserved", value=preserved(0.0, 0.0)), "fails"),
    ("I15", "logits below 1e-12", put("preserved", value=preserved(1e-12, 1e-13)), "fails"),
    (
        "I16",
        "phi_U and phi_H at 3e-4 for 34 of 69 dependent pairs",
        both(*(set_p(s, np.log10(3e-4), 34, known=True) for s in ("phi_u", "phi_h"))),
        "fails",
    ),
    (
        "I17",
        "size 0.009 at 0.001",
        put("uniformity", 0, value=uniformity("bases", "block", 780, (0.05, 0.01, 0.009))),
        "fails",
    ),
    ("I22", "every pair of blocks of independent models at 5e-4", strangers_at(np.log10(5e-4)), "fails"),
    ("I23", "every pair of blocks of independent models at 5e-4", strangers_at(np.log10(5e-4)), "fails"),
    ("I25", "independent models in gated form are found", put("perfect", value=[-1166.0] * 10), "fails"),
    (
        "D4",
        "terms of .02 and .03 as .065 and 0",
        put("normalisation", "sampled", value=[1.0, 0.065, 0.0, 1.1]),
        "fails",
    ),
    ("D5", "D within .01", put("sizes", value=summary(extent_a=[-0.01, 0.01], extent_b=[-0.01, 0.01])), "fails"),
    ("D8", "0.5% more inputs", put("capability", 0, "log10_more", value=[0.0022, 0.001, 0.003]), "fails"),
    ("D8", "0.001 nats apart", put("capability", 0, "apart", value=[-0.001, -0.0015, -0.0005]), "fails"),
    (
        "D9",
        ".51 where typical inputs have .505",
        put("repetition", 0, value={**REPETITION, "lowest": 0.51, "counted": 0.51, "in_z": 0.505}),
        "fails",
    ),
    ("D10", "disputed inputs less of their own kind", put("domains", "prose_rise", value=[-0.05, -0.2, 0.1]), "fails"),
    ("D13", "terms of .02 as .045 and 0", put("three", 0, value=through(0, [0.98, 0.045, 0.5, 0.0])), "fails"),
    # within the spread of what was measured, and still on the wrong side
    ("I21", "weakest blocks -7.6, -13.7, -9.3 for -12", put("blocks", value=retrained([-7.6, -13.7, -9.3])), "fails"),
    ("D12", "every copy at .50", put("sides", value=sides(0.5, 0.5)), "fails"),
    ("D12", "one-sided in no case over losses", put("sweep", value=swept(0.5)), "fails"),
]


def judged(claim, folder, change=lambda record: None):
    record = {"measurements": json.loads(json.dumps(GOOD[claim]())), "pairs": tree_of_pairs(PAPERS.get(claim, ()))}
    change(record)
    store = Results(folder)
    store.put("unit", {"value": 0.0, "log10_p": 0.0, "detail": {}, "parameters": {"n_permutations": T}})
    evidence = Evidence({"name": "x", "profile": "default", "pairs": [], **record}, store)
    evidence.__dict__["pairs"] = record["pairs"]  # in place of what it aggregates from units
    return judge(ROWS[claim], evidence)


@pytest.mark.parametrize("claim", GOOD)
def test_the_good_record_holds(claim, tmp_path):
    verdict = judged(claim, tmp_path)
    assert verdict.status == "holds", verdict


@pytest.mark.parametrize(("claim", "broken", "change", "status"), PLANTS, ids=[f"{c}: {b}" for c, b, *_ in PLANTS])
def test_a_plant_does_not_hold(claim, broken, change, status, tmp_path):
    verdict = judged(claim, tmp_path, change)
    assert verdict.status == status, (broken, verdict)
    assert verdict.why
