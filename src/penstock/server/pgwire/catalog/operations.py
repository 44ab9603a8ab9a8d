"""Operations with instants and lengths of time, functions of them, JSON, and what aggregates collect, as texts for
SQLite."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlglot import exp

from penstock.server.pgwire.catalog.moments import MOMENT_TYPES
from penstock.server.pgwire.catalog.scopes import FromItem, SqlColumn, text_literal
from penstock.server.pgwire.catalog.typed_values import TEXT, as_number_of, as_type, is_number, shown
from penstock.server.pgwire.protocol.errors import WireError
from penstock.server.pgwire.values.wire_types import WireType, type_of_oid, wire_type

_INTERVAL = wire_type("interval")
_OF_TIME = MOMENT_TYPES | {"interval"}
#: Functions whose first or last argument is an instant.
FUNCTIONS = frozenset({"date_part", "date_trunc", "age", "to_timestamp", "timezone", "pg_typeof"})


def _name(one: SqlColumn) -> str:
    return "" if one.type is None else one.type.name


def operation(mark: str, left: SqlColumn, right: SqlColumn) -> SqlColumn | None:
    """Return an operation with instants or lengths of time; None where neither side is one. Raises WireError 42883."""
    if not {_name(left), _name(right)} & _OF_TIME:
        return None
    left, right = _typed(mark, left, right), _typed(mark, right, left, is_left=False)
    names = _name(left), _name(right)
    if names == ("interval", "interval") and mark in "+-":
        sign = 1 if mark == "+" else -1
        return SqlColumn(f"pg_fn_pg_interval_sum({left.text}, {right.text}, {sign})", _INTERVAL)
    if mark == "+" and names[0] == "interval" and names[1] in MOMENT_TYPES:
        return _shifted(right, left, 1)
    if mark in "+-" and names[0] in MOMENT_TYPES and names[1] == "interval":
        return _shifted(left, right, 1 if mark == "+" else -1)
    if mark == "-" and names == ("date", "date"):
        return SqlColumn(f"pg_fn_pg_days_between({left.text}, {right.text})", wire_type("int4"))
    if mark == "-" and names[0] in MOMENT_TYPES and names[1] in MOMENT_TYPES:
        return SqlColumn(f"pg_fn_pg_between({left.text}, {right.text})", _INTERVAL)
    whole = ("int2", "int4")
    if mark in "+-" and names[0] == "date" and names[1] in whole:
        return SqlColumn(f"pg_fn_pg_other_day({left.text}, {'- ' if mark == '-' else ''}{right.text})", left.type)
    if mark == "+" and names[1] == "date" and names[0] in whole:
        return SqlColumn(f"pg_fn_pg_other_day({right.text}, {left.text})", right.type)
    if mark in "*/" and names[0] == "interval" and right.type is not None and is_number(right.type):
        return _times(left, right, int(mark == "/"))
    if mark == "*" and names[1] == "interval" and left.type is not None and is_number(left.type):
        return _times(right, left, 0)
    shown = " ".join((_shown(left.type), mark, _shown(right.type)))
    raise WireError("42883", f"there is no operator {shown}", "cast a side to the other's type", code="P0204")


def _shown(type_: WireType | None) -> str:
    return "unknown" if type_ is None else type_.shown


def _typed(mark: str, one: SqlColumn, other: SqlColumn, is_left: bool = True) -> SqlColumn:
    """Return a text without a type as what PostgreSQL takes it for beside an instant or a length of time."""
    if one.type is not None or not {_name(other)} & _OF_TIME:
        return one
    if mark in "*/":
        return as_type(one, wire_type("float8"))
    alike = mark == "-" and not is_left and _name(other) != "interval"
    return as_type(one, other.type if alike else _INTERVAL)


def _shifted(moment: SqlColumn, by: SqlColumn, sign: int) -> SqlColumn:
    type_ = wire_type("timestamp") if _name(moment) == "date" else moment.type
    assert type_ is not None, "it is an instant"
    return SqlColumn(f"pg_fn_pg_shifted({moment.text}, {by.text}, {sign}, '{type_.name}')", type_)


def _times(length: SqlColumn, factor: SqlColumn, divides: int) -> SqlColumn:
    number = as_number_of(factor, wire_type("float8"))
    return SqlColumn(f"pg_fn_pg_interval_times({length.text}, {number.text}, {divides})", _INTERVAL)


def negated_interval(one: SqlColumn) -> SqlColumn:
    """Return a length of time with the other signs."""
    return SqlColumn(f"pg_fn_pg_interval_times({one.text}, -1.0)", _INTERVAL)


def extracted(field: str, one: SqlColumn, function: str = "pg_extracted") -> SqlColumn:
    """Return a part of an instant or a length of time. field: a text for SQLite."""
    one = as_type(one, wire_type("timestamptz"))
    if _name(one) not in _OF_TIME:
        raise WireError("42883", f"a {_shown(one.type)} has no parts", code="P0204")
    result = wire_type("numeric" if function == "pg_extracted" else "float8")
    return SqlColumn(f"pg_fn_{function}({field}, {one.text}, '{_name(one)}')", result)


def in_zone(zone: SqlColumn, one: SqlColumn) -> SqlColumn:
    """Return `one AT TIME ZONE zone`."""
    one = as_type(one, wire_type("timestamptz"))
    if _name(one) == "date":
        one = SqlColumn(f"pg_fn_pg_moment({one.text}, 'timestamptz')", wire_type("timestamptz"))
    if _name(one) not in MOMENT_TYPES:
        raise WireError("42883", f"a {_shown(one.type)} has no time zone", code="P0204")
    result = wire_type("timestamp" if _name(one) == "timestamptz" else "timestamptz")
    return SqlColumn(f"pg_fn_pg_in_zone({zone.text}, {one.text}, '{_name(one)}')", result)


def called(name: str, given: Sequence[SqlColumn]) -> SqlColumn:
    """Return a call of one of FUNCTIONS. Raises WireError 42883."""
    if name == "pg_typeof" and len(given) == 1:
        type_ = given[0].type
        return SqlColumn(str(705 if type_ is None else type_.oid), wire_type("regtype"))
    if name == "date_part" and len(given) == 2:
        return extracted(given[0].text, given[1], "pg_part")
    if name == "timezone" and len(given) == 2:
        return in_zone(*given)
    if name == "to_timestamp" and len(given) == 1:
        number = as_number_of(given[0], wire_type("float8"))
        return SqlColumn(f"pg_fn_pg_of_epoch({number.text})", wire_type("timestamptz"))
    if name == "date_trunc" and len(given) == 2:
        one = as_type(given[1], wire_type("timestamptz"))
        if _name(one) in MOMENT_TYPES:
            type_ = wire_type("timestamp" if _name(one) == "timestamp" else "timestamptz")
            return SqlColumn(f"pg_fn_pg_truncated({given[0].text}, {one.text}, '{type_.name}')", type_)
    if name == "age" and [_name(one) for one in given] == ["xid"]:
        # All is frozen.
        return SqlColumn(f"CASE WHEN {given[0].text} IS NOT NULL THEN 2147483647 END", wire_type("int4"))
    if name == "age" and len(given) in (1, 2):
        ends = [as_type(one, wire_type("timestamptz")).text for one in given]
        if len(ends) == 1:
            ends.insert(0, "pg_fn_pg_moment('today', 'timestamptz')")
        return SqlColumn(f"pg_fn_pg_age({', '.join(ends)})", _INTERVAL)
    types = ", ".join(_shown(one.type) for one in given)
    raise WireError("42883", f"there is no function {name}({types})", code="P0204")


def nulls_of(node: exp.Expr) -> str:
    """Return where a key of ORDER BY has NULL: last, as in PostgreSQL; with DESC first."""
    first = node.args.get("nulls_first")
    return "FIRST" if (bool(node.args.get("desc")) if first is None else first) else "LAST"


def aggregated(given: Sequence[exp.Expr]) -> tuple[list[exp.Expr], Sequence[exp.Expr], bool]:
    """Return the arguments of an aggregate, the keys of ORDER BY inside of its parentheses, and whether it has
    DISTINCT."""
    parts, keys = list(given), []
    for number, one in enumerate(parts):
        if isinstance(one, exp.Order):
            keys, parts[number] = one.expressions, one.this
    distinct = bool(parts) and isinstance(parts[0], exp.Distinct)
    return [*parts[0].expressions, *parts[1:]] if distinct else parts, keys, distinct


def collected(
    name: str, distinct: bool, inner: Sequence[SqlColumn], keys: Sequence[tuple[exp.Expr, SqlColumn]]
) -> SqlColumn:
    """Return array_agg, string_agg or an aggregate of JSON of its arguments `inner`.

    Args:
        distinct: whether equal ones count once, which are in order then.
        keys: those of ORDER BY inside of the parentheses, each with its node.

    Raises:
        WireError: 42P10, 42883.
    """
    type_ = type_of_oid((inner[0].type or TEXT).array) if name == "array_agg" else TEXT
    given = [one.text for one in inner]
    if (json_type := JSON_AGGREGATES.get(name)) is not None:
        type_, given = wire_type(json_type), _json_arguments(name, inner)
        if distinct and any(_name(one) == "json" for one in inner):
            raise WireError("42883", "values of type json cannot be compared", "cast them to text", code="P0204")
    arguments = ", ".join(given)
    if not keys and not distinct:
        return SqlColumn(f"pg_fn_{name}({arguments})", type_)
    columns = [(_form(node, column), column.text) for node, column in keys]
    if distinct:
        known = {text for _, text in columns}
        if not known <= {one.text for one in inner}:
            hint = "order by an argument, or leave DISTINCT out"
            raise WireError("42P10", f"{name}(DISTINCT ..) is ordered by its arguments alone", hint, code="P0205")
        columns += [(_form(exp.Ordered(), one), one.text) for one in inner if one.text not in known]
    forms = "".join(form for form, _ in columns)
    texts = ", ".join([arguments, *(text for _, text in columns)])
    return SqlColumn(f"pg_fn_pg_in_order('{name}', {int(distinct)}, '{forms}', {len(given)}, {texts})", type_)


def _form(node: exp.Expr, key: SqlColumn) -> str:
    """Return how values of a key are ordered, as `OrderedAggregate` reads it."""
    kind = {"numeric": "n", "interval": "i"}.get("" if key.type is None else key.type.name, "-")
    return ("d" if node.args.get("desc") else "-") + ("f" if nulls_of(node) == "FIRST" else "-") + kind


# -- JSON ------------------------------------------------------------------------------------------------------

#: Functions that make JSON of any values, and aggregates, with the types of what they make.
JSON_FUNCTIONS = {
    "to_json": "json",
    "to_jsonb": "jsonb",
    "row_to_json": "json",
    "json_build_object": "json",
    "json_build_array": "json",
    "jsonb_build_object": "jsonb",
    "jsonb_build_array": "jsonb",
}
JSON_AGGREGATES = {"json_agg": "json", "jsonb_agg": "jsonb", "json_object_agg": "json", "jsonb_object_agg": "jsonb"}
_JSON_NUMBERS = frozenset({"int2", "int4", "int8", "float4", "float8", "numeric"})


def whole_row(item: FromItem) -> SqlColumn:
    """Return a row of something in FROM, as a value of which JSON is made."""
    parts = (f"{text_literal(name)}, {as_json(column)}" for name, column in item.columns.items())
    return SqlColumn(f"pg_fn_pg_row_object({', '.join(parts)})", wire_type("record"))


def json_called(name: str, inner: Sequence[SqlColumn]) -> SqlColumn:
    """Return a function that makes JSON of its arguments. Raises WireError 42883."""
    if name in ("to_json", "to_jsonb", "row_to_json"):
        if len(inner) != 1 or (name == "row_to_json" and _name(inner[0]) != "record"):
            raise WireError("42883", f"{name} has one argument{', a row' * (name[0] == 'r')}", code="P0204")
        _check_typed(name, inner[0])
        # Of NULL it is NULL.
        made = f"CASE WHEN {inner[0].text} IS NOT NULL THEN {as_json(inner[0])} END"
    elif name.endswith("_array"):
        made = f"pg_fn_pg_json_array({', '.join(map(as_json, inner))})"
    else:
        parts = [as_json(one) if number % 2 else shown(one).text for number, one in enumerate(inner)]
        made = f"pg_fn_pg_json_object({', '.join(parts)})"
    type_ = wire_type(JSON_FUNCTIONS[name])
    return SqlColumn(f"pg_fn_pg_as_jsonb({made})" if type_.name == "jsonb" else made, type_)


def _json_arguments(name: str, inner: Sequence[SqlColumn]) -> list[str]:
    """Return the arguments of an aggregate of JSON. Raises WireError 42883."""
    if len(inner) != (2 if "object" in name else 1):
        raise WireError("42883", f"{name} has another number of arguments", code="P0204")
    if len(inner) == 2:
        return [shown(inner[0]).text, as_json(inner[1])]
    _check_typed(name, inner[0])
    form = _json_form(inner[0])
    return [as_json(inner[0]), str(int(form[0] in "[{" or _name(inner[0]) == "record"))]


def _check_typed(name: str, one: SqlColumn) -> None:
    """Raise WireError 42804 for a literal without a type; a column of such literals has texts."""
    if one.type is None and (one.text == "NULL" or one.text.startswith("'")):
        raise WireError("42804", f"the type of the argument of {name} is unknown", "cast it", code="P0204")


def as_json(one: SqlColumn) -> str:
    """Return a value as a text of JSON, `null` where it is NULL."""
    form = _json_form(one)
    text = one.text if form in ("bool", "json") or form[0] in "[{" else shown(one).text
    return f"pg_fn_pg_json({text}, {text_literal(form)})"


def _json_form(one: SqlColumn) -> str:
    """Return the form of a value (`values/json_texts.py`)."""
    if one.fields is not None:
        return json.dumps({name: _form_of(type_) for name, type_ in one.fields.items()})
    return "json" if _name(one) == "record" else _form_of(one.type)


def _form_of(type_: WireType | None) -> str:
    if type_ is None:
        return "text"
    if type_.element:
        return f"[{_form_of(type_of_oid(type_.element))}]"
    if type_.name in ("bool", "json"):
        return type_.name
    if type_.name == "jsonb":
        return "json"
    return "number" if type_.name in _JSON_NUMBERS else "moment" if type_.name in MOMENT_TYPES else "text"
