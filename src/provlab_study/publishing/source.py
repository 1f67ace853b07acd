"""What a page says before it runs: its code, the zoo models that it names, the cells that judge a claim."""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from provlab import zoo
from provlab.zoo.recipes import Recipe, collection

CHAPTERS = Path(str(resources.files("provlab_study")))
# a zoo model, all of the tree, or the beginning of names that are put together ("zoo:null-{n:02d}")
_ZOO_NAME = re.compile(r"zoo:([a-z0-9-]+|\*)(\{?)")


def code_of(notebook: Mapping[str, Any]) -> str:
    """Code of all cells."""
    return "\n".join(_code_cells(notebook))


def _code_cells(notebook: Mapping[str, Any]) -> list[str]:
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


@cache
def _read(path: Path, _changed: int) -> dict[str, Any]:
    """Read a notebook that has not changed since, without nbformat, whose validator takes longer than all the rest."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def judging(path: Path, claim: str) -> list[str]:
    """Cells of a notebook that judge a claim: what they hand to its predicate is part of its rule."""
    call = re.compile(rf"""\bjudge\(\s*["']{claim}["']""")
    return [cell for cell in _code_cells(_read(path, path.stat().st_mtime_ns)) if call.search(cell)]


def zoo_models(path: Path, parameters: Mapping[str, Any], recipes: Mapping[str, Recipe]) -> set[str]:
    """Models of the zoo that a notebook names, in its parameters, its cells, or its chapter's code."""
    sources = [code.read_text(encoding="utf-8") for code in (CHAPTERS / path.stem).glob("*.py")]
    text = "\n".join([json.dumps(dict(parameters)), code_of(_read(path, path.stat().st_mtime_ns)), *sources])
    models: set[str] = set()
    for name, continued in _ZOO_NAME.findall(text):
        if name == "*":
            models.update(collection(zoo.TREE, recipes))
        elif continued or name.endswith("-"):
            models.update(recipe for recipe in recipes if recipe.startswith(name))
        elif name in recipes:
            models.add(name)
    return models
