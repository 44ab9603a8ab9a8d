"""Reading the updates of a relation again, as the run accepted them."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import Split
from penstock.connectors.sources import open_source
from penstock.physical.elements import Elements
from penstock.physical.execution.ingest import read_columns, stamp
from penstock.physical.execution.progress import SourceProgress
from penstock.runtime.spark.input.input_planner import ReadTask


class UpdateReader:
    """Reads and stamps updates again, in the order in which they came.

    Args:
        progress: of the source before them.

    Attributes:
        progress: of the source after what has been read.
    """

    def __init__(self, source: Source, progress: SourceProgress) -> None:
        self.connector = open_source(source)
        self.progress = progress
        self._source = source
        self._columns = tuple(range(len(source.columns)))
        self._read = read_columns(source, self._columns)

    def read_task(self, task: ReadTask) -> Iterator[Elements]:
        """Yield the updates that were accepted when `task` read them, with all declared columns."""
        for split in task.splits:
            yield from self.read(split, task)

    def read(self, split: Split, task: ReadTask) -> Iterator[Elements]:
        """Yield the updates of a split that were accepted when `task` read it."""
        if task.beat is not None:
            self.progress = self.progress.merge(SourceProgress(beat=task.beat))
        for parsed in self.connector.read(split, self._read):
            if parsed.batch.num_rows:
                stamped = stamp(self._source, parsed.batch, self._read, self._columns, self.progress, task.now)
                self.progress = self.progress.merge(stamped.progress)
                yield stamped.elements
