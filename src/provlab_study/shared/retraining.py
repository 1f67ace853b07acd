"""A model whose MLPs were retrained from scratch, one at a time, compared with another (Section 4.2.1, Table 8).

One block at a time means that all before it is as it was: what enters the block is what enters it in the model before
retraining, and the retrained model need never be assembled.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import InputError
from provlab.running.predictions import next_token_log_probs
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.phi_match import GateAndUp, PhiMatch
from provlab.statistics.text import cut, encode
from provlab.statistics.two_views import Views
from provlab_study.shared.students import Settings, Student, distill
from provlab_study.shared.teachers import BlockMlp, block_mlp, in_place, mlp_inputs


@dataclass(frozen=True)
class Retrained:
    """A model of which single blocks are retrained. Make one with `Retrained.open`.

    Attributes
    ----------
    model
        Before retraining.
    tokens
        The text that it reads, ``(n_sequences, sequence_length)``.
    inputs
        What enters the MLP of each block on that text, ``(positions, width)``.
    options
        Where and in which precision the model runs, and on what.
    """

    model: Model
    tokens: NDArray[np.int64] = field(repr=False)
    inputs: list[NDArray[np.float32]] = field(repr=False)
    options: Options = field(repr=False)

    @classmethod
    def open(cls, source: str, options: Options, *, allow_pickle: bool = False) -> "Retrained":
        """Open a model and run it once over the text of the options."""
        model = Model.open(source, allow_pickle=allow_pickle)
        tokens = encode(model.checkpoint, options)
        inputs = mlp_inputs(
            model.checkpoint,
            tokens,
            device=options.device,
            dtype=options.torch_dtype,
            positions=options.kept_positions(),
        )
        return cls(model, tokens, inputs, options)

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Where in the text its tokens stand, as phi_MATCH compares them: ``(n_sequences, sequence_length)``."""
        return cut(self.model.checkpoint, self.options)[1]

    def mlp(self, block: int) -> BlockMlp:
        """Return the MLP that is imitated."""
        return block_mlp(self.model.checkpoint, block)

    def student(self, block: int, settings: Settings, *, device: str = "cpu") -> Student:
        """Retrain one block from scratch, or read the student kept from before."""
        return distill(self.mlp(block), settings, sample=self.inputs[block], device=device)

    def views(self, block: int, student: Student) -> Views:
        """Gate and up activations of a retrained block on the text, as phi_MATCH compares them."""
        return as_views(student.activations(self.inputs[block]), self.places)

    def loss(self, block: int | None = None, student: Callable[[Any], Any] | None = None) -> float:
        """Return the model's mean loss on the text (nats a token), with a student in the place of one block's MLP.

        Parameters
        ----------
        block, student
            Which block, and what takes its place, a student or any other map of rows to rows; neither: the model as
            it is.

        Raises
        ------
        InputError
            One of the two is missing.
        """
        if (block is None) != (student is None):
            raise InputError("block and student belong together: give both or neither")
        network = self.model.checkpoint.load_model(
            dtype=self.options.torch_dtype, device=self.options.device, by_blocks=True
        )
        with ExitStack() as replaced:
            if block is not None and student is not None:
                replaced.enter_context(in_place(network, self.model.checkpoint, block, student))
            batches = list(next_token_log_probs(network, self.tokens))
        log_probs = np.concatenate(batches).reshape(*self.tokens.shape, -1)[:, :-1]
        return float(-np.take_along_axis(log_probs, self.tokens[:, 1:, None], axis=2).mean(dtype=np.float64))


def as_views(activations: tuple[NDArray[np.float32], NDArray[np.float32]], tokens: NDArray[np.int64]) -> Views:
    """Gate and up activations, each ``(units, positions)``, as phi_MATCH compares them."""
    gate, up = activations
    return GateAndUp([gate], [up], tokens).block(0)


def reference(source: str, options: Options, *, allow_pickle: bool = False) -> GateAndUp:
    """Run the model that retrained blocks are compared with over the text of the options."""
    return PhiMatch().prepare(Model.open(source, allow_pickle=allow_pickle), options)
