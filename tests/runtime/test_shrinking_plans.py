"""Queries that leave a part of the plan: what is written, and read by workers, is in proportion to what changes."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from inline_engine import InlineServer, without_spark

from penstock.physical.plan.identity import step_keys
from penstock.physical.plan.plan import Plan
from penstock.runtime.spark import live_change
from penstock.runtime.spark.checkpoint import folder
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.worker import job_files
from penstock.runtime.spark.worker.job_files import forget_parts, read_job, write_job

__all__ = ["without_spark"]

STREAM = "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
COUNT = 28


@pytest.fixture
def server(tmp_path: Path, without_spark: None) -> Iterator[InlineServer]:
    made = InlineServer(tmp_path / "checkpoint")
    queries = (
        f"CREATE QUERY q{i} AS SELECT SUM(v) AS s FROM S [RANGE {i % 7 + 2} SECONDS] WHERE v > {i};"
        for i in range(COUNT)
    )
    made.post(STREAM + "".join(queries))
    made.insert("S", [(1, 1)])
    yield made
    made.close()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the parts that are written."""
    sizes: list[int] = []
    original: Any = folder.write_whole

    def write(path: Path, data: bytes, durable: bool = True) -> None:
        if path.parent.name == "plans":
            sizes.append(len(data))
        original(path, data, durable)

    monkeypatch.setattr(job_files, "write_whole", write)
    return sizes


def test_a_drop_writes_what_it_changes(server: InlineServer, written: list[int]) -> None:
    place, whole = Folder(server.folder / "penstock"), sum(_sizes(server.folder))
    assert whole > 100 * COUNT
    names = [f"q{i}" for i in range(COUNT)]
    random.Random(7).shuffle(names)
    workers: dict[bytes, Plan] = {}
    for number, name in enumerate(names[:-2]):
        server.post(f"DROP QUERY {name};")
        server.insert("S", [(number + 2, COUNT)])
        job = server.run.inline.job
        for known in (workers, {}):
            # One that has read all before, and a new one.
            job_files._PARTS[str(place.root)] = known
            read = read_job(place, write_job(place, job)).plan
            assert read == job.plan and step_keys(read) == step_keys(job.plan)
            if known is workers:
                workers = job_files._PARTS[str(place.root)]
        forget_parts(place, job)
        assert len(_sizes(server.folder)) <= 2
    # Written whole each time the part would be half as large as before, so a few times.
    assert sum(size > whole / 4 for size in written[: COUNT // 4]) == 0
    assert sum(written) < 8 * whole
    server.insert("S", [(COUNT + 9, COUNT)])
    assert server.emitted(names[-1]) and server.emitted(names[-2])


def test_a_worker_reads_what_is_new_alone(server: InlineServer, monkeypatch: pytest.MonkeyPatch) -> None:
    place, reads = Folder(server.folder / "penstock"), list[str]()
    original: Any = job_files._verified

    def verified(path: Path, digest: bytes) -> bytes:
        reads.append(path.name)
        return bytes(original(path, digest))

    monkeypatch.setattr(job_files, "_verified", verified)
    job_files._PARTS.pop(str(place.root), None)
    first = read_job(place, write_job(place, server.run.inline.job)).plan
    for number in range(3):
        reads.clear()
        server.post(f"DROP QUERY q{number};")
        plan = read_job(place, write_job(place, server.run.inline.job)).plan
        assert len(reads) == 2, "the job, and what is left of the part"
        same = [step for step in plan.steps if first.by_id.get(step.id) is step]
        assert len(same) > len(plan.steps) - 10, "they are the objects that it has, which a graft leaves as they are"


def _sizes(checkpoint: Path) -> list[int]:
    return [path.stat().st_size for path in (checkpoint / "penstock" / "plans").iterdir()]


@pytest.mark.parametrize("text", ["DROP QUERY q{n};", "ALTER QUERY q{n} PAUSE;"])
def test_what_stays_of_a_part_is_not_looked_into(
    text: str, tmp_path: Path, without_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the functions of plans, whether they are called in Python: a part with four times as many queries has no more
    of it to do when one of them goes."""
    few, many = (_calls_of(text, tmp_path / str(count), count, monkeypatch) for count in (24, 96))
    assert (many - few) / 72 < MOST_CALLS, (few, many)


#: Calls of Python functions of this project's plans for each query that stays in a part. It was 220.
MOST_CALLS = 6
#: Folders of these functions.
PLANS = (
    "physical/planning/",
    "physical/plan/",
    "runtime/spark/worker/job_files",
    "runtime/spark/worker/pickling",
    "penstock/tree",
)


def _calls_of(text: str, folder: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many functions of plans are called in Python while one of `count` queries of one script goes."""
    server = InlineServer(folder)
    queries = (
        f"CREATE QUERY q{i} INTO RESULTS () AS SELECT SUM(v) AS s FROM S [RANGE {i % 7 + 2} SECONDS] WHERE v > {i};"
        for i in range(count)
    )
    server.post(STREAM + "".join(queries))
    server.post(text.format(n=3))
    calls: Counter[str] = Counter()
    begin = live_change.begin_change

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and any(place in frame.f_code.co_filename for place in PLANS):
            calls[frame.f_code.co_qualname] += 1

    def counted(*arguments: Any) -> Any:
        sys.setprofile(note)
        try:
            return begin(*arguments)
        finally:
            sys.setprofile(None)

    with monkeypatch.context() as patched:
        patched.setattr(live_change, "begin_change", counted)
        server.post(text.format(n=7))
    server.close()
    assert calls, "the change was counted"
    return calls.total()
