"""Relations without timestamps take rows at any time: a query keeps what it has read until it begins anew."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
from control_kit import STREAM, Server, server

from penstock.control.engine import EngineVersion, NextVersion, Preparation
from penstock.control.entities.relations import BY_NAME
from penstock.control.outcomes import CommandState
from penstock.engines.in_process import InProcessEngine
from penstock.errors import PenstockError

ROOMS = "CREATE RELATION R (v INT, name STRING) FROM MEMORY (); CREATE VIEW w AS SELECT * FROM R;"


def named(query: str) -> str:
    return f"CREATE QUERY {query} AS SELECT name FROM S [NOW], w WHERE S.v = w.v;"


def rows(v: int, name: str) -> pa.Table:
    return pa.table({"v": pa.array([v], pa.int32()), "name": [name]})


def told(system: Server, query: str) -> list[str]:
    return [row["name"] for row in system.answers(query) if row["op"] == "+"]


def step(system: Server, ts: int) -> None:
    """Ask for the names of 1 to 3, and end the instant."""
    system.done(f"INSERT INTO S VALUES ({ts}, 1), ({ts}, 2), ({ts}, 3), ({ts + 1}, 0);")
    system.engine.round()


def test_what_begins_later_reads_what_was_posted_by_then(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(f"{STREAM} {ROOMS} INSERT INTO R VALUES (1, 'one'); {named('a')}")
        assert system.control.readers_before("R") == []
        step(system, 1)
        system.done("INSERT INTO R VALUES (2, 'two');")
        assert system.control.readers_before("r") == ["a"]
        system.done(named("b"))
        assert system.control.insert("R", rows(3, "three"))
        assert sorted(system.control.readers_before("R")) == ["a", "b"]
        system.done(named("c"))
        step(system, 10)
        expected = {"a": ["one", "one"], "b": ["one", "two"], "c": ["one", "three", "two"]}
        assert {name: sorted(told(system, name)) for name in "abc"} == expected
    # A restart reads what each has read.
    with server(tmp_path) as system:
        step(system, 20)
        assert sorted(told(system, "a")) == ["one"] * 3
        assert sorted(told(system, "b")) == ["one", "one", "two", "two"]
        assert sorted(told(system, "c")) == ["one", "one", "three", "three", "two", "two"]
        assert sorted(system.control.readers_before("R")) == ["a", "b"]


def test_a_query_that_begins_anew_reads_again(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(f"{STREAM} {ROOMS} INSERT INTO R VALUES (1, 'one'); {named('a')} {named('b')} {named('c')}")
        system.done("INSERT INTO R VALUES (2, 'two'); ALTER QUERY a PAUSE; ALTER QUERY b PAUSE WITH STATE;")
        assert sorted(system.control.readers_before("R")) == ["b", "c"]
        system.done("ALTER QUERY a RESUME; ALTER QUERY b RESUME;")
        system.done("ALTER QUERY c AS SELECT name FROM w, S [NOW] WHERE S.v = w.v;")
        assert system.control.readers_before("R") == ["b"]
        step(system, 1)
        assert [sorted(told(system, name)) for name in "abc"] == [["one", "two"], ["one"], ["one", "two"]]
    with server(tmp_path) as system:
        step(system, 10)
        assert sorted(told(system, "b")) == ["one", "one"]
        system.done(f"DROP QUERY b; {named('b')}")
        assert system.control.readers_before("R") == []


def test_another_plan_of_a_query_reads_what_the_query_has_read(tmp_path: Path) -> None:
    count = "SELECT name, COUNT(*) AS n FROM S [RANGE 3 SECONDS], w WHERE S.v = w.v GROUP BY name"
    with server(tmp_path) as system:
        system.done(f"{STREAM} {ROOMS} INSERT INTO R VALUES (1, 'one'); CREATE QUERY a AS {count};")
        system.done(f"CREATE QUERY b AS {count};")
        step(system, 1)
        system.done("INSERT INTO R VALUES (2, 'two');")
        before, computation = set(told(system, "a")), system.control.query("a")[1].answer.id
        operators = BY_NAME["penstock.operators"].table(system.control.view()).to_pylist()
        key = next(row["plan_key"] for row in operators if row["kind"] == "Aggregate")
        system.done(f"""ALTER QUERY a SET (plan '{json.dumps({key: {"shared": False}})}');""")
        for ts in range(10, 90, 3):
            step(system, ts)
            query = system.control.query("a")[1]
            if query.beside is None and query.answer.id != computation:
                break
            time.sleep(0.05)
        assert query.beside is None and query.answer.id != computation, "the other plan has taken over"
        step(system, 100)
        assert set(told(system, "a")) == before == {"one"}
        assert sorted(system.control.readers_before("R")) == ["a", "b"]


def test_all_of_a_transaction_happens_together(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(f"{STREAM} {ROOMS} INSERT INTO R VALUES (1, 'one'); {named('a')} INSERT INTO R VALUES (2, 'two');")
        step(system, 1)
        assert sorted(told(system, "a")) == ["one", "two"] and system.control.readers_before("R") == []


def test_keys_are_checked_against_what_was_posted(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(f"{STREAM} CREATE RELATION R (v INT, name STRING, PRIMARY KEY (v)) FROM MEMORY ();")
        system.done("INSERT INTO R VALUES (1, 'one'); CREATE QUERY a AS SELECT name FROM S [NOW], R WHERE S.v = R.v;")
        (one,) = system.run("INSERT INTO R VALUES (1, 'uno');")
        assert one.outcome is not None and (one.outcome.state, one.outcome.code) == (CommandState.FAILED, "P0210")
        system.done("INSERT INTO R VALUES (2, 'two');")
        step(system, 1)
        assert told(system, "a") == ["one"]


class Failing(InProcessEngine):
    """Does not go over to versions while it is told so."""

    fails = False

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        if self.fails:
            raise PenstockError("P0601", "no version for now")
        return super().change(version, prepared)


def test_a_query_that_did_not_begin_leaves_nothing(tmp_path: Path) -> None:
    with server(tmp_path, engine=Failing(tmp_path / "engine")) as system:
        assert isinstance(system.engine, Failing)
        system.done(f"{STREAM} {ROOMS} INSERT INTO R VALUES (1, 'one');")
        system.engine.fails = True
        (one,) = system.run(named("a"))
        assert one.outcome is not None and one.outcome.state is CommandState.FAILED
        system.engine.fails = False
        system.done(f"INSERT INTO R VALUES (2, 'two'); {named('b')} {named('a')}")
        step(system, 1)
        assert sorted(told(system, "a")) == sorted(told(system, "b")) == ["one", "two"]


def test_a_relation_that_nobody_reads_takes_rows(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(ROOMS)
        assert system.control.insert("R", rows(7, "seven")) and system.control.readers_before("R") == []
        assert system.control.readers_before("nothing") == [] == system.control.readers_before("w")
