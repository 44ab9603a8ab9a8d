"""Results and events as they come: formats, cursors, clients that vanish or are slow."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable

import httpx
import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.results.result_source import EndOfResults, ResultPart
from penstock.server.http import streams
from penstock.server.roles import AccessRole
from tests.server.fake_service import FakeService, eventually
from tests.server.running import Running

PATH = "/v1/queries/warm/results"


def fill(fake: FakeService, parts: int = 3) -> None:
    for number in range(parts):
        fake.emit("warm", ("+", "hall", number), ("-", "attic", 2**60))


def test_what_is_kept_in_each_format(client: httpx.Client, fake: FakeService) -> None:
    fill(fake, 2)
    asked = {"from": "beginning", "until": "now"}
    lines = client.get(PATH, params={**asked, "format": "ndjson", "cursors": "true"}).text.splitlines()
    assert json.loads(lines[1]) == {"ts": "1970-01-01T00:00:00Z", "op": "-", "room": "attic", "n": str(2**60)}
    assert [json.loads(line) for line in (lines[2], lines[5])] == [{"cursor": "warm.1"}, {"cursor": "warm.2"}]
    assert client.get(PATH, params={**asked, "format": "csv"}).text.splitlines()[:2] == [
        "ts,op,room,n",
        "1970-01-01T00:00:00Z,+,hall,0",
    ]
    with pa.ipc.open_stream(client.get(PATH, params={**asked, "format": "arrow"}).content) as reader:
        read = [reader.read_next_batch_with_custom_metadata() for _ in range(2)]
    assert [batch.batch.num_rows for batch in read] == [2, 2]
    assert [batch.custom_metadata[b"cursor"] for batch in read] == [b"warm.1", b"warm.2"]
    events = client.get(PATH, params=asked, headers={"Accept": "text/event-stream"})
    assert events.headers["content-type"].startswith("text/event-stream")
    assert "id: warm.1\r\n" in events.text and "event: rows\r\n" in events.text


def test_rows_come_as_they_are_emitted_and_are_resumed_by_event_id(client: httpx.Client, fake: FakeService) -> None:
    with client.stream("GET", PATH) as answer:
        lines = answer.iter_lines()
        eventually(lambda: fake.open)
        fake.emit("warm", ("+", "hall", 1))
        assert [next(lines) for _ in range(3)][:2] == ["id: warm.1", "event: rows"]
    fake.emit("warm", ("+", "hall", 2))
    with client.stream("GET", PATH, headers={"Last-Event-ID": "warm.1"}) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "id: warm.2"


def test_an_idle_subscription_ends_when_its_client_vanishes(server: Running, fake: FakeService) -> None:
    for form in ("sse", "ndjson", "arrow", "csv"):
        with server.client(AccessRole.READ) as client, client.stream("GET", PATH, params={"format": form}) as answer:
            assert answer.status_code == 200
            eventually(lambda: server.door.streams == 1)
        eventually(lambda: server.door.streams == 0)
        assert fake.open[-1].closed


def test_a_slow_client_holds_nothing_in_memory(server: Running, fake: FakeService) -> None:
    """A client that does not read stops the reading of results, not the server."""
    rows = [("+", "hall" * 1_000, n) for n in range(100)]
    fake.emit("warm", *rows, size=2_000)
    host, port = server.server.address.host, server.server.address.port
    with socket.create_connection((host, port)) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        head = f"GET {PATH}?from=beginning&format=ndjson HTTP/1.1\r\nHost: localhost\r\n"
        slow.sendall(f"{head}Authorization: Bearer {server.texts[AccessRole.READ]}\r\n\r\n".encode())
        eventually(lambda: fake.open and fake.open[-1].place > 0)
        time.sleep(1.0)
        place = fake.open[-1].place
        assert place < 100
        with server.client(AccessRole.READ) as client:
            assert client.get("/v1/queries").status_code == 200
    eventually(lambda: server.door.streams == 0)


def test_subscriptions_are_limited(serve: Callable[..., Running]) -> None:
    server = serve(max_subscriptions="2")
    with server.client(AccessRole.READ) as a, a.stream("GET", PATH), a.stream("GET", PATH):
        eventually(lambda: server.door.streams == 2)
        answer = a.get(PATH)
        assert answer.status_code == 429 and answer.json()["code"] == "P0804"
    eventually(lambda: server.door.streams == 0)


def test_many_subscribers_that_do_nothing(serve: Callable[..., Running], fake: FakeService) -> None:
    """Two hundred open subscriptions neither block other requests nor miss rows."""
    server = serve()
    place = (server.server.address.host, server.server.address.port)
    sockets = [socket.create_connection(place) for _ in range(200)]
    try:
        head = f"GET {PATH}?format=ndjson HTTP/1.1\r\nHost: localhost\r\n"
        text = f"{head}Authorization: Bearer {server.texts[AccessRole.READ]}\r\n\r\n"
        for one in sockets:
            one.sendall(text.encode())
        eventually(lambda: len(fake.open) == 200, 30)
        with server.client(AccessRole.READ) as client:
            assert client.get("/v1/queries").status_code == 200
        fake.emit("warm", ("+", "hall", 1))
        for one in sockets:
            one.settimeout(20)
            content = b""
            while b"hall" not in content:
                content += one.recv(4096)
    finally:
        for one in sockets:
            one.close()
    eventually(lambda: server.door.streams == 0, 30)


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"from": "nonsense"}, 400), ({"from": "other.1"}, 400), ({"from": "x" * 2000}, 400), ({"until": "later"}, 400),
        ({"format": "xml"}, 400), ({"snapshot": "perhaps"}, 400), ({"from": "warm.²"}, 400),
        ({"snapshot": "true", "from": "beginning", "until": "now"}, 400),
    ],
)  # fmt: skip
def test_bad_parameters(client: httpx.Client, params: dict[str, str], status: int) -> None:
    answer = client.get(PATH, params=params)
    assert answer.status_code == status and answer.headers["content-type"] == "application/problem+json"


def test_a_snapshot_is_not_the_beginning_and_goes_on_from_a_cursor(client: httpx.Client, fake: FakeService) -> None:
    fill(fake, 3)
    refused = client.get(PATH, params={"snapshot": "true", "from": "beginning", "until": "now"})
    assert refused.json()["code"] == "P0803" and "from=beginning" in refused.json()["hint"]
    again = {"Last-Event-ID": "warm.2"}
    for params, headers in (({"from": "warm.2"}, {}), ({}, again), ({"from": "beginning"}, again)):
        asked = {"snapshot": "true", "until": "now", "format": "ndjson", **params}
        assert client.get(PATH, params=asked, headers=headers).status_code == 200


def test_an_unknown_query(client: httpx.Client) -> None:
    answer = client.get("/v1/queries/worm/results")
    assert answer.status_code == 404 and "warm" in answer.json()["hint"]
    assert client.get("/v1/queries/a%2Fb/results").status_code == 404


def test_rows_that_are_gone_are_an_error_not_a_gap(client: httpx.Client, fake: FakeService) -> None:
    fill(fake, 5)
    fake.forgotten = 3
    answer = client.get(PATH, params={"from": "warm.1"})
    assert answer.status_code in (400, 410) and "gone" in answer.json()["message"]
    fake.forgotten = 0
    with client.stream("GET", PATH, params={"from": "warm.0", "format": "ndjson"}) as answer:
        lines = answer.iter_lines()
        next(lines)
        eventually(lambda: fake.open[-1].place == 5)
        fake.forgotten = 7
        fake.emit("warm", ("+", "hall", 9))
        *_, last = lines
    assert "gone" in json.loads(last)["error"]["message"]


def test_subscriptions_end_with_the_server(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    with server.client(AccessRole.READ) as client, client.stream("GET", PATH, params={"format": "arrow"}) as answer:
        before = time.monotonic()
        server.server.close()
        with pytest.raises(httpx.RemoteProtocolError):
            list(answer.iter_bytes())
    assert time.monotonic() - before < 8
    assert not caplog.records, "the end of the server is no fault of it"


def test_events(client: httpx.Client, server: Running, fake: FakeService) -> None:
    with client.stream("GET", "/v1/events") as answer:
        lines = answer.iter_lines()
        eventually(lambda: fake.listeners)
        fake.announce("batch", number=8, rows=12)
        assert [next(lines), next(lines)] == ["event: batch", 'data: {"number":8,"rows":12}']
    eventually(lambda: fake.listeners[0].closed and server.door.streams == 0)


def test_an_error_while_rows_are_sent(client: httpx.Client, fake: FakeService) -> None:
    fill(fake, 1)

    class Breaking:
        schema = fake.parts["warm"][0].rows.schema
        cursor = None

        def next(self, seconds: float) -> object:
            if seconds:
                raise PenstockError("P0605", "the file is damaged")
            return fake.parts["warm"][0]

        def on_change(self, listener: object) -> None: ...

        def close(self) -> None: ...

    fake.results = lambda *_: Breaking()  # type: ignore[method-assign,assignment,return-value]
    text = client.get(PATH, params={"format": "sse"}).text
    assert "event: error" in text and "P0605" in text
    with pytest.raises(httpx.RemoteProtocolError):
        client.get(PATH, params={"format": "csv"})


def test_a_source_that_says_when_it_changes_is_waited_for_without_a_thread(
    client: httpx.Client, fake: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(fake, 2)
    monkeypatch.setattr(streams, "WAIT", 3600.0)

    class Telling:
        """Has its second part, and its end, when it says so."""

        schema = fake.parts["warm"][0].rows.schema
        cursor = None

        def __init__(self) -> None:
            self.waiting = [fake.parts["warm"][0]]
            self.is_over = self.has_ended = False
            self.looked = threading.Semaphore(0)

        def next(self, seconds: float) -> ResultPart | None:
            assert seconds == 0, "a thread waits for it"
            if self.waiting:
                return self.waiting.pop()
            if self.is_over:
                raise EndOfResults
            self.looked.release()
            return None

        def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
            self.tell = listener
            return self.end

        def end(self) -> None:
            self.has_ended = True

        def close(self) -> None: ...

    source = Telling()
    fake.results = lambda *_: source  # type: ignore[method-assign,assignment,return-value]

    def feed() -> None:
        source.looked.acquire()
        source.waiting = [fake.parts["warm"][1]]
        source.tell()
        source.looked.acquire()
        source.is_over = True
        source.tell()

    feeding = threading.Thread(target=feed)
    feeding.start()
    text = client.get(PATH, params={"format": "ndjson"}).text
    feeding.join()
    expected = sum(part.rows.num_rows for part in fake.parts["warm"][:2])
    assert len(text.splitlines()) == expected > 0
    assert source.has_ended
