"""An investigator's order of work, and what each step takes at full size, by a trial on this machine."""

from dataclasses import dataclass

from provlab.planning.sketch import shapes_of
from provlab.planning.study import plan, summed
from provlab.planning.trial import trial
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


def costs(shape: str) -> list[tuple[float, float]]:
    """CPU minutes of each step on two models of a known shape, and the GB that it reads; from one trial of all."""
    models, options = shapes_of([f"shape:{shape}*2"]).models, Options()
    first, second = models
    names = dict.fromkeys(name for step in ORDER for name in step.statistics)
    tried = trial(models, {name: [(first, second)] for name in names}, {}, options)
    found = []
    for step in ORDER:
        work = plan(models, step.statistics, options, blocks=step.blocks, all_blocks=step.crossed)
        found.append((summed(work, tried).cpu_seconds / 60, work.bytes_to_read / 1e9))
    return found
