"""`python -m benchmarks.floors`: what Penstock costs where there is little to do, and what it holds.

    python -m benchmarks.floors [--parts batch,memory,window] [--batches 30] [--rows 400000,1600000]
        [--windows 10,3600] [--write]

- batch: how long a batch takes that brings a heartbeat and no row that any query takes, on Spark, in a process that has
  run such a query before. By the run's own metrics, which count everything between two deliveries.
- memory: state, and growth of the process, against the bytes of the rows that live windows hold: their number times
  their width with timestamp, both inputs of a join. At several sizes, in rounds that are equally long at all of them:
  so a process grows by so many bytes for each that the windows hold, and by a fixed part, the work space of a round and
  what is loaded late. Each in a process of its own that gives memory back as those of Spark do
  (`runtime/allocation.py`), on the local runtime, after each measured round; the inputs themselves, which lie in
  memory, and what is compiled were there before.
- window: what a tuple costs at one rate under windows of these seconds, as `slope.py` measures it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import slope
from benchmarks.local_harness import markdown, measure, write_table
from benchmarks.processes import tree_bytes
from penstock.runtime.allocation import give_back

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "results" / "floors.md"

#: Read by every batch query: one row a file, which none of them takes.
_WATCHED = """SET max_batch_bytes = 1; SET metrics_file = '{lines}';
CREATE STREAM S (ts BIGINT, k BIGINT) FROM FILES (path '{files}', format 'parquet')
  TIMESTAMP BY ts UNIT MILLISECOND;
"""
_AGGREGATE = "SELECT RSTREAM(k, COUNT(*) AS n) FROM S [RANGE {length} SECONDS SLIDE 10 SECONDS] WHERE k > 0 GROUP BY k"
BATCH_QUERIES = {
    "a filter": ["SELECT k FROM S WHERE k > 0"],
    "an aggregate": [_AGGREGATE.format(length=60)],
    "ten aggregates": [_AGGREGATE.format(length=60 + n) for n in range(10)],
}
#: Batches before those that count.
_WARM = 10

#: Operator -> (how many streams, the query); {rows} stands for the number of rows that a window holds, {part} for that
#: of one of the 1,000 partitions. A row of `slope.stream` is three INT.
HOLDING: dict[str, tuple[int, str]] = {
    "window join": (2, "SELECT S.k, S.v, T.v AS u FROM S {w}, T {w} WHERE S.k = T.k"),
    "join by key and range": (2, "SELECT S.k, S.v, T.v AS u FROM S {w}, T {w} WHERE S.k = T.k AND S.v < T.v"),
    "row window": (1, "SELECT k, v FROM S [ROWS {rows}]"),
    "row window by partition": (1, "SELECT k, v FROM S [PARTITION BY v ROWS {part}]"),
    "window as changes": (1, "SELECT k, v FROM S {w}"),
    "aggregate": (1, "SELECT v, SUM(k) AS total, COUNT(*) AS n FROM S {w} GROUP BY v"),
    "aggregate with MIN": (1, "SELECT v, MIN(k) AS least FROM S {w} GROUP BY v"),
    "aggregate over SLIDE": (1, "SELECT RSTREAM(v, SUM(k) AS total) FROM S {sliding} GROUP BY v"),
    "DISTINCT": (1, "SELECT DISTINCT v FROM S {w}"),
}
#: Tuples a second; a window of `rows` rows is as long as they take.
_RATE = 2000
_WIDTH = 8 + 2 * 4
#: Ticks of a round.
_STEP = 10_000
#: Rounds with full windows, at the least.
_ROUNDS = 20

#: What the window part measures, beside what `slope.py` has of these names.
LENGTHS = {name: slope.OPERATORS[name] for name in ("window as changes", "DISTINCT (δ*)", "join", "NOT EXISTS")} | {
    "aggregate": (1, "SELECT v, SUM(k) AS n FROM S {w} GROUP BY v"),
    "aggregate with MAX": (1, "SELECT v, MAX(k) AS n FROM S {w} GROUP BY v"),
}


# -- batch -----------------------------------------------------------------------------------------------------


def batch_seconds(batches: int) -> dict[str, list[float]]:
    """By kind of queries, how long each batch took, after those that warm up."""
    from benchmarks.spark import own_settings, warmed
    from penstock.runtime.spark.startup.session import start_spark
    from penstock.session import Session

    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        scratch = Path(name)
        files, lines = scratch / "files", scratch / "lines"
        files.mkdir()
        for number in range(_WARM + batches):
            row = pa.table({"ts": pa.array([number * 1000], pa.int64()), "k": pa.array([0], pa.int64())})
            pq.write_table(row, files / f"part-{number:05d}.parquet")
        spark = warmed(start_spark(settings=own_settings(scratch, "2g")))
        for kind, queries in BATCH_QUERIES.items():
            lines.unlink(missing_ok=True)
            session = Session(spark)
            created = (f"CREATE QUERY q{n} INTO MEMORY () AS {query};\n" for n, query in enumerate(queries))
            session.execute(_WATCHED.format(lines=lines, files=files) + "".join(created))
            session.start(checkpoint=str(scratch / kind)).wait()
            told = [json.loads(line)["last_seconds"] for line in lines.read_text().splitlines()]
            found[kind] = told[_WARM:]
        spark.stop()
    return found


def batch_table(found: dict[str, list[float]]) -> str:
    rows = [
        [kind, str(len(took)), *(f"{seconds:.2f}" for seconds in (statistics.median(took), max(took)))]
        for kind, took in found.items()
    ]
    return markdown(["queries", "batches", "median s", "longest s"], rows)


# -- memory ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """live: bytes of the rows in the windows; state: of the synopses; grown: by how much the process has."""

    live: int
    state: int
    grown: int


def hold(name: str, rows: int) -> Held:
    """What the operator `name` holds over full windows of about `rows` rows, in this process."""
    streams, query = HOLDING[name]
    _hold(streams, query, 2 * _RATE)  # compiles
    return _hold(streams, query, rows)


def _hold(streams: int, query: str, rows: int) -> Held:
    window = max(1, rows // _RATE)
    text = query.replace("{w}", f"[RANGE {window} SECONDS]").replace("{rows}", str(rows))
    text = text.replace("{sliding}", f"[RANGE {window} SECONDS SLIDE 1 SECOND]").replace("{part}", str(rows // 1000))
    seconds = window + max(_ROUNDS * _STEP // 1000, window // 4)
    inputs = {n: slope.stream(k, _RATE, window, seconds) for k, n in enumerate("ST"[:streams])}
    before = 0
    sizes: list[int] = []

    def ready() -> None:
        nonlocal before
        gc.collect()
        pa.default_memory_pool().release_unused()
        before = tree_bytes(os.getpid())

    script = f"{slope.DECLARED}\nCREATE QUERY q AS {text};"
    measured = measure(
        script,
        inputs,
        step=_STEP,
        warm=window * 1000,
        ready=ready,
        each=lambda job, end: sizes.append(tree_bytes(os.getpid()) - before),
    )
    return Held(streams * rows * _WIDTH, measured.state_bytes, int(statistics.median(sizes)))


def held_table(rows: Sequence[int], names: Sequence[str]) -> str:
    made: list[list[str]] = []
    for name in names:
        held = [_held_apart(name, count) for count in rows]
        live, state, grown = (
            np.array(sizes) for sizes in zip(*((h.live, h.state, h.grown) for h in held), strict=True)
        )
        of_state, of_process = np.polyfit(live, state, 1), np.polyfit(live, grown, 1)
        shown = (f"{size / 2**20:,.1f}" for size in (live[-1], state[-1], grown[-1]))
        made.append([name, *shown, f"{of_state[0]:.1f}", f"{of_process[0]:.1f}", f"{of_process[1] / 2**20:,.0f}"])
        print(" | ".join(made[-1]), flush=True)
    header = ["operator", "rows MiB", "state MiB", "process MiB", "state a byte", "process a byte", "process fixed MiB"]
    return markdown(header, made)


def _held_apart(name: str, rows: int) -> Held:
    """`hold` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.floors", "--hold", name, "--rows", str(rows)]
    out = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Held(**json.loads(out))


