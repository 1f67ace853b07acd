"""Where pages with a reader's parameters stand: each under a name of its own, with an index beside them."""

import json
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from provlab.files import atomic_file, digest
from provlab.report.lineage import short_name
from provlab_study.publishing.declared import Parameter, given, model_names

LONGEST = 80  # letters of a page's name, without its hash


def page_name(notebook: str, declared: Mapping[str, Parameter], values: Mapping[str, Any]) -> str:
    """Name of the file of a page with these parameters: what differs from the notebook's own, and a hash of it."""
    differs = {name: values[name] for name in given(declared, values) if name != "profile"}
    if not differs:
        return f"{notebook}.ipynb"
    words = [
        "+".join(map(short_name, model_names([value]))) if declared[name].takes_models else f"{name}={value}"
        for name, value in differs.items()
    ]
    text = re.sub(r"[^A-Za-z0-9._+=-]+", "-", "-".join([notebook, *words]))[:LONGEST].strip("-.")
    return f"{text}-{digest(differs)[:6]}.ipynb"


def write_index(folder: Path) -> Path:
    """Write ``index.html`` beside the finished pages of a folder: what each was asked, and what it found.

    Returns
    -------
    Path
        The index.
    """
    rows = []
    for page in sorted(folder.glob("*.ipynb"), key=lambda page: -page.stat().st_mtime):
        if page.name.endswith(".failed.ipynb"):
            continue
        try:
            content = json.loads(page.read_text(encoding="utf-8"))
            title, found, *_ = [*"".join(content["cells"][0]["source"]).split("\n\n"), ""]
            asked = content["metadata"]["provlab"]["given"]
        except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError):
            continue  # none that `provlab run` wrote
        settings = "; ".join(f"{name} = {value}" for name, value in asked.items() if name != "profile")
        cells = (title.lstrip("# "), settings or "as the notebook has them", re.sub("[*`$]", "", found))
        link = f'<a href="{escape(page.name)}">{escape(cells[0])}</a>'
        rows.append(f"<tr><td>{link}</td><td>{escape(cells[1])}</td><td>{escape(cells[2])}</td></tr>")
    head = "<tr><th>page</th><th>its parameters</th><th>what it found</th></tr>"
    with atomic_file(index := folder / "index.html") as temporary:
        temporary.write_text(
            "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Pages of your own</title>"
            "<meta name='viewport' content='width=device-width'><style>body{font:15px/1.5 sans-serif;max-width:70em;"
            "margin:2em auto;padding:0 1em}td,th{text-align:left;vertical-align:top;padding:.3em 1em .3em 0;"
            "border-bottom:1px solid #ddd;overflow-wrap:anywhere}</style></head><body><h1>Pages of your own</h1>"
            f"<p>{len(rows)} {'page' if len(rows) == 1 else 'pages'}, the newest first. JupyterLab opens them.</p>"
            f"<table>{head}{''.join(rows)}</table></body></html>\n",
            encoding="utf-8",
        )
    return index
