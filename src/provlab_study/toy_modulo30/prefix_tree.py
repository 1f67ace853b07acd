"""The NLL of all sequences of a small space, by walking the tree of their prefixes.

V^L sequences share their beginnings: the tree has V^(L-1) inner nodes on its last level and a ninth of that above (for
V = 10). Each node goes through the network once, as one token that attends to the keys and values which its ancestors
left, and its logits give the loss of all V children at once. For the toy that is 1.1e7 tokens in place of 7e8.

The children of one prefix are one row for the network: a mask lets each see its ancestors and itself, and none of its
siblings. So the keys and values of a prefix are held once for all its children, and copied only where the tree grows.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F
from transformers import DynamicCache

from provlab.modeldiff.nll import SequenceNll

_NODES = 2048  # tokens sent through the network at once: fewer, and calls cost; more, and memory does

#: keys and values of each block, ``(prefixes, heads, tokens, size)``
State = list[tuple[torch.Tensor, torch.Tensor]]


def subtree_nll(model: SequenceNll, length: int, head: tuple[int, ...] = ()) -> NDArray[np.float32]:
    """Return the mean token NLL (nats) of all sequences that begin with `head`; no start token is put before them.

    Parameters
    ----------
    model
        Reads its tokens by full attention, as GPT-2 does.
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
    InvalidWeightsError
        The model answers with NaN or Inf.
    """
    every = torch.arange(model.vocabulary)
    result = np.empty(model.vocabulary ** (length - len(head)), dtype=np.float32)
    at_once, written = max(1, _NODES // model.vocabulary), 0

    def walk(state: State, log_probs: torch.Tensor, losses: torch.Tensor, depth: int) -> None:
        """Visit all below p prefixes of `depth` tokens, whose next token has `log_probs` ``(p, vocabulary)``."""
        nonlocal written
        below = losses[:, None] - log_probs
        if depth + 1 == length:
            result[written : written + below.numel()] = below.flatten().numpy()
            written += below.numel()
            return
        for begin in range(0, len(losses), at_once):
            some = slice(begin, begin + at_once)
            parents = [(keys[some], values[some]) for keys, values in state]
            logits, grown = extend(model, parents, every.expand(len(losses[some]), -1), depth, grow=depth + 2 < length)
            walk(grown, F.log_softmax(logits, dim=-1), below[some].flatten(), depth + 1)

    with torch.inference_mode():
        state: State = []
        loss, log_probs = torch.zeros(1), torch.zeros(1, model.vocabulary)  # without a start the first token is free
        for depth, token in enumerate(head):
            loss = loss - log_probs[:, token]
            logits, state = extend(model, state, torch.tensor([[token]]), depth, grow=True)
            log_probs = F.log_softmax(logits, dim=-1)
        walk(state, log_probs, loss, len(head))
    result /= np.float32(length - 1)
    model.refuse_non_finite(result)
    return result


def extend(
    model: SequenceNll, state: State, tokens: torch.Tensor, depth: int, *, grow: bool
) -> tuple[torch.Tensor, State]:
    """Put each of c ``tokens`` ``(p, c)`` behind each of p prefixes of `depth` tokens.

    Returns the logits ``(p * c, vocabulary)`` of the next token, the children of one prefix side by side, and the
    children's state, which is empty unless they are to `grow`.
    """
    children = tokens.shape[1]
    # a child sees its ancestors and itself
    visible = torch.cat([torch.ones(children, depth), torch.eye(children)], dim=1) > 0
    mask = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)
    logits, cache = model.read(
        tokens,
        past_key_values=DynamicCache(state),
        attention_mask=mask.expand(len(tokens), 1, -1, -1),
        position_ids=torch.full(tokens.shape, depth),
        use_cache=True,
    )
    grown = []
    for layer in cache.layers if grow else []:
        pair = []
        for held in (layer.keys, layer.values):  # (p, heads, depth + c, size)
            ancestors = held[:, None, :, :depth].expand(-1, children, -1, -1, -1)
            own = held[:, :, depth:].transpose(1, 2)[:, :, :, None]
            pair.append(torch.cat([ancestors, own], dim=3).flatten(0, 1))
        grown.append((pair[0], pair[1]))
    return logits.flatten(0, 1), grown
