"""What a page shows of its run: the summary, held by the run's records, and the footer with claims and provenance."""

import re
from dataclasses import dataclass, field
from html import escape
from typing import Any

from provlab.report.lineage import short_names
from provlab_study.publishing import claims
from provlab_study.publishing.marks import MARKS, folded
from provlab_study.publishing.scoreboard import scoreboard_table


@dataclass(frozen=True)
class PageSummary:
    """What a page found, each sentence held by the records of its run; `publishing.page` marks the lead by it.

    Attributes
    ----------
    lead : bool, None or str
        Whether the sentences under the title hold in this run; None if its records cannot say, `PARTLY` if they
        cannot say all of it, `UNDECIDED` if they do not decide.
    findings : tuple
        The same and the sentence, for each sentence of the summary.
    own : None or tuple of str
        What was found of a reader's models, None where the models are the study's.
    against : str
        What the run shows against the lead; empty where the run does not deny it.
    failing : tuple of str
        Claims of the page that fail, a sentence each, which stand behind the lead.
    models : tuple of str
        A reader's models, which a page names that found nothing of them alone.
    """

    lead: bool | str | None
    findings: tuple[tuple[bool | str | None, str], ...]
    own: tuple[str, ...] | None = None
    against: str = ""
    failing: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Markdown, which reads as plain text; of a reader's models, what was not tried folds."""
        marked = [(holds, f"- {MARKS[holds]}{sentence}") for holds, sentence in self.findings]
        if self.own is None:
            return "\n".join(line for _, line in marked) or "- Nothing was measured in this run."
        tried = [*(f"- {sentence}" for sentence in self.own), *(line for holds, line in marked if holds is not None)]
        left = [f"- {sentence}" for holds, sentence in self.findings if holds is None]
        lines = "\n".join(dict.fromkeys(tried)) or "- Nothing was measured in this run."
        return self._by_name(lines + folded("Not tried in this run", left))

    def _by_name(self, text: str) -> str:
        """Call a reader's models by their names, and not by the folders in which they lie."""
        names = short_names(self.models)
        known = "|".join(re.escape(source) for source in sorted(names, key=len, reverse=True))
        return re.sub(rf"(?<![\w./-])(?:{known})(?![\w/-])", lambda source: names[source[0]], text) if names else text

    def _about_own(self) -> list[str]:
        """What the page opens with: what was found of these models, else the first sentence that this run bears out.

        Where that names none of them, they stand before it.
        """
        held = [sentence for holds, sentence in self.findings if holds is True][:1]
        told = (
            list(self.own or held)
            or [f"{MARKS[holds]}{says}" for holds, says in self.findings if holds is not None][:1]
        )
        names = list(short_names(self.models).values())
        if not told:
            return [f"Nothing was measured of {', '.join(names)}."]
        told = [self._by_name(sentence) for sentence in told]
        if any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", " ".join(told)) for name in names):
            return told
        return [f"With {', '.join(names)}: {told[0]}", *told[1:]]

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        about: dict[str, Any] = {} if self.own is None else {"own": self._about_own()}
        about |= {"against": self.against} if self.against else {}
        about |= {"failing": list(self.failing)} if self.failing else {}
        return {"text/markdown": repr(self), "text/plain": repr(self)}, {"lead": self.lead, **about}


@dataclass(frozen=True)
class Footer:
    """The claims of one experiment and its provenance, as the last cell of its page shows them.

    Attributes
    ----------
    experiment : dict
        As stored.
    claims : list of dict
        The claims that it decides, judged.
    """

    experiment: dict[str, Any]
    claims: list[dict[str, Any]] = field(default_factory=list)

    def _rows(self) -> list[tuple[str, str]]:
        experiment = self.experiment
        shown = {key: value for key, value in experiment["parameters"].items() if key not in ("profile", "seed")}
        return [
            ("Profile", experiment["profile"]),
            ("Seed", str(experiment["seed"])),
            ("Draw", str(experiment.get("draw", 0))),
            ("Parameters", "; ".join(f"{key} = {_short(value)}" for key, value in shown.items()) or "none"),
            ("Duration", f"{experiment['seconds']:,.1f} s"),
            ("Finished", experiment["finished"]),
            ("Machine", experiment["machine"]),
            ("Commit", experiment["commit"] or "not in a checkout"),
            ("Versions", ", ".join(f"{name} {version}" for name, version in experiment["versions"].items())),
        ]

    def __repr__(self) -> str:
        """Plain text."""
        lines = [f"{row['id']} {claims.words(row['status'])}: {row['statement']}" for row in self.claims]
        lines += [f"{name}: {value}" for name, value in self._rows()]
        lines += [f"model {m['source']}: {m['digest']}" for m in self.experiment["models"]]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{escape(value)}</td></tr>" for name, value in self._rows())
        models = "".join(
            f"<tr><td>{escape(m['source'])}</td><td><code>{escape((m['commit'] or '-')[:12])}</code></td>"
            f"<td><code>{m['digest'][:16]}</code></td></tr>"
            for m in self.experiment["models"]
        )
        table = (
            f"<details><summary>{len(self.experiment['models'])} models with their hashes</summary><table>"
            f"<tr><th>model</th><th>commit</th><th>SHA-256 of its files</th></tr>{models}</table></details>"
            if models
            else ""
        )
        judged = scoreboard_table(self.claims) if self.claims else ""
        return f'{judged}<div class="provenance"><table>{rows}</table>{table}</div>'


def _short(value: Any) -> str:
    text = repr(value)
    return (
        text if len(text) <= 100 else f"{text[:60]} ... ({len(value)} items)" if isinstance(value, list) else text[:100]
    )
