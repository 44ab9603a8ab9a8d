"""Functions of texts that hold JSON. Invalid JSON and missing paths give NULL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.coercion import INT, NULL, STRING, implicit, is_integer, misfit
from penstock.expressions.library.registry import Function
from penstock.expressions.nodes import Expression, Literal
from penstock.expressions.values.datum import Arguments, Datum, Kernel, is_scalar
from penstock.expressions.values.json_text import (
    BAD,
    as_json,
    as_text,
    follow,
    over_texts,
    parse_path,
    read_column,
    text_at,
)

Typed = tuple[tuple[Expression, ...], pa.DataType]
#: What a value is looked up by: a path, a key or an index.
Key = TypeVar("Key", bound=str | int)
#: A function of a parsed JSON value.
Finder = Callable[[object], str | None]

#: The remark on all of them in docs/functions.md.
NOTE = """The first argument is a STRING that holds JSON. What is no JSON, is nested deeper than 200 levels, or has
no value at the path, is NULL. A path is `$` followed by `.name`, `['name']`, `[0]`, and `[*]` once at the
most, after which a GET_JSON_OBJECT that finds several values gives an array of them, and one that finds one gives
it as JSON. A literal that is no path is refused (`P0203`), one from a column gives NULL. Keys are matched letter by
letter; of equal keys in one object the first counts. Numbers keep the digits they were written with, objects and
arrays are written without blanks. `->` and `->>` bind as tightly as the dot of a name: `a - j ->> 'b'` is `a - (j
->> 'b')`. An index counts from 0, from the end when it is negative.
"""


def _rule(name: str, arguments: Sequence[Expression]) -> Typed:
    path = arguments[1]
    if isinstance(path, Literal) and isinstance(path.value, str):
        parsed = parse_path(path.value)
        if parsed is None:
            hint = "a path is $ followed by .name, ['name'], [0] and at most one [*], as in $.items[0].price"
            raise PenstockError("P0203", f"{name}: {path.value!r} is not a path", hint=hint)
        if name == "JSON_VALUE" and parsed.after is not None:
            raise PenstockError(
                "P0203", f"{name} returns one value, and [*] matches several", hint="GET_JSON_OBJECT takes it"
            )
    return tuple(implicit(argument, STRING, name) for argument in arguments), STRING


def _arrow_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    text, key = arguments
    if isinstance(key, Literal) and isinstance(key.value, str) and key.value.startswith(("$.", "$[")):
        hint = f"GET_JSON_OBJECT(json, {key.value!r}) takes a path"
        raise PenstockError("P0203", "-> and ->> take one key or index, not a path", hint=hint)
    if text.type not in (STRING, NULL) or not (key.type in (STRING, NULL) or is_integer(key.type)):
        raise misfit(name, [text.type, key.type], "a text of JSON, and a key or an index")
    key = implicit(key, INT, name) if is_integer(key.type) and key.type.bit_width < 64 else key
    return (implicit(text, STRING, name), implicit(key, STRING, name) if key.type == NULL else key), STRING


def _by_key(finder: Callable[[Key], Finder | None]) -> Kernel:
    """Return a kernel that applies the function that `finder` returns for a path or key; NULL where it returns None."""

    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        texts, key = arguments
        if is_scalar(key):
            found = None if key.as_py() is None else finder(key.as_py())
            return pa.nulls(len(texts), STRING) if found is None else over_texts(texts, found)
        keys = key.to_pylist()
        finders = {k: finder(k) for k in set(keys) if k is not None}
        if is_scalar(texts):
            texts = pa.array([texts.as_py()], STRING).take(pa.array([0] * len(keys), pa.int64()))
        values, rows = read_column(texts)
        pairs = ((values[row], finders.get(k)) for row, k in zip(rows.tolist(), keys, strict=True))
        return pa.array([None if value is BAD or find is None else find(value) for value, find in pairs], STRING)

    return run


def _get_object(path: str) -> Finder | None:
    parsed = parse_path(path)
    return None if parsed is None else lambda value: text_at(value, parsed)


def _get_value(path: str) -> Finder | None:
    """Return the value at a path if it is a scalar, as in the SQL standard."""
    parsed = parse_path(path)
    if parsed is None or parsed.after is not None:
        return None

    def find(value: object) -> str | None:
        found = follow(value, parsed.before)
        return None if found is BAD or isinstance(found, dict | list) else as_text(found)

    return find


def _member(show: Callable[[object], str | None]) -> Callable[[str | int], Finder]:
    def finder(key: str | int) -> Finder:
        def find(value: object) -> str | None:
            found = follow(value, (key,))
            return None if found is BAD else show(found)

        return find

    return finder


FUNCTIONS = (
    Function(
        "GET_JSON_OBJECT", "json, path", _rule, _by_key(_get_object),
        "the value at a path: a string without quotes, an object or array as JSON", checks=True,
    ),
    Function(
        "JSON_VALUE", "json, path", _rule, _by_key(_get_value), "the string, number or boolean at a path, else NULL",
        checks=True,
    ),
    Function(
        "JSON_GET", "json, key", _arrow_rule, _by_key(_member(as_json)), "a member by key or index, as JSON",
        operator="json -> key",
    ),
    Function(
        "JSON_GET_TEXT", "json, key", _arrow_rule, _by_key(_member(as_text)),
        "a member by key or index: a string without quotes, null as NULL", operator="json ->> key",
    ),
)  # fmt: skip
