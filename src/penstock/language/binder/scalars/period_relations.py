"""What two periods may be to each other: the predicates of SQL:2011, and Allen's thirteen relations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from penstock.expressions.calls.functions import build_call
from penstock.expressions.coercion import is_integer
from penstock.expressions.nodes import Expression
from penstock.types import TimeDomain

OfTwo: TypeAlias = "Callable[[TicksPeriod, TicksPeriod], Expression]"


@dataclass(frozen=True)
class TicksPeriod:
    """type: that of its bounds as they are shown. domain: what a tick is; None where that depends on the query. open:
    whether the end may come later than the row."""

    begin: Expression
    end: Expression
    type: pa.DataType
    domain: TimeDomain | None
    open: bool = False

    @property
    def is_calendar(self) -> bool:
        return not is_integer(self.type)


def and_(*parts: Expression) -> Expression:
    whole = parts[0]
    for part in parts[1:]:
        whole = build_call("AND", [whole, part])
    return whole


def compare(name: str, left: Expression, right: Expression) -> Expression:
    return build_call(name, [left, right])


def overlaps(p: TicksPeriod, q: TicksPeriod) -> Expression:
    return and_(compare("LT", p.begin, q.end), compare("LT", q.begin, p.end))


def _swapped(
    predicate: OfTwo,
) -> OfTwo:
    return lambda p, q: predicate(q, p)


def _contains(p: TicksPeriod, q: TicksPeriod) -> Expression:
    return and_(compare("LE", p.begin, q.begin), compare("LE", q.end, p.end))


def equals(p: TicksPeriod, q: TicksPeriod) -> Expression:
    return and_(compare("EQ", p.begin, q.begin), compare("EQ", p.end, q.end))


def _meets(p: TicksPeriod, q: TicksPeriod) -> Expression:
    return compare("EQ", p.end, q.begin)


def _precedes(p: TicksPeriod, q: TicksPeriod) -> Expression:
    return compare("LE", p.end, q.begin)


def _before(p: TicksPeriod, q: TicksPeriod) -> Expression:
    return compare("LT", p.end, q.begin)


def _starts(p: TicksPeriod, q: TicksPeriod) -> Expression:
    return and_(compare("EQ", p.begin, q.begin), compare("LT", p.end, q.end))


def _during(p: TicksPeriod, q: TicksPeriod) -> Expression:
    return and_(compare("LT", q.begin, p.begin), compare("LT", p.end, q.end))


def _finishes(p: TicksPeriod, q: TicksPeriod) -> Expression:
    return and_(compare("EQ", p.end, q.end), compare("LT", q.begin, p.begin))


#: predicate -> the condition that it stands for, of two periods.
PREDICATES: Mapping[str, OfTwo] = {
    "OVERLAPS": overlaps,
    "CONTAINS": _contains,
    "EQUALS": equals,
    "PRECEDES": _precedes,
    "SUCCEEDS": _swapped(_precedes),
    "IMMEDIATELY PRECEDES": _meets,
    "MEETS": _meets,
    "IMMEDIATELY SUCCEEDS": _swapped(_meets),
    "MET BY": _swapped(_meets),
    "BEFORE": _before,
    "AFTER": _swapped(_before),
    "STARTS": _starts,
    "STARTED BY": _swapped(_starts),
    "DURING": _during,
    "FINISHES": _finishes,
    "FINISHED BY": _swapped(_finishes),
}


def _allen_overlaps(p: TicksPeriod, q: TicksPeriod) -> Expression:
    return and_(compare("LT", p.begin, q.begin), compare("LT", q.begin, p.end), compare("LT", p.end, q.end))


#: Allen's 13 relations, of which exactly one holds.
ALLEN: Mapping[str, OfTwo] = {
    "before": _before,
    "meets": _meets,
    "overlaps": _allen_overlaps,
    "starts": _starts,
    "during": _during,
    "finishes": _finishes,
    "equals": equals,
    "after": _swapped(_before),
    "met by": _swapped(_meets),
    "overlapped by": _swapped(_allen_overlaps),
    "started by": _swapped(_starts),
    "contains": _swapped(_during),
    "finished by": _swapped(_finishes),
}
