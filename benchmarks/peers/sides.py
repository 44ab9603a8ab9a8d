"""What the sides of other systems share: their command line, their report, and the form of an answer."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

#: Milliseconds without a row of a source that end its session.
GAP_MS = 10_000


def arguments() -> argparse.Namespace:
    """Return what `benchmarks.run` says to a side on its command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("query", choices=["q10"])
    for name in ("data", "out", "scratch", "report"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--memory", default="4g")
    return parser.parse_args()


def report(given: argparse.Namespace, run: Callable[[Path], float]) -> None:
    """Run the query twice in this process, as all sides do, and write the figures.

    Args:
        run: writes the answer into a folder; returns the seconds from the start of the query to its end.
    """
    seconds, steady = run(given.out), run(given.scratch / "again")
    given.report.write_text(json.dumps({"seconds": seconds, "steady": steady}))


def write_sessions(folder: Path, columns: Sequence[pa.Array]) -> None:
    """Write the columns ts, src, s_from, n and total of an answer."""
    folder.mkdir(parents=True)
    table = pa.Table.from_arrays(list(columns), names=["ts", "src", "s_from", "n", "total"])
    pq.write_table(table, folder / "answer.parquet")
