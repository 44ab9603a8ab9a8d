"""Time zones: instants moved to the wall clock of a zone and back."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.coercion import STRING, implicit
from penstock.expressions.library.registry import Function
from penstock.expressions.nodes import Expression
from penstock.expressions.values.casts import convert
from penstock.expressions.values.datum import Arguments, Datum, choose, length_of, to_array
from penstock.expressions.values.text_casts import OFFSET_BEHIND
from penstock.expressions.values.zones import checked_zone, shifted
from penstock.time_zones import Integers, Zone
from penstock.types import TIMESTAMP, WALL_CLOCK

Typed = tuple[tuple[Expression, ...], pa.DataType]

NOTE = (
    "Zones are names of the IANA data, as `'Europe/Berlin'`, in any case, or offsets, as `'+05:30'`. A constant that\n"
    "is no zone is refused (`P0212`), a value of a column that is none gives NULL. A time of the wall clock that a\n"
    "change of the offset skips moves forward by the length of the gap; one that exists twice is the earlier instant."
)


def _utc_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    time, zone = arguments
    checked_zone(zone)
    return (implicit(time, TIMESTAMP, name), implicit(zone, STRING, name)), TIMESTAMP


def _at_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    time, zone = arguments
    checked_zone(zone)
    shown = time.type == WALL_CLOCK
    given = time if shown else implicit(time, TIMESTAMP, name)
    return (given, implicit(zone, STRING, name)), TIMESTAMP if shown else WALL_CLOCK


def _convert_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    source, target, time = arguments
    for zone in (source, target):
        checked_zone(zone)
    zones = (implicit(zone, STRING, name) for zone in (source, target))
    return (*zones, implicit(time, WALL_CLOCK, name)), WALL_CLOCK


def _text_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    text, zone = arguments
    checked_zone(zone)
    return (implicit(text, STRING, name), implicit(zone, STRING, name)), TIMESTAMP


def _to_wall_clock(zone: Zone, instants: Integers) -> Integers:
    return zone.offset_at(instants)


def _from_wall_clock(zone: Zone, wall_clock: Integers) -> Integers:
    return -zone.offset_of_local(wall_clock)


def _from_utc(arguments: Arguments, type_: pa.DataType) -> Datum:
    times = to_array(arguments[0], length_of(arguments))
    return shifted(times, arguments[1], _to_wall_clock, type_)


def _to_utc(arguments: Arguments, type_: pa.DataType) -> Datum:
    times = to_array(arguments[0], length_of(arguments))
    return shifted(times, arguments[1], _from_wall_clock, type_)


def _at(arguments: Arguments, type_: pa.DataType) -> Datum:
    return (_to_utc if type_ == TIMESTAMP else _from_utc)(arguments, type_)


def _convert(arguments: Arguments, type_: pa.DataType) -> Datum:
    source, target, time = arguments
    instants = shifted(to_array(time, length_of(arguments)), source, _from_wall_clock, TIMESTAMP)
    return shifted(instants, target, _to_wall_clock, type_)


def _of_text(arguments: Arguments, type_: pa.DataType) -> Datum:
    """Read by the wall clock of the zone what is written without an offset."""
    texts = to_array(arguments[0], length_of(arguments))
    clocks, instants = convert(texts, WALL_CLOCK), convert(texts, TIMESTAMP)
    local = shifted(clocks, arguments[1], _from_wall_clock, TIMESTAMP)
    return choose(pc.match_substring_regex(texts, OFFSET_BEHIND), instants, local)


FUNCTIONS = (
    Function(
        "TIMESTAMP_IN_ZONE", "string, zone", _text_rule, _of_text,
        "a TIMESTAMP read from a string; one that is written without an offset is a time of the zone's clocks",
        checks=True,
    ),
    Function(
        "AT_TIME_ZONE", "time, zone", _at_rule, _at,
        "of a TIMESTAMP the time that clocks of the zone show, a TIMESTAMP_NTZ; of a TIMESTAMP_NTZ the instant at which"
        " they show it, a TIMESTAMP",
        operator="time AT TIME ZONE zone", checks=True,
    ),
    Function(
        "CONVERT_TIMEZONE", "source zone, target zone, time", _convert_rule, _convert,
        "what clocks of the target zone show when those of the source zone show a time, both TIMESTAMP_NTZ",
        checks=True,
    ),
    Function(
        "FROM_UTC_TIMESTAMP", "time, zone", _utc_rule, _from_utc,
        "a time moved by the offset of a zone: 12:00 becomes what clocks there show at 12:00 UTC", checks=True,
    ),
    Function(
        "TO_UTC_TIMESTAMP", "time, zone", _utc_rule, _to_utc,
        "a time moved back by the offset of a zone: 12:00 becomes the instant at which clocks there show 12:00",
        checks=True,
    ),
)  # fmt: skip
