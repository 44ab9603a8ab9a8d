"""What clients hold that do not read, and that nothing of it stays when they have gone."""

from __future__ import annotations

import gc
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from penstock.results.result_source import ResultPart
from penstock.server.roles import AccessRole
from tests.server.fake_service import FakeService, Results
from tests.server.running import Running

PATH = "/v1/queries/warm/results?from=beginning&format="
#: Clients at once, and bytes of the rows of a part.
CLIENTS, PART, PARTS = 20, 32_768, 1_000


@pytest.fixture
def traced(fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each part is in memory of its own, as rows are that were read from a file."""
    text = "x" * 1_000
    fake.emit("warm", *[("+", text, n) for n in range(PART // 1_000)], size=PARTS)
    read = Results.next

    def copied(results: Results, seconds: float) -> ResultPart | None:
        part = read(results, seconds)
        return part if part is None else replace(part, rows=part.rows.take(pa.array(np.arange(part.rows.num_rows))))

    monkeypatch.setattr(Results, "next", copied)
    tracemalloc.start()
    yield
    tracemalloc.stop()


def opened(server: Running, fake: FakeService, form: str, count: int) -> list[socket.socket]:
    """Return clients that have sent their request and read nothing; all of them make the server wait."""
    before, sockets = len(fake.open), []
    text = f"GET {PATH}{form} HTTP/1.1\r\nHost: localhost\r\n"
    text += f"Authorization: Bearer {server.texts[AccessRole.READ]}\r\n\r\n"
    for _ in range(count):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        one.connect((server.server.address.host, server.server.address.port))
        one.sendall(text.encode())
        sockets.append(one)
    places: list[int] = []
    while len(fake.open) < before + count or places != [one.place for one in fake.open]:
        places = [one.place for one in fake.open]
        time.sleep(1)
    assert all(0 < place < PARTS for place in places[before:])
    return sockets


def gone(server: Running, fake: FakeService, sockets: list[socket.socket]) -> None:
    """Close the connections and wait until the server has seen it of all."""
    for one in sockets:
        one.close()
    deadline = time.monotonic() + 60
    while server.door.streams:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    fake.open.clear()
    time.sleep(1)


def held() -> tuple[int, int]:
    """Return the bytes of Python's objects and of Arrow's buffers."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0], pa.total_allocated_bytes()


@pytest.mark.server
@pytest.mark.parametrize("form", ["arrow", "ndjson", "csv", "sse"])
def test_a_slow_client_holds_what_is_being_sent_to_it(
    serve: Callable[..., Running], fake: FakeService, traced: None, form: str
) -> None:
    """No rows, which are read when they are encoded: of one part what the connection has not taken, the next part as it
    is sent, and some 40 kB of the libraries' objects, 70 for events."""
    server = serve()
    # What is made once, for the first that come at once (threads, caches of the libraries), is no client's.
    gone(server, fake, opened(server, fake, form, 2 * CLIENTS))
    base = held()
    sockets = opened(server, fake, form, CLIENTS)
    first = held()
    sockets += opened(server, fake, form, CLIENTS)
    second = held()
    python, arrow = ((after - before) / CLIENTS for before, after in zip(first, second, strict=True))
    assert arrow < PART / 4, "a part is kept that has been sent"
    assert python < 6 * PART
    gone(server, fake, sockets)
    end = held()
    # Of 40 clients that have gone there is less than of one that is there.
    assert end[1] - base[1] < PART
    assert end[0] - base[0] < python


@pytest.mark.server
@pytest.mark.parametrize("form", ["arrow", "sse"])
def test_what_a_slow_client_holds_does_not_grow_with_the_rows_that_it_does_not_read(
    serve: Callable[..., Running], fake: FakeService, traced: None, form: str
) -> None:
    server = serve()
    opened(server, fake, form, CLIENTS)
    before, places = held(), [one.place for one in fake.open]
    text = "y" * 1_000
    for _ in range(20):
        fake.emit("warm", *[("+", text, n) for n in range(PART // 1_000)], size=100)
        time.sleep(0.05)
    after = held()
    assert [one.place for one in fake.open] == places, "rows are read that nobody takes"
    # 64 MB of rows for each; what they are made of here is 20 parts and their cursors.
    assert sum(after) - sum(before) < (20 + CLIENTS) * PART + 2_000 * 500
