"""Relations whose results go on, with the engine on Spark: after a pause, with another query, in another place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inline_engine import InlineServer, without_spark

__all__ = ["without_spark"]

STREAM = "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS;"
Rows = list[tuple[Any, ...]]


@pytest.fixture
def server(tmp_path: Path, without_spark: None) -> Iterator[InlineServer]:
    made = InlineServer(tmp_path / "checkpoint")
    made.post(STREAM)
    yield made
    made.close()


def content(events: Rows, tick: int) -> Counter[Any]:
    rows: Counter[Any] = Counter()
    for ts, op, *row in events:
        if ts <= tick:
            rows[tuple(row)] += 1 if op == "+" else -1
    assert all(count >= 0 for count in rows.values()), rows
    return +rows


def test_a_silent_relation_is_shown_again(server: InlineServer) -> None:
    server.post("CREATE QUERY q AS SELECT SUM(v) AS s FROM S [RANGE 3 SECONDS];")
    server.insert("S", [(tick, tick) for tick in range(1, 5)])
    before = server.emitted("q")
    assert content(before, 3) == {(6,): 1}
    assert server.post("ALTER QUERY q PAUSE WITH STATE;") == ["RUNNING"]
    server.insert("S", [(5, 5), (6, 6)])
    server.insert("S", [(7, 7)])
    assert server.emitted("q") == before
    server.restart()
    server.post("ALTER QUERY q RESUME;")
    server.insert("S", [(8, 8), (9, 9)])
    assert server.emitted("q")[len(before) :][:2] == [(6, "-", 6), (6, "+", 15)]
    assert content(server.emitted("q"), 8) == {(21,): 1}


@pytest.mark.parametrize("start", ["NOW", "WARM", "BEGINNING", "AT 7", "AT 2"])
def test_a_paused_relation_goes_on_with_the_net_difference(server: InlineServer, start: str) -> None:
    server.post("CREATE QUERY q AS SELECT v % 3 AS k, COUNT(*) AS n FROM S [RANGE 4 SECONDS] GROUP BY v % 3;")
    server.insert("S", [(tick, tick) for tick in range(1, 6)])
    before = server.emitted("q")
    # At 4 the window has 1, 2, 3 and 4.
    assert content(before, 4) == {(0, 1): 1, (1, 2): 1, (2, 1): 1}
    server.post("ALTER QUERY q PAUSE;")
    server.insert("S", [(6, 6), (7, 6), (8, 8), (9, 9)])
    assert server.emitted("q") == before
    server.restart()
    server.post(f"ALTER QUERY q RESUME START {start};")
    server.insert("S", [(10, 10), (11, 12)])
    events = server.emitted("q")
    first = {"NOW": 8, "WARM": 8, "BEGINNING": 5, "AT 7": 7, "AT 2": 5}[start]
    after = events[len(before) :]
    assert after and min(ts for ts, *_ in after) == first
    at = Counter(event for event in after if event[0] == first)
    assert not at & Counter((ts, "-" if op == "+" else "+", *row) for ts, op, *row in at.elements())
    if start == "NOW":
        assert content(events, 8) == {} and content(events, 10) == {(1, 1): 1}
        return
    # 5, 6, 6 and 8; then 8, 9, 10 and the 6 of 7.
    assert content(events, 8) == {(2, 2): 1, (0, 2): 1}
    assert content(events, 10) == {(0, 2): 1, (2, 1): 1, (1, 1): 1}
