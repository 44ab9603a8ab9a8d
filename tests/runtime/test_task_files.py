"""Small read tasks of a round share files, one for each task of Spark that runs at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.algebra.nodes.scans import Scan
from penstock.connectors.contract import Split
from penstock.language.scripts import bind_script
from penstock.runtime.spark.checkpoint.folder import Folder, Intake, Seen
from penstock.runtime.spark.input.input_planner import ReadTask
from penstock.runtime.spark.input.round_log import RoundLog
from penstock.runtime.spark.input.task_files import SMALL, load_read_tasks, shared_files
from penstock.runtime.spark.output.totals import RunTotals
from penstock.tree import walk
from tests.runtime.inline_run import CRASHES, lived

SOURCES = 7


def task(number: int, size: int, source: str | None = "s") -> ReadTask:
    return ReadTask("000000001", number, source, (Split(f"{number}", 0, size, size),))


def sizes_of(tasks: list[ReadTask], parallelism: int, **options: object) -> list[list[int]]:
    return [[one.task for one in file] for file in shared_files(tasks, parallelism, **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "parallelism", "files"),
    [
        ([1], 2, [[0]]),
        ([1, 1], 2, [[0], [1]]),
        ([1, 1, 1], 2, [[0, 1], [2]]),
        ([SMALL] * 5, 1, [[0, 1, 2, 3, 4]]),
        ([SMALL + 1] * 3, 1, [[0], [1], [2]]),
        ([1, SMALL + 1, 1, 1, SMALL + 1], 2, [[0, 2], [1], [3], [4]]),
        ([SMALL + 1, 1, 1, 1], 2, [[0], [1, 2], [3]]),
    ],
)
def test_small_tasks_share_as_many_files_as_run_at_once(
    sizes: list[int], parallelism: int, files: list[list[int]]
) -> None:
    tasks = [task(number, size) for number, size in enumerate(sizes)]
    assert sizes_of(tasks, parallelism) == files


def test_a_task_of_several_splits_has_the_size_of_all() -> None:
    halves = (Split("a", 0, SMALL, SMALL), Split("b", 0, SMALL, SMALL))
    tasks = [task(0, 1), replace(task(1, 1), splits=halves), task(2, 1)]
    assert sizes_of(tasks, 1) == [[0, 2], [1]]


def test_logs_are_read_alone() -> None:
    tasks = [task(0, 1, "log"), task(1, 1), task(2, 1), task(3, 1, None)]
    assert sizes_of(tasks, 1, alone={"log"}) == [[0], [1, 2, 3]]


def intake(data: Path, parallelism: int) -> Intake:
    declared = "".join(
        f"CREATE STREAM s{n} (ts BIGINT) FROM FILES (path '{data}/s{n}', format 'parquet') TIMESTAMP BY ts;"
        for n in range(SOURCES)
    )
    queries = "".join(f"CREATE QUERY q{n} AS SELECT ts FROM s{n};" for n in range(SOURCES))
    roots = [query.root for query in bind_script(declared + queries).queries]
    sources = {node.source.name: node.source for root in roots for node in walk(root) if isinstance(node, Scan)}
    for n in range(SOURCES):
        (data / f"s{n}").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"ts": pa.array([n], pa.int64())}), data / f"s{n}" / "0.parquet")
    return Intake(tuple(sources.values()), frozenset(), parallelism)


def opened(tmp_path: Path, parallelism: int = 2) -> RoundLog:
    folder = Folder(tmp_path / "job")
    folder.root.mkdir(exist_ok=True)
    return RoundLog(folder, intake(tmp_path / "data", parallelism))


def sources_in(rounds: RoundLog) -> list[list[str | None]]:
    folder = Folder(rounds.place.parent)
    files = sorted((rounds.place / "000000001").glob("*.json"))
    return [[one.source for one in load_read_tasks(folder, file)] for file in files]


def test_a_round_of_many_small_sources_has_few_files(tmp_path: Path) -> None:
    rounds = opened(tmp_path)
    assert sources_in(rounds) == [["s0", "s1", "s2", "s3"], ["s4", "s5", "s6"]]
    rounds.stop()


@pytest.mark.parametrize("loss", ["folder", "content"])
def test_files_that_a_loss_of_power_took_are_the_same_again(tmp_path: Path, loss: str) -> None:
    rounds = opened(tmp_path)
    before = sources_in(rounds)
    rounds.stop()
    if loss == "folder":
        (rounds.place / "000000001").rename(tmp_path / "gone")
    else:
        (rounds.place / "000000001" / "00001.json").write_bytes(b"")
    again = opened(tmp_path)
    assert sources_in(again) == before
    again.stop()


@pytest.mark.parametrize("loss", ["none", "folder", "content"])
def test_a_round_that_was_planned_for_more_processors_keeps_its_files(tmp_path: Path, loss: str) -> None:
    """Each task has a file, and Spark may know their names."""
    rounds = opened(tmp_path, SOURCES)
    rounds.stop()
    target = rounds.place / "000000001"
    if loss == "folder":
        target.rename(tmp_path / "gone")
    elif loss == "content":
        (target / "00005.json").write_bytes(b"")
    again = opened(tmp_path)
    assert sources_in(again) == [[f"s{n}"] for n in range(SOURCES)]
    again.stop()


def test_what_was_seen_of_several_sources_is_one_file(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write_seen("000000001", 0, [("a", Seen(3, 1)), ("b", Seen(4, 2)), ("a", Seen(5, 3))])
    folder.write_seen("000000001", 3, [("b", Seen(2, 1, malformed={"x": 1}))])
    assert folder.read_seen("000000001") == {"a": Seen(5, 4), "b": Seen(4, 3, malformed={"x": 1})}
    assert len(list((tmp_path / "seen" / "000000001").iterdir())) == 2


def script(folder: Path) -> str:
    data = folder / "data"
    declared = "".join(
        f"CREATE RELATION r{n} (ts INT, k INT, b INT, PRIMARY KEY (k)) FROM FILES (path '{data}/r{n}', format 'csv')"
        " TIMESTAMP BY ts UNIT SECOND;"
        for n in range(SOURCES)
    )
    declared += (
        f"CREATE STREAM s (ts INT, k INT) FROM FILES (path '{data}/s', format 'csv') TIMESTAMP BY ts UNIT SECOND"
        " ON ERROR DEAD LETTER;"
    )
    return declared + "".join(
        f"CREATE QUERY q{n} INTO FILES (path '{folder}/q{n}', format 'csv') AS"
        f" ISTREAM(SELECT s.k, r{n}.b FROM s [NOW], r{n} WHERE s.k = r{n}.k);"
        for n in range(SOURCES)
    )


@pytest.mark.parametrize("crash", [None, *CRASHES])
def test_answers_and_counts_of_many_small_sources(tmp_path: Path, crash: str | None) -> None:
    data = tmp_path / "data"
    for n in range(SOURCES):
        (data / f"r{n}").mkdir(parents=True)
        (data / f"r{n}" / "0.csv").write_text(f"ts,k,b\n1,1,{n}\n2,2,{n * 10}\n9,1,{n * 100}\n")
    (data / "s").mkdir()
    (data / "s" / "0.csv").write_text("ts,k\n3,1\nx,1\n4,2\n5,3\n10,1\n20,9\n")
    names = [f"q{n}" for n in range(SOURCES)]
    found = lived(script(tmp_path), tmp_path, names, crash)
    for n, name in enumerate(names):
        assert found[name] == [f"10,1,{n * 100}", f"3,1,{n}", f"4,2,{n * 10}"]
    totals = RunTotals(Folder(tmp_path / "checkpoint" / "penstock")).totals({}, {}, 0)
    assert totals.sources == {"s": (6, 0, 1), **{f"r{n}": (3, 0, 0) for n in range(SOURCES)}}
