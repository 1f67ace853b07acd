"""phi_H: do hidden units fire alike, in the order in which they stand? (Section 4.1)

As phi_U, with the hidden activations of each MLP (the input of its down projection) in place of weights. The test is
valid for any input; the paper, and this file, draw tokens uniformly at random from the vocabulary. Where two tokenizers
number the same strings differently, the strings that both have are drawn, and each model is given its own ids of them.
Around them stands what the model's tokenizer writes around a text; no tokenizer is needed for that (`Options.around`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NotComparableError
from provlab.inference.matching import UnitRows, tie_seed
from provlab.reading.canonical import applied
from provlab.running.activations import random_tokens
from provlab.statistics.alive import living_rows
from provlab.statistics.base import BY_THEOREM, Array, Features, Statistic
from provlab.statistics.model import Model
from provlab.statistics.options import PASS, Options
from provlab.statistics.order import KEYS, MLP, OrderedRows, along_direction, keys_of_block
from provlab.statistics.phi_u import PERMUTATION_ASSUMPTIONS, correlation_with_identity
from provlab.statistics.results import BlockResult
from provlab.statistics.text import one_pass, strings


@dataclass(frozen=True)
class HiddenActivations(Features):
    """One ``(h, tokens)`` float32 array per block, from one pass over the inputs; in temporary files where large."""

    arrays: list[Array]
    units: list[NDArray[np.float64]]  # as `provlab.reading.canonical.merged` says
    model: Model  # whose weights say whether units are sorted: read block by block, when other statistics read them too

    def block(self, block: int | None) -> OrderedRows:
        """Activations of one block, normalised once for all its pairs."""
        assert block is not None
        activations = applied(self.units[block], self.arrays[block], "up")
        (rows,) = living_rows(activations, name="the matrix of activations")
        read = {role: self.model.anatomy.read(self.model.checkpoint, role, block) for role in MLP if self._has(role)}
        weights = {role: tensor.T if role == "down" else tensor for role, tensor in read.items()}  # (h, d) each
        by_weights = keys_of_block(self.model.checkpoint, block, weights)
        keys = {name: numbers[rows.places] for name, numbers in by_weights.items()}
        keys["activity times the length of the down columns"] = (
            rows.lengths / rows.scales * keys[KEYS[2].format(MLP["down"])]
        )
        along = along_direction(weights["up"])[rows.places]
        return OrderedRows.of(rows, called="activations", keys=keys, direction=along)

    def _has(self, role: str) -> bool:
        return self.model.anatomy.has(role)


def _inputs(model: Model, options: Options) -> NDArray[np.int64]:
    """Draw random tokens, ``(n_sequences, sequence_length)``, as this model numbers them."""
    among = options.vocabulary
    size = len(among) if among is not None else options.vocab_size or model.anatomy.vocab_size
    if size < 1:
        raise NotComparableError("phi_h draws tokens that all tokenizers have, and these share none")
    drawn = random_tokens(size, options.n_sequences, options.sequence_length, seed=options.seed)
    if among is None:
        return drawn
    if (ids := strings(model)) is None:
        raise NotComparableError(
            f"{model.name} has no tokenizer, and the others of this study number their tokens differently; compare it "
            "with one model at a time"
        )
    return np.array([ids[token] for token in among])[drawn]


class PhiH(Statistic):
    """phi_H over all blocks, aggregated by Fisher's method (Sections 3.2 and 4.1)."""

    name = "phi_h"
    reads = "activations on random tokens"
    assumptions = (
        f"{PERMUTATION_ASSUMPTIONS}; it sees what two models share if both read one text: random tokens are the same "
        "strings to both tokenizers, and the same ids where a model has none"
    )
    # 1, 2 broke ties alike; 3 had the two-sided t tail; 4 units that do nothing; 5 opposite gates; 6 any order; 7 gates
    # by their rows alone
    version = 8
    settings = ("seed", "vocab_size", "vocabulary_sha256", "around", *PASS, "sampled_tokens")
    roles = tuple(MLP)  # by which it looks whether units are sorted
    recorded = HiddenActivations
    warrant = BY_THEOREM

    def prepare(self, model: Model, options: Options) -> HiddenActivations:
        """Run the model once over random tokens."""
        kept, _ = one_pass(self, model, options, ("hidden", "units"), _inputs(model, options))
        return HiddenActivations(kept["hidden"], kept["units"], model)

    def compare_block(self, a: UnitRows, b: UnitRows, block: int | None, options: Options) -> BlockResult:
        """Match the units of two blocks by their activations."""
        seed = tie_seed(options.seed, self.name, block)
        return correlation_with_identity(a, b, block, seed)
