"""START WARM WAIT with the engine on Spark: time brings what the past does not have; nothing is emitted until then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inline_engine import InlineServer, without_spark
from test_waiting_for_rows import by_the_law, emitted, lost_of

from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.runtime.spark.changes import prefetch
from penstock.runtime.spark.changes.interrupted_reading import InterruptedReading
from penstock.runtime.spark.hydration import catch_up
from penstock.runtime.spark.live_change import options_of_start
from penstock.runtime.spark.retention import retention

__all__ = ["without_spark"]

STREAM = "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND {more};"
SUM = "SELECT SUM(v) AS s, COUNT(*) AS n FROM S [RANGE 5 SECONDS]"
NEW = "SELECT ISTREAM(a.v, b.v AS w) FROM S [NOW] a, S [RANGE 5 SECONDS] b WHERE a.v > b.v"
BOUNDARIES = "SELECT RSTREAM(COUNT(*) AS n) FROM S [RANGE 6 SECONDS SLIDE 3 SECONDS]"


@pytest.fixture
def server(tmp_path: Path, without_spark: None) -> Iterator[InlineServer]:
    made = InlineServer(tmp_path / "checkpoint")
    yield made
    made.close()


def rows(first: int, last: int) -> list[tuple[int, int]]:
    return [(tick, tick) for tick in range(first, last + 1)]


@pytest.mark.parametrize("restarts", [False, True])
def test_nothing_is_emitted_before_the_windows_are_full(server: InlineServer, restarts: bool) -> None:
    server.post(STREAM.format(more=""))
    server.insert("S", rows(1, 10))
    with pytest.raises(PenstockError, match="cannot START WARM: ") as refused:
        server.post(f"CREATE QUERY q START WARM AS {SUM};")
    assert refused.value.code == "P0703"
    server.post(f"CREATE QUERY q START WARM WAIT AS {SUM}; CREATE QUERY n START WARM WAIT AS {NEW};")
    server.post(f"CREATE QUERY b START WARM WAIT AS {BOUNDARIES};")
    assert sorted(server.control.version().ahead.values()) == [15, 16, 20]
    server.insert("S", rows(11, 14))
    assert server.emitted("q") == server.emitted("n") == server.emitted("b") == []
    if restarts:
        server.restart()
    server.insert("S", rows(15, 16))
    assert server.emitted("q") == [(15, "+", 65, 5)]
    assert sorted(server.control.version().ahead.values()) == [16, 20]
    server.insert("S", rows(17, 22))
    assert server.emitted("q")[1:3] == [(16, "-", 65, 5), (16, "+", 70, 5)]
    assert sorted(row for row in server.emitted("n") if row[0] <= 17) == [
        (t, t, t - d) for t in (16, 17) for d in (4, 3, 2, 1)
    ]
    assert server.emitted("b") == [(21, 6)]


def test_what_is_kept_shortens_the_wait(server: InlineServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """RETAIN of a part of the window, and of all of it: then it is WARM."""
    monkeypatch.setattr(retention, "_EVERY", 1)
    server.post(STREAM.format(more=" RETAIN 3 SECONDS") + STREAM.format(more=" RETAIN 1 MINUTE").replace(" S ", " T "))
    for row in rows(1, 20):
        server.insert("S", [row]), server.insert("T", [row])
    whole = SUM.replace("5 SECONDS", "8 SECONDS")
    server.post(f"CREATE QUERY part START WARM WAIT AS {whole};")
    server.post(f"CREATE QUERY whole START WARM WAIT AS {whole.replace('FROM S', 'FROM T')};")
    (first,) = server.control.version().ahead.values()
    assert 20 < first < 28
    assert [(ts, op) for ts, op, *_ in server.emitted("whole")] == [(19, "+")]
    for stream in ("S", "T"):
        server.insert(stream, rows(21, 30))
    found = [row for row in server.emitted("whole") if row[0] > first]
    assert found and [row for row in server.emitted("part") if row[0] > first] == found
    assert server.emitted("part")[0] == (first, "+", sum(range(first - 7, first + 1)), 8)


@pytest.mark.parametrize(
    "select",
    ["SELECT v FROM S [PARTITION BY v ROWS 3]", "SELECT DISTINCT v FROM S", SUM.replace("5 SECONDS", "UNBOUNDED")],
)
def test_what_time_does_not_bring_is_refused(server: InlineServer, select: str) -> None:
    server.post(STREAM.format(more=""))
    server.insert("S", rows(1, 4))
    with pytest.raises(PenstockError, match="would wait for ever: elements of S are gone") as refused:
        server.post(f"CREATE QUERY q START WARM WAIT AS {select};")
    assert refused.value.code == "P0703" and refused.value.hint
    server.insert("S", rows(5, 6))
    server.post("CREATE STREAM T (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;")
    server.post(f"CREATE QUERY q START WARM WAIT AS {select.replace('FROM S', 'FROM T')};")
    server.insert("T", rows(1, 3))
    assert server.emitted("q")[0][0] == 1, "nothing of it had been read"


def test_time_has_begun_where_nothing_comes_for_long(server: InlineServer) -> None:
    """A global aggregate has a row although its window has been empty since the query began."""
    server.post(STREAM.format(more=""))
    server.insert("S", rows(1, 4))
    server.post("CREATE QUERY q START WARM WAIT AS SELECT COUNT(*) AS n FROM S [RANGE 5 SECONDS];")
    server.insert("S", [(100, 1), (101, 1)])
    assert server.emitted("q") == [(9, "+", 0), (100, "-", 0), (100, "+", 1)]


def test_one_that_waits_is_paused_exchanged_and_replaced(server: InlineServer) -> None:
    server.post(STREAM.format(more=""))
    server.post(f"CREATE QUERY old AS {SUM};")
    server.insert("S", rows(1, 10))
    server.post(f"CREATE QUERY q START WARM WAIT AS {SUM.replace('5', '7')};")
    before = server.emitted("old")
    server.post("ALTER QUERY q PAUSE WITH STATE;")
    server.insert("S", rows(11, 12))
    server.post("ALTER QUERY q RESUME; ALTER QUERY old PAUSE WITH STATE;")
    before = server.emitted("old")
    server.post("ALTER QUERY old RESUME;")
    server.post("ALTER QUERY q SWAP WITH old;")
    # The one of 7 seconds is shown in the other place, and has no right answer before 17.
    server.insert("S", rows(13, 16))
    assert server.emitted("old") == before
    assert server.emitted("q")[0][0] >= 11
    server.insert("S", rows(17, 19))
    after = server.emitted("old")[len(before) :]
    assert after[:2] == [(17, "-", *before[-1][2:]), (17, "+", sum(range(11, 18)), 7)]
    server.post(f"ALTER QUERY old AS {SUM.replace('5', '4')} START WARM WAIT;")
    (first,) = server.control.version().ahead.values()
    assert first == 19 + 4
    for tick in range(20, 26):
        server.insert("S", rows(tick, tick))
        server.settle()
    # The one of 7 seconds answers until the one of 4 has seen all that it needs.
    shown = {row[0]: row[2:] for row in server.emitted("old") if row[1] == "+"}
    assert shown[22] == (sum(range(16, 23)), 7)
    assert [shown[tick] for tick in (23, 24)] == [(sum(range(tick - 3, tick + 1)), 4) for tick in (23, 24)]


def test_explain_tells_until_when(server: InlineServer) -> None:
    server.post(STREAM.format(more=""))
    server.insert("S", rows(1, 10))
    declared = STREAM.format(more="").replace("HTTP", "MEMORY")
    (query,) = bind_script(f"{declared} CREATE QUERY q AS {SUM};").queries
    shown = {str(option).partition(":")[0]: option for option in options_of_start(server.run, query)}
    assert list(shown) == ["NOW", "WARM", "WARM WAIT", "BEGINNING"]
    assert str(shown["WARM WAIT"]) == "WARM WAIT: yes; answers from 15 on"
    assert shown["WARM WAIT"].as_json()["since"] == "15"
    (query,) = bind_script(f"{declared} CREATE QUERY q AS SELECT v FROM S [ROWS 3];").queries
    assert "WARM WAIT: yes; answers with 3 more rows of S" in "\n".join(map(str, options_of_start(server.run, query)))
    (query,) = bind_script(f"{declared} CREATE QUERY q AS SELECT v FROM S [PARTITION BY v ROWS 3];").queries
    assert "WARM WAIT: no; START WARM WAIT would wait for ever" in "\n".join(
        map(str, options_of_start(server.run, query))
    )


@pytest.mark.parametrize("restarts", [False, True])
def test_the_last_rows_are_there_when_so_many_are_kept(
    server: InlineServer, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    """Of a stream that retains a part of what has come: WARM, as far as the last rows are in that part."""
    monkeypatch.setattr(retention, "_EVERY", 1)
    server.post(STREAM.format(more=" RETAIN 6 SECONDS"))
    for row in rows(1, 20):
        server.insert("S", [row])
    last, pairs = "SELECT SUM(v) AS s, COUNT(*) AS n FROM S [ROWS {}]", "SELECT ISTREAM(v) FROM S [ROWS 2]"
    nested = f"SELECT COUNT(*) AS n FROM ({pairs}) [RANGE 5 SECONDS]"
    declared = STREAM.format(more="").replace("HTTP", "MEMORY")
    for count, words in (
        (3, "yes; S: its retained elements"),
        (40, "no; CREATE STREAM S ... RETAIN for as long as its last 40 rows take"),
    ):
        (query,) = bind_script(f"{declared} CREATE QUERY q AS {last.format(count)};").queries
        shown = {str(option).partition(":")[0]: str(option) for option in options_of_start(server.run, query)}
        assert shown["WARM"].startswith(f"WARM: {words}"), shown["WARM"]
    server.post(f"CREATE QUERY three START WARM AS {last.format(3)};")
    server.post(f"CREATE QUERY waiting START WARM WAIT AS {last.format(4)};")
    server.post(f"CREATE QUERY late START WARM WAIT AS {nested};")
    server.post(f"CREATE QUERY q START WARM WAIT AS {last.format(40)};")
    (one,) = [one for one in server.control.queries() if one.stored.name == "q"]
    assert one.missing == {"S": 34}, "14 to 19 are final"
    server.post("DROP QUERY q;")
    assert server.emitted("three") == [(19, "+", 17 + 18 + 19, 3)]
    assert server.emitted("waiting") == [(19, "+", 16 + 17 + 18 + 19, 4)]
    if restarts:
        server.restart()
    for row in rows(21, 30):
        server.insert("S", [row])
    for name, count in (("three", 3), ("waiting", 4)):
        found = [row for row in server.emitted(name) if row[1] == "+"]
        assert found == [(t, "+", sum(range(t - count + 1, t + 1)), count) for t in range(19, 30)]
    assert [row for row in server.emitted("late") if row[0] > 25] == [] and server.emitted("late")[0][2] == 5


def test_the_law_is_kept_with_sources_of_which_one_is_kept(server: InlineServer) -> None:
    """Elements come in any order within the slack; one of two streams is retained, the other is not."""
    slack = " ORDER WITHIN 3 SECONDS"
    streams = STREAM.format(more=slack) + STREAM.format(more=slack + " RETAIN 1 HOUR").replace(" S ", " T ")
    server.post(streams)
    select = "SELECT a.v, COUNT(*) AS n FROM S [RANGE 4 SECONDS] a, T [RANGE 9 SECONDS] b WHERE a.v <= b.v GROUP BY a.v"
    given = {"S": [(3, 1), (5, 2), (4, 7), (9, 3)], "T": [(2, 9), (6, 1), (7, 4), (11, 2)]}
    for name, some in given.items():
        server.insert(name, some)
    begun = {name: len(some) for name, some in given.items()}
    server.post(f"CREATE QUERY q START WARM WAIT AS {select};")
    later = {"S": [(10, 2), (8, 5), (14, 1), (13, 3), (30, 0)], "T": [(10, 5), (12, 3), (16, 4), (31, 1)]}
    for name, some in later.items():
        for row in some:
            server.insert(name, [row])
        given[name] += some
    expected = by_the_law(streams, select, given, begun, {"S": 9})
    assert min(ts for ts, _, _ in expected) == 13
    found = [(ts, op, tuple(row)) for ts, op, *row in server.emitted("q")]
    assert sorted(found, key=str) == expected


@pytest.mark.parametrize("place", ["check_past", "past_starts"])
@pytest.mark.parametrize("retain", ["", "RETAIN 2 SECONDS"])
def test_rounds_may_come_while_it_is_found_where_a_query_begins(
    server: InlineServer, monkeypatch: pytest.MonkeyPatch, place: str, retain: str
) -> None:
    """What is lost grows with each round of a stream that is not kept, also between two looks at it."""
    monkeypatch.setattr(retention, "_EVERY", 1)
    server.post(STREAM.format(more=retain))
    for row in rows(1, 10):
        server.insert("S", [row])
    module = prefetch if place == "check_past" else catch_up
    original, more = getattr(module, place), [11, 12, 13]

    def after_rounds(*arguments: Any) -> Any:
        while more:
            server.insert("S", [(more[0], more.pop(0))])
        return original(*arguments)

    monkeypatch.setattr(module, place, after_rounds)
    server.post(f"CREATE QUERY q START WARM WAIT AS {SUM};")
    assert not more
    for row in rows(14, 25):
        server.insert("S", [row])
    emitted = [row for row in server.emitted("q") if row[1] == "+"]
    first = emitted[0][0] if retain else 18
    assert first <= 18 and emitted == [(t, "+", sum(range(t - 4, t + 1)), 5) for t in range(first, 25)]


def test_a_beginning_that_goes_before_it_is_read_is_refused_as_if_it_had_gone_before(
    server: InlineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing had been read when the command was accepted; its reading had to wait while rows came."""
    original, more = InterruptedReading._go_on, rows(1, 3)

    def go_on(reading: InterruptedReading) -> None:
        if more:
            server.insert("S", [more.pop(0)])
        original(reading)

    server.post(STREAM.format(more=""))
    monkeypatch.setattr(InterruptedReading, "_go_on", go_on)
    with pytest.raises(
        PenstockError, match="query q cannot read its past: what has been read of S is not kept"
    ) as found:
        server.post(f"CREATE QUERY q START BEGINNING AS {SUM};")
    assert found.value.code == "P0703"


