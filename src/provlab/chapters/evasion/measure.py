"""What the page on evasion measures: what disguises preserve, hide from whom, and what undoing them leaves."""

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm

from provlab.chapters.evasion.median_max import MedianMax
from provlab.chapters.evasion.procrustes import Undone, undo, undo_matched
from provlab.chapters.shared.groups import Groups, chain_of_trees
from provlab.chapters.shared.huref import HUREF
from provlab.engine.lineage import Lineage
from provlab.errors import NoSuchSymmetryError
from provlab.inference import pvalues
from provlab.models import examples
from provlab.models.activations import mlp_activations
from provlab.models.checkpoint import Checkpoint
from provlab.models.disguise import ALL, disguise
from provlab.plots import style
from provlab.plots.numbers import format_log10_p
from provlab.publishing.published import published_table, scalar
from provlab.report import StudyReport
from provlab.statistics.base import Array, Model, Options
from provlab.statistics.phi_views import through_norm
from provlab.statistics.text import encode

Pair = tuple[str, str]

TESTS = ("phi_u", "phi_h", "phi_l2", "phi_match", "phi_match_unsigned")
SCORES = (*HUREF, MedianMax.name)
INVARIANTS = {"huref_a": "M_a", "huref_b": "M_b", "huref_c": "M_c"}  # HuRef's names
_LEVEL = -2.0  # log10 of the level at which a pair is found


# What disguises preserve ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PreservedRecord:
    """One transformation of one tiny model.

    Attributes
    ----------
    difference
        Largest change of a logit; None where the transformation does not exist.
    refused
        Why it does not.
    moved
        Length of the change of the weights, as a share of their length: what leaves the outputs because it changes
        nothing has not been shown to leave them.
    """

    architecture: str
    model: str
    kind: str
    difference: float | None
    refused: str | None
    moved: float | None = None


def preserved(seed: int) -> list[PreservedRecord]:
    """Apply each of T1 to T6 to a tiny random model of each architecture, and compare logits in float64."""
    records = []
    with tempfile.TemporaryDirectory() as scratch:
        for label in tqdm([label for label in examples.TINY if not label.endswith("_base")], desc="architectures"):
            folder = Path(scratch) / label
            examples.build(label, seed=seed).save_pretrained(folder)
            tiny = Checkpoint.open(str(folder))
            for kind in ALL:
                difference, refused, change = None, None, None
                try:
                    difference = disguise(tiny, folder / kind, seed=seed, kinds=[kind]).difference
                    change = _moved(tiny, Checkpoint.open(str(folder / kind)))
                except NoSuchSymmetryError as error:
                    refused = str(error).rpartition(": ")[2]
                records.append(PreservedRecord(tiny.architecture, label, kind, difference, refused, change))
    return records


def _moved(before: Checkpoint, after: Checkpoint) -> float:
    """Length of the change of all weights, as a share of their length."""
    names = sorted(set(before.tensor_names) & set(after.tensor_names))
    pairs = [(before.array(name).astype(np.float64), after.array(name)) for name in names]
    change = math.fsum(float(((x - y) ** 2).sum()) for x, y in pairs)
    return math.sqrt(change / math.fsum(float((x**2).sum()) for x, _ in pairs))


def preserved_table(records: Sequence[PreservedRecord]) -> pd.DataFrame:
    """Return the largest change of a logit, models by transformations; a dash where there is none."""
    frame = pd.DataFrame(records)
    largest = frame.pivot_table(index="model", columns="kind", values="difference", sort=False, dropna=False)
    return largest.map(lambda value: "–" if np.isnan(value) else f"{value:.0e}".replace("-", "\N{NON-BREAKING HYPHEN}"))


def refusal_table(records: Sequence[PreservedRecord]) -> pd.DataFrame:
    """Return each reason why a transformation does not exist, with the architectures that give it."""
    reasons: dict[str, dict[str, None]] = {}
    for one in records:
        if one.refused:
            reasons.setdefault(one.refused, {})[one.architecture] = None
    return pd.DataFrame({"architectures": [", ".join(names) for names in reasons.values()], "why not": list(reasons)})


