"""Texts for SQLite of values with types: of one type, as a number, as PostgreSQL writes them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.server.pgwire.catalog.moments import MOMENT_TYPES
from penstock.server.pgwire.catalog.numeric_casts import INTEGERS, REALS, keeps_values
from penstock.server.pgwire.catalog.scopes import SqlColumn
from penstock.server.pgwire.protocol.errors import WireError, unsupported
from penstock.server.pgwire.values.wire_types import WireType, type_of_oid, wire_type

BOOL, TEXT, INT, BIGINT = wire_type("bool"), wire_type("text"), wire_type("int4"), wire_type("int8")
#: Types whose values are texts with an order of their own.
COLLATED = frozenset({"numeric", "interval"})
#: Types that stand for an oid, and what they are of.
REGISTERS = frozenset({"regclass", "regtype", "regnamespace"})
#: Types of numbers: several values are of the last type that one of them has.
_RANKS = ("int2", "int4", "int8", "oid", "numeric", "float4", "float8", "date", "timestamp", "timestamptz")
#: Types that are cast to a `name` by themselves, which is not cast to one of them. Of others the first is taken.
_NAMES = frozenset({"varchar", "bpchar"})
_FLOATING = frozenset({"float4", "float8"})
#: Functions that change a number alone.
ROUNDING = frozenset({"abs", "round", "ceil", "ceiling", "floor", "trunc"})


def alike(left: SqlColumn, right: SqlColumn) -> tuple[SqlColumn, SqlColumn]:
    """Return two values of which a text without a type has become a value of the other's type."""
    if left.type is not None and right.type is not None:
        # Whole numbers are compared as floating point numbers or decimals then.
        names = {left.type.name, right.type.name}
        common = "float8" if names & _FLOATING else "numeric" if "numeric" in names else ""
        if common:
            return _common(left, wire_type(common)), _common(right, wire_type(common))
        if len(names) > 1 and names <= MOMENT_TYPES:
            type_ = wire_type("timestamptz" if "timestamptz" in names else "timestamp")
            return _common(left, type_), _common(right, type_)
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
    return as_type(one, type_) if type_ is None else _common(one, type_)


def _common(one: SqlColumn, type_: WireType) -> SqlColumn:
    """Return a value as one of the type that it has in common with others."""
    if one.type is not None and one.type.name != type_.name and is_number(one.type) and is_number(type_):
        return ordered(as_number_of(one, type_))
    if one.type is not None and one.type.name != type_.name and {one.type.name, type_.name} <= MOMENT_TYPES:
        return SqlColumn(f"pg_fn_pg_moment({one.text}, '{type_.name}')", type_)
    return as_type(one, type_)


def ordered(one: SqlColumn) -> SqlColumn:
    """Return a value that is compared as those of its type are: the text of a `numeric` or an `interval` not as a
    text, and any other text not as they are, of which it may be made."""
    name = "" if one.type is None else one.type.name
    if name in COLLATED:
        ending = f" COLLATE pg_{name})"
        return one if one.text.endswith(ending) else SqlColumn(f"({one.text}{ending}", one.type)
    if " COLLATE pg_" in one.text and (one.type is None or not (is_number(one.type) or name == "bool")):
        return SqlColumn(f"({one.text} COLLATE BINARY)", one.type)
    return one


def as_type(one: SqlColumn, type_: WireType | None) -> SqlColumn:
    """Return a text without a type as a value of a type; another value as it is."""
    if one.type is not None or type_ is None or one.text == "NULL":
        return one
    if type_.name in INTEGERS or type_.name in REALS:
        return ordered(as_number_of(one, type_))
    if type_.name in REGISTERS:
        return SqlColumn(f"pg_fn_pg_{type_.name}({one.text})", type_)
    if type_.name == "bool":
        return SqlColumn(f"pg_fn_pg_bool({one.text})", type_)
    if type_.name in MOMENT_TYPES:
        return SqlColumn(f"pg_fn_pg_moment({one.text}, '{type_.name}')", type_)
    if type_.name == "interval":
        return ordered(SqlColumn(f"pg_fn_pg_interval({one.text})", type_))
    return SqlColumn(f"pg_fn_pg_array({one.text}, '{type_.name}')", type_) if type_.element else one


def as_number_of(inner: SqlColumn, target: WireType) -> SqlColumn:
    """Return a value as a number of a type."""
    is_whole = target.name in INTEGERS
    if target.name == "oid" and inner.type is not None and inner.type.name in ("int2", "int4"):
        # The same bits.
        return SqlColumn(f"({inner.text} & 4294967295)", target)
    real = inner.type.name if inner.type is not None and inner.type.name in REALS else ""
    if keeps_values(inner.type, target):
        # What is no number is a text for SQLite, which a cast would make 0.
        kept = (
            inner.text if real or inner.type == target else f"CAST({inner.text} AS {'INTEGER' if is_whole else 'REAL'})"
        )
        return SqlColumn(kept, target)
    if target.name == "numeric":
        return SqlColumn(f"pg_fn_pg_numeric({inner.text}, '{real}')", target)
    if not is_whole:
        name = "pg_float4" if target.name == "float4" else "pg_real"
        return SqlColumn(f"pg_fn_{name}({inner.text})", target)
    return SqlColumn(f"pg_fn_pg_{target.name}({inner.text}, '{real}')", target)


