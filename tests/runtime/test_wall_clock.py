"""SYSTEM TIME and IDLE TIMEOUT in the rounds of a job: read once from the clock, then replayed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.language.scripts import BoundScript, bind_script
from penstock.physical.execution.progress import NOTHING, SourceProgress
from penstock.physical.execution.wall_clock import WallClock, advance, begin, peers_of
from penstock.runtime.local.runtime import run_local
from penstock.runtime.spark.checkpoint.folder import Folder, Intake, Seen, round_name
from penstock.runtime.spark.input.input_planner import InputPlanner

SECOND = 1_000_000


class Clock:
    """A wall clock that stands still until it is told otherwise."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def script(place: Path, clause: str) -> BoundScript:
    return (
        bind_script(f"""
        CREATE STREAM S (a BIGINT) FROM FILES (path '{place}/s', format 'parquet', watch 'true') {clause};
        CREATE STREAM T (b BIGINT) FROM FILES (path '{place}/t', format 'parquet', watch 'true') TIMESTAMP BY b;
        CREATE QUERY q AS SELECT a, b FROM S [RANGE 5 SECOND], T [RANGE 5 SECOND];
    """)
        if "SYSTEM" not in clause
        else bind_script(f"""
        CREATE STREAM S (a BIGINT) FROM FILES (path '{place}/s', format 'parquet', watch 'true') {clause};
        CREATE QUERY q AS SELECT a FROM S [RANGE 5 SECOND];
    """)
    )


def feed(place: Path, bound: BoundScript, clock: Clock) -> InputPlanner:
    folder = Folder(place / "job")
    folder.root.mkdir(exist_ok=True)
    intake = Intake(
        tuple(bound.catalog.sources.values()), frozenset(), 2, peers=peers_of(q.root for q in bound.queries)
    )
    return InputPlanner(folder, intake, clock)


def put(place: Path, name: str, number: int, value: int) -> None:
    (place / name).mkdir(exist_ok=True)
    column = "a" if name == "s" else "b"
    pq.write_table(pa.table({column: pa.array([value], pa.int64())}), place / name / f"{number}.parquet")


def saw(place: Path, round_: int, **highs: int) -> None:
    for name, high in highs.items():
        Folder(place / "job").write_seen(round_name(round_), 0, [(name, Seen(high, 1))])


def test_the_stamp_of_a_round_is_in_its_offset_and_is_replayed(tmp_path: Path) -> None:
    put(tmp_path, "s", 0, 7)
    clock = Clock(100 * SECOND)
    planner = feed(tmp_path, script(tmp_path, "SYSTEM TIME"), clock)
    start = planner.start()
    first = planner.next(start)
    assert first.wall is not None
    assert [(p.now, p.beats) for p in planner.pieces(start, first)] == [(first.wall.now, (("S", first.wall.now),))]
    clock.now = 900 * SECOND
    again = feed(tmp_path, script(tmp_path, "SYSTEM TIME"), clock)
    assert again.pieces(start, first) == planner.pieces(start, first)


def test_time_goes_on_without_rows_but_not_all_the_time(tmp_path: Path) -> None:
    put(tmp_path, "s", 0, 7)
    clock = Clock(100 * SECOND)
    planner = feed(tmp_path, script(tmp_path, "SYSTEM TIME"), clock)
    first = planner.next(planner.start())
    clock.now += SECOND // 10
    assert planner.next(first) is first
    clock.now += SECOND
    second = planner.next(first)
    (piece,) = planner.pieces(first, second)
    assert (piece.source, dict(piece.beats)) == (None, {"S": clock.now})


def test_a_clock_that_goes_back_gives_later_stamps_all_the_same(tmp_path: Path) -> None:
    put(tmp_path, "s", 0, 7)
    clock = Clock(100 * SECOND)
    planner = feed(tmp_path, script(tmp_path, "SYSTEM TIME"), clock)
    first = planner.next(planner.start())
    clock.now = 50 * SECOND
    put(tmp_path, "s", 1, 8)
    planner._looks["S"]._last_look = 0.0
    later = planner.next(first)
    assert later.wall is not None and first.wall is not None and later.wall.now > first.wall.now


def test_a_silent_stream_lets_go_once_and_its_pieces_know(tmp_path: Path) -> None:
    put(tmp_path, "s", 0, 1)
    put(tmp_path, "t", 0, 20)
    clock = Clock(100 * SECOND)
    planner = feed(tmp_path, script(tmp_path, "TIMESTAMP BY a IDLE TIMEOUT 10 SECONDS"), clock)
    first = planner.next(planner.start())
    saw(tmp_path, 1, S=1, T=20)
    clock.now += 9 * SECOND
    assert planner.next(first) is first
    clock.now += 2 * SECOND
    second = planner.next(first)
    (piece,) = planner.pieces(first, second)
    assert dict(piece.beats) == {"S": 19}
    clock.now += SECOND
    assert planner.next(second) is second
    put(tmp_path, "s", 1, 3)
    planner._looks["S"]._last_look = 0.0
    third = planner.next(second)
    assert [(p.source, p.beat) for p in planner.pieces(second, third)] == [("S", 19)]
    assert third.wall is not None and third.wall.heard["S"] == third.wall.now


