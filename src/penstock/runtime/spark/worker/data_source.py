"""The job's reader as a Spark data source: one for all sources of the job, so that the fixed cost per batch is paid
once.

The driver's side (`latestOffset`, `partitions`) is `input/input_planner.py`; the workers' side is `ingest.py`. Rows
are packets.

Spark loads this module in a separate process for each of several small calls (register, plan, list), so it imports the
operators only where it runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.runtime.spark.input.input_planner import InputPlanner, ReadTask


class PenstockSource(DataSource):
    """A data source with the options `folder`, the job's shared folder, and `job`, the digest of the job in it."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        return "shard int, kind string, blob binary"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return PenstockReader(self.options["folder"], self.options["job"])


class _Partition(InputPartition):
    def __init__(self, task: ReadTask) -> None:
        self.task = task


class PenstockReader(DataSourceStreamReader):
    def __init__(self, root: str, digest: str) -> None:
        self._root = root
        self._digest = digest
        self._planner: InputPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Workers get the reader by pickle; only the driver has a planner.
        return {"_root": self._root, "_digest": self._digest, "_planner": None}

    @property
    def planner(self) -> InputPlanner:
        if self._planner is None:
            from penstock.runtime.spark.checkpoint.folder import Folder
            from penstock.runtime.spark.input.input_planner import InputPlanner
            from penstock.runtime.spark.worker.job_files import read_job

            folder = Folder(self._root)
            self._planner = InputPlanner(folder, read_job(folder, self._digest).intake)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self.planner.start().as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        from penstock.runtime.spark.checkpoint.offset import Offset

        return self.planner.next(Offset.from_json(start)).as_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        from penstock.runtime.spark.checkpoint.offset import Offset

        tasks = self.planner.pieces(Offset.from_json(start), Offset.from_json(end))
        return [_Partition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from penstock.runtime.spark.checkpoint.folder import Folder
        from penstock.runtime.spark.worker.ingest import run_read_tasks
        from penstock.runtime.spark.worker.job_files import load_job
        from penstock.runtime.spark.worker.packets import as_batches

        assert isinstance(partition, _Partition)
        job, tables = load_job(self._root, self._digest)
        yield from as_batches(run_read_tasks(Folder(self._root), job, tables, [partition.task]), job.keys)
