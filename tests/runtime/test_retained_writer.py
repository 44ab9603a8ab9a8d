"""What a task retains: written while it is read, complete under its name or not there at all."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.physical.elements import Elements, concat
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.state_files import sweep
from penstock.runtime.spark.retention.retained_log import RetainedLog
from penstock.runtime.spark.retention.retained_writer import _LARGE, _SMALL, _WAITING, RetainedWriter
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage, SystemCalls
from penstock.testing.faults import KINDS, FailingCalls
from penstock.types import END

#: Rows of a batch that a thread writes.
LARGE = _LARGE // 8
#: Rows of a batch: buffers of each are below or above the size that is written at once, by a byte or by far.
SIZES = (0, 1, 7, _SMALL // 8 - 1, _SMALL // 8, _SMALL // 8 + 1, 30_000, LARGE)


def elements(rows: int, seed: int = 0) -> Elements:
    """Elements with text, empty and with NULLs among them, and numbers; cut out of longer arrays."""
    draw = np.random.default_rng((rows, seed))
    numbers = draw.integers(-(2**62), 2**62, rows + 3)
    text = pa.array([None if n % 5 == 0 else "ä" * int(n % 4) for n in numbers.tolist()], pa.string())
    ts = draw.integers(-1000, 1000, rows)
    return Elements((text.slice(3), pa.array(numbers).slice(3)), ts, np.full(rows, END, np.int64))


def written(place: Path, batches: Sequence[Elements], timestamp: int | None = None, durable: bool = False) -> None:
    with RetainedWriter(place, (1, 4), timestamp, durable) as writer:
        for batch in batches:
            writer.add(batch)
        writer.finish(3, 2)


@pytest.mark.parametrize("sizes", [(size,) for size in SIZES] + [SIZES, SIZES[::-1]], ids=str)
def test_what_is_read_is_what_was_accepted(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    log = RetainedLog(Folder(tmp_path), "S")
    batches = [elements(size, number) for number, size in enumerate(sizes)]
    written(log.place, batches)
    whole = concat(batches)
    assert len(log.files()) == (len(whole) > 0)
    for file in log.files():
        assert (file.round, file.task, file.low, file.high) == (3, 2, whole.ts.min(), whole.ts.max())
        found = concat(list(log.read(file, (4, 1))))
        assert found.ts.tolist() == whole.ts.tolist()
        assert [column.to_pylist() for column in found.columns[::-1]] == [c.to_pylist() for c in whole.columns]


def test_timestamps_among_the_columns_are_written_once(tmp_path: Path) -> None:
    log = RetainedLog(Folder(tmp_path), "S", timestamp=4)
    numbers = pa.array([5, -3, 9])
    part = Elements((pa.array(["a", "b", None]), numbers), np.array([5, -3, 9]), np.full(3, END, np.int64))
    written(log.place, [part], timestamp=4)
    (file,) = log.files()
    (found,) = log.read(file, (1,))
    assert found.ts.tolist() == [5, -3, 9] and found.columns[0].to_pylist() == ["a", "b", None]


def test_one_task_writes_the_same_file_again(tmp_path: Path) -> None:
    place = tmp_path / "retained" / "S"
    names = set()
    for _ in range(2):
        written(place, [elements(7), elements(9_000)])
        names |= {path.name for path in place.iterdir()}
    assert len(names) == 1


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("rows", [30_000, LARGE])
def test_a_call_that_fails_leaves_no_file(tmp_path: Path, durable: bool, rows: int) -> None:
    counting = FailingCalls()
    batches = [elements(7), elements(rows), elements(7)]
    with replaced_storage(LocalStorage(counting)):
        written(tmp_path / "all" / "S", batches, durable=durable)
    assert counting.counts["fsync"] == (4 if durable else 0)
    for kind in KINDS:
        for number in range(1, counting.counts[kind] + 1):
            place = tmp_path / f"{kind}-{number}" / "S"
            failing = replaced_storage(LocalStorage(FailingCalls(kind, number)))
            with failing, pytest.raises(PenstockError) as raised:
                written(place, batches, durable=durable)
            assert raised.value.code == "P0601"
            left = list(place.iterdir()) if place.exists() else []
            # Where the folder cannot be synced, the name stays: the task is repeated, and gives it again.
            named = durable and kind in ("fsync", "open") and number == counting.counts[kind]
            assert len(left) == named and not any(path.name.startswith(".") for path in left)


def test_what_a_killed_attempt_leaves_is_swept(tmp_path: Path) -> None:
    log = RetainedLog(Folder(tmp_path), "S")
    writer = RetainedWriter(log.place, (1, 4), None, durable=False)
    writer.add(elements(30_000))
    assert not log.files() and len(list(log.place.iterdir())) == 1
    sweep(tmp_path)
    assert not list(log.place.iterdir())


class _HeldCalls(SystemCalls):
    """Writes wait until they are let."""

    def __init__(self) -> None:
        self.let = threading.Event()

    def write(self, handle: int, data: memoryview) -> int:
        assert self.let.wait(60), "nobody let it"
        return super().write(handle, data)


def test_few_large_batches_wait_to_be_written(tmp_path: Path) -> None:
    calls, place = _HeldCalls(), tmp_path / "S"
    batches, added = [elements(LARGE, seed) for seed in range(_WAITING + 3)], []
    goes_on = threading.Semaphore(0)

    def accept() -> None:
        with replaced_storage(LocalStorage(calls)), RetainedWriter(place, (1, 4), None, durable=False) as writer:
            for batch in batches:
                writer.add(batch)
                added.append(batch)
                goes_on.release()
            writer.finish(3, 2)

    task = threading.Thread(target=accept)
    task.start()
    for _ in range(_WAITING):
        # The thread of the task goes on while nothing can be written.
        assert goes_on.acquire(timeout=60)
    assert not goes_on.acquire(timeout=0.3) and len(added) == _WAITING
    calls.let.set()
    task.join(60)
    log = RetainedLog(Folder(tmp_path), "S")
    log.place = place
    (file,) = log.files()
    assert concat(list(log.read(file, (4,)))).columns[0].equals(concat(batches).columns[1])


def test_a_task_that_fails_beside_the_thread_leaves_no_file(tmp_path: Path) -> None:
    place, threads = tmp_path / "S", threading.active_count()
    with pytest.raises(ZeroDivisionError), RetainedWriter(place, (1, 4), None, durable=False) as writer:
        for seed in range(4):
            writer.add(elements(LARGE, seed))
        raise ZeroDivisionError
    assert not list(place.iterdir()) and threading.active_count() == threads
