"""What a server costs beside `penstock run`: python -m benchmarks.live_overhead

The same statements over the same files, once by a run and once by a server, in turn; times are those that the batches
took, by the engine's own account, the first time of each process left out. Every answer is checked.

- q1 to q9 (`queries.py`): rows a second of the server against those of the run;
- a batch without rows, in which only time goes on, beside all of these queries over a stream of SYSTEM TIME;
- RETAIN: a query that reads all columns of a stream, at a server, with and without the stream being retained.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import answers, data
from benchmarks.live import server
from benchmarks.queries import QUERIES, STREAM, BenchQuery
from benchmarks.records import save
from penstock.client.server import ServerClient
from penstock.session import Session

#: Input of a batch, so that batches take some seconds.
BATCH = "2147483648"
_SAMPLE = re.compile(r'^(\w+)(?:\{(?:\w+="([^"]*)")?\})? (\S+)$', re.MULTILINE)

ALL_COLUMNS = BenchQuery(
    "retained",
    "count, sums and maxima by proto, tumbling 10 s",
    """
SELECT RSTREAM(proto, COUNT(*) AS n, SUM(bytes) AS total, MAX(src) AS src, MAX(dst) AS dst)
FROM C [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY proto
""",
    """
SELECT ((ts + 9999) // 10000) * 10000 AS ts, count(*) AS n, sum(bytes) AS total, max(src) AS src, max(dst) AS dst
FROM C GROUP BY 1, proto HAVING ((ts + 9999) // 10000) * 10000 <= (SELECT max(ts) FROM C)
""",
    ("ts", "n", "total", "src", "dst"),
)


@dataclass(frozen=True)
class Side:
    """A run or a server that carries out statements.

    Args:
        begin: carries out statements; with a second call those of the first have ended.
        batches: returns (number, seconds) of the batches since `begin`.
        rows: returns the records that have been read since then.
        end: ends what they began.
    """

    begin: Callable[[str], None]
    batches: Callable[[], tuple[int, float]]
    rows: Callable[[], int]
    end: Callable[[], None]


@contextmanager
def run_side(root: Path) -> Iterator[Side]:
    """A run in this process."""
    runs: list[Any] = []

    def begin(statements: str) -> None:
        session = Session()
        session.execute(f"SET max_batch_bytes = {BATCH};\n{statements}")
        runs.append(session.start(checkpoint=str(root / f"run-{len(runs)}")))

    def batches() -> tuple[int, float]:
        metrics = runs[-1].metrics()
        return metrics.batches, metrics.seconds

    yield Side(begin, batches, lambda: int(runs[-1].progress().rows_in), lambda: runs[-1].stop())


@contextmanager
def server_side(root: Path) -> Iterator[Side]:
    """A server in a process of its own."""
    with server(f"max_batch_bytes={BATCH}", allowed=(root, data.FOLDER)) as (client, _):
        before: list[tuple[int, float, int]] = []

        def begin(statements: str) -> None:
            before.append(_told(client))
            client.execute(statements)

        def batches() -> tuple[int, float]:
            number, seconds, _ = _told(client)
            return number - before[-1][0], seconds - before[-1][1]

        def end() -> None:
            for query in client.queries():
                client.execute(f"DROP QUERY {query.name}")
            client.execute("DROP STREAM C")

        yield Side(begin, batches, lambda: _told(client)[2], end)


def _told(client: ServerClient) -> tuple[int, float, int]:
    """Return the batches of a server, the seconds that they took, and the records read of its present sources."""
    samples = [(name, float(value)) for name, _, value in _SAMPLE.findall(client.metrics())]
    total = {name: sum(value for other, value in samples if other == name) for name, _ in samples}
    return (
        int(total.get("penstock_batches_total", 0)), total.get("penstock_batch_seconds_total", 0.0),
        int(total.get("penstock_source_rows_total", 0)),
    )  # fmt: skip


def until(true: Callable[[], bool], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


def timed(side: Side, query: BenchQuery, rows: int, root: Path, repeats: int, retain: str = "") -> list[float]:
    """Return the seconds of the batches of each repetition, the first left out."""
    folder, seconds = data.connections(rows), []
    expected = answers.reference_checksum(folder, query, data.last_ms(rows))
    for number in range(repeats + 1):
        out = root / f"{query.name}-{number}"
        side.begin(_with_retention(query.script(folder, out), retain))
        until(lambda: side.rows() >= rows)
        found = None
        deadline = time.monotonic() + 120
        while found != expected:
            assert time.monotonic() < deadline, f"{query.name}: a wrong answer: {found}, not {expected}"
            time.sleep(0.5)
            found = answers.result_checksum(out, query, data.last_ms(rows)) if out.exists() else None
        _, took = side.batches()
        seconds.append(took)
        side.end()
        shutil.rmtree(out)
    return seconds[1:]


def _with_retention(script: str, retain: str) -> str:
    return script.replace("UNIT MILLISECOND;", f"UNIT MILLISECOND{retain};", 1)


def empty_batches(side: Side, root: Path, count: int) -> float:
    """Return the seconds of a batch without rows, the mean of `count`: q1 to q9 stand, and time alone goes on."""
    folder = root / "watched"
    folder.mkdir()
    (folder / "0.csv").write_text("ts,src,dst,proto,bytes\n1,1,1,udp,2000\n")
    declared = STREAM.format(data=folder).replace("/*.parquet', format 'parquet'", "', format 'csv', watch 'true'")
    queries = "".join(
        f"CREATE QUERY e{number} INTO FILES (path '{root}/none-{number}', format 'csv') AS {query.cql.strip()};\n"
        for number, query in enumerate(QUERIES.values())
    )
    side.begin(declared.replace("TIMESTAMP BY ts UNIT MILLISECOND", "SYSTEM TIME") + queries)
    until(lambda: side.batches()[0] >= count // 4)
    before, earlier = side.batches()
    until(lambda: side.batches()[0] >= before + count)
    after, later = side.batches()
    side.end()
    return (later - earlier) / (after - before)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live_overhead", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the stream, a multiple of 100")
    parser.add_argument("--queries", nargs="*", choices=list(QUERIES), default=list(QUERIES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--empty", type=int, default=40, help="batches without rows; 0 for none")
    parser.add_argument("--no-retain", action="store_true", help="leave out what is retained")
    parser.add_argument("--keep", action="store_true", help="keep the figures in benchmarks/results")
    given = parser.parse_args(arguments)
    measured: list[dict[str, Any]] = []

    def show(figure: dict[str, Any]) -> None:
        measured.append(figure)
        print(json.dumps(figure), flush=True)

    def compared(name: str, one: Sequence[float], other: Sequence[float], goal: float) -> None:
        """Show medians: of a run, or without; and of a server, or with."""
        before, after = median(one), median(other)
        spread = max(max(times) / min(times) - 1 for times in (one, other))
        show({"figure": name, "seconds": [round(before, 3), round(after, 3)],
              "overhead": round(after / before - 1, 3), "spread": round(spread, 3), "goal": goal})  # fmt: skip

    with tempfile.TemporaryDirectory(prefix="penstock-overhead-") as name:
        root = Path(name)
        times: dict[tuple[str, int], list[float]] = {}
        empty: list[float] = []
        for turn, opened in enumerate((run_side, server_side)):
            place = root / str(turn)
            place.mkdir()
            with opened(place) as side:
                for query in given.queries:
                    times[query, turn] = timed(side, QUERIES[query], given.rows, place, given.repeats)
                if given.empty:
                    empty.append(empty_batches(side, place, given.empty))
        for query in given.queries:
            compared(query, times[query, 0], times[query, 1], 0.03)
        if given.empty:
            compared("a batch without rows", empty[:1], empty[1:], 0.15)
        if not given.no_retain:
            place = root / "retained"
            place.mkdir()
            with server_side(place) as side:
                times["", 0] = timed(side, ALL_COLUMNS, given.rows, place, given.repeats)
                times["", 1] = timed(side, ALL_COLUMNS, given.rows, place, given.repeats, " RETAIN 1 HOUR")
            compared("retained", times["", 0], times["", 1], 0.05)
    if given.keep:
        print(save("live-overhead", "2g", measured))


if __name__ == "__main__":
    main()
