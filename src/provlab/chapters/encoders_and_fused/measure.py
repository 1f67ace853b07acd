"""Where an architecture keeps the roles of an MLP, and what a wrong split of a fused tensor would do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab.inference import pvalues
from provlab.inference.matching import match_shuffled, tie_seed
from provlab.models import anatomy
from provlab.models.checkpoint import Checkpoint
from provlab.plots import style
from provlab.publishing.published import published_table

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Roles:
    """Whose place each model takes.

    Attributes
    ----------
    base, child : str
        A model and one that was tuned from it.
    strangers : list of str
        Models of the same shape; they may be related to each other.
    """

    base: str
    child: str
    strangers: list[str]

    @property
    def models(self) -> list[str]:
        """All of them."""
        return [self.base, self.child, *self.strangers]


def where_roles_are(sources: Sequence[str], *, allow_pickle: bool) -> pd.DataFrame:
    """Which tensor holds each role of block 0, its shape in the file, and the shape in which it is read."""
    rows = []
    for source in sources:
        parts = anatomy.of(Checkpoint.open(source, allow_pickle=allow_pickle))
        for role in ("gate", "up", "down", "query", "value"):
            if parts.has(role):
                part = parts.part(role, 0)
                rows.append(
                    {
                        "architecture": parts.architecture,
                        "role": role,
                        "tensor in the file": part.name,
                        "its shape": " x ".join(map(str, part.shape)),
                        "it holds": ", ".join(segment.role for segment in part.segments),
                        "read as": " x ".join(map(str, parts.shape(role, 0))),
                    }
                )
    return pd.DataFrame(rows)


def published_beside_ours(frame: pd.DataFrame, encoders: Roles, fused: Roles) -> pd.DataFrame:
    """Section 4.3's p-values beside ours of the pair in the same place, and the smallest with a stranger.

    A comparison without a result leaves its cells empty.
    """
    published = {line["experiment"]: line["value"] for line in published_table("independence_scalars")}
    lines = []
    for experiment, statistics, roles in (
        ("bert-base-uncased vs tweets-gender-classifier-distilbert", ["phi_h"], encoders),
        ("Phi-3.5-mini-instruct vs NuExtract-v1.5", ["phi_h", "phi_match"], fused),
    ):
        pair = (roles.base, roles.child)
        for name in statistics:
            rows = frame[(frame["statistic"] == name) & frame["error"].isna()]
            own = rows[(rows["a"] == roles.base) & (rows["b"] == roles.child)]
            strangers = rows[rows["a"].isin(pair) & rows["b"].isin(roles.strangers)]
            lines.append(
                {
                    "published pair": experiment,
                    "statistic": style.word(name),
                    "p, published": published[experiment],
                    "our pair": " vs ".join(pair),
                    "log10 p as the paper takes it, ours": f"{own['paper_log10_p'].iloc[0]:,.1f}" if len(own) else "",
                    "log10 p, ours": f"{own['log10_p'].iloc[0]:,.1f}" if len(own) else "",
                    "floor": f"{own['floor'].iloc[0]:,.1f}" if len(own) else "",
                    "smallest log10 p with a stranger": f"{strangers['log10_p'].min():.1f}" if len(strangers) else "",
                }
            )
    return pd.DataFrame(lines)


def fused_rows(source: str, *, allow_pickle: bool) -> Matrix | None:
    """Read the tensor of block 0 that holds gate and up, as the file has it: ``(2 h, d)``; None if no tensor does."""
    checkpoint = Checkpoint.open(source, allow_pickle=allow_pickle)
    parts = anatomy.of(checkpoint)
    if not parts.has("gate") or parts.tensor_name("gate", 0) != parts.tensor_name("up", 0):
        return None
    rows: Matrix = checkpoint.array(parts.tensor_name("gate", 0))
    return rows


def cut_in_halves(rows: Matrix) -> tuple[Matrix, Matrix]:
    """Gate above up, as a Phi-3 keeps them."""
    return rows[: len(rows) // 2], rows[len(rows) // 2 :]


def cut_row_by_row(rows: Matrix) -> tuple[Matrix, Matrix]:
    """Gate and up in turn, as some other formats keep them."""
    return rows[0::2], rows[1::2]


CUTS: dict[str, Callable[[Matrix], tuple[Matrix, Matrix]]] = {
    "gate above up": cut_in_halves,
    "row by row": cut_row_by_row,
}


def cuts(base: Matrix, tuned: Matrix, stranger: Matrix, *, seed: int) -> pd.DataFrame:
    """Cut fused tensors in both ways, and match what is then taken for gates and for ups.

    Parameters
    ----------
    base, tuned, stranger
        ``(2 h, d)``. The tune is also compared after a shuffle of its units, rows k and h + k alike.
    seed
        Of the shuffle, and of the order in which ties are broken.
    """
    order = np.random.default_rng(seed).permutation(len(tuned) // 2)
    shuffled = np.concatenate([half[order] for half in cut_in_halves(tuned)])
    rows = []
    for words, cut in CUTS.items():
        for name, other in (("the tune", tuned), ("the tune, units shuffled", shuffled), ("a stranger", stranger)):
            by_gate, by_up = (
                match_shuffled(a, b, seed=tie_seed(seed, side)).indices
                for side, (a, b) in enumerate(zip(cut(base), cut(other), strict=True))
            )
            rows.append(
                {
                    "cut": words,
                    "against": name,
                    "gates in order, log10 p": pvalues.spearman(by_gate).log10_p,
                    "gates against ups, log10 p": pvalues.spearman(by_gate, by_up).log10_p,
                }
            )
    return pd.DataFrame(rows)
