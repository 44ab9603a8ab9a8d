"""Subscriptions: now, from the beginning, with progress, up to an instant, until now; many, slow and waiting ones."""

from __future__ import annotations

import errno
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_kit import ITEMS, Log, all_of, changes, relation, rows_in, stream

from penstock.connectors.results.batch_file import BatchFile
from penstock.connectors.results.result_folder import ResultFolder
from penstock.errors import PenstockError
from penstock.results.content import ResultContents
from penstock.results.reader import DELIVERY_BYTES, ResultReader
from penstock.storage.local import LocalStorage
from penstock.types import END

S, R = stream("s", ITEMS), relation("r", ITEMS)


def written(folder: Path, batches: int = 4) -> Log:
    log = Log(folder, S, R)
    for batch in range(batches):
        log.write(batch, {"s": changes(S, (batch, "a", batch), (batch, "b", batch))}, batch)
    return log


def test_reading_begins_now(tmp_path: Path) -> None:
    log = written(tmp_path)
    subscription = ResultReader(tmp_path, "s-1").read()
    assert subscription.poll() is None
    log.write(4, {"s": changes(S, (4, "c", 1))}, 4)
    assert rows_in(all_of(subscription)) == [(4, "+", "c", 1)]


def test_until_now_ends(tmp_path: Path) -> None:
    log = written(tmp_path)
    reader = ResultReader(tmp_path, "s-1")
    subscription = reader.read(reader.first, until_now=True)
    log.write(4, {"s": changes(S, (4, "c", 1))}, 4)
    assert [delivery.rows.num_rows for delivery in subscription] == [2, 2, 2, 2]
    assert subscription.ended


def test_up_to_an_instant_ends_when_it_is_complete(tmp_path: Path) -> None:
    log = Log(tmp_path, S)
    reader = ResultReader(tmp_path, "s-1")
    subscription = reader.read(up_to=5, progress=True)
    log.write(0, {"s": changes(S, (4, "a", 1), (5, "b", 1), (6, "c", 1))}, 4)
    assert rows_in(all_of(subscription)) == [(4, "+", "a", 1), (5, "+", "b", 1), (4, "p", None, None)]
    assert not subscription.ended
    log.write(1, {"s": changes(S, (5, "d", 1), (7, "e", 1))}, 6)
    assert rows_in(all_of(subscription)) == [(5, "+", "d", 1), (5, "p", None, None)]
    assert subscription.ended and subscription.next() is None
    assert rows_in(list(reader.read(up_to=5))) == []


def test_progress_comes_once_for_each_later_heartbeat(tmp_path: Path) -> None:
    log = Log(tmp_path, S)
    reader = ResultReader(tmp_path, "s-1")
    subscription = reader.read(progress=True)
    log.write(0, {}, {})
    log.write(1, {"s": changes(S, (1, "a", 1))}, 1)
    log.write(2, {}, 3)
    log.write(3, {"s": changes(S, (3, "b", 1))}, 3)
    log.write(4, {"s": changes(S, (9, "c", 1))}, END)
    found = all_of(subscription)
    assert rows_in(found) == [
        (1, "+", "a", 1),
        (1, "p", None, None),
        (3, "p", None, None),
        (3, "+", "b", 1),
        (9, "+", "c", 1),
        (9, "p", None, None),
    ]
    assert [str(delivery.cursor) for delivery in found] == ["s-1.1.1", "s-1.2.0", "s-1.3.1", "s-1.4.1"]
    again = reader.read("s-1.1.1", progress=True)
    assert rows_in(all_of(again))[0] == (3, "p", None, None)


