"""Queries whose place another one takes WARM WAIT, with rows that are still to come, with the engine on Spark: the
former one answers until they have come."""

from __future__ import annotations

import random
import threading
from typing import Any

import pyarrow as pa
import pytest
from inline_engine import InlineServer, without_spark
from test_waiting_for_rows import GONE_MEANWHILE, LAST, STREAM, held_up, lost_of, rows, server, state, tables_of

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.control.live.repair import pause_queries
from penstock.language.scripts import bind_script
from penstock.testing.live import Episode, run_live, takes_over

__all__ = ["held_up", "server", "without_spark"]

TIME = "SELECT SUM(v) AS s, COUNT(*) AS n FROM S [RANGE 2 SECONDS]"
WAIT = Start(StartMode.WARM, wait=True)


def changing(server: InlineServer, count: int = 4, more: str = "") -> None:
    """Have a query of two seconds, of which one of the last rows is to take the place."""
    server.post(STREAM.format(more=more) + f"CREATE QUERY q AS {TIME};")
    for row in rows(1, 10):
        server.insert("S", [row])
    (posted,) = server.control.submit(f"ALTER QUERY q AS {LAST.format(count)} START WARM WAIT;")
    assert posted.outcome is not None and posted.outcome.state.value == "RUNNING", "it has no past to read yet"
    server.settle()


def fed(server: InlineServer, first: int, last: int, restarts: bool = False) -> None:
    for row in rows(first, last):
        server.insert("S", [row])
        server.settle()
        if restarts:
            server.restart()


def shown(server: InlineServer, name: str = "q") -> dict[int, tuple[int, int]]:
    """Return the answers by instant; each is right in itself, as the one before is taken back."""
    found: dict[int, tuple[int, int]] = {}
    for ts, op, *row in server.emitted(name):
        if op == "-":
            assert tuple(row) == found[max(found)]
        else:
            assert ts not in found
            found[ts] = (row[0], row[1])
    return found


def of_time(ts: int) -> tuple[int, int]:
    return (2 * ts - 1, 2) if ts > 1 else (1, 1)


def of_rows(ts: int, count: int = 4) -> tuple[int, int]:
    return sum(range(ts - count + 1, ts + 1)), count


def edit(server: InlineServer, name: str = "q") -> Any:
    return server.control.query(name)[1].beside


def text(server: InlineServer, name: str = "q") -> str:
    return server.control.query(name)[0].text


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("retain", ["", "RETAIN 3 SECONDS"])
def test_the_former_query_answers_until_the_rows_have_come(server: InlineServer, retain: str, restarts: bool) -> None:
    changing(server, 7, retain)
    kept = 3 if retain else 0
    assert state(server, "q") == ("RUNNING", f"another query takes over from q with {7 - kept} more rows of S")
    assert server.run.work.declared["S"].retain is not None and len(server.run.work.queries) == 1
    fed(server, 11, 15 - kept, restarts)
    assert text(server) == TIME and edit(server).waits
    fed(server, 16 - kept, 24, restarts)
    first = 13 if retain else 17
    assert shown(server) == {ts: of_time(ts) if ts <= first else of_rows(ts, 7) for ts in range(1, 24)}
    assert (text(server), edit(server), state(server, "q")) == (LAST.format(7), None, ("RUNNING", None))
    assert server.run.work.declared["S"].retain == (3 if retain else None)


CHANGES = {
    "a window of time": "SELECT v FROM S [RANGE 3 SECONDS] -> SELECT v FROM S [ROWS 4]",
    "fewer rows": "SELECT SUM(v) AS s FROM S [ROWS 6] -> SELECT SUM(v) AS s FROM S [ROWS 2]",
    "a stream": "SELECT ISTREAM(v) FROM S [ROWS 2] -> SELECT ISTREAM(v) FROM S [ROWS 5] WHERE v > 1",
    "another stream": "SELECT v FROM S [ROWS 2] -> SELECT v FROM T [ROWS 3]",
    "two streams": "SELECT v FROM S [NOW] -> SELECT a.v FROM S [ROWS 3] a, T [ROWS 4] b WHERE a.v <= b.v",
    "of two streams": "SELECT a.v FROM S [NOW] a, T [RANGE 4 SECONDS] b -> SELECT v FROM S [ROWS 4]",
    "rows and time": "SELECT v FROM S [NOW] -> SELECT a.v FROM S [ROWS 3] a, T [RANGE 9 SECONDS] b WHERE a.v < b.v",
}


