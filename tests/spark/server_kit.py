"""A server on Spark as a process, and checks of it that share its starts: most of what a start takes is Spark's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.client import ServerClient, connect

#: Where a server is killed, or is looked below; else one that is ready.
PROGRAM = (sys.executable, "-m", "penstock")


@dataclass
class Server:
    """What is running now. notices: what it has said."""

    url: str
    client: ServerClient
    process: subprocess.Popen[str]
    folder: Path

    @property
    def token(self) -> str:
        return token(self.folder)

    @property
    def notices(self) -> str:
        return notices(self.folder)


def token(folder: Path) -> str:
    return (folder / "penstock" / "first-token").read_text(encoding="utf-8").strip()


def notices(folder: Path) -> str:
    return (folder / "stderr").read_text(encoding="utf-8")


@contextmanager
def served(folder: Path, *options: str, program: tuple[str, ...] = PROGRAM) -> Iterator[Server]:
    """Run a server over `rooms.cql` and the checkpoint `state` of the folder; it is killed behind the block."""
    command = [*program, "serve", str(folder / "rooms.cql"), "--http", "127.0.0.1:0"]
    with (folder / "stderr").open("w") as errors:
        process = subprocess.Popen(
            [*command, "--checkpoint", str(folder / "state"), *options], stdout=subprocess.PIPE, stderr=errors,
            env={**os.environ, "XDG_CONFIG_HOME": str(folder)}, text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, notices(folder)
        with connect(url, token(folder)) as client:
            yield Server(url, client, process, folder)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


#: Yields where the server is to be ended and started again, and is sent the one that goes on.
Check = Generator[None, Server, None]


def start(checks: Sequence[Check]) -> None:
    """Let each check come to the place where it receives the server."""
    for check in checks:
        next(check)


def go_on(checks: Sequence[Check], server: Server, failures: list[Exception]) -> list[Check]:
    """Let each check go on to where it wants another start; return those that do, and add to `failures` what is wrong
    in a check. The others go on without it."""
    left = []
    for check in checks:
        try:
            check.send(server)
        except StopIteration:
            continue
        except Exception as failure:
            failure.add_note(f"check {check.__name__}")
            failures.append(failure)
        else:
            left.append(check)
    return left


def warmest(stream: str) -> str:
    return f"SELECT room, MAX(celsius) AS celsius FROM {stream} [RANGE 1 HOUR] GROUP BY room"


def declared(stream: str, rest: str = "") -> str:
    return f"CREATE STREAM {stream} (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at{rest};\n"


def reading(time: str, room: str, celsius: float) -> dict[str, Any]:
    return {"at": f"2024-03-01 {time}:00", "room": room, "celsius": celsius}


def rows(client: ServerClient, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.select(sql).to_arrow().to_pylist()
    return found


def at_least(client: ServerClient, sql: str, count: int) -> list[dict[str, Any]]:
    """The answer of a SELECT, when it has so many rows."""
    end = time.monotonic() + 60
    while len(found := rows(client, sql)) < count:
        assert time.monotonic() < end, found
        time.sleep(0.2)
    return found


def changes(
    client: ServerClient, query: str, count: int, cursor: str | None = None
) -> tuple[list[tuple[Any, ...]], str | None]:
    """Return some rows of the query, from a cursor or its beginning, and the cursor behind them."""
    found: list[tuple[Any, ...]] = []
    with client.subscribe(query, cursor=cursor, beginning=cursor is None) as batches:
        for batch in batches:
            found += [(row["op"], row["room"], row["celsius"]) for row in batch.to_pylist()]
            if len(found) >= count:
                return found, batches.cursor
    raise AssertionError("the subscription ended")
