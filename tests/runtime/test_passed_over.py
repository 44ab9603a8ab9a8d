"""What readers pass over because no query reads it: nothing but the reading changes.

The same scripts over the same files, with and without the condition that readers are told: answers, counts, dead
letters and heartbeats are equal, whatever the order of rows, NULLs, late rows, malformed ones and folders.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline_run import InlineRun, cold

from penstock.connectors.deadletters import DeadLetters
from penstock.connectors.formats import parquet
from penstock.connectors.sinks.files import read_result
from penstock.physical.planning import planner
from penstock.runtime.spark.checkpoint.folder import STATICS, Seen
from penstock.runtime.spark.input import input_planner as feed

COLUMNS = "ts BIGINT, k INT, x BIGINT, w STRING"
CONDITIONS = [
    "k = 3", "k > 25", "k IN (0, 39)", "w LIKE 'b%'", "k < 14 AND x > 15", "k IS NULL", "NOT (x < 32)", "ts > 150",
    "ts BETWEEN 40 AND 60", "w IS NOT NULL AND k <> 2", "x % 2 = 0", "part = 2", "part = 1 AND k > 13", "k = 77",
    "w <=> NULL",
]  # fmt: skip
QUERIES = [
    "SELECT ts AS at, k, x, w FROM S [RANGE 10 SECONDS] WHERE {}",
    "SELECT k, COUNT(*) AS n, SUM(x) AS s FROM S [RANGE 20 SECONDS SLIDE 5 SECONDS] WHERE {} GROUP BY k",
    "SELECT RSTREAM(COUNT(*) AS n) FROM S [RANGE 7 SECONDS] WHERE {}",
    "SELECT RSTREAM(x) FROM S [ROWS 3] WHERE {}",
    "SELECT RSTREAM(x) FROM S [RANGE 3 SECONDS] WHERE {}",
    "SELECT a.x, b.x AS y FROM S [NOW] AS a, S [RANGE 4 SECONDS] AS b WHERE a.k = b.k AND a.{} AND b.{}",
]


@contextmanager
def all_rows_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Readers are not told what is wanted."""
    with monkeypatch.context() as patch:
        patch.setattr(planner, "source_predicates", lambda steps: {})
        yield


def write(folder: Path, draw: random.Random, suffix: str) -> None:
    """Files below folders that give the column `part`, in order of time but for a few rows; those of a row group have
    keys that lie together."""
    ts = draw.choice([0, 100])
    for number in range(draw.randint(2, 4)):
        rows: list[dict[str, Any]] = []
        for _ in range(draw.randint(1, 6)):
            base = draw.randint(0, 40)
            nulls = draw.random() < 0.3
            for _ in range(8):
                ts += draw.randint(0, 3)
                late = draw.choice([0, 0, 0, 0, 0, 0, 2, 5, 30]) if draw.random() < 0.3 else 0
                row = {
                    "ts": ts - late,
                    "k": base + draw.randint(0, 1),
                    "x": base + draw.randint(5, 9),
                    "w": "abc"[base % 3],
                }
                for name in ("k", "x", "w"):
                    row[name] = None if nulls and draw.random() < 0.5 else row[name]
                row["ts"] = None if draw.random() < 0.01 else row["ts"]
                rows.append(row)
        types = {"ts": pa.int64(), "k": draw.choice([pa.int32(), pa.int16()]), "x": pa.int64(), "w": pa.string()}
        if draw.random() < 0.2:
            types["w"] = pa.binary()
            rows = [{**r, "w": r["w"] and draw.choice([b"b", b"c", b"\xff"])} for r in rows]
        table = pa.Table.from_pylist(rows, pa.schema(list(types.items())))
        place = folder / f"f{number}" / f"part={draw.randint(1, 3)}" / f"p.{suffix}"
        place.parent.mkdir(parents=True)
        if suffix == "parquet":
            pq.write_table(table, place, row_group_size=8, write_statistics=draw.random() < 0.9)
        else:
            with pa.OSFile(str(place), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=8)
            if draw.random() < 0.15:
                place.write_bytes(place.read_bytes()[: -draw.randint(10, 2000)])


