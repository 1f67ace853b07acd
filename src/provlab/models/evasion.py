"""What an adversary can do to a model without changing its outputs: T3 to T5 of the paper (Appendix D, Table 6).

T1 and T2, permutations of the residual stream and of hidden units, are in `provlab.models.symmetry`, since a
permutation test draws them too; T6 changes hidden units and is in `provlab.models.attacks.exact`. Here are

- T3 `EmbeddingRotations`: the residual stream in another orthonormal basis,
- T4 `QueryKeyRotations`: queries and keys of each head turned alike,
- T5 `ReplacedNorms`: other norm weights, undone in the matrices that read the norm.

`provlab.models.disguise` applies them and proves by the logits that nothing changed.

Each follows from the symbolic axes that the anatomy gives, so it exists for every architecture where the mathematics
allows it; where it does not, the refusal says why. A norm with the weights g and the bias b turns the normalised stream
n into g n + b. If the stream turns by R, so does n, provided that R keeps the mean where the norm subtracts it: then R
must fix the vector of ones. A matrix W that reads the norm becomes W diag(g) R^T diag(1/g'), and b becomes
g' R (b / g), with any g' in place of g.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from provlab.errors import NoSuchSymmetryError
from provlab.models import anatomy as anatomy_module
from provlab.models.anatomy import Anatomy, Tensors
from provlab.models.architectures import Segment, described
from provlab.models.symmetry import (
    OWN_HEAD,
    Transformation,
    Weights,
)

#: new norm weights lie between these in absolute value
_SMALLEST, _LARGEST = 0.5, 2.0

_TABLES = ("embedding", "position_embedding", "token_type_embedding")
Matrix = NDArray[np.float64]


# Changes piece by piece -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Edit:
    """A change of every role's piece by a function of role, axes and block.

    Attributes
    ----------
    anatomy
        Of the model.
    change
        ``(segment, block, piece, weights) -> piece`` in float64; ``None`` leaves the piece.
    unties
        A head that is the embedding must become a tensor of its own first.
    """

    anatomy: Anatomy
    change: Callable[[Segment, int | None, torch.Tensor, Weights], torch.Tensor | None]
    unties: bool = False

    def __call__(self, weights: Weights) -> dict[str, torch.Tensor]:
        result = dict(weights)
        for part in self.anatomy.parts:
            pieces = part.split(weights[part.name])
            changed = {}
            for segment in part.segments:
                piece = pieces[segment.role]
                new = self.change(segment, part.block, piece.double(), weights)
                changed[segment.role] = piece if new is None else new.to(piece.dtype)
            if any(changed[role] is not pieces[role] for role in pieces):
                result[part.name] = part.join(changed)
        if self.unties and self.anatomy.tied and not self._has_own_head():
            embedding = weights[self.anatomy.tensor_name("embedding")] if OWN_HEAD not in weights else weights[OWN_HEAD]
            new = self.change(Segment("head", ("vocab", "model")), None, embedding.double(), weights)
            result[OWN_HEAD] = embedding.clone() if new is None else new.to(embedding.dtype)
        return result

    def _has_own_head(self) -> bool:
        return any(segment.role == "head" for part in self.anatomy.parts for segment in part.segments)


def _norms_read(anatomy: Anatomy) -> set[str]:
    """Norms whose output goes into matrices alone, so that these can undo a change of their weights."""
    norms = {
        anatomy.norm_before(segment.role)
        for part in anatomy.parts
        for segment in (*part.segments, Segment("head", ("vocab", "model")))
        if len(segment.axes) == 2 and segment.axes[1] == "model" and segment.role not in _TABLES
    }
    return {norm for norm in norms if norm is not None}


def gains(anatomy: Anatomy, norm: str, block: int | None, weights: Weights) -> torch.Tensor:
    """Return what a norm multiplies the normalised stream by, ``(width,)`` float64."""
    part = anatomy.part(norm, None if norm == "final_norm" else block)
    values = weights[part.name].double() + described(anatomy.architecture).norm_offset
    if bool((values == 0).any()):
        raise NoSuchSymmetryError(f"{part.name} holds a zero, and no other weights can undo that")
    return values


# T3 -------------------------------------------------------------------------------------------------------


class EmbeddingRotations:
    """T3: the residual stream in another orthonormal basis, uniformly drawn.

    Where norms subtract the mean the rotation fixes the vector of ones, which leaves a uniform rotation of the other
    ``width - 1`` directions. A head that is the embedding becomes a tensor of its own, since its two roles change
    differently.

    Raises
    ------
    NoSuchSymmetryError
        A norm follows a sublayer (Gemma 2 and 3, OLMo 2, BERT): its weights scale the stream itself, direction
        by direction.
    """

    def __init__(self, anatomy: Anatomy) -> None:
        if anatomy.has("post_mlp_norm"):
            raise NoSuchSymmetryError(
                f"T3 does not exist for {anatomy.architecture}: a norm behind its MLP scales the residual stream "
                "direction by direction, which no rotation passes through"
            )
        self._anatomy = anatomy

    def sample(self, rng: np.random.Generator) -> Transformation:
        """Draw a rotation."""
        width = self._anatomy.width
        if described(self._anatomy.architecture).centred:
            rotation = _orthogonal_fixing_ones(width, rng)
        else:
            rotation = orthogonal(width, rng)
        return embedding_rotation(self._anatomy, torch.from_numpy(rotation))


def embedding_rotation(anatomy: Anatomy, rotation: torch.Tensor) -> Transformation:
    """Return T3 for a given orthogonal matrix, ``(width, width)`` float64, that acts on the stream as a column."""

    def change(segment: Segment, block: int | None, piece: torch.Tensor, weights: Weights) -> torch.Tensor | None:
        role, axes = segment.role, segment.axes
        if "model" not in axes:
            return None
        if role in _TABLES:
            return piece @ rotation.T
        if role.endswith("norm"):
            return None
        if role.endswith("norm_bias"):
            scale = gains(anatomy, role.removesuffix("_bias"), block, weights)
            return scale * (rotation @ (piece / scale))
        if axes[0] == "model":  # it writes to the stream, a matrix or a bias
            return rotation @ piece
        norm = anatomy.norm_before(role)
        if norm is None:
            return piece @ rotation.T
        scale = gains(anatomy, norm, block, weights)
        return (piece * scale) @ rotation.T / scale

    return _Edit(anatomy, change, unties=True)


# T4 -------------------------------------------------------------------------------------------------------


class QueryKeyRotations:
    """T4: queries and keys turned alike, so that their products stay.

    One rotation for each key head and block, shared by the query heads that read it. Rotary positions (RoPE) turn pairs
    of dimensions; only a rotation inside each pair commutes with them. Dimensions without a position turn freely.

    Raises
    ------
    NoSuchSymmetryError
        Queries and keys pass a norm of their own (Qwen 3, Gemma 3, OLMo 2), whose weights tell the dimensions of a pair
        apart.
    """

    def __init__(self, checkpoint: Tensors) -> None:
        anatomy = anatomy_module.of(checkpoint)
        if anatomy.has("q_norm"):
            raise NoSuchSymmetryError(
                f"T4 does not exist for {anatomy.architecture}: a norm with weights stands between the projections of "
                "queries and keys and their product"
            )
        self._anatomy = anatomy
        self._head = anatomy.part("query", 0).head_size
        self._n_keys = anatomy.shape("key", 0)[0] // self._head
        rotary = described(anatomy.architecture).rotary
        self._n_rotary = _rotary_dimensions(checkpoint, self._head) if rotary else 0

    def sample(self, rng: np.random.Generator) -> Transformation:
        """Draw the rotations of all heads."""
        shape = (self._anatomy.n_blocks, self._n_keys)
        rotations = np.zeros((*shape, self._head, self._head))
        for index in np.ndindex(shape):
            rotations[index] = self._of_head(rng)
        turns = torch.from_numpy(rotations)

        def change(segment: Segment, block: int | None, piece: torch.Tensor, _: Weights) -> torch.Tensor | None:
            if segment.role.removesuffix("_bias") not in ("query", "key"):
                return None
            assert block is not None
            # (key head, query heads that read it, dimension of the head, inputs)
            heads = piece.reshape(self._n_keys, -1, self._head, piece[0].numel())
            return torch.einsum("kij,kgjm->kgim", turns[block], heads).reshape(piece.shape)

        return _Edit(self._anatomy, change)

    def _of_head(self, rng: np.random.Generator) -> Matrix:
        """One head's rotation: by an angle in each rotary pair ``(i, i + n / 2)``, uniform among the rest."""
        turn = np.zeros((self._head, self._head))
        half = self._n_rotary // 2
        first, second = np.arange(half), np.arange(half, 2 * half)
        angle = rng.uniform(0, 2 * np.pi, half)
        turn[first, first] = turn[second, second] = np.cos(angle)
        turn[first, second], turn[second, first] = -np.sin(angle), np.sin(angle)
        rest = slice(self._n_rotary, self._head)
        turn[rest, rest] = orthogonal(self._head - self._n_rotary, rng)
        return turn


