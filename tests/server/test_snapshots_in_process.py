"""Snapshots of a server without Spark: the content that its changes make up to an instant, and what comes after it."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.server.roles import AccessRole
from tests.server.running import Running
from tests.server.test_live_service import ended, started, statement

SCRIPT = """CREATE STREAM s (ts INT, k INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY sums AS SELECT k, SUM(v) AS v FROM s [RANGE 5 SECONDS] GROUP BY k;
CREATE QUERY large AS ISTREAM(SELECT k, v FROM s [NOW] WHERE v > 5);
"""
Row = tuple[Any, ...]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    running: Running = started(tmp_path, SCRIPT)
    with running.client(AccessRole.ADMIN) as http:
        yield http
    ended(running)


def feed(client: httpx.Client, draw: random.Random, begin: int, end: int) -> None:
    rows = [{"ts": ts, "k": draw.randrange(4), "v": draw.randrange(10)} for ts in range(begin, end) for _ in range(2)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    answer = client.post("/v1/streams/s/rows", content=lines, headers={"Content-Type": "application/x-ndjson"})
    position = answer.json()["position"]
    assert client.get("/v1/queries/sums/results?until=now", headers={"Penstock-After": position}).status_code == 200


def read(client: httpx.Client, text: str) -> list[Row]:
    """Return the rows of a subscription that ends."""
    answer = client.post("/v1/statements", json={"sql": text}, headers={"Accept": "application/x-ndjson"})
    assert answer.status_code == 200, answer.text
    return [tuple(json.loads(line).values()) for line in answer.text.splitlines()]


def content(changes: list[Row], tick: int) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for ts, op, *items in changes:
        if ts <= tick:
            found[tuple(items)] += 1 if op == "+" else -1
    return +found


def test_a_snapshot_is_what_the_changes_make_up_to_its_instant(client: httpx.Client) -> None:
    draw = random.Random(4711)
    feed(client, draw, 1, 30)
    changes = read(client, "SUBSCRIBE TO sums AS OF 0 UP TO 28")
    assert len(changes) > 40 and all(0 < row[0] <= 28 for row in changes)
    for tick in (1, 2, 7, 15, 27):
        rows = read(client, f"SUBSCRIBE TO sums WITH (SNAPSHOT, PROGRESS) AS OF {tick} UP TO 28")
        first, behind = [row for row in rows if row[0] == tick], [row for row in rows if row[0] > tick]
        assert first[-1] == (tick, "p", None, None)
        assert {row[1] for row in first[:-1]} == {"+"}
        assert Counter(row[2:] for row in first[:-1]) == content(changes, tick)
        assert [row for row in behind if row[1] != "p"] == [row for row in changes if row[0] > tick]
        assert behind[-1][:2] == (28, "p")


def test_a_content_now_and_what_comes_then(client: httpx.Client) -> None:
    draw = random.Random(4712)
    feed(client, draw, 1, 20)
    changes = read(client, "SUBSCRIBE TO sums AS OF 0 UP TO 18")
    address = "/v1/queries/sums/results?snapshot=true&until=now&format=ndjson"
    found = [tuple(json.loads(line).values()) for line in client.get(address).text.splitlines()]
    assert {row[:2] for row in found} == {(18, "+")}
    assert Counter(row[2:] for row in found) == content(changes, 18)
    # What a relation that was paused has emitted is its content.
    statement(client, "ALTER QUERY sums PAUSE")
    again = [tuple(json.loads(line).values()) for line in client.get(address).text.splitlines()]
    assert again == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SUBSCRIBE TO sums WITH (SNAPSHOT) AS OF 900", "complete up to"),
        ("SUBSCRIBE TO sums WITH (SNAPSHOT) UP TO 3", "nothing after 3"),
    ],
)
def test_what_has_no_snapshot(client: httpx.Client, text: str, message: str) -> None:
    feed(client, random.Random(4713), 1, 9)
    answer = statement(client, text).json()
    assert answer["code"] == "P0711" and message in answer["message"], answer


def test_a_stream_has_no_content(client: httpx.Client) -> None:
    answer = client.get("/v1/queries/large/results?snapshot=true&until=now").json()
    assert answer["code"] == "P0711" and "is a stream" in answer["message"], answer


def test_before_the_first_instant_there_is_no_content(client: httpx.Client) -> None:
    address = "/v1/queries/sums/results?snapshot=true&until=now&format=ndjson"
    assert client.get(address).text == ""
    answer = statement(client, "SUBSCRIBE TO sums WITH (SNAPSHOT) AS OF 3").json()
    assert answer["code"] == "P0711" and "at no instant yet" in answer["message"], answer
