"""Rounds of a shard run in the worker that holds its state: two workers in one process, with sockets between them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.runtime.spark.worker.packets import SCHEMA, of_one_shard
from penstock.runtime.spark.worker.shard_owners import RoundOfShard, ShardOwners, shard_owners
from penstock.temporary import WORKERS


def packets(*blobs: bytes, shard: int = 7) -> list[pa.RecordBatch]:
    return [pa.record_batch([[shard], ["progress"], [blob]], schema=SCHEMA) for blob in blobs]


def round_of(shard: int, number: int = 1) -> RoundOfShard:
    return RoundOfShard("/a/run", "digest", 1, number, shard)


class Worker:
    """A worker: it notes which rounds it has run, and returns what it received with its name before it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.ran: list[int] = []
        self.dropped: list[int] = []
        self.fails = False
        self.hold: threading.Event | None = None
        self.begun = threading.Event()
        self.owners = ShardOwners(folder, name, self._run, lambda round_: self.dropped.append(round_.shard))

    def _run(self, round_: RoundOfShard, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.ran.append(round_.shard)
        self.begun.set()
        if self.hold is not None:
            assert self.hold.wait(60)
        if self.fails:
            raise ValueError("not here")
        yield from packets(*(self.name.encode() + blob for b in batches for blob in b.column("blob").to_pylist()))

    def run(self, shard: int, *blobs: bytes) -> list[bytes]:
        output = self.owners.run(round_of(shard), packets(*blobs))
        return [blob for batch in output for blob in batch.column("blob").to_pylist()]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Worker, Worker]]:
    workers = Worker(tmp_path, "a"), Worker(tmp_path, "b")
    yield workers
    for worker in workers:
        worker.owners.close()


def test_a_round_goes_to_the_worker_that_had_the_shard(two: tuple[Worker, Worker]) -> None:
    a, b = two
    assert a.run(0, b"1") == [b"a1"]
    assert b.run(1, b"2") == [b"b2"]
    assert b.run(0, b"3", b"4" * 100_000) == [b"a3", b"a" + b"4" * 100_000]
    assert a.run(1) == []
    assert (a.ran, b.ran) == ([0, 0], [1, 1])


def test_workers_that_have_each_others_shard_exchange_them(two: tuple[Worker, Worker]) -> None:
    a, b = two
    a.run(0)
    b.run(1)
    a.hold = b.hold = threading.Event()
    a.begun.clear()
    b.begun.clear()
    answers: dict[str, list[bytes]] = {}
    threads = [
        threading.Thread(target=lambda: answers.update(a=a.run(1, b"x"))),
        threading.Thread(target=lambda: answers.update(b=b.run(0, b"y"))),
    ]
    for thread in threads:
        thread.start()
    assert a.begun.wait(60)
    assert b.begun.wait(60)
    a.hold.set()
    for thread in threads:
        thread.join(60)
    assert answers == {"a": [b"bx"], "b": [b"ay"]}


def test_a_worker_whose_owner_is_busy_runs_the_round_and_owns_the_shard(two: tuple[Worker, Worker]) -> None:
    a, b = two
    a.run(0)
    a.run(1)
    a.hold = threading.Event()
    a.begun.clear()
    thread = threading.Thread(target=a.run, args=(0,))
    thread.start()
    assert a.begun.wait(60)
    assert b.run(1, b"1") == [b"b1"]
    a.hold.set()
    thread.join(60)
    a.hold = None
    assert a.run(1, b"2") == [b"b2"]


def test_a_worker_that_has_to_wait_gives_up_the_shard_it_was_asked_for(two: tuple[Worker, Worker]) -> None:
    a, b = two
    a.run(0)
    a.run(1)
    a.hold = threading.Event()
    a.begun.clear()
    asking = threading.Thread(target=b.run, args=(1,))
    asking.start()
    assert a.begun.wait(60)
    waiting = threading.Thread(target=a.run, args=(0,))
    waiting.start()
    while not a.owners._waiting.is_set():
        pass
    a.hold.set()
    asking.join(60)
    waiting.join(60)
    assert a.dropped == [1]
    a.hold = None
    assert b.run(1, b"1") == [b"b1"]


def test_where_the_owner_is_gone_or_fails_the_round_runs_here(two: tuple[Worker, Worker]) -> None:
    a, b = two
    a.run(0)
    a.fails = True
    assert b.run(0, b"1") == [b"b1"]
    with pytest.raises(ValueError, match="not here"):
        a.run(2)
    b.owners.close()
    a.fails = False
    assert a.run(0, b"2") == [b"a2"]


def test_an_owner_that_dies_within_a_round_leaves_it_to_the_other(tmp_path: Path, two: tuple[Worker, Worker]) -> None:
    _, b = two
    with socket.socket(socket.AF_UNIX) as dying:
        dying.bind(str(tmp_path / "gone"))
        dying.listen()
        (tmp_path / round_of(3).name).symlink_to("gone")

        def die() -> None:
            connection, _ = dying.accept()
            with connection:
                connection.recv(10)
                connection.sendall(b"+.half a stream")

        thread = threading.Thread(target=die)
        thread.start()
        assert b.run(3, b"1") == [b"b1"]
        thread.join(60)


def test_a_worker_takes_the_place_of_an_ended_one_with_its_number(tmp_path: Path, two: tuple[Worker, Worker]) -> None:
    a, b = two
    a.run(0)
    a.owners._listener.close()  # killed: its socket stays
    again = Worker(tmp_path, "a")
    assert b.run(0, b"1") == [b"a1"]
    assert again.ran == [0]
    again.owners.close()


def test_garbage_on_the_socket_harms_nobody(tmp_path: Path, two: tuple[Worker, Worker]) -> None:
    a, _ = two
    for text in (b"", b"\xff" * 8, (3).to_bytes(2, "big") + b"{}!", (2).to_bytes(2, "big") + b"{}", b"\0" * 2):
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(tmp_path / "a"))
            one.sendall(text)
            one.shutdown(socket.SHUT_WR)
            assert one.recv(10) == b""
    assert a.run(0, b"1") == [b"a1"]


def test_without_a_folder_there_are_no_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WORKERS, raising=False)
    shard_owners.cache_clear()
    assert shard_owners(lambda *_: iter(()), lambda _: None) is None
    shard_owners.cache_clear()


def test_packets_are_told_apart_by_shard() -> None:
    mixed = pa.record_batch([[3, 1, 3], ["progress"] * 3, [b"a", b"b", b"c"]], schema=SCHEMA)
    found = {
        shard: [blob for b in batches for blob in b.column("blob").to_pylist()]
        for shard, batches in of_one_shard([mixed, *packets(b"d", shard=1)])
    }
    assert found == {1: [b"b", b"d"], 3: [b"a", b"c"]}
    assert list(found) == [1, 3]
