"""Batches of relation elements: columns, validity intervals and multiplicities [semantics 2].

An element (tuple, [ts, exp), sign) adds `sign` to the multiplicity of its tuple in R(τ) for every τ with
ts ≤ τ < exp. An ordinary tuple has sign 1; a negative tuple has sign -1 and cancels, from its ts on, the multiplicity
that an earlier element with the same tuple and the same exp added. Every linear operator (selection, projection, join,
union) treats both alike, so negative tuples need no separate code there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.storage.arrow_streams import small_stream
from penstock.types import BEGIN, END

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
#: Up to this many rows a call of an Arrow kernel costs more than what it does.
_FEW = 64
#: Below this many bytes a buffer grows as it is written: that costs less than computing its size first.
_SMALL = 2**18


@dataclass(frozen=True)
class Elements:
    """columns: one Arrow array per column; ts, exp: int64 ticks, ts < exp; sign: int64, never 0, or None for all 1.
    All have the same length; the order carries no meaning.

    Of accepted elements (`AcceptedScan`) those that a punctuation rejects are valid at no instant: exp = ts.
    """

    columns: tuple[pa.Array, ...]
    ts: Int64s
    exp: Int64s
    sign: Int64s | None = None

    def __deepcopy__(self, memo: object) -> Elements:
        """Return the elements: nothing changes them."""
        return self

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def signs(self) -> Int64s:
        return np.ones(len(self.ts), np.int64) if self.sign is None else self.sign

    @property
    def nbytes(self) -> int:
        extra = 0 if self.sign is None else self.sign.nbytes
        return int(sum(c.nbytes for c in self.columns)) + self.ts.nbytes + self.exp.nbytes + extra

    def take(self, indices: Int64s) -> Elements:
        return Elements(
            tuple(taken(self.columns, indices)),
            self.ts[indices],
            self.exp[indices],
            None if self.sign is None else self.sign[indices],
        )

    def filter(self, mask: Bools) -> Elements:
        kept = np.flatnonzero(mask)
        if len(kept) and kept[-1] - kept[0] == len(kept) - 1 and 2 * len(kept) >= len(mask):
            # One contiguous range, as for rows in time order: slice without copying. Not where the rows kept are less
            # than half: the slice would keep the whole batch in memory.
            return self if len(kept) == len(mask) else self.slice(int(kept[0]), int(kept[-1]) + 1)
        return self.take(kept)

    def valid(self) -> Elements:
        """Return the elements without those that are valid at no instant."""
        kept = self.exp > self.ts
        return self if kept.all() else self.filter(kept)

    def slice(self, start: int, stop: int) -> Elements:
        return Elements(
            tuple(c.slice(start, stop - start) for c in self.columns),
            self.ts[start:stop],
            self.exp[start:stop],
            None if self.sign is None else self.sign[start:stop],
        )

    def with_columns(self, columns: Sequence[pa.Array]) -> Elements:
        return Elements(tuple(columns), self.ts, self.exp, self.sign)

    def to_batch(self, ends: bool = True) -> pa.RecordBatch:
        """Return one record batch: the columns, then `ts`, `exp` if `ends`, and `sign` unless all signs are 1."""
        arrays: list[pa.Array] = [*self.columns, pa.array(self.ts)]
        names = [f"c{i}" for i in range(len(self.columns))] + ["ts"]
        if ends:
            arrays.append(pa.array(self.exp))
            names.append("exp")
        if self.sign is not None:
            arrays.append(pa.array(self.sign))
            names.append("sign")
        return pa.RecordBatch.from_arrays(arrays, names=names)

    @staticmethod
    def from_batch(batch: pa.RecordBatch) -> Elements:
        """Invert `to_batch`, sharing the batch's memory. Without a column `exp`, every expiration is `END`."""
        names = batch.schema.names
        width = names.index("ts")
        ends = np.broadcast_to(np.int64(END), batch.num_rows)
        return Elements(
            tuple(batch.column(i) for i in range(width)),
            int64s(batch.column(width)),
            int64s(batch.column(width + 1)) if "exp" in names else ends,
            int64s(batch.column(len(names) - 1)) if names[-1] == "sign" else None,
        )