# -- window ----------------------------------------------------------------------------------------------------


def window_table(windows: Sequence[int], rate: int, measured: int) -> str:
    made: list[list[str]] = []
    for name, (streams, query) in LENGTHS.items():
        slope.cost(query, streams, rate, 1, min(20, measured))  # compiles
        costs = [slope.cost(query, streams, rate, window, measured) for window in windows]
        made.append([name, *(f"{cost:.2f}" for cost in costs), f"{costs[-1] / costs[0]:.2f}"])
        print(" | ".join(made[-1]), flush=True)
    return markdown(["operator", *(f"{w:,} s, µs" for w in windows), "longest / shortest"], made)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="batch,memory,window")
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--rows", default="400000,1600000", help="that a window holds, in the memory part")
    parser.add_argument("--operators", default=",".join(HOLDING), help="of the memory part, separated by commas")
    parser.add_argument("--windows", default="10,3600", help="seconds")
    parser.add_argument("--rate", type=int, default=200, help="tuples a second, in the window part")
    parser.add_argument("--measured", type=int, default=100, help="seconds behind the full window, in the window part")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    parser.add_argument("--hold", choices=sorted(HOLDING), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    pa.set_cpu_count(1)
    if chosen.hold is not None:
        give_back()
        held = hold(chosen.hold, int(chosen.rows))
        print(json.dumps({"live": held.live, "state": held.state, "grown": held.grown}))
        return 0
    windows, rows = ([int(n) for n in given.split(",")] for given in (chosen.windows, chosen.rows))
    if len(rows) < 2:
        parser.error("--rows takes two sizes at the least: what grows with them is told from what is fixed")
    makers = {
        "batch": ("### A batch without rows", lambda: batch_table(batch_seconds(chosen.batches))),
        "memory": ("### Memory of full windows", lambda: held_table(rows, chosen.operators.split(","))),
        "window": ("### A tuple under long windows", lambda: window_table(windows, chosen.rate, chosen.measured)),
    }
    for part in chosen.parts.split(","):
        heading, make = makers[part]
        table = make()
        print(f"{heading}\n\n{table}\n", flush=True)
        if chosen.write:
            write_table(PAGE, heading, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
