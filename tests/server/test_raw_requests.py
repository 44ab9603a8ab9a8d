"""Bytes that are no whole request, or none at all: each is answered with a problem document or a closed connection, the
log has no traceback, nothing is added, and the next request is answered."""

from __future__ import annotations

import json
import logging
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import httpx
import pytest

from penstock.server import attempts
from penstock.server.http.application import server
from penstock.server.roles import AccessRole
from tests.server.running import Running
from tests.server.test_live_service import ROWS, answers

ROW = json.dumps(ROWS[0]).encode() + b"\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SIZE = b"%x\r\n" % len(ROW)
SQL = b'{"sql": "DROP QUERY nothing"}'
LENGTH = b"Content-Length: %d\r\n\r\n" % len(SQL)


def head(first: bytes, *more: bytes) -> bytes:
    """Return the head of a request without the empty line; TOKEN stands for a header."""
    return first + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nTOKEN" + b"".join(one + b"\r\n" for one in more)


def get(path: bytes, *more: bytes) -> bytes:
    return head(b"GET " + path, *more) + b"\r\n"


POST = head(b"POST /v1/streams/readings/rows", b"Content-Type: application/x-ndjson")
SCRIPT = head(b"POST /v1/statements", b"Content-Type: application/json")
NOTHING = b"/v1/queries/nothing"
RESULTS = b"/v1/queries/warm/results"
#: Bodies that do not end as their head says.
BODIES = (
    CHUNKED + b"\r\n" + SIZE + ROW[:10], CHUNKED + b"\r\n" + SIZE + ROW + b"\r\n", CHUNKED + b"\r\n-1\r\n" + ROW,
    CHUNKED + b"\r\nzz\r\n" + ROW, CHUNKED + b"\r\n3\r\n" + ROW + b"\r\n0\r\n\r\n",
    CHUNKED + b"\r\nffffffffffffffff\r\n" + ROW, CHUNKED + b"\r\n" + b"f" * 100 + b"\r\n" + ROW,
    b"Content-Length: 9999\r\n\r\n" + ROW, b"Content-Length: 5\r\n\r\n" + ROW,
    b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + ROW, b"Content-Length: 5, 6\r\n\r\n" + ROW,
    b"Content-Length: -5\r\n\r\n" + ROW, b"Content-Length: +5\r\n\r\n" + ROW,
    b"Content-Length: " + b"9" * 30 + b"\r\n\r\n" + ROW, b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"Content-Encoding: gzip\r\n" + CHUNKED + b"\r\n" + SIZE + ROW[:10],
)  # fmt: skip
#: Requests that are wrong elsewhere.
OTHERS = (
    get(NOTHING, b"X: " + b"a" * 3_000_000), get(NOTHING, *(b"X-%d: a" % i for i in range(10_000))),
    get(NOTHING, b"X: a\x00b"), get(NOTHING, b"X: \xff\xfe"), get(NOTHING, b"X : a"), get(NOTHING, b"X: a\r\n folded"),
    get(NOTHING, b"Host: other"), get(NOTHING, b"Cookie: penstock_1=\xff\xfe; a=\xc3\x28"),
    get(NOTHING, b"Origin: \xff\xfe"), get(NOTHING, b"Accept: \xff\xfe"), get(NOTHING, b"Accept-Encoding: \xff"),
    get(RESULTS, b"Last-Event-ID: \xff\xfe"), get(RESULTS, b"Last-Event-ID: -1"),
    get(RESULTS, b"Last-Event-ID: " + b"9" * 400), SCRIPT + b"Idempotency-Key: \xff\xfe\r\n" + LENGTH + SQL,
    SCRIPT + LENGTH + b"\xff" * len(SQL), SCRIPT + LENGTH + b"\x00" * len(SQL),
    get(b"/v1/queries/\xff\xfe"), get(b"/v1/queries/%ff%fe"), get(b"/v1/queries/%ed%a0%80"), get(b"/v1/queries/%00"),
    get(b"/v1/queries/\x00"), get(b"/v1/queries/%zz%"), get(b"/v1/queries/" + b"a" * 200_000), get(b""), get(b"*"),
    get(b"http://other/v1/queries"), get(b"//v1//queries"), get(b"/v1/../../etc/passwd"), get(b"/page/%2e%2e/passwd"),
    get(RESULTS + b"?from=%ff%fe"), get(RESULTS + b"?from=\xff"), get(RESULTS + b"?from=%00"),
    get(b"/v1/commands?after=" + b"9" * 5_000), head(b"BREW /v1/queries") + b"\r\n",
    head(b"G\x00T /v1/queries") + b"\r\n", head(b"G" * 70_000 + b" /v1/queries") + b"\r\n",
    b"GET /v1/queries\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /v1/queries HTTP/9.9\r\n\r\n",
    bytes.fromhex("16030100a5010000a10303") + bytes(160), b"\r\n" * 50_000, b"\n" * 50_000,
    get(NOTHING, b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Key: x", b"Sec-WebSocket-Version: 13"),
    get(NOTHING, b"Upgrade: h2c", b"Connection: Upgrade, HTTP2-Settings", b"HTTP2-Settings: AAMAAABk"),
    get(NOTHING) + b"\x00\x00\r\n\r\n", get(NOTHING) * 20, SCRIPT + LENGTH + SQL + get(NOTHING),
)  # fmt: skip


def conversation(running: Running, content: bytes, half_closed: bool = True) -> bytes:
    """Send bytes, and the end of the stream unless the server closes by itself; return all that comes back."""
    token = b"Authorization: Bearer " + running.texts[AccessRole.ADMIN].encode() + b"\r\n"
    answer = b""
    place = "127.0.0.1", running.server.address.port
    with socket.create_connection(place, timeout=20) as connection, suppress(ConnectionError):
        connection.sendall(content.replace(b"TOKEN", token))
        if half_closed:
            # Time for an answer; without the end of the stream the connection of a whole request is kept.
            time.sleep(0.02)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(65536):
            answer += piece
    return answer


def faults(answer: bytes, *, may_succeed: bool = False) -> str:
    """Return what is wrong with an answer."""
    lines = [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    for line in lines:
        status = int(line.split()[1])
        if status >= 500 or (status < 400 and not may_succeed and status != 100):
            return line.decode()
    refused = [line for line in lines if line.split()[1].startswith(b"4")]
    if len(refused) > answer.count(b'{"type":"about:blank"') or len(refused) > answer.count(b'"code":"P0'):
        return "no problem document"
    return ""


def is_undisturbed(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    assert not [one for one in caplog.records if one.exc_info or one.levelno >= logging.ERROR]
    with running.client(AccessRole.ADMIN) as client:
        assert [one["name"] for one in client.get("/v1/queries").json()["queries"]] == ["warm"]


def test_requests_that_are_none(attacked: Running, caplog: pytest.LogCaptureFixture) -> None:
    wrong = []
    for content in [*(POST + body for body in BODIES), *OTHERS]:
        if found := faults(conversation(attacked, content)):
            wrong.append((content[:150], found))
    assert not wrong, "\n".join(map(str, wrong))
    is_undisturbed(attacked, caplog)


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Return a request with some of its bytes changed, left out, doubled or inserted."""
    changed = bytearray(content)
    for _ in range(draw.randrange(1, 4)):
        start = draw.randrange(len(changed))
        end = min(len(changed), start + draw.choice((1, 1, 2, 10)))
        piece = draw.choice((b"", draw.randbytes(2), bytes(changed[start:end]) * 2, b"\r\n", b"\x00", b":", b" "))
        changed[start:end] = piece
    return bytes(changed)


def test_mutated_requests(attacked: Running, caplog: pytest.LogCaptureFixture) -> None:
    draw, wrong = random.Random(15), []
    good = (get(NOTHING), SCRIPT + LENGTH + SQL, get(RESULTS + b"?from=-1"), POST + CHUNKED + b"\r\n" + SIZE + ROW[:-9])
    for _ in range(150):
        content = mutated(draw.choice(good), draw)
        if found := faults(conversation(attacked, content), may_succeed=True):
            wrong.append((content[:300], found))
    assert not wrong, "\n".join(map(str, wrong))
    is_undisturbed(attacked, caplog)


@pytest.mark.parametrize("order", [(b"Content-Length: 5\r\n", CHUNKED), (CHUNKED, b"Content-Length: 5\r\n")])
def test_a_request_with_two_lengths_closes_the_connection(attacked: Running, order: tuple[bytes, bytes]) -> None:
    """What stands before the server may have taken the other one, and the rest for a request of its own."""
    content = POST + b"".join(order) + b"\r\n" + SIZE + ROW + b"\r\n0\r\n\r\n" + get(b"/v1/queries")
    answer = conversation(attacked, content, half_closed=False)
    assert answer.count(b"HTTP/1.1 ") == 1 and answer.startswith(b"HTTP/1.1 400"), answer
    assert b"both Content-Length and Transfer-Encoding" in answer and b"connection: close" in answer.lower()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"127.0.0.1", 200), (b"127.0.0.1:1", 200), (b"[::1]", 200), (b"[::1]:80", 200), (b"localhost", 200),
        (b"192.0.2.1", 200), (b"[::ffff:127.0.0.1]", 200),
        (b"0.0.0.0", 421), (b"0.0.0.0:8265", 421), (b"[::]", 421), (b"[::ffff:0.0.0.0]", 421), (b"0", 421),
        (b"[127.0.0.1]", 421), (b"[127.0.0.1]:80", 421), (b"[]", 421), (b"[::1", 421), (b"::1", 421),
        (b"127.0.0.1:99999", 421), (b"127.0.0.1:", 421), (b"127.0.0.1:x", 421), (b"", 421), (b"a@127.0.0.1", 421),
        (b"127.0.0.1/x", 421), (b"127.1", 421), (b"2130706433", 421), (b"rebound.example", 421),
    ],
)  # fmt: skip
def test_hosts_for_which_the_server_answers(attacked: Running, host: bytes, status: int) -> None:
    request = get(b"/v1/queries", b"Connection: close").replace(b"Host: 127.0.0.1", b"Host: " + host)
    answer = conversation(attacked, request, half_closed=False)
    assert answer.startswith(b"HTTP/1.1 %d" % status), (host, answer[:200])


def test_clients_that_have_not_logged_in_give_way(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond a number of them by address a new one takes the place of the oldest; who has logged in keeps its place."""
    monkeypatch.setattr(attempts, "OF_ADDRESS", 4)
    monkeypatch.setattr(attempts, "_AT_LEAST", 0.0)
    running = serve()
    with running.client(AccessRole.ADMIN) as client:
        assert client.get("/v1/queries").status_code == 200
        idle = []
        for _ in range(10):
            idle.append(socket.create_connection(("127.0.0.1", running.server.address.port), timeout=20))
            time.sleep(0.02)
        for connection in idle[:6]:
            assert connection.recv(1) == b"", "it was closed"
        for connection in idle[6:]:
            connection.settimeout(0.1)
            with pytest.raises(TimeoutError):
                connection.recv(1)
        assert client.get("/v1/queries").status_code == 200
    for connection in idle:
        connection.close()


def test_a_first_request_has_less_time_than_a_later_one(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BEFORE_LOGIN", 0.3)
    running = serve()
    place = "127.0.0.1", running.server.address.port
    with socket.create_connection(place, timeout=20) as connection:
        connection.sendall(b"GET /v1/queries HTTP/1.1\r\n")
        assert connection.recv(1) == b"", "it was closed"


def test_nothing_of_them_was_added(attacked: Running) -> None:
    with attacked.client(AccessRole.ADMIN) as client:
        content = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
        posted = client.post(
            "/v1/streams/readings/rows", content=content, headers={"Content-Type": "application/x-ndjson"}
        )
        assert posted.json()["rows"] == len(ROWS)
    assert [row["room"] for row in answers(attacked, "warm", 3)] == ["hall", "attic", "hall"]


def test_connections_beyond_the_limit_get_a_problem_document(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_IDLE", 4)
    running = serve(max_connections="1", max_subscriptions="1")
    place = "127.0.0.1", running.server.address.port
    idle = [socket.create_connection(place) for _ in range(10)]
    time.sleep(0.3)
    for path in ("/v1/queries", "/healthz", "/nothing"):
        with running.client(AccessRole.ADMIN) as client:
            answer = client.get(path)
        assert answer.status_code == 503 and answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["retry-after"] == "1" and answer.headers["connection"] == "close"
        document = answer.json()
        assert document["code"] == "P0804" and "max_connections" in document["message"] and document["hint"]
    with running.client(AccessRole.ADMIN) as client:
        assert client.post("/v1/statements", json={"sql": "SELECT 1;"}).status_code == 503
    for connection in idle:
        connection.close()
    time.sleep(0.3)
    with running.client(AccessRole.ADMIN) as client:
        assert client.get("/v1/queries").status_code == 200


def test_slow_clients_do_not_keep_their_connections(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that sends a byte at a time, within a head or within a body, is one of the connections that there may be."""
    monkeypatch.setattr(server, "PATIENCE", 1.0)
    monkeypatch.setattr(server, "_IDLE", 8)
    running = serve(max_connections="2", max_subscriptions="2")
    token = b"Authorization: Bearer " + running.texts[AccessRole.ADMIN].encode() + b"\r\n"
    whole = (SCRIPT + b"Content-Length: 1000\r\n\r\n").replace(b"TOKEN", token)
    starts = (b"", whole[:9], whole)
    slow = [socket.create_connection(("127.0.0.1", running.server.address.port)) for _ in range(20)]
    for number, connection in enumerate(slow):
        connection.sendall(starts[number % len(starts)])
    time.sleep(0.3)
    with running.client(AccessRole.ADMIN) as client:
        assert client.get("/v1/queries").status_code in (429, 503)
    end = time.monotonic() + 15
    is_answered = False
    while not is_answered and time.monotonic() < end:
        for connection in slow:
            with suppress(OSError):
                connection.sendall(b"x")
        with running.client(AccessRole.ADMIN) as client, suppress(httpx.HTTPError):
            is_answered = client.get("/v1/queries").status_code == 200
        time.sleep(0.2)
    assert is_answered
    for connection in slow:
        connection.close()


def test_a_body_that_comes_slowly_but_steadily_is_read(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PATIENCE", 0.3)
    running = serve()

    def pieces() -> Iterator[bytes]:
        body = b'{"sql": "SELEC"}' + b" " * 2_000
        for start in range(0, len(body), 200):
            yield body[start : start + 200]
            time.sleep(0.1)

    with running.client(AccessRole.ADMIN) as client:
        answer = client.post("/v1/statements", content=pieces(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