def int64s(array: pa.Array) -> Int64s:
    """Return the values of an int64 array without nulls, sharing its memory."""
    values: Int64s = array.to_numpy(zero_copy_only=True)
    return values


def empty(types: Sequence[pa.DataType]) -> Elements:
    none = np.empty(0, np.int64)
    return Elements(tuple(pa.array([], t) for t in types), none, none)


def concat(parts: Sequence[Elements]) -> Elements:
    """Return all elements of `parts` (at least one), which have the same column types."""
    if len(parts) == 1:
        return parts[0]
    signed = any(p.sign is not None for p in parts)
    return Elements(
        tuple(concat_arrays([p.columns[i] for p in parts]) for i in range(len(parts[0].columns))),
        np.concatenate([p.ts for p in parts]),
        np.concatenate([p.exp for p in parts]),
        np.concatenate([p.signs for p in parts]) if signed else None,
    )


def gathered(parts: Iterable[Elements], least: int) -> Iterator[Elements]:
    """Yield the elements of `parts` in their order, at least `least` at once, but for the last."""
    some, rows = list[Elements](), 0
    for part in parts:
        some.append(part)
        rows += len(part)
        if rows >= least:
            yield concat(some)
            some, rows = [], 0
    if some:
        yield concat(some)


def taken(columns: Sequence[pa.Array], rows: Int64s) -> list[pa.Array]:
    """Return the values of columns at `rows`, none of which is negative. Of short columns they may share the memory."""
    if len(rows) <= _FEW and columns and len(columns[0]) <= _FEW:
        size, at = len(rows), rows.tolist()
        if not size:
            return [c.slice(0, 0) for c in columns]
        if at[-1] - at[0] == size - 1 and (size < 3 or at == list(range(at[0], at[0] + size))):
            if size == len(columns[0]):
                return list(columns)
            return [c.slice(at[0], size) for c in columns]
    chosen = pa.array(rows)
    return [c.take(chosen) for c in columns]


def concat_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def unnamed(arrays: Sequence[pa.Array]) -> pa.RecordBatch:
    """Return arrays of equal length as a record batch with columns named by position, the form of state and packets."""
    return pa.RecordBatch.from_arrays(list(arrays), names=[f"c{i}" for i in range(len(arrays))])


def forever(columns: Sequence[pa.Array], length: int) -> Elements:
    """Return elements that are valid from the beginning of time (`BEGIN`) and never expire (`END`)."""
    return Elements(tuple(columns), np.full(length, BEGIN, np.int64), np.full(length, END, np.int64))


def encode(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Return record batches of one schema (at least one) as an Arrow IPC stream, the form sent between processes."""
    small = small_stream(batches[0]) if len(batches) == 1 else None
    return small if small is not None else bytes(encoded(batches).to_pybytes())


def encoded(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Do the same as `encode`, without the copy to `bytes`."""
    if len(batches) == 1 and (content := small_stream(batches[0])) is not None:
        return pa.py_buffer(content)
    if sum(batch.nbytes for batch in batches) < _SMALL:
        small = pa.BufferOutputStream()
        _write(small, batches)
        return small.getvalue()
    size = pa.MockOutputStream()
    _write(size, batches)
    # Allocate the exact size: a growing buffer would be copied each time it doubles.
    buffer = pa.allocate_buffer(size.size())
    _write(pa.FixedSizeBufferWriter(buffer), batches)
    return buffer


def _write(sink: pa.NativeFile, batches: Sequence[pa.RecordBatch]) -> None:
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def decode(blob: bytes | memoryview | pa.Buffer) -> list[pa.RecordBatch]:
    """Invert `encode`; the batches share the blob's memory."""
    with pa.ipc.open_stream(pa.py_buffer(blob) if not isinstance(blob, pa.Buffer) else blob) as reader:
        return list(reader)
