"""What the attack lab measures: attacks by statistics, on related pairs and on strangers, each cell a calibrated test.

An *instance* is one family's descendant after one attack. It is compared with the base that it comes from (power) and
with a base that it has nothing to do with (size). All tests of one statistic are one family for Holm's correction.
"""

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from provlab import api, studying
from provlab.attacks.disguise import disguise, loss
from provlab.engine.store import Store
from provlab.errors import ProvlabError
from provlab.inference import pvalues
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint
from provlab.report.lineage import short_name
from provlab.statistics import REGISTRY, flaws
from provlab.statistics.options import Options
from provlab_study.attack_lab import training
from provlab_study.attack_lab.respelling import respelt
from provlab_study.attack_lab.rows import TRAINED, AttackRow
from provlab_study.shared import calibration

LEVEL = 0.01
#: confidence of the interval of a rate that judges an entry of `provlab.statistics.flaws`: four of four are not a half
SURE = 0.85
KIN, STRANGER, FRAMED = "kin", "stranger", "framed"


@dataclass(frozen=True)
class OneBase:
    """The models round one base.

    Attributes
    ----------
    origin, tune
        The base, and the descendant that is attacked.
    stranger
        A base that neither has anything to do with.
    partner
        A further unrelated base of the same shape, whose weights a merge takes; "" if there is none.
    """

    origin: str
    tune: str
    stranger: str
    partner: str


@dataclass(frozen=True)
class Instance:
    """One attacked model.

    Attributes
    ----------
    attack, group
        Those of the row.
    origin
        Which family it is of.
    growth
        Parameters over those before.
    loss
        What it lost on held-out text (nats a token); 0 for an attack that is proved to keep the outputs.
    refused
        Why the attack could not be made; None if it was.
    """

    attack: str
    group: str
    origin: str
    growth: float | None
    loss: float | None
    refused: str | None


@dataclass(frozen=True)
class LabTest:
    """One statistic on one instance and one base.

    Attributes
    ----------
    attack, origin
        Which instance.
    against
        "kin" for the base that it comes from, "stranger" for an unrelated one, "framed" for the base that an unrelated
        model wants to look derived from.
    log10_p
        None where the statistic refused.
    adjusted
        After Holm's correction over all tests of the statistic here; `log10_p` for one that is judged alone.
    refused
        Why.
    """

    attack: str
    origin: str
    against: str
    statistic: str
    log10_p: float | None
    adjusted: float | None
    refused: str | None


# Making and testing ------------------------------------------------------------------------------------------


def usable(family: OneBase, n_tests: int, options: Mapping[str, Any], store: Store) -> list[str]:
    """Return the registered statistics that give a p-value small enough to be rejected among so many tests.

    Among one, those too that reject by themselves alone: the smallest p of phi_l2 is 0.01, with 99 permuted copies.
    """
    study = studying.study(
        [family.origin, family.tune], statistics=list(REGISTRY), pairs=[(family.origin, family.tune)], store=store,
        progress=False, **options,
    )  # fmt: skip
    reaches = {
        member.statistic: min(member.outcome.reach, member.outcome.log10_p)
        for member in study.records
        if member.outcome and member.outcome.log10_p is not None
    }
    return [name for name, reach in reaches.items() if reach <= np.log10(LEVEL / n_tests)]


def made(
    row: AttackRow, family: OneBase, checkpoint: Checkpoint, before: float | None, folder: Path, options: Options,
    steps: Mapping[str, int],
) -> Instance:  # fmt: skip
    """Attack a descendant, or a stranger in its place, whose loss is `before`, and write it to `folder`.

    Attacks that train take so many `steps`.

    Raises
    ------
    ProvlabError
        The attack cannot be made.
    """
    others = [Checkpoint.open(getattr(family, place)) for place in row.places]
    source, growth, behind = checkpoint, 1.0, tuple[int, ...]()
    if row.own:
        made_of = folder.with_name(f"{folder.name}-first") if row.kinds else folder
        if row.own == "retrained":
            training.retrained(checkpoint, made_of, options, steps["retrained"])
        elif row.own == "distilled":
            training.distilled(checkpoint, made_of, options.seed, steps["distilled"])
        else:
            respelt(checkpoint, made_of)
        source = Checkpoint.open(str(made_of))
    if row.kinds:
        disguised = disguise(source, folder, seed=options.seed, kinds=row.kinds, others=others)
        growth, behind = disguised.growth, disguised.behind
    after = before if row.exact else loss(Checkpoint.open(str(folder)), options.text, behind)
    lost = after - before if after is not None and before is not None else 0.0
    return Instance(row.label, row.group, family.origin, growth, lost, None)


