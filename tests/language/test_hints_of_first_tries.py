"""What a newcomer writes in other words: the error names the words of the language, and no word that was right."""

from __future__ import annotations

import pytest

import penstock
from penstock.errors import PenstockError
from penstock.expressions.library import TABLE
from penstock.language.elsewhere import FUNCTIONS
from penstock.language.scripts import Catalog, ScriptErrors, bind_script

_OF_FILES = "CREATE STREAM m (k INT, at TIMESTAMP) FROM FILES (path 'a.csv'"
_OF_KAFKA = "CREATE STREAM m (k INT, at TIMESTAMP) FROM KAFKA (topic 't', format 'json'"
#: (a statement over s and r, the code of its error, a part of its hint)
_HINTS = (
    ("SELECT CAST(ts AS DATE, 'UTC') AS d FROM s", "P0901", "AT TIME ZONE"),
    ("SELECT DATE_TRUNC(ts, 'day') AS d FROM s", "P0203", "DATE_TRUNC('day', ..)"),
    ("SELECT TRUNC(x) AS z FROM s", "P0204", "ROUND(x, 2)"),
    ("SELECT TRUNC(x, 2) AS z FROM s", "P0203", "ROUND(x, 2)"),
    ("SELECT a FROM s SLIDE 5 MINUTES", "P0101", "in brackets"),
    ("SELECT a FROM s WHERE a > 1 RANGE 5 MINUTES", "P0101", "in brackets"),
    ("SELECT s.a FROM s [NOW] JOIN r USING (x)", "P0202", "on both sides: a"),
    ("SELECT s.a FROM s [NOW] JOIN (SELECT a AS k FROM r) AS q USING (k)", "P0202", "ON a.k = b.l"),
    ("SELECT a FROM s WHERE a IN %s", "P0101", "IN ($1, $2)"),
    ("SELECT a FROM s WHERE a IN $1", "P0101", "IN ($1, $2)"),
    ("SELECT a FROM private.s", "P0201", "are in main"),
    ("INSERT INTO public.s VALUES (1)", "P0101", "without a schema: s"),
    ("DROP STREAM public.s", "P0101", "without a schema: s"),
    ("SELECT public.s.a FROM s", "P0901", "no schema: s.a"),
    ("SELECT DISTINCT ON (a) a, x FROM s", "P0101", "[PARTITION BY key ROWS 1]"),
    ("SET format = 'csv'", "P0104", "\\format csv"),
    ("ALTER RELATION r ADD UNIQUE (a)", "P0101", "PRIMARY KEY (k) in its declaration"),
    ("SELECT a FROM s WHERE a =< 2", "P0101", "<="),
    ("SELECT a FROM s WHERE a => 2", "P0101", ">="),
    ("SELECT a FROM s WHERE a >< 2", "P0101", "<>"),
    ("CREATE QUERY q AS SELECT a, x FROM s ORDER BY x DECS LIMIT 1", "P0101", "did you mean DESC"),
    ("CREATE QUERY q AS SELECT a, x FROM s ORDER BY x LIMIT 5, 10", "P0101", "LIMIT 10 OFFSET 5"),
    ("SELECT a FROM s (RANGE 5 MINUTES)", "P0102", "in brackets"),
    ("SELECT a FROM s (ROWS 5)", "P0102", "in brackets"),
    ("SELECT a FROM s {RANGE 5 MINUTES}", "P0101", "in brackets"),
    ("SELECT a FROM [RANGE 5 MINUTES] s", "P0101", "written after its stream"),
    ("SELECT a FROM s [SLIDE 10 MINUTES]", "P0102", "RANGE 10 MINUTES SLIDE 10 MINUTES"),
    ("SELECT a FROM s [LAST 5 MINUTES]", "P0102", "RANGE"),
    ("SELECT a FROM s [SAMPLE 10]", "P0102", "SAMPLE(10)"),
    ("SELECT [a] FROM s", "P0101", "backticks"),
    ("SELECT a FROM 'file.csv'", "P0101", "FROM FILES (path 'file.csv'"),
    ("SELECT a FROM read_csv('file.csv')", "P0901", "FROM FILES (path"),
    ("SELECT a FROM s FOR UPDATE", "P0101", "leave it out"),
    ("SELECT a FROM s WHERE b ~ '^h'", "P0101", "RLIKE"),
    ("SELECT a FROM s WHERE a = ?", "P0101", "a parameter is $1"),
    ("SELECT a FROM s WHERE a = %s", "P0101", "a parameter is $1"),
    ("SELECT a FROM s WHERE a = :x", "P0101", "a parameter is $1"),
    ("SELECT a FROM s WHERE a = ANY(ARRAY[1, 2])", "P0101", "a IN (1, 2)"),
    ("SELECT a FROM s WHERE b IN '(1,2)'", "P0101", "IN (1, 2)"),
    ("WITH RECURSIVE t AS (SELECT a FROM s) SELECT a FROM t", "P0901", "join a stream or relation with itself"),
    ("CREATE STREAM select (k INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at", "P0101", "backticks"),
    ("CREATE STREAM m-1 (k INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at", "P0101", "backticks"),
    ("CREATE STREAM m (k INT AUTO_INCREMENT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at", "P0101", "a column has"),
    ("CREATE STREAM m (k INT, at TIMESTAMP) FROM MEMORY () ORDER BY at", "P0101", "TIMESTAMP BY"),
    ("CREATE STREAM m (k JSON, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at", "P0207", "STRING"),
    ("CREATE STREAM m (k INT, at TIME) FROM MEMORY () TIMESTAMP BY at", "P0207", "TIMESTAMP"),
    ("CREATE QUERY q (k) AS SELECT a FROM s", "P0101", "AS in the select list"),
    ("CREATE FUNCTION f() RETURNS INT language sql AS 'SELECT 1'", "P0101", "'module:name'"),
    ("SHOW STREAMS LIKE 's%'", "P0101", "penstock.queries"),
    ("SHOW CREATE STREAM s", "P0101", "DESCRIBE s"),
    ("TRUNCATE r", "P0101", "DELETE FROM r"),
    ("MERGE INTO r USING s ON r.a = s.a WHEN MATCHED THEN DELETE", "P0101", "PRIMARY KEY"),
    ("DROP TABLE r", "P0101", "DROP RELATION r"),
    ("INSERT INTO r SET a = 5", "P0101", "VALUES"),
    ("INSERT INTO r VALUES (5, x)", "P0202", "quotes"),
    ("INSERT INTO r VALUES (5, DEFAULT)", "P0202", "leave the column out"),
    ("INSERT INTO s (a, ts) VALUES (1, NOW())", "P0204", "SYSTEM TIME"),
    ("INSERT INTO s (a, ts) VALUES (1, 'yesterday')", "P0203", "2020-01-31 12:00:00"),
    ("UPDATE r SET a = 1 FROM s", "P0101", "subquery"),
    ("UPDATE r AS t SET a = 1", "P0101", "without an alias"),
    ("EXPLAIN (ANALYZE, BUFFERS) SELECT a FROM s", "P0101", "EXPLAIN ANALYZE"),
    ("# a comment", "P0101", "-- "),
    ("// a comment", "P0101", "-- "),
    ("SELECT a::integr FROM s", "P0207", "INTEGER"),
    ("SELECT a::money FROM s", "P0207", "DECIMAL"),
    ("SELECT ts + 60 AS later FROM s", "P0203", "INTERVAL 60 SECONDS"),
    ("SELECT ts + '1 hour' AS later FROM s", "P0203", "INTERVAL"),
    ("CREATE SOURCE m FROM KAFKA CONNECTION c (TOPIC 't') FORMAT JSON", "P0101", "CREATE STREAM name"),
    ("CREATE SINK m FROM s INTO KAFKA CONNECTION c (TOPIC 't')", "P0101", "CREATE QUERY name INTO"),
    ("CREATE CONNECTION c TO KAFKA (BROKER 'h:9092')", "P0101", "options of a connector"),
    ("CREATE INDEX i ON r (a)", "P0101", "leave it out"),
    ("CREATE SCHEMA analytics", "P0101", "have no schema"),
    ("CREATE QUERY analytics.hot AS SELECT a FROM s", "P0101", "`analytics.hot`"),
    ("SELECT a FROM s WHERE MZ_NOW() <= ts + INTERVAL '1' HOUR", "P0204", "s [RANGE 1 HOUR]"),
    ("SELECT a FROM s [ROWS 10 PARTITION BY a]", "P0101", "[PARTITION BY key ROWS 10]"),
    ("CREATE STREAM m (k INT, d DATE) FROM MEMORY () TIMESTAMP BY d", "P0209", "declare it d TIMESTAMP"),
    ("USE analytics", "P0101", "there is one catalog"),
    ("TAIL q", "P0101", "SUBSCRIBE TO name"),
    ("\\d s", "P0101", "DESCRIBE name"),
    ("\\dt", "P0101", "SHOW STREAMS"),
    ("\\copy r from 'r.csv'", "P0101", "penstock shell"),
    ("SELECT a FROM s WHERE a > $1", "P0101", "the value itself stands in the text"),
    ("SELECT a FROM s WHERE ts > 2024-03-01 00:00:00", "P0101", "a timestamp stands in quotes"),
    ("SELECT a FROM s WHERE a = 1 && a > 0", "P0101", "AND"),
    ("SELECT a FROM ''", "P0101", "a parameter is a value, and no name"),
    ("warm", "P0101", "SELECT * FROM warm"),
    ("queries/flights.cql", "P0101", "not the name of a file"),
    (f"{_OF_FILES}, sep ';') TIMESTAMP BY at", "P0208", "did you mean delimiter"),
    (f"{_OF_FILES}, encoding 'latin1') TIMESTAMP BY at", "P0208", "UTF-8"),
    (f"{_OF_FILES}, timestampFormat 'dd.MM.yyyy') TIMESTAMP BY at", "P0208", "did you mean timestamp_format"),
    (f"{_OF_FILES}, dateFormat 'dd.MM.yyyy') TIMESTAMP BY at", "P0208", "TO_DATE(c, pattern)"),
    (f"{_OF_FILES}, escapeChar 'x') TIMESTAMP BY at", "P0208", "did you mean escape"),
    (f"{_OF_FILES}, multiline 'true') TIMESTAMP BY at", "P0208", "jq -c"),
    (f"{_OF_KAFKA}, bootstrap 'h:9092', group_id 'g') TIMESTAMP BY at", "P0208", "a checkpoint has the offsets"),
    ("SELECT LATEST_BY_OFFSET(a) AS a FROM s", "P0204", "LAST(value)"),
    ("SELECT TIME_BUCKET('1 minute', ts) AS t FROM s", "P0204", "DATE_TRUNC('minute', at)"),
    ("SELECT TO_TIMESTAMP_LTZ(a, 3) AS t FROM s", "P0204", "TIMESTAMP_MILLIS"),
    ("SELECT ROWTIME FROM s", "P0202", "TIMESTAMP BY"),
    ("SELECT a FROM s [RANGE BETWEEN 5 MINUTES PRECEDING AND CURRENT ROW]", "P0102", "[RANGE 5 MINUTES]"),
    ("SELECT a FROM s [ROWS BETWEEN 5 PRECEDING AND CURRENT ROW]", "P0102", "[ROWS 5]"),
    ("SELECT a FROM s [RANGE 5 MINUTES FOLLOWING]", "P0101", "ends with it"),
    ("SELECT a FROM s [RANGE 1 HOUR ON ts]", "P0101", "leave it out"),
    ("SELECT a FROM s [RANGE 1 HOUR 30 MINUTES]", "P0101", "90 MINUTES"),
    ("SELECT a FROM s [RANGE 1 HOUR OFFSET 5 MINUTES]", "P0101", "ALIGN TO"),
    ("SELECT a FROM s [RANGE 1 HOUR EVERY 5 MINUTES]", "P0101", "SLIDE 1 MINUTE"),
    ("SELECT a FROM s [RANGE 1 HOUR PARTITION BY a]", "P0101", "without PARTITION BY"),
    ("SELECT a FROM s [ROWS 5 ORDER BY a]", "P0101", "order of the timestamps"),
    ("SELECT a FROM s [RANGE 1 HOUR GRACE 5 MINUTES]", "P0101", "ORDER WITHIN"),
    ("SELECT s.a FROM s JOIN r WITHIN 1 HOUR ON s.a = r.a", "P0101", "s [RANGE 1 HOUR] JOIN t"),
    ("SELECT a, FREQUENCY 1 MINUTE FROM s", "P0101", "[FREQUENCY 1 MINUTE]"),
    ("SELECT a FROM s OUTPUT LAST EVERY 5 SECONDS", "P0101", "[FREQUENCY 1 MINUTE]"),
    ("SELECT a FROM s EMIT AFTER WATERMARK", "P0101", "emitted when they are final"),
    ("SELECT a FROM s WHERE b CONTAINS 'x'", "P0101", "LIKE '%x%'"),
    ("SELECT a FROM s WHERE NOT EXISTS r", "P0101", "EXISTS (SELECT"),
    ("SELECT ISTREAM(SELECT a FROM s)", "P0101", "ISTREAM(SELECT a FROM s)"),
    ("ISTREAM(s)", "P0101", "ISTREAM(SELECT * FROM name)"),
    ("CREATE QUERY q EMIT FINAL AS SELECT a FROM s", "P0101", "emitted when they are final"),
    ("CREATE QUERY q TO FILES (path 'x') AS SELECT a FROM s", "P0101", "INTO FILES"),
    ("CREATE QUERY q AS INSERT INTO r SELECT a FROM s", "P0101", "INTO FILES"),
    ("CREATE QUERY q AS SELECT a FROM s WITH (weight = 2)", "P0101", "before the query"),
    ("CREATE QUERY q WITH weight 2 AS SELECT a FROM s", "P0101", "in parentheses"),
    ("CREATE QUERY q START FROM BEGINNING AS SELECT a FROM s", "P0101", "START NOW"),
    ("CREATE QUERY q START AT BEGINNING AS SELECT a FROM s", "P0102", "START NOW"),
    ("CREATE OR REPLACE QUERY q START NOW WAIT AS SELECT a FROM s", "P0101", "START WARM WAIT"),
    ("CREATE QUERY q START BEGINNING WAIT AS SELECT a FROM s", "P0101", "START WARM WAIT"),
    ("CREATE CONTINUOUS QUERY q AS SELECT a FROM s", "P0101", "CREATE QUERY name"),
    ("CREATE STREAM m AS SELECT a FROM s", "P0101", "CREATE VIEW name"),
    ("CREATE STREAM m (k INT, p AS PROCTIME()) FROM MEMORY () TIMESTAMP BY p", "P0101", "SYSTEM TIME"),
    ("CREATE STREAM m (k INT, d AS k * 2) FROM MEMORY () SYSTEM TIME", "P0101", "CREATE VIEW name"),
    ("CREATE STREAM m (k STRING KEY, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at", "P0101", "key 'k'"),
    ("CREATE STREAM m (k INT PRIMARY KEY, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at", "P0103", "UNIQUE (k)"),
    ("CREATE RELATION m (k INT, PRIMARY KEY (k) NOT ENFORCED) FROM MEMORY ()", "P0101", "leave NOT ENFORCED out"),
    ("CREATE STREAM m (k INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP at", "P0101", "TIMESTAMP BY at"),
    ("CREATE STREAM m (k INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at UNIQUE k", "P0101", "UNIQUE (k)"),
    ("CREATE STREAM m (k INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at CONSTRAINT UNIQUE (k)", "P0101", "a name"),
    ("CREATE STREAM m (k INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at SORTED BY (k)", "P0101", "ORDERED BY (k)"),
    ("CREATE STREAM m (k INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at RETENTION 5 DAYS", "P0101", "RETAIN 1 HOUR"),
    ("SELECT a FROM s WHERE a IN 1", "P0101", "IN (1, 2)"),
    ("SELECT a FROM s SELECT b FROM s", "P0101", "ends with a semicolon"),
    ("ALTER QUERY q AS CREATE QUERY q AS SELECT a FROM s", "P0101", "the query alone"),
    ("help me", "P0101", "lists its commands"),
    ("ALTER QUERY q STOP", "P0101", "PAUSE"),
    ("ALTER QUERY q RESUME FROM BEGINNING", "P0101", "START NOW"),
    ("ALTER QUERY q SET weight = 2", "P0101", "SET (weight 2)"),
    ("ALTER QUERY q SELECT a FROM s", "P0101", "AS SELECT"),
    ("ALTER STREAM s SET (retain 2 HOURS)", "P0101", "in quotes"),
    ("ALTER STREAM s RETAIN 2 HOURS", "P0101", "SET (retain '2 hours')"),
    ("ALTER STREAM s ADD PRIMARY KEY (a)", "P0101", "UNIQUE (k)"),
    ("ALTER STREAM s DROP UNIQUE (a)", "P0101", "DROP CONSTRAINT name"),
    ("STOP QUERY q", "P0101", "PAUSE"),
    ("KILL 17", "P0101", "CANCEL 17"),
    ("CANCEL QUERY q", "P0101", "DROP QUERY name"),
    ("DROP QUERY q, p", "P0101", "a DROP of its own"),
    ("DROP VIEW v RESTRICT", "P0101", "CASCADE alone"),
    ("BEGIN TRANSACTION", "P0101", "COMMIT"),
    ("EXPLAIN EXTENDED SELECT a FROM s", "P0101", "EXPLAIN SELECT"),
    ("SET state_limit = '1GB', state_limit_action = 'fail'", "P0101", "a SET of its own"),
    ("SELCT", "P0101", "did you mean SELECT"),
)