def shown(one: SqlColumn) -> SqlColumn:
    """Return a value as PostgreSQL writes it as a text."""
    if one.type is not None and one.type.name in REGISTERS:
        return SqlColumn(f"pg_fn_pg_{one.type.name}_name({one.text})", TEXT)
    if one.type is not None and one.type.name in REALS:
        if one.type.name == "numeric":
            return ordered(SqlColumn(one.text, TEXT))
        return SqlColumn(f"pg_fn_pg_real_text({one.text}, '{one.type.name}')", TEXT)
    if one.type is not None and one.type.name in ("timestamp", "timestamptz"):
        return SqlColumn(f"pg_fn_pg_moment_text({one.text})", TEXT)
    if one.type is not None and one.type.element:
        element = type_of_oid(one.type.element)
        return SqlColumn(f"pg_fn_pg_array_text({one.text}, '{element.name if element else ''}')", TEXT)
    if one.type is BOOL:
        return SqlColumn(f"CASE {one.text} WHEN 1 THEN 'true' WHEN 0 THEN 'false' END", TEXT)
    return one


def summed(name: str, type_: WireType | None) -> tuple[WireType, str]:
    """Return the type of `sum` or `avg` over values of a type, and the function that carries it out."""
    if type_ is not None and type_.name == "interval":
        return type_, f"pg_fn_pg_interval_{name}"
    if type_ is None or not is_number(type_):
        state = "42725" if type_ is None else "42883"
        raise WireError(state, f"there is no {name} of these values", "cast them to a type", code="P0204")
    if type_.name in _FLOATING:
        return wire_type("float4" if name == "sum" and type_.name == "float4" else "float8"), f"pg_fn_pg_{name}"
    if name == "sum" and type_.name in ("int2", "int4"):
        return BIGINT, "sum"
    return wire_type("numeric"), f"pg_fn_pg_decimal_{name}"


def with_modifier(one: SqlColumn, to: exp.Expr) -> SqlColumn:
    """Return a `numeric` with the precision and scale of a cast, another value as it is."""
    given = [str(part.this) for part in to.expressions] if one.type is not None and one.type.name == "numeric" else []
    if not given:
        return one
    precision, scale = (
        (int(given[0]), int(given[1]) if len(given) > 1 else 0)
        if all(part.isdigit() and len(part) < 5 for part in given)
        else (0, 0)
    )
    if not 1 <= precision <= 1_000 or not 0 <= scale <= 1_000:
        raise WireError("22023", "numeric(precision, scale) has 1 to 1,000 digits", code="P0207")
    return SqlColumn(f"pg_fn_pg_numeric({one.text}, '', {precision}, {scale})", one.type)


def with_length(one: SqlColumn, to: exp.Expr) -> SqlColumn:
    """Return a text with the length of a cast, such as `varchar(3)`; a shorter one as it is."""
    name = "" if one.type is None else one.type.name
    if name not in ("varchar", "bpchar") or (name == "varchar" and not to.expressions):
        return one
    length = str(to.expressions[0].this) if to.expressions else "1"
    if name == "bpchar" and length != "1":
        raise unsupported("texts that are filled up with blanks are not known over the catalogs", "use varchar(n)")
    if not length.isdigit() or not 0 < int(length[:9]) <= 10_485_760:
        raise WireError("22023", "a text has a length of 1 to 10,485,760", code="P0207")
    return SqlColumn(f"substr({one.text}, 1, {int(length)})", one.type)


def rounded(name: str, inner: Sequence[SqlColumn]) -> SqlColumn:
    """Return what a function gives that rounds, or takes the sign away."""
    if not 1 <= len(inner) <= (2 if name in ("round", "trunc") else 1):
        raise WireError("42883", f"{name} cannot be called with {len(inner)} values", code="P0204")
    one = as_type(inner[0], wire_type("float8"))
    type_ = one.type or wire_type("float8")
    if name == "abs":
        return SqlColumn(f"pg_fn_pg_absolute({one.text}, '{number_type(type_)}')", type_)
    digits = ", " + inner[1].text if len(inner) > 1 else ""
    result = wire_type("numeric") if digits or type_.name == "numeric" else wire_type("float8")
    one = as_number_of(one, result)
    text = f"pg_fn_pg_rounded({one.text}, '{number_type(result)}', '{name}'{digits})"
    return SqlColumn(text, result)


def is_vector(type_: WireType | None) -> bool:
    """Return whether the values of a type are arrays that are counted from 0, as those of `pg_index`."""
    return type_ is not None and type_.name in ("int2vector", "oidvector")


def is_number(type_: WireType) -> bool:
    """Return whether the values of a type are numbers."""
    return type_.name in INTEGERS or type_.name in REALS


def widest(left: WireType | None, right: WireType | None) -> WireType | None:
    """Return the type of what two numbers give."""
    names = [one.name for one in (left, right) if one is not None]
    if "float4" in names and len({*names}) > 1:
        return wire_type("float8")
    return next((wire_type(n) for n in ("float8", "numeric", "int8", "int4") if n in names), left or right)


def number_type(type_: WireType) -> str:
    """Return the name of a type of numbers. Raises WireError 0A000 for another."""
    if not is_number(type_):
        raise unsupported(f"arithmetic with {type_.shown} is not known over the catalogs")
    return type_.name
