"""Queries whose place another one takes while they run (ALTER QUERY .. AS .. START WARM WAIT), without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from control_kit import CommandFailed, Server, server

from penstock.control.entities.relations import BY_NAME
from penstock.control.live.repair import pause_queries
from penstock.control.registry import restored
from penstock.control.stored_catalog import StoredCatalog
from penstock.errors import PenstockError

FORGOTTEN = "CREATE STREAM S (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
SUM = "SELECT SUM(v) AS s FROM S [RANGE 2 SECONDS]"
WIDE = "SELECT SUM(v) AS s FROM S [RANGE 6 SECONDS]"
BESIDE = f"ALTER QUERY q AS {WIDE} START WARM WAIT"
#: The sums of both at an instant, where each instant had one row with its number.
SUMS = {SUM: lambda ts: 2 * ts - 1, WIDE: lambda ts: 6 * ts - 15}


def feed(one: Server, ticks: Iterable[int], source: str = "S") -> None:
    """Post a row at some ticks, and run a round for each."""
    for ts in ticks:
        one.done(f"INSERT INTO {source} VALUES ({ts}, {ts});")
        one.engine.round()
        settle(one)


def settle(one: Server) -> None:
    """Wait until the control has taken the steps that are due."""
    before, known = -1, 0
    while before != known:
        one.run("")
        one.control._look()
        one.run("")
        before, known = known, len(one.control.commands())


def begun(one: Server, start: str = "") -> None:
    """Have a query of two seconds, of which one of six seconds is to take the place at 15."""
    one.done(FORGOTTEN + f"CREATE QUERY q {start} AS {SUM}")
    feed(one, range(1, 11))
    one.done(BESIDE)
    settle(one)


def text(one: Server, name: str = "q") -> str:
    return one.control.query(name)[0].text


def edit(one: Server, name: str = "q") -> Any:
    return one.control.query(name)[1].beside


def shown(one: Server, name: str = "q") -> dict[int, int]:
    """Return the sums by instant. Each is right in itself: the one before is taken back."""
    found: dict[int, int] = {}
    for row in one.answers(name):
        if row["op"] == "-":
            assert row["s"] == found[max(found)]
        else:
            assert row["ts"] not in found
            found[row["ts"]] = row["s"]
    return found


def change(one: Server) -> str | None:
    (row,) = [r for r in BY_NAME["penstock.queries"].table(one.control.view()).to_pylist() if r["name"] == "q"]
    return row["change"]


def test_the_former_query_answers_until_nothing_is_missing(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        begun(one)
        assert (text(one), change(one)) == (SUM, "another query takes over when q has answered up to 14")
        assert one.status("q") == "RUNNING"
        feed(one, range(11, 31))
        assert (text(one), edit(one), change(one)) == (WIDE, None, None)
        assert shown(one) == {ts: 1 if ts == 1 else SUMS[SUM if ts < 15 else WIDE](ts) for ts in range(1, 30)}
        texts = [transaction.texts for transaction, _, _ in one.control.commands()]
        assert ("QUERY q: TAKES OVER",) in texts and ("QUERY q: FORMER QUERY ENDS",) in texts


def test_a_stream_loses_no_instant_and_repeats_none(tmp_path: Path) -> None:
    streams = [f"SELECT RSTREAM(SUM(v) AS s) FROM S [RANGE {length} SECONDS]" for length in (2, 6)]
    with server(tmp_path) as one:
        one.done(FORGOTTEN + f"CREATE QUERY q AS {streams[0]}")
        feed(one, range(1, 11))
        one.done(f"CREATE OR REPLACE QUERY q START WARM WAIT AS {streams[1]}")
        feed(one, range(11, 31))
        assert text(one) == streams[1]
        rows = [(row["ts"], row["s"]) for row in one.answers("q")]
        # At 15 nothing is missing; a stream begins with the instant after that.
        assert rows == [(ts, 1 if ts == 1 else SUMS[SUM if ts < 16 else WIDE](ts)) for ts in range(1, 30)]


def test_where_all_is_kept_it_takes_over_at_once(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        one.done(FORGOTTEN.replace(";", " RETAIN 100 SECONDS;") + f"CREATE QUERY q AS {SUM}")
        feed(one, range(1, 11))
        one.done(BESIDE)
        settle(one)
        assert text(one) == WIDE
        feed(one, range(11, 14))
        assert [shown(one)[ts] for ts in (9, 10, 11)] == [17, 45, 51]


def test_one_that_could_never_be_full_is_refused_and_the_query_goes_on(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        begun(one)
        for window in ("[RANGE UNBOUNDED]", "[PARTITION BY v ROWS 3]"):
            with pytest.raises(PenstockError, match=r"P0703.*for ever"):
                one.run(f"ALTER QUERY q AS SELECT SUM(v) AS s FROM S {window} START WARM WAIT")
        with pytest.raises(PenstockError, match="P0305"):
            one.run("ALTER QUERY q AS SELECT v AS w FROM S [RANGE 6 SECONDS] START WARM WAIT")
        # The change before stays.
        assert edit(one).definition.text == WIDE
        with pytest.raises(PenstockError, match="P0703") as refused:
            one.run(f"ALTER QUERY q AS {WIDE} START WARM")
        assert "START WARM WAIT" in (refused.value.hint or "")


def test_a_pause_ends_both_and_the_query_is_the_new_one(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        begun(one)
        one.done("ALTER QUERY q PAUSE")
        assert (text(one), edit(one), one.status("q")) == (WIDE, None, "PAUSED")
        one.done("ALTER QUERY q RESUME START NOW")
        feed(one, range(11, 14))
        assert shown(one)[12] == 23


def test_while_a_query_is_silent_nothing_takes_its_place(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        begun(one)
        one.done("ALTER QUERY q PAUSE WITH STATE")
        feed(one, range(11, 20))
        assert text(one) == SUM and edit(one) is not None
        one.done("ALTER QUERY q RESUME")
        settle(one)
        assert (text(one), edit(one)) == (WIDE, None)
        feed(one, range(20, 23))
        found = shown(one)
        assert (found[9], found[18], found[19], found[21]) == (17, 35, 99, 111)


def test_another_one_takes_the_place_of_what_was_to_come(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        begun(one)
        hidden = edit(one).place
        one.done("ALTER QUERY q AS SELECT SUM(v) AS s FROM S [RANGE 3 SECONDS] START WARM WAIT")
        assert edit(one).place != hidden and not one.engine.answers(hidden)
        feed(one, range(11, 16))
        assert "RANGE 3" in text(one) and shown(one)[13] == 36
        # And at once: what was to come is given up.
        one.done(BESIDE)
        one.done(f"ALTER QUERY q AS {SUM} START NOW")
        assert (text(one), edit(one)) == (SUM, None)


def test_a_name_a_comment_and_a_drop(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        begun(one)
        one.done("ALTER QUERY q RENAME TO other")
        one.done("ALTER QUERY other SET (comment 'for readers')")
        one.done("ALTER QUERY other RENAME TO q")
        feed(one, range(11, 17))
        assert text(one) == WIDE and one.control.query("q")[0].attributes["comment"] == "for readers"
        one.done(f"ALTER QUERY q AS {SUM} START WARM WAIT; DROP QUERY q")
        assert not one.control.queries() and not one.engine.version().heartbeats
        one.done("DROP STREAM S")


@pytest.mark.parametrize(
    "statement",
    ["ALTER QUERY q SWAP WITH p", "ALTER QUERY p SWAP WITH q", "ALTER QUERY q INTO MEMORY ()"],
)
def test_what_does_not_go_with_a_change_is_refused(tmp_path: Path, statement: str) -> None:
    with server(tmp_path) as one:
        begun(one)
        one.done(f"CREATE QUERY p AS {SUM}")
        with pytest.raises(PenstockError, match=r"P0701.*another query is to take the place of q"):
            one.run(statement)


def test_a_stream_that_only_the_new_query_reads_is_in_use(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        one.done(FORGOTTEN + FORGOTTEN.replace(" S ", " T ") + f"CREATE QUERY q AS {SUM}")
        feed(one, range(1, 4))
        feed(one, range(1, 10), "T")
        one.done(BESIDE.replace("FROM S", "FROM T"))
        with pytest.raises(PenstockError, match=r"P0222.*q"):
            one.run("DROP STREAM T")
        # Nothing is missing at 14, but what is ahead of the former query would leave out instants.
        feed(one, range(10, 21), "T")
        feed(one, range(4, 18))
        assert text(one) == SUM and max(shown(one)) == 16
        assert change(one) == "another query takes over when q has answered what that one has read"
        feed(one, range(18, 22))
        feed(one, range(21, 24), "T")
        assert "FROM T" in text(one)
        assert sorted(shown(one)) == list(range(1, 23))


def test_a_restart_goes_on_and_an_export_has_what_is_to_come(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        begun(one)
    with server(tmp_path) as one:
        assert edit(one).definition.text == WIDE and text(one) == SUM
        script = one.control.catalog_text()
        assert WIDE in script and SUM not in script
        # That script is what stands already.
        assert not [each for each in one.control.apply(script) if each.outcome is not None]
        feed(one, range(11, 17))
        assert text(one) == WIDE
    pause_queries(tmp_path, ["q"])


def test_a_repair_leaves_the_new_query_paused(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        begun(one)
    pause_queries(tmp_path, ["q"])
    with server(tmp_path) as one:
        assert (text(one), edit(one), one.status("q")) == (WIDE, None, "PAUSED")


def test_what_cannot_be_bound_any_more(tmp_path: Path) -> None:
    """A later version of the program may refuse one of the two."""
    with server(tmp_path) as one:
        begun(one)
        stored = StoredCatalog.read(StoredCatalog(one.control.stored).document())
        ((q, _),) = stored.queries
        found = restored(stored)
        assert found.bound.beside["q"].query.root.fingerprint != found.bound.queries["q"].root.fingerprint
        broken = _with_other(stored, q.id, "SELECT gone(v) AS s FROM S [RANGE 6 SECONDS]")
        assert list(restored(broken).lost) == [q.id] and not restored(broken).errors


def _with_other(stored: StoredCatalog, number: int, select: str) -> StoredCatalog:
    document = stored.document()
    for each in document["objects"]:
        if each["id"] == number:
            each["query"]["beside"]["definition"]["text"] = select
    return StoredCatalog.read(document)


def test_a_query_that_fails_is_the_new_one_and_a_new_one_that_fails_is_given_up(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        begun(one)
        error = PenstockError("P0402", "division by zero")
        one.control._on_failed(edit(one).place, error)
        settle(one)
        query = one.control.query("q")[1]
        assert (text(one), query.beside, query.status.value, query.code) == (SUM, None, "RUNNING", "P0402")
        assert "was to take its place" in query.message
        one.done(BESIDE)
        assert not one.control.query("q")[1].code
        one.control._on_failed(one.control.query("q")[1].place, error)
        settle(one)
        assert (text(one), edit(one), one.status("q")) == (WIDE, None, "FAILED")


def test_a_transaction_that_fails_leaves_the_query(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        begun(one)
        with pytest.raises((PenstockError, CommandFailed)):
            one.done(f"ALTER QUERY q AS {SUM} START WARM WAIT; ALTER QUERY q AS {SUM} START AT 1")
        assert edit(one).definition.text == WIDE
