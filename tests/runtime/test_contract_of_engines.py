"""The contract `Engine`, of the engine in one process and of that on Spark: the same tests, with the same assertions.

That on Spark runs its rounds without Spark here (`inline_engine.py`).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inline_engine import InlineServer, leave_spark
from inline_server import ServedRun

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.query import Start, StartMode
from penstock.connectors.deadletters import DeadLetters
from penstock.control.engine import Engine, EngineListener
from penstock.control.live.control import Control
from penstock.engines import spark
from penstock.engines.in_process import InProcessEngine
from penstock.engines.spark import SparkEngine
from penstock.errors import PenstockError
from penstock.language.binder.context import QueryNames
from penstock.language.scripts import bind_script, bind_select
from penstock.physical.plan.identity import step_keys
from penstock.physical.plan.strategies import Strategy
from penstock.results.cancellation import Cancellation
from penstock.results.result_source import EndOfResults, ResultRequest
from penstock.results.select import LiveAnswer
from penstock.results.select_workers import SelectWorkers
from penstock.results.source_rows import SourceRows
from penstock.runtime.local.one_time import OneTimeAnswer, answer_over
from penstock.runtime.monitoring.figures import BatchFigures
from penstock.runtime.spark.retention import retention
from penstock.server.statements.selecting import select_scope

NOW, WARM = Start(StartMode.NOW), Start(StartMode.WARM)
SCRIPT = "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS;"
SUM = "CREATE QUERY q AS SELECT SUM(v) AS s FROM S [RANGE 5 SECONDS];"
RELATION = (
    "CREATE RELATION R (ts INT, op STRING, k INT, x INT, PRIMARY KEY (k)) FROM HTTP () TIMESTAMP BY ts UNIT SECOND"
    " OPERATION BY op;"
)
CHECKED = "CREATE FUNCTION checked (BIGINT) RETURNS BIGINT AS 'penstock.testing.samples:checked';"


class ThreadWorkers(SelectWorkers):
    """Computes one-time queries in the thread that asks for them."""

    def __call__(
        self, query: OneTimeQuery, inputs: Mapping[str, SourceRows], cancellation: Cancellation
    ) -> OneTimeAnswer:
        return answer_over(query, {name: rows.table() for name, rows in inputs.items()}, Strategy.PATTERN)


@dataclass
class Served:
    """A control over an engine, whose rounds run when a test says so."""

    folder: Path
    is_on_spark: bool
    #: That of either.
    engine: Any = None

    def __post_init__(self) -> None:
        self._open()

    def _open(self) -> None:
        if self.is_on_spark:
            server = InlineServer(self.folder)
            server.engine._workers = ThreadWorkers()
            self.control, self.engine = server.control, server.engine
            self.round: Callable[[], object] = lambda: server.run.round()
        else:
            self.engine = InProcessEngine(self.folder / "engine", workers=ThreadWorkers())
            self.control = Control(self.folder, self.engine)
            self.round = self.engine.round

    def bare(self) -> Engine:
        """Return an engine that has had no version: a control begins with one."""
        if self.is_on_spark:
            return SparkEngine(self.folder / "bare", lambda: pytest.fail("Spark is not needed"))
        return InProcessEngine(self.folder / "bare")

    def close(self) -> None:
        self.control.close()
        self.engine.close()

    def restart(self) -> None:
        self.close()
        self._open()

    @property
    def letters(self) -> DeadLetters:
        return DeadLetters(str(self.folder / ("penstock" if self.is_on_spark else "engine") / "dead-letters"))

    def done(self, script: str) -> None:
        for one in self.control.submit(script):
            if one.outcome is not None:
                until(lambda number=one.outcome.number: self.control.outcome(number).version is not None)  # type: ignore[misc]

    def insert(self, *rows: tuple[int, int], into: str = "S") -> None:
        ticks, values = zip(*rows, strict=True)
        self.control.insert(into, pa.table({"ts": pa.array(ticks, pa.int32()), "v": pa.array(values, pa.int32())}))
        self.round()

    def select(self, text: str) -> LiveAnswer:
        query = bind_select(text, self.control.catalog, query_names=QueryNames.ANSWER).query
        scope = select_scope(query, self.control, lambda: pytest.fail("no control relation is read"))
        found: LiveAnswer = self.engine.select(query, scope, "1", Cancellation())
        return found

    def selected(self, text: str) -> tuple[int | None, list[tuple[Any, ...]]]:
        """Return the instant of a one-time query, and its rows."""
        found = self.select(text).answer
        return found.tick, [tuple(row.values()) for row in found.table.to_pylist()]

    def place(self, name: str) -> int:
        return self.control.query(name)[1].place

    def rows(self, name: str, **request: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a bounded subscription."""
        query = self.control.catalog.queries[name]
        source = self.engine.results(self.place(name), query, ResultRequest(until_now=True, **request))
        found: list[tuple[Any, ...]] = []
        try:
            while True:
                part = source.next(5)
                assert part is not None
                found += [tuple(row.values()) for row in part.rows.to_pylist()]
        except EndOfResults:
            return found
        finally:
            source.close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture(params=["in process", "on Spark"])
