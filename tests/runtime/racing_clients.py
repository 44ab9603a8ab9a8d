"""Clients of all doors that race at a server which is killed: what they give it, what they are answered, and what that
should have been. See `test_doors_race.py`."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from penstock.client import ServerClient, connect
from tests.commands import select_process

ROOT = Path(__file__).resolve().parents[2]
#: Seconds for which a client tries again while the server is down.
PATIENCE = 120


def free_port() -> int:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def children(pid: int) -> list[int]:
    """Return the processes that one has started."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, file.read_text().split())
    return found


def is_there(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class MortalDoors:
    """A server with all doors in a process (`inline_server.py`) that can be killed, and is started again."""

    def __init__(self, folder: Path, seed: int) -> None:
        select_process()  # made by this process, for all others
        self.folder, self.seed = folder, seed
        self.http, self.pg = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.http}"
        self.dsn = f"host=127.0.0.1 port={self.pg} user=test connect_timeout=60"
        self.kills, self.pid = 0, 0
        #: Processes of killed servers that did not end.
        self.left: list[int] = []
        self._told = (folder / "told").open("w")
        self._forking = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("inline_server.py"))], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._told, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )  # fmt: skip
        self.start()

    def start(self) -> None:
        assert self._forking.stdin is not None and self._forking.stdout is not None
        self._forking.stdin.write(f"{self.folder}\t{self.http}\t{self.pg}\t{self.seed + self.kills}\n")
        self._forking.stdin.flush()
        line = self._forking.stdout.readline()
        assert line.startswith("ready "), (line, (self.folder / "told").read_text()[-4000:])
        self.pid = int(line.split()[1])

    def kill(self) -> None:
        """Kill the server alone; what it has started ends by itself."""
        started = children(self.pid)
        os.kill(self.pid, signal.SIGKILL)
        self.kills += 1
        end = time.monotonic() + 60
        while any(map(is_there, (self.pid, *started))) and time.monotonic() < end:
            time.sleep(0.01)
        self.left += filter(is_there, started)

    def close(self) -> None:
        if is_there(self.pid):
            self.kill()
        assert self._forking.stdin is not None
        self._forking.stdin.close()
        self._forking.wait(60)
        self._told.close()


@dataclass
class Race:
    """Clients in threads, of which each has a name and draws of its own; they end when one has failed."""

    doors: MortalDoors
    seed: int
    done: threading.Event = field(default_factory=threading.Event)
    failures: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    threads: list[threading.Thread] = field(default_factory=list)

    @classmethod
    def at(cls, folder: Path, seed: int, length: float, kills: int) -> Counter[str]:
        """Have a race at a server of its own, and check it; return what was seen."""
        doors = MortalDoors(folder, seed)
        try:
            one = cls(doors, seed)
            one.race(length, kills)
            one.check()
        finally:
            doors.close()
        return one.seen

    def race(self, length: float, kills: int) -> None:
        """Let the clients race for some seconds or turns, and until the server has been killed so often."""
        raise AssertionError("each race has its own clients")

    def check(self) -> None:
        """Compare what clients heard with what follows from what they gave."""
        raise AssertionError("each race has its own law")

    def client(self) -> ServerClient:
        return connect(self.doors.url, patience=PATIENCE)

    def begin(self, name: str, turn: Callable[[random.Random], object], pause: float = 0.05) -> None:
        """Take turns in a thread until all are done."""
        draw = random.Random(f"{self.seed} {name}")

        def go() -> None:
            try:
                while not self.done.is_set():
                    turn(draw)
                    self.seen[name] += 1
                    self.done.wait(draw.uniform(0, pause))
            except BaseException:
                self.failures.append(f"{name}: {traceback.format_exc()}")
                self.done.set()

        thread = threading.Thread(target=go, name=name, daemon=True)
        self.threads.append(thread)
        thread.start()

    def end(self) -> None:
        """Wait until the clients have ended."""
        self.done.set()
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), f"{thread.name} does not end"
        assert not self.failures, "\n".join([f"seed {self.seed}", *self.failures])

    @contextmanager
    def postgres(self) -> Iterator[psycopg.Connection[Any]]:
        """Connect by PostgreSQL's protocol, as soon as there is a server."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                connection = psycopg.connect(self.doors.dsn, autocommit=True)
                break
            except psycopg.OperationalError:
                assert time.monotonic() < end
                time.sleep(0.05)
        with connection:
            yield connection

    def rows_of(self, text: str) -> list[tuple[Any, ...]] | None:
        """Return the answer by PostgreSQL's protocol, None where it was lost or cancelled."""
        try:
            with self.postgres() as connection:
                return connection.execute(text).fetchall()  # type: ignore[call-overload,no-any-return]
        except psycopg.errors.QueryCanceled:
            self.seen["cancelled by others"] += 1
            return None
        except psycopg.errors.Error as error:
            if error.sqlstate in ("57P01", "08006", "57P03") or type(error) is psycopg.OperationalError:
                self.seen["lost"] += 1
                return None
            raise


