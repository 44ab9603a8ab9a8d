"""What doors cost: `SELECT 1` through psql and psycopg, and the CPU of a server at rest with its page and a connection
of PostgreSQL's protocol open against the same server without them.

`python -m benchmarks.idle [seconds]` starts a server without Spark in a process of its own, with a stream, a query and
both doors. It prints medians and 95 % of `SELECT 1`: through one connection of psycopg, and through one psql that tells
times itself (`\\timing`). Then it reads the CPU time of the server's processes over so many seconds (30 unless said
otherwise) in turn at rest, with the page open in a headless Chromium and a connection that does nothing, and at rest
again.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psycopg

from penstock.cli.serve import ServeOptions, start_in_process
from penstock.pgwire.door import PgDoor
from penstock.pgwire.listening import PgServer
from penstock.server.addresses import Address, HostNames
from penstock.server.http.application.server import HttpServer
from penstock.server.http.door import HttpDoor
from penstock.server.limits import DoorLimits
from penstock.server.listening import opened
from penstock.server.policy import ServerPolicy
from penstock.settings import Settings

SCRIPT = """CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at;
CREATE QUERY warm AS SELECT room, MAX(celsius) AS celsius FROM readings [RANGE 1 HOUR] GROUP BY room;
"""
TIMES = 300


def serve(folder: str, told: Connection) -> None:
    """Open both doors without tokens, and tell where, until something is said."""
    place = Path(folder) / "checkpoint"
    service = start_in_process(ServeOptions(place, "", script=(SCRIPT, "idle.cql")), ServerPolicy(closed=(place,)))
    address, limits = Address("127.0.0.1", 0), DoorLimits.of(Settings())
    http = HttpServer(HttpDoor(service, None, HostNames.of(address), limits), address)
    pg = PgServer(PgDoor(service, None, limits), address, opened(address), None)
    told.send((http.url, pg.address.port))
    told.recv()
    pg.close()
    http.close()
    service.close()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of those it has started."""
    text = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    own = (int(text[11]) + int(text[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_seconds(int(child)) for child in children)


def told_times(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    high = ordered[int(len(ordered) * 0.95)]
    print(
        f"SELECT 1 through {name}: median {statistics.median(ordered) * 1000:.2f} ms, 95 % {high * 1000:.2f} ms"
        f" ({len(ordered)} times)"
    )


def through_psycopg(port: int) -> list[float]:
    taken = []
    with psycopg.connect(f"host=127.0.0.1 port={port} user=test", autocommit=True) as connection:
        for _ in range(TIMES):
            began = time.perf_counter()
            connection.execute("SELECT 1").fetchall()
            taken.append(time.perf_counter() - began)
    return taken


def through_psql(port: int) -> list[float]:
    script = "\\timing on\n" + "SELECT 1;\n" * TIMES
    command = ["psql", "-X", "-h", "127.0.0.1", "-p", str(port), "-U", "test", "-d", "penstock"]
    out = subprocess.run(command, input=script, capture_output=True, text=True, check=True).stdout
    return [float(one) / 1000 for one in re.findall(r"Time: ([\d.]+) ms", out)]


def at_rest(pid: int, seconds: float) -> float:
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - began)


def with_clients(pid: int, url: str, port: int, seconds: float) -> float:
    """Return the share of a core of the server while a page and a connection are open."""
    from playwright.sync_api import sync_playwright

    with ExitStack() as stack:
        stack.enter_context(psycopg.connect(f"host=127.0.0.1 port={port} user=test", autocommit=True))
        playwright = stack.enter_context(sync_playwright())
        options: dict[str, Any] = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox"]}
        browser = playwright.chromium.launch(**options)
        page = browser.new_page()
        page.goto(f"{url}/#/query/warm")
        page.locator(".plan [data-node]").first.wait_for(timeout=120_000)
        time.sleep(3)
        share = at_rest(pid, seconds)
        browser.close()
    return share


def main(seconds: float) -> None:
    context = get_context("spawn")
    here, there = context.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        server = context.Process(target=serve, args=(folder, there))
        server.start()
        url, port = here.recv()
        assert server.pid is not None
        print(f"load average: {os.getloadavg()[0]:.1f}")
        through_psycopg(port)
        told_times("psycopg", through_psycopg(port))
        if shutil.which("psql"):
            told_times("psql", through_psql(port))
        for name in ("at rest", "with page and connection", "at rest again"):
            share = with_clients(server.pid, url, port, seconds) if "with" in name else at_rest(server.pid, seconds)
            print(f"{name}: {share:.2%} of a core over {seconds:g} s")
        here.send("end")
        server.join(60)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0)