def run(
    rows: Sequence[AttackRow], families: Sequence[OneBase], statistics: Sequence[str], store: Store,
    *, steps: Mapping[str, int], n_trained: int, framing: Sequence[AttackRow] = (), alone: Sequence[str] = (),
    **settings: Any,
) -> tuple[list[Instance], list[LabTest]]:  # fmt: skip
    """Attack every family by every row, compare, and correct; attacked models vanish when they are compared.

    Statistics that are judged `alone` are not corrected.

    Attacks that train are tried on the first `n_trained` families.

    Comparisons are kept in the store by the digests of the models, so a run that was stopped compares no pair twice.
    """
    options = Options(**settings)
    instances: list[Instance] = []
    tested: list[LabTest] = []
    bar = tqdm(total=len(families) * (len(rows) + len(framing)), desc="attacks", unit="model")
    for index, family in enumerate(families):
        with ExitStack() as stack:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="provlab-"))
            victims = [Checkpoint.open(source) for source in (family.tune, family.stranger)[: 1 + bool(framing)]]
            for victim in victims:  # loaded once for all rows
                stack.enter_context(victim.loaded_once())
            losses = [loss(victim, options.text) for victim in victims]
            requests: list[tuple[AttackRow, str, tuple[str, str]]] = []
            for row in (*rows, *framing):
                bar.update()
                if any(not getattr(family, place) for place in row.places) or (
                    row.own in TRAINED and index >= n_trained
                ):
                    continue
                framed = row in framing
                folder = Path(scratch) / f"{len(requests)}"
                try:
                    instances.append(
                        made(row, family, victims[framed], losses[framed], folder, options, steps)
                        if row.label
                        else Instance(row.label, row.group, family.origin, 1.0, 0.0, None)
                    )
                except ProvlabError as error:
                    instances.append(Instance(row.label, row.group, family.origin, None, None, str(error)))
                    continue
                attacked = str(folder) if row.label else family.tune
                if framed:
                    requests.append((row, FRAMED, (family.origin, attacked)))
                else:
                    requests += [(row, KIN, (family.origin, attacked)), (row, STRANGER, (family.stranger, attacked))]
            tested += _compared(requests, family, [*statistics, *alone], store, settings)
    bar.close()
    return instances, corrected(tested, alone)


def _compared(
    requests: Sequence[tuple[AttackRow, str, tuple[str, str]]], family: OneBase, statistics: Sequence[str],
    store: Store, settings: Mapping[str, Any],
) -> Iterator[LabTest]:  # fmt: skip
    pairs = list(dict.fromkeys(pair for _, _, pair in requests))
    depths = {source: anatomy.of(Checkpoint.open(source)).n_blocks for pair in pairs for source in pair}
    level = [pair for pair in pairs if depths[pair[0]] == depths[pair[1]]]
    common = {"statistics": statistics, "store": store, "progress": False, **settings}
    records = studying.study(
        list(dict.fromkeys(source for pair in level for source in pair)), pairs=level, **common
    ).records
    for pair in set(pairs) - set(level):  # all blocks against all
        records += api.compare(*pair, **common).records
    results = {(member.a, member.b, member.statistic): member for member in records}
    for row, against, (a, b) in requests:
        for statistic in statistics:
            record = results[a, b, statistic]
            log10_p = record.outcome.log10_p if record.outcome else None
            yield LabTest(row.label, family.origin, against, statistic, log10_p, None, record.error)