# Pairs with one model in disguise ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Disguised:
    """All pairs of some models, the second of each in disguise.

    Attributes
    ----------
    sources
        The models as they are.
    hidden
        Source of each but the first in disguise.
    pairs
        Each model with each later one in disguise.
    """

    sources: list[str]
    hidden: Mapping[str, str]
    pairs: list[Pair]

    @classmethod
    def of(cls, sources: Sequence[str], kinds: str = "") -> "Disguised":
        """Disguise by all of T1 to T6, or by `kinds`."""
        hidden = {source: f"disguised:{kinds}:{source}" if kinds else f"disguised:{source}" for source in sources[1:]}
        return cls(list(sources), hidden, [(a, hidden[b]) for a, b in combinations(sources, 2)])

    def one_each(self) -> list[Pair]:
        """One pair for each disguised model: what hides a model is drawn once, so its other pairs repeat that draw."""
        return [(self.sources[max(0, j - 1)], self.hidden[b]) for j, b in enumerate(self.sources) if j]

    def chain(self, lineage: Lineage) -> list[Pair]:
        """One model of each tree with that of the next, in disguise."""
        return [(a, self.hidden[b]) for a, b in chain_of_trees(lineage)]

    def related(self, lineage: Lineage) -> list[Pair]:
        """Pairs whose models are known to have a common origin."""
        return [(a, self.hidden[b]) for a, b in combinations(self.sources, 2) if lineage.dependent(a, b)]


def block_log10_p(study: StudyReport, statistic: str, pairs: Iterable[Pair]) -> list[float]:
    """Return log10 p of all blocks of these pairs, whichever model of a pair comes first."""
    chosen = {frozenset(pair) for pair in pairs}
    return [
        block.log10_p
        for record in study.records
        if record.statistic == statistic and record.outcome and frozenset((record.a, record.b)) in chosen
        for block in record.outcome.blocks
        if block.log10_p is not None
    ]


def pair_findings(frame: pd.DataFrame, statistics: Sequence[str]) -> str:
    """How many dependent and independent pairs each statistic calls related, in Markdown; empty if none is known."""
    said = []
    for statistic in statistics:
        rows = frame[frame["statistic"] == statistic]
        counts = []
        for dependent, word in ((True, "dependent"), (False, "independent")):
            group = rows[rows["dependent"].eq(dependent)]
            if len(group):
                counts.append(f"{int((group['holm_log10_p'] <= _LEVEL).sum())} of {len(group)} {word} pairs")
        if counts:
            said.append(f"{style.word(statistic)} calls {' and '.join(counts)} related")
    return (
        f"With Holm's correction over all tests of the study, family-wise error at most 0.01, **{'; '.join(said)}**."
        if said
        else ""
    )


def surviving(
    frame: pd.DataFrame, columns: Mapping[str, str], stranger: str
) -> tuple[list[list[str]], list[list[bool]]]:
    """Return what `TESTS` and `SCORES` give for a descendant in each disguise, and whether it is found.

    Parameters
    ----------
    frame
        The study of a base with each model of `columns` and with the stranger.
    columns
        Source of the descendant in each disguise.
    stranger
        Source of an unrelated model: a score is found where it is less than half as far from that of a copy.
    """
    rows = frame.set_index(["statistic", "b"])
    texts, found = [], []
    for statistic in (*TESTS, *SCORES):
        tested = statistic in TESTS
        values = np.array([rows.loc[(statistic, b), "log10_p" if tested else "value"] for b in columns.values()])
        texts.append([format_log10_p(value) if tested else f"{value:.2f}" for value in values])
        if tested:  # the permutations of phi_l2 allow no correction
            hits = (values if statistic == "phi_l2" else pvalues.holm(values)) <= _LEVEL
        else:
            copy = 0.0 if statistic == "median_max" else 1.0
            hits = np.abs(values - copy) < abs(rows.loc[(statistic, stranger), "value"] - copy) / 2
        found.append(hits.tolist())
    return texts, found


def negative_table(plain: pd.DataFrame, negative: pd.DataFrame) -> pd.DataFrame:
    """Return how many dependent pairs are found where the constants of T6 are positive, and where they are negative."""
    rows = []
    for sign, frame in (("positive", plain[plain["dependent"].eq(True)]), ("negative", negative)):
        for statistic in ("phi_match", "phi_match_unsigned"):
            values = frame.loc[frame["statistic"] == statistic, "log10_p"]
            rows.append(
                {
                    "T6": sign,
                    "statistic": style.word(statistic),
                    "dependent pairs found (p ≤ 0.01)": f"{int((values <= _LEVEL).sum())} of {len(values)}",
                    "largest log10 p": float(values.max()),
                }
            )
    return pd.DataFrame(rows)


# Invariants and scores --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Invariant(Groups):
    """One cosine of HuRef, of a base with independent models, dependent ones, and these with replaced norms."""

    disguised: list[float]


def invariants(frame: pd.DataFrame, groups: Mapping[str, Sequence[str]]) -> dict[str, Invariant]:
    """Sort the cosines of one base with the models of each group, by HuRef's name of the invariant."""
    values = frame.set_index(["statistic", "b"])["value"]
    return {
        symbol: Invariant(
            **{group: [float(values[statistic, b]) for b in members] for group, members in groups.items()}
        )
        for statistic, symbol in INVARIANTS.items()
    }


