"""Expressions as SQL text for people: plans, column names, messages. Casts that the binder inserted are left out."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Sequence

import pyarrow as pa

from penstock.expressions.aggregates import written_call
from penstock.expressions.coercion import DURATION, is_numeric
from penstock.expressions.nodes import (
    AggregateCall,
    Call,
    Cast,
    Column,
    Expression,
    Literal,
    OuterColumn,
    SummaryEstimate,
)
from penstock.expressions.user import UserCall
from penstock.types import TIMESTAMP, Unit, type_name

#: Precedence of operators; a function call or a name has the highest.
_OR, _AND, _NOT, _COMPARE, _BIT_OR, _BIT_XOR, _BIT_AND, _JOIN, _SUM, _PRODUCT, _UNARY, _ARROW, _ATOM = range(13)

#: canonical name -> (sign, precedence, whether a right operand of the same precedence needs no parentheses).
_INFIX: dict[str, tuple[str, int, bool]] = {
    "OR": ("OR", _OR, True), "AND": ("AND", _AND, True),
    "EQ": ("=", _COMPARE, False), "NE": ("<>", _COMPARE, False), "LT": ("<", _COMPARE, False),
    "LE": ("<=", _COMPARE, False), "GT": (">", _COMPARE, False), "GE": (">=", _COMPARE, False),
    "EQ_NULL_SAFE": ("<=>", _COMPARE, False), "LIKE": ("LIKE", _COMPARE, False), "ILIKE": ("ILIKE", _COMPARE, False),
    "RLIKE": ("RLIKE", _COMPARE, False), "BIT_OR": ("|", _BIT_OR, True), "BIT_XOR": ("^", _BIT_XOR, True),
    "BIT_AND": ("&", _BIT_AND, True), "CONCAT": ("||", _JOIN, True), "ADD": ("+", _SUM, False),
    "SUB": ("-", _SUM, False), "MUL": ("*", _PRODUCT, False), "DIV": ("/", _PRODUCT, False),
    "INT_DIV": ("/", _PRODUCT, False), "MOD": ("%", _PRODUCT, False),
}  # fmt: skip
_ARROWS = {"JSON_GET": "->", "JSON_GET_TEXT": "->>"}
_POSTFIX = {"IS_NULL": "IS NULL", "IS_NOT_NULL": "IS NOT NULL"}
#: `NOT (a LIKE b)` reads better as `a NOT LIKE b`.
_NEGATED = {"LIKE": "NOT LIKE", "ILIKE": "NOT ILIKE", "RLIKE": "NOT RLIKE", "IN": "NOT IN"}


def to_sql(expression: Expression, names: Sequence[str] | None = None) -> str:
    """Return `expression` as SQL. `names`: names of the columns, by position; by default their own display names."""
    return _Writer(names).write(expression)[0]


class _Writer:
    def __init__(self, names: Sequence[str] | None) -> None:
        self._names = names

    def write(self, node: Expression) -> tuple[str, int]:
        """Return (text, precedence of its outermost operator)."""
        if isinstance(node, Column):
            return self._column(node), _ATOM
        if isinstance(node, OuterColumn):
            return node.name, _ATOM
        if isinstance(node, Literal):
            text = literal_text(node.value, node.type)
            return text, _UNARY if text.startswith("-") else _ATOM
        if isinstance(node, Cast):
            return f"CAST({self._text(node.argument)} AS {type_name(node.type)})", _ATOM
        if isinstance(node, AggregateCall):
            return self._aggregate(node), _ATOM
        if isinstance(node, UserCall):
            return f"{node.function.name}({', '.join(self._text(_shown(a)) for a in node.arguments)})", _ATOM
        if isinstance(node, SummaryEstimate):
            columns = ", ".join(self._column(column) for column in node.columns)
            return f"{node.summary}.Estimate.{node.quantity.capitalize()}({columns})", _ATOM
        assert isinstance(node, Call)
        return self._call(node)

    def _column(self, node: Column) -> str:
        if self._names is not None and node.index < len(self._names):
            return self._names[node.index]
        return node.name or f"#{node.index}"

    def _text(self, node: Expression) -> str:
        return self.write(node)[0]

    def _operand(self, node: Expression, least: int) -> str:
        """Return an operand, in parentheses unless its precedence is at least `least`."""
        text, precedence = self.write(_shown(node))
        return text if precedence >= least else f"({text})"

    def _call(self, node: Call) -> tuple[str, int]:
        name, arguments = node.function, node.arguments
        if name in _INFIX and len(arguments) == 2:
            return self._infix(node)
        if name in _ARROWS:
            return f"{self._operand(arguments[0], _ARROW)} {_ARROWS[name]} {self._operand(arguments[1], _ATOM)}", _ARROW
        if name == "CONCAT" and len(arguments) > 2:
            return " || ".join(self._operand(a, _JOIN) for a in arguments), _JOIN
        if name in _POSTFIX:
            return f"{self._operand(arguments[0], _COMPARE + 1)} {_POSTFIX[name]}", _COMPARE
        if name == "NOT":
            return self._not(arguments[0])
        if name in ("NEG", "BIT_NOT"):
            return f"{'-' if name == 'NEG' else '~'}{self._operand(arguments[0], _ATOM)}", _UNARY
        if name in ("LIKE", "ILIKE"):
            text, escape = self._infix(Call(node.type, name, arguments[:2]))[0], self._text(arguments[2])
            return f"{text} ESCAPE {escape}", _COMPARE
        if name == "IN":
            return self._in(arguments, "IN"), _COMPARE
        if name == "CASE":
            return self._case(arguments), _ATOM
        if name == "AT_TIME_ZONE":
            time, precedence = self.write(arguments[0])  # with its cast, which decides the direction
            time = time if precedence >= _ATOM else f"({time})"
            return f"{time} AT TIME ZONE {self._operand(arguments[1], _ATOM)}", _UNARY
        if name == "TRY_CAST":
            return f"TRY_CAST({self._text(arguments[0])} AS {type_name(node.type)})", _ATOM
        return f"{name.lower()}({', '.join(self._text(_shown(a)) for a in arguments)})", _ATOM

    def _infix(self, node: Call, sign: str | None = None) -> tuple[str, int]:
        plain, precedence, associative = _INFIX[node.function]
        left, right = node.arguments
        # Comparisons do not chain: `(a = b) = c` keeps its parentheses.
        least = precedence + 1 if precedence == _COMPARE else precedence
        a = self._operand(left, least)
        b = self._operand(right, precedence if associative else precedence + 1)
        return f"{a} {sign or plain} {b}", precedence

    def _not(self, inner: Expression) -> tuple[str, int]:
        if isinstance(inner, Call) and inner.function in _NEGATED:
            if inner.function == "IN":
                return self._in(inner.arguments, "NOT IN"), _COMPARE
            if len(inner.arguments) == 2:
                return self._infix(inner, _NEGATED[inner.function])
        return f"NOT {self._operand(inner, _NOT + 1)}", _NOT

    def _in(self, arguments: tuple[Expression, ...], word: str) -> str:
        members = ", ".join(self._text(_shown(a)) for a in arguments[1:])
        return f"{self._operand(arguments[0], _COMPARE + 1)} {word} ({members})"

    def _case(self, arguments: tuple[Expression, ...]) -> str:
        pairs = len(arguments) // 2
        texts = [self._text(_shown(a)) for a in arguments]
        branches = [f"WHEN {texts[2 * i]} THEN {texts[2 * i + 1]}" for i in range(pairs)]
        last = [f"ELSE {texts[-1]}"] if len(arguments) % 2 else []
        return " ".join(["CASE", *branches, *last, "END"])

    def _aggregate(self, node: AggregateCall) -> str:
        written = written_call(node)
        inside = ", ".join(self._text(_shown(a)) for a in written.inside) or ("" if written.within else "*")
        order = ""
        if written.keys:
            keys = ", ".join(self._text(_shown(key)) + direction.text for key, direction in written.keys)
            order = f"ORDER BY {keys}"
        inside += f" {order}" if order and not written.within else ""
        text = f"{node.function.lower()}({'DISTINCT ' if node.distinct else ''}{inside})"
        text += f" WITHIN GROUP ({order})" if written.within else ""
        return text if node.filter is None else f"{text} FILTER (WHERE {self._text(node.filter)})"


def _shown(node: Expression) -> Expression:
    """Return an operand without the cast that coercion wrapped around it: one that widens a number, or parses a
    literal.
    """
    if isinstance(node, Cast):
        source = node.argument.type
        if _widens(source, node.type) or isinstance(node.argument, Literal):
            return node.argument
    return node


_ORDER = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), None, pa.float32(), pa.float64())


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    return is_numeric(source) and is_numeric(target) and _rank(source) <= _rank(target)


def _rank(type_: pa.DataType) -> int:
    return _ORDER.index(type_) if type_ in _ORDER else _ORDER.index(None)


def literal_text(value: object, type_: pa.DataType) -> str:
    """Return a constant in SQL notation."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"CAST('{value}' AS {type_name(type_)})"
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if type_ == TIMESTAMP and isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(' ')}'"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP_NTZ '{value.isoformat(' ')}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if type_ == DURATION:
        return _interval(pa.scalar(value, type_).cast(pa.int64()).as_py())
    return str(value)


def _interval(micros: int) -> str:
    unit = next((u for u in reversed(Unit) if micros and micros % u.value == 0), Unit.SECOND)
    return f"INTERVAL {micros // unit.value} {unit.name}"
