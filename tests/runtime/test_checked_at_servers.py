"""Promises that are CHECKED at a server: which rows pass follows from all that came since their declaration, whatever
queries come and go, over restarts, in both engines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pyarrow as pa
import pytest
from inline_engine import InlineServer, without_spark  # noqa: F401 - a fixture
from inline_run import Crash

from penstock.algebra.nodes.query import Start, StartMode
from penstock.algebra.nodes.scans import Check
from penstock.algebra.properties.promises import Clustered, Ordered, Promise, Unique, Within
from penstock.control.live.control import Control
from penstock.control.phases import Phase
from penstock.engines.in_process import InProcessEngine
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script, bind_select
from penstock.physical.operators.checks.check import ValueCheck
from penstock.results.content import ResultContents
from penstock.results.run_input import pinned_input, state_of_run
from penstock.results.select import LiveReader
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.hydration.compaction import Compaction
from penstock.runtime.spark.retention import merging, retention
from penstock.runtime.spark.retention.rejected_log import RejectedLog
from penstock.runtime.spark.retention.retained_log import RetainedLog
from penstock.testing.compare import first_difference
from penstock.testing.live import Episode, run_live
from penstock.testing.promises.closings import checked

DECLARED = "CREATE STREAM S (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND"
Rows = list[tuple[int, int]]


class OneServer(Protocol):
    control: Control

    def post(self, statement: str) -> object: ...
    def insert(self, stream: str, rows: Rows) -> None: ...
    def restart(self) -> None: ...
    def emitted(self, name: str) -> list[tuple[Any, ...]]: ...
    def settle(self) -> None: ...
    def close(self) -> None: ...


class InProcess:
    """A server without Spark."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.open()

    def open(self) -> None:
        self._engine = InProcessEngine(self._folder / "engine")
        self.control = Control(self._folder, self._engine)

    def close(self) -> None:
        self.control.close()

    def restart(self) -> None:
        self.close()
        self.open()

    def post(self, statement: str) -> None:
        for one in self.control.submit(statement):
            assert one.outcome is None or not one.outcome.code, one.outcome

    def insert(self, stream: str, rows: Rows) -> None:
        self.post(f"INSERT INTO {stream} VALUES {', '.join(map(str, rows))}")
        self._engine.round()

    def settle(self) -> None:
        """Let the control take the steps that are due."""
        self.control._look()
        self.control.submit("")

    def emitted(self, name: str) -> list[tuple[Any, ...]]:
        place = self.control.query(name)[1].place
        return [tuple(row.values()) for part in self._engine.answers(place) for row in part.to_pylist()]


@pytest.fixture(params=[InProcess, InlineServer], ids=["in process", "on Spark"])
def server(request: pytest.FixtureRequest, tmp_path: Path, without_spark: None) -> Any:  # noqa: F811
    made: OneServer = request.param(tmp_path)
    yield made
    made.close()


def test_what_came_before_a_query_is_known(server: OneServer) -> None:
    server.post(f"{DECLARED} CONSTRAINT c UNIQUE (v) CHECKED")
    server.insert("S", [(1, 1), (2, 2), (3, 3)])
    server.post("CREATE QUERY q AS SELECT ts AS at, v FROM S")
    server.insert("S", [(4, 1), (5, 5), (6, 2), (7, 7), (8, 8)])
    assert [row[1:] for row in server.emitted("q")] == [(5, 5), (7, 7)]
    server.post("DROP QUERY q")
    server.insert("S", [(9, 9), (10, 10)])
    server.restart()
    server.insert("S", [(11, 11), (12, 12)])
    server.post("CREATE QUERY q AS SELECT ts AS at, v FROM S")
    server.insert("S", [(13, 9), (14, 14), (15, 11), (16, 1), (17, 8), (18, 18)])
    assert [row[1:] for row in server.emitted("q")] == [(14, 14)]