def test_beside_a_source_of_which_all_is_needed_another_one_has_to_be_there_from_its_beginning(
    server: InlineServer,
) -> None:
    """Time begins with the first element of any source, and that may be among those that are gone."""
    both = STREAM.format(more="RETAIN 1 HOUR") + STREAM.format(more="").replace(" S ", " T ")
    server.post(both)
    for stream in ("S", "T"):
        server.insert(stream, rows(1, 4))
    select = "SELECT COUNT(*) AS n FROM S [RANGE UNBOUNDED] a, T [RANGE 3 SECONDS] b WHERE a.v = b.v"
    declared = both.replace("HTTP", "MEMORY").replace("RETAIN 1 HOUR", "")
    (query,) = bind_script(f"{declared} CREATE QUERY q AS {select};").queries
    reason = "the query needs all of another source, and time begins with the first element of any"
    shown = {str(option).partition(":")[0]: str(option) for option in options_of_start(server.run, query)}
    assert shown["WARM"] == f"WARM: no; T has to stay readable from its beginning, since {reason}"
    assert shown["WARM WAIT"] == (
        f"WARM WAIT: no; START WARM WAIT would wait for ever: elements of T are gone, and {reason}"
    )
    for start in ("WARM", "WARM WAIT"):
        with pytest.raises(PenstockError, match=f"cannot START {start}: .*{reason}"):
            server.post(f"CREATE QUERY q START {start} AS {select};")


