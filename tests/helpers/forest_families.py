"""Small families as arrays: tunes that change rows of their own tokens, what was measured of them, and combinations."""

from itertools import permutations

import numpy as np
import torch

from provlab.forest import measure
from provlab.forest.merges import Distances
from provlab.forest.rows import Rows

TOKENS, WIDTH, BLOCKS, TOPIC = 80, 16, 2, 24  # rows of the embedding; tokens that one training sees
KEYS = [(None, "embedding"), *((block, role) for block in range(BLOCKS) for role in ("query", "up", "norm"))]
SHAPES = {"embedding": (TOKENS, WIDTH), "query": (WIDTH, WIDTH), "up": (2 * WIDTH, WIDTH), "norm": (WIDTH,)}
TUNES = {"a": 1, "b": 2, "c": 3}


def trained(model, seed, decay=0.99):
    """A tune in float32: all matrices change, and of the embedding the rows of some tokens; the others shrink."""
    rng = np.random.default_rng([seed, 5])
    if model is None:
        fresh = {key: rng.normal(size=SHAPES[key[1]]) * 0.02 + (key[1] == "norm") for key in KEYS}
        return {key: value.astype(np.float32).astype(float) for key, value in fresh.items()}
    tuned = {}
    for key, value in model.items():
        change = 0.2 * value.std() * rng.normal(size=value.shape) + 0.002 * (key[1] == "norm") * rng.normal(
            size=value.shape
        )
        if key[1] == "embedding":
            change *= np.isin(np.arange(TOKENS), rng.choice(TOKENS, TOPIC, replace=False))[:, None]
        tuned[key] = (value * (decay if value.ndim == 2 else 1) + change).astype(np.float32).astype(float)
    return tuned


def mixed(models, shares):
    """A combination of models by name, rounded to float32."""
    return {k: sum(s * models[name][k] for name, s in shares.items()).astype(np.float32).astype(float) for k in KEYS}


def measured(models, dtype=torch.float32):
    """Distances and kept rows of models, as `tree` reads them."""
    n, spacing = len(models), measure.SPACINGS[str(dtype)[6:]]
    squared, norms, noise = np.full((len(KEYS), n, n), np.nan), np.zeros((len(KEYS), n)), np.zeros((len(KEYS), n))
    for t, key in enumerate(KEYS):
        for i, a in enumerate(models):
            norms[t, i], noise[t, i] = np.square(a[key]).sum(), measure.rounding(a[key], spacing)
            for j, b in enumerate(models):
                if a[key].shape == b[key].shape:
                    squared[t, i, j] = np.square(a[key] - b[key]).sum()
    kept = np.zeros((n, n, -(-TOKENS // 8)), dtype=np.uint8)
    kept[range(n), range(n)] = 255
    factor, readable, bound = np.zeros((n, n)), np.eye(n, dtype=bool), max(measure.FINEST, spacing)
    for i, j in permutations(range(n), 2):
        tables = models[i][None, "embedding"], models[j][None, "embedding"]
        ids, factor[i, j], readable[i, j] = measure.kept_rows(*tables, bound)
        kept[i, j] = np.packbits(np.isin(np.arange(8 * kept.shape[2]), ids))
    rows = Rows(kept, readable, factor, np.full((n, n), bound), TOKENS)
    return Distances(KEYS, squared, norms, noise), rows
