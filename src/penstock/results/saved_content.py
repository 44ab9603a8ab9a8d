"""The file of a content: the rows of a relation at a batch, and the changes that wait for their instant.

    content/<id>.arrow    an Arrow IPC stream of items, `tick` and `sign`; settled rows have no tick. Its metadata hold
                          the batch, the instant, and a checksum of the rest

A file that is damaged counts as absent: the content is then folded from the beginning, where that is left.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.connectors.results.result_folder import content_path
from penstock.physical.elements import Elements
from penstock.storage import storage
from penstock.types import END

_HEAD = b"PNSTKRC1"


@dataclass(frozen=True)
class SavedContent:
    """A content on disk: `ContentState`."""

    batch: int
    tick: int | None
    settled: Elements
    early: Elements
    given_up: str


def write_saved(folder: Path, id_: str, content: SavedContent) -> None:
    """Write a content in place of what was saved before, completely or not at all. Raises OSError."""
    settled, early = content.settled, content.early
    arrays = [pa.concat_arrays([s, e]) for s, e in zip(settled.columns, early.columns, strict=True)]
    ticks = pa.concat_arrays([pa.nulls(len(settled), pa.int64()), pa.array(early.ts, pa.int64())])
    signs = pa.concat_arrays([pa.array(settled.signs, pa.int64()), pa.array(early.signs, pa.int64())])
    batch = pa.RecordBatch.from_arrays(
        [*arrays, ticks, signs], names=[*(f"c{i}" for i in range(len(arrays))), "tick", "sign"]
    )
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    rows = out.getvalue()
    head = {"id": id_, "batch": content.batch, "tick": content.tick, "given_up": content.given_up}
    text = json.dumps(head).encode()
    checksum = zlib.crc32(rows, zlib.crc32(text))
    start = _HEAD + len(text).to_bytes(4, "little") + checksum.to_bytes(4, "little") + text
    storage().write(content_path(folder, id_), lambda file: (file.write(start), file.write(memoryview(rows))))


def read_saved(folder: Path, id_: str) -> SavedContent | None:
    """Return what was saved of a content; None without a file that can be used."""
    try:
        content = memoryview(storage().map(content_path(folder, id_)))
        length, checksum = (int.from_bytes(content[at : at + 4], "little") for at in (8, 12))
        text, rows = content[16 : 16 + length], content[16 + length :]
        if bytes(content[:8]) != _HEAD or zlib.crc32(rows, zlib.crc32(text)) != checksum:
            return None
        head = json.loads(bytes(text))
        if head["id"] != id_:
            return None
        return _read(head["batch"], head["tick"], head["given_up"], pa.py_buffer(rows))
    except (OSError, ValueError, KeyError, pa.ArrowException):
        return None


def _read(batch: int, tick: int | None, given_up: str, rows: pa.Buffer) -> SavedContent:
    table = pa.ipc.open_stream(rows).read_all().combine_chunks()
    columns = [column.combine_chunks() for column in table.columns]
    ticks = columns[-2]
    settled = int(ticks.null_count)
    ts = ticks.fill_null(0).to_numpy()
    whole = Elements(tuple(columns[:-2]), ts, np.full(len(ts), END, np.int64), columns[-1].to_numpy())
    return SavedContent(batch, tick, whole.slice(0, settled), whole.slice(settled, len(whole)), given_up)
