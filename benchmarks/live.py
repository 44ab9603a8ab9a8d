"""A server under commands: python -m benchmarks.live

`penstock serve` in a process of its own, called through `penstock.client` as a user would, with streams at rest:

- from a command to the first answer of its query, among 100 and 1,000 standing queries;
- 1,000 queries registered one by one without waiting, until all of them run; and the CPU time of the driver's Python
  process for one more beside these, waited for, with its round;
- one SELECT over a million elements that a stream retains, and over as many rows that a query has answered and its
  results keep; and what is needed to post these;
- memory of the driver over cycles of registering and dropping, with what is added by each in the second half of them
  (`heap.py`), and with slow subscribers: before them, with them, and over the posts that they do not read.

Every answer is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from benchmarks.heap import asked, growth
from benchmarks.records import save
from penstock.client import connect
from penstock.client.server import ServerClient

STREAM = "CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND{retain};"
#: Goals of the issue, by figure: seconds at most.
GOALS = {
    "first answer, 100": 1.0,
    "first answer, 1000": 2.0,
    "1000 registered": 60.0,
    "select": 0.5,
    "select, retained": 0.5,
}


#: Queries registered beside those that stand, to measure one: the clock of a process has ticks of 10 ms.
ONE_BY_ONE = 20


#: Looks at the memory of a server in the course of a measurement.
LOOKS = 20


@contextmanager
def serving(*settings: str, allowed: Sequence[Path] = ()) -> Iterator[tuple[str, str, int]]:
    """Give the address of a new server, its token and its process. allowed: folders that statements may read and
    write. It tells of its memory at `heap` in the folder of its checkpoint's (`heap_of`)."""
    with tempfile.TemporaryDirectory(prefix="penstock-live-") as root:
        sets = [part for one in settings for part in ("--set", one)]
        sets += [part for folder in allowed for part in ("--allow-path", str(folder))]
        command = [sys.executable, "-m", "benchmarks.heap", f"{root}/heap", "serve"]
        command += ["--checkpoint", f"{root}/state", "--http", "127.0.0.1:0"]
        command += ["--token-file", f"{root}/tokens.json", *sets]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None, "it is a pipe"
            address = process.stdout.readline().strip()
            token = Path(root, "first-token").read_text().strip()
            yield address, token, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)


