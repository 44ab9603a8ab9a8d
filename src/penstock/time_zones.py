"""Time zones: the offset of a zone from UTC at an instant, or at a wall clock time, over whole arrays.

A zone is a sorted list of transitions and the offsets between them. The data are those of the package `tzdata`,
whatever the machine has, so that all processes of a run compute with the same ones. Contract: a wall clock time in a
gap is read with the offset before the gap, so it moves forward by the length of the gap; one that exists twice is the
earlier instant. Both are what Python's `zoneinfo` does with fold=0.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.errors import PenstockError, nearest

Integers: TypeAlias = npt.NDArray[np.int64]

_SECOND = 1_000_000
_DAY = 86_400
#: The Gregorian calendar repeats itself after 400 years, a whole number of weeks, and so do the rules of zones.
_CYCLE_YEARS = 400
_CYCLE = 146_097 * _DAY
_EPOCH = dt.date(1970, 1, 1).toordinal()
#: Offsets as zones: `+05:30`, `UTC-3`, `Z`. At most 18 hours, as in casts of texts to TIMESTAMP.
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_MOST_HOURS = 18


@dataclass(frozen=True)
class Zone:
    """A time zone.

    `transitions`: seconds since 1970 at which the offset changes, ascending. `offsets`: seconds east of UTC, the first
    one before all transitions. `repeats`: the last 400 years are those of all times behind them.
    """

    name: str
    transitions: tuple[int, ...]
    offsets: tuple[int, ...]
    repeats: bool = False

    @property
    def is_utc(self) -> bool:
        """Return whether clocks of the zone always show UTC."""
        return not self.transitions and self.offsets == (0,)

    def offset_at(self, instants: Integers) -> Integers:
        """Return the offsets at `instants`, both in microseconds."""
        return self._looked_up(self._instants, instants)

    def offset_of_local(self, wall_clock: Integers) -> Integers:
        """Return the offsets with which wall clock times are read, both in microseconds."""
        return self._looked_up(self._wall_clock, wall_clock)

    @cached_property
    def _lengths(self) -> Integers:
        return np.array(self.offsets, np.int64) * _SECOND

    @cached_property
    def _instants(self) -> Integers:
        return np.array(self.transitions, np.int64) * _SECOND

    @cached_property
    def _wall_clock(self) -> Integers:
        """The wall clock times from which on the next offset is the one to read with: the end of a gap, and the end of
        the hour that exists twice."""
        return self._instants + np.maximum(self._lengths[:-1], self._lengths[1:])

    def _looked_up(self, points: Integers, times: Integers) -> Integers:
        """Return the offset of each time; only the transitions between the least and the greatest are compared."""
        if not len(points) or not len(times):
            return np.broadcast_to(self._lengths[0], len(times))
        most = times.max()
        if self.repeats and most > points[-1]:
            last, cycle = points[-1], _CYCLE * _SECOND
            times = np.where(times > last, last - (last - times) % cycle, times)
            most = times.max()
        first, behind = np.searchsorted(points, [times.min(), most], "right")
        if first == behind:
            return np.broadcast_to(self._lengths[first], len(times))
        found: Integers = self._lengths[first : behind + 1][_passed(points[first:behind], times, most)]
        return found


#: Microseconds of a bin, as a power of two (some 13 days), and how many bins there may be.
_BIN, _MOST_BINS = 40, 1 << 16


def _passed(points: Integers, times: Integers, most: int) -> Integers:
    """Return how many of `points` each time has reached. Times in no order are looked up by bins that have one point at
    most, which takes the same time for any number of points."""
    least = times.min()
    bins = ((int(most) - int(least)) >> _BIN) + 1
    if len(points) == 1 or bins > _MOST_BINS or (np.diff(points) <= 1 << _BIN).any():
        counted: Integers = np.searchsorted(points, times, "right")
        return counted
    before = np.searchsorted(points, least + (np.arange(bins) << _BIN), "right")
    following = np.append(points, np.iinfo(np.int64).max)[before]
    place = (times - least) >> _BIN
    passed: Integers = before[place] + (times >= following[place])
    return passed


@lru_cache(maxsize=1)
def _names() -> Mapping[str, str]:
    """Return the names of zones: in lower case -> as the data have them."""
    listed = (files("tzdata") / "zones").read_text(encoding="utf-8").split()
    return {name.lower(): name for name in listed}


@lru_cache(maxsize=1024)
def zone_of(name: str) -> Zone | None:
    """Return the zone of a name of the IANA data, in any case, or of an offset such as `+05:30`; None where it is
    unknown."""
    name = name.strip()
    known = _names().get(name.lower())
    if known is not None:
        return _read(known, (files("tzdata") / "zoneinfo").joinpath(*known.split("/")).read_bytes())
    if name.upper() == "Z":
        return Zone("Z", (), (0,))
    match = _OFFSET.fullmatch(name)
    if match is None:
        return None
    hours, minutes = int(match[2]), int(match[3] or 0)
    if minutes > 59 or hours * 60 + minutes > _MOST_HOURS * 60:
        return None
    size = hours * 3600 + minutes * 60
    return Zone(name, (), (-size if match[1] == "-" else size,))


def known_zone(name: str) -> Zone:
    """Return the zone of a name or an offset. Raises PenstockError P0212 where it is unknown."""
    zone = zone_of(name)
    if zone is None:
        meant = nearest(name, _names().values()) or ""  # without a similar one it lists them all
        hint = meant if meant.startswith("did you mean") else "as in 'Europe/Berlin', 'UTC' or '+05:30'"
        raise PenstockError("P0212", f"unknown time zone {name!r}", hint=hint)
    return zone


# --- The files of the IANA data: RFC 8536 (TZif).


def _read(name: str, data: bytes) -> Zone:
    """Return the zone in a file: its second block, of 64 bits, and the rule behind it for all later times."""
    times, types, characters, leaps, standard, universal = _counts(data, 0)
    start = 44 + times * 5 + types * 6 + characters + leaps * 8 + standard + universal
    times, types, characters, leaps, standard, universal = _counts(data, start)
    place = start + 44
    transitions = np.frombuffer(data, ">i8", times, place).astype(np.int64)
    kinds = np.frombuffer(data, "u1", times, place + times * 8)
    place += times * 9
    records = [data[place + 6 * i : place + 6 * i + 6] for i in range(types)]
    offsets = [int.from_bytes(record[:4], "big", signed=True) for record in records]
    before = next((i for i, record in enumerate(records) if not record[4]), 0)
    place += types * 6 + characters + leaps * 12 + standard + universal
    rule = data[place:].strip(b"\n").decode("ascii")
    after = list(zip(transitions.tolist(), (offsets[kind] for kind in kinds), strict=True))
    repeating = _repeating(rule, after[-1][0] if after else None)
    known = [*after, *repeating]
    return Zone(
        name, tuple(time for time, _ in known), (offsets[before], *(offset for _, offset in known)), bool(repeating)
    )


def _counts(data: bytes, start: int) -> tuple[int, ...]:
    """Return the numbers of (times, types, characters, leap seconds, standard and universal flags) of a block."""
    universal, standard, leaps, times, types, characters = np.frombuffer(data, ">u4", 6, start + 20).tolist()
    return times, types, characters, leaps, standard, universal


_NAME, _TIME = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]+>)", r"[+-]?\d{1,3}(?::\d{2}){0,2}"
_DATE = r"(?:M\d+\.\d\.\d|J?\d+)"
_RULE = re.compile(
    rf"{_NAME}(?P<standard>{_TIME})"
    rf"(?:{_NAME}(?P<summer>{_TIME})?,(?P<begin>{_DATE})(?:/(?P<at>{_TIME}))?,(?P<end>{_DATE})(?:/(?P<until>{_TIME}))?)?"
)


def _repeating(rule: str, after: int | None) -> list[tuple[int, int]]:
    """Return (transition, offset behind it) of the 400 years behind the transitions that are listed, by the rule of a
    POSIX text such as `CET-1CEST,M3.5.0,M10.5.0/3`; none without summer time."""
    match = _RULE.fullmatch(rule)
    if match is None or match["begin"] is None:
        return []
    standard = -_length(match["standard"])
    summer = standard + 3600 if match["summer"] is None else -_length(match["summer"])
    begin, end = _length(match["at"] or "2"), _length(match["until"] or "2")
    first = 1970 if after is None else (dt.datetime(1970, 1, 1) + dt.timedelta(seconds=after)).year
    found = []
    for year in range(first, first + _CYCLE_YEARS + 2):
        found.append((_day(year, match["begin"]) * _DAY + begin - standard, summer))
        found.append((_day(year, match["end"]) * _DAY + end - summer, standard))
    return sorted(pair for pair in found if after is None or pair[0] > after)


def _length(text: str) -> int:
    """Return the seconds of `-1`, `10:30`, `26`."""
    sign = -1 if text.startswith("-") else 1
    parts: Iterator[int] = (int(part) for part in text.lstrip("+-").split(":"))
    return sign * sum(part * size for part, size in zip(parts, (3600, 60, 1), strict=False))


def _day(year: int, text: str) -> int:
    """Return the days since 1970 of a day of a rule: `M3.5.0` is the last Sunday of March, `J60` the 1st of March in
    all years, `59` the 60th day of the year."""
    january = dt.date(year, 1, 1).toordinal() - _EPOCH
    if not text.startswith("M"):
        number = int(text.lstrip("J"))
        leaps = text.startswith("J") and number >= 60 and dt.date(year, 12, 31).timetuple().tm_yday == 366
        return january + number - text.startswith("J") + leaps
    month, week, weekday = (int(part) for part in text[1:].split("."))
    first = dt.date(year, month, 1)
    day = 1 + (weekday - first.isoweekday()) % 7 + 7 * (week - 1)
    last = (dt.date(year + month // 12, month % 12 + 1, 1) - first).days
    return first.toordinal() - _EPOCH + (day if day <= last else day - 7) - 1