def _rotary_dimensions(checkpoint: Tensors, head: int) -> int:
    """Dimensions of a head that carry a position; the config has the share under one of three names."""
    config = checkpoint.config
    nested = config.get("rope_parameters") or {}
    share = nested.get("partial_rotary_factor", config.get("partial_rotary_factor", config.get("rotary_pct", 1.0)))
    turned = int(head * float(share))
    return turned + turned % 2  # transformers turns pairs, and rounds an odd number up


# T5 -------------------------------------------------------------------------------------------------------


class ReplacedNorms:
    """T5: other non-zero weights for every norm that only matrices read; the matrices undo it.

    Norms behind a sublayer keep their weights (the stream itself would change). A head that is the embedding becomes a
    tensor of its own.

    Parameters
    ----------
    anatomy
        Of the model.
    folded
        All new weights are 1, as inference engines fold them into the matrices; else they are drawn.

    Raises
    ------
    NoSuchSymmetryError
        No norm has weights that only matrices read (OLMo has none, BERT's are read by the stream).
    """

    def __init__(self, anatomy: Anatomy, *, folded: bool = False) -> None:
        self._folded = folded
        self._norms = _norms_read(anatomy)
        if not self._norms:
            raise NoSuchSymmetryError(
                f"T5 does not exist for {anatomy.architecture}: it has no norm whose weights only matrices read"
            )
        self._anatomy = anatomy

    def sample(self, rng: np.random.Generator) -> Transformation:
        """Draw all new norms: absolute values between 0.5 and 2, either sign."""
        anatomy, offset = self._anatomy, described(self._anatomy.architecture).norm_offset
        new = {
            (norm, block): torch.from_numpy(np.ones(anatomy.width) if self._folded else _nonzero(anatomy.width, rng))
            for norm in sorted(self._norms)
            for block in ((None,) if norm == "final_norm" else range(anatomy.n_blocks))
        }

        def change(segment: Segment, block: int | None, piece: torch.Tensor, weights: Weights) -> torch.Tensor | None:
            role = segment.role
            if (role, block) in new:
                return new[role, block] - offset
            if role.endswith("norm_bias") and (norm := role.removesuffix("_bias")) in self._norms:
                return piece * new[norm, block] / gains(anatomy, norm, block, weights)
            if len(segment.axes) < 2 or segment.axes[1] != "model" or role in _TABLES:
                return None
            read = anatomy.norm_before(role)
            if read is None:
                return None
            where = None if read == "final_norm" else block
            return piece * (gains(anatomy, read, where, weights) / new[read, where])

        return _Edit(anatomy, change, unties="final_norm" in self._norms)


# Random matrices ------------------------------------------------------------------------------------------


def orthogonal(n: int, rng: np.random.Generator) -> Matrix:
    """Draw an orthogonal ``(n, n)`` matrix uniformly (Haar measure)."""
    # the QR decomposition alone is not uniform: its signs are the algorithm's
    basis, triangle = np.linalg.qr(rng.standard_normal((n, n)))
    return basis * np.where(np.diag(triangle) < 0, -1.0, 1.0)


def _orthogonal_fixing_ones(n: int, rng: np.random.Generator) -> Matrix:
    """Draw uniformly among the orthogonal matrices that leave the vector of ones, and so every mean, as it is."""
    # a reflection that takes the first axis to the direction of ones, and back
    mirror = np.full(n, -1 / np.sqrt(n))
    mirror[0] += 1
    reflection = np.eye(n) - 2 * np.outer(mirror, mirror) / (mirror @ mirror) if n > 1 else np.eye(1)
    inner = np.eye(n)
    inner[1:, 1:] = orthogonal(n - 1, rng)
    return reflection @ inner @ reflection


def _nonzero(n: int, rng: np.random.Generator) -> Matrix:
    return rng.uniform(_SMALLEST, _LARGEST, n) * rng.choice([-1.0, 1.0], n)
