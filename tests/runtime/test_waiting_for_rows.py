"""START WARM WAIT of queries that need last rows which are still to come: a query waits for them, and then answers from
the first instant on at which they are there, with the engine on Spark."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inline_engine import InlineServer, without_spark

from penstock.algebra.nodes.query import Start, StartMode
from penstock.control.life.listed_query import shown_change, shown_state
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.runtime.spark.changes.interrupted_reading import InterruptedReading
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.hydration.past_input import past_of_run
from penstock.runtime.spark.live_change import options_of_start
from penstock.runtime.spark.retention import retention
from penstock.server.statements.listed_views import queries_as_lines, table_of_queries
from penstock.testing.live import Episode, run_live

__all__ = ["without_spark"]

STREAM = "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND {more};"
LAST = "SELECT SUM(v) AS s, COUNT(*) AS n FROM S [ROWS {}]"


@pytest.fixture
def server(tmp_path: Path, without_spark: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[InlineServer]:
    monkeypatch.setattr(retention, "_EVERY", 1)
    made = InlineServer(tmp_path / "checkpoint")
    yield made
    made.close()


def rows(first: int, last: int) -> list[tuple[int, int]]:
    return [(tick, tick) for tick in range(first, last + 1)]


def state(server: InlineServer, name: str) -> tuple[str, str | None]:
    (one,) = [one for one in server.control.queries() if one.stored.name == name]
    return shown_state(one, server.control.version()), shown_change(one, server.control.version())


def tables_of(given: Mapping[str, list[tuple[int, int]]]) -> dict[str, pa.Table]:
    """Return the rows of streams as the oracle reads them."""
    return {
        name: pa.table(
            {"ts": pa.array([ts for ts, _ in some], pa.int32()), "v": pa.array([v for _, v in some], pa.int32())}
        )
        for name, some in given.items()
    }


def by_the_law(
    streams: str,
    select: str,
    given: Mapping[str, list[tuple[int, int]]],
    begun: Mapping[str, int],
    lost: Mapping[str, int],
) -> list[Any]:
    plain = streams.replace("HTTP", "MEMORY").replace("RETAIN 1 HOUR", "").replace("RETAIN 3 SECONDS", "")
    (query,) = bind_script(f"{plain} CREATE QUERY q AS {select};").queries
    start = Start(StartMode.WARM, wait=True)
    found = run_live([Episode(query, start, begun, lost=lost)], tables_of(given))
    return sorted(((ts, op, tuple(row)) if op else (ts, tuple(row)) for ts, op, row in found), key=str)


def emitted(server: InlineServer, name: str, is_stream: bool = False) -> list[Any]:
    found = server.emitted(name)
    return sorted(((ts, tuple(row)) if is_stream else (ts, row[0], tuple(row[1:])) for ts, *row in found), key=str)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("retain", ["", "RETAIN 3 SECONDS"])
def test_it_answers_from_the_instant_at_which_its_rows_are_there(
    server: InlineServer, retain: str, restarts: bool
) -> None:
    server.post(STREAM.format(more=retain))
    for row in rows(1, 10):
        server.insert("S", [row])
    server.post(f"CREATE QUERY q START WARM WAIT AS {LAST.format(7)};")
    kept = 3 if retain else 0
    assert state(server, "q") == ("WAITING", f"it begins with {7 - kept} more rows of S")
    for tick in range(11, 16 - kept):
        server.insert("S", rows(tick, tick))
        server.settle()
        if restarts:
            server.restart()
    assert state(server, "q")[0] == "WAITING"
    (shown,) = queries_as_lines(table_of_queries(server.control.queries(), server.control.version(), {}, {}))
    assert shown.endswith("-- WAITING: it begins with 3 more rows of S") == (not retain), shown
    for tick in range(16 - kept, 24):
        server.insert("S", rows(tick, tick))
        server.settle()
        if restarts:
            server.restart()
    first = 13 if retain else 17
    assert [row for row in server.emitted("q") if row[1] == "+"] == [
        (t, "+", sum(range(t - 6, t + 1)), 7) for t in range(first, 23)
    ]
    assert state(server, "q") == ("RUNNING", None)
    assert not server.control.query("q")[1].answer.keeps


SELECTS = {
    "one window": "SELECT SUM(v) AS s, COUNT(*) AS n FROM S [ROWS 4]",
    "rows in and out": "SELECT v FROM S [ROWS 3] WHERE v > 2",
    "a stream": "SELECT ISTREAM(v) FROM S [ROWS 3]",
    "two windows of one stream": "SELECT a.v, b.v AS w FROM S [ROWS 2] a, S [ROWS 5] b WHERE a.v = b.v",
    "rows and a length of time": "SELECT a.v, COUNT(*) AS n FROM S [ROWS 3] a, T [RANGE 9 SECONDS] b GROUP BY a.v",
    "rows of both": "SELECT a.v, b.v AS w FROM S [ROWS 3] a, T [ROWS 4] b WHERE a.v <= b.v",
    "a window over another": "SELECT COUNT(*) AS n FROM (SELECT ISTREAM(v) FROM S [ROWS 2]) [RANGE 5 SECONDS]",
    "a subquery": "SELECT v FROM S [ROWS 3] WHERE v > (SELECT MIN(v) FROM T [ROWS 2])",
}


@pytest.mark.spread(4)
@pytest.mark.parametrize("kept", ["", "RETAIN 3 SECONDS", "RETAIN 1 HOUR"])
@pytest.mark.parametrize("select", SELECTS)
def test_the_law_is_kept(server: InlineServer, select: str, kept: str) -> None:
    """Elements come in any order within the slack; the other stream keeps nothing, a part of what came, or all."""
    slack = " ORDER WITHIN 3 SECONDS"
    streams = STREAM.format(more=slack) + STREAM.format(more=f"{slack} {kept}").replace(" S ", " T ")
    server.post(streams)
    text = SELECTS[select]
    draw = random.Random(743_000_000 + list(SELECTS).index(select) * 3 + len(kept))
    given: dict[str, list[tuple[int, int]]] = {"S": [], "T": []}

    def insert(name: str, count: int) -> None:
        for _ in range(count):
            high = max((ts for ts, _ in given[name]), default=0)
            row = max(1, high + draw.randint(-3, 3)), draw.randint(0, 6)
            given[name].append(row)
            server.insert(name, [row])

    insert("S", 9), insert("T", 9)
    begun = {name: len(some) for name, some in given.items()}
    # Whatever RETAIN keeps beyond that does not matter.
    lost = {name: lost_of(server, name) for name in given if f" {name} " in text}
    lost = {name: tick for name, tick in lost.items() if tick is not None}
    server.post(f"CREATE QUERY q START WARM WAIT AS {text};")
    for _ in range(8):
        insert("S", draw.randint(0, 3)), insert("T", draw.randint(0, 4))
        server.settle()
        if draw.random() < 0.2:
            server.restart()
    for name in given:
        server.insert(name, [(200, 0)]), server.insert(name, [(300, 0)])
        given[name] += [(200, 0), (300, 0)]
    server.settle()
    is_stream = "ISTREAM(v) FROM S [ROWS 3]" in text
    expected = by_the_law(streams, text, given, begun, lost)
    assert expected and emitted(server, "q", is_stream) == expected


def lost_of(server: InlineServer, name: str) -> int | None:
    known = past_of_run(Folder(server.run.checkpoint / "penstock"), server.run.epoch)
    return known.lost(server.run.work.declared[name], (0, 1))


def waiting(server: InlineServer, count: int = 4) -> None:
    server.post(STREAM.format(more="") + "CREATE QUERY other AS SELECT COUNT(*) AS n FROM S [RANGE 3 SECONDS];")
    server.insert("S", rows(1, 10))
    server.post(f"CREATE QUERY q START WARM WAIT AS {LAST.format(count)};")
    server.insert("S", rows(11, 12))


def values(server: InlineServer, name: str) -> list[tuple[Any, ...]]:
    return [row for row in server.emitted(name) if row[1] == "+"]


def sums(first: int, last: int, count: int = 4) -> list[tuple[Any, ...]]:
    return [(t, "+", sum(range(t - count + 1, t + 1)), count) for t in range(first, last + 1)]


def test_others_come_and_go_while_it_waits(server: InlineServer) -> None:
    """The plan changes, other queries read its stream, and this one is renamed."""
    waiting(server)
    server.post(
        "DROP QUERY other; CREATE QUERY another START WARM WAIT AS SELECT COUNT(*) AS n FROM S [RANGE 2 SECONDS];"
    )
    server.post("ALTER QUERY q RENAME TO p; ALTER STREAM S SET (retain '1 SECOND');")
    server.insert("S", rows(13, 13))
    server.post("CREATE QUERY third START WARM AS SELECT COUNT(*) AS n FROM S [RANGE 1 SECOND];")
    server.insert("S", rows(14, 20))
    server.settle()
    server.insert("S", rows(21, 22))
    assert values(server, "p") == sums(14, 21)
    assert server.control.catalog.sources["s"].retain == 1


def test_it_is_dropped_paused_and_begun_otherwise(server: InlineServer) -> None:
    waiting(server)
    server.post("DROP QUERY q;")
    server.settle()
    assert server.run.work.declared["S"].retain is None
    server.post(f"CREATE QUERY q START WARM WAIT AS {LAST.format(4)};")
    server.insert("S", rows(13, 14))
    for refused in ("PAUSE WITH STATE", "SWAP WITH q2"):
        server.post(f"CREATE QUERY IF NOT EXISTS q2 AS {LAST.format(3)};")
        with pytest.raises(PenstockError, match="waits for rows before it begins") as error:
            server.post(f"ALTER QUERY q {refused};")
        assert error.value.code == "P0701" and error.value.hint
    server.post("ALTER QUERY q PAUSE;")
    assert state(server, "q") == ("PAUSED", None)
    server.settle()
    assert server.run.work.declared["S"].retain is None, "nothing waits for rows any more"
    server.insert("S", rows(15, 15))
    with pytest.raises(PenstockError, match="cannot START WARM"):
        server.post("ALTER QUERY q RESUME;")
    server.post("ALTER QUERY q RESUME START WARM WAIT;")
    assert state(server, "q") == ("WAITING", "it begins with 4 more rows of S")
    server.post(f"ALTER QUERY q AS {LAST.format(3)} START WARM WAIT;")
    assert state(server, "q") == ("WAITING", "it begins with 3 more rows of S")
    server.insert("S", rows(16, 20))
    server.settle()
    server.insert("S", rows(21, 21))
    assert values(server, "q") == sums(18, 20, 3)
    server.post(f"CREATE OR REPLACE QUERY q START NOW AS {LAST.format(3)};")


def test_begins_now_instead(server: InlineServer) -> None:
    waiting(server)
    server.post(f"ALTER QUERY q AS {LAST.format(4)} START NOW;")
    server.insert("S", rows(13, 15))
    server.settle()
    assert server.emitted("q")[-1] == (14, "+", 13 + 14, 2)
    assert server.run.work.declared["S"].retain is None


def test_its_stream_is_dropped(server: InlineServer) -> None:
    waiting(server)
    server.post("DROP STREAM S CASCADE;")
    server.settle()
    assert [one.stored.name for one in server.control.queries()] == []


def test_explain_says_how_many_rows_are_missing_and_what_never_comes(server: InlineServer) -> None:
    server.post(STREAM.format(more=""))
    server.insert("S", rows(1, 10))
    declared = STREAM.format(more="").replace("HTTP", "MEMORY")

    def shown(select: str) -> dict[str, str]:
        (query,) = bind_script(f"{declared} CREATE QUERY q AS {select};").queries
        options = options_of_start(server.run, query)
        assert [one.as_json()["possible"] for one in options] == [": yes" in str(one) for one in options]
        return {str(one).partition(":")[0]: str(one).partition(": ")[2] for one in options}

    assert shown(LAST.format(3))["WARM WAIT"] == "yes; answers with 3 more rows of S"
    assert (
        shown("SELECT a.v FROM S [ROWS 3] a, S [ROWS 1200] b")["WARM WAIT"] == "yes; answers with 1,200 more rows of S"
    )
    never = shown("SELECT v FROM S [PARTITION BY v ROWS 3]")["WARM WAIT"]
    assert never == (
        "no; START WARM WAIT would wait for ever: elements of S are gone, and of PARTITION BY no number of rows shows "
        "that nothing is missing: a partition may have rows among those that are gone alone"
    )
    with pytest.raises(PenstockError) as refused:
        server.post("CREATE QUERY q START WARM WAIT AS SELECT v FROM S [PARTITION BY v ROWS 3];")
    assert "no number of rows shows" in refused.value.message
    never = shown("SELECT COUNT(*) AS n FROM S [ROWS 4 SLIDE 2 TUPLES]")["WARM WAIT"]
    assert never == (
        "no; START WARM WAIT would wait for ever: elements of S are gone, and the query counts arrivals from the first "
        "one on"
    )


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """No past is read until this is set."""
    may_read, read = threading.Event(), InterruptedReading.read

    def read_later(reading: InterruptedReading) -> None:
        may_read.wait()
        read(reading)

    monkeypatch.setattr(InterruptedReading, "read", read_later)
    return may_read


#: What came before a query was accepted, and while its past was not read yet, with what is kept of all that.
GONE_MEANWHILE = {
    "": ([], [(1, 1), (2, 2), (3, 3), (4, 4)], []),
    "RETAIN 3 SECONDS": ([(1, 1), (2, 2), (3, 3)], [(20, 20), (40, 40)], [(40, 40)]),
}


@pytest.mark.parametrize("then", ["", "restart", "rename"])
@pytest.mark.parametrize("retain", GONE_MEANWHILE)
def test_it_waits_for_what_went_after_it_was_accepted(
    server: InlineServer, held_up: threading.Event, retain: str, then: str
) -> None:
    """Nothing was missing when it was accepted, and what came before its past was read is not kept."""
    server.post(STREAM.format(more=retain) + "CREATE QUERY other AS SELECT COUNT(*) AS n FROM S [RANGE 3 SECONDS];")
    before, meanwhile, kept = GONE_MEANWHILE[retain]
    for row in before:
        server.insert("S", [row])
    (posted,) = server.control.submit(f"CREATE QUERY q START WARM WAIT AS {LAST.format(3)};")
    known = server.control.commands()
    for row in meanwhile:
        server.control.insert(
            "S", pa.table({"ts": pa.array([row[0]], pa.int32()), "v": pa.array([row[1]], pa.int32())})
        )
        server.run.round()
    renamed = threading.Thread(target=lambda: server.control.submit("ALTER QUERY q RENAME TO p;"))
    if then == "rename":
        renamed.start()
        while len(server.control.commands()) == len(known):
            time.sleep(0.001)
    held_up.set()
    if then == "restart":
        server.restart()
    if then == "rename":
        renamed.join()
    name = "p" if then == "rename" else "q"
    server.settle()
    # The last row may be followed by others of its instant, and does not count yet.
    assert state(server, name) == ("WAITING", "it begins with 3 more rows of S")
    assert posted.outcome is not None
    (outcome,) = [one for *_, one in server.control.commands() if one.number == posted.outcome.number]
    assert outcome.state.value == "RUNNING" and not outcome.code
    server.restart()
    given = list(kept)
    for tick in range(50, 56):
        server.insert("S", [(tick, tick)])
        given.append((tick, tick))
        server.settle()
    last = [(given[i][0], "+", sum(v for _, v in given[i - 2 : i + 1]), 3) for i in range(2, len(given) - 1)]
    assert values(server, name) == last and len(last) > 2
    assert not server.control.query(name)[1].answer.keeps


def test_all_of_a_stream_is_not_waited_for(server: InlineServer, held_up: threading.Event) -> None:
    server.post(STREAM.format(more="") + "CREATE QUERY other AS SELECT COUNT(*) AS n FROM S [RANGE 3 SECONDS];")
    (posted,) = server.control.submit(
        "CREATE QUERY q START WARM WAIT AS SELECT COUNT(*) AS n FROM S [RANGE UNBOUNDED];"
    )
    server.insert("S", rows(1, 2))
    held_up.set()
    server.settle()
    (outcome,) = [
        one for *_, one in server.control.commands() if posted.outcome and one.number == posted.outcome.number
    ]
    assert outcome.code == "P0703" and "would wait for ever" in (outcome.message or "")
    assert [one.stored.name for one in server.control.queries()] == ["other"]
