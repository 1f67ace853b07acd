"""The papers' tables, read from their files."""

import csv
from functools import cache
from importlib import resources

from provlab.errors import ParameterError

PUBLISHED = resources.files("provlab_study.publishing") / "published"


@cache
def published_table(name: str) -> list[dict[str, str]]:
    """Rows of one of the papers' tables, as copied into ``published/<name>.csv``."""
    text = (PUBLISHED / f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def scalar(quantity: str, table: str = "independence_scalars") -> str:
    """Value that one of the papers gives for a quantity, as copied into ``published/<table>.csv``.

    Raises
    ------
    ParameterError
        If no row has this quantity, or several do.
    """
    values = [row["value"] for row in published_table(table) if row["quantity"] == quantity]
    if len(values) != 1:
        raise ParameterError(f"published/{table}.csv has {len(values)} rows for {quantity!r}, not one")
    return values[0]
