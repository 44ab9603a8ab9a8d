"""Heartbeats in the rounds of a job: of records, of statements beside files, and of the clock. What a round reads and
knows stands in its offset, so that a round that is planned again is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.algebra.properties.heartbeats import Heartbeat
from penstock.connectors.contract import SkippedRecords
from penstock.control.posted_rows import PostedRows
from penstock.control.row_changes import no_rows
from penstock.language.scripts import BoundScript, bind_script
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.execution.wall_clock import WallClock, advance, begin, peers_of
from penstock.runtime.skipped_records import progress_after
from penstock.runtime.spark.checkpoint.folder import Folder, Intake, Seen, round_name
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.input.input_planner import InputPlanner, ReadTask

SECOND = 1_000_000


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


class Rounds:
    """The rounds of a stream S of files, planned by a planner that can be made again, as after a kill."""

    #: Whether the planner is made again behind each round.
    is_killed = True

    def __init__(self, place: Path, clauses: str = "") -> None:
        self.place, self.clock = place, Clock()
        self.bound: BoundScript = bind_script(f"""
            CREATE STREAM S (a BIGINT) FROM FILES (path '{place}/s', format 'parquet', watch 'true')
              TIMESTAMP BY a {clauses};
            CREATE QUERY q AS SELECT COUNT(*) AS n FROM S [RANGE 5 SECOND];
        """)
        (self.source,) = self.bound.catalog.sources.values()
        self.posted = PostedRows(place / "kept", 86_400)
        self.folder = Folder(place / "job")
        self.folder.root.mkdir()
        (place / "s").mkdir()
        self.files = 0
        self.again()
        self.offset = self.planner.start()

    def again(self) -> None:
        """Plan with what is on disk alone."""
        posts = self.posted.heartbeats(self.source, 7)
        assert posts is not None
        peers = peers_of(q.root for q in self.bound.queries)
        intake = Intake((self.source,), frozenset(), 2, peers=peers, heartbeats={"S": posts})
        self.planner = InputPlanner(self.folder, intake, self.clock)
        self.look()

    def look(self) -> None:
        self.planner._looks["S"]._last_look = self.planner._heartbeats._looks._last_look = 0.0

    def post(self, tick: int) -> None:
        self.posted.post(self.source, 7, no_rows(self.source), record=Heartbeat(tick))

    def put(self, value: int) -> None:
        self.files += 1
        pq.write_table(pa.table({"a": pa.array([value], pa.int64())}), self.place / "s" / f"{self.files}.parquet")

    def next(self) -> list[ReadTask]:
        """Plan a round; none where there is nothing to do."""
        self.look()
        after = self.planner.next(self.offset)
        if after is self.offset:
            return []
        before, self.offset = self.offset, Offset.from_json(after.as_json())
        tasks = self.planner.pieces(before, self.offset)
        if self.is_killed:
            self.again()
        assert self.planner.pieces(before, self.offset) == tasks, "it is the same after a kill"
        return tasks

    def saw(self, **seen: int) -> None:
        self.folder.write_seen(round_name(self.offset.round), 0, [("S", Seen(rows=1, **seen))])

    @property
    def beat(self) -> int:
        return self.offset.progress("S").beat


def heartbeats(task: ReadTask) -> list[int | None]:
    return [split.heartbeat for split in task.splits]


def test_heartbeats_of_statements_are_read_ahead_of_rows_and_once(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    rounds.put(1)
    rounds.post(5)
    rounds.post(9)
    (task,) = rounds.next()
    assert heartbeats(task) == [5, 9, None] and task.beat is None
    assert rounds.offset.advanced == {"S": "7.2"}
    rounds.saw(beat=9)
    assert rounds.next() == []
    rounds.put(10)
    (task,) = rounds.next()
    assert heartbeats(task) == [None] and task.beat == 9, "what records have set is known of the rows behind them"
    rounds.saw(high=10, beat=9)
    rounds.post(20)
    (task,) = rounds.next()
    assert (heartbeats(task), task.high, task.beat) == ([20], 10, 9)
    rounds.saw(high=10, beat=20)
    assert rounds.offset.after(rounds.folder.seen_in(round_name(rounds.offset.round))).progress("S").heartbeat(0) == 20


def test_read_heartbeats_are_removed_and_a_stream_that_is_declared_again_begins(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    rounds.is_killed = False
    for tick in range(8):
        rounds.post(tick)
        assert heartbeats(rounds.next()[0]) == [tick]
        rounds.saw(beat=tick)
    left = list((tmp_path / "kept" / "7").glob("*.arrow"))
    assert len(left) < 8
    other = rounds.posted.kept(rounds.source, 8)
    rounds.posted.post(rounds.source, 8, no_rows(rounds.source), record=Heartbeat(3))
    rounds.planner._heartbeats.__init__({"S": other}, lambda: 1.0)  # type: ignore[misc]
    rounds.planner._heartbeats._looks._last_look = 0.0
    assert rounds.planner._heartbeats.next(rounds.offset.advanced) == {"S": "8.1"}
    assert [
        split.heartbeat for split in rounds.planner._heartbeats.splits("S", rounds.offset.advanced, {"S": "8.1"})
    ] == [3]


def test_the_time_of_a_silent_stream_goes_on_and_does_not_add_up(tmp_path: Path) -> None:
    """Over idle rounds and kills, as `Rounds` makes its planner again behind each round."""
    rounds = Rounds(tmp_path, "IDLE TIMEOUT 10 SECONDS ADVANCE")
    rounds.clock.now = 5 * SECOND
    assert rounds.next() == [] or rounds.beat < 0, "nothing advances before the first record"
    rounds.clock.now = 100 * SECOND
    rounds.put(1000)
    assert heartbeats(rounds.next()[0]) == [None]
    rounds.saw(high=1000)
    rounds.clock.now = 109 * SECOND
    assert rounds.next() == []
    # 999 is promised behind it; the first record came at 100.
    for now, expected in ((111, 1000), (112, 1001), (130, 1019)):
        rounds.clock.now = now * SECOND
        (task,) = rounds.next()
        assert task.source is None and dict(task.beats) == {"S": expected}
    rounds.clock.now += SECOND // 10
    assert rounds.next() == [], "not all the time"
    # A round with a record advances nothing: what had been said is what it is held against.
    rounds.put(1025)
    rounds.clock.now = 200 * SECOND
    (task,) = rounds.next()
    assert (task.source, task.beat) == ("S", 1019)
    rounds.saw(high=1025)
    rounds.clock.now = 209 * SECOND
    assert rounds.next() == []
    rounds.clock.now = 215 * SECOND
    (task,) = rounds.next()
    assert dict(task.beats) == {"S": 1024 + 5}
    # A heartbeat is a record.
    rounds.post(1030)
    rounds.clock.now = 220 * SECOND
    (task,) = rounds.next()
    assert (heartbeats(task), task.beat) == ([1030], 1029)
    rounds.saw(high=1025, beat=1030)
    rounds.clock.now = 229 * SECOND
    assert rounds.next() == []
    rounds.clock.now = 232 * SECOND
    (task,) = rounds.next()
    assert dict(task.beats) == {"S": 1032}


def test_a_late_record_keeps_what_was_said(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path, "ORDER WITHIN 20 SECONDS IDLE TIMEOUT 1 SECOND ADVANCE")
    rounds.clock.now = SECOND
    rounds.put(100)
    rounds.next()
    rounds.saw(high=100)
    # The clock of the first round is a microsecond ahead.
    rounds.clock.now = 31 * SECOND + 1
    rounds.next()
    assert rounds.beat == 79 + 29
    rounds.put(90)
    rounds.clock.now = 32 * SECOND
    (task,) = rounds.next()
    assert task.beat == 108
    rounds.saw(high=100)
    rounds.clock.now = 43 * SECOND
    rounds.next()
    assert rounds.beat == 108 + 10


@pytest.mark.parametrize("unit", ["SECOND", "MILLISECOND", "MICROSECOND"])
def test_the_clock_goes_by_the_unit_and_stops_before_the_end(unit: str) -> None:
    bound = bind_script(f"""
        CREATE STREAM S (a BIGINT) FROM MEMORY () TIMESTAMP BY a UNIT {unit} IDLE TIMEOUT 2 SECONDS ADVANCE;
        CREATE STREAM T (a BIGINT) FROM MEMORY () TIMESTAMP BY a UNIT {unit} IDLE TIMEOUT 1 SECOND;
        CREATE QUERY q AS SELECT S.a FROM S [NOW], T [NOW];
    """)
    sources = {s.name: s for s in bound.catalog.sources.values()}
    peers = peers_of(q.root for q in bound.queries)
    ticks = {"SECOND": 3, "MILLISECOND": 3000, "MICROSECOND": 3 * SECOND}[unit]
    seen = {"S": SourceProgress(1, 50), "T": SourceProgress(1, 40)}
    clock = begin(sources.values(), 0)
    # T is idle beside S, and follows it.
    assert advance(clock, 5 * SECOND, sources, peers, seen, ()).beats == {"S": 49 + ticks, "T": 49 + ticks}
    assert advance(clock, 5 * SECOND, sources, peers, seen, (), ("S",)).beats.get("S") is None
    end = {**seen, "S": SourceProgress(1, 2**61 - 2)}
    assert advance(clock, 10**15, sources, peers, end, ()).beats["S"] == 2**61 - 1
    assert advance(clock, 10**15, sources, peers, {"T": seen["T"]}, ()).beats.get("S") is None
    assert advance(clock, 10**15, sources, peers, {"S": replace(seen["S"], ended=True)}, ()).beats.get("S") is None
    assert WallClock(**clock.as_json()) == clock


def test_statistics_do_not_stand_for_records_of_which_some_are_heartbeats() -> None:
    (source,) = bind_script(
        "CREATE STREAM S (a INT, h BOOLEAN) FROM MEMORY () TIMESTAMP BY a HEARTBEAT BY h"
    ).catalog.sources.values()
    read = []

    def records(columns: tuple[int, ...]) -> list[object]:
        read.append(columns)
        return []

    progress_after(source, SkippedRecords(1, 5, 9, records), SourceProgress())  # type: ignore[arg-type]
    assert read == [(0, 1)]
