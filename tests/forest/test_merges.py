"""Merges by method and precision, made here from three tunes of one base; strangers and children are none."""

import numpy as np
import pytest
import torch

from provlab.forest import merges, sparse
from provlab.forest.measure import SPACINGS, rounding

KEYS = [(None, "embedding"), *((block, role) for block in range(3) for role in ("query", "up", "norm"))]
SIZES = {"embedding": 6000, "query": 2000, "up": 4000, "norm": 40}
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def tuned(model, seed, share=0.05):
    """Each tensor with a change of this share of its length."""
    rng = np.random.default_rng(seed)
    return {k: v + share * np.linalg.norm(v) / np.sqrt(v.size) * rng.normal(size=v.size) for k, v in model.items()}


def fresh(seed):
    rng = np.random.default_rng(seed)
    return {key: rng.normal(size=SIZES[key[1]]) * 0.02 + (key[1] == "norm") for key in KEYS}


BASE = fresh(0)
A, B, C = (tuned(BASE, seed) for seed in (1, 2, 3))


def stored(model, dtype):
    return {k: torch.tensor(v).to(dtype).double().numpy() for k, v in model.items()}


def distances(models, dtype):
    n = len(models)
    squared, norms, noise = np.full((len(KEYS), n, n), np.nan), np.zeros((len(KEYS), n)), np.zeros((len(KEYS), n))
    for t, key in enumerate(KEYS):
        for i, a in enumerate(models):
            norms[t, i], noise[t, i] = np.square(a[key]).sum(), rounding(a[key], SPACINGS[str(dtype)[6:]])
            for j, b in enumerate(models):
                if a[key].shape == b[key].shape:
                    squared[t, i, j] = np.square(a[key] - b[key]).sum()
    return merges.Distances(KEYS, squared, norms, noise)


def mean(*terms):
    return {k: sum(w * m[k] for w, m in terms) for k in KEYS}


def slerp(a, b, t):
    made = {}
    for k in KEYS:
        angle = np.arccos(a[k] @ b[k] / np.linalg.norm(a[k]) / np.linalg.norm(b[k]))
        made[k] = (np.sin((1 - t) * angle) * a[k] + np.sin(t * angle) * b[k]) / np.sin(angle)
    return made


def made(A, B):
    """Merges by name, with the method."""

    def shared(share):
        return {k: share(k) * A[k] + (1 - share(k)) * B[k] for k in KEYS}

    return {
        "slerp": (slerp(A, B, 0.4), "slerp"),
        "by depth": (shared(lambda key: 0.3 if key[0] in (None, 0) else 0.8), "shares by depth"),
        "by part": (shared(lambda key: 0.3 if key[1] == "up" else 0.8), "shares by part"),
        "passthrough": (shared(lambda key: float(key[0] in (None, 0))), "passthrough"),
    }


MADE = made(A, B)
MEAN = mean((0.4, A), (0.6, B))


def merges_of(models, dtype):
    return merges.find(distances([stored(m, dtype) for m in models], dtype), range(len(models)))[0]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize("name", MADE)
def test_a_merge_is_found_with_its_method(name, dtype):
    inputs = [stored(m, dtype) for m in (BASE, A, B, C)]
    model, method = made(*inputs[1:3])[name]
    if dtype == torch.bfloat16 and name == "slerp":
        return  # the arc is nearer to the line than one rounding: a circuit
    for given in (inputs, inputs[1:]):
        x, parents = len(given), tuple(i for i, one in enumerate(given) if one is inputs[1] or one is inputs[2])
        found, unknown = merges.find(distances([*given, stored(model, dtype)], dtype), range(x + 1))
        if name == "passthrough":  # its parents may have been made from it, each by training other tensors
            assert (found, unknown) == ({}, [(x, *parents)])
        else:
            assert {k: (merge.parents, merge.method) for k, merge in found.items()} == {x: (parents, method)}


def test_shares_come_by_block():
    merge = merges_of([BASE, A, B, MADE["by depth"][0]], torch.float32)[3]
    assert (merge.low[0], merge.high[0]) == pytest.approx((0.3, 0.8), abs=1e-4)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])
def test_tunes_children_strangers_and_trained_merges_are_no_merges(dtype):
    child, trained = tuned(A, 7), tuned(MEAN, 8)
    assert not merges_of([BASE, A, B, C, child, trained, fresh(9), tuned(fresh(9), 12)], dtype)


def test_two_that_changed_other_parts_of_one_model_are_not_its_parents():
    """Adapters of disjoint parts: the base equals either of them in every tensor, as a merge does: it is left open."""
    first = {k: A[k] if k[0] == 0 else BASE[k] for k in KEYS}
    second = {k: B[k] if k[0] == 1 else BASE[k] for k in KEYS}
    for more in ([], [tuned(BASE, 5), fresh(6)]):
        found, unknown = merges.find(distances([BASE, first, second, *more], torch.float32), range(3 + len(more)))
        assert not found
        assert unknown == [(0, 1, 2)]


def test_two_pairs_that_explain_a_model_leave_it_open():
    """The second half of a twin is another one: the first half of x is that of either."""
    x = MADE["passthrough"][0]
    twin = {k: A[k] if k[0] in (None, 0) else tuned(A, 31)[k] for k in KEYS}
    found, unknown = merges.find(distances([A, B, C, x, twin], torch.float32), range(5))
    assert not found
    assert unknown == [(3, 0, 1, 4)]


