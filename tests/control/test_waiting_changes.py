"""Queries whose place another one takes with rows that are still to come (ALTER QUERY .. AS .. [ROWS n] .. START WARM
WAIT), without Spark: the former one answers until they have come, and what is said of each command meanwhile."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from control_kit import CommandFailed, Server, server
from test_control_crashes import UNCUT, CrashingEngine, Step, command, cut_life, rows, texts_of_log
from test_replacements import FORGOTTEN, SUM, change, edit, feed, settle, shown, text

from penstock.control.drafting import versions
from penstock.control.entities.relations import BY_NAME
from penstock.control.live.repair import pause_queries
from penstock.control.registry import restored
from penstock.control.stored_catalog import StoredCatalog
from penstock.control.transactions import applying
from penstock.errors import PenstockError
from penstock.server.statements.listed_views import plan_change_text, queries_as_lines, table_of_queries
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import LOSSES, FailingCalls, PowerLost

LAST = "SELECT SUM(v) AS s FROM S [ROWS 4]"
CHANGE = f"ALTER QUERY q AS {LAST} START WARM WAIT"
#: What a stream keeps while something waits for its rows.
EVER = versions.FOR_EVER
#: The sum of the last rows at an instant, where each instant had one row with its number.
FOUR = {ts: 4 * ts - 6 for ts in range(4, 60)}
TWO = {ts: 2 * ts - 1 for ts in range(2, 60)} | {1: 1}


def waiting(one: Server, start: str = "") -> None:
    """Have a query of two seconds, of which one of the last four rows is to take the place, of which none is kept."""
    one.done(FORGOTTEN + f"CREATE QUERY q {start} AS {SUM}")
    feed(one, range(1, 11))
    one.done(CHANGE)
    settle(one)


def texts(one: Server) -> list[str]:
    return [each for transaction, _, _ in one.control.commands() for each in transaction.texts]


def own_plan(one: Server) -> str:
    """Return the choice of a plan in which the operator under what answers is not shared."""
    operators = BY_NAME["penstock.operators"].table(one.control.view()).to_pylist()
    return json.dumps({next(row["plan_key"] for row in operators if row["kind"] == "Aggregate"): {"shared": False}})


def retained(one: Server, name: str = "S") -> int | None:
    """Return for how long the engine keeps a stream."""
    return one.engine._live._histories[name].retain


def test_the_former_query_answers_until_the_rows_have_come(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        waiting(one)
        assert (text(one), edit(one).definition.text, edit(one).waits) == (SUM, LAST, True)
        # The row of 10 may be followed by others of its instant, and is one of those to come.
        assert change(one) == "another query takes over from q with 4 more rows of S"
        assert one.status("q") == "RUNNING"
        assert set(one.engine.version().heartbeats) == {one.control.query("q")[1].place}, "it is computed already"
        feed(one, (11, 12))
        assert change(one) == "another query takes over from q with 2 more rows of S"
        (listed,) = one.control.queries()
        said = plan_change_text(listed)
        assert "takes over, with 2 more rows of S" in said and LAST in said
        (line,) = queries_as_lines(table_of_queries([listed], one.control.version(), {}, {}))
        assert "-- another query takes over from q with 2 more" in line
        feed(one, range(13, 31))
        assert (text(one), edit(one), change(one)) == (LAST, None, None)
        assert shown(one) == {ts: (TWO if ts < 14 else FOUR)[ts] for ts in range(1, 30)}
        assert retained(one) == 0, "the stream still keeps all that comes"
        found = [each for each in texts(one) if each.startswith("QUERY q: ")]
        assert found == [
            "QUERY q: ITS ROWS HAVE COME",
            "QUERY q: TAKES OVER",
            "QUERY q: FORMER QUERY ENDS",
        ] or found == [
            "QUERY q: ITS ROWS HAVE COME",
            "QUERY q: ITS STREAMS KEEP NO MORE THAN THEIR RETAIN",
            "QUERY q: TAKES OVER",
            "QUERY q: FORMER QUERY ENDS",
        ], found


def test_a_stream_loses_no_instant_and_repeats_none(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        one.done(FORGOTTEN + f"CREATE QUERY q AS {SUM.replace('SUM(v) AS s', 'RSTREAM(SUM(v) AS s)')}")
        feed(one, range(1, 11))
        one.done(f"CREATE OR REPLACE QUERY q START WARM WAIT AS {LAST.replace('SUM(v) AS s', 'RSTREAM(SUM(v) AS s)')}")
        assert edit(one).waits
        feed(one, range(11, 31))
        assert [(row["ts"], row["s"]) for row in one.answers("q")] == [
            (ts, (TWO if ts < 14 else FOUR)[ts]) for ts in range(1, 30)
        ]


def test_its_streams_keep_what_comes_until_it_has_begun(tmp_path: Path) -> None:
    """Also one that nothing reads but what is to come."""
    with server(tmp_path) as one:
        one.done(FORGOTTEN + FORGOTTEN.replace(" S ", " T ").replace(";", " RETAIN 1 SECOND;"))
        one.done(f"CREATE QUERY q AS {SUM}")
        feed(one, range(1, 4))
        feed(one, range(1, 11), "T")
        both = "SELECT SUM(a.v) AS s FROM S [NOW] a, T [ROWS 6] b"
        one.done(f"ALTER QUERY q AS {both} START WARM WAIT")
        assert change(one) == "another query takes over from q with 5 more rows of T", change(one)
        assert (retained(one), retained(one, "T")) == (EVER, EVER)
        with pytest.raises(PenstockError, match=r"P0222.*q"):
            one.run("DROP STREAM T")
        one.done("ALTER STREAM T SET (retain '2 SECONDS')")
        assert retained(one, "T") == EVER
        feed(one, range(11, 15), "T")
        assert edit(one).waits
        feed(one, (15,), "T")
        # Its rows have come. It is ahead of the former query, and waits for that.
        assert not edit(one).keeps and text(one) == SUM
        assert (retained(one), retained(one, "T")) == (0, 2)
        feed(one, range(4, 30))
        assert "[ROWS 6]" in text(one) and list(shown(one))[-1] == 14
        one.done("DROP STREAM T CASCADE")
        assert not one.control.queries()


def test_a_pause_ends_the_wait_and_the_query_is_the_new_one(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        waiting(one)
        one.done("ALTER QUERY q PAUSE")
        assert (text(one), edit(one), one.status("q")) == (LAST, None, "PAUSED")
        settle(one)
        assert retained(one) == 0
        one.done("ALTER QUERY q RESUME START WARM WAIT")
        assert one.control.query("q")[1].answer.waits and change(one) == "it begins with 4 more rows of S"
        feed(one, range(11, 20))
        assert [shown(one).get(ts) for ts in (9, 10, 12, 13, 18)] == [17, None, None, FOUR[13], FOUR[18]]


def test_while_a_query_is_silent_its_change_waits_on(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        waiting(one)
        one.done("ALTER QUERY q PAUSE WITH STATE")
        feed(one, (11, 12))
        assert (change(one), one.status("q")) == ("another query takes over from q with 2 more rows of S", "PAUSED")
        one.done("ALTER QUERY q RESUME")
        assert edit(one).waits
        one.done("ALTER QUERY q PAUSE WITH STATE")
        feed(one, range(13, 20))
        # The rows have come, and nothing takes over where nothing is shown.
        assert (text(one), edit(one).waits, edit(one).keeps, retained(one)) == (SUM, False, False, 0)
        one.done("ALTER QUERY q RESUME")
        settle(one)
        assert (text(one), edit(one)) == (LAST, None)
        feed(one, range(20, 23))
        found = shown(one)
        assert [found.get(ts) for ts in (9, 11, 18, 19, 21)] == [17, TWO[11], TWO[18], FOUR[19], FOUR[21]]


def test_another_one_takes_the_place_of_what_waits(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        waiting(one)
        one.done(CHANGE.replace("ROWS 4", "ROWS 3"))
        assert edit(one).definition.text == LAST.replace("ROWS 4", "ROWS 3")
        # With what has come meanwhile.
        feed(one, (11, 12))
        assert change(one) == "another query takes over from q with 1 more row of S"
        one.done(CHANGE)
        assert change(one) == "another query takes over from q with 2 more rows of S"
        # The query as it is: that is no difference, and what is to come still comes.
        one.done(f"CREATE OR REPLACE QUERY q AS {SUM}")
        assert edit(one).waits
        # One that waits for no rows, and what the query is.
        one.done("ALTER QUERY q AS SELECT SUM(v) AS s FROM S [RANGE 1 SECOND] START WARM WAIT")
        settle(one)
        assert ("RANGE 1" in text(one) and edit(one) is None) or not edit(one).waits
        feed(one, (13, 14))
        assert "RANGE 1" in text(one) and shown(one)[13] == 13
        one.done(CHANGE)
        one.done("ALTER QUERY q AS SELECT SUM(v) AS s FROM S [RANGE 1 SECOND] START NOW")
        settle(one)
        assert edit(one) is None and retained(one) == 0


@pytest.mark.parametrize("end", ["the same query", "another query", "a drop", "the stream", "a new query"])
def test_what_waits_is_given_up(tmp_path: Path, end: str) -> None:
    with server(tmp_path) as one:
        waiting(one)
        if end == "the same query":
            one.done(f"ALTER QUERY q AS {SUM} START WARM WAIT")
            feed(one, (11, 12, 13))
            assert (text(one), edit(one)) == (SUM, None)
        elif end == "another query":
            one.done(f"CREATE OR REPLACE QUERY q START NOW AS {LAST}")
            assert (text(one), edit(one)) == (LAST, None)
        elif end == "a drop":
            one.done("DROP QUERY q")
        elif end == "the stream":
            one.done("DROP STREAM S CASCADE")
            return
        else:
            one.done("DROP QUERY q")
            one.done(f"CREATE QUERY q AS {SUM}")
        settle(one)
        assert retained(one) == 0
        feed(one, range(14, 20))
        if end != "a drop":
            assert shown(one)[18] == (FOUR if end == "another query" else TWO)[18]
        assert "QUERY q: ITS ROWS HAVE COME" not in texts(one)


def test_a_name_a_comment_and_one_transaction(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        waiting(one)
        one.done("ALTER QUERY q RENAME TO `other Name`")
        one.done("ALTER QUERY `other Name` SET (comment 'for readers')")
        feed(one, (11,))
        one.done("ALTER QUERY `other Name` RENAME TO q")
        feed(one, range(12, 20))
        assert text(one) == LAST and one.control.query("q")[0].attributes["comment"] == "for readers"
        assert shown(one) == {ts: (TWO if ts < 14 else FOUR)[ts] for ts in range(1, 19)}
        # A transaction that fails leaves what waits.
        one.done(f"ALTER QUERY q AS {SUM} START NOW")
        one.done(CHANGE)
        with pytest.raises((PenstockError, CommandFailed)):
            one.done(f"ALTER QUERY q AS {SUM} START WARM WAIT; ALTER QUERY q AS {SUM} START AT 1")
        assert edit(one).waits
        one.done(f"{CHANGE}; DROP QUERY q")
        settle(one)
        assert not one.control.queries() and retained(one) == 0


@pytest.mark.parametrize(
    "statement", ["ALTER QUERY q SWAP WITH p", "ALTER QUERY p SWAP WITH q", "ALTER QUERY q INTO MEMORY ()"]
)
def test_what_does_not_go_with_what_waits_is_refused(tmp_path: Path, statement: str) -> None:
    with server(tmp_path) as one:
        waiting(one)
        one.done(f"CREATE QUERY p AS {SUM}")
        with pytest.raises(PenstockError, match=r"P0701.*another query is to take the place of q"):
            one.run(statement)
        assert edit(one).waits


def test_two_queries_wait_and_each_takes_over_for_itself(tmp_path: Path) -> None:
    """Their names are exchanged by RENAME, and the stream is kept for the one that waits longer."""
    with server(tmp_path) as one:
        waiting(one)
        one.done(f"CREATE QUERY p AS {SUM}")
        one.done(CHANGE.replace("QUERY q", "QUERY p").replace("ROWS 4", "ROWS 7"))
        one.done("ALTER QUERY q RENAME TO x; ALTER QUERY p RENAME TO q; ALTER QUERY x RENAME TO p")
        feed(one, range(11, 15))
        assert one.control.query("p")[0].text == LAST and retained(one) == EVER
        assert change(one) == "another query takes over from q with 3 more rows of S"
        feed(one, range(15, 20))
        assert "ROWS 7" in text(one) and shown(one)[18] == sum(range(12, 19)) and retained(one) == 0


def test_a_restart_waits_on_and_an_export_has_what_is_to_come(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        waiting(one)
    with server(tmp_path) as one:
        assert (text(one), edit(one).definition.text, edit(one).waits, retained(one)) == (SUM, LAST, True, EVER)
        script = one.control.catalog_text()
        assert LAST in script and SUM not in script
        # That script is what stands already.
        assert not [each for each in one.control.apply(script) if each.outcome is not None]
        assert edit(one).waits
        feed(one, (11, 12))
    with server(tmp_path) as one:
        assert change(one) == "another query takes over from q with 2 more rows of S"
        feed(one, range(13, 20))
        assert shown(one) == {ts: (TWO if ts < 14 else FOUR)[ts] for ts in range(1, 19)}
    with server(tmp_path) as one:
        assert (text(one), edit(one)) == (LAST, None)


def test_the_difference_to_a_script_begins_at_once_or_not_at_all(tmp_path: Path) -> None:
    """A whole catalog has no START, so what differs does not wait."""
    with server(tmp_path) as one:
        waiting(one)
        script = one.control.catalog_text()
        with pytest.raises(PenstockError, match="P0703"):
            one.control.apply(script.replace("ROWS 4", "ROWS 5"))
        assert edit(one).waits
        one.control.apply(FORGOTTEN)
        settle(one)
        assert not one.control.queries() and retained(one) == 0


def test_a_repair_leaves_the_new_query_paused(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        waiting(one)
    pause_queries(tmp_path, ["q"])
    with server(tmp_path) as one:
        assert (text(one), edit(one), one.status("q"), retained(one)) == (LAST, None, "PAUSED", 0)
        one.done("ALTER QUERY q RESUME START WARM WAIT")
        feed(one, range(11, 20))
        assert shown(one)[18] == FOUR[18]


def test_a_catalog_has_what_waits(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        waiting(one)
        stored = StoredCatalog(one.control.stored)
        kept = stored.document()["objects"][-1]["query"]
        assert (kept["answer"]["keeps"], kept["beside"]["phase"]) == (False, "WAITING_FOR_ROWS")
        assert StoredCatalog.read(stored.document()) == stored
        (found,) = restored(StoredCatalog.read(stored.document())).stored.queries
        assert found[1].beside == edit(one)
        feed(one, range(11, 14))
        one.done("INSERT INTO S VALUES (14, 14)")
        one.engine.round()
        one.run("")
        one.control._look()
        one.run("")
        # It has begun, and its streams still keep all.
        (found,) = StoredCatalog.read(StoredCatalog(one.control.stored).document()).queries
        assert found[1].beside == edit(one)
        assert found[1].beside is None or found[1].beside.definition is not None


def test_what_cannot_be_bound_any_more_is_given_up(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        waiting(one)
        stored = StoredCatalog(one.control.stored)
        ((q, _),) = stored.queries
        document = stored.document()
        document["objects"][-1]["query"]["beside"]["definition"]["text"] = LAST.replace("SUM(", "gone(")
        broken = restored(StoredCatalog.read(document))
        assert list(broken.lost) == [q.id] and not broken.errors


def test_a_failure_while_it_waits(tmp_path: Path) -> None:
    """The query that answers fails: it is the new one then, as it is after a PAUSE."""
    with server(tmp_path) as one:
        waiting(one)
        one.control._on_failed(one.control.query("q")[1].place, PenstockError("P0402", "division by zero"))
        settle(one)
        query = one.control.query("q")[1]
        assert (text(one), query.beside, query.status.value, query.code) == (LAST, None, "FAILED", "P0402")
        assert "before another query took its place" in query.message and retained(one) == 0


def test_one_that_cannot_begin_when_its_rows_are_there_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(tmp_path) as one:
        waiting(one)

        def refuse(version: Any) -> None:
            if any(each.start.at is not None for each in version.queries.values()):
                raise PenstockError("P0701", "no place is left")

        monkeypatch.setattr(one.engine, "check", refuse)
        feed(one, range(11, 16))
        query = one.control.query("q")[1]
        assert (text(one), query.beside, query.status.value, query.code) == (SUM, None, "RUNNING", "P0701")
        assert "the query that was to take its place failed: no place is left" in query.message
        assert "QUERY q: CANNOT CHANGE" in texts(one) and retained(one) == 0
        monkeypatch.undo()
        feed(one, range(16, 18))
        assert shown(one) == {ts: TWO[ts] for ts in range(1, 17)}
        one.done(CHANGE)
        assert edit(one).waits and not one.control.query("q")[1].code


def test_a_step_that_fails_when_it_is_applied_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(tmp_path) as one:
        waiting(one)
        feed(one, range(11, 14))
        begin = one.engine._begin

        def refuse(place: int, query: Any) -> bool:
            if query.start.at is not None:
                raise PenstockError("P0701", "no place is left")
            return begin(place, query)

        monkeypatch.setattr(one.engine, "_begin", refuse)
        feed(one, range(14, 17))
        query = one.control.query("q")[1]
        assert (text(one), query.beside, query.status.value, query.code) == (SUM, None, "RUNNING", "P0701")
        assert retained(one) == 0


def test_a_plan_that_changes_waits_for_rows_too(tmp_path: Path) -> None:
    """Of a query that has seen all, over a stream that keeps nothing of it."""
    with server(tmp_path) as one:
        one.done(FORGOTTEN + f"CREATE QUERY q AS {LAST}; CREATE QUERY p AS {LAST.replace('SUM', 'MAX')}")
        feed(one, range(1, 11))
        plan = own_plan(one)
        one.done(f"ALTER QUERY q SET (plan '{plan}')")
        assert edit(one).waits and edit(one).definition is None
        assert change(one) == "another plan takes over from q with 4 more rows of S"
        (listed,) = [each for each in one.control.queries() if each.stored.name == "q"]
        assert "the new plan begins beside the former one" in plan_change_text(listed)
        feed(one, (11,))
        # Back to what it is, and again: what has come before does not count.
        one.done("ALTER QUERY q SET (plan 'none')")
        settle(one)
        assert edit(one) is None and retained(one) == 0
        feed(one, (12,))
        one.done(f"ALTER QUERY q SET (plan '{plan}')")
        assert change(one) == "another plan takes over from q with 4 more rows of S"
        feed(one, range(13, 20))
        stored, query = one.control.query("q")
        assert edit(one) is None and query.answer.plan == stored.wished_plan != "none"
        assert "PLAN OF q: ITS ROWS HAVE COME" in texts(one) and "PLAN OF q: TAKES OVER" in texts(one)
        assert shown(one) == {ts: FOUR[ts] if ts > 3 else sum(range(1, ts + 1)) for ts in range(1, 19)}


def test_a_plan_that_waits_is_paused_exchanged_and_replaced(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        one.done(FORGOTTEN + f"CREATE QUERY q AS {LAST}; CREATE QUERY p AS {LAST}")
        feed(one, range(1, 11))
        one.done(f"ALTER QUERY q SET (plan '{own_plan(one)}')")
        assert edit(one).waits
        one.done("ALTER QUERY q SWAP WITH p")
        settle(one)
        # The plan belongs to what is computed, and waits for rows from here on.
        assert edit(one) is None and one.control.query("p")[1].beside.waits
        one.done(f"ALTER QUERY p AS {SUM} START WARM WAIT")
        assert one.control.query("p")[1].beside.definition is not None
        one.done("ALTER QUERY p PAUSE")
        settle(one)
        assert one.control.query("p")[1].beside is None and retained(one) == 0
        feed(one, range(11, 20))
        assert shown(one)[18] == FOUR[18]


def test_a_former_query_that_has_waited_too(tmp_path: Path) -> None:
    """Its streams keep no more for it once another one has taken its place."""
    with server(tmp_path) as one:
        one.done(FORGOTTEN)
        feed(one, range(1, 5))
        one.done(f"CREATE QUERY q START WARM WAIT AS {LAST}")
        feed(one, range(5, 8))
        # Steps are taken where the test says so: the next one lets it begin, that which lets its stream go is late.
        looks, one.control._applier.on_plans = one.control._applier.on_plans, lambda: None
        one.done("INSERT INTO S VALUES (8, 8)")
        one.engine.round()
        look(one)
        assert one.control.query("q")[1].answer.keeps and not one.control.query("q")[1].answer.waits
        one.done("ALTER QUERY q AS SELECT SUM(v) AS s FROM S [ROWS 2] START WARM WAIT")
        look(one)
        query = one.control.query("q")[1]
        assert "ROWS 2" in text(one) and (query.answer.keeps, query.answer.waits) == (False, False)
        one.control._applier.on_plans = looks
        feed(one, range(9, 15))
        assert edit(one) is None and retained(one) == 0 and shown(one)[13] == 25


# -- crashes -------------------------------------------------------------------------------------------------------


def posted(number: int, *ticks: int) -> Step:
    """Post rows, answer, and take the steps that are due."""
    post = rows(number, *ticks)

    def step(system: Server) -> None:
        post(system)
        system.engine.round()
        settle(system)

    return step


#: While a change waits its query is renamed, is silent and is shown again; another change takes its place.
WAITING_LIFE: tuple[Step, ...] = (
    command(FORGOTTEN),
    command(f"CREATE QUERY q AS {SUM}"),
    posted(1, 1, 2, 3, 4, 5, 6),
    command(CHANGE),
    posted(2, 7),
    command(CHANGE.replace("ROWS 4", "ROWS 5")),
    command("ALTER QUERY q RENAME TO p"),
    posted(3, 8),
    command("ALTER QUERY p PAUSE WITH STATE"),
    posted(4, 9),
    command("ALTER QUERY p RESUME"),
    posted(5, 10),
    posted(6, 11),
    posted(7, 12),
    posted(8, 13, 14),
    posted(9, 15),
)


def test_power_that_goes_while_a_change_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told is what is told without that, each step is taken once, and the stream is let go."""
    monkeypatch.setattr(applying, "CATALOG_EVERY", 4)
    expected: list[object] = []
    number, cuts, was_cut = UNCUT, 0, True
    while was_cut or not cuts:
        system, was_cut = cut_life(tmp_path / str(number), number, LOSSES[number % len(LOSSES)], WAITING_LIFE)
        settle(system)
        found = [text(system, "p"), edit(system, "p"), retained(system), system.answers("p"), texts_of_log(system)]
        with suppress(PowerLost):
            system.control.close()
        if number == UNCUT:
            expected = found
            assert found[:3] == [LAST.replace("ROWS 4", "ROWS 5"), None, 0]
            was_cut, number = True, 5
            continue
        assert found[:4] == expected[:4], f"power went at call {number}"
        assert [each for each in found[4] if ":" in each] == [each for each in expected[4] if ":" in each]
        number, cuts = number + 23, cuts + was_cut
    assert cuts > 8