def test_names_of_items_that_are_taken(tmp_path: Path) -> None:
    items = pa.schema([("op", pa.string()), ("ts", pa.int64()), ("\u00e4 .", pa.null()), ("e", pa.list_(pa.float64()))])
    odd = stream("s", items)
    log = Log(tmp_path, odd)
    log.write(0, {"s": changes(odd, (1, "x", 2, None, [0.5, None]))}, 1)
    reader = ResultReader(tmp_path, "s-1")
    assert reader.schema.names == ["ts", "op", "op_1", "ts_1", "\u00e4 .", "e"]
    assert rows_in(all_of(reader.read(reader.first))) == [(1, "+", "x", 2, None, [0.5, None])]


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=6), st.integers(1, 4), st.data())
def test_every_row_comes_once_however_often_a_reader_is_interrupted(
    batches: list[list[int]], most: int, data: st.DataObject
) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder), S)
        reader = ResultReader(Path(folder), "s-1")
        cursor, found = str(reader.first), []
        subscription = reader.read(cursor, rows=most)
        number = 0
        for batch, values in enumerate(batches):
            log.write(batch, {"s": changes(S, *((batch, "a", number + i) for i in range(len(values))))}, batch)
            number += len(values)
            while data.draw(st.booleans()):
                delivery = subscription.poll()
                if delivery is not None:
                    found += rows_in([delivery])
                    cursor = str(delivery.cursor)
                if data.draw(st.booleans()):
                    subscription = ResultReader(Path(folder), "s-1").read(cursor, rows=most)
        found += rows_in(all_of(reader.read(cursor, rows=most)))
        assert [row[3] for row in found] == list(range(number))


# -- waiting -----------------------------------------------------------------------------------------------------


def test_waiting_ends_with_rows_with_time_and_with_close(tmp_path: Path) -> None:
    log = written(tmp_path, 1)
    reader = ResultReader(tmp_path, "s-1")
    subscription = reader.read()
    assert subscription.next(timeout=0) is None and subscription.next(timeout=0.01) is None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(subscription.next)
        log.write(1, {"s": changes(S, (1, "x", 1))}, 1)
        delivery = waiting.result(timeout=60)
        assert delivery is not None and rows_in([delivery]) == [(1, "+", "x", 1)]
        closed = pool.submit(subscription.next)
        subscription.close()
        assert closed.result(timeout=60) is None and subscription.ended


def test_a_log_of_another_process_is_looked_at_again(tmp_path: Path) -> None:
    """A reader that nobody tells of batches finds them in the folder."""
    log = written(tmp_path, 1)
    content = (tmp_path / "batch-0000000000.results").read_bytes()
    log.write(1, {"s": changes(S, (1, "x", 1))}, 1)
    later = (tmp_path / "batch-0000000001.results").read_bytes()
    other = tmp_path / "other"
    (other / "queries").mkdir(parents=True)
    (other / "queries" / "s-1.json").write_bytes((tmp_path / "queries" / "s-1.json").read_bytes())
    (other / "batch-0000000000.results").write_bytes(content)
    subscription = ResultReader(other, "s-1").read()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(subscription.next, 60)
        (other / ".new.results").write_bytes(later)
        (other / ".new.results").rename(other / "batch-0000000001.results")
        delivery = waiting.result(timeout=60)
    assert delivery is not None and rows_in([delivery]) == [(1, "+", "x", 1)]


def test_a_listener_is_called_at_every_batch(tmp_path: Path) -> None:
    log = written(tmp_path, 1)
    subscription = ResultReader(tmp_path, "s-1").read()
    calls: list[int] = []
    end = subscription.on_change(lambda: calls.append(1))
    log.write(1, {}, 1)
    end()
    log.write(2, {}, 2)
    assert len(calls) == 1


