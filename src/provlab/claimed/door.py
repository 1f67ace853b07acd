"""Claims by others as a question: `check` judges each by the tests that there are, corrected over all of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from provlab import plugins
from provlab.claimed import reading
from provlab.claimed.evidence import Evidence, corrected, over_the_file, smallest
from provlab.claimed.kinds import ITEMS, PAIRS, TREE, Claim, judged
from provlab.claimed.result import Checked, Judged
from provlab.engine.pairs import train_missing
from provlab.engine.store import Store
from provlab.errors import InputError
from provlab.report.family import FamilyOfTests
from provlab.report.outcome import PairEvidence
from provlab.report.records import describe
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.studying import study

__all__ = ["check"]


def check(
    claims: str | Path | Mapping[str, str | Sequence[str]],
    *,
    card: bool = False,
    text: str | None = None,
    store: Store | None = None,
    allow_pickle: bool = False,
    progress: float = True,
    **settings: object,
) -> Checked:
    """Judge what somebody says of models.

    Parameters
    ----------
    claims : path, or mapping
        A file of YAML, or what it holds: model -> its claims, each a line such as ``independent of B``, ``tuned from
        B``, ``merge of A and B``, ``pruned from B``, ``quantized from B``, ``same weights as SHA256`` or ``answers as
        B does on ITEMS.jsonl``.
    card : bool
        `claims` is the folder of a model, and what its card names as ``base_model`` is judged.
    text, store, allow_pickle, progress, settings
        As for `provlab.study`.

    Returns
    -------
    Checked
        Each claim with its outcome: supported, not refuted (which is the most that independence can be), refuted or not
        testable. All tests are corrected over the questions of the file (Holm), each first over its own tests.

    Raises
    ------
    ProvlabError
        A claim cannot be read, or a model in it cannot be opened; the message names the way out.
    """
    made = reading.of_card(str(claims)) if card else _read(claims)
    items = {name: _items(name) for name in dict.fromkeys(claim.items for claim in made) if name}
    for claim in made:
        if claim.model in claim.bases:
            raise InputError(f"{claim.line!r} is said of {claim.model} itself; name another model")
    sources = list(dict.fromkeys(source for claim in made for source in (claim.model, *claim.bases)))
    options = Options(**settings)  # type: ignore[arg-type]  # refuses what is none before any model is opened
    train_missing(sources)
    models = {source: Model.open(source, allow_pickle=allow_pickle) for source in sources}

    how: dict[str, Any] = {"allow_pickle": allow_pickle, "progress": progress, **settings}
    asked = [(claim.model, base) for claim in made if PAIRS in claim.kind.asks for base in claim.bases]
    pairs = _pairs(list(dict.fromkeys(asked)), text=text, store=store, **how)
    answered = {
        key: _answered(*key[:2], items[key[2]], options, allow_pickle, progress)
        for key in dict.fromkeys((c.bases[0], c.model, c.items) for c in made if ITEMS in c.kind.asks)
    }

    p = [*map(smallest, pairs.values()), *(min(paired.log10_p, 0.0) for paired in answered.values())]
    factors = dict(zip([*pairs, *answered], over_the_file(p), strict=True)) if p else {}
    pairs = {key: corrected(pair, factors[key]) for key, pair in pairs.items()}
    named, found = "the card" if card else "the file", []
    for claim in made:
        own = {base: pairs[claim.model, base] for base in claim.bases if PAIRS in claim.kind.asks}
        evidence = Evidence(claim, models, own)
        if TREE in claim.kind.asks and evidence.kin and not (evidence.identical or evidence.same):
            evidence = Evidence(claim, models, own, _edges(claim, store=store, **how))
        if ITEMS in claim.kind.asks:
            key = (claim.bases[0], claim.model, claim.items)
            paired, factor = answered[key], factors[key][0]
            both = (min(paired.log10_p, 0.0) + factor, paired.log10_least + factor)
            evidence = Evidence(claim, models, own, answered=(paired, *both))
        found.append(Judged(evidence, judged(claim.kind, evidence.holds), len(factors), named))
    return Checked(
        tuple(found), tuple(describe(source, model.checkpoint) for source, model in models.items()), named, options
    )


def _read(claims: str | Path | Mapping[str, str | Sequence[str]]) -> list[Claim]:
    if isinstance(claims, Mapping):
        return reading.of_lines({model: [*([c] if isinstance(c, str) else c)] for model, c in claims.items()})
    return reading.of_text(_text(claims))


def _text(path: str | Path, what: str = "claims") -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
        raise InputError(f"{path} {reason}; give a file of {what}") from error


def _items(path: str) -> list[dict[str, Any]]:
    if (door := plugins.door("diff")) is None:
        raise InputError("answers are compared by provlab diff, which is not installed; install provlab again")
    try:
        rows: list[dict[str, Any]] = door.items_of(_text(path, "items"))
    except InputError as error:
        raise InputError(f"{path}: {error}" if path not in str(error) else str(error)) from error
    return rows


def _answered(
    base: str, model: str, items: list[dict[str, Any]], options: Options, allow_pickle: bool, progress: float
) -> Any:
    how = {"seed": options.seed, "device": options.device, "dtype": options.dtype, "allow_pickle": allow_pickle}
    return plugins.door("diff").answers(base, model, items, progress=progress, **how)


def _pairs(asked: list[tuple[str, str]], **how: Any) -> dict[tuple[str, str], PairEvidence]:
    """What the usual tests say of each pair, corrected over the tests of that pair alone."""
    if not asked:
        return {}
    report = study(list(dict.fromkeys(source for pair in asked for source in pair)), pairs=asked, **how)
    about = {model["source"]: model for model in report.models}
    found = {}
    for pair in asked:
        records = [record for record in report.records if (record.a, record.b) == pair]
        family = FamilyOfTests.of(records, None, fdr=False)
        found[pair] = PairEvidence.of(records, [about[source] for source in pair], family, range(len(records)))
    return found


def _edges(claim: Claim, **how: Any) -> list[dict[str, Any]]:
    """Edges of the tree of a model and its bases, as its JSON has them; none where trees are not installed."""
    if (door := plugins.door("tree")) is None:
        return []
    forest = door.tree([claim.model, *claim.bases], **how).to_json()
    return [edge for family in forest["families"] for edge in family["edges"]]
