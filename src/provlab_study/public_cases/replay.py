"""What torch draws from a seed: biases on the processor, and weights that a graphics card drew again.

PLM-CS is built on the processor, where every ``torch.nn.Linear`` draws weight and bias, and moved to a card, where the
training script draws each weight once more (``kaiming_uniform``). A card has no state to be replayed but a counter:
Philox turns (seed, thread, count) into four numbers of 32 bits (Salmon et al., 2011), and torch gives four elements of
a tensor, as far apart as the card has threads at work, to one thread. So the draw of a card needs no card, but its
number of threads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

THREADS_A_BLOCK = 256  # of torch's kernels that draw
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS, _LOW, _32 = 10, np.uint64(0xFFFFFFFF), np.uint64(32)


@dataclass(frozen=True)
class Layer:
    """A linear layer, in the order in which the model makes it.

    Attributes
    ----------
    name
        Before ``.weight`` and ``.bias``.
    inputs, outputs
        Numbers that it reads, and that it gives.
    block
        Whose key bias it has; None for all other layers.
    """

    name: str
    inputs: int
    outputs: int
    block: int | None = None


def philox(counter: int, threads: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Return four numbers of 32 bits for each thread, ``(4, threads)``: Philox4x32 with ten rounds."""
    zero = np.zeros_like(threads)
    words = [zero + np.uint64(counter), zero, threads, zero]
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(_ROUNDS):
        first, second = words[0] * _MULTIPLIERS[0], words[2] * _MULTIPLIERS[1]  # of 64 bits
        words = [
            (second >> _32) ^ words[1] ^ np.uint64(keys[0]),
            second & _LOW,
            (first >> _32) ^ words[3] ^ np.uint64(keys[1]),
            first & _LOW,
        ]
        keys = [(key + step) & 0xFFFFFFFF for key, step in zip(keys, _STEPS, strict=True)]
    return np.stack(words)


def uniform(n: int, seed: int, counter: int, blocks: int) -> tuple[NDArray[np.float32], int]:
    """Draw what ``torch.empty(n, device="cuda").uniform_()`` draws, and return the counter after it.

    Parameters
    ----------
    n
        Elements of the tensor.
    seed
        As ``torch.manual_seed`` takes it.
    counter
        How often each thread was asked since.
    blocks
        The blocks of threads that the card has at work: its multiprocessors times how many blocks each holds.
    """
    threads = THREADS_A_BLOCK * min(blocks, -(-n // THREADS_A_BLOCK))
    rounds = -(-n // (4 * threads))
    index = np.arange(threads, dtype=np.uint64)
    drawn = [philox(counter + k, index, seed).ravel() for k in range(rounds)]  # element i: thread i mod threads
    return (np.concatenate(drawn)[:n].astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32), counter + rounds


def weights(layers: Sequence[Layer], seed: int, blocks: int) -> dict[str, NDArray[np.float32]]:
    """Replay ``kaiming_uniform`` on a card, layer by layer: name -> flat weight, ``(outputs * inputs,)``."""
    counter, result = 0, {}
    for layer in layers:
        drawn, counter = uniform(layer.inputs * layer.outputs, seed, counter, blocks)
        result[layer.name] = (2 * drawn - 1) * np.float32(np.sqrt(6 / layer.inputs))
    return result


_MOST, _COMPARED = 1400, 2000  # blocks of the largest card that is tried, and elements that are compared


def blocks_at_work(first: NDArray[np.floating], seed: int) -> dict[int, float]:
    """Correlate the first weight that a card drew with the draws of cards of every size.

    The second number of the first thread is the element that lies as far from the first as there are threads.

    Returns
    -------
    dict
        Blocks at work -> correlation over `_COMPARED` elements.
    """
    second = philox(0, np.arange(_COMPARED, dtype=np.uint64), seed)[1].astype(np.float64)
    values = np.asarray(first, dtype=np.float64).ravel()
    most = min(_MOST, (values.size - _COMPARED) // THREADS_A_BLOCK)
    starts = {blocks: blocks * THREADS_A_BLOCK for blocks in range(_COMPARED // THREADS_A_BLOCK + 1, most + 1)}
    return {blocks: float(np.corrcoef(second, values[at : at + _COMPARED])[0, 1]) for blocks, at in starts.items()}


def paths(drawn: Mapping[str, NDArray[np.floating]], model: Mapping[str, NDArray[np.floating]]) -> NDArray[np.float64]:
    """Return how far training moved each weight from its draw, all layers end to end."""
    return np.concatenate([model[f"{name}.weight"].ravel() - draw.astype(np.float64) for name, draw in drawn.items()])
