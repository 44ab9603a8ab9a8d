"""What a server costs beside `penstock run`: python -m benchmarks.live_overhead

The same statements over the same files by a run and by a server, each in a process of its own, in turn (`sides.py`);
times are those that the batches took, by the engine's own account, and the processor time of the driver, its JVM and
its workers, which a loaded machine changes less. The first time of each side is left out. Every answer is checked.

- q1 to q9 (`queries.py`): the server against the run;
- a batch without rows, in which only time goes on, beside all of these queries over a stream of SYSTEM TIME;
- RETAIN: a query that reads all columns of a stream, at a server, with and without the stream being retained.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import answers, data
from benchmarks.queries import QUERIES, STREAM, BenchQuery
from benchmarks.records import save
from benchmarks.sides import Account, Side, run_side, server_side, until

#: Input of a batch, so that batches take some seconds.
BATCH = "max_batch_bytes=2147483648"
#: What is declared of the stream in the comparison of RETAIN.
RETAINED = ("", " RETAIN 1 HOUR")

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


def timed(side: Side, query: BenchQuery, rows: int, out: Path, retain: str = "") -> Account:
    """Return the account of one query over all rows."""
    folder = data.connections(rows)
    expected = answers.reference_checksum(folder, query, data.last_ms(rows))
    side.begin(_with_retention(query.script(folder, out), retain))
    until(lambda: side.account().rows >= rows)
    account, found = side.account(), None
    deadline = time.monotonic() + 120
    while found != expected:
        assert time.monotonic() < deadline, f"{query.name}: a wrong answer: {found}, not {expected}"
        time.sleep(0.5)
        account = side.account()
        found = answers.result_checksum(out, query, data.last_ms(rows)) if out.exists() else None
    side.end()
    shutil.rmtree(out)
    return account


def _with_retention(script: str, retain: str) -> str:
    return script.replace("UNIT MILLISECOND;", f"UNIT MILLISECOND{retain};", 1)


def empty_batches(side: Side, root: Path, count: int) -> Account:
    """Return the account of a batch without rows, the mean of `count`: q1 to q9 stand, and time alone goes on."""
    folder = root / "watched"
    folder.mkdir(parents=True)
    (folder / "0.csv").write_text("ts,src,dst,proto,bytes\n1,1,1,udp,2000\n")
    declared = STREAM.format(data=folder).replace("/*.parquet', format 'parquet'", "', format 'csv', watch 'true'")
    queries = "".join(
        f"CREATE QUERY e{number} INTO FILES (path '{root}/none-{number}', format 'csv') AS {query.cql.strip()};\n"
        for number, query in enumerate(QUERIES.values())
    )
    side.begin(declared.replace("TIMESTAMP BY ts UNIT MILLISECOND", "SYSTEM TIME") + queries)
    until(lambda: side.account().number >= count // 4)
    before = side.account()
    # Asking costs a server more than a run.
    until(lambda: side.account().number >= before.number + count, every=count / 20)
    account = side.account().since(before).of_a_batch
    side.end()
    shutil.rmtree(root)
    return account


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

    def compared(name: str, both: Sequence[Sequence[Account]], goal: float) -> None:
        """Show medians: of a run, or without; and of a server, or with."""
        seconds, cpu, workers = (
            [median(getattr(one, field) for one in accounts) for accounts in both]
            for field in ("seconds", "cpu", "workers")
        )
        spread = max(max(a.seconds for a in one) / min(a.seconds for a in one) - 1 for one in both)
        show({"figure": name, "seconds": [round(s, 3) for s in seconds], "overhead": _over(seconds),
              "spread": round(spread, 3), "goal": goal, "cpu": [round(s, 3) for s in cpu], "cpu_overhead": _over(cpu),
              "cpu_of_workers": [round(s, 3) for s in workers]})  # fmt: skip

    with (
        tempfile.TemporaryDirectory(prefix="penstock-overhead-") as name,
        run_side(Path(name), BATCH) as run, server_side(Path(name), BATCH) as server,
    ):  # fmt: skip
        out = Path(name) / "out"
        sides = (run, server)
        for query in given.queries:
            compared(query, in_turn(given.repeats, [partial(timed, side, QUERIES[query], given.rows, out)
                                                    for side in sides]), 0.03)  # fmt: skip
        if given.empty:
            batches = [partial(empty_batches, side, Path(name) / "empty", given.empty) for side in sides]
            compared("a batch without rows", in_turn(given.repeats, batches), 0.15)
        if not given.no_retain:
            with_and_without = [partial(timed, server, ALL_COLUMNS, given.rows, out, retain) for retain in RETAINED]
            compared("retained", in_turn(given.repeats, with_and_without), 0.05)
    if given.keep:
        print(save("live-overhead", "2g", measured))


def in_turn(repeats: int, measurements: Sequence[Callable[[], Account]]) -> list[list[Account]]:
    """Return the accounts of each measurement, repeated in turn; the first of each is left out."""
    found = [[measure() for measure in measurements] for _ in range(repeats + 1)]
    return [list(accounts) for accounts in zip(*found[1:], strict=True)]


def _over(figures: Sequence[float]) -> float:
    """Return by which share the second of two figures is larger than the first."""
    before, after = figures
    return round(after / before - 1, 3) if before else 0.0


if __name__ == "__main__":
    main()
