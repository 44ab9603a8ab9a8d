"""The law of a live system, on cases that a reader can work out."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.language.scripts import bind_script
from penstock.testing.live import Episode, run_live
from penstock.testing.scalars.values import Event

SOURCES = """
CREATE STREAM S (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION U (ts INT, op STRING, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND OPERATION BY op;
"""
INPUTS = {
    "S": pa.table({"ts": pa.array([1, 4, 6, 9, 20], pa.int32()), "v": pa.array([10, 40, 60, 90, 0], pa.int32())}),
    "U": pa.table(
        {
            "ts": pa.array([1, 2, 5, 8, 20], pa.int32()),
            "op": ["+", "+", "-", "+", "+"],
            "k": pa.array([40, 60, 40, 90, 0], pa.int32()),
        }
    ),
}
NOW, WARM, BEGINNING = Start(), Start(StartMode.WARM), Start(StartMode.BEGINNING)
ALL = {"S": 5, "U": 5}


def query(text: str) -> Query:
    return bind_script(f"{SOURCES} CREATE QUERY q AS {text};").queries[0]


SUM = query("SELECT SUM(v) AS s FROM S [RANGE 5 SECONDS]")
NEW = query("SELECT ISTREAM(v) FROM S [NOW]")
PAIRS = query("SELECT v FROM S [RANGE 3 SECONDS], U WHERE v = k")
KEYS = query("SELECT k FROM U")


def show(events: list[Event]) -> str:
    return " ".join(f"{ts}{op or ':'}{','.join(map(str, row))}" for ts, op, row in events)


@pytest.mark.parametrize(
    ("one", "start", "read", "emitted"),
    [
        # After two rows of S the heartbeat is 3: the window then holds the row of 1, and that of 4 has been read.
        (SUM, BEGINNING, 2, "1+10 4-10 4+50 6-50 6+100 9-100 9+150 11-150 11+90 14-90 14+None"),
        (SUM, WARM, 2, "3+10 4-10 4+50 6-50 6+100 9-100 9+150 11-150 11+90 14-90 14+None"),
        (SUM, NOW, 2, "6+60 9-60 9+150 11-150 11+90 14-90 14+None"),
        (SUM, Start(StartMode.AT, 9), 2, "9+150 11-150 11+90 14-90 14+None"),
        (NEW, BEGINNING, 2, "1:10 4:40 6:60 9:90"),
        (NEW, WARM, 2, "4:40 6:60 9:90"),
        (NEW, NOW, 2, "6:60 9:90"),
    ],
)
def test_a_query_that_begins_after_two_rows(one: Query, start: Start, read: int, emitted: str) -> None:
    assert show(run_live([Episode(one, start, {"S": read, "U": 0})], INPUTS)) == emitted


@pytest.mark.parametrize(
    ("one", "lost", "emitted"),
    [
        # What was lost up to 4 counts up to 8; what was lost before is not missed at the heartbeat, which is 3.
        (SUM, {"S": 4}, "9+150 11-150 11+90 14-90 14+None"),
        (SUM, {"S": -2, "U": 100}, "3+10 4-10 4+50 6-50 6+100 9-100 9+150 11-150 11+90 14-90 14+None"),
        (NEW, {"S": 4}, "6:60 9:90"),
        (NEW, {"S": 6}, "9:90"),
        (SUM, {"S": 15}, ""),
    ],
)
def test_a_query_that_waits_begins_when_nothing_is_missing(one: Query, lost: dict[str, int], emitted: str) -> None:
    start = Start(StartMode.WARM, wait=True)
    assert show(run_live([Episode(one, start, {"S": 2, "U": 0}, lost=lost)], INPUTS)) == emitted


def test_a_query_that_waits_is_not_shown_before_it_begins() -> None:
    episode = Episode(SUM, Start(StartMode.WARM, wait=True), {"S": 2, "U": 0}, lost={"S": 4})
    shown = show(run_live([replace(episode, shown={"S": 3, "U": 0})], INPUTS))
    assert shown == "9+150 11-150 11+90 14-90 14+None"
    ahead = replace(episode, start=Start(StartMode.AT, 10))
    assert show(run_live([replace(ahead, shown={"S": 3, "U": 0})], INPUTS)) == "10+150 11-150 11+90 14-90 14+None"


def test_a_stream_that_goes_on_has_had_what_follows_from_relations_alone() -> None:
    keys, read = query("SELECT ISTREAM(k) FROM U"), {"S": 0, "U": 2}
    assert show(run_live([Episode(keys, NOW, read)], INPUTS)) == "1:40 2:60 8:90"
    first = Episode(keys, NOW, read, ended={"S": 0, "U": 3})
    assert show(run_live([first], INPUTS)) == "1:40 2:60"
    again = Episode(keys, NOW, {"S": 0, "U": 4})
    # At 7 its content is 60 alone; 90 comes at 8.
    assert show(run_live([first, again], INPUTS)) == "1:40 2:60 8:90"


def test_a_relation_begins_with_its_content() -> None:
    # Updates up to 2 and the row of 4 have been read; the heartbeat is that of U, 1.
    for start in (NOW, WARM):
        assert show(run_live([Episode(KEYS, start, {"S": 2, "U": 2})], INPUTS)) == "1+40 2+60 5-40 8+90"
    read = {"S": 2, "U": 4}  # the heartbeat is 3, that of S
    assert show(run_live([Episode(PAIRS, WARM, read)], INPUTS)) == "4+40 5-40 6+60 9-60 9+90 12-90"
    assert show(run_live([Episode(PAIRS, NOW, read)], INPUTS)) == "6+60 9-60 9+90 12-90"


@pytest.mark.parametrize(
    ("start", "emitted"),
    [
        (WARM, "1+10 4-10 4+50 8-50 8+100 9-100 9+150 11-150 11+90 14-90 14+None"),
        (NOW, "1+10 4-10 4+50 8-50"),
    ],
)
def test_a_query_that_goes_on_emits_the_difference(start: Start, emitted: str) -> None:
    first = Episode(SUM, BEGINNING, {"S": 0, "U": 0}, {"S": 3, "U": 0})  # up to 5
    later = Episode(SUM, start, {"S": 4, "U": 0})  # from 8 on
    assert show(run_live([first, later], INPUTS)) == emitted


def test_what_has_been_answered_is_not_answered_again() -> None:
    first = Episode(NEW, BEGINNING, {"S": 0, "U": 0}, {"S": 4, "U": 0})  # up to 8
    assert show(run_live([first, Episode(NEW, WARM, {"S": 4, "U": 0})], INPUTS)) == "1:10 4:40 6:60 9:90"


def test_another_query_takes_over() -> None:
    first = Episode(SUM, BEGINNING, {"S": 0, "U": 0}, {"S": 4, "U": 0})  # up to 8, so the other from 9 on
    largest = query("SELECT MAX(v) AS s FROM S [RANGE 5 SECONDS]")
    found = show(run_live([first, Episode(largest, WARM, {"S": 4, "U": 0})], INPUTS))
    assert found == "1+10 4-10 4+50 6-50 6+100 9-100 9+90 14-90 14+None"
