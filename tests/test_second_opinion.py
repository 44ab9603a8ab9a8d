"""The oracle against DuckDB: at every instant, plain SQL over the snapshots of the inputs (the law, [semantics 2])."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from penstock.language.scripts import bind_script
from penstock.testing.oracle import run_oracle
from penstock.testing.scalars.values import Row, close, key_of, order_key

DECLARE = """
CREATE STREAM S (ts INT, k INT, a INT, s STRING, d DOUBLE, m DECIMAL(6,2)) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM T (ts INT, k INT, b INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE RELATION R (k INT, name STRING) FROM MEMORY ();
"""
#: CQL window -> when DuckDB sees an element at the instant {t}; a boundary ks is the last multiple of s until then.
WINDOWS = {
    "": "ts <= {t}",
    "[NOW]": "ts = {t}",
    "[RANGE 3 SECOND]": "ts <= {t} AND ts > {t} - 3",
    "[RANGE 5 SECOND SLIDE 3 SECOND]": "ts <= {t} // 3 * 3 AND ts > {t} // 3 * 3 - 5",
    "[RANGE 2 SECOND SLIDE 4 SECOND]": "ts <= {t} // 4 * 4 AND ts > {t} // 4 * 4 - 2",
}
SHAPES = (
    "SELECT k, a + 1 AS x FROM {S} AS S WHERE a > 1 OR s = 'b'",
    "SELECT S.k, S.a, T.b FROM {S} AS S, {T} AS T WHERE S.k = T.k AND S.a <= T.b",
    "SELECT x.a AS one, y.a AS other FROM {S} AS x JOIN {S} AS y ON x.k = y.k AND x.s = y.s",
    "SELECT S.a, R.name FROM {S} AS S JOIN R ON S.k = R.k",
    "SELECT T.b, S.s FROM {S} AS S, {T} AS T",
    "SELECT k, s, COUNT(*) AS n, SUM(a) AS t, MIN(s) AS lo, MAX(d) AS hi, SUM(m) AS u FROM {S} AS S GROUP BY k, s",
    "SELECT COUNT(*) AS n, COUNT(a) AS c, COUNT(DISTINCT k) AS u, SUM(a) AS t, AVG(a) AS v FROM {S} AS S",
    "SELECT k, STDDEV(a) AS e, VAR_POP(d) AS v, SUM(DISTINCT a) AS t FROM {S} AS S GROUP BY k",
    "SELECT k, MEDIAN(a) AS m, MEDIAN(DISTINCT a) AS d, QUANTILE(a, 0.3) AS q FROM {S} AS S GROUP BY k",
    "SELECT k, ARRAY_AGG(a) AS e, FIRST(s) AS f, LAST(s) AS l FROM {S} AS S GROUP BY k",
    "SELECT k, COUNT(*) FILTER (WHERE a > 1) AS n, MAX(a) FILTER (WHERE s = 'a') AS x FROM {S} AS S GROUP BY k",
    "SELECT k, COUNT(*) AS n FROM {S} AS S GROUP BY k HAVING COUNT(*) > 1 AND SUM(a) > 1",
    "SELECT DISTINCT k, s FROM {S} AS S",
    "SELECT k, a FROM {S} AS S UNION ALL SELECT k, b FROM {T} AS T",
    "SELECT k, a FROM {S} AS S UNION SELECT k, b FROM {T} AS T",
    "SELECT k, a FROM {S} AS S EXCEPT SELECT k, b FROM {T} AS T",
    "SELECT k FROM {S} AS S EXCEPT ALL SELECT k FROM {T} AS T",
    "SELECT k, s FROM {S} AS S INTERSECT SELECT k, name FROM R",
    "SELECT k FROM {S} AS S INTERSECT ALL SELECT b FROM {T} AS T",
    "SELECT k FROM {S} AS S UNION ALL SELECT k FROM R INTERSECT SELECT k FROM {T} AS T EXCEPT ALL SELECT k FROM R",
    "SELECT k, a FROM {S} AS S ORDER BY a NULLS FIRST, k NULLS FIRST LIMIT 3",
    "SELECT k, a FROM {S} AS S ORDER BY k + a DESC NULLS LAST, k NULLS FIRST, a NULLS FIRST LIMIT 2 OFFSET 1",
    "SELECT s, COUNT(*) AS n FROM {S} AS S GROUP BY s ORDER BY COUNT(*) DESC NULLS LAST, s NULLS FIRST LIMIT 2",
    "SELECT SUM(a) AS t FROM (SELECT a, k FROM {S} AS S ORDER BY a DESC NULLS LAST, k NULLS FIRST LIMIT 3) AS f",
    "SELECT MAX(n) AS top, COUNT(*) AS c FROM (SELECT k, COUNT(*) AS n FROM {S} AS S GROUP BY k) AS g",
    "SELECT S.a, g.n FROM {S} AS S, (SELECT k, COUNT(*) AS n FROM {T} AS T GROUP BY k) AS g WHERE S.k = g.k",
    "SELECT DISTINCT S.k FROM {S} AS S, (SELECT DISTINCT b FROM {T} AS T) AS g WHERE S.a = g.b",
    "SELECT S.k, S.a, T.b FROM {S} AS S LEFT JOIN {T} AS T ON S.k = T.k",
    "SELECT S.k, S.a, T.b FROM {S} AS S RIGHT JOIN {T} AS T ON S.k = T.k AND S.a < T.b",
    "SELECT S.k, S.a, T.b FROM {S} AS S FULL JOIN {T} AS T ON S.k = T.k AND T.b > 1 AND S.a > 1",
    "SELECT S.a, T.b FROM {S} AS S FULL JOIN {T} AS T ON S.a < T.b",
    "SELECT S.a, R.name FROM {S} AS S LEFT JOIN R ON S.k = R.k",
    "SELECT k, S.a, T.b FROM {S} AS S FULL JOIN {T} AS T USING (k)",
    "SELECT k, S.a, T.b FROM {S} AS S RIGHT JOIN {T} AS T USING (k)",
    "SELECT k, a, name FROM {S} AS S NATURAL JOIN R",
    "SELECT x.a, y.b, R.name FROM {S} AS x LEFT JOIN {T} AS y ON x.k = y.k LEFT JOIN R ON y.b = R.k",
    "SELECT a FROM {S} AS S WHERE k IN (SELECT b FROM {T} AS T)",
    "SELECT a FROM {S} AS S WHERE k NOT IN (SELECT b FROM {T} AS T)",
    "SELECT a FROM {S} AS S WHERE k NOT IN (SELECT b FROM {T} AS T WHERE T.k = S.a)",
    "SELECT a, k IN (SELECT b FROM {T} AS T) AS i FROM {S} AS S",
    "SELECT S.k, a FROM {S} AS S WHERE (k, a) NOT IN (SELECT T.k, b FROM {T} AS T)",
    "SELECT S.k, a, (k, a) IN (SELECT T.k, b FROM {T} AS T WHERE T.b > 1 OR T.b IS NULL) AS i FROM {S} AS S",
    "SELECT S.k, a FROM {S} AS S WHERE (k, s) NOT IN (SELECT R.k, R.name FROM R)",
    "SELECT S.k, a, (k, a, s) NOT IN (SELECT T.k, b, name FROM {T} AS T LEFT JOIN R ON T.k = R.k) AS i FROM {S} AS S",
    "SELECT S.k, a, s FROM {S} AS S WHERE (k, a, k + a, s) NOT IN (SELECT T.k, b, T.k + b, CASE b WHEN 1 THEN 'a' END "
    "FROM {T} AS T)",
    "SELECT S.k, a FROM {S} AS S WHERE (k, 1, a) NOT IN (SELECT 2, T.k, b FROM {T} AS T)",
    "SELECT S.a, T.b FROM {S} AS S JOIN {T} AS T ON S.k <=> T.k AND S.a <= T.b",
    "SELECT S.a, T.b FROM {S} AS S FULL JOIN {T} AS T ON S.k <=> T.k AND S.a <=> T.b",
    "SELECT S.a, R.name FROM {S} AS S LEFT JOIN R ON S.k IS NOT DISTINCT FROM R.k",
    "SELECT a FROM {S} AS S WHERE NOT EXISTS (SELECT 1 FROM {T} AS T WHERE T.k <=> S.k AND T.b <> S.a)",
    "SELECT a, k NOT IN (SELECT b FROM {T} AS T WHERE T.k < S.a) AS i FROM {S} AS S",
    "SELECT a FROM {S} AS S WHERE EXISTS (SELECT * FROM {T} AS T WHERE T.k = S.k AND T.b > S.a) OR a = 1",
    "SELECT a FROM {S} AS S WHERE NOT EXISTS (SELECT 1 FROM {T} AS T WHERE T.k = S.k)",
    "SELECT a FROM {S} AS S WHERE a > (SELECT AVG(b) FROM {T} AS T)",
    "SELECT a FROM {S} AS S WHERE a >= (SELECT COUNT(*) FROM {T} AS T WHERE T.k = S.k)",
    "SELECT k, (SELECT COUNT(b) + 1 FROM {T} AS T WHERE T.k = S.k) AS n, (SELECT MAX(b) FROM {T} AS T WHERE "
    "T.k = S.k) AS m FROM {S} AS S",
    "SELECT k, COUNT(*) AS n FROM {S} AS S GROUP BY k HAVING COUNT(*) > (SELECT COUNT(*) FROM {T} AS T WHERE "
    "T.k = S.k)",
    "SELECT k, SUM(a) AS n FROM {S} AS S GROUP BY k HAVING SUM(a) IN (SELECT b FROM {T} AS T)",
    "SELECT k, SUM(CASE WHEN EXISTS (SELECT 1 FROM {T} AS T WHERE T.b = S.a) THEN 1 ELSE 0 END) AS n FROM {S} "
    "AS S GROUP BY k",
    "SELECT a FROM {S} AS S WHERE k IN (SELECT T.k FROM {T} AS T WHERE T.b IN (SELECT R.k FROM R WHERE R.name = 'x'))",
    "SELECT a FROM {S} AS S WHERE EXISTS (SELECT T.b FROM {T} AS T WHERE T.k = S.k GROUP BY T.b HAVING COUNT(*) > 1)",
    "SELECT a FROM {S} AS S WHERE a IN (SELECT MAX(b) FROM {T} AS T WHERE T.k = S.k)",
    "SELECT a FROM {S} AS S WHERE NOT EXISTS (SELECT COUNT(*) FROM {T} AS T WHERE T.k = S.k HAVING COUNT(*) = 0)",
    "SELECT a FROM {S} AS S WHERE k IN (SELECT b FROM {T} AS T UNION ALL SELECT R.k FROM R)",
    "SELECT a FROM {S} AS S WHERE a IN (SELECT COUNT(*) FROM {T} AS T WHERE T.k = S.k) IS NOT TRUE",
    "SELECT a, (SELECT COUNT(*) FROM {T} AS T) AS n FROM {S} AS S",
    "SELECT S.a, d.b FROM {S} AS S, LATERAL (SELECT b FROM {T} AS T WHERE T.k = S.k AND b >= S.a) AS d",
    "SELECT S.a, d.b FROM {S} AS S CROSS JOIN LATERAL (SELECT b FROM {T} AS T WHERE k <> S.k ORDER BY b DESC NULLS "
    "LAST LIMIT 2) AS d WHERE S.a > 0",
    "SELECT S.a, d.n, e.x FROM {S} AS S, LATERAL (SELECT COUNT(*) AS n FROM {T} AS T WHERE T.k = S.k) AS d, LATERAL "
    "(SELECT MAX(R.k) AS x FROM R WHERE R.k < d.n + S.k) AS e",
    "SELECT S.a, d.c FROM {S} AS S LEFT JOIN LATERAL (SELECT DISTINCT b + S.a AS c FROM {T} AS T WHERE T.k >= S.k) "
    "AS d ON TRUE",
    "SELECT S.a, d.c FROM {S} AS S LEFT JOIN LATERAL (SELECT b, COUNT(*) FROM {T} AS T WHERE T.k = S.k GROUP BY b "
    "HAVING COUNT(*) > S.a) AS d(b, c) ON d.b < S.a",
    "SELECT a, (SELECT MAX(d.x) FROM R, LATERAL (SELECT b + R.k AS x FROM {T} AS T WHERE T.k = S.k) AS d) AS m FROM "
    "{S} AS S",
    "SELECT S.a, d.c FROM {S} AS S, LATERAL (SELECT k FROM {T} AS T WHERE b = S.a UNION SELECT R.k FROM R WHERE R.k < "
    "S.k) AS d(c)",
    "SELECT a FROM {S} AS S WHERE (SELECT MAX(b) FROM {T} AS T) IN (SELECT R.k FROM R)",
    "SELECT a FROM {S} AS S WHERE a > (SELECT COUNT(*) FROM {T} AS T WHERE T.k = S.k AND b > (SELECT MIN(R.k) FROM R))",
)
#: What DuckDB calls otherwise, or leaves open.
DUCKDB = {
    "QUANTILE(": "QUANTILE_CONT(",
    "<=>": "IS NOT DISTINCT FROM",
    "ARRAY_AGG(a)": "LIST(a ORDER BY a) FILTER (WHERE a IS NOT NULL)",
    "FIRST(s)": "LIST(s ORDER BY ts, s NULLS FIRST)[1]",
    "LAST(s)": "LIST(s ORDER BY ts, s NULLS FIRST)[-1]",
}


def worlds(draw: random.Random) -> dict[str, pa.Table]:
    def stamps(count: int) -> pa.Array:
        return pa.array(sorted(draw.randint(0, 14) for _ in range(count)), pa.int32())

    def values(count: int, type_: pa.DataType, *options: object) -> pa.Array:
        return pa.array([draw.choice(options) for _ in range(count)], type_)

    n, m, r = draw.randint(1, 14), draw.randint(0, 10), draw.randint(0, 4)
    small = (0, 1, 2, 3, None)
    return {
        "S": pa.table(
            {
                "ts": stamps(n),
                "k": values(n, pa.int32(), *small),
                "a": values(n, pa.int32(), *small),
                "s": values(n, pa.string(), "a", "b", "", None),
                "d": values(n, pa.float64(), 0.5, 1.25, None),
                "m": values(n, pa.decimal128(6, 2), Decimal("1.25"), Decimal("-3.10"), None),
            }
        ),
        "T": pa.table({"ts": stamps(m), "k": values(m, pa.int32(), *small), "b": values(m, pa.int32(), *small)}),
        "R": pa.table({"k": values(r, pa.int32(), *small), "name": values(r, pa.string(), "x", "y", None)}),
    }


def filled(shape: str, windows: dict[str, str], tau: int | None) -> str:
    """The shape as CQL, or as DuckDB's SQL over the snapshots at `tau`."""
    if tau is None:
        return shape.format(**{name: f"{name} {window}" for name, window in windows.items()})
    seen = {name: WINDOWS[window].format(t=tau) for name, window in windows.items()}
    for ours, theirs in DUCKDB.items():
        shape = shape.replace(ours, theirs)
    return shape.format(**{name: f"(SELECT * FROM {name} WHERE {when})" for name, when in seen.items()})


@pytest.mark.parametrize("shape", SHAPES)
def test_the_oracle_says_what_duckdb_says(shape: str) -> None:
    _check_shape(shape, 2)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_the_oracle_says_what_duckdb_says_of_many_more(shape: str) -> None:
    _check_shape(shape, 40)


def _check_shape(shape: str, count: int) -> None:
    draw = random.Random(shape)
    for _ in range(count):
        tables = worlds(draw)
        windows = {name: draw.choice(list(WINDOWS)) for name in "ST"}
        query = bind_script(f"{DECLARE} CREATE QUERY q AS {filled(shape, windows, None)};").queries[0]
        answer = run_oracle(query, tables)
        connection = duckdb.connect()
        for name, table in tables.items():
            connection.register(name, table)
        held: Counter[Row] = Counter()
        for tau in range(min((ts for ts, _, _ in answer.events), default=0), (answer.final or 0) + 1):
            for _, op, row in (event for event in answer.events if event[0] == tau):
                held[key_of(row)] += -1 if op == "-" else 1
            plain = connection.execute(filled(shape, windows, tau)).fetchall()
            assert_bags(list(held.elements()), plain, f"at {tau}: {filled(shape, windows, None)}")


def assert_bags(one: list[Row], other: list[Row], what: str) -> None:
    """Equal as bags, doubles nearly; an order of the rows that nearly equal doubles do not disturb is enough here."""

    def ordered(rows: list[Row]) -> list[Row]:
        return sorted(rows, key=lambda row: [order_key(round(v, 6) if isinstance(v, float) else v) for v in row])

    first, second = ordered(one), ordered([tuple(row) for row in other])
    same = len(first) == len(second) and all(close(a, b, 1e-9) for a, b in zip(first, second, strict=True))
    assert same, f"{what}\noracle {first}\nduckdb {second}"
