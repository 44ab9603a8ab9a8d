"""Which worker process holds the state of a shard in memory, and how a round of that shard gets to it.

Spark gives a task to whichever Python worker is free, so in about half of all rounds a worker gets a shard whose
executor another one holds, and would restore its state from files. Instead it passes the packets to the owner on a
socket and yields what comes back; large packets are in files already (`spill_files.py`). Where the owner is gone, busy
with another shard, or fails, the worker runs the round itself and owns the shard from then on.

In a process only one round of a shard runs at a time: two would share one processor. A worker whose own round waits for
one that another worker has sent it gives up the shard of the sent round, so that shards spread over the workers again.

Contract: the folder is private to the daemon from which the workers were forked, and so to its user. An owner never
waits for another one, so that none can wait in a circle. A round that has run in an owner that is lost afterwards runs
again, as one of a task that Spark repeats.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

from penstock.runtime.spark.worker.packets import SCHEMA
from penstock.temporary import WORKERS

_LENGTH = 2
#: The answers of an owner: it takes the round, it is busy, the round has ended, it has failed.
_TAKES, _BUSY, _DONE, _FAILED = b"+", b"-", b".", b"!"


@dataclass(frozen=True)
class RoundOfShard:
    """A round of one shard. root, digest: of the job; number: of the batch; shard: its key in packets."""

    root: str
    digest: str
    stage: int
    number: int
    shard: int

    @property
    def name(self) -> str:
        """Return the name of the link to its owner."""
        place = json.dumps([self.root, self.stage, self.shard])
        return hashlib.sha256(place.encode()).hexdigest()[:24]


class _NotTakenError(Exception):
    """The owner has not run the round."""


#: Runs a round in this process, and drops the state of a shard from its memory.
Runs = Callable[[RoundOfShard, Sequence[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Drops = Callable[[RoundOfShard], None]


class ShardOwners:
    """What one worker process knows of the owners, and its own socket.

    Args:
        folder: of the sockets of all workers, and of the links from shards to them.
        name: of this worker in it.
    """

    def __init__(self, folder: Path, name: str, runs: Runs, drops: Drops) -> None:
        self._folder = folder
        self._name = name
        self._runs = runs
        self._drops = drops
        self._running = threading.Lock()
        self._waiting = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        # Of a worker that has ended, whose number this one has now.
        (folder / name).unlink(missing_ok=True)
        self._listener.bind(str(folder / name))
        self._listener.listen()
        threading.Thread(target=self._listen, name="penstock-shards", daemon=True).start()

    def close(self) -> None:
        """Stop to take rounds of others."""
        # A thread that waits for a connection is not woken by closing alone.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        (self._folder / self._name).unlink(missing_ok=True)

    def run(self, round_: RoundOfShard, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the packets that a round sends: in its owner where there is one, else here."""
        owner = self._owner(round_)
        if owner is not None and owner != self._name:
            try:
                # Received whole before any is yielded: a part of them could not be taken back.
                received = self._send(owner, round_, batches)
            except (OSError, pa.ArrowInvalid, _NotTakenError):
                pass
            else:
                yield from received
                return
        if not self._running.acquire(blocking=False):
            self._waiting.set()
            self._running.acquire()
            self._waiting.clear()
        try:
            yield from self._runs(round_, batches)
            self._own(round_)
        finally:
            self._running.release()

    # -- owners ------------------------------------------------------------------------------------------------

    def _owner(self, round_: RoundOfShard) -> str | None:
        try:
            return str((self._folder / round_.name).readlink())
        except OSError:
            return None

    def _own(self, round_: RoundOfShard) -> None:
        if self._owner(round_) == self._name:
            return
        link = self._folder / round_.name
        link.unlink(missing_ok=True)
        # A worker that finds no link, or has made one meanwhile, runs the round itself.
        with suppress(OSError):
            link.symlink_to(self._name)

    def _give_up(self, round_: RoundOfShard) -> None:
        self._drops(round_)
        if self._owner(round_) == self._name:
            (self._folder / round_.name).unlink(missing_ok=True)

    # -- the sender's side -------------------------------------------------------------------------------------

    def _send(self, owner: str, round_: RoundOfShard, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        with ExitStack() as stack:
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(str(self._folder / owner))
            file = cast(IO[bytes], stack.enter_context(connection.makefile("rwb")))
            header = json.dumps(asdict(round_)).encode()
            file.write(len(header).to_bytes(_LENGTH, "big") + header)
            file.flush()
            if file.read(1) != _TAKES:
                raise _NotTakenError
            _write(file, batches)
            if file.read(1) != _DONE:
                raise _NotTakenError
            return list(pa.ipc.open_stream(file))

    # -- the owner's side --------------------------------------------------------------------------------------

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="penstock-shard", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # A sender that does not read the end of the round runs it itself, and meets its errors there.
        with suppress(OSError, ValueError, TypeError), connection, connection.makefile("rwb") as both:
            file = cast(IO[bytes], both)
            round_ = RoundOfShard(**json.loads(file.read(int.from_bytes(file.read(_LENGTH), "big"))))
            if not self._running.acquire(blocking=False):
                _say(file, _BUSY)
                return
            try:
                _say(file, _TAKES)
                self._answer(file, round_)
                if self._waiting.is_set():
                    self._give_up(round_)
            finally:
                self._running.release()

    def _answer(self, file: IO[bytes], round_: RoundOfShard) -> None:
        batches = list(pa.ipc.open_stream(file))
        try:
            output = list(self._runs(round_, batches))
        except Exception:
            _say(file, _FAILED)
            return
        file.write(_DONE)
        _write(file, output)


def _say(file: IO[bytes], answer: bytes) -> None:
    file.write(answer)
    file.flush()


def _write(file: IO[bytes], batches: Sequence[pa.RecordBatch]) -> None:
    with pa.ipc.new_stream(file, batches[0].schema if batches else SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
    file.flush()


@lru_cache(maxsize=1)
def shard_owners(runs: Runs, drops: Drops) -> ShardOwners | None:
    """Return the owners that this worker process knows, made at its first round; None where its daemon has no folder
    for them."""
    folder = os.environ.get(WORKERS)
    if folder is None:
        return None
    try:
        return ShardOwners(Path(folder), str(os.getpid()), runs, drops)
    except OSError:
        return None
