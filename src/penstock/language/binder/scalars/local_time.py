"""The time zone of a session (SET time_zone) in the expressions that read it: the zone becomes part of their calls.

Without a zone, or in UTC, expressions are what the functions of `expressions` build. With one, an instant is shown by
the clock of the zone (its year, its hour, its text, its date), and what is written without an offset (a text, a date)
is read by that clock. `at + INTERVAL 1 MONTH` goes by the calendar of the zone; `+ INTERVAL 24 HOURS` is a length of
time anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pyarrow as pa

from penstock.expressions.calls.functions import build_call, build_cast
from penstock.expressions.coercion import BIGINT, DATE, STRING
from penstock.expressions.nodes import Call, Cast, Expression, Literal
from penstock.types import TIMESTAMP, WALL_CLOCK

E = TypeVar("E", bound=Expression)

#: What an instant has on a clock and in a calendar.
_SHOWN = frozenset(
    (
        *("YEAR", "QUARTER", "MONTH", "DAY", "DAYOFWEEK", "WEEKDAY", "DAYOFYEAR", "WEEKOFYEAR"),
        *("HOUR", "MINUTE", "SECOND", "DATE_FORMAT", "MONTHS_BETWEEN", "PLUS_MONTHS"),
    )
)


def cast_in(zone: str | None, argument: Expression, type_: pa.DataType, try_: bool = False) -> Expression:
    """Return CAST(argument AS type_), or TRY_CAST, in a zone. Raises PenstockError P0203."""
    if zone is not None and argument.type != type_:
        pair = (argument.type, type_)
        if pair == (STRING, TIMESTAMP):
            return build_call("TIMESTAMP_IN_ZONE", [argument, _name(zone)])
        if pair in ((DATE, TIMESTAMP), (WALL_CLOCK, TIMESTAMP)):
            return _at(zone, build_cast(argument, WALL_CLOCK))
        if pair in ((TIMESTAMP, DATE), (TIMESTAMP, STRING), (TIMESTAMP, WALL_CLOCK)):
            return build_cast(_at(zone, argument), type_)
    return build_cast(argument, type_, try_=try_)


def casts_in(zone: str | None, built: E, given: Sequence[Expression]) -> E:
    """Return `built` with the casts that its types have put around the arguments `given` made in a zone."""
    if zone is None:
        return built
    known = {id(argument) for argument in given}
    children = [
        cast_in(zone, child.argument, child.type) if isinstance(child, Cast) and id(child) not in known else child
        for child in built.children
        if isinstance(child, Expression)
    ]
    return built if children == list(built.children) else built.with_children(tuple(children))


def call_in(zone: str | None, built: Expression, given: Sequence[Expression]) -> Expression:
    """Return the call `built` of the arguments `given` in a zone."""
    if zone is None or not isinstance(built, Call):
        return built
    call = casts_in(zone, built, given)
    assert isinstance(call, Call)
    arguments, times = call.arguments, [argument.type == TIMESTAMP for argument in call.arguments]
    if call.function in _SHOWN and any(times):
        shown = [_at(zone, one) if is_time else one for one, is_time in zip(arguments, times, strict=True)]
        found = build_call(call.function, shown)
        return found if found.type == call.type else _at(zone, found)
    if call.function == "DATE_TRUNC" and call.type == TIMESTAMP and len(arguments) == 2:
        return build_call("DATE_TRUNC", [*arguments, _name(zone)])
    if call.function == "TO_DATE" and times[0]:
        return cast_in(zone, arguments[0], DATE)
    if call.function == "TO_TIMESTAMP" and len(arguments) == 2 and not times[0]:
        return _at(zone, Cast(WALL_CLOCK, call))
    if call.function == "UNIX_TIMESTAMP" and not times[0]:
        return build_call("UNIX_SECONDS", [call_in(zone, build_call("TO_TIMESTAMP", given), given)])
    if call.function == "FROM_UNIXTIME":
        instant = build_call("TIMESTAMP_SECONDS", [build_cast(arguments[0], BIGINT)])
        return build_call("DATE_FORMAT", [_at(zone, instant), arguments[1]])
    return call


def _name(zone: str) -> Expression:
    return Literal(STRING, zone)


def _at(zone: str, time: Expression) -> Expression:
    return build_call("AT_TIME_ZONE", [time, _name(zone)])