def invariants_published() -> pd.DataFrame:
    """Table 7: the invariants of Llama-2-7b-hf with others."""
    rows = published_table("independence_table7_huref")
    return pd.DataFrame(
        [{"published": row["theta_2"], **{f"{m}, published": row[m] for m in INVARIANTS.values()}} for row in rows]
    )


def invariants_table(found: Mapping[str, Invariant]) -> pd.DataFrame:
    """Range of each invariant over the models of each group."""
    rows = []
    for group, word in (("dependent", "dependent"), ("disguised", "dependent, T5"), ("independent", "independent")):
        ranges = {f"{name}, ours": _range(getattr(one, group)) for name, one in found.items()}
        n = len(getattr(next(iter(found.values())), group))
        rows.append({"ours": f"{word}, {n} models", **ranges})
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Scores(Groups):
    """Scores of all pairs, and of those of one model of each tree with that of the next (`chain_of_trees`)."""

    chain: list[float]


def median_max(frame: pd.DataFrame, chain: Sequence[Pair]) -> Scores:
    """Sort the score of all pairs by their known origin."""
    values = {known: frame.loc[frame["dependent"].eq(known), "value"].tolist() for known in (True, False)}
    inside = [pair in set(chain) for pair in zip(frame["a"], frame["b"], strict=True)]
    return Scores(values[False], values[True], frame.loc[inside, "value"].tolist())


def median_max_table(found: Groups) -> pd.DataFrame:
    """Published ranges of the score beside ours."""
    return pd.DataFrame(
        [
            {
                "pairs": group,
                "published": scalar(f"statistic of {group} pairs"),
                "ours": _range(getattr(found, group)),
            }
            for group in ("dependent", "independent")
        ]
    )


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}" if values else ""


# Undoing a disguise -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Block:
    """What an investigator might try to align: of block 0 of a model, and its embedding.

    Attributes
    ----------
    up, value, embedding
        Matrices as they lie in the file.
    folded_up
        ``(h, width)``: the up projection with the weights of the norm before it multiplied in.
    gates, inputs
        ``(h, positions)`` gate activations on text, and ``(width, positions)`` what enters the MLP.
    tokens
        Of the text.
    """

    up: Array
    value: Array
    embedding: Array
    folded_up: NDArray[np.float64]
    gates: Array
    inputs: Array
    tokens: NDArray[np.int64]


def first_block(source: str, options: Options, *, allow_pickle: bool = False) -> Block:
    """Read block 0, and run the model over the text of a study."""
    model = Model.open(source, allow_pickle=allow_pickle)
    read = partial(model.anatomy.read, model.checkpoint)
    positions, kinds = options.kept_positions(), ("gate", "input")
    tokens = encode(model.checkpoint, options)
    seen = mlp_activations(
        model.checkpoint, tokens, kinds=kinds, device=options.device, dtype=options.torch_dtype, positions=positions
    )
    folded = through_norm(model, "up", 0)
    gates, inputs = (seen[kind][0] for kind in kinds)
    return Block(read("up", 0), read("value", 0), read("embedding"), folded, gates, inputs, tokens)


#: each attack by least squares, by what is aligned: X of the base, and Y of another model
ATTACKS: Mapping[str, Callable[[Block, Block], Undone]] = {
    "up projection": lambda x, y: undo(x.up, y.up),
    "value projection": lambda x, y: undo(x.value, y.value),
    "embedding": lambda x, y: undo(x.embedding, y.embedding),
    "inputs of the MLP": lambda x, y: undo(x.inputs.T, y.inputs.T),
    "up projection (units matched)": lambda x, y: undo_matched(x.folded_up, y.folded_up, x.gates, y.gates, seed=0),
}
#: those that need both models to read the same tokens
ON_TOKENS = ("embedding", "inputs of the MLP", "up projection (units matched)")


def undone(
    base: str, kin: Sequence[str], strangers: Sequence[str], options: Options, *, allow_pickle: bool = False
) -> dict[str, Groups]:
    """Return what each attack leaves of a base, mapped to each other model in full disguise.

    Residuals are rounded to thousandths: below that only the rounding of the files is left. A model with another
    tokenizer is left out where tokens count.
    """
    residuals: dict[str, dict[str, list[float]]] = {name: {"independent": [], "dependent": []} for name in ATTACKS}
    mine = first_block(base, options, allow_pickle=allow_pickle)
    for group, members in (("dependent", kin), ("independent", strangers)):
        for source in members:
            theirs = first_block(f"disguised:{source}", options, allow_pickle=allow_pickle)
            for name, attack in ATTACKS.items():
                if name not in ON_TOKENS or np.array_equal(mine.tokens, theirs.tokens):
                    residuals[name][group].append(round(attack(mine, theirs).free, 3))
    return {name: Groups(**groups) for name, groups in residuals.items()}
