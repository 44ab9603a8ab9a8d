"""Arrow tables as sources: every kind of column that has values of the language, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.session import Session

COLUMNS = {
    "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "large": pa.array(["a", "b", "c"], pa.large_string()),
    "view": pa.array(["a", "b", "c"], pa.string_view()),
    "unsigned": pa.array([1, 2, 2**32 - 1], pa.uint32()),
    "half": pa.array([1.0, 2.0, None], pa.float64()).cast(pa.float16()),
    "date": pa.array([0, 86_400_000, None], pa.int64()).cast(pa.date64()),
    "nothing": pa.nulls(3),
    "bytes": pa.array([b"a", b"b", None], pa.large_binary()),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_kinds_of_columns(kind: str) -> None:
    session = Session()
    session.stream("S", pa.table({"ts": [1, 2, 3], "c": COLUMNS[kind]}), timestamp="ts")
    session.declare("CREATE QUERY q AS SELECT c, COUNT(*) AS n FROM S GROUP BY c;")
    assert "rows" in session.explain("q", analyze=True)


@pytest.mark.parametrize("column", [pa.array([1], pa.uint64()), pa.array([[1]]), pa.array([1], pa.duration("s"))])
def test_kinds_that_are_none(column: pa.Array) -> None:
    with pytest.raises(PenstockError) as refused:
        Session().relation("R", pa.table({"c": column}))
    assert refused.value.code == "P0203" and "R.c" in refused.value.message


def test_something_else_altogether() -> None:
    anything: Any = {"c": [1]}
    with pytest.raises(
        PenstockError, match="expected a frame of Spark, pandas or Polars, or an Arrow table"
    ) as refused:
        Session().relation("R", anything)
    assert refused.value.hint == "pandas.DataFrame(rows) makes one of rows"
