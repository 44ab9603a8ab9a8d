"""What DuckDB brings to statements over the catalogs: they were refused before. As PostgreSQL 15 answers."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.pgwire.running import RunningPg
from tests.server.pgwire.test_catalog_expressions import answered
from tests.servers.postgres import PASSWORD, Unavailable, server

STATEMENTS = [
    "SELECT x, sum(x) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM (VALUES (1),(2),(3)) t(x)"
    " ORDER BY 1",
    "SELECT x, count(*) OVER w, lag(x) OVER w, lead(x, 1, 0) OVER w FROM (VALUES (1),(2),(3)) t(x)"
    " WINDOW w AS (ORDER BY x) ORDER BY 1",
    "SELECT x, first_value(x) OVER (ORDER BY x), ntile(2) OVER (ORDER BY x), percent_rank() OVER (ORDER BY x)"
    " FROM (VALUES (1.0),(2.5),(3)) t(x) ORDER BY 1",
    "SELECT x FROM (VALUES (1),(1),(2)) t(x) EXCEPT ALL SELECT 1 ORDER BY 1",
    "SELECT 1 INTERSECT ALL SELECT 1",
    "SELECT x, y, sum(z) FROM (VALUES (1,'a',1),(1,'b',2),(2,'a',3)) t(x,y,z) GROUP BY ROLLUP (x, y) ORDER BY 1, 2, 3",
    "SELECT x, y, count(*) FROM (VALUES (1,'a'),(1,'b')) t(x,y) GROUP BY GROUPING SETS ((x), (y), ()) ORDER BY 1, 2, 3",
    "SELECT x FROM (VALUES (1),(2),(3)) t(x) ORDER BY x FETCH FIRST 2 ROWS ONLY",
    "SELECT repeat('ab', 3), lpad('x', 3, 'ab'), rpad('x', 3), reverse('abc'), initcap('hello world'),"
    " translate('abc', 'ab', 'x')",
    "SELECT substr('abcdef', 0, 3), substr('abcdef', -1), left('abc', -1), right('abc', -1), starts_with('abc', 'ab')",
    "SELECT substring('foobar' from 'o(.)b'), substring('foobar' from 'x'),"
    " regexp_replace('abcabc', 'b(c)', 'X\\1', 'g')",
    "SELECT 'abc'::char(5) || '|', md5('x'), chr(65), to_hex(255), length('héé')",
    "SELECT sqrt(2::float8), power(2, 10), exp(0::float8), degrees(pi()), mod(7, 3)",
    "SELECT ('{\"a\": [1, {\"b\": \"x\"}]}'::jsonb -> 'a' -> 1 ->> 'b'), '{\"a\": {\"b\": 2}}'::jsonb #>> '{a,b}'",
    "SELECT '[1,2]'::json -> 0, '{\"a\":null}'::jsonb -> 'a', '{\"a\":null}'::jsonb ->> 'a', '{\"a\":1}'::jsonb -> 'b'",
    "SELECT '{\"a\":1,\"b\":2}'::jsonb @> '{\"a\":1}', jsonb_typeof('[1]'), jsonb_array_length('[1,2,3]')",
    "SELECT * FROM jsonb_array_elements('[1, {\"a\": 2}, null]')",
    "SELECT * FROM jsonb_each_text('{\"a\": 1, \"b\": null}')",
    "SELECT jsonb_object_keys('{\"a\": 1, \"b\": null}')",
    "SELECT ARRAY[1,2] @> ARRAY[1], ARRAY[1,2] && ARRAY[3], ARRAY[1] <@ ARRAY[1,2], ARRAY[1,2] || 3, 0 || ARRAY[1]",
    "SELECT array_remove(ARRAY[1,2,1], 1), array_position(ARRAY['a','b'], 'b'), array_append(ARRAY[1], 2)",
    "SELECT a, n FROM unnest(ARRAY['x','y']) WITH ORDINALITY AS t(a, n)",
    "SELECT generate_series(1, 3) + 1 AS n",
    "SELECT x FROM generate_series('2024-01-01'::timestamp, '2024-01-03', '1 day') x",
    "SELECT count(*) FROM generate_series(1, 1000000)",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM (VALUES (1::float8), (2)) t(x)",
    "SELECT bool_and(x > 0), every(x > 1), bit_and(x) FROM (VALUES (1), (3)) t(x)",
    "SELECT (SELECT 1 UNION ALL SELECT 2)",
    "SELECT x, y FROM (VALUES (1, 2)) t(x, y) GROUP BY x",
    "SELECT sum(sum(x)) FROM (VALUES (1)) t(x)",
    "SELECT 1 FROM (VALUES (1)) t(x) WHERE sum(x) > 1",
]  # fmt: skip


@pytest.fixture(scope="module")
def postgres() -> Any:
    try:
        found = server()
    except Unavailable as error:
        pytest.skip(str(error))
    with psycopg.connect(found.url, password=PASSWORD, autocommit=True, options="-c TimeZone=UTC") as connection:
        yield connection


@pytest.mark.parametrize("statement", STATEMENTS)
def test_it_answers_as_postgres_does(pg: RunningPg, postgres: psycopg.Connection[Any], statement: str) -> None:
    with pg.connect() as connection:
        assert answered(connection, statement) == answered(postgres, statement)
