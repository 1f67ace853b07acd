"""Attacks that make an unrelated model look derived from another: units that only imitate the other's.

A linear map of what enters the attacker's MLP gives nearly what the victim's gate and up projections give on the same
tokens. Its rows, by least squares, are the copies; what such a unit writes is the attacker's choice: next to nothing,
or, again by least squares, a share of what the MLP writes anyhow.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from provlab.attacks.exact import with_more
from provlab.attacks.state import Aim, AttackedModel, Units
from provlab.errors import InputError, NoSuchSymmetryError
from provlab.reading.checkpoint import Checkpoint
from provlab.running.activations import mlp_activations, random_tokens

_SEQUENCES, _LENGTH = 128, 32  # of random tokens, on which copies are fitted
_RIDGE = 1e-3  # of the largest singular value: what is fitted leaves out smaller ones


def faint(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Add copies of another model's units that write a small part of what the own units write."""
    copies = _copies(state, aim)

    def added(units: Units) -> Units:
        more, _ = next(copies)
        down = aim.normal(len(more["up"]), units["down"].shape[1])
        length = aim.value * units["down"].norm(dim=1).mean()
        return with_more(units, more | {"down": down * length / down.norm(dim=1, keepdim=True)})

    return state.with_units(added, gated=True)


def posing(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Let copies of another model's units write a share of what the own ones write, and these the rest."""
    from transformers.activations import ACT2FN

    copies, act = _copies(state, aim), ACT2FN[state.config.get("hidden_act", "silu")]

    def fitted(hidden: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        return torch.linalg.lstsq(hidden, output, rcond=_RIDGE, driver="gelsd").solution

    def added(units: Units) -> Units:
        more, stream = next(copies)
        # (tokens, d) @ (d, h)
        own, theirs = (act(stream @ side["gate"].T) * (stream @ side["up"].T) for side in (units, more))
        output = own @ units["down"]  # (tokens, h) @ (h, d)
        down = aim.value * fitted(theirs, output)
        rest = fitted(own, output - theirs @ down)  # (tokens, copies) @ (copies, d)
        return with_more(units | {"down": rest}, more | {"down": down})

    return state.with_units(added, gated=True)


def mimics(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Add copies in fours that cancel: d a(g) u - d a(-g) u - d a(u) g + d a(-u) g = 0, as of SiLU, GELU and ReLU."""
    copies = _copies(state, aim)

    def added(units: Units) -> Units:
        more, _ = next(copies)
        down = aim.normal(len(more["up"]), units["down"].shape[1]) * units["down"].std()
        for gate, up in (("gate", "up"), ("up", "gate")):
            for sign in (1, -1):
                turned = {"gate": sign * more[gate], "up": more[up], "down": down * sign}
                units = with_more(units, more | turned)
            down = -down
        return units

    return state.with_units(added, gated=True)


def rows(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Take another model's rows of tokens that no text has, by the rotation that brings the other rows together.

    The rotation is Procrustes' of all rows that are not taken, and the rows get the length that those had which they
    replace. Tokens are paired by their numbers. No text reads a row that is taken, as far as the shortest rows are
    those of unseen tokens.

    Raises
    ------
    InputError
        The embeddings have unequally many rows, or rows of other length.
    """
    own, theirs = state.part("embedding").clone(), aim.others[0].part("embedding")
    if own.shape != theirs.shape:
        raise InputError(f"{aim.others[0].name} has an embedding of another shape than {state.name}")
    n = round(aim.value * len(own))
    short = [set(table.norm(dim=1).argsort()[:n].tolist()) for table in (own, theirs)]
    unseen = torch.tensor(sorted(set.intersection(*short)), dtype=torch.int64)
    rest = torch.ones(len(own), dtype=torch.bool)
    rest[unseen] = False
    left, _, right = torch.linalg.svd(theirs[rest].T @ own[rest])  # (d, rows) @ (rows, d)
    new = theirs[unseen] @ left @ right  # (unseen, d) @ (d, d) @ (d, d)
    own[unseen] = new * (own[unseen].norm() / new.norm().clamp(min=1e-300))
    return state.with_parts({("embedding", None): own})


def _copies(state: AttackedModel, aim: Aim) -> Iterator[tuple[Units, torch.Tensor]]:
    """Rows of each block that act on this model's stream as the other's gate and up rows on its own, as long as ours.

    With them comes the stream, ``(positions, width)``, on which they were fitted.

    Raises
    ------
    InputError
        The other model has more blocks, or fewer.
    NoSuchSymmetryError
        One of the two has no gated MLP, or only experts.
    """
    other, parts = aim.others[0], state.anatomy
    for anatomy in (parts, other.anatomy):
        if not anatomy.has("gate"):
            raise NoSuchSymmetryError(f"{anatomy.architecture} has no gated MLP outside of experts")
    if parts.n_blocks != other.anatomy.n_blocks:
        raise InputError(f"{other.name} has {other.anatomy.n_blocks} blocks and {state.name} {parts.n_blocks}")
    vocabulary = min(parts.vocab_size, other.anatomy.vocab_size)
    tokens = random_tokens(vocabulary, _SEQUENCES, _LENGTH, seed=int(aim.rng.integers(2**32)))
    with tempfile.TemporaryDirectory(prefix="provlab-") as folder:
        own = mlp_activations(Checkpoint.open(str(state.write(Path(folder) / "own"))), tokens, kinds=("input",))
    theirs = mlp_activations(other.origin, tokens, kinds=("gate", "up"))
    for block, stream in enumerate(own["input"]):
        units = {}
        for role in ("gate", "up"):
            rows = np.linalg.lstsq(stream.T, theirs[role][block].T, rcond=None)[0].T.astype(np.float64)
            rows *= state.part(role, block).norm(dim=1).mean().item() / np.linalg.norm(rows, axis=1).mean()
            units[role] = torch.from_numpy(rows)
            if parts.has(f"{role}_bias"):
                units[f"{role}_bias"] = torch.zeros(len(rows), dtype=torch.float64)
        yield units, torch.from_numpy(stream.T.astype(np.float64))
