"""CREATE and DROP SUMMARY at a server: applied while it runs, kept over a restart, refused where it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from control_kit import STREAM, Server, server

from penstock.errors import ScriptErrors

SUMMARY = "CREATE SUMMARY often ON S (v) WITH GRANULARITY 5 SECONDS USING EXACT;"
QUERY = """CREATE QUERY q AS SELECT v FROM S [RANGE 100 SECONDS]
  WITH PREFERENCE DESC often.Estimate.Count(v) BUDGET 1 PER TUPLE;"""
ROWS = "INSERT INTO S VALUES (1, 7), (2, 7), (3, 8), (4, 9);"


def refused(system: Server, script: str) -> str:
    with pytest.raises(ScriptErrors) as caught:
        system.run(script)
    return str(caught.value)


def test_a_summary_is_declared_while_the_server_runs_and_read_by_a_query(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM)
        assert "P0350" in refused(system, QUERY.replace("often", "SUMMARY")), "there is none yet"
        assert system.states(SUMMARY) == ["COMPLETED"]
        assert "P0206" in refused(system, SUMMARY)
        assert system.states(QUERY) == ["RUNNING"]
        system.done(ROWS)
        system.engine.round()
        assert [row["v"] for row in system.answers("q")] == [7, 7, 8]


def test_a_restart_keeps_it_and_the_query_that_reads_it(tmp_path: Path) -> None:
    system = Server(tmp_path)
    system.done(STREAM + SUMMARY + QUERY)
    before = system.control.catalog.queries["q"].root
    system.control.close()
    again = Server(tmp_path)
    assert again.control.catalog.queries["q"].root.fingerprint == before.fingerprint
    assert again.status("q") == "RUNNING"
    again.done(ROWS)
    again.engine.round()
    assert [row["v"] for row in again.answers("q")] == [7, 7, 8]
    assert "P0206" in refused(again, SUMMARY)
    again.control.close()


def test_a_summary_that_a_query_reads_is_not_dropped(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM + SUMMARY + QUERY)
        for script in ("DROP SUMMARY often;", "DROP STREAM S;"):
            said = refused(system, script)
            assert "hint" in said and "q" in said
        assert system.status("q") == "RUNNING"
        system.done("DROP QUERY q; DROP SUMMARY often;")
        assert "P0201" in refused(system, "DROP SUMMARY often;")
        system.done("DROP SUMMARY IF EXISTS often;")
        system.done(SUMMARY + QUERY)
        system.done("DROP SUMMARY often CASCADE;")
        assert "q" not in system.control.catalog.queries
