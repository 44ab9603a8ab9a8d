"""A start with a query that an internal error keeps from being bound, planned or applied: it is left out and needs
attention, the others go on, and it can be begun again, mended or dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from control_kit import STREAM, Server, server
from injected_faults import logged

from penstock.control import registry
from penstock.control.live.repair import pause_queries
from penstock.control.transactions import applying, merging
from penstock.errors import PenstockError
from penstock.physical.planning import planner

ODD = "CREATE QUERY odd AS SELECT SUM(v) AS odd FROM S [RANGE 5 SECONDS];"
EVEN = "CREATE QUERY even AS SELECT MAX(v) AS m FROM S [RANGE 5 SECONDS];"
ROWS = "INSERT INTO S VALUES (1, 1), (2, 2), (3, 3);"
MORE = "INSERT INTO S VALUES (4, 9), (5, 5);"

Break = Callable[[pytest.MonkeyPatch], None]


def planning(patch: pytest.MonkeyPatch) -> None:
    """The odd query cannot be planned."""
    lower = planner._lower_query

    def broken(builder: Any, query: Any) -> None:
        if "odd" in query.output_names:
            raise StopIteration
        lower(builder, query)

    patch.setattr(planner, "_lower_query", broken)


def binding(patch: pytest.MonkeyPatch) -> None:
    """The odd query cannot be bound."""
    bind = registry.declared

    def broken(one: Any, *rest: Any, **options: Any) -> Any:
        if one.name == "odd":
            raise KeyError("odd")
        return bind(one, *rest, **options)

    patch.setattr(registry, "declared", broken)
    patch.setattr(merging, "declared", broken)


def beginning(patch: pytest.MonkeyPatch) -> None:
    """The engine does not go over to a version in which the odd query runs, for a reason that it finds out late."""
    next_ = applying.Versions.next

    def broken(self: Any, *rest: Any, **options: Any) -> Any:
        version = next_(self, *rest, **options)
        if any(
            one.query is not None and "odd" in one.query.output_names and one.activity.value == "RUNNING"
            for one in version.queries.values()
        ):
            raise ZeroDivisionError("division by zero")
        return version

    patch.setattr(applying.Versions, "next", broken)


BREAKS = [planning, binding, beginning]


def even_answers(folder: Path) -> list[dict[str, Any]]:
    """What the other query answers, without anything odd."""
    with server(folder) as system:
        system.done(STREAM + EVEN + ROWS)
        system.engine.round()
        system.done(MORE)
        system.engine.round()
        return system.answers("even")


@pytest.mark.parametrize("break_", BREAKS)
@pytest.mark.parametrize(
    "way", ["ALTER QUERY odd RESUME;", "ALTER QUERY odd AS SELECT SUM(v) + 1 AS odd FROM S;", "DROP"]
)
def test_a_query_that_a_start_cannot_have_needs_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, break_: Break, way: str
) -> None:
    with server(tmp_path) as system:
        system.done(STREAM + ODD + EVEN + ROWS)
        system.engine.round()
    with monkeypatch.context() as broken:
        break_(broken)
        messages = set()
        for _ in range(2):
            with logged() as log, server(tmp_path) as system:
                assert (system.status("odd"), system.status("even")) == ("NEEDS ATTENTION", "RUNNING")
                query = system.control.query("odd")[1]
                assert query.code == "P0601" and "Traceback" not in query.message
                messages.add(query.message)
                assert log.has(query.message) or len(log.texts) == 0
        assert len(messages) == 1, "it is noted once"
        with server(tmp_path) as system:
            count = len(system.control.commands())
            if way == "DROP":
                system.done("DROP QUERY odd;")
            elif break_ is binding and "AS" in way:
                # It is another text.
                system.done(way)
                assert system.status("odd") == "RUNNING"
            else:
                assert tried(system, way) == "P0601"
                assert system.status("odd") == "NEEDS ATTENTION"
            assert len(system.control.commands()) <= count + 1
            system.done(MORE)
            system.engine.round()
            assert system.answers("even") == even_answers(tmp_path / "alone")
    with server(tmp_path) as system:
        if way != "DROP":
            if system.status("odd") == "NEEDS ATTENTION":
                system.done(way)
            assert system.status("odd") == "RUNNING"
            system.done("INSERT INTO S VALUES (9, 9), (10, 10);")
            system.engine.round()
            assert system.answers("odd")


def tried(system: Server, script: str) -> str:
    """Return the code with which a command fails, when it is accepted or later."""
    try:
        (one,) = system.run(script)
    except PenstockError as error:
        return error.code if error.code == "P0601" or "internal error" not in error.message else "P0601"
    assert one.outcome is not None
    return one.outcome.code


@pytest.mark.parametrize("break_", [planning, beginning])
def test_a_command_that_cannot_be_applied_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, break_: Break
) -> None:
    with server(tmp_path) as system:
        system.done(STREAM)
        with monkeypatch.context() as broken, logged() as log:
            break_(broken)
            outcomes = [one.outcome for one in system.run(f"{ODD}{EVEN}")]
            assert [one is not None and one.code for one in outcomes] == ["P0601", "P0601"], "it is one transaction"
            assert all(one is not None and log.has(one.message) for one in outcomes)
            system.done(EVEN + ROWS)
            system.engine.round()
            assert system.answers("even")
            for _ in range(2):
                assert tried(system, ODD) == "P0601"
        system.done(ODD)
    with server(tmp_path) as system:
        assert (system.status("odd"), system.status("even")) == ("RUNNING", "RUNNING")


@pytest.mark.parametrize("break_", BREAKS)
def test_what_was_accepted_before_a_start_fails_alone_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, break_: Break
) -> None:
    """A program that ended with the command has left it in the log."""
    system = Server(tmp_path)
    system.done(STREAM + EVEN)
    with monkeypatch.context() as ending:
        ending.setattr(applying.Applier, "_apply", lambda *rest: (_ for _ in ()).throw(applying.ControlEnds("gone")))
        for script in (ODD, "CREATE QUERY third AS SELECT v FROM S;"):
            with pytest.raises(PenstockError):
                system.run(script)
            system.control.close()
            if script is ODD:
                continue
    with monkeypatch.context() as broken:
        break_(broken)
        with server(tmp_path) as again:
            found = {text.split()[2]: one for _, text, one in again.control.commands()}
            assert (found["odd"].state.value, found["odd"].code) == ("FAILED", "P0601")
            assert again.status("even") == "RUNNING"
            again.done(ROWS)
            again.engine.round()
            assert again.answers("even")


def test_rows_that_cannot_be_evaluated_when_the_rest_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement fails alone; what it stood with in a transaction is not undone, also not by a start."""
    with server(tmp_path) as system:
        system.done(STREAM)
        with monkeypatch.context() as broken:
            broken.setattr(applying, "post_rows", lambda *rest: 1 // 0)
            outcomes = [one.outcome for one in system.run(f"BEGIN; {EVEN} {ROWS} COMMIT;") if one.outcome is not None]
        assert [(one.state.value, one.code) for one in outcomes] == [("RUNNING", ""), ("FAILED", "P0601")]
    with server(tmp_path) as system:
        assert system.status("even") == "RUNNING"
        assert pause_states(system) == ["COMPLETED", "RUNNING", "FAILED"]
        system.engine.round()
        assert not system.answers("even")
        system.done(ROWS)
        system.engine.round()
        assert system.answers("even")
    assert pause_queries(tmp_path, ["even"]) == [("even", "RUNNING")]


def pause_states(system: Server) -> list[str]:
    return [one.state.value for _, _, one in system.control.commands()]
