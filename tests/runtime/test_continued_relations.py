"""Relations whose results go on, with the engine on Spark: after a pause, with another query, in another place."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inline_engine import InlineServer, without_spark

from penstock.connectors.sinks.files import FilesSink, read_result
from penstock.errors import PenstockError

__all__ = ["without_spark"]

STREAM = "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS;"
Rows = list[tuple[Any, ...]]


@pytest.fixture
def server(tmp_path: Path, without_spark: None) -> Iterator[InlineServer]:
    made = InlineServer(tmp_path / "checkpoint")
    made.post(STREAM)
    yield made
    made.close()


def content(events: Rows, tick: int) -> Counter[Any]:
    rows: Counter[Any] = Counter()
    for ts, op, *row in events:
        if ts <= tick:
            rows[tuple(row)] += 1 if op == "+" else -1
    assert all(count >= 0 for count in rows.values()), rows
    return +rows


def test_a_silent_relation_is_shown_again(server: InlineServer) -> None:
    server.post("CREATE QUERY q AS SELECT SUM(v) AS s FROM S [RANGE 3 SECONDS];")
    server.insert("S", [(tick, tick) for tick in range(1, 5)])
    before = server.emitted("q")
    assert content(before, 3) == {(6,): 1}
    assert server.post("ALTER QUERY q PAUSE WITH STATE;") == ["RUNNING"]
    server.insert("S", [(5, 5), (6, 6)])
    server.insert("S", [(7, 7)])
    assert server.emitted("q") == before
    server.restart()
    server.post("ALTER QUERY q RESUME;")
    server.insert("S", [(8, 8), (9, 9)])
    assert server.emitted("q")[len(before) :][:2] == [(6, "-", 6), (6, "+", 15)]
    assert content(server.emitted("q"), 8) == {(21,): 1}


@pytest.mark.parametrize("start", ["NOW", "WARM", "BEGINNING", "AT 7", "AT 2"])
def test_a_paused_relation_goes_on_with_the_net_difference(server: InlineServer, start: str) -> None:
    server.post("CREATE QUERY q AS SELECT v % 3 AS k, COUNT(*) AS n FROM S [RANGE 4 SECONDS] GROUP BY v % 3;")
    server.insert("S", [(tick, tick) for tick in range(1, 6)])
    before = server.emitted("q")
    # At 4 the window has 1, 2, 3 and 4.
    assert content(before, 4) == {(0, 1): 1, (1, 2): 1, (2, 1): 1}
    server.post("ALTER QUERY q PAUSE;")
    server.insert("S", [(6, 6), (7, 6), (8, 8), (9, 9)])
    assert server.emitted("q") == before
    server.restart()
    server.post(f"ALTER QUERY q RESUME START {start};")
    server.insert("S", [(10, 10), (11, 12)])
    events = server.emitted("q")
    first = {"NOW": 8, "WARM": 8, "BEGINNING": 5, "AT 7": 7, "AT 2": 5}[start]
    after = events[len(before) :]
    assert after and min(ts for ts, *_ in after) == first
    at = Counter(event for event in after if event[0] == first)
    assert not at & Counter((ts, "-" if op == "+" else "+", *row) for ts, op, *row in at.elements())
    if start == "NOW":
        assert content(events, 8) == {} and content(events, 10) == {(1, 1): 1}
        return
    # 5, 6, 6 and 8; then 8, 9, 10 and the 6 of 7.
    assert content(events, 8) == {(2, 2): 1, (0, 2): 1}
    assert content(events, 10) == {(0, 2): 1, (2, 1): 1, (1, 1): 1}


GROUPS = "SELECT v % 3 AS k, COUNT(*) AS n FROM S [RANGE {} SECONDS] GROUP BY v % 3"


@pytest.mark.parametrize("restarts", [False, True])
def test_two_relations_are_exchanged(server: InlineServer, restarts: bool) -> None:
    server.post(f"CREATE QUERY short AS {GROUPS.format(2)}; CREATE QUERY long AS {GROUPS.format(5)};")
    server.insert("S", [(tick, tick) for tick in range(1, 8)])
    before = {name: server.emitted(name) for name in ("short", "long")}
    assert content(before["short"], 6) == {(2, 1): 1, (0, 1): 1}
    assert content(before["long"], 6) == {(2, 2): 1, (0, 2): 1, (1, 1): 1}
    steps = server.run.job.plan.steps
    assert server.post("ALTER QUERY short SWAP WITH long;") == ["RUNNING"]
    # Nothing begins anew.
    assert {step.birth for step in server.run.job.plan.steps} == {step.birth for step in steps}
    assert not server.run.inline.epoch.backfill
    if restarts:
        server.restart()
    server.insert("S", [(8, 8), (9, 9)])
    after = {name: server.emitted(name)[len(before[name]) :] for name in before}
    # The first instant that has not been answered: the window of 5 then has 3 to 7, that of 2 has 6 and 7.
    assert [event for event in after["short"] if event[0] == 7] == [
        (7, "-", 2, 1),
        (7, "+", 0, 2),
        (7, "-", 0, 1),
        (7, "+", 1, 2),
        (7, "+", 2, 1),
    ] or content(server.emitted("short"), 7) == {(0, 2): 1, (1, 2): 1, (2, 1): 1}
    assert min(ts for events in after.values() for ts, *_ in events) == 7
    assert content(server.emitted("long"), 7) == {(0, 1): 1, (1, 1): 1}
    assert content(server.emitted("short"), 8) == {(1, 2): 1, (2, 2): 1, (0, 1): 1}
    server.post("ALTER QUERY long SWAP WITH short;")
    server.insert("S", [(10, 10), (11, 11)])
    assert content(server.emitted("short"), 10) == {(0, 1): 1, (1, 1): 1}
    assert content(server.emitted("long"), 10) == {(0, 2): 1, (1, 2): 1, (2, 1): 1}


@pytest.mark.parametrize("restarts", [False, True])
def test_streams_that_are_exchanged_lose_no_instant(server: InlineServer, restarts: bool) -> None:
    """Instants that had been emitted early go to the sink that had them before, also what is still to come of them."""
    small, large = (f"SELECT ISTREAM(v) FROM S [NOW] WHERE v {sign} 50" for sign in "<>")
    server.post(f"CREATE QUERY small AS {small}; CREATE QUERY large AS {large};")
    server.insert("S", [(1, 1), (1, 51), (2, 2), (2, 52)])
    assert server.emitted("small") == [(1, 1), (2, 2)]
    server.post("ALTER QUERY small SWAP WITH large;")
    if restarts:
        server.restart()
    server.insert("S", [(2, 3), (2, 53), (3, 4), (3, 54)])
    assert server.emitted("small") == [(1, 1), (2, 2), (2, 3), (3, 54)]
    assert server.emitted("large") == [(1, 51), (2, 52), (2, 53), (3, 4)]
    server.post("ALTER QUERY small SWAP WITH large;")
    server.post("ALTER QUERY small SWAP WITH large;")
    server.insert("S", [(3, 5), (3, 55), (4, 6), (4, 56)])
    assert server.emitted("small")[4:] == [(3, 55), (4, 56)]
    assert server.emitted("large")[4:] == [(3, 5), (4, 6)]
    server.post("ALTER QUERY small SWAP WITH large;")
    server.post("ALTER QUERY small AS SELECT ISTREAM(-v AS v) FROM S [NOW] START NOW;")
    server.insert("S", [(4, 8), (4, 58), (5, 9), (5, 59)])
    # What begins now has no sink but its own, and what was exchanged for it ends.
    assert sorted(server.emitted("small")[6:]) == [(4, -58), (4, -8), (4, 58), (5, -59), (5, -9)]
    assert server.emitted("large")[6:] == [(5, 59)]
    server.post("ALTER QUERY small AS SELECT ISTREAM(v) FROM S [NOW] WHERE v > 50 START NOW;")
    server.post("DROP QUERY large;")
    server.insert("S", [(5, 7), (5, 57), (6, 58)])
    assert server.emitted("small")[-2:] == [(5, 57), (6, 58)]


def test_a_stream_that_was_silent_is_exchanged(server: InlineServer) -> None:
    other = "SELECT ISTREAM(v + 100 AS v) FROM S [NOW]"
    server.post(f"CREATE QUERY a AS SELECT ISTREAM(v) FROM S [NOW]; CREATE QUERY b AS {other};")
    server.insert("S", [(1, 1), (2, 2)])
    server.post("ALTER QUERY a PAUSE WITH STATE;")
    server.insert("S", [(3, 3), (4, 4)])
    server.post("ALTER QUERY a RESUME;")
    server.post("ALTER QUERY a SWAP WITH b;")
    server.insert("S", [(4, 5), (5, 6), (6, 7)])
    # 4 had not been reached when it was shown again.
    assert server.emitted("a") == [(1, 1), (2, 2), (4, 4), (4, 5), (5, 106), (6, 107)]
    assert [row for row in server.emitted("b") if row[0] >= 4] == [(4, 104), (4, 105), (5, 6), (6, 7)]


def test_a_replaced_relation_continues(server: InlineServer) -> None:
    server.post(f"CREATE QUERY q AS {GROUPS.format(2)};")
    server.insert("S", [(tick, tick) for tick in range(1, 8)])
    before = server.emitted("q")
    server.post(f"ALTER QUERY q AS {GROUPS.format(5)};")
    # It waits: its time has reached 6, which is answered already.
    server.post("ALTER QUERY q PAUSE WITH STATE;")
    server.insert("S", [(8, 8)])
    assert server.emitted("q") == before
    server.post("ALTER QUERY q RESUME;")
    server.insert("S", [(9, 9)])
    assert content(server.emitted("q"), 8) == {(1, 2): 1, (2, 2): 1, (0, 1): 1}
    server.post(f"CREATE OR REPLACE QUERY q START NOW AS {GROUPS.format(3)};")
    server.insert("S", [(10, 10), (11, 11)])
    assert content(server.emitted("q"), 10) == {(1, 1): 1}


def test_what_waits_may_be_exchanged_paused_and_replaced(server: InlineServer) -> None:
    server.post(f"CREATE QUERY a AS {GROUPS.format(2)}; CREATE QUERY b AS {GROUPS.format(5)};")
    server.insert("S", [(tick, tick) for tick in range(1, 8)])
    for statement in (
        f"ALTER QUERY a AS {GROUPS.format(4)};",
        "ALTER QUERY a SWAP WITH b;",
        "ALTER QUERY b SWAP WITH a;",
        "ALTER QUERY a SWAP WITH b;",
        "ALTER QUERY b PAUSE;",
        "ALTER QUERY b RESUME;",
    ):
        server.post(statement)
        server.restart()
    server.insert("S", [(8, 8), (9, 9)])
    assert content(server.emitted("a"), 8) == {(1, 2): 1, (2, 2): 1, (0, 1): 1}
    assert content(server.emitted("b"), 8) == {(2, 2): 1, (0, 1): 1, (1, 1): 1}


def test_a_content_that_is_not_kept_is_refused_unless_reset(server: InlineServer) -> None:
    server.post("CREATE QUERY q INTO RESULTS (max_bytes '1 kB') AS SELECT v FROM S [RANGE 900 SECONDS];")
    server.post("CREATE QUERY other INTO RESULTS () AS SELECT v FROM S [RANGE 10 SECONDS];")
    server.insert("S", [(tick, tick) for tick in range(1, 400)])
    server.post("ALTER QUERY q PAUSE;")
    commands = len(server.control.commands())
    with pytest.raises(PenstockError, match="cannot continue its result: its content is not kept: it has") as refused:
        server.post("ALTER QUERY q RESUME;")
    assert refused.value.code == "P0703" and refused.value.hint == "RESET begins the result again"
    assert len(server.control.commands()) == commands
    before = server.run.version().results["q3"]
    server.post("ALTER QUERY q RESUME RESET;")
    assert server.run.version().results["q3"] != before
    server.insert("S", [(400, 400), (401, 401)])
    assert server.emitted("q")[-1] == (400, "+", 400)
    with pytest.raises(PenstockError, match="cannot continue its result"):
        server.post("ALTER QUERY other SWAP WITH q;")


@pytest.mark.parametrize("fails", [False, True])
def test_a_relation_in_files_continues(
    server: InlineServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """What its sink has is known from a log beside it, also of an answer that it gets later."""
    refused = [0]
    write_pieces = FilesSink.write_pieces

    def failing(sink: FilesSink, batch: int, pieces: Iterator[pa.Table]) -> None:
        if refused[0]:
            refused[0] -= 1
            raise OSError("the disk is away")
        write_pieces(sink, batch, pieces)

    monkeypatch.setattr(FilesSink, "write_pieces", failing)
    server.post(f"CREATE QUERY q INTO FILES (path '{tmp_path / 'q'}', format 'parquet') AS {GROUPS.format(3)};")
    server.insert("S", [(tick, tick) for tick in range(1, 6)])
    refused[0] = int(fails)
    server.insert("S", [(6, 6), (7, 7)])
    if fails:
        wait_for(lambda: server.control.query("q")[1].status.value == "FAILED")
    else:
        server.post("ALTER QUERY q PAUSE;")
    server.insert("S", [(8, 8), (9, 9)])
    server.restart()
    for statement in ("ALTER QUERY q RESUME;", f"ALTER QUERY q AS {GROUPS.format(2)};"):
        server.post(statement)
        tick = 10 if "RESUME" in statement else 12
        server.insert("S", [(tick, tick), (tick + 1, tick + 1)])
    events = [tuple(row.values()) for row in read_result(str(tmp_path / "q")).to_pylist()]
    assert content(events, 6) == {(0, 1): 1, (1, 1): 1, (2, 1): 1}
    assert content(events, 10) == {(2, 1): 1, (0, 1): 1, (1, 1): 1}
    assert content(events, 12) == {(2, 1): 1, (0, 1): 1}
    assert events == sorted(events, key=lambda event: event[0])


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_query_that_fails_after_an_exchange(server: InlineServer) -> None:
    """The other goes on in the place that it has; the sink of the failed one has what it had."""
    server.post("CREATE FUNCTION checked RETURNS BIGINT AS 'penstock.testing.samples:checked';")
    server.post(
        "CREATE QUERY a AS SELECT checked(50 - v) AS s FROM S [RANGE 2 SECONDS];"
        "CREATE QUERY b AS SELECT CAST(v AS BIGINT) AS s FROM S [RANGE 2 SECONDS];"
    )
    server.insert("S", [(1, 1), (2, 2)])
    server.post("ALTER QUERY a SWAP WITH b;")
    server.insert("S", [(3, 3), (4, 4)])
    assert content(server.emitted("a"), 3) == {(2,): 1, (3,): 1}
    assert content(server.emitted("b"), 3) == {(48,): 1, (47,): 1}
    server.insert("S", [(5, 70), (6, 6)])
    wait_for(lambda: server.control.query("b")[1].status.value == "FAILED")
    server.insert("S", [(8, 8), (9, 9)])
    assert content(server.emitted("a"), 8) == {(8,): 1}
    with pytest.raises(PenstockError, match="cannot be exchanged"):
        server.post("ALTER QUERY a SWAP WITH b;")
    server.post("ALTER QUERY b RESUME START NOW;")
    server.insert("S", [(10, 10), (11, 11)])
    assert content(server.emitted("b"), 10) == {(40,): 1}


def test_answers_in_other_units_of_time_are_not_exchanged(server: InlineServer) -> None:
    server.post("CREATE STREAM T (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT MILLISECOND;")
    server.post("CREATE QUERY a AS SELECT v FROM S [NOW]; CREATE QUERY b AS SELECT v FROM T [NOW];")
    for statement in ("ALTER QUERY a SWAP WITH b;", "ALTER QUERY a AS SELECT v FROM T [NOW];"):
        with pytest.raises(PenstockError, match="other columns") as refused:
            server.post(statement)
        assert refused.value.code == "P0305"
