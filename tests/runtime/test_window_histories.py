"""The histories of [golab 7.3] and [golab 7.4]: a query reads the sub-windows of a window one after the other, and
window updates come in between. Whatever they are, the reader of a live system reads a true state of the window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline_run import InlineRun, cold

from penstock.language.scripts import bind_script, bind_select
from penstock.results.content import ResultContents
from penstock.results.run_input import pinned_input, state_of_run
from penstock.results.select import LiveReader
from penstock.runtime.spark.input.task_files import load_read_tasks
from penstock.runtime.spark.retention import retention
from penstock.runtime.spark.retention.retained_log import RetainedLog
from penstock.runtime.spark.worker.inline import run_round

#: Sub-windows of the window.
N = 5
#: By name, the history, and whether a query that reads each sub-window as it is at that moment is window-serializable,
#: and latest-window-serializable. `r`: a read; `w`: a window update, `c`: its commit, where that comes later.
HISTORIES = {
    "a": ("r0 w5 w6 r1 r2 r3 r4", False, False),
    "b": ("r0 w5 r1 w6 r2 r3 r4", True, False),
    "c": ("w5 r0 r1 r2 r3 w6 r4", True, False),
    "d": ("w5 r0 w6 r1 r2 r3 r4", True, True),
    "e": ("r4 w5 r0 r3 r2 w6 r1", True, True),
    "f": ("r0 w5 r1 r2 r3 w6 r4", True, False),
    "g": ("r0 w5 w6 r1 r2 r3 r4 c5", False, False),
    "h": ("r0 r1 r2 r3 w9 r4 c9", True, True),
}


def first_update(history: str) -> int:
    return min(int(op[1:]) for op in history.split() if op[0] == "w")


def is_window(versions: Sequence[int]) -> bool:
    """Whether sub-windows written by these updates are a window: the state after some update [golab, theorem 7.1]."""
    return sorted(versions) == list(range(min(versions), min(versions) + N))


@pytest.mark.parametrize("name", HISTORIES)
def test_the_verdicts_are_those_of_the_thesis(name: str) -> None:
    history, serializable, latest = HISTORIES[name]
    start = first_update(history)
    written = {j % N: j for j in range(start)}
    read = []
    for op in history.split():
        if op[0] == "w":
            written[int(op[1:]) % N] = int(op[1:])
        elif op[0] == "r":
            read.append(written[int(op[1:])])
    assert is_window(read) == serializable
    assert (sorted(read) == sorted(written.values())) == latest


# -- the reader --------------------------------------------------------------------------------------------------


def script(place: Path) -> str:
    return f"""SET max_batch_bytes = 1; SET shards = 1;
    CREATE STREAM S (ts BIGINT, j INT) FROM FILES (path '{place / "data"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND RETAIN 46 SECONDS;
    CREATE QUERY q INTO FILES (path '{place / "out"}', format 'parquet') AS SELECT ISTREAM(j) FROM S [NOW];"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One file and round for each window update; its last element only advances the heartbeat to the end of it."""
    monkeypatch.setattr(retention, "_EVERY", 1)
    (tmp_path / "data").mkdir()
    for j in range(12):
        rows = pa.table({"ts": pa.array([10 * j + 3, 10 * j + 5, 10 * j + 9]), "j": pa.array([j] * 3, pa.int32())})
        pq.write_table(rows, tmp_path / "data" / f"part-{j:02}.parquet")
    cold()
    return tmp_path


class Schedule:
    """Carries out a history around the reads of a query."""

    def __init__(self, run: InlineRun, history: str) -> None:
        self.run = run
        self._ops = history.split()
        self._late = {op[1:] for op in self._ops if op[0] == "c"}

    def until_read(self) -> None:
        """Carry out what comes before the next read."""
        while self._ops and self._ops[0][0] != "r":
            op = self._ops.pop(0)
            if op[0] == "w" and op[1:] in self._late:
                # The elements are kept; the round is delivered later, and none is planned before that.
                files = self.run.pending()
                tasks = [load_read_tasks(self.run.folder, file) for file in files]
                run_round(self.run.folder, self.run.job, self.run.tables, tasks, self.run.batch)
                assert self.run.rounds.outstanding
            elif op[0] == "c" or not (self.run.rounds.outstanding and self._late):
                self.run.go(1)
        self._ops = self._ops[1:]


@pytest.mark.spread(2)
@pytest.mark.parametrize("name", HISTORIES)
def test_the_reader_reads_a_window_whatever_the_history(
    place: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = HISTORIES[name][0]
    start = first_update(history)
    run = InlineRun(script(place), place / "checkpoint").go(start)
    schedule = Schedule(run, history)
    read = RetainedLog.read
    reads = []

    def scheduled(log: RetainedLog, *args: Any) -> Iterator[Any]:
        if reads:
            schedule.until_read()
        reads.append(args[0])
        yield from read(log, *args)

    monkeypatch.setattr(RetainedLog, "read", scheduled)
    catalog = bind_script(script(place), live=True).catalog
    query = bind_select("SELECT j FROM S [RANGE 46 SECONDS]", catalog).query
    # What comes before the first read comes before the query begins.
    schedule.until_read()
    began = run.folder.delivered().round
    with pinned_input(run, "reader", {"s"}) as known:
        state = state_of_run(run, known, {}, ResultContents(run.folder.results))
        found = LiveReader(lambda: state).answer(query)
    schedule.until_read()
    assert len(reads) >= N
    versions = set(found.answer.table.column(0).to_pylist())
    assert is_window(sorted(versions))
    # It is the state at the beginning of the query: strong snapshot isolation.
    assert max(versions) == began - 1
    assert run.folder.delivered().round > began
    run.rounds.stop()