def outcome(tmp: Path, script: str, name: str) -> tuple[dict[str, Any], int]:
    """All that a run tells and leaves, and how many rows were passed over."""
    cold()
    place = tmp / f"checkpoint-{name}"
    run = InlineRun(script.replace("OUT", str(tmp / f"out-{name}")), place).run()
    assert run.ended
    seen = sorted(run.seen.items())
    # How far time jumped inside of what was passed over is not known.
    found: dict[str, Any] = {
        "seen": [(r, {n: replace(s, passed=0, jump=0) for n, s in sources.items()}) for r, sources in seen],
        "letters": {n: list(DeadLetters(run.folder.dead_letters).read(n)) for n in ("S", "R")},
        "told": run.heartbeats,
    }
    for query in run.sinks:
        found[query] = sorted(map(repr, read_result(str(tmp / f"out-{name}" / query)).to_pylist()))
    return found, sum(s.passed for _, sources in seen for s in sources.values())


def stream(tmp: Path, slack: int, suffix: str = "parquet", most: int = 1) -> str:
    within = f" ORDER WITHIN {slack} SECONDS" if slack else ""
    return f"""SET max_batch_bytes = {most}; SET shards = 2;
    CREATE STREAM S ({COLUMNS}, part INT) FROM FILES (path '{tmp / "data"}', format '{suffix}')
      TIMESTAMP BY ts UNIT SECOND{within};"""


def into(name: str, query: str) -> str:
    return f"\nCREATE QUERY {name} INTO FILES (path 'OUT/{name}', format 'parquet') AS {query};"


def case(tmp: Path, seed: int, monkeypatch: pytest.MonkeyPatch, ahead: int | None = None) -> int:
    draw = random.Random(seed)
    suffix = draw.choice(["parquet", "parquet", "parquet", "arrow"])
    write(tmp / "data", draw, suffix)
    monkeypatch.setattr(parquet, "_SPLIT_ROWS", draw.choice([8, 24, 10**6]))
    script = stream(tmp, draw.choice([0, 0, 3, 40]), suffix, draw.choice([1, 3000, 10**6]))
    if ahead is not None:
        script = script.replace("UNIT SECOND", f"UNIT SECOND ADVANCE AT MOST {ahead} SECONDS", 1)
    for number in range(draw.randint(1, 2)):
        wanted = draw.choice(CONDITIONS)
        simple = draw.choice(["k = 3", "k > 25", "part = 2", "ts > 150"])
        query = draw.choice(QUERIES)
        script += into(f"q{number}", query.format(simple, simple) if "a.x" in query else query.format(wanted))
    told, passed = outcome(tmp, script, "told")
    with all_rows_read(monkeypatch):
        whole, none = outcome(tmp, script, "whole")
    assert none == 0
    assert told == whole, script
    return passed


def test_random_files_and_conditions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [case(tmp_path / str(seed), seed, monkeypatch) for seed in range(10)]
    assert sum(count > 0 for count in passed) >= 3


@pytest.mark.parametrize("ahead", [1, 2, 30, 1000])
def test_what_is_passed_over_may_lie_too_far_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    for seed in (3, 4):
        case(tmp_path / str(seed), seed, monkeypatch, ahead)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 1600, 100))
def test_many_random_files_and_conditions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int) -> None:
    passed = [case(tmp_path / str(seed), seed, monkeypatch) for seed in range(start, start + 100)]
    assert sum(count > 0 for count in passed) >= 15


def grouped(place: Path, keys: list[int], ticks: list[list[int | None]]) -> None:
    """A row group for each key, with these timestamps."""
    place.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int32()), ("x", pa.int64()), ("w", pa.string())])
    with pq.ParquetWriter(place, schema) as writer:
        for key, ts in zip(keys, ticks, strict=True):
            writer.write_table(pa.table({"ts": ts, "k": [key] * len(ts), "x": ts, "w": ["a"] * len(ts)}, schema))


def columns_read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, tuple[str, ...]]]:
    """The row groups that are read from here on, and their columns."""
    found: list[tuple[int, tuple[str, ...]]] = []
    group = parquet.ParquetFormat._group

    def noted(self: Any, path: str, file: Any, number: int, columns: Any) -> Any:
        if "part=" in path:
            found.append((number, tuple(columns.names)))
        return group(self, path, file, number, columns)

    monkeypatch.setattr(parquet.ParquetFormat, "_group", noted)
    return found


ONE = "SELECT k, x, w FROM S [RANGE 5 SECONDS] WHERE k = 1"
CASES: list[tuple[int, list[list[int | None]], list[str], int]] = [
    # Slack covers what a row group spans: statistics are enough.
    (10, [[1, 2], [3, 9, 4], [10, 11]], ["0 ts,k,x,w", "2 ts,k,x,w"], 3),
    # It does not: the timestamps alone are looked at.
    (0, [[1, 2], [3, 4, 4], [10, 11]], ["0 ts,k,x,w", "1 ts", "2 ts,k,x,w"], 3),
    # A late row and one without a timestamp are set apart whole.
    (0, [[1, 2], [3, 1], [10, 11]], ["0 ts,k,x,w", "1 ts", "1 ts,k,x,w", "2 ts,k,x,w"], 0),
    (10, [[1, 2], [None, 3], [10, 11]], ["0 ts,k,x,w", "1 ts", "1 ts,k,x,w", "2 ts,k,x,w"], 0),
    # What comes late after rows that were passed over is late.
    (0, [[1, 2], [30, 40], [10, 11]], ["0 ts,k,x,w", "1 ts", "2 ts,k,x,w"], 2),
]


