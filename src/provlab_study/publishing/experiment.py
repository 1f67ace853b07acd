"""The first and the last cell of a notebook: parameters checked, results bound to the store, provenance shown.

>>> run = provlab_study.begin("llama_tree", globals())  # doctest: +SKIP
>>> study = run.study(models, statistics=["phi_u"])  # doctest: +SKIP
>>> run.measure("share", {"n": 69})  # doctest: +SKIP
>>> i4 = run.judge("I4", predicates.separates, pairs=study, ks_by_symmetry=by_symmetry)  # doctest: +SKIP
>>> run.summary(i4, (i4, "Each pair with a common origin is found."))  # doctest: +SKIP
>>> run.finish()  # doctest: +SKIP
"""

import ast
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from provlab import plugins, provenance, schema, studying
from provlab.engine.pairs import open_models
from provlab.errors import InputError, ParameterError
from provlab.report.lineage import Lineage
from provlab.report.study_report import StudyReport
from provlab.report.views import Report
from provlab_study.publishing import claims, texts
from provlab_study.publishing.declared import Parameter, left_out, of_ones_own
from provlab_study.publishing.evidence import FAILS, ClaimStatus, frame_of
from provlab_study.publishing.judgement import Judgement, Row, Shown, Truth, founded, seen, truth
from provlab_study.publishing.own import check_lineage, in_words, told_lineage
from provlab_study.publishing.parameters import check_value, checked_profile, declared_in, parameters_of
from provlab_study.publishing.results import STUDY_RUN, Results
from provlab_study.publishing.summary import Footer, PageSummary

INJECTED = "# Parameters"  # the first line of the cell in which papermill passes parameters


def _declared(name: str, namespace: Mapping[str, Any]) -> dict[str, Parameter]:
    """Parameters as the project's notebook declares them; those that it lacks, as the cell that was executed does."""
    path = provenance.project_root() / "notebooks" / f"{name}.ipynb"
    cells = [cell for cell in namespace.get("In", []) if cell.lstrip().startswith("profile: str")]
    executed = declared_in(cells[0], name) if cells else {}
    return executed | (parameters_of(path) if path.is_file() else {})


