"""Every row comes exactly once and in order, though the server is killed at any moment, and whoever posts and whoever
reads begin anew with what they have noted: an idempotency key, a cursor."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.client import connect
from tests.commands import penstock

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
CREATE STREAM readings (at TIMESTAMP, n INT) FROM HTTP () TIMESTAMP BY at;
CREATE QUERY everything AS SELECT n FROM readings;
CREATE QUERY counted AS SELECT COUNT(*) AS n FROM readings [ROWS UNBOUNDED];
"""
PATIENCE = 60


class MortalServer:
    """A server in a process that is killed so often at random moments, also while it starts, and started again."""

    def __init__(self, folder: Path, chance: random.Random, kills: int) -> None:
        (folder / "script.cql").write_text(SCRIPT)
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self.kills, self.wanted = 0, kills
        self._folder, self._chance = folder, chance
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            with self._started() as process:
                # Now and then it is killed before it listens; otherwise it lives for a while first.
                if self._chance.random() < 0.8:
                    assert process.stdout is not None and process.stdout.readline().startswith("http")
                self._ending.wait(self._chance.uniform(0.05, 1) if self.kills < self.wanted else None)
            self.kills += 1

    @contextmanager
    def _started(self) -> Iterator[subprocess.Popen[str]]:
        command = [*penstock(), "serve", "script.cql", "--in-process", "--no-auth", "--checkpoint", "state"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_CONFIG_HOME": str(self._folder)}
        with (
            (self._folder / "told").open("a") as told,
            subprocess.Popen(
                [*command, "--http", self.url.removeprefix("http://")],
                cwd=self._folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=told,
                text=True,
            ) as process,
        ):
            yield process
            process.send_signal(signal.SIGKILL)
            assert process.stdout is not None
            process.stdout.read()  # ends when everything that could write to it is gone

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


def post(url: str, server: MortalServer, last: int, chance: random.Random) -> None:
    """Insert the rows 0 to `last` in posts of some rows, each with its key, while the server is killed; a client is
    dropped now and then, and the next one does not know whether the last post was added."""
    first = 0
    while first <= last:
        with connect(url, patience=PATIENCE) as client:
            while first <= last and chance.random() < 0.7:
                # However fast the machine is, the kills are spread over the posts.
                while server.kills < server.wanted * first // last:
                    time.sleep(0.01)
                size = 1 + first % 5
                numbers = range(first, min(first + size, last + 1))
                rows = [{"at": f"2024-03-01 00:{n // 60:02d}:{n % 60:02d}", "n": n} for n in numbers]
                client.insert("readings", rows, key=f"from {first}")
                time.sleep(chance.uniform(0, 0.05))
                if chance.random() < 0.3:
                    break  # as if it had not been told that they were added
                first += size


def read(url: str, query: str, rows: int, chance: random.Random, got: list[dict[str, Any]]) -> None:
    """Collect rows by one subscription after the other, each of which begins with the cursor of the one before."""
    cursor: str | None = None
    while len(got) < rows:
        client = connect(url, patience=PATIENCE)
        subscription = client.subscribe(query, beginning=cursor is None, cursor=cursor)
        for batch in subscription:
            got += batch.to_pylist()
            cursor = subscription.cursor
            if len(got) >= rows or chance.random() < 0.2:
                break
        if chance.random() < 0.5:
            subscription.close()
            client.close()  # otherwise both are only forgotten


@pytest.mark.server
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_every_row_comes_once_and_in_order(seed: int, tmp_path: Path) -> None:
    last, kills = (40, 3) if seed == 1 else (120, 12)
    server = MortalServer(tmp_path, random.Random(f"server {seed}"), kills)
    numbers: list[dict[str, Any]] = []
    counts: list[dict[str, Any]] = []
    # The last instant is not final: another row could have it.
    calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
        (post, (server, last, random.Random(f"post {seed}"))),
        (read, ("everything", last, random.Random(f"everything {seed}"), numbers)),
        (read, ("counted", 2 * last - 1, random.Random(f"counted {seed}"), counts)),
    ]
    threads = [threading.Thread(target=call, args=(server.url, *given), daemon=True) for call, given in calls]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive(), (len(numbers), len(counts), (tmp_path / "told").read_text()[-2000:])
    finally:
        server.end()
    assert server.kills > kills
    assert [row["n"] for row in numbers] == list(range(last))
    assert [(row["op"], row["n"]) for row in counts] == [
        change for n in range(1, last + 1) for change in [("-", n - 1), ("+", n)] if change[1]
    ]
