"""A query that has been registered, answered and dropped leaves nothing in the driver."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from inline_engine import InlineServer, without_spark

from penstock.connectors.results import result_folder, result_log
from penstock.control.transactions import applying
from penstock.runtime.monitoring import figures
from penstock.runtime.spark.input import round_history

__all__ = ["without_spark"]

#: Cycles between two looks: as many of both kinds.
CYCLES = 6
#: Looks. Threads and garbage of other tests of the process may add something between two of them, cycles add it always.
LOOKS = 4
#: Bytes of Python's objects that a cycle may leave: the keys of its posts, and what is known of a file of commands. By
#: itself they are 650, beside what other tests have left to be collected 1,030.
LEFT = 2_000
INTO = "INTO RESULTS (retain '1 ms')"


@pytest.fixture
def short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of the last ones is full soon, and has the same size at each look."""
    monkeypatch.setattr(result_log, "_LOOK_EVERY", 0.0)
    monkeypatch.setattr(applying, "CATALOG_EVERY", CYCLES)
    monkeypatch.setattr(figures, "BATCHES", 10)
    monkeypatch.setattr(result_folder, "_MAPPED", 4)
    monkeypatch.setattr(round_history, "BLOCK", 5)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def cycle(system: InlineServer, number: int) -> None:
    """A query with state, or one without."""
    chosen = f"SELECT ts, v FROM s WHERE v > {number % 7}"
    sums = "SELECT v, SUM(v) AS t FROM s [RANGE 5 SECONDS] GROUP BY v"
    system.post(f"CREATE QUERY c{number} {INTO} AS {sums if number % 2 else chosen};", key=f"c {number}")
    system.insert("s", [(number, number % 10)], key=f"r {number}")
    system.post(f"DROP QUERY c{number};", key=f"d {number}")
    # Kept by the test's run alone.
    system.run.inline.seen.clear()


def look(file: Path) -> int:
    """Return the bytes of Python's objects, texts and numbers too. Write how many there are of each class that the
    collector of garbage knows into a file: in memory they would be among these bytes."""
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    counts = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
    file.write_text(json.dumps(counts))
    return held


@pytest.mark.usefixtures("without_spark", "short_memory", "traced")
def test_cycles_leave_nothing(tmp_path: Path) -> None:
    system = InlineServer(tmp_path)
    system.post("CREATE STREAM s (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;")
    # Without state: what workers hold is not the driver's.
    system.post(f"CREATE QUERY q0 {INTO} AS SELECT ts, v FROM s WHERE v >= 0;")
    found = []
    for number in range(LOOKS * CYCLES):
        cycle(system, number)
        if (number + 1) % CYCLES == 0:
            found.append(look(tmp_path / f"{len(found)}.counts"))
    system.close()
    # What is imported and cached by the first cycles is in the first look.
    least, last = min((found[n] - found[n - 1], n) for n in range(2, LOOKS))
    first, second = (Counter(json.loads((tmp_path / f"{n}.counts").read_text())) for n in (last - 1, last))
    ours = {name: count for name, count in (second - first).items() if name.startswith("penstock.")}
    # Of the commands a file for each catalog, and what is known of it.
    assert ours.pop("penstock.control.command_log._FinishedFile", 0) <= 2
    assert max(ours.values(), default=0) <= 2, ours
    assert second.total() - first.total() < 3 * CYCLES
    assert least < LEFT * CYCLES, found
