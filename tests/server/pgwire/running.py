"""A PostgreSQL door in front of a live system whose queries run in this process."""

from __future__ import annotations

import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from penstock.cli.serve import ServeOptions, start_in_process
from penstock.pgwire.door import PgDoor
from penstock.pgwire.listening import PgServer
from penstock.server.addresses import Address
from penstock.server.limits import DoorLimits
from penstock.server.listening import Certificate, opened
from penstock.server.policy import ServerPolicy
from penstock.server.roles import AccessRole, Caller
from penstock.server.service import Service
from penstock.server.tokens import TokenFile
from penstock.settings import Settings

SCRIPT = """CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at;
CREATE RELATION rooms (room STRING, level INT, area DECIMAL(8, 2), since DATE, PRIMARY KEY (room)) FROM MEMORY ();
INSERT INTO rooms VALUES ('hall', 0, 12.50, DATE '2020-02-29'), ('attic', 2, NULL, NULL);
CREATE RELATION notes (room STRING, note STRING) FROM MEMORY ();
CREATE VIEW upstairs AS SELECT room FROM rooms WHERE level > 0;
CREATE QUERY warm WITH (comment 'the last hour') AS
  SELECT room, MAX(celsius) AS celsius FROM readings [RANGE 1 HOUR] GROUP BY room;
"""
ROWS = [("2024-03-01 09:00:00", "hall", 19.5), ("2024-03-01 09:20:00", "attic", 23.0),
        ("2024-03-01 10:10:00", "hall", 20.0)]  # fmt: skip


@dataclass
class RunningPg:
    """A door. texts: a token for each role."""

    server: PgServer
    door: PgDoor
    tokens: TokenFile
    texts: dict[AccessRole, str]

    @property
    def port(self) -> int:
        return self.server.address.port

    def dsn(self, role: AccessRole = AccessRole.ADMIN, **more: object) -> str:
        given = {"host": "127.0.0.1", "port": self.port, "user": role.word, "dbname": "penstock",
                 "password": self.texts[role], "connect_timeout": 20, **more}  # fmt: skip
        return " ".join(f"{name}={value}" for name, value in given.items())

    def connect(self, role: AccessRole = AccessRole.ADMIN, **more: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn(role), **{"autocommit": True, **more})

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            cursor = connection.execute(statement, values or None)  # type: ignore[call-overload]
            return list(cursor.fetchall()) if cursor.description else []

    def rows_without_token(self) -> list[tuple[Any, ...]]:
        """Return the answer of SELECT 1 at a door without tokens."""
        with psycopg.connect(f"host=127.0.0.1 port={self.port} user=test connect_timeout=20") as connection:
            return connection.execute("SELECT 1").fetchall()

    def post(self, rows: list[tuple[str, str, float]] = ROWS) -> None:
        """Add readings."""
        names = ("at", "room", "celsius")
        source = self.door.service.declaration("readings")
        types = [column.type for column in source.columns]
        at, *rest = (list(column) for column in zip(*rows, strict=True))
        instants = pa.array([f"{one}Z".replace(" ", "T") for one in at]).cast(types[0])
        arrays = [instants, *(pa.array(values, type_) for values, type_ in zip(rest, types[1:], strict=True))]
        self.door.service.post("readings", pa.table(arrays, names), None, Caller("test", AccessRole.ADMIN))


def in_process(folder: Path, script: str = SCRIPT) -> Service:
    options = ServeOptions(folder / "checkpoint", "", script=(script, "rooms.cql"))
    return start_in_process(options, ServerPolicy(closed=(folder / "checkpoint",)))


@contextmanager
def running_pg(
    folder: Path, service: Service, certificate: Certificate | None = None, auth: bool = True, **settings: str
) -> Iterator[RunningPg]:
    """Open a door; it ends with the context, the service stays."""
    values = Settings()
    for name, value in settings.items():
        values = values.with_value(name, value)
    tokens = TokenFile(folder / "tokens.json")
    texts = {role: tokens.add(role.word, role) for role in AccessRole}
    address = Address("127.0.0.1", 0)
    door = PgDoor(service, tokens if auth else None, DoorLimits.of(values))
    server = PgServer(door, address, opened(address), certificate)
    try:
        yield RunningPg(server, door, tokens, texts)
    finally:
        server.close()


def made_certificate(folder: Path, *options: str) -> tuple[Path, Path]:
    """Return the files of a new certificate for this machine and of its key. options: of openssl, of the key and the
    signature."""
    chain, key = folder / "chain.pem", folder / "key.pem"
    chosen = options or ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            *chosen,
            "-keyout",
            str(key),
            "-out",
            str(chain),
        ],
        check=True,
        capture_output=True,
    )
    return chain, key


class RawClient:
    """A client that sends what it is told, to a door without tokens."""

    def __init__(self, port: int, begin: bool = True) -> None:
        # Longer than the first SELECT over data of a process takes on a busy machine: it starts a worker.
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        if begin:
            self.socket.sendall(startup(user="test"))
            self.until("Z")

    def send(self, kind: str, body: bytes = b"") -> None:
        self.socket.sendall(kind.encode() + struct.pack("!I", len(body) + 4) + body)

    def query(self, text: str) -> list[tuple[str, bytes]]:
        self.send("Q", text.encode() + b"\0")
        return self.until("Z")

    def until(self, kind: str) -> list[tuple[str, bytes]]:
        """Return the messages up to one of a kind, or to the end of the connection."""
        found: list[tuple[str, bytes]] = []
        while not found or found[-1][0] != kind:
            head = self._exactly(5)
            if len(head) < 5:
                break
            found.append((head[:1].decode("latin-1"), self._exactly(struct.unpack("!I", head[1:])[0] - 4)))
        return found

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                part = self.socket.recv(count - len(data))
            except ConnectionError:
                break
            if not part:
                break
            data += part
        return data

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def startup(version: int = 3 << 16, **given: str) -> bytes:
    body = struct.pack("!I", version)
    body += b"".join(name.encode() + b"\0" + value.encode() + b"\0" for name, value in given.items()) + b"\0"
    return struct.pack("!I", len(body) + 4) + body


def problem(found: list[tuple[str, bytes]]) -> dict[str, str]:
    """Return the fields of the first error among messages."""
    body = next(body for kind, body in found if kind == "E")
    return {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}
