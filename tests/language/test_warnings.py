"""Warnings of a script: what is allowed and probably a mistake, with its place."""

from __future__ import annotations

import pytest

from penstock.language.scripts import Catalog, bind_script


def _warnings(text: str, catalog: Catalog) -> list[tuple[str, str]]:
    """Return the warnings of a query, or of one with a condition, each with the text that it marks."""
    query = text if text.startswith(("SELECT", "DSTREAM")) else f"SELECT a FROM s WHERE {text}"
    warnings = bind_script(query, catalog).warnings
    places = [warning.position for warning in warnings]
    marked = [p.text[p.column - 1 : p.column - 1 + p.length] for p in places]
    return [(w.message, text) for w, text in zip(warnings, marked, strict=True)]


@pytest.mark.parametrize(
    ("condition", "text", "type_"),
    [
        ("x > 'ten'", "'ten'", "DOUBLE"),
        ("'ten' = a", "'ten'", "DOUBLE"),
        ("a IN (1, '2', 'three')", "'three'", "DOUBLE"),
        ("a NOT BETWEEN '1' AND 'z'", "'z'", "DOUBLE"),
        ("ts >= '2013-13-01'", "'2013-13-01'", "TIMESTAMP"),
        ("CASE a WHEN 'q' THEN 1 END = 1", "'q'", "DOUBLE"),
        ("(a > 1) = 'maybe'", "'maybe'", "BOOLEAN"),
        ("a > ALL ('x', 2)", "'x'", "DOUBLE"),
        ("(a, b) = ('x', 'y')", "'x'", "DOUBLE"),
        ("a + 'ten' > 3", "'ten'", "DOUBLE"),
        ("HOUR('abc') = 1", "'abc'", "TIMESTAMP"),
    ],
)
def test_a_text_that_is_no_value_of_the_other_side(condition: str, text: str, type_: str, catalog: Catalog) -> None:
    assert _warnings(condition, catalog) == [(f"{text} is no {type_}: it is NULL here", text)]


def test_a_computed_text_that_is_no_value(catalog: Catalog) -> None:
    assert _warnings("a > CONCAT('t', 'en')", catalog) == [
        ("'ten' is no DOUBLE: it is NULL here", "a > CONCAT('t', 'en')")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a > '10'",
        "ts > '2013-12-01'",
        "a > CAST('ten' AS INT)",
        "a = b",
        "b = 'ten'",
        "a IS NULL",
        "a <=> NULL",
        "b LIKE 'a%'",
        "b LIKE 'a*%'",
        "b LIKE 'a'",
        "a BETWEEN 1 AND 1",
        "a BETWEEN a AND 0",
        "a NOT IN (1, 2)",
        "a IN (1, NULL)",
        "b > '3'",
        "SELECT p.a FROM s p, s q WHERE p.a = q.a",
        "SELECT a FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a)",
        "SELECT a FROM s WHERE a IN (SELECT a FROM r)",
        "DSTREAM(SELECT a FROM s [RANGE 1 HOUR])",
        "SELECT DISTINCT a, b FROM s",
        "SELECT a AS x, a AS other FROM s",
        "SELECT a total FROM s",
        "SELECT a / 2, a % 2 FROM s",
        "SELECT a + CAST(b AS DOUBLE) FROM s",
        "SELECT ROUND(CAST(b AS DOUBLE)), HOUR(b), UPPER(b) FROM s",
    ],
)
def test_what_has_no_warning(text: str, catalog: Catalog) -> None:
    assert _warnings(text, catalog) == []


