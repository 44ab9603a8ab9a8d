"""Everything [semantics 3, 4 and 6] describes can be read."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from penstock.errors import ScriptErrors
from penstock.language.dialect import Cql
from penstock.language.queries import Extent, NamedSource, SelectQuery, WindowClause
from penstock.language.scripts import parse_script, print_statement
from penstock.language.statements import OneTimeSelect, Statement
from penstock.types import Interval, Unit

#: One statement a line: every clause of [semantics 3, 4 and 6].
STATEMENTS = (Path(__file__).parent / "statements.txt").read_text().splitlines()


def _one(text: str) -> Statement:
    (statement,) = parse_script(text).statements
    return statement


@pytest.mark.parametrize("text", STATEMENTS)
def test_reads_and_prints_back(text: str) -> None:
    statement = _one(text)
    printed = print_statement(statement)
    assert _one(printed) == statement, printed
    assert print_statement(_one(printed)) == printed


#: Words that say nothing which their neighbours do not say already.
NOISE = {"AS", "INNER", "OUTER", "PRECEDING", "INTERVAL", "RANGE", "ROWS", "LEFT", "TIMESTAMP", "-", ","}


@pytest.mark.parametrize("text", STATEMENTS)
def test_no_word_is_swallowed(text: str) -> None:
    """A statement that lacks one of its words is another statement, or none; unless the word is noise."""
    whole = parse_script(text).statements
    for token in Cql().tokenize(text):
        try:
            rest = parse_script(text[: token.start] + " " + text[token.end + 1 :]).statements
        except ScriptErrors:
            continue
        assert rest != whole or token.text.upper() in NOISE, token.text


def _window(text: str) -> WindowClause:
    statement = _one(f"SELECT * FROM s {text}")
    assert isinstance(statement, OneTimeSelect) and isinstance(statement.query, SelectQuery)
    assert isinstance(statement.query.source, NamedSource) and statement.query.source.window is not None
    return statement.query.source.window


@pytest.mark.parametrize(
    "text",
    ["[RANGE 10 MINUTES SLIDE 2 MINUTES]", "[WINDOW 10 min SLIDE 2 min]", "RANGE 10 minute SLIDES 2 minute",
     "[Range 10 Minute Preceding Slide INTERVAL '2 minutes']", "AS z [RANGE 600 SECONDS SLIDE 2 min]"],
)  # fmt: skip
def test_spellings_of_one_window(text: str) -> None:
    window = _window(text)
    assert window.extent is Extent.RANGE
    lengths = [
        part.interval for part in (window.length, window.slide) if part is not None and not hasattr(part, "value")
    ]
    assert [i.amount * i.unit.value for i in lengths] == [600_000_000, 120_000_000]


@pytest.mark.parametrize(
    ("word", "unit"), [("us", Unit.MICROSECOND), ("Milliseconds", Unit.MILLISECOND), ("WEEK", Unit.WEEK)]
)
def test_units(word: str, unit: Unit) -> None:
    length = _window(f"[RANGE 1.5 {word}]").length
    assert length is not None and not hasattr(length, "value")
    assert length.interval == Interval(Fraction(3, 2), unit)


def test_comments_and_empty_statements() -> None:
    script = parse_script("-- one\n;; /* two /* nested */ */ SELECT a -- three\n FROM s;\n\n; SHOW VIEWS ;")
    assert [type(s).__name__ for s in script.statements] == ["OneTimeSelect", "ShowStatement"]
    assert [script.source.position(s.span).line for s in script.statements] == [2, 5]


def test_a_script_without_statements() -> None:
    assert parse_script(" -- nothing\n").statements == ()


def test_double_quotes_are_strings_and_backticks_names() -> None:
    left, right = (_one(f"SELECT {item} FROM s") for item in ('"a"', "`a`"))
    assert print_statement(left) == "SELECT 'a' FROM s"
    assert print_statement(right) == "SELECT `a` FROM s"


def test_the_file_is_named_in_the_error() -> None:
    with pytest.raises(ScriptErrors) as caught:
        parse_script("SELECT a\nFROM WHERE", file="demo.cql")
    assert str(caught.value).startswith("demo.cql:2:6: error P0101: ")
