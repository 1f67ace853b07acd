"""Runs of one recipe at several budgets: which are compared, whether p-values are uniform, what units they share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab import zoo
from provlab.errors import ParameterError
from provlab.inference import pvalues
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint
from provlab.report.lineage import short_name
from provlab.running.activations import mlp_activations, random_tokens

Pair = tuple[str, str]
Matrix = NDArray[np.floating]
OWN_SEEDS, SAME_START = "own seeds", "same initialisation"  # what the two kinds of pairs share
N_REDRAWN = 20_000  # random orders of the second model's units


@dataclass(frozen=True)
class TokenBudget:
    """Pairs of runs that have seen equally many tokens.

    Attributes
    ----------
    tokens : int
        Seen by each run.
    independent : list of pairs
        Runs with their own seeds; no run is in two pairs.
    same_start : list of pairs
        A run and its rerun, from one initialisation.
    """

    tokens: int
    independent: list[Pair]
    same_start: list[Pair]


def budgets(
    runs: Sequence[str], reruns: Sequence[str], n_budgets: int, n_pairs: int, tokens: Sequence[int] = ()
) -> list[TokenBudget]:
    """Name the pairs at each budget: run 1 and run n + 1, run 2 and run n + 2, ...; run 1 and rerun 1, ...

    Parameters
    ----------
    runs, reruns
        One name of zoo models each, with ``{budget}`` and ``{n}`` in it; or 2 n models and n models of each budget, one
        budget behind the other.
    n_budgets, n_pairs
        Budgets, and n, of such names.
    tokens
        What models of the other kind have seen: a number for each budget. Without any they are of one budget.

    Raises
    ------
    ParameterError
        If the two lists do not answer each other.
    """
    if len(runs) == len(reruns) == 1 and "{" in runs[0]:
        (run,), (rerun,) = runs, reruns
        recipes = zoo.families(run.partition("@")[2] or zoo.default_edition())
        stages = []
        for budget in range(1, n_budgets + 1):
            names = [run.format(budget=budget, n=n + 1) for n in range(2 * n_pairs)]
            again = [rerun.format(budget=budget, n=n + 1) for n in range(n_pairs)]
            stages.append(_budget(zoo.tokens(short_name(names[0]), recipes), names, again))
        return stages
    seen = list(tokens) or [0]
    n = len(reruns) // len(seen)
    if not n or len(runs) != 2 * len(reruns) or len(reruns) != n * len(seen):
        at = f" at each of {len(seen)} budgets" if len(seen) > 1 else ""
        raise ParameterError(
            f"it takes two runs with own seeds for each rerun{at}: runs has {len(runs)} models, reruns {len(reruns)}"
        )
    return [
        _budget(budget, list(runs[2 * n * k : 2 * n * (k + 1)]), list(reruns[n * k : n * (k + 1)]))
        for k, budget in enumerate(seen)
    ]


def _budget(tokens: int, names: list[str], again: list[str]) -> TokenBudget:
    first, second = names[: len(again)], names[len(again) :]
    return TokenBudget(tokens, list(zip(first, second, strict=True)), list(zip(first, again, strict=True)))


def redrawn(gate: NDArray[np.intp], up: NDArray[np.intp], *, rng: np.random.Generator) -> NDArray[np.float64]:
    """Spearman's correlation of two matchings when the units of the second model are put in random orders.

    Parameters
    ----------
    gate, up
        ``(h,)``, the partner of each unit by either matching; among the units of a larger side where some of this side
        were left out, and then ranked.

    Returns
    -------
    array
        ``(N_REDRAWN,)``.
    """
    h, n = len(gate), 1 + max(gate.max(), up.max())
    distances = np.empty(N_REDRAWN)
    for draw in range(N_REDRAWN):
        order = rng.permutation(n)
        distances[draw] = np.square(np.subtract(*(np.argsort(np.argsort(order[units])) for units in (gate, up)))).sum()
    return 1 - 6 * distances / (h * (h**2 - 1))


def compared_with_redrawn(blocks: Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]], *, seed: int) -> pd.DataFrame:
    """Correlation of gate and up matching in each block, its p-value, and the same from its own redrawn null."""
    lines = []
    for block, (gate, up) in enumerate(blocks):
        spearman = pvalues.spearman(gate, up)
        null = redrawn(gate, up, rng=np.random.default_rng(seed))
        lines.append(
            {
                "block": block,
                "units that agree": int((gate == up).sum()),
                "correlation": spearman.rho,
                "log10 p": spearman.log10_p,
                "mean when redrawn": null.mean(),
                "sd when redrawn": null.std(),
                "p when redrawn": (1 + int((null >= spearman.rho).sum())) / (1 + len(null)),
                "p of one so low": (1 + int((null <= spearman.rho).sum())) / (1 + len(null)),
            }
        )
    return pd.DataFrame(lines)


def views(run: str, rerun: str, *, seed: int, device: str = "cpu") -> Iterator[tuple[str, Matrix, Matrix]]:
    """What the units of two runs can be recognised by, block by block: the view, and ``(h, n)`` of either model.

    Activations are those on 32 sequences of 32 random tokens.
    """
    (gates, ups, active), (other_gates, other_ups, other_active) = (
        _units(source, seed=seed, device=device) for source in (run, rerun)
    )
    for block, (gate, up) in enumerate(zip(gates, ups, strict=True)):
        activations = active["gate"][block]
        # gate activations are G x, and G (h, d) has more rows than columns: its pseudoinverse gives x back
        entered = np.linalg.pinv(gate) @ activations
        yield "up projection", up, other_ups[block]
        yield "gate activations", activations, other_active["gate"][block]
        yield "gate activations on one input", activations, other_gates[block] @ entered
        yield "hidden activations", active["hidden"][block], other_active["hidden"][block]


def _units(source: str, *, seed: int, device: str) -> tuple[list[Matrix], list[Matrix], dict[str, list[Matrix]]]:
    """Gate and up projections ``(h, d)`` of each block, and gate and hidden activations ``(h, tokens)``."""
    checkpoint = Checkpoint.open(source)
    parts = anatomy.of(checkpoint)
    tokens = random_tokens(parts.vocab_size, 32, 32, seed=seed)
    active = mlp_activations(checkpoint, tokens, kinds=("hidden", "gate"), device=device)
    gates, ups = ([parts.read(checkpoint, role, block) for block in range(parts.n_blocks)] for role in ("gate", "up"))
    return gates, ups, {kind: list(blocks) for kind, blocks in active.items()}