@pytest.mark.parametrize(
    ("text", "message", "marked"),
    [
        ("a = NULL", "a comparison with NULL is NULL, never true", "a = NULL"),
        ("NULL <> a", "a comparison with NULL is NULL, never true", "NULL <> a"),
        ("a > NULL", "a comparison with NULL is NULL, never true", "a > NULL"),
        ("a NOT IN (1, NULL)", "NOT IN with NULL among its values is never true", "a NOT IN (1, NULL)"),
        ("NOT (a IN (1, NULL))", "NOT IN with NULL among its values is never true", "a IN (1, NULL)"),
        (
            "a BETWEEN 5 AND 1",
            "the lower bound of BETWEEN is the greater one, so it is never true",
            "a BETWEEN 5 AND 1",
        ),
        (
            "ts BETWEEN '2024-03-02' AND '2024-03-01'",
            "the lower bound of BETWEEN is the greater one, so it is never true",
            "ts BETWEEN '2024-03-02' AND '2024-03-01'",
        ),
        ("b LIKE '*a*'", "'*a*' has no % and no _, so it matches only itself", "'*a*'"),
        ("b > 3", "b is a text: what is no number in it is NULL here", "b > 3"),
        ("SELECT p.a FROM s p, s q WHERE p.a = p.a", "p.a is compared with itself", "p.a = p.a"),
        (
            "SELECT a FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = a)",
            "s.a and a are the same column",
            "s.a = a",
        ),
        (
            "SELECT a FROM s WHERE b IN (SELECT b FROM r)",
            "b is a column of the enclosing query here, and none of the subquery's sources",
            None,
        ),
        ("DSTREAM(SELECT a FROM s)", "no row ever leaves this answer, so DSTREAM emits none", None),
        (
            "SELECT a FROM (SELECT a FROM s ORDER BY a) AS q",
            "ORDER BY without LIMIT has no effect here: a relation has no order",
            "ORDER BY a",
        ),
        ("SELECT DISTINCT(a), b FROM s", "DISTINCT is of all items together, not of the first", "(a)"),
        ("SELECT a x FROM s", "a is called x here, the name of a column", "x"),
        ("SELECT a / 0 FROM s", "a division by zero is NULL", "a / 0"),
        ("SELECT DATE '2024-13-01' AS d FROM s", "'2024-13-01' is no DATE: it is NULL here", "'2024-13-01'"),
        (
            "SELECT a FROM s WHERE b > TIMESTAMP '2024-02-30'",
            "'2024-02-30' is no TIMESTAMP: it is NULL here",
            "'2024-02-30'",
        ),
        ("SELECT a % 0 FROM s", "a division by zero is NULL", "a % 0"),
        ("SELECT a + b FROM s", "b is a text: what is no number in it is NULL here", "b"),
        ("SELECT ROUND(b, 1) AS z FROM s", "b is a text: what is no number in it is NULL here", "b"),
        ("SELECT SQRT(b) AS z FROM s", "b is a text: what is no number in it is NULL here", "b"),
        ("SELECT ABS(b) AS z FROM s", "b is a text: what is no number in it is NULL here", "b"),
    ],
)
def test_what_is_surely_not_meant(text: str, message: str, marked: str | None, catalog: Catalog) -> None:
    """marked: None for a place that is not looked at."""
    ((found, place),) = _warnings(text, catalog)
    assert found == message and marked in (None, place)


def test_a_number_that_is_cut(catalog: Catalog) -> None:
    """An INSERT cuts the decimals of a number for a column of whole ones, as Spark does."""
    (warning,) = bind_script("INSERT INTO r VALUES (1.7, 'x'), (2.0, 'y')", catalog).warnings
    assert (warning.message, warning.position.column) == ("1.7 becomes 1, since a is INT", 23)


_CLICKS = "CREATE STREAM clicks (at TIMESTAMP, usr STRING) FROM MEMORY () TIMESTAMP BY at"
_DECIMALS = "CREATE RELATION d (x DECIMAL(8, 2), n INT) FROM MEMORY ();"


