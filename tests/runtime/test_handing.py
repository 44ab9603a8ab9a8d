"""The answers of a batch on their way to the sinks: which may be written side by side, and whose error is told."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.connectors.contract import Sink
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.runtime.spark.output.delivery import DeliveredAnswer, deliver_answers
from penstock.runtime.spark.worker.answer_writer import PendingAnswer
from penstock.types import END

QUERIES = {
    query.name: query
    for query in bind_script(
        "CREATE STREAM S (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
        + "".join(f"CREATE QUERY {name} AS SELECT RSTREAM(k) FROM S [RANGE 2 SECONDS];" for name in "abc")
    ).queries
}
JOB: Any = SimpleNamespace(plan=SimpleNamespace(queries=QUERIES), keys=[7, 3])


class Kept(Sink):
    """Notes what it is given, and by which thread; fails where it is told to."""

    def __init__(self, name: str, beside: bool, fails: bool = False, meets: threading.Barrier | None = None) -> None:
        super().__init__(QUERIES[name])
        self.beside, self._fails, self._meets = beside, fails, meets
        self.rows: list[tuple[int, int]] = []
        self.thread = ""

    def open(self, resume: bool, overwrite: bool) -> None:
        pass

    def write(self, batch: int, table: pa.Table) -> None:
        self.thread = threading.current_thread().name
        if self._meets is not None:
            self._meets.wait(30)
        if self._fails:
            raise PenstockError("P0502", f"query {self.query.name}: no")
        self.rows = list(zip(table["ts"].to_pylist(), table["k"].to_pylist(), strict=True))


def at(ts: int, k: int) -> Elements:
    return Elements((pa.array([k], pa.int32()),), np.array([ts]), np.array([END]))


ANSWERS = {
    "a": [(3, [PendingAnswer.of(at(1, 30)), PendingAnswer.of(at(2, 31))]), (7, [PendingAnswer.of(at(1, 70))])],
    "b": [(7, [PendingAnswer.of(at(5, 1))])],
}


def rows(handed: dict[str, DeliveredAnswer]) -> dict[str, int]:
    assert all(one.bytes == one.rows * 12 for one in handed.values())  # a timestamp and an INT
    return {name: one.rows for name, one in handed.items()}


def test_rows_of_an_instant_come_in_the_order_of_shards() -> None:
    sinks = {name: Kept(name, beside=False) for name in QUERIES}
    assert rows(deliver_answers(JOB, sinks, QUERIES, ANSWERS, 4)) == {"a": 3, "b": 1, "c": 0}
    assert [sinks[name].rows for name in "abc"] == [[(1, 70), (1, 30), (2, 31)], [(5, 1)], []]


def test_only_sinks_that_may_are_written_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    both = threading.Barrier(2)  # each waits for the other
    sinks = {"a": Kept("a", True, meets=both), "b": Kept("b", False), "c": Kept("c", True, meets=both)}
    assert rows(deliver_answers(JOB, sinks, QUERIES, ANSWERS, 4)) == {"a": 3, "b": 1, "c": 0}
    assert sinks["a"].rows == [(1, 70), (1, 30), (2, 31)]
    assert sinks["b"].thread == threading.current_thread().name
    assert sinks["a"].thread != sinks["c"].thread


@pytest.mark.parametrize("beside", [False, True])
def test_the_error_of_the_first_query_is_told(beside: bool) -> None:
    sinks = {name: Kept(name, beside, fails=name != "a") for name in QUERIES}
    with pytest.raises(PenstockError, match="query b: no"):
        deliver_answers(JOB, sinks, QUERIES, ANSWERS, 4)
    assert sinks["a"].rows
