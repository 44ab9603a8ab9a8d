"""Time zones: all zones of the IANA data at the changes of their offsets, held against Python's `zoneinfo`."""

from __future__ import annotations

import datetime as dt
import random
import zoneinfo
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pyarrow as pa
import pytest
from expression_kit import STRING, lit
from test_dates_at_limits import TICKS, agree, call_over, raw, times

from penstock.errors import PenstockError
from penstock.expressions.evaluation.evaluate import evaluate
from penstock.time_zones import Zone, zone_of

_FIRST, _LAST = (int(dt.datetime(year, 1, 1, tzinfo=dt.UTC).timestamp()) for year in (1970, 2038))
_NAMES = sorted((files("tzdata") / "zones").read_text(encoding="utf-8").split())
_EPOCH = dt.datetime(1970, 1, 1)
#: `zoneinfo` takes the rule of 2024 for the night in which Nuuk left its old zone, and an offset that was never there.
_WRONG_THERE = {("America/Nuuk", 2023), ("America/Godthab", 2023)}


def _python(name: str) -> zoneinfo.ZoneInfo:
    with (files("tzdata") / "zoneinfo").joinpath(*name.split("/")).open("rb") as file:
        return zoneinfo.ZoneInfo.from_file(file, name)


def _seconds(offset: dt.timedelta | None) -> int:
    assert offset is not None
    return int(offset.total_seconds())


def _differing(name: str, zone: Zone) -> list[tuple[str, int, int, int]]:
    """Return (instant or wall clock, its seconds, our offset, Python's) where the two differ."""
    python = _python(name)
    changes = [
        (at, before, after)
        for at, before, after in zip(zone.transitions, zone.offsets, zone.offsets[1:], strict=False)
        if _FIRST <= at < _LAST
    ]
    instants = [at + d for at, _, _ in changes for d in (-86_400, -1, 0, 86_400)]
    middles = [at + (before + after) // 2 for at, before, after in changes]
    clocks = [at + o + d for at, before, after in changes for o in (before, after) for d in (-1, 0)] + middles
    ours = zone.offset_at(np.array(instants, np.int64) * 1_000_000) // 1_000_000
    read = zone.offset_of_local(np.array(clocks, np.int64) * 1_000_000) // 1_000_000
    found = []
    for at, offset in zip(instants, ours.tolist(), strict=True):
        expected = _seconds((_EPOCH + dt.timedelta(seconds=at)).replace(tzinfo=dt.UTC).astimezone(python).utcoffset())
        if offset != expected:
            found.append(("instant", at, offset, expected))
    for at, offset in zip(clocks, read.tolist(), strict=True):
        clock = _EPOCH + dt.timedelta(seconds=at)
        expected = _seconds(clock.replace(tzinfo=python).utcoffset())
        if offset != expected and (name, clock.year) not in _WRONG_THERE:
            found.append(("wall clock", at, offset, expected))
    return found


def test_all_zones_at_the_changes_of_1970_to_2037() -> None:
    """Zones with the data of another one are its aliases, and tried once."""
    tried: dict[Zone, str] = {}
    for name in _NAMES:
        zone = zone_of(name)
        assert zone is not None, name
        tried.setdefault(replace(zone, name=""), name)
    assert len(tried) > 300
    assert [(name, *found) for zone, name in tried.items() for found in _differing(name, zone)] == []


@pytest.mark.parametrize("function", ["FROM_UTC_TIMESTAMP", "TO_UTC_TIMESTAMP"])
@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "Australia/Lord_Howe", "Asia/Jerusalem", "Africa/Casablanca", "+05:30"]
)
def test_all_of_time(function: str, zone: str) -> None:
    agree(*call_over(function, times([*TICKS, None]), lit(zone)))


@pytest.mark.parametrize("function", ["FROM_UTC_TIMESTAMP", "TO_UTC_TIMESTAMP"])
def test_zones_of_a_column(function: str) -> None:
    draw = random.Random(1)
    zones = draw.choices([*_NAMES, "no zone", "", None], k=2_000)
    ticks = [draw.randrange(0, 2**51) if draw.random() < 0.9 else None for _ in zones]
    agree(*call_over(function, times(ticks), pa.array(zones, STRING)))


def test_beyond_the_range_of_timestamps_is_null() -> None:
    expression, columns = call_over("FROM_UTC_TIMESTAMP", times([2**63 - 1, 0, -(2**63)]), lit("+01:00"))
    assert raw(evaluate(expression, columns, 3)) == [None, 3_600_000_000, -(2**63) + 3_600_000_000]


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("Europe/Berlim", "Europe/Berlin"),
        ("+19:00", "as in"),
        ("+05:60", "as in"),
        ("", "as in"),
        ("../zones", "as in"),
    ],
)
def test_an_unknown_constant_zone_is_refused(zone: str, hint: str) -> None:
    with pytest.raises(PenstockError, match="unknown time zone") as caught:
        call_over("TO_UTC_TIMESTAMP", times([0]), lit(zone))
    assert caught.value.code == "P0212" and hint in (caught.value.hint or "")
