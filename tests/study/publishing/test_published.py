"""The papers' tables as they were copied."""

import pytest

from provlab.errors import ParameterError
from provlab_study.publishing.published import PUBLISHED, published_table, scalar


def test_a_published_scalar_is_one_cell():
    assert scalar("independent pairs") == "141"
    with pytest.raises(ParameterError, match="0 rows for 'indepedent pairs'"):
        scalar("indepedent pairs")


def test_no_published_table_is_damaged():
    for path in PUBLISHED.iterdir():
        rows = published_table(path.name.removesuffix(".csv"))
        assert rows, path
        assert all(None not in line and None not in line.values() for line in rows), path