# -- what is given, and what follows from it -----------------------------------------------------------------------

DECLARED = """
CREATE STREAM s (ts INT, k INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND RETAIN 60 SECONDS;
CREATE RELATION acc (op STRING, k INT, v INT, PRIMARY KEY (k)) FROM MEMORY () OPERATION BY op SYSTEM TIME;
CREATE RELATION lev (ts INT, k INT, v INT, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY total AS SELECT k, SUM(v) AS v, COUNT(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k;
CREATE QUERY held AS SELECT COUNT(*) AS n, SUM(v) AS v FROM acc WHERE k <> 9;
"""
ACCOUNTS = 5
WINDOW = "SELECT k, v FROM s [RANGE 10 SECONDS]"
TOTAL = "SELECT k, v, n FROM {}"
JOIN = "SELECT s.k AS k, s.v AS v, l.v AS w FROM s [RANGE 3 SECONDS] AS s, lev AS l WHERE s.k = l.k"
HELD = (
    "SELECT COUNT(*) AS n, SUM(v) AS v FROM acc WHERE k <> 9",
    "SELECT n, v FROM held",
    "SELECT COUNT(*) AS n, SUM(b.v) AS v FROM acc AS a, acc AS b WHERE a.k = b.k AND a.k <> 9",
    "SELECT COUNT(*) AS n, SUM(v) AS v FROM acc WHERE k <> 9 AND v IN (SELECT v FROM acc)",
)
#: Takes as long as it is left to.
HEAVY = "SELECT COUNT(*) AS n FROM " + ", ".join(f"s [RANGE 50 SECONDS] AS {name}" for name in "abcdefg")


def row(n: int) -> tuple[int, int, int]:
    """Return the n-th row of the stream."""
    return n // 2, n % 3, n * 7919 % 101


@dataclass
class Given:
    """What has been given to a server, or is on its way. levels: the rows of `lev`, in the order of its instants."""

    rows: int = 0
    levels: list[tuple[int, int, int]] = field(default_factory=list)
    deposits: int = 0

    def window(self, tick: int, length: int) -> list[tuple[int, int, int]]:
        numbers = range(max(0, 2 * (tick - length + 1)), 2 * (tick + 1))
        return [row(n) for n in numbers]

    def level(self, tick: int) -> dict[int, int]:
        return {k: v for ts, k, v in self.levels if ts <= tick}

    def answer(self, text: str, tick: int) -> Counter[tuple[Any, ...]]:
        """Return the answer of a query at an instant, by the law."""
        if text == WINDOW:
            return Counter((k, v) for _, k, v in self.window(tick, 10))
        if text == JOIN:
            level = self.level(tick)
            return Counter((k, v, level[k]) for _, k, v in self.window(tick, 3) if k in level)
        found: dict[int, list[int]] = {}
        for _, k, v in self.window(tick, 10):
            found.setdefault(k, []).append(v)
        return Counter((k, sum(values), len(values)) for k, values in found.items())