@pytest.mark.spread(4)
@pytest.mark.parametrize("kept", ["", "RETAIN 3 SECONDS", "RETAIN 1 HOUR"])
@pytest.mark.parametrize("change", CHANGES)
def test_the_law_is_kept(server: InlineServer, change: str, kept: str) -> None:
    """Also in when one takes over from the other. Elements come in any order within the slack."""
    slack = " ORDER WITHIN 2 SECONDS"
    streams = STREAM.format(more=slack) + STREAM.format(more=f"{slack} {kept}").replace(" S ", " T ")
    plain = streams.replace("HTTP", "MEMORY").replace(kept, "")
    former, coming = CHANGES[change].split(" -> ")
    script = bind_script(f"{plain} CREATE QUERY q AS {former}; CREATE QUERY r AS {coming};")
    draw = random.Random(815_000_000 + list(CHANGES).index(change) * 3 + len(kept))
    given: dict[str, list[tuple[int, int]]] = {"S": [], "T": []}

    def insert(count: int) -> None:
        for _ in range(count):
            for name in ("S", "T"):
                high = max((ts for ts, _ in given[name]), default=0)
                row = max(1, high + draw.randint(-2, 3)), draw.randint(0, 6)
                given[name].append(row)
                server.insert(name, [row])
                server.settle()
                look()

    def read() -> dict[str, int]:
        return {name: len(some) for name, some in given.items()}

    def episode(query: Query, start: Start) -> Episode:
        lost = {name: lost_of(server, name) for name in given} if start.wait else {}
        return Episode(query, start, read(), lost={name: tick for name, tick in lost.items() if tick is not None})

    episodes: list[Episode] = []
    waiting: list[Episode] = []

    def look() -> None:
        if not waiting:
            return
        query = server.control.query("q")[1]
        is_due = takes_over(episodes, waiting[0], tables_of(given))
        assert (query.coming is None) == is_due, (given, episodes, waiting, query)
        if is_due:
            new = waiting.pop()
            episodes.append(Episode(new.query, new.start, new.begun, shown=read(), lost=new.lost))
            episodes[0] = Episode(episodes[0].query, episodes[0].start, episodes[0].begun, read())

    server.post(streams)
    insert(2)
    episodes.append(episode(script.queries[0], Start()))
    server.post(f"CREATE QUERY q AS {former};")
    insert(4)
    waiting.append(episode(script.queries[1], WAIT))
    server.post(f"ALTER QUERY q AS {coming} START WARM WAIT;")
    server.settle()
    look()
    for _ in range(6):
        insert(draw.randint(0, 2))
        if draw.random() < 0.2:
            server.restart()
    for tick in (200, 210, 300, 310):
        for name in given:
            given[name].append((tick, 9))
            server.insert(name, [(tick, 9)])
            server.settle()
            look()
    assert not waiting
    found = [
        (ts, op, tuple(row)) if not script.queries[0].root.is_stream else (ts, None, (op, *row))
        for ts, op, *row in server.emitted("q")
    ]
    expected = [(ts, op, tuple(row)) for ts, op, row in run_live(episodes, tables_of(given))]
    assert sorted(map(str, found)) == sorted(map(str, expected))


def test_what_becomes_of_it_by_other_commands(server: InlineServer) -> None:
    changing(server)
    server.post("CREATE QUERY other AS SELECT COUNT(*) AS n FROM S [RANGE 3 SECONDS]; ALTER QUERY q RENAME TO p;")
    server.post("ALTER STREAM S SET (retain '1 SECOND');")
    fed(server, 11, 11)
    server.post("ALTER QUERY p PAUSE WITH STATE;")
    fed(server, 12, 12)
    server.post("ALTER QUERY p RESUME; ALTER QUERY p RENAME TO q;")
    assert state(server, "q") == ("RUNNING", "another query takes over from q with 3 more rows of S")
    server.post(f"ALTER QUERY q AS {LAST.format(5)} START WARM WAIT;")
    assert state(server, "q") == ("RUNNING", "another query takes over from q with 4 more rows of S")
    fed(server, 13, 20)
    assert text(server) == LAST.format(5) and server.control.catalog.sources["s"].retain == 1
    assert [shown(server)[ts] for ts in (14, 16, 19)] == [of_time(14), of_rows(16, 5), of_rows(19, 5)]
    server.post(f"ALTER QUERY q AS {LAST.format(9)} START WARM WAIT;")
    assert edit(server).waits
    server.post("ALTER QUERY q PAUSE;")
    assert (text(server), edit(server), state(server, "q")) == (LAST.format(9), None, ("PAUSED", None))
    server.settle()
    assert server.run.work.declared["S"].retain == 1
    server.post("ALTER QUERY q RESUME START WARM WAIT;")
    assert state(server, "q")[0] == "WAITING"
    server.post(
        f"ALTER QUERY q AS {TIME} START NOW; ALTER QUERY other AS SELECT COUNT(*) AS n FROM S [ROWS 8] START WARM WAIT;"
    )
    assert edit(server, "other").waits
    server.post("DROP STREAM S CASCADE;")
    server.settle()
    assert server.control.queries() == []


