"""What several models say of the same sequences, token by token: losses, and divergences of the laws of the next token.

All models read a batch before the next one begins, so that a divergence of each pair costs no second reading. The
divergence of the laws of the next token is never negative. Summed over the places of what a model writes, its mean is
the divergence of the laws of whole sequences (chain rule): the same number as the mean of log(p_A / p_B), with far less
noise.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from provlab.errors import InvalidWeightsError
from provlab.files import digest
from provlab.kept import ArrayCache, Arrays
from provlab.modeldiff.nll import SequenceNll
from provlab.modeldiff.pipeline import SequenceModel

_AT_ONCE = 4096  # sequences read between two savings
_NEAR = {"cpu": 1 << 16, "cuda": 1 << 28}  # numbers of laws whose divergence is taken at once


@dataclass(frozen=True, eq=False)
class Reading:
    """What m models say of n sequences.

    Attributes
    ----------
    tokens
        ``(n, length)`` of the comparison.
    loss
        ``(m, n, predictions)`` float32: loss (nats) of each token that is predicted.
    divergence
        ``(m, m, n, predictions)`` float32: KL(first || second) of the laws of that token, given those before it (nats).
    """

    tokens: NDArray[np.int64]
    loss: NDArray[np.float32]
    divergence: NDArray[np.float32]

    @property
    def nll(self) -> NDArray[np.float64]:
        """Mean loss of each sequence (nats per token) under each model, ``(m, n)``."""
        return np.asarray(self.loss.mean(axis=2, dtype=np.float64))

    @property
    def distances(self) -> NDArray[np.float64]:
        """Mean divergence over the places of each sequence (nats per token), ``(m, m, n)``."""
        return np.asarray(self.divergence.mean(axis=3, dtype=np.float64))


def read(models: Sequence[SequenceModel], tokens: NDArray[np.integer], kept: ArrayCache) -> Reading:
    """Let models read sequences; what they say is kept piece by piece.

    Parameters
    ----------
    models
        Two or more of `provlab.modeldiff.pipeline.open_models`.
    tokens
        ``(n, length)``.
    kept
        Where losses and divergences are kept.

    Raises
    ------
    InputError
        The tokens are none of the comparison's, or too many or too few for a model.
    InvalidWeightsError
        A model answers with NaN or Inf.
    """
    whole: NDArray[np.int64] = np.ascontiguousarray(tokens, dtype=np.int64)
    readers = [model.nll for model in models]
    begins, parts = range(0, len(whole), _AT_ONCE), []
    for begin in models[0].bar(begins, "and others read", "piece") if len(begins) > 1 else begins:
        some = whole[begin : begin + _AT_ONCE]
        key = {"models": [model.key for model in models], "tokens": digest(some.tolist()), "torch": torch.__version__}
        parts.append(kept.get("read", key, partial(measure, readers, some)))
    loss, divergence = (np.concatenate([part[name] for part in parts], axis=-2) for name in ("loss", "divergence"))
    return Reading(whole, loss, divergence)


def measure(readers: Sequence[SequenceNll], tokens: NDArray[np.int64]) -> Arrays:
    """Return ``loss`` ``(m, n, predictions)`` and ``divergence`` ``(m, m, n, predictions)`` of m readers."""
    ids = readers[0].checked(tokens, shortest=2)
    for reader in readers[1:]:
        reader.checked(tokens, shortest=2)
    m, shape = len(readers), (len(ids), readers[0].predictions(ids.shape[1]))
    loss, divergence = np.empty((m, *shape), np.float32), np.zeros((m, m, *shape), np.float32)
    done = 0
    with torch.inference_mode():
        every = [reader.laws(ids) for reader in readers]
        for batch, law in every[0]:
            laws = [law, *(next(others)[1].to(law.device) for others in every[1:])]  # (rows, predictions, vocabulary)
            rows = slice(done, done + len(batch))
            predicted = batch[:, -shape[1] :, None]
            for k, own in enumerate(laws):
                loss[k, rows] = -own.gather(2, predicted).squeeze(2).cpu().numpy()
            for i, j in itertools.combinations(range(m), 2):
                both = divergences(laws[i], laws[j]).cpu().numpy()  # (2, rows, predictions)
                divergence[i, j, rows], divergence[j, i, rows] = both
            done += len(batch)
            del law, own, laws  # large, and not to be held while the next are made
    for reader, losses in zip(readers, loss, strict=True):
        reader.refuse_non_finite(losses)
    if not np.isfinite(divergence).all():
        raise InvalidWeightsError(f"{readers[0].name}: a divergence is NaN or Inf; weights need float32")
    return {"loss": loss, "divergence": divergence}


def divergences(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """KL(first || second) and KL(second || first) of laws of the next token.

    Parameters
    ----------
    first, second
        ``(rows, predictions, vocabulary)`` log probabilities.

    Returns
    -------
    Tensor
        ``(2, rows, predictions)``, nats, at least 0.
    """
    *shape, vocabulary = first.shape
    of_first, of_second = first.reshape(-1, vocabulary), second.reshape(-1, vocabulary)
    result = torch.empty(2, len(of_first), dtype=first.dtype, device=first.device)
    # a few laws at a time: on a CPU they stay in its cache, which halves the time; scratch is used again and again
    few = max(1, _NEAR.get(first.device.type, _NEAR["cpu"]) // vocabulary)
    ratios, laws = torch.empty_like(of_first[:few]), torch.empty_like(of_first[:few])
    for begin in range(0, len(of_first), few):
        some = slice(begin, begin + few)
        p, q = of_first[some], of_second[some]
        ratio, law = ratios[: len(p)], laws[: len(p)]
        torch.sub(p, q, out=ratio)
        # a law without a token, at -inf, has 0 * inf there: it adds nothing
        torch.nan_to_num_(ratio, nan=0.0, posinf=1e4, neginf=-1e4)
        result[0, some] = torch.linalg.vecdot(torch.exp(p, out=law), ratio)
        result[1, some] = -torch.linalg.vecdot(torch.exp(q, out=law), ratio)
    return result.clamp_(min=0.0).reshape(2, *shape)
