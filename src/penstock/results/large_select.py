"""One-time queries that do not fit into a process beside the run: each is a job of Spark.

What the rows take is estimated first, from the files that hold them. A query that turns out to need more than
`snapshot_memory` is computed again so, from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.errors import PenstockError
from penstock.physical.operators.joins.growth import limited_joins
from penstock.results.cancellation import Cancellation
from penstock.results.select import too_long
from penstock.results.select_workers import in_file
from penstock.results.source_rows import RetainedRows, RowsInMemory, SourceRows
from penstock.runtime.local.one_time import OneTimeAnswer, at_instant, sources_of
from penstock.runtime.memory_limit import too_large
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.retention.retained_log import RetainedLog
from penstock.storage import storage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from penstock.runtime.spark.one_time.select_job import SelectJob

#: Parts of `snapshot_memory` that a shard may have of the rows: it holds them, its state and what it sends.
_PARTS = 4
_FEWEST, _MOST = 4, 400
#: Bytes that a task may take at least.
_LEAST = 64 << 20
_NUMBERS = count(1)


@dataclass(frozen=True)
class LargeSelects:
    """Computes one-time queries on the Spark of a run.

    Args:
        spark: returns the session.
        place: a folder that the workers share, for what queries need while they run.
        memory: bytes that a part of a query may take.
        weight: of their pool beside that of the rounds (`snapshot_weight`).
    """

    spark: Callable[[], SparkSession]
    place: Path
    memory: int
    weight: int

    def is_large(self, inputs: Mapping[str, SourceRows]) -> bool:
        """Return whether the rows alone take more than one process may."""
        return sum(map(_bytes, inputs.values())) > self.memory

    def __call__(
        self, query: OneTimeQuery, inputs: Mapping[str, SourceRows], cancellation: Cancellation, seconds: float
    ) -> OneTimeAnswer | None:
        """Return the answer of a query; None for one that cannot be divided.

        Args:
            seconds: that it may take.

        Raises:
            PenstockError: P0724, P0725, P0726, and those of the query.
        """
        from penstock.runtime.spark.one_time.select_job import Deadline, SelectJob

        query = replace(query, as_of=_instant(query, inputs))
        if query.as_of is None and any(not source.is_static for source in sources_of(query).values()):
            return None
        shards = min(_MOST, max(_FEWEST, -(-sum(map(_bytes, inputs.values())) * _PARTS // self.memory)))
        folder = self.place / f"{next(_NUMBERS):09d}"
        job = SelectJob(self.spark(), folder, f"penstock-{folder.name}", self.weight)
        try:
            with cancellation.ending(job.cancel), Deadline(job, seconds) as deadline:
                try:

                    def check() -> None:
                        cancellation.check()
                        if deadline.is_over:
                            raise too_long(seconds)

                    table = self._table(job, query, _shared(inputs, folder), shards, check)
                except MemoryError:
                    raise too_large(self._bound) from None
                except PenstockError as error:
                    cancellation.check()
                    if deadline.is_over:
                        raise too_long(seconds) from None
                    raise at_instant(error, query, query.as_of) from None
                cancellation.check()
        finally:
            storage().remove_tree(folder)
        return None if table is None else OneTimeAnswer(query, table, query.as_of)

    @property
    def _bound(self) -> int:
        """Return the bytes that each part of a query may take, and its answer."""
        return max(self.memory, _LEAST)

    def _table(
        self,
        job: SelectJob,
        query: OneTimeQuery,
        inputs: Mapping[str, SourceRows],
        shards: int,
        check: Callable[[], None],
    ) -> pa.Table | None:
        from penstock.runtime.spark.one_time.select_plan import select_plan

        # Static relations are computed in this process, which answers others meanwhile.
        with limited_joins(self._bound, check):
            parts = {name: _parts(rows) for name, rows in inputs.items()}
            found = select_plan(query, parts, shards, memory=self._bound)
        check()
        return None if found is None else job.answer(*found)

    def remove_left(self) -> None:
        """Remove what queries of an earlier process have left."""
        storage().remove_tree(self.place)


def _shared(inputs: Mapping[str, SourceRows], folder: Path) -> dict[str, SourceRows]:
    """Return rows as workers read them: those in memory are written into `folder`."""
    storage().make_folder(folder, durable=False)
    return {name: in_file(rows, folder / f"{n}.arrow") for n, (name, rows) in enumerate(inputs.items())}


def _bytes(rows: SourceRows) -> int:
    """Return about how many bytes some rows take."""
    if isinstance(rows, RowsInMemory):
        return int(rows.rows.nbytes)
    if isinstance(rows, RetainedRows):
        log = RetainedLog(Folder(rows.root), rows.log)
        return sum(log.size(file) for file in rows.files)
    return 0


def _parts(rows: SourceRows) -> Sequence[SourceRows]:
    """Return rows in parts that are read side by side."""
    if isinstance(rows, RetainedRows) and rows.files:
        return [replace(rows, files=(file,)) for file in rows.files]
    return [rows]


def _instant(query: OneTimeQuery, inputs: Mapping[str, SourceRows]) -> int | None:
    """Return the instant of a query; where its rows determine it, from the retained files, None where these do not."""
    if query.as_of is not None:
        return query.as_of
    timed = [inputs[name] for name, source in sources_of(query).items() if not source.is_static]
    if not all(isinstance(rows, RetainedRows) for rows in timed):
        return None
    return max((file.high for rows in timed if isinstance(rows, RetainedRows) for file in rows.files), default=None)
