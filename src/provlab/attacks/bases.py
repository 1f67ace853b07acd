"""T1 to T5 of the paper (Appendix D, Table 6): the same model in another order, in another basis, or with other norms.

- T1 `stream` and T2 `units`: coordinates of the residual stream, and hidden units, in another order,
- T3 `rotations`: the residual stream in another orthonormal basis,
- T4 `queries_and_keys`: queries and keys of each head turned alike,
- T5 `norms`: other norm weights, undone in the matrices that read the norm; `folded` sets all of them to 1.

T6 changes hidden units and is in `provlab.attacks.exact`. `provlab.attacks.disguise` applies them and proves by
the logits that nothing changed.

Each follows from the symbolic axes that the anatomy gives, so it exists for every architecture where the mathematics
allows it; where it does not, the refusal says why. A norm with the weights g and the bias b turns the normalised stream
n into g n + b. If the stream turns by R, so does n, provided that R keeps the mean where the norm subtracts it: then R
must fix the vector of ones. A matrix W that reads the norm becomes W diag(g) R^T diag(1/g'), and b becomes
g' R (b / g), with any g' in place of g.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from provlab.attacks.state import Aim, AttackedModel
from provlab.errors import NoSuchSymmetryError
from provlab.reading.anatomy import Anatomy
from provlab.reading.architectures import Segment, described
from provlab.reading.symmetry import EmbeddingPermutations, MlpPermutations

#: new norm weights lie between these in absolute value
_SMALLEST, _LARGEST = 0.5, 2.0

_TABLES = ("embedding", "position_embedding", "token_type_embedding")
Matrix = NDArray[np.float64]


def stream(state: AttackedModel, aim: Aim) -> AttackedModel:
    """T1: the coordinates of the residual stream in any order, the same everywhere."""
    return state.permuted(EmbeddingPermutations(state.anatomy).sample(aim.rng))


def units(state: AttackedModel, aim: Aim) -> AttackedModel:
    """T2: the hidden units of each MLP in any order."""
    return state.permuted(MlpPermutations(state.anatomy).sample(aim.rng))


def gains(state: AttackedModel, norm: str, block: int | None) -> torch.Tensor:
    """Return what a norm multiplies the normalised stream by, ``(width,)``.

    Raises
    ------
    NoSuchSymmetryError
        A weight is zero.
    """
    part = state.anatomy.part(norm, _place(norm, block))
    values = state.weights[part.name] + state.anatomy.norm_offset
    if bool((values == 0).any()):
        raise NoSuchSymmetryError(f"{part.name} holds a zero, and no other weights can undo that")
    return values


def _place(norm: str, block: int | None) -> int | None:
    """Return the block that holds a norm which is read from a block."""
    return None if norm == "final_norm" else block


# T3 -------------------------------------------------------------------------------------------------------


def rotations(state: AttackedModel, aim: Aim) -> AttackedModel:
    """T3: the residual stream in another orthonormal basis, uniformly drawn.

    Where norms subtract the mean the rotation fixes the vector of ones, which leaves a uniform rotation of the other
    ``width - 1`` directions. A head that is the embedding becomes a tensor of its own, since its two roles change
    differently.
    """
    check_rotates(state.anatomy)
    drawn = _orthogonal_fixing_ones if described(state.anatomy.architecture).centred else orthogonal
    rotation = torch.from_numpy(drawn(state.anatomy.width, aim.rng))  # acts on the stream as a column
    for norm, block in _read_norms(state.anatomy):
        gains(state, norm, block)  # a zero is refused now, and not where a tensor is made

    def change(segment: Segment, block: int | None, piece: torch.Tensor) -> torch.Tensor | None:
        role, axes = segment.role, segment.axes
        if "model" not in axes or role.endswith("norm"):
            return None
        if role.endswith("norm_bias"):
            scale = gains(state, role.removesuffix("_bias"), block)
            return scale * (rotation @ (piece / scale))  # (d, d) @ (d,)
        if axes[0] == "model" and role not in _TABLES:  # it writes to the stream, a matrix or a bias
            return rotation @ piece  # (d, d) @ (d, inputs), or (d,) of a bias
        norm = None if role in _TABLES else state.anatomy.norm_before(role)
        if norm is None:
            return piece @ rotation.T  # (outputs, d) @ (d, d)
        scale = gains(state, norm, block)
        return (piece * scale) @ rotation.T / scale  # (outputs, d) @ (d, d)

    return state.turned(change, unties=True)


def check_rotates(anatomy: Anatomy) -> None:
    """Raise NoSuchSymmetryError for norms behind a sublayer (Gemma 2, OLMo 2, BERT), whose weights scale the stream."""
    if anatomy.has("post_mlp_norm"):
        raise NoSuchSymmetryError(
            f"T3 does not exist for {anatomy.architecture}: a norm behind its MLP scales the residual stream "
            "direction by direction, which no rotation passes through"
        )


# T4 -------------------------------------------------------------------------------------------------------


def queries_and_keys(state: AttackedModel, aim: Aim) -> AttackedModel:
    """T4: queries and keys turned alike, so that their products stay.

    One rotation for each key head and block, shared by the query heads that read it. Rotary positions (RoPE) turn pairs
    of dimensions; only a rotation inside each pair commutes with them. Dimensions without a position turn freely.

    Raises
    ------
    NoSuchSymmetryError
        Queries and keys pass a norm of their own (Qwen 3, Gemma 3, OLMo 2), whose weights tell the dimensions of a pair
        apart.
    """
    parts = state.anatomy
    if parts.has("q_norm"):
        raise NoSuchSymmetryError(
            f"T4 does not exist for {parts.architecture}: a norm with weights stands between the projections of "
            "queries and keys and their product"
        )
    head = parts.part("query", 0).head_size
    n_keys = parts.shape("key", 0)[0] // head
    n_rotary = _rotary_dimensions(state, head) if described(parts.architecture).rotary else 0
    drawn = [[_of_head(head, n_rotary, aim.rng) for _ in range(n_keys)] for _ in range(parts.n_blocks)]
    turns = torch.from_numpy(np.array(drawn))

    def change(segment: Segment, block: int | None, piece: torch.Tensor) -> torch.Tensor | None:
        if segment.role.removesuffix("_bias") not in ("query", "key"):
            return None
        # (key head, query heads that read it, dimension of the head, inputs)
        heads = piece.reshape(n_keys, -1, head, piece[0].numel())
        return torch.einsum("kij,kgjm->kgim", turns[block], heads).reshape(piece.shape)

    return state.turned(change)


def _of_head(head: int, n_rotary: int, rng: np.random.Generator) -> Matrix:
    """One head's rotation: by an angle in each rotary pair ``(i, i + n / 2)``, uniform among the rest."""
    turn = np.zeros((head, head))
    half = n_rotary // 2
    first, second = np.arange(half), np.arange(half, 2 * half)
    angle = rng.uniform(0, 2 * np.pi, half)
    turn[first, first] = turn[second, second] = np.cos(angle)
    turn[first, second], turn[second, first] = -np.sin(angle), np.sin(angle)
    turn[n_rotary:, n_rotary:] = orthogonal(head - n_rotary, rng)
    return turn


