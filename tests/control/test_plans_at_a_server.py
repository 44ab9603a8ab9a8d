"""Queries made of plans as data at a live system: they are kept as text, and begin again after a restart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from control_kit import STREAM, Server, server

from penstock.control.drafting.catalog_text import catalog_text
from penstock.control.entities.running_plan import running_plan_document
from penstock.errors import ScriptErrors
from penstock.language.commands import ExportCommand
from penstock.language.printer import string_text

GROUPS = "SELECT v % 2 AS odd, SUM(v) AS s FROM S [RANGE 5 SECONDS] WHERE v > 0 GROUP BY v % 2"


def _exported(system: Server, name: str) -> str:
    (outcome,) = system.run(f"EXPORT PLAN OF {name};")
    assert isinstance(outcome.command, ExportCommand)
    return running_plan_document(system.control.view(), outcome.command.query, outcome.command.logical)


def test_a_query_made_of_an_exported_plan_answers_as_the_query_and_stays_after_a_restart(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(f"{STREAM} CREATE QUERY q AS {GROUPS};")
        text = _exported(system, "q")
        system.done(f"CREATE QUERY p FROM PLAN {string_text(text)};")
        system.done("INSERT INTO S VALUES (1, 2), (2, 3), (9, 5);")
        system.engine.round()
        assert system.answers("p") == system.answers("q") != []
    with server(tmp_path) as system:
        assert system.status("p") == "RUNNING"
        system.done("INSERT INTO S VALUES (11, 7), (30, 1);")
        system.engine.round()
        assert system.answers("p") == system.answers("q")
        again = json.loads(_exported(system, "p"))
        assert again["logical"] == json.loads(text)["logical"]
        assert [one["name"] for one in again["queries"]] == ["p"]


def test_the_steps_of_a_document_are_those_that_run(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(f"{STREAM} CREATE QUERY q AS {GROUPS};")
        document = json.loads(_exported(system, "q"))
        numbers = {step["id"] for step in document["physical"]}
        assert all(edge["step"] in numbers for step in document["physical"] for edge in step["inputs"])
        keys = {step["key"] for step in document["physical"]}
        assert keys == set(system.control.view().figures.run.keys.values())
        system.done("ALTER QUERY q PAUSE;")
        assert json.loads(_exported(system, "q"))["physical"] == []


def test_an_edited_plan_takes_the_place_of_the_query(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(f"{STREAM} CREATE QUERY q AS {GROUPS}; CREATE QUERY w AS {GROUPS.replace('v > 0', 'v > 2')};")
        system.done("INSERT INTO S VALUES (1, 2), (2, 3), (3, 5);")
        system.engine.round()
        text = _exported(system, "q")
        edited = text.replace("`v` > 0", "`v` > 2")
        assert edited != text
        system.done(f"ALTER QUERY q FROM PLAN {string_text(edited)} START WARM;")
        system.done("INSERT INTO S VALUES (4, 7), (30, 1);")
        system.engine.round()
        last = [row for row in system.answers("q") if row["ts"] >= 4]
        assert [row for row in last if row["op"] == "+"] == [
            row for row in system.answers("w") if row["ts"] >= 4 and row["op"] == "+"
        ]
        outcomes = system.run(f"CREATE OR REPLACE QUERY q FROM PLAN {string_text(edited)};")
        assert [outcome.outcome for outcome in outcomes] == [None], "an equal query changes nothing"


def test_a_stream_that_a_plan_reads_stays(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(f"{STREAM} CREATE QUERY q AS {GROUPS};")
        system.done(f"CREATE QUERY p FROM PLAN {string_text(_exported(system, 'q'))}; DROP QUERY q;")
        with pytest.raises(ScriptErrors, match="P0222"):
            system.run("DROP STREAM S;")
        with pytest.raises(ScriptErrors, match="P0106"):
            system.run("ALTER QUERY p FROM PLAN '{}';")
        assert system.status("p") == "RUNNING"


def test_a_whole_catalog_contains_plans(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(f"{STREAM} CREATE QUERY q AS {GROUPS};")
        plan = string_text(_exported(system, "q"))
        system.done(f"CREATE QUERY p FROM PLAN {plan}; CREATE VIEW v AS FROM PLAN {plan};")
        text = catalog_text(list(system.control.stored.values()), {})
    with server(tmp_path / "other") as system:
        system.done(text)
        assert system.status("p") == "RUNNING"
        queries, views = system.control.catalog.queries, system.control.catalog.views
        assert queries["p"].root == queries["q"].root == views["v"].root
