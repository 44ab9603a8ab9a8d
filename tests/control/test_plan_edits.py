"""Plans that are edited while they run, without Spark: what is set, when the new plan takes over, what is refused."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from control_kit import Server, server

from penstock.control.entities.relations import BY_NAME
from penstock.errors import PenstockError, ScriptErrors

STREAMS = "".join(
    f"CREATE STREAM {name} (ts INT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND{{retain}};" for name in "ABC"
)
KEPT, FORGOTTEN = STREAMS.format(retain=" RETAIN 100 SECONDS"), STREAMS.format(retain="")
PAIRS = """CREATE QUERY q AS SELECT A.v AS a, B.v AS b FROM A [RANGE 6 SECONDS], B [RANGE 6 SECONDS] WHERE A.k = B.k;"""
THREE = """CREATE QUERY q AS SELECT A.v AS a, B.v AS b, C.v AS c
  FROM A [RANGE 6 SECONDS], B [RANGE 6 SECONDS], C [RANGE 6 SECONDS] WHERE A.k = B.k AND B.k = C.k;"""
SUMS = "CREATE QUERY {name} AS SELECT k, SUM(v) AS s FROM A [RANGE 6 SECONDS] GROUP BY k;"


def rows(one: Server, relation: str) -> list[dict[str, Any]]:
    return BY_NAME[f"penstock.{relation}"].table(one.control.view()).to_pylist()


def edit(one: Server, name: str = "q") -> Any:
    return one.control.query(name)[1].edit


def wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until, "it does not happen"
        time.sleep(0.01)


def feed(one: Server, ticks: range, names: str = "ABC") -> None:
    """Post rows at some ticks, and run a round for each."""
    for ts in ticks:
        one.done("".join(f"INSERT INTO {name} VALUES ({ts}, {ts % 3}, {ts * 10 + i});" for i, name in enumerate(names)))
        one.engine.round()


def settle(one: Server, ts: int, names: str = "ABC") -> int:
    """Feed until no change of a plan is left; return the next tick."""
    for _ in range(40):
        if edit(one) is None:
            return ts
        feed(one, range(ts, ts + 1), names)
        ts += 1
        time.sleep(0.05)
    raise AssertionError("the change does not end")


def content(answers: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in answers)


def unedited(tmp_path: Path, script: str, ticks: range, names: str = "ABC") -> list[tuple[Any, ...]]:
    with server(tmp_path / "unedited") as one:
        one.done(script)
        feed(one, ticks, names)
        return content(one.answers("q"))


def synopsis(one: Server, kind: str) -> dict[str, Any]:
    return next(row for row in rows(one, "synopses") if row["possible"] and row["kind"] == kind)


# -- what takes over -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [KEPT, FORGOTTEN], ids=["kept", "forgotten"])
def test_another_kind_of_synopsis_takes_over_and_no_answer_changes(tmp_path: Path, streams: str) -> None:
    with server(tmp_path) as one:
        one.done(streams + PAIRS)
        feed(one, range(1, 9))
        found = synopsis(one, "HashJoinIndex")
        one.done(f"UPDATE penstock.synopses SET kind = 'runs' WHERE id = '{found['id']}'")
        if streams is FORGOTTEN:
            assert edit(one) is not None and edit(one).until is None
            feed(one, range(9, 12))
            # What has gone counts in the windows still.
            assert edit(one).until is None and synopsis(one, "HashJoinIndex")
        ts = settle(one, 12 if streams is FORGOTTEN else 9)
        feed(one, range(ts, ts + 3))
        assert {row["kind"] for row in rows(one, "synopses") if row["chosen"]} == {"SortedRuns"}
        assert content(one.answers("q")) == unedited(tmp_path, streams + PAIRS, range(1, ts + 3))
        texts = [row["text"] for row in rows(one, "commands")]
        assert "PLAN OF q: TAKES OVER" in texts and "PLAN OF q: FORMER PLAN ENDS" in texts


def test_a_choice_survives_a_restart_a_new_name_and_another_choice_and_is_taken_back(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        one.done(KEPT + THREE)
        feed(one, range(1, 5))
        join = next(row for row in rows(one, "operators") if row["join_order"])
        assert join["chosen"] is None
        one.done(f"UPDATE penstock.operators SET join_order = 'c, b, a' WHERE id = '{join['id']}'")
        ts = settle(one, 5)
    with server(tmp_path) as one:
        one.done("ALTER QUERY q RENAME TO other")
        (join,) = [row for row in rows(one, "operators") if row["join_order"]]
        assert (join["join_order"], join["chosen"]) == ("C, B, A", "join_order")
        one.done(f"UPDATE penstock.operators SET shared = false WHERE id = '{join['id']}'")
        one.done("ALTER QUERY other RENAME TO q")
        ts = settle(one, ts)
        (join,) = [row for row in rows(one, "operators") if row["join_order"]]
        assert (join["join_order"], join["shared"], join["chosen"]) == ("C, B, A", False, "join_order, shared")
        one.done(f"UPDATE penstock.operators SET join_order = NULL, shared = NULL WHERE id = '{join['id']}'")
        ts = settle(one, ts)
        (join,) = [row for row in rows(one, "operators") if row["join_order"]]
        assert join["chosen"] is None and join["shared"]
        assert content(one.answers("q")) == unedited(tmp_path, KEPT + THREE, range(1, ts))
