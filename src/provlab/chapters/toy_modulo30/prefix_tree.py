"""The NLL of all sequences of a small space, by walking the tree of their prefixes.

V^L sequences share their beginnings: the tree has V^(L-1) inner nodes on its last level and a ninth of that above (for
V = 10). Each node goes through the network once, as one token that attends to the keys and values which its ancestors
left, and its logits give the loss of all V children at once. For the toy that is 1.1e7 tokens in place of 7e8.

GPT-2, which the toys are, has a forward pass of its own here, of few and large operations; it gives the losses of a
plain forward pass, up to rounding.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from provlab.errors import InputError
from provlab.modeldiff.nll import SequenceNll

_NODES = 4096  # tokens sent through the network at once: fewer, and calls cost; more, and memory does
_EXPONENT = 60.0  # attention scores up to this need no shift before exp, in float32


def subtree_nll(model: SequenceNll, length: int, head: tuple[int, ...] = ()) -> NDArray[np.float32]:
    """Return the mean token NLL (nats) of all sequences that begin with `head`; no start token is put before them.

    Parameters
    ----------
    model
        A plain GPT-2 in float32 on the CPU.
    length
        Tokens of the whole sequences, more than `head` has.
    head
        First tokens of all sequences.

    Returns
    -------
    array
        ``(vocabulary ** (length - len(head)),)`` in lexicographic order: the last token changes fastest.

    Raises
    ------
    InputError
        The model is of another kind.
    InvalidWeightsError
        The model answers with NaN or Inf.
    """
    vocabulary, tree = model.vocabulary, Gpt2Tree(model.network)
    every = torch.arange(vocabulary)
    result = np.empty(vocabulary ** (length - len(head)), dtype=np.float32)
    written = 0

    def walk(state: _State, log_probs: torch.Tensor, losses: torch.Tensor, depth: int) -> None:
        """Visit all below p prefixes of `depth` tokens, whose next token has `log_probs` ``(p, vocabulary)``."""
        nonlocal written
        below = losses[:, None] - log_probs
        if depth + 1 == length:
            result[written : written + below.numel()] = below.flatten().numpy()
            written += below.numel()
            return
        at_once = max(1, _NODES // vocabulary)
        for begin in range(0, len(losses), at_once):
            some = slice(begin, begin + at_once)
            parents, children = tree.part(state, some), below[some]
            for tokens in every.split(_NODES):
                logits, grown = tree.extend(parents, tokens, grow=depth + 2 < length)
                walk(grown, F.log_softmax(logits, dim=-1), children[:, tokens].flatten(), depth + 1)

    with torch.inference_mode():
        state, loss = tree.root(), torch.zeros(1)
        log_probs = torch.zeros(1, vocabulary)  # without a start token the first token costs nothing
        for token in head:
            loss = loss - log_probs[:, token]
            logits, state = tree.extend(state, torch.tensor([token]), grow=True)
            log_probs = F.log_softmax(logits, dim=-1)
        walk(state, log_probs, loss, len(head))
    result /= np.float32(length - 1)
    model.refuse_non_finite(result)
    return result


@dataclass(frozen=True)
class _Block:
    """Weights of one block; matrices as ``(in, out)``."""

    norm_1: tuple[torch.Tensor, torch.Tensor]
    attention: tuple[torch.Tensor, torch.Tensor]
    projection: tuple[torch.Tensor, torch.Tensor]
    norm_2: tuple[torch.Tensor, torch.Tensor]
    up: tuple[torch.Tensor, torch.Tensor]
    down: tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class _State:
    """Keys and values of p prefixes of n tokens, one entry a block.

    Keys are ``(p, heads, size, n)``; values ``(p, heads, n, size + 1)``, the last column of ones: one product then
    gives both the weighted values and the sum of the weights.
    """

    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]
    depth: int


class Gpt2Tree:
    """GPT-2, with the children of a prefix sharing their ancestors' keys and values instead of copying them."""

    def __init__(self, network: Any) -> None:
        self._check(network)
        body = network.transformer
        self.heads = network.config.n_head
        self.size = network.config.n_embd // self.heads
        self.epsilon = network.config.layer_norm_epsilon
        self.activation = body.h[0].mlp.act
        self.embedding = body.wte.weight.detach()
        self.positions = body.wpe.weight.detach()
        self.norm = _affine(body.ln_f)
        self.head = network.lm_head.weight.detach().T.contiguous()
        self.blocks = [
            _Block(
                _affine(block.ln_1),
                self._scaled(*_affine(block.attn.c_attn)),
                _affine(block.attn.c_proj),
                _affine(block.ln_2),
                _affine(block.mlp.c_fc),
                _affine(block.mlp.c_proj),
            )
            for block in body.h
        ]

    @staticmethod
    def _check(network: Any) -> None:
        config = network.config
        plain = (
            type(network).__name__ == "GPT2LMHeadModel"
            and config.scale_attn_weights
            and not config.scale_attn_by_inverse_layer_idx
            and not config.add_cross_attention
            and network.dtype == torch.float32
            and network.device.type == "cpu"
        )
        if not plain:
            raise InputError(f"{type(network).__name__} is no plain GPT-2 in float32 on the CPU, as the toys are")

    def root(self) -> _State:
        """Return the state that remembers nothing."""
        keys = torch.empty(1, self.heads, self.size, 0)
        values = torch.empty(1, self.heads, 0, self.size + 1)
        return _State((keys,) * len(self.blocks), (values,) * len(self.blocks), 0)

    def part(self, state: _State, rows: slice) -> _State:
        """Return views of some prefixes."""
        return _State(tuple(k[rows] for k in state.keys), tuple(v[rows] for v in state.values), state.depth)

    def extend(self, state: _State, tokens: torch.Tensor, *, grow: bool) -> tuple[torch.Tensor, _State]:
        """Put each of ``(c,)`` tokens behind each of p prefixes.

        Returns the logits ``(p * c, vocabulary)`` of the next token, the children of one prefix side by side, and the
        children's state, which is empty unless they are to `grow`.
        """
        prefixes, children = len(state.keys[0]), len(tokens)
        width = self.heads * self.size
        x = self.embedding[tokens] + self.positions[state.depth]  # (c, width), one for all prefixes up to the attention
        new_keys, new_values = [], []
        for block, old_keys, old_values in zip(self.blocks, state.keys, state.values, strict=True):
            h = F.layer_norm(x, (width,), *block.norm_1, self.epsilon)
            mixed = torch.addmm(block.attention[1], h, block.attention[0])
            # (p, heads, c, size) each; p is 1 in the first block
            query, key, value = mixed.view(-1, children, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
            attended = _attend(query, key, value, old_keys, old_values)
            attended = attended.transpose(1, 2).reshape(-1, width)
            x = x.view(-1, children, width) + torch.addmm(block.projection[1], attended, block.projection[0]).view(
                prefixes, children, width
            )
            x = x.view(-1, width)
            h = F.layer_norm(x, (width,), *block.norm_2, self.epsilon)
            h = self.activation(torch.addmm(block.up[1], h, block.up[0]))
            x += torch.addmm(block.down[1], h, block.down[0])
            if grow:
                new_keys.append(_grown_keys(old_keys, key))
                new_values.append(_grown_values(old_values, value))
        logits = F.layer_norm(x, (width,), *self.norm, self.epsilon) @ self.head
        return logits, _State(tuple(new_keys), tuple(new_values), state.depth + 1)

    def _scaled(self, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Divide the queries by the root of a head's size beforehand."""
        scale = torch.ones_like(bias)
        scale[: self.heads * self.size] = 1 / math.sqrt(self.size)
        return weight * scale, bias * scale


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, old_keys: torch.Tensor, old_values: torch.Tensor
) -> torch.Tensor:
    """Attention of children ``(p, heads, c, size)`` to their ancestors and to themselves."""
    # less the child's score of itself, which then has weight 1: no sum of weights is 0
    scores = query @ old_keys - (query * key).sum(dim=3, keepdim=True)
    own: torch.Tensor | float = 1.0
    # a row's largest score is taken off only where exp needs it: rows are short, and their maxima slow
    if scores.numel() and scores.max() > _EXPONENT:
        largest = scores.amax(dim=3, keepdim=True).clamp_(min=0)
        scores, own = scores - largest, torch.exp(-largest)
    gathered = scores.exp_() @ old_values
    return (gathered[..., :-1] + own * value) / (gathered[..., -1:] + own)


def _grown_keys(old: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Each child's keys: its ancestors' and its own, ``(p * c, heads, size, n + 1)``."""
    prefixes, (_, heads, children, size) = len(old), key.shape
    ancestors = old[:, None].expand(prefixes, children, *old.shape[1:])
    return torch.cat([ancestors, key.transpose(1, 2)[..., None].expand(prefixes, -1, -1, -1, -1)], dim=4).view(
        -1, heads, size, old.shape[3] + 1
    )


def _grown_values(old: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Each child's values with the column of ones, ``(p * c, heads, n + 1, size + 1)``."""
    prefixes, (_, heads, children, size) = len(old), value.shape
    ancestors = old[:, None].expand(prefixes, children, *old.shape[1:])
    own = F.pad(value.transpose(1, 2)[..., None, :], (0, 1), value=1.0).expand(prefixes, -1, -1, -1, -1)
    return torch.cat([ancestors, own], dim=3).view(-1, heads, old.shape[2] + 1, size + 1)


def _affine(module: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return module.weight.detach().contiguous(), module.bias.detach()
