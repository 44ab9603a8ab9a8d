"""A row whose timestamp is out of range is a dead letter and moves no time, however files are cut and read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline_run import InlineRun, cold

from penstock.connectors.deadletters import DeadLetters
from penstock.connectors.formats import parquet
from penstock.connectors.sinks.files import read_result
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local
from penstock.testing.oracle import run_oracle
from penstock.types import MOST_TICKS

OUTSIDE = (MOST_TICKS, -MOST_TICKS, 2**63 - 1, -(2**63))


@pytest.mark.spread(3)
@pytest.mark.parametrize("far", OUTSIDE)
@pytest.mark.parametrize("type_", ["BIGINT", "TIMESTAMP"])
@pytest.mark.parametrize("clause", ["", "ADVANCE AT MOST 5 SECONDS"])
def test_it_moves_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, far: int, type_: str, clause: str) -> None:
    unit, scale = ("UNIT SECOND", 1) if type_ == "BIGINT" else ("", 1_000_000)
    ticks = [far, far, 1 * scale, far, 2 * scale, 3 * scale, far, 4 * scale, 5 * scale, 2 * scale, far, 6 * scale]
    stored = pa.int64() if type_ == "BIGINT" else pa.timestamp("us")
    rows = pa.table({"ts": pa.array(ticks, pa.int64()).cast(stored), "k": pa.array(range(12), pa.int32())})
    (tmp_path / "data").mkdir()
    for number in range(3):
        place = tmp_path / "data" / f"{number}.parquet"
        pq.write_table(rows.slice(4 * number, 4), place, row_group_size=2)
    outcomes = set()
    for number, (split_rows, parallelism, most) in enumerate(
        [(2, 3, 10**6), (2, 1, 10**6), (10**6, 2, 1), (4, 2, 400)]
    ):
        cold()
        monkeypatch.setattr(parquet, "_SPLIT_ROWS", split_rows)
        text = f"""SET max_batch_bytes = {most}; SET shards = 2;
        CREATE STREAM S (ts {type_}, k INT) FROM FILES (path '{tmp_path / "data"}', format 'parquet')
          TIMESTAMP BY ts {unit} {clause};
        CREATE QUERY q INTO FILES (path '{tmp_path / f"out{number}"}', format 'parquet') AS SELECT k FROM S;"""
        run = InlineRun(text, tmp_path / f"checkpoint{number}", parallelism=parallelism).run()
        reasons = sorted(letter.reason for letter in DeadLetters(run.folder.dead_letters).read("S"))
        answer = read_result(str(tmp_path / f"out{number}")).column("k").to_pylist()
        outcomes.add((str(sorted(answer)), str(reasons)))
    ((answered, reasons),) = outcomes
    assert answered == "[2, 4, 5, 7, 8, 11]"
    assert reasons.count("timestamp out of range") == 5 and reasons.count("late by") == 1
    (query,) = bind_script(text).queries
    for found in (run_oracle(query, {"S": rows}), run_local([query], {"S": rows}, seed=number)):
        assert found.late["S"] == 1


@pytest.mark.parametrize("by", ["ms UNIT MILLISECOND SINCE EPOCH", "TIMESTAMP_MILLIS(ms % 10000)"])
def test_computed_timestamps_are_those_of_any_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """Files with and without bounds of their timestamps, of which one record has none."""
    ticks = [0, 10, 5, None, 3_000, 2_000, 4_000, 9_000, 8_999, 9_001, 2**62, 9_500]
    rows = pa.table({"ms": pa.array(ticks, pa.int64()), "k": pa.array(range(12), pa.int32())})
    (tmp_path / "data").mkdir()
    for number in range(3):
        pq.write_table(rows.slice(4 * number, 4), tmp_path / "data" / f"{number}.parquet", row_group_size=2)
    answers = set()
    for number, (split_rows, parallelism, most) in enumerate([(2, 3, 10**6), (10**6, 2, 1), (4, 2, 400)]):
        cold()
        monkeypatch.setattr(parquet, "_SPLIT_ROWS", split_rows)
        text = f"""SET max_batch_bytes = {most}; SET shards = 2;
        CREATE STREAM S (ms BIGINT, k INT) FROM FILES (path '{tmp_path / "data"}', format 'parquet') TIMESTAMP BY {by};
        CREATE QUERY q INTO FILES (path '{tmp_path / f"out{number}"}', format 'parquet') AS
        SELECT COUNT(*) AS n FROM S [RANGE 1 SECOND];"""
        run = InlineRun(text, tmp_path / f"checkpoint{number}", parallelism=parallelism).run()
        reasons = [letter.reason.split(" 0")[0] for letter in DeadLetters(run.folder.dead_letters).read("S")]
        found = read_result(str(tmp_path / f"out{number}")).to_pylist()
        answers.add((str(found), str(sorted(reason[:12] for reason in reasons))))
    assert len(answers) == 1
    (query,) = bind_script(text).queries
    oracle, local = run_oracle(query, {"S": rows}), run_local([query], {"S": rows}, seed=1)
    assert oracle.late["S"] == local.late["S"] > 0
    assert next(iter(answers))[1].count("no timestamp") == ticks.count(None) + (2**62 in ticks and "EPOCH" in by)


def _malformed(number: int) -> pa.Array:
    """A text, of which the row `number` is no UTF-8."""
    return pa.array([b"\xff" if i == number else b"x" for i in range(12)], pa.binary())


OTHER_FAULTS = {
    "text": ("STRING", _malformed(6)),
    "seconds": (
        "TIMESTAMP",
        pa.array([2**60 if i == 6 else i for i in range(12)], pa.int64()).cast(pa.timestamp("ms")),
    ),
    "whole": ("DOUBLE", pa.array([2**62 + 1 if i == 6 else i for i in range(12)], pa.int64())),
}


@pytest.mark.parametrize("kind", OTHER_FAULTS)
def test_a_row_that_is_malformed_elsewhere_moves_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    declared, column = OTHER_FAULTS[kind]
    ticks = [1, 1, 2, 3, 3, 4, 1000, 4, 5, 6, 7, 8]
    rows = pa.table({"ts": pa.array(ticks, pa.int64()), "k": pa.array(range(12), pa.int32()), "other": column})
    (tmp_path / "data").mkdir()
    for number in range(3):
        pq.write_table(rows.slice(4 * number, 4), tmp_path / "data" / f"{number}.parquet", row_group_size=2)
    outcomes = set()
    for number, (split_rows, parallelism) in enumerate([(2, 3), (2, 1), (10**6, 2), (4, 2)]):
        cold()
        monkeypatch.setattr(parquet, "_SPLIT_ROWS", split_rows)
        text = f"""SET shards = 2;
        CREATE STREAM S (ts BIGINT, k INT, other {declared}) FROM FILES (path '{tmp_path / "data"}', format 'parquet')
          TIMESTAMP BY ts;
        CREATE QUERY q INTO FILES (path '{tmp_path / f"out{number}"}', format 'parquet') AS SELECT k, other FROM S;"""
        run = InlineRun(text, tmp_path / f"checkpoint{number}", parallelism=parallelism).run()
        reasons = sorted(letter.reason for letter in DeadLetters(run.folder.dead_letters).read("S"))
        assert len(reasons) == 1 and reasons[0].endswith("in column other"), reasons
        outcomes.add(str(sorted(read_result(str(tmp_path / f"out{number}")).column("k").to_pylist())))
    assert outcomes == {"[0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11]"}
