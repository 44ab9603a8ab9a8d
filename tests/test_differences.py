"""Every line of docs/differences.md: what a query answers here and what DuckDB answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from penstock.language.scripts import bind_query, bind_script
from penstock.testing.oracle import run_oracle
from tests.plain_sql import rows_at

PAGE = (Path(__file__).parents[1] / "docs" / "differences.md").read_text(encoding="utf-8")
LINES = re.findall(r"^\| `(.+?)` \| (.+?) \| (.+?) \| .+ \|$", PAGE, re.MULTILINE)
#: The tables of the page.
TABLES = {
    "t": pa.table(
        {
            "k": pa.array([1, 1, 2], pa.int32()),
            "v": pa.array([10, 20, None], pa.int32()),
            "name": ["one", "two", "three"],
        }
    )
}
CATALOG = bind_script("CREATE RELATION t (k INT, v INT, name STRING) FROM MEMORY ();").catalog


def shown(rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as the page has them, sorted."""
    texts = sorted("(" + ", ".join("NULL" if v is None else str(v) for v in row) + ")" for row in rows)
    return f"`{' '.join(texts)}`" if texts else "none"


def test_the_page_has_lines() -> None:
    assert len(LINES) == PAGE.count("\n| `")


@pytest.mark.parametrize(("query", "here", "there"), LINES, ids=[line[0] for line in LINES])
def test_difference(query: str, here: str, there: str) -> None:
    query = query.replace("\\|", "|")
    assert shown(rows_at(run_oracle(bind_query(query, CATALOG), TABLES), 0)) == here
    database = duckdb.connect()
    for script in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL):
        database.execute(script)
    assert shown(database.execute(query).fetchall()) == there
    assert here != there
