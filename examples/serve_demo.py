"""`make serve-demo`: a server with the flights of 2013 replayed at a thousand times their speed. Queries are registered
with curl while the stream runs, one of them with full windows at once (START WARM); one is subscribed to, one SELECT is
answered, and the server is killed and started again: the subscription continues where it was, and so does the server's
page, which can be left open.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import prepare
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from penstock.errors import PenstockError

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path("demo-results")
FLIGHTS = RESULTS / "live" / "flights"
CHECKPOINT = RESULTS / "server"
#: Where the replay begins: a morning with thunderstorms.
BEGINNING = datetime(2013, 6, 13, 9, tzinfo=UTC)
EVERY = 0.5

DECLARED = f"""CREATE STREAM Flights (
  departure TIMESTAMP, carrier STRING, flight INT, origin STRING, dest STRING, dep_delay DOUBLE)
  FROM FILES (path '{FLIGHTS}/*.csv', format 'csv', header 'true', watch 'true') TIMESTAMP BY departure"""
LATE = "CREATE QUERY late AS SELECT carrier, flight, origin, dest, dep_delay FROM Flights WHERE dep_delay >= 120"
HOURS = """CREATE QUERY hours AS SELECT RSTREAM(origin, COUNT(*) AS flights, AVG(dep_delay) AS mean_delay)
  FROM Flights [RANGE 1 HOUR SLIDE 15 MINUTES] GROUP BY origin"""
WARM = """CREATE QUERY busiest START WARM AS SELECT origin, dest, COUNT(*) AS flights
  FROM Flights [RANGE 6 HOURS] GROUP BY origin, dest HAVING COUNT(*) >= 8"""
SELECT = "SELECT origin, SUM(flights) AS flights FROM busiest GROUP BY origin ORDER BY origin"


class Replay(threading.Thread):
    """Writes the flights into a watched folder as their time comes. speed: how much faster than they happened."""

    def __init__(self, flights: pa.Table, speed: float) -> None:
        super().__init__(daemon=True)
        self._flights, self._speed = flights, speed
        self.over = threading.Event()

    def run(self) -> None:
        began, number, reached = time.monotonic(), 0, BEGINNING
        while not self.over.wait(EVERY):
            now = BEGINNING + timedelta(seconds=(time.monotonic() - began) * self._speed)
            departure = self._flights.column("departure")
            due = pc.and_(pc.greater_equal(departure, reached), pc.less(departure, now))
            rows = self._flights.filter(due)
            reached = now
            if rows.num_rows:
                number += 1
                hidden = FLIGHTS / f".{number:06d}.csv"
                pyarrow.csv.write_csv(rows, hidden)
                hidden.rename(FLIGHTS / f"{number:06d}.csv")


@contextmanager
def server(secret: Path, place: str = "127.0.0.1:0") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `penstock serve`; give its address and its process. place: host and port, 0 for one that is free."""
    command = [
        sys.executable,
        "-m",
        "penstock",
        "serve",
        "--checkpoint",
        str(CHECKPOINT),
        "--http",
        place,
        "--token-file",
        str(secret),
        "--allow-path",
        str(RESULTS / "live"),
    ]
    print("$ penstock serve " + " ".join(command[4:]))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None, "it is a pipe"
        address = process.stdout.readline().strip()
        if not address:
            raise PenstockError("P0806", "the server has not started; what it said stands above")
        print(f"{address}\nIts page in a browser asks for the token in {secret.parent / 'first-token'}.\n", flush=True)
        yield address, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)


