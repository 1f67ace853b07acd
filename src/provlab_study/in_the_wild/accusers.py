"""Figures by which models are accused of descent, in public and by tools: each a score, a threshold, and no null.

None of them says how often two models that have nothing to do with each other reach the threshold. Scores are defined
on whatever two models have in common; where they have not what a figure needs, there is no score and no accusation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from provlab.errors import ProvlabError
from provlab.files import digest
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.text import encode

Array = NDArray[np.float32]

_ATTENTION = ("query", "key", "value", "output")
_MLP = ("gate", "up", "down")
_SKETCH = 1024  # numbers that stand for one matrix
_PROJECTED = 8  # times that each weight is added to one of them


@dataclass(frozen=True)
class Portrait:
    """The properties of one model that the figures need, each read on first use.

    Attributes
    ----------
    model
        Opened.
    options
        Text and numbers of tokens for the inputs that the model is run on.
    """

    model: Model
    options: Options

    @property
    def settings(self) -> tuple[object, ...]:
        """Shape and tokenizer, which a scanner compares before it reads a weight."""
        anatomy, tokenizer = self.model.anatomy, self.model.checkpoint.tokenizer_digest
        return anatomy.architecture, anatomy.n_blocks, anatomy.width, anatomy.mlp_width, anatomy.vocab_size, tokenizer

    @cached_property
    def matrices(self) -> dict[tuple[str, int], Array]:
        """Projections of attention and MLP: (role, block) -> ``(output units, input units)``."""
        return self._in_blocks(lambda role: role in (*_ATTENTION, *_MLP))

    @cached_property
    def norms(self) -> dict[tuple[str, int], Array]:
        """Weights of the norms of the blocks: (role, block) -> ``(width,)``."""
        return self._in_blocks(lambda role: role.endswith("_norm"))

    def _in_blocks(self, expected: Callable[[str], bool]) -> dict[tuple[str, int], Array]:
        anatomy, checkpoint = self.model.anatomy, self.model.checkpoint
        held = [(segment.role, part.block) for part in anatomy.parts for segment in part.segments]
        return {
            (role, block): anatomy.read(checkpoint, role, block)
            for role, block in held
            if block is not None and expected(role)
        }

    @cached_property
    def spreads(self) -> dict[str, NDArray[np.float64]]:
        """Standard deviation of each projection: role -> ``(blocks,)``."""
        result: dict[str, list[float]] = {}
        for (role, _), matrix in self.matrices.items():
            result.setdefault(role, []).append(float(matrix.std()))
        return {role: np.array(values) for role, values in result.items()}

    @cached_property
    def sketches(self) -> dict[tuple[str, int], NDArray[np.float64]]:
        """Each projection as `_SKETCH` numbers: sums of weights under signs that are the same for all models."""
        return {place: _sketch(matrix, place) for place, matrix in self.matrices.items()}

    @cached_property
    def inputs(self) -> NDArray[np.int64]:
        """Token ids, ``(n_sequences, sequence_length)``: of the text if there is one, else drawn."""
        from provlab.running.activations import random_tokens

        if self.options.text:
            return encode(self.model.checkpoint, self.options)
        count, length = self.options.n_sequences, self.options.sequence_length
        return random_tokens(self.model.anatomy.vocab_size, count, length, seed=self.options.seed)

    @cached_property
    def last_layer(self) -> NDArray[np.float64] | None:
        """What the last block gives on these inputs, centred, ``(tokens, width)``; None if the model does not run."""
        import torch

        try:
            network = self.model.checkpoint.load_model()
        except ProvlabError:
            return None
        ids = torch.from_numpy(self.inputs)
        with torch.inference_mode():
            result = network(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
        values = result.hidden_states[-1].reshape(-1, result.hidden_states[-1].shape[-1]).double().numpy()
        centred: NDArray[np.float64] = values - values.mean(axis=0)
        return centred


def _sketch(matrix: Array, place: tuple[str, int]) -> NDArray[np.float64]:
    """Project a matrix at random, by a seed that its place alone decides."""
    rng = np.random.default_rng(int(digest(place)[:16], 16))
    flat = matrix.ravel().astype(np.float64)
    sums = np.zeros(_SKETCH)
    for _ in range(_PROJECTED):
        signs = rng.integers(0, 2, flat.size, dtype=np.int8) * 2.0 - 1
        sums += np.bincount(rng.integers(0, _SKETCH, flat.size, dtype=np.int16), flat * signs, _SKETCH)
    return sums


def cosine(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Cosine of the angle between two arrays of one shape, in float64."""
    first, second = a.ravel().astype(np.float64), b.ravel().astype(np.float64)
    return float(first @ second / np.sqrt((first @ first) * (second @ second)))


