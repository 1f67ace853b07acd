"""Embeddings as training leaves them: tokens that were moved by their meaning, and tokens that were only shrunk."""

import numpy as np
import torch

WORDS, UNSEEN, WIDTH = 240, 60, 32
MEANING = np.random.default_rng(0).standard_normal((WORDS, 12))  # what all models of one language learn of its tokens
OFTEN = np.geomspace(1, 0.02, WORDS)  # how often training meets a token


def trained(rng, width=WIDTH, unseen=UNSEEN, decay=0.8, push=0.0, share=3.0):
    """An embedding: words that were moved by their meaning and frequency, and tokens that were only shrunk or pushed.

    Unseen tokens stand at the end, in a tokenizer's order, and words in the order of their frequency.
    """
    rows = decay * rng.standard_normal((WORDS + unseen, width))
    own = share * MEANING @ rng.standard_normal((12, width)) / 12**0.5 + rng.standard_normal((WORDS, width))
    rows[:WORDS] += 2 * OFTEN[:, None] ** 0.3 * own
    rows[WORDS:] += push * (1 + 0.1 * rng.standard_normal((unseen, 1))) * rng.standard_normal(width)
    return rows


def tuned(rng, rows, scale=0.9):
    """Trained on: words move, the others shrink."""
    child = scale * rows
    child[:WORDS] += 0.5 * rng.standard_normal((WORDS, rows.shape[1]))
    return child


def turned(rng, rows):
    return rows @ np.linalg.qr(rng.standard_normal((rows.shape[1],) * 2))[0]


def added(rows, n=64, seed=42, std=1.0):
    """Rows with n more, as a framework draws them after training: a whole table from one seed, old rows copied in."""
    torch.manual_seed(seed)
    whole = std * torch.randn(len(rows) + n, rows.shape[1]).numpy()
    whole[: len(rows)] = rows
    return whole
