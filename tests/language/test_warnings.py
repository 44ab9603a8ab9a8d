"""Warnings of a script: what is allowed and probably a mistake, with its place."""

from __future__ import annotations

import pytest

from penstock.language import Catalog, bind_script


def _warnings(condition: str, catalog: Catalog) -> list[tuple[str, str]]:
    """Return the message and the marked text of every warning of a query with this condition."""
    warnings = bind_script(f"SELECT a FROM s WHERE {condition}", catalog).warnings
    places = [w.position for w in warnings]
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
    "condition", ["a > '10'", "ts > '2013-12-01'", "a > CAST('ten' AS INT)", "a > NULL", "a = b", "b = 'ten'"]
)
def test_texts_without_a_warning(condition: str, catalog: Catalog) -> None:
    assert _warnings(condition, catalog) == []