def test_many_readers_of_one_batch_read_its_file_once(tmp_path: Path, monkeypatch: object) -> None:
    log = written(tmp_path, 1)
    reader = ResultReader(tmp_path, "s-1")
    opened: list[int] = []
    begin = BatchFile.__init__

    def counting(self: BatchFile, folder: Path, batch: int) -> None:
        opened.append(batch)
        begin(self, folder, batch)

    monkeypatch.setattr(BatchFile, "__init__", counting)  # type: ignore[attr-defined]
    ready = threading.Barrier(201)

    def follow() -> list[tuple[object, ...]]:
        subscription = reader.read("s-1.0.2")
        ready.wait()
        found: list[tuple[object, ...]] = []
        while len(found) < 20 and (delivery := subscription.next(60)) is not None:
            found += rows_in([delivery])
        return found

    with ThreadPoolExecutor(200) as pool:
        readers = [pool.submit(follow) for _ in range(200)]
        ready.wait()
        for batch in range(1, 11):
            log.write(batch, {"s": changes(S, (batch, "a", 1), (batch, "b", 1))}, batch)
            time.sleep(0.01)
        answers = [one.result(timeout=120) for one in readers]
    assert all(answer == answers[0] and len(answer) == 20 for answer in answers)
    # The writer opens each file once, and of all readers one.
    assert opened.count(0) <= 1 and all(opened.count(batch) <= 2 for batch in range(1, 11)), opened


