"""What clients hold that do not read the log of results: a limit each, however many batches come, and nothing when they
have gone; the rows of the log go without waiting for them, and who reads on is told."""

from __future__ import annotations

import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.connectors.results.result_folder import ResultFolder
from penstock.results.reader import Cursor, ResultReader
from penstock.results.result_source import LoggedResults, ResultRequest
from penstock.server.roles import AccessRole
from tests.results.result_kit import Log, stream
from tests.server.fake_service import FakeService
from tests.server.running import Running
from tests.server.test_slow_subscribers import PART, held

CLIENTS = 20
#: Bytes of rows that the server sends for a client that takes none: in memory of the system, and its own.
MOST = 2**19
#: Rows of a batch, of some 290 kB, and how many batches of rows are kept.
ROWS, KEPT = 10_000, 40
QUERY = stream("warm", pa.schema([("k", pa.int64()), ("v", pa.int64())]), max_bytes=f"{KEPT * ROWS * 24 // 10**6} MB")


class Served:
    """A log behind a door."""

    def __init__(self, running: Running, folder: Path, fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running = running
        self.log = Log(folder, QUERY)
        self.sources: list[LoggedResults] = []
        self.batches = 0
        self.write()
        self.folder = folder
        self._reader = ResultReader(folder, "warm-1")
        monkeypatch.setattr(fake, "results", self._results)

    def _results(self, query: str, request: ResultRequest, *who: object) -> LoggedResults:
        self.sources.append(LoggedResults(self._reader, request))
        return self.sources[-1]

    def write(self, count: int = 1) -> None:
        for batch in range(self.batches, self.batches + count):
            number = np.arange(batch * ROWS, (batch + 1) * ROWS)
            ts = pa.array(number).cast(QUERY.output_schema.field(0).type)
            rows = pa.table([ts, number, number % 100], schema=QUERY.output_schema)
            self.log.write(batch, {"warm": rows}, int(number[-1]))
        self.batches += count

    def opened(self, form: str, count: int) -> list[socket.socket]:
        """Return clients that have sent their request and read nothing; all of them make the server wait."""
        sockets = []
        text = f"GET /v1/queries/warm/results?from=beginning&format={form} HTTP/1.1\r\nHost: localhost\r\n"
        text += f"Authorization: Bearer {self.running.texts[AccessRole.READ]}\r\n\r\n"
        for _ in range(count):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            one.connect((self.running.server.address.host, self.running.server.address.port))
            one.sendall(text.encode())
            sockets.append(one)
        cursors: list[str | None] = []
        while len(self.sources) < count or cursors != self.cursors:
            cursors = self.cursors
            time.sleep(1)
        return sockets

    @property
    def cursors(self) -> list[str | None]:
        return [one.cursor for one in self.sources]


@pytest.fixture
def served(
    serve: Callable[..., Running], fake: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Served]:
    made = Served(serve(), tmp_path / "log", fake, monkeypatch)
    tracemalloc.start()
    yield made
    tracemalloc.stop()
    made.log.close()


@pytest.mark.server
@pytest.mark.parametrize("form", ["arrow", "sse"])
def test_what_slow_clients_hold_reaches_a_limit(served: Served, form: str) -> None:
    served.write(KEPT - 5)
    # Threads, and what is imported and made once, are there before.
    _leave(served, served.opened(form, CLIENTS))
    base = held()
    sockets = served.opened(form, CLIENTS)
    full, cursors = held(), served.cursors
    rows = [Cursor.parse(str(cursor)) for cursor in cursors]
    assert all(0 < sent.batch * ROWS + sent.row < MOST // 24 for sent in rows), "the system holds more than that"
    assert sum(full) - sum(base) < CLIENTS * 8 * PART
    looks = []
    for _ in range(4):
        served.write(KEPT)
        looks.append(sum(held()))
    assert served.cursors == cursors, "rows are read that nobody takes"
    # 11 MB of rows have come between two looks, for each of the clients: not a quarter of a part of them is held. What
    # the process makes once on its way (caches, interned strings) is less.
    assert max(looks) - sum(full) < CLIENTS * PART // 4
    one = sockets.pop()
    _leave(served, sockets, left=1)
    with one, one.makefile("rb") as body:
        assert b"P0712" in body.read(), "a gap is told"
    _leave(served, [])
    # What the first gap was told with stays.
    assert sum(held()) - sum(base) < (sum(full) - sum(base)) // 4, (base, full, held())
    assert not ResultFolder.at(served.folder)._listeners


def _leave(served: Served, sockets: list[socket.socket], left: int = 0) -> None:
    for one in sockets:
        one.close()
    deadline = time.monotonic() + 60
    while served.running.door.streams > left:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    if not left:
        served.sources.clear()
    time.sleep(0.5)