@pytest.mark.parametrize(
    ("value", "message"),
    [("12.345", "12.345 becomes 12.35, since x is DECIMAL(8,2)"), ("12.340", None), ("12", None), ("1.5e0", None)],
)
def test_a_decimal_that_is_rounded(value: str, message: str | None) -> None:
    warnings = bind_script(f"{_DECIMALS} INSERT INTO d VALUES ({value}, 1)").warnings
    assert [one.message for one in warnings] == ([] if message is None else [message])


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        ("1709283600000", "TIMESTAMP_MILLIS(1709283600000)"),
        ("1709283600", None),
        ("5", None),
    ],
)
def test_a_number_that_is_inserted_as_a_timestamp(number: str, hint: str | None) -> None:
    warnings = bind_script(f"{_CLICKS}; INSERT INTO clicks VALUES ({number}, 'a')").warnings
    assert [(one.hint or "").partition(" is the instant")[0] for one in warnings] == ([] if hint is None else [hint])


@pytest.mark.parametrize(
    ("records", "instant", "warns"),
    [
        ("INSERT INTO clicks VALUES ('2024-03-01 09:00:00', 'a')", "2024-03-01 08:00:00", True),
        ("INSERT INTO clicks VALUES ('2024-03-01 09:00:00', 'a')", "2024-03-01 09:00:00", False),
        ("ADVANCE clicks TO '2024-03-01 09:00:00'", "2024-03-01 09:00:00", True),
        ("ADVANCE clicks TO '2024-03-01 09:00:00'", "2024-03-01 09:00:01", False),
        ("SET seed = 1", "2024-03-01 09:00:00", False),
    ],
)
def test_a_heartbeat_that_does_nothing(records: str, instant: str, warns: bool) -> None:
    warnings = bind_script(f"{_CLICKS}; {records}; ADVANCE clicks TO '{instant}'").warnings
    assert [one.message.partition(":")[0] for one in warnings] == ["nothing changes"] * warns


@pytest.mark.parametrize(
    ("condition", "warns"),
    [("usr = 'a' AND usr = 'b'", True), ("at > '2024-03-01' AND at < '2024-02-01'", True), ("usr = 'a'", False)],
)
def test_a_punctuation_that_no_row_can_fulfil(condition: str, warns: bool) -> None:
    warnings = bind_script(f"{_CLICKS}; PUNCTUATE clicks WHERE {condition}").warnings
    assert [one.message for one in warnings] == ["nothing changes: no row can fulfil this"] * warns


@pytest.mark.parametrize(("instant", "warns"), [("9024-03-01 09:00:00", True), ("2050-03-01 09:00:00", False)])
def test_a_heartbeat_far_ahead_of_the_clock(instant: str, warns: bool) -> None:
    warnings = bind_script(f"{_CLICKS}; ADVANCE clicks TO '{instant}'").warnings
    assert [one.message.partition("; ")[2] for one in warnings] == ["rows before it are late from now on"] * warns
    ticks = "CREATE STREAM n (t BIGINT, v INT) FROM MEMORY () TIMESTAMP BY t; ADVANCE n TO 9000000000000"
    assert bind_script(ticks).warnings == ()


def test_a_window_with_gaps(catalog: Catalog) -> None:
    (warning,) = bind_script("SELECT a FROM s [RANGE 5 MINUTES SLIDE 1 HOUR]", catalog).warnings
    assert warning.message == "SLIDE is longer than RANGE: elements between two windows are in none"
    assert bind_script("SELECT a FROM s [RANGE 1 HOUR SLIDE 1 HOUR]", catalog).warnings == ()


_COUNTED = "CREATE STREAM clicks (at BIGINT, usr STRING) FROM MEMORY () TIMESTAMP BY at UNIT SECOND"


def _shown(script: str) -> list[tuple[str, str, str | None]]:
    """Return the message, the marked text and the hint of every warning of a script."""
    warnings = bind_script(script).warnings
    marked = [w.position.text[w.position.column - 1 : w.position.column - 1 + w.position.length] for w in warnings]
    return [(w.message, text, w.hint) for w, text in zip(warnings, marked, strict=True)]


