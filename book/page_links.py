"""Buttons of a computed page: its notebook where it can be run, and the records that it was made from.

A Sphinx extension of the HTML book. The notebook is that of the repository whose address stands in ``_config.yml``
(``repository_address``), not the executed one; without an address there are no such buttons.
"""

import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sphinx.application import Sphinx
from sphinx.util import logging

BINDER = "https://mybinder.org/v2/gh"
COLAB = "https://colab.research.google.com/github"
ADDRESS = re.compile(r"https://github\.com/(?P<repository>[\w.-]+/[\w.-]+?)(?:\.git)?/?")
FOLDER = "experiments/"  # of the computed pages
RECORDS = "records"  # folder of the assembled book with one JSON a page; see the Makefile


def places(address: str, branch: str, name: str) -> list[tuple[str, str, str]]:
    """Name, explanation and address of each place where a notebook opens.

    Raises
    ------
    ValueError
        In one line, if the address is none of a repository on GitHub, from where Binder and Colab read.
    """
    if (match := ADDRESS.fullmatch(address)) is None:
        raise ValueError(f"repository_address in _config.yml is {address!r}, no https://github.com/OWNER/NAME")
    repository, path = match["repository"], f"notebooks/{name}.ipynb"
    project = f"git+https://github.com/{repository}@{branch}"
    binder = f"{BINDER}/{repository}/{quote(branch, safe='')}?urlpath="
    return [
        ("JupyterLab", "Open in JupyterLab, on mybinder.org", binder + quote(f"lab/tree/{path}", safe="")),
        ("Binder", "Open as a plain notebook, on mybinder.org", binder + quote(f"notebooks/{path}", safe="")),
        (
            "Colab",
            f"Open in Colab; there run first: %pip install {project} {project}#subdirectory=src/provlab_study",
            f"{COLAB}/{repository}/blob/{quote(branch)}/{path}",
        ),
    ]


def add_buttons(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Put the buttons of a computed page beside those that the theme has made."""
    name = pagename.removeprefix(FOLDER)
    if doctree is None or name == pagename:
        return
    groups = {button.get("label"): button for button in context["header_buttons"]}
    records = Path(app.srcdir) / RECORDS / f"{name}.json"
    if records.is_file() and "download-buttons" in groups:
        target = Path(app.outdir) / "_sources" / FOLDER / records.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(records, target)
        url = f"{context['pathto']('_sources', 1)}/{FOLDER}{records.name}"
        groups["download-buttons"]["buttons"].insert(1, _link(".json", "Download the records of this page", url))
    if address := app.config.repository_address:
        buttons = [_link(*place) for place in places(address, app.config.repository_branch, name)]
        context["header_buttons"].insert(
            0,
            {
                "type": "group",
                "label": "launch-buttons",
                "tooltip": "Run this page's notebook",
                "icon": "fas fa-rocket",
                "buttons": buttons,
            },
        )


def _link(text: str, tooltip: str, url: str) -> dict[str, str]:
    icon = "fas fa-database" if text == ".json" else "fas fa-play"
    return {
        "type": "link",
        "text": text,
        "tooltip": tooltip,
        "url": url,
        "icon": icon,
        "label": f"open-{text.strip('.')}",
    }


def check_address(app: Sphinx, config: Any) -> None:
    """Warn once of an address that is none, and go on without it; the book is built with warnings as errors."""
    try:
        if config.repository_address:
            places(config.repository_address, config.repository_branch, "")
    except ValueError as error:
        logging.getLogger(__name__).warning("%s", error)
        config.repository_address = ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Enter the settings and the buttons, after the theme's own (priorities 500 and 501)."""
    app.add_config_value("repository_address", "", "html", str)
    app.add_config_value("repository_branch", "main", "html", str)
    app.connect("config-inited", check_address)
    app.connect("html-page-context", add_buttons, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
