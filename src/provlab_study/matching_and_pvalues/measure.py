"""Which models the page on matching and p-values compares, and two tests of its matchings."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from provlab.errors import ParameterError
from provlab.inference import pvalues
from provlab_study.shared import calibration
from provlab_study.shared.joint_null import joint_null

Pair = tuple[str, str]
Matchings = Mapping[Pair, Sequence[NDArray[np.int64]]]  # a permutation (h,) for each block of each pair


def first_of_trees(trees: Mapping[str, str]) -> list[str]:
    """The first model of each tree, of a mapping from models to the bases they descend from.

    Raises
    ------
    ParameterError
        If the lineage of a model is unknown, or there are fewer than three trees.
    """
    if "unknown" in trees.values() or len(set(trees.values())) < 3:
        raise ParameterError("this chapter needs models of known lineage from at least three trees; see models")
    return list(pd.Series(trees).drop_duplicates().index)


def one_of_each(frame: pd.DataFrame) -> dict[str, Pair]:
    """The first dependent pair and the first independent pair of a study's frame.

    Raises
    ------
    ParameterError
        If there is none of a kind.
    """
    examples = {}
    for kind, dependent in (("fine-tune", True), ("independent", False)):
        pairs = frame.loc[frame["dependent"].eq(dependent) & frame["error"].isna(), ["a", "b"]]
        if pairs.empty:
            raise ParameterError(f"this chapter needs a pair of each kind and has no {kind} to compare; see models")
        examples[kind] = (str(pairs["a"].iloc[0]), str(pairs["b"].iloc[0]))
    return examples


def log10_p_of_counts(tail: pd.DataFrame) -> NDArray[np.float64]:
    """log10 p of each count of PERMTEST under the binomial law whose rate is the t tail's p, after Holm's correction.

    Parameters
    ----------
    tail
        A row a matching, with the columns T, log10_p_t and log10_p_permtest.
    """
    # PERMTEST counts the pair itself: p = (1 + k) / (T + 1)
    counts = np.rint(10.0 ** tail["log10_p_permtest"] * (tail["T"] + 1)).astype(int) - 1
    rates = 10.0 ** tail["log10_p_t"]
    two_sided = [stats.binomtest(*law).pvalue for law in zip(counts, tail["T"], rates, strict=True)]
    return pvalues.holm(np.log10(np.maximum(two_sided, 1e-300)))


def uniform_by_symmetry(
    matchings: Mapping[str, Matchings], trees: Mapping[str, str], n_copies: int, *, seed: int
) -> list[dict[str, object]]:
    """Test by each statistic that the matchings of models of different trees are uniform.

    Parameters
    ----------
    matchings
        For each statistic; pairs within a tree are left out.
    trees
        Tree of each model.
    n_copies
        Joint copies of all pairs.
    seed
        The seed of the copies.

    Returns
    -------
    list of dict
        Keys: statistic; over ("all pairs, per block", "all pairs, aggregated" over blocks by Fisher's method, or the
        blocks of "disjoint pairs"); n_pairs; ks_p, of the Kolmogorov-Smirnov distance of the t tail's p-values from
        the uniform, among joint copies of all pairs, which share models, and as it is over disjoint pairs; ks_p_law,
        the same of one-sided p-values by the law itself; n_copies, 0 where none are needed; log10_p, by the law, and
        repeats, for each of them the trees that it compares: pairs of the same two trees repeat each other.
    """
    rows: list[dict[str, object]] = []
    laws = (pvalues.log10_p_t, pvalues.log10_p_spearman)
    for statistic, by_pair in matchings.items():
        across = {(a, b): blocks for (a, b), blocks in by_pair.items() if trees[a] != trees[b]}
        disjoint = _disjoint(across, trees)
        copies = joint_null(across, trees, n_draws=n_copies, seed=seed)
        blocks = np.concatenate([across[pair] for pair in disjoint])
        by_block = laws[1](copies.observed, copies.units)  # (pairs, blocks)
        compared = ["~".join(sorted(trees[model] for model in pair)) for pair in across]
        lists = {
            "all pairs, per block": (
                by_block.ravel(),
                [f"{two}, {b}" for two in compared for b in range(by_block.shape[1])],
            ),
            "all pairs, aggregated": (pvalues.fisher(by_block, axis=1), compared),
        }
        distances, n = pvalues.distances(blocks), blocks.shape[-1]
        tests = {
            "all pairs, per block": (len(across), [copies.ks(aggregated=False, law=law).p for law in laws], n_copies),
            "all pairs, aggregated": (len(across), [copies.ks(law=law).p for law in laws], n_copies),
            "disjoint pairs": (len(disjoint), [calibration.ks_uniform(law(distances, n)).p for law in laws], 0),
        }
        for over, (n_pairs, (ks_p, ks_p_law), n_drawn) in tests.items():
            log10_p, repeats = lists.get(over, ((), ()))
            p_values = {"ks_p": ks_p, "ks_p_law": ks_p_law, "log10_p": list(map(float, log10_p)), "repeats": repeats}
            rows.append({"statistic": statistic, "over": over, "n_pairs": n_pairs, **p_values, "n_copies": n_drawn})
    return rows


def _disjoint(pairs: Matchings, trees: Mapping[str, str]) -> list[Pair]:
    """The first pairs of which no two have a tree in common: independent of each other without further assumption."""
    used, disjoint = set[str](), list[Pair]()
    for a, b in pairs:
        if not {trees[a], trees[b]} & used:
            used |= {trees[a], trees[b]}
            disjoint.append((a, b))
    return disjoint
