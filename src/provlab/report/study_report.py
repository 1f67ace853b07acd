"""What the statistics say of all pairs of many models: text, a table and a picture in a notebook, a frame."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from provlab import plots
from provlab.engine.store import Store
from provlab.errors import ParameterError
from provlab.extras import need
from provlab.plots.numbers import format_log10_p
from provlab.report import records, views
from provlab.report.card import OPEN, QUIET, RELATED, Branch, Card, in_short
from provlab.report.decide import NOT_REJECTED, OUTCOMES, REJECTED, REJECTIONS
from provlab.report.family import LEVEL, Tested
from provlab.report.findings import answer, of_models
from provlab.report.lineage import Lineage, short_names
from provlab.report.outcome import PairEvidence

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 8  # pairs of one kind on a card
_IN_A_COUNT = {REJECTED: answer(REJECTED)}  # outcomes in other words, where they are counted


def _joined(sources: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Groups of models that pairs join, in the order of the models; single ones are left out."""
    group = {source: {source} for source in sources}
    for a, b in pairs:
        if group[a] is not group[b]:
            group[a] |= group[b]
            for source in group[b]:
                group[source] = group[a]
    groups = {id(members): members for members in group.values() if len(members) > 1}
    return [sorted(members, key=sources.index) for members in groups.values()]