def _unknown_injected(namespace: Mapping[str, Any], known: Sequence[str]) -> list[str]:
    """Names that papermill injected and the parameters cell does not declare."""
    cells = [cell for cell in namespace.get("In", []) if cell.lstrip().startswith(INJECTED)]
    names = [
        target.id
        for cell in cells[-1:]
        for node in ast.walk(ast.parse(cell))
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    return sorted(set(names) - set(known))


def begin(name: str, namespace: Mapping[str, Any]) -> "Run":
    """Start an experiment from a notebook's second cell.

    Parameters
    ----------
    name : str
        The notebook's name; results are kept under it.
    namespace : mapping
        ``globals()``: the annotated names in it are the parameters (the cell before declares them).

    Raises
    ------
    ParameterError
        If a parameter is unknown, its value has another type than declared or is none that its rule allows, something
        that goes with it is missing, or the profile is no plain name.
    """
    annotations = dict(namespace.get("__annotations__", {}))
    if unknown := _unknown_injected(namespace, list(annotations)):
        raise ParameterError(f"{name} has no parameter {', '.join(unknown)}; it has {', '.join(sorted(annotations))}")
    parameters = {key: namespace[key] for key in annotations}
    declared = {key: parameter for key, parameter in _declared(name, namespace).items() if key in parameters}
    for key, value in parameters.items():
        if key in declared:
            check_value(declared[key], value)
        else:
            schema.check(f"parameter {key}", value, annotations[key])
    emptied = left_out(name, declared, parameters)
    parameters |= emptied
    cast(dict[str, Any], namespace).update(emptied)
    draw = provenance.draw()
    if "seed" in parameters:  # the cells read it by its name
        parameters["seed"] += draw * provenance.BETWEEN_DRAWS
        cast(dict[str, Any], namespace)["seed"] = parameters["seed"]
    profile = checked_profile(parameters.get("profile", "default"))
    stamp = os.environ.get(STUDY_RUN)
    store = Results(provenance.results_root() / profile, own=stamp is None)
    of_study = stamp is not None and profile in claims.PROFILES
    own = () if of_study else tuple(of_ones_own(declared, parameters))
    if own:
        check_lineage(str(parameters.get("lineage", "")), own)
    run = Run(name, parameters, store, stamp, own=own, draw=draw)
    print(f"{name}: seed {run.seed}, profile {profile}{f', draw {draw}' * bool(draw)}")  # noqa: T201
    if emptied:
        print(f"{', '.join(emptied)}: left out, since models of your own were given and these were not")  # noqa: T201
    return run


Found = TypeVar("Found", bound=Report | str)


@dataclass
class Run:
    """One run of one notebook; collects what its claims will be judged from.

    Attributes
    ----------
    name : str
        The name of the notebook.
    parameters : dict
        As run.
    store : Results
        The store of the run's profile.
    stamp : str or None
        What a run of the study was made from. A run that anything but ``provlab reproduce`` started has none, and its
        experiment does not take the place of the study's.
    own : tuple of str
        Models that a reader gave in place of the study's.
    answers : list of str
        What was `found` of them, beside the studies, in a sentence each.
    draw : int
        Of the world, see `provlab.provenance.draw`; it is in the seed already.
    """

    name: str
    parameters: dict[str, Any]
    store: Results
    stamp: str | None = None
    started: float = field(default_factory=time.time)
    measurements: dict[str, Any] = field(default_factory=dict)
    studies: dict[str, StudyReport] = field(default_factory=dict)
    judgements: dict[str, ClaimStatus] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    answers: list[str] = field(default_factory=list)
    draw: int = 0

    def require(self, holds: bool, needs: str) -> None:
        """Stop before anything is computed unless the page has what it needs.

        Raises
        ------
        ParameterError
            One line: what the page needs.
        """
        if not holds:
            raise ParameterError(f"{self.name} needs {needs}")

    @property
    def profile(self) -> str:
        """The label under which records are kept, which says what claims ask for."""
        return str(self.parameters.get("profile", "default"))

    @property
    def seed(self) -> int:
        """The seed that every random draw of the notebook derives from."""
        return int(self.parameters.get("seed", 0))

    def study(self, models: Sequence[str], statistics: Sequence[str], **options: Any) -> StudyReport:
        """Run `provlab.study` with this run's seed and store, and bind its records to the run.

        Where a reader gave the models, none may be one that cannot be opened.

        Raises
        ------
        ProvlabError
            As `provlab.study`, and in a reader's run where a model cannot be opened.
        """
        if self.own:
            sources = studying.expand(models)
            studying.train_missing(sources)
            open_models(sources, allow_pickle=options.get("allow_pickle", False), strict=True, in_part=True)
        options = {"seed": self.seed, "store": self.store, **options}
        study = studying.study(models, statistics=statistics, **options)
        study = replace(study, lineage=self.lineage(study.sources))
        self.pairs(study)
        return study

    def held_out(self, text: str) -> str:
        """The text that models read: of a file or an address (`texts`), or without one prose that no zoo model saw.

        Which text it was is measured as ``text``.

        Raises
        ------
        InputError
            It is no text in UTF-8.
        CheckpointError
            The hub has no such data set, or cannot be asked.
        """
        read = texts.read(text) if text else texts.Text("", plugins.default_text() or "")
        self.measure("text", read.record)
        return read.content

    def found(self, result: Found) -> Found:
        """Keep a result's answer, or a sentence: it opens a page about a reader's models. Return the result."""
        self.answers.append(result if isinstance(result, str) else result.card().answer)
        return result

    def lineage(self, models: Sequence[str]) -> Lineage:
        """What is known of the origin of models, by their names and by the file of the parameter ``lineage``.

        Raises
        ------
        InputError
            If the file cannot be read, or says two things of a model.
        """
        return told_lineage(models, self.parameters.get("lineage", ""))

    def pairs(self, study: StudyReport) -> None:
        """Bind a study's records to the run, under the names of its statistics."""
        for statistic in study.statistics:
            self.studies[statistic] = study

    def measure(self, name: str, measurement: Any) -> None:
        """Keep a measurement under a name, for predicates and later pages: plain values, dataclasses and arrays.

        Raises
        ------
        InputError
            If it holds NaN, Inf, or something that JSON cannot hold.
        """
        self.measurements[name] = _kept(name, measurement)

    def judge(self, claim: str, function: Callable[..., ClaimStatus], **records: Any) -> Judgement:
        """Judge a claim here and now, show the judgement, and keep it for the scoreboard.

        Parameters
        ----------
        claim : str
            Its id, as I4. Its row in ``claims.yml`` has the bars, and names the function.
        function : callable
            What judges it, from records as the page holds them.
        **records
            What the function takes, by the names of its parameters, as `measure` keeps it; `pairs` is a study, or
            several.

        Raises
        ------
        InputError
            If the claim belongs to another experiment or function, or a record cannot be kept.
        """
        row = next((row for row in claims.load_claims() if row["id"] == claim), None)
        if row is None or row["experiment"] != self.name or claims.predicate(row) is not function:
            function_of_it = f"{row['experiment']}.predicates.{row['predicate']['name']}" if row else "no function"
            raise InputError(f"claim {claim} is judged by {function_of_it}, not by {function.__name__} in {self.name}")
        arguments = {name: _kept(name, record) for name, record in records.items() if name != "pairs"}
        if "pairs" in records:
            studies = records["pairs"]
            arguments["pairs"] = frame_of(*([studies] if isinstance(studies, StudyReport) else studies))
        judged = claims.verdict(row, arguments, self.profile)
        self.judgements[claim] = claims.status_in(row, self.profile, judged)
        return Judgement(row, judged, claims.bars(row, self.profile), self.profile)

    def shown(
        self,
        table: str,
        rows: Iterable[Row],
        holds: Callable[[Row], Any] = lambda row: True,
        says: Callable[[Row], str] = str,
        *,
        some: bool = False,
    ) -> Shown:
        """What a table that the page shows says of a sentence of its summary.

        Parameters
        ----------
        table : str
            How its caption begins, or the line that stands in its place; a test looks for it on the page.
        rows : iterable
            The records behind it; without any, the sentence was not tried.
        holds : callable
            Whether a row agrees with the sentence, or `UNDECIDED` where it does not say. Left out, the sentence only
            repeats numbers of the table.
        says : callable
            A row in words: a sentence that is denied names those that do not agree.
        some : bool
            One row that agrees is enough.
        """
        return Shown.of(table, rows, holds, says, some=some)

    def summary(self, lead: Truth, *findings: tuple[Truth, str]) -> "PageSummary":
        """Show what the page found: sentences in Markdown, each behind whether this run's records say so.

        A sentence rests on a judgement, on a table of the page (`shown`), or on several, of which all must hold. Where
        the run denies it, what was seen stands behind it. `lead` judges the sentences under the title, as these are
        judged; True where they promise nothing.

        Raises
        ------
        InputError
            If a sentence rests on anything else, as a condition of its own: nobody could see what it was judged from.
        """
        for holds, sentence in (*findings, *([] if lead is True else [(lead, "the lead")])):
            if not founded(holds):
                raise InputError(f"a judgement or a table must say whether this holds, not {holds!r}: {sentence}")
        told = (
            (truth(holds), f"{sentence} Seen: {against}." if (against := seen(holds)) else sentence)
            for holds, sentence in findings
        )
        about = self._about_own()
        return PageSummary(truth(lead), tuple(told), about, seen(lead), self._failing(), self.own)

    def _failing(self) -> tuple[str, ...]:
        """The claims that this page judged and that fail, each with what was seen: no lead stands without them."""
        failing = {claim: status for claim, status in self.judgements.items() if status.status == FAILS}
        return tuple(
            f"Claim {claim} fails: {(status.ours or status.why).partition('; ')[0].rstrip('.')}."
            for claim, status in failing.items()
        )

    def _about_own(self) -> tuple[str, ...] | None:
        """What the studies of a reader's models found, in a sentence or two; None where the models are the study's."""
        if not self.own:
            return None
        studies = {id(study): study for study in self.studies.values()}.values()
        return (*self.answers, *map(in_words, studies))

    def finish(self) -> "Footer":
        """Write the experiment to the store and show its provenance."""
        models = {m["source"]: m for study in self.studies.values() for m in study.models}
        experiment = {
            "name": self.name,
            "profile": self.profile,
            "stamp": self.stamp,
            "parameters": self.parameters,
            "seed": self.seed,
            "draw": self.draw,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.time() - self.started, 1),
            "machine": provenance.processor(),
            "versions": provenance.versions(),
            "commit": provenance.commit(),
            "models": list(models.values()),
            "pairs": [
                {
                    "a": record.a,
                    "b": record.b,
                    "statistic": record.statistic,
                    "dependent": study.lineage.dependent(record.a, record.b),
                    "siblings": study.lineage.siblings(record.a, record.b),
                    "error": record.error,
                    "keys": list(record.keys),
                }
                for statistic, study in self.studies.items()
                for record in study.records
                if record.statistic == statistic
            ],
            "measurements": self.measurements,
            "judgements": {claim: asdict(verdict) for claim, verdict in self.judgements.items()},
        }
        self.store.put_experiment(self.name, experiment)
        return Footer(experiment, claims.evaluate(self.store, self.name))


def _kept(name: str, measurement: Any) -> Any:
    """A measurement as plain values, as its file has it."""
    try:
        return json.loads(json.dumps(measurement, allow_nan=False, default=_plain))
    except (ValueError, TypeError) as error:
        raise InputError(f"measurement {name!r} cannot be kept: {error}") from error


def _plain(value: Any) -> Any:
    """Dataclasses, numpy scalars and arrays as plain Python."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be kept as JSON")