def corrected(tested: Iterable[LabTest], alone: Collection[str] = ()) -> list[LabTest]:
    """Adjust p-values by Holm over all tests of each statistic, on kin, strangers and the framed together.

    Those of statistics that are judged `alone` stay as they are.
    """
    result = [replace(test, adjusted=test.log10_p) if test.statistic in alone else test for test in tested]
    for statistic in {test.statistic for test in result} - set(alone):
        places = [i for i, t in enumerate(result) if t.statistic == statistic and t.log10_p is not None]
        adjusted = pvalues.holm(np.array([result[i].log10_p for i in places], dtype=float))
        for i, value in zip(places, adjusted, strict=True):
            result[i] = replace(result[i], adjusted=float(value))
    return result


# The table -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One attack and one statistic, over all families.

    Attributes
    ----------
    caught, n
        How many descendants are found, among those that could be compared with their base.
    accused, n_strangers
        The same of unrelated pairs.
    refused
        Descendants that the statistic could not compare with their base.
    """

    attack: str
    statistic: str
    caught: int
    n: int
    accused: int
    n_strangers: int
    refused: int

    @property
    def verdict(self) -> str:
        """Caught if more than half are, evades if no more, refused where none could be compared."""
        return "refused" if not self.n else "caught" if 2 * self.caught > self.n else "evades"

    @property
    def sound(self) -> bool:
        """Whether no unrelated pair is accused."""
        return self.accused == 0


def by_test(tested: Sequence[LabTest]) -> pd.DataFrame:
    """One row a test, with whether it `ran`, and whether it is a `hit` after correction."""
    frame = pd.DataFrame([asdict(test) for test in tested]).astype({"log10_p": float, "adjusted": float})
    return frame.assign(ran=frame["log10_p"].notna(), hit=frame["adjusted"] <= np.log10(LEVEL))


def cells(tested: Sequence[LabTest]) -> list[Cell]:
    """Count each cell of the table."""
    frame = by_test(tested)
    results = []
    for (attack, statistic), group in frame[frame["against"] != FRAMED].groupby(["attack", "statistic"], sort=False):
        kin, far = (group[group["against"] == against] for against in (KIN, STRANGER))
        caught, n, accused, n_strangers = (int(side[what].sum()) for side in (kin, far) for what in ("hit", "ran"))
        results.append(Cell(str(attack), str(statistic), caught, n, accused, n_strangers, len(kin) - n))
    return results


def cell_table(results: Sequence[Cell]) -> pd.DataFrame:
    """Return power and size of every cell with their 95% intervals: ``4/4 (0.40 to 1.00); 0/4 (0.00 to 0.60)``."""
    rows: dict[str, dict[str, str]] = {}
    for member in results:
        sides = [_rate(member.caught, member.n), _rate(member.accused, member.n_strangers)]
        rows.setdefault(member.attack or "none", {})[member.statistic] = "; ".join(sides)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("attack")


def _rate(k: int, n: int) -> str:
    if not n:
        return "–"
    low, high = calibration.size_interval(k, n)
    return f"{k}/{n} ({low:.2f} to {high:.2f})"


def entries() -> list[tuple[str, str, str]]:
    """Return what `provlab.statistics.flaws` says of the rows of the lab: attack, statistic, and what is seen.

    Of tests that give a p-value: the table names figures too, which the lab does not measure.
    """
    return [
        (attack, statistic, words)
        for flaw_rows, kinds in (
            (flaws.DISGUISES, ("evades", "refused", "caught")),
            (flaws.FRAMINGS, ("fooled", "refused", "withstands")),
        )
        for flaw in flaw_rows
        for statistics, words in zip((flaw.fooled, flaw.refuse, flaw.withstand), kinds, strict=True)
        for attack in flaw.shown
        for statistic in statistics
        if statistic in flaws.NEEDS
    ]


#: the rates of finding, or of accusing, that each word of `entries` stands for: least and most
CLAIMED = {"evades": (0.0, 0.5), "caught": (0.5, 1.0), "fooled": (0.5, 1.0), "withstands": (0.0, 0.05)}


@dataclass(frozen=True)
class Judged:
    """An entry of `provlab.statistics.flaws` beside what one run has of it.

    Attributes
    ----------
    attack, statistic, says
        The entry.
    hits, n
        Models found, or accused, and of how many; n is 0 where the statistic could compare none.
    interval
        Of the rate behind these counts, by `SURE`.
    verdict
        "borne out" where the rate is as the entry says, "denied" where its interval lies outside that, else "open".
    """

    attack: str
    statistic: str
    says: str
    hits: int
    n: int
    interval: tuple[float, float]
    verdict: str


def judged(tested: Sequence[LabTest]) -> list[Judged]:
    """Judge each entry of which these records say anything by the interval of its rate, not by one model more or less.

    An entry of a refusal has no rate: one model that could be compared denies it.
    """
    frame = by_test(tested).query("against != @STRANGER")
    # a test that gave no p-value accuses nobody, and finds nobody among those that could be compared
    frame["counts"] = frame["ran"].where(frame["against"] == KIN, frame["refused"].isna())
    counted = frame.groupby(["attack", "statistic"])[["hit", "counts"]].sum()
    results = []
    for attack, statistic, says in entries():
        if (attack, statistic) not in counted.index:
            continue
        hits, n = map(int, counted.loc[(attack, statistic)])
        low, high = calibration.size_interval(hits, n, SURE) if n else (0.0, 1.0)
        if says == "refused" or not n:
            verdict = "borne out" if (says == "refused") == (n == 0) else "denied"
        else:
            least, most = CLAIMED[says]
            verdict = "denied" if low > most or high < least else "borne out" if least <= hits / n <= most else "open"
        results.append(Judged(attack, statistic, says, hits, n, (low, high), verdict))
    return results


def _words(results: Sequence[Cell], tested: Sequence[LabTest]) -> dict[tuple[str, str], str]:
    """Put what the records have of each attack and statistic into one of the words of `entries`, or "in part"."""
    outcomes = {(cell.attack, cell.statistic): cell.verdict for cell in results}
    frame = by_test(tested)
    for key, group in frame[frame["against"] == FRAMED].groupby(["attack", "statistic"]):
        hits = group["hit"][group["refused"].isna()]  # a test that gave no p-value, and says why, accuses nobody
        word = "fooled" if 2 * hits.sum() > len(hits) else "in part" if hits.any() else "withstands"
        outcomes[key] = word if len(hits) else "refused"
    return outcomes


def contradictions(results: Sequence[Cell], tested: Sequence[LabTest]) -> list[str]:
    """Return the entries of `provlab.statistics.flaws` that these records do not bear out, one line each.

    A test that withstands a disguise finds more than half of the descendants, one that is fooled no more than that, and
    one that refuses none; a test that withstands a framing accuses none, one that is fooled more than half.
    """
    words_of = _words(results, tested)
    return [
        f"{attack}, {statistic}: the table says {words}, this run {words_of[attack, statistic]}"
        for attack, statistic, words in entries()
        if words_of.get((attack, statistic), words) != words
    ]


def unmeasured(results: Sequence[Cell], tested: Sequence[LabTest]) -> dict[str, list[str]]:
    """Return the entries of `provlab.statistics.flaws` of which these records say nothing: attacks by statistic."""
    words_of, missing = _words(results, tested), dict[str, list[str]]()
    for attack, statistic, _ in entries():
        if (attack, statistic) not in words_of:
            missing.setdefault(statistic, []).append(attack)
    return missing


def refusal_table(instances: Sequence[Instance], tested: Sequence[LabTest]) -> pd.DataFrame:
    """Return each reason why something was not run, how often, and one example."""
    reasons: dict[str, list[str]] = {}
    for member in instances:
        if member.refused:
            reasons.setdefault(member.refused, []).append(f"{member.attack} on {short_name(member.origin)}")
    for test in tested:
        if test.refused:  # without names of temporary folders and numbers of this pair
            words = test.refused.partition(", but ")[0].partition("; ")[0].removeprefix(test.statistic).strip()
            reasons.setdefault(f"{test.statistic}: {words}", []).append(f"{test.statistic}, {test.attack}")
    rows = [{"reason": reason, "times": len(where), "such as": where[0]} for reason, where in reasons.items()]
    return pd.DataFrame(rows, columns=["reason", "times", "such as"])