class HeldReading:
    """Holds the readings of files of a log, each until it is let go on; by thread, as a reader of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = ResultFolder.at(folder)
        self.begun: queue.Queue[threading.Event] = queue.Queue()
        self.error: Exception | None = None
        self.pool = ThreadPoolExecutor(8)
        begin = BatchFile.__init__

        def held(file: BatchFile, folder: Path, batch: int) -> None:
            begin(file, folder, batch)
            go_on = threading.Event()
            self.begun.put(go_on)
            assert go_on.wait(60)
            if self.error is not None:
                raise self.error

        monkeypatch.setattr(BatchFile, "__init__", held)

    def reader(self, batch: int) -> Future[BatchFile | None]:
        """Begin to read a batch in another thread."""
        return self.pool.submit(self.folder.file, batch)

    def one_and_waiting(self, batch: int, count: int) -> tuple[threading.Event, list[Future[BatchFile | None]]]:
        """Return how the reading of the first of `count` readers is let go on, when the others wait for it."""
        first = self.reader(batch)
        go_on = self.begun.get(timeout=60)
        readers = [first, *(self.reader(batch) for _ in range(count - 1))]
        assert not wait(readers, timeout=0.2).done
        return go_on, readers

    def is_quiet(self) -> bool:
        """Return whether nothing is read."""
        return self.begun.empty()


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldReading]:
    written(tmp_path, 3)
    kit = HeldReading(monkeypatch, tmp_path)
    # The writer has no file mapped for the readers, so that each has to be read.
    kit.folder.reload(announced=True)
    yield kit
    kit.pool.shutdown()


def test_readers_wait_for_the_one_that_reads_their_file(held: HeldReading) -> None:
    go_on, readers = held.one_and_waiting(1, 5)
    assert held.is_quiet(), "two readers read one file"
    # One of another file does not wait.
    other = held.reader(2)
    held.begun.get(timeout=60).set()
    found = other.result(timeout=60)
    assert found is not None and found.batch == 2
    go_on.set()
    files = [reader.result(timeout=60) for reader in readers]
    assert files[0] is not None and all(file is files[0] for file in files)
    assert held.folder.file(1) is files[0] and held.is_quiet()


@pytest.mark.parametrize("kind", [PenstockError, OSError, FileNotFoundError])
def test_a_reader_that_fails_lets_the_next_one_try(held: HeldReading, kind: type[Exception]) -> None:
    errors = [PenstockError("P0605", str(number)) if kind is PenstockError else kind(number) for number in range(3)]
    held.error = errors[0]
    go_on, readers = held.one_and_waiting(1, 4)
    go_on.set()
    ends: list[object] = []
    for number in range(1, 4):
        go_on = held.begun.get(timeout=60)
        (ended,) = [reader for reader in readers if reader.done()]
        ends.append(ended.exception() or ended.result())
        readers.remove(ended)
        assert held.is_quiet()
        held.error = errors[number] if number < 3 else None
        go_on.set()
    (last,) = readers
    file = last.result(timeout=60)
    assert file is not None and held.folder.file(1) is file
    # Each has its own error; that there is no file is none.
    assert ends == ([None] * 3 if kind is FileNotFoundError else errors)
    assert not held.folder._reading, "what is not read any more is not noted"


@pytest.mark.parametrize("change", ["published", "replaced"])
def test_a_file_that_changes_while_it_is_read_is_read_again(held: HeldReading, change: str) -> None:
    go_on, readers = held.one_and_waiting(1, 3)
    getattr(held.folder, change)(1)
    later = held.reader(1)
    again = held.begun.get(timeout=60)
    go_on.set()
    before = [reader.result(timeout=60) for reader in readers]
    assert not later.done() and len({id(file) for file in before}) == 1
    again.set()
    now = later.result(timeout=60)
    assert now is not None and now is not before[0] and held.folder.file(1) is now


def test_what_changes_elsewhere_lets_a_file_stay(held: HeldReading) -> None:
    """Batches that come while a file is read do not have it read again."""
    go_on, (reader,) = held.one_and_waiting(1, 1)
    held.folder.published(3)
    held.folder.wake()
    go_on.set()
    assert held.folder.file(1) is reader.result(timeout=60) and held.is_quiet()


def test_a_delivery_that_waits_for_a_slow_reader_is_small(tmp_path: Path) -> None:
    log = Log(tmp_path, S)
    count = 50_000
    log.write(0, {"s": changes(S, *((tick, f"text {tick}", tick) for tick in range(count)))}, count)
    reader = ResultReader(tmp_path, "s-1")
    deliveries = all_of(reader.read(reader.first))
    assert len(deliveries) > 20
    assert max(delivery.rows.nbytes for delivery in deliveries) < 2 * DELIVERY_BYTES
    assert [row[0] for row in rows_in(deliveries)] == list(range(count))
    assert [str(one.cursor) for one in deliveries][-1] == f"s-1.0.{count}"


def test_rows_that_are_larger_than_a_delivery_come_one_by_one(tmp_path: Path) -> None:
    log = Log(tmp_path, S)
    log.write(0, {"s": changes(S, *((tick, "x" * 2 * DELIVERY_BYTES, tick) for tick in range(3)))}, 3)
    reader = ResultReader(tmp_path, "s-1")
    assert [one.rows.num_rows for one in all_of(reader.read(reader.first))] == [1, 1, 1]


def test_a_large_snapshot_waits_on_disk(tmp_path: Path) -> None:
    query = relation("r", ITEMS)
    log = Log(tmp_path, query)
    count = 50_000
    log.write(0, {"r": changes(query, *((1, "+", f"text {number}", number) for number in range(count)))}, 2)
    reader = ResultReader(tmp_path, "r-1", ResultContents(tmp_path))
    subscription = reader.read(snapshot=True)
    first = subscription.poll()
    assert first is not None and first.rows.nbytes < 2 * DELIVERY_BYTES
    before = pa.total_allocated_bytes()
    others = [reader.read(snapshot=True) for _ in range(5)]
    held = [other.poll() for other in others]
    assert pa.total_allocated_bytes() - before < 5 * DELIVERY_BYTES, "the others hold their snapshots in memory"
    assert all(one is not None and one.rows.equals(first.rows) for one in held)
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".tmp"], "the file has a name"
    found = rows_in([first, *all_of(subscription)])
    assert sorted(row[3] for row in found) == list(range(count))


def test_a_snapshot_for_which_there_is_no_disk_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = relation("r", ITEMS)
    log = Log(tmp_path, query)
    log.write(0, {"r": changes(query, *((1, "+", f"text {number}", number) for number in range(20_000)))}, 2)
    reader = ResultReader(tmp_path, "r-1", ResultContents(tmp_path))

    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    subscription = reader.read(snapshot=True)
    monkeypatch.setattr(LocalStorage, "create", full)
    assert sorted(row[3] for row in rows_in(all_of(subscription))) == list(range(20_000))
