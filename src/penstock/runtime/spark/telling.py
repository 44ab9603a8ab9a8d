"""Answers on their way from a stage to the sinks, in pieces: no process holds all that a batch tells.

A stage hands over rows as its operators make them (`Telling`). What is large enough goes to the task's parcel at once;
the packet of the query names all its pieces. The driver takes pieces up one after the other (`Told`), only while they
are laid together with those of other shards (`physical/answers.py`).

Contract: a query's pieces of a shard come in the order in which they were made. Of a column that hardly changes, as the
instants of an RSTREAM, runs are kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.physical.elements import Elements
from penstock.runtime.spark.packets import Packet, answer_packets, read_elements
from penstock.runtime.spark.parcels import LARGE, MARK, Parcels, mapped

#: Rows of a run, on average, from which on runs are kept instead of values.
_RUN = 16


@dataclass(frozen=True)
class Told:
    """A piece of an answer that has not been taken up. low: the least of its timestamps; rows: how many there are;
    take: gives the elements, which share its memory."""

    low: int
    rows: int
    take: Callable[[], Elements]

    @staticmethod
    def of(elements: Elements) -> Told:
        """Elements that are in memory anyhow, at least one."""
        return Told(int(elements.ts.min()), len(elements), lambda: elements)


class Telling:
    """What one shard tells in a round. parcels: where large pieces go; without, all stays in memory."""

    def __init__(self, parcels: Parcels | None) -> None:
        self._parcels = parcels
        self._waiting: dict[str, list[Elements]] = {}
        self._bytes: dict[str, int] = {}
        self._lying: dict[str, list[list[int]]] = {}

    def take(self, query: str, elements: Elements) -> None:
        """The next rows of the answer of `query`. Raises PenstockError P0601 where the disk takes no more."""
        self._waiting.setdefault(query, []).append(elements)
        self._bytes[query] = self._bytes.get(query, 0) + elements.nbytes
        if self._parcels is not None and self._bytes[query] >= LARGE:
            self._put(query, self._parcels)

    def _put(self, query: str, parcels: Parcels) -> None:
        for elements in self._waiting.pop(query):
            batch = shortened(elements)
            start, length = parcels.write([batch])
            self._lying.setdefault(query, []).append([start, length, int(elements.ts.min()), len(elements)])
        self._bytes[query] = 0

    def packets(self, shard: int) -> Iterator[Packet]:
        """All that has been told, a packet or several for each query."""
        for query in list(self._bytes):
            if query in self._lying and self._parcels is not None:
                if query in self._waiting:
                    self._put(query, self._parcels)
                told = {"file": self._parcels.path, "pieces": self._lying[query]}
                yield Packet(shard, f"answer:{query}", json.dumps(told).encode())
            else:
                yield from answer_packets(shard, query, self._waiting[query])


def told(blob: bytes | pa.Buffer) -> list[Told]:
    """The pieces of a packet of answers, in order. Raises PenstockError P0605 where one that is taken up is not there
    any more."""
    if bytes(blob[:1]) != MARK:
        return [Told.of(elements) for elements in read_elements(blob) if len(elements)]
    found = json.loads(bytes(blob))
    if "pieces" not in found:
        # A blob that was set apart as a whole, on its way through a later stage.
        return [Told.of(e) for e in _read(found["file"], found["start"], found["length"]) if len(e)]
    return [_piece(found["file"], *piece) for piece in found["pieces"]]


def _piece(path: str, start: int, length: int, low: int, rows: int) -> Told:
    def take() -> Elements:
        (elements,) = _read(path, start, length)
        return elements

    return Told(low, rows, take)


def _read(path: str, start: int, length: int) -> list[Elements]:
    return [_whole(batch) for batch in mapped(path, start, length)]


def shortened(elements: Elements) -> pa.RecordBatch:
    """`elements` without ends as a record batch, columns that hardly change as runs."""
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
    """A column of numbers that are all the same as one run."""
    numbers = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if not numbers or column.null_count or len(column) < _RUN or len(column) > np.iinfo(np.int32).max:
        return column
    # As bits, so that every NaN and either zero stays itself.
    bits = column.to_numpy(zero_copy_only=True).view(f"u{column.type.bit_width // 8}")
    if bits[0] != bits[-1] or bool((bits != bits[0]).any()):
        return column
    return pa.RunEndEncodedArray.from_arrays(pa.array([len(column)], pa.int32()), column[:1])


def _whole(batch: pa.RecordBatch) -> Elements:
    columns: Sequence[pa.Array] = [
        pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column for column in batch.columns
    ]
    return Elements.from_batch(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
