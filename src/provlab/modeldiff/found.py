"""What a comparison of two models measured, and what follows from it by arithmetic: every sentence is said of this."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from provlab.modeldiff.bootstrap import percentiles
from provlab.modeldiff.comparison import BothDirections, Summary
from provlab.modeldiff.disputed import Example, Output, Weighed
from provlab.modeldiff.excess import Apart
from provlab.modeldiff.gates import TEST_LEVEL, Gate
from provlab.modeldiff.items import Paired
from provlab.modeldiff.representative import LEAST_EFFECTIVE
from provlab.modeldiff.rounding import WAYS, Rounding

TEXT = "text"  # who wrote a line that neither model did


@dataclass(frozen=True, eq=False)
class Found:
    """Two models, each judging what the other finds likely: what was measured, before anything is said of it.

    Attributes
    ----------
    models
        The two models, see `provlab.report.records.describe`: A and B.
    z
        The range of loss that makes an input one of a model's; None where there was no need of one.
    weighed
        A's side and B's: inputs in Z, what each writes, and examples.
    apart
        How far B is from A where both read the same, beside references.
    floor
        Largest difference of two losses (nats per token) that rounding alone makes, measured on these models: of what
        each wrote token by token, read again all at once. A smaller D counts as 0.
    parameters
        As run.
    words
        How Z was chosen, which tokens inputs are made of, and what stands before them.
    text_loss
        Mean loss of the held-out text under A, under B, and B's less A's with its interval; None if no text was read.
    exchange
        The same by replica exchange, or why that gives no number; None if it was not asked for.
    items
        Questions with answers under both; None if none were given.
    text
        The pieces of the text that was read, both laws beside each other; None if none was read.
    roundings
        What rounding the weights makes of either model, beside what is between them.
    gates, level
        What to fail on, and the chance of a wrong failure.
    """

    models: tuple[dict[str, Any], dict[str, Any]]
    z: tuple[float, float] | None
    weighed: tuple[Weighed, Weighed]
    apart: Apart
    floor: float
    parameters: dict[str, Any]
    words: dict[str, str]
    text_loss: Sequence[Any] | None = None
    exchange: Summary | str | None = None
    items: Paired | None = None
    text: Output | None = None
    roundings: tuple[Rounding, ...] = ()
    gates: tuple[Gate, ...] = ()
    level: float = TEST_LEVEL

    @classmethod
    def of_copies(
        cls,
        models: tuple[dict[str, Any], dict[str, Any]],
        z: tuple[float, float] | None,
        parameters: dict[str, Any],
        gates: tuple[Gate, ...],
        level: float,
    ) -> Self:
        """A model and its own copy, byte for byte: they are equal, and nothing need be drawn."""
        sides = Weighed.of_copy("A"), Weighed.of_copy("B")
        words = {"z": "as given" if z else "not taken"}
        return cls(models, z, sides, Apart.of_copies(), 0.0, parameters, words, gates=gates, level=level)

    @property
    def copies(self) -> bool:
        """Whether the two are one model, byte for byte."""
        a, b = self.models
        return bool(a["digest"] == b["digest"])

    @property
    def outputs(self) -> list[Output]:
        """What A writes and what B writes: where the divergence is."""
        return [side.output for side in self.weighed]

    @property
    def examples(self) -> list[tuple[Example, ...]]:
        """Inputs of A and of B in Z, from both ends of D."""
        return [side.examples for side in self.weighed]

    @property
    def written(self) -> int:
        """Sequences that each model wrote: about those asked for, where openings part them."""
        return self.weighed[0].losses.drawn // (2 if self.parameters["mixed"] else 1)

    @property
    def seed(self) -> int:
        """Seed of all draws."""
        return int(self.parameters["seed"])

    @cached_property
    def compared(self) -> BothDirections | None:
        """Both sides; None where a model has too few inputs in Z."""
        a, b = (side.inputs for side in self.weighed)
        return BothDirections(a, b, self.z, joint=self.parameters["mixed"]) if a and b and self.z else None

    @cached_property
    def summary(self) -> Summary | None:
        """The numbers of the comparison."""
        return self.compared.summary(seed=self.seed) if self.compared else None

    @cached_property
    def sides(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Numbers of A's inputs and of B's: estimates as value, low, high of the 95% interval."""
        first, second = (self._side(k) for k in range(2))
        return first, second

    def _side(self, k: int) -> dict[str, Any]:
        inputs, output = self.weighed[k].inputs, self.weighed[k].output
        side = {
            "model": self.models[k]["name"],
            "text_loss": self.text_loss[k] if self.text_loss else None,
            "written": self.written,
            "worth": output.worth,  # equally weighted draws behind them
            **{name: getattr(output, name) for name in ("divergence", "less_likely", "if_normal", "half", "by_z")},
            "in_z": len(inputs.difference) if inputs else 0,
            "effective": inputs.effective if inputs else 0.0,
        }
        names = ("log10_inputs", "common", "disagreement", "agreement", "quantiles")
        if not side["effective"] >= LEAST_EFFECTIVE:
            return side | dict.fromkeys(names)
        numbers = inputs.log10_numbers(np.random.default_rng(self.seed))
        values = (
            [float(numbers[0]), *map(float, percentiles(numbers[1:], inputs.n_chains))],
            list(inputs.share(inputs.common, seed=self.seed)),
            list(inputs.share(inputs.disagreement, seed=self.seed)),
            list(inputs.share(~inputs.disagreement & (inputs.difference != 0), seed=self.seed)),
            [float(value) for value in inputs.quantile([0.05, 0.5, 0.95])],
        )
        return side | dict(zip(names, values, strict=True))

    @property
    def carried(self) -> bool:
        """Whether the draws of both models in Z are worth enough for a number."""
        return self.compared is not None and all(side["effective"] >= LEAST_EFFECTIVE for side in self.sides)

    @property
    def equal(self) -> bool:
        """Whether no draw tells the two models apart beyond rounding."""
        return all(output.half is None for output in self.outputs)

    @cached_property
    def rounding(self) -> Rounding | None:
        """The finest way of rounding that makes as much of a model as there is between A and B, wherever both read."""
        for way in WAYS:
            found = [one for one in self.roundings if one.way == way]
            if found and all(one.explains for one in found):
                return max(found, key=lambda one: one.excess)
        return None

    @cached_property
    def lead(self) -> tuple[str, Output]:
        """The model whose lines rank first, and what it writes."""
        return max(
            zip("AB", self.outputs, strict=True), key=lambda of: max((li.nats for li in of[1].lines), default=0.0)
        )

    @property
    def by_side(self) -> dict[str, Output]:
        """What A writes and what B writes, by the model."""
        return dict(zip("AB", self.outputs, strict=True))

    @property
    def by_source(self) -> dict[str, Output]:
        """The same, and the pieces of a text that was read."""
        return self.by_side | ({TEXT: self.text} if self.text else {})
