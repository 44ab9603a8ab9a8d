"""What a command and a round cost a server without Spark, however much state it has: python -m benchmarks.in_process

A control over the engine in this process, with its checkpoint in a temporary folder. Measured are `CREATE QUERY`, `DROP
QUERY` and a round that reads one row, each the median of some, in milliseconds of the clock and of the CPU, and the
bytes that each writes:

- beside a window of so many rows, which came in one post;
- after so many posts of one row, without RETAIN, with it, and to a relation;
- beside so many rows of answers, which such a server keeps;
- after so many cycles of CREATE QUERY and DROP QUERY;
- beside so many standing queries.

No figure but the last may grow with the number in it.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from benchmarks.records import save
from penstock.control.live.control import Control
from penstock.engines.in_process import InProcessEngine
from penstock.storage.local import SystemCalls

STREAM = "CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND {options};"
RELATION = (
    "CREATE RELATION s (k BIGINT, v BIGINT, ts BIGINT, PRIMARY KEY (k)) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
)
OTHER = "CREATE STREAM t (k BIGINT, ts BIGINT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
#: Windows whose rows lie in state one by one.
JOIN = "CREATE QUERY w AS SELECT s.v FROM s [RANGE 100000000 SECONDS], t [RANGE 9 SECONDS] WHERE s.k = t.k;"
ROWS = "CREATE QUERY w AS SELECT AVG(v) AS a FROM s [ROWS 100000000];"
COUNT = "CREATE QUERY w AS SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS];"
ALL = "CREATE QUERY w AS SELECT k, v FROM s;"
CREATE = "CREATE QUERY c{0} START NOW AS SELECT SUM(v) AS a FROM s [RANGE 7 SECONDS] WHERE v > {0};"

#: How many posts a round reads, where many are there before anything is measured.
POSTS_A_ROUND = 20

#: The bytes that have been written.
WRITTEN = [0]


def counting_write(calls: SystemCalls, handle: int, data: memoryview) -> int:
    """Write to a file as `SystemCalls.write` does, and count."""
    WRITTEN[0] += data.nbytes
    return os.write(handle, data)


class Server:
    """A control and its engine, whose rounds run here."""

    def __init__(self, folder: Path) -> None:
        self.engine = InProcessEngine(folder / "engine")
        self.control = Control(folder, self.engine)
        self.time = 0

    def run(self, script: str) -> None:
        for one in self.control.submit(script):
            assert one.outcome is None or one.outcome.state.value != "FAILED", one.outcome

    def post(self, rows: int, runs: bool = True) -> None:
        """Post rows of one second. runs: and run a round."""
        self.time += 1
        keys = np.arange(rows, dtype=np.int64) + (self.time if rows == 1 else 0)
        columns = {"k": keys, "v": keys % 1000, "ts": np.full(rows, self.time)}
        self.control.insert("s", pa.table(columns))
        if runs:
            self.engine.round()


def timed(action: Callable[[], object]) -> tuple[float, float, int]:
    """Return the milliseconds of the clock and of the CPU that an action takes, and the bytes that it writes."""
    clock, cpu, written = time.perf_counter(), time.process_time(), WRITTEN[0]
    action()
    return (
        1000 * (time.perf_counter() - clock),
        1000 * (time.process_time() - cpu),
        WRITTEN[0] - written,
    )


def measure(server: Server, figure: str, number: int, tries: int) -> dict[str, Any]:
    """Return what commands and rounds cost a server as it is."""
    gc.collect()
    taken: dict[str, list[tuple[float, float, int]]] = {"create": [], "drop": [], "round": []}
    for i in range(tries + 1):
        taken["create"].append(timed(lambda i=i: server.run(CREATE.format(i))))
        taken["round"].append(timed(lambda: server.post(1)))
        taken["drop"].append(timed(lambda i=i: server.run(f"DROP QUERY c{i};")))
    found: dict[str, Any] = {"figure": figure, "number": number}
    for kind, each in taken.items():
        # The first may have been compiled.
        clock, cpu, written = (round(median(values), 1) for values in zip(*each[1:], strict=True))
        found |= {kind: clock, f"{kind}_cpu": cpu, f"{kind}_kb": round(written / 1000, 1)}
    return found


@contextmanager
def serving(script: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="penstock-in-process-") as folder:
        server = Server(Path(folder))
        try:
            server.run(script)
            yield server
        finally:
            server.control.close()


def windows(number: int, tries: int, query: str, figure: str) -> dict[str, Any]:
    with serving(STREAM.format(options="") + OTHER + query) as server:
        if number:
            server.post(number)
        return measure(server, figure, number, tries)


def posts(number: int, tries: int, declared: str, figure: str, window: str = " [RANGE 7 SECONDS]") -> dict[str, Any]:
    with serving(f"{declared} CREATE QUERY w AS SELECT COUNT(*) AS n FROM s{window};") as server:
        for i in range(number):
            server.post(1, runs=i % POSTS_A_ROUND == 0)
        with patch(f"{__name__}.CREATE", CREATE.replace(" [RANGE 7 SECONDS]", window)):
            return measure(server, figure, number, tries)


def answers(number: int, tries: int) -> dict[str, Any]:
    with serving(STREAM.format(options="") + ALL) as server:
        if number:
            server.post(number)
            server.post(1)
        return measure(server, "rows of answers", number, tries)


def cycles(number: int, tries: int) -> dict[str, Any]:
    with serving(STREAM.format(options="RETAIN 100 SECONDS") + COUNT) as server:
        for i in range(number):
            server.run(CREATE.format(i))
            server.run(f"DROP QUERY c{i};")
        return measure(server, "cycles of CREATE and DROP", number, tries)


def standing(number: int, tries: int) -> dict[str, Any]:
    queries = (
        f"CREATE QUERY q{i} AS SELECT SUM(v) AS a FROM s [RANGE {60 + i} SECONDS] WHERE v > {i};" for i in range(number)
    )
    with serving(STREAM.format(options="") + "".join(queries)) as server:
        for _ in range(3):
            server.post(10)
        return measure(server, "standing queries", number, tries)


FIGURES: dict[str, tuple[tuple[int, ...], Callable[[int, int], dict[str, Any]]]] = {
    "windows": ((0, 100_000, 1_000_000), lambda n, t: windows(n, t, JOIN, "rows in a window of time")),
    "rows": ((0, 100_000, 1_000_000), lambda n, t: windows(n, t, ROWS, "rows in a window of rows")),
    "posts": ((100, 10_000), lambda n, t: posts(n, t, STREAM.format(options=""), "posts")),
    "retained": (
        (100, 10_000),
        lambda n, t: posts(n, t, STREAM.format(options="RETAIN 100000000 SECONDS"), "posts, retained"),
    ),
    "relation": ((100, 10_000), lambda n, t: posts(n, t, RELATION, "posts to a relation", "")),
    "answers": ((0, 1_000_000, 5_000_000), answers),
    "cycles": ((0, 2_000), cycles),
    "standing": ((10, 300, 1_000), standing),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.in_process", description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(FIGURES), choices=list(FIGURES))
    parser.add_argument("--most", type=int, default=10**9, help="leave out larger numbers")
    parser.add_argument("--tries", type=int, default=15, help="commands and rounds of each kind")
    parser.add_argument("--keep", action="store_true", help="keep the figures in benchmarks/results")
    given = parser.parse_args()
    figures = []
    with patch.object(SystemCalls, "write", counting_write):
        for name in given.only:
            numbers, figure = FIGURES[name]
            for number in numbers:
                if number <= given.most:
                    figures.append(figure(number, given.tries))
                    print(figures[-1], flush=True)
    if given.keep:
        print(save("in_process", "-", figures))


if __name__ == "__main__":
    main()
