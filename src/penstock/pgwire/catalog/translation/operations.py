"""Functions and operators whose text for DuckDB depends on the types of what they are given: of values of one type, of
arrays, and of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from sqlglot import exp

from penstock.pgwire.catalog.translation.functions import CatalogFunction
from penstock.pgwire.catalog.translation.scopes import FromItem, SqlColumn, folded, text_literal, type_word
from penstock.pgwire.catalog.translation.typed_values import (
    BIGINT,
    INT,
    MOMENT_TYPES,
    NUMERIC,
    REAL,
    TEXT,
    alike,
    as_type,
    cast,
    element_of,
    is_number,
    made,
    name_of,
    number_type,
    of_one_type,
    portable,
    shown,
)
from penstock.pgwire.protocol.errors import WireError
from penstock.pgwire.values.wire_types import WireType, type_of_oid, wire_type

_ROUNDING = frozenset({"abs", "round", "ceil", "ceiling", "floor", "trunc"})
_OF_ARRAYS = frozenset({"array_position", "array_remove", "array_append", "array_prepend", "array_cat"})
FUNCTIONS = _ROUNDING | _OF_ARRAYS | {"coalesce", "nullif", "greatest", "least"}


def called(name: str, given: Sequence[SqlColumn]) -> SqlColumn:
    """Return a call of one of FUNCTIONS. Raises WireError 42883."""
    if name in ("coalesce", "greatest", "least") and given:
        values, type_ = of_one_type(given)
        return SqlColumn(f"{name}({', '.join(one.text for one in values)})", type_)
    if name == "nullif" and len(given) == 2:
        left, right = alike(*given)
        return SqlColumn(f"CASE WHEN {left.text} = {right.text} THEN NULL ELSE {given[0].text} END", given[0].type)
    if name in _ROUNDING and 1 <= len(given) <= (2 if name in ("round", "trunc") else 1):
        return _rounded(name, given)
    if name in _OF_ARRAYS and len(given) == 2:
        array, one = given if name != "array_prepend" else given[::-1]
        if name in ("array_append", "array_prepend", "array_cat"):
            return appended(*given)
        left, right = alike(SqlColumn("e", element_of(array) or TEXT), one)
        if name == "array_position":
            found = f"list_position(list_transform({array.text}, lambda e: {left.text}), {right.text})"
            return SqlColumn(f"nullif({found}, 0)::INTEGER", INT)
        test = f"{left.text} IS DISTINCT FROM {right.text}"
        return SqlColumn(f"list_filter({array.text}, lambda e: {test})", array.type)
    raise WireError("42883", f"{name} cannot be called with {len(given)} values", code="P0204")


def _rounded(name: str, given: Sequence[SqlColumn]) -> SqlColumn:
    one = as_type(given[0], REAL)
    type_ = one.type or REAL
    number_type(type_)
    if name == "abs":
        return made("px_absolute", NUMERIC, one.text) if type_ is NUMERIC else SqlColumn(f"abs({one.text})", type_)
    if len(given) > 1 or type_ is NUMERIC:
        digits = cast(given[1], INT).text if len(given) > 1 else "0"
        return made("px_rounded", NUMERIC, cast(one, NUMERIC).text, f"'{name}'", digits)
    function = {"round": "round_even", "ceiling": "ceil"}.get(name, name)
    return SqlColumn(f"{function}({cast(one, REAL).text}{', 0' if name == 'round' else ''})", REAL)


def series(given: Sequence[SqlColumn]) -> tuple[str, CatalogFunction, WireType]:
    """Return the list of generate_series, what describes it, and the type of its values. Raises WireError 42883."""
    names = [name_of(one) for one in given]
    type_: WireType | None = None
    if 2 <= len(given) <= 3 and set(names[:2]) & MOMENT_TYPES and len(given) == 3:
        type_ = wire_type("timestamp" if set(names[:2]) <= {"timestamp", ""} else "timestamptz")
        ends = [*(cast(one, type_) for one in given[:2]), cast(given[2], wire_type("interval"))]
    elif 2 <= len(given) <= 3 and set(names) <= {"", "int2", "int4", "int8"}:
        type_ = BIGINT if "int8" in names else INT
        ends = [cast(one, BIGINT) for one in given]
    if type_ is None:
        raise WireError("42883", f"there is no function generate_series({', '.join(names)})", code="P0204")
    text = f"generate_series({', '.join(one.text for one in ends)})"
    function = CatalogFunction(type_.name, text, is_set=True)
    return text if type_ is not INT else f"{text}::INTEGER[]", function, type_


def substring_of_pattern(one: SqlColumn, pattern: str) -> SqlColumn:
    """Return the part of a text that a pattern matches: what its first parentheses do, where it has some."""
    text, group = text_literal(pattern), int("(" in pattern.replace("\\(", "").replace("(?:", ""))
    matches = f"regexp_matches({one.text}, {text}, 's')"
    return SqlColumn(f"CASE WHEN {matches} THEN regexp_extract({one.text}, {text}, {group}, 's') END", TEXT)


# -- arrays ----------------------------------------------------------------------------------------------------


def texts_of(array: SqlColumn) -> SqlColumn:
    """Return an array of the texts of its elements."""
    element = element_of(array)
    if element is None:
        return cast(array, wire_type("_text"))
    each = shown(SqlColumn("e", element)).text
    return array if each == "e" else SqlColumn(f"list_transform({array.text}, lambda e: {each})", wire_type("_text"))


def appended(left: SqlColumn, right: SqlColumn) -> SqlColumn:
    """Return two arrays one behind the other, or an array with one more element."""
    type_ = left.type if element_of(left) is not None else right.type
    assert type_ is not None, "one of them is an array"
    element = type_of_oid(type_.element) or TEXT
    sides = []
    for one in (left, right):
        is_element = one.type is not None and element_of(one) is None
        made_of = cast(one, element) if is_element else as_type(one, type_)
        sides.append(f"[{made_of.text}]" if is_element else f"coalesce({made_of.text}, [])")
    if any(side.startswith("[") for side in sides):
        return SqlColumn(f"list_concat({sides[0]}, {sides[1]})", type_)
    none = f"{left.text} IS NULL AND {right.text} IS NULL"
    return SqlColumn(f"CASE WHEN {none} THEN NULL ELSE list_concat({sides[0]}, {sides[1]}) END", type_)


#: Operators that DuckDB has for lists, and those of JSON.
OPERATIONS: dict[type[exp.Expr], str] = {
    exp.ArrayContainsAll: "list_has_all({0}, {1})",
    exp.ArrayContainedBy: "list_has_all({1}, {0})",
    exp.ArrayOverlaps: "list_has_any({0}, {1})",
    exp.BitwiseXor: "xor({0}, {1})",
    exp.JSONBContains: "px_json_exists({0}, {1})",
}


def operation(kind: type[exp.Expr], left: SqlColumn, right: SqlColumn) -> SqlColumn:
    """Return an operation of OPERATIONS. Raises WireError 42883."""
    left, right = as_type(left, right.type), as_type(right, left.type if kind is not exp.JSONBContains else TEXT)
    text, type_ = OPERATIONS[kind], left.type
    if kind is exp.BitwiseXor and type_ is not None and is_number(type_):
        return SqlColumn(text.format(left.text, right.text), type_)
    if kind in (exp.ArrayContainsAll, exp.ArrayContainedBy) and "jsonb" in (name_of(left), name_of(right)):
        text = "px_json_contains({0}, {1})" if kind is exp.ArrayContainsAll else "px_json_contains({1}, {0})"
    elif (kind is exp.JSONBContains) != (name_of(left) == "jsonb") or (
        kind is not exp.JSONBContains and element_of(left) is None
    ):
        raise WireError("42883", f"there is no such operator of {name_of(left) or 'unknown'}", code="P0204")
    return SqlColumn(text.format(left.text, right.text), wire_type("bool"))


# -- JSON ------------------------------------------------------------------------------------------------------

#: Functions that make JSON of any values, and of rows, with the types of what they make.
OF_RECORDS = {
    "to_json": "json",
    "to_jsonb": "jsonb",
    "row_to_json": "json",
    "json_build_object": "json",
    "json_build_array": "json",
    "jsonb_build_object": "jsonb",
    "jsonb_build_array": "jsonb",
}


def whole_row(item: FromItem) -> SqlColumn:
    """Return a row of something in FROM, as a value of which JSON is made."""
    parts = (f"{text_literal(name)}, {as_json(column)}" for name, column in item.columns.items())
    return SqlColumn(f"px_json_row({', '.join(parts)})", wire_type("record"))


def json_called(name: str, inner: Sequence[SqlColumn]) -> SqlColumn:
    """Return a function that makes JSON of its arguments. Raises WireError 42883."""
    if name in ("to_json", "to_jsonb", "row_to_json"):
        if len(inner) != 1 or (name == "row_to_json" and name_of(inner[0]) != "record"):
            raise WireError("42883", f"{name} has one argument{', a row' * (name[0] == 'r')}", code="P0204")
        check_typed(name, inner[0])
        # Of NULL it is NULL.
        text = f"CASE WHEN {inner[0].text} IS NOT NULL THEN {as_json(inner[0])} END"
    elif name.endswith("_array"):
        text = f"px_json_array({', '.join(map(as_json, inner))})" if inner else "'[]'"
    else:
        parts = [as_json(one) if number % 2 else shown(one).text for number, one in enumerate(inner)]
        text = f"px_json_object({', '.join(parts)})" if inner else "'{}'"
    type_ = wire_type(OF_RECORDS[name])
    return SqlColumn(f"px_jsonb({text})" if type_.name == "jsonb" else text, type_)


def check_typed(name: str, one: SqlColumn) -> None:
    """Raise WireError 42804 for a literal without a type; a column of such literals has texts."""
    if one.type is None and (one.text == "NULL" or one.text.startswith("'")):
        raise WireError("42804", f"the type of the argument of {name} is unknown", "cast it", code="P0204")


def json_value(one: SqlColumn) -> tuple[str, str]:
    """Return a value as functions make JSON of it, and the name of the type by which they do."""
    if one.fields is not None:
        fields = (
            f"{text_literal(name)}, {as_json(SqlColumn(f'struct_extract({one.text}, {text_literal(name)})', type_))}"
            for name, type_ in one.fields.items()
        )
        return f"px_json_row({', '.join(fields)})", "record"
    name = name_of(one) or "text"
    return (shown(one).text, "text") if name.startswith("reg") or name == "interval" else (portable(one), name)


def as_json(one: SqlColumn) -> str:
    """Return a value as a text of JSON, `null` where it is NULL."""
    value, type_ = json_value(one)
    return f"px_json({value}, '{type_}')"


def json_part(node: exp.Expr, one: SqlColumn, translate: Callable[[exp.Expr], SqlColumn]) -> SqlColumn:
    """Return `->`, `->>`, `#>` or `#>>`. Raises WireError 42883."""
    as_text = isinstance(node, exp.JSONExtractScalar | exp.JSONBExtractScalar)
    path = node.expression
    if isinstance(path, exp.JSONPath):
        # What the parser has made of a name or a number.
        steps = [step.this for step in path.expressions if not isinstance(step, exp.JSONPathRoot)]
        texts = [str(step) if isinstance(step, int) else text_literal(str(step)) for step in steps]
        text = f"[{', '.join(texts)}]"
    elif isinstance(node, exp.JSONBExtract | exp.JSONBExtractScalar):
        text = cast(translate(path), wire_type("_text")).text
    else:
        text = f"[{translate(path).text}]"
    if one.type is not None and one.type.name not in ("json", "jsonb"):
        raise WireError("42883", f"there is no operator {one.type.shown} ->", "cast it to jsonb", code="P0204")
    return SqlColumn(f"px_json_part({one.text}, {text}, {str(as_text).lower()})", TEXT if as_text else one.type)


#: Functions that take JSON apart, into columns that the statement defines.
RECORD_FUNCTIONS = frozenset({"json_to_record", "json_to_recordset", "jsonb_to_record", "jsonb_to_recordset"})


def _form_of(word: str) -> str:
    """Return as what a field of a type is taken out of JSON: JSON itself, an array, or a text."""
    return "json" if word in ("json", "jsonb") else "array" if word.endswith("[]") else "text"


def record_columns(
    name: str, given: Sequence[SqlColumn], alias: str, columns: Sequence[exp.Expr]
) -> tuple[str, list[tuple[str, exp.Expr, SqlColumn]]]:
    """Return the list of the rows of one of RECORD_FUNCTIONS; and by column its name, its type, and its text in a row
    that is called `e`. Raises WireError 42601 where no columns are defined, 42883."""
    if len(given) != 1:
        raise WireError("42883", f"{name} has one argument", code="P0204")
    if not columns or not all(isinstance(one, exp.ColumnDef) and one.kind is not None for one in columns):
        hint = f"write {name}(..) AS {alias or 'x'}(name type, ..)"
        raise WireError("42601", f"{name} needs the names and types of its columns", hint, code="P0204")
    defined = [(folded(one.this), one.kind) for one in columns if isinstance(one, exp.ColumnDef) and one.kind]
    described = json.dumps([[field, _form_of(type_word(kind))] for field, kind in defined])
    text = f"px_record_set({given[0].text}, {text_literal(described)}, '{name}')"
    return text, [(field, kind, SqlColumn(f"e[{n}]", TEXT)) for n, (field, kind) in enumerate(defined, 1)]
