"""What a newcomer writes in other words: the error names the words of the language, and no word that was right."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError
from penstock.language.scripts import Catalog, ScriptErrors, bind_script

_OF_FILES = "CREATE STREAM m (k INT, at TIMESTAMP) FROM FILES (path 'a.csv'"
_OF_KAFKA = "CREATE STREAM m (k INT, at TIMESTAMP) FROM KAFKA (topic 't', format 'json'"
#: (a statement over s and r, the code of its error, a part of its hint)
_HINTS = (
    ("SELECT DISTINCT ON (a) a, x FROM s", "P0101", "[PARTITION BY key ROWS 1]"),
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
    ("SELECT a FROM s, generate_series(1, 3)", "P0901", "CREATE RELATION"),
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
    (f"{_OF_FILES}, timestamp_format 'dd.MM.yyyy') TIMESTAMP BY at", "P0208", "2024-03-01 09:00:00"),
    (f"{_OF_FILES}, multiline 'true') TIMESTAMP BY at", "P0208", "jq -c"),
    (f"{_OF_KAFKA}, bootstrap 'h:9092', group_id 'g') TIMESTAMP BY at", "P0208", "a checkpoint has the offsets"),
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