def checkpoint_of(pid: int) -> Path:
    """Return the checkpoint of a server that `serving` has started."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return Path(command[command.index(b"--checkpoint") + 1].decode())


def heap_of(pid: int) -> dict[str, int]:
    """Return what a server that `serving` has started tells of its memory."""
    return asked(checkpoint_of(pid).parent / "heap")


@contextmanager
def server(*settings: str, allowed: Sequence[Path] = ()) -> Iterator[tuple[ServerClient, int]]:
    """Give a client of a new server, and its process. allowed: as for `serving`."""
    with serving(*settings, allowed=allowed) as (address, token, pid), connect(address, token) as client:
        yield client, pid


def standing(number: int) -> str:
    return f"CREATE QUERY q{number} AS SELECT k, SUM(v) AS total FROM s [RANGE {number + 1} SECONDS] GROUP BY k;"


def rows(first: int, count: int, keys: int = 10) -> pa.Table:
    """Rows with one timestamp each, from `first` on."""
    number = np.arange(first, first + count)
    return pa.table({"k": number % keys, "v": number % 100, "ts": number})


def first_answers(count: int, commands: int) -> dict[str, Any]:
    """Seconds from a command to the first answer of its query, among `count` standing ones."""
    with server() as (client, _):
        client.execute(STREAM.format(retain=""))
        began = time.perf_counter()
        client.execute("".join(map(standing, range(count))))
        registered = time.perf_counter() - began
        at, replies, answers = 0, [], []
        for number in range(commands):
            client.insert("s", rows(at, 1))
            at += 1
            at_rest(client, at - 2)
            name = f"new{number}"
            began = time.perf_counter()
            client.execute(f"CREATE QUERY {name} AS SELECT k, v FROM s WHERE v >= 0")
            replies.append(time.perf_counter() - began)
            subscription = client.subscribe(name, beginning=True)
            client.insert("s", rows(at, 1))
            batch = next(iter(subscription))
            answers.append(time.perf_counter() - began)
            assert batch.column("v").to_pylist() == [at % 100], batch
            at += 1
            client.execute(f"DROP QUERY {name}")
    return {
        "figure": f"first answer, {count}",
        "seconds": round(median(answers), 3),
        "most": round(max(answers), 3),
        "reply": round(median(replies), 3),
        "registered": round(registered, 2),
    }


def at_rest(client: ServerClient, tick: int) -> None:
    """Wait until all queries have answered up to a tick, and no round is in hand."""
    began = time.perf_counter()
    while client.query("q0").instant != str(tick):
        assert time.perf_counter() - began < 120, f"it stays at {client.query('q0').instant}"
        time.sleep(0.1)
    time.sleep(1)


def registration(count: int) -> dict[str, Any]:
    """Seconds until `count` queries run that were registered one by one without waiting."""
    with server() as (client, pid):
        client.execute(STREAM.format(retain=""))
        began, before = time.perf_counter(), processor_seconds(pid)
        for number in range(count):
            client.execute(standing(number), wait=False)
        accepted = time.perf_counter() - began
        while sum(query.state == "RUNNING" for query in client.queries()) < count:
            assert time.perf_counter() - began < 600, "they do not all run"
            time.sleep(0.1)
        seconds, used = time.perf_counter() - began, processor_seconds(pid) - before
        versions = len({command.version for command in client.commands()})
        before = processor_seconds(pid)
        for number in range(count, count + ONE_BY_ONE):
            client.execute(standing(number))
        alone = (processor_seconds(pid) - before) / ONE_BY_ONE
    return {
        "figure": f"{count} registered",
        "seconds": round(seconds, 2),
        "accepted": round(accepted, 2),
        "driver_cpu": round(used, 2),
        "versions": versions,
        "driver_cpu_of_one_more": round(alone, 4),
    }


def selection(count: int, repeats: int, retained: bool) -> dict[str, Any]:
    """Seconds of one SELECT over elements that a stream retains, or over rows that the results of a query keep."""
    with server() as (client, _):
        client.execute(STREAM.format(retain=f" RETAIN {count} SECONDS" if retained else ""))
        if not retained:
            client.execute("CREATE QUERY everything AS SELECT k, v FROM s WHERE v >= 0")
        read = "s" if retained else "everything"
        table = rows(0, count)
        began = time.perf_counter()
        client.insert("s", table)
        posted = time.perf_counter() - began
        sql = f"SELECT k, COUNT(*) AS n, SUM(v) AS total FROM {read} [RANGE {count} SECONDS] GROUP BY k ORDER BY k"
        deadline = time.monotonic() + 300
        while sum(client.select(sql).to_arrow().column("n").to_pylist()) < count - 1:
            assert time.monotonic() < deadline, "the rows are not read"
            time.sleep(0.5)
        seconds = []
        for _ in range(repeats):
            began = time.perf_counter()
            answer = client.select(sql).to_arrow()
            seconds.append(time.perf_counter() - began)
        found = sum(answer.column("n").to_pylist())
        inside = table.slice(0, found) if found == count else table.slice(0, count - 1)
        expected = inside.group_by("k").aggregate([("v", "sum")]).sort_by("k").column("v_sum").to_pylist()
        assert answer.column("total").to_pylist() == expected, "wrong sums"
    return {
        "figure": "select, retained" if retained else "select",
        "rows": count,
        "seconds": round(median(seconds), 3),
        "most": round(max(seconds), 3),
        "posted": round(posted, 2),
    }


def cycles(count: int, retain: str) -> dict[str, Any]:
    """Memory of the driver's Python process over registrations and drops. retain: for how long results are kept, whose
    records stay with them."""
    into = f"INTO RESULTS (retain '{retain}')"
    with server() as (client, pid):
        client.execute(STREAM.format(retain=""))
        client.execute(standing(0).replace(" AS ", f" {into} AS ", 1))
        began = time.perf_counter()
        counts, looks = [0], [heap_of(pid)]
        for number in range(1, count + 1):
            client.execute(f"CREATE QUERY c{number} {into} AS SELECT k, v FROM s WHERE v > {number % 7}")
            client.insert("s", rows(number, 1))
            client.execute(f"DROP QUERY c{number}")
            if number % max(1, count // LOOKS) == 0:
                counts.append(number)
                looks.append(heap_of(pid))
        seconds = time.perf_counter() - began
    return {
        "figure": "cycles",
        "count": count,
        "seconds": round(seconds),
        "megabytes": megabytes(looks),
        "bytes_a_cycle": growth(counts, looks),
    }


def megabytes(looks: Sequence[dict[str, int]]) -> list[float]:
    """Return by look the memory of the process, without pages of files that it reads."""
    return [round(look["anonymous"] / 2**20, 1) for look in looks]


def subscribers(count: int, posts: int) -> dict[str, Any]:
    """Memory of the driver's Python process with subscribers that do not read: before them, with them, over the posts
    that they do not read, and when they have gone."""
    with serving() as (address, token, pid), connect(address, token) as client:
        client.execute(STREAM.format(retain=""))
        client.execute("CREATE QUERY everything AS SELECT k, v FROM s WHERE v >= 0")
        client.insert("s", rows(0, 1000))
        time.sleep(3)
        before = heap_of(pid)
        readers = [slow_reader(address, token, "everything") for _ in range(count)]
        counts, looks = [0], [heap_of(pid)]
        for number in range(posts):
            client.insert("s", rows(1000 + number * 10_000, 10_000))
            time.sleep(0.5)
            if (number + 1) % max(1, posts // LOOKS) == 0:
                counts.append(number + 1)
                looks.append(heap_of(pid))
        # What they have not taken is still there.
        found = 0
        for batch in pa.ipc.open_stream(readers[-1]) if readers else ():
            found += batch.num_rows
            if found >= 1000 + posts * 10_000 - 1:
                break
        for reader in readers:
            reader.close()
        time.sleep(5)
        left = heap_of(pid)
    return {
        "figure": "subscribers",
        "count": count,
        "posts": posts,
        "megabytes": megabytes([before, *looks]),
        "used": [round(look["used"] / 2**20, 1) for look in (before, *looks)],
        "gone": megabytes([left])[0],
        "gone_used": round(left["used"] / 2**20, 1),
        "bytes_a_post": growth(counts, looks),
    }


def slow_reader(address: str, token: str, query: str) -> HTTPResponse:
    """Return the results of a query as a client that has read only their head."""
    host = urlsplit(address)
    assert host.hostname is not None and host.port is not None, "a server has both"
    connection = HTTPConnection(host.hostname, host.port)
    connection.sock = socket.socket()
    # Otherwise the system would take rows for the client.
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
    connection.sock.connect((host.hostname, host.port))
    path = f"/v1/queries/{query}/results?format=arrow&from=beginning"
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    return connection.getresponse()


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used, its children not counted."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__)
    parser.add_argument("--standing", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--commands", type=int, default=5, help="commands timed among the standing queries")
    parser.add_argument("--register", type=int, default=1000, help="queries registered without waiting; 0 for none")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows that the SELECT reads; 0 for none")
    parser.add_argument("--cycles", type=int, default=2000, help="registrations and drops; 0 for none")
    parser.add_argument("--retain", default="10 minutes", help="for how long results are kept over the cycles")
    parser.add_argument("--subscribers", type=int, default=200, help="subscribers that do not read")
    parser.add_argument("--posts", type=int, default=2 * LOOKS, help="posts of 10,000 rows that they do not read")
    parser.add_argument("--keep", action="store_true", help="keep the figures in benchmarks/results")
    given = parser.parse_args(arguments)
    measured: list[dict[str, Any]] = []

    def show(figure: dict[str, Any]) -> None:
        goal = GOALS.get(figure["figure"])
        measured.append(figure | ({} if goal is None else {"goal": goal}))
        print(json.dumps(measured[-1]), flush=True)

    for count in given.standing:
        show(first_answers(count, given.commands))
    if given.register:
        show(registration(given.register))
    if given.rows:
        show(selection(given.rows, 5, retained=True))
        show(selection(given.rows, 5, retained=False))
    if given.cycles:
        show(cycles(given.cycles, given.retain))
    if given.subscribers:
        show(subscribers(given.subscribers, given.posts))
    if given.keep:
        print(save("live", "2g", measured))


if __name__ == "__main__":
    main()
