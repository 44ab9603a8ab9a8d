"""Functions of PostgreSQL that depend on their arguments alone: of arrays, of texts, and those that return rows.

Arrays are JSON texts, booleans 0 and 1.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from penstock.server.pgwire.catalog.arithmetic import ARITHMETIC
from penstock.server.pgwire.catalog.moments import MOMENTS
from penstock.server.pgwire.catalog.numeric_casts import NUMERIC_CASTS, as_float
from penstock.server.pgwire.protocol.errors import WireError
from penstock.server.pgwire.values.encoding import array_bytes, float_text, real_text
from penstock.server.pgwire.values.json_texts import AGGREGATES as JSON_AGGREGATES
from penstock.server.pgwire.values.json_texts import (
    as_jsonb,
    json_array,
    json_object,
    json_text,
    record_set,
    row_object,
)
from penstock.server.pgwire.values.ordering import row_order

#: Words of the language beyond those of SQL.
_KEYWORDS = json.dumps(
    [
        {"word": word, "catcode": "U", "catdesc": "unreserved"}
        for word in ("dstream", "istream", "relation", "retain", "rstream", "slide", "stream", "subscribe", "wstream")
    ]
)
_BOOLEANS = {
    **dict.fromkeys(("t", "true", "y", "yes", "on", "1"), 1),
    **dict.fromkeys(("f", "false", "n", "no", "off", "0"), 0),
}
_UUID = re.compile(r"(\{)?([0-9a-fA-F]{4}(?:-?[0-9a-fA-F]{4}){7})(\})?")
_PLACES = re.compile(r"%(?:(\d+)\$)?([sIL])|%%")
#: Arrays that a statement makes have at most so many elements.
_MOST_ELEMENTS = 100_000


@dataclass(frozen=True)
class CatalogFunction:
    """A function.

    Args:
        result: the name of its type; empty: that of its first argument.
        call: what carries it out; None: SQLite's own function `native`.
        fixed: whether it depends on its arguments alone.
        is_set: it returns a JSON array, whose elements are rows.
        fields: the columns of the rows of a set, with their types; empty: one column, the value.
    """

    result: str
    call: Callable[..., Any] | None = None
    native: str = ""
    fixed: bool = True
    is_set: bool = False
    fields: Mapping[str, str] | None = None


# -- arrays ----------------------------------------------------------------------------------------------------


def elements(value: Any) -> list[Any] | None:
    """Return the elements of an array: a JSON text, or as PostgreSQL writes it; None for NULL."""
    if value is None:
        return None
    text = str(value)
    if text.startswith("["):
        found: list[Any] = json.loads(text)
        return found
    if text.startswith("{") and text.endswith("}"):
        return _elements_of_text(text[1:-1])
    return [value]


def _elements_of_text(text: str) -> list[Any]:
    if not text:
        return []
    found: list[Any] = []
    at = 0
    while at <= len(text):
        if text[at : at + 1] == '"':
            part, at = "", at + 1
            while at < len(text) and text[at] != '"':
                at += text[at] == "\\"
                part += text[at : at + 1]
                at += 1
            found.append(part)
            at = text.find(",", at)
        else:
            end = text.find(",", at)
            part = text[at : end if end >= 0 else None].strip()
            found.append(None if part.upper() == "NULL" else int(part) if part.lstrip("-").isdigit() else part)
            at = end
        if at < 0:
            break
        at += 1
    return found


def array_text(values: list[Any]) -> str:
    """Return an array as functions exchange it."""
    if any(isinstance(one, float) and math.isinf(one) for one in values):
        # JSON has no such number; SQLite and Python read one that is too large for it.
        endless = {math.inf: "9e999", -math.inf: "-9e999"}
        parts = (endless[one] if one in endless else json.dumps(one, ensure_ascii=False) for one in values)
        return f"[{', '.join(parts)}]"
    return json.dumps(values, ensure_ascii=False)


def _of_elements(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of an array, NULL for NULL."""

    def apply(array: Any, *rest: Any) -> Any:
        values = elements(array)
        return None if values is None else call(values, *rest)

    return apply