def test_a_repair_leaves_the_new_query_paused(server: InlineServer) -> None:
    changing(server)
    server.close()
    pause_queries(server.folder, ["q"])
    server.open()
    assert (text(server), edit(server), state(server, "q")) == (LAST.format(4), None, ("PAUSED", None))
    server.post("ALTER QUERY q RESUME START WARM WAIT;")
    fed(server, 11, 20)
    assert shown(server)[19] == of_rows(19)


@pytest.mark.parametrize("then", ["", "restart", "pause", "drop", "another"])
def test_its_past_is_read_while_other_commands_come(server: InlineServer, held_up: threading.Event, then: str) -> None:
    """Its rows have come, and what it begins with is read beside the run."""
    held_up.set()
    changing(server)
    fed(server, 11, 14)
    held_up.clear()
    server.insert("S", rows(15, 15))
    server.control._look()
    server.control.submit("")
    assert state(server, "q") == ("RUNNING", "what takes over reads its past")
    server.insert("S", rows(16, 16))
    if then in ("pause", "drop", "another"):
        # The reading ends in its own time.
        threading.Timer(0.2, held_up.set).start()
        server.post(
            {
                "pause": "ALTER QUERY q PAUSE;",
                "drop": "DROP QUERY q;",
                "another": f"ALTER QUERY q AS {TIME} START NOW;",
            }[then]
        )
    held_up.set()
    if then == "restart":
        server.restart()
    server.settle()
    if then in ("", "restart"):
        fed(server, 17, 20)
        found = shown(server)
        assert text(server) == LAST.format(4) and list(found) == list(range(1, 20))
        taken = max(ts for ts in found if found[ts] == of_time(ts))
        assert 14 <= taken <= 16 and all(found[ts] == of_rows(ts) for ts in range(taken + 1, 20))
    else:
        server.insert("S", rows(17, 17))
        assert not [one for one in server.control.queries() if one.query.beside is not None]
    server.settle()
    assert server.run.work.declared["S"].retain is None


@pytest.mark.parametrize("then", ["", "restart", "rename"])
@pytest.mark.parametrize("retain", GONE_MEANWHILE)
def test_it_waits_for_what_went_after_it_was_accepted(
    server: InlineServer, held_up: threading.Event, retain: str, then: str
) -> None:
    """Nothing was missing when the change was accepted, and what came before its past was read is not kept."""
    server.post(STREAM.format(more=retain) + f"CREATE QUERY q AS {TIME};")
    before, meanwhile, kept = GONE_MEANWHILE[retain]
    for row in before:
        server.insert("S", [row])
    (posted,) = server.control.submit(f"ALTER QUERY q AS {LAST.format(3)} START WARM WAIT;")
    known = server.control.commands()
    for ts, v in meanwhile:
        table = pa.table({"ts": pa.array([ts], pa.int32()), "v": pa.array([v], pa.int32())})
        server.control.insert("S", table)
        server.run.round()
    renamed = threading.Thread(target=lambda: server.control.submit("ALTER QUERY q RENAME TO p;"))
    if then == "rename":
        renamed.start()
        while len(server.control.commands()) == len(known):
            server.control.submit("", wait=False)
    held_up.set()
    if then == "restart":
        server.restart()
    if then == "rename":
        renamed.join()
    name = "p" if then == "rename" else "q"
    server.settle()
    assert state(server, name) == ("RUNNING", f"another query takes over from {name} with 3 more rows of S")
    assert posted.outcome is not None
    (outcome,) = [one for *_, one in server.control.commands() if one.number == posted.outcome.number]
    assert outcome.state.value == "RUNNING" and not outcome.code
    server.restart()
    given = list(kept)
    for tick in range(50, 58):
        server.insert("S", [(tick, tick)])
        given.append((tick, tick))
        server.settle()
    assert text(server, name) == LAST.format(3) and not edit(server, name)
    last = [v for _, v in given[-4:-1]]
    assert shown(server, name)[56] == (sum(last), 3)