class Curl:
    """Calls the server with curl and prints the command."""

    def __init__(self, address: str, token: str) -> None:
        self._address, self._token = address, token

    def _command(self, path: str, *options: str) -> list[str]:
        print('$ curl -H "Authorization: Bearer $TOKEN" ' + " ".join(map(_quoted, (*options, path))))
        return ["curl", "-sS", "-N", "-H", f"Authorization: Bearer {self._token}", *options, f"{self._address}{path}"]

    def statement(self, sql: str, kind: str = "application/json") -> str:
        """Execute a statement; return the answer."""
        body = json.dumps({"sql": sql})
        options = ("-H", "Content-Type: application/json", "-H", f"Accept: {kind}", "-d", body)
        done = subprocess.run(self._command("/v1/statements", *options), capture_output=True, text=True, check=True)
        if '"errors"' in done.stdout or ('"code"' in done.stdout and '"statements"' not in done.stdout):
            raise PenstockError("P0601", f"the server refused a statement: {done.stdout}")
        print(_shortened(done.stdout) + "\n")
        return done.stdout

    def finished(self, number: int, seconds: float = 60) -> None:
        """Wait until a command has taken effect, whose query reads its past first. Raises PenstockError."""
        end = time.monotonic() + seconds
        command = self._command(f"/v1/commands/{number}")
        while True:
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            if json.loads(found).get("state") not in ("PENDING", "HYDRATING"):
                print(_shortened(found) + "\n")
                return
            if time.monotonic() > end:
                raise PenstockError("P0806", f"the command has not taken effect: {found}")
            time.sleep(0.2)

    def lines(self, path: str, count: int, seconds: float) -> list[dict[str, object]]:
        """Return at most `count` lines of a stream of JSON, those that come within so many seconds."""
        process = subprocess.Popen(self._command(path), stdout=subprocess.PIPE, text=True)
        timer = threading.Timer(seconds, process.terminate)
        timer.start()
        rows: list[dict[str, object]] = []
        try:
            assert process.stdout is not None, "it is a pipe"
            for line in process.stdout:
                rows.append(json.loads(line))
                if len(rows) <= 5:
                    print("  " + line.strip())
                if len(rows) == count:
                    break
        finally:
            timer.cancel()
            process.terminate()
            process.wait()
        print(f"  {len(rows)} rows\n")
        return rows


def _quoted(text: str) -> str:
    return text if text.replace("/", "").replace("-", "").isalnum() else "'" + text.replace("'", "'\\''") + "'"


def _shortened(text: str, most: int = 600) -> str:
    text = text.strip()
    return text if len(text) <= most else text[:most] + " ..."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--speed", type=float, default=1_000.0, help="how much faster than they happened")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long the stream runs before the WARM query")
    given = parser.parse_args()
    os.chdir(ROOT)
    if shutil.which("curl") is None:
        print("error: this demo calls the server with curl, which is not installed", file=sys.stderr)
        return 1
    try:
        run(given.speed, given.seconds)
    except PenstockError as error:
        print(error.render(), file=sys.stderr)
        return 1
    return 0


def run(speed: float, seconds: float) -> None:
    """Run the demo. Raises PenstockError."""
    prepare.prepare(RESULTS / "data")
    for folder in (FLIGHTS.parent, CHECKPOINT):
        shutil.rmtree(folder, ignore_errors=True)
    FLIGHTS.mkdir(parents=True)
    secret = RESULTS / "tokens" / "tokens.json"
    shutil.rmtree(secret.parent, ignore_errors=True)
    table = pq.read_table(RESULTS / "data" / "flights" / "2013-06.parquet")
    flights = table.select(["departure", "carrier", "flight", "origin", "dest", "dep_delay"])
    replay = Replay(flights, speed)
    try:
        with server(secret) as (address, process):
            curl = Curl(address, first_token(secret))
            curl.statement(DECLARED)
            replay.start()
            curl.statement(LATE)
            curl.statement(HOURS)
            print(f"... the flights run at {speed:,.0f} times their speed for {seconds:.0f} s\n")
            time.sleep(seconds)
            print("A query over six hours that has its whole window at once:")
            curl.statement("EXPLAIN START QUERY hours")
            (reply,) = json.loads(curl.statement(WARM))["statements"]
            print("Its past is read beside the others (HYDRATING), until it is up to date:")
            curl.finished(reply["number"])
            print("Subscribed to it: its content, then what changes")
            before = curl.lines("/v1/queries/busiest/results?snapshot=true&cursors=true&format=ndjson", 40, 20)
            print("One SELECT over what it answers at the moment:")
            curl.statement(SELECT, "text/csv")
            print(f"... the server is killed (process {process.pid})\n")
            process.kill()
            process.wait()
        # At the same place, where clients and the page look for it.
        with server(secret, address.removeprefix("http://").rstrip("/")) as (address, process):
            curl = Curl(address, first_token(secret))
            print("What was registered stands, and the subscription continues behind the last row that was seen:")
            cursor = next((row["cursor"] for row in reversed(before) if "cursor" in row), None)
            place = "" if cursor is None else f"&from={cursor}"
            after = curl.lines(f"/v1/queries/busiest/results?cursors=true&format=ndjson{place}", 20, 30)
            curl.statement("SHOW QUERIES")
            print(f"{len(before)} rows before the kill, {len(after)} after it")
    finally:
        replay.over.set()


def first_token(secret: Path) -> str:
    """Return the token that the server wrote at its first start."""
    return (secret.parent / "first-token").read_text(encoding="utf-8").strip()


if __name__ == "__main__":
    sys.exit(main())