def _array_shown(values: list[Any], type_: str) -> str:
    """Return an array as PostgreSQL writes it."""
    encode: dict[str, Callable[[Any], bytes]] = {
        "bool": lambda one: b"t" if int(one) else b"f",
        "float8": lambda one: float_text(as_float(one)),
        "float4": lambda one: real_text(as_float(one)),
    }
    return array_bytes(values, encode.get(type_, lambda one: str(one).encode())).decode()


def _array_to_string(values: list[Any], separator: Any, null: Any = None) -> Any:
    if separator is None:
        return None
    return str(separator).join(str(null if one is None else one) for one in values if one is not None or null)


def _position(values: list[Any], value: Any) -> Any:
    return next((n for n, one in enumerate(values, 1) if one == value or str(one) == str(value)), None)


def subscript(array: Any, index: Any) -> Any:
    """Return an element of an array, counted from 1; of `int2vector` from 0, as clients read those of indexes."""
    values = elements(array)
    number = None if index is None else int(index)
    if values is None or number is None or not 1 <= number <= len(values):
        return None
    one = values[number - 1]
    return array_text(one) if isinstance(one, list) else one


def _slice(array: Any, first: Any, last: Any) -> Any:
    """Return the elements from a place to another, counted from 1; an end that is not given is that of the array."""
    values = elements(array)
    if values is None:
        return None
    begin = 1 if first is None else max(1, int(first))
    return array_text(values[begin - 1 : len(values) if last is None else max(0, int(last))])


def _string_to_array(text: Any, separator: Any, null: Any = None) -> Any:
    if text is None:
        return None
    parts = list(text) if separator is None else str(text).split(str(separator)) if separator else [text]
    return array_text([None if null is not None and part == null else part for part in parts if text])