def served(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    leave_spark(monkeypatch)
    monkeypatch.setattr(spark, "launch", ServedRun)
    made = Served(tmp_path, request.param == "on Spark")
    yield made
    made.close()


def content(rows: list[tuple[Any, ...]], tick: int) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for ts, op, *items in rows:
        if ts <= tick:
            found[tuple(items)] += 1 if op == "+" else -1
    return +found


def test_a_version_tells_what_it_contains(served: Served) -> None:
    engine: Engine = served.engine
    assert engine.version().command == 0
    served.done(SCRIPT + SUM)
    first = engine.version()
    assert first.command == served.control.commands()[-1][2].number and not first.waiting
    served.insert((1, 1), (2, 2), (3, 4))
    found, place = engine.version(), served.place("q")
    assert found.number == first.number and found.command == first.command
    assert found.heartbeats == {place: 2} and found.sources == {"s": 2}
    served.done("CREATE QUERY r AS SELECT v FROM S;")
    later = engine.version()
    assert later.number > found.number and later.command > found.command
    served.restart()
    assert served.engine.version().command == later.command
    assert served.engine.version().heartbeats[place] == 2


def test_before_the_first_version_nothing_is_read(served: Served) -> None:
    engine = served.bare()
    (query,) = bind_script(SCRIPT.replace("HTTP", "MEMORY") + SUM, live=True).queries
    for read in (lambda: engine.tap(("step", 0), 10), lambda: engine.results(1, query, ResultRequest())):
        with pytest.raises(PenstockError, match="P0711: nothing runs yet") as caught:
            read()
        assert caught.value.hint
    engine.close()
    served.done(SCRIPT + SUM)
    served.engine.tap(("step", 0), 10).close()
    with pytest.raises(PenstockError, match="P0711: the results of q are not kept here"):
        served.engine.results(served.place("q") + 1, query, ResultRequest())


def test_answers_are_read_from_the_beginning_from_now_and_with_a_snapshot(served: Served) -> None:
    served.done(SCRIPT + SUM)
    served.insert((1, 1), (2, 2), (3, 4))
    served.insert((9, 1), (10, 1))
    whole = served.rows("q", beginning=True)
    assert whole == [(1, "+", 1), (2, "-", 1), (2, "+", 3), (3, "-", 3), (3, "+", 7),
                     (6, "-", 7), (6, "+", 6), (7, "-", 6), (7, "+", 4), (8, "-", 4), (8, "+", None),
                     (9, "-", None), (9, "+", 1)]  # fmt: skip
    assert served.rows("q") == []
    for tick in (2, 6, 9):
        found = served.rows("q", snapshot=True, after=tick, up_to=9)
        snapshot = [row for row in found if row[0] <= tick]
        assert content(snapshot, tick) == content(whole, tick)
        assert found[len(snapshot) :] == [row for row in whole if row[0] > tick]
    served.restart()
    assert served.rows("q", beginning=True) == whole


def test_errors_of_results_have_the_name_of_the_query(served: Served) -> None:
    served.done(SCRIPT + SUM + "CREATE QUERY each AS ISTREAM(SELECT v FROM S [NOW]);")
    served.insert((1, 1), (2, 2), (3, 4))
    requests: list[tuple[str, dict[str, Any], str]] = [
        ("q", {"snapshot": True, "after": 900}, "P0711: the content of q at 900: it is complete up to 2"),
        ("each", {"snapshot": True}, "P0711: each is a stream, and has no content"),
    ]
    for name, request, error in requests:
        with pytest.raises(PenstockError, match=error):
            served.rows(name, **request)


def test_a_query_pauses_is_silent_resumes_and_is_exchanged(served: Served) -> None:
    served.done(SCRIPT + SUM + "CREATE QUERY r AS SELECT MAX(CAST(v AS BIGINT)) AS s FROM S [RANGE 5 SECONDS];")
    served.insert((1, 5), (2, 2), (3, 1))
    served.done("ALTER QUERY q SWAP WITH r;")
    served.insert((4, 1))
    served.round()
    # What has been emitted stays, and the content becomes that of the other one.
    assert content(served.rows("q", beginning=True), 3) == {(5,): 1}
    assert content(served.rows("r", beginning=True), 3) == {(8,): 1}
    served.done("ALTER QUERY r PAUSE WITH STATE;")
    before = served.rows("r", beginning=True)
    served.insert((5, 1), (6, 1))
    assert served.rows("r", beginning=True) == before
    served.done("ALTER QUERY r RESUME;")
    served.insert((7, 1))
    assert content(served.rows("r", beginning=True), 6) == {(6,): 1}
    served.done("ALTER QUERY r PAUSE;")
    served.restart()
    served.insert((8, 1))
    assert served.place("r") not in served.engine.version().heartbeats


def test_a_query_that_fails_fails_alone(served: Served) -> None:
    served.done(SCRIPT + CHECKED + SUM + "CREATE QUERY bad AS SELECT checked(CAST(v AS BIGINT)) AS x FROM S;")
    served.insert((1, 1), (2, 2))
    served.insert((3, -1), (4, 1))
    until(lambda: served.control.query("bad")[1].status.value == "FAILED")
    assert served.control.query("bad")[1].code == "P0621"
    served.round()
    served.insert((5, 1), (6, 1))
    assert content(served.rows("q", beginning=True), 5) == {(4,): 1}
    assert served.engine.ended_by() is None and served.engine.health().problem is None
    served.restart()
    assert served.control.query("bad")[1].status.value == "FAILED"


PAIRS = (
    "CREATE QUERY pairs WITH (result_limit '20 kB') AS"
    " SELECT a.v, b.v AS w FROM S [RANGE 2 SECONDS] AS a, S [RANGE 2 SECONDS] AS b;"
)


def test_a_query_beyond_its_limit_begins_again_whole(served: Served) -> None:
    served.done(SCRIPT + SUM + PAIRS)
    served.insert((1, 1), (2, 2), (3, 3))
    query, place = served.control.catalog.queries["pairs"], served.place("pairs")
    waiting = served.engine.results(place, query, ResultRequest(beginning=True))
    read: list[tuple[Any, ...]] = []
    while (part := waiting.next(0)) is not None:
        read += [tuple(row.values()) for row in part.rows.to_pylist()]
    served.insert(*((4, v) for v in range(100)), (5, 5))
    until(lambda: served.control.query("pairs")[1].status.value == "FAILED")
    assert served.control.query("pairs")[1].code == "P0634"
    served.insert((8, 1), (9, 2), (10, 3))
    served.done("ALTER QUERY pairs RESUME;")
    served.insert((11, 4), (12, 5))
    # All changes that are kept make the content, also those before the failure where they are kept.
    whole = served.rows("pairs", beginning=True)
    for tick in (10, 11):
        ends = (tick - 1 - 7, tick - 7)
        assert content(whole, tick) == Counter((v, w) for v in ends for w in ends)
    assert content(served.rows("pairs", snapshot=True), 11) == content(whole, 11)
    assert len(served.selected("SELECT * FROM pairs")[1]) == 4
    # Who has read before gets the changes to what it has, or an error where that has been dropped.
    try:
        while (part := waiting.next(0)) is not None:
            read += [tuple(row.values()) for row in part.rows.to_pylist()]
        assert content(read, 11) == content(whole, 11)
    except PenstockError as error:
        assert error.code == "P0712" and error.hint
    served.restart()
    assert served.rows("pairs", beginning=True) == whole


def test_posts_are_known_to_be_read(served: Served) -> None:
    served.done(SCRIPT + SUM)
    (source,) = (number for number, one in served.control.stored.items() if one.kind == "STREAM")
    rows = pa.table({"ts": pa.array([1, 2], pa.int32()), "v": pa.array([1, 2], pa.int32())})
    served.control.insert("S", rows)
    (last,) = served.control.positions("S").values()
    assert not served.engine.has_read(source, last)
    served.round()
    assert served.engine.has_read(source, last) and served.engine.unread() == 0
    assert served.engine.has_read(source + 100, 1), "nothing reads it"


def test_how_a_query_can_begin(served: Served) -> None:
    served.done(SCRIPT.replace("1000", "10") + SUM)
    for tick in range(1, 40):
        served.insert((tick, tick))
    bound = served.control.catalog

    def query(length: int) -> Any:
        (found,) = bind_script(f"CREATE QUERY x AS SELECT SUM(v) AS s FROM S [RANGE {length} SECONDS];", bound).queries
        return found

    short, long = query(3), query(30)
    assert not served.engine.start_option(short, WARM).obstacles
    assert served.engine.start_option(long, WARM).obstacles
    assert not served.engine.start_option(long, NOW).obstacles
    assert served.engine.awaited(short) is None or not served.engine.awaited(short).rows
    before, rows = served.engine.version(), served.rows("q", beginning=True)
    with pytest.raises(PenstockError, match="P0703"):
        served.done("CREATE QUERY x START WARM AS SELECT SUM(v) AS s FROM S [RANGE 30 SECONDS];")
    assert served.engine.version() == before and served.rows("q", beginning=True) == rows
    served.done("CREATE QUERY x START WARM AS SELECT SUM(v) AS s FROM S [RANGE 3 SECONDS];")
    served.round()
    assert content(served.rows("x", beginning=True), 38) == {(38 + 37 + 36,): 1}


def test_a_select_reads_final_instants_of_streams_and_of_queries(served: Served) -> None:
    served.done(SCRIPT + SUM + "CREATE QUERY each AS ISTREAM(SELECT v FROM S [NOW]);")
    assert served.selected("SELECT v FROM S") == (None, [])
    for tick in range(1, 10):
        served.insert((tick, tick))
    # The row of 9 has been read, and its instant is not final.
    assert served.selected("SELECT SUM(v) AS s FROM S [RANGE 3 SECONDS]") == (8, [(8 + 7 + 6,)])
    assert served.selected("SELECT ts, v FROM S ORDER BY ts") == (8, [(tick, tick) for tick in range(1, 9)])
    assert served.selected("SELECT * FROM q") == (8, [(8 + 7 + 6 + 5 + 4,)])
    assert served.selected("SELECT * FROM each ORDER BY ts") == (8, [(tick, tick) for tick in range(1, 9)])
    assert served.selected("SELECT SUM(v) AS s FROM each [RANGE 3 SECONDS]") == (8, [(8 + 7 + 6,)])
    assert served.selected("SELECT v FROM S [NOW] AS OF 4") == (4, [(4,)])
    assert served.selected("SELECT * FROM q AS OF 4") == (4, [(1 + 2 + 3 + 4,)])
    found = served.select("SELECT v, s FROM S [NOW], q")
    assert found.answer.table.to_pylist() == [{"v": 8, "s": 30}] and found.staleness is not None
    assert [one.message for one in found.notices] == ["rows up to 9 have been read, and the answer is as of 8"]
    for text in ("SELECT v FROM S AS OF 9", "SELECT * FROM q AS OF 9", "SELECT * FROM each AS OF 9"):
        with pytest.raises(PenstockError, match=r"P0721: .* the sources are complete up to 8"):
            served.select(text)
    served.restart()
    served.round()
    assert served.selected("SELECT SUM(v) AS s FROM S [RANGE 3 SECONDS]") == (8, [(8 + 7 + 6,)])
    assert served.selected("SELECT * FROM each ORDER BY ts AS OF 2") == (2, [(1, 1), (2, 2)])


def test_a_select_reads_what_is_retained_and_no_more(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_EVERY", 1)
    short = SCRIPT.replace("1000", "10")
    served.done(short + "CREATE STREAM T (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;" + SUM)
    for tick in range(1, 30):
        served.insert((tick, tick))
    served.insert((1, 1), (2, 2), into="T")
    found = served.select("SELECT ts, v FROM S ORDER BY ts")
    (since,) = found.since.values()
    assert 10 <= since <= 18 and found.answer.tick == 28
    assert [row["ts"] for row in found.answer.table.to_pylist()] == list(range(since + 1, 29))
    assert served.selected("SELECT COUNT(*) AS n FROM S [RANGE 10 SECONDS]") == (28, [(10,)])
    for text, message in [
        ("SELECT v FROM S [RANGE 25 SECONDS]", "elements of S are kept since .* 25 SECOND before 28 are needed"),
        ("SELECT v FROM S [RANGE 2 SECONDS] AS OF 3", "elements of S are kept since .* 3 is before that"),
        ("SELECT v FROM T", "no elements of T are kept for one-time queries"),
        ("SELECT v FROM T [NOW], q", "no elements of T are kept for one-time queries"),
    ]:
        with pytest.raises(PenstockError, match=f"P0721: {message}"):
            served.select(text)
    served.done("ALTER STREAM T SET (retain '10 SECONDS')")
    served.insert((3, 3), (4, 4), into="T")
    assert served.selected("SELECT MAX(v) AS m FROM T [NOW]") == (3, [(3,)])


def test_a_select_over_a_relation_reads_the_updates_that_are_final(served: Served) -> None:
    served.done(
        "CREATE RELATION R (ts INT, op STRING, k INT, v INT, PRIMARY KEY (k)) FROM HTTP ()"
        " TIMESTAMP BY ts UNIT SECOND OPERATION BY op;" + SCRIPT
    )
    rows = [(1, "+", 1, 10), (2, "+", 2, 20), (3, "-", 1, 10), (4, "+", 3, 30)]
    for ts, op, k, v in rows:
        columns = {"ts": ts, "op": op, "k": k, "v": v}
        types = {"ts": pa.int32(), "op": pa.string(), "k": pa.int32(), "v": pa.int32()}
        served.control.insert("R", pa.table({name: pa.array([one], types[name]) for name, one in columns.items()}))
        served.round()
    assert served.selected("SELECT k, v FROM R ORDER BY k") == (3, [(2, 20)])
    assert served.selected("SELECT k, v FROM R ORDER BY k AS OF 2") == (2, [(1, 10), (2, 20)])
    served.insert((1, 1), (2, 2), (3, 3))
    # The instant is the least of those up to which the sources are complete.
    assert served.selected("SELECT S.v, k FROM S [NOW], R ORDER BY k") == (2, [(2, 1), (2, 2)])
    with pytest.raises(PenstockError, match="P0721"):
        served.select("SELECT k FROM R AS OF 4")


def test_a_select_over_a_query_that_is_silent_or_paused(served: Served) -> None:
    # Rows of 100 advance the time, and are in no answer before they are final.
    served.done(SCRIPT + SUM + "CREATE QUERY each AS ISTREAM(SELECT v FROM S [NOW] WHERE v < 100);")
    served.insert((1, 1), (2, 2), (3, 100))
    served.done("ALTER QUERY q PAUSE WITH STATE; ALTER QUERY each PAUSE WITH STATE;")
    served.insert((4, 4), (5, 100))
    assert served.selected("SELECT * FROM q") == (2, [(3,)])
    assert served.selected("SELECT * FROM each ORDER BY ts") == (2, [(1, 1), (2, 2)])
    served.done("ALTER QUERY q RESUME; ALTER QUERY each RESUME;")
    served.insert((6, 6), (7, 100))
    assert served.selected("SELECT * FROM q") == (6, [(2 + 100 + 4 + 100 + 6,)])
    served.done("ALTER QUERY q PAUSE; ALTER QUERY each PAUSE;")
    served.insert((8, 8), (9, 9))
    # Nothing more comes from a query that is paused, so all its rows are final. On Spark a relation that is paused has
    # no answer.
    if isinstance(served.engine, InProcessEngine):
        assert served.selected("SELECT * FROM q")[1] == [(2 + 100 + 4 + 100 + 6,)]
    else:
        with pytest.raises(PenstockError, match="P0721: query q has no answer that a SELECT could read"):
            served.select("SELECT * FROM q")
    assert served.selected("SELECT * FROM each ORDER BY ts")[1] == [(1, 1), (2, 2), (6, 6)]


def test_progress_is_reported_up_to_the_heartbeat_and_not_while_a_query_is_silent(served: Served) -> None:
    served.done(SCRIPT + SUM)
    served.insert((1, 1), (2, 2), (3, 4))
    served.insert((9, 1), (10, 1))
    found = served.rows("q", beginning=True, progress=True)
    assert found[-1] == (9, "p", None)
    assert [row for row in found if row[1] != "p"] == served.rows("q", beginning=True)
    # Behind a row of progress nothing changes that it covers.
    covered = 0
    for ts, op, _ in found:
        assert ts > covered or (op == "p" and ts == covered)
        covered = ts if op == "p" else covered
    served.done("ALTER QUERY q PAUSE WITH STATE;")
    served.insert((20, 1), (21, 1))
    assert served.rows("q", beginning=True, progress=True)[-1] == (9, "p", None)
    served.done("ALTER QUERY q RESUME;")
    served.insert((22, 1), (23, 1))
    assert served.rows("q", beginning=True, progress=True)[-1] == (22, "p", None)


def test_a_cursor_continues_behind_its_rows(served: Served) -> None:
    served.done(SCRIPT + SUM + "CREATE QUERY other AS SELECT MAX(v) AS s FROM S [NOW];")
    query, place = served.control.catalog.queries["q"], served.place("q")
    source = served.engine.results(place, query, ResultRequest(beginning=True))
    read: list[tuple[Any, ...]] = []
    cursor = source.cursor
    for tick in range(1, 8):
        served.insert((tick, tick))
        while (part := source.next(0)) is not None:
            read += [tuple(row.values()) for row in part.rows.to_pylist()]
            cursor = part.cursor
        source.close()
        if tick == 4:
            served.restart()
        source = served.engine.results(place, query, ResultRequest(cursor))
        assert source.cursor == cursor
    source.close()
    assert read == served.rows("q", beginning=True) and len(read) > 6
    for wrong in ("x", "", f"{cursor}0", "1.2.3.4"):
        with pytest.raises(PenstockError, match="P0712"):
            served.engine.results(place, query, ResultRequest(wrong))
    with pytest.raises(PenstockError, match="P0712"):
        served.engine.results(served.place("other"), served.control.catalog.queries["other"], ResultRequest(cursor))
    with pytest.raises(PenstockError, match="P0711: a snapshot begins where its content is known, not at a cursor"):
        served.engine.results(place, query, ResultRequest(cursor, snapshot=True))


def test_a_bounded_subscription_ends_with_its_instant(served: Served) -> None:
    served.done(SCRIPT + SUM)
    query, place = served.control.catalog.queries["q"], served.place("q")
    source = served.engine.results(place, query, ResultRequest(beginning=True, progress=True, up_to=3))
    read: list[tuple[Any, ...]] = []
    for tick in range(1, 7):
        served.insert((tick, tick))
        with suppress(EndOfResults):
            while (part := source.next(0)) is not None:
                read += [tuple(row.values()) for row in part.rows.to_pylist()]
    with pytest.raises(EndOfResults):
        source.next(0)
    assert read[-1] == (3, "p", None) and content([row for row in read if row[1] != "p"], 3) == {(6,): 1}
    assert max(row[0] for row in read) == 3


class Recording(EngineListener):
    """Notes what an engine tells."""

    def __init__(self) -> None:
        self.failures: list[tuple[int, PenstockError]] = []
        self.batches: list[tuple[BatchFigures, Mapping[str, int]]] = []

    def failed(self, place: int, error: PenstockError) -> None:
        self.failures.append((place, error))

    def batch(self, figures: BatchFigures, places: Mapping[str, int]) -> bool:
        self.batches.append((figures, dict(places)))
        return False


def test_a_listener_is_told_of_failures_by_the_name_of_the_query(served: Served) -> None:
    served.done(SCRIPT + CHECKED + SUM + "CREATE QUERY bad AS SELECT checked(CAST(v AS BIGINT)) AS x FROM S;")
    recording = Recording()
    served.engine.listen(recording)
    served.insert((1, 1), (2, 2))
    assert recording.failures == []
    served.insert((3, -1), (4, 1))
    ((place, error),) = recording.failures
    assert place == served.place("bad") and error.code == "P0621"
    assert error.message.startswith("query bad: the user-defined function checked failed")


def test_how_a_query_can_begin_is_listed_alike(served: Served) -> None:
    served.done(SCRIPT.replace("1000", "10") + SUM)
    for tick in range(1, 40):
        served.insert((tick, tick))
    for length, can in ((3, True), (30, False)):
        text = f"CREATE QUERY x AS SELECT SUM(v) AS s FROM S [RANGE {length} SECONDS];"
        (query,) = bind_script(text, served.control.catalog).queries
        options = {one.start.mode: one for one in served.engine.starts(query) if not one.start.wait}
        assert not options[StartMode.NOW].obstacles
        assert bool(options[StartMode.WARM].obstacles) is not can
        assert options[StartMode.BEGINNING].obstacles, "elements of the beginning are gone"


def test_rows_that_pass_an_edge_are_tapped(served: Served) -> None:
    served.done(SCRIPT + SUM)
    served.insert((1, 1), (2, 2))
    plan = served.engine.figures().run.plan
    taps = [served.engine.tap((key, 0), 3) for key in step_keys(plan).values()]
    assert all(tap.next(0) == [] for tap in taps)
    served.insert((3, 3), (4, 4), (5, 5), (6, 6), (7, 7))
    found = [sum(map(len, tap.next(0))) for tap in taps]
    assert max(found) == 3, "no more than it takes"
    for tap in taps:
        tap.close()
    served.insert((8, 8), (9, 9))
    assert all(tap.ended and tap.next(0) == [] for tap in taps)


def test_rows_that_are_kept_out_are_dead_letters_once(served: Served) -> None:
    served.done(SCRIPT + SUM)
    served.insert((10, 1), (20, 2))
    served.insert((12, 3), (30, 4))
    served.restart()
    served.insert((29, 5), (31, 6))
    assert [(json.loads(one.record), one.reason) for one in served.letters.read("S")] == [
        ({"ts": 12, "v": 3}, "late by 8 SECOND"),
        ({"ts": 29, "v": 5}, "late by 1 SECOND"),
    ]


def test_an_update_that_does_not_fit_is_one_dead_letter_for_all_queries(served: Served) -> None:
    served.done(SCRIPT + RELATION)
    served.done("CREATE QUERY k AS SELECT k FROM R; CREATE QUERY x AS SELECT x FROM R WHERE x > 0;")
    served.done("CREATE QUERY n AS SELECT COUNT(*) AS n FROM R;")
    for rows in (((1, "+", 1, 5), (1, "+", 2, 6)), ((2, "-", 3, 7), (2, "+", 1, 8)), ((3, "+", 4, 9), (4, "+", 5, 9))):
        columns = zip(*rows, strict=True)
        types = (pa.int32(), pa.string(), pa.int32(), pa.int32())
        arrays = [pa.array(values, type_) for values, type_ in zip(columns, types, strict=True)]
        served.control.insert("R", pa.table(arrays, ["ts", "op", "k", "x"]))
        served.round()
    found = [(one.ts, one.reason) for one in served.letters.read("R")]
    assert sorted(found) == [(2, "duplicate primary key"), (2, "no such row to delete")]
