"""Updates that a relation cannot take: ON ERROR decides, and what is told is told once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.connectors.deadletters import DeadLetters
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.physical.operators import Rejection
from penstock.runtime.local.runtime import LocalResult, run_local
from penstock.runtime.rejected_rows import write_rejections
from penstock.runtime.spark.worker.packets import read_rejected, rejected_packet

DECLARED = (
    "CREATE RELATION R (ts INT, op STRING, k INT, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts OPERATION BY op"
)
QUERY = "CREATE QUERY q AS SELECT k FROM R; CREATE QUERY p AS SELECT COUNT(*) AS n FROM R;"
ROWS = [(1, "+", 1), (1, "+", 1), (2, "-", 3), (2, "-", None)]
FOUND = [Rejection("R", 2, "{'k': 3}", "no such row to delete"), Rejection("R", 1, "{'k': 1}", "duplicate primary key")]


def run(on_error: str, rows: list[tuple[int, str, int | None]] = ROWS) -> LocalResult:
    bound = bind_script(f"{DECLARED} ON ERROR {on_error};{QUERY}")
    columns = [pa.array(list(values), type_) for values, type_ in zip(zip(*rows, strict=True), TYPES, strict=True)]
    return run_local(bound.queries, {"R": pa.Table.from_arrays(columns, names=["ts", "op", "k"])})


TYPES = (pa.int32(), pa.string(), pa.int32())


@pytest.mark.parametrize("policy", ["SKIP", "DEAD LETTER"])
def test_counted_once_however_many_queries_read_the_relation(policy: str) -> None:
    result = run(policy)
    assert result.rejected == {"R": {"duplicate primary key": 1, "no such row to delete": 1}}
    assert result.unusable == {"R": 1}
    assert result.tables["q"].to_pylist() == [{"ts": 1, "op": "+", "k": 1}]


def test_fail_ends_the_run_with_the_record() -> None:
    with pytest.raises(PenstockError, match=r'duplicate primary key; the record: .*"k": 1') as caught:
        run("FAIL", ROWS[:3])
    assert caught.value.code == "P0403"
    # A record that is no element at all is met when it is read, before any update is carried out.
    with pytest.raises(PenstockError, match=r'NULL in the primary key; the record: .*"k": null'):
        run("FAIL")
    assert run("FAIL", ROWS[:1]).tables["q"].num_rows == 1


def test_a_static_key_that_occurs_twice_fails_too() -> None:
    bound = bind_script(
        "CREATE RELATION R (k INT, PRIMARY KEY (k)) FROM MEMORY () ON ERROR FAIL; CREATE QUERY q AS SELECT k FROM R;"
    )
    with pytest.raises(PenstockError, match="duplicate primary key"):
        run_local(bound.queries, {"R": pa.table({"k": pa.array([1, 1], pa.int32())})})


def sources(policy: str) -> dict:  # type: ignore[type-arg]
    return {"R": bind_script(f"{DECLARED} ON ERROR {policy};").catalog.sources["r"]}


def test_a_batch_written_again_leaves_one_copy_of_its_letters(tmp_path: Path) -> None:
    letters = DeadLetters(str(tmp_path))
    told = read_rejected(rejected_packet(0, FOUND).blob)
    assert told == FOUND
    for _ in range(2):
        counts = write_rejections(told, sources("DEAD LETTER"), letters, 7)
        assert counts == {"R": {"no such row to delete": 1, "duplicate primary key": 1}}
    write_rejections(told[:1], sources("DEAD LETTER"), letters, 8)
    assert [(found.reason, found.ts, found.record) for found in letters.read("R")] == [
        ("duplicate primary key", 1, "{'k': 1}"),
        ("no such row to delete", 2, "{'k': 3}"),
        ("no such row to delete", 2, "{'k': 3}"),
    ]


def test_the_letters_of_the_ingest_stay(tmp_path: Path) -> None:
    letters = DeadLetters(str(tmp_path))
    write_rejections(FOUND, sources("DEAD LETTER"), letters, 1)
    letters.write("R", 1, 0, [])
    assert len(list(letters.read("R"))) == 2


def test_skip_writes_nothing_and_fail_raises(tmp_path: Path) -> None:
    letters = DeadLetters(str(tmp_path))
    assert write_rejections(FOUND, sources("SKIP"), letters, 1)["R"]["duplicate primary key"] == 1
    assert letters.sources() == []
    with pytest.raises(PenstockError, match="duplicate primary key"):
        write_rejections(FOUND, sources("FAIL"), letters, 1)
