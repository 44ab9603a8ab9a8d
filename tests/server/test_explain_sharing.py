"""EXPLAIN SHARING: which steps queries have in common, which nearly and why not, and what that saves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import ServerClient, connect
from penstock.server.roles import AccessRole
from tests.server.running import Running
from tests.server.test_live_service import ended, started

SCRIPT = """CREATE STREAM readings (at INT, room INT, celsius INT) FROM HTTP ()
  TIMESTAMP BY at UNIT SECOND RETAIN 99 SECONDS;
CREATE RELATION rooms (at INT, room INT, floor INT, PRIMARY KEY (room)) FROM HTTP () TIMESTAMP BY at UNIT SECOND;
"""
JOIN = """SELECT r.room, r.celsius, rooms.floor FROM readings [RANGE {} SECONDS] r, rooms
          WHERE r.room = rooms.room AND r.celsius > {}"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[tuple[ServerClient, Running]]:
    running = started(tmp_path, SCRIPT)
    with connect(running.url, running.texts[AccessRole.CONTROL]) as one:
        yield one, running
    ended(running)


def told(client: ServerClient, query: str) -> str:
    (reply,) = client.execute(f"EXPLAIN SHARING {query}")
    return reply.text or ""


def document(running: Running, query: str) -> dict[str, Any]:
    with running.client(AccessRole.READ) as http:
        found: dict[str, Any] = http.get(f"/v1/queries/{query}/plan", params={"format": "sharing"}).json()
        return found


def kinds(steps: list[dict[str, Any]]) -> set[str]:
    return {step["kind"] for step in steps}


def begin(live: ServerClient) -> None:
    live.execute(f"CREATE QUERY one AS {JOIN.format(10, 3)}; CREATE QUERY two AS {JOIN.format(20, 3)};")
    live.execute(f"CREATE QUERY other AS {JOIN.format(10, 5)};")
    live.insert("rooms", [{"at": 1, "room": 1, "floor": 7}])
    live.insert("readings", [{"at": at, "room": 1, "celsius": at} for at in range(1, 30)])
    live.insert("rooms", [{"at": 40, "room": 1, "floor": 8}])
    next(iter(live.subscribe("one", beginning=True)))
    # Measuring has its share of the time: it may be due some rounds later.
    for at in range(41, 241):
        sizes = live.select("SELECT state_bytes FROM penstock.operators WHERE kind = 'WindowStore'").to_arrow()
        own = live.select("SELECT own_bytes FROM penstock.queries").to_arrow()
        if all((*sizes.column("state_bytes").to_pylist(), *own.column("own_bytes").to_pylist())):
            break
        live.insert("rooms", [{"at": at, "room": 1, "floor": 8}])
        time.sleep(0.05)


def test_what_queries_share_and_nearly_share(client: tuple[ServerClient, Running]) -> None:
    live, running = client
    begin(live)
    found = document(running, "two")
    assert found["registered"] and kinds(found["shared"]) >= {"Scan", "Filter", "Updates", "WindowStore"}
    (store,) = (step for step in found["shared"] if step["kind"] == "WindowStore")
    assert store["queries"] == ["one"] and store["state_bytes"] > 0
    assert found["saved_bytes"] == sum(step["state_bytes"] or 0 for step in found["shared"])
    (join,) = (step for step in found["near"] if step["kind"] == "Join")
    assert join["why"] == "window 20 ticks here, 10 ticks there"
    (store,) = (step for step in document(running, "other")["near"] if step["kind"] == "WindowStore")
    assert store["why"] == "predicate celsius > 5 here, celsius > 3 there"
    text = told(live, "QUERY two")
    assert text.startswith("shared:\n  Scan (stage 0; source: readings") and "\nnearly the same:\n" in text
    assert f"saved by sharing: {found['saved_bytes']} bytes of state" in text


def test_what_is_equal_and_not_merged(client: tuple[ServerClient, Running]) -> None:
    live, running = client
    begin(live)
    for name in ("first", "second"):
        rooms = "SELECT DISTINCT room FROM readings [RANGE 10 SECONDS]"
        live.execute(f"CREATE QUERY {name} AS SELECT COUNT(*) AS n FROM ({rooms}) d")
    equal = {step["kind"]: step for step in document(running, "second")["equal"]}
    distinct = equal["Distinct"]
    assert distinct["queries"] == ["first"] and distinct["why"] == "what it emits depends on more than its live rows"


def test_a_query_that_is_not_registered_is_told_what_it_would_share(client: tuple[ServerClient, Running]) -> None:
    live, _ = client
    begin(live)
    text = told(live, JOIN.format(10, 3))
    assert text.startswith("would be shared:\n") and "WindowStore" in text.partition("steps like")[0]
    assert "nearly the same:" not in text
    text = told(live, JOIN.format(15, 3))
    assert "WindowStore" in text.partition("nearly")[0] and "window 15 ticks here, 10 ticks there" in text
    assert told(live, "SELECT at FROM readings [ROWS 3]").count("\n") >= 1


def test_a_window_that_slides_is_told_which_panes_it_would_read(client: tuple[ServerClient, Running]) -> None:
    live, _ = client
    begin(live)
    text = "RSTREAM(SELECT room, SUM(celsius) AS s FROM readings [RANGE {} SECONDS SLIDE {} SECONDS] GROUP BY room)"
    live.execute(f"CREATE QUERY sums AS {text.format(6, 2)};")
    assert "PaneStore" in told(live, text.format(12, 4)).partition("nearly")[0]
    found = told(live, text.format(9, 3)).partition("nearly the same:\n")[2]
    assert "PaneStore" in found and "slide 3 ticks here, 2 ticks there" in found, found


def test_bytes_of_shared_operators_are_divided_by_their_queries(client: tuple[ServerClient, Running]) -> None:
    live, running = client
    begin(live)
    columns = "name, state_bytes, own_bytes, shared_bytes"
    rows = live.select(f"SELECT {columns} FROM penstock.queries ").to_arrow().sort_by("name").to_pylist()
    assert [row["name"] for row in rows] == ["one", "other", "two"]
    for row in rows:
        assert row["own_bytes"] > 0 and row["own_bytes"] + row["shared_bytes"] < row["state_bytes"], row
    found = document(running, "two")["shared"]
    expected = sum((step["state_bytes"] or 0) / (1 + len(step["queries"])) for step in found)
    assert rows[2]["shared_bytes"] == round(expected)


def test_own_and_shared_bytes_of_all_queries_are_those_of_all_operators(client: tuple[ServerClient, Running]) -> None:
    live, _ = client
    begin(live)
    # Sizes are measured now and then: all three are of one moment only if nothing has been measured between.
    for _ in range(20):
        before = live.select("SELECT bytes FROM penstock.synopses").to_arrow().column("bytes").to_pylist()
        operators = live.select("SELECT queries, state_bytes FROM penstock.operators").to_arrow().to_pylist()
        queries = live.select("SELECT own_bytes, shared_bytes FROM penstock.queries").to_arrow().to_pylist()
        after = live.select("SELECT bytes FROM penstock.synopses").to_arrow().column("bytes").to_pylist()
        if before == after:
            break
        time.sleep(0.2)
    total = sum(after)
    assert before == after and total > 0
    assert sum(one["state_bytes"] or 0 for one in operators) == total
    # The parts of a query are rounded once.
    assert abs(sum(one["own_bytes"] + one["shared_bytes"] for one in queries) - total) <= len(queries) / 2
    assert sum(one["state_bytes"] or 0 for one in operators if one["queries"] == 1) == sum(
        one["own_bytes"] for one in queries
    )