@pytest.mark.parametrize("step", ["ALTER", "ROWS", "TAKES OVER"])
@pytest.mark.parametrize("point", ["bound", "accepted", "applied", "running"])
def test_a_crash_at_each_point_of_a_step(tmp_path: Path, step: str, point: str) -> None:
    """Of the command, of the one with which its rows have come, and of that with which it takes over: power goes before
    the log has it, before the engine goes over, after it has, and when all is done."""
    engine = CrashingEngine(tmp_path / "engine", after=point == "applied")
    one = Server(tmp_path, engine)
    # The steps are taken when the test says so, and not half a second after a change too.
    one.control._applier.on_plans = lambda: None
    one.done(FORGOTTEN + f"CREATE QUERY q AS {SUM}")
    feed(one, range(1, 11))
    if step != "ALTER":
        one.done(CHANGE)
        feed(one, range(11, 14))
        one.done("INSERT INTO S VALUES (14, 14)")
        one.engine.round()
        assert edit(one).waits
    if step == "TAKES OVER":
        look(one)
        assert not edit(one).waits and edit(one).until is None

    def take() -> None:
        if step == "ALTER":
            one.done(CHANGE, key="k")
        else:
            look(one)

    if point == "bound":
        with replaced_storage(LocalStorage(FailingCalls("write", 1))), suppress(PenstockError, OSError):
            take()
    elif point == "running":
        take()
    else:
        engine.armed = True
        with suppress(PowerLost, PenstockError):
            take()
        assert one.control.failure is not None
    one.control.close()
    with server(tmp_path) as again:
        if step == "ALTER":
            assert (edit(again) is None) == (point == "bound")
            again.run(CHANGE, key="k")
            assert edit(again).waits and retained(again) == EVER
            feed(again, range(11, 15))
        settle(again)
        assert not edit(again).waits if edit(again) is not None else True
        feed(again, range(15, 20))
        assert (text(again), edit(again), retained(again)) == (LAST, None, 0)
        assert shown(again) == {ts: (TWO if ts < 14 else FOUR)[ts] for ts in range(1, 19)}
        assert Counter(texts_of_log(again))["QUERY q: ITS ROWS HAVE COME"] == 1


def look(one: Server) -> None:
    """Have the control take the steps that are due, once."""
    one.control._look()
    one.run("")
