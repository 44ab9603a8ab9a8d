"""The job's reader as a Spark data source: one for all sources of the job, so the floor per batch is paid once.

The driver's side (`latestOffset`, `partitions`) is `feed.py`; the workers' side is `ingest.py`. Rows are packets.

Spark loads this module in a process of its own for each of several small errands (register, plan, list), so it imports
what computes only where it computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.runtime.spark.feed import Feed, Piece


class PenstockSource(DataSource):
    """Options `folder`, the job's shared folder, and `job`, the digest of the job in it."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        return "shard int, kind string, blob binary"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return PenstockReader(self.options["folder"], self.options["job"])


class _Partition(InputPartition):
    def __init__(self, piece: Piece) -> None:
        self.piece = piece


class PenstockReader(DataSourceStreamReader):
    def __init__(self, root: str, digest: str) -> None:
        self._root = root
        self._digest = digest
        self._feed: Feed | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Workers get the reader by pickle; the feed is the driver's.
        return {"_root": self._root, "_digest": self._digest, "_feed": None}

    @property
    def feed(self) -> Feed:
        if self._feed is None:
            from penstock.runtime.spark.feed import Feed
            from penstock.runtime.spark.folder import Folder

            folder = Folder(self._root)
            self._feed = Feed(folder, folder.read_job(self._digest).intake)
        return self._feed

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self.feed.start()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self.feed.next(start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [_Partition(piece) for piece in self.feed.pieces(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from penstock.runtime.spark.folder import Folder, load_job
        from penstock.runtime.spark.ingest import run_piece
        from penstock.runtime.spark.packets import as_batches

        assert isinstance(partition, _Partition)
        job, tables = load_job(self._root, self._digest)
        yield from as_batches(run_piece(Folder(self._root), job, tables, partition.piece), job.keys)