@pytest.mark.parametrize(
    ("source", "word"),
    [("clicks [PARTITION BY usr SESSION 5] AS c", "SESSION"), ("clicks (usr) VALID FOR 5 AS c", "FOR")],
)
def test_a_length_without_a_unit_counts_microseconds(source: str, word: str) -> None:
    query = f"SELECT usr, VALID(c) FROM {source}"
    message = f"{word} 5 lasts 5 microseconds, the ticks of a TIMESTAMP"
    hint = f"name the unit: {word} 5 SECONDS, or {word} 5 MICROSECONDS"
    assert _shown(f"{_CLICKS};\n{query}") == [(message, "5", hint)]
    assert _shown(f"{_COUNTED};\n{query}") == []
    assert _shown(f"{_CLICKS};\n{query.replace('5 ', '5 SECONDS ').replace('5]', '5 SECONDS]')}") == []


def test_a_declared_length_without_a_unit_is_warned_of_once() -> None:
    queries = "SELECT usr, VALID(c) FROM clicks (usr) AS c; SELECT usr FROM clicks [VALID]"
    (found,) = _shown(f"{_CLICKS} VALID FOR 5; {queries}")
    assert found[:2] == ("FOR 5 lasts 5 microseconds, the ticks of a TIMESTAMP", "5")


@pytest.mark.parametrize("valid", ["FOR 5 SECONDS", "UNTIL NEXT BY usr"])
def test_a_length_beside_a_small_number(valid: str) -> None:
    query = f"SELECT usr, VALID(c) FROM clicks (usr) VALID {valid} AS c WHERE LENGTH(VALID(c)) >="
    message = "LENGTH counts microseconds, the ticks of a TIMESTAMP: 180 of them"
    assert _shown(f"{_CLICKS}; {query} 180") == [(message, "180", "name the unit: INTERVAL '180' SECONDS")]
    assert _shown(f"{_CLICKS}; {query} 180000000") == []
    assert _shown(f"{_CLICKS}; {query} INTERVAL '180' SECONDS") == []
    assert _shown(f"{_COUNTED}; {query} 180") == []


def test_a_relation_that_is_none_of_allens() -> None:
    query = "SELECT usr FROM clicks VALID FOR 5 SECONDS AS c WHERE ALLEN(VALID(c), VALID(c)) ="
    expected = [("ALLEN(..) is never 'overlap'", "'overlap'", "did you mean overlaps or overlapped by?")]
    assert _shown(f"{_CLICKS}; {query} 'overlap'") == expected
    assert _shown(f"{_CLICKS}; {query} 'met by'") == []


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("SELECT a + '-' FROM s", "texts are joined by ||: a || '-' || b"),
        ("SELECT '2024-05-01' + 1 FROM s", "DATE '2024-05-01' + INTERVAL 1 DAY is a day later"),
        ("SELECT '2024-05-01 10:00' - 1 FROM s", "DATE '2024-05-01 10:00' + INTERVAL 1 DAY is a day later"),
        ("CREATE QUERY q AS SELECT a, a FROM s", "choose a name with AS, as in a AS happened"),
    ],
)
def test_what_is_to_be_written_instead(query: str, hint: str, catalog: Catalog) -> None:
    (warning,) = bind_script(query, catalog).warnings
    assert warning.hint == hint


def test_rows_without_a_timestamp(catalog: Catalog) -> None:
    declared = "CREATE STREAM m (k INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at;"
    (warning,) = bind_script(f"{declared} INSERT INTO m (k) VALUES (1)").warnings
    assert warning.message == "rows without at, the timestamp of m, are dead letters and in no answer"
    assert warning.hint == "name it too: INSERT INTO m (k, at) VALUES ..."
    assert bind_script(f"{declared} INSERT INTO m (at, k) VALUES ('2024-05-01', 1)").warnings == ()


def test_a_sample_of_nothing(catalog: Catalog) -> None:
    (warning,) = bind_script("SELECT a FROM s SAMPLE(0)", catalog).warnings
    assert warning.message == "no row of s is in a sample of 0 percent" and warning.hint is not None


def test_a_number_beyond_double(catalog: Catalog) -> None:
    (warning,) = bind_script("SELECT a FROM s WHERE x < 1e309", catalog).warnings
    assert warning.message == "1e309 is beyond DOUBLE: it is infinite here"