def test_distances_over_other_sets_of_tensors_are_never_compared():
    """Eight tokens were added to two tunes: over all tensors but that one, their base is no mean of them."""
    longer = [{k: np.r_[v, np.zeros(320)] if k[1] == "embedding" else v for k, v in m.items()} for m in (A, B)]
    assert not merges_of([BASE, *longer, C], torch.float32)
    known = distances([BASE, *longer], torch.float32)
    assert known.total()[0, 1] == pytest.approx(np.sqrt(sum(np.square(BASE[k] - A[k]).sum() for k in KEYS[1:])))
    assert known.common(0, 1).sum() == len(KEYS) - 1


# Number by number ----------------------------------------------------------------------------------------------------


def numbers(model):
    return np.concatenate([model[k] for k in KEYS if k[1] != "norm"])


def ties(base, tunes, factor, density):
    changes = [t - base for t in tunes]
    kept = np.stack([c * (np.abs(c) >= np.quantile(np.abs(c), 1 - density)) for c in changes])
    agree = (np.sign(kept) == np.sign(kept.sum(axis=0))) & (kept != 0)
    return base + factor * (kept * agree).sum(axis=0) / np.maximum(agree.sum(axis=0), 1)


def dare(base, tunes, factors, dropped):
    rng = np.random.default_rng(0)
    parts = [f * (t - base) * (rng.random(base.size) > dropped) for f, t in zip(factors, tunes, strict=True)]
    return base + sum(parts) / (1 - dropped)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize(
    ("made", "method", "factors"),
    [
        (lambda base, a, b: ties(base, [a, b], 1.0, 0.5), "TIES", (1.0, 1.0)),
        (lambda base, a, b: ties(base, [a, b], 0.8, 0.3), "TIES", (0.8, 0.8)),
        (lambda base, a, b: dare(base, [a, b], [0.5, 0.5], 0.5), "DARE", (1.0, 1.0)),
        (lambda base, a, b: dare(base, [a, b], [0.7, 0.4], 0.8), "DARE", (3.5, 2.0)),
        (lambda base, a, b: a, None, None),
        (lambda base, a, b: numbers(C), None, None),
        (lambda base, a, b: 0.5 * a + 0.5 * b, None, None),
        (lambda base, a, b: numbers(tuned(A, 11)), None, None),
    ],
)  # fmt: skip
def test_ties_and_dare_are_told_number_by_number(made, method, factors, dtype):
    inputs = [torch.tensor(numbers(m)).to(dtype).double().numpy() for m in (BASE, A, B)]
    x = torch.tensor(made(*inputs)).to(dtype).double().numpy()
    spacing = SPACINGS[str(dtype)[6:]]
    noise = np.sqrt(sum((spacing * np.exp2(np.frexp(v)[1] - 1)) ** 2 / 12 for v in (x, *inputs)))
    result = sparse.explain(x, *inputs, noise)
    assert (result.method if result else None) == method
    if factors:
        assert result.factors == pytest.approx(factors, rel=0.02)


@pytest.mark.parametrize("share", [0.5, 0.4, 0.25])
@pytest.mark.parametrize("fourth", [BASE, C], ids=["base", "sibling"])
def test_a_merge_that_was_trained_on_is_between_its_parents_as_a_fork_of_them_shows(share, fourth):
    """Trained on by a third of what its parents were; no rounding bounds it, and the share has an interval."""
    x = tuned(mean((share, A), (1 - share, B)), 9, 0.015)
    known = distances([fourth, A, B, x], torch.float32)
    assert not merges.find(known, range(4))[0]
    (at, merge), *others = merges.trained_on(known, {}, NONE).items()
    assert (at, merge.parents, merge.method, others) == (3, (1, 2), "trained on", [])
    assert merge.low[0] - 0.02 <= merge.shares[0] <= merge.high[0] + 0.02
    assert merge.shares[0] == pytest.approx(share, abs=0.02)
    assert 0.1 < merge.on < 0.4


NONE = np.zeros((4, 4), dtype=bool)
KIN = {
    "siblings": [BASE, A, B, C],
    "siblings without their parent": [A, B, C, tuned(BASE, 4)],
    "chain": [BASE, A, tuned(A, 5), tuned(tuned(A, 5), 6)],
    "snapshot of a run": [BASE, A, tuned(A, 5), tuned(mean((0.5, A), (0.5, tuned(A, 5))), 7, 0.003)],
    "snapshot beside a sibling": [B, A, tuned(A, 5), tuned(mean((0.5, A), (0.5, tuned(A, 5))), 7, 0.003)],
    "base and tune, trained on": [B, BASE, A, tuned(mean((0.5, A), (0.5, BASE)), 7, 0.003)],
    "trained on for long": [BASE, A, B, tuned(mean((0.5, A), (0.5, B)), 8, 0.05)],
    "merge without a fourth model that forks": [A, B, tuned(A, 5), tuned(mean((0.5, A), (0.5, tuned(A, 5))), 8, 0.01)],
}


@pytest.mark.parametrize("kind", KIN)
def test_no_path_is_a_merge_that_was_trained_on(kind):
    """Abstention is no error: a merge with its base, or one that was trained for long, looks like kin."""
    assert not merges.trained_on(distances(KIN[kind], torch.float32), {}, NONE)


def test_a_model_that_is_earlier_than_both_is_no_merge_of_them():
    x = tuned(mean((0.5, A), (0.5, B)), 9, 0.015)
    earlier = NONE.copy()
    earlier[3, [1, 2]] = True
    assert not merges.trained_on(distances([BASE, A, B, x], torch.float32), {}, earlier)
