"""Texts for DuckDB of values with types: of one type, cast to another, as PostgreSQL writes them.

A `numeric` is a text that is compared without regard to the case of letters (`values/decimals.py`), types that stand
for an oid are numbers until they are shown, and JSON, `uuid` and `bytea` are texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from penstock.pgwire.catalog.translation.scopes import SqlColumn
from penstock.pgwire.protocol.errors import WireError, unsupported
from penstock.pgwire.values.duck_types import REGISTERS, duck_type
from penstock.pgwire.values.wire_types import INTEGERS, WireType, type_of_oid, wire_type

BOOL, TEXT, INT, BIGINT = wire_type("bool"), wire_type("text"), wire_type("int4"), wire_type("int8")
NUMERIC, REAL, INTERVAL = wire_type("numeric"), wire_type("float8"), wire_type("interval")
FLOATING = frozenset({"float4", "float8"})
MOMENT_TYPES = frozenset({"timestamp", "timestamptz", "date"})
#: Types of numbers and instants: several values are of the last type that one of them has.
_RANKS = ("int2", "int4", "int8", "oid", "numeric", "float4", "float8", "date", "timestamp", "timestamptz")
#: Types that are cast to a `name` by themselves, which is not cast to one of them. Of others the first is taken.
_NAMES = frozenset({"varchar", "bpchar"})
_COLLATED = " COLLATE NOCASE"


def name_of(one: SqlColumn) -> str:
    """Return the name of the type of a value, empty for a text without one."""
    return "" if one.type is None else one.type.name


def element_of(one: SqlColumn) -> WireType | None:
    """Return the type of the elements of an array."""
    return None if one.type is None else type_of_oid(one.type.element)


def ordered(one: SqlColumn) -> SqlColumn:
    """Return a `numeric` so that it is compared as a number, another value as it is."""
    if name_of(one) != "numeric" or one.text.endswith(_COLLATED + ")"):
        return one
    return replace(one, text=f"({one.text}{_COLLATED})")


def made(function: str, type_: WireType, *arguments: str) -> SqlColumn:
    """Return a call of a function with a result of a type."""
    text = f"{function}({', '.join(arguments)})"
    cast = type_.name != "bool" and duck_type(type_) not in ("VARCHAR", "BIGINT")
    return ordered(SqlColumn(f"{text}::{duck_type(type_)}" if cast else text, type_))


# -- casts -----------------------------------------------------------------------------------------------------


def cast(one: SqlColumn, target: WireType) -> SqlColumn:
    """Return a value as one of another type. Raises WireError 42846 where it cannot be cast."""
    source, name = name_of(one), target.name
    if source == name:
        return one
    if one.text == "NULL":
        return SqlColumn(f"NULL::{duck_type(target)}", target)
    plain, is_text = SqlColumn(f"{one.text}::{duck_type(target)}", target), duck_type(one.type) == "VARCHAR"
    is_text &= source != "numeric"
    if name in INTEGERS:
        if is_text:
            return made("px_whole", target, one.text, f"'{name}'")
        if source == "numeric":
            return made("px_whole_of_numeric", target, one.text, f"'{name}'")
        if name in ("oid", "xid") and source in ("int2", "int4"):
            # The same bits.
            return SqlColumn(f"({one.text}::BIGINT & 4294967295)", target)
        return SqlColumn(f"{one.text}::UINTEGER::BIGINT", target) if name == "oid" and source == "int8" else plain
    if name == "numeric":
        return made("px_numeric", target, one.text, f"'{source}'")
    if name in FLOATING:
        if source == "numeric":
            one = made("px_real_of_numeric", REAL, one.text)
        elif name == "float8":
            return made("px_real", target, one.text) if is_text else plain
        return made("px_single", target, one.text) if name == "float4" else one
    if name == "bool":
        if not is_text and source != "int4":
            shown_type = "" if one.type is None else one.type.shown
            raise WireError("42846", f"a {shown_type} cannot be cast to boolean", code="P0203")
        return made("px_boolean", target, one.text) if is_text else plain
    if name in REGISTERS:
        return made(f"px_{name}", target, one.text) if is_text else plain
    if target.element:
        return _array_of(one, target)
    if name in MOMENT_TYPES:
        return SqlColumn(f"px_moment({one.text}, '{name}')::{duck_type(target)}", target) if is_text else plain
    if name == "interval":
        return made("px_interval", target, one.text)
    if name == "uuid" and is_text:
        return made("px_uuid", target, one.text)
    if name == "jsonb":
        return made("px_jsonb", target, one.text)
    return replace(shown(one), type=target)


def _array_of(one: SqlColumn, target: WireType) -> SqlColumn:
    """Return an array, or a text that is one, as an array of a type."""
    element, inner = type_of_oid(target.element) or TEXT, element_of(one)
    if inner is None:
        split = f"string_split({one.text}, ' ')" if target.name.endswith("vector") else f"px_elements({one.text})"
        one, inner = SqlColumn(split, wire_type("_text")), TEXT
    if duck_type(inner) == duck_type(element) and "numeric" not in (inner.name, element.name):
        return replace(one, type=target)
    each = cast(SqlColumn("e", inner), element)
    return SqlColumn(f"list_transform({one.text}, lambda e: {each.text})", target)


def as_type(one: SqlColumn, type_: WireType | None) -> SqlColumn:
    """Return a text without a type as a value of a type; another value as it is."""
    return one if one.type is not None or type_ is None else cast(one, type_)


def shown(one: SqlColumn) -> SqlColumn:
    """Return a value as PostgreSQL writes it as a text."""
    name = name_of(one)
    if name in REGISTERS:
        return SqlColumn(f"px_{name}_name({one.text})", TEXT)
    if name in FLOATING or name in ("numeric", "interval") or (one.type is not None and one.type.element):
        return SqlColumn(f"px_text({portable(one)}, '{name}')", TEXT)
    if name == "bpchar":
        return SqlColumn(f"rtrim({one.text}, ' ')", TEXT)
    return SqlColumn(one.text if duck_type(one.type) == "VARCHAR" else f"{one.text}::VARCHAR", TEXT)


def portable(one: SqlColumn) -> str:
    """Return the text of a value as functions in Python take it: an instant or a length of time is its text."""
    element = element_of(one)
    name = name_of(one) if element is None else element.name
    if name in MOMENT_TYPES or name == "interval":
        return f"{one.text}::VARCHAR{'' if element is None else '[]'}"
    return one.text


# -- several values --------------------------------------------------------------------------------------------


def is_number(type_: WireType) -> bool:
    """Return whether the values of a type are numbers."""
    return type_.name in INTEGERS or type_.name in FLOATING or type_.name == "numeric"


def alike(left: SqlColumn, right: SqlColumn) -> tuple[SqlColumn, SqlColumn]:
    """Return two values so that they can be compared: of one type where they are numbers or instants."""
    if left.type is not None and right.type is not None:
        # Whole numbers are compared as floating point numbers or decimals then.
        names = {left.type.name, right.type.name}
        common = "float8" if names & FLOATING else "numeric" if "numeric" in names else ""
        if common and is_number(left.type) and is_number(right.type):
            return cast(left, wire_type(common)), cast(right, wire_type(common))
        if len(names) > 1 and names <= MOMENT_TYPES:
            type_ = wire_type("timestamptz" if "timestamptz" in names else "timestamp")
            return cast(left, type_), cast(right, type_)
        if len(names) > 1 and names & (MOMENT_TYPES | {"interval"}):
            shown_types = f"{left.type.shown} and {right.type.shown}"
            raise WireError("42883", f"{shown_types} cannot be compared", "cast one of them", code="P0204")
    return as_type(left, right.type), as_type(right, left.type)


def of_one_type(given: Sequence[SqlColumn]) -> tuple[list[SqlColumn], WireType | None]:
    """Return values as those of one type, and the type: None where all are texts without one."""
    type_ = common_type([one.type for one in given])
    return [as_common(one, type_) for one in given], type_


def common_type(given: Sequence[WireType | None]) -> WireType | None:
    """Return the type that values of several types have in common: of one kind the widest."""
    found: WireType | None = None
    for one in given:
        if found is None:
            found = one
        elif one is not None:
            both = [found, one]
            if all(map(is_number, both)) or all(each.name in MOMENT_TYPES for each in both):
                found = max(both, key=lambda each: _RANKS.index(each.name) if each.name in _RANKS else -1)
            elif one.name == "name" and found.name in _NAMES:
                found = one
    return found


def as_common(one: SqlColumn, type_: WireType | None) -> SqlColumn:
    """Return a value as one of the type that it has in common with others; None: a text without one."""
    if type_ is None or one.type is None:
        return as_type(one, type_)
    names = {one.type.name, type_.name}
    if len(names) > 1 and ((is_number(one.type) and is_number(type_)) or names <= MOMENT_TYPES):
        return cast(one, type_)
    return one


def widest(left: WireType | None, right: WireType | None) -> WireType | None:
    """Return the type of what two numbers give."""
    names = [one.name for one in (left, right) if one is not None]
    if "float4" in names and len({*names}) > 1:
        return REAL
    found = next((wire_type(n) for n in ("float8", "numeric", "int8", "oid", "int4") if n in names), left or right)
    return BIGINT if found is not None and found.name == "oid" else found


# -- types with a length or digits -----------------------------------------------------------------------------


def with_modifier(one: SqlColumn, to: exp.Expr) -> SqlColumn:
    """Return a `numeric` with the precision and scale of a cast, a text with its length; another value as it is."""
    name, given = name_of(one), [str(part.this) for part in to.expressions]
    if name == "numeric" and given:
        precision, scale = (
            (int(given[0]), int(given[1]) if len(given) > 1 else 0)
            if all(part.isdigit() and len(part) < 5 for part in given)
            else (0, 0)
        )
        if not 1 <= precision <= 1_000 or not 0 <= scale <= 1_000:
            raise WireError("22023", "numeric(precision, scale) has 1 to 1,000 digits", code="P0207")
        return made("px_modified", NUMERIC, one.text, str(precision), str(scale))
    if name == "bpchar" or (name == "varchar" and given):
        length = given[0] if given else "1"
        if not length.isdigit() or not 0 < int(length[:9]) <= 10_485_760:
            raise WireError("22023", "a text has a length of 1 to 10,485,760", code="P0207")
        text = f"rpad({one.text}, {int(length)}, ' ')" if name == "bpchar" and length != "1" else one.text
        return replace(one, text=f"substring({text}, 1, {int(length)})")
    return one


def number_type(type_: WireType) -> str:
    """Return the name of a type of numbers. Raises WireError 0A000 for another."""
    if not is_number(type_):
        raise unsupported(f"arithmetic with {type_.shown} is not known over the catalogs")
    return type_.name


def is_vector(one: SqlColumn) -> bool:
    """Return whether a value is an array that is counted from 0, as those of `pg_index`."""
    return name_of(one) in ("int2vector", "oidvector")


def literal_of(node: exp.Expr) -> str | None:
    """Return the text of a literal, None for another expression."""
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None
