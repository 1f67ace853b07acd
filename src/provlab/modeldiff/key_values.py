"""Keys and values that grow by a token in place, while a model writes.

transformers' `DynamicLayer` copies all that it holds for every token: with 512 sequences of 100 tokens that was half of
the time of writing. Here the room for all tokens is made once. The network reads the same numbers.
"""

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer


class InPlace(DynamicLayer):
    """Keys and values of one block, ``(n, heads, tokens, size)`` views of a room for more tokens.

    Parameters
    ----------
    held
        What the block holds already.
    more
        Tokens that are still to come; where more do, all are copied to a larger room.
    """

    def __init__(self, held: DynamicLayer, more: int) -> None:
        super().__init__()
        assert held.keys is not None
        assert held.values is not None
        self.lazy_initialization(held.keys, held.values)
        self._take(held.keys, held.values, more)

    def _take(self, keys: torch.Tensor, values: torch.Tensor, more: int) -> None:
        """Copy keys and values to where `more` tokens can follow."""
        self._rooms: list[torch.Tensor] = []
        for held in (keys, values):
            n, heads, tokens, size = held.shape
            room = held.new_empty(n, heads, tokens + more, size)
            room[:, :, :tokens] = held
            self._rooms.append(room)
        self.keys, self.values = (room[:, :, : keys.shape[2]] for room in self._rooms)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new tokens behind the others; return all keys and all values so far."""
        assert self.keys is not None
        assert self.values is not None
        begin = self.keys.shape[2]
        end = begin + key_states.shape[2]
        # where there is no room torch would write nothing, without a word; where others chose or repeated sequences,
        # what the cache holds lies elsewhere
        if end > self._rooms[0].shape[2] or self.keys.data_ptr() != self._rooms[0].data_ptr():
            self._take(self.keys, self.values, more=end)
        keys, values = self._rooms
        keys[:, :, begin:end], values[:, :, begin:end] = key_states, value_states
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        return self.keys, self.values


def with_room(past: Any, more: int) -> Any:
    """Make room for `more` tokens in a network's cache, where it holds keys and values one block a layer.

    Others, such as those of a sliding window or of a state space model, stay as they are; so does a cache of a decoder
    that may read an encoder, which has no list of blocks.
    """
    if isinstance(past, Cache) and hasattr(past, "layers"):
        past.layers = [
            InPlace(layer, more) if type(layer) is DynamicLayer and layer.get_seq_length() else layer
            for layer in past.layers
        ]
    return past
