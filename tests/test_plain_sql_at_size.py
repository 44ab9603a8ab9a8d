"""Plain SQL over relations of thousands of rows, on the local runtime and in DuckDB: every kind of join, set operation
and subquery, over keys that are unique, come often, or are missing. The oracle would take hours."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from penstock.testing.cases import CaseRun
from penstock.testing.compare import events_of
from penstock.testing.oracle import Answer
from tests.plain_sql import Asked, Relation, Suite, Way, assert_rows, rows_at

SOME, MANY = 1200, 5000
COLUMNS = "id INT, k INT, f INT, s STRING, d DOUBLE, m DECIMAL(9,2), v BIGINT"
#: f is a key that few rows share, k one that many do, s, d and m hold values of other types; id is unique.
QUERIES = (
    "SELECT l.id, r.id AS o FROM l JOIN r ON l.f = r.f",
    "SELECT l.id, r.id AS o FROM l LEFT JOIN r ON l.f = r.f",
    "SELECT l.id, r.id AS o FROM l RIGHT JOIN r ON l.f = r.f AND l.v < r.v",
    "SELECT l.id, r.id AS o FROM l FULL JOIN r ON l.f = r.f",
    "SELECT l.id, r.id AS o FROM l FULL JOIN r ON l.f = r.f AND l.v < r.v AND l.k > 3",
    "SELECT l.id, r.id AS o FROM l JOIN r ON l.s = r.s AND l.k = r.k",
    "SELECT l.id, r.id AS o FROM l LEFT JOIN r ON l.d = r.d AND l.id < r.id AND r.k = 2",
    "SELECT l.id, r.id AS o FROM l JOIN r ON l.m = r.m AND l.f = r.f",
    "SELECT l.id FROM l WHERE f IN (SELECT f FROM r)",
    "SELECT l.id FROM l WHERE f NOT IN (SELECT f FROM r WHERE f IS NOT NULL)",
    "SELECT l.id FROM l WHERE f NOT IN (SELECT f FROM r WHERE r.k = l.k)",
    "SELECT l.id FROM l WHERE f NOT IN (SELECT f FROM r)",
    "SELECT l.id FROM l WHERE f <> ALL (SELECT f FROM r WHERE r.v < l.v)",
    "SELECT l.id, NOT (f = ANY (SELECT f FROM r)) AS n FROM l",
    "SELECT l.id FROM l WHERE (k, f) NOT IN (SELECT k, f FROM r)",
    "SELECT l.id FROM l WHERE (f, s) NOT IN (SELECT f, s FROM r WHERE r.k = l.k)",
    "SELECT l.id, (f, s, d) IN (SELECT f, s, d FROM r) AS i FROM l",
    "SELECT l.id FROM l WHERE (k, f, s, d) NOT IN (SELECT k, f, s, d FROM r WHERE k IS NOT NULL)",
    "SELECT l.id, r.id AS o FROM l JOIN r ON l.f IS NOT DISTINCT FROM r.f",
    "SELECT l.id, r.id AS o FROM l LEFT JOIN r ON l.f IS NOT DISTINCT FROM r.f AND l.s IS NOT DISTINCT FROM r.s",
    "SELECT l.id, r.id AS o FROM l FULL JOIN r ON l.d IS NOT DISTINCT FROM r.d AND l.f = r.f",
    "SELECT l.id FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.m IS NOT DISTINCT FROM l.m AND r.f IS NOT DISTINCT FROM "
    "l.f)",
    "SELECT l.id FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.f IS NOT DISTINCT FROM l.f AND r.v > l.v)",
    "SELECT a.id, b.id AS o, c.id AS t FROM l AS a, r AS b, l AS c WHERE a.f IS NOT DISTINCT FROM b.f AND b.f "
    "IS NOT DISTINCT FROM c.f AND a.id < c.id",
    "SELECT l.id, r.id AS o FROM l JOIN r ON l.f = r.f OR (l.f IS NULL AND r.f IS NULL)",
    "SELECT l.id, r.id AS o FROM l JOIN r ON (l.f = r.f AND l.k > 3) OR (l.f = r.f AND r.k < 2)",
    "SELECT l.id FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.f = l.f AND r.v > l.v)",
    "SELECT l.id FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.f = l.f AND r.s = l.s)",
    "SELECT l.id, (SELECT COUNT(*) FROM r WHERE r.f = l.f) AS n FROM l",
    "SELECT l.id, (SELECT MAX(v) FROM r WHERE r.k = l.k) AS n FROM l WHERE l.k IS NOT NULL",
    "SELECT l.id FROM l WHERE v >= ALL (SELECT v FROM r WHERE r.f = l.f)",
    "SELECT k, COUNT(*) AS n, SUM(v) AS t, MIN(s) AS a, MAX(d) AS b, AVG(v) AS c FROM l GROUP BY k",
    "SELECT f, COUNT(DISTINCT s) AS n, SUM(m) AS t, MEDIAN(v) AS e FROM l GROUP BY f HAVING COUNT(*) > 1",
    "SELECT d, COUNT(*) AS n FROM l GROUP BY d",
    "SELECT DISTINCT f, s FROM l",
    "SELECT f, k FROM l EXCEPT SELECT f, k FROM r",
    "SELECT f FROM l EXCEPT ALL SELECT f FROM r",
    "SELECT f, k FROM l INTERSECT SELECT f, k FROM r",
    "SELECT s, d FROM l INTERSECT ALL SELECT s, d FROM r",
    "SELECT f FROM l UNION SELECT f FROM r",
    "SELECT id, v FROM l ORDER BY v DESC NULLS LAST, id LIMIT 300 OFFSET 20",
    "SELECT l.k, COUNT(*) AS n, SUM(r.v) AS t FROM l JOIN r ON l.f = r.f GROUP BY l.k",
    "SELECT q.k, q.n, r.id FROM (SELECT k, f, COUNT(*) AS n FROM l GROUP BY k, f) AS q LEFT JOIN r ON q.f = r.f AND "
    "q.n > 1",
    "SELECT a.id, b.id AS o, c.id AS t FROM l AS a, r AS b, l AS c WHERE a.f = b.f AND b.f = c.f AND a.id < c.id",
    "SELECT l.id, d.v FROM l, LATERAL (SELECT v FROM r WHERE r.f = l.f ORDER BY v NULLS LAST, id LIMIT 1) AS d",
)
#: Without an equality; not all of them over what is static, and with fewer rows.
RANGES = (
    "SELECT l.id, r.id AS o FROM l JOIN r ON r.v BETWEEN l.v - 30 AND l.v + 30",
    "SELECT l.id, r.id AS o FROM l LEFT JOIN r ON r.v > l.v AND r.v < l.v + 20",
    "SELECT l.id, r.id AS o FROM l FULL JOIN r ON r.v >= l.v - 10 AND r.v <= l.v AND r.k = l.k",
    "SELECT l.id FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.v < l.v AND r.v > l.v - 10)",
    "SELECT l.id FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.v <= l.v AND r.v > l.v - 25)",
    "SELECT l.id FROM l WHERE v > ANY (SELECT v FROM r WHERE r.k = 3)",
    "SELECT l.id FROM l WHERE v <= ALL (SELECT v FROM r WHERE v > 9000)",
    "SELECT l.id, r.id AS o FROM l JOIN r ON l.d < r.d AND l.f = r.f",
)


def values(draw: random.Random, count: int) -> dict[str, list[Any]]:
    def some(missing: float, made: Callable[[], Any]) -> list[Any]:
        return [None if draw.random() < missing else made() for _ in range(count)]

    doubles = (0.0, -0.0, float("nan"), float("inf"), -float("inf"), 5e-324)
    return {
        "id": list(range(count)),
        "k": some(0.1, lambda: min(int(draw.expovariate(0.3)), 12)),
        "f": some(0.05, lambda: draw.randint(0, count)),
        "s": some(0.1, lambda: draw.choice(("", "a", "A", "é", "𝄞")) + str(draw.randint(0, count // 8))),
        "d": some(0.1, lambda: draw.choice(doubles) if draw.random() < 0.05 else draw.randint(0, count * 2) / 8),
        "m": some(0.1, lambda: Decimal(draw.randint(-count * 4, count * 4)).scaleb(-2)),
        "v": some(0.05, lambda: draw.randint(-10_000, 10_000)),
    }


@cache
def suite(count: int, seed: int) -> Suite:
    draw = random.Random(seed)
    found = Suite(f"size{count}", [Relation(name, COLUMNS, [], draw.random() < 0.3) for name in "lr"])
    schema = pa.schema([
        ("id", pa.int32()), ("k", pa.int32()), ("f", pa.int32()), ("s", pa.string()), ("d", pa.float64()),
        ("m", pa.decimal128(9, 2)), ("v", pa.int64()),
    ])  # fmt: skip
    found.tables = {name: pa.table(values(draw, draw.randint(count // 2, count)), schema=schema) for name in "lr"}
    return found


def check(text: str, way: Way, count: int, seed: int) -> None:
    """The local runtime answers as DuckDB, at the end and in the midst of a history."""
    over, asked = suite(count, seed), Asked("size", 0, text, text, None)
    draw = random.Random(f"{text} {way} {seed}")
    query = over.bind(asked, way)
    run = CaseRun(draw.randint(1, 3), draw.choice((None, draw.randint(0, 99))), reload=draw.random() < 0.1)
    result = run.answer([query], over.inputs(way), drain=way is Way.EXPIRING)
    answer = Answer(events_of(query, result.tables[query.name]), {}, None)
    for at in sorted(set(way.instants)):
        expected = over.second.rows(text, f"{way.value}_{at}", over.snapshot(way, at))
        assert_rows(rows_at(answer, at), expected, f"{text}, {way.value}, at {at}, {run}")


@pytest.mark.spread(2)
@pytest.mark.parametrize("text", QUERIES)
def test_thousands_of_rows(text: str) -> None:
    check(text, random.Random(text).choice(tuple(Way)), SOME, 1)


@pytest.mark.parametrize("text", RANGES)
def test_ranges_over_streams_and_updates(text: str) -> None:
    check(text, random.Random(text).choice((Way.UPDATED, Way.GROWING, Way.EXPIRING)), SOME // 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("way", Way, ids=lambda way: way.value)
@pytest.mark.parametrize("text", (*QUERIES, *RANGES))
def test_many_more_rows(text: str, way: Way, case_seed: int | None) -> None:
    check(text, way, MANY if text in QUERIES else MANY // 4, case_seed or 2)
