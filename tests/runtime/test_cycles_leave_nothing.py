"""A query that has been registered, answered and dropped leaves nothing in the driver."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

import pytest
from inline_engine import InlineServer, without_spark

from penstock.connectors.results import result_log
from penstock.control import applying

__all__ = ["without_spark"]

#: Cycles between two looks.
CYCLES = 15


def cycle(system: InlineServer, number: int) -> None:
    into = "INTO RESULTS (retain '1 ms')"
    system.post(f"CREATE QUERY c{number} {into} AS SELECT ts, v FROM s WHERE v > {number % 7};", key=f"c {number}")
    system.insert("s", [(number, number % 10)], key=f"r {number}")
    system.post(f"DROP QUERY c{number};", key=f"d {number}")
    # Kept by the test's run alone.
    system.run.inline.seen.clear()


def objects() -> Counter[str]:
    gc.collect()
    return Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())


@pytest.mark.usefixtures("without_spark")
def test_cycles_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_log, "_LOOK_EVERY", 0.0)
    # What lies between two stored catalogs is kept: as many commands at each look.
    monkeypatch.setattr(applying, "CATALOG_EVERY", 10)
    system = InlineServer(tmp_path)
    system.post("CREATE STREAM s (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;")
    sums = "SELECT v, SUM(v) AS t FROM s [RANGE 5 SECONDS] GROUP BY v"
    system.post(f"CREATE QUERY q0 INTO RESULTS (retain '1 ms') AS {sums};")
    found = []
    for look in range(3):
        for number in range(look * CYCLES, (look + 1) * CYCLES):
            cycle(system, number)
        found.append(objects())
    system.close()
    before, after = found[-2:]
    ours = {name: count for name, count in (after - before).items() if name.startswith("penstock.")}
    # Of the commands a file for each catalog, and what is known of it.
    assert ours.pop("penstock.control.command_log._FinishedFile", 0) <= 3
    assert max(ours.values(), default=0) <= 2, ours
    assert after.total() - before.total() < 3 * CYCLES
