"""Sessions by Bytewax's session windower in one worker: rows are Python tuples, as its users have them.

Its event clock lets time pass with the clock of the machine while no row comes; that clock stands still here, since
rows of the past come faster than they were made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as windowing
import pyarrow as pa
import pyarrow.dataset as ds
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from benchmarks.peers.sides import GAP_MS, arguments, report, write_sessions

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BATCH = 5_000
#: A row: (ts in ms, src, bytes). A session: [first ts, last ts, rows, bytes].
Row = tuple[int, str, float]


class _Rows(StatefulSourcePartition[Row, None]):
    def __init__(self, folder: Path) -> None:
        self._batches = _batches(folder)

    def next_batch(self) -> list[Row]:
        return next(self._batches)

    def snapshot(self) -> None:
        return None


def _batches(folder: Path) -> Iterator[list[Row]]:
    for batch in ds.dataset(folder, format="parquet").to_batches(columns=["ts", "src", "bytes"], batch_size=_BATCH):
        ts, src, size = (column.to_pylist() for column in batch.columns)
        yield list(zip(ts, map(str, src), size, strict=True))


class _Files(FixedPartitionedSource[Row, None]):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> _Rows:
        return _Rows(self._folder)


class _Sessions(DynamicSink[Any]):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition[Any]:
        return _Written(self._folder)


class _Written(StatelessSinkPartition[Any]):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sessions: list[tuple[int, int, int, int, float]] = []

    def write_batch(self, items: list[Any]) -> None:
        for src, (_, (first, last, rows, total)) in items:
            self._sessions.append((last + GAP_MS, int(src), first, rows, total))

    def close(self) -> None:
        types = (pa.int64(), pa.int32(), pa.int64(), pa.int64(), pa.float64())
        columns = zip(*self._sessions, strict=True) if self._sessions else [()] * len(types)
        write_sessions(self._folder, [pa.array(list(c), t) for c, t in zip(columns, types, strict=True)])


def _added(session: list[Any], row: Row) -> list[Any]:
    at = row[0]
    if session[2] == 0:
        return [at, at, 1, row[2]]
    return [min(session[0], at), max(session[1], at), session[2] + 1, session[3] + row[2]]


def _merged(one: list[Any], other: list[Any]) -> list[Any]:
    if not (one[2] and other[2]):
        return one if one[2] else other
    return [min(one[0], other[0]), max(one[1], other[1]), one[2] + other[2], one[3] + other[3]]


def run(data: Path, out: Path) -> float:
    still = datetime.now(UTC)
    clock: Any = windowing.EventClock(
        lambda row: _EPOCH + timedelta(milliseconds=row[0]), timedelta(0), now_getter=lambda: still
    )
    windower = windowing.SessionWindower(gap=timedelta(milliseconds=GAP_MS))
    flow = Dataflow("q10")
    keyed = op.key_on("by_src", op.input("rows", flow, _Files(data)), lambda row: row[1])
    sessions = windowing.fold_window("sessions", keyed, clock, windower, lambda: [0, 0, 0, 0.0], _added, _merged)
    op.output("answer", sessions.down, _Sessions(out))
    started = time.perf_counter()
    run_main(flow)
    return time.perf_counter() - started


if __name__ == "__main__":
    given = arguments()
    report(given, lambda out: run(given.data, out))
