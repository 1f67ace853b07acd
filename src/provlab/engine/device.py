"""The product of a matching on the device on which models run: what takes a core 10 s takes a GPU 0.02 s.

Everything else of a matching stays on the CPU, and so does its proof: see `provlab.inference.matching.multiplied_by`.
`provlab.arrays` says which other work is done on the device, and how.
"""

from threading import Lock

import numpy as np
from numpy.typing import NDArray

from provlab import machine
from provlab.arrays import coarse
from provlab.inference.matching.cosine import SUMMED, Product, blocks, error_bound

PROBED = 4  # rows of a product that the CPU computes again
_one_at_a_time = Lock()  # so that a device holds one similarity, however many threads assign

Matrix = NDArray[np.float32]


def product_on(device: str) -> Product | None:
    """Return the product of unit rows on a device, as torch names it; None on the CPU, where numpy's is as good."""
    return None if device == "cpu" else _Multiply(device)


class _Multiply:
    """Multiply ``(h1, d)`` with ``(h2, d)`` on a device, to ``(h1, h2)`` in memory that it reaches at full speed."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __call__(self, left: Matrix, right: Matrix) -> Matrix:
        """Raise InputError if the device rounds more than float32 does (TF32): the matching would not be exact."""
        with _one_at_a_time:
            result = self._product(left, right)
        probed = np.linspace(0, len(left) - 1, min(PROBED, len(left))).astype(np.int64)
        # (probed, d) @ (d, h2)
        worst = float(np.abs(left[probed].astype(np.float64) @ right.T.astype(np.float64) - result[probed]).max())
        if not worst <= error_bound(left.shape[1]):  # NaN too
            raise coarse(self.device)
        return result

    def _product(self, left: Matrix, right: Matrix) -> Matrix:
        import torch

        with machine.using_device(self.device):
            a, b = (torch.from_numpy(np.ascontiguousarray(rows)).to(self.device) for rows in (left, right))
            first, *others = blocks(a.shape[1], SUMMED)
            there = a[:, first] @ b[:, first].T  # (h1, columns) @ (columns, h2)
            for columns in others:  # as `provlab.inference.matching.cosine.multiplied`
                there.addmm_(a[:, columns], b[:, columns].T)
            here = torch.empty(there.shape, dtype=torch.float32, pin_memory=there.is_cuda)
            here.copy_(there)
        result: Matrix = here.numpy()
        return result
