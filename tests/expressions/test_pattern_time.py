"""Patterns take time in proportion to the text, whatever the pattern, as literals, from a column, and folded.

They match what DuckDB matches, and LIKE of any length what its definition says.
"""

from __future__ import annotations

import random
import re
import time

import duckdb
import pyarrow as pa
import pytest

from penstock.errors import PenstockError, ScriptErrors
from penstock.expressions.calls.functions import build_call, build_cast
from penstock.expressions.coercion import INT, STRING
from penstock.expressions.evaluation.evaluate import evaluate
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.library.patterns import _matches_like
from penstock.expressions.nodes import Column, Literal
from penstock.language.scripts import bind_script

TEXT = "a" * 20_000 + "!"
BOMBS = (
    ("LIKE", ("%a" * 20 + "%b",)), ("ILIKE", ("%a" * 20 + "%b",)), ("LIKE", ("%a_" * 40 + "%b",)),
    ("RLIKE", ("^(a+)+$",)), ("RLIKE", ("(a|aa)*b",)), ("REGEXP_REPLACE", ("^(a|aa)+$", "x")),
    ("REGEXP_EXTRACT", ("(a*)*b",)), ("REGEXP_COUNT", ("(a+)+b",)),
)  # fmt: skip


@pytest.mark.parametrize(("name", "more"), BOMBS)
@pytest.mark.parametrize("how", ["literal", "column", "folded"])
def test_no_pattern_takes_more_than_a_moment(name: str, more: tuple[str, ...], how: str) -> None:
    text = Literal(STRING, TEXT) if how == "folded" else Column(STRING, 0, "t")
    given = [Column(STRING, 1, "p") if how == "column" and not n else Literal(STRING, m) for n, m in enumerate(more)]
    started = time.process_time()
    call = fold(build_call(name, [text, *given]))
    evaluate(call, (pa.array([TEXT, "x"]), pa.array([more[0], None])), 2)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (r"(a)\1", "a back reference"), (r"(?<n>a)\k<n>", "a back reference"), ("(?=a)", "look-around"),
        ("(?<!a)b", "look-around"), ("a++", "possessive"), ("(?>a)", "atomic"), ("a(", "malformed"),
        ("a{9999}", "malformed"),
    ],
)  # fmt: skip
def test_what_takes_longer_is_refused_with_its_reason(pattern: str, what: str) -> None:
    for name in ("RLIKE", "REGEXP_EXTRACT", "REGEXP_COUNT"):
        with pytest.raises(PenstockError, match=what) as caught:
            build_call(name, [Column(STRING, 0, "t"), Literal(STRING, pattern)])
        assert caught.value.code == "P0203"


def test_a_group_that_the_pattern_does_not_have_is_refused() -> None:
    text, pattern = Column(STRING, 0, "t"), Literal(STRING, "(a)")
    for name, third in (("REGEXP_EXTRACT", Literal(INT, 2)), ("REGEXP_REPLACE", Literal(STRING, "$2"))):
        with pytest.raises(PenstockError, match="no such group"):
            build_call(name, [text, pattern, third])


@pytest.mark.parametrize(
    "condition",
    ["b RLIKE CONCAT('(a)', '\\\\1')", "REGEXP_COUNT(b, UPPER('(')) > 1", "GET_JSON_OBJECT(b, CONCAT('a', '.b')) = 'x'",
     "regexp_like(b, '(?' || '=a)')"],
)  # fmt: skip
def test_constants_are_checked_however_they_are_written(condition: str) -> None:
    with pytest.raises(ScriptErrors, match="P0203"):
        bind_script(
            "CREATE STREAM s (b STRING, at BIGINT) FROM MEMORY () TIMESTAMP BY at;"
            f"CREATE QUERY q AS SELECT b FROM s WHERE {condition};"
        )