def _rotary_dimensions(state: AttackedModel, head: int) -> int:
    """Dimensions of a head that carry a position; the config has the share under one of three names."""
    config = state.config
    nested = config.get("rope_parameters") or {}
    share = nested.get("partial_rotary_factor", config.get("partial_rotary_factor", config.get("rotary_pct", 1.0)))
    turned = int(head * float(share))
    return turned + turned % 2  # transformers turns pairs, and rounds an odd number up


# T5 -------------------------------------------------------------------------------------------------------


def norms(state: AttackedModel, aim: Aim) -> AttackedModel:
    """T5: other weights for every norm that only matrices read, absolute values between 0.5 and 2, either sign."""

    def drawn(n: int) -> Matrix:
        return aim.rng.uniform(_SMALLEST, _LARGEST, n) * aim.rng.choice([-1.0, 1.0], n)

    return _replaced(state, drawn)


def folded(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Set the weights of every norm that only matrices read to 1, as inference engines fold them into the matrices."""
    return _replaced(state, np.ones)


def _replaced(state: AttackedModel, weights: Callable[[int], Matrix]) -> AttackedModel:
    """Replace norms, and undo it in the matrices; norms behind a sublayer stay, or the stream itself would change.

    A head that is the embedding becomes a tensor of its own.

    Raises
    ------
    NoSuchSymmetryError
        No norm has weights that only matrices read (OLMo has none, BERT's are read by the stream).
    """
    anatomy, offset = state.anatomy, state.anatomy.norm_offset
    new = {place: torch.from_numpy(weights(anatomy.width)) for place in _read_norms(anatomy)}
    if not new:
        raise NoSuchSymmetryError(
            f"T5 does not exist for {anatomy.architecture}: it has no norm whose weights only matrices read"
        )

    for norm, block in new:
        gains(state, norm, block)  # a zero is refused now, and not where a tensor is made

    def change(segment: Segment, block: int | None, piece: torch.Tensor) -> torch.Tensor | None:
        role = segment.role
        if (role, block) in new:
            return new[role, block] - offset
        norm = role.removesuffix("_bias")
        if (norm, block) in new:
            return piece * new[norm, block] / gains(state, norm, block)
        if segment.axes[1:] != ("model",) or role in _TABLES or (before := anatomy.norm_before(role)) is None:
            return None
        return piece * (gains(state, before, block) / new[before, _place(before, block)])

    return state.turned(change, unties=("final_norm", None) in new)


def _read_norms(anatomy: Anatomy) -> list[tuple[str, int | None]]:
    """Norms that matrices read the stream through, with their blocks."""
    read = {
        anatomy.norm_before(segment.role)
        for part in anatomy.parts
        for segment in (*part.segments, Segment("head", ("vocab", "model")))
        if segment.axes[1:] == ("model",) and segment.role not in _TABLES
    }
    return [
        (norm, block)
        for norm in sorted(filter(None, read))
        for block in ((None,) if norm == "final_norm" else range(anatomy.n_blocks))
    ]


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
    reflection = np.eye(n) - 2 * np.outer(mirror, mirror) / (mirror @ mirror)  # (n,) @ (n,)
    inner = np.eye(n)
    inner[1:, 1:] = orthogonal(n - 1, rng)
    return reflection @ inner @ reflection  # (n, n) thrice