@pytest.mark.parametrize(("slack", "ticks", "reads", "count"), CASES)
def test_as_little_is_read_as_time_allows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    slack: int,
    ticks: list[list[int | None]],
    reads: list[str],
    count: int,
) -> None:
    grouped(tmp_path / "data" / "part=1" / "p.parquet", [1, 7, 1], ticks)
    script = stream(tmp_path, slack) + into("q", ONE)
    with all_rows_read(monkeypatch):
        whole, _ = outcome(tmp_path, script, "whole")
    noted = columns_read(monkeypatch)
    told, passed = outcome(tmp_path, script, "told")
    assert (told, passed) == (whole, count)
    assert [f"{group} {','.join(names)}" for group, names in noted] == reads
    seen: Seen = told["seen"][-1][1]["S"]
    assert seen.rows == sum(map(len, ticks))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_what_the_clock_stamps_needs_no_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    for part in (1, 2):
        place = tmp_path / "data" / f"part={part}" / f"p.{suffix}"
        grouped(place.with_suffix(".parquet"), [part], [[1, 2]])
        if suffix == "arrow":
            table = pq.read_table(place.with_suffix(".parquet"), partitioning=None)
            with pa.OSFile(str(place), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            place.with_suffix(".parquet").unlink()
    monkeypatch.setattr(feed.InputPlanner.__init__, "__defaults__", (lambda: 5_000_000, time.monotonic, None, None))
    for name in ("told", "whole"):
        script = stream(tmp_path, 0, suffix).replace("TIMESTAMP BY ts UNIT SECOND", "SYSTEM TIME")
        script += into("q", "SELECT COUNT(*) AS n FROM S [RANGE 5 SECONDS] WHERE part = 1")
        if name == "told":
            told, passed = outcome(tmp_path, script, name)
        else:
            with all_rows_read(monkeypatch):
                assert outcome(tmp_path, script, name) == (told, 0)
    assert (passed, told["seen"][-1][1]["S"].rows, len(told["q"])) == (2, 2, 1)


def test_a_static_relation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grouped(tmp_path / "data" / "part=1" / "p.parquet", [1], [[1, 2, 3]])
    grouped(tmp_path / "r" / "a.parquet", [1, 7, 1], [[1, 2], [3], [4]])
    for key, count in ("", 1), (", PRIMARY KEY (x)", 0):
        script = stream(tmp_path, 0) + (
            f"CREATE RELATION R (x BIGINT, k INT{key}) FROM FILES (path '{tmp_path / 'r'}', format 'parquet');"
        )
        script += into("q", "SELECT S.x, R.k FROM S [NOW], R WHERE S.x = R.x AND R.k = 1")
        told, passed = outcome(tmp_path, script, f"told{count}")
        with all_rows_read(monkeypatch):
            assert outcome(tmp_path, script, f"whole{count}") == (told, 0)
        assert passed == count
        assert dict(told["seen"])[STATICS]["R"].rows == 4


def test_a_damaged_file_is_told_though_it_is_not_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"ts": [1, 2, 3], "k": pa.array([1, 1, 1], pa.int32()), "x": [1, 2, 3], "w": ["a", "b", "c"]})
    for part in (1, 2):
        place = tmp_path / "data" / f"part={part}" / "p.arrow"
        place.parent.mkdir(parents=True)
        with pa.OSFile(str(place), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=1)
    place.write_bytes(place.read_bytes()[:-900])
    script = stream(tmp_path, 9, "arrow") + into("q", "SELECT x FROM S [NOW] WHERE part = 1")
    script += f"""CREATE RELATION R (x BIGINT, part INT) FROM FILES (path '{tmp_path / "data"}', format 'arrow');"""
    script += into("joined", "SELECT S.x FROM S [NOW], R WHERE S.x = R.x AND R.part = 1")
    told, _ = outcome(tmp_path, script, "told")
    with all_rows_read(monkeypatch):
        assert outcome(tmp_path, script, "whole") == (told, 0)
    assert [len(told["letters"][name]) for name in ("S", "R")] == [1, 1]
