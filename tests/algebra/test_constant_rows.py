"""Rows of queries over constants: against DuckDB, and against the runtime that answers the same as one-time queries."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import duckdb
import pytest

from penstock.errors import PenstockError
from penstock.language.catalog import Catalog
from penstock.language.scripts import bind_script, bind_select
from penstock.runtime.local.one_time import answer_over

_VALUES = ("NULL", "0", "1", "2", "-3", "9223372036854775807")
_NUMBERS = ("NULL", "CAST('NaN' AS DOUBLE)", "CAST(0 AS DOUBLE)", "-CAST(0 AS DOUBLE)", "CAST(2.5 AS DOUBLE)")


def _leaf(draw: random.Random) -> str:
    if draw.random() < 0.3:
        start, stop = draw.randint(-2, 2), draw.randint(-2, 6)
        return f"SELECT n AS a, CAST(n % 3 AS DOUBLE) AS b FROM range({start}, {stop}) AS t (n)"
    rows = [f"({draw.choice(_VALUES)}, {draw.choice(_NUMBERS)})" for _ in range(draw.randint(1, 6))]
    typed = f"(CAST({draw.choice(_VALUES)} AS BIGINT), CAST({draw.choice(_NUMBERS)} AS DOUBLE))"
    return f"SELECT a, b FROM (VALUES {', '.join([typed, *rows])}) AS t (a, b)"


def _query(draw: random.Random, depth: int) -> str:
    if not depth:
        return _leaf(draw)
    kind = draw.choice(("set", "set", "where", "distinct", "first", "item"))
    below = _query(draw, depth - 1)
    if kind == "set":
        word = draw.choice(("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"))
        return f"SELECT a, b FROM ({below}) AS l {word} SELECT a, b FROM ({_query(draw, depth - 1)}) AS r"
    if kind == "where":
        return f"SELECT a, b FROM ({below}) AS t WHERE {draw.choice(('a > 0', 'b IS NULL', 'a IS NOT NULL AND b = 0'))}"
    if kind == "distinct":
        return f"SELECT DISTINCT a, b FROM ({below}) AS t"
    if kind == "item":
        return f"SELECT COALESCE(a, 7) AS a, b * 2 AS b FROM ({below}) AS t"
    order = "a NULLS LAST, b DESC NULLS FIRST" if draw.random() < 0.5 else "b NULLS FIRST, a DESC NULLS LAST"
    return f"SELECT a, b FROM ({below}) AS t ORDER BY {order} LIMIT {draw.randint(0, 4)} OFFSET {draw.randint(0, 2)}"


def _bag(rows: Iterable[tuple[object, ...]]) -> Counter[tuple[str, ...]]:
    """Count rows, with -0.0 as 0.0: which of the two is kept of equal rows is not said."""
    return Counter(tuple(repr(v + 0.0 if isinstance(v, float) else v) for v in row) for row in rows)


def _rows(text: str, columns: str = "a BIGINT, b DOUBLE") -> list[tuple[object, ...]]:
    bound = bind_script(f"CREATE RELATION m ({columns}) FROM MEMORY (); INSERT INTO m {text}")
    return list(bound.catalog.memory["m"])  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(60))
def test_rows_are_those_of_duckdb_and_of_the_runtime(seed: int) -> None:
    draw = random.Random(seed)
    for number in range(6):
        text = _query(draw, draw.randint(0, 4))
        found = _bag(_rows(text))
        assert found == _bag(duckdb.sql(text).fetchall()), text
        if not number:
            answer = answer_over(bind_select(text, Catalog()).query, {}).table
            assert found == _bag(zip(*answer.to_pydict().values(), strict=True)), text


def test_a_view_that_is_read_often_is_computed_once() -> None:
    views = [f"v{i} AS (SELECT n FROM v{i - 1} UNION ALL SELECT n FROM v{i - 1})" for i in range(1, 18)]
    text = f"WITH v0 AS (SELECT range AS n FROM range(0)), {', '.join(views)} SELECT n, n FROM v17"
    assert _rows(text) == []
    with pytest.raises(PenstockError, match="131,072 rows, 100,000 are the limit"):
        _rows(text.replace("range(0)", "range(1)"))


def test_order_of_rows_and_times_beyond_those_of_python() -> None:
    values = "(TIMESTAMP_SECONDS(9000000000000)), (NULL), (TIMESTAMP '2024-01-01')"
    text = f"SELECT a FROM (VALUES {values}) AS t (a) ORDER BY a"
    first, second, third = _rows(text, "a TIMESTAMP")
    assert (first, third) == ((None,), (9_000_000_000_000_000_000,))
    assert _rows(f"{text} DESC LIMIT 2", "a TIMESTAMP") == [third, second]
    numbers = "SELECT a FROM (VALUES (CAST('NaN' AS DOUBLE)), (1.0), (NULL), (-2.0)) AS t (a) ORDER BY a"
    assert repr(_rows(f"{numbers} DESC NULLS FIRST", "a DOUBLE")) == "[(None,), (nan,), (1.0,), (-2.0,)]"
    assert repr(_rows(f"{numbers} NULLS LAST", "a DOUBLE")) == "[(-2.0,), (1.0,), (nan,), (None,)]"
    assert _rows("SELECT n FROM range(5) AS t (n) ORDER BY n % 2 DESC, n", "a INT") == [(1,), (3,), (0,), (2,), (4,)]


def test_what_has_to_run_is_told() -> None:
    for text in ("SELECT COUNT(*)", "SELECT 1 FROM range(2) AS x, range(2) AS y", "SELECT 1 IN (VALUES (1))"):
        with pytest.raises(PenstockError, match="P0901"):
            _rows(text, "a BIGINT")
