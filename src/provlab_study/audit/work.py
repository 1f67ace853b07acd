"""An investigator's order of work, and what each step takes at full size, from the rates of this machine."""

from dataclasses import dataclass

from provlab.planning.rates import Rates
from provlab.planning.sketch import shapes_of
from provlab.planning.study import estimate
from provlab.statistics.options import Options


@dataclass(frozen=True)
class CostedStep:
    """One thing to run.

    Attributes
    ----------
    what, command
        In words, and as it is typed.
    statistics
        What it computes.
    blocks
        Which it reads; None for all.
    crossed
        Every block of one model is compared with every block of the other.
    """

    what: str
    command: str
    statistics: tuple[str, ...]
    blocks: tuple[int, ...] | None = None
    crossed: bool = False


_BOTH = ("phi_match", "phi_match_unsigned")
ORDER = (
    CostedStep("two blocks, by their weights", "--statistic phi_u --blocks 0,1", ("phi_u",), (0, 1)),
    CostedStep("all blocks, by their weights", "--statistic phi_u", ("phi_u",)),
    CostedStep("whatever the order of units", "--statistic phi_match,phi_match_unsigned", _BOTH),
    CostedStep("activations on random tokens", "--statistic phi_h", ("phi_h",)),
    CostedStep("any block against any", "--all-blocks --statistic phi_match,phi_match_unsigned", _BOTH, None, True),
)


def minutes(step: CostedStep, shape: str, rates: Rates) -> tuple[float, float, float]:
    """CPU minutes of a step on two models of a known shape, at the least and at the most, and the GB that it reads."""
    models = shapes_of([f"shape:{shape}*2"]).models
    law = estimate(models, step.statistics, Options(), rates, blocks=step.blocks)
    # models are read and run once, however often their blocks are compared
    times = next(iter(models.values())).anatomy.n_blocks if step.crossed else 1
    once = law.once + law.others
    low, high = ((once + times * (law.products + assignments)) / 60 for assignments in law.assignments)
    return low, high, law.plan.bytes_to_read / 1e9
