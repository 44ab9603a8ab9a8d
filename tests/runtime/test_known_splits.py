"""What is known of posts that were read and removed: nothing, and rounds go on as if it were."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import Split
from penstock.control.posted_rows import PostedRows
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Intake
from penstock.runtime.spark.input.input_planner import InputPlanner
from penstock.runtime.spark.input.known_splits import KnownSplits
from penstock.runtime.spark.input.split_files import SplitFiles
from penstock.types import CALENDAR, Field, Schema

SCHEMA = Schema((Field("ts", pa.timestamp("us", "UTC")), Field("v", pa.int32())))
STREAM = Source("S", True, SCHEMA, "HTTP", (), 0, CALENDAR)
RELATION = Source("R", False, SCHEMA, "HTTP", (), 0, CALENDAR, operation=None)


def splits(count: int) -> list[Split]:
    return [Split(f"{number}.arrow", 0, 1, 10) for number in range(count)]


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_places_stay_what_they_were(count: int, dropped: int, first: int, last: int) -> None:
    every = splits(count)
    dropped = min(dropped, count)
    known = KnownSplits(0, every).without(dropped)
    assert len(known) == count and list(known) == every[dropped:]
    assert list(known[first:last]) == every[max(first, dropped) : max(last, dropped)]
    assert list(known[first:]) == every[max(first, dropped) :]
    more = known.and_more(splits(2))
    assert len(more) == count + 2 and list(more[count:]) == splits(2)
    assert more.without(0) == more


def table(value: int) -> pa.Table:
    return pa.table({"ts": pa.array([value], pa.timestamp("us", "UTC")), "v": pa.array([value], pa.int32())})


def rounds_of(root: Path, declared: Source, count: int) -> tuple[list[str], Folder, Path]:
    """Post and read so many rows, one a round, with restarts; return what the rounds read, in order."""
    posted = PostedRows(root / "kept", 3600.0)
    source = posted.source(declared, 1)
    folder = Folder(root / "job")
    folder.root.mkdir(parents=True)
    draw = random.Random(count)

    def opened() -> InputPlanner:
        return InputPlanner(folder, Intake((source,), frozenset(), 1), timer=lambda: clock[0])

    clock = [time.monotonic()]
    planner = opened()
    offset, read = planner.start(), []
    for number in range(count):
        assert posted.post(declared, 1, table(number), f"key {number}")
        clock[0] += 60
        if draw.random() < 0.2:
            planner = opened()
            planner.check(offset)
        following = planner.next(offset)
        (task,) = planner.pieces(offset, following)
        if draw.random() < 0.2:
            # The process dies before the round is delivered: the same round is made again.
            assert opened().pieces(offset, following) == [task]
        read += [Path(split.path).name for split in task.splits]
        assert all(Path(split.path).exists() for split in task.splits)
        offset = following
    assert planner.backlog(offset) == {declared.name: (0, 0)}
    return read, folder, root / "kept" / "1"


def test_what_was_read_of_a_stream_is_dropped(tmp_path: Path) -> None:
    sizes = []
    for count in (30, 90):
        read, folder, kept = rounds_of(tmp_path / str(count), STREAM, count)
        assert read == [f"{number:012d}.arrow" for number in range(1, count + 1)]
        known = SplitFiles(folder, source_file("S", {})).read()
        assert len(known) == count and known.dropped > count - 10
        sizes.append(sum(path.stat().st_size for path in SplitFiles(folder, source_file("S", {})).place.iterdir()))
        assert len(list(kept.glob("*.arrow"))) < 10
    assert sizes[1] < 1.1 * sizes[0]


def test_what_was_read_of_a_relation_stays(tmp_path: Path) -> None:
    read, folder, kept = rounds_of(tmp_path, RELATION, 20)
    assert len(read) == 20 and SplitFiles(folder, source_file("R", {})).read().dropped == 0
    assert len(list(kept.glob("*.arrow"))) == 20