def test_beats_never_fall() -> None:
    bound = bind_script("""
        CREATE STREAM S (a BIGINT) FROM MEMORY () TIMESTAMP BY a IDLE TIMEOUT 1 SECOND;
        CREATE STREAM T (a BIGINT) FROM MEMORY () TIMESTAMP BY a IDLE TIMEOUT 1 SECOND;
        CREATE QUERY q AS SELECT S.a FROM S [NOW], T [NOW];
    """)
    sources = {s.name: s for s in bound.catalog.sources.values()}
    peers = peers_of(q.root for q in bound.queries)
    seen = {"S": SourceProgress(1, 50), "T": SourceProgress(1, 90)}
    clock = begin(sources.values(), 0)
    assert clock.on(seen) == seen
    both_idle = advance(clock, 2 * SECOND, sources, peers, seen, ())
    assert both_idle.beats == {"S": 90, "T": 90}
    speaks = advance(both_idle.spoken(["T"]), 3 * SECOND, sources, peers, seen, ())
    assert speaks.beats == {"S": 90, "T": 90}
    assert WallClock(**speaks.as_json()) == speaks
    nothing = advance(clock, 2 * SECOND, sources, peers, {}, ())
    assert nothing.beats == {} and nothing.on({"S": SourceProgress()})["S"].beat == NOTHING


def test_no_query_waits_for_a_stream_that_it_does_not_read() -> None:
    """S meets T in one query and U, which is far behind, in another; so T and U are no peers of each other."""
    bound = bind_script("""
        CREATE STREAM S (a BIGINT) FROM MEMORY () TIMESTAMP BY a IDLE TIMEOUT 1 SECOND;
        CREATE STREAM T (a BIGINT) FROM MEMORY () TIMESTAMP BY a IDLE TIMEOUT 1 SECOND;
        CREATE STREAM U (a BIGINT) FROM MEMORY () TIMESTAMP BY a;
        CREATE QUERY q AS SELECT S.a FROM S [NOW], T [NOW];
        CREATE QUERY p AS SELECT S.a FROM S [NOW], U [NOW];
    """)
    sources = {s.name: s for s in bound.catalog.sources.values()}
    peers = peers_of(q.root for q in bound.queries)
    assert peers["T"] == {frozenset({"S", "T"})}
    seen = {"S": SourceProgress(1, 2), "T": SourceProgress(1, 90), "U": SourceProgress(1, 5)}
    both = advance(begin(sources.values(), 0), 2 * SECOND, sources, peers, seen, ())
    assert both.beats == {"S": 90, "T": 90}
    clock = WallClock(0, {"S": 0, "T": 2 * SECOND})
    assert advance(clock, 2 * SECOND, sources, peers, seen, ()).beats == {"S": 89}


def test_the_local_runtime_reads_the_clock_it_is_given() -> None:
    bound = bind_script("""
        CREATE STREAM S (a INT) FROM MEMORY () SYSTEM TIME; CREATE QUERY q AS SELECT a FROM S;
    """)
    table = pa.table({"a": pa.array([1, 2, 3], pa.int32())})
    ticking = iter(range(5, 100, 5))
    result = run_local(bound.queries, {"S": table}, batch_rows=2, clock=lambda: next(ticking))
    rows = result.tables["q"]
    assert rows.column("a").to_pylist() == [1, 2, 3]
    ticks = rows.column("ts").cast(pa.int64()).to_pylist()
    assert ticks[0] == ticks[1] < ticks[2] == 10


@pytest.mark.parametrize("unit", ["SECOND", "MILLISECOND"])
def test_arrivals_stand_for_every_row(unit: str) -> None:
    bound = bind_script(f"""
        CREATE STREAM S (a BIGINT) FROM MEMORY () TIMESTAMP BY a UNIT {unit} IDLE TIMEOUT 1 SECOND;
        CREATE QUERY q AS SELECT a FROM S;
    """)
    table = pa.table({"a": pa.array([1, 2], pa.int64())})
    with pytest.raises(AssertionError, match="an instant of arrival for every row"):
        run_local(bound.queries, {"S": table}, arrivals={"S": [1]})


def test_files_that_came_after_the_first_start_are_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "t", 0, 7)
    bound = bind_script(f"""
        CREATE STREAM T (b BIGINT) FROM FILES (path '{tmp_path}/t', format 'parquet') TIMESTAMP BY b;
        CREATE QUERY q AS SELECT b FROM T;
    """)
    first = feed(tmp_path, bound, Clock(0))
    after = first.next(first.start())
    put(tmp_path, "t", 1, 8)
    assert caplog.messages == []
    again = feed(tmp_path, bound, Clock(0))
    for _ in range(2):
        again.next(after)
    assert [("1 file" in m, str(tmp_path / "t") in m, "watch 'true'" in m) for m in caplog.messages] == [(True,) * 3]
