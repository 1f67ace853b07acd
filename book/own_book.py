"""Make the book in a build folder one about models of a reader's own, where the profile says so (``title``).

Its pages stand first, then what explains the method; a page that was not run says why. The course, and what shows the
study's own results, are left out.
"""

import json
import re
import sys
from pathlib import Path

import nbformat
import yaml

from provlab import provenance
from provlab_study.publishing.listing import on_own_models, title_and_finding
from provlab_study.publishing.plan import Plan
from provlab_study.publishing.results import Results

ROOT = Path(__file__).parents[1]
GLUED = re.compile(r"```\{glue\} \S+\n:doc: experiments/(\w+)\.ipynb\n```")  # what a page shows of a computed one
SECTION = re.compile(r"(experiments/(\w+)\.ipynb)#[\w-]+")  # a link to a section of a page
METHOD = [
    "independence",
    "reading_a_verdict",
    "two_papers",
    "paper_by_section",
    "modeldiff_by_section",
    "how_to_read",
    "test_here",
]
LOOK_UP = ["your_statistic", "glossary", "symbols", "commands", "troubleshooting", "references"]


def assemble(plan: Plan, book: Path, results: Results) -> None:
    """Write front page, contents, and a page for each notebook that the profile does not run."""
    pages = [experiment["notebook"] for experiment in plan.experiments]
    others = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb") if path.stem not in pages)
    for name in others:
        words = nbformat.v4.new_markdown_cell(_not_run(name), id="not-run")  # a notebook, as links have it
        nbformat.write(nbformat.v4.new_notebook(cells=[words]), book / "experiments" / f"{name}.ipynb")
    for page in book.glob("*.md"):
        text = GLUED.sub(lambda glued: glued[0] if glued[1] in pages else "", page.read_text(encoding="utf-8"))
        kept = SECTION.sub(lambda link: link[0] if link[2] in pages else link[1], text)
        page.write_text(kept, encoding="utf-8")
    (book / "index.md").write_text(_front(plan, book, results), encoding="utf-8")
    parts = {
        "Your models": [f"experiments/{name}" for name in pages],
        "How it is tested": METHOD,
        "Look up": LOOK_UP,
        "Not run on these models": [f"experiments/{name}" for name in others],
    }
    toc = {
        "format": "jb-book",
        "root": "index",
        "parts": [
            {"caption": caption, "chapters": [{"file": file} for file in files]} for caption, files in parts.items()
        ],
    }
    (book / "_toc.yml").write_text(yaml.safe_dump(toc, sort_keys=False), encoding="utf-8")
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8")) | {"title": plan.title}
    local = config["sphinx"]["local_extensions"]  # beside the study's settings, and not beside these
    config["sphinx"]["config"]["moved_pages"] = {}  # of the study's book
    config["sphinx"]["local_extensions"] = {name: str(ROOT / folder) for name, folder in local.items()}
    (book / "_config.yml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")


def _not_run(name: str) -> str:
    """A page in place of one that the profile does not run."""
    path = ROOT / "notebooks" / f"{name}.ipynb"
    title, finding = title_and_finding(path)
    _, why = on_own_models(path)
    return (
        "\n\n".join(filter(None, [f"# {title}", "*Not run on these models.*", why, f"In the study: {finding}"])) + "\n"
    )


def _front(plan: Plan, book: Path, results: Results) -> str:
    """The front page: what each page found, which models they were, and how the pages were made."""
    findings, models, made = [], {}, []
    for experiment in plan.experiments:
        name = experiment["notebook"]
        page = nbformat.read(book / "experiments" / f"{name}.ipynb", as_version=4)
        title, found, *_ = [*page.cells[0].source.split("\n\n"), ""]
        findings.append(f"**[{title.lstrip('# ')}](experiments/{name}.ipynb).** {found}")
        record = results.experiment(name)
        if record:
            models |= {model["source"]: model for model in record["models"]}
            made.append(record)
    own = {path.name for path in map(Path, _given(plan))} | set(_given(plan))
    rows = [
        f"| `{source}{'@' if model['commit'] else ''}{(model['commit'] or '')[:12]}` | `{model['digest'][:16]}` |"
        for source, model in models.items()
        if source in own
    ]
    table = "\n".join(["| model | SHA-256 of its files |", "|---|---|", *rows]) if rows else ""
    last = max(made, key=lambda record: record["finished"], default=None)
    how = (
        f"Computed until {last['finished']} on {last['machine']}, by provlab at commit {last['commit'] or 'unknown'}, "
        f"in {sum(record['seconds'] for record in made) / 60:.1f} minutes. "
        f"Versions: {', '.join(f'{name} {version}' for name, version in last['versions'].items())}."
        if last
        else ""
    )
    asked = json.dumps({e["notebook"]: e.get("parameters", {}) for e in plan.experiments}, indent=1, ensure_ascii=False)
    return (
        "\n\n".join(
            filter(
                None,
                [
                    f"# {plan.title}",
                    "What the tests of *provlab* say of these models. Each page says what it assumes, and what it does "
                    "not show; "
                    "[how to read a verdict](reading_a_verdict.md) explains the words.",
                    "## What was found",
                    *findings,
                    "## The models",
                    table,
                    "## How it was made",
                    how,
                    f":::{{dropdown}} What each page was given\n```json\n{asked}\n```\n:::",
                ],
            )
        )
        + "\n"
    )


def _given(plan: Plan) -> list[str]:
    """All texts among the parameters of the pages."""
    values = [value for e in plan.experiments for value in e.get("parameters", {}).values()]
    return [
        text for value in values for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)
    ]


def main(profile: Path, build: Path) -> None:
    """Change the book below `build`, unless the profile is one of the study's."""
    if not (yaml.safe_load(profile.read_text(encoding="utf-8")) or {}).get("title"):
        return
    plan = Plan.read(profile)
    assemble(plan, build / "book", Results(provenance.results_root() / plan.profile))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