def _series(first: Any, last: Any, step: Any = 1) -> Any:
    if None in (first, last, step):
        return "[]"
    if not int(step) or abs((int(last) - int(first)) // int(step)) > _MOST_ELEMENTS:
        raise WireError("54000", f"a series has {_MOST_ELEMENTS:,} numbers at most", code="P0804")
    end = int(last) + (1 if int(step) > 0 else -1)
    return array_text(list(range(int(first), end, int(step))))


def _subscripts(array: Any, dimension: Any = 1, first: Any = 1) -> str:
    return array_text(list(range(int(first), len(elements(array) or []) + int(first))))


def _expanded(array: Any) -> str:
    return array_text([{"x": one, "n": n} for n, one in enumerate(elements(array) or [], 1)])


def _options(array: Any) -> str:
    pairs = [str(one).partition("=") for one in elements(array) or []]
    return array_text([{"option_name": name, "option_value": value} for name, _, value in pairs])


def _add(values: list[Any], value: Any) -> None:
    """Add to what an aggregate collects. Raises WireError 54000 beyond the limit."""
    if len(values) >= _MOST_ELEMENTS:
        raise WireError("54000", f"an array has {_MOST_ELEMENTS:,} elements at most", code="P0804")
    values.append(value)


class ArrayAggregate:
    """array_agg."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def step(self, value: Any, *rest: Any) -> None:
        _add(self.values, value)

    def finalize(self) -> str | None:
        return array_text(self.values) if self.values else None


class RowsAggregate:
    """All rows as an array, each as an array of its values."""

    def __init__(self) -> None:
        self.rows: list[str] = []

    def step(self, *values: Any) -> None:
        _add(self.rows, array_text(list(values)))

    def finalize(self) -> str:
        return f"[{','.join(self.rows)}]"


class StringAggregate:
    """string_agg."""

    def __init__(self) -> None:
        self.values: list[str] = []

    def step(self, value: Any, separator: Any = "") -> None:
        """Add a text; the separator stands before it."""
        if value is not None:
            _add(self.values, str(separator or "") + str(value) if self.values else str(value))

    def finalize(self) -> str | None:
        return "".join(self.values) if self.values else None


#: Aggregates that collect values, by name.
COLLECTING: dict[str, type[Any]] = {"array_agg": ArrayAggregate, "string_agg": StringAggregate, **JSON_AGGREGATES}


class OrderedAggregate:
    """One of `COLLECTING` over values in an order, or over different ones."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.form: tuple[str, bool, str, int] = "array_agg", False, "", 1

    def step(self, name: str, distinct: int, keys: str, count: int, *values: Any) -> None:
        """Add a row.

        Args:
            keys: how they are ordered (`row_order`).
            count: of the arguments among `values`, before the keys.
        """
        self.form = name, bool(distinct), keys, count
        _add(self.rows, values)

    def finalize(self) -> str | None:
        name, distinct, keys, count = self.form
        order = row_order(keys)
        made = COLLECTING[name]()
        before: tuple[Any, ...] | None = None
        place = cmp_to_key(order)
        for row in sorted(self.rows, key=lambda one: place(one[count:])):
            if not distinct or before is None or order(before[count:], row[count:]):
                made.step(*row[:count])
            before = row
        collected: str | None = made.finalize()
        return collected


# -- texts -----------------------------------------------------------------------------------------------------


def matches(text: Any, pattern: Any, ignore_case: Any = 0) -> Any:
    """Return whether a text matches a regular expression, in time linear in both."""
    if text is None or pattern is None:
        return None
    regex = str(pattern).removeprefix("***:")
    return int(pc.match_substring_regex(pa.array([str(text)]), regex, ignore_case=bool(ignore_case))[0].as_py())


def like(text: Any, pattern: Any, ignore_case: bool = False, escape: Any = "\\") -> Any:
    """Return whether a text is LIKE a pattern, in which the character `escape` makes the next one ordinary."""
    if None in (text, pattern, escape):
        return None
    escaped = str(pattern)
    if escape != "\\":
        escaped = escaped.replace("\\", "\\\\")
        parts = escaped.split(str(escape)) if escape else [escaped]
        escaped = parts[0] + "".join("\\" + part for part in parts[1:])
    return int(pc.match_like(pa.array([str(text)]), escaped, ignore_case=bool(ignore_case))[0].as_py())


def _replaced(text: Any, pattern: Any, by: Any, flags: Any = "") -> Any:
    if None in (text, pattern, by, flags):
        return None
    most = None if "g" in str(flags) else 1
    regex = f"(?i){pattern}" if "i" in str(flags) else str(pattern)
    return pc.replace_substring_regex(pa.array([str(text)]), regex, str(by), max_replacements=most)[0].as_py()


def quote_ident(name: Any) -> Any:
    if name is None:
        return None
    text = str(name)
    is_plain = text.isascii() and text.replace("_", "a").isalnum() and not text[0].isdigit() and text == text.lower()
    return text if is_plain else '"' + text.replace('"', '""') + '"'


def _quote_literal(value: Any) -> Any:
    return None if value is None else "'" + str(value).replace("'", "''") + "'"


def _formatted(form: Any, *values: Any) -> Any:
    """Return a text in which `%s`, `%I` and `%L` are replaced by values, by themselves or by their numbers (`%1$s`)."""
    if form is None:
        return None
    at = 0

    def one(found: re.Match[str]) -> str:
        nonlocal at
        if found[0] == "%%":
            return "%"
        at = int(found[1]) if found[1] else at + 1
        if not 0 < at <= len(values):
            raise WireError("22023", "format has too few arguments", code="P0204")
        value = values[at - 1]
        if found[2] == "L":
            return "NULL" if value is None else str(_quote_literal(value))
        return str(quote_ident(value)) if found[2] == "I" else shown(value)

    return _PLACES.sub(one, str(form))


def parse_ident(text: Any, strict: Any = 1) -> Any:
    if text is None:
        return None
    parts: list[str] = []
    for part in str(text).split("."):
        part = part.strip()
        parts.append(part[1:-1].replace('""', '"') if part.startswith('"') and len(part) > 1 else part.lower())
    return array_text(parts)


def _split_part(text: Any, separator: Any, index: Any) -> Any:
    if None in (text, separator, index):
        return None
    parts = str(text).split(str(separator)) if separator else [str(text)]
    return parts[int(index) - 1] if 0 < int(index) <= len(parts) else ""


def _left(text: Any, count: Any) -> Any:
    return None if None in (text, count) else str(text)[: int(count)]


def _right(text: Any, count: Any) -> Any:
    if None in (text, count):
        return None
    return str(text)[max(0, len(str(text)) - int(count)) :] if int(count) >= 0 else str(text)[-int(count) :]


def _first_of(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of the values that are not NULL."""

    def apply(*values: Any) -> Any:
        known = [value for value in values if value is not None]
        # What is no number is a text among numbers, and behind them.
        return call(known, key=lambda value: (isinstance(value, str), value)) if known else None

    return apply


def shown(value: Any) -> str:
    return "" if value is None else str(value)


def as_bool(value: Any) -> Any:
    """Return a text or a number as a boolean."""
    if value is None or not isinstance(value, str):
        return None if value is None else int(bool(value))
    word = value.strip().lower()
    if word not in _BOOLEANS:
        raise WireError("22P02", f"{value[:100]!r} is no boolean", code="P0203")
    return _BOOLEANS[word]


def _as_uuid(value: Any) -> Any:
    """Return a text as PostgreSQL writes a UUID: 32 hexadecimal digits, with or without hyphens and braces."""
    if value is None:
        return None
    match = _UUID.fullmatch(str(value).strip())
    if match is None or bool(match[1]) != bool(match[3]):
        raise WireError("22P02", f"{str(value)[:100]!r} is no uuid", code="P0203")
    return str(UUID(match[2]))


def _as_array(value: Any, type_: Any = "") -> Any:
    """Return an array. type_: where it is `_numeric`, the elements are texts of decimals."""
    values = elements(value)
    if type_ == "_numeric" and values is not None:
        cast = NUMERIC_CASTS["pg_numeric"][1]
        values = [cast(one) for one in values]
    return None if values is None else array_text(values)


def _catenated(left: Any, right: Any) -> Any:
    if left is None or right is None:
        return right if left is None else left
    return array_text([*(elements(left) or []), *(elements(right) or [])])


def _function_oid(name: Any) -> Any:
    """Return the number of a function, which is 0: `pg_proc` is empty. The catalogs name those that read and write
    types."""
    if name is None or name == "-" or re.search(r"(in|out|recv|send|handler|typanalyze)$", str(name)):
        return None if name is None else 0
    raise WireError("42883", f"unknown function {str(name)[:200]}", "\\df lists functions", code="P0204")


def _encoded(value: Any, form: Any) -> Any:
    """Return bytes, which are a text `\\x..`, as hex, base64 or escaped. Raises WireError 22023."""
    if value is None or form is None:
        return None
    data = bytes.fromhex(str(value)[2:]) if str(value).startswith("\\x") else str(value).encode()
    if str(form).lower() == "hex":
        return data.hex()
    if str(form).lower() == "base64":
        return base64.encodebytes(data).decode().rstrip("\n")
    if str(form).lower() == "escape":
        return "".join("\\\\" if one == 92 else chr(one) if 0 < one < 128 else f"\\{one:03o}" for one in data)
    raise WireError("22023", f"unknown encoding {str(form)[:100]!r}", "hex, base64 or escape", code="P0203")


def constantly(value: Any) -> Callable[..., Any]:
    return lambda *arguments: value


PURE: dict[str, tuple[str, Callable[..., Any]]] = {
    "regexp_replace": ("text", _replaced), "quote_ident": ("text", quote_ident),
    "encode": ("text", _encoded), "bpchar": ("bpchar", lambda value: None if value is None else shown(value)),
    "quote_literal": ("text", _quote_literal), "parse_ident": ("_text", parse_ident),
    "format": ("text", _formatted), "split_part": ("text", _split_part),
    "left": ("text", _left), "right": ("text", _right),
    # Written by the translation, which knows the type of what they are given.
    **dict.fromkeys(("abs", "round", "ceil", "ceiling", "floor", "trunc"), ("", constantly(None))),
    "concat": ("text", lambda *values: "".join(map(shown, values))),
    "concat_ws": ("text", lambda by, *values: shown(by).join(str(v) for v in values if v is not None)),
    "greatest": ("", _first_of(max)), "least": ("", _first_of(min)),
    "array_to_string": ("text", _of_elements(_array_to_string)), "string_to_array": ("_text", _string_to_array),
    "array_length": ("int4", _of_elements(lambda values, _=1: len(values) or None)),
    "array_upper": ("int4", _of_elements(lambda values, _=1: len(values) or None)),
    "array_lower": ("int4", _of_elements(lambda values, _=1: 1 if values else None)),
    "cardinality": ("int4", _of_elements(len)), "array_position": ("int4", _of_elements(_position)),
    "array_remove": ("_text", _of_elements(lambda values, one: array_text([v for v in values if v != one]))),
    "array_append": ("_text", lambda array, one: array_text([*(elements(array) or []), one])),
    "array_cat": ("_text", _catenated), "pg_array_text": ("text", _of_elements(_array_shown)),
    "pg_array_of": ("_text", lambda *values: array_text(list(values))),
    "pg_encoding_to_char": ("name", lambda number: "UTF8" if number == 6 else ""),
    "pg_char_to_encoding": ("int4", lambda name: 6 if str(name).upper().replace("-", "") == "UTF8" else -1),
    "pg_size_pretty": ("text", lambda size: None if size is None else f"{int(size)} bytes"),
    # What the translation calls.
    "pg_matches": ("bool", matches), "pg_like": ("bool", like), "pg_subscript": ("text", subscript),
    "pg_slice": ("_text", _slice),
    "pg_bool": ("bool", as_bool), "pg_uuid": ("uuid", _as_uuid),
    "pg_json": ("json", json_text), "pg_json_object": ("json", json_object), "pg_json_array": ("json", json_array),
    "pg_row_object": ("json", row_object), "pg_as_jsonb": ("jsonb", as_jsonb), "pg_record_set": ("json", record_set),
    **NUMERIC_CASTS, **ARITHMETIC, **MOMENTS, "pg_array": ("_text", _as_array),
    "pg_function_oid": ("oid", _function_oid),
    "pg_unqualified": ("text", lambda value: None if value is None else str(value).rpartition(".")[2]),
}  # fmt: skip

SETS = {
    "unnest": CatalogFunction("", lambda array: array_text(elements(array) or []), is_set=True),
    "generate_series": CatalogFunction("int4", _series, is_set=True),
    "generate_subscripts": CatalogFunction("int4", _subscripts, is_set=True),
    "_pg_expandarray": CatalogFunction("record", _expanded, is_set=True, fields={"x": "anyelement", "n": "int4"}),
    "pg_options_to_table": CatalogFunction(
        "record", _options, is_set=True, fields={"option_name": "text", "option_value": "text"}
    ),
    "pg_get_keywords": CatalogFunction(
        "record", constantly(_KEYWORDS), is_set=True, fields={"word": "text", "catcode": "char", "catdesc": "text"}
    ),
    "aclexplode": CatalogFunction(
        "record",
        constantly("[]"),
        is_set=True,
        fields={"grantor": "oid", "grantee": "oid", "privilege_type": "text", "is_grantable": "bool"},
    ),
    # Nothing is partitioned.
    "pg_partition_ancestors": CatalogFunction("record", constantly("[]"), is_set=True, fields={"relid": "regclass"}),
    "pg_partition_tree": CatalogFunction(
        "record",
        constantly("[]"),
        is_set=True,
        fields={"relid": "regclass", "parentrelid": "regclass", "isleaf": "bool", "level": "int4"},
    ),
    "pg_available_extensions": CatalogFunction(
        "record", constantly("[]"), is_set=True, fields={"name": "name", "default_version": "text", "comment": "text"}
    ),
}
