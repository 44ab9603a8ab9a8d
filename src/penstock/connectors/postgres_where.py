"""The part of a condition that PostgreSQL evaluates like Penstock, as SQL for a WHERE.

Contract: every row for which the condition is true passes, and so does every row that cannot be read as declared,
because it must be reported as malformed. Rows for which the condition is not true may pass; it is evaluated again. Only
conditions that mean the same there are written: equality of texts (their order is the database's), comparisons of
numbers other than doubles, of dates and timestamps, with constants, IN, IS NULL, and AND, OR and NOT of these. Any
other operand of an AND is left out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.postgres import NUMERIC, sql
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.evaluation.value_ranges import widened
from penstock.expressions.nodes import Call, Cast, Column, Expression, Literal

_T = pa.types
_TEXTS, _NAIVE, _MOMENTS = (25, 1043), 1114, (1114, 1184)
_SIGNS = {"EQ": "=", "NE": "<>", "LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "EQ_NULL_SAFE": "IS NOT DISTINCT FROM"}
_EQUALITIES = ("EQ", "NE", "EQ_NULL_SAFE")


@dataclass(frozen=True)
class ServerColumn:
    """A column of the server. `name`: there; `oid`: its type's number; `kind`: as Arrow, None for a number of any size;
    `declared`: the type it is read as.
    """

    name: str
    oid: int
    kind: pa.DataType | None
    declared: pa.DataType


def where_of(predicate: Expression, columns: Sequence[ServerColumn]) -> sql.Composable | None:
    """Return the condition for rows with these columns; None for all rows."""
    guards = [_unreadable_rows(column) for column in columns]
    if volatile(predicate) or any(guard is None for guard in guards):
        return None
    condition = _implied(predicate, columns)
    if condition is None:
        return None
    return sql.SQL(" OR ").join([condition, *(guard for guard in guards if isinstance(guard, sql.Composable))])


def _unreadable_rows(column: ServerColumn) -> sql.Composable | str | None:
    """Return SQL for the rows whose value cannot be read as declared, empty where all can; None where SQL cannot
    decide.
    """
    name = sql.Identifier(column.name)
    if column.oid == NUMERIC:
        return None if column.kind is None else sql.SQL("{} = 'NaN'").format(name)
    if column.kind is None or not (_T.is_date(column.kind) or _T.is_timestamp(column.kind)):
        return ""
    return sql.SQL("NOT {} BETWEEN '0001-01-01' AND '9999-12-31'").format(name)


def _implied(condition: Expression, columns: Sequence[ServerColumn]) -> sql.Composable | None:
    """Return SQL that is true wherever `condition` is; None for a condition that is always true."""
    if isinstance(condition, Call) and condition.function == "AND":
        parts = [_implied(part, columns) for part in condition.arguments]
        return _joined(" AND ", [part for part in parts if part is not None])
    if isinstance(condition, Call) and condition.function == "OR":
        parts = [_implied(part, columns) for part in condition.arguments]
        conditions = [part for part in parts if part is not None]
        return None if len(conditions) < len(parts) else _joined(" OR ", conditions)
    return _equivalent(condition, columns)


def _equivalent(condition: Expression, columns: Sequence[ServerColumn]) -> sql.Composable | None:
    """Return SQL with exactly the truth value of `condition`, NULL included; None where there is none."""
    if isinstance(condition, Column):
        column = columns[condition.index]
        return sql.Identifier(column.name) if column.oid == 16 else None
    if not isinstance(condition, Call):
        return None
    name, arguments = condition.function, condition.arguments
    if name in ("AND", "OR"):
        parts = [_equivalent(part, columns) for part in arguments]
        conditions = [part for part in parts if part is not None]
        return None if len(conditions) < len(parts) else _joined(f" {name} ", conditions)
    if name == "NOT":
        inner = _equivalent(arguments[0], columns)
        return None if inner is None else sql.SQL("NOT ({})").format(inner)
    if name in ("IS_NULL", "IS_NOT_NULL"):
        if not isinstance(arguments[0], Column):
            return None
        text = "{} IS NULL" if name == "IS_NULL" else "{} IS NOT NULL"
        return sql.SQL(text).format(sql.Identifier(columns[arguments[0].index].name))
    return _comparison(name, arguments, columns)


def _comparison(name: str, arguments: tuple[Expression, ...], columns: Sequence[ServerColumn]) -> sql.Composable | None:
    column = next((compared for argument in arguments if (compared := _column(argument, columns)) is not None), None)
    if column is None or not (name in _SIGNS or (name == "IN" and _column(arguments[0], columns) is column)):
        return None
    if column.oid in _TEXTS and name not in (*_EQUALITIES, "IN"):
        return None
    sides = [_side(argument, columns, column) for argument in arguments]
    if None in sides or sum(_column(argument, columns) is not None for argument in arguments) != 1:
        return None
    if name == "IN":
        return sql.SQL("{} IN ({})").format(sides[0], sql.SQL(", ").join(sides[1:]))
    return sql.SQL("{} {} {}").format(sides[0], sql.SQL(_SIGNS[name]), sides[1])


def _column(expression: Expression, columns: Sequence[ServerColumn]) -> ServerColumn | None:
    """Return the column that `expression` is, if PostgreSQL compares it like Penstock."""
    if isinstance(expression, Cast) and widened(expression.argument.type, expression.type):
        expression = expression.argument
    if not isinstance(expression, Column):
        return None
    column = columns[expression.index]
    return column if any(alike(column) for alike in _ALIKE) else None


_ALIKE: tuple[Callable[[ServerColumn], bool], ...] = (
    lambda c: c.oid == 16 and _T.is_boolean(c.declared),
    lambda c: c.oid in (20, 21, 23) and _T.is_integer(c.declared),
    lambda c: c.oid == NUMERIC and _T.is_decimal(c.declared),
    lambda c: c.oid in _TEXTS and _T.is_string(c.declared),
    lambda c: c.oid == 1082 and _T.is_date(c.declared),
    lambda c: c.oid in _MOMENTS and _T.is_timestamp(c.declared),
)


def _side(expression: Expression, columns: Sequence[ServerColumn], column: ServerColumn) -> sql.Composable | None:
    """Return one side of a comparison with `column` as SQL."""
    if not isinstance(expression, Literal):
        if _column(expression, columns) is None:
            return None
        name = sql.Identifier(column.name)
        return sql.SQL('{} COLLATE "C"').format(name) if column.oid in _TEXTS else name
    value = expression.value
    if isinstance(value, str) and "\0" in value:
        return None  # PostgreSQL cannot represent this text
    if isinstance(value, dt.datetime):
        value = value.astimezone(dt.UTC)
        value = value.replace(tzinfo=None) if column.oid == _NAIVE else value
    return sql.Literal(value)


def _joined(word: str, parts: Sequence[sql.Composable]) -> sql.Composable | None:
    return sql.SQL("({})").format(sql.SQL(word).join(parts)) if parts else None
