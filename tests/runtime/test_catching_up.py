"""Queries that begin in a running job with a past emit what the law of a live system says, wherever the run dies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline_run import CRASHES, InlineRun, cold, read_beside

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.connectors.contract import ParsedRecords, Split
from penstock.connectors.sinks.files import read_result
from penstock.connectors.sources import open_source
from penstock.connectors.sources.files import FilesSource
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.physical.planning.state_size.summary import size_text
from penstock.runtime.live.starts import starts_text
from penstock.runtime.spark.changes.prefetch import Share
from penstock.runtime.spark.checkpoint.epochs import read_epoch, source_file
from penstock.runtime.spark.hydration.past_input import past_of_run
from penstock.runtime.spark.hydration.start_options import heartbeat_at, start_option, start_options
from penstock.runtime.spark.live_change import hydrate
from penstock.runtime.spark.retention import retention
from penstock.runtime.spark.retention.retained_log import Pins, RetainedLog
from penstock.testing.compare import events_of
from penstock.testing.live import Episode, heartbeat, run_live
from penstock.testing.oracle import timely_rows
from penstock.testing.scalars.values import Event, event_order

FILES, ROWS, SLACK = 8, 10, 4
QUERIES = {
    "sums": "SELECT k, COUNT(*) AS n, SUM(x) AS s FROM S [RANGE 12 SECONDS] GROUP BY k",
    "by_boundary": "SELECT RSTREAM(k, SUM(x) AS s) FROM S [RANGE 30 SECONDS SLIDE 4 SECONDS] GROUP BY k",
    "pairs": "SELECT ISTREAM(a.x, b.x AS y) FROM S [NOW] AS a, S [RANGE 9 SECONDS] AS b WHERE a.k = b.k AND a.x < b.x",
    "best": "SELECT x, k FROM S [RANGE 15 SECONDS] ORDER BY x DESC, k LIMIT 3",
    "last": "SELECT k, x FROM S [PARTITION BY k ROWS 2]",
    "all": "SELECT DISTINCT x FROM S",
    "new": "SELECT ISTREAM(k, x) FROM S [NOW] WHERE x > 8",
}
WARM, BEGINNING = Start(StartMode.WARM), Start(StartMode.BEGINNING)


def at(tick: int) -> Start:
    return Start(StartMode.AT, tick)


def table() -> pa.Table:
    """The whole input: out of order within the slack, and now and then late."""
    draw = random.Random(7)
    ts = [max(0, i // 2 + draw.randint(-3, 3) - (15 if draw.random() < 0.05 else 0)) for i in range(FILES * ROWS)]
    return pa.table(
        {
            "ts": pa.array(ts, pa.int64()),
            "k": pa.array([draw.randint(0, 2) for _ in ts], pa.int32()),
            "x": pa.array([draw.randint(0, 16) for _ in ts], pa.int64()),
        }
    )


def script(tmp: Path, *names: str, out: str = "out", format_: str = "parquet") -> str:
    text = f"""SET max_batch_bytes = 1; SET shards = 2;
    CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{tmp / "data"}', format '{format_}')
      TIMESTAMP BY ts UNIT SECOND ORDER WITHIN {SLACK} SECONDS;"""
    for name in names:
        into = f"INTO FILES (path '{tmp / out / name}', format 'parquet')"
        text += f"\nCREATE QUERY {name} {into} AS {QUERIES[name]};"
    return text


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    whole = table()
    for i in range(FILES):
        pq.write_table(whole.slice(i * ROWS, ROWS), tmp_path / "data" / f"part-{i:04d}.parquet")
    cold()
    return tmp_path


def by_law(query: Query, start: Start, begun: int) -> tuple[list[Event], int]:
    """What is emitted of a query that begins after so many rows, and up to which tick that is final."""
    inputs = {"S": table()}
    events = run_live([Episode(query, start, {"S": begun})], inputs)
    (source,) = bind_script(script(Path("/nowhere"), "sums")).catalog.sources.values()
    return events, heartbeat({"S": source}, {"S": timely_rows(source, inputs["S"])})


def check(tmp: Path, name: str, start: Start, rows: int) -> None:
    """Check the result of a query that began when so many rows had been read."""
    query = bind_script(script(tmp, name)).queries[0]
    expected, final = by_law(query, start, rows)
    assert len(expected) > 1, "too little to tell"
    found = [e for e in events_of(query, read_result(str(tmp / "out" / name))) if e[0] <= final]
    assert sorted(found, key=event_order) == expected, name


@pytest.mark.parametrize("start", [WARM, BEGINNING, at(11)], ids=lambda start: start.mode.value)
def test_queries_begin_as_the_law_says(place: Path, start: Start) -> None:
    names = [name for name in QUERIES if name != "sums"]
    run = InlineRun(script(place, "sums"), place / "checkpoint").go(4)
    run.change(script(place, "sums", *names), starts=dict.fromkeys(names, start))
    read = _read(run)
    run.run()
    for name in names:
        check(place, name, start, read)
    check(place, "sums", BEGINNING, 0)


@pytest.mark.spread(2)
@pytest.mark.parametrize("crash", ["change", *CRASHES])
def test_a_crash_repeats_what_was_not_delivered(place: Path, crash: str) -> None:
    names = ["sums", "best", "new"]
    run = InlineRun(script(place, "last"), place / "checkpoint").go(3)
    later, starts = script(place, "last", *names), dict.fromkeys(names, WARM)
    run.change(later, starts=starts, crash=crash == "change")
    read = FILES * ROWS if crash == "change" else _read(run)
    if crash != "change":
        # The first round with the new queries dies.
        run.run(0, crash)
    cold()
    again = InlineRun(later, place / "checkpoint", starts=starts)
    assert again.decision.kind.value == "same"
    read = min(read, again.job.base * ROWS)
    again.run()
    for name in names:
        check(place, name, WARM, read)
    check(place, "last", BEGINNING, 0)


def _read(run: InlineRun) -> int:
    """The rows that had been read when the latest change was made."""
    before = run.rounds._offset.before
    assert before is not None
    return before.splits_done("S") * ROWS


@pytest.mark.parametrize("recorded", [True, False])
def test_only_what_matters_is_read(place: Path, recorded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read if an element of it, or one before it, may be in a window at the beginning."""
    run = InlineRun(script(place, "by_boundary"), place / "checkpoint", live=recorded).go(6)
    opened: list[str] = []
    read = FilesSource.read

    def noting(self: FilesSource, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        opened.append(Path(split.path).stem)
        return read(self, split, columns)

    with monkeypatch.context() as patch:
        patch.setattr(FilesSource, "read", noting)
        # The last round, which is outstanding, is read before the change.
        run.change(script(place, "by_boundary", "sums", "new"), starts={"sums": WARM, "new": WARM})
    counts = {name: opened.count(name) for name in sorted(set(opened))}
    assert counts == {"part-0003": 1, "part-0004": 1, "part-0005": 1, "part-0006": 2}
    begun = _read(run)
    run.run()
    for name in ("sums", "new"):
        check(place, name, WARM, begun)


def test_the_time_of_arrival_is_that_of_the_rounds(place: Path) -> None:
    """A stream of SYSTEM TIME is read again with the stamps of its rounds."""
    clocked = script(place, "sums").replace("TIMESTAMP BY ts UNIT SECOND ORDER WITHIN 4 SECONDS", "SYSTEM TIME")
    whole = "CREATE QUERY {name} INTO FILES (path '{out}', format 'parquet') AS SELECT ISTREAM(k, x) FROM S [NOW];"
    first, second = (whole.format(name=name, out=place / "out" / name) for name in ("first", "second"))
    run = InlineRun(clocked + first, place / "checkpoint").go(4)
    run.change(clocked + first + second, starts={"second": BEGINNING}).go(2)
    run.rounds.stop()
    assert read_result(str(place / "out" / "first")).num_rows > 0
    assert read_result(str(place / "out" / "second")).equals(read_result(str(place / "out" / "first")))


def test_a_past_whose_times_are_not_recorded_is_refused(place: Path) -> None:
    clocked = script(place, "sums").replace("TIMESTAMP BY ts UNIT SECOND ORDER WITHIN 4 SECONDS", "SYSTEM TIME")
    query = (
        f"CREATE QUERY q INTO FILES (path '{place}/q', format 'parquet') AS SELECT SUM(x) AS s FROM S [RANGE 1 DAY];"
    )
    run = InlineRun(clocked, place / "checkpoint", live=False).go(3)
    with pytest.raises(PenstockError) as refused:
        run.change(clocked + query, starts={"q": WARM})
    assert refused.value.code == "P0703" and "elements of S" in refused.value.message
    run.change(clocked + query, starts={}).go(1)
    run.rounds.stop()


@pytest.mark.spread(3)
@pytest.mark.parametrize("ahead", [1, 9, 1000])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_query_begins_at_a_time_that_lies_ahead(place: Path, ahead: int, restarted: bool) -> None:
    """As the law says, also where that is never reached, and over a restart while it waits."""
    names = list(QUERIES)
    run = InlineRun(script(place, "sums"), place / "checkpoint").go(2)
    begun, (query,) = _read(run), bind_script(script(place, "best")).queries
    known = past_of_run(run.folder, read_epoch(run.folder, run.job.epoch))
    start = at(heartbeat_at(query, known.offset) + ahead)
    assert not start_option(query, start, known).obstacles
    others = [name for name in names if name != "sums"]
    run.change(script(place, *names), starts=dict.fromkeys(others, start))
    begun = _read(run)
    if restarted:
        run.go(1)
        run.rounds.stop()
        cold()
        run = InlineRun(script(place, *names), place / "checkpoint")
    run.run()
    for name in others:
        if ahead < 1000:
            check(place, name, start, begun)
        else:
            assert not read_result(str(place / "out" / name)).num_rows, name
    check(place, "sums", BEGINNING, 0)


@pytest.mark.parametrize("recorded", [True, False])
def test_where_nothing_is_missing_nobody_waits(place: Path, recorded: bool) -> None:
    """WARM WAIT is WARM then; at the first start it begins with its sources."""
    wait = Start(StartMode.WARM, wait=True)
    run = InlineRun(script(place, "sums"), place / "checkpoint", live=recorded, starts={"sums": wait}).go(4)
    names = ["best", "last", "new"]
    run.change(script(place, "sums", *names), starts=dict.fromkeys(names, wait))
    read = _read(run)
    run.run()
    for name in names:
        check(place, name, WARM, read)
    check(place, "sums", BEGINNING, 0)


@pytest.mark.parametrize("start", [WARM, BEGINNING, at(11)], ids=lambda start: start.mode.value)
def test_queries_catch_up_beside_the_rounds(place: Path, start: Start) -> None:
    """While the past is read, the run reads on; what it has read meanwhile is read after that."""
    names = ["sums", "best", "new", "by_boundary"]
    run = InlineRun(script(place, "last"), place / "checkpoint").go(3)
    ahead = hydrate(run.folder, run, run.work_of(script(place, "last", *names), starts=dict.fromkeys(names, start)))
    read = read_beside(run, ahead, 6)
    run.change(script(place, "last", *names), starts=dict.fromkeys(names, start), ahead=ahead)
    assert read.epoch == run.job.epoch
    begun = _read(run)
    assert begun >= 6 * ROWS
    run.run()
    for name in names:
        check(place, name, start, begun)
    check(place, "last", BEGINNING, 0)


def test_what_was_read_ahead_of_another_change_is_not_used(place: Path) -> None:
    run = InlineRun(script(place, "last"), place / "checkpoint").go(3)
    ahead = hydrate(run.folder, run, run.work_of(script(place, "last", "best"), starts={"best": WARM}))
    assert ahead is not None
    ahead.read(lambda seconds: None)
    run.change(script(place, "last", "sums"), starts={"sums": WARM}, ahead=ahead)
    begun = _read(run)
    run.run()
    check(place, "sums", WARM, begun)


def test_no_more_than_a_share_of_the_time_is_taken() -> None:
    """While rounds are running; without one, nothing waits."""
    waits: list[float] = []
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        waits.append(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", sleep)
        patch.setattr("time.monotonic", lambda: now)
        Share(0.25, lambda: True)(1.0)
        assert sum(waits) == pytest.approx(3.0, abs=0.03)
        waits.clear()
        Share(0.25, lambda: False)(1.0)
        assert not waits


# -- RETAIN ----------------------------------------------------------------------------------------------------------


#: The name of the stream in the checkpoint.
FILE = source_file("S", {})


def retaining(tmp: Path, *names: str, retain: str = "RETAIN 1 MINUTE") -> str:
    return script(tmp, *names).replace(f"WITHIN {SLACK} SECONDS", f"WITHIN {SLACK} SECONDS {retain}")


def forget_data(tmp: Path, rows: int) -> None:
    """Remove the files with the first rows: their source cannot be read again."""
    for i in range(rows // ROWS):
        (tmp / "data" / f"part-{i:04d}.parquet").unlink()


@pytest.mark.parametrize("start", [WARM, BEGINNING, at(11)], ids=lambda start: start.mode.value)
def test_the_past_is_read_from_what_is_retained(place: Path, start: Start) -> None:
    names = [name for name in QUERIES if name != "sums"]
    run = InlineRun(retaining(place, "sums"), place / "checkpoint", live=False).go(5)
    forget_data(place, 5 * ROWS)
    run.change(retaining(place, "sums", *names), starts=dict.fromkeys(names, start))
    begun = _read(run)
    run.run()
    for name in names:
        check(place, name, start, begun)
    check(place, "sums", BEGINNING, 0)


@pytest.mark.spread(2)
@pytest.mark.parametrize("crash", CRASHES)
def test_a_round_that_is_repeated_retains_the_same(place: Path, crash: str) -> None:
    InlineRun(retaining(place, "new"), place / "checkpoint").run(3, crash)
    cold()
    run = InlineRun(retaining(place, "new"), place / "checkpoint").go(2)
    files = sorted((place / "checkpoint" / "penstock" / "retained" / FILE).glob("*.arrow"))
    assert [int(file.name[:9]) for file in files] == list(range(1, len(files) + 1))
    run.change(retaining(place, "new", "sums"), starts={"sums": WARM})
    begun = _read(run)
    run.run()
    check(place, "sums", WARM, begun)


def test_what_is_older_than_retain_says_is_removed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_EVERY", 1)
    short = "RETAIN 14 SECONDS"
    run = InlineRun(retaining(place, "new", retain=short), place / "checkpoint").go(7)
    log = RetainedLog(run.folder, FILE)
    assert 0 < len(log.files()) < 7 and log.after is not None
    with Pins(run.folder).pinned("reader", FILE, log.after):
        held = log.files()
        run.go(1)
        assert log.files()[: len(held)] == held
    forget_data(place, 7 * ROWS)
    with pytest.raises(PenstockError):
        run.change(retaining(place, "new", "by_boundary", retain=short), starts={"by_boundary": WARM})
    run.rounds.stop()


def test_retaining_that_cannot_begin_is_tried_again_before_anything_is_read(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begin, failures = retention.Retention.begin, [RuntimeError("nobody foresaw it")]

    def failing(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        begin(*arguments)

    run = InlineRun(script(place, "new"), place / "checkpoint").go(2)
    monkeypatch.setattr(retention.Retention, "begin", failing)
    run.change(retaining(place, "new"))
    assert not failures and "what streams retain cannot be begun" in caplog.text
    before = run.folder.delivered().round
    run.go(2)
    log = RetainedLog(run.folder, FILE)
    assert [file.round for file in log.files()] == [before + 1, before + 2] and log.after is not None
    run.rounds.stop()


def test_a_window_that_is_retained_begins_full(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_EVERY", 1)
    short = "RETAIN 14 SECONDS"
    run = InlineRun(retaining(place, "new", retain=short), place / "checkpoint").go(6)
    forget_data(place, 6 * ROWS)
    run.change(retaining(place, "new", "sums", retain=short), starts={"sums": WARM})
    begun = _read(run)
    assert RetainedLog(run.folder, FILE).after is not None
    run.run()
    check(place, "sums", WARM, begun)


def test_columns_that_are_not_retained_are_read_again(place: Path) -> None:
    only = "RETAIN 1 MINUTE (x)"
    run = InlineRun(retaining(place, "new", retain=only), place / "checkpoint").go(4)
    later = retaining(place, "new", "sums", "all", retain=only)
    starts = {"sums": WARM, "all": WARM}
    (file, *_) = RetainedLog(run.folder, FILE).files()
    (elements,) = RetainedLog(run.folder, FILE, 0).read(file, (2,))
    assert elements.columns[0].type == pa.int64()
    run.change(later, starts=starts)
    begun = _read(run)
    run.run()
    for name in starts:
        check(place, name, WARM, begun)


def test_what_came_before_a_stream_is_retained_is_not_there(place: Path) -> None:
    run = InlineRun(script(place, "new"), place / "checkpoint", live=False).go(5)
    run.change(retaining(place, "new", "all", "last"), starts={}).go(1)
    log = RetainedLog(run.folder, FILE)
    assert log.after is not None and not log.has(None) and not log.has(log.after - 1) and log.has(log.after)
    run.rounds.stop()


def test_damaged_retained_elements_are_refused(place: Path) -> None:
    run = InlineRun(retaining(place, "new"), place / "checkpoint", live=False).go(3)
    (file, *_) = (place / "checkpoint" / "penstock" / "retained" / FILE).glob("*.arrow")
    file.write_bytes(file.read_bytes()[:-9] + b"\1" * 9)
    with pytest.raises(PenstockError, match="checksum") as refused:
        run.change(retaining(place, "new", "all"), starts={"all": WARM})
    assert refused.value.code == "P0605"
    run.rounds.stop()


def options(run: InlineRun, text: str, name: str) -> str:
    (query,) = [q for q in bind_script(text, live=True).queries if q.name == name]
    return starts_text(start_options(query, past_of_run(run.folder, read_epoch(run.folder, run.job.epoch))))


def test_which_starts_can_be_had(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_EVERY", 1)
    text = retaining(place, "new", "sums", "by_boundary", retain="RETAIN 14 SECONDS")
    run = InlineRun(retaining(place, "new", retain="RETAIN 14 SECONDS"), place / "checkpoint").go(6)
    again = f"S: the source, read again ({6 * ROWS} rows, {size_text(read_bytes(place, 6))})"
    log = RetainedLog(run.folder, FILE)
    retained = f"S: its retained elements ({size_text(sum(map(log.size, log.files())))})"
    now = "NOW: yes; answers as WARM after"
    assert options(run, text, "sums") == f"{now} 12 SECOND\nWARM: yes; {retained}\nBEGINNING: yes; {again}"
    assert options(run, text, "by_boundary") == f"{now} 34 SECOND\nWARM: yes; {again}\nBEGINNING: yes; {again}"
    run.rounds.stop()


def read_bytes(tmp: Path, files: int) -> int:
    """The bytes of the splits of the first files."""
    text = script(tmp)
    (source,) = bind_script(text).catalog.sources.values()
    connector = open_source(source)
    paths = connector.discover(frozenset())
    return sum(split.bytes for path in paths[:files] for split in connector.splits(path))


def test_what_would_help_is_said(place: Path) -> None:
    clocked = script(place, "new").replace("TIMESTAMP BY ts UNIT SECOND ORDER WITHIN 4 SECONDS", "SYSTEM TIME")
    later = script(place, "sums").replace("TIMESTAMP BY ts UNIT SECOND ORDER WITHIN 4 SECONDS", "SYSTEM TIME")
    run = InlineRun(clocked, place / "checkpoint", live=False).go(3)
    now, warm, wait, beginning = options(run, later, "sums").splitlines()
    assert now == "NOW: yes; answers as WARM after 12 SECOND"
    assert warm == "WARM: no; CREATE STREAM S ... RETAIN 12 SECOND or longer"
    assert wait.startswith("WARM WAIT: yes; answers from 20")
    assert beginning == "BEGINNING: no; S cannot be read again from its beginning"
    run.rounds.stop()