@dataclass(frozen=True, kw_only=True)
class StudyReport(Tested):
    """All pairs of a list of models; shows itself in a notebook, prints as text.

    Attributes, with those of `provlab.report.family.Tested`
    ----------
    sources : tuple of str
        The models, in order.
    statistics : tuple of str
        As run.
    lineage : Lineage
        What is known of their origin.
    """

    sources: tuple[str, ...]
    statistics: tuple[str, ...]
    lineage: Lineage

    def to_frame(self) -> "pd.DataFrame":
        """One row per statistic and pair, with the truth and the verdict over the family of tests.

        Columns: a, b, statistic, value, log10_p, floor, paper_log10_p, agree (`records.numbers` says what), detail,
        dependent (True, False, or None for unknown), siblings, error; over the tests of the family holm_log10_p and
        adjusted_log10_p (by the correction asked; NaN outside it), and rejected (the latter at level 0.01).
        """
        rows = [
            {
                "a": record.a,
                "b": record.b,
                "statistic": record.statistic,
                **records.numbers(record.outcome),
                "detail": record.outcome.detail.as_record() if record.outcome else {},
                "dependent": self.lineage.dependent(record.a, record.b),
                "siblings": self.lineage.siblings(record.a, record.b),
            }
            for record in self.records
        ]
        frame = self.with_adjusted(rows).assign(rejected=self.family.rejected)
        # of three values: True, False, None
        frame["dependent"] = need("pandas").Series([row["dependent"] for row in rows], dtype=object)
        return frame

    def outcomes(self) -> dict[tuple[str, str], str]:
        """Pair -> one of `provlab.report.decide.OUTCOMES`, of the pairs of which a statistic ran."""
        return {pair: evidence.decision.outcome for pair, evidence in self.evidence().items()}

    def evidence(self) -> dict[tuple[str, str], PairEvidence]:
        """Pair -> its tests, corrected over the whole study, and what is known beside them."""
        at: dict[tuple[str, str], list[int]] = {}
        for i, record in enumerate(self.records):
            at.setdefault((record.a, record.b), []).append(i)
        models = {model["source"]: model for model in self.models}
        return {
            pair: PairEvidence.of(self.records, [models.get(source, {}) for source in pair], self.family, places)
            for pair, places in at.items()
        }

    def matrix(self, statistic: str, column: str = "log10_p") -> "pd.DataFrame":
        """Models by models, symmetric, NaN on the diagonal and where there is no value; labelled by short names."""
        frame = self.to_frame()
        labels = self.labels()
        matrix: pd.DataFrame = need("pandas").DataFrame(
            np.nan, index=list(labels.values()), columns=list(labels.values())
        )
        for row in frame[frame["statistic"] == statistic].itertuples():
            value = getattr(row, column)
            matrix.loc[labels[row.a], labels[row.b]] = matrix.loc[labels[row.b], labels[row.a]] = value
        return matrix

    def matchings(self, statistic: str, store: Store) -> dict[tuple[str, str], list[NDArray[np.int64]]]:
        """Matching of hidden units, per pair and block, as kept in the store; pairs that failed are left out.

        Raises
        ------
        ParameterError
            If the statistic matches no units.
        """
        matchings = {}
        for record in self.records:
            if record.statistic == statistic and record.outcome:
                blocks = [store.matching(key) for key in record.keys]
                kept = [block for block in blocks if block is not None]
                if len(kept) < len(blocks):
                    raise ParameterError(f"{statistic} keeps no matching of hidden units")
                matchings[record.a, record.b] = kept
        return matchings

    def truth(self) -> "pd.DataFrame":
        """Models by models, True where dependent; False on the diagonal and where unknown."""
        labels = self.labels()
        known: pd.DataFrame = need("pandas").DataFrame(
            [[a != b and bool(self.lineage.dependent(a, b)) for b in labels] for a in labels],
            index=list(labels.values()),
            columns=list(labels.values()),
        )
        return known

    def labels(self) -> dict[str, str]:
        """Short names for pictures: without the scheme or organisation where that stays unambiguous."""
        return short_names(self.sources)

    def families(self) -> dict[str, str]:
        """Family of each model, all by short names; a family is named by its root."""
        labels = self.labels()
        return {labels[source]: labels.get(root, root) for source, root in self.lineage.families().items()}

    def summary(self) -> "pd.DataFrame":
        """One row per statistic: how many pairs, failed, rejected, how that agrees with the truth, how corrected."""
        rows = []
        for statistic, pairs in self.to_frame().groupby("statistic", sort=False):
            tested = pairs["adjusted_log10_p"].notna().any()
            none = "description only" if pairs["log10_p"].notna().any() else "no p-value"
            dependent, independent = pairs["dependent"].eq(True), pairs["dependent"].eq(False)

            def share(group: "pd.Series", rejected: "pd.Series" = pairs["rejected"], tested: bool = tested) -> str:
                return f"{int((rejected & group).sum())} of {int(group.sum())}" if tested and group.any() else "-"

            rows.append(
                {
                    "statistic": statistic,
                    "pairs": len(pairs),
                    "failed": int(pairs["error"].notna().sum()),
                    "rejected": str(int(pairs["rejected"].sum())) if tested else none,
                    "dependent rejected": share(dependent),
                    "independent rejected": share(independent),
                    "corrected by": self.family.words() if tested else "not corrected",
                }
            )
        found: pd.DataFrame = need("pandas").DataFrame(rows)
        return found

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines; `family` says which tests `adjusted_log10_p` is corrected over, and how."""
        adjusted = self.adjusted
        return {
            **self.header("provlab.study/1"),
            "sources": list(self.sources),
            "outcomes": [
                {"a": a, "b": b, "outcome": evidence.decision.outcome, "price": evidence.price}
                for (a, b), evidence in self.evidence().items()
            ],
            "records": [
                {
                    "a": record.a,
                    "b": record.b,
                    "statistic": record.statistic,
                    "dependent": self.lineage.dependent(record.a, record.b),
                    **{name: None if np.isnan(values[i]) else float(values[i]) for name, values in adjusted.items()},
                    **records.record_json(record),
                }
                for i, record in enumerate(self.records)
            ],
        }

    def title(self) -> str:
        """How many models, and how they are judged."""
        return f"{len(self.sources)} models, judged by {self.family.words()}"

    def card(self) -> Card:
        """Families first, then the pairs by outcome; also those that are not rejected."""
        names, outcomes = self.labels(), self.outcomes()
        counts = Counter(outcomes.values())
        counted = ", ".join(f"{count} {_IN_A_COUNT.get(outcome, outcome)}" for outcome, count in counts.most_common())
        answer = f"{len(self.sources)} models, {len(outcomes)} pairs: {counted or 'none compared'}."
        related = [pair for pair, outcome in outcomes.items() if outcome in REJECTIONS]
        groups = [", ".join(names[source] for source in group) for group in _joined(self.sources, related)]
        smallest: dict[tuple[str, str], tuple[float, str]] = {}
        for record, p in zip(self.records, self.family.adjusted_log10_p, strict=True):
            if not np.isnan(p):
                pair = record.a, record.b
                smallest[pair] = min(smallest.get(pair, (np.inf, "")), (float(p), record.statistic))
        others = [pair for pair, outcome in outcomes.items() if outcome != NOT_REJECTED]
        others.sort(key=lambda pair: (OUTCOMES.index(outcomes[pair]), smallest.get(pair, (0.0, ""))))
        rows = []
        for a, b in others[:_SHOWN]:
            p, name = smallest.get((a, b), (np.nan, ""))
            rows.append([f"{names[a]}, {names[b]}", outcomes[a, b], "" if np.isnan(p) else format_log10_p(p), name])
        body: list[str | views.Table | Branch] = [Branch(f"family: {group}") for group in groups]
        if rows:
            body.append(views.Table(("pair", "outcome", "adjusted log10 p", "by"), rows, right=(2,)))
        if len(others) > _SHOWN:
            body.append(f"{len(others) - _SHOWN} more of these: -v.")
        left = [f"{names[a]}, {names[b]}" for (a, b), outcome in outcomes.items() if outcome == NOT_REJECTED]
        if left:
            beyond = f"; and {len(left) - _SHOWN} more" * (len(left) > _SHOWN)
            body.append(f"Not rejected: {'; '.join(left[:_SHOWN])}{beyond}.")
        failed = Counter(f"{record.statistic}: {record.error}" for record in self.records if record.error)
        remarks = [
            ("judged by", self.family.words()),
            ("not run", in_short([f"{reason} ({n} pairs)" for reason, n in failed.most_common()])),
            ("mind", in_short(self._qualified())),
        ]
        tone = RELATED if related else QUIET if counts[NOT_REJECTED] else OPEN
        return Card(answer, tone, body, [(label, text) for label, text in remarks if text])

    def answer(self) -> str:
        """How many pairs there are, by outcome."""
        return self.card().answer

    def parts(self) -> list[views.Part]:
        """The summary, what qualifies it, the pairs that are rejected, and the reasons of failures."""
        summary = self.summary().astype(str)
        table = views.Table(list(summary.columns), summary.to_numpy().tolist(), right=(1, 2, 3, 4, 5))
        failures = [f"{r.statistic} {r.a} {r.b}: {r.error}" for r in self.records if r.error]
        listed = {"Rejected, with adjusted p": self._rejected(), "Not run": failures}
        return [table, *self._qualified(), *[views.Listed(title, rows) for title, rows in listed.items() if rows]]

    def _qualified(self) -> list[str]:
        """What qualifies the answers: the models' files, and how tests were corrected."""
        return [*(words for _, words in of_models(self.models)), *self.family.remarks()]

    def _rejected(self) -> list[str]:
        """Name each pair that a statistic rejects, and the statistics."""
        pairs: dict[tuple[str, str], list[str]] = {}
        for record, log10_p, rejected in zip(
            self.records, self.family.adjusted_log10_p, self.family.rejected, strict=True
        ):
            if rejected:
                pairs.setdefault((record.a, record.b), []).append(f"{record.statistic} 10^{format_log10_p(log10_p)}")
        outcomes = self.outcomes()
        called = {pair: "" if outcomes[pair] == REJECTED else f"{outcomes[pair]}, " for pair in pairs}
        return [f"{a} and {b}: {called[a, b]}{', '.join(tests)}" for (a, b), tests in pairs.items()]

    def figure(self, statistic: str | None = None, *, corrected: bool = True) -> "plots.Figure":
        """Draw a heatmap of one statistic, by default of the first that yields p-values.

        `corrected` calls pairs dependent by the correction over the family; without it, and for a statistic outside the
        family, each p-value is read on its own. The caption says which.
        """
        frame = self.to_frame()
        tested = [name for name in self.statistics if frame.loc[frame["statistic"] == name, "log10_p"].notna().any()]
        name = statistic or (tested or list(self.statistics))[0]
        rows = frame[frame["statistic"] == name]
        floor = rows["floor"].min()
        corrected = corrected and bool(rows["adjusted_log10_p"].notna().any())
        return plots.pair_heatmap(
            self.matrix(name),
            self.families(),
            statistic=name,
            floor=None if np.isnan(floor) else float(floor),
            truth=self.truth() if self._truth_is_known() else None,
            level=LEVEL,
            adjusted=self.matrix(name, "adjusted_log10_p") if corrected else None,
            caption=f"Judged by {self.family.words()}."
            if corrected
            else "Each p-value read on its own, without correction.",
        )

    def _truth_is_known(self) -> bool:
        """Whether the origin of every model is known; a picture says nothing of truth otherwise."""
        return all(self.lineage.root(source) for source in self.sources)

    def drawn(self) -> "plots.Figure | None":
        """Return the figure, if any pair has a p-value."""
        return self.figure() if self.to_frame()["log10_p"].notna().any() else None
