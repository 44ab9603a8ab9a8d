"""Transfer answers from a stage to the sinks in chunks, so that no process holds all that a batch emits.

A stage passes rows on as its operators emit them (`AnswerWriter`). Large chunks are written to the task's spill file at
once; the packet of the query names all of them. The driver loads chunks one after the other (`PendingAnswer`), only
while it merges them with those of other shards (`physical/execution/answers.py`).

Contract: the chunks of a query and shard keep the order in which they were emitted. Columns that hardly change, such as
the instants of an RSTREAM, are run-length encoded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.physical.elements import Elements
from penstock.runtime.spark.worker.packets import Packet, answer_packets, read_elements
from penstock.runtime.spark.worker.spill_files import LARGE, MARK, SpillFiles, mapped

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


class AnswerWriter:
    """Collects the answers that one shard emits in a round. parcels: spill files for large chunks; without it all stays
    in memory.
    """

    def __init__(self, parcels: SpillFiles | None) -> None:
        self._parcels = parcels
        self._waiting: dict[str, list[Elements]] = {}
        self._bytes: dict[str, int] = {}
        self._spilled: dict[str, list[list[int]]] = {}

    def take(self, query: str, elements: Elements) -> None:
        """Add the next rows of the answer of `query`. Raises PenstockError P0601 where the disk is full."""
        self._waiting.setdefault(query, []).append(elements)
        self._bytes[query] = self._bytes.get(query, 0) + elements.nbytes
        if self._parcels is not None and self._bytes[query] >= LARGE:
            self._put(query, self._parcels)

    def _put(self, query: str, parcels: SpillFiles) -> None:
        for elements in self._waiting.pop(query):
            batch = shortened(elements)
            start, length = parcels.write([batch])
            self._spilled.setdefault(query, []).append([start, length, int(elements.ts.min()), len(elements)])
        self._bytes[query] = 0

    def packets(self, shard: int) -> Iterator[Packet]:
        """Yield all answers, one packet or several for each query."""
        for query in list(self._bytes):
            if query in self._spilled and self._parcels is not None:
                if query in self._waiting:
                    self._put(query, self._parcels)
                content = {"file": self._parcels.path, "pieces": self._spilled[query]}
                yield Packet(shard, f"answer:{query}", json.dumps(content).encode())
            else:
                yield from answer_packets(shard, query, self._waiting[query])


def read_answers(blob: bytes | pa.Buffer) -> list[PendingAnswer]:
    """Return the chunks in a packet of answers, in order. Loading one raises PenstockError P0605 if its
    file is gone.
    """
    if bytes(blob[:1]) != MARK:
        return [PendingAnswer.of(elements) for elements in read_elements(blob) if len(elements)]
    content = json.loads(bytes(blob))
    if "pieces" not in content:
        # A blob that was spilled as a whole, passed on through a later stage.
        return [PendingAnswer.of(e) for e in _read(content["file"], content["start"], content["length"]) if len(e)]
    return [_piece(content["file"], *piece) for piece in content["pieces"]]


def _piece(path: str, start: int, length: int, low: int, rows: int) -> PendingAnswer:
    def take() -> Elements:
        (elements,) = _read(path, start, length)
        return elements

    return PendingAnswer(low, rows, take)


def _read(path: str, start: int, length: int) -> list[Elements]:
    return [_whole(batch) for batch in mapped(path, start, length)]


def shortened(elements: Elements) -> pa.RecordBatch:
    """Return `elements` without ends as a record batch, with columns that hardly change run-length encoded."""
    batch = elements.to_batch(ends=False)
    columns = [*(_runs_of_one(c) for c in batch.columns[: len(elements.columns)]), _runs(elements.ts)]
    columns += batch.columns[len(columns) :]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _runs(ts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    if len(ts) > np.iinfo(np.int32).max:
        return pa.array(ts)
    ends = np.flatnonzero(ts[1:] != ts[:-1]) + 1
    if len(ends) * _RUN > len(ts):
        return pa.array(ts)
    ends = np.append(ends, len(ts))
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), pa.array(ts[ends - 1]))


def _runs_of_one(column: pa.Array) -> pa.Array:
    """Encode a column of equal numbers as one run."""
    numbers = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if not numbers or column.null_count or len(column) < _RUN or len(column) > np.iinfo(np.int32).max:
        return column
    # Compared as bits, so that every NaN and either zero is preserved.
    bits = column.to_numpy(zero_copy_only=True).view(f"u{column.type.bit_width // 8}")
    if bits[0] != bits[-1] or bool((bits != bits[0]).any()):
        return column
    return pa.RunEndEncodedArray.from_arrays(pa.array([len(column)], pa.int32()), column[:1])


def _whole(batch: pa.RecordBatch) -> Elements:
    columns: Sequence[pa.Array] = [
        pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column for column in batch.columns
    ]
    return Elements.from_batch(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
