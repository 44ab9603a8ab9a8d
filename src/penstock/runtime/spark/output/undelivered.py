"""Answers that a sink did not take, kept until their query is resumed.

`undelivered/<query>/<batch>.arrow` is written, with its checksum beside it, before the batch counts as delivered. A
query is left out after the first such batch, so it has one at most; what an interrupted delivery left is the same
answer, which its sink recognizes by the number.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa

from penstock.connectors.contract import Sink
from penstock.errors import PenstockError
from penstock.physical.elements import decode, encode
from penstock.runtime.spark.checkpoint.folder import Folder, write_whole
from penstock.runtime.spark.output.batch_logs import commit_logs
from penstock.runtime.spark.output.recorded_sink import RecordedSink
from penstock.runtime.spark.output.result_parts import ResultParts
from penstock.storage import storage
from penstock.storage.names import file_name
from penstock.storage.seals import damaged


def sink_error(query: str, error: Exception) -> PenstockError:
    """Return what a sink raised as an error of the project."""
    if isinstance(error, PenstockError):
        return error
    return PenstockError("P0502", f"query {query}: its sink failed: {type(error).__name__}: {error}", cause=error)


class UndeliveredAnswers:
    """The answers of one checkpoint that have not been delivered."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._root = folder.root / "undelivered"

    def keep(self, query: str, batch: int, table: pa.Table) -> None:
        """Write the answer of a batch durably. Raises PenstockError P0601."""
        path = self._root / file_name(query) / f"{batch:09d}.arrow"
        data = encode(table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)])
        self._folder.write_sealed(path.with_suffix(".crc"), str(zlib.crc32(data)))
        write_whole(path, data)

    def of(self, query: str) -> dict[int, pa.Table]:
        """Return the answers of a query by batch, in order. Raises PenstockError P0605 for a damaged one."""
        place = self._root / file_name(query)
        names = sorted(name for name in storage().list(place) if name.endswith(".arrow"))
        return {int(name.removesuffix(".arrow")): self._read(place / name) for name in names}

    def deliver(self, sinks: Mapping[str, Sink], queries: Collection[str]) -> None:
        """Write the kept answers of `queries` to their sinks. Raises PenstockError P0502."""
        parts = ResultParts(self._folder)
        for query in sorted(queries):
            sink = sinks[query]
            if isinstance(sink, RecordedSink):
                # They were recorded when the batch was delivered.
                sink = sink.inner
            for batch, table in self.of(query).items():
                try:
                    sink.write(batch, table)
                except Exception as error:
                    raise sink_error(query, error) from error
                commit_logs({query: sink}, batch, {})
                parts.note(batch, {query: table.num_rows}, sinks)

    def keep_only(self, queries: Collection[str]) -> None:
        """Remove the answers of other queries."""
        kept = {file_name(query) for query in queries}
        for name in storage().list(self._root):
            if name not in kept:
                storage().remove_tree(self._root / name)

    def _read(self, path: Path) -> pa.Table:
        try:
            data = storage().map(path)
            if zlib.crc32(data) != int(self._folder.read_sealed(path.with_suffix(".crc"))):
                raise ValueError("its content does not match its checksum")
            return pa.Table.from_batches(list(decode(data)))
        except (OSError, ValueError, pa.ArrowInvalid) as error:
            raise damaged(path, error) from error
