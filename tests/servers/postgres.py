"""A PostgreSQL server for tests, in a folder of its own on loopback.

Its programs are found where Debian puts them or on the PATH; as root on Debian they are installed if need be. The
server refuses to run as root, so root starts it as the user `postgres` or `nobody`. It is ended by its process id.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from tests.servers.debian import install

USER, PASSWORD = "penstock", "p4ss-W0rd"
_SECONDS = 60


class Unavailable(Exception):
    """Why there can be no server here."""


class Server:
    """A server on a free port, with the database `postgres` and the user `penstock`, who needs a password."""

    def __init__(self) -> None:
        self._programs = programs()
        self._owner = _owner()
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        if self._owner is not None:
            os.chown(self._folder, *self._owner)
        # Whoever connects over the socket is let in, whoever comes by the network needs the password.
        (self._folder / "password").write_text(PASSWORD)
        (self._folder / "password").chmod(0o644)
        self._run(
            "initdb",
            "-D",
            self.data,
            "-U",
            USER,
            "-A",
            "scram-sha-256",
            "--auth-local",
            "trust",
            "--pwfile",
            str(self._folder / "password"),
            "-E",
            "UTF8",
            "--locale",
            "C",
            "--no-sync",
        )
        self.start()

    @property
    def data(self) -> str:
        return str(self._folder / "data")

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [self._programs / "postgres", "-D", self.data, "-p", str(self.port), "-c", "listen_addresses=127.0.0.1",
             "-c", f"unix_socket_directories={self._folder}", "-c", "fsync=off"],
            stdout=subprocess.DEVNULL, stderr=(self._folder / "log").open("ab"), **self._as_owner,
        )  # fmt: skip
        deadline = time.monotonic() + _SECONDS
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                self.execute("SELECT 1")
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"the server does not start: {(self._folder / 'log').read_text()[-500:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it, cutting off who is connected."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(_SECONDS)
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Without the server for a while."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """The rows of a statement, committed."""
        with psycopg.connect(self.url, password=PASSWORD, options="-c TimeZone=UTC") as connection:
            cursor = connection.execute(statement.encode())
            return list(cursor.fetchall()) if cursor.description else []

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run([self._programs / program, *arguments], capture_output=True, **self._as_owner)
        if done.returncode:
            raise Unavailable(f"{program} failed: {done.stderr.decode()[-500:]}")

    @property
    def _as_owner(self) -> dict[str, object]:
        if self._owner is None:
            return {"cwd": self._folder}
        return {"user": self._owner[0], "group": self._owner[1], "extra_groups": [], "cwd": self._folder}


@functools.cache
def server() -> Server:
    """The server of this process, started now if it is the first time. Raises Unavailable."""
    made = Server()
    atexit.register(made.remove)
    return made


def options(db: Server, rest: str) -> str:
    """The connector POSTGRES of a declaration that reads `db`; the password is in the environment."""
    return f"POSTGRES (url '{db.url}', password_env 'PENSTOCK_TEST_PASSWORD', timeout '5 seconds', {rest})"


def programs() -> Path:
    """The folder of the server's programs, installed if they have to be. Raises Unavailable."""
    found = _found()
    if found is None:
        install("postgresql")
        found = _found()
    if found is None:
        raise Unavailable("no PostgreSQL server; on Debian or Ubuntu: apt-get install postgresql")
    return found


def _found() -> Path | None:
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    places = [*installed, *([Path(on_path).resolve().parent] if on_path else [])]
    return next((p for p in places if (p / "initdb").exists() and (p / "postgres").exists()), None)


def _owner() -> tuple[int, int] | None:
    """Whom the server runs as where we are root: (user, group)."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
    raise Unavailable("PostgreSQL does not run as root, and there is no user postgres or nobody")
