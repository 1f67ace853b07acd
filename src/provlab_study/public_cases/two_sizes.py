"""Two antibody models after one prompt: what each writes, judged by the other, and read by its residues."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.kept import ArrayCache
from provlab.modeldiff import pipeline, reweighting
from provlab.modeldiff.comparison import BothDirections
from provlab.modeldiff.pipeline import Generation, SequenceModel
from provlab.modeldiff.representative import Direction
from provlab.modeldiff.tokens import opening

SMALL, LARGE = "wild:iglm-small", "wild:iglm"
SHARES = 0.05, 0.5  # quantiles of the losses of what both write that bound Z
#: first residues of one human gene of each family (IMGT), heavy chains and light ones
GERMLINES = {
    "IGHV1": "QVQLVQSGAEVKKPGASVKVSCKAS",
    "IGHV2": "QITLKESGPTLVKPTQTLTLTCTFS",
    "IGHV3": "EVQLVESGGGLVQPGGSLRLSCAAS",
    "IGHV4": "QVQLQESGPGLVKPSETLSLTCTVS",
    "IGHV5": "EVQLVQSGAEVKKPGESLKISCKGS",
    "IGHV6": "QVQLQQSGPGLVKPSQTLSLTCAIS",
    "IGHV7": "QVQLVQSGSELKKPGASVKVSCKAS",
    "IGKV1": "DIQMTQSPSSLSASVGDRVTITC",
    "IGKV2": "DIVMTQSPLSLPVTPGEPASISC",
    "IGKV3": "EIVLTQSPGTLSLSPGERATLSC",
    "IGKV4": "DIVMTQSPDSLAVSLGERATINC",
    "IGLV1": "QSVLTQPPSVSAAPGQKVTISC",
    "IGLV2": "QSALTQPASVSGSPGQSITISC",
    "IGLV3": "SYELTQPPSVSVSPGQTASITC",
}
_LEAST, _ALIKE = 8, 0.7  # residues that must overlap a germline, and the share of them that must be its own


def open_pair(prompt: str) -> tuple[SequenceModel, SequenceModel]:
    """Open both after a prompt such as ``[HEAVY] [HUMAN]``; inputs are made of the twenty amino acids."""
    models = pipeline.open_models(
        [SMALL, LARGE], opening=partial(opening, prompt=prompt), allow_pickle=True, progress=1
    )
    return models[SMALL], models[LARGE]


def residues(model: SequenceModel, tokens: NDArray[np.integer[Any]]) -> list[str]:
    """Inputs as chains of residues, in one-letter code."""
    return ["".join(text.split()) for text in model.texts(tokens)]


def compare(
    a: SequenceModel, b: SequenceModel, how: Generation, kept: ArrayCache
) -> tuple[BothDirections, tuple[float, float]]:
    """Compare by what both write: Z lies between quantiles of the losses, under the writer, of all that was written.

    Returns
    -------
    BothDirections
        The inputs of both.
    tuple of float
        What each one's text costs the other more, nats a residue.
    """
    written = [pipeline.generated(model, how, kept) for model in (a, b)]
    low, high = np.quantile(np.concatenate([draws.nll for draws in written]), SHARES)
    z = float(low), float(high)
    other = [pipeline.judged(judge, draws.tokens, kept) for judge, draws in zip((b, a), written, strict=True)]
    excess = tuple(float(np.mean(by - draws.nll)) for by, draws in zip(other, written, strict=True))
    sides = []
    for side, draws, judge in (("A", written[0], b), ("B", written[1], a)):
        inside = reweighting.smoothed(draws, z) if how.length > 50 else draws.within(z)
        sides.append(Direction.from_draws(inside, pipeline.judged(judge, inside.tokens, kept), side, z))  # type: ignore[arg-type]
    return BothDirections(sides[0], sides[1], z), (excess[0], excess[1])


def share_common(side: Direction, *, seed: int) -> tuple[float, float, float]:
    """Share of a model's inputs that lie in Z for the other as well, with its 95% interval."""
    value, low, high = side.share(side.common, seed=seed)
    return float(value), float(low), float(high)


def shuffled(tokens: NDArray[np.integer[Any]], *, seed: int) -> NDArray[np.integer[Any]]:
    """Put the residues of each input into an order of its own."""
    return np.random.default_rng(seed).permuted(tokens, axis=1)


def share_judged(
    side: Direction, tokens: NDArray[np.integer[Any]], judge: SequenceModel, z: tuple[float, float], kept: ArrayCache
) -> tuple[float, float, float]:
    """Share of a model's inputs, put as `tokens`, that lie in Z by a judge, with its 95% interval."""
    nll = pipeline.judged(judge, tokens, kept)
    value, low, high = side.share((nll >= z[0]) & (nll <= z[1]), seed=0)
    return float(value), float(low), float(high)


def germline(chain: str) -> str:
    """Return the family whose opening a chain is nearest to, and where in it the chain begins; "other" below 70%."""
    best, word = _ALIKE, "other"
    for family, opening_ in GERMLINES.items():
        for start in range(len(opening_) - _LEAST + 1):
            part = opening_[start:]
            alike = np.mean([x == y for x, y in zip(chain, part, strict=False)])
            if alike > best:
                best, word = float(alike), f"{family}, from residue {start + 1}" if start else family
    return word


def openings(chains: Sequence[str], weight: NDArray[np.float64]) -> dict[str, float]:
    """Share of inputs, by weight, that open as each germline does, the commonest first."""
    total: dict[str, float] = {}
    for chain, of_one in zip(chains, weight / weight.sum(), strict=True):
        word = germline(chain)
        total[word] = total.get(word, 0.0) + float(of_one)
    return dict(sorted(total.items(), key=lambda item: -item[1]))
