"""Which values a column can have, where the conditions of a query leave finitely many `[golab 2.2.1]`.

Contract: a domain is a superset of the values of the column. Equalities with constants, IN, ranges of integers and of
dates, and BOOLEAN columns bound it; anything else is any value. Of floating point numbers nothing is concluded: two
that are equal may be different (-0.0 and 0.0).
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.expressions.nodes import MIRRORED, Call, Cast, Column, Expression, Literal, conjuncts

#: With more values than these together, columns count as unbounded: so many rows are no small state.
MOST_VALUES = 100_000

_T = pa.types
_NEGATED = {"EQ": "NE", "NE": "EQ", "LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT"}
_EPOCH = dt.date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Domain:
    """The values that a column can have.

    Args:
        members: all of them but NULL; None for those between `low` and `high`.
        low, high: of integers, and of dates as days since 1970-01-01; infinite where there is no bound.
        nulls: whether NULL is one of them.
    """

    members: frozenset[object] | None = None
    low: float = -math.inf
    high: float = math.inf
    nulls: bool = True

    @property
    def size(self) -> float:
        """Return the number of values, NULL among them; infinite for no bound."""
        own = self.high - self.low + 1 if self.members is None else len(self.members)
        return max(0.0, own) + self.nulls

    def __and__(self, other: Domain) -> Domain:
        nulls = self.nulls and other.nulls
        if self.members is not None and other.members is not None:
            return Domain(self.members & other.members, nulls=nulls)
        if self.members is None and other.members is None:
            return Domain(None, max(self.low, other.low), min(self.high, other.high), nulls)
        listed, between = (self, other) if self.members is not None else (other, self)
        assert listed.members is not None
        return Domain(frozenset(filter(between._has, listed.members)), nulls=nulls)

    def __or__(self, other: Domain) -> Domain:
        nulls = self.nulls or other.nulls
        if self.members is not None and other.members is not None:
            return Domain(self.members | other.members, nulls=nulls)
        ends = [end for one in (self, other) for end in one._ends()]
        return Domain(None, min(ends, default=0), max(ends, default=-1), nulls)

    def _has(self, member: object) -> bool:
        return not isinstance(member, int) or self.low <= member <= self.high

    def _ends(self) -> Sequence[float]:
        if self.members is None:
            return (self.low, self.high) if self.low <= self.high else ()
        if all(isinstance(member, int) for member in self.members):
            return [member for member in self.members if isinstance(member, int)]
        return (-math.inf, math.inf)


ANY = Domain()
#: By column of an operator.
Domains = tuple[Domain, ...]


def domain_of_type(type_: pa.DataType) -> Domain:
    """Return the values of a type."""
    if _T.is_boolean(type_):
        return Domain(frozenset({0, 1}))
    if _T.is_integer(type_):
        bits = type_.bit_width - 1
        return Domain(None, -(2**bits), 2**bits - 1)
    return ANY


def narrowed(domains: Domains, predicate: Expression) -> Domains:
    """Return the values of the rows for which a predicate is true."""
    found = list(domains)
    for part in conjuncts(predicate):
        for column in sorted(_read(part)):
            found[column] = found[column] & _passing(part, column, True)
    return tuple(found)


def equal_domains(left: Domains, right: Domains, equal: Sequence[tuple[int, int]]) -> Domains:
    """Return the values of pairs of rows whose columns `equal` are equal, and not NULL."""
    found = [*left, *right]
    for i, j in equal:
        both = found[i] & found[len(left) + j] & Domain(nulls=False)
        found[i] = found[len(left) + j] = both
    return tuple(found)


def number_of_values(domains: Domains, columns: Sequence[int]) -> int | None:
    """Return how many different values `columns` can have together; None for more than are few."""
    number = math.prod(domains[c].size for c in columns)
    return int(number) if number <= MOST_VALUES else None


def _read(part: Expression) -> set[int]:
    """Return the columns that a condition may bound: those compared with constants."""
    if isinstance(part, Column):
        return {part.index}
    if isinstance(part, Cast):
        return _read(part.argument)
    return {c for one in part.arguments for c in _read(one)} if isinstance(part, Call) else set()


def _passing(condition: Expression, column: int, truth: bool) -> Domain:
    """Return the values of a column in rows for which a condition is `truth`, and not NULL."""
    if isinstance(condition, Column) and condition.index == column:
        return Domain(frozenset({int(truth)}), nulls=False)
    if not isinstance(condition, Call):
        return ANY
    name, arguments = condition.function, condition.arguments
    if name == "NOT":
        return _passing(arguments[0], column, not truth)
    if name in ("AND", "OR"):
        found = [_passing(one, column, truth) for one in arguments]
        if (name == "AND") != truth and all(one.members is not None for one in found):
            # At once: a list of n values would else be copied n times.
            members: frozenset[object] = frozenset().union(*(one.members or () for one in found))
            return Domain(members, nulls=any(one.nulls for one in found))
        result = found[0]
        for one in found[1:]:
            result = result & one if (name == "AND") == truth else result | one
        return result
    if name in ("IS_NULL", "IS_NOT_NULL") and _plain(arguments[0]) == column:
        return Domain(frozenset()) if (name == "IS_NULL") == truth else Domain(nulls=False)
    return _compared(name, arguments, column, truth)


def _compared(name: str, arguments: tuple[Expression, ...], column: int, truth: bool) -> Domain:
    if name in MIRRORED and isinstance(arguments[0], Literal):
        name, arguments = MIRRORED[name], arguments[::-1]
    if not arguments or _plain(arguments[0]) != column or len(arguments) < 2:
        return ANY
    members = [_number(one) for one in arguments[1:]]
    if name == "IN" and truth:
        known = [one for one in members if one is not _NULL]
        return ANY if _UNKNOWN in known else Domain(frozenset(known), nulls=False)
    member = members[0]
    if name not in MIRRORED or member is _UNKNOWN:
        return ANY
    if member is _NULL:
        return Domain(frozenset(), nulls=False)
    name = name if truth else _NEGATED[name]
    if name == "EQ":
        return Domain(frozenset({member}), nulls=False)
    if name == "NE" or not isinstance(member, int):
        return Domain(nulls=False)
    if name in ("LT", "LE"):
        return Domain(None, high=member - (name == "LT"), nulls=False)
    return Domain(None, low=member + (name == "GT"), nulls=False)


class _Mark:
    """A constant that is no value of a domain."""


_NULL, _UNKNOWN = _Mark(), _Mark()


def _number(constant: Expression) -> object:
    """Return a constant as a member of a domain."""
    if not isinstance(constant, Literal) or _T.is_floating(constant.type) or _T.is_nested(constant.type):
        return _UNKNOWN
    value = constant.value
    if value is None:
        return _NULL
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.toordinal() - _EPOCH
    return int(value) if isinstance(value, bool) else value


def _plain(expression: Expression) -> int | None:
    """Return the column that is compared: itself, or an integer that is widened."""
    if isinstance(expression, Cast) and isinstance(expression.argument, Column):
        narrow, wide = expression.argument.type, expression.type
        widens = _T.is_integer(narrow) and _T.is_integer(wide) and narrow.bit_width <= wide.bit_width
        return expression.argument.index if widens else None
    if isinstance(expression, Column) and not _T.is_floating(expression.type):
        return expression.index
    return None
