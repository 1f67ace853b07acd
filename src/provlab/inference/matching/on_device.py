"""The product and the search for candidates on a GPU; everything that decides is done, and proved, on the CPU.

The product is in true float32 (no TF32), so that the error bound of the polish holds whatever the device.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from provlab import machine
from provlab.inference.matching.assignment import Candidates, room
from provlab.inference.matching.cosine import UnitRows, blocks

ROWS = 4096  # of one block of the product


def cosines_and_candidates(
    first: UnitRows, second: UnitRows, device: str, *, order: NDArray[np.integer] | None = None, unsigned: bool = False
) -> tuple[NDArray[np.float32], Candidates]:
    """Cosines, shape (n, m), and the candidates of each row, both as on the CPU.

    Raises
    ------
    InputError
        If torch knows no such device, or has none.
    """
    with machine.using_device(device):
        right = torch.from_numpy(second.unit).to(device)
    if order is not None:
        right = right[torch.from_numpy(order).to(device)]
    n, m = len(first), len(second)
    similarity = np.empty((n, m), np.float32)
    candidates = room(n, m)
    k = candidates.columns.shape[1]
    exact = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        for rows in blocks(n, ROWS):
            block = torch.from_numpy(first.unit[rows]).to(device) @ right.T
            if unsigned:
                block.abs_()
            values, columns = block.topk(k, dim=1)
            candidates.columns[rows], candidates.values[rows] = columns.cpu().numpy(), values.cpu().numpy()
            similarity[rows] = block.cpu().numpy()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = exact
    candidates.bounds[:] = candidates.values.min(axis=1) if m > k else -np.inf
    return similarity, candidates