def _errors(script: str, catalog: Catalog) -> list[PenstockError]:
    with pytest.raises((PenstockError, ScriptErrors)) as caught:
        bind_script(script, catalog, live=True)
    return caught.value.errors if isinstance(caught.value, ScriptErrors) else [caught.value]


@pytest.mark.parametrize(("script", "code", "hint"), _HINTS)
def test_the_hint_of_a_first_try(script: str, code: str, hint: str, catalog: Catalog) -> None:
    first = _errors(script, catalog)[0]
    assert first.code == code, first
    assert hint in (first.hint or ""), first


@pytest.mark.parametrize(
    "script",
    [
        "CREATE STREAM m (k INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at ?",
        "SHOW STREAMS ?",
        "SHOW RELATIONS ?",
        "DROP VIEW v CASCADE ?",
        "SELECT a FROM s TABLESAMPLE ?",
        "WITH t AS (SELECT a FROM s) SELECT a FROM t ?",
    ],
)
def test_a_keyword_is_no_misspelt_one(script: str, catalog: Catalog) -> None:
    assert all("in place of" not in (error.hint or "") for error in _errors(script, catalog))


#: The same for clauses in another place, and for what other systems accept.
_IN_OTHER_PLACES = (
    ("SELECT COUNT(*) FROM s [ROWS 10 RANGE 5 MINUTES]", "P0101", "PARTITION BY key ROWS 10 RANGE 5 MINUTES"),
    ("SELECT a FROM s WHERE a > 5 [RANGE 5 MINUTES]", "P0101", "written after its stream"),
    ("SELECT a, COUNT(*) AS n FROM s GROUP BY a WHERE n > 1", "P0101", "a condition on groups is HAVING"),
    ("SELECT a FROM s ORDER BY a LIMIT 1 WHERE a > 1", "P0101", "in this order"),
    ("SELECT x FROM s NATURAL JOIN r ON s.a = r.a", "P0101", "NATURAL JOIN has no condition"),
    ("SELECT x FROM s CROSS JOIN r ON s.a = r.a", "P0101", "CROSS JOIN has no condition"),
    ("SELECT a FROM ISTREAM(s [RANGE 1 HOUR])", "P0101", "ISTREAM(SELECT a FROM s)"),
    ("CREATE QUERY q AS ISTREAM(s)", "P0101", "ISTREAM(SELECT a FROM s)"),
    ("SELECT a FROM s WITH WATERMARK", "P0101", "ORDER WITHIN"),
    ("SELECT a FROM s WHERE a IN SELECT a FROM r", "P0101", "IN (SELECT b FROM t)"),
    ("WITH w AS (SELECT a FROM s) CREATE QUERY q AS SELECT a FROM w", "P0101", "AS WITH w AS (SELECT ...)"),
    ("SELECT FREQUENT(a) FROM s", "P0204", "GROUP BY c FREQUENT 10"),
    ("GRANT SELECT ON s TO ada", "P0101", "penstock token add"),
    ("INSERT r VALUES (1, 'x')", "P0101", "INSERT INTO name"),
    ("INSERT INTO r (a) SELECT a FROM s", "P0103", "CREATE QUERY r INTO connector"),
    ("CREATE QUERY q FROM PLAN 'plan.json'", "P0106", "no name of a file"),
    ("SET timezone = 'Europe/Berlin'", "P0104", "SET time_zone"),
    ("CREATE STREAM m (TIMESTAMP at, INT k) FROM MEMORY () TIMESTAMP BY at", "P0207", "at TIMESTAMP"),
    ("CREATE STREAM m (k FLOAT64, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at", "P0207", "DOUBLE"),
    ("SELECT CAST(x AS NUMBER) FROM s", "P0207", "DECIMAL(18, 2)"),
    ("SELECT a FROM s WHERE b = north", "P0202", "a text stands in quotes: 'north'"),
    ("SELECT a FROM s WHERE b IN (north, south)", "P0202", "a text stands in quotes: 'north'"),
    ("SELECT a FROM s WHERE b = 'x' OR 'y'", "P0203", "each side of OR is a condition"),
    ("SELECT a FROM s WHERE 5 < a < 10", "P0203", "5 < a AND a < 10"),
    ("SELECT b & '-' FROM s", "P0203", "||"),
    ("SELECT a FROM s WHERE a > 5 AND < 10", "P0101", "a comparison has both sides"),
    ("SELECT a FROM s WHERE b LIKE A%", "P0101", "LIKE 'A%'"),
    ("SELECT ISNULL(a, 0) FROM s", "P0204", "COALESCE"),
    ("SELECT DATEDIFF(minute, ts, ts) FROM s", "P0204", "TIMESTAMPDIFF(HOUR, a, b)"),
    ("SELECT DATE_FORMAT(ts, '%Y-%m-%d') FROM s", "P0203", "yyyy-MM-dd"),
    ("SELECT ts.hour FROM s", "P0201", "ts is a column"),
    ("SELECT s.a FROM s, n", "P0302", "in one way"),
)