def test_check_folds_patterns_in_a_moment() -> None:
    started = time.process_time()
    bind_script(
        "CREATE STREAM s (b STRING, at BIGINT) FROM MEMORY () TIMESTAMP BY at;"
        f"CREATE QUERY q AS SELECT b FROM s WHERE '{TEXT}' LIKE '{'%a' * 20}%b' OR '{TEXT}' RLIKE '^(a+)+$';"
    )
    assert time.process_time() - started < 5


def test_a_long_number_that_is_none_is_cast_in_a_moment() -> None:
    started = time.process_time()
    cast = build_cast(Column(STRING, 0, "t"), pa.decimal128(10, 2))
    assert evaluate(cast, (pa.array(["1" * 100_000 + "x"]),), 1).to_pylist() == [None]
    assert time.process_time() - started < 2


REGEXES = (
    "a",
    "^a",
    "b$",
    "a|b",
    "(a)(b)?",
    "[^a]",
    "a*b",
    r"\d+",
    r"\w\W",
    "(?i)A",
    "a.b",
    "(a|ab)(c|bcd)",
    "x{2,3}",
    "é",
)


@pytest.mark.parametrize("regex", REGEXES)
def test_matches_are_those_of_duckdb(regex: str) -> None:
    draw = random.Random(regex)
    texts = ["".join(draw.choices("abcABx1é. \n", k=draw.randint(0, 7))) for _ in range(300)]
    column, pattern = pa.array(texts), Literal(STRING, regex)
    groups = re.compile(regex).groups
    table = pa.table({"n": range(len(texts)), "t": texts})
    items = f"regexp_matches(t, $1), regexp_replace(t, $1, '<\\0>', 'g'), regexp_extract(t, $1, {min(1, groups)})"
    with duckdb.connect() as connection:
        connection.register("given", table)
        expected = connection.execute(f"SELECT {items} FROM given ORDER BY n", [regex]).fetchall()
    text = Column(STRING, 0, "t")
    calls = (
        build_call("RLIKE", [text, pattern]),
        build_call("REGEXP_REPLACE", [text, pattern, Literal(STRING, "<$0>")]),
        build_call("REGEXP_EXTRACT", [text, pattern, Literal(INT, min(1, groups))]),
    )
    found = list(zip(*(evaluate(c, (column,), len(texts)).to_pylist() for c in calls), strict=True))
    assert found == expected
    by_row = [build_call(c.function, [text, Column(STRING, 1, "p"), *c.arguments[2:]]) for c in calls]
    patterns = pa.array([regex] * len(texts))
    assert found == list(zip(*(evaluate(c, (column, patterns), len(texts)).to_pylist() for c in by_row), strict=True))


def test_like_is_that_of_duckdb_and_long_patterns_follow_its_definition() -> None:
    draw = random.Random(3)
    pairs = [
        ("".join(draw.choices("ab.\n(é", k=draw.randint(0, 8))), "".join(draw.choices("ab.%_(é", k=draw.randint(0, 6))))
        for _ in range(2000)
    ]
    table = pa.table({"n": range(len(pairs)), "t": [t for t, _ in pairs], "p": [p for _, p in pairs]})
    with duckdb.connect() as connection:
        connection.register("given", table)
        expected = [row[0] for row in connection.execute("SELECT t LIKE p FROM given ORDER BY n").fetchall()]
    call = build_call("LIKE", [Column(STRING, 0, "t"), Column(STRING, 1, "p")])
    columns = tuple(table.column(name).combine_chunks() for name in ("t", "p"))
    assert evaluate(call, columns, len(pairs)).to_pylist() == expected
    assert [_matches_like(text, pattern, "\\") for text, pattern in pairs] == expected
    long = "_b%" * 100_000
    assert evaluate(
        build_call("LIKE", [Literal(STRING, "ab" * 100_000), Column(STRING, 0, "p")]),
        (pa.array([long, long + "x"]),),
        2,
    ).to_pylist() == [True, False]
