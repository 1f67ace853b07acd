"""A quick look: a few whole blocks of either model, and little text. What is read is compared as always, and exactly.

Which blocks they are follows from all models of the study: the maker of one does not know where it will be looked at,
as long as one of the others is not known either. Who knows both files may write his own anew until the blocks fall as
he likes; a seed that he does not know (``--seed``) ends that.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from provlab.errors import ParameterError
from provlab.inference.matching import tie_seed
from provlab.statistics.model import Model

BLOCKS = 4  # that are read
#: options of a quick look, unless they are given: 256 tokens, in sequences of the usual length
SETTINGS: dict[str, Any] = {"n_sequences": 4}


def blocks(models: Iterable[Model], *, seed: int) -> list[int] | None:
    """Draw the blocks that a quick look reads, ascending; None: all, as there are no more.

    Blocks of models of unequal depth meet all (`provlab.engine.all_blocks`), so that none is drawn.
    """
    models = list(models)
    depths = {model.anatomy.n_blocks for model in models}
    if len(depths) != 1 or (depth := depths.pop()) <= BLOCKS:
        return None
    digests = sorted(model.checkpoint.digest for model in models)  # in whichever order the models are given
    rng = np.random.default_rng(tie_seed(seed, "quick", *digests))
    return sorted(rng.choice(depth, BLOCKS, replace=False).tolist())


def check(quick: bool, asked: Sequence[int] | None) -> None:
    """Raise ParameterError where a quick look is to read blocks that were asked for."""
    if quick and asked is not None:
        raise ParameterError("a quick look draws its blocks itself; leave out blocks, or quick")
