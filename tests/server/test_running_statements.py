"""Statements that run: SUBSCRIBE as a statement, what is listed, what can be cancelled, and by whom."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from penstock.client import connect
from penstock.errors import PenstockError
from penstock.results.result_source import EndOfResults, ResultPart
from penstock.server.roles import ANYONE, AccessRole
from penstock.server.statements.running_statements import RunningStatements, RunningSubscription
from tests.server.fake_service import FakeService, eventually
from tests.server.running import Running
from tests.server.test_live_service import ROWS, WARM, ended, started, statement

SUBSCRIBE = {"sql": "SUBSCRIBE TO warm"}
PATH = "/v1/statements"


def running(client: httpx.Client) -> list[dict[str, str]]:
    listed: list[dict[str, str]] = client.get(PATH).json()["statements"]
    return listed


def test_a_subscription_is_a_statement(client: httpx.Client, fake: FakeService) -> None:
    with client.stream("POST", PATH, json=SUBSCRIBE) as answer:
        lines = answer.iter_lines()
        assert answer.headers["content-type"].startswith("text/event-stream")
        fake.emit("warm", ("+", "hall", 1))
        assert [next(lines) for _ in range(2)] == ["id: warm.1", "event: rows"]
        (listed,) = running(client)
        assert (listed["kind"], listed["sql"]) == ("SUBSCRIBE", "SUBSCRIBE TO warm")
    eventually(lambda: not running(client))
    headers = {"Accept": "application/x-ndjson", "Last-Event-ID": "warm.1"}
    fake.emit("warm", ("+", "hall", 2))
    with client.stream("POST", PATH, json=SUBSCRIBE, headers=headers) as answer:
        assert json.loads(next(answer.iter_lines()))["n"] == 2
    eventually(lambda: all(one.closed for one in fake.open))


def test_a_subscription_has_no_document(client: httpx.Client, fake: FakeService) -> None:
    answer = client.post(PATH, json=SUBSCRIBE, headers={"Accept": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (406, "P0803")
    assert not running(client) and fake.open[-1].closed
    assert client.post(PATH, json={"sql": "SHOW QUERIES"}, headers={"Accept": "text/event-stream"}).status_code == 406


def test_a_subscription_by_statement_is_counted_as_one(serve: Callable[..., Running], fake: FakeService) -> None:
    server = serve(max_connections="1", max_subscriptions="1")
    with server.client(AccessRole.READ) as client, client.stream("POST", PATH, json=SUBSCRIBE) as answer:
        assert answer.status_code == 200
        assert client.get("/v1/queries").status_code == 200
        assert client.post(PATH, json=SUBSCRIBE).status_code == 429
        assert len(running(client)) == 1
    eventually(lambda: server.door.streams == 0 and server.door.requests == 0)


def selecting(server: Running, role: AccessRole, answers: list[httpx.Response]) -> threading.Thread:
    """Send a SELECT that takes long."""

    def select() -> None:
        with server.client(role) as client:
            answers.append(statement(client, "SELECT n FROM readings"))

    thread = threading.Thread(target=select)
    thread.start()
    return thread


@pytest.mark.parametrize("by", [AccessRole.READ, AccessRole.CONTROL])
def test_a_select_is_cancelled_by_its_id(server: Running, fake: FakeService, by: AccessRole) -> None:
    fake.slow = 30.0
    answers: list[httpx.Response] = []
    thread = selecting(server, AccessRole.READ, answers)
    with server.client(by) as client:
        eventually(lambda: running(client))
        (one,) = running(client)
        assert (one["kind"], one["who"], one["sql"]) == ("SELECT", "read", "SELECT n FROM readings")
        assert client.delete(f"{PATH}/{one['id']}").json() == one
        thread.join(20)
        assert (answers[0].status_code, answers[0].json()["code"]) == (409, "P0726")
        assert client.delete(f"{PATH}/{one['id']}").status_code == 404


def test_a_statement_of_another_token_is_not_cancelled_by_a_reader(server: Running, fake: FakeService) -> None:
    fake.slow = 30.0
    answers: list[httpx.Response] = []
    thread = selecting(server, AccessRole.CONTROL, answers)
    with server.client(AccessRole.READ) as reader, server.client(AccessRole.CONTROL) as owner:
        eventually(lambda: running(reader))
        place = f"{PATH}/{running(reader)[0]['id']}"
        refused = reader.delete(place)
        assert (refused.status_code, refused.json()["code"]) == (403, "P0802") and not fake.cancelled.is_set()
        assert owner.delete(place).status_code == 200
    thread.join(20)


def test_a_subscription_is_cancelled(client: httpx.Client, fake: FakeService) -> None:
    with client.stream("POST", PATH, json=SUBSCRIBE, headers={"Accept": "application/x-ndjson"}) as answer:
        eventually(lambda: running(client))
        client.delete(f"{PATH}/{running(client)[0]['id']}")
        assert json.loads(next(answer.iter_lines()))["error"]["code"] == "P0726"
    eventually(lambda: not running(client))


# -- in front of a control ---------------------------------------------------------------------------------------


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Running]:
    server = started(tmp_path)
    yield server
    ended(server)


def lines_of(client: httpx.Client, sql: str, count: int) -> list[dict[str, Any]]:
    """The first rows of a SUBSCRIBE, as NDJSON."""
    with client.stream("POST", PATH, json={"sql": sql}, headers={"Accept": "application/x-ndjson"}) as answer:
        if answer.status_code != 200:
            raise AssertionError(answer.read())
        with connect(str(client.base_url), client.headers["Authorization"].split()[1]) as poster:
            poster.insert("readings", ROWS)
        return [json.loads(line) for _, line in zip(range(count), answer.iter_lines(), strict=False)]


def test_a_registered_query_is_followed(live: Running) -> None:
    with live.client(AccessRole.CONTROL) as client:
        assert statement(client, WARM).status_code == 200
        rows = lines_of(client, "SUBSCRIBE TO warm", 2)
        assert [(row["op"], row["room"]) for row in rows] == [("+", "hall"), ("+", "attic")]
        eventually(lambda: not running(client))
        for sql, code in [
            ("SUBSCRIBE TO warm; SHOW QUERIES", "P0732"),
            ("SUBSCRIBE TO cold", "P0201"),
            ("SUBSCRIBE TO warm WITH (SNAPSHOT) AS OF '2999-01-01'", "P0711"),
        ]:
            assert statement(client, sql).json()["code"] == code, sql
        assert statement(client, "SUBSCRIBE TO warm", dry=True).json()["statements"][0]["state"] == "CHECKED"
        assert not running(client)


def test_a_query_stands_as_long_as_its_subscription(live: Running) -> None:
    text = "SUBSCRIBE TO (SELECT ISTREAM(room) FROM readings [NOW] WHERE celsius > 19.8)"
    with live.client(AccessRole.CONTROL) as client:
        assert [row["room"] for row in lines_of(client, text, 1)] == ["attic"]
        eventually(lambda: client.get("/v1/queries").json()["queries"] == [])
    with live.client(AccessRole.READ) as reader:
        assert statement(reader, text).json()["code"] == "P0802"
        # Errors stand where the caller has written them.
        wrong = statement(reader, "SUBSCRIBE TO (SELECT rom FROM readings [NOW])").json()
        assert wrong["position"]["column"] == 22


def test_a_query_that_a_crash_has_left_is_dropped(tmp_path: Path) -> None:
    server = started(tmp_path)
    with connect(server.url, server.texts[AccessRole.CONTROL]) as client:
        client.execute(
            "CREATE QUERY `subscription 1` WITH (comment 'ends with its subscription') AS SELECT room FROM "
            "readings [NOW]; CREATE QUERY `subscription 2` AS SELECT room FROM readings [NOW]"
        )
    ended(server)
    again = started(tmp_path)
    with connect(again.url, again.texts[AccessRole.READ]) as client:
        eventually(lambda: [query.name for query in client.queries()] == ["subscription 2"])
    ended(again)


def test_show_and_cancel_as_statements(live: Running) -> None:
    with live.client(AccessRole.CONTROL) as client:
        statement(client, WARM)
        with client.stream("POST", PATH, json=SUBSCRIBE, headers={"Accept": "application/x-ndjson"}) as answer:
            eventually(lambda: running(client))
            for kind in ("STATEMENTS", "SUBSCRIPTIONS"):
                (shown,) = statement(client, f"SHOW {kind}").json()["statements"][0]["text"].splitlines()
                assert shown.endswith("control SUBSCRIBE TO warm")
            number = shown.split()[0]
            assert statement(client, f"CANCEL {number}").json()["statements"][0] == {"kind": "CANCEL", "state": "DONE"}
            assert json.loads(next(answer.iter_lines()))["error"]["code"] == "P0726"
        eventually(lambda: not running(client))
        assert statement(client, f"CANCEL {number}").json()["code"] == "P0201"
        assert statement(client, "SHOW QUERIES; CANCEL 'none'").json()["code"] == "P0201"
        shown = statement(client, "SHOW COMMANDS").json()["statements"][0]["text"]
        assert shown.splitlines()[-1].startswith("4 RUNNING control CREATE QUERY warm")
        assert statement(client, "SHOW VERSIONS").json()["statements"][0]["text"] == "3, with the commands up to 4"
    with pytest.raises(PenstockError), connect(live.url, live.texts[AccessRole.READ]) as reader:
        reader.execute("CANCEL 99")


def test_a_subscription_that_is_ended_from_outside_has_not_come_to_its_end() -> None:
    """A log that is closed has no more rows; its reader must not take that for the end of the results."""

    class ClosedLog:
        schema = pa.schema([("room", pa.string())])
        cursor = None
        is_closed = False

        def next(self, seconds: float) -> ResultPart | None:
            if self.is_closed:
                raise EndOfResults
            return None

        def on_change(self, listener: Callable[[], None]) -> Callable[[], None] | None:
            return None

        def close(self) -> None:
            self.is_closed = True

    subscription = RunningSubscription(RunningStatements(), "SUBSCRIBE TO warm", ANYONE, ClosedLog())
    assert subscription.next(0) is None
    subscription.cancel()
    with pytest.raises(PenstockError, match="P0726"):
        subscription.next(0)
