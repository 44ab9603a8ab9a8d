"""A statement with values in its tree means the same as its text with the values as literals."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import ScriptErrors
from penstock.language.scripts import parse_script
from penstock.language.statements.values import WrittenValue
from penstock.pgwire.statements.lexing import statements as pg_statements
from penstock.pgwire.statements.parameters import literal
from penstock.pgwire.statements.script_texts import script_with_values
from penstock.pgwire.values.wire_types import wire_type

#: Statements with values where an expression may stand.
STATEMENTS = [
    "SELECT $1, $2 AS b FROM s",
    "SELECT a + $1 * -$2 FROM s WHERE b = $1 AND NOT c < $2",
    "SELECT a FROM s WHERE b IN ($1, $2, 3) OR c BETWEEN $1 AND $2",
    "SELECT CASE WHEN a = $1 THEN $2 ELSE $1 END, CAST($1 AS STRING), $2::STRING, f(a, $1) FROM s",
    "SELECT a FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.b = $1 AND t.c IN (SELECT d FROM u WHERE d > $2))",
    "SELECT a FROM (SELECT a FROM s [RANGE 5 MINUTE WHERE b > $1]) AS x JOIN t ON x.a = t.a AND t.b <> $2",
    "WITH v AS (SELECT a FROM s WHERE b LIKE $1) SELECT a FROM v UNION ALL (SELECT $2 FROM w ORDER BY $1 LIMIT 3)",
    "SELECT a, COUNT(*) FROM s GROUP BY a, $1 HAVING COUNT(*) > $2 ORDER BY a + $1 LIMIT $2 OFFSET $1",
    "SELECT a -> $1 ->> $2 FROM s",
    "SELECT SUBSTRING(a FROM $1 FOR $2), TRIM(BOTH $1 FROM a), EXTRACT(DAY FROM $2) FROM s",
    "SELECT a FROM s WITH PREFERENCE WEIGHTED $1, $2 * b",
    "SELECT COUNT(*) FILTER (WHERE a > $1) FROM s WHERE a IS DISTINCT FROM $2",
    "SELECT a FROM s WHERE a > ANY ($1, $2)",
    "INSERT INTO s VALUES ($1, $2), ($2, $1 + 1), (NULL, 'x')",
    "UPDATE r SET a = $1, b = b || $2 WHERE c = $1",
    "DELETE FROM r WHERE a = $1 OR b = $2",
    "SUBSCRIBE TO (SELECT a FROM s WHERE a = $1 AND b = $2)",
    "EXPLAIN SELECT a FROM s WHERE a = $1 AND b = $2",
    "CREATE QUERY q AS SELECT a, $2 AS b FROM s WHERE a = $1",
]  # fmt: skip
#: Those in which the value is a part of a clause, which says what it takes in the text alone.
CLAUSES = [
    "SELECT a FROM s [RANGE $1 MINUTE]", "SELECT a FROM s [ROWS $1]", "SELECT a FROM s [SESSION $1 SECONDS]",
    "SELECT a FROM s WHERE b > INTERVAL $1 MINUTE", "SELECT a FROM s WHERE b > DATE $1", "SELECT a FROM $1",
    "SELECT a FROM s AS OF $1", "SELECT a FROM s SAMPLE($1)", "SET x = $1", "ALTER SYSTEM SET x = $1",
    "SELECT a FROM s WHERE b LIKE a ESCAPE $1", "CREATE STREAM s (a INT) FROM FILES (path $1)",
    "SELECT a FROM s VALID FOR $1 DAYS", "SELECT a, session_window(t, $1) FROM s GROUP BY session_window(t, $1)",
]  # fmt: skip

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12) | st.sampled_from(
    ["it's", "\\", "\\'", "'; DROP QUERY q; --", "$1", "$2", "`", '"', "\n", "é\U0001f600", "\u2028", "/*", "--", "''"]
)
VALUES: st.SearchStrategy[tuple[Any, str]] = st.one_of(
    st.tuples(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, 0]), st.just("int8")),
    st.tuples(st.booleans(), st.just("bool")),
    st.tuples(st.floats() | st.sampled_from([0.0, -0.0, 5e-324, 1.7976931348623157e308]), st.just("float8")),
    st.tuples(st.decimals(allow_nan=False, allow_infinity=False, places=9), st.just("numeric")),
    st.tuples(st.sampled_from([Decimal("-0.00"), Decimal("1E+20"), Decimal("9" * 38)]), st.just("numeric")),
    st.tuples(st.binary(max_size=9), st.just("bytea")),
    st.tuples(TEXTS, st.sampled_from(["text", "varchar", "uuid", "json"])),
    st.tuples(st.sampled_from(["0001-01-01", "9999-12-31"]), st.just("date")),
    st.tuples(st.just("2024-02-29 10:00:00.000001Z"), st.sampled_from(["timestamp", "timestamptz"])),
    st.tuples(
        st.none(),
        st.sampled_from(
            [
                "int2",
                "int4",
                "int8",
                "oid",
                "bool",
                "float4",
                "float8",
                "numeric",
                "bytea",
                "text",
                "varchar",
                "date",
                "timestamptz",
                "uuid",
            ]
        ),
    ),
)


def with_values(text: str, values: list[WrittenValue]) -> Any:
    (statement,) = pg_statements(text)
    return script_with_values(parse_script(text, parameters=True), [(statement, values)])


def spliced(text: str, values: list[WrittenValue]) -> str:
    return re.sub(r"\$(\d)", lambda match: values[int(match[1]) - 1].text, text)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(STATEMENTS), VALUES, VALUES)
@example("SELECT a FROM s WITH PREFERENCE WEIGHTED $1, $2 * b", (b"", "bytea"), (False, "bool"))
def test_values_in_the_tree_are_literals_in_the_text(
    text: str, first: tuple[Any, str], second: tuple[Any, str]
) -> None:
    values = [literal(value, wire_type(name)) for value, name in (first, second)]
    found, expected = with_values(text, values), parse_script(spliced(text, values))
    assert found.statements == expected.statements
    assert found.text == expected.text


@pytest.mark.parametrize("text", STATEMENTS)
def test_places_are_those_in_the_text_with_parameters(text: str) -> None:
    values = [literal(value, wire_type("text")) for value in ("a much longer text than its parameter", "b")]
    script = parse_script(text, parameters=True)
    found = with_values(text, values)
    assert [one.span for one in found.statements] == [one.span for one in script.statements]
    last = found.source.values[-1][0]
    assert found.source.position(last).column == last.start + 1 and found.source.text == text
    assert len(found.source.values) == text.count("$")


def test_a_tree_keeps_its_parameters_for_other_values() -> None:
    for text in STATEMENTS:
        script = parse_script(text, parameters=True)
        before = repr(script)
        for value in ("x", 5):
            own = [literal(value, wire_type("text" if value == "x" else "int4"))] * 2
            made = script.with_values([own])
            assert made.text == spliced(text, own) and repr(script) == before


@pytest.mark.parametrize("text", CLAUSES)
def test_a_clause_takes_its_value_in_the_text(text: str) -> None:
    """The text with `$1` is refused, or has a tree without the value."""
    try:
        assert with_values(text, [literal(5, wire_type("int4"))]) is None
    except ScriptErrors as error:
        assert {one.code for one in error.errors} <= {"P0101", "P0102", "P0375"}


def test_a_parameter_is_none_elsewhere() -> None:
    for text in STATEMENTS:
        with pytest.raises(ScriptErrors, match=r"a parameter is \$1"):
            parse_script(text)
