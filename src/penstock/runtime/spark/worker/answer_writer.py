"""Transfer answers from a stage to the sinks in chunks, so that no process holds all that a batch emits.

A stage passes rows on as its operators emit them (`AnswerWriter`). Large chunks are written to the task's spill file at
once; the packet of the query names all of them. The driver loads chunks one after the other (`PendingAnswer`), only
while it merges them with those of other shards (`physical/execution/answers.py`).

Contract: the chunks of a query and shard keep the order in which they were emitted. Columns that hardly change, such as
the instants of an RSTREAM, are run-length encoded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.physical.elements import Elements
from penstock.physical.kernels.run_length import encode_constant, encode_runs
from penstock.runtime.result_limits import ResultLimits
from penstock.runtime.spark.worker.packets import (
    AnswerOf,
    FewOfMany,
    Packet,
    answer_packets,
    as_elements,
    packet_of_many,
    read_elements,
    read_packet_of_many,
)
from penstock.runtime.spark.worker.spill_files import LARGE, MARK, SpilledBlob, SpillFiles, mapped

#: Bytes of an answer up to which it travels with those of other queries, and of a packet of these.
_FEW_BYTES, _TOGETHER = 2**12, 2**20
#: Average rows of a run from which on a column is run-length encoded.
_RUN = 16


@dataclass(frozen=True)
class PendingAnswer:
    """An answer chunk that is not loaded yet. low: the minimum of its timestamps; rows: its length; take: loads its
    elements, which share the memory of the chunk.
    """

    low: int
    rows: int
    take: Callable[[], Elements]

    @staticmethod
    def of(elements: Elements) -> PendingAnswer:
        """Return a chunk of at least one element that is in memory already."""
        return PendingAnswer(int(elements.ts.min()), len(elements), lambda: elements)


@dataclass(frozen=True)
class SpilledChunk:
    """Where a chunk lies in its spill file. start, length: in bytes; low: the minimum of its timestamps; rows: its
    length.
    """

    start: int
    length: int
    low: int
    rows: int


@dataclass(frozen=True)
class SpilledAnswer:
    """The chunks of an answer in one spill file, in order."""

    file: str
    chunks: tuple[SpilledChunk, ...]

    def encode(self) -> bytes:
        """Return the blob of the packet that names them."""
        return json.dumps({"file": self.file, "pieces": [list(astuple(chunk)) for chunk in self.chunks]}).encode()

    @staticmethod
    def read(content: Mapping[str, Any]) -> SpilledAnswer:
        """Return the answer that `encode` named."""
        return SpilledAnswer(content["file"], tuple(SpilledChunk(*fields) for fields in content["pieces"]))


class AnswerWriter:
    """Collects the answers that one shard emits in a round. spill_files: for large chunks; without them all chunks
    stay in memory.
    """

    def __init__(
        self,
        spill_files: SpillFiles | None,
        limits: ResultLimits = ResultLimits(),  # noqa: B008
        shards: int = 1,
    ) -> None:
        self._spill_files, self._limits, self._shards = spill_files, limits, shards
        #: By query, the bytes of all its answers.
        self._sizes: dict[str, int] = {}
        self._in_memory: dict[str, list[Elements]] = {}
        self._bytes: dict[str, int] = {}
        self._spilled: dict[str, list[SpilledChunk]] = {}
        self._over: dict[str, PenstockError] = {}

    def take(self, query: str, elements: Elements) -> None:
        """Add the next rows of the answer of `query`. Raises PenstockError P0601 where the disk is full."""
        if query in self._over:
            return
        self._in_memory.setdefault(query, []).append(elements)
        self._sizes[query] = self._sizes.get(query, 0) + elements.nbytes
        self._bytes[query] = self._bytes.get(query, 0) + elements.nbytes
        if self._spill_files is not None and self._bytes[query] >= LARGE:
            self._spill(query, self._spill_files)
        while (over := self._limits.exceeded(self._sizes, self._shards)) is not None:
            self._over[over] = self._limits.error(over, self._sizes.pop(over) * self._shards)
            for known in (self._in_memory, self._bytes, self._spilled):
                known.pop(over, None)

    @property
    def failed(self) -> Mapping[str, PenstockError]:
        """Return the queries with more answers than their limit, of which nothing is kept."""
        return self._over

    def _spill(self, query: str, spill_files: SpillFiles) -> None:
        for elements in self._in_memory.pop(query):
            batch = shortened(elements)
            start, length = spill_files.write([batch])
            self._spilled.setdefault(query, []).append(
                SpilledChunk(start, length, int(elements.ts.min()), len(elements))
            )
        self._bytes[query] = 0

    def _together(self) -> list[dict[str, list[Elements]]]:
        """Return the answers that go into common packets."""
        alike: dict[tuple[object, ...], list[dict[str, list[Elements]]]] = {}
        room: dict[tuple[object, ...], int] = {}
        for query, pieces in self._in_memory.items():
            size = self._bytes[query]
            if size > _FEW_BYTES or query in self._spilled or len({piece.sign is None for piece in pieces}) > 1:
                continue
            types = [column.type for column in pieces[0].columns]
            if any(map(pa.types.is_dictionary, types)):
                continue
            key = (pieces[0].sign is None, *map(str, types))
            if size > room.get(key, 0):
                alike.setdefault(key, []).append({})
                room[key] = _TOGETHER
            room[key] -= size
            alike[key][-1][query] = pieces
        return [answers for packets in alike.values() for answers in packets if len(answers) > 1]

    def packets(self, shard: int) -> Iterator[Packet]:
        """Yield all answers: those of few rows together, one packet or several for each other query."""
        together = self._together()
        for answers in together:
            yield packet_of_many(shard, answers)
        few = {query for answers in together for query in answers}
        for query in self._bytes:
            if query in few:
                continue
            if query in self._spilled and self._spill_files is not None:
                if query in self._in_memory:
                    self._spill(query, self._spill_files)
                answer = SpilledAnswer(self._spill_files.path, tuple(self._spilled[query]))
                yield Packet(shard, AnswerOf(query), answer.encode())
            else:
                yield from answer_packets(shard, query, self._in_memory[query])


def answers_in(kind: AnswerOf | FewOfMany, blob: bytes | pa.Buffer) -> Iterator[tuple[str, list[PendingAnswer]]]:
    """Yield the queries in a packet of answers and the chunks of each, in order. Raises PenstockError P0605 as
    `read_answers`.
    """
    if isinstance(kind, AnswerOf):
        yield kind.query, read_answers(blob)
    else:
        yield from ((query, [PendingAnswer.of(elements)]) for query, elements in read_packet_of_many(blob))


def read_answers(blob: bytes | pa.Buffer) -> list[PendingAnswer]:
    """Return the chunks in a packet of answers, in order. Loading one raises PenstockError P0605 if its
    file is gone.
    """
    if bytes(blob[:1]) != MARK:
        return [PendingAnswer.of(elements) for elements in read_elements(blob) if len(elements)]
    content = json.loads(bytes(blob))
    if "pieces" not in content:
        # A blob that was spilled as a whole, passed on through a later stage.
        return [PendingAnswer.of(e) for e in as_elements(SpilledBlob(**content).read()) if len(e)]
    answer = SpilledAnswer.read(content)
    return [_pending(answer.file, chunk) for chunk in answer.chunks]


def _pending(file: str, chunk: SpilledChunk) -> PendingAnswer:
    def take() -> Elements:
        (elements,) = as_elements(mapped(file, chunk.start, chunk.length))
        return elements

    return PendingAnswer(chunk.low, chunk.rows, take)


def shortened(elements: Elements) -> pa.RecordBatch:
    """Return `elements` without ends as a record batch, with columns that hardly change run-length encoded."""
    batch = elements.to_batch(ends=False)
    columns = [encode_constant(column, _RUN) for column in batch.columns[: len(elements.columns)]]
    columns.append(encode_runs(pa.array(elements.ts), _RUN))
    columns += batch.columns[len(columns) :]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
