"""The server as a process, killed and started again at its address, and its subscribers."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks.live_soak.lives import Life
from benchmarks.soak import watch
from penstock.client import ServerClient, connect
from penstock.client.answers import RemoteStatement
from penstock.client.subscription import RowSubscription
from penstock.errors import PenstockError

ROOT = Path(__file__).resolve().parents[2]
#: Seconds that a start may take, and an end by SIGTERM.
_START, _END = 240.0, 120.0
#: Seconds in which a command comes, and after which the driver is killed then.
_NEXT_COMMAND, _IN_FLIGHT = 30.0, 0.3
#: The part of a soak in which the driver is killed.
_DRIVERS_UNTIL = 0.6


class Failed(Exception):
    """The soak cannot go on: why."""


class Served:
    """`penstock serve` over one checkpoint, at one address.

    Args:
        settings: as written, `key=value`.
        program: what Python runs, before `serve` and its options.
        in_process: without Spark.
        options: others of the command.

    Attributes:
        starts: how often it has been started.
    """

    def __init__(
        self,
        folder: Path,
        settings: tuple[str, ...] = (),
        program: tuple[str, ...] = ("-m", "penstock"),
        in_process: bool = False,
        options: tuple[str, ...] = (),
    ) -> None:
        self._folder = folder
        self._program = program
        self._settings = settings
        self._in_process = in_process
        self._options = options
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.checkpoint = folder / "state"
        self.log = folder / "server.log"
        self.starts = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it has been started"
        return self._process.pid

    @property
    def token(self) -> str:
        return (self._folder / "first-token").read_text(encoding="utf-8").strip()

    def start(self) -> None:
        """Start it and wait until it listens. Raises Failed."""
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, *self._program, "serve", "--checkpoint", str(self.checkpoint)]
        command += ["--http", f"127.0.0.1:{self._port}", "--token-file", str(self._folder / "tokens.json")]
        command += [part for one in self._settings for part in ("--set", one)]
        command += ["--in-process"] * self._in_process
        command += self._options
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": paths},
                start_new_session=True,
            )
        self.starts += 1
        timer = threading.Timer(_START, self._process.kill)
        timer.start()
        try:
            assert self._process.stdout is not None, "it is a pipe"
            if not self._process.stdout.readline().strip():
                raise Failed(f"the server does not start: {self.tail()}")
        finally:
            timer.cancel()

    def kill(self) -> None:
        """Kill the driver with all below it."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def ended(self) -> int:
        """Wait until it has ended by itself; return its code. Raises Failed."""
        assert self._process is not None, "it has been started"
        try:
            return self._process.wait(_END)
        except subprocess.TimeoutExpired:
            raise Failed("the server does not end") from None

    def kill_worker(self, draw: random.Random) -> bool:
        """Kill one of Spark's Python workers; return whether there was one."""
        found = watch.workers(self.pid)
        if not found:
            return False
        try:
            os.kill(draw.choice(found), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def end(self) -> None:
        """End it as its administrator does. Raises Failed."""
        assert self._process is not None, "it has been started"
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(_END)
        except subprocess.TimeoutExpired:
            raise Failed("the server does not end at SIGTERM") from None
        if code:
            raise Failed(f"the server ended with {code} at SIGTERM: {self.tail()}")

    def check(self) -> None:
        """Raise Failed where it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise Failed(f"the server ended by itself, with {self._process.returncode}: {self.tail()}")

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""


def finished(client: ServerClient, sql: str, key: str) -> tuple[RemoteStatement, ...]:
    """Execute a script once and wait until its commands have taken effect, also where queries read their past first."""
    while True:
        replies = client.execute(sql, key=key)
        if not any(one.state in ("PENDING", "HYDRATING") for one in replies):
            return replies
        time.sleep(0.2)


class Subscriber(threading.Thread):
    """Receives the results of a query from their beginning on, and comes back behind its cursor, whatever is lost.

    Args:
        life: of the query, which gets what is received.
        whole: it never leaves by itself.
    """

    def __init__(self, url: str, token: str, life: Life, seed: int, whole: bool = False) -> None:
        super().__init__(daemon=True, name=f"subscriber {life.number}")
        self._url, self._token = url, token
        self._life, self._whole = life, whole
        self._draw = random.Random(seed)
        self._over = threading.Event()
        #: Subscriptions that it has begun, and the present one.
        self.begun = 0
        self._subscription: RowSubscription | None = None

    def run(self) -> None:
        cursor: str | None = None
        with connect(self._url, self._token, patience=300) as client:
            while not self._over.is_set():
                until = self._draw.randint(1, 40)
                subscription = client.subscribe(self._life.name, cursor=cursor, beginning=cursor is None, progress=True)
                self.begun += 1
                self._subscription = subscription
                if self._over.is_set():
                    return
                try:
                    with subscription as batches:
                        for batch in batches:
                            self._take(batch.to_pylist())
                            cursor = subscription.cursor
                            until -= 1
                            if (not until and not self._whole) or self._over.is_set():
                                break
                except PenstockError as error:
                    if self._over.is_set():
                        return
                    if error.code in ("P0711", "P0201", "P0808"):
                        # It is paused, renamed, or the server is being started.
                        self._over.wait(0.3)
                        continue
                    self._life.faults.append(f"subscription behind {cursor}: {error.code} {error.message}")
                    return

    def _take(self, rows: list[dict[str, object]]) -> None:
        for row in rows:
            values = list(row.values())
            tick, op = int(str(values[0])), values[1]
            if op == "p":
                self._life.final = max(self._life.final, tick)
            else:
                numbers = tuple(int(str(value)) for value in values[2:])
                self._life.received.append((tick, -1 if op == "-" else 1, numbers))

    def end(self, seconds: float = 60.0) -> None:
        """End after the batch in hand; where none comes any more, it is not waited for."""
        self._over.set()
        if self._subscription is not None:
            self._subscription.close()
        self.join(seconds)


class Killer(threading.Thread):
    """Kills the driver, also in the midst of a command, single workers, and ends the server as its administrator does,
    at random moments.

    Args:
        every: seconds between two, about.
        seconds: that the soak lasts. In the last part of them only workers are killed, so that one driver lives for
            long enough to show whether it grows.
        least: kills of each kind before that.
        workers: whether there are any.

    Attributes:
        kills: by kind.
        commanding: set when a command is sent.
        failure: why the server cannot go on.
    """

    KINDS = ("driver", "worker", "command", "worker", "end")

    def __init__(
        self, served: Served, seed: int, every: float, seconds: float, least: int = 0, workers: bool = True
    ) -> None:
        super().__init__(daemon=True, name="killer")
        self._served = served
        self._draw = random.Random(seed)
        self._every = every
        self._drivers_until = _DRIVERS_UNTIL * seconds
        self._least = least
        self._over = threading.Event()
        #: Held while the server is down.
        self.down = threading.Lock()
        self._kinds = tuple(kind for kind in self.KINDS if workers or kind != "worker")
        self.kills: dict[str, int] = dict.fromkeys(dict.fromkeys(self._kinds), 0)
        self.commanding = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        began = time.monotonic()
        deck: list[str] = []
        try:
            while not self._over.wait(self._draw.uniform(0.5, 1.5) * self._every):
                deck = deck or self._draw.sample(self._kinds, len(self._kinds))
                kind = deck.pop()
                late = time.monotonic() - began > self._drivers_until and min(self.kills.values()) >= self._least
                if late:
                    kind = "worker"
                if kind in self._kinds:
                    with self.down:
                        self._kill(kind)
        except BaseException as failure:
            self.failure = failure

    def _kill(self, kind: str) -> None:
        self._served.check()
        if kind == "worker":
            self.kills[kind] += self._served.kill_worker(self._draw)
            return
        if kind == "command":
            # Most commands take less than that where nothing else is done.
            self.commanding.clear()
            if not self.commanding.wait(_NEXT_COMMAND) or self._over.wait(self._draw.uniform(0, _IN_FLIGHT)):
                return
        if kind in ("driver", "command"):
            self._served.kill()
        else:
            self._served.end()
        self.kills[kind] += 1
        self._over.wait(self._draw.uniform(0, 3))
        self._served.start()

    def end(self) -> None:
        """End after the kill in hand."""
        self._over.set()
        if self.is_alive():
            self.join(_START + _END)
