"""Arithmetic in float64 for models that cast themselves down.

transformers' norms, rotary positions and softmaxes convert to float32 for the benefit of half-precision models, and
do so in a float64 model as well: its outputs then carry errors of 3e-7, far above the 1e-9 that tells an exact
transformation from an approximate one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Float64(TorchFunctionMode):
    """Context in which every cast to float32 becomes a cast to float64.

    >>> with Float64():
    ...     torch.ones(1, dtype=torch.float64).to(torch.float32).dtype
    torch.float64
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `func` with float64 wherever float32 is asked for."""
        if func is torch.Tensor.float:
            return args[0].double()
        widened = [torch.float64 if value is torch.float32 else value for value in args]
        options = {key: torch.float64 if value is torch.float32 else value for key, value in (kwargs or {}).items()}
        return func(*widened, **options)