@pytest.mark.parametrize(("script", "code", "hint"), _IN_OTHER_PLACES)
def test_what_stands_in_another_place(script: str, code: str, hint: str, catalog: Catalog) -> None:
    first = _errors(script, catalog)[0]
    assert first.code == code, first
    assert hint in (first.hint or ""), first


def test_no_function_that_is_there_is_refused_as_one_of_another_system() -> None:
    assert not set(FUNCTIONS) & set(TABLE)


def test_units_are_words_and_lengths_intervals() -> None:
    (row,) = (
        penstock.Session()
        .select(
            "SELECT DATE_BIN(INTERVAL 15 MINUTES, at, TIMESTAMP '2024-01-01 00:05:00') AS b,"
            " TIMESTAMPADD(HOUR, 1, at) AS h, TIMESTAMPDIFF(second, at, TIMESTAMP '2024-01-01 00:18:00') AS s"
            " FROM (SELECT TIMESTAMP '2024-01-01 00:17:00' AS at) AS t"
        )
        .to_arrow()
        .to_pylist()
    )
    assert [f"{row['b']:%H:%M}", f"{row['h']:%H:%M}", row["s"]] == ["00:05", "01:17", 60]


def test_a_name_that_is_misspelt_is_no_text_without_quotes(catalog: Catalog) -> None:
    (error,) = _errors("SELECT a FROM s WHERE c = 'x'", catalog)
    assert "quotes" not in (error.hint or "")