def test_a_promise_that_is_added_checks_from_then_on(server: OneServer) -> None:
    server.post(DECLARED)
    server.post("CREATE QUERY before AS SELECT ts AS at, v FROM S")
    server.insert("S", [(1, 1), (2, 2)])
    server.post("ALTER STREAM S ADD CONSTRAINT c UNIQUE (v) CHECKED")
    server.insert("S", [(3, 1), (4, 4)])
    server.post("CREATE QUERY after AS SELECT ts AS at, v FROM S")
    server.restart()
    server.insert("S", [(5, 1), (6, 2), (7, 4), (8, 2), (9, 9)])
    every = [(1, 1), (2, 2), (3, 1), (4, 4), (5, 1), (6, 2), (7, 4), (8, 2)]
    assert [row[1:] for row in server.emitted("before") if row[1] < 9] == every
    assert [row[1:] for row in server.emitted("after")] == [(6, 2)]


def test_what_waits_for_its_window_reads_rows_that_are_still_to_be_judged(server: OneServer) -> None:
    server.post(f"{DECLARED} CONSTRAINT c UNIQUE (v) CHECKED")
    server.insert("S", [(i, i) for i in range(1, 6)])
    server.post("CREATE QUERY q START WARM WAIT AS SELECT COUNT(*) AS n FROM S [RANGE 3 SECONDS]")
    for tick in range(6, 14):
        server.insert("S", [(tick, tick // 2 * 2)])
        server.settle()
    # Of two rows with one value the second is rejected: at even instants two are there, at odd ones one.
    changes = [row[1:] for row in server.emitted("q") if row[0] >= 11]
    assert changes == [("-", 2), ("+", 1), ("-", 1), ("+", 2)]
    for text in ("START WARM AS SELECT v FROM S", "START BEGINNING AS SELECT v FROM S [RANGE 9 SECONDS]"):
        with pytest.raises(PenstockError) as caught:
            server.post(f"CREATE QUERY past {text}")
        assert caught.value.code == "P0703"


PROMISES: dict[str, tuple[str, Promise]] = {
    "u": ("UNIQUE (v)", Unique((1,))),
    "c": ("CLUSTERED BY (v) WITHIN 2 ROWS", Clustered((1,), Within(2))),
    "t": ("CLUSTERED BY (v) WITHIN 3 SECONDS", Clustered((1,), Within(None, 3))),
    "o": ("ORDERED BY (v) WITHIN 1 ROWS", Ordered((1,), False, Within(1))),
    "d": ("ORDERED BY (v) DESC WITHIN 2 SECONDS", Ordered((1,), True, Within(None, 2))),
}


@pytest.mark.parametrize("seed", range(6))
def test_lives_of_queries_and_promises(server: OneServer, seed: int) -> None:
    """Each query emits what came since it began and breaks none of the promises that were there then; those are held
    against what came since they were declared."""
    random = Random(seed)
    slack = random.choice((0, 0, 3))
    server.post(f"{DECLARED} ORDER WITHIN {slack} SECONDS" if slack else DECLARED)
    came: Rows = []
    tick = 0
    #: By name, how many rows had come when it was declared.
    promises: dict[str, int] = {}
    queries: dict[str, tuple[int, dict[str, int]]] = {}
    for step in range(30):
        draw = random.random()
        if draw < 0.5:
            rows = []
            for _ in range(random.randrange(1, 6)):
                tick += random.randrange(3)
                rows.append(
                    (max(tick - random.randrange(slack + 1), 1), random.choice((tick // 3, random.randrange(8))))
                )
            server.insert("S", rows)
            came += rows
        elif draw < 0.65:
            name = f"q{step}"
            server.post(f"CREATE QUERY {name} AS SELECT ts AS at, v FROM S")
            queries[name] = len(came), dict(promises)
        elif draw < 0.75 and queries:
            gone = random.choice([*queries])
            server.post(f"DROP QUERY {gone}")
            del queries[gone]
        elif draw < 0.9 and promises.keys() != PROMISES.keys():
            name = random.choice(sorted(PROMISES.keys() - promises.keys()))
            server.post(f"ALTER STREAM S ADD CONSTRAINT {name} {PROMISES[name][0]} CHECKED")
            promises[name] = len(came)
        elif draw < 0.95:
            unused = [name for name in promises if not any(name in used for _, used in queries.values())]
            if unused:
                server.post(f"ALTER STREAM S DROP CONSTRAINT {unused[0]}")
                del promises[unused[0]]
        else:
            server.restart()
    server.insert("S", [(tick + 100, 1)])
    accepted = _timely(came, slack)
    for name, (begun, used) in queries.items():
        gone = set()
        for promise, declared in used.items():
            kept = [position for position in accepted if position >= declared]
            verdicts = checked([Check(promise, PROMISES[promise][1])], [(came[i][0], came[i]) for i in kept])
            gone |= {kept[place] for place in verdicts[promise]}
        expected = sorted(came[i] for i in accepted if i >= begun and i not in gone)
        # The last row lies at an instant of which more may come.
        assert sorted(row[1:] for row in server.emitted(name) if row[1] <= tick) == expected, name


TEXTS = (
    "SELECT ts AS at, v FROM S",
    "SELECT v FROM S [RANGE 3 SECONDS]",
    "SELECT v, COUNT(*) AS n FROM S [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY v",
    "SELECT a.v FROM S [RANGE 2 SECONDS] AS a, S [RANGE 4 SECONDS] AS b WHERE a.v = b.v",
    "SELECT v FROM S [ROWS 3]",
    "SELECT COUNT(*) AS n FROM S",
)


@pytest.mark.parametrize("seed", range(8))
def test_queries_begin_with_what_was_let_through(server: OneServer, seed: int) -> None:
    """WARM, AT and BEGINNING answer as a query that was always there, over the rows that the checks had left."""
    random = Random(f"past {seed}")
    slack, retain = random.choice((0, 0, 3)), random.choice((1000, 1000, 9))
    late = f" ORDER WITHIN {slack} SECONDS" if slack else ""
    chosen = random.sample(sorted(PROMISES), random.randrange(1, 4))

    def checks(names: Iterable[str]) -> str:
        return "".join(f" CONSTRAINT {name} {PROMISES[name][0]} CHECKED" for name in names)

    declared = dict.fromkeys(chosen[:1], 0)
    server.post(f"{DECLARED}{late} RETAIN {retain} SECONDS{checks(declared)}")
    came: Rows = []
    tick = 0
    episodes: dict[str, Episode] = {}
    refused = 0
    for step in range(40):
        draw = random.random()
        if draw < 0.55 or not came:
            rows = []
            for _ in range(random.randrange(1, 6)):
                tick += random.randrange(3)
                rows.append((max(tick - random.randrange(slack + 1), 1), tick // 3 + random.randrange(3)))
            server.insert("S", rows)
            came += rows
        elif draw < 0.6 and len(declared) < len(chosen):
            name = chosen[len(declared)]
            server.post(f"ALTER STREAM S ADD CONSTRAINT {name} {PROMISES[name][0]} CHECKED")
            declared[name] = len(_timely(came, slack))
        elif draw < 0.85:
            name, text = f"q{step}", random.choice(TEXTS)
            start = random.choice(("NOW", "WARM", "BEGINNING", f"AT {max(1, tick - random.randrange(9))}"))
            try:
                server.post(f"CREATE QUERY {name} START {start} AS {text}")
            except PenstockError as error:
                assert error.code == "P0703" and retain == 9, error
                refused += 1
                continue
            script = f"{DECLARED}{late}{checks(declared)}; CREATE QUERY q AS {text};"
            (query,) = bind_script(script).queries
            mode, _, at = start.partition(" ")
            begun = Start(StartMode[mode], int(at) if at else None)
            episodes[name] = Episode(query, begun, {"S": len(came)}, declared=dict(declared))
        else:
            server.restart()
    server.insert("S", [(tick + 100, 1)])
    came.append((tick + 100, 1))
    columns = zip(*came, strict=True)
    table = pa.table([pa.array(column, pa.int32()) for column in columns], names=["ts", "v"])
    for name, episode in episodes.items():
        expected = run_live([episode], {"S": table})
        of = 1 if episode.query.root.is_stream else 2
        found = [(row[0], None if of == 1 else row[1], tuple(row[of:])) for row in server.emitted(name)]
        difference = first_difference(expected, found)
        assert difference is None, f"{name} {episode.start} {episode.declared}: {difference}"
    assert episodes or refused


@pytest.mark.parametrize("crash", ["state", "sinks", "delivered", "marked"])
def test_what_was_rejected_is_known_once_over_kills(tmp_path: Path, without_spark: None, crash: str) -> None:  # noqa: F811
    server = InlineServer(tmp_path)
    promises = "CONSTRAINT u UNIQUE (v) CHECKED CONSTRAINT o ORDERED BY (v) WITHIN 3 ROWS CHECKED"
    server.post(f"{DECLARED} RETAIN 1 HOUR {promises}")
    rows = [(1, 1), (2, 2), (3, 2), (4, 9), (5, 5), (6, 9), (7, 9), (8, 10), (9, 3), (10, 11), (11, 11), (12, 12)]
    for begin in range(0, len(rows), 3):
        ticks, values = zip(*rows[begin : begin + 3], strict=True)
        table = pa.table({"ts": pa.array(ticks, pa.int32()), "v": pa.array(values, pa.int32())})
        server.control.insert("S", table, f"rows {begin}")
        with pytest.raises(Crash):
            server.run.round(crash)
        server.restart()
        server.run.round()
    server.post("CREATE QUERY q START BEGINNING AS SELECT ts AS at, v FROM S")
    server.insert("S", [(13, 13), (14, 11), (15, 15)])
    left = [(1, 1), (2, 2), (4, 9), (5, 5), (8, 10), (10, 11), (12, 12), (13, 13)]
    assert [row[1:] for row in server.emitted("q")] == left
    server.close()


def test_a_one_time_query_reads_what_was_let_through(tmp_path: Path, without_spark: None) -> None:  # noqa: F811
    """Of rows of before a promise was declared too, which it never judged; of equal ones in several files one."""
    server = InlineServer(tmp_path)
    server.post(f"{DECLARED} RETAIN 1 HOUR")
    server.insert("S", [(1, 1), (2, 1), (3, 3)])
    server.post("ALTER STREAM S ADD CONSTRAINT u UNIQUE (v) CHECKED")
    server.post("ALTER STREAM S ADD CONSTRAINT o ORDERED BY (v) WITHIN 2 ROWS CHECKED")
    for rows in ([(4, 1), (5, 5)], [(5, 5), (5, 6)], [(5, 5), (6, 1), (7, 5)], [(8, 3), (9, 9)]):
        server.insert("S", rows)
    server.restart()
    server.insert("S", [(10, 10)])
    promises = "CONSTRAINT u UNIQUE (v) CHECKED CONSTRAINT o ORDERED BY (v) WITHIN 2 ROWS CHECKED"
    catalog = bind_script(f"{DECLARED} RETAIN 1 HOUR {promises};", live=True).catalog
    run = server.run.inline

    def selected(text: str) -> list[Any]:
        with pinned_input(run, "reader", {"s"}) as known:
            state = state_of_run(run, known, {}, ResultContents(run.folder.results))
            found = LiveReader(lambda: state).answer(bind_select(text, catalog).query)
        return [tuple(row.values()) for row in found.answer.table.to_pylist()]

    left = [(1, 1), (2, 1), (3, 3), (4, 1), (5, 5), (5, 6), (9, 9)]
    assert selected("SELECT ts AS at, v FROM S ORDER BY at, v") == left
    assert selected("SELECT COUNT(*) AS n, MAX(v) AS m FROM S [RANGE 5 SECONDS]") == [(3, 9)]
    server.close()


def test_what_was_rejected_is_merged_and_goes_with_what_is_retained(
    tmp_path: Path,
    without_spark: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "_EVERY", 1)
    monkeypatch.setattr(merging, "FEW", 4)
    server = InlineServer(tmp_path)
    server.post(f"{DECLARED} RETAIN 320 SECONDS CONSTRAINT u UNIQUE (v) CHECKED")
    run = server.run.inline
    log = RejectedLog(run.folder, source_file("S", run.job.intake.births))
    for tick in range(2, 40, 2):
        server.insert("S", [(tick, tick), (tick, 0)])
        Compaction(run.folder, run.rounds, lambda: run.job.intake, 0, 2**20).compact()
    # Of 2 the second row is the first with 0; the rows of 38 are not judged yet.
    assert sorted(log.ticks(10**6)) == [*range(4, 38, 2)]
    assert len(log.log.files()) < 12 and any(file.last for file in log.log.files())
    server.post("CREATE QUERY q START WARM AS SELECT v FROM S [RANGE 6 SECONDS]")
    server.insert("S", [(40, 40), (700, 0), (701, 1)])
    assert {row[2] for row in server.emitted("q") if row[0] < 38} == {32, 34, 36}
    server.insert("S", [(702, 2)])
    assert RetainedLog(run.folder, log.log.place.name).after == 38
    # What is left of them lies in a file with later ones.
    assert sorted(log.ticks(10**6)) == [38, 700]
    server.close()


def _timely(rows: Rows, slack: int) -> list[int]:
    """Return the positions of the rows that are not late."""
    high, found = 0, []
    for position, (ts, _) in enumerate(rows):
        if ts >= high - slack:
            found.append(position)
        high = max(high, ts)
    return found


@pytest.mark.parametrize("crash", ["state", "sinks", "delivered", "marked"])
def test_a_kill_in_a_round_forgets_and_repeats_no_verdict(tmp_path: Path, without_spark: None, crash: str) -> None:  # noqa: F811
    server = InlineServer(tmp_path)
    server.post(f"{DECLARED} CONSTRAINT u UNIQUE (v) CHECKED CONSTRAINT o ORDERED BY (v) WITHIN 3 ROWS CHECKED")
    server.insert("S", [(1, 1), (2, 2), (3, 3)])
    server.post("CREATE QUERY q AS SELECT ts AS at, v FROM S")
    rows = [(4, 4), (5, 2), (6, 9), (7, 7), (8, 8), (9, 9), (10, 10), (11, 3), (12, 11)]
    for begin in range(0, len(rows), 3):
        ticks, values = zip(*rows[begin : begin + 3], strict=True)
        table = pa.table({"ts": pa.array(ticks, pa.int32()), "v": pa.array(values, pa.int32())})
        server.control.insert("S", table, f"rows {begin}")
        with pytest.raises(Crash):
            server.run.round(crash)
        server.restart()
        server.run.round()
    server.insert("S", [(13, 13), (14, 14)])
    assert [row[1:] for row in server.emitted("q")] == [(4, 4), (6, 9), (7, 7), (8, 8), (10, 10), (12, 11), (13, 13)]
    server.close()


def test_a_check_that_fails_begins_anew(server: OneServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queries fail; what it remembered is lost, and what comes from then on is known again without a query."""
    server.post(f"{DECLARED} CONSTRAINT c UNIQUE (v) CHECKED")
    server.post("CREATE QUERY q AS SELECT ts AS at, v FROM S")
    server.insert("S", [(1, 1), (2, 2), (3, 3)])
    judged = ValueCheck._breaks

    def broken(*arguments: Any) -> Any:
        monkeypatch.setattr(ValueCheck, "_breaks", judged)
        raise ValueError("broken")

    monkeypatch.setattr(ValueCheck, "_breaks", broken)
    before = server.control.stored
    server.insert("S", [(4, 4), (5, 1)])
    eventually(lambda: server.control.query("q")[1].phase is Phase.FAILED)
    (number,) = (one.id for one in before.values() if one.kind == "STREAM")
    eventually(lambda: server.control.stored[number].checks != before[number].checks)
    server.post("DROP QUERY q")
    server.insert("S", [(6, 6), (7, 7)])
    server.post("CREATE QUERY q AS SELECT ts AS at, v FROM S")
    server.insert("S", [(8, 6), (9, 2), (10, 9), (11, 11)])
    assert [row[1:] for row in server.emitted("q")] == [(9, 2), (10, 9)]


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