def _shared(a: Mapping[tuple[str, int], Array], b: Mapping[tuple[str, int], Array]) -> list[tuple[str, int]]:
    """Places that both have in one shape; none if only some roles do."""
    places = [place for place in a if place in b]
    return places if places and all(a[place].shape == b[place].shape for place in places) else []


def norm_cosine(a: Portrait, b: Portrait) -> float | None:
    """Mean cosine of the weights of norms, block by block."""
    places = _shared(a.norms, b.norms)
    return float(np.mean([cosine(a.norms[place], b.norms[place]) for place in places])) if places else None


def attention_spread(a: Portrait, b: Portrait) -> float | None:
    """Mean over query, key, value and output of the correlation over blocks of standard deviations."""
    if any(role not in item.spreads or len(item.spreads[role]) < 3 for role in _ATTENTION for item in (a, b)):
        return None
    if len(a.spreads["query"]) != len(b.spreads["query"]):
        return None
    return float(np.mean([np.corrcoef(a.spreads[role], b.spreads[role])[0, 1] for role in _ATTENTION]))


def spread(a: Portrait, b: Portrait) -> float | None:
    """Correlation over all projections and blocks of standard deviations."""
    if {role: len(values) for role, values in a.spreads.items()} != {r: len(v) for r, v in b.spreads.items()}:
        return None
    first, second = (np.concatenate([item.spreads[role] for role in a.spreads]) for item in (a, b))
    return float(np.corrcoef(first, second)[0, 1]) if len(first) > 2 else None


def weight_cosine(a: Portrait, b: Portrait) -> float | None:
    """Cosine of all projections, laid end to end."""
    places = _shared(a.matrices, b.matrices)
    sides = [[item.matrices[place] for place in places] for item in (a, b)]
    inner = [
        sum(float(np.vdot(x, y)) for x, y in zip(*pair, strict=True)) for pair in (sides, sides[:1] * 2, sides[1:] * 2)
    ]
    return inner[0] / float(np.sqrt(inner[1] * inner[2])) if places else None


def sketch_score(a: Portrait, b: Portrait) -> float | None:
    """Mean cosine of the sketches of projections."""
    if not (places := _shared(a.matrices, b.matrices)):
        return None
    return float(np.mean([cosine(a.sketches[place], b.sketches[place]) for place in places]))


def last_layer_cka(a: Portrait, b: Portrait) -> float | None:
    """Linear centred kernel alignment of what the last blocks give on the same token ids."""
    if not np.array_equal(a.inputs, b.inputs) or a.last_layer is None or b.last_layer is None:
        return None
    first, second = a.last_layer, b.last_layer
    shared = np.square(first.T @ second).sum()
    return float(shared / np.sqrt(np.square(first.T @ first).sum() * np.square(second.T @ second).sum()))


def same_settings(a: Portrait, b: Portrait) -> float | None:
    """1 if architecture, shape and tokenizer are the same, else 0."""
    return float(a.settings == b.settings)


@dataclass(frozen=True)
class Accuser:
    """One figure, as it is used.

    Attributes
    ----------
    name
        In tables.
    threshold
        From which on it accuses.
    source
        Where figure and threshold come from.
    score
        The score of two models; None where it is not defined.
    """

    name: str
    threshold: float
    source: str
    score: Callable[[Portrait, Portrait], float | None]


ACCUSERS: Sequence[Accuser] = (
    Accuser("configuration and tokenizer", 1.0, "what scanners compare first", same_settings),
    Accuser(
        "cosine of norm weights",
        0.98,
        "said of Solar-Open-100B and GLM-4.5-Air (2026), at 0.989; threshold ours",
        norm_cosine,
    ),
    Accuser("spread of all projections", 0.9, "as the next, over all roles at once", spread),
    Accuser(
        "spread of attention",
        0.9,
        "said of Pangu Pro MoE and Qwen2.5-14B (arXiv 2507.03014), at 0.927; threshold ours",
        attention_spread,
    ),
    Accuser("CKA of the last layer", 0.9, "representation fingerprints; threshold ours", last_layer_cka),
    Accuser("cosine of weights", 0.5, "parameter cosine similarity; threshold ours", weight_cosine),
    Accuser("sketch of weights", 0.6, "fingerprint tools; threshold of one of them", sketch_score),
)