def test_where_it_goes_before_it_is_read_the_error_says_that_no_wait_brings_it(
    server: InlineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was missing when the command was accepted, and the process dies before its past is read."""
    server.post(STREAM.format(more="RETAIN 1 HOUR") + STREAM.format(more="").replace(" S ", " T "))
    held = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(InterruptedReading, "_go_on", lambda reading: held.wait() and None)
        select = "SELECT COUNT(*) AS n FROM S [RANGE UNBOUNDED] a, T [RANGE 3 SECONDS] b WHERE a.v = b.v"
        (posted,) = server.control.submit(f"CREATE QUERY q START WARM WAIT AS {select};")
        for stream in ("T", "S"):
            server.insert(stream, rows(1, 2))
        held.set()
        server.restart()
    server.settle()
    assert posted.outcome is not None
    outcome = server.control.outcome(posted.outcome.number)
    assert outcome.code == "P0703" and outcome.message == (
        "query q: START WARM WAIT would wait for ever: elements of T are gone, and the query needs all of another "
        "source, and time begins with the first element of any"
    )


@pytest.mark.parametrize("retain", ["", "RETAIN 2 SECONDS"])
@pytest.mark.parametrize("count", [3, 20])
@pytest.mark.parametrize(("window", "length"), [("[RANGE 3 SECONDS]", "3 SECOND"), ("[RANGE 5 SECONDS]", "5 SECOND")])
def test_beside_last_rows_of_a_stream_that_is_kept_another_one_need_not_be_there_from_its_beginning(
    server: InlineServer, window: str, length: str, count: int, retain: str
) -> None:
    """Time may begin anywhere that the other windows do not reach; of the last rows there are those, or all."""
    streams = STREAM.format(more=retain) + STREAM.format(more="RETAIN 1 HOUR").replace(" S ", " T ")
    server.post(streams)
    given = {"S": rows(3, 9), "T": rows(1, 8)}
    for name, some in given.items():
        for row in some:
            server.insert(name, [row])
    begun, lost = {name: len(some) for name, some in given.items()}, {"S": lost_of(server, "S")}
    assert lost["S"] is not None and lost_of(server, "T") is None
    select = f"SELECT a.v, b.v AS w FROM S {window} a, T [ROWS {count}] b WHERE b.v % 3 <= a.v"
    with pytest.raises(PenstockError, match=f"cannot START WARM: CREATE STREAM S ... RETAIN {length} or longer"):
        server.post(f"CREATE QUERY q START WARM AS {select};")
    server.post(f"CREATE QUERY q START WARM WAIT AS {select};")
    for tick in range(10, 20):
        for name, some in given.items():
            some.append((tick, tick))
            server.insert(name, [(tick, tick)])
        server.restart() if tick == 12 else server.settle()
    expected = by_the_law(streams.replace(retain, ""), select, given, begun, {"S": lost["S"]})
    assert expected and emitted(server, "q") == expected
